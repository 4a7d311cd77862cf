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
from contrastlab.support.tensors import check_rows, describe


def mlp(sizes: Sequence[int]) -> nn.Sequential:
    """Linear layers with ReLU between them: ``mlp([2, 128, 128, 2])`` has three."""
    accepted = "two widths or more, integers of at least 1, such as [2, 128, 2]"
    check(isinstance(sizes, Sequence), "sizes", sizes, accepted)
    check(len(sizes) >= 2 and all(is_integer(size) for size in sizes), "sizes", list(sizes), accepted)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Separable(nn.Module):
    """``f(x, y) = g(x)·h(y) / τ``, with g: ``[B, p]`` → ``[B, d]`` and h: ``[M, q]`` → ``[M, d]``, or g in its place.

    ``normalise`` puts g(x) and h(y) on the unit sphere first.
    """

    def __init__(
        self, g: nn.Module, h: nn.Module | None = None, *, temperature: float = 1.0, normalise: bool = False
    ) -> None:
        super().__init__()
        self.g, self.h, self.temperature, self.normalise = g, g if h is None else h, temperature, normalise

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """``[B, M]`` scores."""
        u, v = self.g(x), self.h(y)
        if self.normalise:
            u, v = F.normalize(u, dim=1), F.normalize(v, dim=1)
        return u @ v.T / self.temperature


class Joint(nn.Module):
    """``f(x, y) = top(relu(g(x) + h(y)))``: with linear g and h, the network of x and y side by side.

    g: ``[B, p]`` → ``[B, d]``, h: ``[M, q]`` → ``[M, d]``, top: ``[B, M, d]`` → ``[B, M, 1]``. Only ``top`` is computed
    for every pair.
    """

    def __init__(self, g: nn.Module, h: nn.Module, top: nn.Module) -> None:
        super().__init__()
        self.g, self.h, self.top = g, h, top

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """``[B, M]`` scores."""
        return self.top(F.relu(self.g(x)[:, None] + self.h(y)[None])).squeeze(2)


def normal_scores(samples: Tensor) -> Callable[[Tensor], Tensor]:
    """The map ``[M, p]`` → ``[M, p]``, float64, that makes each coordinate of ``samples`` ``[N, p]`` standard normal.

    It is linear between neighbouring samples and grows as asinh beyond the outermost. It is increasing in each
    coordinate, hence invertible: the log ratio of pairs, and so their mutual information, is that of raw values.
    """
    samples = _samples("samples", samples, torch.float64)
    check(len(samples) >= 2, "samples", tuple(samples.shape), "a tensor of shape [N, p] with N of at least 2")
    knots = samples.double().T.sort(1).values.contiguous()
    count = knots.shape[1]
    scores = torch.special.ndtri((torch.arange(count, dtype=torch.float64) + 0.5) / count)

    def apply(values: Tensor) -> Tensor:
        columns = _samples("values", values, torch.float64).T.contiguous()
        check(len(columns) == len(knots), "values", tuple(values.shape), f"rows of {len(knots)} columns, like samples")
        right = torch.searchsorted(knots, columns).clamp(1, count - 1)
        low, high = knots.gather(1, right - 1), knots.gather(1, right)
        share = (columns - low) / (high - low).clamp(min=torch.finfo(torch.float64).eps)
        beyond = share.clamp(max=0).asinh() + (share - 1).clamp(min=0).asinh()
        return (scores[right - 1] + (scores[right] - scores[right - 1]) * (share.clamp(0, 1) + beyond)).T

    return apply


@dataclass(frozen=True)
class Trace:
    """How a training went: nats of each epoch on what is trained on, and after it on held-out data; larger is better.

    The weights of epoch ``best`` (from 0) were kept.
    """

    train: tuple[float, ...]
    held_out: tuple[float, ...]
    best: int


def early_stopping(
    model: nn.Module, train: Callable[[int], float], held_out: Callable[[], float], *, epochs: int, patience: int
) -> Trace:
    """Train until ``patience`` epochs brought nothing, and put the model back to its best epoch.

    ``train`` trains the model in place for an epoch, numbered from 0, and gives its value; ``held_out`` gives the value
    of the model as it is, and of equal values the later is the better.
    """
    gained: list[float] = []
    reached: list[float] = []
    best, kept = 0, copy.deepcopy(model.state_dict())
    for epoch in range(epochs):
        gained.append(train(epoch))
        reached.append(held_out())
        if reached[-1] >= reached[best]:
            best, kept = epoch, copy.deepcopy(model.state_dict())
        if epoch - best >= patience:
            break
    model.load_state_dict(kept)
    return Trace(tuple(gained), tuple(reached), best)


Bound = Callable[[Tensor], Tensor]
"""``[B, B]`` scores of a batch → a scalar bound in nats, such as ``lambda s: bounds.info_nce(*bounds.pairs(s))``."""


@dataclass(frozen=True)
class Fit(Trace):
    """The bound in every epoch, and its ``value`` at the best one, on pairs that neither trained nor stopped it."""

    value: float

    def __repr__(self) -> str:
        return f"Fit({self.value:.4f} nats, best of {len(self.held_out)} epochs: {self.best})"


def _samples(name: str, values: Any, dtype: torch.dtype) -> Tensor:
    # samples [N, p] of whatever precision, of torch or numpy, as finite numbers of one
    if not isinstance(values, Tensor | np.ndarray):
        raise reject(name, type(values).__name__, "a tensor or an array of shape [N, p]")
    if isinstance(values, np.ndarray):
        check(values.dtype.kind in "biuf", name, str(values.dtype), "an array of real numbers")
    numbers = torch.as_tensor(values)
    check(numbers.layout == torch.strided and not numbers.is_complex(), name, describe(numbers), "dense real numbers")
    check(not numbers.is_meta, name, "meta", "a tensor with numbers, on another device than meta")
    if numbers.dim() != 2:
        accepted = f"a tensor of shape [N, p]; {name}[:, None] makes one coordinate a column"
        raise reject(name, tuple(numbers.shape), accepted)
    numbers = numbers.to(dtype)
    check_rows(name, numbers)
    return numbers


def _pairs(critic: nn.Module, x: Any, y: Any) -> tuple[Tensor, Tensor]:
    # pairs in the precision of the critic
    dtype = next((p.dtype for p in critic.parameters() if p.is_floating_point()), torch.get_default_dtype())
    x, y = _samples("x", x, dtype), _samples("y", y, dtype)
    check(len(x) == len(y), "y", len(y), f"as many rows as x, {len(x)}")
    return x, y


@torch.no_grad()
def evaluate(critic: nn.Module, bound: Bound, x: Tensor, y: Tensor, batch: int) -> float:
    """Mean bound over all whole batches, nats, with the critic in evaluation mode; InfoNCE depends on their size."""
    x, y = _pairs(critic, x, y)
    check_integer("batch", batch)
    check(batch <= len(x), "batch", batch, f"at most the {len(x)} pairs")
    modes = {module: module.training for module in critic.modules()}
    critic.eval()
    try:
        return float(torch.stack([bound(critic(x[i], y[i])) for i in _batches(torch.arange(len(x)), batch)]).mean())
    finally:
        for module, mode in modes.items():
            module.training = mode


def _batches(order: Tensor, batch: int) -> list[Tensor]:
    return list(order[: len(order) // batch * batch].split(batch))


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
    x, y = _pairs(critic, x, y)
    check_integer("batch", batch)
    check_integer("epochs", epochs)
    check_integer("patience", patience, least=0)
    check_positive(learning_rate=learning_rate)
    check(is_number(held_out) and 0 < held_out < 1, "held_out", held_out, "a share between 0 and 1")
    check(next(critic.parameters(), None) is not None, "critic", type(critic).__name__, "a module with parameters")
    apart = int(held_out * len(x))
    accepted = f"enough for a batch of {batch} in each of the three parts ({apart} are held out, twice)"
    check(apart >= batch and len(x) - 2 * apart >= batch, "x", f"{len(x)} rows", accepted)
    generator = torch.Generator().manual_seed(seed)
    stop, report, pairs = torch.randperm(len(x), generator=generator).split([apart, apart, len(x) - 2 * apart])
    optimiser = torch.optim.Adam(critic.parameters(), lr=learning_rate)

    def train(epoch: int) -> float:
        values = []
        for rows in _batches(pairs[torch.randperm(len(pairs), generator=generator)], batch):
            value = bound(critic(x[rows], y[rows]))
            if not bool(value.isfinite()):
                raise NonFiniteLossError(f"the bound became {value.item()} in epoch {epoch}; lower learning_rate")
            optimiser.zero_grad()
            (-value).backward()
            optimiser.step()
            values.append(float(value.detach()))
        return math.fsum(values) / len(values)

    def held_out_value() -> float:
        return evaluate(critic, bound, x[stop], y[stop], batch)

    trace = early_stopping(critic, train, held_out_value, epochs=epochs, patience=patience)
    return Fit(trace.train, trace.held_out, trace.best, evaluate(critic, bound, x[report], y[report], batch))
