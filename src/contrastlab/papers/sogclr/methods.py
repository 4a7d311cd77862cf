"""SogCLR: SimCLR whose denominators are averages over many batches, one for each item."""

from __future__ import annotations

from collections.abc import Iterator

from contrastlab import keys
from contrastlab.negatives import Every
from contrastlab.papers.sogclr.objective import SogCLR
from contrastlab.recipe import Recipe
from contrastlab.views import Augmented


def rows() -> Iterator[Recipe]:
    """The paper's method on two views of a picture."""
    yield Recipe(
        "sogclr/sogclr",
        "SogCLR",
        views=Augmented(2),
        keys=keys.InBatch(),
        negatives=Every(),
        objective=SogCLR(),
        temperature=0.1,
        note="Temperature and rate are ours. Each of the two views has an average of its own.",
    )
