"""Tensors of all processes, in rank order: N processes compute what one does with the same global batch."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.nn.functional import all_gather as _all_gather_with_gradient


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
