"""Figures of what losses and divergences do: temperature, ring, JCL's closed form, and where points are pushed."""

from __future__ import annotations

import math

import numpy as np
import plotly.graph_objects as go
import torch
from numpy.typing import NDArray
from scipy import optimize
from scipy.special import logsumexp
from torch import Tensor
from torch.nn import functional

from contrastbook.figures.base import COLOURS, chart, line
from contrastbook.theory import joint as exact
from contrastlab.scores import divergences
from contrastlab.support.errors import check_integer, check_positive, check_range, reject
from contrastlab.train.spread import effective_rank

Array = NDArray[np.float64]


def temperature(tau: float = 0.07) -> go.Figure:
    """How much of the gradient goes to the hardest negatives: share of the softmax weight against rank.

    Of 400 negatives, uniform on a sphere of 128 dimensions; mean over 200 queries.
    """
    check_positive(tau=tau)
    directions = np.random.default_rng(0).standard_normal((200, 400)) / math.sqrt(128)
    cosines = np.sort(directions, axis=1)[:, ::-1]
    logits = cosines / tau
    weights = np.exp(logits - logsumexp(logits, axis=1, keepdims=True)).mean(0)
    share = 100 * np.cumsum(weights)
    rank = 100 * np.arange(1, 401) / 400
    return chart(
        f"At τ = {tau:g} the closest 10 % of the negatives get {share[39]:.0f} % of the push",
        "negatives, most similar first (%)",
        "share of the weight (%)",
        line("softmax weight", rank, share, "negative"),
        line("all alike", [0, 100], [0, 100], "ignored", "dot"),
        yaxis_range=[0, 101],
        xaxis_range=[0, 100],
    )


def ring(
    outer: float = 10.0, inner: float = 1.0, tau: float = 0.07, classes: int = 10, within: float = 0.5
) -> go.Figure:
    """Similarities of one query to a bank, the ring from ``inner`` to ``outer`` %, and the level c it should exceed.

    ``outer``: u, percent from the closest key. ``inner``: ℓ, percent that is skipped. ``classes``: equally many keys of
    each class; the query belongs to one. ``within``: mean cosine with keys of the query's class; with others it is 0.
    The 20,000 cosines are normal with the spread of random directions in 128 dimensions.
    """
    check_positive(tau=tau)
    check_range("inner", inner, 0, 100)
    check_range("outer", outer, 0, 100, above=True)
    if outer <= inner:
        raise reject("outer", outer, f"a percentage above inner={inner:g}")
    check_integer("classes", classes, 1)
    check_range("within", within, -1, 1)
    cosines = _bank_cosines(classes, within)
    keys = len(cosines)
    log_c = float(logsumexp(cosines / tau) - math.log(keys))
    closest_first = np.sort(cosines)[::-1]
    first = int(inner * keys / 100 + 1e-9)
    last = max(int(inner * keys / 100) + 1, int(outer * keys / 100 + 1e-9))
    in_ring = closest_first[first:last]
    comparison, theorem = "is below", "is silent"
    if in_ring.min() / tau > log_c:
        comparison, theorem = "exceeds", "applies"
    level = log_c * tau
    return chart(
        f"Ring {inner:g}–{outer:g} %: its least similar key {comparison} log c · τ = {level:.2f},"
        f" the theorem {theorem}",
        "cosine with the query",
        "keys (log scale)",
        _histogram("bank", cosines, "ignored", pattern=""),
        _histogram("ring", in_ring, "negative", pattern="/"),
        line("τ log c, the mean of exp(s) as a cosine", [level] * 2, [1, keys / 4], "truth", "dash", width=3),
        yaxis_type="log",
        barmode="overlay",
        bargap=0,
    )


def _bank_cosines(classes: int, within: float, keys: int = 20_000) -> Array:
    """Cosines of a query with the keys of a bank; those with its own class are ``within`` higher in the mean."""
    is_own_class = np.arange(keys) < keys / classes
    directions = np.random.default_rng(0).standard_normal(keys) / math.sqrt(128)
    return np.clip(directions + within * is_own_class, -1, 1)


def _histogram(name: str, cosines: Array, colour: str, *, pattern: str) -> go.Bar:
    """Bars of how many cosines lie in each of 128 bins; an empty bin has no bar, since the axis is logarithmic."""
    edges = np.linspace(-0.6, 1, 129)
    counts, _ = np.histogram(cosines, edges)
    return go.Bar(
        x=(edges[:-1] + edges[1:]) / 2,
        y=np.where(counts, counts, np.nan),
        name=name,
        width=edges[1] - edges[0],
        marker={"color": COLOURS[colour], "line": {"width": 0}, "pattern": {"shape": pattern}},
    )


def joint(strength: float = 1.0, tau: float = 0.2, mean: float = 0.8, negatives: int = 64) -> go.Figure:
    """JCL's closed form beside the exact loss of infinitely many Gaussian keys, against the variance along the query.

    ``strength``: λ of at least 0. ``mean``: mean of ``q·k⁺``. ``negatives``: K of random direction, in 128 dimensions.
    """
    check_range("strength", strength, 0)
    check_positive(tau=tau)
    check_range("mean", mean, -1, 1)
    check_integer("negatives", negatives, 1)
    rest = exact.log_sum_on_sphere(negatives, 128, tau)
    v = np.linspace(0, 0.06, 61)
    limit = np.array([exact.expected_loss(mean, float(each), rest, tau) for each in v])
    bound = exact.closed_form(mean, v, rest, tau, strength)
    share = float(exact.positive_weight(mean, v[-1], rest, tau, strength))
    verdict = "below the limit, so no bound"
    if (bound >= limit - 1e-12).all():
        verdict = "an upper bound"
    highest_bound = exact.closed_form(mean, v, rest, tau, 4).max()
    top = max(float(limit.max()), float(highest_bound))
    return chart(
        f"λ = {strength:g}: {verdict}; at the right edge the positive holds {100 * share:.0f} % of the denominator",
        "variance of q·k⁺ over the keys",
        "loss (nats)",
        line("infinitely many keys, exact", v, limit, "truth", "longdash"),
        line("JCL", v, bound, "positive"),
        xaxis_range=[0, 0.06],
        yaxis_range=[0, 1.05 * top],
    )


def composition(divergence: str = "kl", mu: float = 1.0, precision: float = 1.0) -> go.Figure:
    """How a divergence pushes a pair apart: ``h(t) = f*(f′(μ e^{−t/2σ²}))`` over all squared distances on the sphere.

    Strictly convex curves spread N ≤ d + 1 points into a regular simplex (fmicl Theorem 4). ``mu``: μ, above 0.
    ``precision``: ``1 / 2σ²``, above 0.
    """
    f = divergences.get(divergence)
    check_positive(mu=mu, precision=precision)
    t = torch.linspace(0, 4, 401, dtype=torch.float64)
    h = f.composition(math.log(mu) - precision * t).numpy()
    fall = h[0] - h[-1]
    bend = np.abs(np.diff(h, 2)).max()
    if f.spreads(mu):
        verdict = "convex: equal distances are best"
    elif bend <= 1e-9 * fall:
        verdict = "straight: any centred set is as good"
    else:
        verdict = "not convex everywhere: unequal distances can be better"
    return chart(
        f"{f.title}, μ = {mu:g}: {verdict}",
        "squared distance t",
        "h(t), scaled to 1 … 0",
        line("h", t.numpy(), (h - h[-1]) / fall, "negative"),
        line("straight line", [0, 4], [1, 0], "ignored", "dot"),
        xaxis_range=[0, 4],
    )


def _push_apart(
    f: divergences.Divergence, mu: float, precision: float, points: int, dimension: int
) -> tuple[Array, Array]:
    """Unit vectors before and after minimising the mean of h over all pairs."""
    start = np.random.default_rng(0).standard_normal(points * dimension)
    end = start
    loss = _Repulsion(f, mu, precision, points, dimension)
    options = {"maxiter": 2000, "ftol": 0, "gtol": 1e-10}
    for _ in range(4):  # each time in units of where it begins, so that the tolerance is one of the loss at hand
        unit, _ = loss(end)
        if not unit > 0:  # h is flat as far as numbers can tell
            break
        end = optimize.minimize(loss, end, unit, jac=True, method="L-BFGS-B", options=options).x
    both = np.stack([start, end]).reshape(2, points, dimension)
    both /= np.linalg.norm(both, axis=2, keepdims=True)
    return both[0], both[1]


class _Repulsion:
    """Sum of h − h(5) over all pairs of points, with its gradient, for :func:`scipy.optimize.minimize`.

    h may fall by 20 powers of ten to a constant, so the difference is computed as an integral of slopes.
    """

    def __init__(self, f: divergences.Divergence, mu: float, precision: float, points: int, dimension: int) -> None:
        self.f = f
        self.log_mu = math.log(mu)
        self.precision = precision
        self.shape = (points, dimension)
        self.off_diagonal = ~torch.eye(points, dtype=torch.bool)
        self.nodes, self.weights = map(torch.from_numpy, np.polynomial.legendre.leggauss(64))

    def __call__(self, coordinates: Array, unit: float = 1.0) -> tuple[float, Array]:
        """Value and gradient at ``[points · dimension]`` coordinates, both in units of ``unit``."""
        free = torch.tensor(coordinates.reshape(self.shape), requires_grad=True)
        x = functional.normalize(free, dim=1)
        t = (2 - 2 * x @ x.T)[self.off_diagonal]
        from_t = t.detach()
        half = (5 - from_t) / 2
        on_the_way = from_t[:, None] + half[:, None] * (1 + self.nodes)
        slopes = self._slopes(torch.cat([from_t[:, None], on_the_way], 1))
        value = -(half * (slopes[:, 1:] @ self.weights)).sum()
        (gradient,) = torch.autograd.grad((slopes[:, 0] * t).sum(), free)
        return value.item() / unit, gradient.numpy().ravel() / unit

    def _slopes(self, t: Tensor) -> Tensor:
        """h′ at squared distances of any shape."""
        t = t.requires_grad_()
        h = self.f.composition(self.log_mu - self.precision * t)
        (slopes,) = torch.autograd.grad(h.sum(), t)
        return slopes


def simplex(
    divergence: str = "kl", mu: float = 1.0, precision: float = 1.0, points: int = 8, dimension: int = 8
) -> go.Figure:
    """Where free points on a sphere go if a divergence does nothing but push them apart: all squared distances, sorted.

    ``mu``, ``precision``: as for :func:`composition`. A regular simplex needs ``points`` ≤ ``dimension`` + 1.
    """
    f = divergences.get(divergence)
    check_positive(mu=mu, precision=precision)
    check_integer("points", points, 2)
    check_integer("dimension", dimension, 2)
    start, end = _push_apart(f, mu, precision, points, dimension)
    before = _sorted_distances(start)
    after = _sorted_distances(end)
    rank = effective_rank(torch.from_numpy(end), squared=True)
    if np.ptp(after) < 1e-3:
        verdict = "all distances are equal"
    elif rank < 1.001:
        verdict = "two opposite clusters"
    else:
        verdict = "distances stay unequal"
    pairs = np.arange(1, len(after) + 1)
    regular = [2 * points / (points - 1)] * len(pairs)
    return chart(
        f"{f.title}, μ = {mu:g}: {verdict}; {points} points fill {rank:.1f} dimensions",
        "pairs of points, closest first",
        "squared distance t",
        line("random start", pairs, before, "ignored", "dot", marker={"symbol": "x", "size": 6}),
        line("regular simplex, 2N/(N − 1)", pairs, regular, "truth", "longdash"),
        line("after minimising", pairs, after, "negative", marker={"symbol": "circle", "size": 7}),
        yaxis_range=[-0.1, 4.1],
    )


def _sorted_distances(x: Array) -> Array:
    """Squared distances of all pairs of unit vectors ``[N, d]``, the smallest first."""
    upper = np.triu_indices(len(x), 1)
    distances = np.maximum(2 - 2 * (x @ x.T)[upper], 0.0)
    return np.sort(distances)
