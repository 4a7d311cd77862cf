"""Where the embeddings to compare against live.

``Bank``, ``Queue``, ``InBatch`` and ``Prototypes`` are the choices (data); :class:`MemoryBank` and
:class:`KeyQueue` are the state of the first two. All state is in buffers, so ``state_dict`` holds it.

Across processes every update is gathered first, in rank order: N processes hold, bit for bit, what one
process with the same global batch holds.

Sources: vince §3 and C.1 (bank), ring §2 (queue), facts of the released code (initialisation, update).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.nn.functional import all_gather as _all_gather_with_gradient
from torch.nn import functional as F

from contrastlab.errors import reject


@dataclass(frozen=True)
class Bank:
    """One row per training image, moved towards each new embedding (IR, LA, CMC).

    Args:
        rate: α of ``row ← α·row + (1 − α)·embedding``, then normalised (vince C.2: 0.5; ring: 0, the
            embedding of the last epoch).
    """

    rate: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.rate < 1:
            raise reject("rate", self.rate, "a number from 0 up to, not including, 1")

    @property
    def latex(self) -> str:
        """Where the keys are."""
        moved = rf"\overline{{{self.rate:g}\,m_i+{1 - self.rate:g}\,q_i}}" if self.rate else "q_i"
        return rf"\text{{memory bank, }}m_i\leftarrow {moved}"


@dataclass(frozen=True)
class Queue:
    """The last ``size`` embeddings of a momentum encoder, first in, first out (MoCo).

    Args:
        size: keys held; need not be a multiple of the batch.
        momentum: m of ``θ_k ← m·θ_k + (1 − m)·θ_q`` before each step.
        shuffle_groups: batch-norm of both encoders sees the global batch in so many groups, those of the keys drawn
            anew each step (MoCo's shuffled batch-norm: one group per GPU, 8 of them). With one group, query and key
            share batch-norm statistics, which leak which key is the positive.
    """

    size: int = 65536
    momentum: float = 0.999
    shuffle_groups: int = 1

    def __post_init__(self) -> None:
        if self.size < 1:
            raise reject("size", self.size, "a positive number of keys")
        if not 0 <= self.momentum <= 1:
            raise reject("momentum", self.momentum, "a number from 0 to 1")
        if self.shuffle_groups < 1:
            raise reject("shuffle_groups", self.shuffle_groups, "an integer of at least 1")

    @property
    def latex(self) -> str:
        """Where the keys are."""
        groups = self.shuffle_groups
        shuffled = "" if groups == 1 else rf"\text{{, batch-norm in {groups} shuffled groups}}"
        return rf"\text{{queue of }}{self.size}\text{{ keys, momentum encoder }}m={self.momentum:g}{shuffled}"


@dataclass(frozen=True)
class InBatch:
    """The other embeddings of the same batch, over all processes, with their gradients (SimCLR).

    Args:
        against: ``"both"`` views of all other images (SimCLR), the other view of them only (``"across"``), or the
            query's own view of them (``"within"``, fmicl Eq. 11). The positive is always the other view.
        symmetric: both views ask, and the loss is their mean; else only the first.
        momentum: ``None``, or the keys come from a momentum encoder, without gradient (MoCo v3; with ``"across"``).
    """

    against: Literal["both", "across", "within"] = "both"
    symmetric: bool = True
    momentum: float | None = None

    def __post_init__(self) -> None:
        if self.against not in ("both", "across", "within"):
            raise reject("against", self.against, "'both', 'across' or 'within'")
        if self.momentum is not None and not 0 <= self.momentum <= 1:
            raise reject("momentum", self.momentum, "None, or a number from 0 to 1")
        if self.momentum is not None and self.against != "across":
            raise reject("against", self.against, "'across' with a momentum encoder: keys are of the other view")

    @property
    def latex(self) -> str:
        """Where the keys are."""
        which = {"both": "both views", "across": "the other view", "within": "the same view"}[self.against]
        slow = "" if self.momentum is None else rf"\text{{, momentum encoder }}m={self.momentum:g}"
        one = "" if self.symmetric else r"\text{, one direction}"
        return rf"\text{{the batch, {which}}}{slow}{one}"


@dataclass(frozen=True)
class Prototypes:
    """One learnt unit vector per class: softmax classification, our supervised reference."""

    @property
    def latex(self) -> str:
        """Where the keys are."""
        return r"\text{a learnt vector per class}"


Keys = Bank | Queue | InBatch | Prototypes


def world() -> tuple[int, int]:
    """Rank of this process and number of processes."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def gather(local: Tensor) -> Tensor:
    """``[B, …]`` of every process, concatenated in rank order, without gradient.

    Every process must hold the same shape.
    """
    count = world()[1]
    if count == 1:
        return local.detach()
    parts = [torch.empty_like(local) for _ in range(count)]
    dist.all_gather(parts, local.detach().contiguous())
    return torch.cat(parts)


def gather_with_gradient(local: Tensor) -> Tensor:
    """``[B, …]`` of every process in rank order; gradients flow back to the process they belong to, summed."""
    return local if world()[1] == 1 else torch.cat(_all_gather_with_gradient(local.contiguous()))


def unit_rows(rows: int, dim: int, generator: torch.Generator) -> Tensor:
    """``[rows, dim]`` start of a bank: coordinates uniform around 0, then normalised (released LA and Ring code)."""
    return F.normalize(torch.rand(rows, dim, generator=generator) * 2 - 1, dim=1)


class MemoryBank(nn.Module):
    """``[N, d]`` unit rows, one per image, and optionally their k-means labels.

    Args:
        size: N.
        dim: d.
        generator: draws the initial rows (CPU).
        runs: columns of the labels ``[N, runs]``; 0 holds none. Labels start as the row's own number:
            until the first clustering everybody is alone.
    """

    rows: Tensor
    labels: Tensor

    def __init__(self, size: int, dim: int, generator: torch.Generator, *, runs: int = 0) -> None:
        super().__init__()
        self.register_buffer("rows", unit_rows(size, dim, generator))
        self.register_buffer("labels", torch.arange(size)[:, None].repeat(1, runs))

    def check(self, indices: Tensor) -> None:
        """Reject an index outside the bank (a host synchronisation on a GPU: call it once, not per step).

        Raises:
            ArgumentError: with the offending index.
        """
        if indices.numel() and not (int(indices.min()) >= 0 and int(indices.max()) < len(self.rows)):
            bad = int(indices.max()) if int(indices.max()) >= len(self.rows) else int(indices.min())
            raise reject("indices", bad, f"rows of the bank, 0 to {len(self.rows) - 1}")

    @torch.no_grad()
    def update(self, indices: Tensor, embeddings: Tensor, rate: float) -> None:
        """Move rows towards the embeddings of all processes and normalise them.

        Args:
            indices: ``[B]`` rows; an image that occurs twice in the global batch keeps its last embedding.
            embeddings: ``[B, d]`` unit.
            rate: α, see :class:`Bank`.
        """
        if indices.device.type == "cpu":
            self.check(indices)
        indices, embeddings = gather(indices), gather(embeddings).to(self.rows.dtype)
        moved = F.normalize(self.rows[indices] * rate + embeddings * (1 - rate), dim=1)
        self.rows.index_copy_(0, indices, moved)


class KeyQueue(nn.Module):
    """``[K, d]`` unit keys, the oldest overwritten first.

    Args:
        size: K.
        dim: d.
        generator: draws the initial keys (CPU).
    """

    rows: Tensor
    pointer: Tensor

    def __init__(self, size: int, dim: int, generator: torch.Generator) -> None:
        super().__init__()
        self.register_buffer("rows", F.normalize(torch.randn(size, dim, generator=generator), dim=1))
        self.register_buffer("pointer", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def enqueue(self, keys: Tensor) -> None:
        """Write the ``[B, d]`` keys of all processes behind the newest; keeps the last K of a larger batch."""
        keys = gather(keys).to(self.rows.dtype)
        size = len(self.rows)
        slots = (self.pointer + torch.arange(len(keys), device=keys.device)) % size
        self.rows.index_copy_(0, slots[-size:], keys[-size:])
        self.pointer.copy_((self.pointer + len(keys)) % size)

    def oldest_first(self) -> Tensor:
        """``[K, d]`` keys in the order in which they leave."""
        return self.rows.roll(-int(self.pointer), 0)


def local_parts(parts: int) -> int:
    """How many of ``parts`` fall to this process; one where there is but one part, whatever the processes.

    Raises:
        ArgumentError: the parts cannot be shared out evenly.
    """
    count = world()[1]
    if parts > 1 and parts % count:
        raise reject("parts", parts, f"1, or a multiple of the number of processes, {count}")
    return max(1, parts // count)


def in_parts(
    encode: Callable[[Tensor], Tensor], views: Tensor, parts: int, generator: torch.Generator | None = None
) -> Tensor:
    """``encode`` of this process's ``[B, …]`` views, the global batch cut in ``parts``: batch-norm sees one at a time.

    Args:
        encode: of one part; without gradient where there is a ``generator`` and several processes.
        views: ``[B, …]``.
        parts: of the global batch, shared out among the processes; each needs two views or more. 1 is one part per
            process.
        generator: draws anew which views share a part, over all processes, where it must be in the same state (MoCo's
            shuffled batch-norm). The order of the result is that of ``views``. ``None`` takes them in order.

    Raises:
        ArgumentError: more parts than pairs of views, or parts that cannot be shared out.
    """
    own = local_parts(parts)
    if parts == 1:
        return encode(views)
    if len(views) < 2 * own:
        raise reject("parts", parts, f"at most {len(views) // 2 * world()[1]}, half of the views of a step")
    if generator is None:
        return torch.cat([encode(part) for part in views.tensor_split(own)])
    rank, count = world()
    every = views if count == 1 else gather(views)
    order = torch.randperm(len(every), generator=generator, device=generator.device).to(views.device)
    mine = order.view(count, -1)[rank]
    mixed = torch.cat([encode(part) for part in every[mine].tensor_split(own)])
    mixed = mixed if count == 1 else gather(mixed)
    return torch.empty_like(mixed).index_copy_(0, order, mixed).view(count, len(views), -1)[rank]


@torch.no_grad()
def momentum_update(slow: nn.Module, fast: nn.Module, momentum: float) -> None:
    """Exponential moving average of the parameters; batch-norm statistics stay the slow network's own."""
    pairs = list(zip(slow.parameters(), fast.parameters(), strict=True))
    torch._foreach_lerp_([s for s, _ in pairs], [f.detach() for _, f in pairs], 1 - momentum)


def prototypes(classes: int, dim: int, generator: torch.Generator) -> nn.Parameter:
    """``[classes, dim]`` start of the class vectors of :class:`Prototypes`."""
    return nn.Parameter(torch.randn(classes, dim, generator=generator) / math.sqrt(dim))
