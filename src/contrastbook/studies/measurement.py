"""What a number in a table can say: test images, seeds, choices, floors, and losses that fall without learning.

A table entry is a truth plus what the drawn test images, the drawn seed and the choice among settings add to it. Here
each of these has a size: in closed form where there is one, else on networks so small that hundreds of seeds are cheap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
    """Digits classified by ``width`` random ReLU features and ridge regression: which are right, ``[seeds, test]``.

    A seed draws the features and nothing else; training and test pictures are the same for all.
    """
    x, y = _digits()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    to_train = order[:train]
    to_test = order[train : train + test]
    target = F.one_hot(y[to_train], 10).double() * 2 - 1
    penalty = train / 600 * torch.eye(width + 1, dtype=torch.float64)
    is_right: list[Tensor] = []
    for seed in seeds:
        features = _random_features(x, width, seed)
        of_train = features[to_train]
        weights = torch.linalg.solve(of_train.T @ of_train + penalty, of_train.T @ target)
        predicted = (features[to_test] @ weights).argmax(1)
        is_right.append(predicted == y[to_test])
    return torch.stack(is_right)


def _random_features(x: Tensor, width: int, seed: int) -> Tensor:
    """``width`` ReLU features of Gaussian weights, and a one, of each row of ``x`` ``[N, p]``: ``[N, width + 1]``."""
    rng = torch.Generator().manual_seed(seed)
    inputs = x.shape[1]
    weights = torch.randn(inputs, width, generator=rng, dtype=torch.float64) / inputs**0.5
    bias = torch.randn(width, generator=rng, dtype=torch.float64)
    hidden = (x @ weights + bias).relu()
    one = torch.ones(len(x), 1, dtype=torch.float64)
    return torch.cat([hidden, one], 1)


def _digits() -> tuple[Tensor, Tensor]:
    """Pixels ``[N, 64]`` of all digits, standardised as a whole, and their classes ``[N]``."""
    splits = data.load("digits")
    pictures = torch.cat([splits.train.images, splits.test.images]).double().flatten(1)
    labels = torch.cat([splits.train.labels, splits.test.labels])
    standardised = (pictures - pictures.mean(0)) / pictures.std()
    return standardised, labels


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
    shift = abs(gap) / (sd * math.sqrt(2 / seeds))  # in standard errors of the difference
    critical = float(special.stdtrit(df, 1 - level / 2))
    # all the mass of S is between these
    low = math.sqrt(2 * special.gammaincinv(df / 2, 1e-18) / df)
    high = math.sqrt(2 * special.gammainccinv(df / 2, 1e-18) / df)
    # Phi(shift - critical S) is a step of width 1/critical, and flat nine such widths away
    step = [(shift - 9) / critical, shift / critical, (shift + 9) / critical]
    edges = np.clip([low, *step, high], low, high)
    half_lengths = np.diff(edges)[:, None] / 2
    s = edges[:-1, None] + half_lengths * (1 + _NODES)
    rejected_above = special.ndtr(shift - critical * s)
    rejected_below = special.ndtr(-shift - critical * s)
    integrand = half_lengths * _WEIGHTS * _density_of_sd(s, df) * (rejected_above + rejected_below)
    return min(1.0, float(integrand.sum()))


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
    is_right = right.double()
    percents: list[tuple[float, float]] = []
    for _ in range(draws):
        order = torch.randperm(right.shape[1], generator=rng)
        on_drawn = is_right[:, order[:images]].mean(1)
        on_others = is_right[:, order[images:]].mean(1)
        best = on_drawn.argmax()
        percents.append((100 * float(on_drawn[best]), 100 * float(on_others[best])))
    published, true = np.mean(percents, 0)
    return float(published), float(true)


def published_gaps() -> pd.DataFrame:
    """Every difference of accuracies that a table gives as its claim, with the error that its test images give.

    Two standard errors in points: ``unpaired`` as if the rows were scored on different images, ``least`` the smallest
    that one set of images allows, when all images on which the rows differ speak for the better one.
    """
    lines: list[dict[str, object]] = []
    for key in papers.plans():
        plan = papers.plan(*key)
        for name, column in plan.columns.items():
            items = TEST_ITEMS.get(column.on or column.data)
            if items is None or tasks.metric(column.metric).error != "binomial":
                continue
            for method, base in plan.pairs.items():
                high = plan.published_value(name, method)
                low = plan.published_value(name, base)
                if high is None or low is None:
                    continue
                line: dict[str, object] = {
                    "paper": plan.paper,
                    "table": plan.table,
                    "column": name,
                    "claim": f"{plan.label(method)} − {plan.label(base)}",
                    "gap": high - low,
                    "items": items,
                }
                lines.append(line | _errors_of_gap(high, low, items))
    return pd.DataFrame(lines)


def _errors_of_gap(high: float, low: float, items: int) -> dict[str, float]:
    """The errors of a difference of two accuracies in percent on so many images, as :func:`published_gaps` has them."""
    p = high / 100
    q = low / 100
    gap = abs(p - q)
    return {
        "unpaired": 100 * math.sqrt((p * (1 - p) + q * (1 - q)) / items),
        "least": 100 * math.sqrt(gap * (1 - gap) / items),
    }


def collapsed_bound(angle: float, batches: int = 16, batch: int = 64, tau: float = 0.2) -> float:
    """``log(K + 1) − L`` of an encoder that sends every picture to one point and turns that point at each step.

    A queue holds ``batches`` × ``batch`` keys; those of *a* steps ago lie at ``a·angle`` radians from the query.
    """
    ages = np.arange(1, batches + 1)
    below_positive = (np.cos(ages * angle) - 1) / tau  # logit of a key of that age, less the positive's
    others = batch * np.exp(below_positive).sum()
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
    order = torch.randperm(len(pictures), generator=rng)
    *batches, last = order[: 17 * 64].split(64)
    views: list[Tensor] = []
    embeddings: list[Tensor] = []
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
        first = torch.randn(inputs, 64, generator=rng) / inputs**0.5
        last = torch.randn(64, 32, generator=rng) / 64**0.5
        self.weights = [first, last]
        self.scale = [float(weight.std()) for weight in self.weights]  # of each layer, as initialised

    def view(self, pictures: Tensor) -> Tensor:
        """Pictures with noise."""
        return pictures + 0.3 * torch.randn(pictures.shape, generator=self.rng)

    def embed(self, views: Tensor) -> Tensor:
        """Unit embeddings ``[B, 32]``."""
        first, last = self.weights
        hidden = (views @ first).relu()
        return F.normalize(hidden @ last, dim=1)

    def move(self, step: float) -> None:
        """Add ``step`` times the initial size of the weights, in a random direction."""
        for layer, weight in enumerate(self.weights):
            direction = torch.randn(weight.shape, generator=self.rng)
            self.weights[layer] = weight + step * self.scale[layer] * direction


def _bound(query: Tensor, positive: Tensor, keys: Tensor, tau: float = 0.2) -> float:
    """``log(K + 1) − L`` in nats, mean over queries ``[B, d]``, for keys ``[K, d]``."""
    of_positive = (query * positive).sum(1) / tau
    of_keys = query @ keys.T / tau
    logits = torch.cat([of_positive[:, None], of_keys], 1)
    bounds = math.log(logits.shape[1]) + of_positive - logits.logsumexp(1)
    return float(bounds.mean())


def accuracies(right: Tensor) -> NDArray[np.float64]:
    """Percent right of each seed, from booleans ``[R, N]``."""
    return np.asarray(100 * right.double().mean(1))
