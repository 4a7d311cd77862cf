"""jcl Eq. 4 and 8 for normal scores: bounds, limits, slopes, and what the library computes."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from contrastbook.theory import joint
from contrastlab.errors import ArgumentError
from contrastlab.methods import get
from contrastlab.objectives import multi_key_info_nce

GRID = list(
    itertools.product((0.2, 0.8), (0.0, 0.005, 0.02), (math.log(4), math.log(64), math.log(65536)), (0.07, 0.2))
)


@pytest.mark.parametrize("case", GRID)
def test_the_closed_form_bounds_the_expected_loss_from_lambda_one_on(case) -> None:
    exact = joint.expected_loss(*case)
    zero, one, four = (float(joint.closed_form(*case, strength)) for strength in (0, 1, 4))
    assert zero - 1e-9 <= exact <= one + 1e-9 <= four + 2e-9
    if case[1] == 0:
        assert four == pytest.approx(exact, abs=1e-9)


def test_the_expected_loss_is_a_mean_over_keys() -> None:
    draw = torch.Generator().manual_seed(0)
    a = (0.8 + 0.2 * torch.randn(200_000, generator=draw, dtype=torch.float64)) / 0.2
    losses = torch.logaddexp(a, torch.tensor(5.0)) - a
    error = float(losses.std()) / len(losses) ** 0.5
    assert abs(float(losses.mean()) - joint.expected_loss(0.8, 0.04, 5.0, 0.2)) < 4 * error


@pytest.mark.parametrize("case", [(0.5, 0.3, 8.0, 0.02), (0.8, 0.01, 40.0, 0.02), (0.3, 0.5, -2.0, 0.01)])
def test_the_expected_loss_is_exact_where_the_loss_is_a_kink(case) -> None:
    m, v, c, tau = case
    z = np.linspace(-9, 9, 2_000_001)
    a = (m + math.sqrt(v) * z) / tau
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    expected = float(((np.logaddexp(a, c) - a) * density).sum() * (z[1] - z[0]))
    assert joint.expected_loss(*case) == pytest.approx(expected, rel=1e-9)


def test_the_library_computes_the_closed_form() -> None:
    keys, tau = np.array([[0.5, 0.8, 0.9]]), 0.2
    own, lift = get("jcl/jcl").positives.pair(torch.tensor(keys / tau), 0, 1)
    library = multi_key_info_nce(own, torch.zeros(1, 64, dtype=torch.float64), lift)
    expected = joint.closed_form(keys.mean(), keys.var(), math.log(64), tau, 4)
    assert library.item() == pytest.approx(float(expected), rel=1e-12)


def test_the_weight_of_the_positive_gives_both_slopes() -> None:
    m, v, c, tau, strength, h = 0.7, 0.02, math.log(64), 0.2, 4.0, 1e-6
    p = float(joint.positive_weight(m, v, c, tau, strength))
    by_v = (joint.closed_form(m, v + h, c, tau, strength) - joint.closed_form(m, v - h, c, tau, strength)) / (2 * h)
    by_m = (joint.closed_form(m + h, v, c, tau, strength) - joint.closed_form(m - h, v, c, tau, strength)) / (2 * h)
    assert float(by_v) == pytest.approx(strength * p / (2 * tau**2), rel=1e-6)
    assert float(by_m) == pytest.approx(-(1 - p) / tau, rel=1e-6)


def test_negatives_on_the_sphere() -> None:
    # in three dimensions the cosine is uniform: E exp(s/τ) = τ sinh(1/τ)
    assert joint.log_sum_on_sphere(7, 3, 0.2) == pytest.approx(math.log(7 * 0.2 * math.sinh(5)))
    # sinh x is eˣ/2 as far as numbers can tell
    assert joint.log_sum_on_sphere(10, 3, 0.001) == pytest.approx(math.log(10 / 2000) + 1000, rel=1e-12)
    for wrong in ((0, 3, 0.2), (7, 0, 0.2), (7, 3, 0.0)):
        with pytest.raises(ArgumentError):
            joint.log_sum_on_sphere(*wrong)


@pytest.mark.parametrize(("wrong", "named"), [({"v": -0.1}, "v="), ({"tau": 0.0}, "tau=")])
def test_what_is_out_of_range_is_named(wrong, named) -> None:
    case = {"m": 0.5, "v": 0.1, "c": 1.0, "tau": 0.2, **wrong}
    with pytest.raises(ArgumentError, match=named):
        joint.expected_loss(**case)
    with pytest.raises(ArgumentError, match=named):
        joint.closed_form(**case, strength=1)
