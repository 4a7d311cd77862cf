"""Intervals, looks and verdicts: against formulas written out, printed constants, and simulation."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from contrastbook.evidence import inference
from contrastbook.evidence.inference import LOOKS, Decision, Difference, decide, verdict
from contrastlab.errors import ArgumentError

A, B = [52.1, 53.4, 51.7, 52.9, 53.0], [50.2, 52.0, 51.9, 51.1]


def test_paired_and_unpaired_are_scipys() -> None:
    differences = [a - b for a, b in zip(A, B, strict=False)]
    ours, theirs = inference.paired(differences), stats.ttest_1samp(differences, 0.0)
    assert (ours.low, ours.high) == pytest.approx(tuple(theirs.confidence_interval(0.95)))
    assert ours.p == pytest.approx(theirs.pvalue)
    ours, theirs = inference.unpaired(A, B, level=0.1), stats.ttest_ind(A, B, equal_var=False)
    assert (ours.low, ours.high) == pytest.approx(tuple(theirs.confidence_interval(0.9)))
    assert ours.p == pytest.approx(theirs.pvalue)


def test_nothing_is_decided_by_one_seed_or_before_eight() -> None:
    for one in (inference.paired([3.0]), inference.unpaired([3.0], [1.0, 2.0])):
        assert math.isinf(one.half_width)
        assert one.p == 1
    for bad in ([], [math.nan]):
        with pytest.raises(ArgumentError, match="differences"):
            inference.paired(bad)
    early = decide([5.0, 5.1, 4.9, 5.0, 5.0, 5.1, 4.9], 5.0)
    assert (early.seeds, early.p) == (7, 1.0)
    assert verdict(early, early.p, 5.0) == ("open", None)


def test_wobble_is_half_the_disagreement_of_pairs_of_seeds() -> None:
    draw = torch.Generator().manual_seed(1)
    chance = torch.rand(300, generator=draw)
    right = torch.rand(5, 300, generator=draw) < chance
    pairs = [(right[i] ^ right[j]).double().mean().item() for i in range(5) for j in range(i)]
    assert inference.item_flip_sd(right) == pytest.approx(100 * math.sqrt(np.mean(pairs) / 2 / 300))
    with pytest.raises(ArgumentError, match="two seeds"):
        inference.item_flip_sd(right[:1])


@pytest.mark.parametrize(("looks", "printed"), [(1, 1.960), (2, 2.178), (3, 2.289), (4, 2.361), (5, 2.413)])
def test_critical_values_of_very_many_seeds_are_those_pocock_prints(looks: int, printed: float) -> None:
    many = tuple(800 * (k + 1) for k in range(looks))
    assert stats.norm.isf(inference.pocock(many) / 2) == pytest.approx(printed, abs=3e-3)


@pytest.mark.parametrize("level", [0.2, 0.05, 0.01])
def test_the_chance_to_cross_is_that_of_simulated_looks(level: float) -> None:
    draws = np.random.default_rng(0).normal(0, 3, (200_000, LOOKS[-1]))
    found = np.zeros(len(draws), bool)
    for n in LOOKS:
        found |= stats.ttest_1samp(draws[:, :n], 0, axis=1).pvalue <= level
    error = math.sqrt(found.mean() * (1 - found.mean()) / len(draws))
    assert inference.crossing(level) == pytest.approx(found.mean(), abs=4 * error)
    assert inference.crossing(level, (8,)) == pytest.approx(level, rel=1e-8)


def test_of_skewed_differences_the_looks_miss_more_often() -> None:
    draws = np.random.default_rng(1).exponential(1, (600, LOOKS[-1])) - 1
    ends = [decide(row.tolist(), math.nan) for row in draws]
    assert np.mean([not e.difference.low <= 0 <= e.difference.high for e in ends]) > 0.1


def test_holm_is_the_step_down_rule() -> None:
    p = [0.011, 0.6, 0.04, 0.013, 0.013]
    adjusted = inference.holm(p)
    for level in np.linspace(0.001, 0.999, 500):
        # reject the smallest as long as it is at most level / (how many are left)
        rejected, left = set(), sorted(range(5), key=lambda k: p[k])
        while left and p[left[0]] <= level / len(left):
            rejected.add(left.pop(0))
        assert {k for k in range(5) if adjusted[k] <= level} == rejected
    assert inference.holm([]) == []


def test_seeds_beyond_the_look_that_decided_are_left_out() -> None:
    clear = [2.0, 2.1, 1.9, 2.0, 2.1, 1.9, 2.0, 2.1]
    at = decide([*clear, -50.0, -50.0], 3.0)
    assert at.seeds == 8
    assert at.difference.mean == pytest.approx(np.mean(clear))
    assert verdict(at, at.p, 3.0) == ("same sign", None)
    assert verdict(at, at.p, -3.0) == ("opposite sign", None)
    assert verdict(at, 0.051, 3.0)[0] == "no difference larger than"
    assert verdict(at, 0.05, math.nan, -1) == ("opposite sign", None)
    assert verdict(at, 0.051, math.nan, -1) == ("open", None)
    # between looks nothing is looked at
    unclear = [3.0, -3.0] * 4
    assert decide([*unclear, 9.0, 9.0, 9.0], 1.0).seeds == 8
    assert decide([3.0, -3.0] * 9, 1.0).seeds == 16


def test_the_interval_of_a_look_is_wider_than_of_a_single_look() -> None:
    differences = [0.5, -0.4, 0.3, 0.1, -0.2, 0.6, 0.0, 0.2]
    at, plain = decide(differences, 1.0), inference.paired(differences)
    half = stats.t.ppf(1 - inference.pocock() / 2, 7) * np.std(differences, ddof=1) / math.sqrt(8)
    assert at.difference.half_width == pytest.approx(half)
    assert at.difference.half_width > 1.1 * plain.half_width
    assert at.p > plain.p


def test_verdicts_of_an_interval_and_a_claim() -> None:
    def made(low: float, high: float) -> Decision:
        return Decision(8, Difference((low + high) / 2, (high - low) / 2, 0.5), 0.5)

    assert verdict(made(-0.5, 0.9), 0.5, 2.7) == ("no difference larger than", pytest.approx(0.9))
    assert verdict(made(-1.1, 0.2), 0.5, -2.0) == ("no difference larger than", pytest.approx(1.1))
    assert verdict(made(-0.5, 2.8), 0.5, 2.7) == ("open", None)
    assert verdict(made(-2.8, 0.1), 0.5, 2.7) == ("open", None)
    assert verdict(made(-0.5, 0.9), 0.001, 0.0) == ("no difference larger than", pytest.approx(0.9))
    assert verdict(made(-0.5, 1.1), 0.5, 0.0) == ("open", None)
    assert verdict(made(2.5, 3.5), 0.01, 0.0) == ("difference where none is claimed", None)
    assert verdict(made(2.5, 3.5), 0.01, -0.2, 0) == ("difference where none is claimed", None)
    assert verdict(made(2.5, 3.5), 0.06, -0.2, 0) == ("open", None)
    assert verdict(made(0.3, 0.9), 0.01, -0.2, 0) == ("no difference larger than", pytest.approx(0.9))


@pytest.mark.parametrize("truth", [0.0, 0.6, 2.7])
def test_looking_three_times_keeps_its_promise(truth: float) -> None:
    count, published = 800, 2.7
    draws = np.random.default_rng(round(truth * 10)).normal(truth, 1.3, (count, LOOKS[-1]))
    ends = [decide(row.tolist(), published) for row in draws]
    error = math.sqrt(0.05 * 0.95 / count)
    missed = np.mean([not e.difference.low <= truth <= e.difference.high for e in ends])
    assert missed < 0.05 + 3 * error
    if truth == 0:
        wrong = np.mean([e.p <= 0.05 for e in ends])
        assert wrong < 0.05 + 3 * error
        # a plain interval at each look would be wrong more often: the price is needed
        plain = [any(inference.paired(row[:n].tolist()).p <= 0.05 for n in LOOKS) for row in draws]
        assert np.mean(plain) > 0.07
    assert {e.seeds for e in ends} <= set(LOOKS)
