"""Figures of information: bounds and their ceiling, shared views, several views, and seeds that decide a sign."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import plotly.graph_objects as go
import torch
from numpy.typing import NDArray
from plotly import subplots

from contrastbook.figures.base import COLOURS, chart, dots, line
from contrastbook.studies import measurement, multiview
from contrastbook.studies.multiview import FOUR, PARTNERS, Graph, Holding
from contrastbook.theory import gaussians
from contrastlab.information import bounds, exact
from contrastlab.information.toys import JointGaussian
from contrastlab.support.errors import check_integer, check_range, reject


@cache
def _both_forms(nats: float, dimension: int, k: int) -> tuple[float, float]:
    """InfoNCE with the positive in the denominator and without, at the optimal critic, mean over whole batches."""
    gaussian = JointGaussian.with_information(nats, dimension)
    pairs = max(2048, 4 * k) // k * k
    x, y = gaussian.sample(pairs, torch.Generator().manual_seed(0))
    included = []
    left_out = []
    for x_batch, y_batch in zip(x.split(k), y.split(k), strict=True):
        positives, negatives = bounds.pairs(gaussian.log_ratio(x_batch, y_batch))
        included.append(bounds.info_nce(positives, negatives))
        left_out.append(bounds.leave_one_out(positives, negatives))
    return float(torch.stack(included).mean()), float(torch.stack(left_out).mean())


def ceiling(
    nats: float = 5.0, dimension: int = 20, *, ks: Sequence[int] = (2, 4, 8, 16, 32, 64, 128, 256)
) -> go.Figure:
    """InfoNCE at the optimal critic against the number of terms K, for Gaussians of known mutual information."""
    check_range("nats", nats, 0)
    check_integer("dimension", dimension, 1)
    for k in ks:
        check_integer("ks", k, 2)
    included, left_out = zip(*(_both_forms(nats, dimension, k) for k in ks), strict=True)
    log_ks = [math.log(k) for k in ks]

    def curve(name: str, values: Sequence[float], colour: str, dash: str, symbol: str) -> go.Scatter:
        return line(name, list(ks), values, colour, dash, marker={"symbol": symbol, "size": 8})

    return chart(
        f"{nats:g} nats are there; {ks[-1]} terms show {included[-1]:.2f} of them, and no more than log {ks[-1]}"
        f" = {log_ks[-1]:.2f}",
        "terms in the denominator, K",
        "nats",
        curve("InfoNCE", included, "positive", "solid", "circle"),
        curve("positive left out: no lower bound", left_out, "negative", "dot", "x"),
        curve("log K, the ceiling", log_ks, "ignored", "dash", "line-ew"),
        curve("mutual information", [nats] * len(ks), "truth", "longdash", "line-ew"),
        xaxis={"type": "log", "tickvals": list(ks)},
        yaxis_range=[0, max(8.0, 2.4 * nats)],
    )


def looseness(percent: float = 90.0, rho: float = 0.2) -> go.Figure:
    """VINCE with the closest ``percent`` % as negatives against the size of the critic, exact for K → ∞.

    The critic is a multiple a of the optimal one, for two Gaussians with correlation ``rho``.
    """
    check_range("percent", percent, 0, 100, above=True)
    check_range("rho", rho, -0.999, 0.999)
    sizes = np.linspace(0, 1.2, 25)
    values = [0.0]  # a constant critic is worth nothing
    for size in sizes[1:]:
        values.append(gaussians.population(percent, scale=float(size), rho=rho).value)
    good = gaussians.population(percent, rho=rho)
    return chart(
        f"Closest {percent:g} %: {good.value:+.4f} nats at the good critic, at most {good.best:.4f}",
        "size a of the critic",
        "nats",
        line("VINCE, K → ∞", sizes, np.array(values), "negative"),
        line("mutual information", [0, 1.2], [gaussians.information(rho)] * 2, "truth", "longdash"),
        dots("largest", [good.best_scale], [good.best], "query", "diamond", 10),
        yaxis_range=[-0.15, 0.04],
    )


GRAPHS = ((0, 0), (1, 0), (2, 0), (3, 0), (2, 1), (2, 2), (1, 3), (1, 4), (0, 5), (0, 6))
"""Steps of :func:`collisions`: of an item's six views, how many each neighbour shares and how many everybody shares."""


def view_table(near: int, common: int, *, views: int = 6, circle: int = 10) -> NDArray[np.int64]:
    """Ids ``[6·circle, views]`` of the views of items in six circles; ``near`` are shared with a neighbour."""
    count = 6 * circle
    item = np.arange(count)
    before = item - item % circle + (item - 1) % circle
    slots = [(count + 1) * k + item for k in range(views)]
    for k in range(near):
        slots[near + k] = (count + 1) * k + before
    for k in range(views - common, views):
        slots[k] = np.full(count, (count + 1) * k + count)
    ids: NDArray[np.int64] = np.unique(np.stack(slots, 1), return_inverse=True)[1].reshape(count, views)
    return ids


def collisions(step: int = 3, *, measured: Sequence[Sequence[float]] = ()) -> go.Figure:
    """A graph of shared views, the exact mutual information of two views, and what encoders made of it.

    Sixty items in six circles (the classes) have six views each; along the steps more and more of them are shared.

    ``step``: index into :data:`~contrastbook.figures.information.GRAPHS`; at 0 no view is shared, at the last all are.
    ``measured``: for each step the accuracies in percent, one for each seed; none are drawn where it is empty.
    """
    check_integer("step", step, 0, len(GRAPHS) - 1)
    if measured and len(measured) != len(GRAPHS):
        raise reject("measured", f"{len(measured)} steps", f"accuracies of each of the {len(GRAPHS)} steps, or none")
    incidences = [_incidence(near, common) for near, common in GRAPHS]
    nats = [exact.Joint.of(incidence.T @ incidence).mutual_information for incidence in incidences]
    in_common = incidences[step] @ incidences[step].T
    title = f"Of six views it shares {_sharing(*GRAPHS[step])}: {nats[step]:.2f} nats"
    if measured:
        title += f", {np.mean(measured[step]):.0f} % of the neighbours right"
    return chart(
        title,
        "information (nats)",
        "neighbours of the same class (%)",
        _matrix(in_common),
        *_measured_points(nats, measured),
        line("chance", [0, 4.25], [900 / 59] * 2, "other", "dot"),
        line("this graph", [nats[step]] * 2, [0, 100], "truth", "dash", width=3),
        yaxis_range=[0, 104],
        xaxis={"domain": [0.6, 1], "range": [-0.15, 4.4]},
        xaxis2={"domain": [0, 0.38], "title": "item", "anchor": "y2"},
        yaxis2={"title": "item", "autorange": "reversed", "anchor": "x2"},
    )


def _measured_points(nats: Sequence[float], measured: Sequence[Sequence[float]]) -> tuple[go.Scatter, go.Scatter]:
    """A dot for each seed and a line through the means; both are there, and empty, where nothing is measured."""
    nats_of_seeds: list[float] = []
    accuracies: list[float] = []
    means: list[float] = []
    for of_graph, of_seeds in zip(nats, measured, strict=False):
        nats_of_seeds += [of_graph] * len(of_seeds)
        accuracies += of_seeds
        means.append(float(np.mean(of_seeds)))
    nats_of_means = nats if measured else []
    return (
        dots("one seed", nats_of_seeds, accuracies, "ignored", "circle-open", 7),
        line("mean", nats_of_means, means, "positive", marker={"size": 7}),
    )


def _incidence(near: int, common: int) -> NDArray[np.int64]:
    """How often each item (row) has each view (column) in a :func:`view_table`."""
    ids = view_table(near, common)
    every = np.arange(ids.max() + 1)
    incidence: NDArray[np.int64] = (ids[:, :, None] == every).sum(1)
    return incidence


def _sharing(near: int, common: int) -> str:
    """A step of :data:`GRAPHS` in words."""
    parts = []
    if near > 0:
        parts.append(f"{near} with each neighbour")
    if common > 0:
        parts.append(f"{common} with everybody")
    return " and ".join(parts) or "none"


def _matrix(in_common: NDArray[np.int64]) -> go.Heatmap:
    """How many views each two items have in common, in grey."""
    items = list(range(len(in_common)))
    return go.Heatmap(
        x=items,
        y=items,
        z=in_common.astype(np.int8),
        zmin=0,
        zmax=6,
        name="views in common",
        colorscale="Greys",
        showscale=False,
        xaxis="x2",
        yaxis="y2",
    )


def kept_bits(room: int = 3) -> go.Figure:
    """Which shared bits four views keep, with ``room`` for at most 5 each, with a core view and in the full graph."""
    check_integer("room", room, 0, 5)
    _, core_choices = multiview.kept(FOUR, "core", room)
    _, full_choices = multiview.kept(FOUR, "full", room)
    findings = f"{_kept_in_words('core', core_choices)}; {_kept_in_words('full', full_choices)}"
    bits = "bit" if room == 1 else "bits"
    return chart(
        f"Room for {room} {bits}: {findings}",
        "view: core graph left, full graph right",
        "bit, by the views that hold it",
        _squares("core", core_choices[0], COLOURS["truth"], first_column=1),
        _squares("full", full_choices[0], COLOURS["negative"], first_column=6),
        yaxis={
            "tickvals": list(range(len(FOUR))),
            "ticktext": [f"{bit}: {', '.join(f'V{v + 1}' for v in views)}" for bit, views in FOUR.items()],
            "range": [len(FOUR) - 0.4, -0.6],
        },
        xaxis={
            "tickvals": [1, 2, 3, 4, 6, 7, 8, 9],
            "ticktext": ["V1", "V2", "V3", "V4"] * 2,
            "range": [0.3, 9.7],
        },
    )


def _kept_in_words(graph: Graph, choices: Sequence[Holding]) -> str:
    """Which bits a graph keeps in all their views, in the first of equally good choices."""
    whole = [bit for bit in FOUR if choices[0][bit] == FOUR[bit]]
    words = f"{graph} keeps {', '.join(whole) or 'nothing'}"
    if len(choices) > 1:
        words += f" (one of {len(choices)})"
    return words


def _squares(graph: Graph, kept: Holding, colour: str, *, first_column: int) -> go.Scatter:
    """A square for each bit in each view that holds it, filled where it is kept, with its price as text.

    The points are the same in every state: a page that slides keeps the words of points that are gone.
    """
    price = multiview.prices(FOUR, graph)
    columns, rows, prices, fills, inks = [], [], [], [], []
    for row, bit in enumerate(FOUR):
        for view in FOUR[bit]:
            fill = "white"
            ink = COLOURS["query"]
            if view in kept[bit]:
                fill = colour
                ink = "white"
            columns.append(first_column + view)
            rows.append(row)
            prices.append(f"{price[bit]:.0f}")
            fills.append(fill)
            inks.append(ink)
    return go.Scatter(
        x=columns,
        y=rows,
        mode="markers+text",
        name=f"{graph} graph: filled is kept, open is dropped",
        text=prices,
        marker={"color": fills, "size": 26, "symbol": "square", "line": {"color": colour, "width": 1.5}},
        textfont_color=inks,
    )


def more_views(n_flip: float = 0.04) -> go.Figure:
    """Accuracy of the label from one number of the core view against how many views it has, a panel for each order."""
    check_range("n_flip", n_flip, 0, 0.5)
    orders = list(itertools.permutations(PARTNERS))
    names = [", ".join(partner.removeprefix("sees ") for partner in order) for order in orders]
    figure = subplots.make_subplots(2, 3, shared_xaxes=True, shared_yaxes=True, subplot_titles=names)
    falling = 0
    for k, order in enumerate(orders):
        accuracies = [100 * multiview.best_code(order[:count], n_flip=n_flip)[0] for count in (1, 2, 3)]
        colour = COLOURS["truth"]
        if any(later < before for before, later in itertools.pairwise(accuracies)):
            colour = COLOURS["negative"]
            falling += 1
        curve = go.Scatter(
            x=[2, 3, 4], y=accuracies, mode="lines+markers", line_color=colour, name=names[k], showlegend=False
        )
        figure.add_trace(curve, row=1 + k // 3, col=1 + k % 3)
    title = f"n seen wrong in {100 * n_flip:g} %: in {falling} of {len(orders)} orders (orange) a further view harms"
    figure.update_layout(chart(title, "", "").layout)
    figure.update_layout(margin_t=75)
    figure.update_xaxes(tickvals=[2, 3, 4], range=[1.8, 4.2])
    figure.update_yaxes(range=[40, 108])
    figure.update_xaxes(title="views", title_standoff=2)
    figure.update_yaxes(title="accuracy of y (%)", col=1)
    return figure


def shared_information(room: int = 8) -> go.Figure:
    """Accuracy of eight label bits against the information of two views that share the first bits of sixteen."""
    check_integer("room", room, 1)
    accuracies = [100 * multiview.u_formula(shared, room=room) for shared in range(17)]
    nats = [shared * math.log(2) for shared in range(17)]
    return chart(
        f"Room for {room} numbers: best where the views share {np.argmax(accuracies)} bits, eight of them labels",
        "information of the two views (nats)",
        "accuracy of the labels (%)",
        line("formula", nats, accuracies, "truth", marker={}),
        line("all labels shared, nothing else", [nats[8]] * 2, [50, 100], "ignored", "dot"),
        yaxis_range=[48, 101],
    )


_LOOK_OF_SEEDS = {
    2: ("ignored", "dot"),
    3: ("published", "dash"),
    5: ("other", "longdash"),
    8: ("negative", "solid"),
    16: ("truth", "dashdot"),
}


def power(sd: float = 0.6, gap: float = 1.0) -> go.Figure:
    """How likely a t test of n runs a side finds a true difference; sd and the title's gap in points."""
    check_range("sd", sd, 0, 10, above=True)
    check_range("gap", gap, 0, 10, above=True)
    gaps = np.linspace(0.05, 4, 80)
    needed = measurement.seeds_needed(gap, sd)
    points = "point" if gap == 1 else "points"
    curves = []
    for seeds, (colour, dash) in _LOOK_OF_SEEDS.items():
        percent_found = [100 * measurement.power(float(each), sd, seeds) for each in gaps]
        curves.append(line(f"{seeds} seeds a side", gaps, percent_found, colour, dash))
    return chart(
        f"Runs with a spread of {sd:g}: {needed} seeds a side find {gap:g} {points} four times in five",
        "true difference (points)",
        "found, % of experiments",
        *curves,
        line("four in five", [0, 4], [80, 80], "query", width=1),
        yaxis_range=[0, 102],
    )
