"""A clip as a strip: its frames, and its optical flow as colours.

Hue is the direction of a displacement and saturation its length, as is customary since Baker et al. (2011).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.colors import hsv_to_rgb
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from contrastlab.errors import reject

__all__ = ["flow_colours", "strip"]


def flow_colours(flow: Tensor, full: float) -> NDArray[np.float64]:
    """Displacements as colours: rest is white.

    ``flow``: ``[2, H, W]``, (x to the right, y down). ``full``: the length that has full saturation; longer ones have
    it, too. Returns ``[H, W, 3]`` in [0, 1]: to the right red, down green-yellow, to the left cyan, up violet.
    """
    if flow.ndim != 3 or flow.shape[0] != 2:
        raise reject("flow.shape", tuple(flow.shape), "[2, H, W]")
    if not full > 0:
        raise reject("full", full, "a length > 0")
    x, y = flow.double().numpy()
    hue = (np.arctan2(y, x) / (2 * math.pi)) % 1
    saturation = np.clip(np.hypot(x, y) / full, 0, 1)
    colours: NDArray[np.float64] = hsv_to_rgb(np.stack([hue, saturation, np.ones_like(hue)], -1))
    return colours


def strip(frames: Tensor, flows: Mapping[str, Tensor], times: Sequence[int], *, title: str = "") -> Figure:
    """Frames of a clip above their flow.

    ``frames``: uint8 ``[T, 3, H, W]``. ``flows``: heading to ``[T′, 2, H, W]``, in pixels a frame, with T′ above every
    time. Returns a row of frames, a row for each kind of flow, all flows with one scale, and the key of the colours.
    """
    full = max(1e-6, max(float(flow[list(times)].norm(dim=1).max()) for flow in flows.values()))
    rows = {"frame": [frames[t].permute(1, 2, 0).numpy() for t in times]}
    rows |= {name: [flow_colours(flow[t], full) for t in times] for name, flow in flows.items()}
    axis = torch.linspace(-full, full, 65)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    disc = flow_colours(torch.stack([x, y]), full)
    disc[(x.square() + y.square() > full**2).numpy()] = 1
    figure, panels = plt.subplots(
        len(rows), len(times) + 1, figsize=(1.1 * (len(times) + 1), 1.2 * len(rows) + 0.4), squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for line, (name, shown) in zip(panels, rows.items(), strict=True):
        for panel, picture, t in zip(line[:-1], shown, times, strict=True):
            panel.imshow(picture, interpolation="nearest")
            panel.set(xticks=[], yticks=[])
            if name == "frame":
                panel.set_title(f"t = {t}", fontsize=8)
        line[0].set_ylabel(name, fontsize=8)
        line[-1].axis("off")
    key = panels[-1, -1]
    key.imshow(disc, interpolation="bilinear")
    key.set_title(f"to {full:.1f} px", fontsize=8)
    figure.suptitle(title, fontsize=10)
    plt.close(figure)
    return figure
