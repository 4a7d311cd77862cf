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
    packed = slices(scenes.shape[1])
    names = []
    for name, source in {"L": "rgb", "ab": "rgb", "depth": "depth", "normal": "normal", "label": "label"}.items():
        if source in packed:
            names.append(name)
    rows = []
    for scene in scenes:
        picture = scene[:3].movedim(0, 2).numpy()
        rows.append([picture, *(_channel(scene, name, len(classes)) for name in names)])
    titles = ["picture", *({"label": "labels"}.get(name, name) for name in names)]
    return _panels(rows, titles, f"{len(scenes)} scenes, a row each, as {', '.join(titles)}")


def _channel(scene: Tensor, name: str, classes: int) -> NDArray[Any]:
    """A view of a packed scene ``[C, H, W]`` as colours ``[H, W, 3]`` in [0, 1]."""
    if name == "label":
        return _classes(labels(scene[None])[0], classes)
    view = Channels((name,)).read(scene[None])[0][0]
    colours: NDArray[Any]
    if name == "ab":
        a, b = view.numpy()  # green to red, blue to yellow
        colours = (0.5 + np.stack([a + b / 2, b / 2 - a, -b], 2)).clip(0, 1)
    elif name == "normal":
        colours = (1 + view.movedim(0, 2).numpy()) / 2
    else:
        ramp = "gray" if name == "L" else "viridis"
        colours = plt.get_cmap(ramp)((view[0].numpy() + 1) / 2)[..., :3]
    return colours


def segmentations(scenes: Tensor, predicted: Mapping[str, Tensor], classes: Sequence[str]) -> Figure:
    """Scenes, a row each: the picture, the classes that segmenters see, and the true ones. Void is white.

    ``scenes``: ``[B, C, H, W]``, packed, RGB in [0, 1]. ``predicted``: name of a segmenter to classes ``[B, H, W]``.
    """
    truth = labels(scenes)
    rows = []
    for k, scene in enumerate(scenes):
        maps = [_classes(of_pixels[k], len(classes)) for of_pixels in (*predicted.values(), truth)]
        rows.append([scene[:3].movedim(0, 2).numpy(), *maps])
    sentences = []
    for name, of_pixels in predicted.items():
        is_right = (of_pixels == truth)[truth >= 0]
        sentences.append(f"{name} is right in {100 * float(is_right.double().mean()):.0f} % of these pixels")
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
    colours: NDArray[np.float64] = hsv_to_rgb(np.stack([hue, saturation, np.ones_like(hue)], -1))
    return colours


def strip(frames: Tensor, flows: Mapping[str, Tensor], times: Sequence[int], *, title: str = "") -> Figure:
    """Frames of a clip above their flow, all flows with one scale, and the key of the colours.

    ``frames``: uint8 ``[T, 3, H, W]``. ``flows``: heading to ``[T′, 2, H, W]``, in pixels a frame, with T′ above every
    time.
    """
    longest = max(float(flow[list(times)].norm(dim=1).max()) for flow in flows.values())
    full = max(1e-6, longest)
    size = (1.1 * (len(times) + 1), 1.2 * (len(flows) + 1) + 0.4)
    figure, panels = subplots(len(flows) + 1, len(times) + 1, size, squeeze=False, facecolor="none")
    _draw_strip(panels[0], "frame", [frames[t].permute(1, 2, 0).numpy() for t in times])
    for line, (name, flow) in zip(panels[1:], flows.items(), strict=True):
        _draw_strip(line, name, [flow_colours(flow[t], full) for t in times])
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


def objects(
    study: Study, test: AnnotatedImages, *, threshold: float = 0.5, labels: Mapping[str, str] = {}, pictures: int = 2
) -> go.Figure:
    """Detections above a score beside the truth, as outlines over pictures that do not depend on the threshold.

    ``study``: of :func:`contrastbook.studies.found_objects.study`. ``labels``: method to the words above its column.
    """
    check_range("threshold", threshold, 0, 1)
    check_integer("pictures", pictures, 1)
    methods = [str(row) for row in study.config["rows"]]  # one that found nothing has a column, too
    titles = ["truth", *(escape.html(labels.get(method, method)) for method in methods)]
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


def _add_row(
    figure: go.Figure, row: int, pixels: NDArray[np.uint8], outlines: Sequence[tuple[list[float], list[float]]]
) -> None:
    """A picture once for each set of outlines, which are drawn over it; the first set is the truth."""
    height, width = pixels.shape[:2]
    below = {"source": _as_address(pixels), "x": -0.5, "y": -0.5, "sizex": width, "sizey": height, "layer": "below"}
    for column, (x, y) in enumerate(outlines, 1):
        colour = COLOURS["truth"] if column == 1 else COLOURS["other"]
        place = {"row": row, "col": column}
        figure.add_scatter(x=x, y=y, mode="lines", line={"color": colour}, hoverinfo="skip", **place)
        figure.add_layout_image(below, **place)
        # a box may lie beyond the picture; the columns stay of one size
        figure.update_xaxes(range=[-0.5, width - 0.5], **place)
        figure.update_yaxes(range=[height - 0.5, -0.5], scaleanchor=figure.data[-1].xaxis, **place)


def _as_address(pixels: NDArray[np.uint8]) -> str:
    """A picture ``[H, W, 3]`` as a ``data:`` address."""
    buffer = BytesIO()
    Image.fromarray(pixels).save(buffer, "jpeg", quality=85)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def detections(
    study: Study, test: AnnotatedImages, picture: int, threshold: float
) -> tuple[NDArray[np.uint8], dict[str, tuple[list[float], list[float]]]]:
    """A test picture ``[H, W, 3]``, and the outlines of ``truth`` and of what each method finds with that score."""
    pixels = test[picture].permute(1, 2, 0).numpy()
    height, width = pixels.shape[:2]
    annotations: dict[str, list[Any]] = {"truth": list(test.annotations.of_image[test.ids[picture]])}
    for method in study.config["rows"]:
        annotations[method] = []
    for row in study.rows:
        if row["picture"] == picture and float(row["score"] or 0) >= threshold:
            annotations[str(row["method"])].append(json.loads(str(row["found"])))
    return pixels, {name: _outlines(each, height, width) for name, each in annotations.items()}


def _outlines(annotations: Sequence[Mapping[str, Any]], height: int, width: int) -> tuple[list[float], list[float]]:
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
        mask = np.pad(draw(annotation["segmentation"], height, width).numpy(), 1)  # an outline goes round the border
        lines: Any = contour_generator(z=mask).lines(0.5)
        return [line - 1 for line in lines]
    left, top, wide, high = annotation["bbox"]
    corners = np.array([(0, 0), (wide, 0), (wide, high), (0, high), (0, 0)])
    return [corners + np.array((left, top))]
