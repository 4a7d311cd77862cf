"""What two losses read off Gaussian pairs: the optimum that the chapter proves, and the losses against loops."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from contrastbook.figures import later
from contrastbook.studies import sigmoid
from contrastlab.information.toys import JointGaussian

NATS = 3.0
TOY = JointGaussian.with_information(NATS, 4)


@dataclass(frozen=True)
class LogRatio:
    """``a x·y − b (‖x‖² + ‖y‖²) + c``, that of four pairs of normals."""

    a: float
    b: float
    c: float

    @classmethod
    def of(cls, nats: float) -> LogRatio:
        squared_correlation = 1 - math.exp(-nats / 2)
        rest = 1 - squared_correlation
        return cls(
            a=math.sqrt(squared_correlation) / rest,
            b=squared_correlation / (2 * rest),
            c=-2 * math.log(rest),
        )


EXACT = LogRatio.of(NATS)


def test_the_log_ratio_of_the_toy_is_the_form_of_the_critic() -> None:
    x, y = TOY.sample(5, torch.Generator().manual_seed(0))
    form = EXACT.a * (x * y).sum(1) - EXACT.b * ((x**2).sum(1) + (y**2).sum(1)) + EXACT.c
    log_ratio_of_pairs = TOY.log_ratio(x, y).diagonal()
    torch.testing.assert_close(form.double(), log_ratio_of_pairs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("candidates", [2, 16])
def test_the_sigmoid_finds_the_log_ratio_less_the_odds(candidates: int) -> None:
    reading = sigmoid.fit("sigmoid", candidates, nats=NATS)
    assert reading.a == pytest.approx(EXACT.a, rel=0.06)
    assert reading.b == pytest.approx(EXACT.b, rel=0.06)
    assert reading.c == pytest.approx(EXACT.c - math.log(candidates - 1), abs=0.15)


@pytest.mark.parametrize("candidates", [2, 16])
def test_the_information_is_read_off_the_sigmoid_with_any_number_of_candidates(candidates: int) -> None:
    reading = sigmoid.fit("sigmoid", candidates, nats=NATS)
    assert reading.log_ratio == pytest.approx(NATS, abs=0.15)
    assert sigmoid.nwj(reading, nats=NATS) == pytest.approx(NATS, abs=0.15)


def test_infonce_finds_the_same_critic_without_its_constant() -> None:
    reading = sigmoid.fit("infonce", 16, nats=NATS)
    assert reading.a == pytest.approx(EXACT.a, rel=0.06)
    assert reading.b == pytest.approx(EXACT.b, rel=0.06)
    assert reading.c == pytest.approx(0, abs=1e-6)


def test_what_is_read_off_infonce_is_too_small() -> None:
    of_two = sigmoid.fit("infonce", 2, nats=NATS)
    of_sixteen = sigmoid.fit("infonce", 16, nats=NATS)
    assert of_two.infonce < math.log(2)
    assert of_sixteen.infonce < math.log(16)
    assert sigmoid.nwj(of_two, nats=NATS) < 2  # its constant is missing


SCORES = torch.randn(3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
"""Three groups, four queries of each, and the scores of four candidates, of which number i is the query's own."""


def test_infonce_is_what_a_loop_says() -> None:
    losses = []
    for group in SCORES.tolist():
        for i, row in enumerate(group):
            denominator = sum(math.exp(score) for score in row)
            losses.append(math.log(denominator) - row[i])
    assert float(sigmoid._infonce(SCORES)) == pytest.approx(sum(losses) / 12)


def test_the_sigmoid_loss_is_what_a_loop_says() -> None:
    losses = []
    for group in SCORES.tolist():
        for i, row in enumerate(group):
            loss = 0.0
            for j, score in enumerate(row):
                sign = 1 if i == j else -1
                loss += math.log1p(math.exp(-sign * score))
            losses.append(loss)
    assert float(sigmoid._sigmoid(SCORES)) == pytest.approx(sum(losses) / 12)


def test_the_picture_has_the_ceiling_and_the_truth() -> None:
    lines = {trace.name: np.array(trace.y) for trace in later.readings(2.0, most=8).data}
    assert lines["ceiling log K"] == pytest.approx(np.log([2, 4, 8]))
    assert set(lines["information"]) == {2.0}
    assert (lines["InfoNCE"] < lines["ceiling log K"]).all()
    assert lines["sigmoid loss, read as a log ratio"] == pytest.approx([2.0, 2.0, 2.0], abs=0.15)
