"""Features of several views of each picture, written once by a frozen network; a small network learns on them."""

from contrastlab.pictures.domain import Domain

DOMAIN = Domain(
    package="contrastlab.domains.features",
    modalities={"features": "contrastlab.domains.features.modality:FEATURES"},
    readers={"features": ("features", "contrastlab.domains.features.data:load_features")},
    builders={"features": "contrastlab.domains.features.network:build"},
)
