"""Encoders of points on two spirals, trained with InfoNCE against a memory bank: vince appendix G.

All η, widths of the views' noise, and all seeds of a reading are trained at once; a seed's points, initial weights and
draws are the same for every η. :mod:`contrastbook.studies.vince_figure6` runs and judges the readings.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from contrastbook.studies.networks import Networks, symmetric
from contrastlab.information.toys import Handedness, spirals
from contrastlab.support.seeds import generator

Critic = Literal["dot", "distance"]

# vince appendix G
LAYERS = 5
WIDTH = 128
BATCH = 128
LEARNING_RATE = 0.03
MOMENTUM = 0.9
WEIGHT_DECAY = 1e-5
TEMPERATURE = 0.07
BANK_RATE = 0.5


@dataclass(frozen=True)
class Reading:
    """One way to read what appendix G leaves open.

    ``sphere``: representations and bank rows have norm one. ``dot``: q·k/τ; ``distance``: −‖q − k‖²/τ. ``clip``:
    largest norm of a model's gradient.
    """

    handedness: Handedness = "same"
    turns: float = 2.0
    output: Literal["sphere", "plane"] = "sphere"
    critic: Critic = "dot"
    clip: float | None = None

    @property
    def name(self) -> str:
        """Short, such as ``same, 2 turns, sphere, dot``."""
        turns = "1 turn" if self.turns == 1 else f"{self.turns:g} turns"
        parts = [self.handedness, turns, self.output, self.critic]
        if self.clip is not None:
            parts.append(f"clip {self.clip:g}")
        return ", ".join(parts)


def points_of(reading: Reading, count: int, seed: int, purpose: str = "train") -> tuple[Tensor, Tensor]:
    """``count`` points, half of them on each spiral, and labels: ``[count, 2]`` and ``[count]``; by seed, purpose."""
    draws = generator(seed, f"spirals/{purpose}")
    return spirals(count, draws, handedness=reading.handedness, turns=reading.turns)


def info_nce(
    queries: Tensor,
    positives: Tensor,
    negatives: Tensor,
    critic: Critic,
    scratch: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """InfoNCE with the positive in the denominator (vince Eq. 4), ``[B]`` nats, and its gradient by the queries.

    Queries and positives are ``[B, D]``; the negatives ``[K, D]`` are shared. ``scratch``, ``[2, B, K + 1]``, saves
    allocations that cost as much as the arithmetic.
    """
    if scratch is None:
        scratch = queries.new_empty(2, len(queries), len(negatives) + 1)
    scores, share = scratch  # the positive is in the first column
    columns = negatives.T.contiguous()
    of_negatives = scores[:, 1:]
    # D is 2: products of columns are several times as quick as a matrix product
    torch.mul(queries[:, :1], columns[0], out=of_negatives)
    for axis in range(1, queries.shape[1]):
        of_negatives.addcmul_(queries[:, axis : axis + 1], columns[axis])
    scores[:, 0] = (queries * positives).sum(1)
    scale = 1 / TEMPERATURE
    if critic == "distance":
        # −‖q − k‖² = 2 q·k − ‖k‖² − ‖q‖², whose last term cancels in the softmax
        scale *= 2
        of_negatives.sub_(0.5 * columns.square().sum(0))
        scores[:, 0] -= 0.5 * positives.square().sum(1)
    scores.mul_(scale)
    torch.softmax(scores, 1, out=share)
    # log-sum-exp from the largest share, which cannot underflow as the positive's can
    log_sum_exp = scores.amax(1) - share.amax(1).log()
    loss = log_sum_exp - scores[:, 0]
    mean_key = (columns @ share[:, 1:].T).T + share[:, :1] * positives
    gradient = scale * (mean_key - positives)
    return loss, gradient


class Encoders:
    """One network for every seed (S) and η (E), trained side by side; model ``m`` is seed ``m // E``, noise ``m % E``.

    The networks have layers 2 → 128 → 128 → 128 → 128 → 2; bank rows ``[S·E, N, 2]`` start uniform, on the circle where
    the output is. ``points`` are ``[S, N, 2]``; ``broken`` ``[S·E]`` marks models whose loss was not finite at a step.
    """

    def __init__(self, reading: Reading, etas: Sequence[float], seeds: Sequence[int], points: int) -> None:
        self.reading = reading
        self.etas = tuple(etas)
        self.seeds = tuple(seeds)
        samples = [points_of(reading, points, seed) for seed in seeds]
        self.points = torch.stack([places for places, _ in samples])
        self.labels = torch.stack([labels for _, labels in samples])
        weights: list[list[Tensor]] = []
        biases: list[list[Tensor]] = []
        banks: list[Tensor] = []
        for seed in seeds:
            weight, bias, bank = self._initial(seed, points)
            weights += [weight] * len(etas)
            biases += [bias] * len(etas)
            banks += [bank] * len(etas)
        self.networks = Networks(weights, biases)
        self.bank = torch.stack(banks)
        self.broken = torch.zeros(len(self.bank), dtype=torch.bool)
        self._widths = torch.tensor(self.etas)[:, None, None]
        self._optimizer = torch.optim.SGD(
            self.networks.parameters,
            lr=LEARNING_RATE,
            momentum=MOMENTUM,
            weight_decay=WEIGHT_DECAY,
            foreach=True,
        )
        self._draws = [generator(seed, "spirals/steps") for seed in seeds]

    def _initial(self, seed: int, points: int) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """What all models of a seed start with: weights and biases of each layer, and the bank ``[N, 2]``."""
        widths = [2, *[WIDTH] * (LAYERS - 1), 2]
        sizes = list(itertools.pairwise(widths))  # inputs and outputs of each layer
        draws = generator(seed, "spirals/initial")
        weights = [inputs**-0.5 * symmetric((inputs, outputs), draws) for inputs, outputs in sizes]
        biases = [inputs**-0.5 * symmetric((1, outputs), draws) for inputs, outputs in sizes]
        rows = math.sqrt(1.5) * symmetric((points, 2), draws)
        bank = self._output(rows)
        return weights, biases, bank

    def _output(self, raw: Tensor) -> Tensor:
        """Representations of what the last layer gives."""
        if self.reading.output == "sphere":
            return F.normalize(raw, dim=-1)
        return raw

    def encode(self, inputs: Tensor, models: slice = slice(None)) -> Tensor:
        """Representations ``[M, B, 2]`` of points ``[M, B, 2]``, each by its own model, of all models or of a slice."""
        return self._output(self.networks(inputs, models))

    def views(self, anchors: Tensor, unit: Tensor) -> Tensor:
        """``[S·E, B, 2]``: ``anchors`` ``[S, B, 2]`` plus η times ``unit`` ``[S, B, 2]``, noise of width one."""
        noise = self._widths * unit[:, None]
        of_seeds_and_etas = anchors[:, None] + noise
        return of_seeds_and_etas.flatten(0, 1)

    def draw(self, negatives: int) -> tuple[Tensor, Tensor, Tensor]:
        """The next draws of each seed: rows of the batch ``[S, B]``, unit noise ``[S, B, 2]``, bank rows ``[S, K]``."""
        count = self.points.shape[1]
        size = min(BATCH, count)
        rows: list[Tensor] = []
        noise: list[Tensor] = []
        others: list[Tensor] = []
        for draws in self._draws:
            order = torch.randperm(count, generator=draws)
            rows.append(order[:size])
            noise.append(torch.rand(size, 2, generator=draws))
            others.append(torch.randint(count, (negatives,), generator=draws))
        return torch.stack(rows), torch.stack(noise), torch.stack(others)

    def step(self, rows: Tensor, unit: Tensor, negatives: Tensor) -> Tensor:
        """One step of every model on draws of :meth:`draw`; returns ``[S·E]``, the mean loss in nats.

        InfoNCE against the bank, SGD, then ``M[i] ← α M[i] + (1 − α) g``.
        """
        anchors = torch.stack([points[index] for points, index in zip(self.points, rows, strict=True)])
        queries = self.encode(self.views(anchors, unit))
        losses, gradient = self._losses(queries, rows, negatives)
        self._optimizer.zero_grad()
        queries.backward(gradient)
        if self.reading.clip is not None:
            self._clip(self.reading.clip)
        self._optimizer.step()
        self._update_bank(queries, rows)
        self.broken |= ~losses.isfinite()
        return losses

    @torch.no_grad()
    def _losses(self, queries: Tensor, rows: Tensor, negatives: Tensor) -> tuple[Tensor, Tensor]:
        """Mean loss of each model, ``[S·E]``, and its gradient by the queries ``[S·E, B, 2]``."""
        losses = torch.empty(len(self.bank))
        gradient = torch.empty_like(queries)
        scratch = torch.empty(2, len(rows[0]), len(negatives[0]) + 1)
        for model, bank in enumerate(self.bank):
            seed = model // len(self.etas)
            positive_rows = bank[rows[seed]]
            negative_rows = bank[negatives[seed]]
            loss, slopes = info_nce(queries[model], positive_rows, negative_rows, self.reading.critic, scratch)
            losses[model] = loss.mean()
            gradient[model] = slopes / len(loss)
        return losses, gradient

    def _clip(self, largest: float) -> None:
        """Shorten each model's gradient to a norm."""
        gradients = [parameter.grad for parameter in self.networks.parameters if parameter.grad is not None]
        square_norms = [gradient.square().sum((1, 2)) for gradient in gradients]
        norm = torch.stack(square_norms).sum(0).sqrt()
        factor = (largest / norm.clamp(min=1e-12)).clamp(max=1)
        for gradient in gradients:
            gradient.mul_(factor[:, None, None])

    @torch.no_grad()
    def _update_bank(self, queries: Tensor, rows: Tensor) -> None:
        """Move the rows of the batch towards its queries."""
        for model, bank in enumerate(self.bank):
            index = rows[model // len(self.etas)]
            moved = BANK_RATE * bank[index] + (1 - BANK_RATE) * queries[model]
            bank[index] = self._output(moved)

    def train(self, iterations: int, negatives: int) -> Tensor:
        """``iterations`` steps against K ``negatives``; returns ``[S·E]``, the loss over the last tenth, in nats."""
        last = max(1, iterations // 10)
        recent = torch.zeros(len(self.bank))
        for step in range(iterations):
            rows, noise, others = self.draw(negatives)
            loss = self.step(rows, noise, others)
            if step >= iterations - last:
                recent += loss / last
        return recent
