"""How loose is a bound with hard negatives? Exact values for two normal variables.

X and Y are standard normal with correlation ρ. ``VINCE(p %)`` has negatives from the p % of Y that the critic f scores
highest (vince Corollary 4.1.1, appendix E); for K → ∞ it is ``E f(x, y₁) − E log (mean of exp f(x, y) over the p %)``,
and at p = 100 % InfoNCE. Its values are quadratures over x of closed forms in y.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr, ndtr
from scipy.stats import ncx2, norm

from contrastlab.support.errors import check_range, reject

Array = NDArray[np.float64]

RHO = 0.2
"""Correlation of vince appendix E, covariance (2, .4; .4, 2); the bounds do not change with the variances."""

PERCENTS = (100.0, 90.0, 75.0, 50.0, 25.0, 10.0, 5.0)
"""The rows of vince Table 3."""


@dataclass(frozen=True)
class Population:
    """Exact values of one row of the table, many negatives (K → ∞).

    ``share`` is of x for which the hypothesis of the corollary holds: every negative has ``exp(a f*)`` above its mean
    over all y.
    """

    value: float  # nats, VINCE_p at the critic a·f*
    share: float
    best: float  # nats, the supremum of the value over a ≥ 0
    best_scale: float


@dataclass(frozen=True)
class Largest:
    """The best that any critic can do, in nats."""

    value: float  # the supremum of VINCE_p over all critics
    infonce: float  # what InfoNCE (all y as negatives) makes of the critic that attains it


def information(rho: float = RHO) -> float:
    """I(X; Y) of two normal variables with correlation ``rho``: ``−½ log(1 − ρ²)`` nats."""
    return -0.5 * math.log1p(-(_correlation(rho) ** 2))


@functools.cache
def population(percent: float, *, scale: float = 1.0, rho: float = RHO) -> Population:
    """VINCE(``percent`` %) at the optimal critic times ``scale`` ≥ 0, exactly.

    ``f*(x, y) = log p(x, y) / p(x) p(y) = ½x² − ½ log(1 − ρ²) − k (y − x/ρ)²`` with ``k = ρ² / 2(1 − ρ²)``, so the
    highest-scored p % are an interval around x/ρ, and ``E exp(a f*)`` over an interval is a difference of normal
    distribution functions. What is left is one integral over x.
    """
    part = share_of(percent)
    rho = _correlation(rho)
    check_range("scale", scale, 0)
    x, weight = _x_grid()
    half = _half_widths(part, rho)
    mean_of_critic = information(rho)

    def value(a: float) -> float:
        log_means = _log_mass(x, rho, a, half) - math.log(part)
        return float(a * mean_of_critic - weight @ log_means)

    share = _share_above_the_mean(rho, scale, half) if part < 1 else 0.0
    best, best_scale = _maximum(value)
    return Population(value(scale), share, best, best_scale)


def _share_above_the_mean(rho: float, scale: float, half: Array) -> float:
    """The share of x for which the least negative has ``exp(a f*)`` above the mean over all y."""
    x, weight = _x_grid()
    of_least_negative = scale * _optimal(x, rho, half)
    everything = np.full_like(x, np.inf)
    log_mean = _log_mass(x, rho, scale, everything)
    return float(weight @ (of_least_negative > log_mean))


def _maximum(value: Callable[[float], float]) -> tuple[float, float]:
    """The largest value over scales from 0 to 2, and its scale."""

    def negative_value(scale: float) -> float:
        return -value(scale)

    minimum = minimize_scalar(negative_value, bounds=(0.0, 2.0), method="bounded", options={"xatol": 1e-9})
    highest = -float(minimum.fun)
    # concave in the scale and 0 at scale 0, so a maximum that is not above 0 is at 0
    if highest > 1e-14:
        return highest, float(minimum.x)
    return 0.0, 0.0


@functools.cache
def largest(percent: float, *, rho: float = RHO) -> Largest:
    """The supremum of VINCE(``percent`` %) over all critics, exactly, and InfoNCE at the critic that attains it.

    Fix x and write u ∈ [0, 1] for the rank of y by f*, best first: u is uniform under p(y) and has a falling density d
    with distribution D under p(y|x). The best critic decreases in u and is constant beyond p, so its value is
    KL(majorant ‖ uniform on [0, p]) for the least concave majorant of D on [0, p] with end (p, 1): D up to u₀, then the
    tangent, ``d(u₀) (p − u₀) = 1 − D(u₀)``. It bounds every finite K, too, if the positive is in the denominator.
    """
    part = share_of(percent)
    rho = _correlation(rho)
    if part == 1:
        return Largest(information(rho), information(rho))
    x, weight = _x_grid()
    log_top = _optimal(x, rho, np.zeros_like(x))  # log d(0)
    gains = log_top > -math.log(part)  # elsewhere the best critic is constant
    x = x[gains]
    weight = weight[gains]
    log_top = log_top[gains]
    widest = _half_widths(part, rho)[gains]
    half = _touching_half_width(x, rho, part, widest)
    left = part - _inside(x / rho, half)  # p − u₀
    reached = _reached(x, rho, half)  # D(u₀)
    rest = 1 - reached
    # log d is log d(0) − k (y − x/ρ)² before u₀, a constant from there to p
    inner = (log_top + math.log(part)) * reached - _bend(rho) * _square_within(x, rho, half, reached)
    with np.errstate(divide="ignore", invalid="ignore"):
        outer = np.where(rest > 0, rest * np.log(part * rest / left), 0.0)
        smallest = np.where(rest > 0, part * rest / left, 0.0)
        # against all y the mean of the critic's exponential is p (its mean within) and 1 − p times its smallest value
        against_all = np.log(part + (1 - part) * smallest)
    value = inner + outer
    infonce = value - against_all
    return Largest(float(weight @ value), float(weight @ infonce))


def _reached(x: Array, rho: float, half: Array) -> Array:
    """``P(|y − x/ρ| < half)`` under p(y|x)."""
    spread = math.sqrt(1 - rho**2)
    return _inside((x / rho - rho * x) / spread, half / spread)


def _touching_half_width(x: Array, rho: float, part: float, widest: Array) -> Array:
    """Half the width of the interval around x/ρ whose rank is u₀, by bisection of ``d(u₀) (p − u₀) = 1 − D(u₀)``.

    ``widest``: half the width of the interval whose rank is p.
    """
    centre = x / rho
    low = np.zeros_like(x)
    high = widest
    for _ in range(80):
        middle = 0.5 * (low + high)
        left = part - _inside(centre, middle)
        density = np.exp(_optimal(x, rho, middle))
        is_before = density * left > 1 - _reached(x, rho, middle)
        low = np.where(is_before, middle, low)
        high = np.where(is_before, high, middle)
    return low


def _square_within(x: Array, rho: float, half: Array, reached: Array) -> Array:
    """``E (y − x/ρ)²`` under p(y|x), of y within the interval alone: the second moment of a cut normal."""
    centre = x / rho
    spread = math.sqrt(1 - rho**2)
    start = (centre - half - rho * x) / spread
    end = (centre + half - rho * x) / spread
    density_at_start = norm.pdf(start)
    density_at_end = norm.pdf(end)
    first = density_at_start - density_at_end
    second = reached + start * density_at_start - end * density_at_end
    offset = rho * x - centre
    moments: Array = spread**2 * second + 2 * spread * offset * first + offset**2 * reached
    return moments


def independent_value(percent: float) -> float:
    """What the rule "nearest to the positive" can report between independent variables (MI 0), in nats.

    Let ``f(x, y) = h(y) ∈ {0, H}``, a share r of all y being high, and negatives the p % nearest to h(y₁). A high y₁
    gains ``H − log(1 + (r/p)(e^H − 1)) → log(p/r)``; a low one meets only low negatives as long as r ≤ 1 − p, and gains
    0. The value tends to ``r log(p/r)`` as H → ∞, largest at r = p/e, or at r = 1 − p where that is smaller.
    """
    part = share_of(percent)
    high = _best_share_of_high(part)
    return high * math.log(part / high) if high > 0 else 0.0


def _best_share_of_high(part: float) -> float:
    """The share r of high y that gains most."""
    return min(1 - part, part / math.e)


def independent_simulated(
    percent: float,
    *,
    negatives: int = 100,
    height: float = 12.0,
    count: int = 20_000,
    seed: int = 0,
) -> tuple[float, float]:
    """:func:`independent_value` by drawing with finite K and H; mean and its standard error, nats."""
    part = share_of(percent)
    high = _best_share_of_high(part)
    generator = np.random.default_rng(seed)
    is_high = generator.random(count) < high
    high_negatives = generator.binomial(negatives, high / part, count) * is_high
    low_negatives = negatives - high_negatives
    positive = np.exp(height * is_high)
    mean = (positive + high_negatives * math.exp(height) + low_negatives) / (negatives + 1)
    values = height * is_high - np.log(mean)
    standard_error = values.std(ddof=1) / math.sqrt(count)
    return float(values.mean()), float(standard_error)


def plug_in_deviation(count: int = 2000, *, rho: float = RHO) -> float:
    """Standard deviation of ``−½ log(1 − r²)`` over samples of ``count`` pairs, r the sample correlation, nats.

    By the delta method: ``sd r = (1 − ρ²)/√N`` and ``dI/dr = r/(1 − r²)``, so ``sd I = |ρ|/√N``.
    """
    return abs(_correlation(rho)) / math.sqrt(count)


def plug_in_simulated(count: int = 2000, *, rho: float = RHO, samples: int = 2000, seed: int = 0) -> Array:
    """``[samples]`` plug-in estimates of the mutual information in nats, each from ``count`` fresh pairs."""
    rho = _correlation(rho)
    generator = np.random.default_rng(seed)
    estimates = np.empty(samples)
    for index in range(samples):
        x, noise = generator.standard_normal((2, count))
        y = rho * x + math.sqrt(1 - rho**2) * noise
        sample_correlation = np.corrcoef(x, y)[0, 1]
        estimates[index] = information(sample_correlation)
    return estimates


def share_of(percent: float) -> float:
    """A percentage above 0 and up to 100 as a share."""
    check_range("percent", percent, 0, 100, above=True)
    return percent / 100


def _correlation(rho: float) -> float:
    """``rho``, refused where it is no correlation or 0."""
    if not 0 < abs(rho) < 1:
        raise reject("rho", rho, "a correlation between -1 and 1 that is not 0")
    return rho


@functools.cache
def _x_grid() -> tuple[Array, Array]:
    """Nodes and weights of means over x: the trapezoid rule for smooth decaying integrands that are even in x."""
    x = np.linspace(0.0, 10.0, 4001)
    weight = np.exp(-0.5 * x**2)
    weight[0] *= 0.5
    return x, weight / weight.sum()


def _inside(centre: Array, half: Array) -> Array:
    """``P(|Z − centre| < half)`` of a standard normal Z, without cancellation for centres far above 0."""
    centre = np.abs(centre)
    return np.asarray(ndtr(half - centre) - ndtr(-half - centre))


@functools.cache
def _half_widths(part: float, rho: float) -> Array:
    """Half the width, by x of the grid, of the interval around x/ρ that holds ``part`` of p(y); infinite for all."""
    x, _ = _x_grid()
    return np.asarray(np.sqrt(ncx2.ppf(part, 1, (x / rho) ** 2)))


def _bend(rho: float) -> float:
    """How fast f* falls with the square of the distance from its peak: k of :func:`population`."""
    return rho**2 / (2 * (1 - rho**2))


def _optimal(x: Array, rho: float, distance: Array) -> Array:
    """f* at ``distance`` of y from x/ρ, where it is largest."""
    return 0.5 * x**2 - 0.5 * math.log1p(-(rho**2)) - _bend(rho) * distance**2


def _log_mass(x: Array, rho: float, scale: float, half: Array) -> Array:
    """``log ∫ p(y) exp(a f*(x, y)) dy`` over ``|y − x/ρ| < half``."""
    bend = scale * rho**2 / (1 - rho**2)
    precision = 1 + bend
    centre = x / rho
    mean = bend * centre / precision
    spread = 1 / math.sqrt(precision)
    log_top = scale * (0.5 * x**2 - 0.5 * math.log1p(-(rho**2)))
    log_whole = log_top - 0.5 * bend * centre**2 / precision + math.log(spread)
    offset = np.abs(centre - mean)
    upper = log_ndtr((half - offset) / spread)
    lower = log_ndtr((-half - offset) / spread)
    return np.asarray(log_whole + upper + np.log1p(-np.exp(lower - upper)))
