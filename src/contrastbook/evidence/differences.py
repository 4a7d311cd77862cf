"""The differences that the papers claim: a row of a table set against another one, in a column.

*IRing − IR on CIFAR-10* is one. What was measured of it, and the verdict, is :mod:`contrastbook.evidence.claims`.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from contrastbook.evidence import searches
from contrastlab import tasks
from contrastlab.papers import Column, TablePlan
from contrastlab.support import shipped
from contrastlab.support.errors import NotApplicableError, UnknownNameError
from contrastlab.tables.plan import RANDOM_LAB

_TOML = resources.files("contrastbook.evidence").joinpath("stand_ins.toml")
STAND_INS: Mapping[str, str] = tomllib.loads(_TOML.read_text("utf-8"))
"""Data that may stand in for a paper's, and why."""


@dataclass(frozen=True)
class ClaimedDifference:
    """A row of a table set against another one in a column; the names of its fields are those of columns."""

    plan: TablePlan
    name: str
    column: Column
    method: str
    base: str
    published: float
    published_from: str
    sign: int

    def line(self) -> dict[str, Any]:
        """The values of :data:`contrastbook.evidence.claims.COLUMNS` that no run decides."""
        metric = tasks.metric(self.column.metric)
        method = self.plan.label(self.method)
        base = self.plan.label(self.base)
        return {
            "paper": self.plan.paper,
            "table": self.plan.table,
            "column": self.name,
            "stands_for": self.column.stands_for,
            "dataset": self.column.data,
            "on": self.column.on,
            "metric": metric.name,
            "unit": metric.gap,
            "claim": f"{method} − {base}",
            "method": self.method,
            "base": self.base,
            "published": self.published,
            "published_from": self.published_from,
            "claimed_sign": self.sign,
            "profile": "",
            "search": "",
            "verdict": "not run",
            "seeds": 0,
            "used": 0,
            "differences": "",
        }

    def search(self, profile: str) -> str:
        """The searches that chose the settings of both rows, joined by *and*; empty where a row was in none."""
        untrained = (self.plan.floor, RANDOM_LAB)
        names: list[str] = []
        for row in (self.method, self.base):
            if row in untrained:
                continue
            name = self.plan.search(self.column.data, row, profile)
            if not name or row not in _rows_of(name):
                return ""
            names.append(name)
        return " and ".join(dict.fromkeys(names))

    @property
    def stands_in(self) -> bool:
        """Whether the data of its column are the paper's, or may stand in for them."""
        if not self.column.stands_for:
            return True
        trained_on = self.column.data
        scored_on = self.column.on or trained_on
        return trained_on in STAND_INS and scored_on in STAND_INS


@cache
def _rows_of(search: str) -> tuple[str, ...]:
    return searches.read(shipped.folder("results") / f"searches/{search}.json").rows


def claimed_differences(plan: TablePlan, measured: Sequence[str]) -> Iterator[ClaimedDifference]:
    """The claims of a table: those that its own data can decide, then those that other ``measured`` data can."""
    columns = list(plan.columns.items())
    if columns:
        columns += _columns_on_other_data(plan, measured)
    for name, column in columns:
        for method, base in plan.comparisons:
            claim = _claim(plan, name, column, method, base)
            if claim is not None:
                yield claim


def _columns_on_other_data(plan: TablePlan, measured: Sequence[str]) -> list[tuple[str, Column]]:
    """Names and columns of a table on ``measured`` data that are not its own."""
    columns: list[tuple[str, Column]] = []
    for dataset in measured:
        if dataset in plan.datasets:
            continue
        # results on a folder that only another machine has are of no registered kind
        with suppress(NotApplicableError, UnknownNameError):
            for name, column in plan.select(dataset).items():
                if name.startswith(dataset):
                    columns.append((name, column))
                elif column.on:
                    columns.append((f"{dataset} to {name}", column))
                else:
                    columns.append((f"{dataset} {name}", column))
    return columns


def _claim(plan: TablePlan, name: str, column: Column, method: str, base: str) -> ClaimedDifference | None:
    """What a paper says of two rows in a column; ``None`` where it gives neither a number nor a sign."""
    printed = column.stands_for or name
    published, source = plan.published_difference(printed, method, base)
    sign = plan.claimed_sign(method, base)
    if published is None and sign is None:
        return None
    if published is None:
        published = math.nan
        source = "words"
    if sign is None:
        sign = _sign(plan, printed, method, base, published)
    return ClaimedDifference(plan, name, column, method, base, published, source, sign)


def _sign(plan: TablePlan, column: str, method: str, base: str, published: float) -> int:
    """Of a published difference; 0 where the numbers printed beside it say that it is none."""
    apart = plan.rows_apart(column, method, base)
    if apart is not None:
        contradicted = published * apart < 0
        if contradicted or _within_spread(plan, column, method, base, published):
            return 0
    return (published > 0) - (published < 0)


def _within_spread(plan: TablePlan, column: str, method: str, base: str, published: float) -> bool:
    """Whether a difference is below the standard deviations that are published of both rows."""
    sd_method = plan.published_sd(column, method)
    sd_base = plan.published_sd(column, base)
    if not sd_method or not sd_base:
        return False
    return abs(published) < math.hypot(sd_method, sd_base)
