"""Sets of sentences and of scored pairs, in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NoReturn

import torch
from torch import Tensor

from contrastlab.data.images.sets import UnlabelledSplits
from contrastlab.data.images.subsets import balanced_subset
from contrastlab.errors import NotApplicableError, reject


class Texts(Sequence[str]):
    """Texts that are indexed as a tensor is, and that say on which device their token numbers are wanted.

    Args:
        texts: any number of them.
        device: of the token numbers.
    """

    def __init__(self, texts: Sequence[str], device: torch.device | str = "cpu") -> None:
        self._texts, self.device = tuple(texts), torch.device(device)

    def __len__(self) -> int:
        return len(self._texts)

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __getitem__(self, index: Any) -> Any:
        return Texts(self._texts[index], self.device) if isinstance(index, slice) else self._texts[index]

    def index_select(self, dim: int, index: Tensor) -> Texts:
        """The texts at ``index``; ``dim`` is 0."""
        return Texts([self._texts[k] for k in index.tolist()], self.device)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Texts:
        """The same texts, with token numbers wanted on ``device``."""
        return Texts(self._texts, device)


def _hash(*parts: Any) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(repr(part).encode())
    return digest.hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class SentenceSet:
    """Sentences in memory.

    Attributes:
        name: data set and split, such as ``"wikisplit/train"``.
        texts: N sentences.
        labels: int64 ``[N]``, −1 where unknown.
        classes: class names.

    Raises:
        ArgumentError: not one label for each sentence.
    """

    resident: ClassVar[bool] = True
    modality: ClassVar[str] = "sentence"
    channels: ClassVar[int] = 1

    name: str
    texts: Texts
    labels: Tensor
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.labels.shape != (len(self.texts),):
            raise reject("labels", tuple(self.labels.shape), f"one for each of {len(self.texts)} sentences")

    @classmethod
    def of(cls, name: str, texts: Sequence[str]) -> SentenceSet:
        """Sentences without labels."""
        return cls(name, Texts(texts), torch.full((len(texts),), -1))

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        return f"SentenceSet({self.name!r}, {len(self)} sentences)"

    @property
    def items(self) -> Texts:
        """The sentences, as loading reads them."""
        return self.texts

    @cached_property
    def fingerprint(self) -> str:
        """First 16 hexadecimal digits of a SHA-256 of sentences and labels."""
        return _hash(tuple(self.texts), self.labels.tolist())

    def subset(self, indices: Tensor) -> SentenceSet:
        """The sentences at ``indices``, in that order."""
        return replace(self, texts=self.texts.index_select(0, indices), labels=self.labels[indices.cpu()])

    def take(self, n: int | None, seed: int = 0) -> SentenceSet:
        """A random subset, the same for the same seed; see :func:`balanced_subset`."""
        return self if n is None else self.subset(balanced_subset(self.labels, n, seed))

    def to(self, device: torch.device | str) -> SentenceSet:
        """The same set with token numbers wanted on ``device``."""
        return replace(self, texts=self.texts.to(device))


@dataclass(frozen=True, eq=False)
class PairSet:
    """Pairs of sentences with people's (or a grammar's) scores of similarity.

    Attributes:
        name: data set and split.
        first: N sentences.
        second: N sentences.
        scores: float64 ``[N]``, larger is more alike; comparable within a benchmark.
        labels: int64 ``[N]``, the benchmark of each pair: index into ``classes``.
        classes: benchmarks, such as ``"STS12"``.
        parts: int64 ``[N]``, which part of its benchmark a pair is from.

    Raises:
        ArgumentError: columns of different length, or a score that is not finite.
    """

    resident: ClassVar[bool] = True
    modality: ClassVar[str] = "sentence"
    channels: ClassVar[int] = 1

    name: str
    first: Texts
    second: Texts
    scores: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    parts: Tensor

    def __post_init__(self) -> None:
        columns = (self.first, self.second, self.scores, self.labels, self.parts)
        if len({len(column) for column in columns}) != 1:
            raise reject(
                "pairs", [len(column) for column in columns], "two sentences, a score and a benchmark for each"
            )
        if not bool(self.scores.isfinite().all()):
            raise reject("scores", float(self.scores[~self.scores.isfinite()][0]), "finite numbers")

    def __len__(self) -> int:
        return len(self.first)

    def __repr__(self) -> str:
        return f"PairSet({self.name!r}, {len(self)} pairs of {', '.join(self.classes)})"

    @cached_property
    def fingerprint(self) -> str:
        """First 16 hexadecimal digits of a SHA-256 of sentences, scores and benchmarks."""
        numbers = (self.scores.tolist(), self.labels.tolist(), self.parts.tolist(), self.classes)
        return _hash(tuple(self.first), tuple(self.second), *numbers)

    def subset(self, indices: Tensor) -> PairSet:
        """The pairs at ``indices``, in that order."""
        texts = {name: getattr(self, name).index_select(0, indices) for name in ("first", "second")}
        numbers = {name: getattr(self, name)[indices.cpu()] for name in ("scores", "labels", "parts")}
        return replace(self, **texts, **numbers)

    def take(self, n: int | None, seed: int = 0) -> PairSet:
        """A random subset with as many pairs of each benchmark as possible; see :func:`balanced_subset`."""
        return self if n is None else self.subset(balanced_subset(self.labels, n, seed))

    def sentences(self) -> SentenceSet:
        """All first sentences, then all second ones."""
        made = SentenceSet.of(self.name, [*self.first, *self.second])
        return made.to(self.first.device)

    def to(self, device: torch.device | str) -> PairSet:
        """The same set with token numbers wanted on ``device``."""
        return replace(self, first=self.first.to(device), second=self.second.to(device))


class Sentences(UnlabelledSplits):
    """Sentences without labels: they can be pre-trained on, and are scored on pairs."""

    def _refuse(self, part: str) -> NoReturn:
        raise NotApplicableError(f"{self.name!r} has sentences alone and no {part!r} split: score them on pairs (sts)")
