"""How clips are seen and embedded."""

from __future__ import annotations

from typing import Any

from torch import nn

from contrastlab.domains.clips.augmentation import clip_augmentation
from contrastlab.pictures.domain import Modality
from contrastlab.pictures.encoder import Shared
from contrastlab.pictures.modality import build_arguments, encoders
from contrastlab.settings import Settings
from contrastlab.views import Views


def clip_encoders(views: Views, source: Any, settings: Settings) -> nn.ModuleList:
    """A new encoder for each stream, but one for all streams of frames."""
    built = list(encoders(views, source, settings))
    for stream, first in views.same_encoder.items():
        built[stream] = Shared(built[first])  # type: ignore[arg-type]
    return nn.ModuleList(built)


CLIP = Modality("clip", clip_augmentation, clip_encoders, build_arguments)
