"""Pictures of scenes: the channels of a few, and the classes that segmenters see in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from contrastlab import escape
from contrastlab.views import Channels
from contrastlab.views.channels import labels, slices

# Okabe and Ito, told apart by eyes that see no red or green; further classes go round
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#999999")
VOID = "#FFFFFF"


def _classes(values: Tensor, count: int) -> NDArray[Any]:
    colours = ListedColormap([VOID, *(PALETTE[k % len(PALETTE)] for k in range(count))])
    painted: NDArray[Any] = colours((values.numpy() + 1).clip(0, count))[..., :3]
    return painted


def _panels(rows: Sequence[Sequence[Any]], titles: Sequence[str], alt: str) -> Figure:
    height, width = rows[0][0].shape[:2]
    size = (2.1 * len(titles), 2.1 * len(rows) * height / width + 0.4)
    figure, axes = plt.subplots(len(rows), len(titles), figsize=size, layout="constrained", squeeze=False)
    plt.close(figure)  # out of pyplot's hands: shown once, by whoever asked for it
    for line, panels in zip(axes, rows, strict=True):
        for axis, picture in zip(line, panels, strict=True):
            axis.imshow(picture, interpolation="nearest")
            axis.axis("off")
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(escape.mathtext(title), fontsize="small")
    figure.set_label(alt)
    return figure


def channels(scenes: Tensor, classes: Sequence[str]) -> Figure:
    """Scenes, a row each: the picture, then every view that an encoder may read.

    Luminance and depth go from dark to light, chrominance is shown at equal luminance, a normal's three components
    are red, green and blue.

    ``scenes``: ``[B, C, H, W]``, packed, RGB in [0, 1].
    """
    names = ("L", "ab", "depth", "normal", "label")
    there = [name for name in names if ("rgb" if name in ("L", "ab") else name) in slices(scenes.shape[1])]
    rows = []
    for scene in scenes:
        panels = [scene[:3].movedim(0, 2).numpy()]
        for name in there:
            view = Channels((name,)).read(scene[None])[0][0]
            if name == "ab":
                a, b = view.numpy()  # green to red, blue to yellow
                panels.append((0.5 + np.stack([a + b / 2, b / 2 - a, -b], 2)).clip(0, 1))
            elif name == "normal":
                panels.append((1 + view.movedim(0, 2).numpy()) / 2)
            elif name == "label":
                panels.append(_classes(labels(scene[None])[0], len(classes)))
            else:
                panels.append(plt.get_cmap("gray" if name == "L" else "viridis")((view[0].numpy() + 1) / 2)[..., :3])
        rows.append(panels)
    titles = ["picture", *("labels" if name == "label" else name for name in there)]
    return _panels(rows, titles, f"{len(scenes)} scenes, a row each, as {', '.join(titles)}")


def segmentations(scenes: Tensor, predicted: Mapping[str, Tensor], classes: Sequence[str]) -> Figure:
    """Scenes, a row each: the picture, the classes that segmenters see, and the true ones. Void is white.

    ``scenes``: ``[B, C, H, W]``, packed, RGB in [0, 1]. ``predicted``: name of a segmenter to its classes ``[B, H,
    W]``.
    """
    truth, rows = labels(scenes), []
    for k, scene in enumerate(scenes):
        painted = [_classes(classes_[k], len(classes)) for classes_ in (*predicted.values(), truth)]
        rows.append([scene[:3].movedim(0, 2).numpy(), *painted])
    right = {name: float((p == truth)[truth >= 0].double().mean()) for name, p in predicted.items()}
    said = "; ".join(f"{name} is right in {100 * share:.0f} % of these pixels" for name, share in right.items())
    return _panels(rows, ["picture", *predicted, "labels"], f"{len(scenes)} scenes with their classes: {said}")
