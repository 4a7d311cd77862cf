"""Panels of the study notebooks show the rows they are given."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

from contrastbook.figures import COLOURS, panels
from contrastbook.studies import fmicl_figure1, read, vince_figure6, vince_table3
from contrastlab.errors import UnknownNameError

RESULTS = Path(__file__).parents[1] / "results"


def lines(axes: plt.Axes) -> dict[str, plt.Line2D]:
    return {str(line.get_label()): line for line in axes.get_lines()}


def test_bounds_against_hardness_have_a_step_for_each_row() -> None:
    found = vince_table3.stored("paper", [RESULTS])[vince_table3.WRITTEN]
    figure = panels.by_percent(["best critic"], {"near y₁": (found, "train")}, title="t")
    (axes,) = figure.axes
    drawn = lines(axes)
    at_rows = drawn["exact, best critic"].get_ydata()[::10]
    np.testing.assert_allclose(at_rows, vince_table3.exact()["best critic"])
    assert len(drawn["near y₁"].get_ydata()) == len(found.rows)
    assert drawn["near y₁"].get_ydata().tolist() == [row["train"] for row in found.rows]
    assert drawn["near y₁"].get_color() == COLOURS["negative"]
    assert not plt.get_fignums()
    with pytest.raises(UnknownNameError, match="best critic"):
        panels.by_percent(["best critics"], title="t")


def test_what_lies_below_the_axis_is_counted() -> None:
    found = vince_table3.stored("paper", [RESULTS])[vince_table3.THEOREM]
    below = sum(row["infonce_population"] is not None and row["infonce_population"] < 1e-9 for row in found.rows)
    figure = panels.by_percent([], {"lr": (found, "infonce_population")}, title="t", scale="log")
    assert below
    assert f"lr ({below} below the axis)" in lines(figure.axes[0])


def test_accuracies_against_noise_are_those_stored() -> None:
    stored = vince_figure6.stored("paper", [RESULTS])
    figure = panels.by_noise({"paper": stored})
    shown = [axes for axes in figure.axes if axes.axison]
    assert len(shown) == len(stored)
    for axes, found in zip(shown, stored, strict=True):
        frame = vince_figure6.frame(found)
        means = frame.groupby("eta")["accuracy"].mean()
        np.testing.assert_allclose(lines(axes)["paper"].get_ydata(), means)
        raw = [row["accuracy"] for row in found.rows if row["encoder"] == "raw"]
        assert lines(axes)["raw"].get_ydata()[0] == pytest.approx(np.mean(raw))
    bounds = panels.bounds_by_noise(stored, 4096).axes[0]
    for found in stored:
        means = vince_figure6.frame(found).groupby("eta")["mi_bound"].mean()
        np.testing.assert_allclose(lines(bounds)[str(found.rows[0]["reading"])].get_ydata(), means)
    assert lines(bounds)["log K, the ceiling"].get_ydata()[0] == pytest.approx(np.log(4096))


def test_planes_show_every_encoder_and_its_line() -> None:
    stored = RESULTS / "vince_figure6_points"
    (path,) = stored.glob("*.json")
    drawn = read(path)
    figure = panels.planes(drawn, "t")
    seeds, etas = ({row[name] for row in drawn.rows} for name in ("seed", "eta"))
    assert len(figure.axes) == len(seeds) * len(etas)
    for axes in figure.axes:
        one = lines(axes)
        assert len(one["spiral 1"].get_xdata()) + len(one["spiral 2"].get_xdata()) == 200
        assert 50 <= float(axes.get_title().rsplit(" ", 2)[1]) <= 100


def test_views_of_spirals_differ_in_geometry_and_noise() -> None:
    figure = panels.views_of_spirals((0.0, 1.6), count=100)
    points = [lines(axes)["spiral 1"].get_xydata() for axes in figure.axes]
    assert len(points) == 4
    assert np.linalg.norm(points[0], axis=1).max() <= 2 < np.linalg.norm(points[1], axis=1).max()


def test_averages_of_log_p_stand_with_their_line() -> None:
    pairs, log_p = fmicl_figure1.control("kernel", 2000, 5, 0)
    means = fmicl_figure1.averages(pairs, log_p)
    (axes,) = panels.by_distance({"kernel": {"exact": means}}).axes
    marks, line = axes.get_lines()
    np.testing.assert_allclose(marks.get_ydata(), means["log p"])
    slope = np.diff(line.get_ydata())[0] / np.diff(line.get_xdata())[0]
    assert slope == pytest.approx(fmicl_figure1.straight(means)[0])
    assert "R² 1.000" in str(line.get_label())
