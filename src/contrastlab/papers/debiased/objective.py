"""The debiased contrastive loss (Chuang et al. 2020, Eq. 8, with one positive key and the estimator g in it)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from contrastlab.objectives import ALONE, Context, Objective, Scores, row_logsumexp
from contrastlab.scores import choices
from contrastlab.scores.choices import Choices, Need
from contrastlab.support.errors import check, is_number


@dataclass(frozen=True)
class Debiased(Objective):
    """InfoNCE whose negatives are corrected for those that belong to the query's own class; losses ``[B]`` in nats.

    The mean of ``e^s`` over the negatives estimates ``τ⁺ E[e^s of the same class] + (1 − τ⁺) E[e^s of the others]``.
    The positive key estimates the first expectation, and what remains is the second one, at least ``e^(−1/τ)``.

    ``prior`` is τ⁺, the chance that a negative has the query's class. At 0 the loss is InfoNCE. ``log K`` minus the
    loss bounds no mutual information, and none is shown. A query without negatives has loss and gradient 0.
    """

    prior: float = 0.1

    def __post_init__(self) -> None:
        check(is_number(self.prior) and 0 <= self.prior < 1, "prior", self.prior, "a number from 0 to below 1")

    def needs(self, given: Choices) -> Iterator[Need]:
        reason = f"{self!r} corrects by one positive key"
        yield Need(choices.ONE_POSITIVE, reason, f"given: positives={given.positives!r}")

    def __call__(self, scores: Scores, context: Context = ALONE) -> Tensor:
        scores.require_pairs("Debiased")
        scores.require_one_positive("Debiased")
        lowest = -scores.require_highest("Debiased")
        log_count = scores.present.sum(1).clamp(min=1).to(scores.own.dtype).log()
        log_mean = self.log_mean(scores, log_count)
        log_prior = math.log(self.prior) if self.prior else -math.inf
        # share of the mean that the query's own class explains, as a logarithm; from 0 on nothing is left
        log_share = scores.own + log_prior - log_mean
        remains = ~(log_share >= 0)  # also where a score is no number
        safe_share = torch.where(remains, log_share, -1.0)
        log_rest = log_mean + torch.log(-torch.expm1(safe_share)) - math.log1p(-self.prior)
        log_others = torch.where(remains, log_rest, lowest).clamp(min=lowest)
        loss = torch.logaddexp(scores.own, log_others + log_count) - scores.own
        return scores.zero_without_negatives(loss)

    def log_mean(self, scores: Scores, log_count: Tensor) -> Tensor:
        """``[B]`` logarithm of the mean of ``e^s`` over the negatives, of which there are ``exp(log_count)``."""
        return row_logsumexp(scores.negatives) - log_count

    @property
    def latex(self) -> str:
        corrected = rf"\tfrac{{\overline{{e^{{s}}}}-{self.prior:g}\,e^{{s^+}}}}{{{1 - self.prior:g}}}"
        return rf"-\log\frac{{e^{{s^+}}}}{{e^{{s^+}}+K\,g}},\quad g=\max\big({corrected},e^{{-1/\tau}}\big)"
