"""What a number in a table can say: closed forms against simulation, and toys that could have shown the opposite."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from contrastbook.evidence import inference
from contrastbook.studies import measurement


def test_the_spread_of_few_features_is_their_own_and_of_many_wobble() -> None:
    right = torch.rand(7, 300, generator=torch.Generator().manual_seed(0)) < 0.6
    pairs = [(a, b) for a in range(7) for b in range(a)]
    differ = np.mean([float((right[a] != right[b]).double().mean()) for a, b in pairs])
    assert inference.item_flip_sd(right) == pytest.approx(100 * math.sqrt(differ / 2 / 300))
    narrow, wide = (measurement.replicas(width, range(24)) for width in (8, 512))
    assert measurement.accuracies(narrow).std(ddof=1) > 3
    assert measurement.accuracies(wide).std(ddof=1) < 0.5
    assert measurement.accuracies(narrow).std(ddof=1) > 3 * inference.item_flip_sd(narrow)
    assert torch.equal(narrow, measurement.replicas(8, range(24)))


@pytest.mark.parametrize(("gap", "sd", "seeds"), [(0.0, 1.0, 4), (1.0, 0.63, 3), (2.0, 0.93, 5), (3.0, 0.25, 2)])
def test_detection_is_what_simulation_finds(gap: float, sd: float, seeds: int) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(gap, sd, (20_000, seeds)), rng.normal(0, sd, (20_000, seeds))
    share = float((stats.ttest_ind(a, b, axis=1).pvalue < 0.05).mean())
    expected = measurement.power(gap, sd, seeds)
    assert share == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / 20_000))


def test_detection_grows_and_the_first_number_of_seeds_that_suffices_is_needed() -> None:
    for sd in (0.2, 0.3, 0.6, 1.5):
        for seeds in (2, 3, 16):
            found = [measurement.power(gap, sd, seeds) for gap in np.linspace(0, 20, 401)]
            assert (np.diff(found) >= -1e-12).all()
            assert found[0] == pytest.approx(0.05, abs=1e-9)
            assert found[-1] > 0.99
    assert [measurement.seeds_needed(gap, 0.25) for gap in (3.0, 2.8)] == [2, 2]
    n = measurement.seeds_needed(1.0, 0.63)
    assert measurement.power(1.0, 0.63, n - 1) < 0.8 <= measurement.power(1.0, 0.63, n)
    assert measurement.seeds_needed(0.01, 1.0, most=20) == 20


@pytest.mark.parametrize("choices", [1, 2, 24])
def test_the_largest_of_normals(choices: int) -> None:
    draws = np.random.default_rng(0).standard_normal((40_000, choices)).max(1)
    assert measurement.expected_maximum(choices) == pytest.approx(draws.mean(), abs=4 * draws.std() / 200)
    assert choices != 2 or measurement.expected_maximum(2) == pytest.approx(1 / math.sqrt(math.pi))


def test_the_best_of_equals_prints_too_much_and_is_one_of_them() -> None:
    right = torch.rand(24, 4000, generator=torch.Generator().manual_seed(0)) < 0.5
    printed, true = measurement.picked_on(right, 500)
    assert printed == pytest.approx(50 + measurement.expected_maximum(24) * 50 / math.sqrt(500), abs=0.6)
    assert true == pytest.approx(50, abs=0.6)


def test_published_gaps_have_the_error_of_their_test_images() -> None:
    frame = measurement.published_gaps()
    line = frame[(frame["paper"] == "ring") & (frame["table"] == "1") & (frame["column"] == "cifar10")].iloc[0]
    assert line["claim"] == "IRing − IR"
    assert line["gap"] == pytest.approx(83.9 - 81.2)
    assert line["unpaired"] == pytest.approx(100 * math.sqrt((0.839 * 0.161 + 0.812 * 0.188) / 10_000))
    assert line["least"] == pytest.approx(100 * math.sqrt(0.027 * 0.973 / 10_000))
    assert (frame["least"] <= frame["unpaired"] + 1e-12).all()


def test_a_collapsed_encoder_that_turns_earns_nats_for_nothing() -> None:
    angle, tau = 0.1, 0.2
    keys = [(math.cos(a * angle), math.sin(a * angle)) for a in range(1, 5) for _ in range(3)]
    loss = -math.log(math.exp(1 / tau) / (math.exp(1 / tau) + sum(math.exp(k[0] / tau) for k in keys)))
    assert measurement.collapsed_bound(angle, 4, 3, tau) == pytest.approx(math.log(13) - loss)
    assert measurement.collapsed_bound(0.0) == pytest.approx(0, abs=1e-12)


def test_stale_keys_flatter_and_an_own_stale_row_does_the_opposite() -> None:
    still, moving = ([measurement.drift(step, seed=s) for s in range(4)] for step in (0.0, 0.3))

    def mean(of: list[measurement.Drift], name: str) -> float:
        return float(np.mean([getattr(each, name) for each in of]))

    assert mean(still, "stored") == pytest.approx(mean(still, "fresh"), abs=1e-4)
    assert mean(moving, "stored") - mean(moving, "fresh") > 0.2
    assert mean(moving, "unrelated") - mean(still, "unrelated") > 0.2
    assert mean(moving, "own_row") - mean(still, "own_row") < -0.5
