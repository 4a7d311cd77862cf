"""SimSiam: BYOL's parts without a momentum encoder.

The paper's loss is minus the cosine; here it is ``2 − 2 cosine``, with twice the gradient at the same rate.
"""

from __future__ import annotations

from collections.abc import Iterator

from contrastlab.negatives import NoKeys
from contrastlab.papers.byol.parts import Follow, Predicted
from contrastlab.recipe import Recipe
from contrastlab.views import Augmented


def rows() -> Iterator[Recipe]:
    """The method, with the predictor's width of the paper."""
    yield Recipe(
        "simsiam/simsiam",
        "SimSiam",
        views=Augmented(2),
        keys=Predicted(None, 512),
        negatives=NoKeys(),
        objective=Follow(),
        temperature=1.0,
        note="The paper's loss is minus the cosine, and has half this gradient at the same rate.",
    )
