"""Barlow Twins with the paper's λ.

The released code (facebookresearch/barlowtwins) adds 1e-5 to each variance, as batch-norm does. Its projector has three
layers of 8,192; here the head is a setting.
"""

from __future__ import annotations

from collections.abc import Iterator

from contrastlab import keys
from contrastlab.negatives import NoKeys
from contrastlab.papers.barlow.objective import BarlowTwins
from contrastlab.recipe import Recipe
from contrastlab.views import Augmented


def rows() -> Iterator[Recipe]:
    """The method."""
    yield Recipe(
        "barlow/barlow",
        "Barlow Twins",
        views=Augmented(2),
        keys=keys.Pairs(),
        negatives=NoKeys(),
        objective=BarlowTwins(0.0051),
        temperature=1.0,
        note="The temperature has no part in the loss, which reads embeddings.",
    )
