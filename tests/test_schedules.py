"""How percentiles change over a run."""

import itertools

import pytest

from contrastlab.scores import schedules
from contrastlab.scores.schedules import Linear


def test_linear_annealing_is_the_released_one() -> None:
    # released code: u(s) = 1 - 0.9 s/(T - 1) for s < T, then 0.1; T is half the run here
    total, until = 400, 200
    schedule = Linear(100, 10, until=0.5)
    for step in range(total):
        expected = 100 * (1 - 0.9 * step / (until - 1)) if step < until else 10
        assert schedule.value(step, total) == pytest.approx(expected)
    assert schedule.value(0, total) == 100
    assert schedule.value(until - 1, total) == 10


def test_linear_holds_its_start_until_begin_and_is_written_by_its_ends() -> None:
    schedule = Linear(0, 1, begin=0.05, until=0.5)  # vince: no neighbours before epoch 10, all from epoch 100 of 200
    assert {schedule.value(s, 200) for s in range(11)} == {0}
    assert {schedule.value(s, 200) for s in range(99, 200)} == {1}
    middle = [schedule.value(s, 200) for s in range(10, 100)]
    gaps = [b - a for a, b in itertools.pairwise(middle)]
    assert max(gaps) == pytest.approx(min(gaps))
    assert min(gaps) > 0
    assert [schedules.latex(p) for p in (10.0, Linear(100, 10))] == ["10", r"100\to10"]


@pytest.mark.parametrize("total", [1, 2, 3])
def test_linear_of_a_run_of_few_steps_stays_in_its_range(total: int) -> None:
    values = [Linear(100, 10).value(s, total) for s in range(total)]
    assert all(10 <= v <= 100 for v in values)
    assert values[-1] == 10


@pytest.mark.parametrize("schedule", [Linear(100, 10), Linear(0, 1), 7.5])
def test_values_stay_within_their_bounds(schedule: schedules.Percent) -> None:
    low, high = schedules.bounds(schedule)
    values = [schedules.at(schedule, s, 100) for s in range(100)]
    assert (min(values), max(values)) == (low, high)
    for percent in (schedule, 0, 100, Linear(100, 0)):
        schedules.check_percent("outer", percent)
