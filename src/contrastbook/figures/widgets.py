"""Live controls for JupyterLab: every figure of :mod:`contrastbook.figures` with a slider for each of its knobs.

A value that a figure refuses shows its message in place of the figure.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from importlib.resources import files
from typing import Any

import ipywidgets
import plotly.graph_objects as go
from IPython.display import display

from contrastbook import figures
from contrastlab.scores import divergences
from contrastlab.support import escape
from contrastlab.support.errors import ContrastLabError

KNOBS: Mapping[str, Mapping[str, Mapping[str, Any]]] = tomllib.loads(
    (files("contrastbook.figures") / "widgets.toml").read_text("utf-8")
)
"""Name of a figure to its knobs, and what the control of each is made with; ``widgets.toml`` has them."""


def live(draw: Callable[..., go.Figure], **knobs: ipywidgets.Widget) -> ipywidgets.VBox:
    """``draw``, a pure function of the knobs, with one control per knob, drawn anew when a control is let go."""

    def show(**values: Any) -> None:
        try:
            display(draw(**values))
        except ContrastLabError as error:
            display(ipywidgets.HTML(f"<p role='alert' class='{escape.LITERAL}'>{escape.html(error)}</p>"))

    return ipywidgets.interactive(show, **knobs)


def _control(kind: str, **look: Any) -> ipywidgets.Widget:
    if kind == "Dropdown":
        look["options"] = divergences.names()
    elif kind != "SelectionSlider":
        look = {"continuous_update": False} | look
    if kind.startswith("Float"):
        look = {"step": 0.05, "readout_format": ".3g"} | look
    return getattr(ipywidgets, kind)(**look)


def __getattr__(name: str) -> Callable[..., ipywidgets.VBox]:
    """``ring()``: the figure of that name with its controls; what is given besides is a parameter without one."""
    if name not in KNOBS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def make(**fixed: Any) -> ipywidgets.VBox:
        controls = {knob: _control(**row) for knob, row in KNOBS[name].items()}
        return live(partial(getattr(figures, name), **fixed), **controls)

    return make
