"""How scenes are seen and embedded."""

from __future__ import annotations

from contrastlab.domains.scenes.augmentation import SceneAugmentation
from contrastlab.pictures.domain import Modality
from contrastlab.pictures.modality import build_arguments, encoders
from contrastlab.settings import Settings


def scene_views(settings: Settings) -> SceneAugmentation:
    """The distribution over views of a scene that settings name."""
    return SceneAugmentation(settings.augmentation, settings.image_size)


SCENE = Modality("scene", scene_views, encoders, build_arguments)
