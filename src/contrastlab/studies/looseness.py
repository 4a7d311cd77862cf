"""How loose is a bound with hard negatives? vince Table 3, exactly and trained.

X and Y are standard normal with correlation ρ. A critic f scores pairs, and ``VINCE(p %)`` contrasts the positive
with negatives from the p % of Y that the critic scores highest:

    VINCE_p(f) = E f(x, y₁) − E log (mean of exp f(x, y) over the p % of y)            (many negatives, K → ∞)

At p = 100 % it is InfoNCE. The first half of this module computes such values exactly, by quadrature over x of
closed forms in y; the second half trains the paper's small networks under each reading of its recipe.

Sources: vince Corollary 4.1.1 and appendix E.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr, ndtr
from torch import Tensor

from contrastlab.errors import reject, unknown
from contrastlab.studies import Row, Study, location, measure, read
from contrastlab.theory.toys import JointGaussian

__all__ = [
    "PERCENTS",
    "PROFILES",
    "RHO",
    "Largest",
    "Population",
    "Profile",
    "Reading",
    "choose",
    "independent_simulated",
    "independent_value",
    "information",
    "largest",
    "plug_in_deviation",
    "plug_in_simulated",
    "population",
    "sample",
    "simulated",
    "stored",
    "study",
    "summary",
    "train",
]

Array = NDArray[np.float64]

COVARIANCE = ((2.0, 0.4), (0.4, 2.0))
RHO = 0.2  # of COVARIANCE; the critics and the mutual information do not change with the variances
PERCENTS = (100.0, 90.0, 75.0, 50.0, 25.0, 10.0, 5.0)  # the rows of the table
POINTS = 2000
NEGATIVES = 100
BATCH = 128
LEARNING_RATE = 0.03
WIDTH = 10
LAYERS = 5
TEMPERATURE = 0.07
COLLAPSED = RHO / 20  # nats; over y, the optimal critic has a standard deviation of about ρ
STUDY = "vince_table3"


# ---------------------------------------------------------------------------------------------------------------
# Exact values


@dataclass(frozen=True)
class Population:
    """Exact values of one row of the table, many negatives (K → ∞).

    Args:
        value: nats, VINCE_p at the critic a·f*.
        share: of x, for which every negative has ``exp(a f*) > c(x)``, the hypothesis of the corollary; c(x) is the
            mean of ``exp(a f*(x, y))`` over all y.
        best: nats, the supremum of the value over a ≥ 0.
        best_scale: the a that attains it.
    """

    value: float
    share: float
    best: float
    best_scale: float


@dataclass(frozen=True)
class Largest:
    """The best that any critic can do.

    Args:
        value: nats, the supremum of VINCE_p over all critics.
        infonce: nats, what InfoNCE (all y as negatives) makes of the critic that attains it.
    """

    value: float
    infonce: float


def information(rho: float = RHO) -> float:
    """I(X; Y) of two normal variables with correlation ``rho``: ``−½ log(1 − ρ²)`` nats."""
    return -0.5 * math.log1p(-(_correlation(rho) ** 2))


def population(percent: float, *, scale: float = 1.0, rho: float = RHO) -> Population:
    """VINCE(``percent`` %) at the optimal critic times ``scale``, exactly.

    ``f*(x, y) = log p(x, y) / p(x) p(y) = ½x² − ½ log(1 − ρ²) − k (y − x/ρ)²`` with ``k = ρ² / 2(1 − ρ²)``, so the
    highest-scored p % are an interval around x/ρ, and ``E exp(a f*)`` over an interval is a difference of normal
    distribution functions. What is left is one integral over x.

    Args:
        percent: p, percent of Y among the negatives.
        scale: a ≥ 0, of the critic a·f*.
        rho: correlation.

    Raises:
        ArgumentError: a percentage outside (0, 100], a negative scale, or a correlation outside (−1, 1) or 0.

    Source: vince Corollary 4.1.1, equation of VINCE; the set is defined by f(x, ·).
    """
    part, rho = _share(percent), _correlation(rho)
    if not (math.isfinite(scale) and scale >= 0):
        raise reject("scale", scale, "a number of at least 0")
    x, weight = _x_grid()
    half = _half_width(x / rho, part)
    mean = information(rho)

    def value(a: float) -> float:
        return float(a * mean - weight @ (_log_mass(x, rho, a, half) - math.log(part)))

    threshold = scale * _optimal(x, rho, half)
    share = float(weight @ (threshold > _log_mass(x, rho, scale, np.full_like(x, np.inf)))) if part < 1 else 0.0
    found = minimize_scalar(lambda a: -value(a), bounds=(0.0, 2.0), method="bounded", options={"xatol": 1e-9})
    # concave in a and 0 at a = 0, so a maximum that is not above 0 is at 0
    best, best_scale = (-float(found.fun), float(found.x)) if -found.fun > 1e-14 else (0.0, 0.0)
    return Population(value(scale), share, best, best_scale)


def largest(percent: float, *, rho: float = RHO) -> Largest:
    """The supremum of VINCE(``percent`` %) over all critics, exactly, and InfoNCE at the critic that attains it.

    Fix x and write u ∈ [0, 1] for the rank of y by f*, best first: u is uniform under p(y), and under p(y|x) it has a
    decreasing density d with distribution D. Rearranging a critic to decrease in u keeps its p % of values and raises
    its mean under p(y|x) (Hardy–Littlewood); and raising it to its value at u = p from there on costs nothing. So the
    positives count as if those beyond p sat at p, and a decreasing critic cannot use an atom: the best it can do is
    Donsker–Varadhan on the least concave majorant of ``D`` on [0, p] with end (p, 1): KL(majorant ‖ uniform on [0, p]).
    The majorant follows D up to u₀, then the tangent: ``d(u₀) (p − u₀) = 1 − D(u₀)``.

    It is above 0 for every p, since d(0) = exp(x²/2)/√(1 − ρ²) exceeds 1/p far enough out. It bounds every K, too, as
    long as the positive stands in the denominator: the estimate then rises with f(x, y₁), so it is largest under the
    majorant, where it is InfoNCE between the majorant and uniform negatives, at most their divergence.

    Args:
        percent: p.
        rho: correlation.

    Raises:
        ArgumentError: as in :func:`population`.
    """
    part, rho = _share(percent), _correlation(rho)
    if part == 1:
        return Largest(information(rho), information(rho))
    x, weight = _x_grid()
    log_top = 0.5 * x**2 - 0.5 * math.log1p(-(rho**2))  # log d(0)
    keep = log_top > -math.log(part)
    x, weight = x[keep], weight[keep]
    centre, spread = x / rho, math.sqrt(1 - rho**2)
    low, high = np.zeros_like(x), _half_width(centre, part)
    for _ in range(80):
        middle = 0.5 * (low + high)
        left, reached = part - _inside(centre, middle), _inside((centre - rho * x) / spread, middle / spread)
        before = np.exp(_optimal(x, rho, middle)) * left > 1 - reached
        low, high = np.where(before, middle, low), np.where(before, high, middle)
    left, reached = part - _inside(centre, low), _inside((centre - rho * x) / spread, low / spread)
    # the density within is exp(f*), a parabola in y: its mean needs the second moment of a cut normal
    a, b = (centre - low - rho * x) / spread, (centre + low - rho * x) / spread
    first = _density(a) - _density(b)
    second = reached + a * _density(a) - b * _density(b)
    offset = rho * x - centre
    square = spread**2 * second + 2 * spread * offset * first + offset**2 * reached
    k = rho**2 / (2 * (1 - rho**2))
    inner = (log_top[keep] + math.log(part)) * reached - k * square
    rest = 1 - reached
    with np.errstate(divide="ignore", invalid="ignore"):
        outer = np.where(rest > 0, rest * np.log(part * rest / left), 0.0)
        # against all y the mean of the critic's exponential is p (its mean within) and 1 − p times its smallest value
        against_all = np.log(part + (1 - part) * np.where(rest > 0, part * rest / left, 0.0))
    each = inner + outer
    return Largest(float(weight @ each), float(weight @ (each - against_all)))


def simulated(
    percent: float,
    *,
    negatives: int = NEGATIVES,
    scale: float = 1.0,
    rho: float = RHO,
    count: int = 20_000,
    seed: int = 0,
) -> tuple[float, float]:
    """VINCE(``percent`` %) at a·f* with K drawn negatives and the positive among them, as the networks are trained.

    Args:
        percent: p.
        negatives: K.
        scale: a.
        rho: correlation.
        count: pairs (x, y₁).
        seed: of the draws.

    Returns:
        Mean and its standard error, nats.
    """
    part, rho = _share(percent), _correlation(rho)
    generator = np.random.default_rng(seed)
    x = generator.standard_normal(count)
    positive = rho * x + math.sqrt(1 - rho**2) * generator.standard_normal(count)
    half, centre = _half_width(x / rho, part), x / rho
    # normal draws within the interval around x/ρ, by rejection from Y where it is wide and at worst p of them stay
    inside = np.empty((count, negatives))
    todo = np.arange(count)
    filled = np.zeros(count, dtype=np.int64)
    while len(todo):
        y = generator.standard_normal((len(todo), negatives))
        good = np.abs(y - centre[todo, None]) <= half[todo, None]
        place = filled[todo, None] + np.cumsum(good, 1) - 1
        good &= place < negatives
        row, column = np.nonzero(good)
        inside[todo[row], place[row, column]] = y[row, column]
        filled[todo] += good.sum(1)
        todo = todo[filled[todo] < negatives]
    own = scale * _optimal(x, rho, positive - centre)
    other = scale * _optimal(x[:, None], rho, inside - centre[:, None])
    mean = (np.exp(own) + np.exp(other).sum(1)) / (negatives + 1)
    each = own - np.log(mean)
    return float(each.mean()), float(each.std(ddof=1) / math.sqrt(count))


def independent_value(percent: float) -> float:
    """What the rule "nearest to the positive" can report between independent variables (MI 0), in nats.

    Let ``f(x, y) = h(y) ∈ {0, H}``, a share r of all y being high, and negatives the p % nearest to h(y₁).
    A high y₁ (probability r) meets its r/p of high negatives: ``H − log(1 + (r/p)(e^H − 1)) → log(p/r)``.
    A low y₁ meets only low negatives as long as r ≤ 1 − p, and gains 0.
    So the value tends to ``r log(p/r)`` as H → ∞, largest at r = p/e, or at r = 1 − p where that is smaller.

    At p = 100 % there is no such share, and the value is 0. x plays no part: no bound on I(X; Y) may do this.
    """
    part = _share(percent)
    high = min(1 - part, part / math.e)
    return high * math.log(part / high) if high > 0 else 0.0


def independent_simulated(
    percent: float, *, negatives: int = NEGATIVES, height: float = 12.0, count: int = 20_000, seed: int = 0
) -> tuple[float, float]:
    """:func:`independent_value` by drawing, with finite K and H and the positive among the negatives.

    Args:
        percent: p.
        negatives: K.
        height: H, nats.
        count: pairs.
        seed: of the draws.

    Returns:
        Mean and its standard error, nats.
    """
    part = _share(percent)
    high = min(1 - part, part / math.e)
    generator = np.random.default_rng(seed)
    own = generator.random(count) < high
    met = generator.binomial(negatives, high / part, count) * own
    mean = (np.exp(height * own) + met * math.exp(height) + (negatives - met)) / (negatives + 1)
    each = height * own - np.log(mean)
    return float(each.mean()), float(each.std(ddof=1) / math.sqrt(count))


def plug_in_deviation(count: int = POINTS, *, rho: float = RHO) -> float:
    """Standard deviation of ``−½ log(1 − r²)`` over samples of ``count`` pairs, r the sample correlation, nats.

    By the delta method: ``sd r = (1 − ρ²)/√N`` and ``dI/dr = r/(1 − r²)``, so ``sd I = |ρ|/√N``. The plug-in is the
    maximum-likelihood estimate: in the long run no unbiased one varies less.
    """
    if count < 3:
        raise reject("count", count, "an integer of at least 3")
    return abs(_correlation(rho)) / math.sqrt(count)


def plug_in_simulated(count: int = POINTS, *, rho: float = RHO, samples: int = 2000, seed: int = 0) -> Array:
    """``[samples]`` plug-in estimates of the mutual information in nats, each from ``count`` fresh pairs."""
    rho, generator = _correlation(rho), np.random.default_rng(seed)
    found = np.empty(samples)
    for index in range(samples):
        x, noise = generator.standard_normal((2, count))
        r = np.corrcoef(x, rho * x + math.sqrt(1 - rho**2) * noise)[0, 1]
        found[index] = -0.5 * math.log1p(-r * r)
    return found


def _share(percent: float) -> float:
    if isinstance(percent, bool) or not 0 < percent <= 100:
        raise reject("percent", percent, "a number above 0 and at most 100")
    return percent / 100


def _correlation(rho: float) -> float:
    if not 0 < abs(rho) < 1:
        raise reject("rho", rho, "a correlation between -1 and 1 that is not 0")
    return rho


@functools.cache
def _x_grid() -> tuple[Array, Array]:
    # the trapezoid rule on a smooth decaying integrand; even in x, so half the line
    x = np.linspace(0.0, 10.0, 4001)
    weight = np.exp(-0.5 * x**2)
    weight[0] *= 0.5
    return x, weight / weight.sum()


def _density(z: Array) -> Array:
    return np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)


def _inside(centre: Array, half: Array) -> Array:
    # P(|Z − centre| < half) of a standard normal Z, without cancellation for centres far above 0
    centre = np.abs(centre)
    return np.asarray(ndtr(half - centre) - ndtr(-half - centre))


def _half_width(centre: Array, part: float) -> Array:
    """Half the width of the interval around ``centre`` that holds ``part`` of a standard normal."""
    if part == 1:
        return np.full_like(centre, np.inf)
    low, high = np.zeros_like(centre), np.abs(centre) + 40.0
    for _ in range(80):
        middle = 0.5 * (low + high)
        enough = _inside(centre, middle) >= part
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high


def _optimal(x: Array, rho: float, distance: Array) -> Array:
    """f* at ``distance`` of y from x/ρ, where it is largest."""
    return 0.5 * x**2 - 0.5 * math.log1p(-(rho**2)) - rho**2 / (2 * (1 - rho**2)) * distance**2


def _log_mass(x: Array, rho: float, scale: float, half: Array) -> Array:
    """``log ∫ p(y) exp(a f*(x, y)) dy`` over ``|y − x/ρ| < half``."""
    bend = scale * rho**2 / (1 - rho**2)
    precision = 1 + bend
    centre = x / rho
    mean, spread = bend * centre / precision, 1 / math.sqrt(precision)
    log_whole = (
        scale * (0.5 * x**2 - 0.5 * math.log1p(-(rho**2))) - 0.5 * bend * centre**2 / precision + math.log(spread)
    )
    upper, lower = log_ndtr((half - np.abs(centre - mean)) / spread), (-half - np.abs(centre - mean)) / spread
    return np.asarray(log_whole + upper + np.log1p(-np.exp(log_ndtr(lower) - upper)))


# ---------------------------------------------------------------------------------------------------------------
# Trained values

Nearest = Literal["y1", "x", "critic"]
Output = Literal["plane", "sphere"]
Encoders = Literal["two", "shared"]
Bank = Literal["fresh", "memory"]
Data = Literal["fixed", "redrawn"]


@dataclass(frozen=True)
class Reading:
    """One way to read the recipe of vince appendix E where it leaves a choice.

    Args:
        nearest: which p % of the sample are negatives of the pair (x, y₁): those nearest in L2 to the representation
            of ``"y1"`` (as written), to that of ``"x"`` (the "current image"), or those with the highest ``"critic"``
            f(x, ·) (the theorem).
        output: ``"plane"``, f is the raw dot product; ``"sphere"``, of L2-normalised outputs over .07.
        encoders: ``"two"`` networks, or one that both variables share.
        bank: ``"fresh"``, all points encoded at every step, gradients through negatives; ``"memory"``, each point's
            encoding of its last visit, no gradient.
        positive: whether the positive stands in the denominator.
        data: ``"fixed"``, one sample for all seeds; ``"redrawn"``, one each.
        rate: learning rate of Adam, as printed .03.

    Raises:
        ArgumentError: another word, or a rate that is not above 0.
    """

    nearest: Nearest = "y1"
    output: Output = "plane"
    encoders: Encoders = "two"
    bank: Bank = "fresh"
    positive: bool = True
    data: Data = "fixed"
    rate: float = LEARNING_RATE

    def __post_init__(self) -> None:
        words = {"nearest": Nearest, "output": Output, "encoders": Encoders, "bank": Bank, "data": Data}
        for name, accepted in words.items():
            if getattr(self, name) not in get_args(accepted):
                raise reject(name, getattr(self, name), " or ".join(map(repr, get_args(accepted))))
        if not (math.isfinite(self.rate) and self.rate > 0):
            raise reject("rate", self.rate, "a number above 0")

    @property
    def name(self) -> str:
        """Short: ``nearest, output`` and whatever differs from the defaults."""
        parts = [{"y1": "near y₁", "x": "near x", "critic": "top f(x,·)"}[self.nearest], self.output]
        parts += ["one encoder"] if self.encoders == "shared" else []
        parts += ["memory bank"] if self.bank == "memory" else []
        parts += [] if self.positive else ["no positive below"]
        parts += ["new data per seed"] if self.data == "redrawn" else []
        parts += [] if self.rate == LEARNING_RATE else [f"lr {self.rate:g}"]
        return ", ".join(parts)


class Nets:
    """M small ReLU networks run at once: ``[M, B, 1]`` to ``[M, B, WIDTH]``.

    Args:
        models: a seed for each network; equal seeds start equal.
        salt: tells the networks of X and of Y apart.
    """

    def __init__(self, models: Sequence[int], salt: int) -> None:
        # as torch.nn.Linear initialises itself
        sizes = [1] + [WIDTH] * LAYERS
        drawn: list[list[Tensor]] = []
        for seed in models:
            generator = torch.Generator().manual_seed(1_000_003 * seed + salt)
            drawn.append(
                [
                    (2 * torch.rand(shape, generator=generator) - 1) / math.sqrt(fan)
                    for fan, out in itertools.pairwise(sizes)
                    for shape in ((fan, out), (1, out))
                ]
            )
        self.parameters = [torch.stack(layer).requires_grad_() for layer in zip(*drawn, strict=True)]

    def __call__(self, inputs: Tensor) -> Tensor:
        """Outputs of network m on ``inputs[m]``."""
        hidden = inputs
        for layer in range(LAYERS):
            weight, bias = self.parameters[2 * layer : 2 * layer + 2]
            hidden = torch.baddbmm(bias, hidden, weight)
            if layer < LAYERS - 1:
                hidden = hidden.relu()
        return hidden


def choose(scores: Tensor, own: Tensor, percent: float, draws: Tensor) -> Tensor:
    """Draw negatives from the highest ``percent`` % of each row's scores, the own entry excluded.

    Args:
        scores: ``[B, N]``; the own entries are overwritten.
        own: ``[B]`` index of each row's positive.
        percent: of the N − 1 others, rounded to the nearest count of at least 1.
        draws: ``[B, K]`` numbers in [0, 1), one for each draw with replacement.

    Returns:
        ``[B, K]`` indices.
    """
    keys = scores.shape[1]
    count = max(1, round((keys - 1) * _share(percent)))
    position = (draws * count).long()
    if count == keys - 1:
        return position + (position >= own[:, None])
    scores.scatter_(1, own[:, None], -math.inf)
    # numpy's partition of float32 is several times faster than torch's topk on a CPU
    members = torch.from_numpy(np.argpartition(scores.numpy(), keys - count, axis=1)[:, keys - count :])
    return members.gather(1, position)


class _Negatives(torch.autograd.Function):
    """Critic of each anchor with its drawn negatives, one model at a time so that the scores stay in cache."""

    @staticmethod
    def forward(
        ctx: Any,
        anchors: Tensor,
        bank: Tensor,
        positives: Tensor,
        own: Tensor,
        percents: Sequence[float],
        draws: Tensor,
        nearest: Nearest,
    ) -> Tensor:
        """``[M, B, K]`` of anchors and positives ``[M, B, E]``, bank ``[M, N, E]``, own ``[M, B]``, draws."""
        values, indices = [], []
        ranked = positives if nearest == "y1" else anchors
        # −½‖a − b‖² up to what is the same in a row is a·b − ½‖b‖²: one more coordinate
        wide_bank = torch.cat([bank, -0.5 * bank.square().sum(2, keepdim=True)], 2)
        wide = torch.cat([ranked, torch.ones_like(ranked[..., :1])], 2)
        for model, percent in enumerate(percents):
            scores = anchors[model] @ bank[model].T
            if percent == 100:
                ranking = scores
            elif nearest == "critic":
                ranking = scores.clone()
            else:
                ranking = wide[model] @ wide_bank[model].T
            chosen = choose(ranking, own[model], percent, draws[model])
            values.append(scores.gather(1, chosen))
            indices.append(chosen)
        ctx.save_for_backward(anchors, bank, torch.stack(indices))
        return torch.stack(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """To the anchors and to the bank; the choice itself has no gradient."""
        anchors, bank, indices = ctx.saved_tensors
        (gradient,) = gradients
        to_anchors, to_bank = torch.empty_like(anchors), torch.empty_like(bank)
        spread = anchors.new_empty(anchors.shape[1], bank.shape[1])
        for model in range(len(anchors)):
            spread.zero_().scatter_add_(1, indices[model], gradient[model])
            torch.mm(spread, bank[model], out=to_anchors[model])
            if ctx.needs_input_grad[1]:
                torch.mm(spread.T, anchors[model], out=to_bank[model])
        return to_anchors, to_bank if ctx.needs_input_grad[1] else None, None, None, None, None, None


def _bound(positive: Tensor, negatives: Tensor, with_positive: bool) -> Tensor:
    """Estimate per pair, nats: ``[..., B]`` and ``[..., B, K]`` to ``[..., B]``."""
    below = torch.cat([positive[..., None], negatives], -1) if with_positive else negatives
    return positive - below.logsumexp(-1) + math.log(below.shape[-1])


def _encode(nets: Nets, inputs: Tensor, output: Output) -> Tensor:
    outputs = nets(inputs)
    # on the sphere each side carries half of the temperature
    return outputs if output == "plane" else torch.nn.functional.normalize(outputs, dim=-1) / math.sqrt(TEMPERATURE)


def sample(seed: int, count: int = POINTS) -> tuple[Tensor, Tensor]:
    """``count`` pairs of the paper's normal distribution: x and y, ``[count, 1]`` each."""
    return JointGaussian(np.array(COVARIANCE), 1).sample(count, torch.Generator().manual_seed(seed))


class Order:
    """What a seed decides besides the initialisation: the order of the points and the draws of negatives."""

    def __init__(self, seed: int, points: int, negatives: int) -> None:
        self.generator = torch.Generator().manual_seed(7_000_003 + seed)
        self.points, self.negatives = points, negatives

    def epoch(self, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Indices ``[B]`` and draws ``[B, K]`` in [0, 1) of each batch."""
        order = torch.randperm(self.points, generator=self.generator)
        for own in order.split(batch):
            yield own, torch.rand(len(own), self.negatives, generator=self.generator, dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class Fitted:
    """Networks of X and Y after training (one and the same where shared), and the estimate of each epoch.

    Args:
        models: percentage and seed of each network.
        x, y: the networks.
        curve: ``[epochs, M]`` nats, the mean of ``log K − loss`` over an epoch's batches as training goes on.
    """

    models: list[tuple[float, int]]
    x: Nets
    y: Nets
    curve: Tensor


def fit(
    reading: Reading,
    percents: Sequence[float],
    seeds: Sequence[int],
    *,
    epochs: int,
    points: int = POINTS,
    negatives: int = NEGATIVES,
    batch: int = BATCH,
) -> Fitted:
    """Train one pair of networks for each percentage and seed, all of them at once.

    Networks of a seed differ only in their percentage: they share start, order and draws. Adam works entry by entry
    and the loss is the sum over models, so that none knows of the others.

    Args:
        reading: of the recipe.
        percents: rows of the table.
        seeds: of start, order and draws, and of the data where redrawn.
        epochs: passes over the points.
        points: N, the sample.
        negatives: K, drawn with replacement; a pair's own y is none of them.
        batch: pairs per step; the last batch of an epoch may be smaller.

    Raises:
        ArgumentError: an empty or impossible argument.
    """
    for name, value, least in (("epochs", epochs, 1), ("points", points, 3), ("negatives", negatives, 1)):
        if value < least:
            raise reject(name, value, f"an integer of at least {least}")
    if not 1 <= batch <= points:
        raise reject("batch", batch, f"an integer from 1 to points = {points}")
    if not percents or not seeds:
        raise reject("percents, seeds", (percents, seeds), "at least one of each")
    for percent in percents:
        _share(percent)
    models = [(float(percent), seed) for percent in percents for seed in seeds]
    rows = [percent for percent, _ in models]
    place = torch.tensor([list(seeds).index(seed) for _, seed in models])
    x, y = _data(reading, seeds, points)
    x, y = x[place], y[place]
    net_x = Nets([seed for _, seed in models], 1)
    net_y = net_x if reading.encoders == "shared" else Nets([seed for _, seed in models], 2)
    parameters = net_x.parameters + ([] if net_y is net_x else net_y.parameters)
    optimizer = torch.optim.Adam(parameters, lr=reading.rate, fused=True)
    orders = [Order(seed, points, negatives) for seed in seeds]
    memory = _encode(net_y, y, reading.output).detach() if reading.bank == "memory" else None
    curve = []
    for _ in range(epochs):
        total = torch.zeros(len(models))
        for parts in zip(*[order.epoch(batch) for order in orders], strict=True):
            own = torch.stack([part[0] for part in parts])[place]
            draws = torch.stack([part[1] for part in parts])[place]
            anchors = _encode(net_x, x.gather(1, own[..., None]), reading.output)
            if memory is None:
                bank = _encode(net_y, y, reading.output)
                positives = bank.gather(1, own[..., None].expand(-1, -1, WIDTH))
            else:
                bank, positives = memory, _encode(net_y, y.gather(1, own[..., None]), reading.output)
            contrast = _Negatives.apply(anchors, bank, positives.detach(), own, rows, draws, reading.nearest)
            values = _bound((anchors * positives).sum(-1), contrast, reading.positive)
            optimizer.zero_grad()
            (-values.mean(1).sum()).backward()
            optimizer.step()
            total += values.detach().sum(1)
            if memory is not None:
                memory.scatter_(1, own[..., None].expand_as(positives), positives.detach())
        curve.append(total / points)
    return Fitted(models, net_x, net_y, torch.stack(curve))


def train(
    reading: Reading,
    percents: Sequence[float],
    seeds: Sequence[int],
    *,
    epochs: int,
    points: int = POINTS,
    negatives: int = NEGATIVES,
    batch: int = BATCH,
    repeats: int = 5,
) -> list[Row]:
    """:func:`fit`, and what each critic is worth at the end.

    Args:
        reading: this and what follows as in :func:`fit`.
        percents: rows of the table.
        seeds: a model each.
        epochs: passes over the points.
        points: N.
        negatives: K.
        batch: pairs per step.
        repeats: K negatives are drawn this often for each pair of an estimate.

    Returns:
        A row for each percentage and seed: ``train`` and ``held_out`` (as many fresh pairs), the estimate in nats as
        trained, all points encoded anew; ``population``, its expectation for K → ∞ by quadrature; ``infonce`` and
        ``infonce_population``, the same critic with all y as negatives; ``last_epoch`` and ``best_epoch``, what the
        training loop itself reads; ``spread``, the standard deviation of f(x, y) over y, root mean square over x,
        nats; ``status``: ``trained``, ``collapsed`` (spread below 1/20 of the optimal critic's), ``negative`` (an
        estimate below −.1: worse than a constant) or ``diverged``. A number that is not finite is ``None``, and
        ``reason`` says so.

    Raises:
        ArgumentError: an empty or impossible argument.
    """
    fitted = fit(reading, percents, seeds, epochs=epochs, points=points, negatives=negatives, batch=batch)
    place = torch.tensor([list(seeds).index(seed) for _, seed in fitted.models])
    fresh = [sample(10_000 + seed, points) for seed in seeds]
    pairs = {
        "train": _data(reading, seeds, points),
        "held_out": (torch.stack([x for x, _ in fresh]), torch.stack([y for _, y in fresh])),
        "grid": (_GRID_X[None, :, None].expand(len(seeds), -1, 1), _GRID_Y[None, :, None].expand(len(seeds), -1, 1)),
    }
    with torch.no_grad():
        codes = {
            name: (
                _encode(fitted.x, x[place].float(), reading.output).double(),
                _encode(fitted.y, y[place].float(), reading.output).double(),
            )
            for name, (x, y) in pairs.items()
        }
        rows: list[Row] = []
        for model, (percent, seed) in enumerate(fitted.models):
            one = {name: (x[model], y[model]) for name, (x, y) in codes.items()}
            numbers: dict[str, float] = {}
            for name in ("train", "held_out"):
                generator = torch.Generator().manual_seed(20_000 + seed)
                draws = torch.rand(points, negatives * repeats, generator=generator, dtype=torch.float64)
                numbers[name] = _estimate(*one[name], percent, draws.view(points, repeats, negatives), reading)
            numbers["population"] = _expectation(*one["grid"], percent, reading.nearest)
            scores = one["train"][0] @ one["train"][1].T
            numbers["infonce"] = _against_others(scores)
            numbers["infonce_population"] = _expectation(*one["grid"], 100.0, reading.nearest)
            numbers["last_epoch"] = float(fitted.curve[-1, model])
            numbers["best_epoch"] = float(fitted.curve[:, model].max())
            numbers["spread"] = float(scores.var(1).mean().sqrt())
            row: Row = {"reading": reading.name, "percent": percent, "seed": seed}
            rows.append(row | _verdict(numbers, fitted.curve[:, model]))
    return rows


def _verdict(numbers: dict[str, float], curve: Tensor) -> Row:
    reason = None
    lost = [name for name, value in numbers.items() if not math.isfinite(value)]
    if lost:
        bad = (~curve.isfinite()).nonzero()
        when = f"the loss was not finite in epoch {int(bad[0]) + 1}" if len(bad) else "the loss was finite throughout"
        status, reason = "diverged", f"not finite: {', '.join(lost)}; {when}"
    elif numbers["spread"] < COLLAPSED:
        status = "collapsed"
    else:
        status = "negative" if numbers["train"] < -0.1 else "trained"
    kept: Row = {name: None if name in lost else value for name, value in numbers.items()}
    return {"status": status, "reason": reason} | kept


def _data(reading: Reading, seeds: Sequence[int], points: int) -> tuple[Tensor, Tensor]:
    drawn = [sample(seed if reading.data == "redrawn" else 0, points) for seed in seeds]
    return torch.stack([x for x, _ in drawn]), torch.stack([y for _, y in drawn])


def _against_others(scores: Tensor) -> float:
    """InfoNCE of a sample's scores ``[N, N]``, each positive against the mean over the N − 1 other y, nats."""
    own = scores.diagonal()
    others = scores.masked_fill(torch.eye(len(scores), dtype=torch.bool), -math.inf).logsumexp(1)
    return float((own - others).mean()) + math.log(len(scores) - 1)


def _estimate(x: Tensor, y: Tensor, percent: float, draws: Tensor, reading: Reading) -> float:
    """Mean bound over all pairs of encodings ``[N, E]`` with draws ``[N, R, K]``, nats."""
    points, repeats, negatives = draws.shape
    total = 0.0
    # ranked in float32, as in training; what is estimated is summed in float64
    for own in torch.arange(points).split(500):
        contrast = _Negatives.apply(
            x[own].float()[None], y.float()[None], y[own].float()[None], own[None], [percent],
            draws[own].reshape(1, len(own), -1), reading.nearest,
        )  # fmt: skip
        contrast = contrast.double().view(len(own), repeats, negatives)
        positive = (x[own] * y[own]).sum(1)[:, None].expand(-1, repeats)
        total += float(_bound(positive, contrast, reading.positive).sum())
    return total / (points * repeats)


_GRID_X = math.sqrt(COVARIANCE[0][0]) * torch.linspace(-6, 6, 161, dtype=torch.float64)
_GRID_Y = math.sqrt(COVARIANCE[1][1]) * torch.linspace(-6, 6, 641, dtype=torch.float64)


def _expectation(x: Tensor, y: Tensor, percent: float, nearest: Nearest) -> float:
    """Expectation of the bound for K → ∞, nats, from encodings of the grids, by the trapezoid rule."""
    part = _share(percent)
    zx, zy = _GRID_X / math.sqrt(COVARIANCE[0][0]), _GRID_Y / math.sqrt(COVARIANCE[1][1])
    over_x, over_y = torch.exp(-0.5 * zx**2), torch.exp(-0.5 * zy**2)
    over_x, over_y = over_x / over_x.sum(), over_y / over_y.sum()
    joint = over_y * torch.exp(-0.5 * (zy - RHO * zx[:, None]) ** 2 / (1 - RHO**2) + 0.5 * zy**2)
    joint = over_x[:, None] * joint / joint.sum(1, keepdim=True)
    critic = x @ y.T

    def within(ranking: Tensor) -> Tensor:
        order = ranking.argsort(1, descending=True)
        mass = over_y[order]
        # the point at the edge counts with the part of its mass that fits
        return torch.zeros_like(ranking).scatter_(1, order, (part - (mass.cumsum(1) - mass)).clamp(min=0).minimum(mass))

    if part == 1:
        log_mean = (critic + over_y.log()).logsumexp(1, keepdim=True)
    elif nearest == "y1":
        top = critic.amax(1, keepdim=True)
        log_mean = top + torch.log(torch.exp(critic - top) @ within(-torch.cdist(y, y)).T / part)
    else:
        # in logarithms throughout: the set may lie hundreds of nats below the largest score
        inside = within(critic if nearest == "critic" else -torch.cdist(x, y)).log()
        log_mean = (critic + inside).logsumexp(1, keepdim=True) - math.log(part)
    return float((joint * (critic - log_mean)).sum())


# ---------------------------------------------------------------------------------------------------------------
# Profiles


@dataclass(frozen=True)
class Profile:
    """What is trained: every percentage and seed under every reading."""

    readings: tuple[Reading, ...]
    percents: tuple[float, ...] = PERCENTS
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    epochs: int = 100
    points: int = POINTS


WRITTEN = Reading()
THEOREM = Reading(nearest="critic")
PATIENT = Reading(nearest="critic", rate=0.003)

PROFILES: Mapping[str, Profile] = {
    "smoke": Profile((WRITTEN, PATIENT), percents=(100.0, 90.0, 75.0), seeds=(0,), epochs=4),
    "quick": Profile((WRITTEN, PATIENT), epochs=20),
    "paper": Profile(
        (
            WRITTEN,
            THEOREM,
            PATIENT,
            Reading(nearest="critic", rate=0.001),
            Reading(nearest="critic", rate=0.0003),
            Reading(nearest="x"),
            Reading(nearest="x", encoders="shared"),
            Reading(nearest="critic", bank="memory"),
            Reading(nearest="critic", rate=0.003, data="redrawn"),
            Reading(output="sphere"),
            Reading(nearest="critic", output="sphere", rate=0.003),
        )
    ),
}


def study(
    profile: str,
    out_dir: Path | str,
    read_also: Sequence[Path | str] = (),
    *,
    log: Callable[[str], None] = lambda line: None,
) -> dict[Reading, Study]:
    """Table 3 under each reading of a profile: stored rows are read, others are trained and stored.

    Args:
        profile: ``smoke`` (seconds), ``quick`` (a minute) or ``paper`` (100 epochs, half an hour of one core).
        out_dir: where new rows are written, one file for each reading.
        read_also: further folders of stored rows.
        log: is told of every reading.
    """
    found = {}
    for reading, config in _configs(profile).items():

        def run(reading: Reading = reading) -> list[Row]:
            plan = PROFILES[profile]
            return train(reading, plan.percents, plan.seeds, epochs=plan.epochs, points=plan.points)

        found[reading] = measure(STUDY, profile, config, run, out_dir=out_dir, read_also=read_also)
        log(f"{profile}: {reading.name}: {found[reading].provenance['wall_s']:.0f} s when measured")
    return found


def stored(profile: str, roots: Sequence[Path | str]) -> dict[Reading, Study]:
    """Those readings of a profile that are stored under ``roots``; trains nothing."""
    found = {}
    for reading, config in _configs(profile).items():
        paths = [location(root, STUDY, profile, config) for root in roots]
        for path in [path for path in paths if path.exists()][:1]:
            found[reading] = read(path)
    return found


def summary(found: Study, number: str = "train") -> pd.DataFrame:
    """Mean over seeds of one number of a reading.

    Args:
        found: of :func:`study` or :func:`stored`.
        number: a column of :func:`train`, such as ``held_out``.

    Returns:
        One line for each percentage: ``mean``, ``sd`` (of one more seed; NaN for a single one), ``median`` in nats over
        the ``n`` models with a number, and how many ended ``collapsed``, ``negative`` or ``diverged``.

    Raises:
        UnknownNameError: there is no such number.
    """
    frame = pd.DataFrame(found.rows)
    if number not in frame.columns:
        raise unknown("number", number, frame.columns)
    grouped = frame.astype({number: float}).groupby("percent", sort=False)
    values = grouped[number]
    lines = pd.DataFrame(
        {"mean": values.mean(), "sd": values.std(), "median": values.median(), "n": values.count()},
    )
    for status in ("collapsed", "negative", "diverged"):
        lines[status] = (frame["status"] == status).groupby(frame["percent"], sort=False).sum()
    return lines


def _configs(profile: str) -> dict[Reading, dict[str, Any]]:
    if profile not in PROFILES:
        raise unknown("profile", profile, PROFILES)
    plan = PROFILES[profile]
    common = {"percents": list(plan.percents), "seeds": list(plan.seeds), "epochs": plan.epochs, "points": plan.points}
    common |= {"negatives": NEGATIVES, "batch": BATCH, "covariance": [list(row) for row in COVARIANCE]}
    return {reading: {"reading": asdict(reading)} | common for reading in plan.readings}
