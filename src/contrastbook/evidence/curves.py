"""Learning curves of a table: what its runs say of themselves after every epoch, mean and range over the seeds.

Accuracy of the nearest neighbour is drawn where both rows of a pair have it, else the loss, whose level says nothing of
the encoder: harder negatives raise it. Losses of two kinds of objective are not drawn together.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
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
    lines = []
    for method in plan.rows:
        row = scores(plan, column, results, method, profile)
        for seed, curve in row.curves.items() if row else ():
            for point in curve:
                at = (method, plan.label(method), seed, int(point["epoch"]))
                lines += [(*at, name, point[name]) for name in MEASURES if name in point]
    return pd.DataFrame(lines, columns=["method", "label", "seed", "epoch", "measure", "value"])


def figure(plan: TablePlan, lines: pd.DataFrame) -> Figure | None:
    """A panel for each pair of the table with at least two seeds a row: mean over seeds, and a band from least to most.

    ``lines``: of :func:`frame`. ``None`` where no pair has the seeds, or anything in common that may be drawn.
    """
    seeds = lines.groupby("method")["seed"].nunique()
    repeated = [pair for pair in plan.pairs.items() if all(seeds.get(method, 0) > 1 for method in pair)]
    pairs = {pair: measure for pair in repeated if (measure := _measure(lines, pair))}
    if not pairs:
        return None
    drawn, panels = subplots_each(len(pairs), 3, (3.4, 3.0), least=5.0)
    words = []
    for axes, (pair, measure) in zip(panels, pairs.items(), strict=True):
        for method, line, colour in zip(pair, ("-", "--"), (BLUE, ORANGE), strict=True):
            mine = lines[(lines["method"] == method) & (lines["measure"] == measure)]
            by_epoch = mine.groupby("epoch")["value"].agg(["mean", "min", "max"])
            name = f"{escape.mathtext(plan.label(method))} ({seeds[method]} seeds)"
            axes.plot(by_epoch.index, by_epoch["mean"], line, color=colour, linewidth=1.5, label=name)
            axes.fill_between(by_epoch.index, by_epoch["min"], by_epoch["max"], color=colour, alpha=0.2, linewidth=0)
            words.append(f"{plan.label(method)} ends at {by_epoch['mean'].iloc[-1]:.2f} {MEASURES[measure]}")
        dress(axes, "epoch", MEASURES[measure])
    drawn.set_label(f"Learning curves, mean and range over seeds. {'; '.join(words)}.")
    return drawn


def _measure(lines: pd.DataFrame, pair: tuple[str, str]) -> str:
    """The most telling measure that both rows have; the loss only of one kind of objective. Empty: none."""
    one, other = (type(recipes.get(method).objective) for method in pair)
    here = lines[lines["method"].isin(pair)]
    shared = (name for name in MEASURES if here[here["measure"] == name]["method"].nunique() == len(pair))
    return next((name for name in shared if name != "loss" or one is other), "")
