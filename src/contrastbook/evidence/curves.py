"""Learning curves of a table: what its runs say of themselves after every epoch, mean and range over the seeds.

Accuracy of the nearest neighbour is drawn where both rows of a pair have it, else the loss, whose level says nothing of
the encoder: harder negatives raise it. Losses of two kinds of objective are not drawn together.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from contrastbook.figures.base import BLUE, ORANGE, dress, subplots_each
from contrastlab import methods as recipes
from contrastlab.papers import Column, TablePlan
from contrastlab.support import escape
from contrastlab.tables.results import Result
from contrastlab.tables.rows import scores

MEASURES = {"nn1": "1-NN accuracy (%)", "loss": "loss (nats)"}
"""What a curve may show, most telling first."""


def frame(plan: TablePlan, column: Column, results: Sequence[Result], profile: str) -> pd.DataFrame:
    """Method, label, seed, epoch (from 1), measure (of :data:`MEASURES`) and value of a table's runs in a column."""
    rows: list[tuple[object, ...]] = []
    for method in plan.rows:
        row = scores(plan, column, results, method, profile)
        if row is None:
            continue
        for seed, curve in row.curves.items():
            for point in curve:
                for measure in MEASURES:
                    if measure in point:
                        epoch = int(point["epoch"])
                        rows.append((method, plan.label(method), seed, epoch, measure, point[measure]))
    return pd.DataFrame(rows, columns=["method", "label", "seed", "epoch", "measure", "value"])


def figure(plan: TablePlan, lines: pd.DataFrame) -> Figure | None:
    """A panel for each pair of the table with at least two seeds a row: mean over seeds, and a band from least to most.

    ``lines``: of :func:`frame`. ``None`` where no pair has the seeds, or anything in common that may be drawn.
    """
    measures: dict[tuple[str, str], str] = {}
    for pair in plan.pairs.items():
        if any(_seeds(lines, method) < 2 for method in pair):
            continue
        measure = _measure(lines, pair)
        if measure:
            measures[pair] = measure
    if not measures:
        return None
    drawn, panels = subplots_each(len(measures), 3, (3.4, 3.0), least=5.0)
    words: list[str] = []
    for axes, (pair, measure) in zip(panels, measures.items(), strict=True):
        for method, look in zip(pair, _LOOKS, strict=True):
            end = _draw(axes, plan, lines, method, measure, look)
            words.append(f"{plan.label(method)} ends at {end:.2f} {MEASURES[measure]}")
        dress(axes, "epoch", MEASURES[measure])
    drawn.set_label(f"Learning curves, mean and range over seeds. {'; '.join(words)}.")
    return drawn


_LOOKS = (("-", BLUE), ("--", ORANGE))
"""Line style and colour of the two rows of a pair."""


def _draw(
    axes: Axes,
    plan: TablePlan,
    lines: pd.DataFrame,
    method: str,
    measure: str,
    look: tuple[str, str],
) -> float:
    """Draw mean and range of a row; returns the mean after the last epoch."""
    style, colour = look
    of_row = lines[(lines["method"] == method) & (lines["measure"] == measure)]
    by_epoch = of_row.groupby("epoch")["value"].agg(["mean", "min", "max"])
    epochs = by_epoch.index
    name = f"{escape.mathtext(plan.label(method))} ({_seeds(lines, method)} seeds)"
    axes.plot(epochs, by_epoch["mean"], style, color=colour, linewidth=1.5, label=name)
    axes.fill_between(epochs, by_epoch["min"], by_epoch["max"], color=colour, alpha=0.2, linewidth=0)
    return float(by_epoch["mean"].iloc[-1])


def _seeds(lines: pd.DataFrame, method: str) -> int:
    """How many seeds a row has."""
    return int(lines.loc[lines["method"] == method, "seed"].nunique())


def _measure(lines: pd.DataFrame, pair: tuple[str, str]) -> str:
    """The most telling measure that both rows have; the loss only of one kind of objective. Empty: none."""
    objectives = {type(recipes.get(method).objective) for method in pair}
    of_pair = lines[lines["method"].isin(pair)]
    for measure in MEASURES:
        methods_with_it = of_pair.loc[of_pair["measure"] == measure, "method"].nunique()
        comparable = measure != "loss" or len(objectives) == 1
        if methods_with_it == len(pair) and comparable:
            return measure
    return ""
