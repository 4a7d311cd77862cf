"""The batched encoders against one slow network at a time, the stored rows, and the judgement of a curve."""

import itertools
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from contrastbook.studies import Study, location, vince_figure6, vince_table3
from contrastbook.studies import spirals as module
from contrastbook.studies.spirals import Encoders, Reading, info_nce, points_of
from contrastbook.studies.vince_figure6 import PROFILES, READINGS, Sizes, accuracy_curve, peak, representations, study
from contrastlab.support.errors import ArgumentError
from made_runs import one_network

ETAS = (0.0, 0.4, 1.6)
SEEDS = (0, 7)
SIZES: dict[str, int] = {"iterations": 3, "negatives": 16, "points": 60, "held_out": 60}
KINDS = [
    Reading(),
    Reading(critic="distance"),
    Reading(output="plane", clip=1.0),
    Reading(output="plane", critic="distance", handedness="opposite", clip=0.5),
]

# Encoders -------------------------------------------------------------------------------------------------------------


class Twin:
    """One model at one η: nn.Linear layers, a loss spelled out, a bank updated row by row."""

    def __init__(self, encoders: Encoders, model: int) -> None:
        seed, eta = divmod(model, len(encoders.etas))
        self.reading = encoders.reading
        self.eta = encoders.etas[eta]
        self.points = encoders.points[seed].clone()
        self.bank = encoders.bank[model].clone()
        self.net = one_network(encoders.networks, model)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-5)

    def output(self, raw: Tensor) -> Tensor:
        if self.reading.output == "sphere":
            return raw / raw.norm(dim=-1, keepdim=True)
        return raw

    def score(self, query: Tensor, key: Tensor) -> Tensor:
        if self.reading.critic == "dot":
            return query @ key / 0.07
        return -(query - key).square().sum() / 0.07

    def loss(self, query: Tensor, row: int, negatives: list[int]) -> Tensor:
        positive = self.score(query, self.bank[row])
        others = [self.score(query, self.bank[negative]) for negative in negatives]
        return torch.stack([positive, *others]).logsumexp(0) - positive

    def step(self, rows: list[int], unit: Tensor, negatives: list[int]) -> float:
        queries = self.output(self.net(self.points[rows] + self.eta * unit))
        losses = [self.loss(query, row, negatives) for query, row in zip(queries, rows, strict=True)]
        loss = torch.stack(losses).mean()
        self.optimizer.zero_grad()
        loss.backward()
        if self.reading.clip is not None:
            nn.utils.clip_grad_norm_(self.net.parameters(), self.reading.clip)
        self.optimizer.step()
        for query, row in zip(queries.detach(), rows, strict=True):
            self.bank[row] = self.output(0.5 * self.bank[row] + 0.5 * query)
        return loss.item()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", 12)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("reading", KINDS, ids=lambda reading: reading.name)
def test_batched_models_train_as_one_network_at_a_time_does(reading: Reading) -> None:
    encoders = Encoders(reading, ETAS, SEEDS, 40)
    twins = [Twin(encoders, model) for model in range(len(ETAS) * len(SEEDS))]
    for _ in range(4):
        rows, unit, negatives = encoders.draw(9)
        losses = encoders.step(rows, unit, negatives)
        for model, twin in enumerate(twins):
            seed = model // len(ETAS)
            expected = twin.step(rows[seed].tolist(), unit[seed], negatives[seed].tolist())
            assert losses[model].item() == pytest.approx(expected, rel=1e-4, abs=1e-5)
    for model, twin in enumerate(twins):
        points = encoders.points[model // len(ETAS)]
        (encoded,) = encoders.encode(points[None], slice(model, model + 1))
        torch.testing.assert_close(encoded, twin.output(twin.net(points)), rtol=2e-3, atol=2e-4)
        torch.testing.assert_close(encoders.bank[model], twin.bank, rtol=2e-3, atol=2e-4)


def score(query: Tensor, key: Tensor, critic: str) -> Tensor:
    if critic == "dot":
        return query @ key / 0.07
    return -(query - key).square().sum() / 0.07


@pytest.mark.parametrize("critic", ["dot", "distance"])
def test_loss_and_its_gradient_are_those_of_autograd(critic: Any) -> None:
    draws = torch.Generator().manual_seed(0)
    queries = torch.randn(5, 2, generator=draws, dtype=torch.float64).requires_grad_()
    positives = torch.randn(5, 2, generator=draws, dtype=torch.float64)
    negatives = torch.randn(11, 2, generator=draws, dtype=torch.float64)
    losses = []
    for query, positive in zip(queries, positives, strict=True):
        scores = torch.stack([score(query, key, critic) for key in (positive, *negatives)])
        losses.append(scores.logsumexp(0) - scores[0])
    expected = torch.stack(losses)
    (expected_gradient,) = torch.autograd.grad(expected.sum(), queries)

    loss, gradient = info_nce(queries.detach(), positives, negatives, critic)
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(gradient, expected_gradient)


def test_the_loss_of_a_hopeless_positive_is_finite() -> None:
    far = torch.tensor([[40.0, 0.0]])
    loss, _ = info_nce(far, -far, far, "dot")
    assert loss.item() == pytest.approx((40 * 40 + 40 * 40) / 0.07, rel=1e-5)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("output", ["sphere", "plane"])
def test_the_bank_moves_half_way_to_the_views_of_a_batch(output: Any) -> None:
    encoders = Encoders(Reading(output=output), (0.0, 0.8), (3,), 30)
    rows, unit, negatives = encoders.draw(5)
    (seen,) = rows
    views = encoders.views(encoders.points[:, seen], unit)
    expected = 0.5 * encoders.bank[:, seen] + 0.5 * encoders.encode(views).detach()
    if output == "sphere":
        expected = expected / expected.norm(dim=2, keepdim=True)
    encoders.step(rows, unit, negatives)
    torch.testing.assert_close(encoders.bank[:, seen], expected)
    assert not encoders.bank.requires_grad


@pytest.mark.usefixtures("small")
def test_the_bank_stays_where_nothing_was_seen() -> None:
    encoders = Encoders(Reading(), (0.0, 0.8), (3,), 30)
    before = encoders.bank.clone()
    rows, unit, negatives = encoders.draw(5)
    encoders.step(rows, unit, negatives)
    is_seen = torch.zeros(30, dtype=torch.bool)
    is_seen[rows[0]] = True
    assert torch.equal(encoders.bank[:, ~is_seen], before[:, ~is_seen])


@pytest.mark.usefixtures("small")
def test_a_gradient_that_is_shorter_than_the_clip_stays_as_it_is() -> None:
    unclipped = Encoders(Reading(output="plane"), (0.4,), (0,), 40)
    hardly_clipped = Encoders(Reading(output="plane", clip=1e6), (0.4,), (0,), 40)
    for encoders in (unclipped, hardly_clipped):
        for _ in range(2):
            encoders.step(*encoders.draw(5))
    assert torch.equal(hardly_clipped.bank, unclipped.bank)


# Points and views -----------------------------------------------------------------------------------------------------


def test_points_lie_on_a_spiral_of_two_turns_and_radius_two() -> None:
    points, labels = points_of(Reading(), 4001, 0)
    first = points[labels == 0]
    radius = first.norm(dim=1)
    angle = radius * 2 * math.pi
    expected = radius[:, None] * torch.stack([angle.cos(), angle.sin()], 1)
    torch.testing.assert_close(first, expected)
    assert radius.max() <= 2


def test_points_are_uniform_in_their_radius_and_half_of_them_on_each_spiral() -> None:
    points, labels = points_of(Reading(), 4001, 0)
    assert points.shape == (4001, 2)
    assert sorted(labels.bincount().tolist()) == [2000, 2001]
    assert (points.norm(dim=1) < 1).float().mean().item() == pytest.approx(0.5, abs=0.03)


def test_points_to_test_on_are_others() -> None:
    train, _ = points_of(Reading(), 50, 0)
    test, _ = points_of(Reading(), 50, 0, "test")
    assert not torch.isin(test, train).any()


def test_views_add_noise_on_one_side_up_to_eta() -> None:
    encoders = Encoders(Reading(), (0.0, 0.4), (0,), 300)
    rows, unit, _ = encoders.draw(5)
    anchors = encoders.points[:, rows[0]]
    without_noise, with_noise = encoders.views(anchors, unit)
    assert torch.equal(without_noise, anchors[0])
    shift = with_noise - anchors[0]
    assert shift.min() >= -1e-6
    assert shift.max() <= 0.4 + 1e-6
    assert shift.mean().item() == pytest.approx(0.2, abs=0.03)


# A curve --------------------------------------------------------------------------------------------------------------


def test_readings_have_names_of_their_own() -> None:
    assert Reading(turns=1.0, clip=0.5).name == "same, 1 turn, sphere, dot, clip 0.5"
    assert len(set(READINGS.values())) == len(READINGS)


@pytest.mark.parametrize("profile", PROFILES)
def test_profiles_name_readings_that_exist(profile: str) -> None:
    assert set(PROFILES[profile].readings) <= set(READINGS)


CLIPPED = Reading(output="plane", clip=1.0)


def of_trained(rows: list[dict[str, Any]]) -> dict[tuple[float, int], dict[str, Any]]:
    """(η, seed) to the row of the model that was trained so."""
    return {(row["eta"], row["seed"]): row for row in rows if row["encoder"] == "trained"}


@pytest.fixture(scope="module")
def measured() -> list[dict[str, Any]]:
    return accuracy_curve(CLIPPED, ETAS, SEEDS, **SIZES)


def test_rows_are_the_same_when_they_are_computed_again(measured) -> None:
    assert accuracy_curve(CLIPPED, ETAS, SEEDS, **SIZES) == measured


def test_each_seed_has_a_row_of_each_eta_and_two_references(measured) -> None:
    models = [(row["encoder"], row["eta"], row["seed"]) for row in measured]
    assert len(set(models)) == len(models)
    assert len(models) == len(SEEDS) * (2 + len(ETAS))
    assert set(of_trained(measured)) == set(itertools.product(ETAS, SEEDS))


def test_rows_hold_percent_and_a_bound_that_belongs_to_the_loss(measured) -> None:
    for row in measured:
        assert 0 <= row["accuracy"] <= 100
    for row in of_trained(measured).values():
        assert row["mi_bound"] == pytest.approx(math.log(16) - row["loss"])


def test_a_row_does_not_depend_on_what_is_trained_beside_it(measured) -> None:
    alone = of_trained(accuracy_curve(CLIPPED, (1.6,), (7,), **SIZES))
    assert alone[1.6, 7]["loss"] == pytest.approx(of_trained(measured)[1.6, 7]["loss"], rel=1e-4)


def test_a_model_that_diverged_has_no_numbers(monkeypatch) -> None:
    monkeypatch.setattr(module, "LEARNING_RATE", 1e6)
    rows = accuracy_curve(Reading(output="plane"), (0.0,), (0,), **{**SIZES, "iterations": 12})
    row = of_trained(rows)[0.0, 0]
    assert row["outcome"] == "diverged"
    for name in ("accuracy", "accuracy_views", "loss", "mi_bound"):
        assert row[name] is None
    with pytest.raises(ArgumentError, match="two values"):
        peak(rows)


def test_a_model_that_gives_one_place_has_collapsed() -> None:
    encoders = Encoders(Reading(output="plane"), (0.0, 0.4), (0,), 40)
    with torch.no_grad():
        encoders.networks.weights[-1][0] = 0
    first, second = vince_figure6._evaluate(encoders, 40)
    assert first["outcome"] == "collapsed"
    assert first["accuracy"] == 50
    assert second["outcome"] == "trained"


# Its judgement --------------------------------------------------------------------------------------------------------


def curve(*points: tuple[float, float], raw: float = 51.0) -> list[dict[str, Any]]:
    """Rows of two seeds with the accuracies (η, percent), those of the second seed higher by 2."""
    shared = {"reading": "r", "accuracy_views": None}
    rows = [{**shared, "encoder": "raw", "eta": None, "accuracy": raw, "seed": 0}]
    for seed in (0, 1):
        for eta, value in points:
            rows.append({**shared, "encoder": "trained", "eta": eta, "accuracy": value + 2 * seed, "seed": seed})
    return rows


def test_the_published_shape_is_a_peak() -> None:
    found = peak(curve((0.0, 50.0), (0.4, 90.0), (5.0, 51.0)))
    assert found.missing == ()
    assert found.eta == 0.4
    assert found.accuracy == 91
    assert found.ends == (51, 52)
    assert found.raw == 51


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (curve((0.0, 50.0), (0.4, 70.0), (5.0, 51.0)), "at most 71 % there, no separation"),
        (curve((0.0, 50.0), (0.4, 90.0), (5.0, 70.0)), "71 % at one end, not near chance"),
        (curve((0.0, 50.0), (0.4, 80.0), (5.0, 90.0)), "highest at η = 5, not between"),
        (curve((0.0, 50.0), (0.4, 90.0), (5.0, 51.0), raw=95.0), "not above both ends and the raw coordinates"),
    ],
)
def test_what_a_curve_lacks_of_the_published_shape_is_said(rows: list[dict[str, Any]], words: str) -> None:
    assert any(lack.startswith(words) for lack in peak(rows).missing)


def test_the_worst_seed_has_to_be_above_the_best_of_the_ends() -> None:
    rows = curve((0.0, 50.0), (0.4, 90.0), (5.0, 51.0))
    (worst,) = [row for row in rows if row["eta"] == 0.4 and row["seed"] == 0]
    worst["accuracy"] = 53.0  # as the better seed at the last η
    assert any(lack.endswith("for every seed") for lack in peak(rows).missing)


def test_rows_of_two_readings_are_not_judged() -> None:
    of_another = {**curve((0.0, 50.0))[0], "reading": "other"}
    with pytest.raises(ArgumentError, match="one reading"):
        peak([*curve((0.0, 50.0)), of_another])


GOOD = peak(curve((0.0, 50.0), (0.4, 90.0), (5.0, 51.0)))
LACKS_ONE = peak(curve((0.0, 50.0), (0.4, 70.0), (5.0, 51.0)))
LACKS_ONE_AND_IS_HIGHER = peak(curve((0.0, 50.0), (0.4, 73.0), (5.0, 51.0)))
LACKS_MORE = peak(curve((0.0, 65.0), (0.4, 72.0), (5.0, 51.0)))


def test_the_closest_lacks_least_and_is_the_highest_of_equals() -> None:
    assert vince_figure6.closest([LACKS_MORE, LACKS_ONE, LACKS_ONE_AND_IS_HIGHER, GOOD]) is GOOD
    assert vince_figure6.closest([LACKS_MORE, LACKS_ONE, LACKS_ONE_AND_IS_HIGHER]) is LACKS_ONE_AND_IS_HIGHER
    assert vince_figure6.closest([LACKS_MORE, LACKS_ONE]) is LACKS_ONE


def test_a_table_says_what_is_missing() -> None:
    missing = vince_figure6.table([GOOD, LACKS_ONE])["what is missing"].tolist()
    assert missing == ["nothing", "at most 71 % there, no separation"]


def test_a_frame_has_the_trained_models_and_a_gap_where_one_diverged() -> None:
    rows = [{**row, "loss": None, "mi_bound": None} for row in curve((0.0, 50.0), (0.4, 90.0))]
    rows[1]["accuracy"] = None
    frame = vince_figure6.frame(Study(study="x", profile="x", config={}, rows=rows, provenance={}))
    assert frame["eta"].tolist() == [0.0, 0.4, 0.0, 0.4]
    assert frame["accuracy"].isna().tolist() == [True, False, False, False]


# What is stored -------------------------------------------------------------------------------------------------------

TINY = Sizes(etas=(0.0, 0.4), seeds=(0,), iterations=2, negatives=8, points=40, held_out=40)
FIRST, *REST = READINGS


def test_a_study_computes_and_stores_the_readings_that_are_not_stored_yet(tmp_path: Path, monkeypatch) -> None:
    kept = tmp_path / "kept"
    new = tmp_path / "new"
    lines: list[str] = []
    monkeypatch.setattr(vince_figure6, "PROFILES", {"smoke": replace(TINY, readings=(FIRST,))})
    (one,) = study("smoke", out_dir=kept, log=lines.append)
    assert FIRST in lines[0]

    monkeypatch.setattr(vince_figure6, "PROFILES", {"smoke": TINY})
    curves = study("smoke", out_dir=new, read_also=[kept], log=lines.append)
    assert curves[0] == one
    assert [each.rows[0]["reading"] for each in curves] == [FIRST, *REST]
    assert len(list(new.rglob("*.json"))) == len(REST)
    assert vince_figure6.stored("smoke", [tmp_path / "none", kept]) == [one]


def test_representations_are_computed_once_and_read_back(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(vince_figure6, "PROFILES", {"smoke": TINY})
    of_two = partial(representations, "smoke", FIRST, (0.0, 1.6), count=30)
    assert of_two(out_dir=None, read_also=[tmp_path]) is None
    computed = of_two(out_dir=tmp_path)
    assert computed is not None
    assert of_two(out_dir=None, read_also=[tmp_path]) == computed
    assert of_two(out_dir=tmp_path) == computed


def test_representations_are_of_all_points_of_one_encoder_after_the_other(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(vince_figure6, "PROFILES", {"smoke": TINY})
    computed = representations("smoke", FIRST, (0.0, 1.6), count=30, out_dir=tmp_path)
    _, labels = points_of(READINGS[FIRST], 30, 0, "test")
    models = [(row["seed"], row["eta"]) for row in computed.rows]
    assert models == [(0, 0.0)] * 30 + [(0, 1.6)] * 30
    assert [row["label"] for row in computed.rows] == labels.tolist() * 2


def configurations(study_name: str) -> list[dict[str, Any]]:
    """What the stored files of a study may be of, as it is configured today."""
    if study_name == "vince_table3":
        return list(vince_table3._configs("paper").values())
    curves = [vince_figure6._config(reading, PROFILES["paper"]) for reading in READINGS.values()]
    if study_name == "vince_figure6":
        return curves
    return [config | {"etas": [0.0, 0.4, 1.6], "held_out": 200} for config in curves]


@pytest.mark.parametrize("name", ["vince_table3", "vince_figure6", "vince_figure6_points"])
def test_what_is_stored_with_the_project_is_of_todays_configuration(name: str) -> None:
    root = Path(__file__).parents[3] / "results"
    files = {path.name for path in (root / name).glob("*.json")}
    assert files
    assert files <= {location(root, name, "paper", config).name for config in configurations(name)}
