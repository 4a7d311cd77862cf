"""The comparison of later methods: its settings are those of the searches, and its bound is that of a loop."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from contrastbook.figures import later as figures
from contrastbook.studies import later
from contrastlab.support.errors import MissingDataError


def test_a_run_is_measured_once_and_read_back(tmp_path: Path) -> None:
    measured = later.study("byol/byol", "digits", "smoke", 0, out_dir=tmp_path)
    again = later.study("byol/byol", "digits", "smoke", 0, out_dir=tmp_path)
    assert again == measured
    assert measured.config["recipe"]["keys"]["predictor"] == 64
    table = later.table([tmp_path], "smoke")
    assert list(table.index) == [("byol/byol", 0)]
    row = table.loc["byol/byol", 0]
    assert 0 <= row["linear"] <= 100
    assert row["bound"] <= math.log(later.BATCH)
    assert 1 <= row["effective_rank"] <= 32
    with pytest.raises(MissingDataError, match="nothing of the study later in profile"):
        later.table([tmp_path], "laptop")


def test_the_bound_is_that_of_the_second_half_at_the_best_scale_of_the_first() -> None:
    draws = torch.Generator().manual_seed(0)
    first = torch.nn.functional.normalize(torch.randn(12, 5, generator=draws), dim=1)
    noisy = first + 0.5 * torch.randn(12, 5, generator=draws)
    second = torch.nn.functional.normalize(noisy, dim=1)

    def nats(scale: float, rows: range) -> float:
        losses = []
        for i in rows:
            scores = {j: scale * float(first[i].double() @ second[j].double()) for j in rows}
            losses.append(math.log(sum(math.exp(score - scores[i]) for score in scores.values())))
        return math.log(6) - sum(losses) / 6

    best = max(later.SCALES, key=lambda scale: nats(scale, range(6)))
    assert later.bound(first, second) == pytest.approx(nats(best, range(6, 12)))


def test_without_its_search_a_method_has_no_settings() -> None:
    with pytest.raises(MissingDataError, match="no search of that name is stored"):
        later.settings_of("siglip/softmax", "laptop")


def measured(seeds: int = 4) -> pd.DataFrame:
    """Made-up measurements of every method but BYOL, and of an untrained encoder."""
    draws = np.random.default_rng(0)
    rows = []
    for place, method in enumerate((later.UNTRAINED, *later.METHODS)):
        if method == "byol/byol":
            continue
        for seed in range(seeds):
            values = {measure: place + draws.normal(0, 0.1) for measure in later.MEASURES}
            rows.append({"method": method, "seed": seed, **values, "alignment": -values["linear"]})
    return pd.DataFrame(rows).set_index(["method", "seed"]).sort_index()


def test_the_summary_has_t_intervals_in_the_order_of_the_methods() -> None:
    table = measured()
    means = later.summary(table)
    assert list(means.index) == [name for name in (later.UNTRAINED, *later.METHODS) if name != "byol/byol"]
    runs = table.loc["siglip/sigmoid"]["bound"]
    low, high = stats.t.interval(0.95, 3, runs.mean(), stats.sem(runs))
    row = means.loc["siglip/sigmoid"]
    assert (row["bound"] - row["bound_half_width"], row["bound"] + row["bound_half_width"]) == pytest.approx(
        (low, high)
    )
    assert (row["seeds"], row["learns_from"], row["label"]) == (4, "negatives", "Sigmoid (SigLIP)")
    assert means.loc[later.UNTRAINED, "learns_from"] == "nothing"


def test_gains_are_taken_seed_by_seed() -> None:
    table = measured()
    gains = later.gains(table)
    assert set(gains.index) == set(later.METHODS) - {"decoupled/simclr", "byol/byol"}
    assert gains["linear"].is_monotonic_decreasing
    bounds = table["bound"]
    apart = [bounds["vicreg/vicreg", seed] - bounds["decoupled/simclr", seed] for seed in range(4)]
    low, high = stats.t.interval(0.95, 3, np.mean(apart), stats.sem(apart))
    row = gains.loc["vicreg/vicreg"]
    width = row["bound_half_width"]
    assert (row["bound"] - width, row["bound"] + width) == pytest.approx((low, high))
    without_a_seed = later.gains(table.drop(index=("decoupled/simclr", 3)))
    assert without_a_seed.loc["vicreg/vicreg", "seeds"] == 3
    assert without_a_seed.loc["vicreg/vicreg", "bound"] == pytest.approx(np.mean(apart[:3]))


def test_the_pictures_show_every_trained_method_once_and_the_untrained_encoder_as_a_line() -> None:
    means = later.summary(measured())
    panels = figures.side_by_side(means).axes
    assert len(panels) == len(later.MEASURES)
    labels = [tick.get_text() for tick in panels[0].get_yticklabels()]
    assert sorted(labels) == sorted(means["label"].drop(later.UNTRAINED))
    assert labels[-1] == means["linear"].drop(later.UNTRAINED).pipe(lambda values: means.loc[values.idxmax(), "label"])
    for panel, measure in zip(panels, later.MEASURES, strict=True):
        drawn = sorted(x for bars in panel.containers for x in bars.lines[0].get_xdata())
        assert drawn == pytest.approx(sorted(means[measure].drop(later.UNTRAINED)))
        assert panel.lines[-1].get_xdata() == pytest.approx([means.loc[later.UNTRAINED, measure]] * 2)

    by_bound, by_alignment = (figures.ranks(measure, means) for measure in ("bound", "alignment"))
    assert sorted(x for trace in by_bound.data for x in trace.x) == list(range(1, len(means)))
    assert "accuracy +1.00" in by_bound.layout.title.text.replace("<br>", " ")
    assert "accuracy −1.00" in by_alignment.layout.title.text.replace("<br>", " ")
