"""Keys that are maps: the locations of an early one (DIM; CMC, appendix B.2), or the pixels to be predicted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab import choices
from contrastlab.choices import Choices, Need
from contrastlab.errors import check_integer, reject
from contrastlab.keys import base
from contrastlab.keys.base import Batch, Direction, Embed, Keys, KeyState, Network, Setup
from contrastlab.seeds import fixed


@dataclass(frozen=True)
class Locations(Keys):
    """The locations of one block's map, of all items of the batch: no bank, (m + 1)-way softmax (CMC, B.2).

    The last layer of one stream's encoder is the query. Each location of the other stream's map of the same item is its
    positive by itself; the locations of all other items are the negatives. With one stream, it is an encoder's last
    layer against its own map, which is local DIM. The map is compared as it is, scaled to unit length: the paper says
    nothing of a projection, and the blocks in question have as many channels as the embedding (256 in Table 12).
    ``block`` is a name of :meth:`contrastlab.encoders.Encoder.stages`.
    """

    block: str = "conv4"

    bounds_information = False  # the locations of one item come together, so they are no independent samples

    def needs(self, given: Choices) -> Iterator[Need]:
        yield from super().needs(given)
        several = f"{self!r} gives several keys of each item, so positives must be Each()"
        yield Need(choices.EACH_KEY, f"{several}; given: {given.positives!r}")

    def views_needed(self, streams: int, further: int) -> int:
        return 1

    def network(self, setup: Setup) -> LocationNetwork:
        return LocationNetwork(setup.encoders, self.block)

    def state(self, setup: Setup) -> LocationsState:
        return LocationsState(setup)

    @property
    def latex(self) -> str:
        return rf"\text{{the batch, locations of the map {self.block}}}"


class LocationNetwork(Network):
    """Encoders that give their embedding and the locations of a map, which must have d channels."""

    def __init__(self, encoders: nn.ModuleList, block: str) -> None:
        super().__init__(encoders)
        self.block = block

    def forward(self, *views: Tensor) -> list[Tensor]:
        """Unit embeddings ``[B, d]`` of each view, then unit locations ``[B, h·w, d]`` of each."""
        both = [encoder.embed_with_map(view, self.block) for encoder, view in zip(self.encoders, views, strict=True)]  # type: ignore[operator]
        for embedded, seen in both:
            if seen.shape[1] != embedded.shape[1]:
                raise reject("dim", embedded.shape[1], f"{seen.shape[1]}, the channels of the map {self.block}")
        locations = [F.normalize(seen.flatten(2).mT.float(), dim=2, eps=1e-8) for _, seen in both]
        return [embedded for embedded, _ in both] + locations


class LocationsState(KeyState):
    """Embeddings of the batch against the locations of its maps."""

    def ask(self, batch: Batch, embed: Embed, network: Network) -> tuple[list[Direction], list[Tensor]]:
        count = len(network.encoders)
        made = embed(*batch.views)
        queries, maps = made[:count], made[count:]
        pools = {key: base.gather_with_gradient(maps[key]) for _, key in self.directions}
        items = base.rows_of_this_process(len(queries[0]), queries[0].device)
        directions = []
        for query, key in self.directions:
            places = maps[key].shape[1]
            same = items[:, None] * places + torch.arange(places, device=items.device)
            directions.append(Direction(queries[query], maps[key], pools[key].flatten(0, 1), banned=same))
        return directions, []


@dataclass(frozen=True)
class Pixels(Keys):
    r"""The pixels of the target channels: cross-view prediction as a recipe, the rival of CMC's Table 5.

    A decoder without skip connections, ``width`` channels in its finest map, predicts each target from the last map of
    the first stream's encoder, :math:`\hat v=g(f(v_1))`. The score of prediction and target is minus half their mean
    squared difference, so with :class:`contrastlab.objectives.Likelihood` and τ = 1 the loss is the L2 loss of section
    3.1: a Gaussian that knows every pixel by itself, and has no negatives.
    """

    width: int = 32

    bounds_information = False  # no negatives, no bound of this kind
    latex = r"\text{the target itself, }s^+=-\tfrac12\,\overline{\lVert v-g(f(v_1))\rVert^2}\text{ over pixels}"

    def __post_init__(self) -> None:
        check_integer("width", self.width)

    def needs(self, given: Choices) -> Iterator[Need]:
        yield Need(choices.TARGETS, f"{self!r} predicts channels: views need targets; given: {given.views!r}")
        alone = f"{self!r} has no negatives, so objective must be Likelihood()"
        yield Need(choices.POSITIVE_ALONE, f"{alone}; given: {given.objective!r}")

    def network(self, setup: Setup) -> PredictionNetwork:
        first, channels = setup.encoders[0], setup.views.target_channels
        with fixed(int(torch.randint(2**31, (), generator=setup.generator))):
            decoders = [first.decoder(c, self.width, skips=False) for c in channels]  # type: ignore[operator]
        return PredictionNetwork(setup.encoders, nn.ModuleList(decoders))

    def state(self, setup: Setup) -> PixelsState:
        return PixelsState(setup)


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
    """Predictions and what they are predictions of, as vectors whose product is the score."""

    unit = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.streams = len(setup.encoders)
        self.directions = setup.views.pairs[:1]

    def ask(self, batch: Batch, embed: Embed, network: Network) -> tuple[list[Direction], list[Tensor]]:
        r"""One direction, from the first view to the targets; what is NaN in a target is not asked for.

        With :math:`q=(\hat x,-\lVert\hat x\rVert^2/2,1)` and :math:`k=(x,1,-\lVert x\rVert^2/2)` the product is
        :math:`-\lVert x-\hat x\rVert^2/2`.
        """
        predicted = embed(*batch.views)
        x = torch.cat([target.flatten(1) for target in batch.views[self.streams :]], 1)
        known = x.isfinite()
        scale = 1 / math.sqrt(x.shape[1])
        guess = torch.cat([made.flatten(1) for made in predicted], 1).where(known, 0.0) * scale
        x = x.where(known, 0.0) * scale
        one = x.new_ones(len(x), 1)
        query = torch.cat([guess, -guess.square().sum(1, keepdim=True) / 2, one], 1)
        key = torch.cat([x, one, -x.square().sum(1, keepdim=True) / 2], 1)
        return [Direction(query, key[:, None], torch.zeros_like(key[:1]))], []
