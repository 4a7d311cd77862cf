"""What is measured: every published table against the profiles, from stored results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from contrastlab.support import escape
from contrastlab.support.errors import NotApplicableError
from contrastlab.tables.plan import plan as read_plan
from contrastlab.tables.published import Table, plans
from contrastlab.tables.results import Result
from contrastlab.tables.show import Report, Reports

PROFILES = ("first", "pilot", "regime", "laptop", "tuned", "fair", "paper-bf16", "paper")
"""Columns of the matrix beside smoke, which proves the path and stores no evidence."""


@dataclass(frozen=True)
class Evidence:
    """What is stored of one table for one data set of pre-training and one profile."""

    dataset: str
    profile: str
    rows: int  # with a number
    of: int  # published rows
    seeds: int  # the most of a row
    printed: bool = False  # whether the paper prints numbers for these data

    def __str__(self) -> str:
        return f"{self.dataset}: {self.rows} of {self.of} rows, {self.seeds} seed{'s' if self.seeds > 1 else ''}"


def evidence(table: Table, stored: Iterable[Result]) -> tuple[Evidence, ...]:
    """What is stored of a table among results of any tables, also those that were first computed for another one."""
    if (table.paper, table.table) not in plans():
        return ()
    plan = read_plan(table.paper, table.table)
    found: dict[tuple[str, str], dict[str, set[int]]] = {}

    @cache
    def setups(dataset: str, method: str, profile: str) -> set[str]:
        try:
            return {plan.setup(column, method, profile) for column in plan.select(dataset).values()}
        except NotApplicableError:  # data of a modality that the table does not speak of
            return set()

    for r in stored:
        if r.method not in plan.rows or r.profile not in plan.profiles:
            continue
        if r.table == plan.name or r.setup in setups(r.dataset, r.method, r.profile):
            found.setdefault((r.dataset, r.profile), {}).setdefault(r.method, set()).add(r.seed)
    printed = {
        column.data
        for name, column in plan.columns.items()
        if any(plan.published_value(name, row) is not None for row in plan.rows)
    }
    return tuple(
        Evidence(dataset, profile, len(rows), len(plan.rows), max(map(len, rows.values())), dataset in printed)
        for (dataset, profile), rows in sorted(found.items())
    )


def best_first(found: Iterable[Evidence]) -> list[Evidence]:
    """What says most first, by profile, the paper's data, rows and seeds; smoke runs are no evidence and left out."""
    evidence = [each for each in found if each.profile in PROFILES]
    return sorted(evidence, key=lambda e: (PROFILES.index(e.profile), e.printed, e.rows, e.seeds), reverse=True)


@dataclass(frozen=True)
class BestEvidence:
    """The best evidence that is kept for the table ``name``, as a report, and what ``others`` there are."""

    name: str
    best: Report | Reports | None
    others: tuple[Evidence, ...] = ()

    @property
    def line(self) -> str:
        """The rest, or how to compute what is missing."""
        if self.best is None:
            command = f"contrastlab run {self.name} --profile laptop --seeds 0,1,2 --out results"
            return f"No result of {self.name} is kept yet. This computes some: {command}"
        others = "; ".join(f"{each} ({each.profile})" for each in self.others)
        return f"Kept as well: {others}." if others else ""

    def html(self) -> str:
        """For a page."""
        line = f'<p class="{escape.LITERAL}">{escape.html(self.line)}</p>' if self.line else ""
        return f"{self.best.html() if self.best else ''}{line}"

    _repr_html_ = html

    def __repr__(self) -> str:
        return "\n".join(filter(None, (self.best.text() if self.best else "", self.line)))
