"""Rows of ring Tables 1, 2 and 5.

Table 1: τ = 0.07, ℓ = 1, u annealed 100 → 10; banks hold the embedding of the last epoch (α = 0).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from contrastlab import keys, negatives
from contrastlab.methods import vince
from contrastlab.methods.recipe import Recipe
from contrastlab.schedules import Linear
from contrastlab.views import Augmented, Split

MOCO = Recipe("ring/moco", "MoCo", views=Augmented(2), keys=keys.Queue(65536, 0.999), negatives=negatives.Every())
MOCO_V2 = replace(MOCO, name="ring/moco_v2", label="MoCo-v2", temperature=0.2)
"""Head, cosine schedule and blur of version 2 are settings, not choices of the method."""


def rows() -> Iterator[Recipe]:
    """The rows in the order of the tables."""
    annealed = Linear(100, 10, until=0.5)
    duration = "The paper gives u from 100 to 10 but not how long; taken is half the run, as the released code has it."
    ir = Recipe("ring/ir", "IR", keys=keys.Bank(0.0), negatives=negatives.Uniform(4095))
    iring = replace(
        ir, name="ring/iring", label="IRing", negatives=negatives.Ring(1, annealed, k=4095), note=duration
    )  # fmt: skip
    yield ir
    yield iring
    yield replace(ir, name="ring/cmc", label="CMC", views=Split("lab"))
    yield replace(iring, name="ring/cmcring", label="CMCRing", views=Split("lab"))
    yield MOCO
    yield replace(
        MOCO,
        name="ring/mocoring",
        label="MoCoRing",
        negatives=negatives.Ring(1, annealed, k=None),
        note=f"{duration} Algorithm 1 leaves the positive out of the denominator and slices the sorted scores by a"
        " step; here the positive is in it (Eq. 1) and the ring is the ranks from ℓ % to u %.",
    )
    yield replace(vince.LA, name="ring/la", note="As vince/la: appendix H, which describes it, is not at hand.")
    yield replace(iring, name="ring/iring_noanneal", label="IRing (No Anneal)", negatives=negatives.Ring(1, 10, k=4095))
    yield replace(iring, name="ring/iring_l0", label="IRing (l=0)", negatives=negatives.Ball(annealed, k=4095))

    # Table 5(b) is MoCo-v2, 5(d) SimCLR
    yield MOCO_V2
    yield replace(
        MOCO_V2,
        name="ring/mocoring_v2",
        label="MoCoRing-v2",
        negatives=negatives.Ring(1, annealed, k=None),
        note=duration,
    )
    simclr = Recipe(
        "ring/simclr", "SimCLR", views=Augmented(2), keys=keys.InBatch(), negatives=negatives.Every(), temperature=0.5,
        note="The paper's temperature, batch and head are in an appendix that is not at hand; taken are SimCLR's own"
        " for CIFAR-10.",
    )  # fmt: skip
    yield simclr
    yield replace(
        simclr, name="ring/simclring", label="SimCLRing", negatives=negatives.Ring(1, annealed, k=None),
        note=f"{simclr.note} {duration} Ranks are those within the batch: with fewer than 100 candidates the closest"
        " 1 % is nobody. The positive is never removed.",
    )  # fmt: skip
