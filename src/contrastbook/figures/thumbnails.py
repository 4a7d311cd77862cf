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
    """The present state of a figure, small.

    ``figure``: of scatters, bars or one heat map; the first of these kinds that has points decides. Returns an
    ``<svg>`` element with its own colours.
    """
    maps = [trace for trace in figure.data if trace.type == "heatmap"]
    traces = [trace for trace in figure.data if trace.type in ("scatter", "bar") and _length(trace.x)]
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


def _length(values: Any) -> int:
    return 0 if values is None else len(values)


def _axis(axis: Any, values: Sequence[NDArray[np.float64]]) -> tuple[bool, float, float]:
    """Whether the axis is logarithmic, and its ends in the units of the axis."""
    logarithmic = axis.type == "log"
    if axis.range is not None:
        return logarithmic, float(axis.range[0]), float(axis.range[1])
    every = np.concatenate(values)
    every = every[np.isfinite(every) & ((every > 0) | (not logarithmic))]
    every = np.log10(every) if logarithmic else every
    low, high = float(every.min()), float(every.max())
    return (logarithmic, low, high) if high > low else (logarithmic, low - 0.5, high + 0.5)


def _curves(figure: go.Figure, traces: Sequence[Any]) -> str:
    points = [(np.asarray(trace.x, dtype=float), np.asarray(trace.y, dtype=float)) for trace in traces]
    bars = [y for trace, (_, y) in zip(traces, points, strict=True) if trace.type == "bar"]
    floor = [np.zeros(1)] if bars and figure.layout.yaxis.type != "log" else []
    across = _axis(figure.layout.xaxis, [x for x, _ in points])
    up = _axis(figure.layout.yaxis, [*(y for _, y in points), *floor])

    def place(values: NDArray[np.float64], axis: tuple[bool, float, float], size: int) -> NDArray[np.float64]:
        logarithmic, low, high = axis
        with np.errstate(divide="ignore", invalid="ignore"):
            scaled = np.log10(values) if logarithmic else values
        return np.asarray(EDGE + (scaled - low) / (high - low) * (size - 2 * EDGE))

    parts = []
    for trace, (x, y) in zip(traces, points, strict=True):
        left, top = place(x, across, WIDTH), HEIGHT - place(y, up, HEIGHT)
        shown = np.isfinite(left) & np.isfinite(top)
        left, top = left[shown], np.clip(top[shown], -HEIGHT, 2 * HEIGHT)
        parts.append(_bars(trace, left, top) if trace.type == "bar" else _scatter(trace, left, top))
    body = "".join(parts)
    name = f"stamp-{zlib.crc32(body.encode()):08x}"
    clip = f'<clipPath id="{name}"><rect width="{WIDTH}" height="{HEIGHT}"/></clipPath>'
    return f'{clip}<g clip-path="url(#{name})">{body}</g>'


def _scatter(trace: Any, left: NDArray[np.float64], top: NDArray[np.float64]) -> str:
    colour = trace.line.color or trace.marker.color or "#000000"
    out = ""
    if "lines" in (trace.mode or "lines"):
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(left, top, strict=True))
        dash = f' stroke-dasharray="{_DASHES[trace.line.dash]}"' if trace.line.dash in _DASHES else ""
        out += f'<polyline points="{joined}" fill="none" stroke="{escape.html(colour)}" stroke-width="2.5"{dash}/>'
    if "markers" in (trace.mode or "") and trace.marker.symbol != "line-ew":
        fill = escape.html(trace.marker.color if isinstance(trace.marker.color, str) else colour)
        out += "".join(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{fill}"/>' for x, y in zip(left, top, strict=True)
        )
    return out


def _bars(trace: Any, left: NDArray[np.float64], top: NDArray[np.float64]) -> str:
    wide = max(1.0, 0.85 * float(np.diff(np.unique(left)).min(initial=WIDTH / 8)))
    colours = trace.marker.color if isinstance(trace.marker.color, list | tuple) else [trace.marker.color] * len(left)
    return "".join(
        f'<rect x="{x - wide / 2:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{max(0.0, HEIGHT - EDGE - y):.1f}"'
        f' fill="{escape.html(colour or "#BBBBBB")}"/>'
        for x, y, colour in zip(left, top, colours, strict=False)
    )  # fmt: skip


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
