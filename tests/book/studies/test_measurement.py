"""What a number in a table can say: closed forms against simulation, and toys that could have shown the opposite."""

import math
from itertools import combinations, product
from statistics import fmean

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from contrastbook.evidence import inference
from contrastbook.studies import measurement


def drawn_right(seeds: int, images: int, share: float) -> Tensor:
    """Which images each seed has right ``[seeds, images]``: a coin of the same ``share`` for every one."""
    return torch.rand(seeds, images, generator=torch.Generator().manual_seed(0)) < share


def test_the_spread_of_few_features_is_their_own_and_of_many_wobble() -> None:
    """Networks of 8 features differ by more than coins of the images would; those of 512 hardly differ."""
    right = drawn_right(7, 300, 0.6)
    disagreements = [float((a != b).double().mean()) for a, b in combinations(right, 2)]
    by_pairs = 100 * math.sqrt(fmean(disagreements) / 2 / 300)
    assert inference.item_flip_sd(right) == pytest.approx(by_pairs)

    narrow = measurement.replicas(8, range(24))
    wide = measurement.replicas(512, range(24))
    sd_of_narrow = measurement.accuracies(narrow).std(ddof=1)
    sd_of_wide = measurement.accuracies(wide).std(ddof=1)
    assert sd_of_narrow > 3
    assert sd_of_narrow > 3 * inference.item_flip_sd(narrow)
    assert sd_of_wide < 0.5
    again = measurement.replicas(8, range(24))
    assert torch.equal(narrow, again)


@pytest.mark.parametrize(("gap", "sd", "seeds"), [(0.0, 1.0, 4), (1.0, 0.63, 3), (2.0, 0.93, 5), (3.0, 0.25, 2)])
def test_detection_is_what_simulation_finds(gap: float, sd: float, seeds: int) -> None:
    experiments = 20_000
    rng = np.random.default_rng(0)
    better = rng.normal(gap, sd, (experiments, seeds))
    worse = rng.normal(0, sd, (experiments, seeds))
    is_found = stats.ttest_ind(better, worse, axis=1).pvalue < 0.05
    expected = measurement.power(gap, sd, seeds)
    error = math.sqrt(expected * (1 - expected) / experiments)
    assert float(is_found.mean()) == pytest.approx(expected, abs=4 * error)


def test_detection_grows_and_the_first_number_of_seeds_that_suffices_is_needed() -> None:
    for sd, seeds in product((0.2, 0.3, 0.6, 1.5), (2, 3, 16)):
        power = [measurement.power(gap, sd, seeds) for gap in np.linspace(0, 20, 401)]
        assert power[0] == pytest.approx(0.05, abs=1e-9)
        assert (np.diff(power) >= -1e-12).all()
        assert power[-1] > 0.99

    assert measurement.seeds_needed(3.0, 0.25) == 2
    assert measurement.seeds_needed(2.8, 0.25) == 2
    needed = measurement.seeds_needed(1.0, 0.63)
    assert measurement.power(1.0, 0.63, needed - 1) < 0.8
    assert measurement.power(1.0, 0.63, needed) >= 0.8
    assert measurement.seeds_needed(0.01, 1.0, most=20) == 20  # they do not suffice


@pytest.mark.parametrize("choices", [1, 2, 24])
def test_the_largest_of_normals(choices: int) -> None:
    draws = 40_000
    largest = np.random.default_rng(0).standard_normal((draws, choices)).max(1)
    error = largest.std() / math.sqrt(draws)
    assert measurement.expected_maximum(choices) == pytest.approx(largest.mean(), abs=4 * error)


def test_the_larger_of_two_normals_in_closed_form() -> None:
    assert measurement.expected_maximum(2) == pytest.approx(1 / math.sqrt(math.pi))


def test_the_best_of_equals_prints_too_much_and_is_one_of_them() -> None:
    """All 24 networks are right half of the time. The best on 500 images looks better by the largest of 24 errors."""
    right = drawn_right(24, 4000, 0.5)
    error = 50 / math.sqrt(500)  # standard error of a percentage near 50
    printed, true = measurement.picked_on(right, 500)
    assert printed == pytest.approx(50 + error * measurement.expected_maximum(24), abs=0.6)
    assert true == pytest.approx(50, abs=0.6)


def test_published_gaps_have_the_error_of_their_test_images() -> None:
    """CIFAR-10 in ring Table 1 has 83.9 for IRing and 81.2 for IR, of 10,000 test images."""
    frame = measurement.published_gaps()
    of_table = (frame["paper"] == "ring") & (frame["table"] == "1")
    line = frame[of_table & (frame["column"] == "cifar10")].iloc[0]
    assert line["claim"] == "IRing − IR"
    assert line["gap"] == pytest.approx(83.9 - 81.2)
    variance_of_iring = 0.839 * 0.161
    variance_of_ir = 0.812 * 0.188
    assert line["unpaired"] == pytest.approx(100 * math.sqrt((variance_of_iring + variance_of_ir) / 10_000))
    # the rows differ on 2.7 % of the images, all for IRing
    variance_of_difference = 0.027 * 0.973
    assert line["least"] == pytest.approx(100 * math.sqrt(variance_of_difference / 10_000))
    assert (frame["least"] <= frame["unpaired"] + 1e-12).all()


def test_a_collapsed_encoder_that_turns_earns_nats_for_nothing() -> None:
    """Three keys lie at each of one to four steps from the query, and the positive on it. At rest it earns nothing."""
    angle = 0.1
    tau = 0.2
    positive = math.exp(1 / tau)
    keys = [math.exp(math.cos(age * angle) / tau) for age in (1, 2, 3, 4) for _ in range(3)]
    loss = -math.log(positive / (positive + sum(keys)))
    assert measurement.collapsed_bound(angle, 4, 3, tau) == pytest.approx(math.log(13) - loss)
    assert measurement.collapsed_bound(0.0) == pytest.approx(0, abs=1e-12)


def mean_drift(step: float) -> measurement.Drift:
    """What the losses of an encoder say that takes steps of this size: the mean over four seeds."""
    each = [measurement.drift(step, seed=seed) for seed in range(4)]
    return measurement.Drift(
        stored=fmean(drift.stored for drift in each),
        fresh=fmean(drift.fresh for drift in each),
        unrelated=fmean(drift.unrelated for drift in each),
        own_row=fmean(drift.own_row for drift in each),
    )


def test_stale_keys_flatter_and_an_own_stale_row_does_the_opposite() -> None:
    still = mean_drift(0.0)
    moving = mean_drift(0.3)
    assert still.stored == pytest.approx(still.fresh, abs=1e-4)
    assert moving.stored > moving.fresh + 0.2
    assert moving.unrelated > still.unrelated + 0.2
    assert moving.own_row < still.own_row - 0.5
