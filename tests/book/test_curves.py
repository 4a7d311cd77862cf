"""Learning curves: which points are drawn, and what the line and the band are."""

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from contrastbook.evidence import bound, curves, inference
from contrastbook.figures.results import bound_scatter, learning_curves
from contrastlab import papers
from contrastlab.tables.results import Result
from test_report import PLAN, result

COLUMN = PLAN.select("cifar10")["cifar10"]


def run(method: str, seed: int, losses: list[float], accuracies: Sequence[float] = ()) -> Result:
    """A stored run with a loss for each epoch, and a 1-NN accuracy for the first ones."""
    curve = [{"epoch": float(epoch), "loss": loss} for epoch, loss in enumerate(losses, start=1)]
    for point, accuracy in zip(curve, accuracies, strict=False):
        point["nn1"] = accuracy
    return result(method, seed, 50.0).model_copy(update={"curve": curve})


IR = [run("ring/ir", 0, [3.0, 2.0]), run("ring/ir", 1, [5.0, 2.5])]
IRING = [
    run("ring/iring", 0, [4.0, 3.0]),
    run("ring/iring", 1, [4.5, 3.5]),
    run("ring/iring", 2, [6.5, 1.0]),
]


def drawn(results: Sequence[Result]) -> Figure | None:
    lines = curves.frame(PLAN, COLUMN, results, "paper")
    return learning_curves(PLAN, lines)


def panel(figure: Figure | None) -> Axes:
    """The one panel that is shown."""
    assert figure is not None
    (axes,) = (axes for axes in figure.axes if axes.get_visible())
    return axes


def line(axes: Axes, label: str) -> list[tuple[float, float]]:
    """Epochs and values of the line with this label."""
    by_label = {line.get_label(): line for line in axes.lines}
    return [(float(x), float(y)) for x, y in by_label[label].get_xydata()]


def test_the_line_is_the_mean_and_the_band_goes_from_least_to_most_of_what_both_rows_have() -> None:
    figure = drawn([*IR, *IRING])
    axes = panel(figure)
    assert axes.get_ylabel() == "loss (nats)"
    assert line(axes, "IR (2 seeds)") == [(1, 4.0), (2, 2.25)]
    assert line(axes, "IRing (3 seeds)") == [(1, pytest.approx(5.0)), (2, pytest.approx(2.5))]
    band_of_iring, _ = axes.collections
    (path,) = band_of_iring.get_paths()
    corners = {(x, y) for x, y in path.vertices.tolist()}
    assert {(1, 4.0), (1, 6.5), (2, 1.0), (2, 3.5)} <= corners
    assert "IRing ends at 2.50 loss (nats)" in figure.get_label()

    ir_with_accuracy = [run("ring/ir", seed, [2.0, 1.0], [30.0 + seed]) for seed in (0, 1)]
    iring_with_accuracy = [run("ring/iring", seed, [2.0, 1.0], [30.0 + seed]) for seed in (0, 1)]
    both_have_it = panel(drawn([*ir_with_accuracy, *iring_with_accuracy]))
    assert both_have_it.get_ylabel() == "1-NN accuracy (%)"
    assert line(both_have_it, "IR (2 seeds)") == [(1, 30.5)]
    one_has_it = panel(drawn([*ir_with_accuracy, *IRING]))
    assert one_has_it.get_ylabel() == "loss (nats)"


def test_a_single_seed_or_a_single_arm_has_no_curve() -> None:
    """Neither have runs of another protocol, nor losses of two kinds of objective, which have no common axis."""
    one_seed_of_ir = [*IR[1:], *IRING]
    assert drawn(one_seed_of_ir) is None
    assert drawn(IRING) is None
    assert drawn([]) is None
    assert curves.frame(PLAN, COLUMN, [*IR, *IRING], "laptop").empty

    plan = papers.plan("fmicl", 2)
    rows = []
    for method, seed, measure in product(("fmicl/kl", "fmicl/simclr"), (0, 1), ("loss", "nn1")):
        rows.append({"method": method, "label": method, "seed": seed, "epoch": 1, "measure": measure, "value": 1.0})
    points = pd.DataFrame(rows)
    losses = points[points["measure"] == "loss"]
    assert learning_curves(plan, losses) is None
    with_accuracy = learning_curves(plan, points)
    assert with_accuracy is not None
    assert with_accuracy.axes[0].get_ylabel() == "1-NN accuracy (%)"


def test_a_run_counts_once_with_the_bound_of_its_last_epoch() -> None:
    """A run of a ring with a curve was stored before it was known to bound nothing, and a method of mine is unknown."""
    curve = [{"epoch": 1, "loss": 5.0, "mi_bound": 1.0}, {"epoch": 2, "loss": 4.0, "mi_bound": 2.5}]
    ir = result("ring/ir", 0, 60.0).model_copy(update={"curve": curve})
    ring = result("ring/iring", 0, 61.0)
    ring_with_curve = ring.model_copy(update={"curve": curve})
    mine = ir.model_copy(update={"method": "mine/of_another_process"})
    lines = bound.frame([ir, ir, ring, ring_with_curve, mine])
    assert len(lines) == 1
    assert lines["method"][0] == "ring/ir"
    assert lines["bound"][0] == 2.5
    assert lines["accuracy"][0] == 60.0
    nothing = bound.frame([])
    assert nothing.empty
    bound_scatter(nothing).canvas.draw()


def made(bounds: Sequence[float], accuracies: Sequence[float]) -> pd.DataFrame:
    """Three runs of each of some methods of one data set, around its bound and its accuracy."""
    rows = []
    for number, (of_bound, of_accuracy) in enumerate(zip(bounds, accuracies, strict=True)):
        for seed in range(3):
            rows.append(
                {
                    "dataset": "d",
                    "profile": "p",
                    "method": f"m{number}",
                    "label": f"M{number}",
                    "seed": seed,
                    "bound": of_bound + seed / 100,
                    "accuracy": of_accuracy - seed / 100,
                }
            )
    return pd.DataFrame(rows)


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    return float(stats.spearmanr(x, y).statistic)


def test_the_correlation_is_spearmans_over_methods_and_the_picture_says_it() -> None:
    draw = np.random.default_rng(3)
    x = draw.normal(size=12)
    y = x + draw.normal(size=12)
    rho, low, high = inference.correlation(x.tolist(), y.tolist())
    assert rho == pytest.approx(spearman(x, y))
    assert low < rho < high
    # the bootstrap, one draw at a time
    picks = np.random.default_rng(0).integers(12, size=(2000, 12))
    each = [spearman(x[pick], y[pick]) for pick in picks[:300]]
    assert low == pytest.approx(np.quantile(each, 0.025), abs=0.12)
    assert high == pytest.approx(np.quantile(each, 0.975), abs=0.08)
    of_same, _, _ = inference.correlation([1, 2, 3, 4, 5], [1, 2, 3, 4, 5])
    assert of_same == pytest.approx(1)
    of_three = inference.correlation([1, 2, 3], [1, 2, 3])
    assert all(math.isnan(value) for value in of_three)

    five_methods = made([1, 2, 3, 4, 5], [5, 4, 3, 2, 1])
    figure = bound_scatter(five_methods)
    (axes,) = figure.axes
    assert "rank correlation over methods −1.00" in axes.get_title(loc="left")
    assert "15 runs" in figure.get_label()
    assert len(axes.lines) == 5
    assert bound.telling(five_methods).empty
    six_methods = made(x[:6], y[:6])
    assert len(bound.telling(six_methods)) == 6 * 3
