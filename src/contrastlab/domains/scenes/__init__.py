"""Scenes: colours, depth, surface normals and classes of pixels."""

from contrastlab.pictures.domain import Domain

_DEFINITIONS = "contrastlab.domains.scenes.definitions"

DOMAIN = Domain(
    package="contrastlab.domains.scenes",
    modalities={"scene": "contrastlab.domains.scenes.modality:SCENE"},
    tasks={
        "one_view": f"{_DEFINITIONS}:OneView",
        "segmentation_L": f"{_DEFINITIONS}:LuminanceSegmentation",
        "segmentation_ab": f"{_DEFINITIONS}:ChrominanceSegmentation",
        "segmentation_depth": f"{_DEFINITIONS}:DepthSegmentation",
        "segmentation_normal": f"{_DEFINITIONS}:NormalSegmentation",
    },
)
