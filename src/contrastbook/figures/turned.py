"""Figures of tables whose columns turn one knob: accuracy against its value, and against the bound that it leaves."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from contrastbook.figures.tables import CYCLE, STYLES, panels
from contrastbook.studies import turned
from contrastlab import escape

_MARKERS = "osD^vP"


def by_value(lines: pd.DataFrame, knob: str, where: str, *, logarithmic: bool = False) -> Figure:
    """Accuracy against the value of a knob, a line for each method; bars reach from the least to the greatest seed.

    ``lines``: of :func:`contrastbook.studies.turned.frame`, with a number at the end of each column's name.
    """
    figure, axes = panels(size=(6.5, 3.8))
    words = []
    for k, (label, mine) in enumerate(lines.groupby("label", sort=False)):
        seeds = mine.assign(value=mine["column"].map(turned.value)).groupby("value")["accuracy"]
        mean, low, high = seeds.mean(), seeds.min(), seeds.max()
        axes.errorbar(
            mean.index, mean, [mean - low, high - mean], color=CYCLE[k % 7], marker=_MARKERS[k % 6],
            linestyle=STYLES[k % 7], label=escape.mathtext(label), capsize=3,
        )  # fmt: skip
        words.append(f"{label} is highest at {mean.idxmax():g}")
    if logarithmic:
        axes.set_xscale("log")
    axes.set_title(escape.mathtext(where), fontsize="small", loc="left")
    axes.set_xlabel(knob)
    axes.set_ylabel("1-NN accuracy (%)")
    if words:
        axes.legend(fontsize="small")
    axes.grid(axis="y", color="0.9")
    axes.spines[["top", "right"]].set_visible(False)
    figure.set_label(f"Accuracy against {knob}. {'; '.join(words) or 'Nothing run'}.")
    return figure


def against_bound(lines: pd.DataFrame, where: str) -> Figure:
    """Accuracy against the bound, a point for each column and method: mean over seeds, named by its column.

    A row without a bound, such as the untrained encoder, is a dashed line at its mean.

    ``lines``: of :func:`contrastbook.studies.turned.frame`.
    """
    figure, axes = panels(size=(7.5, 4.6))
    means = lines.groupby(["label", "column"], sort=False)[["bound", "accuracy"]].mean()
    for k, (label, mine) in enumerate(means.groupby("label", sort=False)):
        if mine["bound"].isna().all():
            axes.axhline(
                mine["accuracy"].mean(), color="0.4", linestyle="--", linewidth=1, label=escape.mathtext(label)
            )
            continue
        axes.plot(
            mine["bound"], mine["accuracy"], _MARKERS[k % 6], color=CYCLE[k % 7], label=escape.mathtext(label),
            markersize=7,
        )  # fmt: skip
        for column, bound, accuracy in mine.dropna().droplevel("label").itertuples():
            axes.annotate(column, (bound, accuracy), xytext=(5, 4), textcoords="offset points", fontsize="small")
    axes.set_title(escape.mathtext(where), fontsize="small", loc="left")
    axes.margins(x=0.15, y=0.12)
    axes.set_xlabel("bound on the information between two views, last epoch (nats)")
    axes.set_ylabel("1-NN accuracy (%)")
    if len(means):
        axes.legend(fontsize="small")
    axes.grid(color="0.9")
    axes.spines[["top", "right"]].set_visible(False)
    said = [f"{p.label} with {p.column}: {p.accuracy:.1f}" for p in means.reset_index().itertuples()]
    figure.set_label(f"Accuracy against the bound. {'; '.join(said) or 'Nothing run'}.")
    return figure
