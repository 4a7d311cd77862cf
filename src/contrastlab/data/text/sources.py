"""Sentences and scored pairs by name: as they are published, and a user's own file.

- ``wikipedia``: the million sentences of SimCSE, ``<root>/wikipedia/wiki1m_for_simcse.txt``
- ``wikisplit``: Wikipedia sentences before and after they were split, ``<root>/wikisplit/*.tsv``
- ``sts``: STS12–16, STS-B and SICK-R, ``<root>/sts`` (three folders) or SentEval's ``<root>/STS`` and ``<root>/SICK``
- ``sentences:<file>``: a sentence a line, UTF-8
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType

import torch

from contrastlab.data.images.sets import Splits
from contrastlab.data.limits import own_path
from contrastlab.data.text.sets import PairSet, Sentences, SentenceSet, Texts
from contrastlab.errors import CorruptFileError, MissingDataError

Pair = tuple[str, str, float]
"""Two sentences and their score."""

BENCHMARKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R")
"""The seven of fmicl and SimCSE, in the order of their tables."""


# Sentences ----------------------------------------------------------------------------------------------------------


def read_lines(name: str, path: Path) -> list[str]:
    """The lines of a text file that are not blank, without space at their ends.

    Raises:
        MissingDataError: there is no such file, or nothing in it.
        CorruptFileError: it is not UTF-8; the message says from which line on.
    """
    if not path.is_file():
        raise MissingDataError(f"{name}: {path} is not a file. Give a text file, a sentence a line, in UTF-8.")
    lines = []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            except UnicodeDecodeError as error:
                raise CorruptFileError(f"{path}, line {number}, is not UTF-8 ({error.reason}); convert it") from error
            if text:
                lines.append(text)
    if not lines:
        raise MissingDataError(f"{name}: {path} has no sentence in it.")
    return lines


def load_sentences(name: str, location: str) -> Splits:
    """The sentences of ``sentences:<file>``; a long one is cut where it is made into tokens."""
    path = own_path(name, location)
    lines = read_lines(name, path)
    return Sentences(name, SentenceSet.of(name, lines), f"{path.name}: {len(lines):,} lines that are not blank")


def _wikipedia(name: str, root: Path) -> Splits:
    path = root / "wikipedia" / "wiki1m_for_simcse.txt"
    if not path.exists():
        raise MissingDataError(f"{name}: looked for {path}, the million sentences that SimCSE distributes.")
    return Sentences(
        name, SentenceSet.of(name, read_lines(name, path)), "English Wikipedia, SimCSE's million sentences"
    )


def _wikisplit(name: str, root: Path) -> Splits:
    parts = sorted((root / "wikisplit").glob("*.tsv"))
    if not parts:
        raise MissingDataError(f"{name}: looked for {root / 'wikisplit'}/*.tsv, as Google's WikiSplit has them.")
    found: dict[str, None] = {}
    for path in parts:
        for line in read_lines(name, path):
            whole, tab, split = line.partition("\t")
            if not tab:
                raise CorruptFileError(f"{path} is no part of WikiSplit: a line without a tab, {line[:40]!r}")
            found |= dict.fromkeys(text.strip() for text in (whole, *split.split("<::::>")) if text.strip())
    note = f"WikiSplit, {', '.join(path.stem for path in parts)}: sentences before and after the split, each once"
    return Sentences(name, SentenceSet.of(name, list(found)), note)


# Pairs --------------------------------------------------------------------------------------------------------------


def _score(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise CorruptFileError(f"{where}: {text!r} is no score") from error


def _columns(path: Path, separator: str, *, quoted: bool = False) -> list[list[str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            if quoted:
                return [row for row in csv.reader(file, delimiter=separator) if row]
            return [line.rstrip("\r\n").split(separator) for line in file if line.strip()]
    except (UnicodeDecodeError, csv.Error) as error:
        raise CorruptFileError(f"{path} cannot be read: {error}") from error


def _pick(path: Path, rows: Iterable[list[str]], first: int, second: int, score: int) -> list[Pair]:
    out = []
    for number, row in enumerate(rows, 1):
        if len(row) <= max(first, second, score):
            raise CorruptFileError(f"{path}, entry {number}, has {len(row)} columns")
        if row[score].strip():  # pairs that nobody scored have an empty field
            out.append((row[first].strip(), row[second].strip(), _score(row[score], f"{path}, entry {number}")))
    return out


def _plain_layout(root: Path) -> Mapping[str, list[list[Pair]]]:
    """``sts/semeval-sts/<year>/<part>.test.tsv``, ``sts/stsb/stsb-en-<split>.csv``, ``sts/sick2014/SICK_…``."""
    found: dict[str, list[list[Pair]]] = {}
    for year in range(12, 17):
        parts = sorted((root / "sts" / "semeval-sts" / f"20{year}").glob("*.test.tsv"))
        found[f"STS{year}"] = [_pick(path, _columns(path, "\t"), 1, 2, 0) for path in parts]
    for split, key in (("test", "STS-B"), ("dev", "dev")):
        path = root / "sts" / "stsb" / f"stsb-en-{split}.csv"
        found[key] = [_pick(path, _columns(path, ",", quoted=True), 0, 1, 2)] if path.exists() else []
    path = root / "sts" / "sick2014" / "SICK_test_annotated.txt"
    found["SICK-R"] = [_pick(path, _columns(path, "\t")[1:], 1, 2, 3)] if path.exists() else []
    return found


def _senteval_layout(root: Path) -> Mapping[str, list[list[Pair]]]:
    """SentEval's ``STS/STS12-en-test/STS.input.<part>.txt`` and ``STS.gs.<part>.txt``, which SimCSE reads."""
    found: dict[str, list[list[Pair]]] = {}
    for year in range(12, 17):
        folder, parts = root / "STS" / f"STS{year}-en-test", []
        for path in sorted(folder.glob("STS.input.*.txt")):
            scored = folder / path.name.replace("STS.input.", "STS.gs.")
            if path.name == "STS.input.ALL.txt" or not scored.exists():
                continue
            texts, gold = _columns(path, "\t"), scored.read_text(encoding="utf-8").splitlines()
            if len(texts) != len(gold):
                raise CorruptFileError(f"{path} has {len(texts)} pairs and {scored.name} {len(gold)} scores")
            parts.append(_pick(path, [[*row[:2], score] for row, score in zip(texts, gold, strict=True)], 0, 1, 2))
        found[f"STS{year}"] = parts
    for split, key in (("test", "STS-B"), ("dev", "dev")):
        path = root / "STS" / "STSBenchmark" / f"sts-{split}.csv"
        found[key] = [_pick(path, _columns(path, "\t"), 5, 6, 4)] if path.exists() else []
    path = root / "SICK" / "SICK_test_annotated.txt"
    found["SICK-R"] = [_pick(path, _columns(path, "\t")[1:], 1, 2, 3)] if path.exists() else []
    return found


def pairs(name: str, found: Mapping[str, list[list[Pair]]]) -> PairSet:
    """One set of the pairs of several benchmarks, each in parts."""
    rows = [(*pair, b, p) for b, parts in enumerate(found.values()) for p, part in enumerate(parts) for pair in part]
    first, second, scores, labels, parts_ = zip(*rows, strict=True)
    return PairSet(
        name, Texts(first), Texts(second), torch.tensor(scores, dtype=torch.float64), torch.tensor(labels),
        tuple(found), torch.tensor(parts_),
    )  # fmt: skip


@lru_cache(maxsize=2)
def _sts(name: str, root: Path) -> Splits:
    for layout in (_plain_layout, _senteval_layout):
        found = dict(layout(root))
        dev = found.pop("dev")
        there = {key: parts for key, parts in found.items() if parts}
        if there and dev:
            break
    else:
        raise MissingDataError(
            f"{name}: looked for {root / 'sts'}/semeval-sts, stsb and sick2014, and for SentEval's {root / 'STS'} and"
            f" {root / 'SICK'}; STS-B's development part is needed beside any of {', '.join(BENCHMARKS)}."
        )
    absent = [key for key in BENCHMARKS if key not in there]
    # MSRvid may not be passed on; SentEval has it, the small copy has not
    count = sum(map(len, there.get("STS12", [])))
    notes = ["development pairs of STS-B beside the tests", *([f"without {', '.join(absent)}"] if absent else [])]
    if 0 < count < 3108:
        notes.append(f"STS12 without MSRvid: {count:,} of 3,108 pairs")
    train = pairs(f"{name}/dev", {"STS-B": dev})
    return Splits(name, train, train, pairs(f"{name}/test", there), "; ".join(notes))


TEXTS: Mapping[str, Callable[[Path], Splits]] = MappingProxyType(
    {
        name: partial(loader, name)
        for name, loader in (
            ("wikipedia", _wikipedia),
            ("wikisplit", _wikisplit),
            ("sts", _sts),
        )
    }
)
"""Name to a function of the data root."""
