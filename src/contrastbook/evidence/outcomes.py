"""What came of a published table, in sentences: what was run, and which claims have which verdict.

:mod:`contrastbook.evidence.words` has a line for each claim; here all claims of one verdict share a sentence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pandas as pd

from contrastbook.evidence import words
from contrastbook.evidence.headlines import column_title, data_title
from contrastlab.papers import Entry
from contrastlab.tables.numbers import plural
from contrastlab.tables.report import Evidence, Report

OPEN = ("open", "not run")
"""What is no verdict."""

_NUMBERS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_MOST_NAMED = 3
"""So many claims of a sentence are named; more are counted."""

_WHY_OPEN = {
    "a row is not above an untrained encoder": "cannot be decided: a row is no better than an untrained encoder",
    "settings not searched for both rows": "{was} run with settings that no search chose, which decides nothing",
}
"""Reasons of ``words.sentence`` for leaving a claim open, after the names of the claims or their number."""
_VERDICTS = {
    "same sign": "the published sign{where}",
    "opposite sign": "the opposite sign{where}",
    "difference where none is claimed": "a clear sign{where}, where the paper claims no difference",
}
"""Verdicts, after the names of the claims and *has*."""


class Outcome(NamedTuple):
    """What came of a table."""

    head: str  # how many claims were run, or where none was, how many rows learnt something
    verdicts: list[str]  # a sentence each


def of_table(entry: Entry, run: Evidence, reports: Sequence[Report], lines: pd.DataFrame) -> Outcome:
    """What came of a table in one profile on one data set, those of ``run``.

    Args:
        entry: the table.
        run: what was run of it.
        reports: the table's columns as measured there.
        lines: of :func:`contrastbook.evidence.claims.frame`.
    """
    of_run = lines_of(entry, run, lines)
    mine = of_run[of_run["verdict"] != "not run"]
    if mine.empty:
        return Outcome(rows_above_floor(reports), [])
    decided_first = mine.sort_values("verdict", key=lambda verdicts: verdicts.isin(OPEN), kind="stable")
    claims_by_verdict: dict[str, list[str]] = {}
    for line in decided_first.to_dict("records"):
        claims_by_verdict.setdefault(words.sentence(line), []).append(line["claim"])
    head = f"We ran {number_in_words(len(mine))} of the claimed differences."
    return Outcome(head, [verdict_on(claims, verdict) for verdict, claims in claims_by_verdict.items()])


def lines_of(entry: Entry, run: Evidence, lines: pd.DataFrame) -> pd.DataFrame:
    """The claims of a table on the data set and in the profile of a run."""
    of_table = (lines["paper"] == entry.paper) & (lines["table"] == entry.table)
    of_run = (lines["dataset"] == run.dataset) & (lines["profile"] == run.profile)
    return lines[of_table & of_run]


def what_was_run(run: Evidence) -> str:
    """How much of a table, as in *We ran 6 of its 7 rows on CIFAR-10 with profile laptop, with up to 8 seeds*."""
    seeds = "one seed" if run.seeds == 1 else f"up to {run.seeds} seeds"
    rows = f"{run.rows} of its {run.of} rows"
    return f"We ran {rows} on {column_title(run.dataset)} with profile {run.profile}, with {seeds}."


def run_in_short(run: Evidence) -> str:
    """How much of a table, for a list: ``6 of 7 rows, 8 seeds, laptop, CIFAR-10``."""
    rows = f"{run.rows} of {run.of} rows"
    seeds = f"{run.seeds} {plural('seed', run.seeds)}"
    return ", ".join((rows, seeds, run.profile, data_title(run.dataset)))


def rows_above_floor(reports: Sequence[Report]) -> str:
    """How many measured numbers are above the untrained encoder, in a sentence."""
    above: list[bool] = []
    for report in reports:
        for row in report.rows:
            if row.kind == "method" and row.above_random is not None:
                above.append(row.above_random)
    if not above:
        return "No claimed difference was run."
    floor = reports[0].floor
    if all(above) and len(above) > 1:
        return f"Each of the {len(above)} numbers is above the {floor}."
    return f"{sum(above)} of {len(above)} numbers are above the {floor}."


def verdict_counts(lines: pd.DataFrame) -> dict[str, int]:
    """How many lines of :func:`contrastbook.evidence.claims.frame` have which verdict, most first; *open* is last."""
    has_run = lines["verdict"] != "not run"
    in_order = lines.loc[has_run, "verdict"].value_counts()
    by_verdict = {str(verdict): count for verdict, count in in_order.items()}
    undecided = by_verdict.pop("open", 0)
    if undecided:
        by_verdict["open"] = undecided
    return by_verdict


def verdict_on(claims: Sequence[str], verdict: str) -> str:
    """What was found of some claims, in one sentence; ``verdict``: of :func:`contrastbook.evidence.words.sentence`."""
    subject = _subject(claims)
    one = len(claims) == 1
    if verdict.startswith("open"):
        reason = verdict.removeprefix("open").strip(" ()")
        return f"{subject} {_why_open(reason, one)}."
    what, _, data_set = verdict.partition(", on ")
    where = f" on {column_title(data_set)}" if data_set else ""
    if what in _VERDICTS:
        has = "has" if one else "have"
        return f"{subject} {has} {_VERDICTS[what].format(where=where)}."
    size, _, bound = what.partition(": ")
    return f"{subject}: {bound}{where}, so {size}."


def _subject(claims: Sequence[str]) -> str:
    """The claims by name, or if they are many their number."""
    if len(claims) <= _MOST_NAMED:
        return enumeration(claims)
    return number_in_words(len(claims)).capitalize()


def _why_open(reason: str, one: bool) -> str:
    """Why there is no verdict on one claim or on several, as the end of a sentence; no reason is noise."""
    was = "was" if one else "were"
    if not reason and one:
        return "is undecided: its interval contains 0"
    if not reason:
        return "are undecided: their intervals contain 0"
    if reason.endswith("seeds"):
        there, _, needed = reason.removesuffix(" seeds").partition(" of ")
        has = "has" if one else "have"
        return f"{has} {there} of the {needed} seeds that a verdict needs"
    if reason.endswith("cannot stand in"):
        data_set = column_title(reason.removesuffix(" cannot stand in"))
        return f"{was} run on {data_set}, which cannot stand in for the paper's data"
    return _WHY_OPEN[reason].format(was=was)


def number_in_words(count: int) -> str:
    """A number as a sentence has it: in words up to twelve."""
    if count < len(_NUMBERS):
        return _NUMBERS[count]
    return str(count)


def enumeration(names: Sequence[str]) -> str:
    """``a``, ``a and b`` or ``a, b and c``; equal names, of several columns, once with their number."""
    texts: list[str] = []
    for name, columns in Counter(names).items():
        texts.append(f"{name} ({columns} columns)" if columns > 1 else name)
    *first, last = texts
    if not first:
        return last
    return f"{', '.join(first)} and {last}"


def heading(entries: Iterable[Entry]) -> str:
    """Several tables as their paper counts them: ``Tables 2b, 2c and 4``, or ``Table 1 and Figure 6``."""
    tables: list[str] = []
    figures: list[str] = []
    for entry in entries:
        if entry.table.startswith("figure"):
            figures.append(entry.table.removeprefix("figure"))
        else:
            tables.append(entry.table)
    parts: list[str] = []
    for kind, numbers in (("Table", tables), ("Figure", figures)):
        if numbers:
            parts.append(f"{plural(kind, len(numbers))} {enumeration(numbers)}")
    return " and ".join(parts)
