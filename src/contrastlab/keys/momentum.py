"""Momentum encoders, and batch-norm that sees the global batch in groups (MoCo)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from contrastlab.errors import reject
from contrastlab.keys import distributed


@torch.no_grad()
def momentum_update(slow: nn.Module, fast: nn.Module, momentum: float) -> None:
    """Exponential moving average of the parameters; batch-norm statistics stay the slow network's own."""
    pairs = list(zip(slow.parameters(), fast.parameters(), strict=True))
    torch._foreach_lerp_([s for s, _ in pairs], [f.detach() for _, f in pairs], 1 - momentum)


def local_groups(groups: int) -> int:
    """How many of ``groups`` fall to this process; one where there is but one group, whatever the processes.

    Raises:
        ArgumentError: the groups cannot be shared out evenly.
    """
    count = distributed.world()[1]
    if groups > 1 and groups % count:
        raise reject("shuffle_groups", groups, f"1, or a multiple of the number of processes, {count}")
    return max(1, groups // count)


def in_groups(
    encode: Callable[[Tensor], Tensor], views: Tensor, groups: int, generator: torch.Generator | None = None
) -> Tensor:
    """``encode`` of this process's ``[B, …]`` views, the global batch cut in ``groups``: batch-norm sees one at a time.

    Args:
        encode: of one group; without gradient where there is a ``generator`` and several processes.
        views: ``[B, …]``.
        groups: of the global batch, shared out among the processes; each needs two views or more. 1 is one group per
            process.
        generator: draws anew which views share a group, over all processes, where it must be in the same state (MoCo's
            shuffled batch-norm). The order of the result is that of ``views``. ``None`` takes them in order.

    Raises:
        ArgumentError: more groups than pairs of views, or groups that cannot be shared out.
    """
    own = local_groups(groups)
    if groups == 1:
        return encode(views)
    if len(views) < 2 * own:
        raise reject(
            "shuffle_groups", groups, f"at most {len(views) // 2 * distributed.world()[1]}, half of the views of a step"
        )
    if generator is None:
        return torch.cat([encode(group) for group in views.tensor_split(own)])
    rank, count = distributed.world()
    every = views if count == 1 else distributed.gather(views)
    order = torch.randperm(len(every), generator=generator, device=generator.device).to(views.device)
    mine = order.view(count, -1)[rank]
    mixed = torch.cat([encode(group) for group in every[mine].tensor_split(own)])
    mixed = mixed if count == 1 else distributed.gather(mixed)
    return torch.empty_like(mixed).index_copy_(0, order, mixed).view(count, len(views), -1)[rank]
