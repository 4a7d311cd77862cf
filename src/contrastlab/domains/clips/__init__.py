"""Videos: frames and their optical flow."""

from contrastlab.pictures.domain import Domain

DOMAIN = Domain(
    package="contrastlab.domains.clips",
    modalities={"clip": "contrastlab.domains.clips.modality:CLIP"},
    tasks={"action": "contrastlab.domains.clips.definitions:Action"},
)
