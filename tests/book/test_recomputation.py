"""The lines of claims, computed once more from the JSON files by other means."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from contrastbook.evidence import claims
from contrastlab.tables import results

ROOT = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def lines(claims_once) -> pd.DataFrame:
    """Of all stored results."""
    return claims.frame(results.find(ROOT))


@pytest.fixture(scope="module")
def stored() -> dict[tuple[str, ...], dict[int, dict[str, float]]]:
    """Metrics by seed of every configuration on its data, from the files."""
    out: dict[tuple[str, ...], dict[int, dict[str, float]]] = {}
    for result in results.find(ROOT):  # gives the hashes; the numbers are read again below
        out.setdefault((result.setup_hash, result.provenance.data_fingerprint), {})
    for path in ROOT.glob("cells/*/*/*.json"):
        raw = json.loads(path.read_text(encoding="utf-8"))
        setup_hash = results.setup_hash(raw["recipe"], raw["settings"], raw["task"], raw["task_config"])
        out[setup_hash, raw["provenance"]["data_fingerprint"]].setdefault(raw["seed"], {}).update(raw["metrics"])
    return out


@pytest.fixture(scope="module")
def least_p() -> np.ndarray:
    """Smallest p-value of three looks at differences around 0, ``[200,000]``."""
    draws = np.random.default_rng(7).normal(0, 1, (200_000, 16))
    return np.min([stats.ttest_1samp(draws[:, :n], 0, axis=1).pvalue for n in (8, 12, 16)], axis=0)


def test_every_line_is_what_the_files_give(lines, stored, least_p) -> None:
    measured = lines[lines["gain"].notna()].to_dict("records")
    assert len(measured) > 100
    for line in measured:
        both = [stored[line[f"setup_{row}"], line["data_fingerprint"]] for row in ("method", "base")]
        high, low = (
            {seed: each[line["metric"]] for seed, each in row.items() if line["metric"] in each} for row in both
        )
        common = sorted(set(high) & set(low))
        assert line["seeds"] == len(common)
        used = np.array([high[seed] - low[seed] for seed in common[: line["used"]]])
        assert line["gain"] == pytest.approx(used.mean(), abs=1e-9)
        if len(used) < 2:
            continue
        looks = [n for n in (8, 12, 16) if n <= len(used)]
        level = np.quantile(least_p, 0.05) if looks else 0.05
        ends = stats.ttest_1samp(used, 0).confidence_interval(1 - level)
        assert (line["low"], line["high"]) == pytest.approx(tuple(ends), rel=0.01, abs=0.02)
        least = min((stats.ttest_1samp(used[:n], 0).pvalue for n in looks), default=1.0)
        share = np.mean(least_p <= least)
        assert line["p"] == pytest.approx(share if looks else 1.0, abs=4 * math.sqrt(share / 200_000) + 1e-4)


def test_every_verdict_follows_from_its_line(lines) -> None:
    decided = lines[~lines["verdict"].isin(("open", "not run"))].to_dict("records")
    assert len(decided) > 10
    for line in decided:
        assert line["used"] in (8, 12, 16)
        assert line["search"]
        assert line["above_untrained"] is not False
        assert line["p_holm"] >= line["p"]
        small = "not of the published size" if line["claimed_sign"] else "no difference, as claimed"
        if line["verdict"] == small:
            assert line["bound"] == pytest.approx(max(abs(line["low"]), abs(line["high"])))
            assert line["bound"] < (abs(line["published"]) if line["claimed_sign"] else 1.0)
            continue
        assert line["p_holm"] <= 0.05
        word = {1: "same sign", -1: "opposite sign", 0: "difference where none is claimed"}
        assert line["verdict"] == word[int(np.sign(line["gain"]) * line["claimed_sign"])]
    for _, family in lines[lines["p"] < 1].groupby(["paper", "table", "dataset", "profile"]):
        first = family.loc[family["p"].idxmin()]
        claims_in_it = first["p_holm"] / first["p"]
        if 0 < first["p_holm"] < 1:  # Holm: the smallest is multiplied by the number of claims, run or not
            assert claims_in_it == pytest.approx(round(claims_in_it))
            assert claims_in_it >= len(family)
        assert family.sort_values("p")["p_holm"].is_monotonic_increasing
