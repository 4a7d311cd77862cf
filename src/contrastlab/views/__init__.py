"""The recipe part "views": what is compared with what, and how many encoders see it.

Views are made by an :class:`Augmentation` of the modality at hand; this module knows no pixels but the colour split.
A domain has kinds of views of its own, such as :class:`contrastlab.domains.clips.views.Flow`.
``streams`` names the encoders, ``pairs`` says whose embeddings are contrasted with whose keys, in order (query, key).
"""

from contrastlab.views.base import Augmentation, Views
from contrastlab.views.images import Augmented, Dropout, Jigsaw, Offset, Split

__all__ = ["Augmentation", "Augmented", "Dropout", "Jigsaw", "Offset", "Split", "Views"]
