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
    all_pairs = list(itertools.combinations(range(views), 2))
    if graph == "full":
        return all_pairs
    return [pair for pair in all_pairs if 0 in pair]


def information(first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
    """Mutual information, in bits, of two codes of equally likely states: ``[S, p]`` and ``[S, q]``."""
    both = np.concatenate([first, second], 1)
    return _entropy(first) + _entropy(second) - _entropy(both)


def _entropy(code: NDArray[np.int64]) -> float:
    """Entropy, in bits, of a code of equally likely states: ``[S, p]``."""
    _, counts = np.unique(code, axis=0, return_counts=True)
    probabilities = counts / len(code)
    return float(-(probabilities * np.log2(probabilities)).sum())


def _count_views(world: Mapping[str, Sequence[int]]) -> int:
    """How many views there are, where the last one holds some bit of the world."""
    last_views = [max(views) for views in world.values()]
    return 1 + max(last_views)


def of_world(world: Mapping[str, Sequence[int]]) -> tuple[list[list[int]], list[str]]:
    """The bits of each view, and their names: the world's, then a private one of each view."""
    count = _count_views(world)
    views_of_bit = dict(world)
    for view in range(count):
        views_of_bit[f"private {view}"] = (view,)
    bits_of_views = [_bits_of_view(views_of_bit, view) for view in range(count)]
    return bits_of_views, list(views_of_bit)


def _bits_of_view(world: Mapping[str, Sequence[int]], view: int) -> list[int]:
    """The numbers of the bits that a view holds."""
    return [number for number, views in enumerate(world.values()) if view in views]


def prices(world: Mapping[str, Sequence[int]], graph: Graph) -> dict[str, float]:
    """By how many bits the sum of informations falls without each bit, by enumeration of all states."""
    bits_of_views, names = of_world(world)
    states = np.array(list(itertools.product((0, 1), repeat=len(names))), dtype=np.int64)
    whole = _total_information(states, bits_of_views, graph)
    price: dict[str, float] = {}
    for number, name in enumerate(names):
        without = states.copy()
        without[:, number] = 0
        price[name] = whole - _total_information(without, bits_of_views, graph)
    return price


def _total_information(states: NDArray[np.int64], bits_of_views: Sequence[Sequence[int]], graph: Graph) -> float:
    """Sum over the pairs of a graph of the informations of two views, in bits; ``[S, bits]`` equally likely states."""
    views = [states[:, bits] for bits in bits_of_views]
    return sum(information(views[i], views[j]) for i, j in pairs(len(views), graph))


def kept(world: Mapping[str, Sequence[int]], graph: Graph, room: int) -> tuple[float, list[Holding]]:
    """What views with room for a few bits keep: the largest sum of informations, in bits, and all ways to reach it.

    A way has no more bits than it needs, and is given as bit to the views that keep it.
    """
    count = _count_views(world)
    selections = [_selections(world, view, room) for view in range(count)]
    # every way to choose a selection for each view: an array a view, all with one axis a view
    chosen = np.meshgrid(*selections, indexing="ij")
    shared = sum(_set_sizes(chosen[i] & chosen[j]) for i, j in pairs(count, graph))
    used = np.sum([_set_sizes(sets) for sets in chosen], axis=0)
    largest = np.max(shared)
    is_largest = shared == largest
    fewest = used[is_largest].min()
    best = np.argwhere(is_largest & (used == fewest))
    ways: list[Holding] = []
    for place in best:
        sets = [selections[view][number] for view, number in enumerate(place)]
        ways.append(_as_holding(world, sets))
    return float(largest), ways


def _selections(world: Mapping[str, Sequence[int]], view: int, room: int) -> list[int]:
    """All sets of at most ``room`` of the bits that a view holds; bit n is in a set whose n-th binary digit is 1."""
    held = _bits_of_view(world, view)
    selections: list[int] = []
    for size in range(room + 1):
        for members in itertools.combinations(held, size):
            selections.append(sum(1 << bit for bit in members))
    return selections


def _set_sizes(sets: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many bits are in each set."""
    return np.bitwise_count(sets).astype(np.int64)


def _as_holding(world: Mapping[str, Sequence[int]], sets: Sequence[int]) -> Holding:
    """The views that keep each bit, from the set of bits that each view keeps."""
    holding: Holding = {}
    for number, bit in enumerate(world):
        holding[bit] = tuple(view for view, kept_bits in enumerate(sets) if kept_bits >> number & 1)
    return holding


@dataclass(frozen=True)
class LinearEncoders:
    """Linear encoders of views of bits: ``weights`` ``[n_v, m]`` for each view v of n_v bits, and sd of the noise."""

    weights: tuple[Tensor, ...]
    noise: float

    def embed(self, views: Sequence[Tensor], generator: torch.Generator) -> list[Tensor]:
        """``[B, m]`` of each view: numbers of mean power one over the batch, and noise."""
        embeddings: list[Tensor] = []
        for view, weight in zip(views, self.weights, strict=True):
            signal = view @ weight
            root_mean_square = signal.square().mean(0).sqrt()
            signal = signal / root_mean_square.clamp(min=1e-6)
            noise = torch.randn(signal.shape, generator=generator)
            embeddings.append(signal + self.noise * noise)
        return embeddings


def new(sizes: Sequence[int], room: int, noise: float, generator: torch.Generator) -> LinearEncoders:
    """Untrained encoders of views of ``sizes`` bits: normal weights of variance 1 over the number of bits."""
    weights: list[Tensor] = []
    for size in sizes:
        normal = torch.randn(size, room, generator=generator)
        weights.append(normal / math.sqrt(size))
    return LinearEncoders(tuple(weights), noise)


def infonce(first: Tensor, second: Tensor, scale: Tensor) -> Tensor:
    """Mean InfoNCE of both directions, nats, with the critic ``−e^scale·‖z − z′‖²``: ``[B, m]`` twice."""
    square_distances = torch.cdist(first, second).square()
    scores = -scale.exp() * square_distances
    target = torch.arange(len(first))
    from_first = F.cross_entropy(scores, target)
    from_second = F.cross_entropy(scores.T, target)
    return (from_first + from_second) / 2


def _draw_states(
    bits_of_views: Sequence[Sequence[int]],
    bits: int,
    count: int,
    generator: torch.Generator,
) -> tuple[Tensor, list[Tensor]]:
    """States of the world, ±1 ``[count, bits]``, and what each view sees of them, ``[count, n_v]``."""
    zeros_and_ones = torch.randint(2, (count, bits), generator=generator).float()
    world = zeros_and_ones * 2 - 1
    views = [world[:, list(held)] for held in bits_of_views]
    return world, views


def train(
    bits_of_views: Sequence[Sequence[int]],
    bits: int,
    graph: Graph,
    room: int,
    *,
    seed: int,
    steps: int = 300,
    batch: int = 128,
    noise: float = 0.4,
) -> LinearEncoders:
    """Encoders of fair bits, one for each view, trained by CMC on fresh batches.

    Args:
        bits_of_views: the numbers of the bits that each view holds.
        bits: how many bits the world has.
        graph: the pairs of views whose losses are summed.
        room: width of the embeddings.
        seed: of weights, batches and noise.
        steps: of Adam, each on one batch.
        batch: states of the world in a batch.
        noise: sd of what is added to each number of an embedding.
    """
    generator = torch.Generator().manual_seed(seed)
    sizes = [len(held) for held in bits_of_views]
    encoders = new(sizes, room, noise, generator)
    for weight in encoders.weights:
        weight.requires_grad_()
    count = len(bits_of_views)
    log_scale = torch.zeros(count, count, requires_grad=True)  # of each pair's critic
    optimiser = torch.optim.Adam([*encoders.weights, log_scale], lr=0.03)
    for _ in range(steps):
        _, views = _draw_states(bits_of_views, bits, batch, generator)
        z = encoders.embed(views, generator)
        losses = [infonce(z[i], z[j], log_scale[i, j]) for i, j in pairs(count, graph)]
        loss = torch.stack(losses).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    trained = tuple(weight.detach() for weight in encoders.weights)
    return LinearEncoders(trained, noise)


def read(encoders: LinearEncoders, bits_of_views: Sequence[Sequence[int]], bits: int, *, seed: int) -> list[Tensor]:
    """How well each bit of the world is read from each view's embedding, and last from all views together.

    ``[bits]`` each: share of 4,000 new states whose bit has the sign of a least-squares fit on as many others.
    """
    count = 4000
    generator = torch.Generator().manual_seed(10_000 + seed)
    world, views = _draw_states(bits_of_views, bits, 2 * count, generator)
    embeddings = encoders.embed(views, generator)
    all_together = torch.cat(embeddings, 1)
    is_one = world[count:] > 0
    accuracies: list[Tensor] = []
    for embedding in (*embeddings, all_together):
        readout = torch.linalg.lstsq(embedding[:count], world[:count]).solution
        says_one = embedding[count:] @ readout > 0
        is_right = says_one == is_one
        accuracies.append(is_right.double().mean(0))
    return accuracies


PARTNERS = {"sees both": (True, True), "sees y": (True, False), "sees n": (False, True)}
"""Views beside a core view (y, n) of two fair bits: whether they see the label y, and the nuisance n."""


def best_code(partners: Sequence[str], *, n_flip: float = 0.04) -> tuple[float, dict[str, float]]:
    """The one-bit code of (y, n) that shares most with some views, and what it says of y.

    The views are of :data:`PARTNERS`, and have room for all they see, each bit flipped with its probability. Returns
    accuracy of y from the best of all codes; and the sums of informations, in bits, of the codes ``y`` and ``n``.
    """
    check_range("n_flip", n_flip, 0, 0.5)
    y = np.array([0, 0, 1, 1])  # in each of the four states
    n = np.array([0, 1, 0, 1])
    views: list[NDArray[np.float64]] = []
    for partner in partners:
        sees_y, sees_n = PARTNERS[partner]
        flip_of_y = 0.1 if sees_y else 0.5  # half of the bits flipped is nothing seen
        flip_of_n = n_flip if sees_n else 0.5
        of_y = _seen(y, flip_of_y)
        of_n = _seen(n, flip_of_n)
        views.append(of_y[:, :, None] * of_n[:, None])
    codes = [np.array(code) for code in itertools.product((0, 1), repeat=4)]
    # rounded, so that of codes that share as much the first is chosen
    informations = [round(_shared_with(views, code), 12) for code in codes]
    best = codes[informations.index(max(informations))]
    right = 0
    for value in (0, 1):
        labels = y[best == value]
        right += max(np.sum(labels == 0), np.sum(labels == 1))
    return float(right / 4), {"y": _shared_with(views, y), "n": _shared_with(views, n)}


def _seen(bit: NDArray[np.int64], flip: float) -> NDArray[np.float64]:
    """Probabilities ``[4, 2]`` that a view sees 0 and 1 in each state, whose bit is given, ``[4]``."""
    return np.where(bit[:, None] == (0, 1), 1 - flip, flip)


def _shared_with(views: Sequence[NDArray[np.float64]], code: NDArray[np.int64]) -> float:
    """Sum of the informations, in bits, of a code ``[4]`` of the states and each view ``[4, 2, 2]``."""
    total = 0.0
    for view in views:
        seen = view.reshape(4, 4)  # of each state, the probabilities of the four things that a view may see
        where_zero = seen[code == 0].sum(0) / 4
        where_one = seen[code == 1].sum(0) / 4
        joint = np.stack([where_zero, where_one])
        product = joint.sum(1, keepdims=True) * joint.sum(0)
        nats = rel_entr(joint, product).sum()
        total += nats / math.log(2)
    return float(total)


def floors(views: Sequence[int], *, room: int = 8) -> dict[int, float]:
    """Accuracy of 8 label bits from M untrained encoders; each view holds all of them, and as many of its own."""
    labels = 8
    accuracies: dict[int, float] = {}
    for count in views:
        bits_of_views: list[list[int]] = []
        for view in range(count):
            first_own = labels * (1 + view)
            own = range(first_own, first_own + labels)
            bits_of_views.append([*range(labels), *own])
        generator = torch.Generator().manual_seed(0)
        encoders = new([2 * labels] * count, room, 0.5, generator)
        *_, from_all_views = read(encoders, bits_of_views, labels * (1 + count), seed=0)
        accuracies[count] = float(from_all_views[:labels].mean())
    return accuracies


def u_formula(shared: float, *, room: int = 8) -> float:
    """Accuracy of 8 label bits, the first of those ``shared`` by two views, from ``room`` numbers with noise of sd 0.5.

    An encoder spreads its power evenly over the shared bits. Up to ``room`` of them each is read behind noise that is
    less the fewer they are; beyond, each number holds several, and a linear reader gets a part of each one's variance.
    """
    if not shared:
        return 0.5
    noise = 0.5
    labels = 8
    if shared <= room:
        margin = math.sqrt(room / shared) / noise
    else:
        explained = (room / shared) / (1 + noise**2)
        margin = math.sqrt(explained / (1 - explained))
    right = 0.5 * (1 + math.erf(margin / math.sqrt(2)))
    read_bits = min(shared, labels)
    guessed_right = (labels - read_bits) / 2
    return (read_bits * right + guessed_right) / labels


def u_trained(shared: int, *, seed: int, steps: int = 300) -> float:
    """The same by training: two views of 16 bits share the first ones, each has the others for itself."""
    bits = 16
    all_bits = 2 * bits - shared
    first = list(range(bits))
    second = [*range(shared), *range(bits, all_bits)]
    encoders = train([first, second], all_bits, "full", 8, seed=seed, steps=steps, batch=256, noise=0.5)
    from_first_view, *_ = read(encoders, [first, second], all_bits, seed=seed)
    return float(from_first_view[:8].mean())


def sign_accuracy(
    objective: Literal["predict", "contrast"],
    rho: Sequence[float],
    scale: Sequence[float],
    *,
    count: int = 20_000,
) -> float:
    """Accuracy of the sign of the first of several independent factors from one number, where views are Gaussian.

    The second view shows factor k at size ``scale[k]`` and with correlation ``rho[k]``. Prediction keeps the factor of
    the largest explained variance (reduced-rank regression), contrast that of the largest correlation (CCA).
    """
    if objective not in ("predict", "contrast"):
        raise reject("objective", objective, "'predict' or 'contrast'")
    rng = np.random.default_rng(0)
    correlations = np.array(rho)
    first = rng.standard_normal((count, len(correlations)))
    noise = rng.standard_normal((count, len(correlations)))
    correlated = correlations * first + np.sqrt(1 - correlations**2) * noise
    second = np.array(scale) * correlated
    if objective == "contrast":
        second = _whitened(second)
    white = _whitened(first)
    left, _, _ = np.linalg.svd(white.T @ second / count)
    code = white @ left[:, 0]
    has_same_sign = (code > 0) == (first[:, 0] > 0)
    agreement = float(has_same_sign.mean())
    return max(agreement, 1 - agreement)


def _whitened(view: NDArray[np.float64]) -> NDArray[np.float64]:
    """Samples ``[N, p]`` of mean 0, mapped linearly so that their second moments are the identity."""
    second_moments = view.T @ view / len(view)
    root = np.linalg.cholesky(second_moments)
    return view @ np.linalg.inv(root).T
