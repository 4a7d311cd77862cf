"""Intervals, looks and verdicts: against formulas written out, printed constants, and simulation."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from contrastbook.evidence import inference
from contrastbook.evidence.inference import LOOKS, NOT_RUN, Difference, Look, decide, look, verdict

CLEAR = [2.0, 2.1, 1.9, 2.0, 2.1, 1.9, 2.0, 2.1]


def test_paired_is_scipys() -> None:
    differences = [1.9, 1.4, -0.2, 1.8]
    ours, theirs = inference.paired(differences), stats.ttest_1samp(differences, 0.0)
    assert (ours.low, ours.high) == pytest.approx(tuple(theirs.confidence_interval(0.95)))
    assert ours.p == pytest.approx(theirs.pvalue)


def test_nothing_is_decided_by_one_seed_or_before_eight() -> None:
    one = inference.paired([3.0])
    assert math.isinf(one.half_width)
    assert one.p == 1
    (early,) = look([5.0, 5.1, 4.9, 5.0, 5.0, 5.1, 4.9], 5.0)
    assert (early.seeds, early.p, early.p_large) == (7, 1.0, 1.0)
    assert [end.verdict for end in decide([([early], 1), ([NOT_RUN], 1)])] == ["open", "open"]


def test_wobble_is_half_the_disagreement_of_pairs_of_seeds() -> None:
    draw = torch.Generator().manual_seed(1)
    chance = torch.rand(300, generator=draw)
    right = torch.rand(5, 300, generator=draw) < chance
    pairs = [(right[i] ^ right[j]).double().mean().item() for i in range(5) for j in range(i)]
    assert inference.item_flip_sd(right) == pytest.approx(100 * math.sqrt(np.mean(pairs) / 2 / 300))


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


@pytest.mark.usefixtures("tabulated")
def test_of_skewed_differences_the_looks_miss_more_often() -> None:
    draws = np.random.default_rng(1).exponential(1, (600, LOOKS[-1])) - 1
    ends = [decide([(look(row.tolist(), math.nan, 1), 1)])[0].at.difference for row in draws]
    assert np.mean([not end.low <= 0 <= end.high for end in ends]) > 0.1


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


def test_the_chance_of_a_large_difference_is_that_of_two_one_sided_tests() -> None:
    differences = [0.5, -0.4, 0.3, 0.1, -0.2, 0.6, 0.0, 0.2]
    (at,) = look(differences, -1.0)
    sides = [stats.ttest_1samp(differences, end, alternative=way).pvalue for end, way in ((1, "less"), (-1, "greater"))]
    assert at.p_large == pytest.approx(inference.crossing(2 * max(sides)))
    assert look(differences, 0.2, 0)[0].p_large == at.p_large  # none is claimed: the margin
    assert look(differences, math.nan, 1)[0].p_large == 1
    assert (look([1.0] * 8, 2.0)[0].p_large, look([1.0] * 8, 0.5)[0].p_large) == (0, 1)


def test_a_claim_with_a_verdict_keeps_its_look_and_an_open_one_is_looked_at_again() -> None:
    (end,) = decide([(look([*CLEAR, -50.0, -50.0, -50.0, -50.0], 3.0), 1)])
    assert (end.at.seeds, end.verdict) == (8, "same sign")
    assert end.at.difference.mean == pytest.approx(np.mean(CLEAR))
    assert decide([(look(CLEAR, -3.0), -1)])[0].verdict == "opposite sign"
    # between looks nothing is looked at
    assert decide([(look([3.0, -3.0] * 4 + [9.0] * 3, 1.0), 1)])[0].at.seeds == 8
    # its interval excludes 0 after eight seeds, but not for all twelve claims together: it goes on
    looks = look([1.6, 0.1, 1.3, 0.2, 1.5, 0.3, 1.4, 0.8] * 2, 1.0)
    assert looks[0].difference.low > 0
    (alone,) = decide([(looks, 1)])
    together = decide([(looks, 1), *[([NOT_RUN], 1)] * 11])[0]
    assert (alone.at.seeds, alone.verdict) == (8, "same sign")
    assert together.at.seeds > 8
    assert together.p_holm == pytest.approx(12 * together.at.p)


def test_the_interval_of_a_look_is_wider_than_of_a_single_look() -> None:
    differences = [0.5, -0.4, 0.3, 0.1, -0.2, 0.6, 0.0, 0.2]
    (at,), plain = look(differences, 1.0), inference.paired(differences)
    half = stats.t.ppf(1 - inference.pocock() / 2, 7) * np.std(differences, ddof=1) / math.sqrt(8)
    assert at.difference.half_width == pytest.approx(half)
    assert at.difference.half_width > 1.1 * plain.half_width
    assert at.p > plain.p


def test_verdicts_of_an_interval_and_a_claim() -> None:
    def said(low: float, high: float, p: float, p_large: float, sign: float) -> tuple[str, float | None]:
        return verdict(Look(8, Difference((low + high) / 2, (high - low) / 2, p), p, p_large), p, p_large, sign)

    assert said(-0.5, 0.9, 0.5, 0.01, 1) == ("not of the published size", pytest.approx(0.9))
    assert said(-1.1, 0.2, 0.5, 0.05, -1) == ("not of the published size", pytest.approx(1.1))
    assert said(-0.5, 0.9, 0.5, 0.051, 1) == ("open", None)
    assert said(0.1, 0.9, 0.05, 0.001, 1) == ("same sign", None)
    assert said(0.1, 0.9, 0.05, 1.0, -1) == ("opposite sign", None)
    assert said(0.1, 0.9, 0.001, 0.01, 0) == ("no difference, as claimed", pytest.approx(0.9))
    assert said(2.5, 3.5, 0.01, 1.0, 0) == ("difference where none is claimed", None)
    assert said(2.5, 3.5, 0.06, 1.0, 0) == ("open", None)


@pytest.fixture
def tabulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chance to cross, read between 300 levels for which it was computed: thousands of looks ask for it."""
    levels = np.geomspace(1e-12, 1, 300)[:-1]
    logs = [math.log(inference.crossing(float(level))) for level in levels]

    def crossing(p: float) -> float:
        return math.exp(np.interp(math.log(p), np.log(levels), logs))

    for level in (0.6, 0.04, 3e-4):
        assert crossing(level) == pytest.approx(inference.crossing(level), rel=1e-3)
    monkeypatch.setattr(inference, "_of_all_looks", lambda p: crossing(p) if 0 < p < 1 else p)


@pytest.mark.usefixtures("tabulated")
@pytest.mark.parametrize("truth", [0.0, 0.6, 2.7])
def test_looking_three_times_keeps_its_promise(truth: float) -> None:
    count, published = 400, 2.7
    draws = np.random.default_rng(round(truth * 10)).normal(truth, 1.3, (count, LOOKS[-1]))
    ends = [decide([(look(row.tolist(), published), 1)])[0] for row in draws]
    error = math.sqrt(0.05 * 0.95 / count)
    missed = np.mean([not e.at.difference.low <= truth <= e.at.difference.high for e in ends])
    assert missed < 0.05 + 3 * error
    if truth == 0:
        wrong = np.mean([e.p_holm <= 0.05 for e in ends])
        assert wrong < 0.05 + 3 * error
        # a plain interval at each look would be wrong more often: the price is needed
        plain = [any(inference.paired(row[:n].tolist()).p <= 0.05 for n in LOOKS) for row in draws]
        assert np.mean(plain) > 0.07
    if truth == published:
        small = [e.verdict == "not of the published size" for e in ends]
        assert np.mean(small) < 0.05 + 3 * error
    assert {e.at.seeds for e in ends} <= set(LOOKS)
