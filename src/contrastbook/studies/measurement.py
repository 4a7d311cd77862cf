"""What a number in a table can say: test images, seeds, choices, floors, and losses that fall without learning.

A table entry is a truth plus what the drawn test images, the drawn seed and the choice among settings add to it. Here
each of these has a size: in closed form where there is one, else on networks so small that hundreds of seeds are cheap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import integrate, special, stats
from torch import Tensor
from torch.nn import functional as F

from contrastlab import data, papers, tasks
from contrastlab.support.errors import check_integer, check_positive, check_range

TEST_ITEMS = {
    "cifar10": 10_000,
    "cifar100": 10_000,
    "stl10": 8_000,
    "imagenet": 50_000,
    "imagenet100": 5_000,
    "tinyimagenet": 10_000,
    "fashionmnist": 10_000,
    "mnist": 10_000,
}
"""Pictures in the published test part of a data set; others are left out of :func:`published_gaps`."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)


def replicas(width: int, seeds: Sequence[int], *, train: int = 600, test: int = 1000) -> Tensor:
    """Digits told apart by ``width`` random ReLU features and ridge regression: which are right, ``[seeds, test]``.

    A seed draws the features and nothing else; training and test pictures are the same for all.
    """
    x, y = _digits()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    seen, held = order[:train], order[train : train + test]
    target = F.one_hot(y[seen], 10).double() * 2 - 1
    right = []
    for seed in seeds:
        rng = torch.Generator().manual_seed(seed)
        weights = torch.randn(x.shape[1], width, generator=rng, dtype=torch.float64) / x.shape[1] ** 0.5
        bias = torch.randn(width, generator=rng, dtype=torch.float64)
        code = torch.cat([(x @ weights + bias).relu(), torch.ones(len(x), 1, dtype=torch.float64)], 1)
        inner = code[seen].T @ code[seen] + train / 600 * torch.eye(width + 1, dtype=torch.float64)
        solved = torch.linalg.solve(inner, code[seen].T @ target)
        right.append((code[held] @ solved).argmax(1) == y[held])
    return torch.stack(right)


def _digits() -> tuple[Tensor, Tensor]:
    splits = data.load("digits")
    pictures = torch.cat([splits.train.images, splits.test.images]).double().flatten(1)
    labels = torch.cat([splits.train.labels, splits.test.labels])
    return (pictures - pictures.mean(0)) / pictures.std(), labels


def power(gap: float, sd: float, seeds: int, level: float = 0.05) -> float:
    """Probability that a two-sided t test of two groups of ``seeds`` ≥ 2 runs finds a true difference.

    ``sd``: standard deviation over seeds of a run, in the unit of ``gap``. For paired differences and several looks see
    :func:`contrastbook.evidence.inference.detectable`.
    """
    # The mean over S, the sd that runs show over the true one. scipy's noncentral t is NaN for large differences.
    check_integer("seeds", seeds, 2)
    check_positive(sd=sd)
    check_range("gap", abs(gap), 0)
    check_range("level", level, 0, 1, above=True)
    df = 2 * seeds - 2
    shift = abs(gap) / (sd * math.sqrt(2 / seeds))
    critical = float(special.stdtrit(df, 1 - level / 2))
    # all the mass of S is within these; Phi(shift - critical S) is a step of width 1/critical
    low = math.sqrt(2 * special.gammaincinv(df / 2, 1e-18) / df)
    high = math.sqrt(2 * special.gammainccinv(df / 2, 1e-18) / df)
    edges = np.clip([low, (shift - 9) / critical, shift / critical, (shift + 9) / critical, high], low, high)
    half = np.diff(edges)[:, None] / 2
    s = edges[:-1, None] + half * (1 + _NODES)
    rejected = special.ndtr(shift - critical * s) + special.ndtr(-shift - critical * s)
    integral = float((half * _WEIGHTS * _density_of_sd(s, df) * rejected).sum())
    return min(1.0, integral)


def _density_of_sd(s: NDArray[np.float64], df: int) -> NDArray[np.float64]:
    """Density of the standard deviation that runs show over the true one."""
    constant = math.log(2) + df / 2 * math.log(df / 2) - special.gammaln(df / 2)
    return np.asarray(np.exp(constant + (df - 1) * np.log(s) - df / 2 * s**2))


def seeds_needed(gap: float, sd: float, wanted: float = 0.8, most: int = 1000) -> int:
    """Seeds of each group until :func:`power` reaches ``wanted``; ``most`` if it never does."""
    check_range("gap", abs(gap), 0, above=True)
    check_range("wanted", wanted, 0, 1, above=True)
    for seeds in range(2, most):
        if power(gap, sd, seeds) >= wanted:
            return seeds
    return most


def expected_maximum(choices: int) -> float:
    """Expected largest of ``choices`` standard normal numbers: by so many standard errors the best one is too high."""

    def density(z: float) -> float:
        return float(z * choices * stats.norm.pdf(z) * special.ndtr(z) ** (choices - 1))

    return float(integrate.quad(density, -12, 12, limit=200)[0])


def picked_on(right: Tensor, images: int, draws: int = 200) -> tuple[float, float]:
    """What the best of several networks publishes, and what it is worth, if it is picked on few of the test images.

    ``right``: which test images each network has right, boolean ``[R, N]``. Returns percent on ``images`` drawn images,
    and percent of the same network on the others, both the mean over draws from a fixed generator.
    """
    rng = torch.Generator().manual_seed(0)
    share = right.double()
    percents = []
    for _ in range(draws):
        order = torch.randperm(right.shape[1], generator=rng)
        on_drawn = share[:, order[:images]].mean(1)
        on_others = share[:, order[images:]].mean(1)
        percents.append((100 * float(on_drawn.max()), 100 * float(on_others[on_drawn.argmax()])))
    published, true = np.mean(percents, 0)
    return float(published), float(true)


def published_gaps() -> pd.DataFrame:
    """Every difference of accuracies that a table gives as its claim, with the error that its test images give.

    Two standard errors in points: ``unpaired`` as if the rows were scored on different images, ``least`` the smallest
    that one set of images allows, when all images on which the rows differ speak for the better one.
    """
    lines = []
    for plan in (papers.plan(*name) for name in papers.plans()):
        for name, column in plan.columns.items():
            items = TEST_ITEMS.get(column.on or column.data)
            if items is None or tasks.metric(column.metric).error != "binomial":
                continue
            for method, base in plan.pairs.items():
                high = plan.published_value(name, method)
                low = plan.published_value(name, base)
                if high is None or low is None:
                    continue
                p, q = high / 100, low / 100
                gap = abs(p - q)
                lines.append(
                    {
                        "paper": plan.paper,
                        "table": plan.table,
                        "column": name,
                        "claim": f"{plan.label(method)} − {plan.label(base)}",
                        "gap": high - low,
                        "items": items,
                        "unpaired": 100 * math.sqrt((p * (1 - p) + q * (1 - q)) / items),
                        "least": 100 * math.sqrt(gap * (1 - gap) / items),
                    }
                )
    return pd.DataFrame(lines)


def collapsed_bound(angle: float, batches: int = 16, batch: int = 64, tau: float = 0.2) -> float:
    """``log(K + 1) − L`` of an encoder that sends every picture to one point and turns that point at each step.

    A queue holds ``batches`` × ``batch`` keys; those of *a* steps ago lie at ``a·angle`` radians from the query.
    """
    ages = np.arange(1, batches + 1)
    others = batch * np.exp((np.cos(ages * angle) - 1) / tau).sum()
    return float(math.log(batches * batch + 1) - math.log1p(others))


@dataclass(frozen=True)
class Drift:
    """``log(K + 1) − L`` in nats, mean over queries."""

    stored: float
    fresh: float  # with the same pictures embedded anew by the present encoder
    unrelated: float  # as stored, where the positive is another picture, so that the information is 0
    own_row: float  # with a memory bank whose positive is the picture's own row, as stored one pass ago


def drift(step: float, *, seed: int = 0) -> Drift:
    """An encoder that learns nothing: after every batch its weights take a random step. What do its losses say?

    Two layers embed noisy digits on a sphere; 16 batches of 64 fill the queue, and make one pass of the bank. The
    weights move by ``step`` times their own initial size, in a direction drawn anew each time.
    """
    images, _ = _digits()
    pictures = images.float()
    rng = torch.Generator().manual_seed(seed)
    encoder = _Wanderer(pictures.shape[1], rng)
    *batches, last = torch.randperm(len(pictures), generator=rng)[: 17 * 64].split(64)
    views = []
    embeddings = []
    for index in batches:
        view = encoder.view(pictures[index])
        views.append(view)
        embeddings.append(encoder.embed(view))
        encoder.move(step)
    query = encoder.embed(encoder.view(pictures[last]))
    positive = encoder.embed(encoder.view(pictures[last]))
    stored = torch.cat(embeddings)
    fresh = encoder.embed(torch.cat(views))
    # the bank: queries are the pictures of the first batch, whose rows are a whole pass old
    of_first_batch = encoder.embed(encoder.view(pictures[batches[0]]))
    other_rows = torch.cat(embeddings[1:])
    return Drift(
        stored=_bound(query, positive, stored),
        fresh=_bound(query, positive, fresh),
        unrelated=_bound(query, positive.roll(1, 0), stored),
        own_row=_bound(of_first_batch, embeddings[0], other_rows),
    )


class _Wanderer:
    """An encoder of two layers, from pictures to a sphere in 32 dimensions, that takes random steps."""

    def __init__(self, inputs: int, rng: torch.Generator) -> None:
        self.rng = rng
        self.weights = [torch.randn(a, b, generator=rng) / a**0.5 for a, b in pairwise((inputs, 64, 32))]
        self.scale = [float(weight.std()) for weight in self.weights]

    def view(self, pictures: Tensor) -> Tensor:
        """Pictures with noise."""
        return pictures + 0.3 * torch.randn(pictures.shape, generator=self.rng)

    def embed(self, views: Tensor) -> Tensor:
        """Unit embeddings ``[B, 32]``."""
        first, last = self.weights
        return F.normalize((views @ first).relu() @ last, dim=1)

    def move(self, step: float) -> None:
        """Add ``step`` times the initial size of the weights, in a random direction."""
        for k, weight in enumerate(self.weights):
            self.weights[k] = weight + step * self.scale[k] * torch.randn(weight.shape, generator=self.rng)


def _bound(query: Tensor, positive: Tensor, keys: Tensor, tau: float = 0.2) -> float:
    """``log(K + 1) − L`` in nats, mean over queries ``[B, d]``, for keys ``[K, d]``."""
    score = (query * positive).sum(1) / tau
    every = torch.cat([score[:, None], query @ keys.T / tau], 1)
    return float((math.log(every.shape[1]) + score - every.logsumexp(1)).mean())


def accuracies(right: Tensor) -> NDArray[np.float64]:
    """Percent right of each seed, from booleans ``[R, N]``."""
    return np.asarray(100 * right.double().mean(1))
