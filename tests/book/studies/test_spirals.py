"""The batched encoders against one slow network at a time, the stored rows, and the judgement of a curve."""

import itertools
import math
from dataclasses import replace
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

ETAS, SEEDS = (0.0, 0.4, 1.6), (0, 7)
SIZES: dict[str, int] = {"iterations": 3, "negatives": 16, "points": 60, "held_out": 60}
KINDS = [
    Reading(),
    Reading(critic="distance"),
    Reading(output="plane", clip=1.0),
    Reading(output="plane", critic="distance", handedness="opposite", clip=0.5),
]


class Twin:
    """One model at one η: nn.Linear layers, a loss spelled out, a bank updated row by row."""

    def __init__(self, encoders: Encoders, model: int) -> None:
        self.reading, self.bank = encoders.reading, encoders.bank[model].clone()
        seed, eta = divmod(model, len(encoders.etas))
        self.eta, self.points = encoders.etas[eta], encoders.points[seed].clone()
        self.net = one_network(encoders.networks, model)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-5)

    def output(self, raw: Tensor) -> Tensor:
        return raw / raw.norm(dim=-1, keepdim=True) if self.reading.output == "sphere" else raw

    def score(self, query: Tensor, key: Tensor) -> Tensor:
        return (query @ key if self.reading.critic == "dot" else -(query - key).square().sum()) / 0.07

    def step(self, rows: Tensor, unit: Tensor, negatives: Tensor) -> float:
        queries = self.output(self.net(self.points[rows] + self.eta * unit))
        losses = []
        for query, row in zip(queries, rows.tolist(), strict=True):
            scores = torch.stack([self.score(query, self.bank[j]) for j in (row, *negatives.tolist())])
            losses.append(scores.logsumexp(0) - scores[0])
        loss = torch.stack(losses).mean()
        self.optimizer.zero_grad()
        loss.backward()
        if self.reading.clip is not None:
            nn.utils.clip_grad_norm_(self.net.parameters(), self.reading.clip)
        self.optimizer.step()
        for query, row in zip(queries.detach(), rows.tolist(), strict=True):
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
        losses = encoders.step(rows, unit, negatives).tolist()
        seeds = [model // len(ETAS) for model in range(len(twins))]
        alone = [twin.step(rows[s], unit[s], negatives[s]) for s, twin in zip(seeds, twins, strict=True)]
        assert losses == pytest.approx(alone, rel=1e-4, abs=1e-5)
    inputs = encoders.points.repeat_interleave(len(ETAS), 0)
    for model, (own, twin) in enumerate(zip(encoders.encode(inputs), twins, strict=True)):
        torch.testing.assert_close(own, twin.output(twin.net(inputs[model])), rtol=2e-3, atol=2e-4)
        torch.testing.assert_close(encoders.bank[model], twin.bank, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("critic", ["dot", "distance"])
def test_loss_and_its_gradient_are_those_of_autograd(critic: Any) -> None:
    draws = torch.Generator().manual_seed(0)
    queries, positives, negatives = (torch.randn(n, 2, generator=draws, dtype=torch.float64) for n in (5, 5, 11))
    queries.requires_grad_()
    keys = torch.cat([positives[:, None], negatives.expand(5, -1, -1)], 1)
    scores = (queries[:, None] * keys).sum(2) if critic == "dot" else -(queries[:, None] - keys).square().sum(2)
    expected = nn.functional.cross_entropy(scores / 0.07, torch.zeros(5, dtype=torch.long), reduction="none")
    expected.sum().backward()
    loss, gradient = info_nce(queries.detach(), positives, negatives, critic)
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(gradient, queries.grad)
    far = torch.tensor([[40.0, 0.0]])  # a hopeless positive
    assert info_nce(far, -far, far, "dot")[0].item() == pytest.approx(3200 / 0.07, rel=1e-5)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("output", ["sphere", "plane"])
def test_bank_moves_half_way_to_the_view_and_only_where_it_was_seen(output: Any) -> None:
    encoders = Encoders(Reading(output=output), (0.0, 0.8), (3,), 30)
    before = encoders.bank.clone()
    rows, unit, negatives = encoders.draw(5)
    views = encoders.views(encoders.points[:, rows[0]], unit)
    moved = 0.5 * before[:, rows[0]] + 0.5 * encoders.encode(views).detach()
    encoders.step(rows, unit, negatives)
    if output == "sphere":
        moved = moved / moved.norm(dim=2, keepdim=True)
    torch.testing.assert_close(encoders.bank[:, rows[0]], moved)
    rest = torch.ones(30, dtype=torch.bool)
    rest[rows[0]] = False
    assert torch.equal(encoders.bank[:, rest], before[:, rest])
    assert not encoders.bank.requires_grad
    assert encoders.bank.grad is None


def test_points_fill_the_curve_and_views_add_noise_on_one_side() -> None:
    points, labels = points_of(Reading(), 4001, 0)
    assert points.shape == (4001, 2)
    assert sorted(labels.bincount().tolist()) == [2000, 2001]
    assert float((points.norm(dim=1) < 1).float().mean()) == pytest.approx(0.5, abs=0.03)
    first = points[labels == 0]
    angle = first.norm(dim=1) * 2 * math.pi  # two turns of radius two
    torch.testing.assert_close(first, first.norm(dim=1)[:, None] * torch.stack([angle.cos(), angle.sin()], 1))
    assert not torch.equal(points_of(Reading(), 50, 0)[0], points_of(Reading(), 50, 0, "test")[0])
    encoders = Encoders(Reading(), (0.0, 0.4), (0,), 300)
    rows, unit, _ = encoders.draw(5)
    anchors = encoders.points[:, rows[0]]
    still, moved = encoders.views(anchors, unit)
    assert torch.equal(still, anchors[0])
    shift = moved - anchors[0]
    assert -1e-6 <= float(shift.min()) < float(shift.max()) <= 0.4 + 1e-6
    assert float(shift.mean()) == pytest.approx(0.2, abs=0.03)


def test_names_are_one_to_a_reading() -> None:
    assert Reading(turns=1.0, clip=0.5).name == "same, 1 turn, sphere, dot, clip 0.5"
    assert len(set(READINGS.values())) == len(READINGS)
    assert all(set(profile.readings) <= set(READINGS) for profile in PROFILES.values())


def test_rows_are_deterministic_and_do_not_depend_on_what_is_trained_beside_them() -> None:
    reading = Reading(output="plane", clip=1.0)
    rows = accuracy_curve(reading, ETAS, SEEDS, **SIZES)
    assert rows == accuracy_curve(reading, ETAS, SEEDS, **SIZES)
    kinds = [(row["encoder"], row["eta"], row["seed"]) for row in rows]
    assert len(set(kinds)) == len(kinds) == len(SEEDS) * (2 + len(ETAS))
    assert all(0 <= row["accuracy"] <= 100 for row in rows)
    trained = {(row["eta"], row["seed"]): row for row in rows if row["encoder"] == "trained"}
    for row in trained.values():
        assert row["mi_bound"] == pytest.approx(math.log(16) - row["loss"])
    (alone,) = [row for row in accuracy_curve(reading, (1.6,), (7,), **SIZES) if row["encoder"] == "trained"]
    assert alone["loss"] == pytest.approx(trained[1.6, 7]["loss"], rel=1e-4)


def test_a_model_that_diverged_or_collapsed_says_so(monkeypatch) -> None:
    monkeypatch.setattr(module, "LEARNING_RATE", 1e6)
    rows = accuracy_curve(Reading(output="plane"), (0.0,), (0,), **{**SIZES, "iterations": 12})
    (row,) = [row for row in rows if row["encoder"] == "trained"]
    assert row["outcome"] == "diverged"
    assert row["accuracy"] is row["accuracy_views"] is row["loss"] is row["mi_bound"] is None
    with pytest.raises(ArgumentError, match="two values"):
        peak(rows)
    encoders = Encoders(Reading(output="plane"), (0.0, 0.4), (0,), 40)
    with torch.no_grad():
        encoders.networks.weights[-1][0] = 0
    first, second = vince_figure6._evaluate(encoders, 40)
    assert (first["outcome"], first["accuracy"], second["outcome"]) == ("collapsed", 50.0, "trained")


def curve(*points: tuple[float, float], raw: float = 51.0) -> list[dict[str, Any]]:
    shared = {"reading": "r", "accuracy_views": None, "seed": 0}
    trained = [
        {**shared, "encoder": "trained", "eta": eta, "accuracy": value + 2 * seed, "seed": seed}
        for seed, (eta, value) in itertools.product((0, 1), points)
    ]
    return [{"encoder": "raw", "eta": None, "accuracy": raw, **shared}, *trained]


def test_the_published_shape_is_a_peak_and_the_closest_lacks_least() -> None:
    found = peak(curve((0.0, 50.0), (0.4, 90.0), (5.0, 51.0)))
    assert found.missing == ()
    assert (found.eta, found.accuracy, found.ends, found.raw) == (0.4, 91.0, (51.0, 52.0), 51.0)
    lacks = {
        "no separation": curve((0.0, 50.0), (0.4, 70.0), (5.0, 51.0)),
        "near chance": curve((0.0, 50.0), (0.4, 90.0), (5.0, 70.0)),
        "highest at η = 5": curve((0.0, 50.0), (0.4, 80.0), (5.0, 90.0)),
        "not above both ends": curve((0.0, 50.0), (0.4, 90.0), (5.0, 51.0), raw=95.0),
    }
    for words, rows in lacks.items():
        assert any(words in lack for lack in peak(rows).missing), words
    with pytest.raises(ArgumentError, match="one reading"):
        peak([*curve((0.0, 50.0)), {**curve((0.0, 50.0))[0], "reading": "other"}])
    good, low, higher = (peak(curve((0.0, 50.0), (0.4, value), (5.0, 51.0))) for value in (90.0, 70.0, 73.0))
    far = peak(curve((0.0, 65.0), (0.4, 72.0), (5.0, 51.0)))
    for few, best in (([far, low, higher, good], good), ([far, low, higher], higher), ([far, low], low)):
        assert vince_figure6.closest(few) is best
    missing = vince_figure6.table([good, low])["what is missing"].tolist()
    assert missing == ["nothing", "at most 71 % there, no separation"]
    empty = {"accuracy_views": None, "loss": None, "mi_bound": None}
    rows = [{**row, **empty} for row in curve((0.0, 50.0), (0.4, 90.0))]
    rows[1]["accuracy"] = None
    frame = vince_figure6.frame(Study(study="x", profile="x", config={}, rows=rows, provenance={}))
    assert frame["eta"].tolist() == [0.0, 0.4, 0.0, 0.4]
    assert frame["accuracy"].isna().tolist() == [True, False, False, False]


def test_a_study_is_stored_reading_by_reading_and_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = Sizes(etas=(0.0, 0.4), seeds=(0,), iterations=2, negatives=8, points=40, held_out=40)
    lines: list[str] = []
    first, *rest = READINGS
    monkeypatch.setattr(vince_figure6, "PROFILES", {"smoke": replace(tiny, readings=(first,))})
    (one,) = study("smoke", out_dir=tmp_path / "kept", log=lines.append)
    monkeypatch.setattr(vince_figure6, "PROFILES", {"smoke": tiny})
    assert first in lines[0]
    stored = study("smoke", out_dir=tmp_path / "new", read_also=[tmp_path / "kept"], log=lines.append)
    assert stored[0] == one
    assert [item.rows[0]["reading"] for item in stored] == [first, *rest]
    assert vince_figure6.stored("smoke", [tmp_path / "none", tmp_path / "kept"]) == [one]
    assert len(list((tmp_path / "new").rglob("*.json"))) == len(rest)
    assert representations("smoke", first, (0.0, 1.6), count=30, out_dir=None, read_also=[tmp_path]) is None
    drawn = representations("smoke", first, (0.0, 1.6), count=30, out_dir=tmp_path)
    assert drawn is not None
    assert drawn == representations("smoke", first, (0.0, 1.6), count=30, out_dir=None, read_also=[tmp_path])
    assert [(row["seed"], row["eta"], row["label"]) for row in drawn.rows[29:31]] == [(0, 0.0, 1), (0, 1.6, 0)]
    assert drawn == representations("smoke", first, (0.0, 1.6), count=30, out_dir=tmp_path)


@pytest.mark.parametrize("name", ["vince_table3", "vince_figure6", "vince_figure6_points"])
def test_what_is_stored_with_the_project_is_of_todays_configuration(name: str) -> None:
    root = Path(__file__).parents[3] / "results"
    files = {path.name for path in (root / name).glob("*.json")}
    curves = [vince_figure6._config(reading, PROFILES["paper"]) for reading in READINGS.values()]
    configs = {
        "vince_table3": vince_table3._configs("paper").values(), "vince_figure6": curves,
        "vince_figure6_points": [config | {"etas": [0.0, 0.4, 1.6], "held_out": 200} for config in curves],
    }  # fmt: skip
    assert files
    assert files <= {location(root, name, "paper", config).name for config in configs[name]}
