"""What views are made of: a modality's distribution over views of one item."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor

from contrastlab.scores.choices import Part
from contrastlab.support import errors


class Augmentation(Protocol):
    """A distribution over views of a batch of items; :mod:`contrastlab.pictures.augmentations` has that of images.

    ``rng`` is the source of all draws, on the batch's device; None is that device's default.
    """

    def random(self, batch: Any, rng: torch.Generator | None = None, *, view: int = 0) -> Tensor:
        """One random view of each item; ``view`` is its number among the views of one step."""

    def plain(self, batch: Any) -> Tensor:
        """The view of each item that evaluation sees, without randomness."""

    def normalise(self, view: Tensor) -> Tensor:
        """The view as an encoder reads it."""


def random_views(batch: Any, augmentation: Augmentation, rng: torch.Generator | None, count: int) -> Iterator[Tensor]:
    """``count`` random views of each item."""
    crops = isinstance(batch, Tensor) and batch.dim() == 5 and batch.shape[2] in (1, 3)  # clips have more planes
    if crops and batch.shape[1] != count:
        raise errors.reject("images.shape", tuple(batch.shape), f"[B, {count}, C, size, size]: a crop for each view")
    return (augmentation.random(batch, rng, view=k) for k in range(count))


class Views(Part):
    """Base of the kinds of views: what is made of an item, which encoder sees it, and what is contrasted with what.

    Attributes:
        count: views of each item in a stream.
        pieces: patches that a second head of the encoders reads; 0: they have none.
        further_scales: areas of further crops, as fractions of the picture's.
    """

    count: int = 1
    pieces: int = 0
    further_scales: tuple[tuple[float, float], ...] = ()

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams, each of which has an encoder."""
        return ("view",)

    @property
    def same_encoder(self) -> Mapping[int, int]:
        """Streams that another stream's encoder sees, too: their numbers to that one's."""
        return {}

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Numbers of the streams whose embeddings are contrasted with whose keys: (query, key)."""
        return ((0, 0),)

    @property
    def query_weights(self) -> tuple[float, ...]:
        """Factors on the losses of the kinds of queries; those of a second kind lie behind the others."""
        return (1.0,)

    def window(self, size: int) -> int | None:
        """Side of the square of the picture that views of ``size`` pixels are cut from; ``None``: crops are drawn."""
        return None

    bounds_information = True

    def single(self) -> Views:
        """The views as probes see them: one of each item and stream."""
        return self if self.count == 1 else replace(self, count=1)  # type: ignore[type-var]

    def channels(self, image_channels: int) -> tuple[int, ...]:
        """Input channels of each stream's encoder, for items with ``image_channels`` of them."""
        return (image_channels,)

    def make(self, batch: Any, augmentation: Any, rng: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """Random views of each item, normalised: those of the first stream, then those of the next."""
        raise NotImplementedError

    def plain(self, batch: Any, augmentation: Any) -> tuple[Tensor, ...]:
        """The evaluation's views of each item, a tensor a stream, without randomness."""
        raise NotImplementedError


def crop_options(views: Views, size: int) -> dict[str, Any]:
    """What :class:`contrastlab.pictures.loading.Crops` needs to know of views of ``size`` pixels."""
    window = views.window(size)
    if window is not None:
        return {"count": 1, "window": window}
    return {"count": views.count, "further": views.further_scales}
