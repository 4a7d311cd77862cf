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


KL = Recipe(
    "fmicl/kl",
    "KL",
    views=Augmented(2),
    keys=InBatch("within", symmetric=False),
    negatives=negatives.Every(),
    objective=FMICL("kl"),
    temperature=0.5,
)
# Appendix D.1, Table 7: 1/2σ² = 20; positives differ in dropout, as SimCSE's.
SENTENCES = KL.row("sentences", "", views=Dropout(2), temperature=SENTENCES_VARIANCE)
MOCO_V3 = Recipe(
    "fmicl/moco_v3",
    "MoCo v3",
    views=Augmented(2),
    keys=InBatch("across", momentum=0.99, predictor=4096),
    negatives=negatives.Every(),
    temperature=0.2,
    note="Its released code lets the momentum grow from 0.99 to 1 along a cosine and takes 2τ times the sum of both"
    " directions.",
)


def rows() -> Iterator[Recipe]:
    """The rows in the order of the tables."""
    yield from _divergences()
    yield from _cosines()
    yield from _weights()
    yield from _sentences()
    yield from _baselines()
    yield from _on_moco_v3()


def _divergences() -> Iterator[Recipe]:
    """Tables 2 and 10: an f-divergence each."""
    for f, label in _LABELS.items():
        yield KL.row(f"fmicl/{f}", label, _NOTES.get(f, ""), objective=FMICL(f))


def _cosines() -> Iterator[Recipe]:
    """Table 4: the raw cosine in place of the Gaussian kernel."""
    halved = (
        "The raw cosine reaches 1, where f* or its slope is infinite; scores are halved. The paper does not say what it"
        " did (its Vincze–Le Cam cell is 10.00 %, chance)."
    )
    for f in ("kl", "js", "pearson", "hellinger", "tsallis", "vincze_le_cam"):
        note = ""
        temperature = 1.0
        if f in ("js", "hellinger", "vincze_le_cam"):
            note = halved
            temperature = 2.0
        yield KL.row(
            f"fmicl/cosine_{f}",
            f"{_LABELS[f]}, cosine",
            note,
            objective=FMICL(f, similarity="cosine"),
            temperature=temperature,
        )


def _weights() -> Iterator[Recipe]:
    """Table 8: the weight α of the negatives' term; 40 is the row of the divergence itself."""
    for f in ("kl", "js"):
        for weight in (0.1, 1.0, 10.0, 20.0, 30.0, 50.0):
            label = f"{_LABELS[f]}, α = {weight:g}"
            yield KL.row(f"fmicl/{f}_alpha{weight:g}", label, objective=FMICL(f, weight=weight))


def _sentences() -> Iterator[Recipe]:
    """Table 9: sentences."""
    for f in ("kl", "pearson"):
        for weight in (1.0, 10.0, 1e2, 1e3, 1e4, 1e5, 409600.0, 1e6):
            yield SENTENCES.row(
                f"fmicl/sentences_{f}_alpha{weight:.10g}",
                f"{_LABELS[f]} on sentences, α = {weight:.10g}",
                objective=FMICL(f, weight=weight),
            )
    yield SENTENCES.row(
        "fmicl/sentences_infonce",
        "InfoNCE on sentences (SimCSE)",
        "SimCSE's released script: one direction, the other embedding of all sentences of the batch as keys.",
        keys=InBatch("across", symmetric=False),
        objective=InfoNCE(),
        temperature=0.05,
    )


def _baselines() -> Iterator[Recipe]:
    """The methods of others in Table 2."""
    yield KL.row(
        "fmicl/simclr",
        "SimCLR",
        "The paper gives no temperature; ours is SimCLR's own for CIFAR-10.",
        keys=InBatch(),
        objective=InfoNCE(),
    )
    yield ring.MOCO_V2.row("fmicl/moco", "MoCo", "The version of MoCo and its queue are not stated; ours is v2.")
    yield KL.row(
        "fmicl/au",
        "AU",
        "Weights 1 and 1, t = 2: the defaults of its authors.",
        keys=InBatch("within"),
        objective=AlignUniform(),
        temperature=1.0,
    )
    yield KL.row(
        "fmicl/spectral",
        "spectral contrastive",
        "fmicl Eq. 19 with cosine similarity.",
        objective=Spectral(),
        temperature=1.0,
    )


def _on_moco_v3() -> Iterator[Recipe]:
    """Table 3: MoCo v3, symmetric, momentum encoder and predictor, no queue."""
    yield MOCO_V3
    yield MOCO_V3.row(
        "fmicl/moco_v3_six_blocks",
        "MoCo v3, network and schedule of the f-MICL rows",
        "Not in the paper: what its claim needs for a base. The printed base is another network, see Table 3.",
    )
    for f in ("kl", "js", "pearson"):
        yield MOCO_V3.row(f"fmicl/moco_v3_{f}", f"{_LABELS[f]} on MoCo v3", objective=FMICL(f), temperature=0.5)
