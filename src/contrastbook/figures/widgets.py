"""Live controls for JupyterLab: every figure of :mod:`contrastbook.figures` with a slider for each of its knobs.

>>> widgets.ring()  # doctest: +SKIP

A value that a figure refuses shows its message in place of the figure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import plotly.graph_objects as go
from IPython.display import display
from ipywidgets import HTML, Dropdown, FloatLogSlider, FloatSlider, IntSlider, Output, SelectionSlider, VBox, Widget

from contrastbook import figures
from contrastlab import divergences, escape
from contrastlab.errors import ContrastLabError


def live(draw: Callable[..., go.Figure], **knobs: Widget) -> VBox:
    """``draw``, a pure function of the knobs, with one control per knob, drawn anew when a control is let go."""
    out = Output()

    def show(_: Any = None) -> None:
        with out:
            out.clear_output(wait=True)
            try:
                display(draw(**{name: control.value for name, control in knobs.items()}))
            except ContrastLabError as error:
                display(HTML(f"<p role='alert' class='{escape.LITERAL}'>{escape.html(error)}</p>"))

    for control in knobs.values():
        control.observe(show, names="value")
    show()
    return VBox([*knobs.values(), out])


def _number(label: str, value: float, low: float, high: float, step: float = 0.05, kind: Any = FloatSlider) -> Any:
    look = {} if kind is IntSlider else {"readout_format": ".3g"}
    return lambda: kind(value, min=low, max=high, step=step, description=label, continuous_update=False, **look)


def _choice(label: str, value: Any, options: Sequence[Any], kind: Any = SelectionSlider) -> Any:
    return lambda: kind(options=list(options), value=value, description=label)


_logarithmic = partial(_number, kind=FloatLogSlider)
_integer = partial(_number, step=1, kind=IntSlider)
_DIVERGENCE = _choice("divergence", "kl", divergences.names(), Dropdown)

KNOBS: Mapping[str, Mapping[str, Callable[[], Widget]]] = {
    "temperature": {"tau": _logarithmic("τ", 0.07, -2, 0)},
    "ring": {
        "inner": _number("ℓ (%)", 1, 0, 20, 0.5), "outer": _number("u (%)", 10, 1, 100, 1),
        "tau": _logarithmic("τ", 0.07, -1.5, 0), "classes": _choice("classes", 10, [1, 2, 5, 10, 20, 50, 100]),
        "within": _number("own class", 0.5, 0, 0.9),
    },
    "ceiling": {"nats": _number("I (nats)", 5, 0, 12, 0.25), "dimension": _integer("dimension", 20, 1, 50)},
    "looseness": {"percent": _number("p (%)", 90, 5, 100, 1), "rho": _number("ρ", 0.2, 0, 0.95)},
    "joint": {
        "strength": _number("λ", 1, 0, 10, 0.1), "tau": _logarithmic("τ", 0.2, -1.3, 0),
        "mean": _number("mean q·k⁺", 0.8, 0, 1),
        "negatives": _choice("negatives", 64, [1, 16, 64, 256, 1024, 65536]),
    },
    "composition": {
        "divergence": _DIVERGENCE, "mu": _logarithmic("μ", 1, -1, 1), "precision": _logarithmic("1/2σ²", 1, -1, 1.3),
    },
    "power": {"sd": _number("sd (points)", 0.6, 0.1, 3), "gap": _number("gap (points)", 1, 0.1, 4, 0.1)},
    "simplex": {
        "divergence": _DIVERGENCE, "mu": _logarithmic("μ", 1, -1, 2), "precision": _logarithmic("1/2σ²", 1, -1, 0.7),
        "points": _integer("points", 8, 2, 16), "dimension": _integer("dimension", 8, 2, 16),
    },
    "collisions": {"step": _integer("step", 3, 0, len(figures.GRAPHS) - 1)},
    "kept_bits": {"room": _integer("room (bits)", 3, 0, 5)},
    "more_views": {"n_flip": _number("n seen wrong", 0.04, 0, 0.5, 0.01)},
    "shared_information": {"room": _integer("room", 8, 1, 16)},
}  # fmt: skip
"""Name of a figure to its knobs, and what makes the control of each."""


def __getattr__(name: str) -> Callable[..., VBox]:
    """``ring()``: the figure of that name with its controls; what is given besides is a parameter without one."""
    if name not in KNOBS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def make(**fixed: Any) -> VBox:
        controls = {knob: control() for knob, control in KNOBS[name].items()}
        return live(partial(getattr(figures, name), **fixed), **controls)

    return make
