"""Figures of what a loss does to its negatives and positives: temperature, ring, JCL's closed form."""

from __future__ import annotations

import math

import numpy as np
import plotly.graph_objects as go
from scipy.special import logsumexp

from contrastbook.figures.base import COLOURS, canvas, require, require_integer
from contrastbook.theory import joint as exact
from contrastlab.errors import reject


def temperature(tau: float = 0.07, *, queries: int = 200, keys: int = 400, seed: int = 0) -> go.Figure:
    """How much of the gradient goes to the hardest negatives: share of the softmax weight against rank.

    ``tau``: τ, above 0. ``keys``: negatives of each, uniform on a sphere of 128 dimensions.
    """
    require("tau", tau, 0, open_low=True)
    require_integer("queries", queries, 1)
    require_integer("keys", keys, 2)
    cosines = np.sort(np.random.default_rng(seed).standard_normal((queries, keys)) / math.sqrt(128), axis=1)[:, ::-1]
    weights = np.exp(cosines / tau - logsumexp(cosines / tau, axis=1, keepdims=True)).mean(0)
    share = 100 * np.cumsum(weights)
    rank = 100 * np.arange(1, keys + 1) / keys
    tenth = float(share[max(0, keys // 10 - 1)])
    figure = canvas(
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

    ``outer``: u, percent from the closest key. ``inner``: ℓ, percent that is skipped. ``classes``: equally many keys of
    each class; the query belongs to one. ``within``: mean cosine with keys of the own class; with others it is 0.
    ``seed``: of the cosines, normal with the spread of random directions in 128 dimensions.
    """
    require("tau", tau, 0, open_low=True)
    require("inner", inner, 0, 100)
    require("outer", outer, 0, 100, open_low=True)
    if outer <= inner:
        raise reject("outer", outer, f"a percentage above inner={inner:g}")
    require_integer("classes", classes, 1)
    require("within", within, -1, 1)
    rng = np.random.default_rng(seed)
    own = np.arange(keys) < keys / classes
    cosines = np.clip(rng.standard_normal(keys) / math.sqrt(128) + within * own, -1, 1)
    log_c = float(logsumexp(cosines / tau) - math.log(keys))
    order = np.sort(cosines)[::-1]
    first, last = int(inner * keys / 100 + 1e-9), max(int(inner * keys / 100) + 1, int(outer * keys / 100 + 1e-9))
    chosen = order[first:last]
    holds = chosen.min() / tau > log_c
    bins = np.linspace(-0.6, 1, 129)
    figure = canvas(
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


def joint(
    strength: float = 1.0, tau: float = 0.2, mean: float = 0.8, negatives: int = 64, *, most: float = 0.06
) -> go.Figure:
    """JCL's closed form beside the exact loss of infinitely many Gaussian keys, against the variance along the query.

    ``strength``: λ of at least 0. ``mean``: mean of ``q·k⁺``. ``negatives``: K of random direction, in 128 dimensions.
    ``most``: largest variance of ``q·k⁺`` drawn.
    """
    require("strength", strength, 0)
    require("tau", tau, 0, open_low=True)
    require("mean", mean, -1, 1)
    require_integer("negatives", negatives, 1)
    rest = exact.log_sum_on_sphere(negatives, 128, tau)
    v = np.linspace(0, most, 61)
    limit = np.array([exact.expected_loss(mean, float(each), rest, tau) for each in v])
    bound = exact.closed_form(mean, v, rest, tau, strength)
    share = float(exact.positive_weight(mean, v[-1], rest, tau, strength))
    above = bool((bound >= limit - 1e-12).all())
    figure = canvas(
        f"λ = {strength:g}: {'an upper bound' if above else 'below the limit, so no bound'};"
        f" at the right edge the positive holds {100 * share:.0f} % of the denominator",
        "variance of q·k⁺ over the keys", "loss (nats)", xaxis_range=[0, most],
    )  # fmt: skip
    figure.add_scatter(
        x=v, y=limit, name="infinitely many keys, exact", mode="lines",
        line={"color": COLOURS["truth"], "dash": "longdash"},
    )  # fmt: skip
    figure.add_scatter(x=v, y=bound, name="JCL", mode="lines", line={"color": COLOURS["positive"]})
    top = max(float(limit.max()), float(exact.closed_form(mean, v, rest, tau, 4).max()))
    figure.update_yaxes(range=[0, 1.05 * top])
    return figure
