"""Sentences and scored pairs of them, in memory, and the layouts that published ones come in."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from contrastlab.pictures.items import Items, ItemSet, Splits, UnlabelledSplits
from contrastlab.pictures.limits import matching, own_path
from contrastlab.support.errors import CorruptFileError, MissingDataError, reject


class Texts(Sequence[str]):
    """Texts that are indexed as a tensor is; ``device`` is where their token numbers belong."""

    def __init__(self, texts: Sequence[str], device: torch.device | str = "cpu") -> None:
        self._texts, self.device = tuple(texts), torch.device(device)

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, index: Any) -> Any:
        return Texts(self._texts[index], self.device) if isinstance(index, slice) else self._texts[index]

    def index_select(self, dim: int, index: Tensor) -> Texts:
        """The texts at ``index``; ``dim`` is 0."""
        return Texts([self._texts[k] for k in index.tolist()], self.device)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Texts:
        """The same texts, with token numbers on ``device``."""
        return Texts(self._texts, device)


@dataclass(frozen=True, eq=False, repr=False)
class SentenceSet(Items):
    """Sentences in memory."""

    domain: ClassVar[str] = "contrastlab.domains.text"
    modality: ClassVar[str] = "sentence"
    channels: ClassVar[int] = 1

    items: Texts  # type: ignore[assignment]
    classes: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, texts: Sequence[str]) -> SentenceSet:
        """Sentences without labels."""
        return cls(name, Texts(texts), torch.full((len(texts),), -1))

    def _hashed(self) -> Iterator[str]:
        yield repr(tuple(self.items))
        yield repr(self.labels.tolist())


@dataclass(frozen=True, eq=False, repr=False)
class PairSet(ItemSet):
    """N pairs of sentences with people's (or a grammar's) scores of similarity."""

    domain: ClassVar[str] = "contrastlab.domains.text"
    modality: ClassVar[str] = "sentence"
    resident: ClassVar[bool] = True
    by_item: ClassVar[tuple[str, ...]] = ("first", "second", "scores", "labels", "parts")
    channels: ClassVar[int] = 1

    name: str
    first: Texts
    second: Texts
    scores: Tensor  #: float64 ``[N]``, larger is more alike; comparable within a benchmark
    labels: Tensor  #: int64 ``[N]``, the benchmark of each pair: index into ``classes``, such as ``"STS12"``
    classes: tuple[str, ...]
    parts: Tensor  #: int64 ``[N]``, which part of its benchmark a pair is from

    def __post_init__(self) -> None:
        if not bool(self.scores.isfinite().all()):
            raise reject("scores", float(self.scores[~self.scores.isfinite()][0]), "finite numbers")

    def _hashed(self) -> Iterator[str]:
        numbers = (self.scores.tolist(), self.labels.tolist(), self.parts.tolist(), self.classes)
        yield from map(repr, (tuple(self.first), tuple(self.second), *numbers))

    def sentences(self) -> SentenceSet:
        """All first sentences, then all second ones."""
        return SentenceSet.of(self.name, [*self.first, *self.second]).to(self.first.device)

    def to(self, device: torch.device | str) -> Self:
        """The same set with token numbers on ``device``."""
        return replace(self, first=self.first.to(device), second=self.second.to(device))


class SentenceSplits(UnlabelledSplits):
    """Sentences without labels: they can be pre-trained on, and are scored on pairs."""

    advice: ClassVar[str] = "Score sentences on pairs (sts)"


# Readers of sentences -------------------------------------------------------------------------------------------------


def read_lines(path: Path) -> list[str]:
    """The lines of a text file that are not blank, without space at their ends; refused if there are none."""
    content = path.read_bytes()
    try:
        lines = [line for each in content.decode("utf-8-sig").split("\n") if (line := each.strip())]
    except UnicodeDecodeError as error:
        number = 1 + error.object.count(b"\n", 0, error.start)
        raise CorruptFileError(f"{path}, line {number}, is not UTF-8 ({error.reason}); convert it") from error
    if not lines:
        raise MissingDataError(f"{path} has no sentence in it.")
    return lines


def load_sentences(name: str, location: str) -> Splits:
    """The sentences of ``sentences:<file>``; a long one is cut where it is made into tokens."""
    path = own_path(name, location)
    if not path.is_file():
        raise MissingDataError(f"{name}: {path} is not a file. Give a text file, a sentence a line, in UTF-8.")
    lines = read_lines(path)
    return SentenceSplits(name, SentenceSet.of(name, lines), f"{path.name}: {len(lines):,} lines that are not blank")


def wikipedia(name: str, path: Path, note: str) -> Splits:
    """The million sentences of SimCSE, one a line."""
    return SentenceSplits(name, SentenceSet.of(name, read_lines(path)), note)


def wikisplit(name: str, folder: Path, note: str) -> Splits:
    """Google's WikiSplit: a sentence, a tab, the two that it was split into, a line; each sentence is taken once."""
    parts = matching(folder, "*.tsv")
    texts: dict[str, None] = {}
    for path in parts:
        for line in read_lines(path):
            whole, tab, split = line.partition("\t")
            if not tab:
                raise CorruptFileError(f"{path} is no part of WikiSplit: a line without a tab, {line[:40]!r}")
            texts |= dict.fromkeys(text.strip() for text in (whole, *split.split("<::::>")) if text.strip())
    note = note.format(parts=", ".join(path.stem for path in parts))
    return SentenceSplits(name, SentenceSet.of(name, list(texts)), note)


# Readers of pairs -----------------------------------------------------------------------------------------------------

Pair = tuple[str, str, float]  #: two sentences and their score


def _read_pairs(path: Path, separator: str, first: int, second: int, score: int) -> list[Pair]:
    scores = path.read_text(encoding="utf-8").splitlines() if path.name.startswith("STS.gs.") else None
    path = path.with_name(path.name.replace("STS.gs.", "STS.input."))
    with path.open(encoding="utf-8", newline="") as file:
        table = csv.reader(file, delimiter=separator, quoting=csv.QUOTE_MINIMAL if separator == "," else csv.QUOTE_NONE)
        rows = [row for row in table if any(map(str.strip, row)) and row[0] != "pair_ID"]
    if scores is not None:
        rows = [[*row[:2], value] for row, value in zip(rows, scores, strict=True)]
    pairs = []
    for number, row in enumerate(rows, 1):
        if len(row) <= max(first, second, score):
            raise CorruptFileError(f"{path}, entry {number}, has {len(row)} columns")
        if row[score].strip():  # pairs that nobody scored have an empty field
            try:
                pairs.append((row[first].strip(), row[second].strip(), float(row[score])))
            except ValueError as error:
                raise CorruptFileError(f"{path}, entry {number}: {row[score]!r} is no score") from error
    return pairs


def pairs(name: str, benchmarks: Mapping[str, list[list[Pair]]]) -> PairSet:
    """One set of the pairs of several benchmarks, each in parts."""
    every = ((b, p, part) for b, parts in enumerate(benchmarks.values()) for p, part in enumerate(parts))
    rows = [(*pair, b, p) for b, p, part in every for pair in part]
    first, second, scores, labels, numbers = zip(*rows, strict=True)
    return PairSet(
        name, Texts(first), Texts(second), torch.tensor(scores, dtype=torch.float64), torch.tensor(labels),
        tuple(benchmarks), torch.tensor(numbers),
    )  # fmt: skip


def similarity(name: str, root: Path, note: str, *, layouts: Sequence[Mapping[str, Sequence[Any]]]) -> Splits:
    """STS12–16, STS-B and SICK-R, in the first layout that is there; the development part of STS-B, ``dev``, trains.

    A layout says of each benchmark its tables, what separates columns, and where both sentences and the score are.
    """
    for layout in layouts:
        parts = {}
        for key, (pattern, *columns) in layout.items():
            parts[key] = [_read_pairs(path, *columns) for path in sorted(root.glob(pattern))]
        dev = parts.pop("dev")
        present = {key: tables for key, tables in parts.items() if tables}
        if present and dev:
            break
    else:
        raise MissingDataError(
            f"{name}: looked for {root / 'sts'}/semeval-sts, stsb and sick2014, and for SentEval's {root / 'STS'} and"
            f" {root / 'SICK'}; STS-B's development part is needed beside any of {', '.join(parts)}."
        )
    absent = [key for key in parts if key not in present]
    notes = [note, *([f"without {', '.join(absent)}"] if absent else [])]
    # MSRvid may not be passed on; SentEval has it, the small copy has not
    count = sum(map(len, present.get("STS12", [])))
    if 0 < count < 3108:
        notes.append(f"STS12 without MSRvid: {count:,} of 3,108 pairs")
    train, test = pairs(f"{name}/dev", {"STS-B": dev}), pairs(f"{name}/test", present)
    return Splits.of(name, train, test, "; ".join(notes))
