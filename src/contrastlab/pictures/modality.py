"""How pictures are seen and embedded; other domains share what reads their items as pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from contrastlab.pictures.augmentations import augmentation
from contrastlab.pictures.domain import Modality
from contrastlab.pictures.encoder import build_for
from contrastlab.settings import Settings
from contrastlab.views import Augmentation, Views


def image_views(settings: Settings) -> Augmentation:
    """The distribution over views of a picture that settings name."""
    return augmentation(settings.augmentation, settings.image_size)


def build_arguments(settings: Settings) -> Mapping[str, Any]:
    """Arguments of :func:`contrastlab.encoders.build` that settings decide."""
    arguments = {name: getattr(settings, name) for name in ("arch", "stem", "head", "dim", "width")}
    if settings.arch_options:
        arguments["options"] = settings.arch_options
    return arguments


def encoders(views: Views, source: Any, settings: Settings) -> nn.ModuleList:
    """A new encoder for each stream of ``views``, for items with as many channels as those of ``source``."""
    return build_for(views, source.channels, **build_arguments(settings))


IMAGE = Modality("image", image_views, encoders, build_arguments)
