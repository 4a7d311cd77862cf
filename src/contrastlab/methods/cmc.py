"""Rows of cmc Tables 1, 7, 8 and 9 and of its Figures 5 and 6: two views of an image.

§4.1: τ = 0.07, α = 0.5, 16,384 negatives; with AlexNets 4,096 (D.2). The loss of the released weights is NCE with Z₀ of
the first batch. Table 9 is the later code (HobbitLong/PyContrast, 84f94ea): softmax and 65,536 keys throughout.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from contrastlab import keys, negatives, objectives, positives
from contrastlab.methods import vince
from contrastlab.methods.recipe import Recipe
from contrastlab.views import Augmented, Jigsaw, Offset, Split

YDBDR = Split("ydbdr", scaling="released")
_DRAWN = (
    "Negatives are drawn with replacement from the whole bank, the own row included, and both directions have draws of"
    " their own; the released code shares them."
)


def rows() -> Iterator[Recipe]:
    """The rows in the order of the tables."""
    nce = replace(
        vince.CMC, name="cmc/lab", label="{L,ab}", negatives=negatives.Uniform(16384, own="ranked"), note=_DRAWN
    )
    yield nce
    ydbdr = replace(
        nce, name="cmc/ydbdr", label="{Y,DbDr}", views=YDBDR,
        note="Scaled by the constants that the authors released later, with another repository.",
    )  # fmt: skip
    yield ydbdr
    yield replace(
        ydbdr, name="cmc/ydbdr_ra", label="{Y,DbDr}+RA",
        note="The row above with RandAugment, which is a setting; which one is not said, taken is that of the later"
        " code: two operations on the geometry.",
    )  # fmt: skip
    yield from _stl10(nce)
    yield replace(
        ydbdr, name="cmc/alexnet", label="CMC({Y,DbDr})", negatives=negatives.Uniform(4096, own="ranked"),
        note="D.2: 4,096 negatives with AlexNets.",
    )  # fmt: skip
    yield from _table_9()
    yield from _figure_5(nce)
    for count in (64, 128, 256, 512, 1024, 2048, 4096, 8192):
        yield replace(
            nce, name=f"cmc/k{count}", label=f"m = {count}", negatives=negatives.Uniform(count, own="ranked"),
            note="Figure 6; the colour space is not said, taken is the paper's first, Lab.",
        )  # fmt: skip


def _stl10(nce: Recipe) -> Iterator[Recipe]:
    yield replace(
        nce, name="cmc/stl10", label="CMC(NCE)", negatives=negatives.Uniform(4096, own="ranked"), temperature=0.1,
        note="E.1; the number of negatives is not said for STL-10, taken is that of the AlexNets.",
    )  # fmt: skip
    yield Recipe(
        "cmc/stl10_patch", "CMC(Patch)", views=Split(), keys=keys.Locations("conv2"), negatives=negatives.Every(),
        positives=positives.Each(), temperature=0.1,
        note="B.2: features of the last layer against feature points of the first several conv layers; which layer, and"
        " what brings both to one dimension, is not said. Taken is conv2, and an embedding as long as it has channels.",
    )  # fmt: skip


def _table_9() -> Iterator[Recipe]:
    queue = keys.Queue(65536, 0.999, shuffle_groups=8, further_view=True)
    moco = Recipe(
        "cmc/moco", "MoCo", views=Augmented(2), keys=replace(queue, further_view=False), negatives=negatives.Every()
    )
    bank = Recipe(
        "cmc/insdis", "InsDis", negatives=negatives.Uniform(65536, own="ranked"),
        note="Not in the table; the baseline of the later code, with a softmax.",
    )  # fmt: skip
    yield bank
    yield moco
    yield replace(bank, name="cmc/pirl", label="PIRL", views=Jigsaw(), note="Both heads with weight 1/2.")
    yield replace(bank, name="cmc/cmc", label="CMC", views=YDBDR, note=_DRAWN)
    both = replace(
        moco, name="cmc/cmc_moco", label="CMC + MoCo", views=replace(YDBDR, count=2), keys=queue,
        note="A momentum encoder and a queue for each view; keys are of a second crop.",
    )  # fmt: skip
    yield both
    own = (
        "The later code passes the patches' embeddings to its loss in swapped order, so that those of Y are told apart"
        " from keys of Y, not of DbDr; so here."
    )
    puzzle = Jigsaw("ydbdr", scaling="released")
    yield replace(bank, name="cmc/cmc_pirl", label="CMC + PIRL", views=puzzle, note=own)
    three = replace(both, name="cmc/cmc_moco_pirl", label="CMC + MoCo + PIRL", views=replace(puzzle, count=2), note=own)
    yield three
    yield replace(
        three, name="cmc/cmc_moco_pirl_ra", label="CMC + MoCo + PIRL + RA",
        note="The row above with RandAugment, which is a setting.",
    )  # fmt: skip
    yield replace(
        both, name="cmc/cmc_v2", label="CMCv2", temperature=0.2,
        note="Not in the table; as released later: no puzzle, an MLP head, RandAugment, τ = 0.2.",
    )  # fmt: skip
    yield replace(
        both, name="cmc/cmc_moco_nce", label="CMC + MoCo, NCE", objective=objectives.BinaryNCE(kappa=None),
        note="Not in the table; the loss of the first code, with Z₀ of the first batch, on the queue.",
    )  # fmt: skip


def _figure_5(nce: Recipe) -> Iterator[Recipe]:
    base = replace(nce, negatives=negatives.Uniform(4096, own="ranked"), temperature=0.1)
    for space in ("ydbdr", "ycbcr", "yiq", "rgb", "xyz", "hsv", "hed"):  # Lab is cmc/stl10
        part = Split(space)
        yield replace(
            base, name=f"cmc/split_{space}", label=f"{part.streams[0]} and {part.streams[1]}", views=part,
            note="Figure 5, left; which channel is alone in each space is not said, taken is the first.",
        )  # fmt: skip
    for patches in (1, 1.5, 2, 3, 4, 5, 6):
        yield Recipe(
            f"cmc/offset_{patches:g}", f"d = {patches:g} patches", views=Offset(int(64 * patches)),
            keys=keys.InBatch("across"), negatives=negatives.Every(), temperature=0.1,
            note="Figure 5, right: patches of 64 px, d from 64 to 384. Keys, encoders and temperature are not said:"
            " taken are one encoder, the batch, and the temperature for STL-10.",
        )  # fmt: skip
