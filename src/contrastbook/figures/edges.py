"""The figure of the chapter on rings: accuracy, and the share of the query's class, against a ring's edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from contrastbook.evidence import inference
from contrastbook.figures.base import COLOURS, dress, subplots
from contrastbook.studies import ring_edges


def own_class_between(row: pd.Series, inner: int, outer: int) -> float:
    """Percent of the keys between two edges that are of the query's class, of a row of ``ring_edges.table``.

    The shares are of the closest 1, 2, 5, … percent, so both edges are among these, or 0 or 100.
    """

    def within(percent: int) -> float:
        """Keys of the query's class among the closest, in percent of all keys."""
        if percent == 0:
            return 0.0
        return percent * float(row[f"own_class_{percent}"]) / 100

    return 100 * (within(outer) - within(inner)) / (outer - inner)


def accuracy_by_edges(measured: pd.DataFrame) -> Figure:
    """Gains in linear accuracy over uniform negatives, paired by seed: by the outer edge, and by the inner one.

    Dots are seeds, a line joins the means. Beside them: how much of each region is of the query's class, for encoders
    that were trained with uniform negatives.

    Args:
        measured: rows of :func:`contrastbook.studies.ring_edges.table`.
    """
    figure, (by_outer, by_inner, shares) = subplots(1, 3, (10, 3.6))
    gains = measured["linear"] - measured["linear"].loc[(0, 100)]
    _draw(by_outer, gains, [(0, outer) for outer in ring_edges.OUTER], 1, "ball, from 0 %", "truth", "o")
    _draw(by_outer, gains, [(1, outer) for outer in ring_edges.OUTER], 1, "ring, from 1 %", "negative", "s")
    by_outer.set_xscale("log")
    by_outer.set_xticks(ring_edges.OUTER, [str(outer) for outer in ring_edges.OUTER])
    by_outer.minorticks_off()
    dress(by_outer, "outer edge (% of the keys)", "points above uniform negatives", "How far may negatives lie?")
    _draw(by_inner, gains, [(inner, 25) for inner in ring_edges.INNER], 0, "to 25 %", "positive", "D")
    by_inner.set_xticks(ring_edges.INNER)
    dress(by_inner, "inner edge (% of the keys)", "points above uniform negatives", "How much should be skipped?")
    uniform: Any = measured.loc[(0, 100)]
    regions = [(0, 1), (1, 2), (2, 5), (5, 10), (10, 25), (25, 50)]
    means = [np.mean([own_class_between(row, *region) for _, row in uniform.iterrows()]) for region in regions]
    shares.bar(range(len(regions)), means, color=COLOURS["other"])
    shares.set_xticks(range(len(regions)), [f"{low}–{high}" for low, high in regions], fontsize="small")
    dress(shares, "closest keys (%)", "of the query's class (%)", "Who is near?")
    for axes in (by_outer, by_inner):
        axes.axhline(0, color="0.4", lw=1, ls=":")
    return figure


def _draw(
    axes: Any, gains: pd.Series, edges: list[tuple[int, int]], axis: int, label: str, colour: str, marker: str
) -> None:
    """Gains of some pairs of edges, against the edge of number ``axis``."""
    means = []
    for pair in edges:
        values = gains.loc[pair].to_numpy()
        axes.plot([pair[axis]] * len(values), values, marker, color=COLOURS[colour], alpha=0.35, ms=4, mec="none")
        means.append(inference.paired(values.tolist()).mean)
    axes.plot([pair[axis] for pair in edges], means, marker + "-", color=COLOURS[colour], label=label)
