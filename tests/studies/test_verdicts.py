"""vince Table 3 as printed and beside exact values; what a reading is said to reach."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from contrastbook.studies import Study, vince_table3
from contrastbook.theory import gaussians


def rows_of(each: dict[float, dict[str, float]]) -> Study:
    same = {"status": "trained", "held_out": 0.0, "infonce": 0.0, "infonce_population": 0.0}
    rows = [{"percent": percent, **same, **row} for percent, row in each.items()]
    return Study(study="x", profile="x", config={}, rows=rows, provenance={})


def test_the_table_is_as_printed_and_beside_it_stands_what_is_exact() -> None:
    printed, exact = vince_table3.published(), vince_table3.exact()
    assert printed.loc[100.0].tolist() == [0.01345, 0.001]
    assert printed.index.tolist() == exact.index.tolist() == list(gaussians.PERCENTS)
    assert exact.loc[50.0, "at f*"] == gaussians.population(50).value
    assert exact.loc[50.0, "best critic"] == gaussians.largest(50).value
    assert exact.loc[50.0, "its InfoNCE"] == gaussians.largest(50).infonce
    assert exact.loc[50.0, "hypothesis holds (% of x)"] == 100 * gaussians.population(50).share
    assert pd.isna(exact.loc[100.0, "hypothesis holds (% of x)"])


def test_a_verdict_names_the_percentages() -> None:
    found = rows_of(
        {
            100.0: {"train": 0.0136, "held_out": 0.5, "infonce": 0.0272, "infonce_population": 0.001},
            90.0: {"train": 0.0124 * 1.6, "held_out": 0.03, "infonce": 0.0124},
            75.0: {"train": -0.2, "held_out": 0.019, "infonce": 0.0022 / 1.4, "status": "negative"},
        }
    )
    expected = {"trains": [100.0, 90.0], "above the truth": [90.0], "train": [100.0], "infonce": [90.0, 75.0]}
    assert vince_table3.verdict(found) == expected | {"infonce_population": []}
    other = rows_of({100.0: {"train": 1.0}})
    table = pd.DataFrame({"a": vince_table3.verdict(other), "b": vince_table3.verdict(found)}).T
    assert vince_table3.closest(table) == ("b", "infonce")


def test_a_cell_says_how_many_seeds_and_what_became_of_the_others() -> None:
    kept = rows_of({90.0: {"train": 0.5}})
    rows = [*kept.rows, {**kept.rows[0], "train": 1.5}, {**kept.rows[0], "train": None, "status": "diverged"}]
    text = vince_table3.described(Study(study="x", profile="x", config={}, rows=rows, provenance={}))
    assert text.loc[90.0] == "1 ± 0.71 (2, 1 diverged)"
    assert vince_table3.described(kept).loc[90.0] == "0.5 (1)"


def test_the_stored_readings_can_be_judged() -> None:
    stored = vince_table3.stored("paper", [Path(__file__).parents[2] / "results"])
    assert len(stored) == len(vince_table3.PROFILES["paper"].readings)
    verdict = vince_table3.verdict(stored[vince_table3.WRITTEN])
    assert 90.0 in verdict["above the truth"]
    with pytest.raises(KeyError):
        vince_table3.verdict(rows_of({60.0: {"train": 1.0}}))
