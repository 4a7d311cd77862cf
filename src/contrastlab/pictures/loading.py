"""Batches of items on the device, from a set that lives there or from one that streams."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, default_collate

from contrastlab.pictures.augmentations import sample_boxes
from contrastlab.pictures.items import ItemSet
from contrastlab.support.errors import ContrastLabError, NotApplicableError
from contrastlab.support.seeds import generator

#: processes that decode, unless said otherwise: one for each core that this process may use
WORKERS = min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
AHEAD = 4 << 30  #: bytes of crops that all workers together read ahead, at most: containers have little shared memory

_DECODERS: ContextVar[int] = ContextVar("decoders", default=WORKERS)


@contextmanager
def decoders(workers: int) -> Iterator[None]:
    """Within, so many processes decode a streaming set, unless :func:`batches` is told otherwise."""
    token = _DECODERS.set(workers)
    try:
        yield
    finally:
        _DECODERS.reset(token)


@dataclass(frozen=True)
class Crops:
    """Random resized crops, made by the workers that decode: the protocol of the papers' ImageNet runs.

    The boxes of a picture come from a generator of its own, so that they do not depend on processes, workers,
    the batch or where a run was resumed.
    """

    augmentation: Any  #: its ``size``, ``scale`` and ``ratio`` are read
    count: int  #: crops of each picture
    seed: int  #: of the run
    before: int = 0  #: pictures that the run has seen before the first one of the order
    further: tuple[tuple[float, float], ...] = ()  #: areas, as fractions, of further crops behind these
    window: int | None = None  #: side in pixels of squares that are cut as they are, not resized, in place of all that

    @property
    def size(self) -> int:
        """Side of a crop in pixels."""
        return self.augmentation.size if self.window is None else self.window

    def draws(self, number: int) -> torch.Generator:
        """Of the item that comes as the ``number``-th of the order."""
        return generator(self.seed, "crops", self.before + number)

    def boxes(self, number: int, height: int, width: int) -> Tensor:
        """``[V, 4]`` of (top, left, height, width) for the ``number``-th item of the order."""
        a, draws = self.augmentation, self.draws(number)
        if self.window is not None:
            room = torch.tensor((height, width)) - self.window + 1
            if int(room.min()) < 1:
                raise NotApplicableError(f"a picture of {height} by {width} px has no square of {self.window} px")
            corner = (torch.rand(self.count, 2, generator=draws) * room).long()
            return torch.cat([corner, torch.full_like(corner, self.window)], 1)
        kinds = ((self.count, a.scale), *((1, scale) for scale in self.further))
        drawn = (sample_boxes(n, height, width, scale=scale, ratio=a.ratio, generator=draws) for n, scale in kinds)
        return torch.cat(tuple(drawn))


def subset_order(labels: Tensor, count: int | None, seed: int) -> Tensor:
    """Indices of at most ``count`` random images; of all, in order, for ``None``."""
    if count is None or count >= len(labels):
        return torch.arange(len(labels))
    return torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))[:count]


def batches(
    source: ItemSet, order: Tensor | Iterable[Tensor], batch_size: int, device: torch.device | str, *,
    drop_last: bool, rank: int = 0, world: int = 1, start: int = 0, workers: int | None = None,
    crop: Crops | None = None,
) -> Generator[tuple[Tensor, Tensor], None, None]:  # fmt: skip
    """Indices ``[B]`` int64 and images ``[B, C, H, W]`` uint8 of each batch, on ``device``.

    ``order`` is the same on every process: ``[N]`` indices, or those of several epochs, through which the workers live
    on and read ahead. Process ``rank`` takes its slice of each global batch of ``world × batch_size``; ``drop_last``
    leaves out an incomplete one, and a resumed epoch skips ``start`` of them.

    A resident source is indexed where it lies; the only host–GPU synchronisation is copying each epoch's order. A
    streaming one is decoded by ``workers`` processes (0: by this one; ``None``: as :func:`decoders` says), which with
    ``crop`` give crops ``[B, V, C, size, size]`` of whole pictures, or windows of whole videos.
    """
    epochs: Iterable[Tensor] = (order,) if isinstance(order, Tensor) else order
    cut = partial(_slices, batch_size=batch_size, drop_last=drop_last, rank=rank, world=world, start=start)
    if source.resident:
        pixels: Tensor = source.items  # type: ignore[attr-defined]
        for _, chosen in cut(epoch.to(pixels.device) for epoch in epochs):
            yield chosen.to(device), pixels.index_select(0, chosen).to(device, non_blocking=True)
        return
    workers = _DECODERS.get() if workers is None else workers
    crops = 0 if crop is None else batch_size * (crop.count + len(crop.further)) * 3 * crop.size**2  # bytes
    ahead = max(1, min(4, AHEAD // max(1, crops * workers)))
    loader = DataLoader(
        _Images(source, crop), num_workers=workers, worker_init_fn=_leave_signals, collate_fn=_collate,
        batch_sampler=([(index, first + k) for k, index in enumerate(s.tolist())] for first, s in cut(epochs)),
        pin_memory=torch.device(device).type == "cuda", prefetch_factor=ahead if workers else None,
    )  # fmt: skip
    for made in loader:
        if isinstance(made, Exception):
            raise made
        chosen, images = made
        yield chosen.to(device, non_blocking=True), images.to(device, non_blocking=True)


def _slices(
    epochs: Iterable[Tensor], batch_size: int, drop_last: bool, rank: int, world: int, start: int
) -> Iterator[tuple[int, Tensor]]:
    """This process's part of each global batch, after the number that its first image has over all epochs."""
    size, before = batch_size * world, 0
    for order in epochs:
        stop = len(order) - len(order) % size if drop_last else len(order)
        for first in range(start * size, stop, size):
            mine = first + rank * batch_size
            yield before + mine, order[mine : mine + batch_size]
        before, start = before + stop, 0


def _leave_signals(worker: int) -> None:
    # Ctrl-C reaches every process of a terminal, a cluster's SIGTERM every process of a job; the one that trains still
    # waits for the batch in hand, and ends its workers through their queue
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _collate(items: list[tuple[int, Tensor] | Exception]) -> Any:
    """A batch of items, or the first error among them."""
    return next((item for item in items if isinstance(item, Exception)), None) or default_collate(items)


class _Images(torch.utils.data.Dataset[tuple[int, Tensor] | Exception]):
    """Items, or the expected error of reading one: what a worker raises arrives with the text of a traceback."""

    def __init__(self, source: ItemSet, crop: Crops | None) -> None:
        self.source, self.crop = source, crop

    def __getitem__(self, which: tuple[int, int]) -> tuple[int, Tensor] | Exception:
        index, number = which  # the item at index comes as the number-th of the order
        try:
            if self.crop is None:
                return index, self.source[index]
            return index, self.source.part(index, self.crop, number)
        except (ContrastLabError, OSError) as error:
            return error
