"""Labelled clips, in memory or in video files whose frames and flow are kept as JPEG pictures, and their readers."""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from contrastlab.domains.clips.flow import ZERO, cached_tvl1, quantise, tvl1
from contrastlab.pictures import limits
from contrastlab.pictures.items import Files, Items, Splits
from contrastlab.pictures.loading import Crops
from contrastlab.pictures.parquet import columns, read_parquet
from contrastlab.pictures.sets import opened
from contrastlab.support import files
from contrastlab.support.errors import CorruptFileError, MissingDataError, check, import_extra

PLANES = 5  #: red, green, blue, and flow to the right and down
#: pixels that every frame of a video file is resized to, as temporal segment networks have it (Wang et al. 2016)
HEIGHT, WIDTH = 256, 340
_QUALITY = 90  # of the kept JPEG pictures


def spread(length: int, count: int) -> Tensor:
    """``count`` frame numbers with equal spacing, the middles of as many equal parts of ``length`` frames."""
    check(count >= 1, "frames", count, "an integer >= 1")
    return ((torch.arange(count) + 0.5) * (length / count)).long().clamp(max=length - 1)


@dataclass(frozen=True, eq=False, repr=False)
class ClipSet(Items):
    """Clips in memory, uint8 ``[N, T, 5, H, W]``: RGB, and flow to the next frame; that of the last is never read."""

    domain: ClassVar[str] = "contrastlab.domains.clips"
    modality: ClassVar[str] = "clip"
    by_item: ClassVar[tuple[str, ...]] = (*Items.by_item, "factors")
    shape: ClassVar[str] = f"uint8 of shape [N, T, {PLANES}, H, W]"
    channels: ClassVar[int] = 3

    bound: float  #: of the flow in eight bits, see :func:`~contrastlab.domains.clips.flow.quantise`
    factors: Mapping[str, Tensor] = field(default_factory=dict)  #: what else is known of each clip, ``[N]`` by name

    def _fits(self) -> bool:
        return self.items.dtype == torch.uint8 and self.items.ndim == 5 and self.items.shape[2] == PLANES

    def _form(self) -> str:
        return repr((tuple(self.items.shape), self.bound))

    def still(self) -> ClipSet:
        """For a network of single frames: the set itself, since all frames are in memory."""
        return self

    def spread(self, count: int) -> ClipSet:
        """The same clips with ``count`` equally spaced frames; their flow is no longer that of neighbours."""
        return replace(self, items=self.items[:, spread(self.items.shape[1], count).to(self.items.device)])


@dataclass(frozen=True, eq=False, repr=False)
class VideoFiles(Files):
    """Video files, each decoded once: its frames and their TV-L1 flow are kept as JPEG pictures in one zip file.

    The zip is whole or absent, and named after the video's path, size and time, and after how it was made. Frames are
    resized to :data:`HEIGHT` by :data:`WIDTH` pixels whatever their shape, so that clips of different videos make a
    batch; flow is that of the resized frames, its components one above the other in a grey picture (Simonyan and
    Zisserman 2014, §5: eight bits and JPEG bring the flow of UCF101 from 1.5 TB to 27 GB).

    ``videos[index]`` is the window of ``length`` frames in the middle; training draws its windows, :meth:`window`.
    """

    domain: ClassVar[str] = "contrastlab.domains.clips"
    modality: ClassVar[str] = "clip"
    whole: ClassVar[bool] = False
    channels: ClassVar[int] = 3
    bound: ClassVar[float] = 20.0

    length: int = 12  #: frames of a window
    count: int | None = None  #: how many frames, equally spaced over the video and without flow, stand for a window
    flow: bool = True  #: whether items have flow; without it those planes are at rest, and none is estimated

    def __getitem__(self, index: int) -> Tensor:
        if self.count is None:
            return self.window(index)
        with self._opened(index) as packed:
            return self._read(packed, spread(_count(packed, "frame"), self.count).tolist())

    def window(self, index: int, rng: torch.Generator | None = None) -> Tensor:
        """``[length, 5, H, W]`` consecutive frames, from a start that is uniform over the video; or in its middle."""
        with self._opened(index) as packed:
            frames = _count(packed, "frame")
            if frames < self.length:
                raise CorruptFileError(f"{self.path(index)} has {frames} frames: a window of {self.length} is wanted")
            starts = frames - self.length + 1
            first = int(torch.randint(starts, (1,), generator=rng)) if rng else (starts - 1) // 2
            return self._read(packed, range(first, first + self.length))

    def part(self, index: int, crops: Crops, number: int) -> Tensor:
        """A random window of one video."""
        return self.window(index, crops.draws(number))

    def still(self) -> VideoFiles:
        """The same videos with windows of one frame and no flow, for a network of single frames."""
        return replace(self, length=1, flow=False)

    def spread(self, count: int) -> VideoFiles:
        """The same videos as ``count`` frames each, equally spaced and without flow."""
        return replace(self, count=count, flow=False)

    def _form(self) -> str:
        return repr((HEIGHT, WIDTH, self.length, self.count, self.flow, self.bound))

    def _read(self, packed: zipfile.ZipFile, numbers: Iterable[int]) -> Tensor:
        planes, flows = [], _count(packed, "flow") if self.flow else 0
        for number in numbers:
            rgb = _picture(packed, f"frame/{number:06d}.jpg").permute(2, 0, 1)
            moved = torch.full((2, *rgb.shape[1:]), ZERO, dtype=torch.uint8)
            if number < flows:  # the last frame has none
                moved = _picture(packed, f"flow/{number:06d}.jpg").view(2, *rgb.shape[1:])
            planes.append(torch.cat([rgb, moved]))
        return torch.stack(planes)

    @contextmanager
    def _opened(self, index: int) -> Iterator[zipfile.ZipFile]:
        path = self.path(index)
        try:
            stat = path.stat()
        except OSError as error:
            raise MissingDataError(f"{self.name}: {path} does not exist") from error
        made = f"{path.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}\0{HEIGHT}x{WIDTH}\0{self.bound}\0{_QUALITY}"
        root = limits.cache_folder() / "videos" / hashlib.sha256(made.encode()).hexdigest()[:24]
        # frames alone are a file of their own: whoever needs no flow need not wait for its estimate
        kept = root.with_suffix(".flow.zip")
        if not self.flow and not kept.exists():
            kept = root.with_suffix(".zip")
        if not kept.exists():
            files.write_whole(kept, _pack(decode(path), self.bound if self.flow else None))
        try:
            with zipfile.ZipFile(kept) as packed:
                yield packed
        except (KeyError, OSError, zipfile.BadZipFile, zlib.error) as error:
            raise CorruptFileError(f"{kept} cannot be read ({error}); delete it to decode its video anew") from error


def decode(path: Path) -> Tensor:
    """All frames of a video file of any format that FFmpeg reads: uint8 ``[T, 3, 256, 340]``, T at least one."""
    av = import_extra("av", "video")
    limits.check_regular(path)
    frames: list[Tensor] = []
    reason = "it has no video stream, or one without frames"
    try:
        with av.open(str(path)) as container:
            if container.streams.video:
                limits.check_pixels(container.streams.video[0].width, container.streams.video[0].height, path)
                for frame in container.decode(video=0):
                    limits.check_count(len(frames) + 1, limits.MAX_FRAMES, "frames or more", path)
                    limits.check_pixels(frame.width, frame.height, path)
                    shown = frame.to_image().resize((WIDTH, HEIGHT), Image.Resampling.BILINEAR)
                    frames.append(torch.from_numpy(np.asarray(shown).copy()).permute(2, 0, 1))
    except (av.error.FFmpegError, OSError, ValueError) as error:
        frames, reason = [], str(error)
    if not frames:
        raise CorruptFileError(f"{path}: no frame can be decoded: {reason}")
    return torch.stack(frames)


def _pack(frames: Tensor, bound: float | None) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as packed:
        for number, frame in enumerate(frames):
            packed.writestr(f"frame/{number:06d}.jpg", _jpeg(frame.permute(1, 2, 0).numpy()))
        for number in range(len(frames) - 1 if bound is not None else 0):
            moved = quantise(tvl1(frames[number : number + 2])[0], bound or 1.0)
            packed.writestr(f"flow/{number:06d}.jpg", _jpeg(moved.flatten(0, 1).numpy()))
    return buffer.getvalue()


def _jpeg(pixels: Any) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=_QUALITY)
    return buffer.getvalue()


def _picture(packed: zipfile.ZipFile, name: str) -> Tensor:
    with opened(limits.unpacked(packed, name), f"{name} in {packed.filename}") as image:
        return torch.from_numpy(np.asarray(image).copy())


def _count(packed: zipfile.ZipFile, kind: str) -> int:
    return sum(name.startswith(f"{kind}/") for name in packed.namelist())


# Readers: rows of published.toml name them ----------------------------------------------------------------------------

TRACK = 15  #: frames of a traffic sign's clip: every second one of the thirty that were taken of it
_TRACK_BOUND = 4.0


def tracks(name: str, path: Path, note: str) -> Splits:
    """The tracks of a copy of GTSRB as clips, with TV-L1 flow."""
    table, _ = read_parquet([path])
    track, frame = map(torch.tensor, columns(path, "track", "frame"))
    groups, of_row = torch.unique(torch.stack([table.labels, track]), dim=1, return_inverse=True)
    rows = []
    for group in range(groups.shape[1]):
        mine = (of_row == group).nonzero().flatten()
        mine = mine[frame[mine].argsort()]
        # one track is a frame short: its last frame stands twice
        rows.append(mine[(torch.arange(TRACK) * 2).clamp(max=len(mine) - 1)])
    frames = table.images[torch.stack(rows)]
    flow = cached_tvl1(frames, _TRACK_BOUND)
    pool = ClipSet(name, torch.cat([frames, flow], 2), groups[0], table.classes, _TRACK_BOUND)
    return Splits.held_out(name, pool, note, groups[1])


_Listed = dict[str, list[tuple[str, int]]]  # part of an official split to the paths of its videos and their labels


def _ucf(lists: Path) -> tuple[Sequence[str], list[_Listed]]:
    number = {action: int(label) - 1 for label, action in limits.words(lists / "classInd.txt")}  # counted from 1

    def listed(part: str, k: int) -> list[tuple[str, int]]:
        # training lists say the label, too; test lists do not, and the folder of a video is its action in both
        videos = (line[0] for line in limits.words(lists / f"{part}list{k:02d}.txt"))
        return [(video, number[video.split("/")[0]]) for video in videos]

    splits = [{part: listed(part, k) for part in ("train", "test")} for k in (1, 2, 3)]
    return sorted(number, key=lambda action: number[action]), splits


def _hmdb(lists: Path) -> tuple[Sequence[str], list[_Listed]]:
    ending = "_test_split1.txt"
    classes = sorted(file.name.removesuffix(ending) for file in limits.matching(lists, f"*{ending}"))
    splits: list[_Listed] = [{"train": [], "test": []} for _ in range(3)]
    for k, split in enumerate(splits, 1):
        for label, action in enumerate(classes):
            for video, part in limits.words(lists / f"{action}_test_split{k}.txt"):
                if part not in ("0", "1", "2"):
                    raise ValueError(f"{action}_test_split{k}.txt: {video} {part} is not a video and 0, 1 or 2")
                if part != "0":  # 1 trains, 2 tests, 0 is in neither part
                    split["train" if part == "1" else "test"].append((f"{action}/{video}", label))
    return classes, splits


def video_files(name: str, folder: Path, note: str, *, lists: str, layout: str) -> Splits:
    """Video files with three official splits, of which pre-training sees the training part of the first.

    The folder ``lists`` beside ``folder`` has the splits, in the ``layout`` ``ucf`` or ``hmdb``.
    """
    classes, splits = {"ucf": _ucf, "hmdb": _hmdb}[layout](folder.parent / lists)
    parts = []
    for k, split in enumerate(splits, 1):
        for part, listed in split.items():
            if not listed:
                raise ValueError(f"split {k} under {folder.parent / lists} has no video in its {part} part")
            paths, labels = zip(*listed, strict=True)
            for path in paths:
                if not (folder / path).is_file():
                    raise FileNotFoundError(2, "no video", str(folder / path))
            parts.append(VideoFiles(f"{name}/{part}{k}", folder, paths, torch.tensor(labels), tuple(classes)))
    train, test, *further = parts
    return Splits(name, train, train, test, note, tuple(zip(further[::2], further[1::2], strict=True)))
