"""Figures of the table notebooks show the numbers they are given, in order, and leave pyplot alone."""

import math
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn import functional as F

from contrastbook import studies
from contrastbook.figures import panels, tables
from contrastbook.figures.base import CYCLE
from contrastbook.studies import collapse, crosses, epoch_time, fmicl_figure1, fmicl_tables, joint_keys, read, sweep
from contrastbook.studies.joint_keys import SAID_GOOD, ViewStatistics
from contrastlab import methods as recipes
from contrastlab import papers, tasks
from contrastlab.pictures.augmentations import augmentation
from contrastlab.tables import report, results
from contrastlab.tables.report import Estimate
from test_report import MACHINE, NOW

ROOT = Path(__file__).parents[2]


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


def test_closeness_counts_every_image_and_spreads_have_a_panel_each() -> None:
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
    apart, same = torch.linspace(0, 4, 10), torch.zeros(3)
    figure = tables.spreads({name: collapse.Spread(apart, same, 2.0) for name in "abcd"})
    used = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in used] == [f"{name}\neffective rank 2.0" for name in "abcd"]
    assert np.allclose(lines(used[3])["different images"].get_ydata(), apart)


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


def test_conjugates_stop_where_they_end_and_published_weights_do_not_mix_with_measured() -> None:
    (axes,) = tables.conjugates(fmicl_tables.SIX).axes
    for f in fmicl_tables.SIX:
        end = max(lines(axes)[f.title].get_xdata())
        assert end == pytest.approx(min(1.25, f.highest), abs=2e-3)
    panels = tables.similarities(fmicl_tables.SIX, 0.5).axes
    assert all(max(lines(panels[1])[f.title].get_xdata()) == 1 for f in fmicl_tables.SIX)
    assert [max(lines(panels[3])[f.title].get_xdata()) < 1 - 1e-9 for f in fmicl_tables.SIX] == [
        f.highest <= 1 and not f.attained for f in fmicl_tables.SIX
    ]
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


def test_the_grid_has_a_dot_for_each_combination_and_families_show_child_parents_and_floor() -> None:
    states = crosses.states(crosses.grid())
    (axes,) = tables.crosses_grid(states).axes
    (dots,) = axes.get_lines()
    assert len(dots.get_xdata()) == (states.to_numpy() == 2).sum()
    for x, y in zip(dots.get_xdata(), dots.get_ydata(), strict=True):
        assert states.iloc[int(y), int(x)] == 2
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


def test_bounds_against_hardness_have_a_step_for_each_row_and_count_what_lies_below_the_axis() -> None:
    found = studies.vince_table3.stored("paper", [ROOT / "results"])[studies.vince_table3.THEOREM]
    below = sum(row["infonce_population"] is not None and row["infonce_population"] < 1e-9 for row in found.rows)
    figure = panels.by_percent([], {"lr": (found, "infonce_population")}, title="t", scale="log")
    assert below
    assert f"lr ({below} below the axis)" in lines(figure.axes[0])
    found = studies.vince_table3.stored("paper", [ROOT / "results"])[studies.vince_table3.WRITTEN]
    figure = panels.by_percent(["best critic"], {"near y₁": (found, "train")}, title="t")
    (axes,) = figure.axes
    drawn = lines(axes)
    at_rows = drawn["exact, best critic"].get_ydata()[::10]
    np.testing.assert_allclose(at_rows, studies.vince_table3.exact()["best critic"])
    assert len(drawn["near y₁"].get_ydata()) == len(found.rows)
    assert drawn["near y₁"].get_ydata().tolist() == [row["train"] for row in found.rows]
    assert drawn["near y₁"].get_color() == CYCLE[0]
    assert not plt.get_fignums()


def test_accuracies_against_noise_are_those_stored() -> None:
    stored = studies.vince_figure6.stored("paper", [ROOT / "results"])
    figure = panels.by_noise({"paper": stored})
    shown = [axes for axes in figure.axes if axes.axison]
    assert len(shown) == len(stored)
    for axes, found in zip(shown, stored, strict=True):
        frame = studies.vince_figure6.frame(found)
        means = frame.groupby("eta")["accuracy"].mean()
        np.testing.assert_allclose(lines(axes)["paper"].get_ydata(), means)
        raw = [row["accuracy"] for row in found.rows if row["encoder"] == "raw"]
        assert lines(axes)["raw"].get_ydata()[0] == pytest.approx(np.mean(raw))
    bounds = panels.bounds_by_noise(stored, 4096).axes[0]
    for found in stored:
        means = studies.vince_figure6.frame(found).groupby("eta")["mi_bound"].mean()
        np.testing.assert_allclose(lines(bounds)[str(found.rows[0]["reading"])].get_ydata(), means)
    assert lines(bounds)["log K, the ceiling"].get_ydata()[0] == pytest.approx(np.log(4096))


def test_planes_show_every_encoder_and_views_differ_in_geometry_and_noise() -> None:
    figure = panels.views_of_spirals((0.0, 1.6), count=100)
    points = [lines(axes)["spiral 1"].get_xydata() for axes in figure.axes]
    assert len(points) == 4
    assert np.linalg.norm(points[0], axis=1).max() <= 2 < np.linalg.norm(points[1], axis=1).max()
    stored = ROOT / "results" / "vince_figure6_points"
    (path,) = stored.glob("*.json")
    drawn = read(path)
    figure = panels.planes(drawn, "t")
    seeds, etas = ({row[name] for row in drawn.rows} for name in ("seed", "eta"))
    assert len(figure.axes) == len(seeds) * len(etas)
    for axes in figure.axes:
        one = lines(axes)
        assert len(one["spiral 1"].get_xdata()) + len(one["spiral 2"].get_xdata()) == 200
        assert 50 <= float(axes.get_title().rsplit(" ", 2)[1]) <= 100


def test_averages_of_log_p_stand_with_their_line() -> None:
    pairs, log_p = fmicl_figure1.control("kernel", 2000, 5, 0)
    means = fmicl_figure1.averages(pairs, log_p)
    (axes,) = panels.by_distance({"kernel": {"exact": means}}).axes
    marks, line = axes.get_lines()
    np.testing.assert_allclose(marks.get_ydata(), means["log p"])
    slope = np.diff(line.get_ydata())[0] / np.diff(line.get_xdata())[0]
    assert slope == pytest.approx(fmicl_figure1.straight(means)[0])
    assert "R² 1.000" in str(line.get_label())


ORIGIN = results.Provenance(**MACHINE, data_fingerprint="d", data_note="", started=NOW, finished=NOW, wall_s=1.0)
VIEWS, RATES, HEAT = (papers.plan("vince", f"figure{number}") for number in (4, 7, 10))


def run(plan, column: str, method: str, seed: int, accuracy: float, bound: float | None = None) -> results.Result:
    asked = plan.select("cifar10")[column]
    settings = plan.settings("cifar10", method, "laptop", asked)
    curve = [] if bound is None else [{"epoch": 1.0, "mi_bound": -1.0}, {"epoch": 2.0, "mi_bound": bound}]
    return results.Result(
        table=plan.name, dataset="cifar10", method=method, seed=seed, profile="laptop",
        task="neighbours", task_config=tasks.get("neighbours", settings).identity(), protocol={}, items=100,
        settings=settings.model_dump(mode="json"), recipe=recipes.get(method).override(settings.overrides).describe(),
        metrics={"nn1": accuracy}, curve=curve, precision="32-true",
        provenance=ORIGIN,
    )  # fmt: skip


@pytest.mark.parametrize("profile", ["paper", "laptop", "tuned", "first", "smoke"])
def test_a_column_turns_its_knob_in_every_profile(profile: str) -> None:
    for name, column in RATES.columns.items():
        recipe = recipes.get("vince/ir_nce")
        settings = RATES.settings("cifar10", "vince/ir_nce", profile, column)
        assert recipe.override(settings.overrides).keys.rate == sweep.value(name)
    for name, column in HEAT.columns.items():
        settings = HEAT.settings("cifar10", "vince/ball_anneal", profile, column)
        assert recipes.get("vince/ball_anneal").override(settings.overrides).temperature == sweep.value(name)
    for name, column in VIEWS.columns.items():
        assert VIEWS.settings("cifar10", "vince/cmc_nce", profile, column).augmentation == name


def test_a_view_set_changes_one_thing_alone() -> None:
    plain = augmentation("none", 32)
    fields = ("scale", "ratio", "flip", "jitter", "grayscale", "blur", "randaugment")
    changed = {
        name: {field for field in fields if getattr(augmentation(name, 32), field) != getattr(plain, field)}
        for name in VIEWS.columns
    }
    assert changed["none"] == set()
    assert changed["grey"] == {"grayscale"}
    assert changed["flip"] == {"flip"}
    for name in VIEWS.columns:
        if name.startswith("jitter"):
            assert changed[name] == {"jitter"}
            assert augmentation(name, 32).jitter[:3] == (sweep.value(name),) * 3
        if name.startswith("crop"):
            assert changed[name] == {"scale", "ratio"}
    assert augmentation("crop0.2", 32).scale == (0.2, 1.0)
    assert augmentation("crop0.04to0.3", 32).scale == (0.04, 0.3)


def test_a_line_for_each_run_with_its_last_bound_and_none_of_nothing() -> None:
    made = [
        run(RATES, "alpha0", "vince/ir_nce", 0, 30.0, 2.0), run(RATES, "alpha0", "vince/ir_nce", 1, 34.0, 2.5),
        run(RATES, "alpha0.9", "vince/ir_nce", 0, 40.0, 1.5), run(RATES, "alpha0.9", "ours/random", 0, 25.0),
    ]  # fmt: skip
    lines = sweep.frame(RATES, made, "cifar10", "laptop")
    trained = lines[lines["method"] == "vince/ir_nce"]
    assert trained[["column", "seed", "accuracy", "bound"]].to_numpy().tolist() == [
        ["alpha0", 0, 30.0, 2.0], ["alpha0", 1, 34.0, 2.5], ["alpha0.9", 0, 40.0, 1.5],
    ]  # fmt: skip
    # an untrained encoder has no bank, and is the same in every column
    random = lines[lines["method"] == "ours/random"]
    assert random["column"].tolist() == list(RATES.columns)
    assert random["bound"].isna().all()
    # no column takes the runs of another
    other = sweep.frame(RATES, made, "cifar10", "laptop", "alpha0.25")
    assert other["method"].tolist() == ["ours/random"]

    drawn = tables.by_value(lines, "α", "cifar10, laptop")
    curve = next(line for line in drawn.axes[0].lines if list(line.get_xdata()) == [0.0, 0.9])
    assert list(curve.get_ydata()) == [32.0, 40.0]
    assert "IR^nce is highest at 0.9" in drawn.get_label()

    points = tables.against_bound(lines, "cifar10, laptop").axes[0]
    dots = {(x, y) for line in points.lines if line.get_marker() == "o" for x, y in line.get_xydata()}
    assert dots == {(2.25, 32.0), (1.5, 40.0)}
    assert {text.get_text() for text in points.texts} == {"alpha0", "alpha0.9"}
    floor = next(line for line in points.lines if line.get_linestyle() == "--")
    assert set(floor.get_ydata()) == {25.0}
    lines = sweep.frame(HEAT, [], "cifar10", "laptop")
    assert tables.by_value(lines, "τ", "cifar10, laptop", logarithmic=True).get_label().endswith("Nothing run.")
    tables.against_bound(lines, "cifar10, laptop").canvas.draw()
