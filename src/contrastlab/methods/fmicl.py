"""Rows of fmicl Tables 2, 3, 4, 8, 9 and 10.

Algorithm 1: σ² = 1/2, μ = 1, α = 40; negatives within one view of the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from contrastlab import keys, negatives, objectives
from contrastlab.methods import ring
from contrastlab.methods.recipe import Recipe
from contrastlab.views import Augmented, Dropout

SENTENCES_VARIANCE = 1 / 40
"""σ² where 1/2σ² = 20."""


def rows() -> Iterator[Recipe]:
    """The rows in the order of the tables."""
    batch = keys.InBatch("within", symmetric=False)
    kl = Recipe(
        "fmicl/kl", "KL", views=Augmented(2), keys=batch, negatives=negatives.Every(),
        objective=objectives.FMICL("kl"), temperature=0.5,
    )  # fmt: skip
    named = {
        "kl": "KL", "js": "JS", "pearson": "Pearson", "hellinger": "SH", "tsallis": "Tsallis-3",
        "vincze_le_cam": "VLC", "vincze_le_cam_printed": "VLC as printed", "reverse_kl": "RKL", "neyman": "Neyman",
    }  # fmt: skip
    notes = {
        "vincze_le_cam": "With the right composition f*∘f′; fmicl Tables 1 and 6 print another.",
        "vincze_le_cam_printed": "With the composition 3 − 4/(u + 1) of fmicl Tables 1 and 6, which is not f*∘f′.",
        "reverse_kl": "Fails fmicl Eq. 20: nothing asks for equal distances.",
        "neyman": "Fails fmicl Eq. 20: the negatives' term is concave in the squared distance.",
    }
    for divergence, label in named.items():
        yield replace(
            kl, name=f"fmicl/{divergence}", label=label, objective=objectives.FMICL(divergence),
            note=notes.get(divergence, ""),
        )  # fmt: skip
    for divergence in ("kl", "js", "pearson", "hellinger", "tsallis", "vincze_le_cam"):
        # raw cosines reach 1; three conjugates end at or below it
        bounded = divergence in ("js", "hellinger", "vincze_le_cam")
        note = (
            "The raw cosine reaches 1, where f* or its slope is infinite; scores are halved. The paper does not say"
            " what it did (its Vincze–Le Cam cell is 10.00 %, chance)."
        )
        yield replace(
            kl, name=f"fmicl/cosine_{divergence}", label=f"{named[divergence]}, cosine",
            objective=objectives.FMICL(divergence, similarity="cosine"), temperature=2.0 if bounded else 1.0,
            note=note if bounded else "",
        )  # fmt: skip
    for divergence in ("kl", "js"):
        for weight in (0.1, 1.0, 10.0, 20.0, 30.0, 50.0):  # 40 is the row above
            yield replace(
                kl, name=f"fmicl/{divergence}_alpha{weight:g}", label=f"{named[divergence]}, α = {weight:g}",
                objective=objectives.FMICL(divergence, weight=weight),
            )  # fmt: skip
    # Table 9: sentences. Appendix D.1, Table 7: 1/2σ² = 20; positives differ in dropout, as SimCSE's.
    sentences = replace(kl, views=Dropout(2), temperature=SENTENCES_VARIANCE)
    for divergence in ("kl", "pearson"):
        for weight in (1.0, 10.0, 1e2, 1e3, 1e4, 1e5, 409600.0, 1e6):
            yield replace(
                sentences, name=f"fmicl/sentences_{divergence}_alpha{weight:.10g}",
                label=f"{named[divergence]} on sentences, α = {weight:.10g}",
                objective=objectives.FMICL(divergence, weight=weight),
            )  # fmt: skip
    yield replace(
        kl, name="fmicl/sentences_infonce", label="InfoNCE on sentences (SimCSE)", views=Dropout(2),
        keys=keys.InBatch("across", symmetric=False), objective=objectives.InfoNCE(), temperature=0.05,
        note="SimCSE's released script: one direction, the other embedding of all sentences of the batch as keys.",
    )  # fmt: skip
    yield replace(
        kl, name="fmicl/simclr", label="SimCLR", keys=keys.InBatch(), objective=objectives.InfoNCE(),
        note="The paper gives no temperature; taken is SimCLR's own for CIFAR-10.",
    )  # fmt: skip
    yield replace(
        ring.MOCO_V2, name="fmicl/moco", label="MoCo",
        note="The version of MoCo and its queue are not stated; taken is v2.",
    )  # fmt: skip
    yield replace(
        kl, name="fmicl/au", label="AU", keys=keys.InBatch("within"), objective=objectives.AlignUniform(),
        temperature=1.0, note="Weights 1 and 1, t = 2: the defaults of its authors.",
    )  # fmt: skip
    yield replace(
        kl, name="fmicl/spectral", label="spectral contrastive", objective=objectives.Spectral(), temperature=1.0,
        note="fmicl Eq. 19 with cosine similarity.",
    )  # fmt: skip
    # Table 3: MoCo v3, symmetric, momentum encoder and predictor, no queue.
    v3 = Recipe(
        "fmicl/moco_v3", "MoCo v3", views=Augmented(2), keys=keys.InBatch("across", momentum=0.99, predictor=4096),
        negatives=negatives.Every(), temperature=0.2,
        note="Its released code lets the momentum grow from 0.99 to 1 along a cosine and takes 2τ times the sum of both"
        " directions.",
    )  # fmt: skip
    yield v3
    yield replace(
        v3, name="fmicl/moco_v3_six_blocks", label="MoCo v3, network and schedule of the f-MICL rows",
        note="Not in the paper: what its claim needs for a base. The printed base is another network, see Table 3.",
    )  # fmt: skip
    for divergence in ("kl", "js", "pearson"):
        yield replace(
            v3, name=f"fmicl/moco_v3_{divergence}", label=f"{named[divergence]} on MoCo v3",
            objective=objectives.FMICL(divergence), temperature=0.5, note="",
        )  # fmt: skip
