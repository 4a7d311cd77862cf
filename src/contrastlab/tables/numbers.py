"""Means with intervals, and where results come from in a sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from contrastlab.support.errors import check
from contrastlab.support.provenance import Provenance
from contrastlab.tables.results import Result


def signed(value: float, digits: int = 2, *, sign: bool = False) -> str:
    """A number with a proper minus sign, and a plus where ``sign`` asks for one."""
    plus = "+" if sign else ""
    return f"{value:{plus}.{digits}f}".replace("-", "−")


def plural(word: str, count: int) -> str:
    """A word that takes an s, with it unless there is one of it."""
    if count == 1:
        return word
    return f"{word}s"


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
        if self.half_width is None and self.sampling is None:
            return number
        if self.half_width is None:
            return f"{number} (± {self.sampling:.2f})"
        if self.seeds > 2:
            return f"{number} ± {self.half_width:.2f}"
        apart = self._half_range
        low = signed(self.mean - apart, sign=sign)
        high = signed(self.mean + apart, sign=sign)
        return f"{number} ({low} to {high})"

    @property
    def error(self) -> float | None:
        """95 % half-width over seeds; of one seed that of the test items; ``None`` where neither is known."""
        if self.half_width is not None:
            return self.half_width
        return self.sampling

    @property
    def bar(self) -> float | None:
        """How far a bar in a picture reaches to either side of the mean; ``None`` where nothing is known of the error.

        As :meth:`text` has it: the t interval over three seeds or more, both values of two, the sampling error of one.
        """
        if self.half_width is None:
            return self.sampling
        return self.half_width if self.seeds > 2 else self._half_range

    @property
    def _half_range(self) -> float:
        """Half the distance between the values of two seeds."""
        assert self.half_width is not None
        return self.half_width / _t_quantile(1)


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
    if where.gpu:
        return where.gpu
    return f"{where.cpu}, {where.threads} {plural('thread', where.threads)}"


def origin(results: Sequence[Result]) -> str:
    """Where results come from, in one sentence: seeds, days, code, packages, machine and time."""
    check(results, "results", [], "at least one stored result")
    provenances = [result.provenance for result in results]
    seeds = {result.seed for result in results}
    commits = {_commit(provenance) for provenance in provenances}
    versions = {provenance.versions.get("torch", "?") for provenance in provenances}
    machines = {machine(result) for result in results}
    seconds = [provenance.wall_s for provenance in provenances]
    parts = [
        f"{len(results)} results, {plural('seed', len(seeds))} {', '.join(map(str, sorted(seeds)))}",
        _days(provenances),
        f"code {', '.join(sorted(commits))}",
        f"torch {', '.join(sorted(versions))}",
        ", ".join(sorted(machines)),
        f"{math.fsum(seconds) / 3600:.1f} hours in all, {max(seconds) / 60:.0f} minutes the longest.",
    ]
    text = "; ".join(parts)
    if any(provenance.git_dirty for provenance in provenances):
        text += " A + is code with changes that were not committed."
    return text


def _commit(provenance: Provenance) -> str:
    """Nine digits of a commit, with a plus behind it where there were changes."""
    commit = (provenance.git_commit or "no commit")[:9]
    if provenance.git_dirty:
        return f"{commit}+"
    return commit


def _days(provenances: Sequence[Provenance]) -> str:
    """The day on which all were finished, or the first and the last day."""
    days = [provenance.finished.date().isoformat() for provenance in provenances]
    first = min(days)
    last = max(days)
    if first == last:
        return first
    return f"{first} to {last}"
