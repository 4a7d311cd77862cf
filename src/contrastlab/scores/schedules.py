"""How a percentile changes over a run (vince C.2, ring §4): a number, or ``Linear(100, 10)``; parts accept either."""

from __future__ import annotations

import math
from dataclasses import dataclass

from contrastlab.support.errors import is_number, reject


@dataclass(frozen=True)
class Linear:
    """From ``start`` to ``end`` in equal steps between two fractions of the run, constant outside."""

    start: float
    end: float
    until: float = 0.5  # fraction of all gradient steps at which end is reached (vince: 100 of 200 epochs)
    begin: float = 0.0  # fraction at which the change starts (vince's neighbour annealing: 10 of 200 epochs)

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            value = getattr(self, name)
            if not is_number(value):
                raise reject(name, value, "a finite number")
        for name in ("until", "begin"):
            value = getattr(self, name)
            if not is_number(value) or not 0 <= value <= 1:
                raise reject(name, value, "a number from 0 to 1")
        if self.begin >= self.until:
            raise reject("begin", self.begin, f"a fraction below until={self.until!r}")

    def value(self, step: int, total: int) -> float:
        """Value at gradient step ``step`` (from 0) of ``total``."""
        first = self.begin * total
        last = max(self.until * total - 1, first)
        if step >= last:
            return self.end
        if step <= first:
            return self.start
        return self.start + (self.end - self.start) * (step - first) / (last - first)


Percent = float | Linear


def at(percent: Percent, step: int, total: int) -> float:
    """The value of a number or schedule at gradient step ``step`` of ``total``."""
    if isinstance(percent, Linear):
        return percent.value(step, total)
    return percent


def bounds(percent: Percent) -> tuple[float, float]:
    """Smallest and largest value a number or schedule takes."""
    if isinstance(percent, Linear):
        return min(percent.start, percent.end), max(percent.start, percent.end)
    return percent, percent


def latex(percent: Percent) -> str:
    r"""The percentile in an equation, such as ``100\to10``."""
    if isinstance(percent, Linear):
        return rf"{percent.start:g}\to{percent.end:g}"
    return f"{percent:g}"


def check_percent(name: str, percent: Percent) -> None:
    """Reject a percentile or schedule outside 0 to 100, by the ``name`` of its argument."""
    if isinstance(percent, bool) or not isinstance(percent, int | float | Linear):
        raise reject(name, percent, "a percentage from 0 to 100 or a schedule of percentages")
    low, high = bounds(percent)
    if not 0 <= low <= high <= 100:
        raise reject(name, percent, "percentages from 0 to 100")


def rank(keys: int, percent: float) -> int:
    """``percent`` of ``keys``, rounded down, as decimal numbers have it: 32.3 % of 1,000 keys are 323."""
    return math.floor(keys * percent / 100 + 1e-9)
