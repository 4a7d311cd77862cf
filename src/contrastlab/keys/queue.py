"""A queue of the last embeddings of a momentum encoder.

Source: ring §2 (MoCo); shuffled batch-norm and what the queue holds as in the released code of MoCo and JCL.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab.choices import FURTHER_KEYS
from contrastlab.errors import check_flag, check_integer, is_number, reject
from contrastlab.keys import base
from contrastlab.keys.base import Batch, Direction, Embed, Keys, KeyState, Network, Setup


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
        if not (is_number(self.momentum) and 0 <= self.momentum <= 1):
            raise reject("momentum", self.momentum, "a number from 0 to 1")
        check_integer("shuffle_groups", self.shuffle_groups)
        check_flag("further_view", self.further_view)

    def views_needed(self, streams: int, further: int) -> int:
        return base.views_of_other_keys(streams, max(further, int(self.further_view)))

    def state(self, setup: Setup) -> QueueState:
        return QueueState(setup, self)

    @property
    def latex(self) -> str:
        groups = self.shuffle_groups
        shuffled = "" if groups == 1 else rf"\text{{, batch-norm in {groups} shuffled groups}}"
        return rf"\text{{queue of }}{self.size}\text{{ keys, momentum encoder }}m={self.momentum:g}{shuffled}"


class QueueState(KeyState):
    """A :class:`KeyQueue` and a momentum encoder for each stream."""

    holds_keys = True
    slow: nn.ModuleList

    def __init__(self, setup: Setup, choice: Queue) -> None:
        super().__init__(setup)
        self.choice = choice
        self.slow = copy.deepcopy(setup.encoders).requires_grad_(False)
        self.stores = nn.ModuleList(KeyQueue(choice.size, setup.dim, setup.generator) for _ in setup.encoders)

    def ask(self, batch: Batch, embed: Embed, network: Network) -> tuple[list[Direction], list[Tensor]]:
        """The first view of each stream asks; keys are of the other views, or of the same where there is but one."""
        streams, size, groups = len(self.slow), len(batch.views[0]), self.choice.shuffle_groups
        if groups > 1 and batch.chunks > local_groups(groups):
            accepted = f"at most {local_groups(groups)}, the groups of batch-norm of a process (keys.shuffle_groups)"
            raise reject("accumulate", batch.chunks, accepted)
        queries = self.queries(embed, batch.views[:streams])
        first = 0 if streams == len(batch.views) else streams
        fresh = []
        with torch.no_grad():
            base.momentum_update(self.slow, network.encoders, self.choice.momentum)
            for stream, encoder in enumerate(self.slow):
                seen = batch.views[first + stream :: streams]
                # image by image, so that the order is that of the global batch; one view keeps its memory format
                flat = seen[0] if len(seen) == 1 else torch.stack(seen, 1).flatten(0, 1)
                embedded = in_groups(encoder, flat, groups, batch.generator, batch.chunks)
                fresh.append(embedded.view(size, len(seen), -1))
        return [Direction(queries[q], fresh[k], self.rows(k)) for q, k in self.directions], fresh

    def queries(self, embed: Embed, views: tuple[Tensor, ...]) -> list[Tensor]:
        groups = local_groups(self.choice.shuffle_groups)
        if groups == 1:
            return embed(*views)
        pieces = [embed(*group) for group in zip(*(view.tensor_split(groups) for view in views), strict=True)]
        return [torch.cat(stream) for stream in zip(*pieces, strict=True)]

    def commit(self, indices: Tensor, fresh: tuple[Tensor, ...]) -> None:
        for store, keys in zip(self.stores, fresh, strict=True):
            cast(KeyQueue, store).enqueue(keys)

    def rows(self, stream: int) -> Tensor:
        return cast(KeyQueue, self.stores[stream]).rows


class KeyQueue(nn.Module):
    """``[size, dim]`` unit keys, the oldest overwritten first; the initial ones are drawn from a CPU generator."""

    rows: Tensor
    pointer: Tensor

    def __init__(self, size: int, dim: int, generator: torch.Generator) -> None:
        super().__init__()
        self.register_buffer("rows", F.normalize(torch.randn(size, dim, generator=generator), dim=1))
        self.register_buffer("pointer", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def enqueue(self, keys: Tensor) -> None:
        """Write the ``[B, d]`` keys of all processes behind the newest; keeps the last K of a larger batch."""
        keys = base.gather(keys).to(self.rows.dtype)
        size = len(self.rows)
        slots = (self.pointer + torch.arange(len(keys), device=keys.device)) % size
        self.rows.index_copy_(0, slots[-size:], keys[-size:])
        self.pointer.copy_((self.pointer + len(keys)) % size)


def local_groups(groups: int) -> int:
    """How many of ``groups`` fall to this process; one where there is but one group, whatever the processes."""
    count = base.world()[1]
    if groups > 1 and groups % count:
        raise reject("shuffle_groups", groups, f"1, or a multiple of the number of processes, {count}")
    return max(1, groups // count)


def in_groups(
    encode: Callable[[Tensor], Tensor], views: Tensor, groups: int, generator: torch.Generator, chunks: int = 1
) -> Tensor:
    """``encode`` of this process's ``[B, …]`` views in shuffled groups: batch-norm sees one at a time (MoCo).

    The groups are of the global batch, shared out among the processes, and each needs two views or more; 1 is one group
    per process, computed in ``chunks``. ``generator``, in the same state on every process, draws anew which views share
    a group.
    """
    own = local_groups(groups)
    if groups == 1:
        return base.in_chunks(lambda some: [encode(some)], (views,), chunks)[0]
    rank, count = base.world()
    if len(views) < 2 * own:
        raise reject("shuffle_groups", groups, f"at most {len(views) // 2 * count}, half of the views of a step")
    every = base.gather(views)
    order = torch.randperm(len(every), generator=generator, device=generator.device).to(views.device)
    mine = order.view(count, -1)[rank]
    mixed = base.gather(torch.cat([encode(group) for group in every[mine].tensor_split(own)]))
    return torch.empty_like(mixed).index_copy_(0, order, mixed).view(count, len(views), -1)[rank]
