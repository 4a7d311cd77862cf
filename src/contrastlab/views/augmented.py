"""Views of one stream: every one is seen by the same encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from contrastlab import errors
from contrastlab.views.base import Augmentation, Views, random_views


@dataclass(frozen=True)
class Augmented(Views):
    """Independent views of an item, all seen by one encoder.

    Attributes:
        count: views per item: 1 where the other view is in a memory bank (IR, LA), 2 or more where
            views are compared with each other (SimCLR, MoCo) or averaged (JCL).

    Raises:
        ArgumentError: for ``count < 1``.
    """

    count: int = 1

    def __post_init__(self) -> None:
        if not errors.is_integer(self.count):
            raise errors.reject("count", self.count, "an integer >= 1")

    def single(self) -> Augmented:
        """One view of each item, as probes see it."""
        return Augmented(1)

    def make(self, batch: Any, augmentation: Augmentation, rng: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """``count`` random views of each item, normalised.

        Args:
            batch: items of the modality of ``augmentation``; for images uint8 ``[B, C, H, W]``, ``C`` 1 or 3, or ready
                crops ``[B, count, C, size, size]``.
            augmentation: makes and normalises a view.
            rng: source of the draws, on the batch's device.

        Raises:
            ArgumentError: the batch does not fit the augmentation.
        """
        return tuple(augmentation.normalise(view) for view in random_views(batch, augmentation, rng, self.count))

    def plain(self, batch: Any, augmentation: Augmentation) -> tuple[Tensor, ...]:
        """The evaluation's view of each item: one tensor, without randomness."""
        return (augmentation.normalise(augmentation.plain(batch)),)

    @property
    def latex(self) -> str:
        """The part as a formula."""
        if self.count == 1:
            return r"v = t(x),\quad t \sim \mathcal{T}"
        return rf"v_m = t_m(x),\quad t_1, \dots, t_{{{self.count}}} \overset{{\text{{iid}}}}{{\sim}} \mathcal{{T}}"
