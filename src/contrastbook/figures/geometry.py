"""Figures of where divergences push points of a sphere."""

from __future__ import annotations

import math

import numpy as np
import plotly.graph_objects as go
import torch
from numpy.typing import NDArray
from scipy import optimize
from torch.nn import functional

from contrastbook.figures.base import COLOURS, canvas, require, require_integer
from contrastlab import divergences

Array = NDArray[np.float64]


def composition(divergence: str = "kl", mu: float = 1.0, precision: float = 1.0) -> go.Figure:
    """How a divergence pushes a pair apart: ``h(t) = f*(f′(μ e^{−t/2σ²}))`` over all squared distances on the sphere.

    Strictly convex curves spread N ≤ d + 1 points into a regular simplex (fmicl Theorem 4).

    ``divergence``: name in :mod:`contrastlab.divergences`. ``mu``: μ, above 0. ``precision``: ``1 / 2σ²``, above 0.
    """
    f = divergences.get(divergence)
    require("mu", mu, 0, open_low=True)
    require("precision", precision, 0, open_low=True)
    t = torch.linspace(0, 4, 401, dtype=torch.float64)
    h = f.composition(math.log(mu) - precision * t).numpy()
    kind = (
        "convex: equal distances are best" if f.spreads(mu)
        else "straight: any centred set is as good" if np.abs(np.diff(h, 2)).max() <= 1e-9 * (h[0] - h[-1])
        else "not convex everywhere: unequal distances can be better"
    )  # fmt: skip
    figure = canvas(f"{f.title}, μ = {mu:g}: {kind}", "squared distance t", "h(t), scaled to 1 … 0", xaxis_range=[0, 4])
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
    nodes, weights = map(torch.from_numpy, np.polynomial.legendre.leggauss(64))

    def loss(flat: Array) -> tuple[float, Array]:
        # h may fall by 20 powers of ten to a constant, so this is the mean of h − h(5), an integral of slopes
        free = torch.tensor(flat.reshape(points, dimension), requires_grad=True)
        x = functional.normalize(free, dim=1)
        t = (2 - 2 * x @ x.T)[others]
        half = (5 - t.detach()) / 2
        at = torch.cat([t.detach()[:, None], t.detach()[:, None] + half[:, None] * (1 + nodes)], 1).requires_grad_()
        (slopes,) = torch.autograd.grad(f.composition(math.log(mu) - precision * at).sum(), at)
        total = -(half * (slopes[:, 1:] @ weights)).sum()
        (slope,) = torch.autograd.grad((slopes[:, 0] * t).sum(), free)
        return total.item(), slope.numpy().ravel()

    start = end = np.random.default_rng(seed).standard_normal(points * dimension)
    for _ in range(4):  # each time in units of where it begins, so that the tolerance is one of the loss at hand
        unit = loss(end)[0]
        if not unit > 0:  # h is flat as far as numbers can tell
            break
        end = optimize.minimize(
            lambda x, unit=unit: tuple(part / unit for part in loss(x)), end, jac=True, method="L-BFGS-B",
            options={"maxiter": 2000, "ftol": 0, "gtol": 1e-10},
        ).x  # fmt: skip
    both = np.stack([start, end]).reshape(2, points, dimension)
    both /= np.linalg.norm(both, axis=2, keepdims=True)
    return both[0], both[1]


def simplex(
    divergence: str = "kl", mu: float = 1.0, precision: float = 1.0, points: int = 8, dimension: int = 8,
    *, seed: int = 0,
) -> go.Figure:  # fmt: skip
    """Where free points on a sphere go if a divergence does nothing but push them apart: all squared distances, sorted.

    ``divergence``: name in :mod:`contrastlab.divergences`. ``mu``: μ, above 0. ``precision``: ``1 / 2σ²``, above 0.
    ``points``: N; a regular simplex needs N ≤ ``dimension`` + 1.
    """
    f = divergences.get(divergence)
    require("mu", mu, 0, open_low=True)
    require("precision", precision, 0, open_low=True)
    require_integer("points", points, 2)
    require_integer("dimension", dimension, 2)
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
    figure = canvas(
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
