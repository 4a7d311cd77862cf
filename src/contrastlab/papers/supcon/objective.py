"""The supervised contrastive loss (Khosla et al. 2020, Eq. 2 and 3): every key of the query's class is a positive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from contrastlab.objectives import ALONE, Context, Objective, Scores, row_logsumexp
from contrastlab.scores import choices
from contrastlab.scores.choices import Choices, Need
from contrastlab.scores.logits import ABSENT
from contrastlab.support.errors import check_choice


@dataclass(frozen=True)
class SupCon(Objective):
    """Minus the log share of the positives P in the denominator; losses ``[B]`` in nats.

    ``mean`` says where the mean over P stands: ``"outside"`` the logarithm (Eq. 2, ``out``), or ``"inside"`` (Eq. 3,
    ``in``), which is never larger. P is the query's own key and ``scores.neighbours``. The denominator is the own key
    and all negatives, which include the neighbours if all keys are negatives. With the own key alone both are InfoNCE.
    """

    mean: Literal["outside", "inside"] = "outside"

    def __post_init__(self) -> None:
        check_choice("mean", self.mean, ("outside", "inside"))

    def needs(self, given: Choices) -> Iterator[Need]:
        reason = f"{self!r} has one key of the item and further positives"
        yield Need(choices.SINGLE_KEY, reason, f"given: positives={given.positives!r}")

    def __call__(self, scores: Scores, context: Context = ALONE) -> Tensor:
        scores.require_one_positive("SupCon")
        denominator = torch.logaddexp(scores.own, row_logsumexp(scores.negatives))
        if scores.neighbours is None:
            return denominator - scores.own
        present = ~(scores.neighbours <= ABSENT / 2)
        count = (1 + present.sum(1)).to(scores.own.dtype)
        if self.mean == "outside":
            further = torch.where(present, scores.neighbours, 0.0).sum(1)
            return denominator - (scores.own + further) / count
        positives = torch.logaddexp(scores.own, row_logsumexp(scores.neighbours))
        return denominator + count.log() - positives

    @property
    def latex(self) -> str:
        share = r"\frac{e^{s_p}}{e^{s^+}+\sum_{n\in\mathcal N}e^{s_n}}"
        mean = r"\tfrac1{|\mathcal P|}\sum_{p\in\mathcal P}"
        if self.mean == "outside":
            return rf"-{mean}\log{share}"
        return rf"-\log {mean}{share}"
