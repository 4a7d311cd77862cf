"""Made worlds of several views: who pays for which bit, when another view helps, what untrained views know.

The worlds are fair bits, of which each view holds some; so every information is counted, not estimated. An encoder is
linear and gives a few numbers of mean power one, to which noise is added: room for so many bits, and no more. The loss
is InfoNCE with the critic ``−scale·‖z − z′‖²`` (cmc, Equations 7 and 8), summed over the pairs of a graph.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import rel_entr
from torch import Tensor
from torch.nn import functional as F

from contrastlab.support.errors import check_range, reject

Graph = Literal["core", "full"]
Holding = dict[str, tuple[int, ...]]  #: bit to the views that keep it

FOUR: Mapping[str, tuple[int, ...]] = {"a": (0, 1, 2, 3), "b": (0, 1), "c": (0, 1, 2), "d": (1, 2, 3), "e": (2, 3)}
"""Bit to the views (from 0) that hold it: four views; each has one private bit besides."""


def pairs(views: int, graph: Graph) -> list[tuple[int, int]]:
    """Unordered pairs of views whose information is summed: the first with each other (``core``), or all."""
    return [pair for pair in itertools.combinations(range(views), 2) if graph == "full" or 0 in pair]


def information(first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
    """Mutual information, in bits, of two codes of equally likely states: ``[S, p]`` and ``[S, q]``."""

    def entropy(code: NDArray[np.int64]) -> float:
        share = np.unique(code, axis=0, return_counts=True)[1] / len(code)
        return float(-(share * np.log2(share)).sum())

    return entropy(first) + entropy(second) - entropy(np.concatenate([first, second], 1))


def _views_of(world: Mapping[str, Sequence[int]]) -> int:
    return 1 + max(view for holders in world.values() for view in holders)


def of_world(world: Mapping[str, Sequence[int]]) -> tuple[list[list[int]], list[str]]:
    """The bits of each view, and their names: the world's, then a private one of each view."""
    views = range(_views_of(world))
    holders = dict(world) | {f"private {view}": (view,) for view in views}
    bits_of_views = [[n for n, bit in enumerate(holders) if view in holders[bit]] for view in views]
    return bits_of_views, list(holders)


def prices(world: Mapping[str, Sequence[int]], graph: Graph) -> dict[str, float]:
    """By how many bits the sum of informations falls without each bit, by enumeration of all states."""
    held, names = of_world(world)
    states = np.array(list(itertools.product((0, 1), repeat=len(names))), dtype=np.int64)

    def total(without: int | None) -> float:
        bits = states.copy()
        if without is not None:
            bits[:, without] = 0
        return sum(information(bits[:, held[i]], bits[:, held[j]]) for i, j in pairs(len(held), graph))

    whole = total(None)
    return {bit: whole - total(n) for n, bit in enumerate(names)}


def kept(world: Mapping[str, Sequence[int]], graph: Graph, room: int) -> tuple[float, list[Holding]]:
    """What views with room for a few bits keep: the largest sum of informations, in bits, and all ways to reach it.

    A way has no more bits than it needs, and is given as bit to the views that keep it.
    """
    count = _views_of(world)
    choices = [_selections(world, view, room) for view in range(count)]  # of each view, as sets of bits
    grid = np.meshgrid(*(np.array(each) for each in choices), indexing="ij")
    value = sum(np.bitwise_count(grid[i] & grid[j]).astype(int) for i, j in pairs(count, graph))
    used = sum(np.bitwise_count(each).astype(int) for each in grid)
    largest = np.max(value)
    fewest = used[value == largest].min()
    best = np.argwhere((value == largest) & (used == fewest))
    ways = []
    for place in best:
        masks = [choices[view][k] for view, k in enumerate(place)]
        way = {}
        for n, bit in enumerate(world):
            way[bit] = tuple(view for view in range(count) if masks[view] >> n & 1)
        ways.append(way)
    return float(largest), ways


def _selections(world: Mapping[str, Sequence[int]], view: int, room: int) -> list[int]:
    """All sets of at most ``room`` of the bits that a view holds; number n is in a set whose n-th binary digit is 1."""
    held = [n for n, bit in enumerate(world) if view in world[bit]]
    selections = []
    for size in range(room + 1):
        for members in itertools.combinations(held, size):
            selections.append(sum(1 << n for n in members))
    return selections


@dataclass(frozen=True)
class LinearEncoders:
    """Linear encoders of views of bits: ``weights`` ``[n_v, m]`` for each view v of n_v bits, and sd of the noise."""

    weights: tuple[Tensor, ...]
    noise: float

    def embed(self, views: Sequence[Tensor], generator: torch.Generator) -> list[Tensor]:
        """``[B, m]`` of each view: numbers of mean power one over the batch, and noise."""
        out = []
        for view, weight in zip(views, self.weights, strict=True):
            z = view @ weight
            z = z / z.square().mean(0).sqrt().clamp(min=1e-6)
            out.append(z + self.noise * torch.randn(z.shape, generator=generator))
        return out


def new(sizes: Sequence[int], room: int, noise: float, generator: torch.Generator) -> LinearEncoders:
    """Encoders as initialised: Gaussian weights."""
    return LinearEncoders(tuple(torch.randn(n, room, generator=generator) / math.sqrt(n) for n in sizes), noise)


def infonce(first: Tensor, second: Tensor, scale: Tensor) -> Tensor:
    """Mean InfoNCE of both directions, nats, with the critic ``−e^scale·‖z − z′‖²``: ``[B, m]`` twice."""
    scores = -scale.exp() * torch.cdist(first, second).square()
    target = torch.arange(len(first))
    return (F.cross_entropy(scores, target) + F.cross_entropy(scores.T, target)) / 2


def _draw(
    draw: Sequence[Sequence[int]], bits: int, count: int, generator: torch.Generator
) -> tuple[Tensor, list[Tensor]]:
    """States of the world, ±1 ``[count, bits]``, and what each view sees of them."""
    world = torch.randint(2, (count, bits), generator=generator).float() * 2 - 1
    return world, [world[:, list(held)] for held in draw]


def train(
    draw: Sequence[Sequence[int]],
    bits: int,
    graph: Graph,
    room: int,
    *,
    seed: int,
    steps: int = 300,
    batch: int = 128,
    noise: float = 0.4,
) -> LinearEncoders:
    """Encoders of fair bits, one a view that holds the bits of ``draw``, trained by CMC on fresh batches."""
    generator = torch.Generator().manual_seed(seed)
    encoders = new([len(held) for held in draw], room, noise, generator)
    scale = torch.zeros(len(draw), len(draw), requires_grad=True)
    for weight in encoders.weights:
        weight.requires_grad_()
    optimiser = torch.optim.Adam([*encoders.weights, scale], lr=0.03)
    for _ in range(steps):
        _, views = _draw(draw, bits, batch, generator)
        z = encoders.embed(views, generator)
        losses = [infonce(z[i], z[j], scale[i, j]) for i, j in pairs(len(draw), graph)]
        optimiser.zero_grad()
        torch.stack(losses).sum().backward()
        optimiser.step()
    return LinearEncoders(tuple(weight.detach() for weight in encoders.weights), noise)


def read(encoders: LinearEncoders, draw: Sequence[Sequence[int]], bits: int, *, seed: int) -> list[Tensor]:
    """How well each bit of the world is read from each view's embedding, and last from all views together.

    ``[bits]`` each: share of 4,000 new states whose bit has the sign of a least-squares fit on as many others.
    """
    generator, count = torch.Generator().manual_seed(10_000 + seed), 4000
    world, views = _draw(draw, bits, 2 * count, generator)
    z = encoders.embed(views, generator)
    out = []
    for seen in (*z, torch.cat(z, 1)):
        fitted = torch.linalg.lstsq(seen[:count], world[:count]).solution
        out.append(((seen[count:] @ fitted > 0) == (world[count:] > 0)).double().mean(0))
    return out


PARTNERS = {"sees both": (True, True), "sees y": (True, False), "sees n": (False, True)}
"""Views beside a core view (y, n) of two fair bits: whether they see the label y, and the nuisance n."""


def best_code(partners: Sequence[str], *, n_flip: float = 0.04) -> tuple[float, dict[str, float]]:
    """The one-bit code of (y, n) that shares most with some views, and what it says of y.

    The views are of :data:`PARTNERS`, and have room for all they see, each bit flipped with its probability. Returns
    accuracy of y from the best of all codes; and the sums of informations, in bits, of the codes ``y`` and ``n``.
    """
    check_range("n_flip", n_flip, 0, 0.5)
    y, n = (bit.ravel() for bit in np.meshgrid((0, 1), (0, 1), indexing="ij"))
    views = []
    for partner in partners:
        sees_y, sees_n = PARTNERS[partner]
        flip_of_y = 0.1 if sees_y else 0.5  # half of the bits flipped is nothing seen
        flip_of_n = n_flip if sees_n else 0.5
        of_y = _seen(y, flip_of_y)
        of_n = _seen(n, flip_of_n)
        views.append(of_y[:, :, None] * of_n[:, None])
    codes = [np.array(code) for code in itertools.product((0, 1), repeat=4)]
    best = max(codes, key=lambda code: round(_shared_with(views, code), 12))
    right = 0
    for value in (0, 1):
        labels = y[best == value]
        right += max(np.sum(labels == 0), np.sum(labels == 1))
    return float(right / 4), {"y": _shared_with(views, y), "n": _shared_with(views, n)}


def _seen(bit: NDArray[np.int64], flip: float) -> NDArray[np.float64]:
    """How likely a view sees 0 and 1, ``[4, 2]``, in each state whose bit is given, ``[4]``."""
    return np.where(bit[:, None] == (0, 1), 1 - flip, flip)


def _shared_with(views: Sequence[NDArray[np.float64]], code: NDArray[np.int64]) -> float:
    """Sum of the informations, in bits, of a code ``[4]`` of the states and each view ``[4, 2, 2]``."""
    total = 0.0
    for view in views:
        joint = np.stack([view[code == value].reshape(-1, 4).sum(0) / 4 for value in (0, 1)])
        product = joint.sum(1, keepdims=True) * joint.sum(0)
        total += rel_entr(joint, product).sum() / math.log(2)
    return float(total)


def floors(views: Sequence[int], *, room: int = 8) -> dict[int, float]:
    """Accuracy of 8 label bits from M untrained encoders; each view holds all of them, and as many of its own."""
    labels = 8
    accuracies = {}
    for count in views:
        draw = [[*range(labels), *range(labels * (1 + v), labels * (2 + v))] for v in range(count)]
        encoders = new([2 * labels] * count, room, 0.5, torch.Generator().manual_seed(0))
        *_, from_all_views = read(encoders, draw, labels * (1 + count), seed=0)
        accuracies[count] = float(from_all_views[:labels].mean())
    return accuracies


def u_formula(shared: float, *, room: int = 8) -> float:
    """Accuracy of 8 label bits, the first of those ``shared`` by two views, from ``room`` numbers with noise of sd 0.5.

    An encoder spreads its power evenly over the shared bits. Up to ``room`` of them each is read behind noise that is
    less the fewer they are; beyond, each number holds several, and a linear reader gets a part of each one's variance.
    """
    if not shared:
        return 0.5
    noise, labels = 0.5, 8
    if shared <= room:
        margin = math.sqrt(room / shared) / noise
    else:
        explained = (room / shared) / (1 + noise**2)
        margin = math.sqrt(explained / (1 - explained))
    right = 0.5 * (1 + math.erf(margin / math.sqrt(2)))
    read_bits = min(shared, labels)
    return (read_bits * right + (labels - read_bits) / 2) / labels


def u_trained(shared: int, *, seed: int, steps: int = 300) -> float:
    """The same by training: two views of 16 bits share the first ones, each has the others for itself."""
    bits = 16
    all_bits = 2 * bits - shared
    draw = [list(range(bits)), [*range(shared), *range(bits, all_bits)]]
    encoders = train(draw, all_bits, "full", 8, seed=seed, steps=steps, batch=256, noise=0.5)
    from_first_view, *_ = read(encoders, draw, all_bits, seed=seed)
    return float(from_first_view[:8].mean())


def sign_accuracy(
    objective: Literal["predict", "contrast"], rho: Sequence[float], scale: Sequence[float], *, count: int = 20_000
) -> float:
    """Accuracy of the sign of the first of several independent factors from one number, where views are Gaussian.

    The second view shows factor k at size ``scale[k]`` and with correlation ``rho[k]``. Prediction keeps the factor of
    the largest explained variance (reduced-rank regression), contrast that of the largest correlation (CCA).
    """
    if objective not in ("predict", "contrast"):
        raise reject("objective", objective, "'predict' or 'contrast'")
    rng = np.random.default_rng(0)
    r, s = np.array(rho), np.array(scale)
    first = rng.standard_normal((count, len(r)))
    second = s * (r * first + np.sqrt(1 - r**2) * rng.standard_normal((count, len(r))))

    def whitened(view: NDArray[np.float64]) -> NDArray[np.float64]:
        return view @ np.linalg.inv(np.linalg.cholesky(view.T @ view / count)).T

    white = whitened(first)
    left, _, _ = np.linalg.svd(white.T @ (whitened(second) if objective == "contrast" else second) / count)
    agree = float(((white @ left[:, 0] > 0) == (first[:, 0] > 0)).mean())
    return max(agree, 1 - agree)
