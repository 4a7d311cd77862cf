"""From scores to a number to minimise.

A score is a logit ``s = q·k/τ``; differences of logits are in nats. Every function takes logits and
returns one loss per query, in nats. Absent entries hold :data:`ABSENT`, so that a selection whose
size differs from query to query is one rectangular tensor.

These are losses, not bounds: :meth:`InfoNCE.bound` is the mutual-information bound, and it exists
only where the positive is one of the terms of the denominator (ring Theorem 3.1 as printed leaves it
out, and its value can then exceed the mutual information).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from contrastlab.errors import reject

ABSENT = -1e30
"""Logit of an absent entry: weight exactly 0 in every sum. Finite, because a row that holds nothing
else would otherwise give ``-inf − -inf`` in the gradient of logsumexp."""

KAPPA = 2876934.2 / 1281167
"""κ of the released IR and LA code, about the mean of exp(s) over random unit vectors (d = 128, τ = 0.07)."""


@dataclass(frozen=True)
class Scores:
    """Logits of a batch of queries against the keys chosen for them.

    Args:
        own: ``[B]``, query against its positive key.
        negatives: ``[B, K]``; :data:`ABSENT` where a row has fewer.
        neighbours: ``[B, P]`` of further positives, likewise; ``None`` if the positive is the only one.
        count: negatives K of one query, where that is less than the number of columns.

    Raises:
        ArgumentError: shapes that do not belong together.
    """

    own: Tensor
    negatives: Tensor
    neighbours: Tensor | None = None
    count: int | None = None

    def __post_init__(self) -> None:
        if self.own.dim() != 1:
            raise reject("own", tuple(self.own.shape), "a tensor of shape [B]")
        for name, value in (("negatives", self.negatives), ("neighbours", self.neighbours)):
            if value is not None and (value.dim() != 2 or value.shape[0] != self.own.shape[0]):
                raise reject(name, tuple(value.shape), f"a tensor of shape [{self.own.shape[0]}, any]")

    @property
    def size(self) -> int:
        """K, the negatives of one query."""
        return self.negatives.shape[1] if self.count is None else self.count


def _with_own(own: Tensor, others: Tensor) -> Tensor:
    # logsumexp over own and others together; concatenating would copy all of `others`.
    return torch.logaddexp(own, torch.logsumexp(others, 1)) if others.shape[1] else own


def info_nce(
    own: Tensor, negatives: Tensor, neighbours: Tensor | None = None, *, positive_in_denominator: bool = True
) -> Tensor:
    """InfoNCE loss ``logsumexp(denominator) − logsumexp(numerator)``.

    Args:
        own: ``[B]`` positive logits.
        negatives: ``[B, K]`` negative logits.
        neighbours: ``[B, P]`` logits added to the numerator only (vince §4.2, ``s-neigh`` and ``k-neigh``;
            a sum inside the logarithm, not a mean, so the ratio can exceed 1).
        positive_in_denominator: ``True`` is ring Eq. 1–2 and all released code; ``False`` is ring
            Theorem 3.1 and Algorithm 1 as printed, which bounds nothing by ``log K``.

    Returns:
        ``[B]`` losses in nats; at least 0 with the positive in the denominator and no neighbours. Without the
        positive in the denominator, a query whose negatives are all absent has loss and gradient 0.
    """
    if not positive_in_denominator and negatives.shape[1] == 0:
        raise reject("negatives", tuple(negatives.shape), "at least one column when the positive is left out")
    denominator = _with_own(own, negatives) if positive_in_denominator else torch.logsumexp(negatives, 1)
    numerator = own if neighbours is None else _with_own(own, neighbours)
    loss = denominator - numerator
    if positive_in_denominator:
        return loss
    # a query without any negative costs nothing, as it does with the positive in the denominator
    return torch.where(denominator <= ABSENT / 2, 0.0, loss)


def binary_nce(own: Tensor, negatives: Tensor, offset: float | Tensor) -> Tensor:
    """Noise-contrastive estimation as ``K + 1`` logistic terms with one offset.

    With partition constant ``Z = κN`` and uniform noise the data-set size N cancels and what is left
    is ``softplus(o − s⁺) + Σ softplus(s⁻ − o)``, ``o = log(κK)`` (original IR); CMC has
    ``o = log(K·mean exp(s))`` of its first batch.

    Args:
        own: ``[B]``.
        negatives: ``[B, K]``.
        offset: nats.

    Returns:
        ``[B]`` losses, summed over the noise samples as in the released code.
    """
    return F.softplus(offset - own) + F.softplus(negatives - offset).sum(1)


def local_aggregation(members: Tensor, background: Tensor, floor: float = 1e-7) -> Tensor:
    """LA's loss ``−log(Σ_C exp s / Σ_B exp s + floor)``.

    Args:
        members: ``[B, P]`` logits of the close neighbours C (:data:`ABSENT` elsewhere).
        background: ``[B, K]`` logits of the background neighbours B.
        floor: added to the ratio in the released code; a query with an empty C costs ``−log floor``
            and has no gradient.

    Returns:
        ``[B]``.
    """
    log_ratio = torch.logsumexp(members, 1) - torch.logsumexp(background, 1)
    return -torch.logaddexp(log_ratio, log_ratio.new_tensor(math.log(floor)))


@dataclass(frozen=True)
class InfoNCE:
    """Softmax classification of the positive among the keys (vince Eq. 2; ring Eq. 1)."""

    positive_in_denominator: bool = True

    def __call__(self, scores: Scores, offset: Tensor | None = None) -> Tensor:
        """``[B]`` losses of ``scores``; ``offset`` is not used."""
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
class BinaryNCE:
    """Logistic form of NCE: the original IR and the default of CMC.

    Args:
        kappa: mean of ``exp(s)`` that stands for the partition function; ``None`` estimates it on the
            first batch and keeps it, as CMC does (its Z₀).
    """

    kappa: float | None = KAPPA

    def __post_init__(self) -> None:
        if self.kappa is not None and not (math.isfinite(self.kappa) and self.kappa > 0):
            raise reject("kappa", self.kappa, "a positive number, or None to estimate it")

    @property
    def estimates_offset(self) -> bool:
        """Whether the offset is a state of the run, fixed at the first batch."""
        return self.kappa is None

    def offset(self, scores: Scores) -> Tensor:
        """``log(κK)``, a scalar; κ from ``scores`` (positives included) where it is not given."""
        count = scores.own.new_tensor(float(scores.size))
        if self.kappa is not None:
            return count.log() + math.log(self.kappa)
        every = torch.cat([scores.own[:, None], scores.negatives], 1).detach()
        return count.log() + torch.logsumexp(every.flatten(), 0) - (every > ABSENT / 2).sum().to(every.dtype).log()

    def __call__(self, scores: Scores, offset: Tensor | None = None) -> Tensor:
        """``[B]`` losses of ``scores``, with a stored ``offset`` where there is one."""
        return binary_nce(scores.own, scores.negatives, self.offset(scores) if offset is None else offset)

    def bound(self, loss: float, terms: int) -> float | None:
        """``None``: the logistic loss is not a bound on the mutual information by ``log K``."""
        return None

    @property
    def latex(self) -> str:
        """The loss of one query."""
        o = r"\log K\kappa" if self.kappa is not None else r"\log K Z_0"
        return rf"\operatorname{{softplus}}(o-s^+)+\sum_{{n\in\mathcal N}}\operatorname{{softplus}}(s_n-o),\quad o={o}"


@dataclass(frozen=True)
class LocalAggregation:
    """LA's probability of a close neighbour within the background neighbours (vince §3.2, released code)."""

    floor: float = 1e-7

    def __post_init__(self) -> None:
        if not 0 < self.floor < 1:
            raise reject("floor", self.floor, "a number between 0 and 1")

    def __call__(self, scores: Scores, offset: Tensor | None = None) -> Tensor:
        """``[B]`` losses; ``scores.neighbours`` are C and ``scores.negatives`` are B, own row ranked like any other."""
        if scores.neighbours is None:
            raise reject("neighbours", None, "the logits of the close neighbours: LA needs SameCluster positives")
        return local_aggregation(scores.neighbours, scores.negatives, self.floor)

    def bound(self, loss: float, terms: int) -> float | None:
        """``None``: LA exceeds the loss whose bound is known (vince Lemma 4.4 as printed is false)."""
        return None

    @property
    def latex(self) -> str:
        """The loss of one query."""
        return r"-\log\Big(\frac{\sum_{p\in\mathcal P}e^{s_p}}{\sum_{n\in\mathcal N}e^{s_n}}+10^{-7}\Big)"


Objective = InfoNCE | BinaryNCE | LocalAggregation
