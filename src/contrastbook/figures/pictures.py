"""Pictures with what is known of them: channels of scenes and their classes, flow of clips, detections.

Hue is the direction of a displacement of the flow and saturation its length, as is customary since Baker et al. (2011).
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import plotly.graph_objects as go
import torch
from contourpy import contour_generator
from matplotlib.colors import ListedColormap, hsv_to_rgb
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image
from plotly.subplots import make_subplots
from torch import Tensor

from contrastbook.checks import require, require_integer, require_positive
from contrastbook.figures.base import COLOURS, subplots
from contrastbook.studies import Study
from contrastlab.domains.detection.data import AnnotatedImages, draw
from contrastlab.domains.scenes.views import Channels, labels, slices
from contrastlab.support import escape
from contrastlab.support.errors import check

# Okabe and Ito, told apart by eyes that see no red or green; further classes go round
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#999999")
GREY = "0.5"  # of titles: figures of pictures are transparent, and the page may be light or dark


def _classes(values: Tensor, count: int) -> NDArray[Any]:
    colours = ListedColormap(["white", *(PALETTE[k % len(PALETTE)] for k in range(count))])
    painted: NDArray[Any] = colours((values.numpy() + 1).clip(0, count))[..., :3]
    return painted


def _panels(rows: Sequence[Sequence[Any]], titles: Sequence[str], alt: str) -> Figure:
    height, width = rows[0][0].shape[:2]
    size = (2.1 * len(titles), 2.1 * len(rows) * height / width + 0.4)
    figure, axes = subplots(len(rows), len(titles), size, squeeze=False, facecolor="none")
    for line, panels in zip(axes, rows, strict=True):
        for axis, picture in zip(line, panels, strict=True):
            axis.imshow(picture, interpolation="nearest")
            axis.axis("off")
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(escape.mathtext(title), fontsize="small", color=GREY)
    figure.set_label(alt)
    return figure


def channels(scenes: Tensor, classes: Sequence[str]) -> Figure:
    """Scenes, a row each: the picture, then every view that an encoder may read.

    Luminance and depth go from dark to light, chrominance is shown at equal luminance, a normal's three components
    are red, green and blue. ``scenes``: ``[B, C, H, W]``, packed, RGB in [0, 1].
    """
    names = ("L", "ab", "depth", "normal", "label")
    known = [name for name in names if ("rgb" if name in ("L", "ab") else name) in slices(scenes.shape[1])]
    rows = []
    for scene in scenes:
        panels = [scene[:3].movedim(0, 2).numpy()]
        for name in known:
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
    titles = ["picture", *("labels" if name == "label" else name for name in known)]
    return _panels(rows, titles, f"{len(scenes)} scenes, a row each, as {', '.join(titles)}")


def segmentations(scenes: Tensor, predicted: Mapping[str, Tensor], classes: Sequence[str]) -> Figure:
    """Scenes, a row each: the picture, the classes that segmenters see, and the true ones. Void is white.

    ``scenes``: ``[B, C, H, W]``, packed, RGB in [0, 1]. ``predicted``: name of a segmenter to classes ``[B, H, W]``.
    """
    truth, rows = labels(scenes), []
    for k, scene in enumerate(scenes):
        painted = [_classes(classes_[k], len(classes)) for classes_ in (*predicted.values(), truth)]
        rows.append([scene[:3].movedim(0, 2).numpy(), *painted])
    right = {name: float((p == truth)[truth >= 0].double().mean()) for name, p in predicted.items()}
    shares = "; ".join(f"{name} is right in {100 * share:.0f} % of these pixels" for name, share in right.items())
    return _panels(rows, ["picture", *predicted, "labels"], f"{len(scenes)} scenes with their classes: {shares}")


def flow_colours(flow: Tensor, full: float) -> NDArray[np.float64]:
    """Displacements ``[2, H, W]`` (x to the right, y down) as colours ``[H, W, 3]`` in [0, 1].

    Rest is white, to the right is red, down green-yellow, to the left cyan, up violet. ``full``: the length that has
    full saturation; longer ones have it, too.
    """
    check(flow.ndim == 3 and flow.shape[0] == 2, "flow.shape", tuple(flow.shape), "[2, H, W]")
    require_positive(full=full)
    x, y = flow.double().numpy()
    hue = (np.arctan2(y, x) / (2 * math.pi)) % 1
    saturation = np.clip(np.hypot(x, y) / full, 0, 1)
    colours: NDArray[np.float64] = hsv_to_rgb(np.stack([hue, saturation, np.ones_like(hue)], -1))
    return colours


def strip(frames: Tensor, flows: Mapping[str, Tensor], times: Sequence[int], *, title: str = "") -> Figure:
    """Frames of a clip above their flow, all flows with one scale, and the key of the colours.

    ``frames``: uint8 ``[T, 3, H, W]``. ``flows``: heading to ``[T′, 2, H, W]``, in pixels a frame, with T′ above every
    time.
    """
    full = max(1e-6, max(float(flow[list(times)].norm(dim=1).max()) for flow in flows.values()))
    rows = {"frame": [frames[t].permute(1, 2, 0).numpy() for t in times]}
    rows |= {name: [flow_colours(flow[t], full) for t in times] for name, flow in flows.items()}
    y, x = torch.meshgrid(axis := torch.linspace(-full, full, 65), axis, indexing="ij")
    disc = flow_colours(torch.stack([x, y]), full)
    disc[(x.square() + y.square() > full**2).numpy()] = 1
    size = (1.1 * (len(times) + 1), 1.2 * len(rows) + 0.4)
    figure, panels = subplots(len(rows), len(times) + 1, size, squeeze=False, facecolor="none")
    for line, (name, shown) in zip(panels, rows.items(), strict=True):
        for panel, picture, t in zip(line[:-1], shown, times, strict=True):
            panel.imshow(picture, interpolation="nearest")
            panel.set(xticks=[], yticks=[])
            if name == "frame":
                panel.set_title(f"t = {t}", fontsize=8, color=GREY)
        line[0].set_ylabel(name, fontsize=8, color=GREY)
        line[-1].axis("off")
    key = panels[-1, -1]
    key.imshow(disc, interpolation="bilinear")
    key.set_title(f"to {full:.1f} px", fontsize=8, color=GREY)
    figure.suptitle(title, fontsize=10, color=GREY)
    return figure


def objects(
    study: Study, test: AnnotatedImages, *, threshold: float = 0.5, labels: Mapping[str, str] = {}, pictures: int = 2
) -> go.Figure:
    """Detections above a score beside the truth, as outlines over pictures that do not depend on the threshold.

    ``study``: of :func:`contrastbook.studies.found_objects.study`. ``labels``: method to the words above its column.
    """
    require("threshold", threshold, 0, 1)
    require_integer("pictures", pictures, 1)
    methods = [str(row) for row in study.config["rows"]]  # one that found nothing has a column, too
    titles = ["truth", *(escape.html(labels.get(method, method)) for method in methods)]
    figure = make_subplots(pictures, len(titles), column_titles=titles, horizontal_spacing=0.01, vertical_spacing=0.02)
    for picture in range(pictures):
        pixels, shown = detections(study, test, picture, threshold)
        (height, width), buffer = pixels.shape[:2], BytesIO()  # a box may lie beyond; the columns stay of one size
        Image.fromarray(pixels).save(buffer, "jpeg", quality=85)
        source = f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"
        drawn = {"source": source, "x": -0.5, "y": -0.5, "sizex": width, "sizey": height, "layer": "below"}
        for column, (x, y) in enumerate(shown.values(), 1):
            look, place = {"color": COLOURS["truth" if column == 1 else "other"]}, {"row": picture + 1, "col": column}
            figure.add_scatter(x=x, y=y, mode="lines", line=look, hoverinfo="skip", **place)
            figure.add_layout_image(drawn, **place)
            figure.update_xaxes(range=[-0.5, width - 0.5], **place)
            figure.update_yaxes(range=[height - 0.5, -0.5], scaleanchor=figure.data[-1].xaxis, **place)
    figure.update_xaxes(visible=False, constrain="domain").update_yaxes(visible=False, constrain="domain")
    bare = {"template": "plotly_white", "showlegend": False, "title": {"text": ""}}
    return figure.update_layout(height=190 * pictures + 120, margin={"l": 5, "r": 5, "t": 40, "b": 5}, **bare)


def detections(
    study: Study, test: AnnotatedImages, picture: int, threshold: float
) -> tuple[NDArray[np.uint8], dict[str, tuple[list[float], list[float]]]]:
    """A test picture ``[H, W, 3]``, and the outlines of ``truth`` and of what each method finds with that score."""
    pixels = test[picture].permute(1, 2, 0).numpy()
    here = [row for row in study.rows if row["picture"] == picture and float(row["score"] or 0) >= threshold]
    every: dict[str, Sequence[Mapping[str, Any]]] = {"truth": test.annotations.of_image[test.ids[picture]]}
    for method in study.config["rows"]:
        every[method] = [json.loads(str(row["found"])) for row in here if row["method"] == method]
    return pixels, {name: _outlines(shown, *pixels.shape[:2]) for name, shown in every.items()}


def _outlines(shown: Sequence[Mapping[str, Any]], height: int, width: int) -> tuple[list[float], list[float]]:
    """The edges of masks, and boxes where there is no mask, as one line with gaps: x and y, NaN after each piece."""
    corners: list[tuple[float, float]] = []
    for each in shown:
        left, top, wide, high = each["bbox"]
        box = np.array([(0, 0), (wide, 0), (wide, high), (0, high), (0, 0)]) + 1 + (left, top)
        mask = np.pad(draw(each["segmentation"], height, width).numpy(), 1) if "segmentation" in each else None
        pieces: Any = [box] if mask is None else contour_generator(z=mask).lines(0.5)
        for piece in pieces:
            corners += [*map(tuple, (piece - 1).round(1).tolist()), (math.nan, math.nan)]
    return [x for x, _ in corners], [y for _, y in corners]
