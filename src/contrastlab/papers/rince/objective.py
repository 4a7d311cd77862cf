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

_LEAST = 1e-30
"""Of q and λ: float32 holds their powers and products."""


def _difference_of_powers(a: Tensor, b: Tensor) -> Tensor:
    """``e^a − e^b``, where both are near each other as ``−e^a (e^(b−a) − 1)``, which has all digits."""
    apart = b - a
    near = apart.abs() < 0.5
    product = -a.exp() * torch.where(near, apart, 0.0).expm1()
    return torch.where(near, product, a.exp() - b.exp())


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
        for name, value in (("q", self.q), ("density", self.density)):
            check(is_number(value) and _LEAST <= value <= 1, name, value, f"a number from {_LEAST:g} to 1")

    def needs(self, given: Choices) -> Iterator[Need]:
        yield Need(choices.ONE_POSITIVE, f"{self!r} has one positive key", f"given: positives={given.positives!r}")

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
        loss = _difference_of_powers(self.q * log_denominator, self.q * scores.own) / self.q
        return scores.zero_without_negatives(loss)

    @property
    def latex(self) -> str:
        denominator = rf"\big({self.density:g}\,(e^{{s^+}}+\sum_{{n\in\mathcal N}}e^{{s_n}})\big)^{{{self.q:g}}}"
        return rf"\tfrac1{{{self.q:g}}}\Big({denominator}-e^{{{self.q:g}s^+}}\Big)"
