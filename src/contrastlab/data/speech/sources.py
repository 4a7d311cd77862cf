"""Speech by name: the sets of ring Table 5c as they are published, spoken digits, a user's own.

Published sets, below the data root, at 16,000 samples a second:

- ``librispeech``: ``LibriSpeech/train-clean-100/<speaker>/<chapter>/*.flac``, 80/20 of each speaker's utterances
- ``librispeech_speaker``: ``LibriSpeech/dev-clean``, 80/20 of each speaker's utterances
- ``audiomnist``: ``AudioMNIST/data/<speaker>/<digit>_<speaker>_<take>.wav``, tested on the last 12 speakers
- ``google_commands``: ``SpeechCommands/speech_commands_v0.01``, with its own lists
- ``fluent_action``, ``fluent_object``, ``fluent_location``: ``fluent_speech_commands_dataset/data/*_data.csv``
- ``fsdd``, ``fsdd_speaker``, ``fsdd_unseen``: ``fsdd/*.parquet``, 8,000 samples a second
- ``waves:<folder>``: sound files, a folder a class
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType

import torch
from torch import Tensor

from contrastlab.data.folders import files_below
from contrastlab.data.images.sets import Splits, UnlabelledSplits
from contrastlab.data.images.subsets import hold_out
from contrastlab.data.limits import own_path
from contrastlab.data.speech.sets import WaveFiles, WaveSet, fitted, read_wave
from contrastlab.errors import CorruptFileError, MissingDataError

RATE = 16_000
"""Samples a second of the published sets."""

LENGTH = 150_526
"""Samples of a published utterance, 9.4 s: the reading of alextamkin/viewmaker (d9a7d4b), whose authors are Ring's."""

SUFFIXES = frozenset({".wav", ".flac", ".ogg"})
"""Endings, in lower case, that count as sounds."""


def _files(name: str, folder: Path, paths: Sequence[str], classes: Sequence[str], labels: Sequence[int]) -> WaveFiles:
    return WaveFiles(name, folder, tuple(paths), torch.tensor(labels), tuple(classes), RATE, LENGTH)


def _need(name: str, folder: Path, how: str) -> None:
    if not folder.is_dir():
        raise MissingDataError(f"{name}: looked for {folder}. {how}")


def _split(name: str, pool: WaveFiles | WaveSet, note: str) -> Splits:
    kept, held = hold_out(pool.labels, name=name, classes=pool.classes)
    train = pool.subset(kept)
    return Splits(name, train, train, pool.subset(held), note)


# As published -------------------------------------------------------------------------------------------------------


def _speakers(name: str, folder: Path) -> WaveFiles:
    _need(name, folder, "openslr.org/12 has the archive; unpack it below the data root.")
    paths = sorted(p.relative_to(folder).as_posix() for p in folder.glob("*/*/*.flac"))
    if not paths:
        raise MissingDataError(f"{name}: no <speaker>/<chapter>/*.flac below {folder}.")
    classes = sorted({path.split("/")[0] for path in paths}, key=int)
    return _files(name, folder, paths, classes, [classes.index(path.split("/")[0]) for path in paths])


def _librispeech(name: str, root: Path) -> Splits:
    return _split(name, _speakers(name, root / "LibriSpeech" / "train-clean-100"), "LibriSpeech train-clean-100, 80/20")


def _librispeech_speaker(name: str, root: Path) -> Splits:
    pool = _speakers(name, root / "LibriSpeech" / "dev-clean")
    return _split(name, pool, "LibriSpeech dev-clean, 80/20 of the utterances of each speaker")


def _audiomnist(name: str, root: Path) -> Splits:
    folder = root / "AudioMNIST" / "data"
    _need(name, folder, "github.com/soerenab/AudioMNIST has it.")
    paths = sorted(p.relative_to(folder).as_posix() for p in folder.glob("*/*_*_*.wav"))
    people = sorted({path.split("/")[0] for path in paths})
    if len(people) < 13:
        raise CorruptFileError(f"{folder} has {len(people)} speakers: of 60 the last 12 are the test")
    digits = tuple("0123456789")
    parts = []
    for own in (people[:-12], people[-12:]):
        mine = [path for path in paths if path.split("/")[0] in own]
        parts.append(_files(name, folder, mine, digits, [int(path.split("/")[1].split("_")[0]) for path in mine]))
    return Splits(name, parts[0], parts[0], parts[1], "AudioMNIST; speakers of the test are not in training")


def _google_commands(name: str, root: Path) -> Splits:
    folder = root / "SpeechCommands" / "speech_commands_v0.01"
    _need(name, folder, "Version 0.01, 30 words, as its archive unpacks.")
    listed = folder / "testing_list.txt"
    if not listed.exists():
        raise MissingDataError(f"{name}: {listed} names the test files and is not there.")
    test = set(listed.read_text(encoding="utf-8").split())
    paths = sorted(p.relative_to(folder).as_posix() for p in folder.glob("[!_]*/*.wav"))
    words = sorted({path.split("/")[0] for path in paths})
    parts = [[path for path in paths if (path in test) == wanted] for wanted in (False, True)]
    train, held = (_files(name, folder, p, words, [words.index(x.split("/")[0]) for x in p]) for p in parts)
    return Splits(name, train, train, held, "Speech Commands 0.01; training and validation lists together")


def _fluent(name: str, root: Path, column: str) -> Splits:
    folder = root / "fluent_speech_commands_dataset"
    _need(name, folder / "data", "fluent.ai distributes it on request.")
    rows: dict[str, list[dict[str, str]]] = {}
    for part in ("train", "valid", "test"):
        path = folder / "data" / f"{part}_data.csv"
        if not path.exists():
            raise MissingDataError(f"{name}: looked for {path}.")
        with path.open(encoding="utf-8", newline="") as file:
            rows[part] = list(csv.DictReader(file))
        if not rows[part] or not {"path", column} <= rows[part][0].keys():
            raise CorruptFileError(f"{path} has no columns path and {column}")
    classes = sorted({row[column] for row in rows["train"]})
    train, test = (
        _files(name, folder, [r["path"] for r in part], classes, [classes.index(r[column]) for r in part])
        for part in (rows["train"] + rows["valid"], rows["test"])
    )
    return Splits(name, train, train, test, f"Fluent Speech Commands, {column}; train and valid together")


# Spoken digits ------------------------------------------------------------------------------------------------------

DIGIT_RATE, DIGIT_LENGTH = 8000, 8192


@lru_cache(maxsize=1)
def _spoken_digits(root: Path) -> tuple[Tensor, list[int], list[str], list[int]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    paths = sorted((root / "fsdd").glob("*.parquet"))
    if not paths:
        raise MissingDataError(
            f"fsdd: looked for {root / 'fsdd'}/*.parquet (columns audio, digit, speaker, take). Make it from the GitHub"
            " repository Jakobovski/free-spoken-digit-dataset (commit 26eb9aa), or set CONTRASTLAB_DATA (or root=) to"
            " the folder that has it."
        )
    try:
        rows = [row for path in paths for row in pq.read_table(path).to_pylist()]
        names = [f"fsdd, {row['digit']}_{row['speaker']}_{row['take']}" for row in rows]
        if not all(isinstance(row["audio"], bytes) for row in rows):
            raise TypeError("audio is not bytes")
    except (OSError, pa.ArrowException, KeyError, TypeError) as error:
        columns = "audio, digit, speaker, take"
        raise CorruptFileError(f"fsdd: {root / 'fsdd'} has not the columns {columns}: {error!r}") from error
    waves = torch.stack(
        [
            fitted(read_wave(row["audio"], DIGIT_RATE, where), DIGIT_LENGTH)
            for row, where in zip(rows, names, strict=True)
        ]
    )
    return waves, [r["digit"] for r in rows], [r["speaker"] for r in rows], [r["take"] for r in rows]


def _fsdd(name: str, root: Path, task: str) -> Splits:
    waves, digits, people, takes = _spoken_digits(root)
    known = sorted(set(people))
    classes = tuple(known) if task == "speaker" else tuple("0123456789")
    labels = torch.tensor([known.index(p) for p in people] if task == "speaker" else digits)
    pool = WaveSet(name, waves, labels, classes, DIGIT_RATE)
    if task == "unseen":  # by speaker: two of six are heard in the test only
        test = torch.tensor([person in known[-2:] for person in people])
        note = f"spoken digits; the classifier never hears {' and '.join(known[-2:])}, pre-training on fsdd does"
    else:
        test = torch.tensor([take < 5 for take in takes])  # the authors' own split
        note = "spoken digits; takes 0 to 4 of 50 are the test, as its authors split it"
    train = pool.subset((~test).nonzero()[:, 0])
    return Splits(name, train, train, pool.subset(test.nonzero()[:, 0]), note)


# A user's own -------------------------------------------------------------------------------------------------------


def load_waves(name: str, location: str) -> Splits:
    """Splits of ``waves:<folder>``: sounds in a subfolder a class, one in five held out; or unlabelled in the folder.

    All are brought to 16,000 samples a second and to the length of the longest, at most 9.4 s.

    Raises:
        MissingDataError: there is no such folder, or no sound in it.
        CorruptFileError: a file has no samples or cannot be read.
    """
    folder = own_path(name, location)
    _need(name, folder, "Give a folder of sound files, sorted into a subfolder a class if there are classes.")
    paths = sorted(path.relative_to(folder) for path in files_below(folder, SUFFIXES))
    if not paths:
        raise MissingDataError(f"{name}: no {', '.join(sorted(SUFFIXES))} file below {folder}.")
    sounds = [read_wave(folder / path, RATE) for path in paths]
    length = min(max(len(sound) for sound in sounds), LENGTH)
    waves = torch.stack([fitted(sound, length) for sound in sounds])
    classes = sorted({path.parts[0] for path in paths if len(path.parts) > 1})
    labels = torch.tensor([classes.index(path.parts[0]) if len(path.parts) > 1 else -1 for path in paths])
    pool = WaveSet(name, waves, labels, tuple(classes), RATE)
    if not classes or int(labels.min()) < 0:
        return UnlabelledSplits(name, pool, f"{folder.name}: {len(paths)} sounds")
    return _split(name, pool, f"{folder.name}: {len(paths)} sounds, stratified 80/20 split")


_READERS: dict[str, Callable[[str, Path], Splits]] = {
    "librispeech": _librispeech,
    "librispeech_speaker": _librispeech_speaker,
    "audiomnist": _audiomnist,
    "google_commands": _google_commands,
    **{f"fluent_{column}": partial(_fluent, column=column) for column in ("action", "object", "location")},
    "fsdd": partial(_fsdd, task="digit"),
    "fsdd_speaker": partial(_fsdd, task="speaker"),
    "fsdd_unseen": partial(_fsdd, task="unseen"),
}
SPEECH: Mapping[str, Callable[[Path], Splits]] = MappingProxyType(
    {name: partial(reader, name) for name, reader in _READERS.items()}
)
"""Name to a function of the data root."""
