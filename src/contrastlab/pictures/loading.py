"""Batches of items on the device, from a set that lives there or from one that streams."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, default_collate

from contrastlab.pictures.augmentations import sample_boxes
from contrastlab.pictures.items import ItemSet, rows_at
from contrastlab.support.errors import ContrastLabError, NotApplicableError
from contrastlab.support.seeds import generator


def _usable_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


WORKERS = min(8, _usable_cores())  #: processes that decode, unless said otherwise
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
        draws = self.draws(number)
        if self.window is not None:
            return self._windows(self.window, height, width, draws)
        scales = [(self.count, self.augmentation.scale)]
        scales += [(1, scale) for scale in self.further]
        ratio = self.augmentation.ratio
        boxes = []
        for count, scale in scales:
            boxes.append(sample_boxes(count, height, width, scale=scale, ratio=ratio, generator=draws))
        return torch.cat(boxes)

    def _windows(self, side: int, height: int, width: int, draws: torch.Generator) -> Tensor:
        """Squares of ``side`` pixels anywhere in a picture, as :meth:`boxes` gives them."""
        places = torch.tensor((height, width)) - side + 1
        if int(places.min()) < 1:
            raise NotApplicableError(f"a picture of {height} by {width} px has no square of {side} px")
        corners = (torch.rand(self.count, 2, generator=draws) * places).long()
        return torch.cat([corners, torch.full_like(corners, side)], 1)


def subset_order(items: Sized, count: int | None, seed: int) -> Tensor:
    """Indices of at most ``count`` random items, of whatever classes; of all, in order, for ``None``."""
    if count is None or count >= len(items):
        return torch.arange(len(items))
    order = torch.randperm(len(items), generator=torch.Generator().manual_seed(seed))
    return order[:count]


def batches(
    source: ItemSet,
    order: Tensor | Iterable[Tensor],
    batch_size: int,
    device: torch.device | str,
    *,
    drop_last: bool,
    rank: int = 0,
    world: int = 1,
    start: int = 0,
    workers: int | None = None,
    crop: Crops | None = None,
) -> Generator[tuple[Tensor, Tensor], None, None]:
    """Indices ``[B]`` int64 and images ``[B, C, H, W]`` uint8 of each batch, on ``device``.

    ``order`` is the same on every process: ``[N]`` indices, or those of several epochs, through which the workers live
    on and read ahead. Process ``rank`` takes its slice of each global batch of ``world × batch_size``; ``drop_last``
    leaves out an incomplete one, and a resumed epoch skips ``start`` of them.

    A resident source is indexed where it lies; the only host–GPU synchronisation is copying each epoch's order. A
    streaming one is decoded by ``workers`` processes (0: by this one; ``None``: as :func:`decoders` says), which with
    ``crop`` give crops ``[B, V, C, size, size]`` of whole pictures, or windows of whole videos.
    """
    epochs = order
    if isinstance(order, Tensor):
        epochs = (order,)
    cut = partial(_slices, batch_size=batch_size, drop_last=drop_last, rank=rank, world=world, start=start)
    if source.resident:
        pixels: Tensor = source.items  # type: ignore[attr-defined]
        epochs_there = (epoch.to(pixels.device) for epoch in epochs)
        for _, indices in cut(epochs_there):
            images = rows_at(pixels, indices)
            yield indices.to(device), images.to(device, non_blocking=True)
        return
    if workers is None:
        workers = _DECODERS.get()
    prefetch = None
    if workers:
        prefetch = _batches_ahead(crop, batch_size, workers)
    loader = DataLoader(
        _Images(source, crop),
        batch_sampler=_numbered(cut(epochs)),
        num_workers=workers,
        worker_init_fn=_leave_signals,
        collate_fn=_collate,
        pin_memory=torch.device(device).type == "cuda",
        prefetch_factor=prefetch,
    )
    for batch in loader:
        if isinstance(batch, Exception):
            raise batch
        indices, images = batch
        yield indices.to(device, non_blocking=True), images.to(device, non_blocking=True)


def _batches_ahead(crop: Crops | None, batch_size: int, workers: int) -> int:
    """Batches that each worker reads ahead: 4, or as many as fit in :data:`AHEAD`, and at least 1."""
    if crop is None:
        return 4
    crops_of_batch = batch_size * (crop.count + len(crop.further))
    bytes_of_batch = crops_of_batch * 3 * crop.size**2
    return max(1, min(4, AHEAD // max(1, bytes_of_batch * workers)))


def _numbered(slices: Iterable[tuple[int, Tensor]]) -> Iterator[list[tuple[int, int]]]:
    """The indices of each batch, each with the number that it has in the order."""
    for first, indices in slices:
        yield [(index, first + k) for k, index in enumerate(indices.tolist())]


def _slices(
    epochs: Iterable[Tensor], batch_size: int, drop_last: bool, rank: int, world: int, start: int
) -> Iterator[tuple[int, Tensor]]:
    """This process's part of each global batch, after the number that its first image has over all epochs."""
    size = batch_size * world
    before = 0
    for order in epochs:
        stop = len(order)
        if drop_last:
            stop -= len(order) % size
        for first_of_batch in range(start * size, stop, size):
            first = first_of_batch + rank * batch_size
            yield before + first, order[first : first + batch_size]
        before += stop
        start = 0


def _leave_signals(worker: int) -> None:
    # Ctrl-C reaches every process of a terminal, a cluster's SIGTERM every process of a job; the one that trains still
    # waits for the batch in hand, and ends its workers through their queue
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _collate(items: list[tuple[int, Tensor] | Exception]) -> Any:
    """A batch of items, or the first error among them."""
    for item in items:
        if isinstance(item, Exception):
            return item
    return default_collate(items)


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
