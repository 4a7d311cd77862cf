"""BYOL with the paper's momentum and predictor."""

from __future__ import annotations

from collections.abc import Iterator

from contrastlab.negatives import NoKeys
from contrastlab.papers.byol.parts import Follow, Predicted
from contrastlab.recipe import Recipe
from contrastlab.views import Augmented


def rows() -> Iterator[Recipe]:
    """The method."""
    yield Recipe(
        "byol/byol",
        "BYOL",
        views=Augmented(2),
        keys=Predicted(0.996, 4096),
        negatives=NoKeys(),
        objective=Follow(),
        temperature=1.0,
        note="The paper adds the losses of both directions, of which this is the mean: half the loss at the same rate.",
    )
