"""What is measured: every published table against the profiles, from stored results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from contrastlab.support import escape
from contrastlab.support.errors import NotApplicableError
from contrastlab.tables.numbers import plural
from contrastlab.tables.plan import TablePlan
from contrastlab.tables.plan import plan as read_plan
from contrastlab.tables.published import Table, plans
from contrastlab.tables.results import Heading, Result
from contrastlab.tables.show import Report, Reports

PROFILES = ("first", "pilot", "regime", "features", "laptop", "tuned", "fair", "paper-bf16", "paper")
"""Columns of the matrix beside smoke, which proves the path and stores no evidence."""


@dataclass(frozen=True)
class Evidence:
    """What is stored of one table for one data set of pre-training and one profile."""

    dataset: str
    profile: str
    rows: int  # with a number
    of: int  # published rows
    seeds: int  # the most of a row
    in_paper: bool = False  # whether the paper has numbers for these data

    def __str__(self) -> str:
        return f"{self.dataset}: {self.rows} of {self.of} rows, {self.seeds} {plural('seed', self.seeds)}"


def evidence(table: Table, stored: Iterable[Result | Heading]) -> tuple[Evidence, ...]:
    """What is stored of a table among results of any tables, also those that were first computed for another one."""
    if (table.paper, table.table) not in plans():
        return ()
    plan = read_plan(table.paper, table.table)

    @cache
    def setups(dataset: str, on: str, task: str, method: str, profile: str) -> set[str]:
        return _setups(plan, dataset, on, task, method, profile)

    groups: dict[tuple[str, str], dict[str, set[int]]] = {}  # by data set and profile: the seeds of each row
    for each in stored:
        if each.method not in plan.rows or each.profile not in plan.profiles:
            continue
        is_own = each.table == plan.name
        if is_own or each.setup_hash in setups(each.dataset, each.on, each.task, each.method, each.profile):
            rows = groups.setdefault((each.dataset, each.profile), {})
            rows.setdefault(each.method, set()).add(each.seed)
    datasets = _published_datasets(plan)
    records = []
    for (dataset, profile), rows in sorted(groups.items()):
        most_seeds = max(len(seeds) for seeds in rows.values())
        records.append(Evidence(dataset, profile, len(rows), len(plan.rows), most_seeds, dataset in datasets))
    return tuple(records)


def _setups(plan: TablePlan, dataset: str, on: str, task: str, method: str, profile: str) -> set[str]:
    """The hashes that a row's results of a task have today, one for each kind of column that shows the task."""
    try:
        columns = plan.select(dataset).values()
        shown = [column for column in columns if (column.on, column.task) == (on, task)]
        return {plan.setup_hash(column, method, profile) for column in shown}
    except NotApplicableError:  # data of a modality that the table does not speak of
        return set()


def _published_datasets(plan: TablePlan) -> set[str]:
    """Pre-training data that the paper prints numbers for."""
    datasets = set()
    for name, column in plan.columns.items():
        if any(plan.published_value(name, row) is not None for row in plan.rows):
            datasets.add(column.data)
    return datasets


def best_first(stored: Iterable[Evidence]) -> list[Evidence]:
    """What says most first, by profile, the paper's data, rows and seeds; one row, which compares nothing, comes last.

    Smoke runs are no evidence and left out.
    """
    evidence = [each for each in stored if each.profile in PROFILES]

    def weight(each: Evidence) -> tuple[bool, int, bool, int, int]:
        return each.rows > 1, PROFILES.index(each.profile), each.in_paper, each.rows, each.seeds

    return sorted(evidence, key=weight, reverse=True)


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
        if not self.others:
            return ""
        others = "; ".join(f"{each} ({each.profile})" for each in self.others)
        return f"Kept as well: {others}."

    def html(self) -> str:
        """For a page."""
        table = self.best.html() if self.best else ""
        if not self.line:
            return table
        return f'{table}<p class="{escape.LITERAL}">{escape.html(self.line)}</p>'

    _repr_html_ = html

    def __repr__(self) -> str:
        table = self.best.text() if self.best else ""
        return "\n".join(part for part in (table, self.line) if part)
