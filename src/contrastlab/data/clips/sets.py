"""Labelled clips that fit in memory, and the parts of a set of clips."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from contrastlab.data.images.sets import Splits, check_labels
from contrastlab.data.images.subsets import balanced_subset
from contrastlab.errors import reject

PLANES = 5
"""Red, green, blue, and flow to the right and down."""


def spread(length: int, count: int) -> Tensor:
    """``count`` frame numbers with equal spacing, the middles of as many equal parts of ``length`` frames.

    Raises:
        ArgumentError: ``count`` is not positive.
    """
    if count < 1:
        raise reject("frames", count, "an integer >= 1")
    return ((torch.arange(count) + 0.5) * (length / count)).long().clamp(max=length - 1)


@dataclass(frozen=True, eq=False)
class ClipSet:
    """Clips of one length and size that fit in memory. Treat the tensors as read-only.

    Attributes:
        name: data set and split.
        clips: uint8 ``[N, T, 5, H, W]``: red, green, blue, and the flow (x, y) from each frame to the next in eight
            bits, see :func:`contrastlab.data.clips.flow.quantise`; that of the last frame is never read.
        labels: int64 ``[N]``: index into ``classes``, or −1 where unknown.
        classes: names of the actions.
        bound: pixels a frame that fill the eight bits.
        factors: what else is known of each clip, ``[N]`` by name.

    Raises:
        ArgumentError: a tensor has another type or shape, or a label has no class.
    """

    resident: ClassVar[bool] = True
    modality: ClassVar[str] = "clip"
    channels: ClassVar[int] = 3

    name: str
    clips: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    bound: float
    factors: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.clips.dtype != torch.uint8 or self.clips.ndim != 5 or self.clips.shape[2] != PLANES:
            given = f"{self.clips.dtype} of shape {tuple(self.clips.shape)}"
            raise reject("clips", given, f"uint8 of shape [N, T, {PLANES}, H, W]")
        check_labels(self.labels, self.classes, len(self.clips))
        if not self.bound > 0:
            raise reject("bound", self.bound, "a number of pixels > 0")
        for name, values in self.factors.items():
            if len(values) != len(self.clips):
                raise reject(f"factors[{name!r}]", f"{len(values)} values", f"one for each of {len(self.clips)} clips")

    def __len__(self) -> int:
        return len(self.clips)

    def __getitem__(self, index: int) -> Tensor:
        return self.clips[index]

    def __repr__(self) -> str:
        return f"ClipSet({self.name!r}, {list(self.clips.shape)}, {len(self.classes)} classes)"

    @property
    def items(self) -> Tensor:
        """The clips, as loading reads them."""
        return self.clips

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return self.clips.shape[3], self.clips.shape[4]

    def still(self) -> ClipSet:
        """The set as a network of single frames is trained on it: itself, since all frames are in memory."""
        return self

    def spread(self, count: int) -> ClipSet:
        """The same clips with ``count`` of their frames, equally spaced; their flow is no longer that of neighbours."""
        return replace(self, clips=self.clips[:, spread(self.clips.shape[1], count).to(self.clips.device)])

    @cached_property
    def fingerprint(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of shape, bytes and labels; the same on every device."""
        digest = hashlib.sha256(repr((tuple(self.clips.shape), self.bound)).encode())
        digest.update(self.clips.cpu().contiguous().numpy().data)
        digest.update(self.labels.cpu().contiguous().numpy().astype("<i8").data)
        return digest.hexdigest()[:16]

    def subset(self, indices: Tensor) -> ClipSet:
        """The clips at ``indices`` (int64 ``[n]``), in that order."""
        rows = indices.to(self.clips.device)
        factors = {name: values[rows.to(values.device)] for name, values in self.factors.items()}
        return replace(self, clips=self.clips[rows], labels=self.labels[rows.to(self.labels.device)], factors=factors)

    def take(self, n: int | None, seed: int = 0) -> ClipSet:
        """A random subset with class counts as equal as possible; see :meth:`contrastlab.data.ImageSet.take`."""
        return self if n is None else self.subset(balanced_subset(self.labels, n, seed))

    def to(self, device: torch.device | str) -> ClipSet:
        """The same set with all its tensors on ``device``."""
        moved = {name: values.to(device) for name, values in self.factors.items()}
        return replace(self, clips=self.clips.to(device), labels=self.labels.to(device), factors=moved)


@dataclass(frozen=True, eq=False)
class ClipSplits(Splits):
    """The parts of a set of clips, and its further official splits.

    Attributes:
        further: (train, test) of the second official split, the third, …; the first is ``train`` and ``test``.
    """

    pretrain: Any
    train: Any
    test: Any
    further: tuple[tuple[Any, Any], ...] = ()

    def folds(self) -> tuple[tuple[Any, Any], ...]:
        """(train, test) of every official split."""
        return (self.train, self.test), *self.further
