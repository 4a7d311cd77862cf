"""How features are seen and embedded: a random view is one of those that were written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from contrastlab.domains.features.network import HIDDEN, build
from contrastlab.pictures.domain import Modality
from contrastlab.settings import Settings
from contrastlab.support.errors import check
from contrastlab.views import Augmentation, Views


@dataclass(frozen=True)
class WrittenViews:
    """Views of items ``[B, 1 + V, F]``: the plain one lies first, and a random one is any of the V others.

    Each draw is independent, so two views of one step are the same one with probability 1/V.
    """

    def plain(self, batch: Any) -> Tensor:
        """The plain view, float32 ``[B, F, 1, 1]``."""
        _check(batch)
        return _as_pixels(batch[:, 0])

    def random(self, batch: Any, rng: torch.Generator | None = None, *, view: int = 0) -> Tensor:
        """One of the written random views of each item, float32 ``[B, F, 1, 1]``."""
        _check(batch)
        count, views = batch.shape[:2]
        accepted = "[B, 1 + V, F] with at least one random view behind the plain one"
        check(views > 1, "batch", tuple(batch.shape), accepted)
        number = torch.randint(1, views, (count,), generator=rng, device=batch.device)
        item = torch.arange(count, device=batch.device)
        return _as_pixels(batch[item, number])

    def normalise(self, view: Tensor) -> Tensor:
        """Features as they are."""
        return view


def _check(batch: Any) -> None:
    is_features = isinstance(batch, Tensor) and batch.dim() == 3
    check(is_features, "batch", getattr(batch, "shape", type(batch).__name__), "features [B, 1 + V, F]")


def _as_pixels(features: Tensor) -> Tensor:
    """Features as pictures of one pixel, the form that encoders take."""
    return features.float()[..., None, None]


def written_views(settings: Settings) -> Augmentation:
    """The distribution over views; no setting changes it."""
    return WrittenViews()


def build_arguments(settings: Settings) -> Mapping[str, Any]:
    """The kind of encoder, and arguments of :func:`contrastlab.domains.features.network.build`."""
    return {"kind": "feature vector", **_network_arguments(settings)}


def _network_arguments(settings: Settings) -> dict[str, int]:
    """What settings decide of the network; the width is a factor on its hidden layer."""
    return {"hidden": max(1, round(HIDDEN * settings.width)), "dim": settings.dim}


def encoders(views: Views, source: Any, settings: Settings) -> nn.ModuleList:
    """A new encoder for each stream; views that cut or split pictures are refused, as they are of pixels."""
    channels = views.channels(source.channels)
    arguments = _network_arguments(settings)
    return nn.ModuleList(build(in_channels=count, **arguments) for count in channels)


FEATURES = Modality("feature vector", written_views, encoders, build_arguments)
