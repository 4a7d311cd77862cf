"""The recipe part "views": what is compared with what, and how many encoders see it.

Views are made by an :class:`Augmentation` of the modality at hand; this module knows no pixels but the colour split.
``streams`` names the encoders, ``pairs`` says whose embeddings are told apart from whose keys, in order (query, key).
"""

from contrastlab.views.augmented import Augmented
from contrastlab.views.base import Augmentation, Views
from contrastlab.views.channels import Channels
from contrastlab.views.clips import Flow, Frames
from contrastlab.views.dropout import Dropout
from contrastlab.views.jigsaw import Jigsaw
from contrastlab.views.offset import Offset
from contrastlab.views.split import Split

__all__ = [
    "Augmentation",
    "Augmented",
    "Channels",
    "Dropout",
    "Flow",
    "Frames",
    "Jigsaw",
    "Offset",
    "Split",
    "Views",
]
