"""Views of a modality that no paper has: vectors, cut into streams that are compared along a graph."""

from dataclasses import dataclass
from itertools import permutations
from typing import Any, Literal

import torch
from torch import Tensor

from contrastlab.views import Views


@dataclass(frozen=True)
class Jitter:
    """An augmentation of vectors ``[B, F]``: noise."""

    noise: float = 0.1

    def random(self, batch: Any, rng: torch.Generator | None = None, *, view: int = 0) -> Tensor:
        return batch + self.noise * torch.randn(batch.shape, generator=rng)

    def plain(self, batch: Any) -> Tensor:
        return batch

    def normalise(self, view: Tensor) -> Tensor:
        return view


@dataclass(frozen=True)
class Sensors(Views):
    """A vector cut into ``number`` equal streams.

    Args:
        number: M streams.
        graph: ``"core"``: the first against each other one, and back; ``"full"``: each against each; ``"pair"``: the
            first two only.
        count: views of each item.
    """

    number: int
    graph: Literal["core", "full", "pair"] = "full"
    count: int = 1

    @property
    def streams(self) -> tuple[str, ...]:
        return tuple(f"sensor {s}" for s in range(self.number))

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        every = permutations(range(self.number), 2)
        return tuple(p for p in every if self.graph == "full" or (0 in p and (self.graph == "core" or sum(p) == 1)))

    def make(self, batch: Any, augmentation: Jitter, rng: torch.Generator | None = None) -> tuple[Tensor, ...]:
        made = (augmentation.normalise(augmentation.random(batch, rng, view=v)) for v in range(self.count))
        return tuple(stream for view in made for stream in view.chunk(self.number, 1))
