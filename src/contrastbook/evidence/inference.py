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
    "same sign", "opposite sign", "difference where none is claimed", "not of the published size",
    "no difference, as claimed", "open",
]  # fmt: skip


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
    array = np.asarray(values, dtype=float)
    if array.ndim != 1 or not len(array) or not np.isfinite(array).all():
        raise reject(name, list(values), "a list of at least one finite number")
    return array


def paired(differences: Sequence[float], level: float = LEVEL) -> Difference:
    """Mean of differences taken seed by seed. ``level``: 0.05 for a 95 % interval."""
    array = _values("differences", differences)
    n, mean = len(array), math.fsum(array) / len(array)
    if n < 2:
        return Difference(mean, math.inf, 1.0)
    se = float(array.std(ddof=1)) / math.sqrt(n)
    p = float(2 * special.stdtr(n - 1, -abs(mean) / se)) if se > 0 else float(mean == 0)
    return Difference(mean, float(special.stdtrit(n - 1, 1 - level / 2)) * se, p)


def item_flip_sd(right: np.ndarray) -> float:
    """Standard deviation over seeds, in percent, if each test item were right by a coin of its own.

    Two seeds of one method differ in a share *d* of the items; independent flips then give the accuracy a standard
    deviation of ``100·sqrt(d / 2n)``. What a measured standard deviation has beyond it is of the whole network.

    ``right``: which items each of R seeds has right, boolean ``[R, N]``.
    """
    if right.ndim != 2 or len(right) < 2 or not right.shape[1]:
        raise reject("right", tuple(right.shape), "booleans [R, N] of at least two seeds and one item")
    seeds, items = right.shape
    share = np.asarray(right).sum(0) / seeds
    flips = float((share * (1 - share)).mean()) * seeds / (seeds - 1)
    return 100 * math.sqrt(flips / items)


_RULES = {count: np.polynomial.legendre.leggauss(count) for count in (16, 64)}


@cache
def crossing(level: float, looks: tuple[int, ...] = LOOKS) -> float:
    """Probability that a t test of this level finds a difference at one of several looks where there is none.

    Seed by seed differences are normal of one unknown variance. The cosine *u* between *n* of them and (1, …, 1) gives
    *t*, and *m* further ones take it to √(nw/(n+m)) u + √(m(1−w)/(n+m)) v, where *w* has the beta distribution of
    (n/2, m/2) and *v* is the cosine of a random direction in *m* dimensions: an integral over both for each look.

    ``level``: two-sided, of the t test at every look, above 0 and below 1. ``looks``: numbers of seeds, rising, the
    first at least 2 and each at least 2 more than the last.
    """
    steps = np.diff(looks)
    t = [-float(special.stdtrit(n - 1, level / 2)) for n in looks]
    edges = [value / math.sqrt(n - 1 + value * value) for value, n in zip(t, looks, strict=True)]
    nodes, weights = _RULES[16]
    places = -np.cos(np.pi * np.arange(33) / 32)
    later: Callable[[np.ndarray], np.ndarray] = np.ones_like  # of u: how likely no further look finds a difference
    for n, m, inner, outer in reversed(list(zip(looks, steps.tolist(), edges, edges[1:], strict=False))):
        x, mass = special.roots_jacobi(32, m / 2 - 1, n / 2 - 1)
        scale = np.sqrt(m * (1 - x) / 2)
        mean = np.sqrt(n * (1 + x) / 2) * (inner * places)[:, None]
        ends = (np.clip((side * outer * math.sqrt(n + m) - mean) / scale, -1, 1) for side in (-1, 1))
        low, high = (np.arcsin(end)[..., None] for end in ends)
        angle = (low + high) / 2 + (high - low) / 2 * nodes
        new = (mean[..., None] + scale[:, None] * np.sin(angle)) / math.sqrt(n + m)
        inside = (later(new) * _cosines(angle, m) * weights).sum(2) * (high - low)[..., 0] / 2
        later = interpolate.CubicSpline(inner * places, inside @ mass / mass.sum())
    nodes, weights = _RULES[64]
    first = math.asin(edges[0])
    never = first * float((later(np.sin(first * nodes)) * _cosines(first * nodes, looks[0])) @ weights)
    return min(1.0, max(level, 1 - never))  # what the integral leaves out is far below any level that matters


def _cosines(angle: np.ndarray, n: int) -> np.ndarray:
    """Density of the angle whose sine is the cosine between a random direction in n dimensions and a fixed one."""
    total = math.exp(special.gammaln((n - 1) / 2) - special.gammaln(n / 2)) * math.sqrt(math.pi)
    return np.asarray(np.cos(angle) ** (n - 2) / total)


@cache
def pocock(looks: tuple[int, ...] = LOOKS) -> float:
    """Level of a t test that finds a difference at one of the looks with probability 0.05 where there is none.

    The same at every look (Pocock 1977), but for a variance that is not known.
    """
    return float(optimize.brentq(lambda one: crossing(one, looks) - LEVEL, LEVEL / (2 * len(looks)), LEVEL, xtol=1e-12))


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
    limit = MARGIN if (published if sign is None else sign) == 0 else abs(published)
    out, p, large = [], 1.0, 1.0
    for n in (n for n in LOOKS if n <= len(array)):
        at = paired(array[:n].tolist(), pocock())
        se = float(array[:n].std(ddof=1)) / math.sqrt(n)
        beyond = (abs(at.mean) - limit) / se if se else math.copysign(math.inf, abs(at.mean) - limit)
        p, large = min(p, at.p), min(large, 1.0 if math.isnan(limit) else 2 * float(special.stdtr(n - 1, beyond)))
        out.append(Look(n, at, *(crossing(value) if 0 < value < 1 else value for value in (p, large))))
    return out or [Look(len(array), paired(array.tolist()), 1.0, 1.0)]


def detectable(sd: float, n: int) -> float:
    """The mean difference that a look at ``n`` seeds finds with 80 %: sd · (t of the look's level + t of 80 %) / √n."""
    return float(sd * (special.stdtrit(n - 1, 1 - pocock() / 2) + special.stdtrit(n - 1, 0.8)) / math.sqrt(n))


def holm(p: Sequence[float]) -> list[float]:
    """p-values adjusted for all of them together (Holm 1979): reject those at most 0.05."""
    order = np.argsort(p, kind="stable")
    stepped = (len(p) - np.arange(len(p))) * np.asarray(p)[order]
    adjusted = np.empty(len(p))
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, stepped))
    out: list[float] = adjusted.tolist()
    return out


def verdict(at: Look, p: float, p_large: float, sign: float) -> tuple[Verdict, float | None]:
    """What may be said of a claim after a look.

    *Same* or *opposite sign*: ``p`` is at most 0.05. *Not of the published size*: ``p_large`` is, and a sign is
    claimed; *no difference, as claimed*: ``p_large`` is, and ``sign`` is 0. With both stands the end of the interval
    that is further from 0. *Difference where none is claimed*: ``sign`` is 0, ``p`` at most 0.05, and the difference
    may be larger than :data:`MARGIN`. *Open*: anything else. Both p-values are adjusted by :func:`holm`.
    """
    if p <= LEVEL and sign:
        return ("same sign" if at.difference.mean * sign > 0 else "opposite sign"), None
    if p_large <= LEVEL:
        bound = max(abs(at.difference.low), abs(at.difference.high))
        return ("not of the published size" if sign else "no difference, as claimed"), bound
    return ("difference where none is claimed" if p <= LEVEL else "open"), None


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
    ended: dict[int, Decision] = {}
    for step in range(len(LOOKS)):
        now = [ended[k].at if k in ended else looks[min(step, len(looks) - 1)] for k, (looks, _) in enumerate(claims)]
        p, large = holm([at.p for at in now]), holm([at.p_large for at in now])
        every = [
            Decision(at, p[k], *verdict(at, p[k], large[k], sign))
            for k, (at, (_, sign)) in enumerate(zip(now, claims, strict=True))
        ]
        ended |= {k: one for k, one in enumerate(every) if k not in ended and one.verdict != "open"}
    return [replace(ended.get(k, one), p_holm=one.p_holm) for k, one in enumerate(every)]
