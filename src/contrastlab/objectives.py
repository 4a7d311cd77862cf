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
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from contrastlab import divergences
from contrastlab.divergences import Divergence
from contrastlab.errors import reject

ABSENT = -1e30
"""The logit of an absent entry, with weight exactly 0 in every sum. Finite, because a row that holds nothing
else would otherwise give ``-inf − -inf`` in the gradient of logsumexp."""

KAPPA = 2876934.2 / 1281167
"""κ of the released IR and LA code, about the mean of exp(s) over random unit vectors (d = 128, τ = 0.07)."""


@dataclass(frozen=True)
class Scores:
    """Logits of a batch of queries against the keys chosen for them.

    Args:
        own: ``[B]``, query against its positive key; ``[B, M]`` against M of them, each a positive by itself.
        negatives: ``[B, K]``; :data:`ABSENT` where a row has fewer.
        neighbours: ``[B, P]`` of further positives, likewise; ``None`` if the positive is the only one.
        count: negatives K of one query, where that is less than the number of columns.
        lift: ``[B]`` added to ``own`` in the denominator only (JCL's variance term); ``None`` is 0.
        highest: logit of a query with itself, 1/τ: similarities on the unit sphere are ``logit / highest``.

    Raises:
        ArgumentError: shapes that do not belong together.
    """

    own: Tensor
    negatives: Tensor
    neighbours: Tensor | None = None
    count: int | None = None
    lift: Tensor | None = None
    highest: float = 1.0

    def __post_init__(self) -> None:
        if self.own.dim() not in (1, 2):
            raise reject("own", tuple(self.own.shape), "a tensor of shape [B] or [B, M]")
        if self.lift is not None and self.lift.shape != self.own.shape[:1]:
            raise reject("lift", tuple(self.lift.shape), f"a tensor of shape [{self.own.shape[0]}]")
        for name, value in (("negatives", self.negatives), ("neighbours", self.neighbours)):
            if value is not None and (value.dim() != 2 or value.shape[0] != self.own.shape[0]):
                raise reject(name, tuple(value.shape), f"a tensor of shape [{self.own.shape[0]}, any]")

    @property
    def size(self) -> int:
        """K, the negatives of one query."""
        return self.negatives.shape[1] if self.count is None else self.count

    @property
    def present(self) -> Tensor:
        """``[B, K]`` whether a negative is there."""
        return self.negatives > ABSENT / 2

    def single(self, objective: str) -> None:
        """Reject several positive keys or a lift, for an objective that knows one positive.

        Raises:
            ArgumentError: naming ``objective``.
        """
        if self.own.dim() != 1 or self.lift is not None:
            raise reject("own", tuple(self.own.shape), f"one positive key per query, shape [B], with {objective}")


class _LogSumExp(torch.autograd.Function):
    # torch.logsumexp keeps its input and computes the exponentials again backward. Kept in its place, they save two
    # passes over [B, K], which is what the loss of a long queue costs.

    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        top = logits.amax(1, keepdim=True)
        top = torch.where(top.isinf(), 0.0, top)
        weights = (logits - top).exp_()
        total = weights.sum(1)
        ctx.save_for_backward(weights, total)
        return total.log() + top[:, 0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        weights, total = ctx.saved_tensors
        result: Tensor = weights * (gradient / total)[:, None]
        return result


def _logsumexp(logits: Tensor) -> Tensor:
    # [B, K] → [B]
    if not logits.shape[1]:
        return torch.logsumexp(logits, 1)
    result: Tensor = _LogSumExp.apply(logits)
    return result


def _with_own(own: Tensor, others: Tensor) -> Tensor:
    # logsumexp over own and others together; concatenating would copy all of `others`.
    return torch.logaddexp(own, _logsumexp(others)) if others.shape[1] else own


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
    denominator = _with_own(own, negatives) if positive_in_denominator else _logsumexp(negatives)
    numerator = own if neighbours is None else _with_own(own, neighbours)
    loss = denominator - numerator
    if positive_in_denominator:
        return loss
    # a query without any negative costs nothing, as it does with the positive in the denominator
    return torch.where(denominator <= ABSENT / 2, 0.0, loss)


def multi_key_info_nce(own: Tensor, negatives: Tensor, lift: Tensor | None = None) -> Tensor:
    """InfoNCE for M positive keys of each query: the mean of M losses, or JCL's closed form.

    Args:
        own: ``[B, M]``: the mean over m of ``logsumexp(own_m, negatives) − own_m`` (jcl Eq. 2–3), each key alone in
            its denominator; ``[B]`` the mean logit ``q·μ/τ`` (jcl Eq. 8).
        negatives: ``[B, K]``.
        lift: ``[B]`` with a mean logit, ``λ/2 · Var_m(q·k_m/τ) = λ/(2τ²) qᵀΣq``.

    Returns:
        ``[B]`` losses in nats.
    """
    rest = _logsumexp(negatives)
    if own.dim() == 2:
        return (torch.logaddexp(own, rest[:, None]) - own).mean(1)
    return torch.logaddexp(own if lift is None else own + lift, rest) - own


def f_micl(
    own: Tensor, negatives: Tensor, present: Tensor, divergence: Divergence, weight: float, *, similarity: str = "log u"
) -> Tensor:
    """f-MICL loss ``−mean f′(u⁺) + α · mean f*(f′(u⁻))`` (fmicl Eq. 11 and Algorithm 1).

    Args:
        own: ``[B]`` or ``[B, M]`` log u of the positives.
        negatives: ``[B, K]`` log u of the negatives.
        present: ``[B, K]`` which of them are there; at least one per query.
        divergence: the divergence, by its f.
        weight: α.
        similarity: ``"log u"``, or ``"score"`` where the entries take the place of f′(u) (the paper's cosine
            similarity), which must lie in the domain of f*.

    Returns:
        ``[B]`` losses.
    """
    first, second = own, torch.where(present, negatives, 0.0)
    if similarity == "log u":
        first, second = divergence.derivative(first), divergence.composition(second)
    else:
        second = divergence.conjugate(second)
    positives = first.mean(1) if first.dim() == 2 else first
    return weight * torch.where(present, second, 0.0).sum(1) / present.sum(1) - positives


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
    log_ratio = _logsumexp(members) - _logsumexp(background)
    return -torch.logaddexp(log_ratio, log_ratio.new_full((), math.log(floor)))


@dataclass(frozen=True)
class InfoNCE:
    """Softmax classification of the positive among the keys (vince Eq. 2; ring Eq. 1)."""

    positive_in_denominator: bool = True

    def __call__(self, scores: Scores, offset: Tensor | None = None) -> Tensor:
        """``[B]`` losses of ``scores``; ``offset`` is not used."""
        if scores.own.dim() == 2 or scores.lift is not None:
            if scores.neighbours is not None or not self.positive_in_denominator:
                scores.single("neighbours, or with the positive left out of the denominator")
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
        count = scores.own.new_full((), float(scores.size))
        if self.kappa is not None:
            return count.log() + math.log(self.kappa)
        every = torch.cat([scores.own[:, None], scores.negatives], 1).detach()
        return count.log() + torch.logsumexp(every.flatten(), 0) - (every > ABSENT / 2).sum().to(every.dtype).log()

    def __call__(self, scores: Scores, offset: Tensor | None = None) -> Tensor:
        """``[B]`` losses of ``scores``, with a stored ``offset`` where there is one."""
        scores.single("BinaryNCE")
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
        scores.single("LocalAggregation")
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


@dataclass(frozen=True)
class FMICL:
    """The f-mutual information of the embeddings, with fixed similarity (fmicl Algorithm 1).

    With the Gaussian similarity ``u = μ exp(−‖x − y‖² / 2σ²)``, and on the unit sphere
    ``log u = log μ + (q·k − 1) / σ²``: the recipe's temperature is σ². The paper has σ² = 1/2 (images).

    Args:
        divergence: name in :mod:`contrastlab.divergences`.
        order: of the Tsallis divergence; of no other.
        weight: α, of the negatives' term.
        mu: μ.
        similarity: ``"gaussian"``, or ``"cosine"``: ``q·k/τ`` itself in place of f′(u).

    Raises:
        ArgumentError: ``weight`` or ``mu`` not positive.
    """

    divergence: str = "kl"
    order: float | None = None
    weight: float = 40.0
    mu: float = 1.0
    similarity: Literal["gaussian", "cosine"] = "gaussian"

    def __post_init__(self) -> None:
        _ = self.f
        for name, value in (("weight", self.weight), ("mu", self.mu)):
            if not (math.isfinite(value) and value > 0):
                raise reject(name, value, "a positive number")
        if self.similarity not in ("gaussian", "cosine"):
            raise reject("similarity", self.similarity, "'gaussian' or 'cosine'")

    @property
    def f(self) -> Divergence:
        """The divergence."""
        return divergences.get(self.divergence, alpha=self.order)

    def check(self, temperature: float) -> None:
        """Whether every score of the unit sphere lies inside the domain of f*.

        Raises:
            ArgumentError: cosine similarities reach ``1/τ``, where f* or its slope is infinite. It may be what stands
                behind the 10.00 % of fmicl Table 4 (Vincze–Le Cam with cosine similarity); the paper does not say.
        """
        reached = 1 / temperature
        if self.similarity == "gaussian" or reached < self.f.highest:
            return
        others = [d for d in divergences.names() if d != self.f.name and divergences.get(d).highest <= reached]
        cure = f", or a temperature above {1 / self.f.highest:.4g}" if self.f.highest > 0 else ""
        accepted = (
            f"'gaussian' for {self.f.title} at τ = {temperature:g}{cure}: equal embeddings score {reached:g}, and f* or"
            f" its slope is infinite from {self.f.highest:.6g} on"
            + (f". The same holds for {', '.join(others)}" if others else "")
        )
        raise reject("similarity", self.similarity, accepted)

    def __call__(self, scores: Scores, offset: Tensor | None = None) -> Tensor:
        """``[B]`` losses; ``scores.highest`` must be 1/τ."""
        if scores.lift is not None or scores.neighbours is not None:
            scores.single("FMICL")
        if not scores.negatives.shape[1]:
            raise reject("negatives", tuple(scores.negatives.shape), "at least one negative: a batch of two or more")
        if self.similarity == "cosine":
            similarity, shift = "score", 0.0
        else:
            similarity, shift = "log u", math.log(self.mu) - scores.highest
        return f_micl(
            scores.own + shift, scores.negatives + shift, scores.present, self.f, self.weight, similarity=similarity
        )

    def bound(self, loss: float, terms: int) -> float | None:
        """``None``: with α ≠ 1 or a similarity that is not the density ratio, the value bounds nothing known."""
        return None

    @property
    def latex(self) -> str:
        """The loss of one query."""
        if self.similarity == "cosine":
            pair, other, where = "s^+", "f^*(s_n)", ""
        else:
            pair, other = "f'(u^+)", "f^*(f'(u_n))"
            where = rf",\quad \log u=\log {self.mu:g}+s-\tfrac1\tau"
        mean = r"\tfrac{1}{|\mathcal N|}\sum_{n\in\mathcal N}"
        return rf"-{pair}+{self.weight:g}\,{mean}{other},\quad f(u)={self.f.latex}{where}"


@dataclass(frozen=True)
class AlignUniform:
    """Alignment and uniformity: ``a·E‖x − y‖² + b·log E exp(−t‖x − x′‖²)`` (fmicl Eq. 17; Wang and Isola).

    The mean in the logarithm is over all pairs of the batch, so the losses of its queries are coupled. The weights
    a = b = 1 and t = 2 are the released defaults.

    Args:
        align: the weight a of the alignment.
        uniform: the weight b of the uniformity.
        t: the rate of the exponential.

    Raises:
        ArgumentError: a number that is not positive.
    """

    align: float = 1.0
    uniform: float = 1.0
    t: float = 2.0

    def __post_init__(self) -> None:
        for name in ("align", "uniform", "t"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise reject(name, value, "a positive number")

    def __call__(self, scores: Scores, offset: Tensor | None = None) -> Tensor:
        """``[B, 2]``: squared distance to the positive, and log of the mean over the negatives; see :meth:`reduce`."""
        if scores.lift is not None or scores.neighbours is not None:
            scores.single("AlignUniform")
        if not scores.negatives.shape[1]:
            raise reject("negatives", tuple(scores.negatives.shape), "at least one negative: a batch of two or more")
        apart = 2 - 2 * scores.own / scores.highest
        others = -self.t * (2 - 2 * scores.negatives / scores.highest)
        log_mean = _logsumexp(others) - scores.present.sum(1).to(others.dtype).log()
        return torch.stack([apart if apart.dim() == 1 else apart.mean(1), log_mean], 1)

    def reduce(self, rows: Tensor) -> Tensor:
        """Scalar loss of the ``[B, 2]`` rows of a whole batch."""
        return self.align * rows[:, 0].mean() + self.uniform * (torch.logsumexp(rows[:, 1], 0) - math.log(len(rows)))

    def bound(self, loss: float, terms: int) -> float | None:
        """``None``: see the ledger, fmicl Eq. 17."""
        return None

    @property
    def latex(self) -> str:
        """The loss of a batch."""
        return (
            rf"{self.align:g}\,E\lVert q-k^+\rVert^2+{self.uniform:g}\,\log E\,"
            rf"e^{{-{self.t:g}\lVert q-k_n\rVert^2}},\ n\in\mathcal N"
        )


@dataclass(frozen=True)
class Spectral:
    """Spectral contrastive loss ``−2 s⁺ + mean s⁻²`` (fmicl Eq. 19, HaoChen et al.), s = ``q·k/τ``.

    Pearson's χ² with the score in place of the density ratio u, up to the constant −1.
    """

    def __call__(self, scores: Scores, offset: Tensor | None = None) -> Tensor:
        """``[B]`` losses."""
        if scores.lift is not None or scores.neighbours is not None:
            scores.single("Spectral")
        if not scores.negatives.shape[1]:
            raise reject("negatives", tuple(scores.negatives.shape), "at least one negative: a batch of two or more")
        squares = torch.where(scores.present, scores.negatives, 0.0) ** 2
        own = scores.own if scores.own.dim() == 1 else scores.own.mean(1)
        return squares.sum(1) / scores.present.sum(1) - 2 * own

    def bound(self, loss: float, terms: int) -> float | None:
        """``None``: it bounds the χ² information, not the mutual information."""
        return None

    @property
    def latex(self) -> str:
        """The loss of one query."""
        return r"-2s^++\tfrac{1}{|\mathcal N|}\sum_{n\in\mathcal N}s_n^2"


Objective = InfoNCE | BinaryNCE | LocalAggregation | FMICL | AlignUniform | Spectral
