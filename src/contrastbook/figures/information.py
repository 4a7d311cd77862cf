"""Figures of information: bounds and their ceiling, shared views, several views, and seeds that decide a sign."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
import torch
from numpy.typing import NDArray

from contrastbook.checks import require, require_integer
from contrastbook.figures.base import COLOURS, add_line, canvas
from contrastbook.studies import measurement, multiview
from contrastbook.studies.multiview import FOUR, PARTNERS, Graph
from contrastbook.theory import gaussians
from contrastlab.errors import reject
from contrastlab.theory import bounds, exact
from contrastlab.theory.toys import JointGaussian


def _both_forms(gaussian: JointGaussian, k: int, pairs: int, seed: int) -> tuple[float, float]:
    # InfoNCE with the positive in the denominator and without, at the optimal critic, mean over whole batches
    x, y = gaussian.sample(pairs // k * k, torch.Generator().manual_seed(seed))
    batches = [bounds.pairs(gaussian.log_ratio(a, b)) for a, b in zip(x.split(k), y.split(k), strict=True)]
    forms = (bounds.info_nce, bounds.leave_one_out)
    with_it, without = (torch.stack([form(p, n) for p, n in batches]).mean() for form in forms)
    return float(with_it), float(without)


def ceiling(
    nats: float = 5.0, dimension: int = 20, *, ks: Sequence[int] = (2, 4, 8, 16, 32, 64, 128, 256), pairs: int = 2048,
    seed: int = 0,
) -> go.Figure:  # fmt: skip
    """InfoNCE at the optimal critic against the number of terms K, for Gaussians of known mutual information."""
    require("nats", nats, 0)
    require_integer("dimension", dimension, 1)
    for k in ks:
        require_integer("ks", k, 2)
    gaussian = JointGaussian.with_information(nats, dimension)
    values = [_both_forms(gaussian, k, max(pairs, 4 * k), seed) for k in ks]
    bound = values[-1][0]
    figure = canvas(
        f"{nats:g} nats are there; {ks[-1]} terms show {bound:.2f} of them, and no more than log {ks[-1]}"
        f" = {math.log(ks[-1]):.2f}",
        "terms in the denominator, K", "nats", xaxis_type="log", yaxis_range=[0, max(8.0, 2.4 * nats)],
        xaxis_tickvals=list(ks),
    )  # fmt: skip
    lines = (
        ("InfoNCE", [v for v, _ in values], "positive", "solid", "circle"),
        ("positive left out: no lower bound", [v for _, v in values], "negative", "dot", "x"),
        ("log K, the ceiling", [math.log(k) for k in ks], "ignored", "dash", "line-ew"),
        ("mutual information", [nats] * len(ks), "truth", "longdash", "line-ew"),
    )
    for name, y, colour, dash, symbol in lines:
        add_line(figure, name, list(ks), y, colour, dash, marker={"symbol": symbol, "size": 8})
    return figure


def looseness(percent: float = 90.0, rho: float = 0.2, *, scales: int = 25) -> go.Figure:
    """VINCE with the closest ``percent`` % as negatives against the size of the critic, exact for K → ∞.

    The critic is a multiple a of the optimal one, for two Gaussians with correlation ``rho``.

    ``percent``: p, above 0 and at most 100. ``scales``: points on the curve, from a = 0 to 1.2.
    """
    require("percent", percent, 0, 100, open_low=True)
    require("rho", rho, -0.999, 0.999)
    information = gaussians.information(rho)
    a = np.linspace(0, 1.2, scales)
    # a constant critic is worth nothing
    value = np.array([0.0, *(gaussians.population(percent, scale=float(s), rho=rho).value for s in a[1:])])
    good = gaussians.population(percent, rho=rho)
    figure = canvas(
        f"Closest {percent:g} %: {good.value:+.4f} nats at the good critic, at most {good.best:.4f}",
        "size a of the critic", "nats",
    )  # fmt: skip
    add_line(figure, "VINCE, K → ∞", a, value, "negative")
    add_line(figure, "mutual information", [0, 1.2], [information] * 2, "truth", "longdash")
    figure.add_scatter(
        x=[good.best_scale], y=[good.best], name="largest", mode="markers",
        marker={"color": COLOURS["query"], "size": 10, "symbol": "diamond"},
    )  # fmt: skip
    figure.update_yaxes(range=[-0.15, 0.04])
    return figure


GRAPHS: tuple[tuple[int, int], ...] = (
    (0, 0), (1, 0), (2, 0), (3, 0), (2, 1), (2, 2), (1, 3), (1, 4), (0, 5), (0, 6),
)  # fmt: skip
"""Steps of :func:`collisions`: of an item's six views, how many each neighbour shares and how many everybody shares."""


def view_table(near: int, common: int, *, views: int = 6, circle: int = 10) -> NDArray[np.int64]:
    """A graph of shared views: items of six classes, each class a circle of neighbours.

    ``views``: views of an item, at least ``2·near + common``. Returns ``[6·circle, views]`` ids of views, from 0.
    """
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
    require_integer("step", step, 0)
    require("step", step, 0, len(GRAPHS) - 1)
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
    figure = canvas(
        f"Of six views it shares {' and '.join(parts) or 'none'}: {nats[step]:.2f} nats{share}",
        "information (nats)", "neighbours of the same class (%)", yaxis_range=[0, 104],
        xaxis={"domain": [0.6, 1], "range": [-0.15, 4.4]},
        xaxis2={"domain": [0, 0.38], "title": "item", "anchor": "y2"},
        yaxis2={"title": "item", "autorange": "reversed", "anchor": "x2"},
    )  # fmt: skip
    figure.add_heatmap(
        x=list(range(60)), y=list(range(60)), z=counts[step].astype(np.int8), zmin=0, zmax=6, name="views in common",
        colorscale="Greys", showscale=False, xaxis="x2", yaxis="y2",
    )  # fmt: skip
    figure.add_scatter(
        x=[m for m, row in zip(nats, measured, strict=False) for _ in row], y=[a for row in measured for a in row],
        name="one seed", mode="markers", marker={"color": COLOURS["ignored"], "symbol": "circle-open", "size": 7},
    )  # fmt: skip
    add_line(
        figure, "mean", nats if measured else [], [float(np.mean(row)) for row in measured], "positive",
        marker={"size": 7},
    )  # fmt: skip
    add_line(figure, "chance", [0, 4.25], [900 / 59] * 2, "other", "dot")
    add_line(figure, "this graph", [nats[step]] * 2, [0, 100], "truth", "dash", width=3)
    return figure


_GRAPHS: tuple[Graph, ...] = ("core", "full")


def kept_bits(room: int = 3) -> go.Figure:
    """Which shared bits four views keep, with ``room`` for at most 5 each, with a core view and in the full graph."""
    require_integer("room", room, 0)
    require("room", room, 0, 5)
    held = [(bit, view, row) for row, bit in enumerate(FOUR) for view in FOUR[bit]]
    words, kept = [], {}
    for graph in _GRAPHS:
        _, choices = multiview.kept(FOUR, graph, room)
        kept[graph] = choices[0]
        whole = [bit for bit in FOUR if choices[0][bit] == FOUR[bit]]
        tie = f" (one of {len(choices)})" if len(choices) > 1 else ""
        words.append(f"{graph} keeps {', '.join(whole) or 'nothing'}{tie}")
    figure = canvas(
        f"Room for {room} bit{'s' * (room != 1)}: {'; '.join(words)}", "view: core graph left, full graph right",
        "bit, by the views that hold it",
    )  # fmt: skip
    for side, (graph, colour) in enumerate(zip(_GRAPHS, ("truth", "negative"), strict=True)):
        # the same points in every state: a page that slides keeps the words of points that are gone
        stays = [view in kept[graph][bit] for bit, view, _ in held]
        price = multiview.prices(FOUR, graph)
        figure.add_scatter(
            x=[view + 1 + 5 * side for _, view, _ in held], y=[row for _, _, row in held], mode="markers+text",
            name=f"{graph} graph: filled is kept, open is dropped", text=[f"{price[bit]:.0f}" for bit, _, _ in held],
            marker={
                "color": [COLOURS[colour] if s else "white" for s in stays], "size": 26, "symbol": "square",
                "line": {"color": COLOURS[colour], "width": 1.5},
            },
            textfont={"color": ["white" if s else COLOURS["query"] for s in stays]},
        )  # fmt: skip
    names = [f"{bit}: {', '.join(f'V{v + 1}' for v in views)}" for bit, views in FOUR.items()]
    figure.update_yaxes(tickvals=list(range(len(FOUR))), ticktext=names, range=[len(FOUR) - 0.4, -0.6])
    ticks = [*range(1, 5), *range(6, 10)]
    figure.update_xaxes(tickvals=ticks, ticktext=[f"V{1 + k % 4}" for k in range(8)], range=[0.3, 9.7])
    return figure


def more_views(n_flip: float = 0.04) -> go.Figure:
    """Accuracy of the label from one number of the core view, against how many views it is compared with."""
    require("n_flip", n_flip, 0, 0.5)
    orders = list(itertools.permutations(PARTNERS))
    curves = {
        order: [100 * multiview.best_code(order[:count], n_flip=n_flip)[0] for count in (1, 2, 3)] for order in orders
    }  # fmt: skip
    falls = sum(any(later < before for before, later in itertools.pairwise(curve)) for curve in curves.values())
    figure = canvas(
        f"Nuisance seen wrong in {100 * n_flip:g} %: in {falls} of {len(orders)} orders a further view lowers accuracy",
        "views, the core view included", "accuracy of the label (%), curves drawn apart",
    )  # fmt: skip
    dashes = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
    colours = ("truth", "negative", "positive", "other", "published", "query")
    for shift, (order, curve) in enumerate(curves.items()):
        add_line(
            figure, " → ".join(order), [2, 3, 4], [value + 0.6 * shift for value in curve], colours[shift],
            dashes[shift], marker={},
        )  # fmt: skip
    figure.update_yaxes(range=[45, 108])
    figure.update_xaxes(tickvals=[2, 3, 4])
    return figure


def shared_information(room: int = 8) -> go.Figure:
    """Accuracy of eight label bits against the information of two views that share the first bits of sixteen."""
    require_integer("room", room, 1)
    shared = list(range(17))
    curve = [100 * multiview.u_formula(s, room=room) for s in shared]
    top = max(shared, key=lambda s: curve[s])
    figure = canvas(
        f"Room for {room} numbers: best where the views share {top} bits, eight of them labels",
        "information of the two views (nats)", "accuracy of the labels (%)",
    )  # fmt: skip
    add_line(figure, "formula", [s * math.log(2) for s in shared], curve, "truth", marker={})
    add_line(figure, "all labels shared, nothing else", [8 * math.log(2)] * 2, [50, 100], "ignored", "dot")
    figure.update_yaxes(range=[48, 101])
    return figure


_SEEDS = ((2, "ignored", "dot"), (3, "published", "dash"), (5, "other", "longdash"), (8, "negative", "solid"),
          (16, "truth", "dashdot"))  # fmt: skip


def power(sd: float = 0.6, gap: float = 1.0) -> go.Figure:
    """How likely a t test of n runs a side finds a true difference; sd and the title's gap in points."""
    require("sd", sd, 0, 10, open_low=True)
    require("gap", gap, 0, 10, open_low=True)
    gaps = np.linspace(0.05, 4, 80)
    needed = measurement.seeds_needed(gap, sd)
    figure = canvas(
        f"Runs with a spread of {sd:g}: {needed} seeds a side find {gap:g} point{'s' * (gap != 1)} four times in five",
        "true difference (points)", "found, % of experiments",
    )  # fmt: skip
    for seeds, colour, dash in _SEEDS:
        add_line(
            figure, f"{seeds} seeds a side", gaps, [100 * measurement.detection(float(g), sd, seeds) for g in gaps],
            colour, dash,
        )  # fmt: skip
    add_line(figure, "four in five", [0, 4], [80, 80], "query", width=1)
    figure.update_yaxes(range=[0, 102])
    return figure
