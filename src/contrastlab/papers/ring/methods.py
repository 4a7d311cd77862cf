"""Rows of ring Tables 1, 2 and 5.

Table 1: τ = 0.07, ℓ = 1, u annealed 100 → 10; banks hold the embedding of the last epoch (α = 0).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from contrastlab import keys
from contrastlab.negatives import Ball, Every, Ring, Uniform
from contrastlab.papers.vince import methods as vince
from contrastlab.recipe import Recipe
from contrastlab.scores.schedules import Linear
from contrastlab.views import Augmented, Split

MOCO = Recipe("ring/moco", "MoCo", views=Augmented(2), keys=keys.Queue(65536, 0.999), negatives=Every())
MOCO_V2 = MOCO.row("ring/moco_v2", "MoCo-v2", temperature=0.2)
"""Head, cosine schedule and blur of version 2 are settings, not choices of the method."""


def rows() -> Iterator[Recipe]:
    """The rows in the order of the tables."""
    annealed = Linear(100, 10, until=0.5)
    ring, whole = Ring(1, annealed, k=4095), Ring(1, annealed, k=None)
    duration = "The paper gives u from 100 to 10 but not how long; ours is half the run, as in the released code."
    ir = Recipe("ring/ir", "IR", keys=keys.Bank(0.0), negatives=Uniform(4095))
    iring = ir.row("ring/iring", "IRing", duration, negatives=ring)
    yield from (ir, iring)
    yield ir.row("ring/cmc", "CMC", views=Split("lab"))
    yield iring.row("ring/cmcring", "CMCRing", duration, views=Split("lab"))
    printed = (
        f"{duration} Algorithm 1 leaves the positive out of the denominator and slices the sorted scores by a step;"
        " here the positive is in it (Eq. 1) and the ring is the ranks from ℓ % to u %."
    )
    yield from (MOCO, MOCO.row("ring/mocoring", "MoCoRing", printed, negatives=whole))
    yield replace(vince.LA, name="ring/la", note="As vince/la: appendix H, which describes it, is not at hand.")
    yield iring.row("ring/iring_noanneal", "IRing (No Anneal)", duration, negatives=Ring(1, 10, k=4095))
    yield iring.row("ring/iring_l0", "IRing (l=0)", duration, negatives=Ball(annealed, k=4095))
    # Table 5(b) is MoCo-v2, 5(d) SimCLR
    yield from (MOCO_V2, MOCO_V2.row("ring/mocoring_v2", "MoCoRing-v2", duration, negatives=whole))
    taken = (
        "The paper's temperature, batch and head are in an appendix that is not at hand; taken are SimCLR's own for"
        " CIFAR-10."
    )
    simclr = MOCO.row("ring/simclr", "SimCLR", taken, keys=keys.InBatch(), temperature=0.5)
    within = (
        f"{taken} {duration} Ranks are those within the batch: with fewer than 100 candidates the closest 1 % is"
        " nobody. The positive is never removed."
    )
    yield from (simclr, simclr.row("ring/simclring", "SimCLRing", within, negatives=whole))
