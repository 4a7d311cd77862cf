"""Keys that are places of a picture: an embedding against the locations of an early map (DIM; CMC, appendix B.2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab import choices
from contrastlab.choices import Choices, Need
from contrastlab.errors import reject
from contrastlab.keys import distributed
from contrastlab.keys.base import Batch, Direction, Embed, Keys, KeyState, Network, Setup


@dataclass(frozen=True)
class Locations(Keys):
    """The locations of one block's map, of all items of the batch: no bank, (m + 1)-way softmax (CMC, B.2).

    The last layer of one stream's encoder is the query. Each location of the other stream's map of the same item is its
    positive by itself; the locations of all other items are the negatives. Locations of the same item are never each
    other's negatives. With one stream, it is an encoder's last layer against its own map, which is local DIM.

    The map is compared as it is, scaled to unit length: the paper says nothing of a projection, and the blocks in
    question have as many channels as the embedding (256 in Table 12).

    Args:
        block: whose map it is, a name of :meth:`contrastlab.encoders.Encoder.stages`.
    """

    block: str = "conv4"

    def __post_init__(self) -> None:
        if not isinstance(self.block, str):
            raise reject("block", self.block, "the name of a block, such as 'conv4'")

    @property
    def bounds_information(self) -> bool:
        """False: the locations of one item come together, so they are no independent samples."""
        return False

    def needs(self, given: Choices) -> Iterator[Need]:
        """One view, and positives that take all locations of the item."""
        yield from super().needs(given)
        yield Need(
            choices.EACH_KEY,
            f"{self!r} gives several keys of each item, so positives must be Each(); given: {given.positives!r}",
        )

    def views_asked(self, streams: int, further: int) -> int:
        """One: query and key are layers of encoders of the same crop."""
        return 1

    def network(
        self, encoders: nn.ModuleList, views: Any, classes: int, dim: int, generator: torch.Generator
    ) -> LocationNetwork:
        """Encoders whose maps are read, too."""
        return LocationNetwork(encoders, self.block)

    def state(self, setup: Setup) -> LocationsState:
        """Nothing stored."""
        return LocationsState(setup)

    @property
    def latex(self) -> str:
        """Where the keys are."""
        return rf"\text{{the batch, locations of the map {self.block}}}"


class LocationNetwork(Network):
    """Encoders that give their embedding and the locations of a map."""

    def __init__(self, encoders: nn.ModuleList, block: str) -> None:
        super().__init__(encoders)
        self.block = block

    def forward(self, *views: Tensor) -> list[Tensor]:
        """Unit embeddings ``[B, d]`` of each view, then unit locations ``[B, h·w, d]`` of each.

        Raises:
            NotApplicableError: an encoder names no blocks.
            ArgumentError: the map has other than d channels.
        """
        both = [encoder.embed_with_map(view, self.block) for encoder, view in zip(self.encoders, views, strict=True)]  # type: ignore[operator]
        for embedded, seen in both:
            if seen.shape[1] != embedded.shape[1]:
                raise reject("dim", embedded.shape[1], f"{seen.shape[1]}, the channels of the map {self.block}")
        locations = [F.normalize(seen.flatten(2).mT.float(), dim=2, eps=1e-8) for _, seen in both]
        return [embedded for embedded, _ in both] + locations


class LocationsState(KeyState):
    """Embeddings of the batch against the locations of its maps.

    Args:
        setup: what the run is made of.
    """

    def ask(self, batch: Batch, embed: Embed, network: Network) -> tuple[list[Direction], list[Tensor]]:
        """Each location of its own item is a query's positive; nothing is left behind."""
        count = len(network.encoders)
        made = embed(*batch.views)
        queries, maps = made[:count], made[count:]
        pools = {key: distributed.gather_with_gradient(maps[key]) for _, key in self.directions}
        size = len(queries[0])
        items = torch.arange(size, device=queries[0].device) + distributed.world()[0] * size
        directions = []
        for query, key in self.directions:
            mine, pool = maps[key], pools[key]
            places = mine.shape[1]
            same = items[:, None] * places + torch.arange(places, device=items.device)
            directions.append(Direction(queries[query], mine, pool.flatten(0, 1), banned=same))
        return directions, []
