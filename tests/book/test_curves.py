"""Learning curves: which points are drawn, and what the line and the band are."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from contrastbook.evidence import bound, curves, inference
from contrastbook.figures.results import bound_scatter, learning_curves
from contrastlab import papers
from test_report import PLAN, result

COLUMN = PLAN.select("cifar10")["cifar10"]


def run(method: str, seed: int, losses: list[float], **measures: list[float]):
    named = {"loss": losses, **measures}
    points = [{"epoch": k + 1.0} | {name: v[k] for name, v in named.items() if k < len(v)} for k in range(len(losses))]
    return result(method, seed, 50.0).model_copy(update={"curve": points})


RUNS = [
    run("ring/ir", 0, [3.0, 2.0]), run("ring/ir", 1, [5.0, 2.5]),
    run("ring/iring", 0, [4.0, 3.0]), run("ring/iring", 1, [4.5, 3.5]), run("ring/iring", 2, [6.5, 1.0]),
]  # fmt: skip


def lines(axes):
    return {line.get_label(): line for line in axes.lines}


def test_the_line_is_the_mean_and_the_band_goes_from_least_to_most_of_what_both_rows_have() -> None:
    drawn = learning_curves(PLAN, curves.frame(PLAN, COLUMN, RUNS, "paper"))
    assert drawn is not None
    (axes,) = (a for a in drawn.axes if a.get_visible())
    assert axes.get_ylabel() == "loss (nats)"
    shown = lines(axes)
    assert shown["IR (2 seeds)"].get_ydata().tolist() == [4.0, 2.25]
    assert shown["IRing (3 seeds)"].get_ydata().tolist() == pytest.approx([5.0, 2.5])
    assert shown["IR (2 seeds)"].get_xdata().tolist() == [1, 2]
    corners = {tuple(v) for v in axes.collections[0].get_paths()[0].vertices.tolist()}
    assert {(1, 4.0), (1, 6.5), (2, 1.0), (2, 3.5)} <= corners
    assert "IRing ends at 2.50 loss (nats)" in drawn.get_label()
    seen = [run(m, s, [2.0, 1.0], nn1=[30.0 + s]) for m in ("ring/ir", "ring/iring") for s in range(2)]
    drawn = learning_curves(PLAN, curves.frame(PLAN, COLUMN, seen, "paper"))
    assert drawn is not None
    assert drawn.axes[0].get_ylabel() == "1-NN accuracy (%)"
    assert lines(drawn.axes[0])["IR (2 seeds)"].get_ydata().tolist() == [30.5]
    drawn = learning_curves(PLAN, curves.frame(PLAN, COLUMN, [*seen[:2], *RUNS[2:]], "paper"))
    assert drawn is not None
    assert drawn.axes[0].get_ylabel() == "loss (nats)"


def test_a_single_seed_or_a_single_arm_has_no_curve() -> None:
    for few in (RUNS[1:], RUNS[2:], []):
        assert learning_curves(PLAN, curves.frame(PLAN, COLUMN, few, "paper")) is None
    # a loss of two kinds of objective has no common axis, an accuracy has
    plan = papers.plan("fmicl", 2)
    both = ["fmicl/kl", "fmicl/simclr"]
    made = [(m, m, s, 1, name, 1.0) for m in both for s in range(2) for name in ("loss", "nn1")]
    points = pd.DataFrame(made, columns=["method", "label", "seed", "epoch", "measure", "value"])
    assert learning_curves(plan, points[points["measure"] == "loss"]) is None
    drawn = learning_curves(plan, points)
    assert drawn is not None
    assert drawn.axes[0].get_ylabel() == "1-NN accuracy (%)"
    # runs of another protocol are in another picture
    assert curves.frame(PLAN, COLUMN, RUNS, "laptop").empty


def test_a_run_counts_once_with_the_bound_of_its_last_epoch() -> None:
    curve = [{"epoch": 1, "loss": 5.0, "mi_bound": 1.0}, {"epoch": 2, "loss": 4.0, "mi_bound": 2.5}]
    with_bound = result("ring/ir", 0, 60.0).model_copy(update={"curve": curve})
    ring = result("ring/iring", 0, 61.0)  # stored before it was known to bound nothing
    theirs = with_bound.model_copy(update={"method": "mine/of_another_process"})
    lines = bound.frame([with_bound, with_bound, ring, ring.model_copy(update={"curve": curve}), theirs])
    assert lines[["method", "bound", "accuracy"]].to_numpy().tolist() == [["ring/ir", 2.5, 60.0]]
    assert bound.frame([]).empty
    bound_scatter(bound.frame([])).canvas.draw()


def made(bounds: list[float], accuracies: list[float]) -> pd.DataFrame:
    pairs = enumerate(zip(bounds, accuracies, strict=True))
    rows = [("d", "p", f"m{k}", f"M{k}", s, b + s / 100, a - s / 100) for k, (b, a) in pairs for s in range(3)]
    return pd.DataFrame(rows, columns=["dataset", "profile", "method", "label", "seed", "bound", "accuracy"])


def test_the_correlation_is_spearmans_over_methods_and_the_picture_says_it() -> None:
    draw = np.random.default_rng(3)
    x = draw.normal(size=12)
    y = x + draw.normal(size=12)
    rho, low, high = inference.correlation(x.tolist(), y.tolist())
    assert rho == pytest.approx(stats.spearmanr(x, y).statistic)
    assert low < rho < high
    # the bootstrap, one draw at a time
    generator = np.random.default_rng(0)
    each = [stats.spearmanr(x[i], y[i]).statistic for i in generator.integers(12, size=(2000, 12))[:300]]
    assert low == pytest.approx(np.quantile(each, 0.025), abs=0.12)
    assert high == pytest.approx(np.quantile(each, 0.975), abs=0.08)
    assert inference.correlation([1, 2, 3, 4, 5], [1, 2, 3, 4, 5])[0] == pytest.approx(1)
    assert all(math.isnan(value) for value in inference.correlation([1, 2, 3], [1, 2, 3]))
    figure = bound_scatter(made([1, 2, 3, 4, 5], [5, 4, 3, 2, 1]))
    (axes,) = figure.axes
    assert "rank correlation over methods −1.00" in axes.get_title(loc="left")
    assert "15 runs" in figure.get_label()
    assert len(axes.lines) == 5
    assert bound.telling(made([1, 2, 3, 4, 5], [5, 4, 3, 2, 1])).empty
    assert len(bound.telling(made(x.tolist(), y.tolist()))) == 36
