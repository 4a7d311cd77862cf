"""SimCLR with its positive in the denominator, without it (DCL), and without it and weighted (DCLW)."""

from __future__ import annotations

from collections.abc import Iterator

from contrastlab import keys
from contrastlab.negatives import Every
from contrastlab.objectives import InfoNCE
from contrastlab.papers.decoupled.objective import DecoupledWeighted
from contrastlab.recipe import Recipe
from contrastlab.views import Augmented


def rows() -> Iterator[Recipe]:
    """The three losses that the paper compares."""
    simclr = Recipe(
        "decoupled/simclr",
        "SimCLR",
        views=Augmented(2),
        keys=keys.InBatch(),
        negatives=Every(),
        objective=InfoNCE(),
        temperature=0.1,
    )
    without = InfoNCE(positive_in_denominator=False)
    yield simclr
    yield simclr.row("decoupled/dcl", "DCL", "The loss of ring Theorem 3.1 as printed.", objective=without)
    yield simclr.row("decoupled/dclw", "DCLW", "The weights have a gradient.", objective=DecoupledWeighted(0.5))
