"""Rows of cmc Tables 3 to 5 and Figure 4: one to four channels of indoor scenes, contrasted or predicted.

Section 4.3, B.2, E.4: the last layer of one encoder against the locations of an early map of the other, in the batch;
no weights are shared. Which map, the temperature and the batch are not printed: conv4, whose channels are those of the
embedding, τ = 0.1 and the table's batch size are readings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from contrastlab import keys, negatives, objectives, positives
from contrastlab.methods.recipe import Recipe
from contrastlab.views import Channels

ORDER = ("L", "ab", "depth", "normal")
"""The order in which views are added (Figure 4)."""

RANDOM = Recipe(
    "cmc/scenes_random", "Random", views=Channels(ORDER, "full"), keys=None,
    note="The encoders of all four views as initialised; a task reads one of them.",
)  # fmt: skip
SUPERVISED = replace(
    RANDOM, name="cmc/scenes_supervised", label="Supervised",
    note="The task trains the encoder together with what it puts on it, from its start: there is no pre-training.",
)  # fmt: skip
LONG = tuple(
    replace(recipe, name=f"{recipe.name}_long", label=f"{recipe.label}, trained longer",
            note="The same with the decoder's length that the paper gives its baselines and denies CMC (E.4).")
    for recipe in (RANDOM, SUPERVISED)
)  # fmt: skip
VIEWS_1 = Recipe(
    "cmc/views_1", "CMC, 1 view (DIM)", views=Channels(ORDER[:1]), keys=keys.Locations(), negatives=negatives.Every(),
    positives=positives.Each(), temperature=0.1,
    note="The last layer of the L encoder against its own map: local DIM.",
)  # fmt: skip
VIEWS_2 = replace(VIEWS_1, name="cmc/views_2", label="CMC, 2 views", views=Channels(ORDER[:2]), note="")
VIEWS_3 = replace(VIEWS_2, name="cmc/views_3", label="CMC, 3 views", views=Channels(ORDER[:3]))
CORE = replace(VIEWS_2, name="cmc/core_4", label="CMC (core-view)", views=Channels(ORDER))
FULL = replace(VIEWS_2, name="cmc/full_4", label="CMC (full-graph)", views=Channels(ORDER, "full"))


def rows() -> Iterator[Recipe]:
    """References, Figure 4, Table 3, Table 5."""
    yield from (RANDOM, SUPERVISED, *LONG, VIEWS_1, VIEWS_2, VIEWS_3, CORE, FULL)
    for other in ("depth", "normal", "label"):
        shown = "seg. map" if other == "label" else other
        yield replace(
            VIEWS_2, name=f"cmc/contrast_{other}", label=f"L, {shown}: contrastive", views=Channels(("L", other))
        )
        yield Recipe(
            f"cmc/predict_{other}", f"L, {shown}: predictive", views=Channels(("L",), targets=(other,)),
            keys=keys.Pixels(), negatives=negatives.Every(), objective=objectives.Likelihood(), temperature=1.0,
            note="The loss and the decoder are not printed: squared error, no skip connections.",
        )  # fmt: skip
