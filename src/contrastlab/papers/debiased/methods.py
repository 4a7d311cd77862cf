"""SimCLR with the debiased loss and without.

The released code (chingyaoc/DCL) trains with τ = 0.5 and, for its best encoder, τ⁺ = 0.1.
"Biased" is SimCLR's own loss.
"""

from __future__ import annotations

from collections.abc import Iterator

from contrastlab import keys
from contrastlab.negatives import Every
from contrastlab.objectives import InfoNCE
from contrastlab.papers.debiased.objective import Debiased
from contrastlab.recipe import Recipe
from contrastlab.views import Augmented


def rows() -> Iterator[Recipe]:
    """The two losses that the paper compares."""
    simclr = Recipe(
        "debiased/simclr",
        "SimCLR (biased)",
        views=Augmented(2),
        keys=keys.InBatch(),
        negatives=Every(),
        objective=InfoNCE(),
        temperature=0.5,
    )
    yield simclr
    yield simclr.row("debiased/debiased", "SimCLR (debiased)", "One positive key, M = 1.", objective=Debiased(0.1))
