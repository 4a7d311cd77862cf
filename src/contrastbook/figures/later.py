"""Figures of the chapter on later methods: bound and accuracy along a training, two losses' readings, a comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from matplotlib.figure import Figure
from torch import Tensor

from contrastbook.evidence import inference
from contrastbook.figures.base import COLOURS, chart, line, subplots
from contrastbook.studies import later, shared_bits, sigmoid
from contrastbook.studies.shared_bits import Snapshot
from contrastlab.support.errors import check_positive
from contrastlab.tables.numbers import signed

LOOKS = ((0, "positive", "circle"), (4, "other", "diamond"), (8, "negative", "square"))
"""Bits, colour and marker of each encoder that is set side by side."""
SOURCES = {
    "negatives": ("negative", "o", "circle"),
    "no negatives": ("truth", "s", "square"),
    "labels": ("positive", "^", "triangle-up"),
}
"""Colour and markers, of both plotting libraries, by what a method learns from."""


def digits_and_scrambled(pixels: Tensor, scrambled: Tensor) -> Figure:
    """Some digits ``[N, 64]``, and below each the same digit with its grey levels exchanged."""
    figure, panels = subplots(2, len(pixels), (8, 2.2))
    for column, pair in enumerate(zip(pixels, scrambled, strict=True)):
        for panel, picture in zip(panels[:, column], pair, strict=True):
            panel.imshow(picture.view(shared_bits.SIDE, shared_bits.SIDE), cmap="gray_r", vmin=0, vmax=1)
            panel.set_xticks([])
            panel.set_yticks([])
    panels[0, 0].set_ylabel("digit")
    panels[1, 0].set_ylabel("exchanged")
    return figure


def bound_and_accuracy(step: int, runs: Mapping[int, Sequence[Sequence[Snapshot]]]) -> go.Figure:
    """Where the encoders of ``runs``, by number of shared bits, stand after ``step`` steps: a dot for each seed.

    A line is the way of the first seed so far. To the right the bound is larger, to the top the encoder is better.
    """
    traces = []
    for bits, colour, symbol in LOOKS:
        seeds = [[look for look in looks if look.step <= step] for looks in runs[bits]]
        way = seeds[0]
        traces.append(
            line("", [look.bound for look in way], [look.accuracy for look in way], colour, "dot").update(
                showlegend=False
            )
        )
        last = [looks[-1] for looks in seeds]
        name = f"{bits} shared bits" if bits else "the picture alone"
        marker = {"size": 13, "symbol": symbol, "opacity": 0.7}
        ends = line(name, [look.bound for look in last], [look.accuracy for look in last], colour, marker=marker)
        traces.append(ends.update(mode="markers"))
    return chart(
        f"After {step} steps",
        "InfoNCE bound on held-out pairs (nats)",
        "linear accuracy on digits (%)",
        *traces,
        xaxis_range=[-0.3, 5.7],
        yaxis_range=[0, 104],
    )


def readings(nats: float = 4.0, most: int = 32) -> go.Figure:
    """What InfoNCE and the sigmoid loss say of Gaussian pairs that share ``nats``, by number of candidates K."""
    check_positive(nats=nats)
    candidates = [2**power for power in range(1, int(math.log2(most)) + 1)]
    infonce = [sigmoid.fit("infonce", k, nats=nats).infonce for k in candidates]
    log_ratios = [sigmoid.fit("sigmoid", k, nats=nats).log_ratio for k in candidates]
    ceiling = np.log(candidates)
    return chart(
        f"Pairs that share {nats:g} nats",
        "candidates per query, K",
        "nats",
        line("ceiling log K", candidates, ceiling, "ignored", "dash"),
        line("InfoNCE", candidates, infonce, "negative", marker={"size": 9}),
        line("sigmoid loss, read as a log ratio", candidates, log_ratios, "positive", marker={"size": 9}),
        line("information", candidates, [nats] * len(candidates), "truth", "dot"),
        xaxis={"type": "log", "tickvals": candidates},
        yaxis_range=[0, max(nats, float(ceiling[-1])) * 1.15],
    )


def side_by_side(means: pd.DataFrame) -> Figure:
    """What was measured of each method, a panel for each measure, with 95 % intervals over seeds.

    Args:
        means: rows of :func:`contrastbook.studies.later.summary`. A dotted line marks the untrained encoder.
    """
    trained = means.drop(index=later.UNTRAINED, errors="ignore")
    trained = trained.sort_values("linear")
    places = np.arange(len(trained))
    figure, panels = subplots(1, len(later.MEASURES), (10, 0.32 * len(trained) + 1.2), sharey=True)
    for panel, (measure, words) in zip(panels, later.MEASURES.items(), strict=True):
        for source, (colour, marker, _) in SOURCES.items():
            mine = (trained["learns_from"] == source).to_numpy()
            values = trained[measure][mine]
            widths = trained[f"{measure}_half_width"][mine]
            panel.errorbar(values, places[mine], xerr=widths, fmt=marker, color=COLOURS[colour], label=source)
        if later.UNTRAINED in means.index:
            panel.axvline(means.loc[later.UNTRAINED, measure], color=COLOURS["query"], linestyle=":")
        panel.margins(x=0.1)
        panel.set_xlabel(words.replace(", ", ",\n").replace(" (", "\n("))
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(axis="y", color="#EEEEEE")
    panels[0].set_yticks(places, trained["label"])
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=len(SOURCES), title="learns from")
    return figure


def ranks(measure: str, means: pd.DataFrame) -> go.Figure:
    """Each method's rank by a measure and by linear accuracy, 1 for the lowest value.

    If the measure told the accuracy, the methods would lie on a diagonal. The title has Spearman's rank correlation and
    its 95 % interval.

    Args:
        measure: such as ``"bound"``, one of :data:`contrastbook.studies.later.MEASURES`.
        means: rows of :func:`contrastbook.studies.later.summary`.
    """
    trained = means.drop(index=later.UNTRAINED, errors="ignore")
    across = trained[measure].rank()
    up = trained["linear"].rank()
    traces = []
    for source, (colour, _, symbol) in SOURCES.items():
        mine = trained["learns_from"] == source
        trace = line(source, across[mine], up[mine], colour, marker={"size": 11, "symbol": symbol})
        trace.update(mode="markers+text", text=trained["label"][mine], textposition="top center", textfont={"size": 10})
        traces.append(trace)
    rho, low, high = inference.correlation(trained[measure].tolist(), trained["linear"].tolist())
    words = f"{signed(rho, sign=True)} ({signed(low, sign=True)} to {signed(high, sign=True)})"
    return chart(
        f"{later.MEASURES[measure]}: rank correlation with accuracy {words}",
        "rank by this measure, 1 is the lowest",
        "rank by linear accuracy, 1 is the lowest",
        *traces,
        xaxis_range=[0, len(trained) + 1],
        yaxis_range=[0, len(trained) + 1],
    )
