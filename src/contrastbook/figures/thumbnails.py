"""A figure of a chapter as a stamp: its curves, bars or map without axes, words or numbers, as SVG."""

from __future__ import annotations

import base64
import io
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from PIL import Image
from plotly import colors

from contrastlab import escape
from contrastlab.errors import reject

WIDTH, HEIGHT, EDGE = 240, 132, 8
"""Of a stamp, and the blank around what is drawn, in pixels."""
_DASHES = {"dot": "2 4", "dash": "7 4", "longdash": "12 5", "dashdot": "7 4 2 4", "longdashdot": "12 5 2 5"}


def thumbnail(figure: go.Figure, title: str) -> str:
    """The present state of a figure, small, as an ``<svg>`` element with its own colours.

    ``figure``: of scatters, bars or one heat map; the first of these kinds that has points decides.
    """
    maps = [trace for trace in figure.data if trace.type == "heatmap"]
    traces = [t for t in figure.data if t.type in ("scatter", "bar") and t.x is not None and len(t.x)]
    if maps:
        inner = _map(maps[0])
    elif traces:
        inner = _curves(figure, traces)
    else:
        raise reject("figure", [trace.type for trace in figure.data], "one with a scatter, a bar or a heatmap")
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape.html(title)}" xmlns="http://www.w3.org/2000/svg">'
        f"{inner}</svg>"
    )


def cards(entries: Iterable[tuple[str, str, str, str, go.Figure | str]]) -> str:
    """Cards that lead to chapters, as HTML: address, title, what to see, what to turn, and a figure or SVG of each."""
    made = []
    for address, title, see, turn, figure in entries:
        picture = figure if isinstance(figure, str) else thumbnail(figure, f"A figure of the chapter: {title}")
        made.append(
            f'<a class="chapter-card" href="{escape.html(address)}"><span class="chapter-stamp">{picture}</span>'
            f"<strong>{escape.html(title)}</strong><span>{escape.html(see)}</span>"
            f"<small>Turn: {escape.html(turn)}</small></a>"
        )
    return f'<div class="chapter-cards {escape.LITERAL}">{"".join(made)}</div>'


def _pixels(axis: Any, values: Sequence[Any], size: int) -> list[NDArray[np.float64]]:
    """Where values lie along an axis; without a range of its own it goes from the least value to the greatest."""
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = [
            np.log10(each) if axis.type == "log" else each for each in (np.asarray(v, dtype=float) for v in values)
        ]
    if axis.range is None:
        every = np.concatenate(scaled)
        low, high = every[np.isfinite(every)].min(), every[np.isfinite(every)].max()
        low, high = (low, high) if high > low else (low - 0.5, high + 0.5)
    else:
        low, high = map(float, axis.range)
    return [EDGE + (each - low) / (high - low) * (size - 2 * EDGE) for each in scaled]


def _curves(figure: go.Figure, traces: Sequence[Any]) -> str:
    floor = [[0.0]] if any(trace.type == "bar" for trace in traces) and figure.layout.yaxis.type != "log" else []
    across = _pixels(figure.layout.xaxis, [trace.x for trace in traces], WIDTH)
    up = _pixels(figure.layout.yaxis, [*(trace.y for trace in traces), *floor], HEIGHT)
    body = ""
    for trace, left, height in zip(traces, across, up, strict=False):
        shown = np.isfinite(left) & np.isfinite(height)
        x, y = left[shown], np.clip(HEIGHT - height[shown], -HEIGHT, 2 * HEIGHT)
        body += _bars(trace, x, y) if trace.type == "bar" else _scatter(trace, x, y)
    name = f"stamp-{zlib.crc32(body.encode()):08x}"
    clip = f'<clipPath id="{name}"><rect width="{WIDTH}" height="{HEIGHT}"/></clipPath>'
    return f'{clip}<g clip-path="url(#{name})">{body}</g>'


def _scatter(trace: Any, left: NDArray[np.float64], top: NDArray[np.float64]) -> str:
    colour, mode = trace.line.color or trace.marker.color or "#000000", trace.mode or "lines"
    out = ""
    if "lines" in mode:
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(left, top, strict=True))
        dash = f' stroke-dasharray="{_DASHES[trace.line.dash]}"' if trace.line.dash in _DASHES else ""
        out += f'<polyline points="{joined}" fill="none" stroke="{escape.html(colour)}" stroke-width="2.5"{dash}/>'
    if "markers" in mode and trace.marker.symbol != "line-ew":
        fill = escape.html(trace.marker.color if isinstance(trace.marker.color, str) else colour)
        for x, y in zip(left, top, strict=True):
            out += f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{fill}"/>'
    return out


def _bars(trace: Any, left: NDArray[np.float64], top: NDArray[np.float64]) -> str:
    wide = max(1.0, 0.85 * float(np.diff(np.unique(left)).min(initial=WIDTH / 8)))
    fill = escape.html(trace.marker.color or "#BBBBBB")
    return "".join(
        f'<rect x="{x - wide / 2:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{max(0.0, HEIGHT - EDGE - y):.1f}"'
        f' fill="{fill}"/>'
        for x, y in zip(left, top, strict=True)
    )


def _map(trace: Any) -> str:
    values = np.asarray(trace.z, dtype=float)
    scaled = (values - np.nanmin(values)) / (np.nanmax(values) - np.nanmin(values) or 1)
    named = colors.sample_colorscale([list(stop) for stop in trace.colorscale], np.linspace(0, 1, 256).tolist())
    ramp = np.array([colors.unlabel_rgb(colour) for colour in named])
    file = io.BytesIO()
    Image.fromarray(ramp[(scaled * 255).astype(int)].round().astype(np.uint8)).save(file, "png")
    data = base64.b64encode(file.getvalue()).decode()
    side = HEIGHT - 2 * EDGE
    return (
        f'<image x="{(WIDTH - side) / 2}" y="{EDGE}" width="{side}" height="{side}" preserveAspectRatio="none"'
        f' style="image-rendering:pixelated" href="data:image/png;base64,{data}"/>'
    )
