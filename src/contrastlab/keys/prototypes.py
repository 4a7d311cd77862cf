"""One learnt key per class: our supervised reference."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab.errors import reject
from contrastlab.keys.base import Batch, Direction, Embed, Keys, KeyState, Network, Setup


@dataclass(frozen=True)
class Prototypes(Keys):
    """One learnt unit vector per class: softmax classification, our supervised reference."""

    reads_labels = True

    @property
    def bounds_information(self) -> bool:
        """False: the keys are no samples."""
        return False

    def learnt(self, classes: int, dim: int, generator: torch.Generator) -> nn.Parameter:
        """``[classes, dim]`` start of the class vectors.

        Raises:
            ArgumentError: fewer than two classes.
        """
        if classes < 2:
            raise reject("classes", classes, "at least 2 classes for the supervised reference")
        return nn.Parameter(torch.randn(classes, dim, generator=generator) / math.sqrt(dim))

    def state(self, setup: Setup) -> PrototypesState:
        """Nothing but the learnt vectors, which belong to the network."""
        return PrototypesState(setup)

    @property
    def latex(self) -> str:
        """Where the keys are."""
        return r"\text{a learnt vector per class}"


class PrototypesState(KeyState):
    """The first view of each stream against the class vectors.

    Args:
        setup: what the run is made of.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.directions = tuple((stream, stream) for stream in range(len(setup.encoders)))

    def ask(self, batch: Batch, embed: Embed, network: Network) -> tuple[list[Direction], list[Tensor]]:
        """The vector of its class is an item's positive."""
        assert network.learnt_keys is not None
        queries = embed(*batch.views)
        pool = F.normalize(network.learnt_keys, dim=1)
        own = pool[batch.labels][:, None]
        return [Direction(queries[q], own, pool, batch.labels) for q, _ in self.directions], []
