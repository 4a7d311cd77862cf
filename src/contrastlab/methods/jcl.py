"""Rows of jcl Tables 1 and 2 and of its Figure 2.

§4.1: M' = 5, τ = 0.2, λ = 4, K = 65,536; otherwise MoCo v2 on 8 GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from contrastlab import keys, negatives, positives
from contrastlab.methods.recipe import Recipe
from contrastlab.schedules import Linear
from contrastlab.views import Augmented


def rows() -> Iterator[Recipe]:
    """The rows in the order of the tables."""
    moco = Recipe(
        "jcl/moco_v2", "MoCo v2", views=Augmented(2), keys=keys.Queue(65536, 0.999, shuffle_groups=8),
        negatives=negatives.Every(), temperature=0.2,
    )  # fmt: skip
    jcl = replace(
        moco, name="jcl/jcl", label="JCL", views=Augmented(6), positives=positives.Joint(5, 4.0),
        note="The queue holds the mean key of each image, as in the released code. That code has M' = 4 and lets λ grow"
        " from 0 to 2 over the run.",
    )  # fmt: skip
    yield moco
    yield jcl
    yield replace(
        jcl, name="jcl/vanilla", label="five keys, averaged loss", positives=positives.Many(5),
        note="jcl Figure 1(b), Eq. 2–3: the mean of M losses; the queue holds the first key of each image.",
    )  # fmt: skip
    yield replace(
        jcl, name="jcl/released", label="JCL as released", views=Augmented(5),
        positives=positives.Joint(4, Linear(0, 2, until=1)), note="M' = 4 and λ from 0 to 2, as the released script.",
    )  # fmt: skip
    # Figure 2: one number changed at a time.
    for keys_ in (2, 9):
        yield replace(
            jcl, name=f"jcl/keys{keys_}", label=f"JCL, M' = {keys_}", views=Augmented(1 + keys_),
            positives=positives.Joint(keys_, 4.0), note="",
        )  # fmt: skip
    for strength in (0.0, 1.0, 10.0):
        note = "The mean key alone: what is left of JCL without its covariance." if not strength else ""
        part = positives.Joint(5, strength)
        yield replace(jcl, name=f"jcl/lambda{strength:g}", label=f"JCL, λ = {strength:g}", positives=part, note=note)
    for temperature in (0.07, 0.5):
        label = f"JCL, τ = {temperature:g}"
        yield replace(jcl, name=f"jcl/tau{temperature:g}", label=label, temperature=temperature, note="")
