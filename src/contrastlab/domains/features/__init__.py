"""Features of several views of each picture, written once by a frozen network; a small network learns on them."""

from contrastlab.pictures.domain import Domain

DOMAIN = Domain(
    package="contrastlab.domains.features",
    modalities={"feature vector": "contrastlab.domains.features.modality:FEATURES"},
    readers={"features": ("feature vector", "contrastlab.domains.features.data:load_features")},
    made_of={"feature vector": "image"},
    builders={"feature vector": "contrastlab.domains.features.network:build"},
)
