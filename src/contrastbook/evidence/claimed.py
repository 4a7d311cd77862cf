"""Which differences the papers claim: those that a table prints, that follow from two of its rows, or said in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from contrastlab import tasks
from contrastlab.errors import NotApplicableError, UnknownNameError
from contrastlab.papers import Column, TablePlan
from contrastlab.report.rows import rows_apart
from contrastlab.results import Result


@dataclass(frozen=True)
class Claim:
    """A row of a table set against another one in a column.

    Args:
        published: the paper's difference; NaN where it says which is better and prints no number.
        sign: of the difference in the paper; 0 where it claims none.
    """

    plan: TablePlan
    name: str
    column: Column
    method: str
    base: str
    published: float
    source: str
    sign: int

    def line(self) -> dict[str, Any]:
        """The columns of :data:`contrastbook.evidence.claims.COLUMNS` that no run decides."""
        plan, metric = self.plan, tasks.metric(self.column.metric)
        return {
            "paper": plan.paper, "table": plan.table, "column": self.name, "stands_for": self.column.stands_for,
            "dataset": self.column.data, "on": self.column.on, "metric": metric.name, "unit": metric.gap,
            "claim": f"{plan.label(self.method)} − {plan.label(self.base)}", "method": self.method, "base": self.base,
            "published": self.published, "published_from": self.source, "claimed_sign": self.sign, "profile": "",
            "search": "", "verdict": "not run", "seeds": 0, "used": 0, "differences": "",
        }  # fmt: skip

    def search(self, profile: str) -> str:
        """The search that chose the settings of both rows; of two searches, both names."""
        names = [self.plan.search(self.column.data, row, profile) for row in (self.method, self.base)]
        return " and ".join(dict.fromkeys(names)) if all(names) else ""


def claimed(plan: TablePlan, results: Sequence[Result]) -> Iterator[Claim]:
    """The claims of a table, those first that its own data can decide, then those that stored results on others can."""
    columns = list(plan.columns.items())
    for dataset in sorted({r.dataset for r in results} - set(plan.datasets)) if columns else ():
        # results on a folder that only another machine has are of no registered kind
        with suppress(NotApplicableError, UnknownNameError):
            for name, column in plan.select(dataset).items():
                to = "" if name.startswith(dataset) else f"{dataset} to " if column.on else f"{dataset} "
                columns.append((to + name, column))
    for name, column in columns:
        for method, base in plan.comparisons:
            published, source = plan.published_difference(column.stands_for or name, method, base)
            words = plan.claimed_sign(method, base)
            if published is not None:
                sign = _sign(plan, column.stands_for or name, method, base, published) if words is None else words
                yield Claim(plan, name, column, method, base, published, source, sign)
            elif words is not None:
                yield Claim(plan, name, column, method, base, math.nan, "words", words)


def _sign(plan: TablePlan, column: str, method: str, base: str, published: float) -> int:
    """Of a published difference; 0 where the numbers printed beside it say that it is none."""
    apart = rows_apart(plan, column, method, base)
    if apart is not None:
        if published * apart < 0:
            return 0
        spreads = [plan.published_sd(column, row) for row in (method, base)]
        if all(spreads) and abs(published) < math.hypot(*(spread or 0.0 for spread in spreads)):
            return 0
    return (published > 0) - (published < 0)
