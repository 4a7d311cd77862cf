"""What two losses read off Gaussian pairs: the optimum that the chapter proves, and the losses against loops."""

import math

import pytest
import torch

from contrastbook.figures import later
from contrastbook.studies import sigmoid
from contrastlab.information.toys import JointGaussian


def exact(nats: float) -> tuple[float, float, float]:
    """a, b and the constant of the log ratio of four pairs of normals."""
    rho2 = 1 - math.exp(-nats / 2)
    return math.sqrt(rho2) / (1 - rho2), rho2 / (2 * (1 - rho2)), -2 * math.log(1 - rho2)


@pytest.mark.parametrize("candidates", [2, 16])
def test_the_sigmoid_finds_the_log_ratio_less_the_odds(candidates: int) -> None:
    nats = 3.0
    reading = sigmoid.fit("sigmoid", candidates, nats=nats)
    a, b, c = exact(nats)
    assert reading.a == pytest.approx(a, rel=0.06)
    assert reading.b == pytest.approx(b, rel=0.06)
    assert reading.c == pytest.approx(c - math.log(candidates - 1), abs=0.15)
    assert reading.log_ratio == pytest.approx(nats, abs=0.15)
    assert sigmoid.nwj(reading, nats=nats) == pytest.approx(nats, abs=0.15)


def test_infonce_finds_the_same_critic_without_its_constant() -> None:
    reading = sigmoid.fit("infonce", 16, nats=3.0)
    a, b, _ = exact(3.0)
    assert reading.a == pytest.approx(a, rel=0.06)
    assert reading.b == pytest.approx(b, rel=0.06)
    assert reading.c == pytest.approx(0, abs=1e-6)
    assert reading.infonce < math.log(16)
    assert sigmoid.nwj(sigmoid.fit("infonce", 2, nats=3.0), nats=3.0) < 2


def test_the_log_ratio_of_the_toy_is_the_form_of_the_critic() -> None:
    x, y = JointGaussian.with_information(3.0, 4).sample(5, torch.Generator().manual_seed(0))
    a, b, c = exact(3.0)
    form = a * (x * y).sum(1) - b * ((x**2).sum(1) + (y**2).sum(1)) + c
    exact_ratio = JointGaussian.with_information(3.0, 4).log_ratio(x, y).diagonal()
    assert form.double().allclose(exact_ratio, rtol=1e-4, atol=1e-4)


def test_both_losses_against_a_loop() -> None:
    scores = torch.randn(3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    softmax, logistic = [], []
    for group in scores.tolist():
        for i, row in enumerate(group):
            softmax.append(math.log(sum(map(math.exp, row))) - row[i])
            logistic.append(sum(math.log1p(math.exp(-s if i == j else s)) for j, s in enumerate(row)))
    assert float(sigmoid._infonce(scores)) == pytest.approx(sum(softmax) / 12)
    assert float(sigmoid._sigmoid(scores)) == pytest.approx(sum(logistic) / 12)


def test_the_picture_has_the_ceiling_and_the_truth() -> None:
    figure = later.readings(2.0, most=8)
    lines = {trace.name: trace for trace in figure.data}
    assert list(lines["ceiling log K"].y) == pytest.approx([math.log(k) for k in (2, 4, 8)])
    assert set(lines["information"].y) == {2.0}
    assert all(below < top for below, top in zip(lines["InfoNCE"].y, lines["ceiling log K"].y, strict=True))
    assert list(lines["sigmoid loss, read as a log ratio"].y) == pytest.approx([2.0] * 3, abs=0.15)
