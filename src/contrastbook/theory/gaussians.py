"""How loose is a bound with hard negatives? Exact values for two normal variables.

X and Y are standard normal with correlation ρ. ``VINCE(p %)`` has negatives from the p % of Y that the critic f scores
highest (vince Corollary 4.1.1, appendix E); for K → ∞ it is ``E f(x, y₁) − E log (mean of exp f(x, y) over the p %)``,
and at p = 100 % InfoNCE. Its values are quadratures over x of closed forms in y.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr, ndtr
from scipy.stats import ncx2, norm

from contrastbook.checks import require
from contrastlab.support.errors import reject

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


def population(percent: float, *, scale: float = 1.0, rho: float = RHO) -> Population:
    """VINCE(``percent`` %) at the optimal critic times ``scale`` ≥ 0, exactly.

    ``f*(x, y) = log p(x, y) / p(x) p(y) = ½x² − ½ log(1 − ρ²) − k (y − x/ρ)²`` with ``k = ρ² / 2(1 − ρ²)``, so the
    highest-scored p % are an interval around x/ρ, and ``E exp(a f*)`` over an interval is a difference of normal
    distribution functions. What is left is one integral over x.
    """
    part, rho = share_of(percent), _correlation(rho)
    require("scale", scale, 0)
    x, weight = _x_grid()
    half = _half_widths(part, rho)
    mean = information(rho)

    def value(a: float) -> float:
        return float(a * mean - weight @ (_log_mass(x, rho, a, half) - math.log(part)))

    threshold = scale * _optimal(x, rho, half)
    share = float(weight @ (threshold > _log_mass(x, rho, scale, np.full_like(x, np.inf)))) if part < 1 else 0.0
    minimum = minimize_scalar(lambda a: -value(a), bounds=(0.0, 2.0), method="bounded", options={"xatol": 1e-9})
    # concave in a and 0 at a = 0, so a maximum that is not above 0 is at 0
    best, best_scale = (-float(minimum.fun), float(minimum.x)) if -minimum.fun > 1e-14 else (0.0, 0.0)
    return Population(value(scale), share, best, best_scale)


def largest(percent: float, *, rho: float = RHO) -> Largest:
    """The supremum of VINCE(``percent`` %) over all critics, exactly, and InfoNCE at the critic that attains it.

    Fix x and write u ∈ [0, 1] for the rank of y by f*, best first: u is uniform under p(y) and has a falling density d
    with distribution D under p(y|x). The best critic decreases in u and is constant beyond p, so its value is
    KL(majorant ‖ uniform on [0, p]) for the least concave majorant of D on [0, p] with end (p, 1): D up to u₀, then the
    tangent, ``d(u₀) (p − u₀) = 1 − D(u₀)``. It bounds every finite K, too, if the positive is in the denominator.
    """
    part, rho = share_of(percent), _correlation(rho)
    if part == 1:
        return Largest(information(rho), information(rho))
    x, weight = _x_grid()
    log_top = _optimal(x, rho, np.zeros_like(x))  # log d(0)
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
    at_a, at_b = norm.pdf(a), norm.pdf(b)
    first, second = at_a - at_b, reached + a * at_a - b * at_b
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


def independent_value(percent: float) -> float:
    """What the rule "nearest to the positive" can report between independent variables (MI 0), in nats.

    Let ``f(x, y) = h(y) ∈ {0, H}``, a share r of all y being high, and negatives the p % nearest to h(y₁). A high y₁
    gains ``H − log(1 + (r/p)(e^H − 1)) → log(p/r)``; a low one meets only low negatives as long as r ≤ 1 − p, and gains
    0. The value tends to ``r log(p/r)`` as H → ∞, largest at r = p/e, or at r = 1 − p where that is smaller.
    """
    part = share_of(percent)
    high = min(1 - part, part / math.e)
    return high * math.log(part / high) if high > 0 else 0.0


def independent_simulated(
    percent: float, *, negatives: int = 100, height: float = 12.0, count: int = 20_000, seed: int = 0
) -> tuple[float, float]:
    """:func:`independent_value` by drawing with finite K and H; mean and its standard error, nats."""
    part = share_of(percent)
    high = min(1 - part, part / math.e)
    generator = np.random.default_rng(seed)
    own = generator.random(count) < high
    met = generator.binomial(negatives, high / part, count) * own
    mean = (np.exp(height * own) + met * math.exp(height) + (negatives - met)) / (negatives + 1)
    each = height * own - np.log(mean)
    return float(each.mean()), float(each.std(ddof=1) / math.sqrt(count))


def plug_in_deviation(count: int = 2000, *, rho: float = RHO) -> float:
    """Standard deviation of ``−½ log(1 − r²)`` over samples of ``count`` pairs, r the sample correlation, nats.

    By the delta method: ``sd r = (1 − ρ²)/√N`` and ``dI/dr = r/(1 − r²)``, so ``sd I = |ρ|/√N``.
    """
    return abs(_correlation(rho)) / math.sqrt(count)


def plug_in_simulated(count: int = 2000, *, rho: float = RHO, samples: int = 2000, seed: int = 0) -> Array:
    """``[samples]`` plug-in estimates of the mutual information in nats, each from ``count`` fresh pairs."""
    rho, generator = _correlation(rho), np.random.default_rng(seed)
    estimates = np.empty(samples)
    for index in range(samples):
        x, noise = generator.standard_normal((2, count))
        estimates[index] = information(np.corrcoef(x, rho * x + math.sqrt(1 - rho**2) * noise)[0, 1])
    return estimates


def share_of(percent: float) -> float:
    """A percentage above 0 and up to 100 as a share."""
    require("percent", percent, 0, 100, open_low=True)
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


def _inside(centre: Array, half: Array) -> Array:
    # P(|Z − centre| < half) of a standard normal Z, without cancellation for centres far above 0
    centre = np.abs(centre)
    return np.asarray(ndtr(half - centre) - ndtr(-half - centre))


def _half_width(centre: Array, part: float) -> Array:
    """Half the width of the interval around ``centre`` that holds ``part`` of a standard normal; infinite for all."""
    return np.asarray(np.sqrt(ncx2.ppf(part, 1, centre**2)))


@functools.cache
def _half_widths(part: float, rho: float) -> Array:
    return _half_width(_x_grid()[0] / rho, part)


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
