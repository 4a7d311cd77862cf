"""Figures of several views: which bits are kept, whether another view helps, what the best views share."""

from __future__ import annotations

import itertools
import math

import plotly.graph_objects as go

from contrastbook.figures.base import COLOURS, canvas, require, require_integer
from contrastbook.studies import multiview
from contrastbook.studies.multiview import FOUR, PARTNERS, Graph

_GRAPHS: tuple[Graph, ...] = ("core", "full")


def kept_bits(room: int = 3) -> go.Figure:
    """Which shared bits four views keep when each has room for a few, with a core view and in the full graph.

    ``room``: bits that each view can keep, at most 5.
    """
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
        figure.add_scatter(
            x=[2, 3, 4], y=[value + 0.6 * shift for value in curve], mode="lines+markers", name=" → ".join(order),
            line={"dash": dashes[shift], "color": COLOURS[colours[shift]]},
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
    figure.add_scatter(
        x=[s * math.log(2) for s in shared], y=curve, mode="lines+markers", name="formula",
        line={"color": COLOURS["truth"]},
    )  # fmt: skip
    figure.add_scatter(
        x=[8 * math.log(2)] * 2, y=[50, 100], mode="lines", name="all labels shared, nothing else",
        line={"color": COLOURS["ignored"], "dash": "dot"},
    )  # fmt: skip
    figure.update_yaxes(range=[48, 101])
    return figure
