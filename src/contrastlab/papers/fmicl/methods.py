"""Rows of fmicl Tables 2, 3, 4, 8, 9 and 10.

Algorithm 1: σ² = 1/2, μ = 1, α = 40; negatives within one view of the batch.
"""

from __future__ import annotations

from collections.abc import Iterator

from contrastlab import negatives
from contrastlab.keys import InBatch
from contrastlab.objectives import FMICL, AlignUniform, InfoNCE, Spectral
from contrastlab.papers.ring import methods as ring
from contrastlab.recipe import Recipe
from contrastlab.views import Augmented, Dropout

SENTENCES_VARIANCE = 1 / 40  # σ² where 1/2σ² = 20

_LABELS = {
    "kl": "KL",
    "js": "JS",
    "pearson": "Pearson",
    "hellinger": "SH",
    "tsallis": "Tsallis-3",
    "vincze_le_cam": "VLC",
    "vincze_le_cam_printed": "VLC as printed",
    "reverse_kl": "RKL",
    "neyman": "Neyman",
}
_NOTES = {
    "vincze_le_cam": "With the right composition f*∘f′; fmicl Tables 1 and 6 print another.",
    "vincze_le_cam_printed": "With the composition 3 − 4/(u + 1) of fmicl Tables 1 and 6, which is not f*∘f′.",
    "reverse_kl": "Fails fmicl Eq. 20: nothing asks for equal distances.",
    "neyman": "Fails fmicl Eq. 20: the negatives' term is concave in the squared distance.",
}


def rows() -> Iterator[Recipe]:
    """The rows in the order of the tables."""
    kl = Recipe(
        "fmicl/kl",
        "KL",
        views=Augmented(2),
        keys=InBatch("within", symmetric=False),
        negatives=negatives.Every(),
        objective=FMICL("kl"),
        temperature=0.5,
    )
    for f, label in _LABELS.items():
        yield kl.row(f"fmicl/{f}", label, _NOTES.get(f, ""), objective=FMICL(f))
    halved = (
        "The raw cosine reaches 1, where f* or its slope is infinite; scores are halved. The paper does not say what it"
        " did (its Vincze–Le Cam cell is 10.00 %, chance)."
    )
    for f in ("kl", "js", "pearson", "hellinger", "tsallis", "vincze_le_cam"):
        note, temperature = (halved, 2.0) if f in ("js", "hellinger", "vincze_le_cam") else ("", 1.0)
        objective = FMICL(f, similarity="cosine")
        yield kl.row(f"fmicl/cosine_{f}", f"{_LABELS[f]}, cosine", note, objective=objective, temperature=temperature)
    for f in ("kl", "js"):
        for weight in (0.1, 1.0, 10.0, 20.0, 30.0, 50.0):  # 40 is the row above
            label = f"{_LABELS[f]}, α = {weight:g}"
            yield kl.row(f"fmicl/{f}_alpha{weight:g}", label, objective=FMICL(f, weight=weight))
    # Table 9: sentences. Appendix D.1, Table 7: 1/2σ² = 20; positives differ in dropout, as SimCSE's.
    sentences = kl.row("sentences", "", views=Dropout(2), temperature=SENTENCES_VARIANCE)
    for f in ("kl", "pearson"):
        for weight in (1.0, 10.0, 1e2, 1e3, 1e4, 1e5, 409600.0, 1e6):
            label = f"{_LABELS[f]} on sentences, α = {weight:.10g}"
            yield sentences.row(f"fmicl/sentences_{f}_alpha{weight:.10g}", label, objective=FMICL(f, weight=weight))
    yield sentences.row(
        "fmicl/sentences_infonce",
        "InfoNCE on sentences (SimCSE)",
        "SimCSE's released script: one direction, the other embedding of all sentences of the batch as keys.",
        keys=InBatch("across", symmetric=False),
        objective=InfoNCE(),
        temperature=0.05,
    )
    unknown = "The paper gives no temperature; taken is SimCLR's own for CIFAR-10."
    yield kl.row("fmicl/simclr", "SimCLR", unknown, keys=InBatch(), objective=InfoNCE())
    yield ring.MOCO_V2.row("fmicl/moco", "MoCo", "The version of MoCo and its queue are not stated; taken is v2.")
    ones = "Weights 1 and 1, t = 2: the defaults of its authors."
    yield kl.row("fmicl/au", "AU", ones, keys=InBatch("within"), objective=AlignUniform(), temperature=1.0)
    cosine = "fmicl Eq. 19 with cosine similarity."
    yield kl.row("fmicl/spectral", "spectral contrastive", cosine, objective=Spectral(), temperature=1.0)
    # Table 3: MoCo v3, symmetric, momentum encoder and predictor, no queue.
    v3 = Recipe(
        "fmicl/moco_v3",
        "MoCo v3",
        views=Augmented(2),
        keys=InBatch("across", momentum=0.99, predictor=4096),
        negatives=negatives.Every(),
        temperature=0.2,
        note="Its released code lets the momentum grow from 0.99 to 1 along a cosine and takes 2τ times the sum of both"
        " directions.",
    )
    yield v3
    base = "Not in the paper: what its claim needs for a base. The printed base is another network, see Table 3."
    yield v3.row("fmicl/moco_v3_six_blocks", "MoCo v3, network and schedule of the f-MICL rows", base)
    for f in ("kl", "js", "pearson"):
        yield v3.row(f"fmicl/moco_v3_{f}", f"{_LABELS[f]} on MoCo v3", objective=FMICL(f), temperature=0.5)
