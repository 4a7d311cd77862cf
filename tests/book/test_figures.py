"""Figures: pure, refusing what is out of range, sliding without Python, and showing what they say."""

import math
from functools import partial

import numpy as np
import plotly.graph_objects as go
import pytest

from contrastbook import figures
from contrastbook.figures import widgets
from contrastlab.scores import divergences


def said(figure: go.Figure | go.Frame) -> str:
    """Its title; the lines are broken for phones."""
    return figure.layout.title.text.replace("<br>", " ")


DRAWN = {
    "temperature": (figures.temperature, "tau", [0.05, 0.2, 1.0]),
    "ring": (figures.ring, "outer", [2.0, 10.0, 100.0]),
    "ceiling": (partial(figures.ceiling, ks=(2, 8)), "nats", [1.0, 5.0]),
    "looseness": (figures.looseness, "percent", [100, 90, 25]),
    "joint": (figures.joint, "strength", [0.0, 1.0, 4.0]),
    "composition": (figures.composition, "divergence", ["kl", "js", "reverse_kl"]),
    "kept_bits": (figures.kept_bits, "room", [1, 2, 3]),
    "more_views": (figures.more_views, "n_flip", [0.0, 0.2]),
    "shared_information": (figures.shared_information, "room", [4, 8, 16]),
    "power": (figures.power, "sd", [0.2, 0.6, 2.0]),
    "simplex": (figures.simplex, "divergence", ["kl", "vincze_le_cam", "neyman"]),
    "collisions": (figures.collisions, "step", [0, 3, 9]),
}


@pytest.mark.parametrize("name", DRAWN)
def test_a_figure_is_a_pure_function_with_axes_and_a_finding(name) -> None:
    draw, knob, values = DRAWN[name]
    first, again = (draw(**{knob: values[0]}) for _ in "ab")
    assert first.to_json() == again.to_json()
    assert first.layout.xaxis.title.text
    assert first.layout.yaxis.title.text
    assert len(said(first)) > 20
    assert max(map(len, first.layout.title.text.split("<br>"))) <= 46
    for trace in first.data:
        y = np.asarray(trace.y, dtype=float)
        assert np.isfinite(y[~np.isnan(y)]).all()
        assert trace.name
    assert len(getattr(widgets, name)().children) >= 2  # the same function is live


@pytest.mark.parametrize("name", DRAWN)
def test_a_slider_holds_every_state_and_starts_where_asked(name) -> None:
    draw, knob, values = DRAWN[name]
    figure = figures.sliding(draw, knob, values, start=values[0])
    assert [frame.name for frame in figure.frames] == [str(value) for value in values]
    assert figure.layout.sliders[0].active == 0
    for frame, value in zip(figure.frames, values, strict=True):
        state = draw(**{knob: value})
        assert go.Figure(frame.data).to_json() == go.Figure(state.data).to_json()
        assert frame.layout.title.text == state.layout.title.text
    assert figure.frames[0].to_json() != figure.frames[-1].to_json()


def test_a_live_figure_shows_the_message_of_a_refused_value() -> None:
    box = widgets.ring()
    inner, outer = box.children[:2]
    outer.value, inner.value = 1, 20
    shown = box.children[-1].outputs
    assert not shown or "outer" in str(shown)


def test_titles_say_when_a_theorem_or_a_bound_applies() -> None:
    # many classes: skipping the closest 1 % skips what lifts c
    assert "is silent" in said(figures.ring(classes=100))
    assert "applies" in said(figures.ring(classes=1, within=0.0))
    assert "an upper bound" in said(figures.joint(1.0))
    assert "no bound" in said(figures.joint(0.2))
    t = np.linspace(-1, 1, 200_001)
    density = np.maximum(1 - t**2, 0) ** 62.5  # of one coordinate on the sphere
    for tau in (0.2, 0.02):
        rest = math.log(64) + math.log(float((np.exp(t / tau) * density).sum() / density.sum()))
        start = figures.joint(1.0, tau).data[0].y[0]
        assert start == pytest.approx(math.log1p(math.exp(rest - 0.8 / tau)), rel=1e-6)


def test_ceiling_stays_below_information_and_log_k_and_collisions_names_that_of_the_graph() -> None:
    for nats in (1.0, 10.0):
        traces = {t.name: t for t in figures.ceiling(nats, ks=(2, 32)).data}
        values = np.array(traces["InfoNCE"].y)
        assert (values <= np.log(np.array(traces["InfoNCE"].x)) + 1e-12).all()
        assert values[-1] < nats + 0.1
        assert traces["positive left out: no lower bound"].y[0] > nats
    at = [next(t.x[0] for t in figures.collisions(step).data if t.name == "this graph") for step in range(10)]
    assert at[0] == pytest.approx(math.log(60), abs=1e-12)
    assert at[3] == pytest.approx(math.log(60) - 1.5 * math.log(2), abs=1e-12)
    assert at[9] == pytest.approx(0, abs=1e-12)
    assert (np.diff(at) < 0).all()
    drawn = {t.name: t for t in figures.collisions(2, measured=[[10.0 * k, 10.0 * k + 4] for k in range(10)]).data}
    assert drawn["mean"].y[3] == 32
    assert list(drawn["mean"].x) == at
    assert len(drawn["one seed"].y) == 20


def test_looseness_of_the_whole_sample_is_the_information_and_power_has_no_gaps() -> None:
    figure = figures.looseness(percent=100, rho=0.6)
    largest = figure.data[2]
    assert largest.x[0] == pytest.approx(1, abs=0.03)
    assert largest.y[0] == pytest.approx(-0.5 * math.log1p(-0.36), abs=1e-4)
    for trace in (*figures.power(0.2).data, *figures.power(0.6).data):
        assert np.isfinite(np.array(trace.y, dtype=float)).all(), trace.name


@pytest.mark.parametrize("name", divergences.names())
def test_composition_and_simplex_say_what_theorem_4_says(name) -> None:
    for kernel in ((), (1.0, 0.1), (1.0, 6.0), (1.0, 20.0)):  # of any width
        title = said(figures.composition(name, *kernel))
        assert ("convex: equal" in title) == divergences.get(name).spreads(1.0)
        assert ("straight" in title) == (name == "reverse_kl")
    figure = figures.simplex(name)
    after = np.array(figure.data[2].y)
    assert ("all distances are equal" in said(figure)) == divergences.get(name).spreads(1.0)
    assert ("two opposite clusters" in said(figure)) == (name == "neyman")
    assert after.mean() == pytest.approx(16 / 7, abs=1e-6)  # centred, whatever the divergence


@pytest.mark.parametrize(("name", "mu"), [("pearson", 1.0), ("pearson", 0.1), ("tsallis", 1.0), ("vincze_le_cam", 0.1)])
def test_simplex_is_found_where_the_loss_is_tiny(name, mu) -> None:
    figure = figures.simplex(name, mu, 5.0)
    assert "all distances are equal; 8 points fill 7.0 dimensions" in said(figure)
    assert np.array(figure.data[2].y) == pytest.approx(16 / 7, abs=1e-3)


def test_simplex_of_few_points() -> None:
    for precision in (1.0, 5.0):
        assert np.array(figures.simplex("pearson", 1.0, precision, 2).data[2].y) == pytest.approx(4, abs=0.4)
    assert "all distances are equal" in said(figures.simplex(points=3, dimension=2))
    assert "stay unequal" in said(figures.simplex(points=4, dimension=2))
