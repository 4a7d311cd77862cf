"""Whether a difference between two methods is one: intervals, looks, several claims at once. Pure functions.

The rule by which claims are decided, stated before the runs:

1. Both arms of a claim are run with the same seeds 0, 1, 2, …, and so with the same order, views and weights as far as
   they share settings. The difference is taken seed by seed.
2. It is looked at after 8, 12 and 16 seeds (:data:`LOOKS`), and no more seeds are run once its interval excludes 0 or
   excludes the published gain. The interval pays for all three looks (Pocock 1977): at every one it is wider than a
   95 % t interval, so that all of them together hold the truth with 95 %, whenever one stops.
3. The claims of one table on one data set in one profile share a 5 % chance of a wrong sign (Holm 1979).
4. A printed difference within the deviations printed beside its rows claims no sign, and so does one whose sign the two
   printed rows contradict, or of which the paper says in words that there is none.

Differences are in the metric's unit; seeds are taken as independent and normal, which simulation in the tests forgives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from scipy import optimize, special, stats
from torch import Tensor

from contrastlab.errors import reject

__all__ = [
    "LOOKS", "MARGIN", "Decision", "Difference", "McNemar", "Verdict", "crossing", "decide", "holm", "mcnemar",
    "paired", "pocock", "unpaired", "verdict", "wobble",
]  # fmt: skip

LOOKS = (8, 12, 16)
"""Seeds after which a claim is looked at."""
MARGIN = 1.0
"""A claim that there is no difference is met by one that is certainly smaller than this, in the metric's unit."""
LEVEL = 0.05

Verdict = Literal["same sign", "opposite sign", "difference where none is claimed", "no difference larger than", "open"]


@dataclass(frozen=True)
class Difference:
    """A mean difference with a Student t interval.

    Args:
        mean: in the metric's unit.
        half_width: of the interval; infinite where there are too few values.
        p: two-sided, of no difference.
        df: degrees of freedom.
    """

    mean: float
    half_width: float
    p: float
    df: float

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.mean + self.half_width


def _t(mean: float, se: float, df: float, level: float) -> Difference:
    if df < 1:
        return Difference(mean, math.inf, 1.0, df)
    half = float(special.stdtrit(df, 1 - level / 2)) * se
    p = float(2 * special.stdtr(df, -abs(mean) / se)) if se > 0 else float(mean == 0)
    return Difference(mean, half, p, df)


def _values(name: str, values: Sequence[float]) -> np.ndarray:
    array = np.asarray(values, dtype=float)
    if array.ndim != 1 or not len(array) or not np.isfinite(array).all():
        raise reject(name, list(values), "a list of at least one finite number")
    return array


def paired(differences: Sequence[float], level: float = LEVEL) -> Difference:
    """Mean of differences taken seed by seed.

    Args:
        differences: one for each seed.
        level: 0.05 for a 95 % interval.

    Raises:
        ArgumentError: no value, or one that is not finite.
    """
    array = _values("differences", differences)
    n = len(array)
    se = float(array.std(ddof=1)) / math.sqrt(n) if n > 1 else math.inf
    return _t(math.fsum(array) / n, se, n - 1, level)


def unpaired(values: Sequence[float], base: Sequence[float], level: float = LEVEL) -> Difference:
    """Difference of two means whose seeds have nothing in common (Welch 1947).

    Args:
        values: of the method, one for each seed.
        base: of the base.
        level: 0.05 for a 95 % interval.

    Raises:
        ArgumentError: no value, or one that is not finite.
    """
    a, b = _values("values", values), _values("base", base)
    mean = math.fsum(a) / len(a) - math.fsum(b) / len(b)
    if min(len(a), len(b)) < 2:
        return Difference(mean, math.inf, 1.0, 0)
    parts = [float(x.var(ddof=1)) / len(x) for x in (a, b)]
    total = sum(parts)
    df = (
        total**2 / sum(v**2 / (len(x) - 1) for v, x in zip(parts, (a, b), strict=True))
        if total
        else len(a) + len(b) - 2
    )
    return _t(mean, math.sqrt(total), df, level)


@dataclass(frozen=True)
class McNemar:
    """Two networks on the same test items (McNemar 1947). It judges these two, not the methods that made them.

    Args:
        gain: difference in percent of the items.
        half_width: 95 %, of the items drawn.
        discordant: percent of the items that exactly one of them has right.
        p: exact and two-sided, of no difference.
    """

    gain: float
    half_width: float
    discordant: float
    p: float


def mcnemar(right: Tensor, base: Tensor) -> McNemar:
    """What two networks differ in on the same items.

    Args:
        right: which items the one has right, boolean ``[N]``.
        base: the same for the other.

    Raises:
        ArgumentError: not the same number of items, or none.
    """
    if right.shape != base.shape or right.ndim != 1 or not len(right):
        raise reject(
            "right", tuple(right.shape), f"booleans for the same items as base, {tuple(base.shape)}, at least 1"
        )
    n, gained, lost = len(right), int((right & ~base).sum()), int((base & ~right).sum())
    gain, share = (gained - lost) / n, (gained + lost) / n
    half = float(special.ndtri(1 - LEVEL / 2)) * math.sqrt(max(share - gain**2, 0.0) / n)
    p = float(stats.binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0
    return McNemar(100 * gain, 100 * half, 100 * share, p)


def wobble(right: Tensor) -> float:
    """Standard deviation over seeds, in percent, if each test item were right by a coin of its own.

    Two seeds of one method differ in a share *d* of the items; independent flips then give the accuracy a standard
    deviation of ``100·sqrt(d / 2n)``. What a measured standard deviation has beyond it is of the whole network.

    Args:
        right: which items each of R seeds has right, boolean ``[R, N]``.

    Raises:
        ArgumentError: fewer than two seeds, or no item.
    """
    if right.ndim != 2 or len(right) < 2 or not right.shape[1]:
        raise reject("right", tuple(right.shape), "booleans [R, N] of at least two seeds and one item")
    seeds, items = right.shape
    share = right.double().mean(0)
    flips = float((share * (1 - share)).mean()) * seeds / (seeds - 1)
    return 100 * math.sqrt(flips / items)


@cache
def crossing(critical: float, fractions: tuple[float, ...] = tuple(n / LOOKS[-1] for n in LOOKS)) -> float:
    """Probability that a Brownian motion's z leaves ``±critical`` at one of several looks (Armitage et al. 1969).

    Args:
        critical: of z, the same at every look.
        fractions: of the information at each look, rising to 1.

    Raises:
        ArgumentError: fractions that do not rise from above 0 to 1, or a negative critical value.
    """
    steps = np.diff((0.0, *fractions))
    if not fractions or (steps <= 0).any() or not math.isclose(fractions[-1], 1):
        raise reject("fractions", fractions, "numbers that rise from above 0 to 1")
    if critical < 0:
        raise reject("critical", critical, "a number of at least 0")
    nodes, weights = np.polynomial.legendre.leggauss(64)
    places, mass = np.zeros(1), np.ones(1)  # where the motion is and has not left, and with what probability
    inside = 0.0
    for fraction, step in zip(fractions, steps, strict=True):
        edge, sd = critical * math.sqrt(fraction), math.sqrt(step)
        upper, lower = ((side * edge - places) / sd for side in (1, -1))
        inside = float(mass @ (special.ndtr(upper) - special.ndtr(lower)))
        new = edge * nodes
        mass = (
            np.exp(-(((new[:, None] - places) / sd) ** 2) / 2) @ mass * weights * edge / (sd * math.sqrt(2 * math.pi))
        )
        places = new
    return max(0.0, 1 - inside)


@cache
def pocock(fractions: tuple[float, ...] = tuple(n / LOOKS[-1] for n in LOOKS), level: float = LEVEL) -> float:
    """Critical value of z that is crossed at one of the looks with probability ``level`` (Pocock 1977).

    Args:
        fractions: of the information at each look, rising to 1.
        level: two-sided.

    Raises:
        ArgumentError: fractions that do not rise from above 0 to 1.
    """
    return float(optimize.brentq(lambda c: crossing(c, fractions) - level, 0.5, 12.0, xtol=1e-10))


@dataclass(frozen=True)
class Decision:
    """Where the looks at one claim ended.

    Args:
        seeds: that the interval is of; those beyond the look that ended it are not in it.
        difference: with an interval that pays for all looks, or before the first look with a plain 95 % interval.
        p: of no difference, for all looks together; 1 before the first.
        looked: whether the first look was reached.
        ended: whether no more seeds are asked for.
    """

    seeds: int
    difference: Difference
    p: float
    looked: bool
    ended: bool


def decide(differences: Sequence[float], published: float, looks: tuple[int, ...] = LOOKS) -> Decision:
    """Look at differences after 8, 12 and 16 seeds; see the rule above.

    Args:
        differences: seed by seed, in the order of the seeds.
        published: the gain that is claimed; NaN where only its sign is, which nothing but 0 can exclude.
        looks: numbers of seeds, rising.

    Raises:
        ArgumentError: no value, or one that is not finite.
    """
    array = _values("differences", differences)
    reached = [n for n in looks if n <= len(array)]
    if not reached:
        return Decision(len(array), paired(array.tolist()), 1.0, False, False)
    fractions = tuple(n / looks[-1] for n in looks)
    level = 2 * float(special.ndtr(-pocock(fractions)))
    for n in reached:
        at = paired(array[:n].tolist(), level)
        decided = not (at.low <= 0 <= at.high and (math.isnan(published) or at.low <= published <= at.high))
        if decided or n == reached[-1]:
            break
    z = -float(special.ndtri(at.p / 2))
    p = min(1.0, crossing(z, fractions)) if z < 12 else 0.0
    return Decision(n, at, p, True, decided or n == looks[-1])


def holm(p: Sequence[float]) -> list[float]:
    """p-values adjusted for all of them together (Holm 1979): reject those at most 0.05."""
    order = sorted(range(len(p)), key=lambda k: p[k])
    out, worst = [1.0] * len(p), 0.0
    for rank, k in enumerate(order):
        worst = max(worst, min(1.0, (len(p) - rank) * p[k]))
        out[k] = worst
    return out


def verdict(
    decision: Decision, adjusted: float, published: float, sign: float | None = None
) -> tuple[Verdict, float | None]:
    """What may be said of a claim.

    *Same* or *opposite sign*: the adjusted p-value is at most 0.05. *No difference larger than x*: the interval
    excludes the published gain, and everything as far from 0; x is its end. *Difference where none is claimed*: the
    claimed sign is 0, the adjusted p-value at most 0.05, and the interval not within :data:`MARGIN`. *Open*: anything
    else, and whatever has not reached the first look.

    Args:
        decision: of the looks.
        adjusted: its p-value after :func:`holm`.
        published: the gain that is claimed; NaN where only its sign is, and then no x is far enough from it.
        sign: that is claimed: positive, negative or 0; by default that of ``published``.

    Returns:
        The verdict, and x where it has one.
    """
    sign = published if sign is None else sign
    if not decision.looked:
        return "open", None
    if adjusted <= LEVEL and sign:
        return ("same sign" if decision.difference.mean * sign > 0 else "opposite sign"), None
    bound = max(abs(decision.difference.low), abs(decision.difference.high))
    if bound < (abs(published) if sign else MARGIN):  # never, for NaN
        return "no difference larger than", bound
    return ("difference where none is claimed" if adjusted <= LEVEL and not sign else "open"), None
