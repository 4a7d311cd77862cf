"""What views are made of: a modality's distribution over views of one item."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

from contrastlab import errors


class Augmentation(Protocol):
    """A distribution over views of a batch of items; :mod:`contrastlab.data.images.augment` has that of images."""

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


def query_weights(views: Any) -> tuple[float, ...]:
    """What the losses of the kinds of queries that views make are multiplied with; views of one kind have 1.

    A second kind (:class:`contrastlab.views.Jigsaw`) lies behind the others in what ``make`` returns, one a stream.
    """
    weights: tuple[float, ...] = getattr(views, "query_weights", (1.0,))
    return weights


def crop_options(views: Any, size: int) -> dict[str, Any]:
    """What :class:`contrastlab.data.loading.Crops` needs to know of views, beside an augmentation.

    Args:
        views: of a recipe.
        size: side of a view in pixels.
    """
    window = getattr(views, "window", None)
    if window is not None:
        return {"count": 1, "window": window(size)}
    return {"count": views.count, "further": getattr(views, "further_scales", ())}
