"""Reference rows of ours: the untrained encoder, and the same encoder trained with labels."""

from __future__ import annotations

from collections.abc import Iterator

from contrastlab import keys, negatives
from contrastlab.methods.recipe import Recipe
from contrastlab.views import Split


def rows() -> Iterator[Recipe]:
    """The reference rows."""
    yield Recipe("ours/random", "random encoder", keys=None)
    yield Recipe("ours/random_lab", "random encoders of L and ab", views=Split("lab"), keys=None)
    yield Recipe(
        "ours/supervised", "same encoder, trained with labels",
        keys=keys.Prototypes(), negatives=negatives.Every(), temperature=0.1,
        note="A reference of ours: the same loop, InfoNCE against one learnt vector per class.",
    )  # fmt: skip
