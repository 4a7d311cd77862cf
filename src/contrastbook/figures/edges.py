"""Figures of rings on the features of a frozen network: edges, whose keys they skip, and keys of one's own picture."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from contrastbook.evidence import inference
from contrastbook.figures.base import COLOURS, chart, dress, subplots
from contrastbook.studies import ring_edges
from contrastlab.support.errors import check_choice
from contrastlab.tables.numbers import signed

CLASS_SHARE = 10.0
"""Percent of the pictures of CIFAR-10 that are of one class."""


def own_class_between(row: pd.Series, inner: int, outer: int) -> float:
    """Percent of the keys between two edges that are of the query's class, of a row of ``ring_edges.table``.

    The shares are of the closest 1, 2, 5, … percent, so both edges are among these, or 0 or 100.
    """
    of_class = _own_class_within(row, outer) - _own_class_within(row, inner)
    return 100 * of_class / (outer - inner)


def _own_class_within(row: pd.Series, percent: int) -> float:
    """Keys of the query's class among the closest so many percent, in percent of all keys."""
    if percent == 0:
        return 0.0
    return percent * float(row[f"own_class_{percent}"]) / 100


def _mean_own_class(uniform: pd.DataFrame, inner: int, outer: int) -> float:
    """:func:`own_class_between` as a mean over the seeds of uniform negatives, a row each."""
    of_seeds = [own_class_between(row, inner, outer) for _, row in uniform.iterrows()]
    return float(np.mean(of_seeds))


def accuracy_by_edges(measured: pd.DataFrame) -> Figure:
    """Gains in linear accuracy over uniform negatives, paired by seed: by the outer edge, and by the inner one.

    Dots are seeds, a line joins the means. Beside them: how much of each region is of the query's class, for encoders
    that were trained with uniform negatives.

    Args:
        measured: rows of :func:`contrastbook.studies.ring_edges.table`.
    """
    figure, (by_outer, by_inner, shares) = subplots(1, 3, (10, 3.2))
    gains = measured["linear"] - measured["linear"].loc[(0, 100)]
    _draw_outer_edges(by_outer, gains)
    _draw_inner_edges(by_inner, gains)
    uniform: Any = measured.loc[(0, 100)]
    _draw_class_shares(shares, uniform)
    figure.set_label(
        "Points of accuracy above uniform negatives: of balls and rings by their outer edge, and of regions up to 25 % "
        "by their inner edge. A bar chart beside them: the closer the keys, the more are of the query's class."
    )
    return figure


def _draw_outer_edges(axes: Axes, gains: pd.Series) -> None:
    """Gains of balls and of rings from 1 %, against the outer edge."""
    balls = [(0, outer) for outer in ring_edges.OUTER]
    rings = [(1, outer) for outer in ring_edges.OUTER]
    _draw_gains(axes, gains, balls, ring_edges.OUTER, "ball, from 0 %", "truth", "o")
    _draw_gains(axes, gains, rings, ring_edges.OUTER, "ring, from 1 %", "negative", "s")
    axes.set_xscale("log")
    axes.set_xticks(ring_edges.OUTER, [str(outer) for outer in ring_edges.OUTER])
    axes.minorticks_off()
    axes.axhline(0, color="0.4", lw=1, ls=":")
    dress(axes, "outer edge (% of the keys)", "points above uniform negatives", "How far may negatives lie?")


def _draw_inner_edges(axes: Axes, gains: pd.Series) -> None:
    """Gains of rings to 25 %, against the inner edge."""
    rings = [(inner, 25) for inner in ring_edges.INNER]
    _draw_gains(axes, gains, rings, ring_edges.INNER, "to 25 %", "positive", "D")
    axes.set_xticks(ring_edges.INNER)
    axes.axhline(0, color="0.4", lw=1, ls=":")
    dress(axes, "inner edge (% of the keys)", "points above uniform negatives", "How much should be skipped?")


def _draw_class_shares(axes: Axes, uniform: pd.DataFrame) -> None:
    """How much of each region is of the query's class, the mean over seeds of uniform negatives."""
    regions = [(0, 1), (1, 2), (2, 5), (5, 10), (10, 25), (25, 50)]
    means = [_mean_own_class(uniform, low, high) for low, high in regions]
    names = [f"{low}–{high}" for low, high in regions]
    axes.bar(range(len(regions)), means, color=COLOURS["other"])
    axes.set_xticks(range(len(regions)), names, fontsize="small")
    dress(axes, "closest keys (%)", "of the query's class (%)", "Who is near?")


def _draw_gains(
    axes: Axes,
    gains: pd.Series,
    regions: Sequence[tuple[int, int]],
    edges: Sequence[int],
    label: str,
    colour: str,
    marker: str,
) -> None:
    """Gains of some regions, each against one of its edges: a dot for each seed, and a line through the means."""
    means: list[float] = []
    for region, edge in zip(regions, edges, strict=True):
        of_seeds = gains.loc[region].to_numpy()
        axes.plot([edge] * len(of_seeds), of_seeds, marker, color=COLOURS[colour], alpha=0.35, ms=4, mec="none")
        means.append(inference.paired(of_seeds.tolist()).mean)
    axes.plot(edges, means, marker + "-", color=COLOURS[colour], label=label)


def skipped(inner: int, *, measured: pd.DataFrame) -> go.Figure:
    """Whose keys a ring to 25 % skips (pale) and takes, and what it adds to uniform negatives.

    Args:
        inner: edge in percent of the keys, one of :data:`ring_edges.INNER`.
        measured: rows of :func:`contrastbook.studies.ring_edges.table`.
    """
    check_choice("inner", inner, ring_edges.INNER)
    edges = (*ring_edges.INNER, 25)
    uniform: Any = measured.loc[(0, 100)]
    names: list[str] = []
    shares: list[float] = []
    colours: list[str] = []
    for low, high in pairwise(edges):
        names.append(f"{low}–{high}")
        shares.append(_mean_own_class(uniform, low, high))
        colours.append(COLOURS["ignored"] if high <= inner else COLOURS["other"])
    gain = (measured["linear"].loc[(inner, 25)] - uniform["linear"]).mean()
    skipped_of_class = 0.0  # percent of the query's class that lies within the inner edge
    if inner:
        of_seeds = inner * uniform[f"own_class_{inner}"] / CLASS_SHARE
        skipped_of_class = of_seeds.mean()
    title = f"Skips {skipped_of_class:.0f} % of the query's class: {signed(gain, sign=True)} points"
    bars = go.Bar(x=names, y=shares, marker={"color": colours}, hovertemplate="%{y:.0f} %<extra></extra>")
    return chart(title, "closest keys (%)", "of the query's class (%)", bars, yaxis_range=[0, 60])


COMPARISONS = {
    "MoCo without own keys, above MoCo": (("ring/moco", False), ("ring/moco", True)),
    "MoCoRing, above MoCo": (("ring/mocoring", True), ("ring/moco", True)),
    "MoCoRing, above MoCo, both without own keys": (("ring/mocoring", False), ("ring/moco", False)),
}
"""What is compared, in words, to a row and its base: method, and whether the queue has own keys."""


def own_key_gains(measured: pd.DataFrame) -> dict[str, np.ndarray]:
    """Points of accuracy, seed by seed, of each of :data:`COMPARISONS`.

    Args:
        measured: rows of :func:`contrastbook.studies.own_keys.table`.
    """
    gains: dict[str, np.ndarray] = {}
    for words, (row, base) in COMPARISONS.items():
        difference = measured["linear"].loc[row] - measured["linear"].loc[base]
        gains[words] = difference.dropna().to_numpy()
    return gains


def without_own_keys(measured: pd.DataFrame) -> Figure:
    """Gains with and without older keys of the query's own picture: a dot for each seed, and 95 % t intervals.

    Args:
        measured: rows of :func:`contrastbook.studies.own_keys.table`.
    """
    figure, axes = subplots(1, 1, (7.5, 2.4))
    words: list[str] = []
    for place, (name, gains) in enumerate(own_key_gains(measured).items()):
        difference = inference.paired(gains.tolist())
        axes.plot(gains, [place] * len(gains), "o", color=COLOURS["truth"], alpha=0.35, mec="none")
        axes.errorbar(difference.mean, place, xerr=difference.half_width, fmt="D", color=COLOURS["truth"], capsize=3)
        words.append(f"{name}: {signed(difference.mean, sign=True)} points")
    axes.axvline(0, color="0.4", lw=1, ls=":")
    axes.set_yticks(range(len(COMPARISONS)), list(COMPARISONS))
    axes.set_ylim(len(COMPARISONS) - 0.5, -0.5)
    dress(axes, "points of accuracy", "")
    figure.set_label(f"Gains over eight seeds. {'; '.join(words)}.")
    return figure
