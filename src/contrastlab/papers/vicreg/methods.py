"""VICReg with the paper's weights.

Its expander has three layers of 8,192; here the head is a setting.
"""

from __future__ import annotations

from collections.abc import Iterator

from contrastlab import keys
from contrastlab.negatives import NoKeys
from contrastlab.papers.vicreg.objective import VICReg
from contrastlab.recipe import Recipe
from contrastlab.views import Augmented


def rows() -> Iterator[Recipe]:
    """The method."""
    yield Recipe(
        "vicreg/vicreg",
        "VICReg",
        views=Augmented(2),
        keys=keys.Pairs(),
        negatives=NoKeys(),
        objective=VICReg(25, 25, 1),
        temperature=1.0,
        note="The squared difference is a mean over dimensions, as in the paper's listing; Eq. 5 sums over them. The"
        " released code halves the weight of the variance.",
    )
