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
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, hsv_to_rgb
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image
from plotly.subplots import make_subplots
from torch import Tensor

from contrastbook.figures.base import COLOURS, subplots
from contrastbook.studies import Study
from contrastlab.domains.detection.data import AnnotatedImages, draw
from contrastlab.domains.scenes.views import Channels, labels, slices
from contrastlab.support import escape
from contrastlab.support.errors import check, check_integer, check_positive, check_range

# of Okabe and Ito, distinct also for readers who cannot distinguish red from green; further classes go round
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#999999")
GREY = "0.5"  # of titles: figures of pictures are transparent, and the page may be light or dark


_OF_CHANNEL = {"L": "rgb", "ab": "rgb", "depth": "depth", "normal": "normal", "label": "label"}
"""The part of a packed scene that each of its views is read from."""


def _class_colours(classes: Tensor, count: int) -> NDArray[Any]:
    """The classes of pixels ``[H, W]``, from 0 to ``count`` − 1 and −1 for void, as colours ``[H, W, 3]`` in [0, 1]."""
    palette = ["white"]
    for number in range(count):
        palette.append(PALETTE[number % len(PALETTE)])
    places_in_palette = (classes.numpy() + 1).clip(0, count)
    colours = ListedColormap(palette)
    painted: NDArray[Any] = colours(places_in_palette)
    return painted[..., :3]


def _as_colours(pixels: Tensor) -> NDArray[Any]:
    """Pixels ``[3, H, W]`` as ``[H, W, 3]``."""
    return pixels.movedim(0, 2).numpy()


def _panels(rows: Sequence[Sequence[Any]], titles: Sequence[str], alt: str) -> Figure:
    """Rows of pictures of one size, with a title above each column; ``alt``: the figure in words."""
    height, width = rows[0][0].shape[:2]
    size = (2.1 * len(titles), 2.1 * len(rows) * height / width + 0.4)
    figure, axes = subplots(len(rows), len(titles), size, squeeze=False, facecolor="none")
    for line, pictures in zip(axes, rows, strict=True):
        for axis, picture in zip(line, pictures, strict=True):
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
    packed = slices(scenes.shape[1])
    names: list[str] = []
    for name, part in _OF_CHANNEL.items():
        if part in packed:
            names.append(name)
    rows: list[list[NDArray[Any]]] = []
    for scene in scenes:
        row = [_as_colours(scene[:3])]
        for name in names:
            row.append(_channel(scene, name, len(classes)))
        rows.append(row)
    titles = ["picture"]
    for name in names:
        titles.append("labels" if name == "label" else name)
    return _panels(rows, titles, f"{len(scenes)} scenes, a row each, as {', '.join(titles)}")


def _channel(scene: Tensor, name: str, classes: int) -> NDArray[Any]:
    """A view of a packed scene ``[C, H, W]`` as colours ``[H, W, 3]`` in [0, 1]."""
    if name == "label":
        return _class_colours(labels(scene[None])[0], classes)
    (views,) = Channels((name,)).read(scene[None])
    view = views[0]  # in [-1, 1]
    colours: NDArray[Any]
    if name == "ab":
        a, b = view.numpy()  # green to red, blue to yellow
        around_grey = np.stack([a + b / 2, b / 2 - a, -b], 2)
        colours = (0.5 + around_grey).clip(0, 1)
        return colours
    if name == "normal":
        colours = (1 + _as_colours(view)) / 2
        return colours
    ramp = plt.get_cmap("gray" if name == "L" else "viridis")
    brightness = (view[0].numpy() + 1) / 2
    colours = ramp(brightness)
    return colours[..., :3]


def segmentations(scenes: Tensor, predicted: Mapping[str, Tensor], classes: Sequence[str]) -> Figure:
    """Scenes, a row each: the picture, the classes that segmenters see, and the true ones. Void is white.

    ``scenes``: ``[B, C, H, W]``, packed, RGB in [0, 1]. ``predicted``: name of a segmenter to classes ``[B, H, W]``.
    """
    truth = labels(scenes)
    rows: list[list[NDArray[Any]]] = []
    for number, scene in enumerate(scenes):
        row = [_as_colours(scene[:3])]
        for classes_of_pixels in (*predicted.values(), truth):
            row.append(_class_colours(classes_of_pixels[number], len(classes)))
        rows.append(row)
    is_known = truth >= 0
    sentences: list[str] = []
    for name, classes_of_pixels in predicted.items():
        is_right = (classes_of_pixels == truth)[is_known]
        percent = 100 * float(is_right.double().mean())
        sentences.append(f"{name} is right in {percent:.0f} % of these pixels")
    alt = f"{len(scenes)} scenes with their classes: {'; '.join(sentences)}"
    return _panels(rows, ["picture", *predicted, "labels"], alt)


def flow_colours(flow: Tensor, full: float) -> NDArray[np.float64]:
    """Displacements ``[2, H, W]`` (x to the right, y down) as colours ``[H, W, 3]`` in [0, 1].

    Rest is white, to the right is red, down green-yellow, to the left cyan, up violet. ``full``: the length that has
    full saturation; longer ones have it, too.
    """
    check(flow.ndim == 3 and flow.shape[0] == 2, "flow.shape", tuple(flow.shape), "[2, H, W]")
    check_positive(full=full)
    x, y = flow.double().numpy()
    hue = (np.arctan2(y, x) / (2 * math.pi)) % 1
    saturation = np.clip(np.hypot(x, y) / full, 0, 1)
    value = np.ones_like(hue)
    colours: NDArray[np.float64] = hsv_to_rgb(np.stack([hue, saturation, value], -1))
    return colours


def strip(frames: Tensor, flows: Mapping[str, Tensor], times: Sequence[int], *, title: str = "") -> Figure:
    """Frames of a clip above their flow, all flows with one scale, and the key of the colours.

    ``frames``: uint8 ``[T, 3, H, W]``. ``flows``: heading to ``[T′, 2, H, W]``, in pixels a frame, with T′ above every
    time.
    """
    lengths = [flow[list(times)].norm(dim=1) for flow in flows.values()]
    longest = max(float(length.max()) for length in lengths)
    full = max(1e-6, longest)
    size = (1.1 * (len(times) + 1), 1.2 * (len(flows) + 1) + 0.4)
    figure, panels = subplots(len(flows) + 1, len(times) + 1, size, squeeze=False, facecolor="none")
    pictures = [_as_colours(frames[t]) for t in times]
    _draw_strip(panels[0], "frame", pictures)
    for line, (name, flow) in zip(panels[1:], flows.items(), strict=True):
        pictures_of_flow = [flow_colours(flow[t], full) for t in times]
        _draw_strip(line, name, pictures_of_flow)
    for panel, t in zip(panels[0], times, strict=False):
        panel.set_title(f"t = {t}", fontsize=8, color=GREY)
    key = panels[-1, -1]
    key.imshow(_disc_of_directions(full), interpolation="bilinear")
    key.set_title(f"to {full:.1f} px", fontsize=8, color=GREY)
    figure.suptitle(title, fontsize=10, color=GREY)
    return figure


def _draw_strip(line: Sequence[Axes], name: str, pictures: Sequence[NDArray[Any]]) -> None:
    """Pictures side by side, named on the left; the last panel stays empty."""
    for panel, picture in zip(line[:-1], pictures, strict=True):
        panel.imshow(picture, interpolation="nearest")
        panel.set(xticks=[], yticks=[])
    line[0].set_ylabel(name, fontsize=8, color=GREY)
    line[-1].axis("off")


def _disc_of_directions(full: float) -> NDArray[np.float64]:
    """The key of the colours: every displacement up to a length, white outside."""
    axis = torch.linspace(-full, full, 65)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    disc = flow_colours(torch.stack([x, y]), full)
    is_outside = x.square() + y.square() > full**2
    disc[is_outside.numpy()] = 1
    return disc


Outline = tuple[list[float], list[float]]
"""x and y of a line in pixels, with NaN where it has a gap."""


def objects(
    study: Study,
    test: AnnotatedImages,
    *,
    threshold: float = 0.5,
    labels: Mapping[str, str] = {},
    pictures: int = 2,
) -> go.Figure:
    """Detections above a score beside the truth, as outlines over pictures that do not depend on the threshold.

    Args:
        study: of :func:`contrastbook.studies.found_objects.study`.
        test: the pictures that were searched, with the true objects.
        threshold: the lowest score that is shown, from 0 to 1.
        labels: method to the words above its column.
        pictures: how many are shown, a row each.
    """
    check_range("threshold", threshold, 0, 1)
    check_integer("pictures", pictures, 1)
    methods = [str(row) for row in study.config["rows"]]  # one that found nothing has a column, too
    titles = ["truth"]
    for method in methods:
        title = labels.get(method, method)
        titles.append(escape.html(title))
    figure = make_subplots(pictures, len(titles), column_titles=titles, horizontal_spacing=0.01, vertical_spacing=0.02)
    for picture in range(pictures):
        pixels, outlines = detections(study, test, picture, threshold)
        _add_row(figure, picture + 1, pixels, list(outlines.values()))
    figure.update_xaxes(visible=False, constrain="domain")
    figure.update_yaxes(visible=False, constrain="domain")
    return figure.update_layout(
        height=190 * pictures + 120,
        margin={"l": 5, "r": 5, "t": 40, "b": 5},
        template="plotly_white",
        showlegend=False,
        title={"text": ""},
    )


def _add_row(figure: go.Figure, row: int, pixels: NDArray[np.uint8], outlines: Sequence[Outline]) -> None:
    """A picture once for each set of outlines, which are drawn over it; the first set is the truth."""
    height, width = pixels.shape[:2]
    picture = {"source": _as_address(pixels), "x": -0.5, "y": -0.5, "sizex": width, "sizey": height, "layer": "below"}
    for column, (x, y) in enumerate(outlines, 1):
        colour = COLOURS["truth"] if column == 1 else COLOURS["other"]
        place = {"row": row, "col": column}
        figure.add_scatter(x=x, y=y, mode="lines", line={"color": colour}, hoverinfo="skip", **place)
        figure.add_layout_image(picture, **place)
        # a box may lie beyond the picture; the columns stay of one size
        figure.update_xaxes(range=[-0.5, width - 0.5], **place)
        figure.update_yaxes(range=[height - 0.5, -0.5], scaleanchor=figure.data[-1].xaxis, **place)


def _as_address(pixels: NDArray[np.uint8]) -> str:
    """A picture ``[H, W, 3]`` as a ``data:`` address."""
    buffer = BytesIO()
    Image.fromarray(pixels).save(buffer, "jpeg", quality=85)
    letters = base64.b64encode(buffer.getvalue()).decode()
    return f"data:image/jpeg;base64,{letters}"


def detections(
    study: Study,
    test: AnnotatedImages,
    picture: int,
    threshold: float,
) -> tuple[NDArray[np.uint8], dict[str, Outline]]:
    """A test picture ``[H, W, 3]``, and the outlines of ``truth`` and of what each method finds.

    Found objects of a score below the threshold are left out.
    """
    pixels = _as_colours(test[picture])
    height, width = pixels.shape[:2]
    image_id = test.ids[picture]
    annotations: dict[str, list[Any]] = {"truth": list(test.annotations.of_image[image_id])}
    for method in study.config["rows"]:
        annotations[method] = []
    for row in study.rows:
        score = float(row["score"] or 0)
        if row["picture"] == picture and score >= threshold:
            found = json.loads(str(row["found"]))
            annotations[str(row["method"])].append(found)
    outlines: dict[str, Outline] = {}
    for name, objects_of_name in annotations.items():
        outlines[name] = _outlines(objects_of_name, height, width)
    return pixels, outlines


def _outlines(annotations: Sequence[Mapping[str, Any]], height: int, width: int) -> Outline:
    """The edges of masks, and boxes where there is no mask, as one line with gaps: x and y, NaN after each piece."""
    x: list[float] = []
    y: list[float] = []
    for annotation in annotations:
        for piece in _pieces(annotation, height, width):
            across, down = piece.round(1).T.tolist()
            x += [*across, math.nan]
            y += [*down, math.nan]
    return x, y


def _pieces(annotation: Mapping[str, Any], height: int, width: int) -> list[NDArray[Any]]:
    """The outlines of one object ``[corners, 2]`` each: of its mask, or of its box."""
    if "segmentation" in annotation:
        mask = draw(annotation["segmentation"], height, width).numpy()
        padded = np.pad(mask, 1)  # so that an outline goes round the border, too
        lines: Any = contour_generator(z=padded).lines(0.5)
        return [line - 1 for line in lines]
    left, top, wide, high = annotation["bbox"]
    corners = np.array([(0, 0), (wide, 0), (wide, high), (0, high), (0, 0)])
    return [corners + np.array((left, top))]
