"""SimCLR with hard negatives by weight, with the correction for the query's own class and without.

The released code (joshr17/HCL) has β = 1, τ⁺ = 0.1 and τ = 0.5 as its defaults. There, as here, β multiplies the
logit ``q·k/τ``. With β = 0 the two rows are ``debiased/debiased`` and ``debiased/simclr``.
"""

from __future__ import annotations

from collections.abc import Iterator

from contrastlab import keys
from contrastlab.negatives import Every
from contrastlab.papers.hard.objective import HardWeighted
from contrastlab.recipe import Recipe
from contrastlab.views import Augmented


def rows() -> Iterator[Recipe]:
    """The paper's loss, and its weights alone."""
    hard = Recipe(
        "hard/hard",
        "SimCLR (hard)",
        views=Augmented(2),
        keys=keys.InBatch(),
        negatives=Every(),
        objective=HardWeighted(0.1, beta=1.0),
        temperature=0.5,
    )
    yield hard
    yield hard.row("hard/biased", "SimCLR (hard, not debiased)", "τ⁺ = 0.", objective=HardWeighted(0.0, beta=1.0))
