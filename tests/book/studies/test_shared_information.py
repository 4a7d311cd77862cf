"""MINE between two views: below the information that is known, near it, and falling with the distance of patches."""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch

from contrastbook.figures import tables as draw
from contrastbook.studies import shared_information as shared
from contrastlab import data
from contrastlab.data import Splits
from contrastlab.information.toys import JointGaussian

SIZES = shared.PROFILES["smoke"]


@pytest.mark.parametrize("nats", [pytest.param(0.0, marks=pytest.mark.nightly), 0.3,
                                  pytest.param(1.0, marks=pytest.mark.nightly)])  # fmt: skip
def test_the_estimate_is_close_to_a_known_information_and_never_far_above(nats: float) -> None:
    pair = JointGaussian.with_information(nats, 2)
    sizes = replace(SIZES, pictures=4000, hidden=64, epochs=40, patience=10)
    x, y = pair.sample(sizes.pictures, torch.Generator().manual_seed(1))
    value, half = shared.estimate(x.float(), y.float(), sizes, 0)
    # a lower bound: above the truth by sampling only; of one nat, four fifths are found
    assert value < nats + 2 * half + 0.01
    assert value > 0.8 * nats - 2 * half - 0.01


def test_the_sampling_error_is_that_of_new_pairs() -> None:
    pair, sizes = JointGaussian.with_information(0.5, 1), replace(SIZES, pictures=1000, epochs=15, draws=100)
    found = []
    for k in range(8):
        x, y = pair.sample(1000, torch.Generator().manual_seed(k))
        found.append(shared.estimate(x.float(), y.float(), sizes, 0))
    spread = 1.96 * np.std([value for value, _ in found], ddof=1)
    # the spread also has what other training pairs change
    assert 0.4 < spread / np.mean([half for _, half in found]) < 2.5


def test_patches_of_a_texture_share_less_the_farther_they_are() -> None:
    exact = [shared.texture(d).mutual_information for d in (4, 6, 8, 12)]
    assert exact == sorted(exact, reverse=True)
    assert exact[0] > 0.4
    assert exact[-1] < 0.02
    pair = shared.texture(4, size=2, length=3.0, noise=0.2)
    apart = np.hypot(4, 4)  # the first pixels of both
    assert pair.covariance[0, 4] == pytest.approx(np.exp(-apart / 3))
    assert pair.covariance[0, 0] == pytest.approx(1.2)


def test_the_control_stays_below_the_truth_and_is_stored(tmp_path) -> None:
    found = shared.control("smoke", out_dir=tmp_path, distances=(4, 12))
    near, far = found.rows
    assert near["nats"] <= near["exact"] + 2 * near["half_width"]
    assert near["nats"] > far["nats"] + 0.1
    assert shared.control("smoke", out_dir=tmp_path / "other", read_also=[tmp_path], distances=(4, 12)) == found
    figure = draw.estimate_against_truth(found)
    line = {line.get_label(): line for line in figure.axes[0].get_lines()}["exact"]
    assert line.get_ydata().tolist() == [near["exact"], far["exact"]]
    assert not plt.get_fignums()


@pytest.fixture
def coloured(monkeypatch, pictures) -> None:
    """Pictures of noise whose third channel is a copy of the first: R says all of B."""

    def load(name: str, root=None) -> Splits:
        train = pictures(1200)
        train.items[:, 2] = train.items[:, 0]
        return Splits(name=name, pretrain=train, train=train, test=pictures(64, seed=1), note="random pictures")

    monkeypatch.setattr(data, "load", load)


def test_views_of_rows_are_made_and_missing_ones_say_why(coloured, tmp_path) -> None:
    names = ("cmc/split_rgb", "cmc/stl10", "cmc/offset_1", "cmc/offset_6")
    lines: list[str] = []
    rows = {row["row"]: row for row in shared.study("smoke", "shapes", names, out_dir=tmp_path, log=lines.append).rows}
    assert (rows["cmc/split_rgb"]["kind"], rows["cmc/offset_1"]["kind"]) == ("colours", "patches")
    assert rows["cmc/offset_1"]["distance"] == 1
    # red and blue are one channel; patches of noise have nothing in common
    assert rows["cmc/split_rgb"]["nats"] > 1
    assert abs(rows["cmc/offset_1"]["nats"]) < 2 * rows["cmc/offset_1"]["half_width"] + 0.02
    assert rows["cmc/offset_6"]["nats"] is None
    assert "needs 56 px along both sides; these have 16 by 16" in rows["cmc/offset_6"]["reason"]
    assert lines[-1] == "cmc/offset_6: n/a"
    stored = shared.study("smoke", "shapes", names, out_dir=tmp_path, log=lines.append)
    assert len(lines) == 4
    accuracy = {"cmc/split_rgb": 40.0, "cmc/stl10": 50.0, "cmc/offset_1": 30.0, "cmc/offset_6": 20.0}
    left, right = draw.accuracy_against_information(stored, accuracy, floor=25.0).axes
    assert [text.get_text() for text in left.texts] == ["R and GB", "L and ab"]
    assert [text.get_text() for text in right.texts] == ["d = 1 patches"]
    assert pd.DataFrame(stored.rows)["nats"].isna().sum() == 1
    # two points in one place: their labels do not lie on each other
    same = stored.model_copy(update={"rows": [{**row, "nats": 1.0} for row in stored.rows]})
    one, other = draw.accuracy_against_information(same, dict.fromkeys(accuracy, 40.0)).axes[0].texts
    assert not one.get_window_extent().overlaps(other.get_window_extent())
