"""The loss of Barlow Twins (Zbontar et al. 2021, Eq. 1 and 2): the dimensions of two views correlate one to one."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from contrastlab.objectives import OfEmbeddings
from contrastlab.support.errors import check_positive, reject

_NO_VARIANCE = 1e-12
"""Of a dimension whose largest number lies between 1 and 2."""


@dataclass(frozen=True)
class BarlowTwins(OfEmbeddings):
    """``Σ (1 − C_ii)² + λ Σ C_ij²`` over the correlations C of the dimensions of both views over the batch; no unit.

    ``redundancy`` is λ. No negatives: a dimension that is the same for all items correlates with nothing, and costs 1.
    The scale and mean of a dimension have no part in the loss. It bounds no mutual information.
    """

    redundancy: float = 0.0051

    def __post_init__(self) -> None:
        check_positive(redundancy=self.redundancy)

    def reduce(self, rows: Tensor) -> Tensor:
        """Scalar loss of the ``[B, 2, d]`` embeddings of a whole batch."""
        if len(rows) < 2:
            raise reject("batch", len(rows), "at least two items: one has no variance")
        one, other = (_standardised(view) for view in rows.unbind(1))
        correlations = one.T @ other / len(rows)
        own = correlations.diagonal()
        others = correlations.square().sum() - own.square().sum()
        return (1 - own).square().sum() + self.redundancy * others

    @property
    def latex(self) -> str:
        return (
            rf"\sum_i(1-C_{{ii}})^2+{self.redundancy:g}\sum_{{i\ne j}}C_{{ij}}^2,\quad C=\operatorname{{corr}}(q,k^+)"
        )


def _standardised(view: Tensor) -> Tensor:
    """Each dimension with mean 0 and variance 1 over the batch, or 0 where it is the same for all items."""
    # in units of a power of two, which rounds nothing: squares of 1e20 or 1e-20 are no float32 numbers
    largest = view.detach().abs().amax(0)
    unit = torch.where(largest > 0, largest / (2 * largest.frexp().mantissa), 1.0)
    centred = view / unit - (view / unit).mean(0)
    variance = centred.square().mean(0)
    return centred * variance.clamp(min=_NO_VARIANCE).rsqrt()
