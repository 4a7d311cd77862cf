"""Pictures with what detectors find in them: one row a picture, one column an encoder, the truth first."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
import torch
from plotly.subplots import make_subplots

from contrastbook.figures.base import COLOURS, require, require_integer
from contrastbook.studies import Study
from contrastlab import escape
from contrastlab.data.annotated import AnnotatedImages, draw

__all__ = ["objects"]

_WEIGHT = 0.55  # of a mask's colour over the picture


def objects(
    found: Study, test: AnnotatedImages, *, threshold: float = 0.5, labels: Mapping[str, str] | None = None,
    pictures: int = 2,
) -> go.Figure:  # fmt: skip
    """Detections above a score beside the truth.

    ``found``: of :func:`contrastbook.studies.found_objects.study`. ``labels``: method to the words above its column.
    Returns a figure whose traces do not depend on the threshold.
    """
    require("threshold", threshold, 0, 1)
    require_integer("pictures", pictures, 1)
    methods = [str(row) for row in found.config["rows"]]  # one that found nothing has a column, too
    words = labels or {}
    titles = ["truth", *(escape.html(words.get(method, method)) for method in methods)]
    figure = make_subplots(pictures, len(titles), column_titles=titles, horizontal_spacing=0.01, vertical_spacing=0.02)
    for picture in range(pictures):
        pixels = test[picture].permute(1, 2, 0).numpy()
        known = [dict(each) for each in test.annotations.of_image[test.ids[picture]]]
        columns = [known, *(_above(found, method, picture, threshold) for method in methods)]
        for column, shown in enumerate(columns, 1):
            colour = COLOURS["truth" if column == 1 else "other"]
            figure.add_trace(go.Image(z=_masked(pixels, shown, colour), hoverinfo="skip"), picture + 1, column)
            figure.add_trace(_outlines(shown, colour), picture + 1, column)
            figure.add_trace(_points(shown, colour), picture + 1, column)
            height, width = pixels.shape[:2]  # a box may lie beyond the picture; the columns stay of one size
            figure.update_xaxes(range=[-0.5, width - 0.5], row=picture + 1, col=column)
            figure.update_yaxes(range=[height - 0.5, -0.5], row=picture + 1, col=column)
    figure.update_xaxes(visible=False).update_yaxes(visible=False)
    figure.update_layout(
        template="plotly_white", showlegend=False, height=190 * pictures + 120,
        margin={"l": 5, "r": 5, "t": 40, "b": 5},
        title={"text": ""},
    )  # fmt: skip
    return figure


def _above(found: Study, method: str, picture: int, threshold: float) -> list[dict[str, Any]]:
    rows = (row for row in found.rows if row["method"] == method and row["picture"] == picture)
    return [json.loads(str(row["found"])) for row in rows if float(row["score"] or 0) >= threshold]


def _masked(pixels: np.ndarray[Any, Any], shown: Sequence[Mapping[str, Any]], colour: str) -> np.ndarray[Any, Any]:
    tint = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)])
    out = pixels.astype(float)
    for each in shown:
        if "segmentation" in each:
            mask = draw(each["segmentation"], *pixels.shape[:2]).to(torch.bool).numpy()
            out[mask] = (1 - _WEIGHT) * out[mask] + _WEIGHT * tint
    return out.round().astype(np.uint8)


def _outlines(shown: Sequence[Mapping[str, Any]], colour: str) -> go.Scatter:
    x: list[float | None] = []
    y: list[float | None] = []
    for each in shown:
        if "bbox" in each:
            left, top, width, height = each["bbox"]
            x += [left, left + width, left + width, left, left, None]
            y += [top, top, top + height, top + height, top, None]
    return go.Scatter(x=x, y=y, mode="lines", line={"color": colour, "width": 2}, hoverinfo="skip")


def _points(shown: Sequence[Mapping[str, Any]], colour: str) -> go.Scatter:
    triples = [point for each in shown for point in np.reshape(each.get("keypoints", []), (-1, 3)) if point[2] > 0]
    return go.Scatter(
        x=[p[0] for p in triples], y=[p[1] for p in triples], mode="markers", hoverinfo="skip",
        marker={"color": colour, "size": 6, "line": {"color": "white", "width": 1}},
    )  # fmt: skip
