"""Rows of cmc: views of an image (Tables 1, 7, 8, 9, Figures 5, 6), of a video (Table 2), of a scene (Tables 3 to 5).

§4.1: τ = 0.07, α = 0.5, 16,384 negatives; with AlexNets 4,096 (D.2). The loss of the released weights is NCE with Z₀ of
the first batch. Table 9 is the later code (HobbitLong/PyContrast, 84f94ea): softmax and 65,536 keys throughout.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from contrastlab import domains, keys, negatives, objectives, positives
from contrastlab.papers.vince import methods as vince
from contrastlab.recipe import Recipe
from contrastlab.views import Augmented, Jigsaw, Offset, Split

ORDER = ("L", "ab", "depth", "normal")
"""The order in which the views of a scene are added (Figure 4)."""

_DRAWN = partial(negatives.Uniform, own="ranked")
_YDBDR = Split("ydbdr", scaling="released")
_REPLACED = (
    "Negatives are drawn with replacement from the whole bank, the own row included, and both directions have draws of"
    " their own; the released code shares them."
)
_RANDAUGMENT = "The row above with RandAugment, which is a setting"


def rows() -> Iterator[Recipe]:
    """The rows in the order of the tables."""
    nce = vince.CMC.row("cmc/lab", "{L,ab}", _REPLACED, negatives=_DRAWN(16384))
    scaled = "Scaled by the constants that the authors released later, with another repository."
    ydbdr = nce.row("cmc/ydbdr", "{Y,DbDr}", scaled, views=_YDBDR)
    yield from (nce, ydbdr)
    later = "; the paper does not say which, and ours is that of the later code: two operations on the geometry."
    yield ydbdr.row("cmc/ydbdr_ra", "{Y,DbDr}+RA", _RANDAUGMENT + later)
    count = "E.1; the paper gives no number of negatives for STL-10, and ours is that of the AlexNets."
    yield nce.row("cmc/stl10", "CMC(NCE)", count, negatives=_DRAWN(4096), temperature=0.1)
    yield Recipe(
        "cmc/stl10_patch",
        "CMC(Patch)",
        views=Split(),
        keys=keys.Locations("conv2"),
        negatives=negatives.Every(),
        positives=positives.Each(),
        temperature=0.1,
        note="B.2: features of the last layer against feature points of the first several conv layers; which layer, and"
        " what brings both to one dimension, is not said. Taken is conv2, and an embedding as long as it has channels.",
    )
    yield ydbdr.row("cmc/alexnet", "CMC({Y,DbDr})", "D.2: 4,096 negatives with AlexNets.", negatives=_DRAWN(4096))
    yield from _table_9()
    yield from _figure_5(nce)
    note = "Figure 6; the paper does not name the colour space, and ours is its first, Lab."
    for k in (64, 128, 256, 512, 1024, 2048, 4096, 8192):
        yield nce.row(f"cmc/k{k}", f"m = {k}", note, negatives=_DRAWN(k))
    if domains.present("clips"):
        yield from _videos()
    if domains.present("scenes"):
        yield from _scenes()


def _table_9() -> Iterator[Recipe]:
    queue = keys.Queue(65536, 0.999, shuffle_groups=8, further_view=True)
    puzzle = Jigsaw("ydbdr", scaling="released")
    swapped = (
        "The later code passes the patches' embeddings to its loss in swapped order, so that those of Y are contrasted"
        " with keys of Y, not of DbDr; so here."
    )
    softmax = "Not in the table; the baseline of the later code, with a softmax."
    bank = Recipe("cmc/insdis", "InsDis", negatives=_DRAWN(65536), note=softmax)
    one_view = replace(queue, further_view=False)
    moco = Recipe("cmc/moco", "MoCo", views=Augmented(2), keys=one_view, negatives=negatives.Every())
    second = "A momentum encoder and a queue for each view; keys are of a second crop."
    both = moco.row("cmc/cmc_moco", "CMC + MoCo", second, views=replace(_YDBDR, count=2), keys=queue)
    three = both.row("cmc/cmc_moco_pirl", "CMC + MoCo + PIRL", swapped, views=replace(puzzle, count=2))
    yield from (bank, moco)
    yield bank.row("cmc/pirl", "PIRL", "Both heads with weight 1/2.", views=Jigsaw())
    yield bank.row("cmc/cmc", "CMC", _REPLACED, views=_YDBDR)
    yield both
    yield bank.row("cmc/cmc_pirl", "CMC + PIRL", swapped, views=puzzle)
    yield three
    yield three.row("cmc/cmc_moco_pirl_ra", "CMC + MoCo + PIRL + RA", _RANDAUGMENT + ".")
    released = "Not in the table; as released later: no puzzle, an MLP head, RandAugment, τ = 0.2."
    yield both.row("cmc/cmc_v2", "CMCv2", released, temperature=0.2)
    first = "Not in the table; the loss of the first code, with Z₀ of the first batch, on the queue."
    yield both.row("cmc/cmc_moco_nce", "CMC + MoCo, NCE", first, objective=objectives.BinaryNCE(kappa=None))


def _figure_5(nce: Recipe) -> Iterator[Recipe]:
    note = "Figure 5, left; the paper does not say which channel is alone in each space, and ours is the first."
    for space in ("ydbdr", "ycbcr", "yiq", "rgb", "xyz", "hsv", "hed"):  # Lab is cmc/stl10
        part = Split(space)
        label = " and ".join(part.streams)
        yield nce.row(f"cmc/split_{space}", label, note, views=part, negatives=_DRAWN(4096), temperature=0.1)
    for patches in (1, 1.5, 2, 3, 4, 5, 6):
        yield Recipe(
            f"cmc/offset_{patches:g}",
            f"d = {patches:g} patches",
            views=Offset(int(64 * patches)),
            keys=keys.InBatch("across"),
            negatives=negatives.Every(),
            temperature=0.1,
            note="Figure 5, right: patches of 64 px, d from 64 to 384. Keys, encoders and temperature are not said:"
            " taken are one encoder, the batch, and the temperature for STL-10.",
        )


def _videos() -> Iterator[Recipe]:
    """Table 2: contrast between the frames of a video (V), between a frame and its optical flow (D), and both.

    Section 4.2: two CaffeNets, batches of 128, each positive pair against 127 negatives, which are views of other
    randomly chosen videos: the other items of the batch. A batch has no video twice.
    """
    from contrastlab.domains.clips.views import Flow, Frames

    v = Recipe(
        "cmc/video_v",
        "CMC (V)",
        views=Frames(),
        keys=keys.InBatch("across"),
        negatives=negatives.Every(),
        note="The paper leaves open k, the temperature (0.07 is that of its images) and what f_t is clipped to. It has"
        " two CaffeNets, one for images and one for flow, so both frames go through one network.",
    )
    core = "The sum of the losses of V and D, which share the frame at t: the core view of three views."
    yield v
    yield v.row("cmc/video_d", "CMC (D)", v.note, views=Flow())
    yield v.row("cmc/video_vd", "CMC (V+D)", core, views=Flow(k=5))


def _scenes() -> Iterator[Recipe]:
    """References, Figure 4, Tables 3 and 5: one to four channels of indoor scenes, contrasted or predicted.

    Section 4.3, B.2, E.4: the last layer of one encoder against the locations of an early map of the other, in the
    batch; no weights are shared. Which map, the temperature and the batch are not printed: conv4, whose channels are
    those of the embedding, τ = 0.1 and the table's batch size are readings.
    """
    from contrastlab.domains.scenes.views import Channels

    start = "The encoders of all four views as initialised; a task reads one of them."
    random = Recipe("cmc/scenes_random", "Random", views=Channels(ORDER, "full"), keys=None, note=start)
    together = "The task trains the encoder together with what it puts on it, from its start: there is no pre-training."
    supervised = random.row("cmc/scenes_supervised", "Supervised", together)
    yield from (random, supervised)
    long = "The same with the decoder's length that the paper gives its baselines and denies CMC (E.4)."
    for recipe in (random, supervised):
        yield recipe.row(f"{recipe.name}_long", f"{recipe.label}, trained longer", long)
    one = Recipe(
        "cmc/views_1",
        "CMC, 1 view (DIM)",
        views=Channels(ORDER[:1]),
        keys=keys.Locations(),
        negatives=negatives.Every(),
        positives=positives.Each(),
        temperature=0.1,
        note="The last layer of the L encoder against its own map: local DIM.",
    )
    yield one
    for count in (2, 3):
        yield one.row(f"cmc/views_{count}", f"CMC, {count} views", views=Channels(ORDER[:count]))
    yield one.row("cmc/core_4", "CMC (core-view)", views=Channels(ORDER))
    yield one.row("cmc/full_4", "CMC (full-graph)", views=Channels(ORDER, "full"))
    for other, shown in (("depth", "depth"), ("normal", "normal"), ("label", "seg. map")):
        yield one.row(f"cmc/contrast_{other}", f"L, {shown}: contrastive", views=Channels(("L", other)))
        yield Recipe(
            f"cmc/predict_{other}",
            f"L, {shown}: predictive",
            views=Channels(("L",), targets=(other,)),
            keys=keys.Pixels(),
            negatives=negatives.Every(),
            objective=objectives.Likelihood(),
            temperature=1.0,
            note="The loss and the decoder are not printed: squared error, no skip connections.",
        )
