"""Figures of information: bounds and their ceiling, shared views, several views, and seeds that decide a sign."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
import torch
from numpy.typing import NDArray
from plotly import subplots

from contrastbook.checks import require, require_integer
from contrastbook.figures.base import COLOURS, chart, dots, line
from contrastbook.studies import measurement, multiview
from contrastbook.studies.multiview import FOUR, PARTNERS, Graph
from contrastbook.theory import gaussians
from contrastlab.information import bounds, exact
from contrastlab.information.toys import JointGaussian
from contrastlab.support.errors import reject


def _both_forms(gaussian: JointGaussian, k: int) -> tuple[float, float]:
    # InfoNCE with the positive in the denominator and without, at the optimal critic, mean over whole batches
    x, y = gaussian.sample(max(2048, 4 * k) // k * k, torch.Generator().manual_seed(0))
    batches = [bounds.pairs(gaussian.log_ratio(a, b)) for a, b in zip(x.split(k), y.split(k), strict=True)]
    forms = (bounds.info_nce, bounds.leave_one_out)
    with_it, without = (torch.stack([form(p, n) for p, n in batches]).mean() for form in forms)
    return float(with_it), float(without)


def ceiling(
    nats: float = 5.0, dimension: int = 20, *, ks: Sequence[int] = (2, 4, 8, 16, 32, 64, 128, 256)
) -> go.Figure:
    """InfoNCE at the optimal critic against the number of terms K, for Gaussians of known mutual information."""
    require("nats", nats, 0)
    require_integer("dimension", dimension, 1)
    for k in ks:
        require_integer("ks", k, 2)
    gaussian = JointGaussian.with_information(nats, dimension)
    included, left_out = zip(*(_both_forms(gaussian, k) for k in ks), strict=True)
    lines = (
        ("InfoNCE", included, "positive", "solid", "circle"),
        ("positive left out: no lower bound", left_out, "negative", "dot", "x"),
        ("log K, the ceiling", [math.log(k) for k in ks], "ignored", "dash", "line-ew"),
        ("mutual information", [nats] * len(ks), "truth", "longdash", "line-ew"),
    )
    return chart(
        f"{nats:g} nats are there; {ks[-1]} terms show {included[-1]:.2f} of them, and no more than log {ks[-1]}"
        f" = {math.log(ks[-1]):.2f}",
        "terms in the denominator, K", "nats",
        *(line(name, list(ks), y, *look, marker={"symbol": symbol, "size": 8}) for name, y, *look, symbol in lines),
        xaxis={"type": "log", "tickvals": list(ks)}, yaxis_range=[0, max(8.0, 2.4 * nats)],
    )  # fmt: skip


def looseness(percent: float = 90.0, rho: float = 0.2) -> go.Figure:
    """VINCE with the closest ``percent`` % as negatives against the size of the critic, exact for K → ∞.

    The critic is a multiple a of the optimal one, for two Gaussians with correlation ``rho``.
    """
    require("percent", percent, 0, 100, open_low=True)
    require("rho", rho, -0.999, 0.999)
    a = np.linspace(0, 1.2, 25)
    # a constant critic is worth nothing
    value = np.array([0.0, *(gaussians.population(percent, scale=float(s), rho=rho).value for s in a[1:])])
    good = gaussians.population(percent, rho=rho)
    return chart(
        f"Closest {percent:g} %: {good.value:+.4f} nats at the good critic, at most {good.best:.4f}",
        "size a of the critic", "nats",
        line("VINCE, K → ∞", a, value, "negative"),
        line("mutual information", [0, 1.2], [gaussians.information(rho)] * 2, "truth", "longdash"),
        dots("largest", [good.best_scale], [good.best], "query", "diamond", 10),
        yaxis_range=[-0.15, 0.04],
    )  # fmt: skip


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
    require_integer("step", step, 0, len(GRAPHS) - 1)
    if measured and len(measured) != len(GRAPHS):
        raise reject("measured", f"{len(measured)} steps", f"accuracies of each of the {len(GRAPHS)} steps, or none")
    counts, nats = [], []
    for near, common in GRAPHS:
        ids = view_table(near, common)
        views = (ids[:, :, None] == np.arange(ids.max() + 1)).sum(1)
        counts.append(views @ views.T)
        nats.append(exact.Joint.of(views.T @ views).mutual_information)
    near, common = GRAPHS[step]
    parts = [f"{near} with each neighbour"] * (near > 0) + [f"{common} with everybody"] * (common > 0)
    share = f", {np.mean(measured[step]):.0f} % of the neighbours right" if measured else ""
    seeds = [(m, accuracy) for m, row in zip(nats, measured, strict=False) for accuracy in row]
    items = list(range(60))
    shared = go.Heatmap(
        x=items, y=items, z=counts[step].astype(np.int8), zmin=0, zmax=6, name="views in common", colorscale="Greys",
        showscale=False, xaxis="x2", yaxis="y2",
    )  # fmt: skip
    means = [float(np.mean(row)) for row in measured]
    return chart(
        f"Of six views it shares {' and '.join(parts) or 'none'}: {nats[step]:.2f} nats{share}",
        "information (nats)", "neighbours of the same class (%)",
        shared,
        dots("one seed", [m for m, _ in seeds], [a for _, a in seeds], "ignored", "circle-open", 7),
        line("mean", nats if measured else [], means, "positive", marker={"size": 7}),
        line("chance", [0, 4.25], [900 / 59] * 2, "other", "dot"),
        line("this graph", [nats[step]] * 2, [0, 100], "truth", "dash", width=3),
        yaxis_range=[0, 104], xaxis={"domain": [0.6, 1], "range": [-0.15, 4.4]},
        xaxis2={"domain": [0, 0.38], "title": "item", "anchor": "y2"},
        yaxis2={"title": "item", "autorange": "reversed", "anchor": "x2"},
    )  # fmt: skip


def kept_bits(room: int = 3) -> go.Figure:
    """Which shared bits four views keep, with ``room`` for at most 5 each, with a core view and in the full graph."""
    require_integer("room", room, 0, 5)
    held = [(bit, view, row) for row, bit in enumerate(FOUR) for view in FOUR[bit]]
    graphs: tuple[Graph, ...] = ("core", "full")
    words, squares = [], []
    for side, (graph, colour) in enumerate(zip(graphs, (COLOURS["truth"], COLOURS["negative"]), strict=True)):
        _, choices = multiview.kept(FOUR, graph, room)
        whole = [bit for bit in FOUR if choices[0][bit] == FOUR[bit]]
        tie = f" (one of {len(choices)})" if len(choices) > 1 else ""
        words.append(f"{graph} keeps {', '.join(whole) or 'nothing'}{tie}")
        # the same points in every state: a page that slides keeps the words of points that are gone
        stays = [view in choices[0][bit] for bit, view, _ in held]
        price = multiview.prices(FOUR, graph)
        fill = [colour if s else "white" for s in stays]
        look = {"color": fill, "size": 26, "symbol": "square", "line": {"color": colour, "width": 1.5}}
        ink = ["white" if s else COLOURS["query"] for s in stays]
        x, y, text = zip(*((view + 1 + 5 * side, row, f"{price[bit]:.0f}") for bit, view, row in held), strict=True)
        named = f"{graph} graph: filled is kept, open is dropped"
        squares.append(
            go.Scatter(x=x, y=y, mode="markers+text", name=named, text=text, marker=look, textfont_color=ink)
        )
    names = [f"{bit}: {', '.join(f'V{v + 1}' for v in views)}" for bit, views in FOUR.items()]
    ticks = [*range(1, 5), *range(6, 10)]
    return chart(
        f"Room for {room} bit{'s' * (room != 1)}: {'; '.join(words)}",
        "view: core graph left, full graph right", "bit, by the views that hold it",
        *squares,
        yaxis={"tickvals": list(range(len(FOUR))), "ticktext": names, "range": [len(FOUR) - 0.4, -0.6]},
        xaxis={"tickvals": ticks, "ticktext": [f"V{1 + k % 4}" for k in range(8)], "range": [0.3, 9.7]},
    )  # fmt: skip


def more_views(n_flip: float = 0.04) -> go.Figure:
    """Accuracy of the label from one number of the core view against how many views it has, a panel for each order."""
    require("n_flip", n_flip, 0, 0.5)
    orders = list(itertools.permutations(PARTNERS))
    curves = [[100 * multiview.best_code(order[:count], n_flip=n_flip)[0] for count in (1, 2, 3)] for order in orders]
    falls = [any(later < before for before, later in itertools.pairwise(curve)) for curve in curves]
    names = [", ".join(partner.removeprefix("sees ") for partner in order) for order in orders]
    figure = subplots.make_subplots(2, 3, shared_xaxes=True, shared_yaxes=True, subplot_titles=names)
    for k, (curve, fall) in enumerate(zip(curves, falls, strict=True)):
        colour = COLOURS["negative" if fall else "truth"]
        look = {"mode": "lines+markers", "line_color": colour, "name": names[k], "showlegend": False}
        figure.add_trace(go.Scatter(x=[2, 3, 4], y=curve, **look), row=1 + k // 3, col=1 + k % 3)
    title = f"n seen wrong in {100 * n_flip:g} %: in {sum(falls)} of {len(falls)} orders (orange) a further view harms"
    figure.update_layout(chart(title, "", "").layout)
    figure.update_layout(margin_t=75)
    figure.update_xaxes(tickvals=[2, 3, 4], range=[1.8, 4.2])
    figure.update_yaxes(range=[40, 108])
    figure.update_xaxes(title="views", title_standoff=2)
    figure.update_yaxes(title="accuracy of y (%)", col=1)
    return figure


def shared_information(room: int = 8) -> go.Figure:
    """Accuracy of eight label bits against the information of two views that share the first bits of sixteen."""
    require_integer("room", room, 1)
    curve = [100 * multiview.u_formula(shared, room=room) for shared in range(17)]
    return chart(
        f"Room for {room} numbers: best where the views share {np.argmax(curve)} bits, eight of them labels",
        "information of the two views (nats)", "accuracy of the labels (%)",
        line("formula", [shared * math.log(2) for shared in range(17)], curve, "truth", marker={}),
        line("all labels shared, nothing else", [8 * math.log(2)] * 2, [50, 100], "ignored", "dot"),
        yaxis_range=[48, 101],
    )  # fmt: skip


_SEEDS = {2: ("ignored", "dot"), 3: ("published", "dash"), 5: ("other", "longdash"), 8: ("negative", "solid"),
          16: ("truth", "dashdot")}  # fmt: skip


def power(sd: float = 0.6, gap: float = 1.0) -> go.Figure:
    """How likely a t test of n runs a side finds a true difference; sd and the title's gap in points."""
    require("sd", sd, 0, 10, open_low=True)
    require("gap", gap, 0, 10, open_low=True)
    gaps = np.linspace(0.05, 4, 80)
    needed = measurement.seeds_needed(gap, sd)
    found = {seeds: [100 * measurement.detection(float(g), sd, seeds) for g in gaps] for seeds in _SEEDS}
    return chart(
        f"Runs with a spread of {sd:g}: {needed} seeds a side find {gap:g} point{'s' * (gap != 1)} four times in five",
        "true difference (points)", "found, % of experiments",
        *(line(f"{seeds} seeds a side", gaps, found[seeds], *look) for seeds, look in _SEEDS.items()),
        line("four in five", [0, 4], [80, 80], "query", width=1),
        yaxis_range=[0, 102],
    )  # fmt: skip
