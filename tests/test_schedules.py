"""How percentiles change over a run."""

from __future__ import annotations

import itertools
import math

import pytest

from contrastlab import schedules
from contrastlab.errors import ArgumentError
from contrastlab.schedules import Exponential, Linear, Steps


def test_linear_annealing_is_the_released_one() -> None:
    # released code: u(s) = 1 - 0.9 s/(T - 1) for s < T, then 0.1; T is half the run here
    total, until = 400, 200
    schedule = Linear(100, 10, until=0.5)
    for step in range(total):
        expected = 100 * (1 - 0.9 * step / (until - 1)) if step < until else 10
        assert schedule.value(step, total) == pytest.approx(expected)
    assert schedule.value(0, total) == 100
    assert schedule.value(until - 1, total) == 10


def test_linear_holds_its_start_until_begin() -> None:
    schedule = Linear(0, 1, begin=0.05, until=0.5)  # vince: no neighbours before epoch 10, all from epoch 100 of 200
    assert {schedule.value(s, 200) for s in range(11)} == {0}
    assert {schedule.value(s, 200) for s in range(99, 200)} == {1}
    middle = [schedule.value(s, 200) for s in range(10, 100)]
    gaps = [b - a for a, b in itertools.pairwise(middle)]
    assert max(gaps) == pytest.approx(min(gaps))
    assert min(gaps) > 0


@pytest.mark.parametrize("total", [1, 2, 3])
def test_linear_of_a_run_of_few_steps_stays_in_its_range(total: int) -> None:
    values = [Linear(100, 10).value(s, total) for s in range(total)]
    assert all(10 <= v <= 100 for v in values)
    assert values[-1] == 10


def test_staircase_is_the_released_one() -> None:
    total = 400
    schedule = Steps(100, 10, until=0.5, levels=10)
    for step in range(total):
        expected = 100 - 10 * (step // 20) if step < 200 else 10
        assert schedule.value(step, total) == pytest.approx(expected)


def test_exponential_is_over_after_fifty_steps_whatever_the_length() -> None:
    schedule = Exponential(100, 10)
    for step in (0, 10, 46, 500):
        expected = 10 + 90 * math.exp(-0.1 * step)
        assert schedule.value(step, 78_000) == schedule.value(step, 100) == pytest.approx(expected)
    assert schedule.value(46, 78_000) == pytest.approx(10.9, abs=0.05)


@pytest.mark.parametrize("schedule", [Linear(100, 10), Linear(0, 1), Steps(100, 10), Exponential(100, 10)])
def test_values_stay_within_the_announced_range(schedule: schedules.Schedule) -> None:
    low, high = schedule.range()
    assert schedules.bounds(schedule) == (low, high)
    values = [schedules.at(schedule, s, 100) for s in range(100)]
    assert low <= min(values)
    assert max(values) <= high
    assert values[0] == schedule.start
    assert values[-1] == pytest.approx(schedule.end, abs=0.01)


def test_a_plain_number_is_the_constant_schedule() -> None:
    assert {schedules.at(7.5, s, 10) for s in range(10)} == {7.5}
    assert schedules.bounds(7.5) == (7.5, 7.5)


def test_every_kind_is_told_apart_in_an_equation() -> None:
    kinds = [10.0, Linear(100, 10), Steps(100, 10), Exponential(100, 10)]
    written = [schedules.latex(k) for k in kinds]
    assert len(set(written)) == 4
    assert written[1] == r"100\to10"


@pytest.mark.parametrize(
    "percent",
    [-1, 100.5, math.nan, math.inf, True, "10", None, Linear(120, 10), Linear(100, -1), Steps(100, 101),
     Exponential(100, -0.5)],
)  # fmt: skip
def test_percentages_outside_0_to_100_are_rejected_by_name(percent: object) -> None:
    with pytest.raises(ArgumentError, match="outer="):
        schedules.check_percent("outer", percent)


@pytest.mark.parametrize("kind", [Linear, Steps, Exponential])
@pytest.mark.parametrize(("start", "end", "name"), [(100, math.nan, "end"), (math.nan, 10, "start")])
def test_a_schedule_that_is_not_a_number_is_rejected(kind: type, start: float, end: float, name: str) -> None:
    with pytest.raises(ArgumentError, match=name):
        kind(start, end)


@pytest.mark.parametrize("percent", [0, 100, 1.5, Linear(100, 0), Steps(0, 100), Exponential(100, 10)])
def test_percentages_from_0_to_100_are_accepted(percent: schedules.Percent) -> None:
    schedules.check_percent("outer", percent)
    low, high = schedules.bounds(percent)
    assert 0 <= low <= high <= 100


def test_impossible_schedules_are_named() -> None:
    with pytest.raises(ArgumentError, match="begin"):
        Linear(100, 10, begin=0.5, until=0.5)
    with pytest.raises(ArgumentError, match="until"):
        Linear(100, 10, until=1.5)
    with pytest.raises(ArgumentError, match="until"):
        Steps(100, 10, until=-1)
    with pytest.raises(ArgumentError, match="levels"):
        Steps(100, 10, levels=1)
    with pytest.raises(ArgumentError, match="rate"):
        Exponential(100, 10, rate=0)
