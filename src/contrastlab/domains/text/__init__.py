"""Sentences, and pairs of them with scores of similarity."""

from contrastlab.pictures.domain import Domain

DOMAIN = Domain(
    package="contrastlab.domains.text",
    modalities={"sentence": "contrastlab.domains.text.modality:SENTENCE"},
    tasks={"similarity": "contrastlab.domains.text.definitions:Similarity"},
    readers={"sentences": ("sentence", "contrastlab.domains.text.data:load_sentences")},
    builders={"sentence": "contrastlab.domains.text.network:build"},
)
