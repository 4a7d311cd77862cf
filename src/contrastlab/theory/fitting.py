"""Training that stops when held-out data no longer gain."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class Trace:
    """How a training went; larger is better.

    Args:
        train: value of each epoch on what is trained on, nats.
        held_out: value after each epoch on held-out data, nats.
        best: epoch whose weights were kept, from 0.
    """

    train: tuple[float, ...]
    held_out: tuple[float, ...]
    best: int


def early_stopping(
    model: nn.Module, train: Callable[[int], float], held_out: Callable[[], float], *, epochs: int, patience: int
) -> Trace:
    """Train until ``patience`` epochs brought nothing, and put the model back to its best epoch.

    Args:
        model: changed in place by ``train``.
        train: trains an epoch, numbered from 0, and gives its value.
        held_out: value of the model as it is; of equal ones the later counts as better.
        epochs: at most.
        patience: epochs without a gain before it stops.
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
