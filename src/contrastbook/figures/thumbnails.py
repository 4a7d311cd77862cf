"""A figure of a chapter as a stamp: its curves, bars or map, and a word on each axis."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from typing import Any

import numpy as np
import plotly.graph_objects as go
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from numpy.typing import NDArray
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
    traces = [trace for trace in figure.data if _can_be_drawn(trace)]
    if not traces:
        raise reject("figure", [trace.type for trace in figure.data], "one with a scatter, a bar or a heatmap")
    heatmaps = [trace for trace in traces if trace.type == "heatmap"]
    stamp, axes = subplots(size=(4.8, 2.64))
    axes.tick_params(which="both", length=0, labelbottom=False, labelleft=False)
    axes.spines[:].set_visible(False)
    axes.spines[["left", "bottom"]].set(visible=True, color="0.7")
    stamp.set_label(title)
    if heatmaps:
        first = heatmaps[0]
        _draw_heatmap(axes, first)
    else:
        first = traces[0]
        for trace in traces:
            if trace.type == "bar":
                axes.bar(trace.x, trace.y, trace.width or 0.8, color=trace.marker.color or "#BBBBBB")
            else:
                _draw_scatter(axes, trace)
    _set_axis(axes, "x", _axis_of(figure, first, "x"), letters=30)
    _set_axis(axes, "y", _axis_of(figure, first, "y"), letters=18)
    return report.image(stamp)


def _can_be_drawn(trace: Any) -> bool:
    """Whether a trace of plotly is of a kind that is drawn here, and has points."""
    if trace.type not in ("scatter", "bar", "heatmap"):
        return False
    return trace.x is not None and len(trace.x) > 0


def _draw_heatmap(axes: Axes, trace: Any) -> None:
    """A heat map in its own colours."""
    stops = [list(stop) for stop in trace.colorscale]
    places = np.linspace(0, 1, 256).tolist()
    levels: list[NDArray[Any]] = []
    for colour in colors.sample_colorscale(stops, places):
        red_green_blue = np.array(colors.unlabel_rgb(colour))
        levels.append(red_green_blue / 255)
    axes.imshow(trace.z, cmap=ListedColormap(levels))


def _draw_scatter(axes: Axes, trace: Any) -> None:
    """Lines, markers, or both."""
    colour = trace.line.color or trace.marker.color or "#000000"
    mode = trace.mode or "lines"
    if "lines" in mode:
        style = _DASHES.get(trace.line.dash, "-")
        axes.plot(trace.x, trace.y, color=colour, linestyle=style, linewidth=3.5)
    if "markers" in mode and trace.marker.symbol != "line-ew":
        axes.scatter(trace.x, trace.y, 64, trace.marker.color or colour)


def _axis_of(figure: go.Figure, trace: Any, side: str) -> Any:
    """The layout of the axis that a trace is drawn on: of ``x2`` it is ``xaxis2``."""
    name = trace[f"{side}axis"] or side
    return figure.layout[f"{side}axis{name[1:]}"]


def _set_axis(axes: Axes, side: str, axis: Any, *, letters: int) -> None:
    """Scale, range and title of an axis, in lines of so many letters."""
    is_logarithmic = axis.type == "log"
    scale = "log" if is_logarithmic else "linear"
    axes.set(**{f"{side}scale": scale})
    if axis.range:
        ends = list(axis.range)
        if is_logarithmic:
            ends = [10.0**end for end in ends]
        axes.set(**{f"{side}lim": ends})
    title = axis.title.text or ""
    words, *_ = re.split(r" \(|, ", title)  # without unit and remark
    axes.set(**{f"{side}label": textwrap.fill(words, letters)})
    getattr(axes, f"{side}axis").label.set_fontsize(16)


def cards(entries: Iterable[tuple[str, str, str, str, go.Figure]]) -> str:
    """Cards that lead to chapters, as HTML: address, title, what to see, what to turn, and a figure of each."""
    links: list[str] = []
    for address, title, see, turn, figure in entries:
        picture = thumbnail(figure, f"A figure of the chapter: {title}")
        links.append(
            f'<a class="chapter-card" href="{escape.html(address)}"><span class="chapter-stamp">{picture}</span>'
            f"<strong>{escape.html(title)}</strong><span>{escape.html(see)}</span>"
            f"<small>Turn: {escape.html(turn)}</small></a>"
        )
    return f'<div class="chapter-cards {escape.LITERAL}">{"".join(links)}</div>'
