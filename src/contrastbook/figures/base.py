"""What all figures share: colours, the empty figure, sliders without Python, and refusal of what is out of range."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import plotly.graph_objects as go
from matplotlib.figure import Figure

from contrastlab.scores import divergences
from contrastlab.support.errors import reject

COLOURS: Mapping[str, str] = {
    "query": "#000000",
    "positive": "#009E73",
    "negative": "#D55E00",
    "ignored": "#BBBBBB",
    "truth": "#0072B2",
    "published": "#CC79A7",
    "other": "#E69F00",
}
"""What a colour means, on every page."""

BLUE, ORANGE, GREEN = COLOURS["truth"], COLOURS["negative"], COLOURS["positive"]
MARKERS = "osD^v<>PX*hdp8"
CYCLE = (BLUE, ORANGE, GREEN, COLOURS["published"], COLOURS["other"], COLOURS["query"], "#56B4E9")
STYLES: Sequence[Any] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (6, 2)), (0, (1, 2)))


def subplots(
    rows: int = 1, columns: int = 1, size: tuple[float, float] = (7.5, 3.6), **more: Any
) -> tuple[Figure, Any]:
    """A matplotlib figure and its axes, out of pyplot's hands: shown once, by whoever asked for it."""
    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", **more)
    plt.close(figure)
    return figure, axes


def subplots_each(count: int, wide: int, size: tuple[float, float], least: float = 0.0) -> tuple[Figure, list[Any]]:
    """A figure with ``count`` axes of that size in rows of at most ``wide``; those of the last row may be blank."""
    count = max(count, 1)
    columns = max(min(count, wide), 1)
    rows = math.ceil(count / columns)
    width, height = size
    figure, axes = subplots(rows, columns, (max(width * columns, least), height * rows), squeeze=False)
    for blank in axes.flat[count:]:
        blank.set_visible(False)
    return figure, list(axes.flat[:count])


def raised(label: str) -> str:
    """A published name in a label of matplotlib: ``IR^nce`` with what follows the caret above the line."""
    return re.sub(r"\^([A-Za-z0-9+-]+)", r"$^{\\mathrm{\1}}$", label)


def dress(axes: Any, x: str, y: str, title: str = "", **legend: Any) -> None:
    """Titles, legend, and no frame above and on the right."""
    axes.set(xlabel=x, ylabel=y)
    axes.set_title(title, fontsize="small", loc="left")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(**{"fontsize": "small", **legend})
    axes.spines[["top", "right"]].set_visible(False)


def chart(title: str, x: str, y: str, *traces: Any, **layout: Any) -> go.Figure:
    """A figure of traces in the common style; ``x`` and ``y`` are the titles of its axes."""
    lines = textwrap.wrap(title, 46)  # plotly breaks none, and a phone shows some 46 characters
    figure = go.Figure(list(traces))
    return figure.update_layout(
        template="plotly_white",
        height=400,
        margin={"l": 60, "r": 20, "t": 16 + 20 * len(lines), "b": 50},
        xaxis_title=x,
        yaxis_title=y,
        title={"text": "<br>".join(lines), "font": {"size": 14}, "x": 0.02, "y": 0.98, "yanchor": "top"},
        legend={"orientation": "h", "y": -0.22},
        hovermode="closest",
        **layout,
    )


def line(
    name: str, x: Any, y: Any, colour: str, dash: str | None = None, *, marker: Any = None, width: Any = None
) -> Any:
    """A line in one of :data:`COLOURS`, with markers where their look is given."""
    look = {"color": COLOURS[colour], "dash": dash, "width": width}
    mode = "lines" if marker is None else "lines+markers"
    return go.Scatter(x=x, y=y, name=name, mode=mode, line=look, marker=marker)


def dots(name: str, x: Any, y: Any, colour: str, symbol: str, size: int) -> Any:
    """Markers in one of :data:`COLOURS`."""
    marker = {"color": COLOURS[colour], "symbol": symbol, "size": size}
    return go.Scatter(x=x, y=y, name=name, mode="markers", marker=marker)


def sliding(
    draw: Callable[..., go.Figure],
    knob: str,
    values: Sequence[Any],
    *,
    start: Any = None,
    label: str = "",
    **fixed: Any,
) -> go.Figure:
    """``draw`` at every value of one knob, as a figure with a slider.

    ``draw``: any pure function that returns a plotly figure, with the same traces for all values. ``start``: the first
    one shown; by default the middle. ``label``: written before the value; by default the knob's name.
    """
    if not len(values):
        raise reject("values", list(values), "at least one stop")
    if start is None:
        start = values[len(values) // 2]
    if start not in values:
        raise reject("start", start, f"one of {', '.join(map(str, values))}")
    states = {value: draw(**{knob: value}, **fixed) for value in values}
    if len({len(state.data) for state in states.values()}) != 1:
        raise reject("draw", getattr(draw, "__name__", draw), "a function whose figures all have the same traces")
    figure = go.Figure(states[start])
    figure.frames = [_slider_frame(value, state) for value, state in states.items()]
    figure.update_layout(
        sliders=[_slider(values, start, label or knob)],
        height=500,
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"},
        margin_b=90,
        margin_t=max(state.layout.margin.t or 60 for state in states.values()),
    )
    return figure


def _slider_frame(value: Any, state: go.Figure) -> go.Frame:
    """What a page shows at one stop of a slider: the traces, and what of the layout moves with them."""
    layout = {part: state.layout[part] for part in ("title", "shapes", "annotations")}
    return go.Frame(data=state.data, name=str(value), layout=layout)


def _slider(values: Sequence[Any], start: Any, label: str) -> dict[str, Any]:
    """Plotly's description of a slider; divergences have their titles as ticks, and no value above them."""
    of_divergences = set(values) <= set(divergences.names())
    at_once = {"mode": "immediate", "frame": {"duration": 0, "redraw": True}}
    steps = []
    for value in values:
        text = _title_in_short_lines(value) if of_divergences else _tick(value)
        steps.append({"method": "animate", "label": text, "args": [[str(value)], at_once]})
    return {
        "active": list(values).index(start),
        "steps": steps,
        "pad": {"t": 55 if of_divergences else 40},
        "x": 0.02,
        "len": 0.96,
        "currentvalue": {"prefix": f"{label} = ", "visible": not of_divergences},
        "font": {"size": 10 if of_divergences else 12},
    }


def _tick(value: Any) -> str:
    """The label of a stop."""
    if isinstance(value, int | float):
        return f"{value:g}"
    return str(value).replace("_", " ")


def _title_in_short_lines(divergence: str) -> str:
    """The label of a divergence, so narrow that no label has to be left out."""
    title = divergences.get(divergence).title.replace("–", "– ")
    return "<br>".join(textwrap.wrap(title, 9))
