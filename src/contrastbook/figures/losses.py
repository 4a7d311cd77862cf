"""Figures of what losses and divergences do: temperature, ring, JCL's closed form, and where points are pushed."""

from __future__ import annotations

import math

import numpy as np
import plotly.graph_objects as go
import torch
from numpy.typing import NDArray
from scipy import optimize
from scipy.special import logsumexp
from torch.nn import functional

from contrastbook.checks import require, require_integer, require_positive
from contrastbook.figures.base import COLOURS, chart, line
from contrastbook.theory import joint as exact
from contrastlab.scores import divergences
from contrastlab.support.errors import reject

Array = NDArray[np.float64]


def temperature(tau: float = 0.07) -> go.Figure:
    """How much of the gradient goes to the hardest negatives: share of the softmax weight against rank.

    Of 400 negatives, uniform on a sphere of 128 dimensions; mean over 200 queries.
    """
    require_positive(tau=tau)
    cosines = np.sort(np.random.default_rng(0).standard_normal((200, 400)) / math.sqrt(128), axis=1)[:, ::-1]
    weights = np.exp(cosines / tau - logsumexp(cosines / tau, axis=1, keepdims=True)).mean(0)
    share = 100 * np.cumsum(weights)
    return chart(
        f"At τ = {tau:g} the closest 10 % of the negatives get {share[39]:.0f} % of the push",
        "negatives, most similar first (%)", "share of the weight (%)",
        line("softmax weight", 100 * np.arange(1, 401) / 400, share, "negative"),
        line("all alike", [0, 100], [0, 100], "ignored", "dot"),
        yaxis_range=[0, 101], xaxis_range=[0, 100],
    )  # fmt: skip


def ring(
    outer: float = 10.0, inner: float = 1.0, tau: float = 0.07, classes: int = 10, within: float = 0.5
) -> go.Figure:
    """Similarities of one query to a bank, the ring from ``inner`` to ``outer`` %, and the level c it should exceed.

    ``outer``: u, percent from the closest key. ``inner``: ℓ, percent that is skipped. ``classes``: equally many keys of
    each class; the query belongs to one. ``within``: mean cosine with keys of the query's class; with others it is 0.
    The 20,000 cosines are normal with the spread of random directions in 128 dimensions.
    """
    require_positive(tau=tau)
    require("inner", inner, 0, 100)
    require("outer", outer, 0, 100, open_low=True)
    if outer <= inner:
        raise reject("outer", outer, f"a percentage above inner={inner:g}")
    require_integer("classes", classes, 1)
    require("within", within, -1, 1)
    keys = 20_000
    own = np.arange(keys) < keys / classes
    cosines = np.clip(np.random.default_rng(0).standard_normal(keys) / math.sqrt(128) + within * own, -1, 1)
    log_c = float(logsumexp(cosines / tau) - math.log(keys))
    order = np.sort(cosines)[::-1]
    first, last = int(inner * keys / 100 + 1e-9), max(int(inner * keys / 100) + 1, int(outer * keys / 100 + 1e-9))
    chosen = order[first:last]
    holds = chosen.min() / tau > log_c
    bins = np.linspace(-0.6, 1, 129)

    def bars(name: str, values: Array, colour: str, pattern: str) -> go.Bar:
        height, _ = np.histogram(values, bins)
        look = {"color": COLOURS[colour], "line": {"width": 0}, "pattern": {"shape": pattern}}
        y = np.where(height, height, np.nan)
        return go.Bar(x=(bins[:-1] + bins[1:]) / 2, y=y, name=name, width=bins[1] - bins[0], marker=look)

    level = "τ log c, the mean of exp(s) as a cosine"
    return chart(
        f"Ring {inner:g}–{outer:g} %: its least similar key {'exceeds' if holds else 'is below'} log c · τ"
        f" = {log_c * tau:.2f}, the theorem {'applies' if holds else 'is silent'}",
        "cosine with the query", "keys (log scale)",
        bars("bank", order, "ignored", ""),
        bars("ring", chosen, "negative", "/"),
        line(level, [log_c * tau] * 2, [1, keys / 4], "truth", "dash", width=3),
        yaxis_type="log", barmode="overlay", bargap=0,
    )  # fmt: skip


def joint(strength: float = 1.0, tau: float = 0.2, mean: float = 0.8, negatives: int = 64) -> go.Figure:
    """JCL's closed form beside the exact loss of infinitely many Gaussian keys, against the variance along the query.

    ``strength``: λ of at least 0. ``mean``: mean of ``q·k⁺``. ``negatives``: K of random direction, in 128 dimensions.
    """
    require("strength", strength, 0)
    require_positive(tau=tau)
    require("mean", mean, -1, 1)
    require_integer("negatives", negatives, 1)
    rest = exact.log_sum_on_sphere(negatives, 128, tau)
    v = np.linspace(0, 0.06, 61)
    limit = np.array([exact.expected_loss(mean, float(each), rest, tau) for each in v])
    bound = exact.closed_form(mean, v, rest, tau, strength)
    share = float(exact.positive_weight(mean, v[-1], rest, tau, strength))
    above = bool((bound >= limit - 1e-12).all())
    top = max(float(limit.max()), float(exact.closed_form(mean, v, rest, tau, 4).max()))
    return chart(
        f"λ = {strength:g}: {'an upper bound' if above else 'below the limit, so no bound'};"
        f" at the right edge the positive holds {100 * share:.0f} % of the denominator",
        "variance of q·k⁺ over the keys", "loss (nats)",
        line("infinitely many keys, exact", v, limit, "truth", "longdash"),
        line("JCL", v, bound, "positive"),
        xaxis_range=[0, 0.06], yaxis_range=[0, 1.05 * top],
    )  # fmt: skip


def composition(divergence: str = "kl", mu: float = 1.0, precision: float = 1.0) -> go.Figure:
    """How a divergence pushes a pair apart: ``h(t) = f*(f′(μ e^{−t/2σ²}))`` over all squared distances on the sphere.

    Strictly convex curves spread N ≤ d + 1 points into a regular simplex (fmicl Theorem 4). ``mu``: μ, above 0.
    ``precision``: ``1 / 2σ²``, above 0.
    """
    f = divergences.get(divergence)
    require_positive(mu=mu, precision=precision)
    t = torch.linspace(0, 4, 401, dtype=torch.float64)
    h = f.composition(math.log(mu) - precision * t).numpy()
    kind = (
        "convex: equal distances are best" if f.spreads(mu)
        else "straight: any centred set is as good" if np.abs(np.diff(h, 2)).max() <= 1e-9 * (h[0] - h[-1])
        else "not convex everywhere: unequal distances can be better"
    )  # fmt: skip
    return chart(
        f"{f.title}, μ = {mu:g}: {kind}",
        "squared distance t", "h(t), scaled to 1 … 0",
        line("h", t.numpy(), (h - h[-1]) / (h[0] - h[-1]), "negative"),
        line("straight line", [0, 4], [1, 0], "ignored", "dot"),
        xaxis_range=[0, 4],
    )  # fmt: skip


def _push_apart(
    f: divergences.Divergence, mu: float, precision: float, points: int, dimension: int
) -> tuple[Array, Array]:
    """Unit vectors before and after minimising the mean of h over all pairs."""
    others = ~torch.eye(points, dtype=torch.bool)
    nodes, weights = map(torch.from_numpy, np.polynomial.legendre.leggauss(64))

    def loss(flat: Array, unit: float = 1.0) -> tuple[float, Array]:
        # h may fall by 20 powers of ten to a constant, so this is the mean of h − h(5), an integral of slopes
        free = torch.tensor(flat.reshape(points, dimension), requires_grad=True)
        x = functional.normalize(free, dim=1)
        t = (2 - 2 * x @ x.T)[others]
        half = (5 - t.detach()) / 2
        at = torch.cat([t.detach()[:, None], t.detach()[:, None] + half[:, None] * (1 + nodes)], 1).requires_grad_()
        (slopes,) = torch.autograd.grad(f.composition(math.log(mu) - precision * at).sum(), at)
        total = -(half * (slopes[:, 1:] @ weights)).sum()
        (slope,) = torch.autograd.grad((slopes[:, 0] * t).sum(), free)
        return total.item() / unit, slope.numpy().ravel() / unit

    start = end = np.random.default_rng(0).standard_normal(points * dimension)
    options = {"maxiter": 2000, "ftol": 0, "gtol": 1e-10}
    for _ in range(4):  # each time in units of where it begins, so that the tolerance is one of the loss at hand
        unit = loss(end)[0]
        if not unit > 0:  # h is flat as far as numbers can tell
            break
        end = optimize.minimize(loss, end, unit, jac=True, method="L-BFGS-B", options=options).x
    both = np.stack([start, end]).reshape(2, points, dimension)
    both /= np.linalg.norm(both, axis=2, keepdims=True)
    return both[0], both[1]


def simplex(
    divergence: str = "kl", mu: float = 1.0, precision: float = 1.0, points: int = 8, dimension: int = 8
) -> go.Figure:
    """Where free points on a sphere go if a divergence does nothing but push them apart: all squared distances, sorted.

    ``mu``, ``precision``: as for :func:`composition`. A regular simplex needs ``points`` ≤ ``dimension`` + 1.
    """
    f = divergences.get(divergence)
    require_positive(mu=mu, precision=precision)
    require_integer("points", points, 2)
    require_integer("dimension", dimension, 2)
    start, end = _push_apart(f, mu, precision, points, dimension)
    upper = np.triu_indices(points, 1)
    before, after = (np.sort(np.maximum(2 - 2 * (x @ x.T)[upper], 0.0)) for x in (start, end))
    share = np.maximum(np.linalg.eigvalsh(end @ end.T), 1e-300) / points
    rank = math.exp(-float((share * np.log(share)).sum()))
    kind = (
        "all distances are equal" if np.ptp(after) < 1e-3
        else "two opposite clusters" if rank < 1.001
        else "distances stay unequal"
    )  # fmt: skip
    pairs = np.arange(1, len(after) + 1)
    regular = [2 * points / (points - 1)] * len(pairs)
    return chart(
        f"{f.title}, μ = {mu:g}: {kind}; {points} points fill {rank:.1f} dimensions",
        "pairs of points, closest first", "squared distance t",
        line("random start", pairs, before, "ignored", "dot", marker={"symbol": "x", "size": 6}),
        line("regular simplex, 2N/(N − 1)", pairs, regular, "truth", "longdash"),
        line("after minimising", pairs, after, "negative", marker={"symbol": "circle", "size": 7}),
        yaxis_range=[-0.1, 4.1],
    )  # fmt: skip
