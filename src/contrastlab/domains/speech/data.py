"""Labelled waveforms: read, in memory or in files, and the layouts that published speech comes in."""

from __future__ import annotations

import csv
import io
import math
import re
import wave
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from contrastlab.pictures import layout, limits
from contrastlab.pictures.items import Files, Items, Splits, aligned, split_own
from contrastlab.support.errors import CorruptFileError, MissingDataError, import_extra

RATE = 16_000  #: samples a second of the published sets
#: samples of a published utterance, 9.4 s: as in alextamkin/viewmaker (d9a7d4b), whose authors are Ring's
LENGTH = 150_526
SUFFIXES = frozenset({".wav", ".flac", ".ogg"})  #: in lower case


def read_wave(source: Path | bytes, rate: int, where: str = "") -> NDArray[np.int16]:
    """One sound, a file or its content, its channels averaged, at ``rate`` samples a second: int16 ``[T]``.

    Uncompressed wav of 8, 16, 24 or 32 bits is read by Python itself, all else (FLAC, Ogg) by ``soundfile``, which an
    extra installs. A sound with too many samples (:mod:`contrastlab.pictures.limits`) is a ``TooLargeError`` before it
    is decoded, one that cannot be read or has none a ``CorruptFileError``.
    """
    where = where or str(source)
    if isinstance(source, Path):
        limits.check_regular(source)
        limits.check_count(source.stat().st_size, limits.MAX_BYTES, "bytes", where)
    content = source.read_bytes() if isinstance(source, Path) else source
    if not content:
        raise CorruptFileError(f"{where} is empty")
    try:
        own, samples = _pcm(content, where)
    except (wave.Error, EOFError, RuntimeError):  # the last where a chunk reaches beyond the file
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
    soundfile = import_extra("soundfile", "speech")
    try:
        about = soundfile.info(io.BytesIO(content))
        limits.check_count(about.frames * about.channels, limits.MAX_SAMPLES, "samples", where)
        samples, rate = soundfile.read(io.BytesIO(content), dtype="float64", always_2d=True)
    except RuntimeError as error:
        raise CorruptFileError(f"{where} cannot be read as sound: {error}") from error
    if not np.isfinite(samples).all():
        raise CorruptFileError(f"{where} has samples that are no finite numbers")
    return int(rate), samples.mean(1)


def fitted(samples: NDArray[np.int16], length: int) -> Tensor:
    """The first ``length`` samples, with silence behind the end of a shorter sound: int16 ``[length]``."""
    out = np.zeros(length, dtype=np.int16)
    out[: len(samples)] = samples[:length]
    return torch.from_numpy(out)


@dataclass(frozen=True, eq=False, repr=False)
class WaveSet(Items):
    """Sounds in memory, int16 ``[N, T]``, all of one length and of ``rate`` samples a second."""

    domain: ClassVar[str] = "contrastlab.domains.speech"
    modality: ClassVar[str] = "waveform"
    channels: ClassVar[int] = 1
    shape: ClassVar[str] = "int16 of shape [N, T]"

    rate: int

    def _fits(self) -> bool:
        return self.items.dtype == torch.int16 and self.items.ndim == 2

    def _form(self) -> str:
        return repr((self.rate, tuple(self.items.shape)))


@dataclass(frozen=True, eq=False, repr=False)
class WaveFiles(Files):
    """Sound files, brought to ``rate`` samples a second and cut or padded to ``length`` samples."""

    domain: ClassVar[str] = "contrastlab.domains.speech"
    modality: ClassVar[str] = "waveform"
    channels: ClassVar[int] = 1

    rate: int
    length: int

    def _form(self) -> str:
        return f"{self.rate} {self.length}"

    def __getitem__(self, index: int) -> Tensor:
        return fitted(read_wave(self.path(index), self.rate), self.length)


# Readers: rows of published.toml name them ----------------------------------------------------------------------------


def _files(name: str, folder: Path, paths: Sequence[str], classes: Sequence[str], words: Sequence[str]) -> WaveFiles:
    labels = torch.tensor([classes.index(word) for word in words])
    return WaveFiles(name, folder, tuple(paths), labels, tuple(classes), RATE, LENGTH)


def sound_files(
    name: str, folder: Path, note: str, *, files: str, label: str, test_list: str = "", test_speakers: int = 0
) -> Splits:
    """Sounds of the pattern ``files``, whose class is the first group of the expression ``label`` in their path.

    The test is what the file ``test_list`` names, or the last ``test_speakers`` folders, or 20 % of each class.
    """
    paths = sorted(path.relative_to(folder).as_posix() for path in limits.matching(folder, files))
    matches = [re.search(label, path) for path in paths]
    if None in matches:
        raise ValueError(f"{paths[matches.index(None)]!r} does not say its class as {label!r} does")
    words = [match[1] for match in matches if match]
    classes = sorted(set(words), key=int if all(word.isdecimal() for word in words) else str)
    pool = _files(name, folder, paths, classes, words)
    if test_list:
        listed = set((folder / test_list).read_text(encoding="utf-8").split())
        tested = torch.tensor([path in listed for path in paths])
    elif test_speakers:
        people = sorted({path.split("/")[0] for path in paths})
        tested = torch.tensor([path.split("/")[0] in people[-test_speakers:] for path in paths])
    else:
        return Splits.held_out(name, pool, note)
    return Splits.divided(name, pool, tested, note)


def sound_tables(name: str, folder: Path, note: str, *, column: str) -> Splits:
    """Fluent Speech Commands: tables of ``path`` and several labels; train and valid train, test tests."""
    rows: dict[str, list[dict[str, str]]] = {}
    for part in ("train", "valid", "test"):
        path = folder / "data" / f"{part}_data.csv"
        with path.open(encoding="utf-8", newline="") as file:
            rows[part] = list(csv.DictReader(file))
    classes = sorted({row[column] for row in rows["train"]})
    every = [row for part in rows.values() for row in part]
    pool = _files(name, folder, [row["path"] for row in every], classes, [row[column] for row in every])
    return Splits.divided(name, pool, torch.arange(len(every)) >= len(every) - len(rows["test"]), note)


def spoken_digits(name: str, folder: Path, note: str, *, classes: str, unheard: bool = False) -> Splits:
    """The Free Spoken Digit Dataset at 8,000 samples a second, by ``digit`` or ``speaker``.

    The test part has takes 0 to 4 of 50, as its authors split it, or with ``unheard`` the last two of six speakers.
    """
    import pyarrow.parquet as pq

    rows = [row for path in limits.matching(folder, "*.parquet") for row in pq.read_table(path).to_pylist()]
    kinds = {"audio": bytes, "digit": int, "speaker": str, "take": int}
    if not all(isinstance(row.get(column), kind) for row in rows for column, kind in kinds.items()):
        raise CorruptFileError(f"fsdd: {folder} has not the columns audio, digit, speaker, take, full in every row")
    sounds = (read_wave(row["audio"], 8000, f"fsdd, {row['digit']}_{row['speaker']}_{row['take']}") for row in rows)
    waves = torch.stack([fitted(sound, 8192) for sound in sounds])
    known = sorted({row["speaker"] for row in rows})
    speakers = torch.tensor([known.index(row["speaker"]) for row in rows])
    digits, takes = (torch.tensor([row[column] for row in rows]) for column in ("digit", "take"))
    labels, names = (speakers, tuple(known)) if classes == "speaker" else (digits, tuple("0123456789"))
    pool = WaveSet(name, waves, labels, names, 8000)
    tested = speakers >= len(known) - 2 if unheard else takes < 5
    return Splits.divided(name, pool, tested, note.format(unheard=" and ".join(known[-2:])))


def load_waves(name: str, location: str) -> Splits:
    """Splits of ``waves:<folder>``: sounds in a subfolder a class, one in five held out; or unlabelled in the folder.

    How the folder may be laid out says :func:`contrastlab.pictures.layout.read`, as for pictures.

    All are brought to 16,000 samples a second and to the length of the longest, at most 9.4 s.
    """
    folder = limits.own_path(name, location)
    if not folder.is_dir():
        raise MissingDataError(f"{name}: {folder} is not a folder. Give one of sounds, in a subfolder for each class.")
    found = layout.read(name, folder, SUFFIXES, "sound")
    parts = [found.train] if found.test is None else [found.train, found.test]
    read = [[read_wave(part.folder / path, RATE)[:LENGTH].copy() for path in part.paths] for part in parts]
    length = max(len(sound) for sounds in read for sound in sounds)
    sets: list[Any] = []
    for part, sounds in zip(parts, read, strict=True):
        waves = torch.stack([fitted(sound, length) for sound in sounds])
        sets.append(WaveSet(name, waves, torch.tensor(part.labels), part.classes, RATE))
    note = f"{folder.name}: {len(found.train.paths)} sounds"
    note = f"{note}; {found.note}" if found.note else note
    if found.test is None:
        return split_own(name, sets[0], None, note)
    return split_own(name, sets[0], aligned(sets[1], sets[0].classes, f"{name}: {found.test.folder}"), note)
