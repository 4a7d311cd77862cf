"""Representations of items by frozen encoders, and how well scores name their labels.

Frozen means evaluation mode, batch-norm included, and no gradient: nothing here changes an encoder.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab import encoders as enc
from contrastlab.data.loading import Source, batches
from contrastlab.errors import reject
from contrastlab.views import Augmentation, Views

Kind = Literal["embedding", "pooled", "map"]


@contextmanager
def frozen(encoders: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; the mode of every submodule is put back afterwards."""
    modes = [(module, module.training) for module in encoders.modules()]
    encoders.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


def represent(encoders: nn.ModuleList, views: tuple[Tensor, ...], kind: Kind) -> Tensor:
    """``[B, F]`` representation of a batch of views, one view per encoder.

    ``embedding`` is the unit output of the head, concatenated over streams and normalised again;
    ``pooled`` and ``map`` are the features after and (flattened) before pooling.
    """
    if kind == "embedding":
        return F.normalize(torch.cat([e(v) for e, v in zip(encoders, views, strict=True)], 1), dim=1)
    return enc.features(encoders, views, pooled=kind == "pooled").flatten(1)


def encode(
    encoders: nn.ModuleList, part: Views, augmentation: Augmentation, source: Source,
    *, kind: Kind = "embedding", batch_size: int = 512, device: torch.device | str = "cpu",
    indices: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Representations of the centre views of images.

    Args:
        encoders: one per stream.
        part: the recipe's views.
        augmentation: gives size and normalisation of the test view.
        source: images.
        kind: see :func:`represent`.
        batch_size: images at a time.
        device: where the encoders are.
        indices: images wanted; all by default.

    Returns:
        ``[N, F]`` float32 and ``[N]`` labels, on ``device``.
    """
    order = torch.arange(len(source)) if indices is None else indices
    rows = []
    with frozen(encoders):
        for _, images in batches(source, order, batch_size, device, drop_last=False):
            rows.append(represent(encoders, part.plain(images, augmentation), kind).float())
    return torch.cat(rows), source.labels[order].to(device)


def standardised(train: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
    """Both ``[N, F]`` and ``[M, F]`` less the means of ``train`` and over its standard deviations.

    Raises:
        ArgumentError: fewer than two rows to take them from.
    """
    if len(train) < 2:
        raise reject("train", tuple(train.shape), "at least two rows: one has no standard deviation")
    mean, std = train.mean(0), train.std(0).clamp(min=1e-6)
    return (train - mean) / std, (test - mean) / std


def check_labels(train: Tensor, labels: Tensor) -> None:
    """Refuse rows without one label each, or with a label below 0."""
    if len(train) != len(labels):
        raise reject("labels", tuple(labels.shape), f"one label for each of the {len(train)} rows")
    if len(labels) and int(labels.min()) < 0:
        raise reject("labels", int(labels.min()), "labels from 0: an unlabelled image cannot vote")
