"""Batches of images on the device, from a set that lives there or from one that streams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader


class Source(Protocol):
    """What training and probes need of a set of images; see :mod:`contrastlab.images`."""

    @property
    def labels(self) -> Tensor:
        """``[N]`` int64, −1 where unknown."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names."""

    @property
    def channels(self) -> int:
        """1 or 3."""

    @property
    def resident(self) -> bool:
        """Whether ``images`` holds all pixels as one uint8 tensor."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Tensor: ...


def subset_order(labels: Tensor, count: int | None, seed: int) -> Tensor:
    """Indices of at most ``count`` images chosen at random by ``seed``; of all, in order, for ``None``."""
    if count is None or count >= len(labels):
        return torch.arange(len(labels))
    return torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))[:count]


def batches(
    source: Source, order: Tensor, batch_size: int, device: torch.device | str, *,
    drop_last: bool, rank: int = 0, world: int = 1, start: int = 0, workers: int = 4,
) -> Iterator[tuple[Tensor, Tensor]]:  # fmt: skip
    """``(indices, images)`` of each batch, in ``order``.

    Args:
        source: resident (indexed where it lies) or streaming (decoded by worker processes).
        order: ``[N]`` indices, the same on every process.
        batch_size: of this process.
        device: where both tensors go.
        drop_last: leave out an incomplete global batch.
        rank: of this process; it takes its slice of each global batch of ``world × batch_size``.
        world: number of processes.
        start: number of batches to skip (a resumed epoch).
        workers: of the streaming path.

    Returns:
        ``[B]`` int64 and ``[B, C, H, W]`` uint8 on ``device``.
    """
    size = batch_size * world
    stop = len(order) - len(order) % size if drop_last else len(order)
    slices = [
        order[first : first + size][rank * batch_size : (rank + 1) * batch_size]
        for first in range(start * size, stop, size)
    ]
    if source.resident:
        pixels: Tensor = source.images  # type: ignore[attr-defined]
        for chosen in slices:
            yield chosen.to(device), pixels[chosen.to(pixels.device)].to(device, non_blocking=True)
        return
    loader = DataLoader(
        _Images(source), batch_sampler=[s.tolist() for s in slices], num_workers=workers,
        pin_memory=torch.device(device).type == "cuda", prefetch_factor=4 if workers else None,
    )  # fmt: skip
    for chosen, images in loader:
        yield chosen.to(device, non_blocking=True), images.to(device, non_blocking=True)


class _Images(torch.utils.data.Dataset[tuple[int, Tensor]]):
    def __init__(self, source: Source) -> None:
        self.source = source

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> tuple[int, Tensor]:
        return index, self.source[index]
