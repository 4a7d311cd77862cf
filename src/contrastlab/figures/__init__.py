"""Interactive figures of the book: each one is a pure function of its knobs.

``ring(outer=10)`` draws one state. :func:`sliding` turns such a function into a figure with a slider that needs no
Python behind it (the static page); :mod:`contrastlab.figures.widgets` makes live controls of it (JupyterLab).

One visual language: :data:`COLOURS`, safe for colour-blind readers, and a line style or marker beside every colour, so
that a figure reads in black and white. Values outside their range are refused by name; nothing is clamped.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import plotly.graph_objects as go
import torch
from numpy.typing import NDArray
from scipy import optimize
from scipy.special import logsumexp
from torch.nn import functional

from contrastlab import divergences
from contrastlab.errors import reject
from contrastlab.studies import looseness as loose
from contrastlab.theory import bounds, exact
from contrastlab.theory.toys import JointGaussian

__all__ = [
    "COLOURS", "GRAPHS", "ceiling", "collisions", "composition", "joint", "looseness", "ring", "simplex", "sliding",
    "temperature", "view_table",
]  # fmt: skip

COLOURS: Mapping[str, str] = MappingProxyType(
    {
        "query": "#000000",
        "positive": "#009E73",
        "negative": "#D55E00",
        "ignored": "#BBBBBB",
        "truth": "#0072B2",
        "published": "#CC79A7",
        "other": "#E69F00",
    }
)
"""What a colour means, on every page."""

Array = NDArray[np.float64]


def _check(name: str, value: float, low: float, high: float = math.inf, *, open_low: bool = False) -> None:
    inside = math.isfinite(value) and value <= high and (value > low if open_low else value >= low)
    if not inside:
        span = f"a number {'above' if open_low else 'of at least'} {low:g}" + (
            f" and at most {high:g}" if math.isfinite(high) else ""
        )
        raise reject(name, value, span)


def _check_integer(name: str, value: int, low: int) -> None:
    if isinstance(value, bool) or int(value) != value or value < low:
        raise reject(name, value, f"an integer of at least {low}")


def _figure(title: str, x: str, y: str, **layout: Any) -> go.Figure:
    lines = "<br>".join(textwrap.wrap(title, 46))  # plotly breaks none, and a phone shows some 46 characters
    figure = go.Figure()
    figure.update_layout(
        template="plotly_white", height=400, margin={"l": 60, "r": 20, "t": 70, "b": 50}, xaxis_title=x, yaxis_title=y,
        title={"text": lines, "font": {"size": 14}, "x": 0.02, "y": 0.96, "yanchor": "top"},
        legend={"orientation": "h", "y": -0.22}, hovermode="closest", **layout,
    )  # fmt: skip
    return figure


def sliding(
    draw: Callable[..., go.Figure],
    knob: str,
    values: Sequence[Any],
    *,
    start: Any = None,
    label: str = "",
    **fixed: Any,
) -> go.Figure:
    """``draw`` at every value of one knob, as a figure with a slider.

    Args:
        draw: a function of this module, or any pure function that returns a plotly figure with the same traces for all
            values.
        knob: name of its parameter.
        values: the stops.
        start: the first one shown; by default the middle.
        label: written before the value; by default the knob's name.
        fixed: its other parameters.

    Raises:
        ArgumentError: no value, a start that is no stop, or figures whose traces do not correspond.
    """
    if not len(values):
        raise reject("values", list(values), "at least one stop")
    start = values[len(values) // 2] if start is None else start
    if start not in values:
        raise reject("start", start, f"one of {', '.join(map(str, values))}")
    drawn = {value: draw(**{knob: value}, **fixed) for value in values}
    if len({len(figure.data) for figure in drawn.values()}) != 1:
        raise reject("draw", getattr(draw, "__name__", draw), "a function whose figures all have the same traces")
    figure = go.Figure(drawn[start])
    figure.frames = [
        go.Frame(data=state.data, layout={"title": state.layout.title, "shapes": state.layout.shapes,
                                          "annotations": state.layout.annotations}, name=str(value))
        for value, state in drawn.items()
    ]  # fmt: skip
    steps = [
        {
            "method": "animate",
            "label": f"{value:g}" if isinstance(value, int | float) else str(value),
            "args": [[str(value)], {"mode": "immediate", "frame": {"duration": 0, "redraw": True}}],
        }
        for value in values
    ]
    slider = {
        "active": list(values).index(start), "steps": steps, "pad": {"t": 40}, "x": 0.02, "len": 0.96,
        "currentvalue": {"prefix": f"{label or knob} = "},
    }  # fmt: skip
    legend = {"orientation": "h", "y": 1.02, "yanchor": "bottom"}
    figure.update_layout(sliders=[slider], height=530, legend=legend, margin_t=140, margin_b=90)
    return figure


def temperature(tau: float = 0.07, *, queries: int = 200, keys: int = 400, seed: int = 0) -> go.Figure:
    """How much of the gradient goes to the hardest negatives: share of the softmax weight against rank.

    Args:
        tau: τ, above 0.
        queries: averaged over so many.
        keys: negatives of each, uniform on a sphere of 128 dimensions.
        seed: of them.
    """
    _check("tau", tau, 0, open_low=True)
    _check_integer("queries", queries, 1)
    _check_integer("keys", keys, 2)
    cosines = np.sort(np.random.default_rng(seed).standard_normal((queries, keys)) / math.sqrt(128), axis=1)[:, ::-1]
    weights = np.exp(cosines / tau - logsumexp(cosines / tau, axis=1, keepdims=True)).mean(0)
    share = 100 * np.cumsum(weights)
    rank = 100 * np.arange(1, keys + 1) / keys
    tenth = float(share[max(0, keys // 10 - 1)])
    figure = _figure(
        f"At τ = {tau:g} the closest 10 % of the negatives get {tenth:.0f} % of the push",
        "negatives, most similar first (%)", "share of the weight (%)", yaxis_range=[0, 101], xaxis_range=[0, 100],
    )  # fmt: skip
    figure.add_scatter(x=rank, y=share, mode="lines", name="softmax weight", line={"color": COLOURS["negative"]})
    figure.add_scatter(
        x=[0, 100], y=[0, 100], mode="lines", name="all alike", line={"color": COLOURS["ignored"], "dash": "dot"}
    )
    return figure


def ring(
    outer: float = 10.0, inner: float = 1.0, tau: float = 0.07, classes: int = 10, within: float = 0.5,
    *, keys: int = 20_000, seed: int = 0,
) -> go.Figure:  # fmt: skip
    """Similarities of one query to a bank, the ring from ``inner`` to ``outer`` %, and the level c it should exceed.

    Args:
        outer: u, percent from the closest key.
        inner: ℓ, percent that is skipped.
        tau: τ.
        classes: equally many keys of each class; the query belongs to one.
        within: mean cosine with keys of the own class; with others it is 0.
        keys: in the bank.
        seed: of the cosines, normal with the spread of random directions in 128 dimensions.
    """
    _check("tau", tau, 0, open_low=True)
    _check("inner", inner, 0, 100)
    _check("outer", outer, 0, 100, open_low=True)
    if outer <= inner:
        raise reject("outer", outer, f"a percentage above inner={inner:g}")
    _check_integer("classes", classes, 1)
    _check("within", within, -1, 1)
    rng = np.random.default_rng(seed)
    own = np.arange(keys) < keys / classes
    cosines = np.clip(rng.standard_normal(keys) / math.sqrt(128) + within * own, -1, 1)
    log_c = float(logsumexp(cosines / tau) - math.log(keys))
    order = np.sort(cosines)[::-1]
    first, last = int(inner * keys / 100 + 1e-9), max(int(inner * keys / 100) + 1, int(outer * keys / 100 + 1e-9))
    chosen = order[first:last]
    holds = chosen.min() / tau > log_c
    bins = np.linspace(-0.6, 1, 129)
    figure = _figure(
        f"Ring {inner:g}–{outer:g} %: its least similar key {'exceeds' if holds else 'is below'} log c · τ"
        f" = {log_c * tau:.2f}, the theorem {'applies' if holds else 'is silent'}",
        "cosine with the query", "keys (log scale)", yaxis_type="log", barmode="overlay", bargap=0,
    )  # fmt: skip
    parts = (("bank", order, "ignored", ""), ("ring", chosen, "negative", "/"))
    for name, values, colour, pattern in parts:
        height, _ = np.histogram(values, bins)
        figure.add_bar(
            x=(bins[:-1] + bins[1:]) / 2, y=np.where(height, height, np.nan), name=name, width=bins[1] - bins[0],
            marker={"color": COLOURS[colour], "line": {"width": 0}, "pattern": {"shape": pattern}},
        )  # fmt: skip
    figure.add_scatter(
        x=[log_c * tau] * 2, y=[1, keys / 4], mode="lines", name="τ log c, the mean of exp(s) as a cosine",
        line={"color": COLOURS["truth"], "dash": "dash", "width": 3},
    )  # fmt: skip
    return figure


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
    """InfoNCE at the optimal critic against the number of terms K, for Gaussians of known mutual information.

    Args:
        nats: I(X; Y).
        dimension: of X and of Y.
        ks: terms in the denominator, the positive included.
        pairs: sampled.
        seed: of the sample.
    """
    _check("nats", nats, 0)
    _check_integer("dimension", dimension, 1)
    for k in ks:
        _check_integer("ks", k, 2)
    gaussian = JointGaussian.with_information(nats, dimension)
    values = [_both_forms(gaussian, k, max(pairs, 4 * k), seed) for k in ks]
    bound = values[-1][0]
    figure = _figure(
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
        figure.add_scatter(
            x=list(ks), y=y, name=name, mode="lines+markers", line={"color": COLOURS[colour], "dash": dash},
            marker={"symbol": symbol, "size": 8},
        )  # fmt: skip
    return figure


def looseness(percent: float = 90.0, rho: float = 0.2, *, scales: int = 25) -> go.Figure:
    """VINCE with the closest ``percent`` % as negatives against the size of the critic, exact for K → ∞.

    The critic is a multiple a of the optimal one, for two Gaussians with correlation ``rho``.

    Args:
        percent: p, above 0 and at most 100.
        rho: ρ.
        scales: points on the curve, from a = 0 to 1.2.
    """
    _check("percent", percent, 0, 100, open_low=True)
    _check("rho", rho, -0.999, 0.999)
    information = loose.information(rho)
    a = np.linspace(0, 1.2, scales)
    # a constant critic is worth nothing
    value = np.array([0.0, *(loose.population(percent, scale=float(s), rho=rho).value for s in a[1:])])
    good = loose.population(percent, rho=rho)
    figure = _figure(
        f"Closest {percent:g} %: {good.value:+.4f} nats at the good critic, at most {good.best:.4f}",
        "size a of the critic", "nats",
    )  # fmt: skip
    figure.add_scatter(x=a, y=value, name="VINCE, K → ∞", mode="lines", line={"color": COLOURS["negative"]})
    figure.add_scatter(
        x=[0, 1.2], y=[information] * 2, name="mutual information", mode="lines",
        line={"color": COLOURS["truth"], "dash": "longdash"},
    )  # fmt: skip
    figure.add_scatter(
        x=[good.best_scale], y=[good.best], name="largest", mode="markers",
        marker={"color": COLOURS["query"], "size": 10, "symbol": "diamond"},
    )  # fmt: skip
    figure.update_yaxes(range=[-0.15, 0.04])
    return figure


def joint(
    strength: float = 1.0, tau: float = 0.2, mean: float = 0.8, negatives: int = 64, *, most: float = 0.06
) -> go.Figure:
    """JCL's closed form beside the exact loss of infinitely many Gaussian keys, against the variance along the query.

    Args:
        strength: λ of at least 0.
        tau: τ.
        mean: mean of ``q·k⁺``.
        negatives: K of random direction, in 128 dimensions.
        most: largest variance of ``q·k⁺`` drawn.
    """
    _check("strength", strength, 0)
    _check("tau", tau, 0, open_low=True)
    _check("mean", mean, -1, 1)
    _check_integer("negatives", negatives, 1)
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    weights = weights / weights.sum()
    rest = math.log(negatives) + 1 / (2 * 128 * tau**2)
    v = np.linspace(0, most, 61)
    a = (mean + np.sqrt(v)[:, None] * nodes) / tau
    limit = (np.logaddexp(a, rest) - a) @ weights
    bound = np.logaddexp(mean / tau + strength * v / (2 * tau**2), rest) - mean / tau
    share = float(1 / (1 + math.exp(min(700.0, rest - mean / tau - strength * v[-1] / (2 * tau**2)))))
    above = bool((bound >= limit - 1e-12).all())
    figure = _figure(
        f"λ = {strength:g}: {'an upper bound' if above else 'below the limit, so no bound'};"
        f" at the right edge the positive holds {100 * share:.0f} % of the denominator",
        "variance of q·k⁺ over the keys", "loss (nats)", xaxis_range=[0, most],
    )  # fmt: skip
    figure.add_scatter(
        x=v, y=limit, name="infinitely many keys, exact", mode="lines",
        line={"color": COLOURS["truth"], "dash": "longdash"},
    )  # fmt: skip
    figure.add_scatter(x=v, y=bound, name="JCL", mode="lines", line={"color": COLOURS["positive"]})
    top = max(float(limit.max()), float((np.logaddexp(mean / tau + 4 * v / (2 * tau**2), rest) - mean / tau).max()))
    figure.update_yaxes(range=[0, 1.05 * top])
    return figure


def composition(divergence: str = "kl", mu: float = 1.0, precision: float = 1.0) -> go.Figure:
    """How a divergence pushes a pair apart: ``h(t) = f*(f′(μ e^{−t/2σ²}))`` over all squared distances on the sphere.

    Strictly convex curves spread N ≤ d + 1 points into a regular simplex (fmicl Theorem 4).

    Args:
        divergence: name in :mod:`contrastlab.divergences`.
        mu: μ, above 0.
        precision: ``1 / 2σ²``, above 0.
    """
    f = divergences.get(divergence)
    _check("mu", mu, 0, open_low=True)
    _check("precision", precision, 0, open_low=True)
    t = torch.linspace(0, 4, 401, dtype=torch.float64)
    h = f.composition(math.log(mu) - precision * t).numpy()
    curvature = np.diff(h, 2)
    tolerance = 1e-9 * max(1.0, float(np.abs(h).max()))
    kind = (
        "convex: equal distances are best" if curvature.min() > tolerance * 1e-3 and f.spreads(mu)
        else "straight: any centred set is as good" if np.abs(curvature).max() <= tolerance
        else "not convex everywhere: unequal distances can be better"
    )  # fmt: skip
    figure = _figure(
        f"{f.title}, μ = {mu:g}: {kind}", "squared distance t", "h(t), scaled to 1 … 0", xaxis_range=[0, 4]
    )
    scaled = (h - h[-1]) / (h[0] - h[-1])
    figure.add_scatter(x=t.numpy(), y=scaled, name="h", mode="lines", line={"color": COLOURS["negative"]})
    figure.add_scatter(
        x=[0, 4], y=[1, 0], name="straight line", mode="lines", line={"color": COLOURS["ignored"], "dash": "dot"}
    )
    return figure


def _push_apart(
    f: divergences.Divergence, mu: float, precision: float, points: int, dimension: int, seed: int
) -> tuple[Array, Array]:
    """Unit vectors before and after minimising the mean of h over all pairs."""
    others = ~torch.eye(points, dtype=torch.bool)

    def loss(flat: Array) -> tuple[float, Array]:
        free = torch.tensor(flat.reshape(points, dimension), requires_grad=True)
        x = functional.normalize(free, dim=1)
        value = f.composition(math.log(mu) - precision * (2 - 2 * x @ x.T)[others]).mean()
        (slope,) = torch.autograd.grad(value, free)
        return value.item(), slope.numpy().ravel()

    start = np.random.default_rng(seed).standard_normal(points * dimension)
    found = optimize.minimize(
        loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000, "ftol": 0, "gtol": 1e-10}
    )
    both = np.stack([start, found.x]).reshape(2, points, dimension)
    both /= np.linalg.norm(both, axis=2, keepdims=True)
    return both[0], both[1]


def simplex(
    divergence: str = "kl", mu: float = 1.0, precision: float = 1.0, points: int = 8, dimension: int = 8,
    *, seed: int = 0,
) -> go.Figure:  # fmt: skip
    """Where free points on a sphere go if a divergence does nothing but push them apart: all squared distances, sorted.

    Args:
        divergence: name in :mod:`contrastlab.divergences`.
        mu: μ, above 0.
        precision: ``1 / 2σ²``, above 0.
        points: N; a regular simplex needs N ≤ ``dimension`` + 1.
        dimension: d.
        seed: of the random start.
    """
    f = divergences.get(divergence)
    _check("mu", mu, 0, open_low=True)
    _check("precision", precision, 0, open_low=True)
    _check_integer("points", points, 2)
    _check_integer("dimension", dimension, 2)
    start, end = _push_apart(f, mu, precision, points, dimension, seed)
    upper = np.triu_indices(points, 1)
    before, after = (np.sort(np.maximum(2 - 2 * (x @ x.T)[upper], 0.0)) for x in (start, end))
    share = np.maximum(np.linalg.eigvalsh(end @ end.T), 1e-300) / points
    rank = math.exp(-float((share * np.log(share)).sum()))
    regular = 2 * points / (points - 1)
    kind = (
        "all distances are equal" if np.ptp(after) < 1e-3
        else "two opposite clusters" if rank < 1.001
        else "distances stay unequal"
    )  # fmt: skip
    figure = _figure(
        f"{f.title}, μ = {mu:g}: {kind}; {points} points fill {rank:.1f} dimensions",
        "pairs of points, closest first", "squared distance t", yaxis_range=[-0.1, 4.1],
    )  # fmt: skip
    pairs = np.arange(1, len(after) + 1)
    figure.add_scatter(
        x=pairs, y=before, name="random start", mode="lines+markers",
        line={"color": COLOURS["ignored"], "dash": "dot"}, marker={"symbol": "x", "size": 6},
    )  # fmt: skip
    figure.add_scatter(
        x=pairs, y=[regular] * len(pairs), name="regular simplex, 2N/(N − 1)", mode="lines",
        line={"color": COLOURS["truth"], "dash": "longdash"},
    )  # fmt: skip
    figure.add_scatter(
        x=pairs, y=after, name="after minimising", mode="lines+markers", line={"color": COLOURS["negative"]},
        marker={"symbol": "circle", "size": 7},
    )  # fmt: skip
    return figure


GRAPHS: tuple[tuple[int, int], ...] = (
    (0, 0), (1, 0), (2, 0), (3, 0), (2, 1), (2, 2), (1, 3), (1, 4), (0, 5), (0, 6),
)  # fmt: skip
"""Steps of :func:`collisions`: of an item's six views, how many each neighbour shares and how many everybody shares."""


def view_table(near: int, common: int, *, views: int = 6, circle: int = 10) -> NDArray[np.int64]:
    """A graph of shared views: items of six classes, each class a circle of neighbours.

    Args:
        near: views shared with either neighbour on the circle.
        common: views shared by all items.
        views: views of an item, at least ``2·near + common``.
        circle: items of a class.

    Returns:
        ``[6·circle, views]`` ids of views, from 0.
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

    Args:
        step: index into :data:`GRAPHS`; at 0 no view is shared, at the last all are.
        measured: for each step the accuracies in percent, one for each seed; none are drawn where it is empty.
    """
    _check_integer("step", step, 0)
    _check("step", step, 0, len(GRAPHS) - 1)
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
    found = f", {np.mean(measured[step]):.0f} % of the neighbours right" if measured else ""
    figure = _figure(
        f"Of six views it shares {' and '.join(parts) or 'none'}: {nats[step]:.2f} nats{found}",
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
    figure.add_scatter(
        x=nats if measured else [], y=[float(np.mean(row)) for row in measured], name="mean", mode="lines+markers",
        line={"color": COLOURS["positive"]}, marker={"size": 7},
    )  # fmt: skip
    figure.add_scatter(
        x=[0, 4.25], y=[900 / 59] * 2, name="chance", mode="lines", line={"color": COLOURS["other"], "dash": "dot"}
    )
    figure.add_scatter(
        x=[nats[step]] * 2, y=[0, 100], name="this graph", mode="lines",
        line={"color": COLOURS["truth"], "dash": "dash", "width": 3},
    )  # fmt: skip
    return figure
