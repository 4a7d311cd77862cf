"""The softmax of CLIP and the sigmoid loss, both with a learnt temperature, here on two views of a picture.

The paper contrasts pictures with texts. Its scale begins at 10, that of CLIP at 1/0.07.
"""

from __future__ import annotations

from collections.abc import Iterator

from contrastlab import keys
from contrastlab.negatives import Every
from contrastlab.papers.siglip.objective import LearntTemperature, Sigmoid
from contrastlab.recipe import Recipe
from contrastlab.views import Augmented


def rows() -> Iterator[Recipe]:
    """The two losses that the paper compares."""
    softmax = Recipe(
        "siglip/softmax",
        "Softmax (CLIP)",
        views=Augmented(2),
        keys=keys.InBatch(against="across"),
        negatives=Every(),
        objective=LearntTemperature(),
        temperature=0.07,
    )
    yield softmax
    yield softmax.row("siglip/sigmoid", "Sigmoid (SigLIP)", objective=Sigmoid(), temperature=0.1)
