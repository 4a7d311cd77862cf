"""What processes that train together exchange; with one process, nothing.

Everything is in rank order, so that N processes hold, bit for bit, what one process with the same global batch holds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count as numbers
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from contrastlab.support import host
from contrastlab.support.errors import DeviceError

Value = TypeVar("Value")

LOOK_EVERY_S = 0.2
"""Seconds that a process sleeps between looks at whether the first one has done what it does alone."""

_TURNS = numbers()  # of by_first, alike in all processes


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


def by_first(compute: Callable[[], Value]) -> Value | None:
    """What ``compute`` gives in the first process; the others, which call this too, get ``None`` when it has ended.

    They sleep, and look into the store by which the processes found each other. In a collective they would keep their
    cores and GPUs busy, and give up after its timeout.

    Raises:
        DeviceError: in the others, where the first process has failed or is gone.
    """
    rank, count = world()
    if count == 1:
        return compute()
    store: Any = dist.distributed_c10d._get_default_store()
    turn = f"contrastlab/by_first/{next(_TURNS)}"
    if rank > 0:
        _sleep_until_set(store, turn)
        return None
    ended = "failed"
    try:
        value = compute()
        ended = "done"
    finally:
        store.set(turn, ended)
    return value


def _sleep_until_set(store: Any, key: str) -> None:
    """Return when the first process has written that it is done."""
    try:
        while not store.check([key]):
            time.sleep(LOOK_EVERY_S)
        ended = store.get(key).decode()
    except RuntimeError as error:  # the first process keeps the store
        raise DeviceError(f"the first process, for which this one waits, is gone: {error}") from error
    if ended != "done":
        raise DeviceError("the first process, for which this one waits, has failed; it says why")


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
