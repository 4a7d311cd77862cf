"""Bound against accuracy: which runs count, and a correlation over methods."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from contrastbook.evidence import bound
from test_report import result


def test_a_run_counts_once_with_the_bound_of_its_last_epoch() -> None:
    curve = [{"epoch": 1, "loss": 5.0, "mi_bound": 1.0}, {"epoch": 2, "loss": 4.0, "mi_bound": 2.5}]
    run = result("ring/ir", 0, 60.0)
    with_bound = run.model_copy(update={"curve": curve})
    ring = result("ring/iring", 0, 61.0)  # stored before it was known to bound nothing
    theirs = with_bound.model_copy(update={"method": "mine/of_another_process"})
    lines = bound.frame([with_bound, with_bound, ring, ring.model_copy(update={"curve": curve}), theirs])
    assert lines[["method", "bound", "accuracy"]].to_numpy().tolist() == [["ring/ir", 2.5, 60.0]]
    assert bound.frame([]).empty
    bound.scatter(bound.frame([])).canvas.draw()


def made(bounds: list[float], accuracies: list[float]) -> pd.DataFrame:
    pairs = enumerate(zip(bounds, accuracies, strict=True))
    rows = [("d", "p", f"m{k}", f"M{k}", s, b + s / 100, a - s / 100) for k, (b, a) in pairs for s in range(3)]
    return pd.DataFrame(rows, columns=["dataset", "profile", "method", "label", "seed", "bound", "accuracy"])


def test_the_correlation_is_spearmans_over_methods() -> None:
    draw = np.random.default_rng(3)
    x = draw.normal(size=12)
    y = x + draw.normal(size=12)
    rho, low, high = bound.correlation(made(x.tolist(), y.tolist()))
    assert rho == pytest.approx(stats.spearmanr(x, y).statistic)
    assert low < rho < high
    # the bootstrap, one draw at a time
    generator = np.random.default_rng(0)
    each = [stats.spearmanr(x[i], y[i]).statistic for i in generator.integers(12, size=(2000, 12))[:300]]
    assert low == pytest.approx(np.quantile(each, 0.025), abs=0.12)
    assert high == pytest.approx(np.quantile(each, 0.975), abs=0.08)
    assert bound.correlation(made([1, 2, 3, 4, 5], [1, 2, 3, 4, 5]))[0] == pytest.approx(1)
    assert all(math.isnan(v) for v in bound.correlation(made([1, 2, 3], [1, 2, 3])))


def test_the_picture_says_in_words_what_it_shows() -> None:
    figure = bound.scatter(made([1, 2, 3, 4, 5], [5, 4, 3, 2, 1]))
    (axes,) = figure.axes
    assert "rank correlation over methods −1.00" in axes.get_title(loc="left")
    assert "15 runs" in figure.get_label()
    assert len(axes.lines) == 5
