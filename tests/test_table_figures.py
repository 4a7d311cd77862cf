"""Figures of the table notebooks show the numbers they are given, in order, and leave pyplot alone."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn import functional as F

from contrastbook.figures import tables
from contrastbook.studies import collapse, crosses, epoch_time, fmicl_tables, joint_keys
from contrastbook.studies.joint_keys import SAID_GOOD, ViewStatistics
from contrastlab import papers, report, results
from contrastlab.report import Estimate

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def pyplot_is_left_alone():
    yield
    assert not plt.get_fignums()


def lines(axes: plt.Axes) -> dict[str, plt.Line2D]:
    return {str(line.get_label()): line for line in axes.get_lines()}


def bars(axes: plt.Axes) -> dict[str, plt.Line2D]:
    """Markers of axes.errorbar by label."""
    return {str(each.get_label()): each.lines[0] for each in axes.containers}


def with_numbers(paper: str, table: str, values: dict[str, Estimate]) -> report.Report:
    empty = report.table(papers.plan(paper, table), [], "shapes" if table.startswith("f") else "cifar10", "laptop")
    rows = tuple(replace(row, measured=values.get(row.method)) for row in empty.rows)
    return replace(empty, rows=rows)


def test_epochs_of_rings() -> None:
    stored = results.find(ROOT / "results", dataset="cifar10", profile="pilot")
    cost = epoch_time.epoch_cost(papers.plan("ring", 1), stored, "cifar10", "pilot")
    figure = tables.epoch_ratios(("cifar10", "pilot", cost), ("again", "pilot", cost))
    assert [axes.get_title() for axes in figure.axes] == ["cifar10, pilot", "again, pilot"]
    for axes in figure.axes:
        for name, drawn in bars(axes).items():
            assert list(drawn.get_xdata()) == list(cost.loc[["IRing", "MoCoRing"], name])
    nothing = epoch_time.epoch_cost(papers.plan("ring", 1), [], "cifar10", "pilot")
    tables.epoch_ratios(("cifar10", "pilot", nothing)).canvas.draw()


def test_averages_and_sweeps() -> None:
    found = joint_keys.averages(draws=20, most=16)
    (axes,) = tables.averages(found).axes
    assert list(lines(axes)["mean over the draws"].get_ydata()) == list(found.frame["mean"])
    for strength, value in found.closed.items():
        (name,) = (name for name in lines(axes) if name.startswith(f"closed form, λ = {strength:g}"))
        assert lines(axes)[name].get_ydata()[0] == value
    sweep = joint_keys.sweep(math.log(64))
    one, other = tables.covariance(few=sweep, many_keys=2 * sweep).axes
    assert other.get_title() == "many keys"
    for name in sweep:
        assert list(lines(one)[name].get_ydata()) == list(sweep[name])
        assert list(lines(other)[name].get_ydata()) == list(2 * sweep[name])


def test_ablations_put_a_method_at_its_place() -> None:
    values = {name: Estimate(float(k), None, 1, 0.5) for k, name in enumerate(papers.plan("jcl", "figure2").rows)}
    table = with_numbers("jcl", "figure2", {**values, "ours/random": Estimate(7.5, None, 1)})
    figure = tables.ablations(table, SAID_GOOD)
    for axes, (name, (places, _)) in zip(figure.axes, SAID_GOOD.items(), strict=True):
        assert axes.get_xlabel() == name
        drawn = bars(axes)["JCL"]
        assert list(drawn.get_xdata()) == list(places.values())
        assert list(drawn.get_ydata()) == [values[method].mean for method in places]
        assert lines(axes)["random encoder"].get_ydata()[0] == 7.5
    assert "laptop" in figure.axes[0].get_ylabel()
    tables.ablations(with_numbers("jcl", "figure2", {}), SAID_GOOD).canvas.draw()


def test_closeness_counts_every_image() -> None:
    draw = torch.Generator().manual_seed(0)
    z = [F.normalize(torch.randn(30, 4, 6, generator=draw, dtype=torch.float64), dim=2) for _ in "ab"]
    numbers = {label: {"embedding": ViewStatistics.of(x)} for label, x in zip("ab", z, strict=True)}
    figure = tables.closeness(numbers, "30 images")
    assert len(figure.axes) == 2
    for axes in figure.axes:
        for patch in axes.patches:  # outlines of histograms: steps up and down
            heights = patch.get_xy()[:, 1]
            assert heights.max() <= 30
        assert len(axes.patches) == 2


def test_loss_curves_run_from_one_to_nought() -> None:
    stored = results.find(ROOT / "results", table="fmicl/table2", dataset="cifar10", profile="pilot", seed=0)
    plan = papers.plan("fmicl", "2")
    rows = [name for name in plan.rows if any(r.method == name and len(r.curve) > 1 for r in stored)]
    (axes,) = tables.loss_curves(stored, plan, ["fmicl/spectral", *rows], "cifar10").axes
    assert list(lines(axes)) == [plan.label(name) for name in rows]
    for line in axes.get_lines():
        y = np.asarray(line.get_ydata())
        assert y.min() == 0
        assert y.max() <= 1 or y.argmax() > 0  # a loss may rise above where it began
    (empty,) = tables.loss_curves([], plan, rows, "").axes
    assert not empty.get_lines()


def test_spreads_have_a_panel_each() -> None:
    apart, same = torch.linspace(0, 4, 10), torch.zeros(3)
    figure = tables.spreads({name: collapse.Spread(apart, same, 2.0) for name in "abcd"})
    used = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in used] == [f"{name}\neffective rank 2.0" for name in "abcd"]
    assert np.allclose(lines(used[3])["different images"].get_ydata(), apart)


def test_conjugates_stop_where_they_end() -> None:
    (axes,) = tables.conjugates(fmicl_tables.SIX).axes
    for f in fmicl_tables.SIX:
        end = max(lines(axes)[f.title].get_xdata())
        assert end == pytest.approx(min(1.25, f.highest), abs=2e-3)
    panels = tables.similarities(fmicl_tables.SIX, 0.5).axes
    assert all(max(lines(panels[1])[f.title].get_xdata()) == 1 for f in fmicl_tables.SIX)
    assert [max(lines(panels[3])[f.title].get_xdata()) < 1 - 1e-9 for f in fmicl_tables.SIX] == [
        f.highest <= 1 and not f.attained for f in fmicl_tables.SIX
    ]


def test_published_and_measured_weights_do_not_mix() -> None:
    table = with_numbers("fmicl", "8", {"fmicl/kl": Estimate(50.0, None, 1, 2.0)})
    frame = fmicl_tables.accuracy(table)
    (published,) = tables.weights(frame, 7.0, "t", measured=False).axes
    (measured,) = tables.weights(frame, 7.0, "t", measured=True, floor=20.0).axes
    assert len(bars(published)["JS"].get_xdata()) == 7
    assert list(bars(measured)["KL"].get_ydata()) == [50.0]
    assert len(bars(measured)["JS"].get_ydata()) == 0
    assert lines(measured)["untrained encoder"].get_ydata()[0] == 20
    assert published.get_ylabel().endswith("published")
    assert measured.get_ylabel().endswith("measured")


def test_the_grid_has_a_dot_for_each_published_combination() -> None:
    states = crosses.states(crosses.grid())
    (axes,) = tables.crosses_grid(states).axes
    (dots,) = axes.get_lines()
    assert len(dots.get_xdata()) == (states.to_numpy() == 2).sum()
    for x, y in zip(dots.get_xdata(), dots.get_ydata(), strict=True):
        assert states.iloc[int(y), int(x)] == 2


def test_families_show_child_parents_and_floor() -> None:
    chosen = dict(list(crosses.CROSSES.items())[:2])
    names = {n for c, cross in chosen.items() for n in (c, *cross.parents, crosses.floor(c))}
    rows = [
        {"name": n, "seed": 0, "linear": k, "knn200": 2.0 * k, "test_images": 9} for k, n in enumerate(sorted(names))
    ]
    family = crosses.family(pd.DataFrame(rows).set_index(["name", "seed"]), chosen)
    for axes, metric in zip(tables.families(family).axes, ("linear", "knn200"), strict=True):
        drawn = [float(line.get_xdata()[0]) for line in axes.get_lines()]
        order = ["parent", "parent", "random", "child"]
        expected = [v for c in dict.fromkeys(family.index.get_level_values("cross"))
                    for role in dict.fromkeys(order) for v in family.loc[(c, role), metric].tolist()]  # fmt: skip
        assert drawn == expected
