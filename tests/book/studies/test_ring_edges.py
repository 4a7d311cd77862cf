"""The sweep of a ring's edges: which negatives a pair of edges means, and what is stored of a run."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from contrastbook.figures import edges
from contrastbook.studies import ring_edges
from contrastlab import data
from contrastlab.domains.features.write import write_features
from contrastlab.negatives import Ball, Ring, Uniform
from contrastlab.pictures.augmentations import Augmentation
from contrastlab.support.errors import ArgumentError, MissingDataError
from made_runs import quiet


def test_edges_are_those_of_uniform_negatives_a_ball_or_a_ring() -> None:
    assert ring_edges.recipe_of(0, 100).negatives == Uniform(4095)
    assert ring_edges.recipe_of(0, 25).negatives == Ball(25, k=4095)
    assert ring_edges.recipe_of(2, 25).negatives == Ring(2, 25, k=4095)
    assert len(set(ring_edges.EDGES)) == len(ring_edges.EDGES) == 13
    assert all(inner < outer for inner, outer in ring_edges.EDGES)


def test_a_run_is_measured_once_and_read_back(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU())
    views = Augmentation("crop", 8, resize=8)
    folder = write_features(network, data.load("digits"), tmp_path / "digits", views, views=2, log=quiet)
    with pytest.raises(MissingDataError, match="nothing of the study ring_edges"):
        ring_edges.table([tmp_path])
    for inner in (0, 1):
        measured = ring_edges.study(inner, 25, f"features:{folder}", "smoke", 3, out_dir=tmp_path)
    (row,) = measured.rows
    assert (row["inner"], row["outer"], row["seed"], row["test_items"]) == (1, 25, 3, 300)
    again = ring_edges.study(1, 25, f"features:{folder}", "smoke", 3, out_dir=tmp_path)
    assert again.provenance == measured.provenance
    table = ring_edges.table([tmp_path, tmp_path], "smoke")  # each run once, though both folders have it
    assert list(table.index) == [(0, 25, 3), (1, 25, 3)]
    # ten classes alike in number: shares fall from the closest to all
    shares = table.loc[(1, 25, 3), [f"own_class_{percent}" for percent in ring_edges.SHARES]]
    assert shares.is_monotonic_decreasing
    assert 10 < shares.iloc[-1] < shares.iloc[0] <= 100


def test_the_share_between_two_edges_is_that_of_counted_keys() -> None:
    generator = torch.Generator().manual_seed(0)
    is_own = torch.rand(1000, generator=generator) < torch.linspace(0.9, 0.05, 1000)
    row = pd.Series({f"own_class_{p}": 100 * float(is_own[: 10 * p].double().mean()) for p in ring_edges.SHARES})
    for inner, outer in ((0, 1), (1, 10), (2, 5), (10, 50)):
        between = is_own[10 * inner : 10 * outer].double().mean()
        assert edges.own_class_between(row, inner, outer) == pytest.approx(100 * float(between))


def test_the_figure_shows_gains_over_uniform_negatives() -> None:
    rows = []
    for inner, outer in ring_edges.EDGES:
        for seed in range(4):
            shares = {f"own_class_{percent}": 60 - percent for percent in ring_edges.SHARES}
            linear = 70 + seed + inner + 0.01 * outer
            rows.append({"inner": inner, "outer": outer, "seed": seed, "linear": linear, **shares})
    figure = edges.accuracy_by_edges(pd.DataFrame(rows).set_index(["inner", "outer", "seed"]).sort_index())
    assert "by their outer edge" in figure.get_label()  # words for those who do not see it
    by_outer, by_inner, shares_axes = figure.axes
    ball, ring = (line for line in by_outer.lines if line.get_label() in ("ball, from 0 %", "ring, from 1 %"))
    np.testing.assert_allclose(ball.get_ydata(), [0.01 * (outer - 100) for outer in ring_edges.OUTER], atol=1e-9)
    np.testing.assert_allclose(ring.get_ydata(), [1 + 0.01 * (outer - 100) for outer in ring_edges.OUTER], atol=1e-9)
    (line,) = (line for line in by_inner.lines if line.get_label() == "to 25 %")
    np.testing.assert_allclose(line.get_ydata(), [inner - 0.75 for inner in ring_edges.INNER], atol=1e-9)
    assert shares_axes.patches[0].get_height() == pytest.approx(59)


@pytest.fixture
def swept() -> pd.DataFrame:
    """Two seeds of every pair of edges, in which a seed's accuracy is 70 more than its inner edge."""
    rows = []
    for inner, outer in ring_edges.EDGES:
        for seed in range(2):
            shares = {f"own_class_{percent}": 60 - percent for percent in ring_edges.SHARES}
            rows.append({"inner": inner, "outer": outer, "seed": seed, "linear": 70.0 + inner, **shares})
    return pd.DataFrame(rows).set_index(["inner", "outer", "seed"]).sort_index()


def test_a_ring_skips_the_keys_within_its_inner_edge(swept: pd.DataFrame) -> None:
    (bars,) = edges.skipped(2, measured=swept).data
    assert bars.x == ("0–1", "1–2", "2–5", "5–10", "10–25")
    pale = edges.COLOURS["ignored"]
    assert [colour == pale for colour in bars.marker.color] == [True, True, False, False, False]
    assert bars.y[:2] == pytest.approx([59, 57])
    # 2 % of the keys, 58 % of them of the class, which is a tenth of all
    assert edges.skipped(2, measured=swept).layout.title.text == "Skips 12 % of the query's class: +2.00 points"
    assert edges.skipped(0, measured=swept).layout.title.text == "Skips 0 % of the query's class: +0.00 points"
    with pytest.raises(ArgumentError, match=r"^inner=3: "):
        edges.skipped(3, measured=swept)


def test_gains_without_own_keys_are_differences_of_one_seed() -> None:
    rows = []
    for seed in range(3):
        for method, own, linear in (
            ("ring/moco", True, 70.0), ("ring/moco", False, 70.5), ("ring/mocoring", True, 71.0),
            ("ring/mocoring", False, 71.25 + seed),
        ):  # fmt: skip
            rows.append({"method": method, "own_keys": own, "seed": seed, "linear": linear + seed**2})
    measured = pd.DataFrame(rows).set_index(["method", "own_keys", "seed"]).sort_index()
    gains = edges.own_key_gains(measured)
    assert [each.tolist() for each in gains.values()] == [[0.5] * 3, [1.0] * 3, [0.75, 1.75, 2.75]]
    figure = edges.without_own_keys(measured)
    assert "MoCoRing, above MoCo: +1.00 points" in figure.get_label()
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == list(edges.COMPARISONS)
