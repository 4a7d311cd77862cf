"""Published beside measured: a table, a figure and plain sentences from stored results.

Intervals are 95 %, Student's t over seeds; one seed has the sampling error of the test items instead. Gains such as
IRing − IR are taken seed by seed, because both runs share data order and initialisation.
"""

from __future__ import annotations

from collections.abc import Iterable

from contrastlab.tables.numbers import Estimate, interval, machine, origin
from contrastlab.tables.plan import RANDOM, TablePlan
from contrastlab.tables.results import Result
from contrastlab.tables.rows import Row, Unavailable, make, scores, shared_note
from contrastlab.tables.show import Lines, Report, Reports, image
from contrastlab.tables.stored import PROFILES, BestEvidence, Evidence, best_first, evidence

__all__ = [
    "PROFILES",
    "BestEvidence",
    "Estimate",
    "Evidence",
    "Lines",
    "Report",
    "Reports",
    "Row",
    "Unavailable",
    "best_first",
    "columns",
    "evidence",
    "image",
    "interval",
    "machine",
    "origin",
    "scores",
    "table",
]


def table(
    plan: TablePlan, results: Iterable[Result | Unavailable], dataset: str, profile: str, *, column: str | None = None
) -> Report:
    """Published beside measured for one column in one profile; by default the first that the data set fills.

    Results of other data, another profile or row are left aside, so a whole folder may be given. If a row was run under
    several configurations, today's counts, else the newest, and a note says that others were left out. Reasons why a
    row is ``Unavailable`` are of this column.
    """
    plan.settings(dataset, RANDOM, profile)  # checks both names
    asked = "all" if column is None else [column]
    selected = plan.select(dataset, asked)
    name, of_report = next(iter(selected.items()))
    paper_column = name
    if of_report.stands_for:
        paper_column = ""  # a paper's numbers are of its own data
    stored: list[Result] = []
    missing: dict[str, str] = {}
    for each in results:
        if isinstance(each, Unavailable):
            missing[plan.resolve(each.method)] = each.reason
        else:
            stored.append(each)
    rows, cells = make(plan, paper_column, of_report, stored, profile, missing)
    data_notes = {cell.data_note for cell in cells if cell.data_note}
    return Report(
        plan,
        name,
        of_report,
        profile,
        tuple(rows),
        data_note="; ".join(sorted(data_notes)),
        published_note=shared_note(plan, paper_column),
    )


def columns(plan: TablePlan, results: Iterable[Result], dataset: str, profile: str) -> tuple[Report, ...]:
    """A :func:`table` for each column that has a number of some row; where none has, for the first."""
    kept = list(results)
    every = [table(plan, kept, dataset, profile, column=name) for name in plan.select(dataset)]
    return tuple(each for each in every if any(row.measured for row in each.rows)) or (every[0],)
