"""The key of predictive learning: the other channel itself, pixel by pixel (CMC, section 3.1)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from contrastlab import choices
from contrastlab.choices import Choices, Need
from contrastlab.errors import is_integer, reject
from contrastlab.keys.base import Batch, Direction, Embed, Keys, KeyState, Network, Setup
from contrastlab.seeds import fixed


@dataclass(frozen=True)
class Pixels(Keys):
    r"""The pixels of the target channels: cross-view prediction as a recipe, the rival of CMC's Table 5.

    A decoder without skip connections predicts each target from the last map of the first stream's encoder,
    :math:`\hat v=g(f(v_1))`. The score of prediction and target is minus half their mean squared difference, so with
    :class:`contrastlab.objectives.Likelihood` and τ = 1 the loss is the L2 loss of section 3.1: a Gaussian that knows
    every pixel by itself, and has no negatives.

    Args:
        width: channels of the decoder's finest map.
    """

    width: int = 32

    def __post_init__(self) -> None:
        if not is_integer(self.width):
            raise reject("width", self.width, "an integer of at least 1")

    @property
    def bounds_information(self) -> bool:
        """False: no negatives, no bound of this kind."""
        return False

    def needs(self, given: Choices) -> Iterator[Need]:
        """Something to predict, and an objective without negatives."""
        yield Need(choices.TARGETS, f"{self!r} predicts channels: views need targets; given: {given.views!r}")
        yield Need(
            choices.POSITIVE_ALONE,
            f"{self!r} has no negatives, so objective must be Likelihood(); given: {given.objective!r}",
        )

    def network(
        self, encoders: nn.ModuleList, views: Any, classes: int, dim: int, generator: torch.Generator
    ) -> PredictionNetwork:
        """The encoder, and a decoder for each target."""
        with fixed(int(torch.randint(2**31, (), generator=generator))):
            decoders = [encoders[0].decoder(c, self.width, skips=False) for c in views.target_channels]  # type: ignore[operator]
        return PredictionNetwork(encoders, nn.ModuleList(decoders))

    def state(self, setup: Setup) -> PixelsState:
        """Nothing stored."""
        return PixelsState(setup)

    @property
    def latex(self) -> str:
        """Where the keys are, and what a score is."""
        return r"\text{the target itself, }s^+=-\tfrac12\,\overline{\lVert v-g(f(v_1))\rVert^2}\text{ over pixels}"


class PredictionNetwork(Network):
    """An encoder and the decoders of what it predicts."""

    def __init__(self, encoders: nn.ModuleList, decoders: nn.ModuleList) -> None:
        super().__init__(encoders)
        self.decoders = decoders
        # predictions come from the maps, and several processes wait for a gradient of every parameter that asks for one
        head = getattr(encoders[0], "head", None)
        if head is not None:
            head.requires_grad_(False)

    def forward(self, *views: Tensor) -> list[Tensor]:
        """Predictions ``[B, c, H, W]`` of each target from the first stream's view."""
        maps = self.encoders[0].stages(views[0])  # type: ignore[operator]
        size = (views[0].shape[2], views[0].shape[3])
        return [decoder(maps, size).float() for decoder in self.decoders]


class PixelsState(KeyState):
    """Predictions and what they are predictions of, as vectors whose product is the score.

    Args:
        setup: what the run is made of.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.streams = len(setup.encoders)
        self.directions = setup.pairs[:1]

    def ask(self, batch: Batch, embed: Embed, network: Network) -> tuple[list[Direction], list[Tensor]]:
        r"""One direction, from the first view to the targets; what is NaN in a target is not asked for.

        With :math:`q=(\hat x,-\lVert\hat x\rVert^2/2,1)` and :math:`k=(x,1,-\lVert x\rVert^2/2)` the product is
        :math:`-\lVert x-\hat x\rVert^2/2`.
        """
        predicted = embed(*batch.views)
        x = torch.cat([target.flatten(1) for target in batch.views[self.streams :]], 1)
        there = x.isfinite()
        scale = 1 / math.sqrt(x.shape[1])
        guess = torch.cat([made.flatten(1) for made in predicted], 1).where(there, 0.0) * scale
        x = x.where(there, 0.0) * scale
        one = x.new_ones(len(x), 1)
        query = torch.cat([guess, -guess.square().sum(1, keepdim=True) / 2, one], 1)
        key = torch.cat([x, one, -x.square().sum(1, keepdim=True) / 2], 1)
        return [Direction(query, key[:, None], torch.zeros_like(key[:1]))], []
