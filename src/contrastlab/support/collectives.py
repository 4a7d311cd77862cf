"""What processes that train together exchange; with one process, nothing.

Everything is in rank order, so that N processes hold, bit for bit, what one process with the same global batch holds.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from contrastlab.support import host


def initialised() -> bool:
    """Whether a group of processes is there, of one or more."""
    return dist.is_available() and dist.is_initialized()


def world() -> tuple[int, int]:
    """Rank of this process and number of processes."""
    if initialised():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def gather(local: Tensor) -> Tensor:
    """``[B, …]`` of every process, all of one shape, concatenated in rank order, without gradient."""
    count = world()[1]
    if count == 1:
        return local.detach()
    parts = [torch.empty_like(local) for _ in range(count)]
    dist.all_gather(parts, local.detach().contiguous())
    return torch.cat(parts)


def gather_with_gradient(local: Tensor) -> Tensor:
    """``[B, …]`` of every process in rank order; gradients flow back to the process they belong to, summed."""
    if world()[1] == 1:
        return local
    gathered: Tensor = _Gathered.apply(local.contiguous())
    return gathered


class _Gathered(torch.autograd.Function):
    """:func:`gather_with_gradient` of several processes.

    On GPUs both ways are one collective each (NCCL). On CPUs (gloo, of which not every version scatters sums) gradients
    are gathered and summed in rank order.
    """

    @staticmethod
    def forward(ctx: Any, local: Tensor) -> Tensor:
        if host.holds(local.device):
            return gather(local)
        every = local.new_empty(world()[1] * local.shape[0], *local.shape[1:])
        dist.all_gather_into_tensor(every, local)
        return every

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        rank, count = world()
        size = len(gradient) // count
        if host.holds(gradient.device):
            every = gather(gradient).view(count, count, size, *gradient.shape[1:])
            return every[:, rank].sum(0)
        own = gradient.new_empty(size, *gradient.shape[1:])
        dist.reduce_scatter_tensor(own, gradient.contiguous())
        return own


def share_columns(columns: Tensor) -> None:
    """In place: of n processes, all have column r of ``[N, R]`` as process ``r mod n`` has it."""
    count = world()[1]
    if count == 1:
        return
    for number, column in enumerate(columns.unbind(1)):
        sent = column.contiguous()
        dist.broadcast(sent, number % count)
        column.copy_(sent)


def rows_of_this_process(size: int, device: torch.device) -> Tensor:
    """``[size]`` positions of this process's items in the global batch."""
    return torch.arange(size, device=device) + world()[0] * size
