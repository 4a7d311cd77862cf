"""Objectives that tell the positive from the other keys: softmax and logistic classification, LA."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from contrastlab import choices
from contrastlab.choices import Choices, Need
from contrastlab.errors import check_flag, is_number, reject
from contrastlab.objectives.base import ABSENT, Objective, Scores
from contrastlab.objectives.losses import binary_nce, info_nce, local_aggregation, multi_key_info_nce

KAPPA = 2876934.2 / 1281167
"""κ of the released IR and LA code, about the mean of exp(s) over random unit vectors (d = 128, τ = 0.07)."""


@dataclass(frozen=True)
class InfoNCE(Objective):
    """Softmax classification of the positive among the keys (vince Eq. 2; ring Eq. 1)."""

    positive_in_denominator: bool = True

    def __post_init__(self) -> None:
        check_flag("positive_in_denominator", self.positive_in_denominator)

    @property
    def offers(self) -> frozenset[str]:
        """A logsumexp, whose expectation over Gaussian keys is known."""
        return frozenset({choices.LOG_SUM_EXP})

    def needs(self, given: Choices) -> Iterator[Need]:
        """One key per item where the positive is left out: with several, it would not be clear what is left out."""
        if not self.positive_in_denominator:
            yield Need(
                choices.SINGLE_KEY,
                "InfoNCE with the positive left out of the denominator knows one key per image; given:"
                f" positives={given.positives!r}",
            )

    @property
    def bounds_information(self) -> bool:
        """Whether the positive is in the denominator: ring Eq. 1, not Theorem 3.1 as printed."""
        return self.positive_in_denominator

    def __call__(self, scores: Scores, offset: Tensor | None = None) -> Tensor:
        """``[B]`` losses of ``scores``; ``offset`` is not used.

        Raises:
            ArgumentError: a lift with several positive keys, or either beside neighbours or without the positive.
        """
        if scores.own.dim() == 2 or scores.lift is not None:
            if scores.neighbours is not None or not self.positive_in_denominator:
                scores.require_one_positive("neighbours, or with the positive left out of the denominator")
            return multi_key_info_nce(scores.own, scores.negatives, scores.lift)
        return info_nce(
            scores.own, scores.negatives, scores.neighbours, positive_in_denominator=self.positive_in_denominator
        )

    def bound(self, loss: float, terms: int) -> float | None:
        """Lower bound on the mutual information in nats, ``log(terms) − loss``; ``None`` where it bounds nothing."""
        return math.log(terms) - loss if self.positive_in_denominator else None

    @property
    def latex(self) -> str:
        """The loss of one query."""
        own = "e^{s^+}+" if self.positive_in_denominator else ""
        return rf"-\log\frac{{\sum_{{p\in\mathcal P}}e^{{s_p}}}}{{{own}\sum_{{n\in\mathcal N}}e^{{s_n}}}}"


@dataclass(frozen=True)
class BinaryNCE(Objective):
    """Logistic form of NCE: the original IR and the default of CMC. ``log K`` minus it is no bound.

    Args:
        kappa: mean of ``exp(s)`` that stands for the partition function; ``None`` estimates it on the
            first batch and keeps it, as CMC does (its Z₀).
    """

    kappa: float | None = KAPPA

    def __post_init__(self) -> None:
        if self.kappa is not None and not (is_number(self.kappa) and self.kappa > 0):
            raise reject("kappa", self.kappa, "a positive number, or None to estimate it")

    def needs(self, given: Choices) -> Iterator[Need]:
        """One positive key."""
        yield Need(
            choices.ONE_POSITIVE,
            f"{self!r} decides about one positive key per image; given: positives={given.positives!r}",
        )

    @property
    def estimates_offset(self) -> bool:
        """Whether the offset is a state of the run, fixed at the first batch."""
        return self.kappa is None

    def offset(self, scores: Scores) -> Tensor:
        """``log(κK)``, a scalar; κ from ``scores`` (positives included) where it is not given."""
        count = scores.own.new_full((), float(scores.size))
        if self.kappa is not None:
            return count.log() + math.log(self.kappa)
        every = torch.cat([scores.own[:, None], scores.negatives], 1).detach()
        return count.log() + torch.logsumexp(every.flatten(), 0) - (every > ABSENT / 2).sum().to(every.dtype).log()

    def __call__(self, scores: Scores, offset: Tensor | None = None) -> Tensor:
        """``[B]`` losses of ``scores``, with a stored ``offset`` where there is one."""
        scores.require_one_positive("BinaryNCE")
        return binary_nce(scores.own, scores.negatives, self.offset(scores) if offset is None else offset)

    @property
    def latex(self) -> str:
        """The loss of one query."""
        o = r"\log K\kappa" if self.kappa is not None else r"\log K Z_0"
        return rf"\operatorname{{softplus}}(o-s^+)+\sum_{{n\in\mathcal N}}\operatorname{{softplus}}(s_n-o),\quad o={o}"


@dataclass(frozen=True)
class LocalAggregation(Objective):
    """LA's probability of a close neighbour within the background neighbours (vince §3.2, released code).

    It exceeds the loss whose bound is known (vince Lemma 4.4 as printed is false).
    """

    floor: float = 1e-7

    def __post_init__(self) -> None:
        if not (is_number(self.floor) and 0 < self.floor < 1):
            raise reject("floor", self.floor, "a number between 0 and 1")

    def needs(self, given: Choices) -> Iterator[Need]:
        """Close neighbours."""
        yield Need(choices.SAME_CLUSTER, "LocalAggregation needs positives=SameCluster()")

    def __call__(self, scores: Scores, offset: Tensor | None = None) -> Tensor:
        """``[B]`` losses; ``scores.neighbours`` are C and ``scores.negatives`` are B, own row ranked like any other."""
        scores.require_one_positive("LocalAggregation")
        if scores.neighbours is None:
            raise reject("neighbours", None, "the logits of the close neighbours: LA needs SameCluster positives")
        return local_aggregation(scores.neighbours, scores.negatives, self.floor)

    @property
    def latex(self) -> str:
        """The loss of one query."""
        return r"-\log\Big(\frac{\sum_{p\in\mathcal P}e^{s_p}}{\sum_{n\in\mathcal N}e^{s_n}}+10^{-7}\Big)"
