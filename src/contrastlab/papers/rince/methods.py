"""SimCLR with the robust loss: between InfoNCE and the symmetric loss, and the symmetric loss itself."""

from __future__ import annotations

from collections.abc import Iterator

from contrastlab import keys
from contrastlab.negatives import Every
from contrastlab.papers.rince.objective import RINCE
from contrastlab.recipe import Recipe
from contrastlab.views import Augmented


def rows() -> Iterator[Recipe]:
    """The loss at q = 1/2 and at q = 1."""
    rince = Recipe(
        "rince/rince",
        "RINCE",
        views=Augmented(2),
        keys=keys.InBatch(),
        negatives=Every(),
        objective=RINCE(0.5, 0.01),
        temperature=0.5,
    )
    yield rince
    yield rince.row("rince/symmetric", "RINCE (q = 1)", objective=RINCE(1.0, 0.01))
