"""Hard negatives by weight (Robinson et al. 2021, section 3): close negatives count more in the mean."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from contrastlab.objectives import Scores, row_logsumexp
from contrastlab.papers.debiased.objective import Debiased
from contrastlab.scores.logits import ABSENT
from contrastlab.support.errors import check, is_number


@dataclass(frozen=True)
class HardWeighted(Debiased):
    """:class:`Debiased` whose mean over the negatives has weights in proportion to ``e^(βs)``; ``[B]`` in nats.

    ``beta`` is β. At 0 the loss is :class:`Debiased`, and with ``prior=0`` InfoNCE. As β grows the loss tends to that
    of K negatives as close as the closest one. It bounds no mutual information, and none is shown.
    """

    beta: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check(is_number(self.beta) and 0 <= self.beta <= 1e6, "beta", self.beta, "a number from 0 to 1e6")

    def log_mean(self, scores: Scores, log_count: Tensor) -> Tensor:
        """``[B]`` logarithm of the weighted mean of ``e^s`` over the negatives."""
        closest = scores.negatives.detach().amax(1)
        below = torch.where(scores.present, scores.negatives - closest[:, None], ABSENT)
        weights = torch.where(scores.present, self.beta * below, ABSENT)
        return closest + row_logsumexp(weights + below) - row_logsumexp(weights)

    @property
    def latex(self) -> str:
        mean = rf"\tfrac{{\sum_n e^{{{1 + self.beta:g}s_n}}}}{{\sum_n e^{{{self.beta:g}s_n}}}}"
        corrected = rf"\tfrac1{{{1 - self.prior:g}}}\big({mean}-{self.prior:g}\,e^{{s^+}}\big)"
        return rf"-\log\frac{{e^{{s^+}}}}{{e^{{s^+}}+K\,g}},\quad g=\max\big({corrected},e^{{-1/\tau}}\big)"
