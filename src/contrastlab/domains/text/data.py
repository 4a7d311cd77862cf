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
from contrastlab.support.errors import CorruptFileError, MissingDataError, reject
from contrastlab.support.paths import matching, own_path


class Texts(Sequence[str]):
    """Texts that are indexed as a tensor is; ``device`` is where their token numbers belong."""

    def __init__(self, texts: Sequence[str], device: torch.device | str = "cpu") -> None:
        self._texts = tuple(texts)
        self.device = torch.device(device)

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Texts(self._texts[index], self.device)
        return self._texts[index]

    def index_select(self, dim: int, index: Tensor) -> Texts:
        """The texts at ``index``; ``dim`` is 0."""
        selected = [self._texts[k] for k in index.tolist()]
        return Texts(selected, self.device)

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
        is_finite = self.scores.isfinite()
        if not bool(is_finite.all()):
            raise reject("scores", float(self.scores[~is_finite][0]), "finite numbers")

    def _hashed(self) -> Iterator[str]:
        yield repr(tuple(self.first))
        yield repr(tuple(self.second))
        yield repr(self.scores.tolist())
        yield repr(self.labels.tolist())
        yield repr(self.parts.tolist())
        yield repr(self.classes)

    def sentences(self) -> SentenceSet:
        """All first sentences, then all second ones."""
        sentences = SentenceSet.of(self.name, [*self.first, *self.second])
        return sentences.to(self.first.device)

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
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = 1 + error.object.count(b"\n", 0, error.start)
        raise CorruptFileError(f"{path}, line {number}, is not UTF-8 ({error.reason}); convert it") from error
    stripped = [line.strip() for line in text.split("\n")]
    lines = [line for line in stripped if line]
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
    paths = matching(folder, "*.tsv")
    texts: dict[str, None] = {}  # in order, each once
    for path in paths:
        for line in read_lines(path):
            whole, tab, split = line.partition("\t")
            if not tab:
                raise CorruptFileError(f"{path} is no part of WikiSplit: a line without a tab, {line[:40]!r}")
            for text in (whole, *split.split("<::::>")):
                if text.strip():
                    texts[text.strip()] = None
    parts = ", ".join(path.stem for path in paths)
    return SentenceSplits(name, SentenceSet.of(name, list(texts)), note.format(parts=parts))


# Readers of pairs -----------------------------------------------------------------------------------------------------

Pair = tuple[str, str, float]  #: two sentences and their score


_SCORES = "STS.gs."
_SENTENCES = "STS.input."
"""How file names begin where scores and sentences are in two files."""


def _read_pairs(path: Path, separator: str, first: int, second: int, score: int) -> list[Pair]:
    """The scored pairs of a table, whose sentences and scores are in some columns."""
    if path.name.startswith(_SCORES):
        scores = path.read_text(encoding="utf-8").splitlines()
        path = path.with_name(path.name.replace(_SCORES, _SENTENCES))
        rows = [[*row[:2], value] for row, value in zip(_read_rows(path, separator), scores, strict=True)]
    else:
        rows = _read_rows(path, separator)
    pairs = []
    for number, row in enumerate(rows, 1):
        if len(row) <= max(first, second, score):
            raise CorruptFileError(f"{path}, entry {number}, has {len(row)} columns")
        if not row[score].strip():  # nobody scored this pair
            continue
        try:
            value = float(row[score])
        except ValueError as error:
            raise CorruptFileError(f"{path}, entry {number}: {row[score]!r} is no score") from error
        pairs.append((row[first].strip(), row[second].strip(), value))
    return pairs


def _read_rows(path: Path, separator: str) -> list[list[str]]:
    """The rows of a table that are neither blank nor its heading."""
    rows = []
    with path.open(encoding="utf-8", newline="") as file:
        if separator == ",":
            table = csv.reader(file, delimiter=separator, quoting=csv.QUOTE_MINIMAL)
        else:
            table = csv.reader(file, delimiter=separator, quoting=csv.QUOTE_NONE)
        for row in table:
            is_blank = not any(field.strip() for field in row)
            if not is_blank and row[0] != "pair_ID":
                rows.append(row)
    return rows


def pairs(name: str, benchmarks: Mapping[str, list[list[Pair]]]) -> PairSet:
    """One set of the pairs of several benchmarks, each in parts."""
    rows: list[Pair] = []
    labels: list[int] = []
    part_numbers: list[int] = []
    for label, parts in enumerate(benchmarks.values()):
        for number, part in enumerate(parts):
            rows += part
            labels += [label] * len(part)
            part_numbers += [number] * len(part)
    first, second, scores = zip(*rows, strict=True)
    return PairSet(
        name,
        Texts(first),
        Texts(second),
        torch.tensor(scores, dtype=torch.float64),
        torch.tensor(labels),
        tuple(benchmarks),
        torch.tensor(part_numbers),
    )


def similarity(name: str, root: Path, note: str, *, layouts: Sequence[Mapping[str, Sequence[Any]]]) -> Splits:
    """STS12–16, STS-B and SICK-R, in the first layout that is there; the development part of STS-B, ``dev``, trains.

    A layout says of each benchmark its tables, what separates columns, and where both sentences and the score are.
    """
    for layout in layouts:
        benchmarks = _read_layout(root, layout)
        development = benchmarks.pop("dev")
        present = {benchmark: parts for benchmark, parts in benchmarks.items() if parts}
        if present and development:
            train = pairs(f"{name}/dev", {"STS-B": development})
            test = pairs(f"{name}/test", present)
            absent = [benchmark for benchmark in benchmarks if benchmark not in present]
            return Splits.of(name, train, test, _note_of_similarity(note, present, absent))
    wanted = ", ".join(benchmark for benchmark in layouts[-1] if benchmark != "dev")
    raise MissingDataError(
        f"{name}: looked for {root / 'sts'}/semeval-sts, stsb and sick2014, and for SentEval's {root / 'STS'} and"
        f" {root / 'SICK'}; STS-B's development part is needed beside any of {wanted}."
    )


def _read_layout(root: Path, layout: Mapping[str, Sequence[Any]]) -> dict[str, list[list[Pair]]]:
    """The parts of each benchmark of a layout; none where its files are not there."""
    benchmarks = {}
    for benchmark, (pattern, *columns) in layout.items():
        paths = sorted(root.glob(pattern))
        benchmarks[benchmark] = [_read_pairs(path, *columns) for path in paths]
    return benchmarks


def _note_of_similarity(note: str, present: Mapping[str, list[list[Pair]]], absent: Sequence[str]) -> str:
    notes = [note]
    if absent:
        notes.append(f"without {', '.join(absent)}")
    # MSRvid may not be passed on; SentEval has it, the small copy has not
    count = sum(len(part) for part in present.get("STS12", []))
    if 0 < count < 3108:
        notes.append(f"STS12 without MSRvid: {count:,} of 3,108 pairs")
    return "; ".join(notes)
