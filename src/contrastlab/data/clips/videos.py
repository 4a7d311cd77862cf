"""Labelled video files, whose frames and flow are kept as JPEG pictures."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
import zlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from contrastlab import files
from contrastlab.data import limits
from contrastlab.data.clips.flow import ZERO, quantise, tvl1
from contrastlab.data.clips.sets import spread
from contrastlab.data.images.pictures import opened
from contrastlab.data.images.sets import check_labels
from contrastlab.data.images.subsets import balanced_subset
from contrastlab.errors import CorruptFileError, MissingDataError, import_extra, reject


@dataclass(frozen=True, eq=False)
class VideoFiles:
    """Video files, each decoded once: its frames and their TV-L1 flow are kept as JPEG pictures in one zip file.

    The zip is whole or absent, and named after the video's path, size and time, and after how it was made. Frames are
    resized to :data:`HEIGHT` by :data:`WIDTH` pixels whatever their shape, so that clips of different videos make a
    batch; flow is that of the resized frames, its components one above the other in a grey picture (Simonyan and
    Zisserman 2014, §5: eight bits and JPEG bring the flow of UCF101 from 1.5 TB to 27 GB).

    ``videos[index]`` is the window of ``length`` frames in the middle; training draws its windows, :meth:`window`.

    Attributes:
        name: data set and split.
        folder: what ``paths`` are relative to.
        paths: N video files.
        labels: int64 ``[N]``: index into ``classes``.
        classes: names of the actions.
        length: frames of a window.
        count: ``None``, or the number of frames, equally spaced over the whole video, that an item is in place of a
            window; these have no flow.
        flow: whether items have flow; without it those planes are at rest, and none is estimated.
        cache: folder of the zip files; by default ``videos`` in :func:`contrastlab.data.limits.cache_folder`.

    Raises:
        ArgumentError: labels and paths do not match, a path leads out of the folder, or a window without frames.
    """

    resident: ClassVar[bool] = False
    modality: ClassVar[str] = "clip"
    channels: ClassVar[int] = 3
    bound: ClassVar[float] = 20.0

    name: str
    folder: Path
    paths: tuple[str, ...]
    labels: Tensor
    classes: tuple[str, ...]
    length: int = 12
    count: int | None = None
    flow: bool = True
    cache: Path | None = None

    def __post_init__(self) -> None:
        check_labels(self.labels, self.classes, len(self.paths))
        limits.check_inside("paths", self.paths)
        if self.length < 1:
            raise reject("length", self.length, "an integer >= 1")

    def __len__(self) -> int:
        return len(self.paths)

    def __repr__(self) -> str:
        return f"VideoFiles({self.name!r}, {len(self)} files, {len(self.classes)} classes)"

    def __getitem__(self, index: int) -> Tensor:
        with self._opened(index) as packed:
            frames = _frames_in(packed)
            if self.count is not None:
                return self._read(packed, spread(frames, self.count).tolist())
            first = (self._enough(index, frames) - self.length) // 2
            return self._read(packed, range(first, first + self.length))

    def window(self, index: int, rng: torch.Generator) -> Tensor:
        """``[length, 5, H, W]`` consecutive frames, from a start that is uniform over the video.

        Raises:
            CorruptFileError: the video has fewer frames, or cannot be decoded; the message names it.
        """
        with self._opened(index) as packed:
            starts = self._enough(index, _frames_in(packed)) - self.length + 1
            first = int(torch.randint(starts, (1,), generator=rng))
            return self._read(packed, range(first, first + self.length))

    def still(self) -> VideoFiles:
        """The same videos with windows of one frame and no flow, for a network of single frames."""
        return replace(self, length=1, flow=False)

    def spread(self, count: int) -> VideoFiles:
        """The same videos as ``count`` frames each, equally spaced and without flow."""
        if count < 1:
            raise reject("frames", count, "an integer >= 1")
        return replace(self, count=count, flow=False)

    def subset(self, indices: Tensor) -> VideoFiles:
        """The videos at ``indices`` (int64 ``[n]``), in that order."""
        rows = indices.cpu()
        return replace(self, paths=tuple(self.paths[i] for i in rows.tolist()), labels=self.labels[rows])

    def take(self, n: int | None, seed: int = 0) -> VideoFiles:
        """A random subset, as :meth:`ClipSet.take`."""
        return self if n is None else self.subset(balanced_subset(self.labels, n, seed))

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in pixels after decoding."""
        return HEIGHT, WIDTH

    @cached_property
    def fingerprint(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of relative paths, file sizes, labels, and how items are made."""
        digest = hashlib.sha256(repr((HEIGHT, WIDTH, self.length, self.count, self.flow, self.bound)).encode())
        for path, label in zip(self.paths, self.labels.tolist(), strict=True):
            digest.update(f"\0{path}\0{os.stat(self.folder / path).st_size}\0{label}".encode())
        return digest.hexdigest()[:16]

    def _enough(self, index: int, frames: int) -> int:
        if frames < self.length:
            raise CorruptFileError(
                f"{self.folder / self.paths[index]} has {frames} frames: a window of {self.length} is wanted"
            )
        return frames

    def _read(self, packed: zipfile.ZipFile, numbers: Any) -> Tensor:
        planes = []
        flows = _count(packed, "flow")
        for number in numbers:
            rgb = torch.from_numpy(_picture(packed, f"frame/{number:06d}.jpg")).permute(2, 0, 1)
            moved = torch.full((2, *rgb.shape[1:]), ZERO, dtype=torch.uint8)
            if self.flow and number < flows:  # the last frame has none
                moved = torch.from_numpy(_picture(packed, f"flow/{number:06d}.jpg")).view(2, *rgb.shape[1:])
            planes.append(torch.cat([rgb, moved]))
        return torch.stack(planes)

    def _opened(self, index: int) -> zipfile.ZipFile:
        path = self.folder / self.paths[index]
        try:
            found = path.stat()
        except OSError as error:
            raise MissingDataError(f"{self.name}: {path} does not exist") from error
        made = f"{path.resolve()}\0{found.st_size}\0{found.st_mtime_ns}\0{HEIGHT}x{WIDTH}\0{self.bound}\0{_QUALITY}"
        root = (self.cache or limits.cache_folder() / "videos") / hashlib.sha256(made.encode()).hexdigest()[:24]
        # frames alone are a file of their own: whoever needs no flow need not wait for its estimate
        kept = [root.with_suffix(ending) for ending in ((".flow.zip",) if self.flow else (".flow.zip", ".zip"))]
        for candidate in kept:
            if candidate.exists():
                return _open(candidate)
        files.write_whole(kept[-1], _pack(decode(path), self.bound if self.flow else None))
        return _open(kept[-1])


HEIGHT, WIDTH = 256, 340
"""Pixels that every frame of a video file is resized to, as temporal segment networks have it (Wang et al. 2016)."""

_QUALITY = 90  # of the kept JPEG pictures


def decode(path: Path) -> Tensor:
    """All frames of a video file.

    Args:
        path: of any format that FFmpeg reads.

    Returns:
        uint8 ``[T, 3, 256, 340]``, T at least one.

    Raises:
        MissingDataError: the file is not there.
        MissingExtraError: PyAV is not installed; the message says which extra brings it.
        CorruptFileError: no frame can be decoded; the message names the file.
        TooLargeError: its frames are too large or too many, see :mod:`contrastlab.data.limits`.
    """
    av = import_extra("av", "video")
    if not path.exists():
        raise MissingDataError(f"{path} does not exist")
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
        reason = str(error)
        frames = []
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


def _open(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile) as error:
        raise CorruptFileError(f"{path} cannot be read ({error}); delete it to decode its video anew") from error


def _picture(packed: zipfile.ZipFile, name: str) -> Any:
    try:
        with opened(limits.unpacked(packed, name), f"{name} in {packed.filename}") as image:
            return np.asarray(image).copy()
    except (KeyError, OSError, zipfile.BadZipFile, zlib.error, CorruptFileError) as error:
        raise CorruptFileError(
            f"{packed.filename} cannot be read ({error}); delete it to decode its video anew"
        ) from error


def _count(packed: zipfile.ZipFile, kind: str) -> int:
    return sum(name.startswith(f"{kind}/") for name in packed.namelist())


def _frames_in(packed: zipfile.ZipFile) -> int:
    return _count(packed, "frame")
