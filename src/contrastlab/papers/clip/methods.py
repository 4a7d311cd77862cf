"""CLIP: a picture and the sentence about it, each the other's key among those of the batch, temperature learnt.

It is CMC with text: two streams of two modalities in place of two of one picture.
"""

from __future__ import annotations

from collections.abc import Iterator

from contrastlab import domains, keys
from contrastlab.negatives import Every
from contrastlab.objectives import InfoNCE
from contrastlab.papers.siglip.objective import LearntTemperature
from contrastlab.recipe import Recipe


def rows() -> Iterator[Recipe]:
    """The paper's method, and the same at the temperature that it begins with."""
    if not domains.present("text"):
        return
    from contrastlab.domains.text.views import Captions

    clip = Recipe(
        "clip/clip",
        "CLIP",
        views=Captions(),
        keys=keys.InBatch(against="across"),
        negatives=Every(),
        objective=LearntTemperature(),
        temperature=0.07,
        note="The loss is the sum of both directions, as everywhere with two streams; the paper has their mean.",
    )
    yield clip
    yield clip.row("clip/fixed", "CLIP, fixed temperature", clip.note, objective=InfoNCE())
