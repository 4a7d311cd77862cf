"""The recipe part "views": what is compared with what, and how many encoders see it.

Views are made by an :class:`Augmentation` of the modality at hand; this module knows no pixels but the colour split.
``streams`` names the encoders, ``pairs`` says whose embeddings are contrasted with whose keys, in order (query, key).
"""

from contrastlab.views.base import Augmentation, Views
from contrastlab.views.channels import Channels
from contrastlab.views.clips import Flow, Frames
from contrastlab.views.images import Augmented, Dropout, Jigsaw, Offset, Split

__all__ = [
    "Augmentation", "Augmented", "Channels", "Dropout", "Flow", "Frames", "Jigsaw", "Offset", "Split", "Views",
]  # fmt: skip
