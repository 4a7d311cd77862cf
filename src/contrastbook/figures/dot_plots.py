"""The measured rows of a published table as dots, in a panel for each column."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from contrastbook.evidence.headlines import column_title
from contrastbook.figures.base import BLUE, ORANGE, raised, subplots
from contrastlab.support import escape
from contrastlab.tables.report import Estimate, Report, Row

_WIDEST = 3
"""So many panels stand side by side."""


def of_rows(reports: Sequence[Report]) -> Figure:
    """A dot for each measured row, filled if above the untrained encoder (the dashed line); a panel for each column.

    Solid bars are t intervals over three seeds or more, dotted bars the range of two seeds or the sampling error of the
    test items of one. Published numbers of a single column have a panel and a scale of their own, unless the profile is
    the paper's. An axis label that all panels share stands below the figure, once.

    Args:
        reports: a table's columns, of one data set and profile.
    """
    rows = _measured_rows(reports)
    places = {row.method: y for y, row in enumerate(rows)}
    published_apart = _published_apart(reports, rows)
    labels = {_axis_label(report) for report in reports}
    one_label = len(labels) == 1 and len(reports) > 1
    count = len(reports) + bool(published_apart)
    figure, panels = _panels(count, len(rows), one_label=one_label)
    measured_panels = panels
    if published_apart:
        _draw_published(panels[0], published_apart)
        measured_panels = panels[1:]
    for axes, report in zip(measured_panels, reports, strict=False):
        _draw_measured(axes, report, places)
        title = column_title(report.name)
        if len(reports) == 1:
            title = f"measured: {title}, profile {report.profile}"
        axes.set_title(escape.mathtext(title), fontsize="medium", loc="left")
        if not one_label:
            letters = 80 // min(count, _WIDEST)
            axes.set_xlabel(textwrap.fill(_axis_label(report), letters))
    if one_label:
        figure.supxlabel(labels.pop(), fontsize="medium")
    _dress_panels(panels, rows)
    figure.set_label(_in_words(reports))
    return figure


def _measured_rows(reports: Sequence[Report]) -> list[Row]:
    """The rows that have a number in some column: those of the first column in its order, then what others add."""
    measured: dict[str, Row] = {}
    for report in reports:
        for row, _ in report.drawn:
            measured[row.method] = row
    in_order = dict.fromkeys(row.method for report in reports for row in report.rows)
    return [measured[method] for method in in_order if method in measured]


def _published_apart(reports: Sequence[Report], rows: Sequence[Row]) -> dict[int, float]:
    """Published numbers by the place of their row, if they have a panel of their own; else none."""
    published: dict[int, float] = {}
    if len(reports) > 1 or reports[0].comparable:
        return published
    for y, row in enumerate(rows):
        if row.published is not None:
            published[y] = row.published
    return published


def _axis_label(report: Report) -> str:
    """The metric and its unit."""
    unit = report.metric.unit
    if unit == "percent":
        unit = f"% of {report.metric.items}"
    return f"{report.metric.label} ({unit})"


def _panels(count: int, rows: int, *, one_label: bool) -> tuple[Figure, list[Axes]]:
    """A figure with at least ``count`` panels, high enough for the rows and for the labels of the axes."""
    columns = min(count, _WIDEST)
    lines = math.ceil(count / columns)
    height_of_labels = 0.55 if one_label else 0.75
    height_of_row = 0.4 if lines == 1 else 0.26
    height = 0.5 + (height_of_labels + height_of_row * max(rows, 1)) * lines
    figure, grid = subplots(lines, columns, (8, height), sharey=True, squeeze=False)
    return figure, list(grid.flat)


def _draw_published(axes: Axes, published: Mapping[int, float]) -> None:
    """Published numbers by the place of their row."""
    axes.plot(list(published.values()), list(published), "D", color=ORANGE, markersize=7)
    axes.set_title("published, on a scale of its own", fontsize="medium", loc="left")
    axes.set_xlabel("as in the paper")


def _draw_measured(axes: Axes, report: Report, places: Mapping[str, int]) -> None:
    """The numbers of a column, each at the place of its row."""
    for row, number in report.drawn:
        y = places[row.method]
        _draw_bar(axes, y, number)
        if report.comparable and row.published is not None:
            axes.plot(row.published, y, "D", color=ORANGE, markerfacecolor="none", markersize=8, zorder=3)
        is_floor = row.method == report.plan.floor
        is_open = is_floor or row.above_random is False
        face = "white" if is_open else BLUE
        axes.plot(number.mean, y, "o", color=BLUE, markerfacecolor=face, markersize=8, zorder=3)
        if is_floor:
            axes.axvline(number.mean, color="0.4", ls="--", lw=1, zorder=1)


def _draw_bar(axes: Axes, y: int, number: Estimate) -> None:
    """The error of a number, where one is known; dotted below three seeds."""
    if number.bar is None:
        return
    style = "-" if number.seeds > 2 else ":"
    ends = [number.mean - number.bar, number.mean + number.bar]
    axes.plot(ends, [y, y], color=BLUE, ls=style, lw=2, zorder=2)


def _dress_panels(panels: Sequence[Axes], rows: Sequence[Row]) -> None:
    """The names of the rows from top to bottom, and no frame; panels in which nothing is drawn are hidden."""
    names = [raised(escape.mathtext(row.label)) for row in rows]
    for axes in panels:
        axes.set_visible(axes.has_data() or axes is panels[0])
        axes.set_yticks(range(len(rows)), names)
        axes.set_ylim(max(len(rows), 1) - 0.5, -0.5)
        axes.grid(axis="x", color="0.9")
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)


def _in_words(reports: Sequence[Report]) -> str:
    """The figure for those who do not see it."""
    columns: list[str] = []
    for report in reports:
        numbers = [f"{row.label} {number.text()}" for row, number in report.drawn]
        columns.append(f"{report.name}: {', '.join(numbers)}")
    first = reports[0]
    table = f"{first.plan.paper} {first.plan.heading}, profile {first.profile}"
    return f"Dot plot of {table}. {'; '.join(columns)}."
