"""Studies beside the tables of fmicl: collapse, rankings, domains of conjugates, the weight of the negatives."""

import math
from dataclasses import replace

import pytest
import torch
from scipy import stats
from torch import nn
from torch.nn import functional as F

from contrastbook.studies import collapse, fmicl_tables
from contrastlab import papers
from contrastlab.tables import report
from contrastlab.tables.report import Estimate


class Fixed(nn.Module):
    """Gives the same rows whatever it sees."""

    def __init__(self, rows: torch.Tensor) -> None:
        super().__init__()
        self.rows = rows

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rows[: len(x)]


def fixed(rows: torch.Tensor) -> collapse.Spread:
    pictures = torch.zeros(len(rows), 3, 32, 32, dtype=torch.uint8)
    return collapse.spread(Fixed(rows), collapse.settings(), pictures)


def test_features_in_one_place_in_two_and_everywhere_are_told_apart() -> None:
    axis = torch.zeros(16, 8)
    axis[:, 0] = 1
    heaps = axis * torch.tensor([1.0, -1.0]).repeat(8)[:, None]
    cloud = F.normalize(torch.randn(16, 8, generator=torch.Generator().manual_seed(0)), dim=1)
    frame = collapse.numbers({"one": fixed(axis), "two": fixed(heaps), "cloud": fixed(cloud)})
    assert list(frame["verdict"]) == ["one constant", "no constant; two heaps", "spread"]
    assert list(frame["effective rank"])[:2] == pytest.approx([1, 1], abs=1e-4)
    assert frame.loc["cloud", "effective rank"] > 5
    assert frame.loc["two", "near 0 or 4 (%)"] == 100
    assert frame.loc["two", "mean"] == pytest.approx(4 * 64 / 120)
    assert (frame["same image"] < 1e-6).all()  # both views get the same rows
    assert collapse.verdict({"mean": 1.8, "near 0 or 4 (%)": 3, "effective rank": 1.5}).endswith("few directions")
    assert collapse.verdict({"mean": 0.1, "near 0 or 4 (%)": 99, "effective rank": 1}).startswith("all close")


def test_every_encoder_of_the_study_is_trained_once(monkeypatch, pictures, tmp_path) -> None:
    small = collapse.settings().override(train_images=32, epochs=1, batch_size=16, dim=8, image_size=16, overrides={})
    monkeypatch.setattr(collapse, "settings", lambda: small)
    few = {name: collapse.RUNS[name] for name in ("untrained", "KL", "Neyman, large rate, seed 1")}
    monkeypatch.setattr(collapse, "RUNS", few)
    found = collapse.study(tmp_path, images=8)
    assert list(found) == list(few)
    assert all(len(of.apart) == 28 for of in found.values())
    assert len(list(tmp_path.glob("encoders/*/run.json"))) == 2
    again = collapse.study(tmp_path, images=8)
    assert all(torch.equal(again[name].apart, found[name].apart) for name in few)


def test_leads_contradictions_and_agreement_of_the_tables() -> None:
    leads = fmicl_tables.leads()
    printed = papers.published("fmicl", "2")
    for name, row in leads.iterrows():
        values = printed[printed["row"] == name]["value"].sort_values(ascending=False).tolist()
        assert row["lead (points)"] == pytest.approx(values[0] - values[1])
    assert (leads["best"] == "KL").sum() == 2
    differ = fmicl_tables.contradictions()
    assert len(differ) == 1
    assert differ["value in table 2"].item() != differ["value in table 10"].item()
    assert fmicl_tables.published_agreement().between(-1, 1).all()

    def made(table: str, **values: float) -> report.Report:
        known = {f"fmicl/{name}": Estimate(value, None, 1) for name, value in values.items()}
        return measured(table, known | {"ours/random": Estimate(0.0, None, 1)})

    one, other = made("2", kl=3.0, js=2.0, au=1.0, simclr=5.0), made("10", kl=9.0, js=4.0, au=6.0, moco=1.0)
    value, count = fmicl_tables.agreement(one, other)
    assert count == 3
    assert value == pytest.approx(stats.spearmanr([3, 2, 1], [9, 4, 6]).statistic)
    assert fmicl_tables.agreement(one, made("10", kl=1.0)) == (None, 1)


def measured(table: str, values: dict[str, Estimate]) -> report.Report:
    """The report of an fmicl table in which some rows have values."""
    empty = report.table(papers.plan("fmicl", table), [], "cifar10", "paper")
    return replace(empty, rows=tuple(replace(row, measured=values.get(row.method)) for row in empty.rows))


def test_scores_outside_of_the_domain_of_a_conjugate() -> None:
    frame = fmicl_tables.conjugates()
    assert [f.name for f in fmicl_tables.SIX if f.highest <= 1] == ["js", "hellinger", "vincze_le_cam"]
    assert math.isnan(frame.loc["Jensen–Shannon", "slope of f* just below 1"])
    assert frame.loc["Vincze–Le Cam", "slope of f* just below 1"] > 1000
    h, kl = 1e-6, fmicl_tables.SIX[0]
    at = torch.tensor([0.3], dtype=torch.float64)
    by_hand = (kl.conjugate(at + h) - kl.conjugate(at - h)) / (2 * h)
    assert fmicl_tables.slope(kl, at) == pytest.approx(float(by_hand), rel=1e-6)
    pairs = fmicl_tables.untrained_cosines(40)
    assert pairs.shape == (40 * 39 // 2,)
    frame = fmicl_tables.outside(pairs)
    share = frame["pairs outside of the domain (%)"]
    assert share["Jensen–Shannon"] > 50 > share["Kullback–Leibler"]
    inside = pairs[fmicl_tables.SIX[1].contains(pairs)]
    assert share["Jensen–Shannon"] == pytest.approx(100 * (1 - len(inside) / len(pairs)))
    said = fmicl_tables.refusals()
    assert "temperature above 1" in said["vincze_le_cam", 1.0]
    assert not any(said[key] for key in said if key != ("vincze_le_cam", 1.0))


@pytest.mark.parametrize(("mu", "alpha"), [(2.0, 20.0), (0.25, 4.0), (40.0, 1.0)])
def test_alpha_and_mu_are_one_knob_for_kl_and_two_for_js(mu, alpha) -> None:
    assert fmicl_tables.knob_gap("kl", mu, alpha).abs().max() < 1e-11
    assert fmicl_tables.knob_gap("js", mu, alpha).std() > 1e-3


def test_the_natural_weight_and_accuracy_by_weight() -> None:
    # in three dimensions the cosine of two uniform points is uniform: E exp(2c·cos) = sinh(2c) / 2c
    assert fmicl_tables.natural(3, 1.0) == pytest.approx(math.exp(2) / (math.sinh(2) / 2), rel=1e-12)
    assert fmicl_tables.natural(1e9, 1.0) == pytest.approx(math.exp(2), rel=1e-6)
    frame = fmicl_tables.table7()
    for _, row in frame.iterrows():
        assert row["natural"] == pytest.approx(fmicl_tables.natural(row["d"], row["1/(2 sigma^2)"]))
    table = measured("8", {"fmicl/js": Estimate(50.0, None, 1, 2.0)})
    frame = fmicl_tables.accuracy(table)
    assert len(frame) == len(table.plan.rows)
    assert frame["alpha"].is_monotonic_increasing
    (line,) = frame[frame["measured"].notna()].to_dict("records")
    assert (line["divergence"], line["alpha"], line["half width"]) == ("JS", 40.0, 2.0)
    assert line["published"] == table.plan.published_value("cifar10", "fmicl/js")
