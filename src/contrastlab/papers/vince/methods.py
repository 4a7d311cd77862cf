"""Rows of vince Table 1: 14 algorithms of one stream and 12 of two (L and ab).

C.2: α = 0.5, τ = 0.07; ball and outer ring 10 %, inner ring and inner ball 1 %; the outer edge annealed 100 → 10 over
100 of 200 epochs, the inner ball 0 → 1 from epoch 10 to 100. C.2 names 4,096 background neighbours, for LA; the 4,096
negatives of all other rows are those of C.1. Here the positive is one of the K = 4,096 terms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from contrastlab import objectives, positives
from contrastlab.negatives import Ball, Cave, Ring, Uniform
from contrastlab.positives import Positives
from contrastlab.recipe import Recipe
from contrastlab.scores.schedules import Linear
from contrastlab.views import Split

IR = Recipe(
    "vince/ir",
    "IR",
    negatives=Uniform(4096, own="ranked"),
    objective=objectives.BinaryNCE(),
    note="With Z = κN the data-set size cancels: K + 1 logistic terms with offset log κK, not the softmax of §2.",
)
IR_NCE = IR.row("vince/ir_nce", "IR^nce", negatives=Uniform(4095), objective=objectives.InfoNCE())
LA = IR.row(
    "vince/la",
    "LA",
    "Background neighbours are those nearest to the current embedding, as in the released code; the text says nearest"
    " to the bank's row.",
    negatives=Ball(nearest=4096, k=None, own="ranked"),
    positives=positives.SameCluster(),
    objective=objectives.LocalAggregation(),
)
LA_NCE = LA.row("vince/la_nce", "LA^nce", objective=objectives.InfoNCE(), negatives=Ball(nearest=4096, k=None))
CMC = IR.row("vince/cmc", "CMC", views=Split("lab"), objective=objectives.BinaryNCE(kappa=None))
CMC_NCE = IR_NCE.row("vince/cmc_nce", "CMC^nce", views=Split("lab"))


def rows() -> Iterator[Recipe]:
    """The rows in the order of the table."""
    yield from (IR, IR_NCE, LA, LA_NCE, *_regions(IR_NCE), CMC, CMC_NCE, *_regions(CMC_NCE))


def _regions(base: Recipe) -> Iterator[Recipe]:
    """BALL, CAVE and RING in place of the base's uniform negatives, each with neighbours or annealing or both."""
    annealed, inner = Linear(100, 10, until=0.5), Linear(0, 1, begin=0.05, until=0.5)
    regions: dict[str, Ball | Cave | Ring] = {
        "BALL": Ball(10, k=4095),
        "CAVE": Cave(10, k=4095),
        "RING": Ring(1, 10, k=4095),
    }
    for label, neighbours, anneal in product(regions, (False, True), (False, True)):
        if label == "CAVE" and neighbours:
            continue  # CAVE with s-neigh is not in the table
        marked = {"Lab": base.views != IR.views, "s-neigh": neighbours, "anneal": anneal}
        marks = [mark for mark, there in marked.items() if there]
        edges: dict[str, Any] = {}
        if anneal:
            edges["outer"] = annealed
        if anneal and neighbours and label == "RING":
            edges["inner"] = inner  # RING's inner edge is the neighbours' ball: both grow together
        near: Positives = positives.One()
        if neighbours:
            share = inner if anneal else 1.0
            near = positives.Neighbours(share)
        name = "_".join([f"vince/{label}", *marks]).replace("-", "").lower()
        title = label
        if marks:
            title = f"{label}^{'+'.join(marks)}"
        yield base.row(name, title, negatives=replace(regions[label], **edges), positives=near)
