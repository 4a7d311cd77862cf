"""Batched training against a plain one; what a reading of vince Table 3 reports."""

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from contrastbook.studies import Study, looseness, vince_table3
from contrastbook.studies.looseness import Reading
from contrastbook.studies.vince_table3 import PATIENT, THEOREM, WRITTEN, Sizes
from contrastbook.theory import gaussians
from contrastlab.support.errors import UnknownNameError
from made_runs import one_network

MI = gaussians.information()


def test_selection_is_exactly_the_highest_share() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(6, 201, generator=generator)
    own = torch.arange(6)
    for percent in (5.0, 50.0, 90.0, 100.0):
        count = round(200 * percent / 100)
        draws = (torch.arange(count, dtype=torch.float64) / count + 1e-9).expand(6, -1)
        found = looseness.choose(scores.clone(), own, percent, draws)
        without = scores.clone().scatter_(1, own[:, None], -math.inf)
        expected = without.sort(1, descending=True).indices[:, :count]
        assert torch.equal(found.sort(1).values, expected.sort(1).values)


@pytest.fixture
def double() -> Iterator[None]:
    # no loss sees a constant added to all g(y): in float32 Adam turns the rounding of that gradient into whole steps
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def _plain(reading: Reading, percent: float, seed: int, chosen: list[Tensor], points: int, batch: int) -> list[Tensor]:
    # one model: torch modules, autograd throughout; the draws are given and checked to lie in the set
    net_x = one_network(looseness.networks([seed], 1), 0)
    net_y = net_x if reading.encoders == "shared" else one_network(looseness.networks([seed], 2), 0)
    x, y = looseness.sample(seed if reading.data == "redrawn" else 0, points)
    both = [part for net in dict.fromkeys((net_x, net_y)) for part in net.parameters()]
    optimizer = torch.optim.Adam(both, lr=reading.rate)

    def codes(net: nn.Module, inputs: Tensor) -> Tensor:
        out = net(inputs)
        return out if reading.output == "plane" else out / out.norm(dim=1, keepdim=True) / looseness.TEMPERATURE**0.5

    memory = codes(net_y, y).detach()
    count = round((points - 1) * percent / 100)
    order = looseness.order(seed, points, chosen[0].shape[1], batch)
    for indices, (own, _) in zip(chosen, order, strict=False):
        anchors, fresh = codes(net_x, x[own]), codes(net_y, y)
        bank = memory if reading.bank == "memory" else fresh
        positives = fresh[own]
        scores = anchors @ bank.T
        middle = anchors if reading.nearest == "x" else positives
        far = (middle[:, None] - bank[None]).square().sum(2)
        ranking = (scores if reading.nearest == "critic" else -far).detach().clone()
        ranking[torch.arange(len(own)), own] = -math.inf
        threshold = ranking.sort(1, descending=True)[0][:, count - 1 : count]
        assert not (indices == own[:, None]).any()
        assert (ranking.gather(1, indices) >= threshold - 1e-6 * (1 + threshold.abs())).all()
        below = scores.gather(1, indices)
        positive = (anchors * positives).sum(1)
        below = torch.cat([positive[:, None], below], 1)
        loss = -(positive - below.exp().mean(1).log()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        memory = memory.index_put((own,), positives.detach())
    return [part.detach() for part in both]


@pytest.mark.parametrize("reading", [
    WRITTEN, THEOREM, Reading(nearest="x", encoders="shared"), Reading(output="sphere"),
    Reading(nearest="critic", bank="memory", data="redrawn"),
], ids=lambda reading: reading.name)  # fmt: skip
@pytest.mark.usefixtures("double")
def test_all_models_at_once_train_as_each_alone(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    points, batch, k = 60, 24, 8
    drawn: list[Tensor] = []
    rounded, original = looseness.sample, looseness.choose
    monkeypatch.setattr(looseness, "sample", lambda *arguments: tuple(part.double() for part in rounded(*arguments)))
    monkeypatch.setattr(looseness, "choose", lambda *given: drawn.append(original(*given)) or drawn[-1])
    fitted = looseness.fit(reading, (100.0, 60.0), (3, 4), epochs=1, points=points, negatives=k, batch=batch)
    for model, (percent, seed) in enumerate(fitted.models):
        alone = _plain(reading, percent, seed, drawn[model :: len(fitted.models)], points, batch)
        nets = dict.fromkeys((fitted.x, fitted.y))
        ours_in_order = [part for net in nets for layer in zip(net.weights, net.biases, strict=True) for part in layer]
        for ours, theirs in zip(ours_in_order, alone, strict=True):
            mine = ours.detach()[model]
            torch.testing.assert_close(mine.T if theirs.ndim == 2 else mine[0], theirs, rtol=0, atol=1e-8)


def test_a_seed_gives_the_same_numbers_alone_or_among_others() -> None:
    few = {"epochs": 1, "points": 300}
    among = vince_table3.train(PATIENT, (100.0, 75.0), (0, 1), **few)
    assert among == vince_table3.train(PATIENT, (100.0, 75.0), (0, 1), **few)
    alone = vince_table3.train(PATIENT, (75.0,), (1,), **few)[0]
    twin = among[3]
    assert (twin["percent"], twin["seed"]) == (75.0, 1)
    for name in ("train", "held_out", "population", "infonce", "last_epoch", "spread"):
        assert alone[name] == pytest.approx(twin[name], rel=1e-3, abs=1e-5)


def test_expectations_on_the_grid_and_of_samples() -> None:
    x, y = vince_table3._GRID_X[:, None] / math.sqrt(2), vince_table3._GRID_Y[:, None] / math.sqrt(2)
    # f* = (x, y)-products of rank 3: ρxy/(1−ρ²) − ½ρ²x²/(1−ρ²) − ½ρ²y²/(1−ρ²)
    bend = 0.04 / 0.96
    left = torch.cat([x * 0.2 / 0.96, -0.5 * bend * x**2, torch.ones_like(x)], 1)
    right = torch.cat([y, torch.ones_like(y), -0.5 * bend * y**2], 1)
    for percent in (100.0, 90.0, 50.0, 10.0):
        found = vince_table3._expectation(left, right, percent, "critic")
        assert found == pytest.approx(gaussians.population(percent).value, abs=2e-4)
    for nearest in ("x", "critic"):  # where the negatives lie far below
        steep = vince_table3._GRID_X[:, None] * 500, vince_table3._GRID_Y[:, None]
        assert math.isfinite(vince_table3._expectation(*steep, 25.0, nearest))
    scores = torch.zeros(3, 3, dtype=torch.float64)
    scores[0, 1] = 1.0
    expected = -math.log((math.e + 1) / 2) / 3
    for own in (0, 1e4):
        assert vince_table3._against_others(scores + own * torch.eye(3)) == pytest.approx(own + expected, abs=1e-8)


def test_a_model_that_diverges_or_collapses_is_reported_as_such() -> None:
    rows = vince_table3.train(Reading(nearest="critic", rate=1e12), (100.0, 90.0), (0,), epochs=1, points=300)
    for row in rows:
        assert (row["status"], row["train"]) == ("diverged", None)
        assert "epoch 1" in str(row["reason"])
    json.dumps(rows, allow_nan=False)
    row = vince_table3.train(THEOREM, (25.0,), (0,), epochs=15, points=400)[0]
    assert row["status"] == "collapsed"
    assert abs(row["train"]) < 1e-3
    row = vince_table3.train(WRITTEN, (90.0,), (0,), epochs=6)[0]
    assert row["status"] == "trained"
    assert row["held_out"] > 2 * MI


def test_stored_rows_are_read_back(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = {"tiny": Sizes((WRITTEN, PATIENT), percents=(100.0,), seeds=(0,), epochs=1, points=200)}
    monkeypatch.setattr(vince_table3, "PROFILES", tiny)
    lines: list[str] = []
    assert vince_table3.stored("tiny", [tmp_path]) == {}
    first = vince_table3.study("tiny", tmp_path, log=lines.append)
    monkeypatch.setattr(vince_table3, "train", lambda *args, **kwargs: pytest.fail("trained again"))
    assert vince_table3.study("tiny", tmp_path / "elsewhere", [tmp_path]) == first
    assert vince_table3.stored("tiny", [tmp_path / "elsewhere", tmp_path]) == first
    assert len(lines) == len(first) == 2


def test_summaries_count_what_has_no_number() -> None:
    names = ("percent", "status", "train")
    made = [(90.0, "trained", 1.0), (90.0, "diverged", None), (50.0, "collapsed", 0.5), (50.0, "trained", 1.5)]
    study = study_of([dict(zip(names, row, strict=True)) for row in made])
    lines = vince_table3.summary(study)
    assert lines[["mean", "n", "diverged", "collapsed"]].T.to_dict("list") == {90.0: [1, 1, 1, 0], 50.0: [1, 2, 0, 1]}
    assert lines.loc[50.0, "sd"] == pytest.approx(0.5**0.5)
    with pytest.raises(UnknownNameError):
        vince_table3.summary(study, "held")
    kept = rows_of({90.0: {"train": 0.5}})
    rows = [*kept.rows, {**kept.rows[0], "train": 1.5}, {**kept.rows[0], "train": None, "status": "diverged"}]
    assert vince_table3.described(study_of(rows)).loc[90.0] == "1 ± 0.71 (2, 1 diverged)"
    assert vince_table3.described(kept).loc[90.0] == "0.5 (1)"


def test_a_profile_has_each_reading_once() -> None:
    for profile in vince_table3.PROFILES.values():
        assert len({reading.name for reading in profile.readings}) == len(profile.readings)
        assert 100.0 in profile.percents


def study_of(rows: list[dict]) -> Study:
    return Study(study="x", profile="x", config={}, rows=rows, provenance={})


def rows_of(each: dict[float, dict[str, float]]) -> Study:
    same = {"status": "trained", "held_out": 0.0, "infonce": 0.0, "infonce_population": 0.0}
    return study_of([{"percent": percent, **same, **row} for percent, row in each.items()])


def test_the_table_is_as_printed_and_beside_it_stands_what_is_exact() -> None:
    printed, exact = vince_table3.published(), vince_table3.exact()
    assert printed.loc[100.0].tolist() == [0.01345, 0.001]
    assert printed.index.tolist() == exact.index.tolist() == list(gaussians.PERCENTS)
    half, best = gaussians.population(50), gaussians.largest(50)
    names = ["at f*", "best critic", "its InfoNCE", "hypothesis holds (% of x)"]
    assert exact.loc[50.0, names].tolist() == [half.value, best.value, best.infonce, 100 * half.share]
    assert pd.isna(exact.loc[100.0, "hypothesis holds (% of x)"])


def test_a_verdict_names_the_percentages() -> None:
    found = rows_of({
        100.0: {"train": 0.0136, "held_out": 0.5, "infonce": 0.0272, "infonce_population": 0.001},
        90.0: {"train": 0.0124 * 1.6, "held_out": 0.03, "infonce": 0.0124},
        75.0: {"train": -0.2, "held_out": 0.019, "infonce": 0.0022 / 1.4, "status": "negative"},
    })  # fmt: skip
    expected = {"trains": [100.0, 90.0], "above the truth": [90.0], "train": [100.0], "infonce": [90.0, 75.0]}
    assert vince_table3.verdict(found) == expected | {"infonce_population": []}
    other = rows_of({100.0: {"train": 1.0}})
    table = pd.DataFrame({"a": vince_table3.verdict(other), "b": vince_table3.verdict(found)}).T
    assert vince_table3.closest(table) == ("b", "infonce")


def test_the_stored_readings_can_be_judged() -> None:
    stored = vince_table3.stored("paper", [Path(__file__).parents[3] / "results"])
    assert len(stored) == len(vince_table3.PROFILES["paper"].readings)
    verdict = vince_table3.verdict(stored[vince_table3.WRITTEN])
    assert 90.0 in verdict["above the truth"]
    with pytest.raises(KeyError):
        vince_table3.verdict(rows_of({60.0: {"train": 1.0}}))
