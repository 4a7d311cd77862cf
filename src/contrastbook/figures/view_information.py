"""Panels of cmc Figure 5: accuracy against the information that two views share, and the estimate against the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from contrastbook.figures.base import COLOURS
from contrastbook.studies import Study

__all__ = ["accuracy_against_information", "estimate_against_truth"]


def accuracy_against_information(found: Study, accuracy: Mapping[str, float], *, floor: float | None = None) -> Figure:
    """Two panels, colour spaces and patches: information on the horizontal axis, accuracy on the vertical one.

    ``found``: rows of :func:`contrastbook.studies.shared_information.study`. ``accuracy``: row to percent; rows without
    one are left out. ``floor``: accuracy of random encoders of two parts, a dashed line.
    """
    rows = pd.DataFrame(found.rows)
    rows = rows[rows["nats"].notna() & rows["row"].isin(list(accuracy))].astype({"nats": float, "half_width": float})
    figure, panels = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
    for axes, (kind, marker, colour) in zip(
        panels, (("colours", "o", "query"), ("patches", "s", "positive")), strict=True
    ):
        mine = rows[rows["kind"] == kind]
        means = mine.groupby("row", sort=False).agg({"nats": "mean", "half_width": "mean", "label": "first"})
        heights = [accuracy[name] for name in means.index]
        axes.errorbar(means["nats"], heights, xerr=means["half_width"], fmt=marker, color=COLOURS[colour], capsize=2)
        axes.margins(x=0.15)
        for x, y, label in zip(means["nats"], heights, means["label"], strict=True):
            axes.annotate(str(label), (x, y), xytext=(4, 4), textcoords="offset points", fontsize=8)
        if kind == "patches":
            axes.plot(means["nats"], heights, ":", color=COLOURS[colour])
        elif floor is not None:
            axes.axhline(floor, color=COLOURS["other"], linestyle="--", label="random encoders of L and ab")
            axes.legend(frameon=False)
        axes.set_xlabel("MINE's bound on I(v₁; v₂) (nats)")
        axes.set_title({"colours": "parts of a colour space", "patches": "patches at a distance"}[kind])
    panels[0].set_ylabel("linear accuracy (%)")
    for axes in panels:
        _set_apart(figure, [text for text in axes.texts if isinstance(text, Annotation)])
    plt.close(figure)
    return figure


def _set_apart(figure: Figure, labels: Sequence[Annotation]) -> None:
    """Moves labels down, the highest first, until none lies on another."""
    figure.draw_without_rendering()
    placed: list[Bbox] = []
    for label in sorted(labels, key=lambda label: -label.xy[1]):
        while any(label.get_window_extent().overlaps(box) for box in placed):
            x, y = label.xyann
            label.xyann = (x, y - 2)
        placed.append(label.get_window_extent())


def estimate_against_truth(found: Study) -> Figure:
    """The estimate on textures, with its sampling error, beside the exact information.

    ``found``: rows of :func:`contrastbook.studies.shared_information.control`.
    """
    rows = pd.DataFrame(found.rows).groupby("distance").mean(numeric_only=True)
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    axes.plot(rows.index, rows["exact"], "-", color=COLOURS["truth"], label="exact")
    axes.errorbar(
        rows.index, rows["nats"], yerr=rows["half_width"], fmt="o", color=COLOURS["query"], capsize=2, label="MINE"
    )
    axes.set_xlabel("distance of the patches (pixels)")
    axes.set_ylabel("I(v₁; v₂) (nats)")
    axes.set_ylim(bottom=min(0.0, float(np.min(rows["nats"] - rows["half_width"]))))
    axes.legend(frameon=False)
    plt.close(figure)
    return figure
