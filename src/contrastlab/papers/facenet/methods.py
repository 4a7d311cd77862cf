"""Triplets of a batch: with all negatives, with semi-hard ones, and the latter with InfoNCE.

FaceNet takes anchor and positive from the labelled faces of one person; here they are two views of a picture. The
paper's margin is 0.2. It draws semi-hard negatives from the batch and does not say how; here all of them count.
"""

from __future__ import annotations

from collections.abc import Iterator

from contrastlab import keys
from contrastlab.negatives import Every
from contrastlab.objectives import InfoNCE
from contrastlab.papers.facenet.parts import SemiHard, Triplet
from contrastlab.recipe import Recipe
from contrastlab.views import Augmented


def rows() -> Iterator[Recipe]:
    """The loss with both choices of negatives, and the choice with another loss."""
    triplet = Recipe(
        "facenet/triplet",
        "triplet loss, all negatives",
        views=Augmented(2),
        keys=keys.InBatch(),
        negatives=Every(),
        objective=Triplet(0.2),
        temperature=1.0,
        note="The temperature has no part in the loss, which reads distances.",
    )
    semi_hard = triplet.row("facenet/semi_hard", "triplet loss, semi-hard negatives", negatives=SemiHard())
    yield triplet
    yield semi_hard
    yield semi_hard.row(
        "facenet/semi_hard_infonce",
        "InfoNCE, semi-hard negatives",
        "A row of ours: the paper's negatives with SimCLR's loss.",
        objective=InfoNCE(),
        temperature=0.1,
    )
