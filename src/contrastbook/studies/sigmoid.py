"""What InfoNCE and the sigmoid loss read off the same pairs: Gaussians whose information is known.

The critic is the family that holds the log ratio of such Gaussians, ``a x·y − b (‖x‖² + ‖y‖²) + c``, so that what is
missing from a number is the fault of the loss, not of the critic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from contrastlab.information import bounds
from contrastlab.information.toys import JointGaussian

Loss = Literal["infonce", "sigmoid"]
PAIRS = 2**13


@dataclass(frozen=True)
class CriticFit:
    """Nats on held-out pairs, of a critic that was fitted with ``candidates`` a query.

    ``infonce`` is the InfoNCE bound. ``log_ratio`` is the mean over true pairs of the critic read as a log ratio, which
    needs the constant c: InfoNCE does not determine it.
    """

    loss: Loss
    candidates: int
    infonce: float
    log_ratio: float
    a: float
    b: float
    c: float


@dataclass(frozen=True)
class _Batches:
    """Groups of K pairs: ``x·y`` and ``‖x‖² + ‖y‖²`` of each x with each y of its group, ``[G, K, K]``."""

    products: Tensor
    squares: Tensor

    @classmethod
    def of(cls, x: Tensor, y: Tensor, candidates: int) -> _Batches:
        """Groups of pairs ``[N, d]`` in their order."""
        x = x.view(-1, candidates, x.shape[1])
        y = y.view(-1, candidates, y.shape[1])
        products = x @ y.transpose(1, 2)
        squares_of_x = (x**2).sum(2)
        squares_of_y = (y**2).sum(2)
        squares = squares_of_x[:, :, None] + squares_of_y[:, None, :]
        return cls(products, squares)

    def scores(self, weights: Tensor) -> Tensor:
        """The critic of each x with each y, ``[G, K, K]``; ``weights``: a, b and c."""
        a, b, c = weights
        return a * self.products - b * self.squares + c


def fit(loss: Loss, candidates: int, *, nats: float = 4.0, dimension: int = 4, seed: int = 0) -> CriticFit:
    """Fit the critic by one of the losses on 8,192 pairs in groups of ``candidates``, and read it on as many others."""
    train, held_out = _two_parts(nats, dimension, seed, candidates)
    losses = {"infonce": _infonce, "sigmoid": _sigmoid}
    loss_of_scores = losses[loss]
    weights = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=100, tolerance_grad=1e-4, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        mean = loss_of_scores(train.scores(weights))
        mean.backward()
        return mean

    optimiser.step(closure)
    with torch.no_grad():
        scores = held_out.scores(weights)
        positives = scores.diagonal(dim1=1, dim2=2)
        infonce = math.log(candidates) - float(_infonce(scores))
        log_ratio = float(positives.mean()) + math.log(candidates - 1)
    a, b, c = weights.tolist()
    return CriticFit(loss, candidates, infonce, log_ratio, a, b, c)


def _two_parts(nats: float, dimension: int, seed: int, candidates: int) -> tuple[_Batches, _Batches]:
    """Twice so many pairs as :data:`PAIRS` says, of Gaussians with this information, in groups."""
    draws = torch.Generator().manual_seed(seed)
    x, y = JointGaussian.with_information(nats, dimension).sample(2 * PAIRS, draws)
    x = x.double()
    y = y.double()
    first = _Batches.of(x[:PAIRS], y[:PAIRS], candidates)
    second = _Batches.of(x[PAIRS:], y[PAIRS:], candidates)
    return first, second


def _infonce(scores: Tensor) -> Tensor:
    """Mean InfoNCE loss of the queries in nats; the pairs are on the diagonals of the scores ``[G, K, K]``."""
    positives = scores.diagonal(dim1=1, dim2=2)
    return (scores.logsumexp(2) - positives).mean()


def _sigmoid(scores: Tensor) -> Tensor:
    """Of a query: logistic terms of its pair and of all other pairs of its group (Zhai et al. 2023)."""
    signs = 2 * torch.eye(scores.shape[1], dtype=scores.dtype) - 1  # 1 for a pair, −1 for others
    terms = F.softplus(-signs * scores)
    return terms.sum(2).mean()


def nwj(reading: CriticFit, *, nats: float = 4.0, dimension: int = 4, seed: int = 1) -> float:
    """The NWJ bound in nats that the same critic gives on new pairs: from below, whatever the critic."""
    candidates = 128
    batches, _ = _two_parts(nats, dimension, seed, candidates)
    weights = torch.tensor([reading.a, reading.b, reading.c], dtype=torch.float64)
    log_ratios = batches.scores(weights) + math.log(reading.candidates - 1)
    is_pair = torch.eye(candidates, dtype=torch.bool)
    of_pairs = log_ratios[:, is_pair].flatten()
    of_others = log_ratios[:, ~is_pair]
    # NWJ's critic is the log ratio plus one
    return float(bounds.nwj(of_pairs + 1, of_others + 1))
