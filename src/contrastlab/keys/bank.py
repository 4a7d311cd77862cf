"""A memory bank: one stored key per training item.

Sources: vince §3 and C.1; initialisation and update as in the released code of LA and Ring.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab.choices import ROW_PER_ITEM
from contrastlab.clusters import kmeans
from contrastlab.errors import is_number, reject
from contrastlab.keys import base
from contrastlab.keys.base import Batch, Direction, Embed, Keys, KeyState, Network, Setup


@dataclass(frozen=True)
class Bank(Keys):
    """One row per training image, moved towards each new embedding (IR, LA, CMC).

    ``row ← α·row + (1 − α)·embedding``, then normalised. With α = 0 (ring) a row is the embedding of the last epoch.
    """

    rate: float = 0.5  #: α

    offers = frozenset({ROW_PER_ITEM})
    views_reason = " (the bank holds the other)"

    def __post_init__(self) -> None:
        if not (is_number(self.rate) and 0 <= self.rate < 1):
            raise reject("rate", self.rate, "a number from 0 up to, not including, 1")

    def views_needed(self, streams: int, further: int) -> int:
        return 1

    def state(self, setup: Setup) -> BankState:
        return BankState(setup, self.rate)

    @property
    def latex(self) -> str:
        moved = rf"\overline{{{self.rate:g}\,m_i+{1 - self.rate:g}\,q_i}}" if self.rate else "q_i"
        return rf"\text{{memory bank, }}m_i\leftarrow {moved}"


class BankState(KeyState):
    """A :class:`MemoryBank` for each stream; a query is compared with the bank of its key stream."""

    holds_keys = True
    row_per_item = True

    def __init__(self, setup: Setup, rate: float) -> None:
        super().__init__(setup)
        self.rate = rate
        self.clusters, runs = setup.k_means
        if self.clusters > setup.items:
            raise reject("clusters", self.clusters, f"at most the number of images, {setup.items}")
        made = (MemoryBank(setup.items, setup.dim, setup.generator, runs=runs) for _ in setup.encoders)
        self.stores = nn.ModuleList(made)

    def bank(self, stream: int) -> MemoryBank:
        """The bank of a stream."""
        return cast(MemoryBank, self.stores[stream])

    def ask(self, batch: Batch, embed: Embed, network: Network) -> tuple[list[Direction], list[Tensor]]:
        """The item's own row is the positive, and its embedding what the row is moved towards."""
        queries = embed(*batch.views)
        directions = []
        for query, key in self.directions:
            bank = self.bank(key)
            clusters = bank.labels if bank.labels.shape[1] else None
            own = bank.rows[batch.indices][:, None]
            directions.append(Direction(queries[query], own, bank.rows, batch.indices, clusters))
        return directions, [q.detach()[:, None] for q in queries]

    def commit(self, indices: Tensor, fresh: tuple[Tensor, ...]) -> None:
        for stream, embeddings in enumerate(fresh):
            self.bank(stream).update(indices, embeddings, self.rate)

    def cluster(self, seed: int) -> None:
        """k-means of each bank (LA and CAVE: once an epoch)."""
        for stream in range(len(self.stores) if self.clusters else 0):
            bank = self.bank(stream)
            bank.labels.copy_(kmeans(bank.rows, self.clusters, bank.labels.shape[1], seed=seed))

    def rows(self, stream: int) -> Tensor:
        return self.bank(stream).rows


def unit_rows(rows: int, dim: int, generator: torch.Generator) -> Tensor:
    """``[rows, dim]`` start of a bank: coordinates uniform around 0, then normalised (released LA and Ring code)."""
    return F.normalize(torch.rand(rows, dim, generator=generator) * 2 - 1, dim=1)


class MemoryBank(nn.Module):
    """``[size, dim]`` unit rows, one per image, drawn from a CPU generator, and their k-means labels ``[size, runs]``.

    Labels start as the row's own number: until the first clustering everybody is alone.
    """

    rows: Tensor
    labels: Tensor

    def __init__(self, size: int, dim: int, generator: torch.Generator, *, runs: int = 0) -> None:
        super().__init__()
        self.register_buffer("rows", unit_rows(size, dim, generator))
        self.register_buffer("labels", torch.arange(size)[:, None].repeat(1, runs))

    @torch.no_grad()
    def update(self, indices: Tensor, embeddings: Tensor, rate: float) -> None:
        """Move rows ``indices`` ``[B]`` towards the unit ``embeddings`` ``[B, d]`` of all processes, see :class:`Bank`.

        An image that occurs twice in the global batch keeps its last embedding.
        """
        shape = (len(indices), self.rows.shape[1])
        if indices.dim() != 1 or embeddings.shape != shape:
            accepted = f"a tensor of shape {list(shape)}, a row for each index"
            raise reject("embeddings", tuple(embeddings.shape), accepted)
        if indices.device.type == "cpu":  # a GPU's host would have to wait
            outside = indices[(indices < 0) | (indices >= len(self.rows))]
            if len(outside):
                raise reject("indices", int(outside[0]), f"rows of the bank, 0 to {len(self.rows) - 1}")
        indices, embeddings = base.gather(indices), base.gather(embeddings).to(self.rows.dtype)
        moved = F.normalize(self.rows[indices] * rate + embeddings * (1 - rate), dim=1)
        self.rows.index_copy_(0, indices, moved)
