"""Small networks trained with hard negatives on two normal variables, under each reading of vince appendix E.

All percentages and seeds of a reading are trained at once. What the bound is worth exactly is in
:mod:`contrastbook.theory.gaussians`; :mod:`contrastbook.studies.vince_table3` runs and judges the readings.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from contrastbook.studies.networks import Networks, symmetric
from contrastbook.theory.gaussians import share_of
from contrastlab.information.toys import JointGaussian

COVARIANCE = ((2.0, 0.4), (0.4, 2.0))
POINTS = 2000
NEGATIVES = 100
BATCH = 128
LEARNING_RATE = 0.03
WIDTH = 10
LAYERS = 5
TEMPERATURE = 0.07

Nearest = Literal["y1", "x", "critic"]
Output = Literal["plane", "sphere"]


@dataclass(frozen=True)
class Reading:
    """One way to read the recipe of vince appendix E where it leaves a choice.

    The p % that are negatives of (x, y₁) are ``nearest`` in L2 to the representation of ``"y1"`` (as written) or of
    ``"x"`` (the "current image"), or have the highest ``"critic"`` f(x, ·) (the theorem). ``"sphere"``: f is a cosine
    over .07. ``"fresh"``: all points are encoded at every step; ``"memory"``: at each point's last visit.
    """

    nearest: Nearest = "y1"
    output: Output = "plane"
    encoders: Literal["two", "shared"] = "two"
    bank: Literal["fresh", "memory"] = "fresh"
    data: Literal["fixed", "redrawn"] = "fixed"
    rate: float = LEARNING_RATE

    @property
    def name(self) -> str:
        """``nearest, output`` and whatever differs from the defaults."""
        nearest = {"y1": "near y₁", "x": "near x", "critic": "top f(x,·)"}
        parts = [nearest[self.nearest], self.output]
        if self.encoders == "shared":
            parts.append("one encoder")
        if self.bank == "memory":
            parts.append("memory bank")
        if self.data == "redrawn":
            parts.append("new data per seed")
        if self.rate != LEARNING_RATE:
            parts.append(f"lr {self.rate:g}")
        return ", ".join(parts)


def networks(seeds: Sequence[int], salt: int) -> Networks:
    """A network from R to R^WIDTH for each seed; equal seeds start equal, ``salt`` tells those of X and Y apart."""
    widths = [1, *[WIDTH] * LAYERS]
    sizes = list(itertools.pairwise(widths))  # inputs and outputs of each layer
    weights: list[list[Tensor]] = []
    biases: list[list[Tensor]] = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(1_000_003 * seed + salt)
        weights_of_seed: list[Tensor] = []
        biases_of_seed: list[Tensor] = []
        for inputs, outputs in sizes:
            scale = math.sqrt(inputs)
            weights_of_seed.append(symmetric((inputs, outputs), generator) / scale)
            biases_of_seed.append(symmetric((1, outputs), generator) / scale)
        weights.append(weights_of_seed)
        biases.append(biases_of_seed)
    return Networks(weights, biases)


def choose(scores: Tensor, own: Tensor, percent: float, draws: Tensor) -> Tensor:
    """Indices ``[B, K]`` of negatives: ``draws`` in [0, 1) choose from the highest ``percent`` % of scores ``[B, N]``.

    The positive of each row, ``own`` ``[B]``, is never among them; its score is overwritten.
    """
    keys = scores.shape[1]
    count = max(1, round((keys - 1) * share_of(percent)))
    position = (draws * count).long()
    if count == keys - 1:
        return position + (position >= own[:, None])
    scores.scatter_(1, own[:, None], -math.inf)
    # numpy's partition of float32 is several times faster than torch's topk on a CPU
    order = np.argpartition(scores.numpy(), keys - count, axis=1)
    members = torch.from_numpy(order[:, keys - count :])
    return members.gather(1, position)


def _closeness(middle: Tensor, bank: Tensor) -> Tensor:
    """``[B, N]``: a·b − ½‖b‖², which is −½‖a − b‖² up to what is the same in a row."""
    ones = torch.ones_like(middle[:, :1])
    halves = -0.5 * bank.square().sum(1, keepdim=True)
    extended_middle = torch.cat([middle, ones], 1)
    extended_bank = torch.cat([bank, halves], 1)
    return extended_middle @ extended_bank.T


def contrast(
    anchors: Tensor,
    bank: Tensor,
    positives: Tensor,
    own: Tensor,
    percents: Sequence[float],
    draws: Tensor,
    nearest: Nearest,
) -> Tensor:
    """``[M, B, K]`` critic of each anchor with its drawn negatives, one model at a time: its scores stay in cache.

    Anchors and positives are ``[M, B, E]``, the bank ``[M, N, E]``, own ``[M, B]``, draws ``[M, B, K]``.
    """
    values: list[Tensor] = []
    models = zip(anchors.unbind(), bank.unbind(), positives.detach(), strict=True)
    for model, (anchor, keys, positive) in enumerate(models):
        percent = percents[model]
        scores = anchor @ keys.T
        if percent == 100:
            ranking = scores.detach()
        elif nearest == "critic":
            ranking = scores.detach().clone()  # choose overwrites some
        elif nearest == "y1":
            ranking = _closeness(positive, keys.detach())
        else:
            ranking = _closeness(anchor.detach(), keys.detach())
        drawn_keys = choose(ranking, own[model], percent, draws[model])
        values.append(scores.gather(1, drawn_keys))
    return torch.stack(values)


def bound(positive: Tensor, negatives: Tensor) -> Tensor:
    """Estimate per pair, nats: ``[..., B]`` and ``[..., B, K]`` to ``[..., B]``; the positive is in the denominator."""
    below = torch.cat([positive[..., None], negatives], -1)
    return positive - below.logsumexp(-1) + math.log(below.shape[-1])


def encode(nets: Networks, inputs: Tensor, output: Output) -> Tensor:
    """Representations ``[M, B, WIDTH]``; the critic is the product of those of x and y."""
    outputs = nets(inputs)
    if output == "plane":
        return outputs
    return F.normalize(outputs, dim=-1) / math.sqrt(TEMPERATURE)  # each side carries half of the temperature


def sample(seed: int, count: int = POINTS) -> tuple[Tensor, Tensor]:
    """``count`` pairs of the paper's normal distribution: x and y, ``[count, 1]`` each."""
    distribution = JointGaussian(np.array(COVARIANCE), 1)
    draws = torch.Generator().manual_seed(seed)
    return distribution.sample(count, draws)


def data(reading: Reading, seeds: Sequence[int], points: int) -> tuple[Tensor, Tensor]:
    """X and y of each seed's sample, ``[S, N, 1]`` each."""
    seeds_of_samples = seeds if reading.data == "redrawn" else [0] * len(seeds)
    samples = [sample(seed, points) for seed in seeds_of_samples]
    x = torch.stack([x for x, _ in samples])
    y = torch.stack([y for _, y in samples])
    return x, y


def order(seed: int, points: int, negatives: int, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Indices ``[B]`` and draws ``[B, K]`` in [0, 1) of a seed's batches, epoch after epoch without end."""
    generator = torch.Generator().manual_seed(7_000_003 + seed)
    while True:
        for own in torch.randperm(points, generator=generator).split(batch):
            yield own, torch.rand(len(own), negatives, generator=generator, dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class Fitted:
    """Networks of X and Y after training, one and the same where shared."""

    models: list[tuple[float, int]]  # percentage and seed of each network
    x: Networks
    y: Networks
    curve: Tensor  # [epochs, M] nats, the mean of log K − loss over an epoch's batches as training goes on


class _SideBySide:
    """Models of every percentage and seed, trained together."""

    def __init__(self, reading: Reading, percents: Sequence[float], seeds: Sequence[int], points: int) -> None:
        self.reading = reading
        self.models = [(float(percent), seed) for percent in percents for seed in seeds]
        self.percents = [percent for percent, _ in self.models]
        #: which seed each model has, by its place among them
        self.place = torch.tensor([list(seeds).index(seed) for _, seed in self.models])
        x, y = data(reading, seeds, points)
        self.x = x[self.place]
        self.y = y[self.place]
        self.net_x = networks([seed for _, seed in self.models], 1)
        self.net_y = self.net_x
        parameters = self.net_x.parameters
        if reading.encoders == "two":
            self.net_y = networks([seed for _, seed in self.models], 2)
            parameters = parameters + self.net_y.parameters
        self.optimizer = torch.optim.Adam(parameters, lr=reading.rate, fused=True)
        self.memory: Tensor | None = None
        if reading.bank == "memory":
            self.memory = encode(self.net_y, self.y, reading.output).detach()

    def step(self, own: Tensor, draws: Tensor) -> Tensor:
        """A step on the pairs ``own`` ``[M, B]`` with draws ``[M, B, K]``; the bound of each model, summed, ``[M]``."""
        output = self.reading.output
        pairs = own[..., None]
        anchors = encode(self.net_x, self.x.gather(1, pairs), output)
        if self.memory is None:
            bank = encode(self.net_y, self.y, output)
            positives = bank.gather(1, pairs.expand(-1, -1, WIDTH))
        else:
            bank = self.memory
            positives = encode(self.net_y, self.y.gather(1, pairs), output)
        scores = contrast(anchors, bank, positives, own, self.percents, draws, self.reading.nearest)
        values = bound((anchors * positives).sum(-1), scores)
        self.optimizer.zero_grad()
        loss = -values.mean(1).sum()
        loss.backward()
        self.optimizer.step()
        if self.memory is not None:
            self.memory.scatter_(1, pairs.expand_as(positives), positives.detach())
        return values.detach().sum(1)


def fit(
    reading: Reading,
    percents: Sequence[float],
    seeds: Sequence[int],
    *,
    epochs: int,
    points: int = POINTS,
    negatives: int = NEGATIVES,
    batch: int = BATCH,
) -> Fitted:
    """Train one pair of networks for each percentage and seed, all of them at once; a seed's share start and draws.

    ``negatives``: K, drawn with replacement; a pair's own y is none of them.
    """
    training = _SideBySide(reading, percents, seeds, points)
    batches_of_seeds = [order(seed, points, negatives, batch) for seed in seeds]
    curve: list[Tensor] = []
    for _ in range(epochs):
        total = torch.zeros(len(training.models))
        for _ in range(0, points, batch):
            own_of_seeds: list[Tensor] = []
            draws_of_seeds: list[Tensor] = []
            for batches in batches_of_seeds:
                own, draws = next(batches)
                own_of_seeds.append(own)
                draws_of_seeds.append(draws)
            own_of_models = torch.stack(own_of_seeds)[training.place]
            draws_of_models = torch.stack(draws_of_seeds)[training.place]
            total += training.step(own_of_models, draws_of_models)
        curve.append(total / points)
    return Fitted(training.models, training.net_x, training.net_y, torch.stack(curve))
