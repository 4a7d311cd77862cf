"""SimCLR with labels: keys of the same class are positives, by either form of the loss.

The paper trains with τ = 0.1 (ImageNet).
"""

from __future__ import annotations

from collections.abc import Iterator

from contrastlab import keys
from contrastlab.negatives import Every
from contrastlab.papers.supcon.objective import SupCon
from contrastlab.positives import SameLabel
from contrastlab.recipe import Recipe
from contrastlab.views import Augmented


def rows() -> Iterator[Recipe]:
    """The two forms of the loss."""
    outside = Recipe(
        "supcon/out",
        "SupCon (out)",
        views=Augmented(2),
        keys=keys.InBatch(),
        negatives=Every(),
        positives=SameLabel(),
        objective=SupCon("outside"),
        temperature=0.1,
        note="The released code multiplies the loss by τ/0.07, which is a factor of the learning rate.",
    )
    yield outside
    yield outside.row("supcon/in", "SupCon (in)", objective=SupCon("inside"))
