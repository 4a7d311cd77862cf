"""Detection, masks and keypoints: a detector is trained on an encoder and scored by average precision."""

from contrastlab.pictures.domain import Domain

_DEFINITIONS = "contrastlab.domains.detection.definitions"

DOMAIN = Domain(
    package="contrastlab.domains.detection",
    modalities={"annotated image": "contrastlab.domains.detection.modality:ANNOTATED_IMAGE"},
    tasks={
        "boxes": f"{_DEFINITIONS}:Boxes",
        "masks": f"{_DEFINITIONS}:Masks",
        "keypoints": f"{_DEFINITIONS}:Keypoints",
    },
    readers={"annotated": ("annotated image", "contrastlab.domains.detection.data:load_own")},
)
