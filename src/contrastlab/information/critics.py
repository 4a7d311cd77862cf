"""A critic, which scores every x of a batch against every y, and training that stops when held-out data do not gain."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab.support.errors import (
    NonFiniteLossError,
    check,
    check_integer,
    check_positive,
    is_integer,
    is_number,
    reject,
)
from contrastlab.support.tensors import check_rows, describe, frozen


def mlp(sizes: Sequence[int]) -> nn.Sequential:
    """Linear layers with ReLU between them: ``mlp([2, 128, 128, 2])`` has three."""
    accepted = "two widths or more, integers of at least 1, such as [2, 128, 2]"
    check(isinstance(sizes, Sequence), "sizes", sizes, accepted)
    is_accepted = len(sizes) >= 2 and all(is_integer(size) for size in sizes)
    check(is_accepted, "sizes", list(sizes), accepted)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers.append(nn.Linear(inputs, outputs))
        layers.append(nn.ReLU())
    without_last_relu = layers[:-1]
    return nn.Sequential(*without_last_relu)


class Separable(nn.Module):
    """``f(x, y) = g(x)·h(y) / τ``, with g: ``[B, p]`` → ``[B, d]`` and h: ``[M, q]`` → ``[M, d]``.

    Without ``h``, g embeds y too. ``normalise`` puts g(x) and h(y) on the unit sphere first.
    """

    def __init__(
        self,
        g: nn.Module,
        h: nn.Module | None = None,
        *,
        temperature: float = 1.0,
        normalise: bool = False,
    ) -> None:
        super().__init__()
        self.g = g
        self.h = g if h is None else h
        self.temperature = temperature
        self.normalise = normalise

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """``[B, M]`` scores."""
        u = self.g(x)
        v = self.h(y)
        if self.normalise:
            u = F.normalize(u, dim=1)
            v = F.normalize(v, dim=1)
        return u @ v.T / self.temperature


class Concatenated(nn.Module):
    """``f(x, y) = top(relu(g(x) + h(y)))``: with linear g and h, the network of x and y side by side.

    g: ``[B, p]`` → ``[B, d]``, h: ``[M, q]`` → ``[M, d]``, top: ``[B, M, d]`` → ``[B, M, 1]``. Only ``top`` is computed
    for every pair.
    """

    def __init__(self, g: nn.Module, h: nn.Module, top: nn.Module) -> None:
        super().__init__()
        self.g = g
        self.h = h
        self.top = top

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """``[B, M]`` scores."""
        u = self.g(x)
        v = self.h(y)
        hidden = F.relu(u[:, None] + v[None])
        return self.top(hidden).squeeze(2)


def normal_scores(samples: Tensor) -> Callable[[Tensor], Tensor]:
    """The map ``[M, p]`` → ``[M, p]``, float64, that makes each coordinate of ``samples`` ``[N, p]`` standard normal.

    It is linear between neighbouring samples and grows as asinh beyond the outermost. It is increasing in each
    coordinate, hence invertible: the log ratio of pairs, and so their mutual information, is that of raw values.
    """
    samples = _as_samples("samples", samples, torch.float64)
    check(len(samples) >= 2, "samples", tuple(samples.shape), "a tensor of shape [N, p] with N of at least 2")
    knots = samples.double().T.sort(1).values.contiguous()
    coordinates, count = knots.shape
    ranks = torch.arange(count, dtype=torch.float64)
    scores = torch.special.ndtri((ranks + 0.5) / count)

    def apply(values: Tensor) -> Tensor:
        columns = _as_samples("values", values, torch.float64).T.contiguous()
        accepted = f"rows of {coordinates} columns, like samples"
        check(len(columns) == coordinates, "values", tuple(values.shape), accepted)
        return _interpolate(knots, scores, columns).T

    return apply


def _interpolate(knots: Tensor, scores: Tensor, columns: Tensor) -> Tensor:
    """``[p, M]`` scores of ``columns`` ``[p, M]``, where a row of ``knots`` ``[p, N]`` has ``scores`` ``[N]``."""
    right = torch.searchsorted(knots, columns).clamp(1, len(scores) - 1)
    left = right - 1
    low = knots.gather(1, left)
    high = knots.gather(1, right)
    smallest = torch.finfo(torch.float64).eps
    share = (columns - low) / (high - low).clamp(min=smallest)
    within = share.clamp(0, 1)
    below = share.clamp(max=0).asinh()
    above = (share - 1).clamp(min=0).asinh()
    step = scores[right] - scores[left]
    return scores[left] + step * (within + (below + above))


@dataclass(frozen=True)
class Trace:
    """How a training went: nats of each epoch on what is trained on, and after it on held-out data; larger is better.

    The weights of epoch ``best`` (from 0) were kept.
    """

    train: tuple[float, ...]
    held_out: tuple[float, ...]
    best: int


def early_stopping(
    model: nn.Module,
    train: Callable[[int], float],
    held_out: Callable[[], float],
    *,
    epochs: int,
    patience: int,
) -> Trace:
    """Train until ``patience`` epochs brought nothing, and put the model back to its best epoch.

    ``train`` trains the model in place for an epoch, numbered from 0, and gives its value; ``held_out`` gives the value
    of the model as it is, and of equal values the later is the better.
    """
    train_values: list[float] = []
    held_out_values: list[float] = []
    best = 0
    best_weights = copy.deepcopy(model.state_dict())
    for epoch in range(epochs):
        train_values.append(train(epoch))
        held_out_values.append(held_out())
        if held_out_values[epoch] >= held_out_values[best]:
            best = epoch
            best_weights = copy.deepcopy(model.state_dict())
        if epoch - best >= patience:
            break
    model.load_state_dict(best_weights)
    return Trace(tuple(train_values), tuple(held_out_values), best)


Bound = Callable[[Tensor], Tensor]
"""``[B, B]`` scores of a batch → a scalar bound in nats, such as ``lambda s: bounds.info_nce(*bounds.pairs(s))``."""


@dataclass(frozen=True)
class Fit(Trace):
    """The bound in every epoch, and its ``value`` at the best one, on pairs that neither trained nor stopped it."""

    value: float

    def __repr__(self) -> str:
        return f"Fit({self.value:.4f} nats, best of {len(self.held_out)} epochs: {self.best})"


def _as_samples(name: str, values: Any, dtype: torch.dtype) -> Tensor:
    """Samples ``[N, p]`` of torch or numpy, in whatever precision, as finite numbers of ``dtype``."""
    if not isinstance(values, Tensor | np.ndarray):
        raise reject(name, type(values).__name__, "a tensor or an array of shape [N, p]")
    if isinstance(values, np.ndarray):
        check(values.dtype.kind in "biuf", name, str(values.dtype), "an array of real numbers")
    numbers = torch.as_tensor(values)
    is_dense = numbers.layout == torch.strided
    check(is_dense and not numbers.is_complex(), name, describe(numbers), "dense real numbers")
    check(not numbers.is_meta, name, "meta", "a tensor with numbers, on another device than meta")
    if numbers.dim() != 2:
        accepted = f"a tensor of shape [N, p]; {name}[:, None] makes one coordinate a column"
        raise reject(name, tuple(numbers.shape), accepted)
    numbers = numbers.to(dtype)
    check_rows(name, numbers)
    return numbers


def _as_pairs(critic: nn.Module, x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """As many samples of x as of y, in the precision of the critic."""
    dtype = _precision(critic)
    x = _as_samples("x", x, dtype)
    y = _as_samples("y", y, dtype)
    check(len(x) == len(y), "y", len(y), f"as many rows as x, {len(x)}")
    return x, y


def _precision(critic: nn.Module) -> torch.dtype:
    for parameter in critic.parameters():
        if parameter.is_floating_point():
            return parameter.dtype
    return torch.get_default_dtype()


def evaluate(critic: nn.Module, bound: Bound, x: Tensor, y: Tensor, batch: int) -> float:
    """Mean bound over all whole batches, nats, with the critic in evaluation mode; InfoNCE depends on their size."""
    x, y = _as_pairs(critic, x, y)
    check_integer("batch", batch)
    check(batch <= len(x), "batch", batch, f"at most the {len(x)} pairs")
    with frozen(critic):
        every_row = torch.arange(len(x))
        values = [bound(critic(x[rows], y[rows])) for rows in _whole_batches(every_row, batch)]
    return float(torch.stack(values).mean())


def _whole_batches(order: Tensor, batch: int) -> list[Tensor]:
    count = len(order) // batch
    return list(order[: count * batch].split(batch))


def fit(
    critic: nn.Module,
    bound: Bound,
    x: Tensor,
    y: Tensor,
    *,
    batch: int = 128,
    epochs: int = 200,
    patience: int = 20,
    learning_rate: float = 1e-3,
    held_out: float = 0.2,
    seed: int = 0,
) -> Fit:
    """Maximise ``bound`` over the critic with Adam, in place; stop when held-out pairs no longer gain.

    The pairs ``x`` ``[N, p]`` and ``y`` ``[N, q]``, tensors or arrays of finite numbers in whatever precision, are
    taken in that of the critic. They are split in three: to train, to stop (a share ``held_out``), and to report
    (another such share). A bound read off the pairs that chose the critic is too high, whatever it bounds in
    expectation. The last, partial batch of an epoch is left out.
    """
    x, y = _as_pairs(critic, x, y)
    check_integer("batch", batch)
    check_integer("epochs", epochs)
    check_integer("patience", patience, least=0)
    check_positive(learning_rate=learning_rate)
    check(is_number(held_out) and 0 < held_out < 1, "held_out", held_out, "a share between 0 and 1")
    check(next(critic.parameters(), None) is not None, "critic", type(critic).__name__, "a module with parameters")
    generator = torch.Generator().manual_seed(seed)
    stop_rows, report_rows, train_rows = _split_in_three(len(x), held_out, batch, generator)
    optimiser = torch.optim.Adam(critic.parameters(), lr=learning_rate)

    def train(epoch: int) -> float:
        order = train_rows[torch.randperm(len(train_rows), generator=generator)]
        values = []
        for rows in _whole_batches(order, batch):
            value = bound(critic(x[rows], y[rows]))
            _ascend(value, optimiser, epoch)
            values.append(float(value.detach()))
        return math.fsum(values) / len(values)

    def held_out_value() -> float:
        return evaluate(critic, bound, x[stop_rows], y[stop_rows], batch)

    trace = early_stopping(critic, train, held_out_value, epochs=epochs, patience=patience)
    value = evaluate(critic, bound, x[report_rows], y[report_rows], batch)
    return Fit(trace.train, trace.held_out, trace.best, value)


def _split_in_three(count: int, held_out: float, batch: int, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Rows to stop, to report and to train by, drawn at random; each part holds a batch at least."""
    apart = int(held_out * count)
    rest = count - 2 * apart
    accepted = f"enough for a batch of {batch} in each of the three parts ({apart} are held out, twice)"
    check(min(apart, rest) >= batch, "x", f"{count} rows", accepted)
    return torch.randperm(count, generator=generator).split([apart, apart, rest])


def _ascend(value: Tensor, optimiser: torch.optim.Optimizer, epoch: int) -> None:
    """One step of the optimiser towards a larger value."""
    if not bool(value.isfinite()):
        raise NonFiniteLossError(f"the bound became {value.item()} in epoch {epoch}; lower learning_rate")
    optimiser.zero_grad()
    (-value).backward()
    optimiser.step()
