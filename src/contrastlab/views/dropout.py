"""Views that differ in the network's dropout only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from contrastlab.views.augmented import Augmented
from contrastlab.views.base import Augmentation


@dataclass(frozen=True)
class Dropout(Augmented):
    """One view of an item, embedded several times: its dropout masks are what differs (SimCSE, Gao et al. 2021).

    An encoder without dropout gives equal embeddings, and there is nothing to learn from the positives.

    Attributes:
        count: embeddings of each item.

    Raises:
        ArgumentError: for ``count < 1``.
    """

    count: int = 2

    def single(self) -> Dropout:
        """One view of each item, as probes see it."""
        return Dropout(1)

    def make(self, batch: Any, augmentation: Augmentation, rng: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """One random view of each item, ``count`` times the same; see :meth:`Augmented.make`."""
        view = augmentation.normalise(augmentation.random(batch, rng))
        return (view,) * self.count

    @property
    def latex(self) -> str:
        """The part as a formula."""
        return rf"v_1=\dots=v_{{{self.count}}}=x,\quad \text{{each with dropout masks of its own}}"
