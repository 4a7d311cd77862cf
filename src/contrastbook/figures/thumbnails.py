"""A figure of a chapter as a stamp: its curves, bars or map, and a word on each axis."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

import numpy as np
import plotly.graph_objects as go
from matplotlib.colors import ListedColormap
from plotly import colors

from contrastbook.figures.base import subplots
from contrastlab.support import escape
from contrastlab.support.errors import reject
from contrastlab.tables import report

_DASHES = {"dot": ":", "dash": "--", "longdash": (0, (8, 3)), "dashdot": "-.", "longdashdot": (0, (8, 3, 1, 3))}


def thumbnail(figure: go.Figure, title: str) -> str:
    """The present state of a figure, small, as an ``<img>`` with ``title`` as its alternative text.

    ``figure``: of scatters, bars or one heat map; where there is a heat map, it alone is drawn.
    """
    shown = [t for t in figure.data if t.type in ("scatter", "bar", "heatmap") and t.x is not None and len(t.x)]
    if not shown:
        raise reject("figure", [trace.type for trace in figure.data], "one with a scatter, a bar or a heatmap")
    stamp, axes = subplots(size=(4.8, 2.64))
    axes.tick_params(which="both", length=0, labelbottom=False, labelleft=False)
    axes.spines[:].set_visible(False)
    axes.spines[["left", "bottom"]].set(visible=True, color="0.7")
    stamp.set_label(title)
    if maps := [trace for trace in shown if trace.type == "heatmap"]:
        ramp = colors.sample_colorscale([list(stop) for stop in maps[0].colorscale], np.linspace(0, 1, 256).tolist())
        axes.imshow(maps[0].z, cmap=ListedColormap([np.array(colors.unlabel_rgb(c)) / 255 for c in ramp]))
    for trace in [] if maps else shown:
        if trace.type == "bar":
            axes.bar(trace.x, trace.y, trace.width or 0.8, color=trace.marker.color or "#BBBBBB")
            continue
        colour, mode = trace.line.color or trace.marker.color or "#000000", trace.mode or "lines"
        if "lines" in mode:
            axes.plot(trace.x, trace.y, color=colour, linestyle=_DASHES.get(trace.line.dash, "-"), linewidth=3.5)
        if "markers" in mode and trace.marker.symbol != "line-ew":
            axes.scatter(trace.x, trace.y, 64, trace.marker.color or colour)
    for side in "xy":
        axis = figure.layout[f"{side}axis{(getattr((maps or shown)[0], side + 'axis') or side)[1:]}"]
        axes.set(**{f"{side}scale": "log" if axis.type == "log" else "linear"})
        if axis.range:
            axes.set(**{f"{side}lim": [10.0**end if axis.type == "log" else end for end in axis.range]})
        words = re.split(r" \(|, ", axis.title.text or "")[0]  # without unit and remark
        getattr(axes, f"set_{side}label")(textwrap.fill(words, 30 if side == "x" else 18), fontsize=16)
    return report.image(stamp)


def cards(entries: Iterable[tuple[str, str, str, str, go.Figure]]) -> str:
    """Cards that lead to chapters, as HTML: address, title, what to see, what to turn, and a figure of each."""
    made = []
    for address, title, see, turn, figure in entries:
        picture = thumbnail(figure, f"A figure of the chapter: {title}")
        made.append(
            f'<a class="chapter-card" href="{escape.html(address)}"><span class="chapter-stamp">{picture}</span>'
            f"<strong>{escape.html(title)}</strong><span>{escape.html(see)}</span>"
            f"<small>Turn: {escape.html(turn)}</small></a>"
        )
    return f'<div class="chapter-cards {escape.LITERAL}">{"".join(made)}</div>'
