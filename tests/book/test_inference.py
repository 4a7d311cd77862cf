"""Intervals, looks and verdicts: against formulas written out, printed constants, and simulation."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats

from contrastbook.evidence import inference
from contrastbook.evidence.inference import LOOKS, NOT_RUN, Decision, Difference, Look, decide, look, verdict
from contrastlab.support.errors import ArgumentError

# One difference -------------------------------------------------------------------------------------------------------


def test_paired_is_scipys() -> None:
    differences = [1.9, 1.4, -0.2, 1.8]
    ours = inference.paired(differences)
    theirs = stats.ttest_1samp(differences, 0.0)
    interval = theirs.confidence_interval(0.95)
    assert ours.mean == pytest.approx(np.mean(differences))
    assert ours.low == pytest.approx(interval.low)
    assert ours.high == pytest.approx(interval.high)
    assert ours.p == pytest.approx(theirs.pvalue)


def test_one_difference_has_an_interval_without_ends() -> None:
    one = inference.paired([3.0])
    assert one.mean == 3
    assert one.half_width == math.inf
    assert one.p == 1


@pytest.mark.parametrize(("value", "p"), [(2.0, 0.0), (0.0, 1.0)])
def test_equal_differences_leave_no_doubt(value: float, p: float) -> None:
    same = inference.paired([value] * 5)
    assert same.low == same.high == value
    assert same.p == p


@pytest.mark.parametrize("differences", [[], [1.0, math.nan], [1.0, math.inf]])
def test_differences_that_are_none_are_refused(differences: list[float]) -> None:
    with pytest.raises(ArgumentError, match="differences=.*at least one finite number"):
        inference.paired(differences)


def test_wobble_is_half_the_disagreement_of_pairs_of_seeds() -> None:
    draw = torch.Generator().manual_seed(1)
    chance_of_item = torch.rand(300, generator=draw)
    right = torch.rand(5, 300, generator=draw) < chance_of_item
    disagreements = []
    for one, other in itertools.combinations(right, 2):
        disagreements.append((one != other).double().mean().item())
    expected = 100 * math.sqrt(np.mean(disagreements) / (2 * 300))
    assert inference.item_flip_sd(right) == pytest.approx(expected)


# Several looks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("looks", "printed"), [(1, 1.960), (2, 2.178), (3, 2.289), (4, 2.361), (5, 2.413)])
def test_critical_values_of_very_many_seeds_are_those_pocock_prints(looks: int, printed: float) -> None:
    many = tuple(800 * (k + 1) for k in range(looks))
    level = inference.pocock(many)
    assert stats.norm.isf(level / 2) == pytest.approx(printed, abs=3e-3)


@pytest.mark.parametrize("level", [0.2, 0.05, 0.01])
def test_the_chance_to_cross_is_that_of_simulated_looks(level: float) -> None:
    differences = np.random.default_rng(0).normal(0, 3, (200_000, LOOKS[-1]))
    crossed = np.zeros(len(differences), bool)
    for seeds in LOOKS:
        at_this_look = stats.ttest_1samp(differences[:, :seeds], 0, axis=1).pvalue <= level
        crossed = crossed | at_this_look
    share = crossed.mean()
    error = math.sqrt(share * (1 - share) / len(differences))
    assert inference.crossing(level) == pytest.approx(share, abs=4 * error)


@pytest.mark.parametrize("level", [0.2, 0.05, 0.01])
def test_the_chance_to_cross_at_a_single_look_is_its_level(level: float) -> None:
    assert inference.crossing(level, (8,)) == pytest.approx(level, rel=1e-8)


DIFFERENCES = [0.5, -0.4, 0.3, 0.1, -0.2, 0.6, 0.0, 0.2]


def test_the_interval_of_a_look_is_that_of_pococks_level() -> None:
    (at,) = look(DIFFERENCES, 1.0)
    quantile = stats.t.ppf(1 - inference.pocock() / 2, df=7)
    standard_error = np.std(DIFFERENCES, ddof=1) / math.sqrt(8)
    assert at.difference.half_width == pytest.approx(quantile * standard_error)


def test_the_interval_of_a_look_is_wider_than_of_a_single_look() -> None:
    (at,) = look(DIFFERENCES, 1.0)
    plain = inference.paired(DIFFERENCES)
    assert at.difference.half_width > 1.1 * plain.half_width
    assert at.p > plain.p
    assert at.p == pytest.approx(inference.crossing(plain.p))


def test_looks_are_at_the_first_eight_twelve_and_sixteen_seeds() -> None:
    differences = [*DIFFERENCES, *DIFFERENCES, 100.0]
    looks = look(differences, 1.0)
    assert [at.seeds for at in looks] == [8, 12, 16]
    for at in looks:
        assert at.difference.mean == pytest.approx(np.mean(differences[: at.seeds]))


def test_a_later_look_does_not_forget_the_p_value_of_an_earlier_one() -> None:
    clear_at_first = [2.0, 2.1, 1.9, 2.0, 2.1, 1.9, 2.0, 2.1]
    first, second = look([*clear_at_first, -50.0, -50.0, -50.0, -50.0], 3.0)
    assert second.p == first.p
    assert second.difference.low < 0


def test_before_eight_seeds_there_is_a_plain_interval_and_no_p_value() -> None:
    seven = DIFFERENCES[:7]
    (early,) = look(seven, 5.0)
    assert early == Look(7, inference.paired(seven), p=1.0, p_large=1.0)


# A difference as large as the published one ---------------------------------------------------------------------------


def p_large(differences: list[float], published: float, sign: float | None = None) -> float:
    (at,) = look(differences, published, sign)
    return at.p_large


def test_the_chance_of_a_large_difference_is_that_of_two_one_sided_tests() -> None:
    below = stats.ttest_1samp(DIFFERENCES, 1.0, alternative="less").pvalue
    above = stats.ttest_1samp(DIFFERENCES, -1.0, alternative="greater").pvalue
    expected = inference.crossing(2 * max(below, above))
    assert p_large(DIFFERENCES, 1.0) == pytest.approx(expected)
    assert p_large(DIFFERENCES, -1.0) == pytest.approx(expected)


def test_where_no_difference_is_claimed_a_large_one_is_as_large_as_the_margin() -> None:
    assert p_large(DIFFERENCES, 0.2, sign=0) == p_large(DIFFERENCES, inference.MARGIN)


def test_where_a_sign_alone_is_claimed_no_difference_is_too_small() -> None:
    assert p_large(DIFFERENCES, math.nan, sign=1) == 1


@pytest.mark.parametrize(("published", "p"), [(2.0, 0), (0.5, 1)])
def test_equal_differences_are_certainly_smaller_or_larger_than_the_published_one(published: float, p: float) -> None:
    assert p_large([1.0] * 8, published) == p


# Several claims -------------------------------------------------------------------------------------------------------


def rejected_step_by_step(p: list[float], level: float) -> set[int]:
    """Holm's rule: reject the smallest p-value as long as it is at most the level over how many are left."""
    rejected: set[int] = set()
    left = sorted(range(len(p)), key=p.__getitem__)
    while left and p[left[0]] <= level / len(left):
        rejected.add(left.pop(0))
    return rejected


@pytest.mark.parametrize("p", [[0.011, 0.6, 0.04, 0.013, 0.013], [0.3], [0.02, 0.02, 0.02], [0.9, 0.001]])
def test_holm_is_the_step_down_rule(p: list[float]) -> None:
    adjusted = np.array(inference.holm(p))
    for level in np.linspace(0.001, 0.999, 500):
        rejected = set(np.flatnonzero(adjusted <= level).tolist())
        assert rejected == rejected_step_by_step(p, level)


def test_holm_of_no_claims_is_nothing() -> None:
    assert inference.holm([]) == []


def decide_alone(looks: list[Look], sign: float) -> Decision:
    (decision,) = decide([(looks, sign)])
    return decision


CLEAR = [2.0, 2.1, 1.9, 2.0, 2.1, 1.9, 2.0, 2.1]
# the interval excludes 0 after eight seeds, but not that of twelve claims together
DOUBTFUL = look([1.6, 0.1, 1.3, 0.2, 1.5, 0.3, 1.4, 0.8] * 2, 1.0)


def test_a_claim_without_enough_seeds_is_open() -> None:
    seven = look([5.0, 5.1, 4.9, 5.0, 5.0, 5.1, 4.9], 5.0)
    one, other = decide([(seven, 1), ([NOT_RUN], 1)])
    assert one.verdict == "open"
    assert other.verdict == "open"


@pytest.mark.parametrize(("sign", "words"), [(1, "same sign"), (-1, "opposite sign")])
def test_a_clear_difference_has_the_claimed_sign_or_the_opposite_one(sign: float, words: str) -> None:
    assert decide_alone(look(CLEAR, 3.0 * sign), sign).verdict == words


def test_a_claim_with_a_verdict_keeps_its_look() -> None:
    decision = decide_alone(look([*CLEAR, -50.0, -50.0, -50.0, -50.0], 3.0), 1)
    assert decision.verdict == "same sign"
    assert decision.at.seeds == 8
    assert decision.at.difference.mean == pytest.approx(np.mean(CLEAR))


def test_seeds_after_a_verdict_do_not_count() -> None:
    first, second, *_ = looks = look(CLEAR * 2, 3.0)
    assert second.p < first.p
    assert decide_alone(looks, 1).p_holm == first.p


def test_between_looks_nothing_is_looked_at() -> None:
    eleven = [3.0, -3.0, 3.0, -3.0, 3.0, -3.0, 3.0, -3.0, 9.0, 9.0, 9.0]
    assert decide_alone(look(eleven, 1.0), 1).at.seeds == 8


def test_an_open_claim_is_looked_at_again() -> None:
    undecided_at_first = [3.0, -3.0, 3.0, -3.0, 3.0, -3.0, 3.0, -3.0]
    decision = decide_alone(look(undecided_at_first * 2, 1.0), 1)
    assert decision.verdict == "open"
    assert decision.at.seeds == 16


def test_a_claim_alone_ends_earlier_than_among_others() -> None:
    assert DOUBTFUL[0].difference.low > 0
    alone = decide_alone(DOUBTFUL, 1)
    assert alone.verdict == "same sign"
    assert alone.at.seeds == 8
    together, *_ = decide([(DOUBTFUL, 1)] + [([NOT_RUN], 1)] * 11)
    assert together.at.seeds > 8


def test_claims_that_were_not_run_count_among_those_of_a_family() -> None:
    together, *_ = decide([(DOUBTFUL, 1)] + [([NOT_RUN], 1)] * 11)
    assert together.p_holm == pytest.approx(12 * together.at.p)


def test_a_claim_keeps_its_verdict_where_a_later_look_at_another_claim_would_change_it() -> None:
    doubtful_but_small = Look(8, Difference(0.5, 0.6, p=0.04), p=0.04, p_large=0.001)
    open_at_first = Look(8, Difference(1.0, 2.0, p=0.5), p=0.5, p_large=1.0)
    clear_later = Look(12, Difference(3.0, 1.0, p=1e-4), p=1e-4, p_large=1.0)
    small, clear = decide([([doubtful_but_small], 1), ([open_at_first, clear_later], 1)])
    assert clear.verdict == "same sign"
    # its sign would be certain now that it no longer shares the error with an open claim
    assert small.p_holm == pytest.approx(0.04)
    assert small.verdict == "not of the published size"


# Verdicts -------------------------------------------------------------------------------------------------------------


def said(low: float, high: float, p: float, p_large: float, sign: float) -> tuple[str, float | None]:
    """The verdict on an interval and two p-values, and the bound that stands with it."""
    difference = Difference((low + high) / 2, (high - low) / 2, p)
    return verdict(Look(8, difference, p, p_large), p, p_large, sign)


@pytest.mark.parametrize(("sign", "words"), [(1, "same sign"), (-1, "opposite sign")])
@pytest.mark.parametrize("p_large", [0.001, 1.0])
def test_a_difference_has_a_sign_up_to_a_p_value_of_five_percent(sign: float, words: str, p_large: float) -> None:
    assert said(0.1, 0.9, 0.05, p_large, sign) == (words, None)
    assert said(0.1, 0.9, 0.051, 1.0, sign) == ("open", None)


@pytest.mark.parametrize(("low", "high", "sign", "bound"), [(-0.5, 0.9, 1, 0.9), (-1.1, 0.2, -1, 1.1)])
def test_a_difference_without_a_sign_is_too_small_up_to_a_p_value_of_five_percent(
    low: float, high: float, sign: float, bound: float
) -> None:
    assert said(low, high, 0.5, 0.05, sign) == ("not of the published size", pytest.approx(bound))
    assert said(low, high, 0.5, 0.051, sign) == ("open", None)


@pytest.mark.parametrize("p", [0.001, 0.5])
def test_a_small_difference_is_none_as_claimed_whether_or_not_it_has_a_sign(p: float) -> None:
    assert said(0.1, 0.9, p, 0.01, 0) == ("no difference, as claimed", pytest.approx(0.9))


def test_a_difference_where_none_is_claimed_has_a_sign_and_may_be_large() -> None:
    assert said(2.5, 3.5, 0.01, 1.0, 0) == ("difference where none is claimed", None)
    assert said(2.5, 3.5, 0.06, 1.0, 0) == ("open", None)


# Promises, by simulation ----------------------------------------------------------------------------------------------


@pytest.fixture
def tabulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chance to cross, read between 300 levels for which it was computed: thousands of looks ask for it."""
    levels = np.geomspace(1e-12, 1, 300)[:-1]
    logs = [math.log(inference.crossing(float(level))) for level in levels]

    def crossing(p: float) -> float:
        if not 0 < p < 1:
            return p
        return math.exp(np.interp(math.log(p), np.log(levels), logs))

    for level in (0.6, 0.04, 3e-4):
        assert crossing(level) == pytest.approx(inference.crossing(level), rel=1e-3)
    monkeypatch.setattr(inference, "_of_all_looks", crossing)


PUBLISHED = 2.7
CLAIMS = 400
ERROR = math.sqrt(0.05 * 0.95 / CLAIMS)


def seeds_of_claims(truth: float) -> np.ndarray:
    """Normal differences about the truth, sixteen of each claim."""
    return np.random.default_rng(round(truth * 10)).normal(truth, 1.3, (CLAIMS, LOOKS[-1]))


def decisions_of(differences: np.ndarray) -> list[Decision]:
    return [decide_alone(look(row.tolist(), PUBLISHED), 1) for row in differences]


def share(holds: Callable[[Decision], bool], decisions: list[Decision]) -> float:
    return sum(holds(decision) for decision in decisions) / len(decisions)


def misses(decisions: list[Decision], truth: float) -> float:
    """How often the interval at the end does not hold the truth."""
    missed = 0
    for decision in decisions:
        difference = decision.at.difference
        if not difference.low <= truth <= difference.high:
            missed += 1
    return missed / len(decisions)


@pytest.mark.usefixtures("tabulated")
@pytest.mark.parametrize("truth", [0.0, 0.6, PUBLISHED])
def test_intervals_hold_the_truth_whenever_a_claim_ends(truth: float) -> None:
    decisions = decisions_of(seeds_of_claims(truth))
    assert misses(decisions, truth) < 0.05 + 3 * ERROR
    assert {decision.at.seeds for decision in decisions} <= set(LOOKS)


@pytest.mark.usefixtures("tabulated")
def test_a_sign_is_seldom_found_where_there_is_no_difference() -> None:
    decisions = decisions_of(seeds_of_claims(0.0))
    assert share(lambda decision: decision.p_holm <= 0.05, decisions) < 0.05 + 3 * ERROR


def test_a_plain_interval_at_each_look_finds_a_sign_too_often() -> None:
    found = 0
    for row in seeds_of_claims(0.0):
        if any(inference.paired(row[:seeds].tolist()).p <= 0.05 for seeds in LOOKS):
            found += 1
    assert found / CLAIMS > 0.07


@pytest.mark.usefixtures("tabulated")
def test_a_difference_of_the_published_size_is_seldom_called_too_small() -> None:
    decisions = decisions_of(seeds_of_claims(PUBLISHED))
    assert share(lambda decision: decision.verdict == "not of the published size", decisions) < 0.05 + 3 * ERROR


@pytest.mark.usefixtures("tabulated")
def test_of_skewed_differences_the_looks_miss_more_often() -> None:
    skewed = np.random.default_rng(1).exponential(1, (600, LOOKS[-1])) - 1
    decisions = [decide_alone(look(row.tolist(), math.nan, 1), 1) for row in skewed]
    assert misses(decisions, 0.0) > 0.1


def test_a_detectable_difference_is_found_at_a_look_in_four_of_five_cases() -> None:
    sd, seeds = 1.3, 12
    truth = inference.detectable(sd, seeds)
    differences = np.random.default_rng(2).normal(truth, sd, (20_000, seeds))
    p = stats.ttest_1samp(differences, 0, axis=1).pvalue
    assert (p <= inference.pocock()).mean() == pytest.approx(0.8, abs=0.02)
