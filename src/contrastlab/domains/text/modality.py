"""How sentences are seen and embedded."""

from contrastlab.domains.text.augmentation import build_arguments, encoders, tokens
from contrastlab.pictures.domain import Modality

SENTENCE = Modality("sentence", tokens, encoders, build_arguments)
