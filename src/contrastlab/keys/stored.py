"""Keys of earlier steps: a memory bank, one key for each training item, and a queue of a momentum encoder's last ones.

Sources: vince §3 and C.1, ring §2 (MoCo). Initialisation and update of a bank are as in the released code of LA and
Ring, shuffled batch-norm and what a queue holds as in that of MoCo and JCL.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab.keys import base
from contrastlab.keys.base import Batch, Contrasts, Direction, Embed, Keys, KeyState, Network
from contrastlab.scores.choices import FURTHER_KEYS, ROW_PER_ITEM, Setup
from contrastlab.scores.clusters import kmeans
from contrastlab.support import collectives, host
from contrastlab.support.errors import check, check_flag, check_integer, is_number, reject
from contrastlab.support.tensors import check_floating, check_unit

_RATES = "a number from 0 up to, not including, 1"


class StoredState(KeyState):
    """Keys of earlier steps, in a store for each stream."""

    holds_keys = True
    stores: Sequence[Any]

    def stored(self, stream: int) -> Tensor:
        return self.stores[stream].rows


@dataclass(frozen=True)
class Bank(Keys):
    """One row per training image, moved towards each new embedding (IR, LA, CMC).

    ``row ← α·row + (1 − α)·embedding``, then normalised. With α = 0 (ring) a row is the embedding of the last epoch.
    """

    rate: float = 0.5  #: α

    offers = frozenset({ROW_PER_ITEM})
    views_reason = " (the bank holds the other)"

    def __post_init__(self) -> None:
        check(is_number(self.rate) and 0 <= self.rate < 1, "rate", self.rate, _RATES)

    def views_needed(self, streams: int, further: int) -> int:
        return 1

    def state(self, setup: Setup) -> BankState:
        return BankState(setup, self.rate)

    @property
    def latex(self) -> str:
        new_row = "q_i"
        if self.rate:
            new_row = rf"\overline{{{self.rate:g}\,m_i+{1 - self.rate:g}\,q_i}}"
        return rf"\text{{memory bank, }}m_i\leftarrow {new_row}"


class BankState(StoredState):
    """A :class:`MemoryBank` for each stream; a query is compared with the bank of its key stream."""

    row_per_item = True

    def __init__(self, setup: Setup, rate: float) -> None:
        super().__init__(setup)
        self.rate = rate
        self.clusters, runs = setup.k_means
        check(self.clusters <= setup.items, "clusters", self.clusters, f"at most the number of images, {setup.items}")
        banks = [MemoryBank(setup.items, setup.dim, setup.generator, runs=runs) for _ in setup.encoders]
        self.stores = nn.ModuleList(banks)  # type: ignore[assignment]

    def ask(self, batch: Batch, embed: Embed, network: Network) -> Contrasts:
        """The item's own row is the positive, and its embedding what the row is moved towards."""
        queries = embed(*batch.views)
        directions = []
        for query, key in self.directions:
            bank = self.stores[key]
            has_clusters = bank.labels.shape[1] > 0
            clusters = bank.labels if has_clusters else None
            own_row = bank.rows[batch.indices][:, None]
            direction = Direction(
                query=queries[query],
                positive=own_row,
                pool=bank.rows,
                own=batch.indices,
                labels=clusters,
            )
            directions.append(direction)
        new_keys = [query.detach()[:, None] for query in queries]
        return Contrasts(directions, new_keys)

    def commit(self, indices: Tensor, new_keys: tuple[Tensor, ...]) -> None:
        for bank, embeddings in zip(self.stores, new_keys, strict=True):
            bank.update(indices, embeddings, self.rate)

    def cluster(self, seed: int) -> None:
        """k-means of each bank (LA and CAVE: once an epoch); each process computes its share of the runs for all."""
        if not self.clusters:
            return
        rank, count = collectives.world()
        for bank in self.stores:
            for run in range(rank, bank.labels.shape[1], count):
                bank.labels[:, run] = kmeans(bank.rows, self.clusters, seed=seed + run)[:, 0]
            collectives.share_columns(bank.labels)


class MemoryBank(nn.Module):
    """``[size, dim]`` unit rows, one per image, and their k-means labels ``[size, runs]``.

    Rows start with coordinates uniform around 0, from a CPU generator, then normalised. Labels start as the row's own
    number: until the first clustering everybody is alone.
    """

    rows: Tensor
    labels: Tensor

    def __init__(self, size: int, dim: int, generator: torch.Generator, *, runs: int = 0) -> None:
        super().__init__()
        check_integer("size", size)
        check_integer("dim", dim)
        check_integer("runs", runs, least=0)
        self.register_buffer("rows", F.normalize(torch.rand(size, dim, generator=generator) * 2 - 1, dim=1))
        self.register_buffer("labels", torch.arange(size)[:, None].repeat(1, runs))

    @torch.no_grad()
    def update(self, indices: Tensor, embeddings: Tensor, rate: float) -> None:
        """Move rows ``indices`` ``[B]`` towards the unit ``embeddings`` ``[B, d]`` of all processes, see :class:`Bank`.

        An image that occurs twice in the global batch keeps its last embedding.
        """
        check(is_number(rate) and 0 <= rate < 1, "rate", rate, _RATES)
        shape = (len(indices), self.rows.shape[1])
        accepted = f"a tensor of shape {list(shape)}, a row for each index"
        check(indices.dim() == 1 and embeddings.shape == shape, "embeddings", tuple(embeddings.shape), accepted)
        if host.holds(indices.device):  # a GPU's host would have to wait
            outside = indices[(indices < 0) | (indices >= len(self.rows))]
            if len(outside):
                raise reject("indices", int(outside[0]), f"rows of the bank, 0 to {len(self.rows) - 1}")
        check_unit("embeddings", embeddings)
        indices = collectives.gather(indices)
        embeddings = collectives.gather(embeddings).to(self.rows.dtype)
        moved = F.normalize(self.rows[indices] * rate + embeddings * (1 - rate), dim=1)
        self.rows.index_copy_(0, indices, moved)


@dataclass(frozen=True)
class Queue(Keys):
    """The last ``size`` embeddings of a momentum encoder, first in, first out (MoCo).

    Batch-norm of both encoders sees the global batch in ``shuffle_groups`` groups, those of the keys drawn anew each
    step (MoCo's shuffled batch-norm: one group per GPU, 8 of them). With one group, query and key share batch-norm
    statistics, which leak which key is the positive. A batch that is computed in chunks needs a group or more in each
    of them, where groups are asked for. With several streams, another stream of the query's own view is
    its key, or one of a ``further_view`` of the item (the authors' later code of CMC).
    """

    size: int = 65536  #: need not be a multiple of the batch
    momentum: float = 0.999  #: m of ``θ_k ← m·θ_k + (1 − m)·θ_q`` before each step
    shuffle_groups: int = 1
    further_view: bool = False

    offers = frozenset({FURTHER_KEYS})

    def __post_init__(self) -> None:
        check_integer("size", self.size)
        check(is_number(self.momentum) and 0 <= self.momentum <= 1, "momentum", self.momentum, "a number from 0 to 1")
        check_integer("shuffle_groups", self.shuffle_groups)
        check_flag("further_view", self.further_view)

    def views_needed(self, streams: int, further: int) -> int:
        return base.views_of_other_keys(streams, max(further, int(self.further_view)))

    def state(self, setup: Setup) -> QueueState:
        return QueueState(setup, self)

    @property
    def latex(self) -> str:
        shuffled = ""
        if self.shuffle_groups > 1:
            shuffled = rf"\text{{, batch-norm in {self.shuffle_groups} shuffled groups}}"
        return rf"\text{{queue of }}{self.size}\text{{ keys, momentum encoder }}m={self.momentum:g}{shuffled}"


class QueueState(StoredState):
    """A :class:`KeyQueue` and a momentum encoder for each stream."""

    slow: nn.ModuleList
    in_one_pass = False  #: whether batch-norm itself tells groups apart

    def __init__(self, setup: Setup, choice: Queue) -> None:
        super().__init__(setup)
        self.choice = choice
        self.slow = copy.deepcopy(setup.encoders).requires_grad_(False)
        queues = [KeyQueue(choice.size, setup.dim, setup.generator) for _ in setup.encoders]
        self.stores = nn.ModuleList(queues)  # type: ignore[assignment]

    def ask(self, batch: Batch, embed: Embed, network: Network) -> Contrasts:
        """The first view of each stream asks; keys are of the other views, or of the same where there is but one."""
        streams = len(self.slow)
        self._check_chunks(batch)
        queries = self.queries(embed, batch.views[:streams])
        key_views = batch.views
        if len(batch.views) > streams:  # there are further views of each item
            key_views = batch.views[streams:]
        with torch.no_grad():
            base.momentum_update(self.slow, network.encoders, self.choice.momentum)
            new_keys = [self._keys(stream, key_views[stream::streams], batch) for stream in range(streams)]
        directions = [Direction(queries[query], new_keys[key], self.stored(key)) for query, key in self.directions]
        return Contrasts(directions, new_keys)

    def _check_chunks(self, batch: Batch) -> None:
        """Refuse more chunks of a batch than there are groups of batch-norm, where groups are asked for."""
        groups = self.choice.shuffle_groups
        if groups > 1 and batch.chunks > local_groups(groups):
            accepted = f"at most {local_groups(groups)}, the groups of batch-norm of a process (keys.shuffle_groups)"
            raise reject("accumulate", batch.chunks, accepted)

    def _keys(self, stream: int, views: tuple[Tensor, ...], batch: Batch) -> Tensor:
        """Keys ``[B, M, d]`` of a stream, from M views of each item."""
        flat = views[0]  # one view keeps its memory format
        if len(views) > 1:  # image by image, so that the order is that of the global batch
            flat = torch.stack(views, 1).flatten(0, 1)
        encoder = self.slow[stream]
        embedded = in_groups(
            encoder,
            flat,
            self.choice.shuffle_groups,
            batch.generator,
            batch.chunks,
            in_one_pass=self.in_one_pass,
        )
        return embedded.view(len(views[0]), len(views), -1)

    def queries(self, embed: Embed, views: tuple[Tensor, ...]) -> list[Tensor]:
        groups = local_groups(self.choice.shuffle_groups)
        if groups == 1 or self.in_one_pass:
            return embed(*views)
        pieces = [view.tensor_split(groups) for view in views]
        embedded = [embed(*group) for group in zip(*pieces, strict=True)]
        return [torch.cat(stream) for stream in zip(*embedded, strict=True)]

    def norm_in_one_pass(self, encoders: nn.ModuleList) -> None:
        """Let batch-norm keep the groups apart in one pass of all images, in place of a pass for each group.

        Encoders whose batch-norm cannot do so stay as they are.
        """
        groups = local_groups(self.choice.shuffle_groups)
        if groups > 1 and base.norm_in_groups(encoders, groups):
            self.in_one_pass = base.norm_in_groups(self.slow, groups)

    def commit(self, indices: Tensor, new_keys: tuple[Tensor, ...]) -> None:
        for store, keys in zip(self.stores, new_keys, strict=True):
            store.enqueue(keys)


class KeyQueue(nn.Module):
    """``[size, dim]`` unit keys, the oldest overwritten first; the initial ones are drawn from a CPU generator."""

    rows: Tensor
    pointer: Tensor

    def __init__(self, size: int, dim: int, generator: torch.Generator) -> None:
        super().__init__()
        check_integer("size", size)
        check_integer("dim", dim)
        self.register_buffer("rows", F.normalize(torch.randn(size, dim, generator=generator), dim=1))
        self.register_buffer("pointer", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def enqueue(self, keys: Tensor) -> None:
        """Write the ``[B, d]`` unit keys of all processes behind the newest; keeps the last K of a larger batch.

        In a loop of your own, backward comes first: the gradient of the scores reads the rows that this overwrites.
        """
        dim = self.rows.shape[1]
        check_floating(keys=keys)
        check(keys.dim() == 2 and keys.shape[1] == dim, "keys", tuple(keys.shape), f"a tensor of shape [B, {dim}]")
        check(keys.device == self.rows.device, "keys", str(keys.device), f"a tensor on the queue's {self.rows.device}")
        check_unit("keys", keys)
        keys = collectives.gather(keys).to(self.rows.dtype)
        size = len(self.rows)
        slots = (self.pointer + torch.arange(len(keys), device=keys.device)) % size
        self.rows.index_copy_(0, slots[-size:], keys[-size:])
        self.pointer.copy_((self.pointer + len(keys)) % size)


def local_groups(groups: int) -> int:
    """How many of ``groups`` fall to this process; one where there is but one group, whatever the processes."""
    _, processes = collectives.world()
    if groups > 1 and groups % processes:
        raise reject("shuffle_groups", groups, f"1, or a multiple of the number of processes, {processes}")
    return max(1, groups // processes)


def in_groups(
    encode: Callable[[Tensor], Tensor],
    views: Tensor,
    groups: int,
    generator: torch.Generator,
    chunks: int = 1,
    *,
    in_one_pass: bool = False,
) -> Tensor:
    """``encode`` of this process's ``[B, …]`` views in shuffled groups: batch-norm sees one at a time (MoCo).

    The groups are of the global batch, shared out among the processes, and each needs two views or more; 1 is one group
    per process, computed in ``chunks``. ``generator``, in the same state on every process, draws anew which views share
    a group. ``in_one_pass`` is for an ``encode`` whose batch-norm tells this process's groups apart.
    """
    groups_of_process = local_groups(groups)
    if groups == 1:
        return base.in_chunks(lambda chunk: [encode(chunk)], (views,), chunks)[0]
    rank, processes = collectives.world()
    if len(views) < 2 * groups_of_process:
        raise reject("shuffle_groups", groups, f"at most {len(views) // 2 * processes}, half of the views of a step")
    every_view = collectives.gather(views)
    order = torch.randperm(len(every_view), generator=generator, device=generator.device).to(views.device)
    order_of_process = order.view(processes, -1)[rank]
    shuffled = every_view[order_of_process]
    if in_one_pass:
        encoded = encode(shuffled)
    else:
        encoded = torch.cat([encode(group) for group in shuffled.tensor_split(groups_of_process)])
    encoded_of_all = collectives.gather(encoded)
    in_order = torch.empty_like(encoded_of_all).index_copy_(0, order, encoded_of_all)
    return in_order.view(processes, len(views), -1)[rank]
