"""The loss of VICReg (Bardes et al. 2022, Eq. 1 to 6): invariance, a variance of one, no covariance."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from contrastlab.objectives import OfEmbeddings
from contrastlab.support.errors import check_positive, reject

_EPSILON = 1e-4


@dataclass(frozen=True)
class VICReg(OfEmbeddings):
    """``λ s(Z, Z') + μ [v(Z) + v(Z')] + ν [c(Z) + c(Z')]`` of the embeddings Z and Z' of two views; no unit.

    s is the squared difference, a mean over items and dimensions (the paper's listing; its Eq. 5 sums over dimensions).
    v is the mean over dimensions of ``max(0, 1 − √(variance + 1e-4))``, c the sum of the squared covariances of
    different dimensions divided by d; both have B − 1 below. ``invariance``, ``variance`` and ``covariance`` are λ, μ
    and ν. No negatives: the variance keeps embeddings apart. The loss bounds no mutual information.
    """

    invariance: float = 25.0
    variance: float = 25.0
    covariance: float = 1.0

    def __post_init__(self) -> None:
        check_positive(invariance=self.invariance, variance=self.variance, covariance=self.covariance)

    def reduce(self, rows: Tensor) -> Tensor:
        """Scalar loss of the ``[B, 2, d]`` embeddings of a whole batch."""
        if len(rows) < 2:
            raise reject("batch", len(rows), "at least two items: one has no variance")
        one, other = rows.unbind(1)
        loss = self.invariance * (one - other).square().mean()
        for view in (one, other):
            centred = view - view.mean(0)
            covariances = centred.T @ centred / (len(view) - 1)
            variances = covariances.diagonal()
            too_small = (1 - (variances + _EPSILON).sqrt()).clamp(min=0).mean()
            shared = (covariances.square().sum() - variances.square().sum()) / len(variances)
            loss = loss + self.variance * too_small + self.covariance * shared
        return loss

    @property
    def latex(self) -> str:
        terms = rf"{self.invariance:g}\,s(q,k^+)+{self.variance:g}\,(v(q)+v(k^+))+{self.covariance:g}\,(c(q)+c(k^+))"
        variance = r"v=\tfrac1d\sum_i\max(0,1-\sqrt{\operatorname{Var}_i+10^{-4}})"
        return rf"{terms},\quad {variance},\ c=\tfrac1d\sum_{{i\ne j}}\operatorname{{Cov}}_{{ij}}^2"
