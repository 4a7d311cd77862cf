"""Whether a difference between two methods is one: intervals, looks, several claims at once. Pure functions.

The rule by which claims are decided, stated before the runs:

1. Both arms of a claim are run with the same seeds 0, 1, 2, …, and so with the same order, views and weights as far as
   they share settings. The difference is taken seed by seed.
2. It is looked at after 8, 12 and 16 seeds (:data:`LOOKS`), and no more seeds are run once it has a verdict. The
   interval pays for all three looks (Pocock 1977, here for t intervals): at every one it is wider than a 95 % t
   interval, so that all of them together hold the truth with 95 %, whenever one stops.
3. The claims of one table on one data set in one profile share a 5 % chance of a wrong sign (Holm 1979), and another
   5 % of a difference that is called too small and is not.
4. A published difference within the deviations published beside its rows claims no sign, and so does one whose sign the
   two published rows contradict, or of which the paper says in words that there is none.
5. Every seed counts: no run is left out as an outlier.

Differences are in the metric's unit; seeds are taken as independent and normal. Of skewed differences the intervals
miss more often than they say: of exponential ones more than twice as often, as simulation in the tests shows. Seeds
vary weights, order and views, never the images: intervals do not cover which images were drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np
from scipy import interpolate, optimize, special

from contrastlab.support.errors import reject

LOOKS = (8, 12, 16)
"""Seeds after which a claim is looked at."""
MARGIN = 1.0
"""A claim that there is no difference is met by one that is certainly smaller than this, in the metric's unit."""
LEVEL = 0.05

Verdict = Literal[
    "same sign",
    "opposite sign",
    "difference where none is claimed",
    "not of the published size",
    "no difference, as claimed",
    "open",
]


@dataclass(frozen=True)
class Difference:
    """A mean difference with a Student t interval, of infinite width where there are too few values."""

    mean: float
    half_width: float
    p: float

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.mean + self.half_width


def _values(name: str, values: Sequence[float]) -> np.ndarray:
    """The argument ``name`` as an array, refused unless it is a list of finite numbers."""
    array = np.asarray(values, dtype=float)
    if array.ndim != 1 or not len(array) or not np.isfinite(array).all():
        raise reject(name, list(values), "a list of at least one finite number")
    return array


def paired(differences: Sequence[float], level: float = LEVEL) -> Difference:
    """Mean of differences taken seed by seed. ``level``: 0.05 for a 95 % interval."""
    array = _values("differences", differences)
    n = len(array)
    mean = math.fsum(array) / n
    if n < 2:
        return Difference(mean, math.inf, 1.0)
    standard_error = _standard_error(array)
    if standard_error == 0:
        return Difference(mean, 0.0, float(mean == 0))
    half_width = float(special.stdtrit(n - 1, 1 - level / 2)) * standard_error
    p = float(2 * special.stdtr(n - 1, -abs(mean) / standard_error))
    return Difference(mean, half_width, p)


def _standard_error(values: np.ndarray) -> float:
    """Of the mean of at least two values."""
    return float(values.std(ddof=1)) / math.sqrt(len(values))


def item_flip_sd(right: np.ndarray) -> float:
    """Standard deviation over seeds, in percent, if each test item were right by a coin of its own.

    Two seeds of one method differ in a share *d* of the items; independent flips then give the accuracy a standard
    deviation of ``100·sqrt(d / 2n)``. What a measured standard deviation has beyond it is of the whole network.

    ``right``: which items each of R seeds has right, boolean ``[R, N]``.
    """
    if right.ndim != 2 or len(right) < 2 or not right.shape[1]:
        raise reject("right", tuple(right.shape), "booleans [R, N] of at least two seeds and one item")
    seeds, items = right.shape
    share = np.asarray(right).sum(0) / seeds  # of the seeds that have an item right
    variance = float((share * (1 - share)).mean()) * seeds / (seeds - 1)  # of an item, half of what d is
    return 100 * math.sqrt(variance / items)


_RULES = {count: np.polynomial.legendre.leggauss(count) for count in (16, 64)}
"""Nodes and weights of Gauss and Legendre's quadrature."""
_PLACES = -np.cos(np.pi * np.arange(33) / 32)
"""Chebyshev's points in [−1, 1], between which a probability is interpolated."""

Survival = Callable[[np.ndarray], np.ndarray]
"""Probability that no further look finds a difference, given the cosine *u* at the last one."""


@cache
def crossing(level: float, looks: tuple[int, ...] = LOOKS) -> float:
    """Probability that a t test of this level finds a difference at one of several looks where there is none.

    Seed by seed differences are normal of one unknown variance. The cosine *u* between *n* of them and (1, …, 1) gives
    *t*, and *m* further ones take it to √(nw/(n+m)) u + √(m(1−w)/(n+m)) v, where *w* has the beta distribution of
    (n/2, m/2) and *v* is the cosine of a random direction in *m* dimensions: an integral over both for each look.

    ``level``: two-sided, of the t test at every look, above 0 and below 1. ``looks``: numbers of seeds, rising, the
    first at least 2 and each at least 2 more than the last.
    """
    edges = [_edge(level, seeds) for seeds in looks]
    survival: Survival = np.ones_like  # after the last look there is none
    last = len(looks) - 1
    for number in reversed(range(last)):
        next_number = number + 1
        survival = _one_look_earlier(
            survival,
            looks[number],
            looks[next_number],
            edges[number],
            edges[next_number],
        )
    nodes, weights = _RULES[64]
    widest_angle = math.asin(edges[0])
    angles = widest_angle * nodes
    integrand = survival(np.sin(angles)) * _cosines(angles, looks[0])
    never = widest_angle * float(integrand @ weights)
    # what the integral leaves out is far below any level that matters
    return min(1.0, max(level, 1 - never))


def _edge(level: float, seeds: int) -> float:
    """The cosine *u* beyond which a t test of so many seeds finds a difference."""
    t = -float(special.stdtrit(seeds - 1, level / 2))
    return t / math.sqrt(seeds - 1 + t * t)


def _one_look_earlier(survival: Survival, seeds: int, next_seeds: int, edge: float, next_edge: float) -> Survival:
    """The survival at a look of n seeds, given that at the next one of n + m.

    For each place of *u* within the edge, it integrates over *w* (Gauss and Jacobi) and over the angle whose sine is
    *v* (Gauss and Legendre) as far as the next *u* stays within its own edge.
    """
    n = seeds
    m = next_seeds - seeds
    places = edge * _PLACES
    x, mass = special.roots_jacobi(32, m / 2 - 1, n / 2 - 1)  # w = (1 + x) / 2
    scale = np.sqrt(m * (1 - x) / 2)
    mean = np.sqrt(n * (1 + x) / 2) * places[:, None]
    low, high = _angles_within(next_edge * math.sqrt(n + m), mean, scale)
    nodes, weights = _RULES[16]
    half_length = (high - low) / 2
    angle = (low + high) / 2 + half_length * nodes
    next_cosine = (mean[..., None] + scale[:, None] * np.sin(angle)) / math.sqrt(n + m)
    integrand = survival(next_cosine) * _cosines(angle, m) * weights
    over_angle = integrand.sum(2) * half_length[..., 0]
    over_both = over_angle @ mass / mass.sum()
    return interpolate.CubicSpline(places, over_both)


def _angles_within(bound: float, mean: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest angle at which ``mean + scale * sin(angle)`` is within ±bound, ``[..., 1]`` each."""
    low = np.arcsin(np.clip((-bound - mean) / scale, -1, 1))
    high = np.arcsin(np.clip((bound - mean) / scale, -1, 1))
    return low[..., None], high[..., None]


def _cosines(angle: np.ndarray, n: int) -> np.ndarray:
    """Density of the angle whose sine is the cosine between a random direction in n dimensions and a fixed one."""
    log_ratio = special.gammaln((n - 1) / 2) - special.gammaln(n / 2)
    total = math.exp(log_ratio) * math.sqrt(math.pi)
    return np.asarray(np.cos(angle) ** (n - 2) / total)


@cache
def pocock(looks: tuple[int, ...] = LOOKS) -> float:
    """Level of a t test that finds a difference at one of the looks with probability 0.05 where there is none.

    The same at every look (Pocock 1977), but for a variance that is not known.
    """

    def excess(level: float) -> float:
        return crossing(level, looks) - LEVEL

    least = LEVEL / (2 * len(looks))
    return float(optimize.brentq(excess, least, LEVEL, xtol=1e-12))


@dataclass(frozen=True)
class Look:
    """One look at a claim.

    ``seeds``: that the interval is of. ``difference``: with an interval that pays for all looks, or before the first
    look with a plain 95 % interval. ``p``: of no difference, for all looks together. ``p_large``: of a difference as
    large as the published one, or as :data:`MARGIN` where none is claimed, in either direction. Both are 1 before the
    first look.
    """

    seeds: int
    difference: Difference
    p: float
    p_large: float


NOT_RUN = Look(0, Difference(math.nan, math.inf, 1.0), 1.0, 1.0)
"""Of a claim without a run, which counts in its family all the same."""


def look(differences: Sequence[float], published: float, sign: float | None = None) -> list[Look]:
    """The looks at differences, in the order of their seeds, after 8, 12 and 16 of them.

    ``published``: the gain that is claimed; NaN where only its sign is. ``sign``: that is claimed; by default that of
    ``published``; 0 where the paper claims no difference.
    """
    array = _values("differences", differences)
    claimed = published if sign is None else sign
    limit = MARGIN if claimed == 0 else abs(published)
    looks: list[Look] = []
    p = 1.0
    p_large = 1.0
    for seeds in LOOKS:
        if seeds > len(array):
            break
        first = array[:seeds]
        difference = paired(first.tolist(), pocock())
        p = min(p, difference.p)
        p_large = min(p_large, _p_as_large(first, difference.mean, limit))
        looks.append(Look(seeds, difference, _of_all_looks(p), _of_all_looks(p_large)))
    if not looks:
        return [Look(len(array), paired(array.tolist()), 1.0, 1.0)]
    return looks


def _p_as_large(values: np.ndarray, mean: float, limit: float) -> float:
    """p-value of a difference of at least ``limit`` in either direction; 1 where ``limit`` is NaN."""
    if math.isnan(limit):
        return 1.0
    standard_error = _standard_error(values)
    excess = abs(mean) - limit
    t = excess / standard_error if standard_error else math.copysign(math.inf, excess)
    return 2 * float(special.stdtr(len(values) - 1, t))


def _of_all_looks(p: float) -> float:
    """The smallest p-value of several looks as one of all of them."""
    return crossing(p) if 0 < p < 1 else p


def detectable(sd: float, n: int) -> float:
    """The mean difference that a look at ``n`` seeds finds with 80 %: sd · (t of the look's level + t of 80 %) / √n."""
    t_level = special.stdtrit(n - 1, 1 - pocock() / 2)
    t_power = special.stdtrit(n - 1, 0.8)
    return float(sd * (t_level + t_power) / math.sqrt(n))


def holm(p: Sequence[float]) -> list[float]:
    """p-values adjusted for all of them together (Holm 1979): reject those at most 0.05."""
    order = np.argsort(p, kind="stable")
    still_open = len(p) - np.arange(len(p))
    stepped = np.minimum(1.0, still_open * np.asarray(p)[order])
    adjusted = np.empty(len(p))
    adjusted[order] = np.maximum.accumulate(stepped)
    in_order: list[float] = adjusted.tolist()
    return in_order


def verdict(at: Look, p: float, p_large: float, sign: float) -> tuple[Verdict, float | None]:
    """What may be said of a claim after a look.

    *Same* or *opposite sign*: ``p`` is at most 0.05. *Not of the published size*: ``p_large`` is, and a sign is
    claimed; *no difference, as claimed*: ``p_large`` is, and ``sign`` is 0. With both stands the end of the interval
    that is further from 0. *Difference where none is claimed*: ``sign`` is 0, ``p`` at most 0.05, and the difference
    may be larger than :data:`MARGIN`. *Open*: anything else. Both p-values are adjusted by :func:`holm`.
    """
    differs = p <= LEVEL
    if differs and sign:
        agrees = at.difference.mean * sign > 0
        return ("same sign" if agrees else "opposite sign"), None
    if p_large <= LEVEL:
        farther_end = max(abs(at.difference.low), abs(at.difference.high))
        return ("not of the published size" if sign else "no difference, as claimed"), farther_end
    if differs:
        return "difference where none is claimed", None
    return "open", None


@dataclass(frozen=True)
class Decision:
    """Where the looks at a claim ended: ``p_holm`` is its p-value of no difference among all claims of its family."""

    at: Look
    p_holm: float
    verdict: Verdict
    bound: float | None


def decide(claims: Sequence[tuple[Sequence[Look], float]]) -> list[Decision]:
    """Decide a family of claims, each given by its looks and its claimed sign; one without a run has none.

    Look after look, all that are still open are looked at again; one with a verdict keeps it and its interval.
    """
    signs = [sign for _, sign in claims]
    ended: dict[int, Decision] = {}
    for step in range(len(LOOKS)):
        now: list[Look] = []
        for claim, (looks, _) in enumerate(claims):
            if claim in ended:
                now.append(ended[claim].at)
            else:
                last = min(step, len(looks) - 1)
                now.append(looks[last])
        decisions = _decide_now(now, signs)
        for claim, decision in enumerate(decisions):
            if claim not in ended and decision.verdict != "open":
                ended[claim] = decision
    final: list[Decision] = []
    for claim, decision in enumerate(decisions):
        kept = ended.get(claim, decision)
        final.append(replace(kept, p_holm=decision.p_holm))
    return final


def _decide_now(looks: Sequence[Look], signs: Sequence[float]) -> list[Decision]:
    """Decide a family by one look at each claim."""
    p = holm([at.p for at in looks])
    p_large = holm([at.p_large for at in looks])
    decisions: list[Decision] = []
    for claim, at in enumerate(looks):
        words, bound = verdict(at, p[claim], p_large[claim], signs[claim])
        decisions.append(Decision(at, p[claim], words, bound))
    return decisions


def correlation(x: Sequence[float], y: Sequence[float], draws: int = 2000) -> tuple[float, float, float]:
    """Spearman's rank correlation of pairs of numbers, and the ends of a 95 % bootstrap interval over the pairs.

    NaN for fewer than four pairs.
    """
    from scipy import stats  # takes longer to import than the claims to print

    pairs = np.stack([_values("x", x), _values("y", y)], axis=1)
    if len(pairs) < 4:
        return (math.nan, math.nan, math.nan)
    generator = np.random.default_rng(0)
    picks = generator.integers(len(pairs), size=(draws, len(pairs)))
    ranks = stats.rankdata(pairs[picks], axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        correlations = [np.corrcoef(ranks_of_draw.T)[0, 1] for ranks_of_draw in ranks]
    low, high = np.nanquantile(correlations, [0.025, 0.975])
    measured = stats.spearmanr(pairs[:, 0], pairs[:, 1]).statistic
    return float(measured), float(low), float(high)
