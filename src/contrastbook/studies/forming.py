"""Classes that form while an encoder learns, and the rings that satisfy the hypothesis of ring Theorem 3.1 meanwhile.

An encoder of two layers learns small pictures with the other images of the batch as negatives; a view shifts a picture
and adds noise. Rings are evaluated on it, and draw none of its negatives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy, normalize, pad

from contrastlab.information import bounds
from contrastlab.negatives import Ring
from contrastlab.scores.candidates import Candidates
from contrastlab.scores.schedules import Linear, at

STOPS = (0, 25, 50, 100, 150, 200, 250, 300)
"""Gradient steps at which the encoder is looked at."""
TAU = 0.07
SHRINKING = Linear(100, 10, until=0.5)
RINGS: Mapping[str, float | Linear] = {"u = 5 %": 5.0, "u = 10 %": 10.0, "u from 100 to 10 %": SHRINKING}
"""Outer edges of rings that begin at 1 %, fixed or shrinking over the training."""


class SmallPictures:
    """Grey pictures, and an encoder that learns to tell them apart.

    Args:
        images: ``[N, 1, H, W]``, bytes.
    """

    def __init__(self, images: Tensor) -> None:
        self.side = images.shape[-1]
        self.edge = self.side // 8
        grey = images[:, 0].float() / 255
        self.pixels = pad(grey, (self.edge, self.edge, self.edge, self.edge))  # left, right, top, bottom

    def view(self, numbers: Tensor, draws: Generator) -> Tensor:
        """A random view of each of the pictures of these numbers, flat: moved, with noise."""
        count = len(numbers)
        top, left = torch.randint(2 * self.edge + 1, (2, count, 1, 1), generator=draws)
        places = torch.arange(self.side)
        rows = top + places[:, None]
        columns = left + places
        moved = self.pixels[numbers[:, None, None], rows, columns]
        noise = torch.randn(count, self.side**2, generator=draws)
        return moved.flatten(1) + 0.2 * noise

    def training(self, seed: int) -> Iterator[tuple[int, nn.Module, Generator]]:
        """The encoder at each of :data:`STOPS`: step, network, and the generator of the draws."""
        draws = torch.Generator().manual_seed(seed)
        first = nn.Linear(self.side**2, 256)
        last = nn.Linear(256, 32)
        for layer in (first, last):
            nn.init.kaiming_uniform_(layer.weight, generator=draws)
            nn.init.zeros_(layer.bias)
        net = nn.Sequential(first, nn.ReLU(), last)
        adam = torch.optim.Adam(net.parameters(), 3e-3)
        for step in range(STOPS[-1] + 1):
            if step in STOPS:
                yield step, net, draws
            numbers = torch.randint(len(self.pixels), (256,), generator=draws)
            queries = normalize(net(self.view(numbers, draws)))
            keys = normalize(net(self.view(numbers, draws)))
            loss = cross_entropy(queries @ keys.T / TAU, torch.arange(256))
            adam.zero_grad()
            loss.backward()
            adam.step()

    @torch.no_grad()
    def logits(self, net: nn.Module, draws: Generator, count: int | None = None) -> tuple[Tensor, Tensor]:
        """Scores of the first ``count`` pictures with second views of all, and the place of each one's own view."""
        every = torch.arange(len(self.pixels))
        own = every[:count]
        queries = normalize(net(self.view(own, draws))).double()
        keys = normalize(net(self.view(every, draws))).double()
        return queries @ keys.T / TAU, own


def covered(logits: Tensor, own: Tensor, outer: float) -> float:
    """The share of queries for which all keys of the ring from 1 to ``outer`` percent score above the mean."""
    positive = logits[own, own]
    keys = Candidates(logits.clone(), own)
    whole_ring = Ring(1, outer, k=None)
    bound = bounds.cnce(positive, keys, whole_ring, Generator())
    return bound.share


def curves(pictures: SmallPictures, seeds: Sequence[int]) -> dict[str, NDArray[np.float64]]:
    """:func:`covered` of each of :data:`RINGS` at each of :data:`STOPS`, ``[stops, seeds]``."""
    shares = {ring: np.empty((len(STOPS), len(seeds))) for ring in RINGS}
    steps = STOPS[-1] + 1
    for column, seed in enumerate(seeds):
        for row, (step, net, draws) in enumerate(pictures.training(seed)):
            logits, own = pictures.logits(net, draws, 250)
            for ring, outer in RINGS.items():
                outer_now = at(outer, step, steps)
                shares[ring][row, column] = covered(logits, own, outer_now)
    return shares
