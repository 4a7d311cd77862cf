"""The sweep of a ring's edges: which negatives a pair of edges means, and what is stored of a run."""

from pathlib import Path

import pytest
import torch
from torch import nn

from contrastbook.studies import ring_edges
from contrastlab import data
from contrastlab.domains.features.write import write_features
from contrastlab.negatives import Ball, Ring, Uniform
from contrastlab.pictures.augmentations import Augmentation
from contrastlab.support.errors import MissingDataError
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
    with pytest.raises(MissingDataError, match="no sweep"):
        ring_edges.table([tmp_path])
    for inner in (0, 1):
        measured = ring_edges.study(inner, 25, f"features:{folder}", "smoke", 3, out_dir=tmp_path)
    (row,) = measured.rows
    assert (row["inner"], row["outer"], row["seed"], row["test_items"]) == (1, 25, 3, 300)
    again = ring_edges.study(1, 25, f"features:{folder}", "smoke", 3, out_dir=tmp_path)
    assert again.provenance == measured.provenance
    table = ring_edges.table([tmp_path], "smoke")
    assert list(table.index) == [(0, 25, 3), (1, 25, 3)]
    # ten classes alike in number: shares fall from the closest to all
    shares = table.loc[(1, 25, 3), [f"own_class_{percent}" for percent in ring_edges.SHARES]]
    assert shares.is_monotonic_decreasing
    assert 10 < shares.iloc[-1] < shares.iloc[0] <= 100
