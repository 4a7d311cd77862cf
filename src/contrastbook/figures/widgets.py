"""Live controls for JupyterLab: every figure of :mod:`contrastbook.figures` with a slider for each of its knobs.

>>> from contrastbook.figures import widgets
>>> widgets.ring()  # doctest: +SKIP

A value that a figure refuses shows its message in place of the figure; nothing is clamped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets
import plotly.graph_objects as go
from IPython.display import display

from contrastbook import figures
from contrastlab import divergences, escape
from contrastlab.errors import ContrastLabError

__all__ = [
    "ceiling",
    "collisions",
    "composition",
    "joint",
    "kept_bits",
    "live",
    "looseness",
    "more_views",
    "power",
    "ring",
    "shared_information",
    "simplex",
    "temperature",
]


def live(draw: Callable[..., go.Figure], **knobs: ipywidgets.Widget) -> ipywidgets.VBox:
    """``draw`` with one control per knob, drawn anew when a control is let go.

    ``draw``: a pure function of the knobs that returns a plotly figure.
    """
    out = ipywidgets.Output()

    def show(_: Any = None) -> None:
        with out:
            out.clear_output(wait=True)
            try:
                display(draw(**{name: control.value for name, control in knobs.items()}))
            except ContrastLabError as error:
                display(ipywidgets.HTML(f"<p role='alert' class='{escape.LITERAL}'>{escape.html(error)}</p>"))

    for control in knobs.values():
        control.observe(show, names="value")
    show()
    return ipywidgets.VBox([*knobs.values(), out])


def _number(label: str, value: float, low: float, high: float, step: float) -> ipywidgets.FloatSlider:
    return ipywidgets.FloatSlider(
        value, min=low, max=high, step=step, description=label, continuous_update=False, readout_format=".3g"
    )


def _logarithmic(label: str, value: float, low: float, high: float) -> ipywidgets.FloatLogSlider:
    return ipywidgets.FloatLogSlider(
        value, min=low, max=high, step=0.05, description=label, continuous_update=False, readout_format=".3g"
    )


def temperature() -> ipywidgets.VBox:
    """τ against the share of the push that the hardest negatives get."""
    return live(figures.temperature, tau=_logarithmic("τ", 0.07, -2, 0))


def ring() -> ipywidgets.VBox:
    """ℓ, u, τ, number of classes and how tight they are against the ring and the level it must exceed."""
    return live(
        figures.ring,
        inner=_number("ℓ (%)", 1, 0, 20, 0.5),
        outer=_number("u (%)", 10, 1, 100, 1),
        tau=_logarithmic("τ", 0.07, -1.5, 0),
        classes=ipywidgets.SelectionSlider(options=[1, 2, 5, 10, 20, 50, 100], value=10, description="classes"),
        within=_number("own class", 0.5, 0, 0.9, 0.05),
    )


def ceiling() -> ipywidgets.VBox:
    """Information and dimension against what InfoNCE shows of it for each K."""
    return live(
        figures.ceiling,
        nats=_number("I (nats)", 5, 0, 12, 0.25),
        dimension=ipywidgets.IntSlider(20, min=1, max=50, description="dimension", continuous_update=False),
    )


def looseness() -> ipywidgets.VBox:
    """P and ρ against VINCE for every size of the critic."""
    return live(figures.looseness, percent=_number("p (%)", 90, 5, 100, 1), rho=_number("ρ", 0.2, 0, 0.95, 0.05))


def joint() -> ipywidgets.VBox:
    """λ, τ, mean similarity and number of negatives against JCL's bound."""
    return live(
        figures.joint,
        strength=_number("λ", 1, 0, 10, 0.1),
        tau=_logarithmic("τ", 0.2, -1.3, 0),
        mean=_number("mean q·k⁺", 0.8, 0, 1, 0.05),
        negatives=ipywidgets.SelectionSlider(options=[1, 16, 64, 256, 1024, 65536], value=64, description="negatives"),
    )


def composition() -> ipywidgets.VBox:
    """The divergence, μ and 1/2σ² against how it pushes pairs apart."""
    return live(
        figures.composition,
        divergence=ipywidgets.Dropdown(options=list(divergences.names()), value="kl", description="divergence"),
        mu=_logarithmic("μ", 1, -1, 1),
        precision=_logarithmic("1/2σ²", 1, -1, 1.3),
    )


def power() -> ipywidgets.VBox:
    """Spread of a run and true difference against how many seeds find it."""
    return live(
        figures.power, sd=_number("sd (points)", 0.6, 0.1, 3, 0.05), gap=_number("gap (points)", 1, 0.1, 4, 0.1)
    )


def simplex() -> ipywidgets.VBox:
    """The divergence, μ, 1/2σ², number of points and dimension against where the points go."""
    return live(
        figures.simplex,
        divergence=ipywidgets.Dropdown(options=list(divergences.names()), value="kl", description="divergence"),
        mu=_logarithmic("μ", 1, -1, 2),
        precision=_logarithmic("1/2σ²", 1, -1, 0.7),
        points=ipywidgets.IntSlider(8, min=2, max=16, description="points", continuous_update=False),
        dimension=ipywidgets.IntSlider(8, min=2, max=16, description="dimension", continuous_update=False),
    )


def collisions(measured: Sequence[Sequence[float]] = ()) -> ipywidgets.VBox:
    """The graph of shared views against mutual information and accuracy; see :func:`figures.collisions`."""
    last = len(figures.GRAPHS) - 1
    return live(
        lambda step: figures.collisions(step, measured=measured),
        step=ipywidgets.IntSlider(3, min=0, max=last, description="step", continuous_update=False),
    )


def kept_bits() -> ipywidgets.VBox:
    """Room of each view against the bits that four views keep."""
    return live(
        figures.kept_bits,
        room=ipywidgets.IntSlider(3, min=0, max=5, description="room (bits)", continuous_update=False),
    )


def more_views() -> ipywidgets.VBox:
    """How often the nuisance is seen wrong against what further views do."""
    return live(figures.more_views, n_flip=_number("n seen wrong", 0.04, 0, 0.5, 0.01))


def shared_information() -> ipywidgets.VBox:
    """Numbers of an embedding against the curve of accuracy over information."""
    return live(
        figures.shared_information,
        room=ipywidgets.IntSlider(8, min=1, max=16, description="room", continuous_update=False),
    )
