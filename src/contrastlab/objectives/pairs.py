"""Objectives that average over pairs: f-MICL, alignment and uniformity, spectral."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from contrastlab import choices, divergences
from contrastlab.choices import Choices, Need
from contrastlab.divergences import Divergence
from contrastlab.errors import is_number, reject
from contrastlab.objectives.base import ABSENT, Objective, Scores
from contrastlab.objectives.losses import f_micl, row_logsumexp


class _Pairwise(Objective):
    def needs(self, given: Choices) -> Iterator[Need]:
        """Positives that are pairs."""
        yield Need(choices.OWN_KEYS, f"{self!r} averages over pairs; neighbours in a numerator have no place in it")


@dataclass(frozen=True)
class FMICL(_Pairwise):
    """The f-mutual information of the embeddings, with fixed similarity (fmicl Algorithm 1).

    With the Gaussian similarity ``u = μ exp(−‖x − y‖² / 2σ²)``, and on the unit sphere
    ``log u = log μ + (q·k − 1) / σ²``: the recipe's temperature is σ². The paper has σ² = 1/2 (images).
    With α ≠ 1, or a similarity that is not the density ratio, the value bounds nothing known.

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
            if not (is_number(value) and value > 0):
                raise reject(name, value, "a positive number")
        if self.similarity not in ("gaussian", "cosine"):
            raise reject("similarity", self.similarity, "'gaussian' or 'cosine'")

    @property
    def f(self) -> Divergence:
        """The divergence."""
        return divergences.get(self.divergence, alpha=self.order)

    def check(self, temperature: float) -> None:
        """Whether every score of the unit sphere lies inside the domain of f*, and its loss is a float32 number.

        Raises:
            ArgumentError: cosine similarities reach ``1/τ``, where f* or its slope is infinite. It may be what stands
                behind the 10.00 % of fmicl Table 4 (Vincze–Le Cam with cosine similarity); the paper does not say. Or
                equal or orthogonal embeddings have a loss or a slope beyond float32.
        """
        reached = 1 / temperature
        if self.similarity == "gaussian" or reached < self.f.highest:
            if self._overflows(temperature):
                raise reject(
                    "temperature", temperature,
                    f"at least {self._least_temperature(temperature):.2g} with {self!r}: below, the loss of equal or"
                    " orthogonal embeddings is no float32 number",
                )  # fmt: skip
            return
        others = [d for d in divergences.names() if d != self.f.name and divergences.get(d).highest <= reached]
        cure = f", or a temperature above {1 / self.f.highest:.4g}" if self.f.highest > 0 else ""
        accepted = (
            f"'gaussian' for {self.f.title} at τ = {temperature:g}{cure}: equal embeddings score {reached:g}, and f* or"
            f" its slope is infinite from {self.f.highest:.6g} on"
            + (f". The same holds for {', '.join(others)}" if others else "")
        )
        raise reject("similarity", self.similarity, accepted)

    def _overflows(self, temperature: float) -> bool:
        """Whether float32 cannot hold the loss of equal or of orthogonal embeddings, or its slope in an embedding."""
        reached = 1 / temperature
        weighed: tuple[tuple[float, Callable[[Tensor], Tensor]], ...]
        if self.similarity == "cosine":
            ends, weighed = torch.tensor([0.0, reached]), ((self.weight, self.f.conjugate),)
        else:
            ends = math.log(self.mu) + torch.tensor([-reached, 0.0])
            weighed = ((1.0, self.f.derivative), (self.weight, self.f.composition))
        ends.requires_grad_()
        for weight, function in weighed:
            value = function(ends)
            slope = torch.autograd.grad(value.sum(), ends)[0] * reached
            if not bool((weight * torch.stack([value, slope])).isfinite().all()):
                return True
        return False

    def _least_temperature(self, low: float) -> float:
        high = low
        while self._overflows(high):
            high *= 2
        for _ in range(20):
            middle = (low + high) / 2
            low, high = (middle, high) if self._overflows(middle) else (low, middle)
        return high

    def __call__(self, scores: Scores, offset: Tensor | None = None) -> Tensor:
        """``[B]`` losses.

        Raises:
            ArgumentError: a Gaussian kernel, and scores that do not say what 1/τ is.
        """
        scores.require_pairs("FMICL")
        if self.similarity == "cosine":
            similarity, shift = "score", 0.0
        else:
            similarity, shift = "log u", math.log(self.mu) - scores.require_highest("FMICL")
        return f_micl(
            scores.own + shift, scores.negatives + shift, scores.present, self.f, self.weight, similarity=similarity
        )

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
class AlignUniform(_Pairwise):
    """Alignment and uniformity: ``a·E‖x − y‖² + b·log E exp(−t‖x − x′‖²)`` (fmicl Eq. 17; Wang and Isola).

    The mean in the logarithm is over all pairs of the batch, so the losses of its queries are coupled. The weights
    a = b = 1 and t = 2 are the released defaults. It bounds nothing known: see the ledger, fmicl Eq. 17.

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

    couples_queries = True

    def __post_init__(self) -> None:
        for name in ("align", "uniform", "t"):
            value = getattr(self, name)
            if not (is_number(value) and value > 0):
                raise reject(name, value, "a positive number")

    def __call__(self, scores: Scores, offset: Tensor | None = None) -> Tensor:
        """``[B, 3]`` for :meth:`reduce`: squared distance to the positive, log of the sum over negatives, their number.

        The second is :data:`ABSENT` for a query without negatives.
        """
        scores.require_pairs("AlignUniform")
        highest = scores.require_highest("AlignUniform")
        apart = 2 - 2 * scores.own / highest
        others = -self.t * (2 - 2 * scores.negatives / highest)
        count = scores.present.sum(1)
        log_sum = torch.where(count > 0, row_logsumexp(others), ABSENT)
        return torch.stack([apart if apart.dim() == 1 else apart.mean(1), log_sum, count.to(log_sum.dtype)], 1)

    def reduce(self, rows: Tensor) -> Tensor:
        """Scalar loss of the ``[B, 3]`` rows of a whole batch; queries without negatives are aligned, not spread."""
        # in float64, so that the logarithm is rounded once
        count = rows[:, 2].detach().double().sum()
        log_mean = torch.logsumexp(rows[:, 1], 0) - count.clamp(min=1).log().to(rows.dtype)
        log_mean = torch.where(count > 0, log_mean, 0.0)
        return self.align * rows[:, 0].mean() + self.uniform * log_mean

    @property
    def latex(self) -> str:
        """The loss of a batch."""
        return (
            rf"{self.align:g}\,E\lVert q-k^+\rVert^2+{self.uniform:g}\,\log E\,"
            rf"e^{{-{self.t:g}\lVert q-k_n\rVert^2}},\ n\in\mathcal N"
        )


@dataclass(frozen=True)
class Spectral(_Pairwise):
    """Spectral contrastive loss ``−2 s⁺ + mean s⁻²`` (fmicl Eq. 19, HaoChen et al.), s = ``q·k/τ``.

    Pearson's χ² with the score in place of the density ratio u, up to the constant −1. It bounds the χ² information,
    not the mutual information.
    """

    def __call__(self, scores: Scores, offset: Tensor | None = None) -> Tensor:
        """``[B]`` losses."""
        scores.require_pairs("Spectral")
        squares = torch.where(scores.present, scores.negatives, 0.0) ** 2
        own = scores.own if scores.own.dim() == 1 else scores.own.mean(1)
        return squares.sum(1) / scores.present.sum(1).clamp(min=1) - 2 * own

    @property
    def latex(self) -> str:
        """The loss of one query."""
        return r"-2s^++\tfrac{1}{|\mathcal N|}\sum_{n\in\mathcal N}s_n^2"
