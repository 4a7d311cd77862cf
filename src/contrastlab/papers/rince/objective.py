"""Robust InfoNCE (Chuang et al. 2022, RINCE): a loss that forgives views which show different things."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from contrastlab.objectives import ALONE, Context, Objective, Scores, row_logsumexp
from contrastlab.scores import choices
from contrastlab.scores.choices import Choices, Need
from contrastlab.support.errors import check, is_number, reject

_MOST = 60.0
"""Logarithm of the largest loss: float32 ends at e^88, and a denominator has up to e^20 terms."""


@dataclass(frozen=True)
class RINCE(Objective):
    """``(λ (e^s⁺ + Σ e^s))^q / q − e^(q s⁺) / q``: losses ``[B]``, not in nats.

    ``q`` goes from InfoNCE (q → 0, up to the constant log λ) to a weighted sum of exponentials (q = 1), which is
    symmetric in the label of a pair and therefore robust to pairs that are no pairs. ``density`` is λ. At q = 1 the
    loss bounds a Wasserstein dependency from below; it bounds no mutual information, and none is shown. A query
    without negatives has loss and gradient 0.
    """

    q: float = 0.5
    density: float = 0.01

    def __post_init__(self) -> None:
        check(is_number(self.q) and 0 < self.q <= 1, "q", self.q, "a number above 0, up to 1")
        check(is_number(self.density) and 0 < self.density <= 1, "density", self.density, "a number above 0, up to 1")

    def needs(self, given: Choices) -> Iterator[Need]:
        yield Need(choices.ONE_POSITIVE, f"{self!r} has one positive key; given: positives={given.positives!r}")

    def check(self, temperature: float) -> None:
        """Reject a temperature at which equal embeddings have a loss that float32 does not hold."""
        super().check(temperature)
        if self.q / temperature > _MOST:
            accepted = f"at least {self.q / _MOST:.4g} with {self!r}: its loss grows like exp(q/τ)"
            raise reject("temperature", temperature, accepted)

    def __call__(self, scores: Scores, context: Context = ALONE) -> Tensor:
        scores.require_pairs("RINCE")
        scores.require_one_positive("RINCE")
        log_denominator = math.log(self.density) + torch.logaddexp(scores.own, row_logsumexp(scores.negatives))
        loss = ((self.q * log_denominator).exp() - (self.q * scores.own).exp()) / self.q
        return torch.where(scores.present.any(1), loss, 0.0)

    @property
    def latex(self) -> str:
        denominator = rf"\big({self.density:g}\,(e^{{s^+}}+\sum_{{n\in\mathcal N}}e^{{s_n}})\big)^{{{self.q:g}}}"
        return rf"\tfrac1{{{self.q:g}}}\Big({denominator}-e^{{{self.q:g}s^+}}\Big)"
