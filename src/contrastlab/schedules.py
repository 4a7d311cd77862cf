"""How a percentile changes over a run.

A schedule is a small frozen value; ``value(step, total)`` is pure. A plain number is the constant
schedule, so parts accept either: ``Ring(inner=1, outer=Linear(100, 10))``.

Sources: vince C.2 (linear annealing), ring §4 and appendix G (linear, and the variants compared there).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from contrastlab.errors import is_integer, is_number, reject


def _check(name: str, value: float, low: float, high: float) -> None:
    if not (is_number(value) and low <= value <= high):
        raise reject(name, value, f"a number from {low:g} to {high:g}")


def _check_ends(start: float, end: float) -> None:
    # a comparison with NaN is false, so min and max of the two would hide it from check_percent
    for name, value in (("start", start), ("end", end)):
        if not is_number(value):
            raise reject(name, value, "a finite number")


@dataclass(frozen=True)
class Linear:
    """From ``start`` to ``end`` in equal steps between two fractions of the run, constant outside.

    Args:
        start: value up to ``begin``.
        end: value from ``until`` on.
        until: fraction of all gradient steps at which ``end`` is reached (vince: 100 of 200 epochs).
        begin: fraction at which the change starts (vince's neighbour annealing: 10 of 200 epochs).
    """

    start: float
    end: float
    until: float = 0.5
    begin: float = 0.0

    def __post_init__(self) -> None:
        _check_ends(self.start, self.end)
        _check("begin", self.begin, 0, 1)
        _check("until", self.until, 0, 1)
        if self.begin >= self.until:
            raise reject("begin", self.begin, f"a fraction below until={self.until!r}")

    def value(self, step: int, total: int) -> float:
        """Value at gradient step ``step`` (from 0) of ``total``."""
        first, last = self.begin * total, max(self.until * total - 1, self.begin * total)
        if step >= last:
            return self.end
        if step <= first:
            return self.start
        return self.start + (self.end - self.start) * (step - first) / (last - first)

    def range(self) -> tuple[float, float]:
        """Smallest and largest value taken."""
        return min(self.start, self.end), max(self.start, self.end)

    @property
    def latex(self) -> str:
        """``start → end`` for an equation."""
        return rf"{self.start:g}\to{self.end:g}"


@dataclass(frozen=True)
class Steps:
    """A staircase from ``start`` to ``end`` with ``levels`` equal stairs up to fraction ``until``."""

    start: float
    end: float
    until: float = 0.5
    levels: int = 10

    def __post_init__(self) -> None:
        _check_ends(self.start, self.end)
        _check("until", self.until, 0, 1)
        if not is_integer(self.levels, least=2):
            raise reject("levels", self.levels, "an integer of at least 2")

    def value(self, step: int, total: int) -> float:
        """Value at gradient step ``step`` (from 0) of ``total``."""
        stair = min(int(step * self.levels / max(self.until * total, 1)), self.levels - 1)
        return self.start + (self.end - self.start) * stair / (self.levels - 1)

    def range(self) -> tuple[float, float]:
        """Smallest and largest value taken."""
        return min(self.start, self.end), max(self.start, self.end)

    @property
    def latex(self) -> str:
        """``start → end`` in stairs, for an equation."""
        return rf"{self.start:g}\searrow{self.end:g}"


@dataclass(frozen=True)
class Exponential:
    """``end + (start − end)·exp(−rate·step)``, in gradient steps as in the released Ring code.

    With its rate of 0.1 the change is over after some fifty steps: in effect no annealing.
    """

    start: float
    end: float
    rate: float = 0.1

    def __post_init__(self) -> None:
        _check_ends(self.start, self.end)
        if not (is_number(self.rate) and self.rate > 0):
            raise reject("rate", self.rate, "a positive number per step")

    def value(self, step: int, total: int) -> float:
        """Value at gradient step ``step`` (from 0); ``total`` does not matter."""
        return self.end + (self.start - self.end) * math.exp(-self.rate * step)

    def range(self) -> tuple[float, float]:
        """Smallest and largest value approached."""
        return min(self.start, self.end), max(self.start, self.end)

    @property
    def latex(self) -> str:
        """``start ⇝ end`` for an equation."""
        return rf"{self.start:g}\leadsto{self.end:g}"


Schedule = Linear | Steps | Exponential
Percent = float | Schedule


def at(percent: Percent, step: int, total: int) -> float:
    """The value of a number or schedule at gradient step ``step`` of ``total``."""
    return percent.value(step, total) if isinstance(percent, Schedule) else percent


def bounds(percent: Percent) -> tuple[float, float]:
    """Smallest and largest value a number or schedule takes."""
    return percent.range() if isinstance(percent, Schedule) else (percent, percent)


def latex(percent: Percent) -> str:
    r"""The percentile in an equation, such as ``100\to10``."""
    return percent.latex if isinstance(percent, Schedule) else f"{percent:g}"


def check_percent(name: str, percent: Percent) -> None:
    """Reject a percentile or schedule outside 0 to 100.

    Raises:
        ArgumentError: with the name of the argument.
    """
    if isinstance(percent, bool) or not isinstance(percent, int | float | Schedule):
        raise reject(name, percent, "a percentage from 0 to 100 or a schedule of percentages")
    for value in bounds(percent):
        if not (math.isfinite(value) and 0 <= value <= 100):
            raise reject(name, percent, "percentages from 0 to 100")


def rank(keys: int, percent: float) -> int:
    """``percent`` of ``keys``, rounded down, as decimal numbers have it: 32.3 % of 1,000 keys are 323."""
    return math.floor(keys * percent / 100 + 1e-9)
