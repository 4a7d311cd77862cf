"""The comparison of later methods: its settings are those of the searches, and its bound is that of a loop."""

import math
from pathlib import Path

import pytest
import torch

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
    with pytest.raises(MissingDataError, match="no comparison of later methods is stored under"):
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
