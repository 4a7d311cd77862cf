"""Labelled waveforms: read, in memory or in files, and the layouts that published speech comes in."""

from __future__ import annotations

import csv
import io
import math
import re
import wave
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from contrastlab.pictures import layout, limits
from contrastlab.pictures.items import Files, Items, Splits, aligned, split_own
from contrastlab.support.errors import CorruptFileError, MissingDataError, TooLargeError, import_extra
from contrastlab.support.files import check_regular
from contrastlab.support.paths import files_below, matching, own_path

RATE = 16_000  #: samples a second of the published sets
#: samples of a published utterance, 9.4 s: as in alextamkin/viewmaker (d9a7d4b), whose authors are Ring's
LENGTH = 150_526
SUFFIXES = frozenset({".wav", ".flac", ".ogg", ".mp3"})  #: in lower case


def read_wave(source: Path | bytes, rate: int, where: str = "") -> NDArray[np.int16]:
    """One sound, a file or its content, its channels averaged, at ``rate`` samples a second: int16 ``[T]``.

    Uncompressed wav of 8, 16, 24 or 32 bits is read by Python itself, all else (FLAC, Ogg, MP3) by ``soundfile``, which
    an extra installs. A sound with too many samples (:mod:`contrastlab.pictures.limits`) is a ``TooLargeError`` before
    it is decoded, one that cannot be read or has none a ``CorruptFileError``.
    """
    where = where or str(source)
    if isinstance(source, Path):
        check_regular(source)
        limits.check_count(source.stat().st_size, limits.MAX_BYTES, "bytes", where)
        source = source.read_bytes()
    if not source:
        raise CorruptFileError(f"{where} is empty")
    try:
        sound = _pcm(source, where)
    except (wave.Error, EOFError, RuntimeError):  # the last where a chunk reaches beyond the file
        sound = _decoded(source, where)
    count = len(sound.samples)
    if not count:
        raise CorruptFileError(f"{where} has no samples")
    low, high = limits.RATES
    if not low <= sound.rate <= high:
        raise CorruptFileError(f"{where} has {sound.rate} samples a second: accepted are {low} to {high}")
    limits.check_count(count * rate // sound.rate, limits.MAX_SAMPLES, f"samples at {rate} a second", where)
    levels = np.rint(_resampled(sound, rate) * 32768)
    return np.clip(levels, -32768, 32767).astype(np.int16)


@dataclass(frozen=True)
class _Sound:
    rate: int  #: samples a second
    samples: NDArray[np.float64]  #: ``[T]`` in [−1, 1], the mean of all channels


def _resampled(sound: _Sound, rate: int) -> NDArray[np.float64]:
    """The samples at another rate."""
    if sound.rate == rate:
        return sound.samples
    from scipy.signal import resample_poly

    shared = math.gcd(sound.rate, rate)
    return np.asarray(resample_poly(sound.samples, rate // shared, sound.rate // shared))


def _pcm(content: bytes, where: str) -> _Sound:
    """Uncompressed wav, read by Python itself."""
    with wave.open(io.BytesIO(content)) as file:
        width = file.getsampwidth()
        channels = file.getnchannels()
        rate = file.getframerate()
        if width > 4:
            raise wave.Error(f"{8 * width} bits")
        limits.check_count(len(content) // width, limits.MAX_SAMPLES, "samples", where)
        frames = file.readframes(file.getnframes())
    raw = np.frombuffer(frames, dtype=np.uint8)
    incomplete = len(raw) % (width * channels)
    raw = raw[: len(raw) - incomplete]
    if width == 1:
        values = raw.astype(np.float64) - 128  # 8 bits are unsigned
    else:
        padded = np.zeros((len(raw) // width, 4), dtype=np.uint8)
        padded[:, 4 - width :] = raw.reshape(-1, width)
        values = padded.view("<i4")[:, 0] / 256 ** (4 - width)
    samples = (values / 2 ** (8 * width - 1)).reshape(-1, channels)
    return _Sound(rate, samples.mean(1))


def _decoded(content: bytes, where: str) -> _Sound:
    """Whatever ``soundfile`` reads."""
    soundfile = import_extra("soundfile", "speech")
    try:
        header = soundfile.info(io.BytesIO(content))
        limits.check_count(header.frames * header.channels, limits.MAX_SAMPLES, "samples", where)
        samples, rate = soundfile.read(io.BytesIO(content), dtype="float64", always_2d=True)
    except RuntimeError as error:
        reason = str(error).rpartition(">: ")[2]  # without the name that Python gives a file in memory
        raise CorruptFileError(f"{where} cannot be read as sound: {reason}") from error
    if not np.isfinite(samples).all():
        raise CorruptFileError(f"{where} has samples that are no finite numbers")
    return _Sound(int(rate), samples.mean(1))


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
    name: str,
    folder: Path,
    note: str,
    *,
    files: str,
    label: str,
    test_list: str = "",
    test_speakers: int = 0,
) -> Splits:
    """Sounds of the pattern ``files``, whose class is the first group of the expression ``label`` in their path.

    The test is what the file ``test_list`` names, or the last ``test_speakers`` folders, or 20 % of each class.
    """
    paths = sorted(path.relative_to(folder).as_posix() for path in matching(folder, files))
    words = [_class_of(path, label) for path in paths]
    classes = sorted(set(words))
    if all(word.isdecimal() for word in words):
        classes = sorted(classes, key=int)
    pool = _files(name, folder, paths, classes, words)
    if test_list:
        listed = set((folder / test_list).read_text(encoding="utf-8").split())
        in_test = [path in listed for path in paths]
    elif test_speakers:
        speakers = [path.split("/")[0] for path in paths]
        test_folders = sorted(set(speakers))[-test_speakers:]
        in_test = [speaker in test_folders for speaker in speakers]
    else:
        return Splits.held_out(name, pool, note)
    return Splits.divided(name, pool, torch.tensor(in_test), note)


def _class_of(path: str, label: str) -> str:
    match = re.search(label, path)
    if match is None:
        raise ValueError(f"{path!r} does not say its class as {label!r} does")
    return match[1]


def sound_tables(name: str, folder: Path, note: str, *, column: str) -> Splits:
    """Fluent Speech Commands: tables of ``path`` and several labels; train and valid train, test tests."""
    rows: dict[str, list[dict[str, str]]] = {}
    for part in ("train", "valid", "test"):
        path = folder / "data" / f"{part}_data.csv"
        with path.open(encoding="utf-8", newline="") as file:
            rows[part] = list(csv.DictReader(file))
    classes = sorted({row[column] for row in rows["train"]})
    every = rows["train"] + rows["valid"] + rows["test"]
    paths = [row["path"] for row in every]
    words = [row[column] for row in every]
    pool = _files(name, folder, paths, classes, words)
    first_test = len(every) - len(rows["test"])
    in_test = torch.arange(len(every)) >= first_test
    return Splits.divided(name, pool, in_test, note)


def spoken_digits(name: str, folder: Path, note: str, *, classes: str, unheard: bool = False) -> Splits:
    """The Free Spoken Digit Dataset at 8,000 samples a second, by ``digit`` or ``speaker``.

    The test part has takes 0 to 4 of 50, as its authors split it, or with ``unheard`` the last two of six speakers.
    """
    import pyarrow.parquet as pq

    rows = []
    for path in matching(folder, "*.parquet"):
        rows += pq.read_table(path).to_pylist()
    if not all(_is_spoken_digit(row) for row in rows):
        raise CorruptFileError(f"fsdd: {folder} has not the columns audio, digit, speaker, take, full in every row")
    waves = []
    for row in rows:
        where = f"fsdd, {row['digit']}_{row['speaker']}_{row['take']}"
        waves.append(fitted(read_wave(row["audio"], 8000, where), 8192))
    names = sorted({row["speaker"] for row in rows})
    speakers = torch.tensor([names.index(row["speaker"]) for row in rows])
    takes = torch.tensor([row["take"] for row in rows])
    if classes == "speaker":
        labels = speakers
        label_names = tuple(names)
    else:
        labels = torch.tensor([row["digit"] for row in rows])
        label_names = tuple("0123456789")
    pool = WaveSet(name, torch.stack(waves), labels, label_names, 8000)
    in_test = takes < 5
    if unheard:
        in_test = speakers >= len(names) - 2
    last_two = " and ".join(names[-2:])
    return Splits.divided(name, pool, in_test, note.format(unheard=last_two))


def _is_spoken_digit(row: Mapping[str, Any]) -> bool:
    """Whether a row has all columns of the Free Spoken Digit Dataset."""
    columns = {"audio": bytes, "digit": int, "speaker": str, "take": int}
    return all(isinstance(row.get(column), kind) for column, kind in columns.items())


def _reasons(paths: Sequence[Path]) -> list[str]:
    """Of each sound, why it cannot be read; an empty text where it can."""
    reasons = []
    for path in paths:
        try:
            read_wave(path, RATE)
            reasons.append("")
        except (CorruptFileError, TooLargeError) as reason:
            reasons.append(str(reason))
    return reasons


def check_sounds(folder: Path) -> Iterator[tuple[str, str]]:
    """Each sound below a folder, and why it cannot be read; an empty text where it can."""
    for path in files_below(folder, SUFFIXES):
        (reason,) = _reasons([path])
        yield str(path), reason


def load_waves(name: str, location: str, skip_unreadable: bool = False) -> Splits:
    """Splits of ``waves:<folder>``: sounds in a subfolder a class, one in five held out; or unlabelled in the folder.

    The folder may be laid out as that of pictures, see :func:`contrastlab.pictures.layout.read`.
    All sounds are brought to 16,000 samples a second and to the length of the longest, at most 9.4 s. With
    ``skip_unreadable`` those that cannot be read are left out, and the note counts them.
    """
    folder = own_path(name, location)
    if not folder.is_dir():
        raise MissingDataError(f"{name}: {folder} is not a folder. Give one of sounds, in a subfolder for each class.")
    reasons = _reasons if skip_unreadable else None
    own = layout.read(name, folder, SUFFIXES, "sound", reasons)
    note = f"{folder.name}: {len(own.train.paths)} sounds"
    if own.note:
        note = f"{note}; {own.note}"
    train_sounds = _read_part(own.train)
    test_sounds = []
    if own.test is not None:
        test_sounds = _read_part(own.test)
    length = max(len(sound) for sound in (*train_sounds, *test_sounds))
    train = _wave_set(name, own.train, train_sounds, length)
    if own.test is None:
        return split_own(name, train, None, note)
    test = _wave_set(name, own.test, test_sounds, length)
    test = aligned(test, train.classes, f"{name}: {own.test.folder}")
    return split_own(name, train, test, note)


def _read_part(part: layout.Listing) -> list[NDArray[np.int16]]:
    """The sounds of a part of a user's folder, cut but not padded."""
    return [read_wave(part.folder / path, RATE)[:LENGTH].copy() for path in part.paths]


def _wave_set(name: str, part: layout.Listing, sounds: Sequence[NDArray[np.int16]], length: int) -> WaveSet:
    waves = torch.stack([fitted(sound, length) for sound in sounds])
    return WaveSet(name, waves, torch.tensor(part.labels), part.classes, RATE)
