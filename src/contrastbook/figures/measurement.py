"""Figures of measurement: how many seeds decide a sign."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from contrastbook.figures.base import COLOURS, canvas, require
from contrastbook.studies import measurement

_SEEDS = ((2, "ignored", "dot"), (3, "published", "dash"), (5, "other", "longdash"), (8, "negative", "solid"),
          (16, "truth", "dashdot"))  # fmt: skip


def power(sd: float = 0.6, gap: float = 1.0) -> go.Figure:
    """How likely a t test of n runs a side is to find a difference, against the true difference.

    ``sd``: standard deviation over seeds of a run, points. ``gap``: the difference that the title speaks of, points.
    """
    require("sd", sd, 0, 10, open_low=True)
    require("gap", gap, 0, 10, open_low=True)
    gaps = np.linspace(0.05, 4, 80)
    needed = measurement.seeds_needed(gap, sd)
    figure = canvas(
        f"Runs with a spread of {sd:g}: {needed} seeds a side find {gap:g} point{'s' * (gap != 1)} four times in five",
        "true difference (points)", "found, % of experiments",
    )  # fmt: skip
    for seeds, colour, dash in _SEEDS:
        figure.add_scatter(
            x=gaps, y=[100 * measurement.detection(float(g), sd, seeds) for g in gaps], name=f"{seeds} seeds a side",
            mode="lines", line={"color": COLOURS[colour], "dash": dash},
        )  # fmt: skip
    figure.add_scatter(
        x=[0, 4], y=[80, 80], name="four in five", mode="lines", line={"color": COLOURS["query"], "width": 1},
    )  # fmt: skip
    figure.update_yaxes(range=[0, 102])
    return figure
