"""Means with intervals, and where results come from in a sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from contrastlab.support.errors import check
from contrastlab.tables.results import Result


def signed(value: float, digits: int = 2, *, sign: bool = False) -> str:
    """A number with a proper minus sign, and a plus where ``sign`` asks for one."""
    return f"{value:{'+' if sign else ''}.{digits}f}".replace("-", "−")


def _t_quantile(freedom: int) -> float:
    """97.5 % quantile of Student's t distribution."""
    from scipy import special  # takes longer to import than a list to print

    return float(special.stdtrit(freedom, 0.975))


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, in the metric's unit."""

    mean: float
    half_width: float | None  # of the 95 % t interval over seeds; None for one seed
    seeds: int
    sampling: float | None = None  # 95 % half-width of the test items' sampling error, where it is defined

    def text(self, sign: bool = False) -> str:
        """``83.90 ± 0.41``; of one seed ``83.90 (± 0.71)`` with the sampling error, or the number alone.

        Of two seeds both numbers, ``83.90 (83.70 to 84.10)``: their t interval is 12.7 times as wide.
        """
        number = signed(self.mean, sign=sign)
        if self.half_width is None:
            return number if self.sampling is None else f"{number} (± {self.sampling:.2f})"
        if self.seeds > 2:
            return f"{number} ± {self.half_width:.2f}"
        apart = self.half_width / _t_quantile(1)
        low, high = (signed(self.mean + side, sign=sign) for side in (-apart, apart))
        return f"{number} ({low} to {high})"


def interval(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and 95 % half-width of the Student t interval; the half-width of a single value is ``None``."""
    check(values, "values", list(values), "at least one number")
    n = len(values)
    mean = math.fsum(values) / n
    if n == 1:
        return mean, None
    return mean, float(_t_quantile(n - 1) * np.std(values, ddof=1) / math.sqrt(n))


def machine(result: Result) -> str:
    """What a result was computed on."""
    where = result.provenance
    return where.gpu or f"{where.cpu}, {where.threads} thread{'s' * (where.threads != 1)}"


def origin(results: Sequence[Result]) -> str:
    """Where results come from, in one sentence: seeds, days, code, packages, machine and time."""
    check(results, "results", [], "at least one stored result")
    where = [r.provenance for r in results]
    days = sorted({p.finished.date().isoformat() for p in where})
    commits = sorted({(p.git_commit or "no commit")[:9] + "+" * bool(p.git_dirty) for p in where})
    torch = sorted({p.versions.get("torch", "?") for p in where})
    seeds = sorted({r.seed for r in results})
    hours = math.fsum(p.wall_s for p in where) / 3600
    return (
        f"{len(results)} results, seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))};"
        f" {days[0]}{' to ' + days[-1] if len(days) > 1 else ''}; code {', '.join(commits)};"
        f" torch {', '.join(torch)}; {', '.join(sorted({machine(r) for r in results}))};"
        f" {hours:.1f} hours in all, {max(p.wall_s for p in where) / 60:.0f} minutes the longest."
        + (" A + is code with changes that were not committed." if any(p.git_dirty for p in where) else "")
    )
