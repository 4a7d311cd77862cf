"""Figures of stored results: the claims beside their published values, learning curves, accuracy against the bound.

Each draws a frame of :mod:`contrastbook.evidence`: :func:`forest` that of ``claims``, :func:`learning_curves` that of
``curves``, :func:`bound_scatter` that of ``bound``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from contrastbook.evidence import curves, inference, words
from contrastbook.evidence.words import Line
from contrastbook.figures.base import BLUE, MARKERS, ORANGE, dress, raised, subplots, subplots_each
from contrastlab.papers import TablePlan
from contrastlab.support import escape
from contrastlab.tables.numbers import signed

_KEY = (
    "dot: measured, filled with a verdict   tick: a seed   diamond: published, triangle: its sign   [seeds]\n"
    "Outside profile paper, sizes may not be compared."
)


def forest(lines: pd.DataFrame) -> Figure:
    """The measured claims of :func:`contrastbook.evidence.claims.frame`, sorted, explained by a key.

    The axis holds all that is drawn of nine tenths of the lines, and as much again. A number at an edge is the farthest
    value of a line that reaches beyond it.
    """
    by_gain = lines[lines["gain"].notna()].sort_values("gain", kind="stable", ascending=False)
    shown: Sequence[Line] = by_gain.to_dict("records")
    count = max(len(shown), 1)
    figure, axes = subplots(size=(8, 1.2 + 0.38 * count))
    edge = _edge(shown)
    for y, line in enumerate(shown):
        _draw_claim(axes, y, line)
        _number_beyond(axes, y, line, edge)
    left, right = np.clip(axes.get_xlim(), -edge, edge).tolist()
    axes.set_xlim(left, right)
    axes.axvline(0, color="0.4", ls="--", lw=1, zorder=1)
    axes.set_yticks(range(len(shown)), [_tick(line) for line in shown], fontsize="small")
    axes.set_ylim(count - 0.5, -0.5)
    units = ", ".join(sorted({line["unit"] for line in shown}))
    dress(axes, f"difference ({units or 'nothing has been run'})", "")
    figure.suptitle(_KEY, x=0.01, ha="left", fontsize="small")
    axes.grid(axis="x", color="0.9")
    axes.tick_params(axis="y", length=0)
    counts: list[str] = []
    for verdict, count_of_verdict in lines["verdict"].value_counts().items():
        counts.append(f"{verdict}: {count_of_verdict}")
    figure.set_label(f"Forest plot of measured beside published differences. Verdicts: {'; '.join(counts)}.")
    return figure


def _by_seed(line: Line) -> list[float]:
    """The differences of a line, seed by seed."""
    differences: list[float] = []
    for entry in line["differences"].split():
        _, _, difference = entry.partition(":")
        differences.append(float(difference))
    return differences


def _drawn_values(line: Line) -> list[float]:
    """All that is drawn of a line."""
    values = _by_seed(line)
    for name in ("gain", "low", "high", "published"):
        if words.is_number(line[name]):
            values.append(line[name])
    return values


def _edge(lines: Sequence[Line]) -> float:
    """How far the axis may reach: twice what holds nine tenths of the lines."""
    if not lines:
        return 1.0
    farthest: list[float] = []
    for line in lines:
        sizes = [abs(value) for value in _drawn_values(line)]
        farthest.append(max(sizes))
    farthest.sort()
    nine_tenths = int(0.9 * (len(farthest) - 1))
    return 2 * farthest[nine_tenths]


def _draw_claim(axes: Axes, y: int, line: Line) -> None:
    """Seeds, interval and mean of a line, and what is published."""
    seeds = _by_seed(line)
    axes.plot(seeds, [y] * len(seeds), "|", color="0.3", markersize=9, zorder=2.5)
    axes.plot([line["low"], line["high"]], [y, y], color=BLUE, linewidth=2, zorder=2)
    fill = "none" if line["verdict"] == "open" else "full"
    axes.plot(line["gain"], y, "o", color=BLUE, fillstyle=fill, markersize=7, zorder=3)
    place = line["published"]
    marker = "D"
    if not words.is_number(place):
        place = 0
        marker = ">" if line["claimed_sign"] > 0 else "<"
    axes.plot(place, y, marker, color=ORANGE, markerfacecolor="none", markersize=7, zorder=4)


def _number_beyond(axes: Axes, y: int, line: Line, edge: float) -> None:
    """Write the farthest values of a line that lie beyond the axis at its ends."""
    values = _drawn_values(line)
    for value in (min(values), max(values)):
        if abs(value) > edge:
            side = "left" if value < 0 else "right"
            end_of_axis = math.copysign(edge, value)
            axes.annotate(f"{value:+.0f}", (end_of_axis, y), ha=side)


def _tick(line: Line) -> str:
    """The claim, and below it column, profile and number of seeds."""
    claim = f"{words.table_of(line)}: {line['claim']}"
    where = f"{words.column_of(line)}, {line['profile']} [{line['used']}]"
    return f"{raised(escape.mathtext(claim))}\n{escape.mathtext(where)}"


def learning_curves(plan: TablePlan, lines: pd.DataFrame) -> Figure | None:
    """A panel for each pair of the table with at least two seeds a row: mean over seeds, and a band from least to most.

    ``lines``: of :func:`contrastbook.evidence.curves.frame`. ``None`` where no pair has the seeds, or anything in
    common that may be drawn.
    """
    measures = curves.measures(plan, lines)
    if not measures:
        return None
    figure, panels = subplots_each(len(measures), 3, (3.4, 3.0), least=5.0)
    ends: list[str] = []
    for axes, (pair, measure) in zip(panels, measures.items(), strict=True):
        title = curves.MEASURES[measure]
        of_measure = lines[lines["measure"] == measure]
        looks = (("-", BLUE), ("--", ORANGE))
        for method, (style, colour) in zip(pair, looks, strict=True):
            label = plan.label(method)
            of_method = of_measure[of_measure["method"] == method]
            end = _draw_curve(axes, label, of_method, style, colour)
            ends.append(f"{label} ends at {end:.2f} {title}")
        dress(axes, "epoch", title)
    figure.set_label(f"Learning curves, mean and range over seeds. {'; '.join(ends)}.")
    return figure


def _draw_curve(axes: Axes, label: str, lines: pd.DataFrame, style: str, colour: str) -> float:
    """Draw mean and range of a row; returns the mean after the last epoch."""
    by_epoch = lines.groupby("epoch")["value"].agg(["mean", "min", "max"])
    epochs = by_epoch.index
    name = f"{escape.mathtext(label)} ({lines['seed'].nunique()} seeds)"
    axes.plot(epochs, by_epoch["mean"], style, color=colour, linewidth=1.5, label=name)
    axes.fill_between(epochs, by_epoch["min"], by_epoch["max"], color=colour, alpha=0.2, linewidth=0)
    return float(by_epoch["mean"].iloc[-1])


def bound_scatter(lines: pd.DataFrame) -> Figure:
    """Accuracy against the bound, a panel for each data set and profile, a dot for each run.

    ``lines``: of :func:`contrastbook.evidence.bound.frame`.
    """
    groups = list(lines.groupby(["dataset", "profile"], sort=True))
    figure, panels = subplots_each(len(groups), 2, (4.6, 4.0))
    descriptions: list[str] = []
    for axes, ((dataset, profile), of_panel) in zip(panels, groups, strict=False):
        for number, (label, runs) in enumerate(of_panel.groupby("label", sort=True)):
            marker = MARKERS[number % len(MARKERS)]
            colour = f"C{number % 10}"
            axes.plot(runs["bound"], runs["accuracy"], marker, color=colour, alpha=0.8, label=label)
        correlation = _correlation_over_methods(of_panel)
        title = f"{dataset}, {profile}\n{correlation}"
        x = "bound on the information, last epoch (nats)"
        y = "linear accuracy (% of test images)"
        dress(axes, x, y, title, fontsize="x-small", ncols=2)
        descriptions.append(f"{dataset}, {profile}: {len(of_panel)} runs, {correlation}")
    text = "; ".join(descriptions) or "No run has a bound"
    figure.set_label(f"Scatter plot of accuracy against the bound. {text}.")
    return figure


def _correlation_over_methods(lines: pd.DataFrame) -> str:
    """The rank correlation of bound and accuracy in words; seeds of a method are no further methods."""
    means = lines.groupby("method")[["bound", "accuracy"]].mean()
    rho, low, high = inference.correlation(means["bound"].tolist(), means["accuracy"].tolist())
    if math.isnan(rho):
        return "too few methods for a correlation"
    interval = f"{signed(low, sign=True)} to {signed(high, sign=True)}"
    return f"rank correlation over methods {signed(rho, sign=True)} ({interval})"
