"""Training of what a task puts on an encoder, or of both together: Adam over shuffled batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from contrastlab.data.loading import Source, batches
from contrastlab.errors import reject
from contrastlab.tasks.base import Log

DROPS = (2 / 3, 0.8, 14 / 15)
"""Parts of the epochs after which the rate falls to a fifth: 2,000, 2,400 and 2,800 of 3,000 (CMC, E.4)."""


def fit(
    loss: Callable[[Tensor, Tensor, torch.Generator], Tensor], parameters: Iterable[nn.Parameter], source: Source,
    chosen: Tensor, *, epochs: int, batch_size: int, lr: float, betas: tuple[float, float], seed: int,
    device: torch.device | str, log: Log | None = None, name: str = "probe",
) -> None:  # fmt: skip
    """Minimise a loss over the items at ``chosen``.

    Args:
        loss: of item numbers ``[B]``, items and a generator for their augmentation, to a scalar.
        parameters: that are trained.
        source: of items.
        chosen: int64 ``[n]`` numbers of the items.
        epochs: passes over them.
        batch_size: at most; incomplete batches are left out.
        lr: of Adam, falling as :data:`DROPS` says.
        betas: of Adam.
        seed: of order and augmentation.
        device: where the parameters are.
        log: called with one line per epoch.
        name: of what is fitted, in these lines.

    Raises:
        ArgumentError: there are no items.
    """
    if not len(chosen):
        raise reject("chosen", len(chosen), "at least one labelled item to fit on")
    optimiser = torch.optim.Adam(list(parameters), lr=lr, betas=betas)
    milestones = sorted({max(1, round(part * epochs)) for part in DROPS})
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, milestones, 0.2)
    order = torch.Generator().manual_seed(seed)
    draws = torch.Generator(device=device).manual_seed(seed)
    size = min(batch_size, len(chosen))
    for epoch in range(epochs):
        shuffled = chosen[torch.randperm(len(chosen), generator=order)]
        value = torch.zeros(())
        for index, items in batches(source, shuffled, size, device, drop_last=True):
            value = loss(index, items, draws)
            optimiser.zero_grad()
            value.backward()
            optimiser.step()
        schedule.step()
        if log is not None:
            log(f"{name}, epoch {epoch + 1}/{epochs}, loss {value.item():.3f}")
