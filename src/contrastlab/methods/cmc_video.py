"""Rows of cmc Table 2: contrast between the frames of a video (V), between a frame and its optical flow (D), and both.

Section 4.2: two CaffeNets, batches of 128, each positive pair against 127 negatives, which are views of other randomly
chosen videos: the other items of the batch. A batch has no video twice, so none of its negatives is of the same video.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from contrastlab import keys, negatives
from contrastlab.methods.recipe import Recipe
from contrastlab.views import Flow, Frames

V = Recipe(
    "cmc/video_v", "CMC (V)", views=Frames(), keys=keys.InBatch("across"), negatives=negatives.Every(),
    note="The paper leaves open k, the temperature (0.07 is that of its images) and what f_t is clipped to. It has two"
    " CaffeNets, one for images and one for flow, so both frames go through one network.",
)  # fmt: skip
D = replace(V, name="cmc/video_d", label="CMC (D)", views=Flow())
VD = replace(
    V, name="cmc/video_vd", label="CMC (V+D)", views=Flow(k=5),
    note="The sum of the losses of V and D, which share the frame at t: the core view of three views.",
)  # fmt: skip


def rows() -> Iterator[Recipe]:
    """The rows in the order of the table."""
    yield from (V, D, VD)
