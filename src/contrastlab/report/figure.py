"""A table as a picture: a dot per row with its interval."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from io import BytesIO

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from contrastlab import escape
from contrastlab.report.rows import RANDOM, RANDOM_LAB, Row
from contrastlab.tasks import Metric


def dots(
    drawn: Sequence[Row], metric: Metric, name: str, profile: str, alt: str, *, published: bool,
    floor: str = RANDOM, called: str = "random encoder",
) -> Figure:  # fmt: skip
    """A dot per row with its interval; readable in black and white.

    Filled dots are above the floor, open dots are not, the dashed line is the floor. Solid bars are t intervals over
    seeds, dotted bars the sampling error of the test items where there is one seed.

    Args:
        drawn: rows with a number.
        metric: what the numbers are.
        name: of the column.
        profile: of the runs.
        alt: the figure in words, which becomes its label.
        published: draw published numbers, too, as diamonds joined to ours by a thin line.
        floor: method of the untrained row.
        called: the same in words.
    """
    figure, axes = plt.subplots(figsize=(7, 0.8 + 0.42 * max(len(drawn), 1)), layout="constrained")
    plt.close(figure)  # out of pyplot's hands: shown once, by whoever asked for it
    for y, row in enumerate(drawn):
        assert row.measured is not None
        width = row.measured.half_width if row.measured.half_width is not None else row.measured.sampling
        if width is not None:
            dotted = row.measured.half_width is None
            axes.plot(
                [row.measured.mean - width, row.measured.mean + width], [y, y],
                color="#0072B2", linestyle=":" if dotted else "-", linewidth=2, zorder=2,
            )  # fmt: skip
        face = "white" if row.above_random is False or row.method in (floor, RANDOM_LAB) else "#0072B2"
        if published and row.published is not None:
            axes.plot([row.published, row.measured.mean], [y, y], color="0.6", linewidth=1, zorder=1)
            axes.plot(row.published, y, "D", color="#D55E00", markerfacecolor="none", markersize=8, zorder=3)
        axes.plot(row.measured.mean, y, "o", color="#0072B2", markerfacecolor=face, markersize=8, zorder=3)
        if row.method == floor:
            axes.axvline(row.measured.mean, color="0.4", linestyle="--", linewidth=1, zorder=1)
    axes.set_yticks(range(len(drawn)), [escape.mathtext(row.label) for row in drawn])
    axes.set_ylim(max(len(drawn), 1) - 0.5, -0.5)
    unit = f"% of {metric.items}" if metric.unit == "percent" else metric.unit
    axes.set_xlabel(f"{metric.label} ({unit}), profile {escape.mathtext(profile)}, {escape.mathtext(name)}")
    key = f"filled: above the {called}   open: not   dashed line: {called}"
    axes.set_title(f"{key}   diamond: published" if published else key, fontsize="small", loc="left")
    axes.grid(axis="x", color="0.9")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.set_label(alt)
    return figure


def image(figure: Figure) -> str:
    """A figure as an ``<img>``; its label is the alternative text."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    picture = base64.b64encode(buffer.getvalue()).decode()
    return f'<img alt="{escape.html(figure.get_label())}" src="data:image/png;base64,{picture}">'
