"""Rows of jcl Tables 1 and 2 and of its Figure 2.

§4.1: M' = 5, τ = 0.2, λ = 4, K = 65,536; otherwise MoCo v2 on 8 GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator

from contrastlab import keys, negatives
from contrastlab.positives import Joint, Many
from contrastlab.recipe import Recipe
from contrastlab.scores.schedules import Linear
from contrastlab.views import Augmented


def rows() -> Iterator[Recipe]:
    """The rows in the order of the tables."""
    moco = Recipe(
        "jcl/moco_v2",
        "MoCo v2",
        views=Augmented(2),
        keys=keys.Queue(65536, 0.999, shuffle_groups=8),
        negatives=negatives.Every(),
        temperature=0.2,
    )
    jcl = moco.row(
        "jcl/jcl",
        "JCL",
        "The queue holds the mean key of each image, as in the released code. That code has M' = 4 and lets λ grow from"
        " 0 to 2 over the run.",
        views=Augmented(6),
        positives=Joint(5, 4.0),
    )
    yield from (moco, jcl)
    several = "jcl Figure 1(b), Eq. 2–3: the mean of M losses; the queue holds the first key of each image."
    yield jcl.row("jcl/vanilla", "five keys, averaged loss", several, positives=Many(5))
    released, growing = "M' = 4 and λ from 0 to 2, as the released script.", Joint(4, Linear(0, 2, until=1))
    yield jcl.row("jcl/released", "JCL as released", released, views=Augmented(5), positives=growing)
    # Figure 2: one number changed at a time.
    for count in (2, 9):
        label, positives = f"JCL, M' = {count}", Joint(count, 4.0)
        yield jcl.row(f"jcl/keys{count}", label, views=Augmented(1 + count), positives=positives)
    for strength in (0.0, 1.0, 10.0):
        note = "The mean key alone: what is left of JCL without its covariance." if not strength else ""
        yield jcl.row(f"jcl/lambda{strength:g}", f"JCL, λ = {strength:g}", note, positives=Joint(5, strength))
    for temperature in (0.07, 0.5):
        yield jcl.row(f"jcl/tau{temperature:g}", f"JCL, τ = {temperature:g}", temperature=temperature)
