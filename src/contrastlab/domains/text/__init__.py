"""Sentences, pairs of them with scores of similarity, and pictures with sentences."""

from contrastlab.pictures.domain import Domain

DOMAIN = Domain(
    package="contrastlab.domains.text",
    modalities={
        "sentence": "contrastlab.domains.text.modality:SENTENCE",
        "captioned image": "contrastlab.domains.text.captions:CAPTIONED_IMAGE",
    },
    tasks={
        "similarity": "contrastlab.domains.text.definitions:Similarity",
        "retrieval": "contrastlab.domains.text.definitions:Retrieval",
    },
    readers={"sentences": ("sentence", "contrastlab.domains.text.data:load_sentences")},
    builders={
        "sentence": "contrastlab.domains.text.network:build",
        "captioned image": "contrastlab.domains.text.captions:build",
    },
)
