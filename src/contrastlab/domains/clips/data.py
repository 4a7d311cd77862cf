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
from contrastlab.support.files import check_regular
from contrastlab.support.paths import cache_folder, lines_of_words, matching

PLANES = 5  #: red, green, blue, and flow to the right and down
#: pixels that every frame of a video file is resized to, as temporal segment networks have it (Wang et al. 2016)
HEIGHT = 256
WIDTH = 340
_QUALITY = 90  # of the kept JPEG pictures


def spread(length: int, count: int) -> Tensor:
    """``count`` frame numbers with equal spacing, the middles of as many equal parts of ``length`` frames."""
    check(count >= 1, "frames", count, "an integer >= 1")
    middles = (torch.arange(count) + 0.5) * (length / count)
    return middles.long().clamp(max=length - 1)


@dataclass(frozen=True, eq=False, repr=False)
class ClipSet(Items):
    """Clips in memory, uint8 ``[N, T, 5, H, W]``: RGB, and flow to the next frame; that of the last is never read."""

    domain: ClassVar[str] = "contrastlab.domains.clips"
    modality: ClassVar[str] = "clip"
    by_item: ClassVar[tuple[str, ...]] = (*Items.by_item, "factors")
    shape: ClassVar[str] = f"uint8 of shape [N, T, {PLANES}, H, W]"
    channels: ClassVar[int] = 3

    bound: float  #: of the flow in eight bits, see :func:`~contrastlab.domains.clips.flow.quantise`
    factors: Mapping[str, Tensor] = field(default_factory=dict)  #: further values of each clip, ``[N]`` by name

    def _fits(self) -> bool:
        return self.items.dtype == torch.uint8 and self.items.ndim == 5 and self.items.shape[2] == PLANES

    def _form(self) -> str:
        return repr((tuple(self.items.shape), self.bound))

    def still(self) -> ClipSet:
        """For a network of single frames: the set itself, since all frames are in memory."""
        return self

    def spread(self, count: int) -> ClipSet:
        """The same clips with ``count`` equally spaced frames; their flow is no longer that of neighbours."""
        frames = spread(self.items.shape[1], count)
        return replace(self, items=self.items[:, frames.to(self.items.device)])


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
            frames = spread(_count(packed, "frame"), self.count)
            return self._read(packed, frames.tolist())

    def window(self, index: int, rng: torch.Generator | None = None) -> Tensor:
        """``[length, 5, H, W]`` consecutive frames, from a start that is uniform over the video; or in its middle."""
        with self._opened(index) as packed:
            frames = _count(packed, "frame")
            if frames < self.length:
                raise CorruptFileError(f"{self.path(index)} has {frames} frames: a window of {self.length} is wanted")
            starts = frames - self.length + 1
            first = (starts - 1) // 2
            if rng is not None:
                first = int(torch.randint(starts, (1,), generator=rng))
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
        """Frames of some numbers with their flow, ``[n, 5, H, W]``."""
        flows = 0
        if self.flow:
            flows = _count(packed, "flow")
        frames = []
        for number in numbers:
            rgb = _picture(packed, f"frame/{number:06d}.jpg").permute(2, 0, 1)
            _, height, width = rgb.shape
            if number < flows:
                flow = _picture(packed, f"flow/{number:06d}.jpg").view(2, height, width)
            else:  # the last frame has none
                flow = torch.full((2, height, width), ZERO, dtype=torch.uint8)
            frames.append(torch.cat([rgb, flow]))
        return torch.stack(frames)

    @contextmanager
    def _opened(self, index: int) -> Iterator[zipfile.ZipFile]:
        path = self._packed_file(index)
        try:
            with zipfile.ZipFile(path) as packed:
                yield packed
        except (KeyError, OSError, zipfile.BadZipFile, zlib.error) as error:
            raise CorruptFileError(f"{path} cannot be read ({error}); delete it to decode its video anew") from error

    def _packed_file(self, index: int) -> Path:
        """The zip file of a video, which is made if it is not there."""
        path = self.path(index)
        try:
            stat = path.stat()
        except OSError as error:
            raise MissingDataError(f"{self.name}: {path} does not exist") from error
        words = (path.resolve(), stat.st_size, stat.st_mtime_ns, f"{HEIGHT}x{WIDTH}", self.bound, _QUALITY)
        key = "\0".join(map(str, words))
        root = cache_folder() / "videos" / hashlib.sha256(key.encode()).hexdigest()[:24]
        # frames alone are a file of their own: whoever needs no flow need not wait for its estimate
        packed_file = root.with_suffix(".flow.zip")
        if not self.flow and not packed_file.exists():
            packed_file = root.with_suffix(".zip")
        if not packed_file.exists():
            bound = self.bound if self.flow else None
            files.write_whole(packed_file, _pack(decode(path), bound))
        return packed_file


def decode(path: Path) -> Tensor:
    """All frames of a video file of any format that FFmpeg reads: uint8 ``[T, 3, 256, 340]``, T at least one."""
    av = import_extra("av", "video")
    check_regular(path)
    frames: list[Tensor] = []
    reason = "it has no video stream, or one without frames"
    try:
        with av.open(str(path)) as container:
            frames = _decoded_frames(container, path)
    except (av.error.FFmpegError, OSError, ValueError) as error:
        frames = []
        reason = str(error)
    if not frames:
        raise CorruptFileError(f"{path}: no frame can be decoded: {reason}")
    return torch.stack(frames)


def _decoded_frames(container: Any, path: Path) -> list[Tensor]:
    """The frames of the first video stream; none where there is no such stream."""
    if not container.streams.video:
        return []
    stream = container.streams.video[0]
    limits.check_pixels(stream.width, stream.height, path)
    frames: list[Tensor] = []
    for frame in container.decode(video=0):
        limits.check_count(len(frames) + 1, limits.MAX_FRAMES, "frames or more", path)
        limits.check_pixels(frame.width, frame.height, path)
        picture = frame.to_image().resize((WIDTH, HEIGHT), Image.Resampling.BILINEAR)
        pixels = torch.from_numpy(np.asarray(picture).copy())
        frames.append(pixels.permute(2, 0, 1))
    return frames


def _pack(frames: Tensor, bound: float | None) -> bytes:
    """A zip file of frames and, with a ``bound``, of the flow between them, as JPEG pictures."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as packed:
        for number, frame in enumerate(frames):
            pixels = frame.permute(1, 2, 0)
            packed.writestr(f"frame/{number:06d}.jpg", _jpeg(pixels.numpy()))
        flows = 0 if bound is None else len(frames) - 1
        for number in range(flows):
            flow = tvl1(frames[number : number + 2])[0]
            levels = quantise(flow, bound or 1.0)
            packed.writestr(f"flow/{number:06d}.jpg", _jpeg(levels.flatten(0, 1).numpy()))
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
    table = read_parquet([path]).images
    track, frame_number = map(torch.tensor, columns(path, "track", "frame"))
    label_and_track = torch.stack([table.labels, track])
    groups, group_of_row = torch.unique(label_and_track, dim=1, return_inverse=True)
    every_second = torch.arange(TRACK) * 2
    clips = []
    for group in range(groups.shape[1]):
        rows = (group_of_row == group).nonzero().flatten()
        rows = rows[frame_number[rows].argsort()]
        # one track is a frame short: its last frame stands twice
        places = every_second.clamp(max=len(rows) - 1)
        clips.append(rows[places])
    frames = table.images[torch.stack(clips)]
    flow = cached_tvl1(frames, _TRACK_BOUND)
    labels, tracks = groups
    pool = ClipSet(name, torch.cat([frames, flow], 2), labels, table.classes, _TRACK_BOUND)
    return Splits.held_out(name, pool, note, tracks)


_Listed = list[tuple[str, int]]  # paths of videos and their labels


@dataclass(frozen=True)
class _OfficialSplit:
    train: _Listed
    test: _Listed


def _ucf(lists: Path) -> tuple[Sequence[str], list[_OfficialSplit]]:
    number = {}
    for label, action in lines_of_words(lists / "classInd.txt"):
        number[action] = int(label) - 1  # counted from 1

    def listed(part: str, k: int) -> _Listed:
        # training lists say the label, too; test lists do not, and the folder of a video is its action in both
        videos = [words[0] for words in lines_of_words(lists / f"{part}list{k:02d}.txt")]
        return [(video, number[video.split("/")[0]]) for video in videos]

    classes = sorted(number, key=lambda action: number[action])
    return classes, [_OfficialSplit(listed("train", k), listed("test", k)) for k in (1, 2, 3)]


def _hmdb(lists: Path) -> tuple[Sequence[str], list[_OfficialSplit]]:
    ending = "_test_split1.txt"
    classes = sorted(file.name.removesuffix(ending) for file in matching(lists, f"*{ending}"))
    splits = []
    for k in (1, 2, 3):
        split = _OfficialSplit([], [])
        for label, action in enumerate(classes):
            for video, part in lines_of_words(lists / f"{action}_test_split{k}.txt"):
                if part not in ("0", "1", "2"):
                    raise ValueError(f"{action}_test_split{k}.txt: {video} {part} is not a video and 0, 1 or 2")
                path = f"{action}/{video}"
                if part == "1":
                    split.train.append((path, label))
                if part == "2":
                    split.test.append((path, label))
        splits.append(split)
    return classes, splits


_LAYOUTS = {"ucf": _ucf, "hmdb": _hmdb}


def video_files(name: str, folder: Path, note: str, *, lists: str, layout: str) -> Splits:
    """Video files with three official splits, of which pre-training sees the training part of the first.

    The folder ``lists`` beside ``folder`` has the splits, in the ``layout`` ``ucf`` or ``hmdb``.
    """
    place = folder.parent / lists
    classes, splits = _LAYOUTS[layout](place)

    def videos(part: str, k: int, listed: _Listed) -> VideoFiles:
        if not listed:
            raise ValueError(f"split {k} under {place} has no video in its {part} part")
        paths, labels = zip(*listed, strict=True)
        for path in paths:
            if not (folder / path).is_file():
                raise FileNotFoundError(2, "no video", str(folder / path))
        return VideoFiles(f"{name}/{part}{k}", folder, paths, torch.tensor(labels), tuple(classes))

    folds = []
    for k, split in enumerate(splits, 1):
        train = videos("train", k, split.train)
        test = videos("test", k, split.test)
        folds.append((train, test))
    (train, test), *further = folds
    return Splits(name, train, train, test, note, tuple(further))
