"""What a modality brings: views of its items, and the encoders that embed them. The loop and the tasks see no more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from torch import nn

from contrastlab.domains.clips.views import clip_augmentation
from contrastlab.domains.scenes.views import SceneAugmentation
from contrastlab.domains.speech import views as speech
from contrastlab.domains.text import views as text
from contrastlab.pictures.augmentations import augmentation
from contrastlab.pictures.encoder import Shared, build_for
from contrastlab.settings import Settings
from contrastlab.support import errors
from contrastlab.views import Augmentation, Views


@dataclass(frozen=True)
class Modality:
    """How items of one kind are seen and embedded."""

    name: str  #: ``image``, …
    augmentation: Callable[[Settings], Augmentation]  #: settings to the distribution over views
    #: views of a recipe, a set of items and settings to one new encoder per stream, in the order of ``views.streams``;
    #: weights come from torch's default generator
    encoders: Callable[[Views, Any, Settings], nn.ModuleList]
    #: settings to the arguments that :func:`contrastlab.encoders.build` needs to make these encoders again
    build: Callable[[Settings], Mapping[str, Any]]


def _build(settings: Settings) -> Mapping[str, Any]:
    own = {"options": settings.arch_options} if settings.arch_options else {}
    return {**{name: getattr(settings, name) for name in ("arch", "stem", "head", "dim", "width")}, **own}


def _encoders(views: Views, source: Any, settings: Settings) -> nn.ModuleList:
    return build_for(views, source.channels, **_build(settings))


def _clip_encoders(views: Views, source: Any, settings: Settings) -> nn.ModuleList:
    built, same = _encoders(views, source, settings), views.same_encoder
    return nn.ModuleList(
        Shared(built[same[k]]) if k in same else encoder for k, encoder in enumerate(built)  # type: ignore[arg-type]
    )  # fmt: skip


def _wave_encoders(views: Views, source: Any, settings: Settings) -> nn.ModuleList:
    speech.check_rate(source, settings.speech)
    return _encoders(views, source, settings)


def _image_views(settings: Settings) -> Augmentation:
    return augmentation(settings.augmentation, settings.image_size)


MODALITIES: Mapping[str, Modality] = MappingProxyType({row.name: row for row in (
    Modality("image", _image_views, _encoders, _build),
    Modality("annotated image", _image_views, _encoders, _build),
    Modality("waveform", speech.views_of, _wave_encoders, _build),
    Modality("sentence", text.tokens, text.encoders, text.build_arguments),
    Modality("clip", clip_augmentation, _clip_encoders, _build),
    Modality("scene", lambda s: SceneAugmentation(s.augmentation, s.image_size), _encoders, _build),
)})  # fmt: skip
"""Name to modality."""


def modality(source: Any) -> Modality:
    """The modality of a set of items."""
    known = hasattr(source, "modality")
    errors.check(known, "items", type(source).__name__, "a set of contrastlab.data, such as ImageSet")
    errors.check_name("modality", source.modality, MODALITIES)
    return MODALITIES[source.modality]
