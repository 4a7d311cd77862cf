"""Labelled waveforms: resident in one tensor, or read from files when asked for."""

from __future__ import annotations

import hashlib
import io
import math
import os
import wave
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from contrastlab.data import limits
from contrastlab.data.images.sets import check_labels
from contrastlab.data.images.subsets import balanced_subset
from contrastlab.errors import CorruptFileError, import_extra, reject

EXTRA = "speech"
"""Extra of the package that installs ``soundfile``, for everything but uncompressed wav."""


def read_wave(source: Path | bytes, rate: int, where: str = "") -> NDArray[np.int16]:
    """One sound, its channels averaged, at ``rate`` samples a second.

    Uncompressed wav of 8, 16, 24 or 32 bits is read by Python itself, all else (FLAC, Ogg) by ``soundfile``.

    Args:
        source: a file, or its content.
        rate: samples a second wanted.
        where: what to call it in errors.

    Returns:
        int16 ``[T]``.

    Raises:
        CorruptFileError: it cannot be read, or has no samples.
        TooLargeError: it has too many, see :mod:`contrastlab.data.limits`; they have not been decoded.
        MissingExtraError: ``soundfile`` is needed and not installed.
    """
    where = where or str(source)
    if isinstance(source, Path):
        limits.check_count(source.stat().st_size, limits.MAX_BYTES, "bytes", where)
    content = source.read_bytes() if isinstance(source, Path) else source
    if not content:
        raise CorruptFileError(f"{where} is empty")
    try:
        own, samples = _pcm(content, where)
    except (wave.Error, EOFError):
        own, samples = _decoded(content, where)
    if not len(samples):
        raise CorruptFileError(f"{where} has no samples")
    low, high = limits.RATES
    if not low <= own <= high:
        raise CorruptFileError(f"{where} has {own} samples a second: accepted are {low} to {high}")
    limits.check_count(len(samples) * rate // own, limits.MAX_SAMPLES, f"samples at {rate} a second", where)
    if own != rate:
        from scipy.signal import resample_poly

        shared = math.gcd(own, rate)
        samples = resample_poly(samples, rate // shared, own // shared)
    return np.clip(np.rint(samples * 32768), -32768, 32767).astype(np.int16)


def _pcm(content: bytes, where: str) -> tuple[int, NDArray[np.float64]]:
    with wave.open(io.BytesIO(content)) as file:
        width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
        if width > 4:
            raise wave.Error(f"{8 * width} bits")
        limits.check_count(len(content) // width, limits.MAX_SAMPLES, "samples", where)
        raw = np.frombuffer(file.readframes(file.getnframes()), dtype=np.uint8)
    raw = raw[: len(raw) - len(raw) % (width * channels)]
    if width == 1:
        values = raw.astype(np.float64) - 128  # 8 bits are unsigned
    else:
        wide = np.zeros((len(raw) // width, 4), dtype=np.uint8)
        wide[:, 4 - width :] = raw.reshape(-1, width)
        values = wide.view("<i4")[:, 0] / 256 ** (4 - width)
    return rate, (values / 2 ** (8 * width - 1)).reshape(-1, channels).mean(1)


def _decoded(content: bytes, where: str) -> tuple[int, NDArray[np.float64]]:
    soundfile = import_extra("soundfile", EXTRA)
    try:
        about = soundfile.info(io.BytesIO(content))
        limits.check_count(about.frames * about.channels, limits.MAX_SAMPLES, "samples", where)
        samples, rate = soundfile.read(io.BytesIO(content), dtype="float64", always_2d=True)
    except RuntimeError as error:
        raise CorruptFileError(f"{where} cannot be read as sound: {error}") from error
    return int(rate), samples.mean(1)


def fitted(samples: NDArray[np.int16], length: int) -> Tensor:
    """The first ``length`` samples, with silence behind the end of a shorter sound: int16 ``[length]``."""
    out = np.zeros(length, dtype=np.int16)
    out[: len(samples)] = samples[:length]
    return torch.from_numpy(out)


@dataclass(frozen=True, eq=False)
class WaveSet:
    """Sounds in memory, all of one length and rate.

    Attributes:
        name: data set and split.
        waves: int16 ``[N, T]``.
        labels: int64 ``[N]``: index into ``classes``, or −1 where unknown.
        classes: class names.
        rate: samples a second.

    Raises:
        ArgumentError: a tensor has another type or shape, or a label has no class.
    """

    resident: ClassVar[bool] = True
    modality: ClassVar[str] = "waveform"
    channels: ClassVar[int] = 1

    name: str
    waves: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    rate: int

    def __post_init__(self) -> None:
        if self.waves.dtype != torch.int16 or self.waves.ndim != 2:
            raise reject("waves", f"{self.waves.dtype} of shape {tuple(self.waves.shape)}", "int16 of shape [N, T]")
        check_labels(self.labels, self.classes, len(self.waves))

    def __len__(self) -> int:
        return len(self.waves)

    def __repr__(self) -> str:
        seconds = self.waves.shape[1] / self.rate
        return f"WaveSet({self.name!r}, {len(self)} sounds of {seconds:.2f} s, {len(self.classes)} classes)"

    def __getitem__(self, index: int) -> Tensor:
        return self.waves[index]

    @property
    def items(self) -> Tensor:
        """The sounds, as loading reads them."""
        return self.waves

    @cached_property
    def fingerprint(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of rate, samples and labels."""
        digest = hashlib.sha256(repr((self.rate, tuple(self.waves.shape))).encode())
        digest.update(self.waves.cpu().contiguous().numpy().astype("<i2").data)
        digest.update(self.labels.cpu().contiguous().numpy().astype("<i8").data)
        return digest.hexdigest()[:16]

    def subset(self, indices: Tensor) -> WaveSet:
        """The sounds at ``indices``, in that order."""
        rows = indices.to(self.waves.device)
        return replace(self, waves=self.waves[rows], labels=self.labels[rows.to(self.labels.device)])

    def take(self, n: int | None, seed: int = 0) -> WaveSet:
        """A random subset, the same for the same seed; see :func:`balanced_subset`."""
        return self if n is None else self.subset(balanced_subset(self.labels, n, seed))

    def to(self, device: torch.device | str) -> WaveSet:
        """The same set with its tensors on ``device``."""
        return replace(self, waves=self.waves.to(device), labels=self.labels.to(device))


@dataclass(frozen=True, eq=False)
class WaveFiles:
    """Sound files that are decoded one at a time, cut or padded to one length.

    Attributes:
        name: data set and split.
        folder: what ``paths`` are relative to.
        paths: N files.
        labels: int64 ``[N]``: index into ``classes``, or −1 where unknown.
        classes: class names.
        rate: samples a second that all are brought to.
        length: samples of each.

    Raises:
        ArgumentError: a label has no class, or a path leads out of the folder.
    """

    resident: ClassVar[bool] = False
    modality: ClassVar[str] = "waveform"
    channels: ClassVar[int] = 1

    name: str
    folder: Path
    paths: tuple[str, ...]
    labels: Tensor
    classes: tuple[str, ...]
    rate: int
    length: int

    def __post_init__(self) -> None:
        check_labels(self.labels, self.classes, len(self.paths))
        limits.check_inside("paths", self.paths)

    def __len__(self) -> int:
        return len(self.paths)

    def __repr__(self) -> str:
        return f"WaveFiles({self.name!r}, {len(self)} files, {len(self.classes)} classes)"

    def __getitem__(self, index: int) -> Tensor:
        return fitted(read_wave(self.folder / self.paths[index], self.rate), self.length)

    @cached_property
    def fingerprint(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of paths, file sizes, labels, rate and length."""
        digest = hashlib.sha256(f"{self.rate} {self.length}".encode())
        for path, label in zip(self.paths, self.labels.tolist(), strict=True):
            digest.update(f"\0{path}\0{os.stat(self.folder / path).st_size}\0{label}".encode())
        return digest.hexdigest()[:16]

    def subset(self, indices: Tensor) -> WaveFiles:
        """The sounds at ``indices``, in that order."""
        rows = indices.cpu()
        return replace(self, paths=tuple(self.paths[i] for i in rows.tolist()), labels=self.labels[rows])

    def take(self, n: int | None, seed: int = 0) -> WaveFiles:
        """A random subset, as :meth:`WaveSet.take`."""
        return self if n is None else self.subset(balanced_subset(self.labels, n, seed))
