"""Exact expectations against sums written out draw by draw."""

import math
from itertools import product

import numpy as np
import pytest
import torch

from contrastlab.information import exact
from contrastlab.scores import divergences
from contrastlab.support.errors import ArgumentError


def table(seed: int, n: int = 3, m: int = 4) -> exact.Joint:
    return exact.Joint.of(np.random.default_rng(seed).gamma(0.5, size=(n, m)) + 1e-6)


def twin(joint: exact.Joint, f: np.ndarray, draws: int, q: np.ndarray, with_positive: bool) -> tuple[float, np.ndarray]:
    """Expectation of Z, and its variance for every pair, over all ordered draws of the negatives."""
    n, m = f.shape
    mean, square = np.zeros((n, m)), np.zeros((n, m))
    for x, y in product(range(n), range(m)):
        for drawn in product(range(m), repeat=draws):
            weight = math.prod(q[x, y, j] for j in drawn)
            terms = [math.exp(f[x, j]) for j in drawn] + ([math.exp(f[x, y])] if with_positive else [])
            z = f[x, y] - math.log(math.fsum(terms) / len(terms))
            mean[x, y] += weight * z
            square[x, y] += weight * z * z
    return float((joint.table * mean).sum()), square - mean**2


@pytest.mark.parametrize("with_positive", [True, False])
@pytest.mark.parametrize("shape", ["marginal", "given x", "given x and y"])
@pytest.mark.parametrize("draws", [1, 3])
def test_enumeration_equals_the_sum_over_ordered_draws(with_positive, shape, draws):
    joint, rng = table(0), np.random.default_rng(1)
    f = rng.standard_normal((3, 4)) * 2
    q = {"marginal": None, "given x": rng.dirichlet(np.ones(4), 3), "given x and y": rng.dirichlet(np.ones(4), (3, 4))}[
        shape
    ]
    full = np.broadcast_to(joint.y, (3, 4, 4)) if q is None else q if q.ndim == 3 else q[:, None].repeat(4, 1)
    value, variance = twin(joint, f, draws, full, with_positive)
    measured = exact.contrastive(joint, f, draws, q, positive_in_denominator=with_positive)
    assert measured == pytest.approx(value, abs=1e-12)
    measured = exact.normalised_similarity(joint, f, draws, q, positive_in_denominator=with_positive)[1]
    assert measured == pytest.approx(variance, abs=1e-10)


def test_fifty_terms_agree_with_sampling():
    joint = table(4, 2, 3)
    f = joint.log_ratio
    generator = np.random.default_rng(0)
    pairs = generator.choice(6, size=40_000, p=joint.table.ravel())
    negatives = generator.choice(3, size=(40_000, 49), p=joint.y)
    x, y = pairs // 3, pairs % 3
    z = f[x, y] - np.log((np.exp(f[x, y]) + np.exp(f[x[:, None], negatives]).sum(1)) / 50)
    assert abs(z.mean() - exact.info_nce(joint, f, 50)) < 4 * z.std() / math.sqrt(len(z))


def test_information_of_a_copy_of_nothing_and_of_a_table():
    copy = exact.Joint.of(np.eye(4))
    assert copy.mutual_information == pytest.approx(math.log(4), abs=1e-14)
    assert exact.Joint.independent([1, 2], [3, 4, 5]).mutual_information == pytest.approx(0, abs=1e-14)
    assert copy.f_information(divergences.KL) == pytest.approx(math.log(4), abs=1e-14)
    assert math.isinf(copy.f_information(divergences.REVERSE_KL))
    joint = table(5)
    assert joint.f_information(divergences.KL) == pytest.approx(joint.mutual_information, abs=1e-12)
    trace = (joint.table**2 / joint.product).sum() - 1
    assert joint.f_information(divergences.PEARSON) == pytest.approx(trace, abs=1e-12)


def test_restrict_keeps_proportions_and_what_cannot_be_drawn_is_not_drawn():
    joint = table(6)
    region = np.array([[True, True, False, False], [False, False, False, True], [True] * 4])
    q = exact.restrict(joint, region)
    assert q.sum(1) == pytest.approx(1)
    assert q[0, 0] / q[0, 1] == pytest.approx(joint.y[0] / joint.y[1])
    assert q[2] == pytest.approx(joint.y)
    joint = table(2)
    q = np.tile([0.0, 1.0, 0.0, 0.0], (3, 1))
    f = np.random.default_rng(3).standard_normal((3, 4))
    assert exact.threshold(joint, f) == pytest.approx(np.log(np.exp(f) @ joint.y), abs=1e-12)
    mean, variance = exact.normalised_similarity(joint, f, 2, q, positive_in_denominator=False)
    assert mean == pytest.approx(f - f[:, [1]], abs=1e-12)
    assert variance == pytest.approx(0, abs=1e-12)


JOINT = table(7)
F = np.zeros((3, 4))


def test_values_at_an_edge_that_is_attained_are_accepted():
    joint = exact.Joint.of([[1.0, 0.0], [1.0, 2.0]])
    true = joint.table / joint.y
    assert exact.barber_agakov(joint, true) == pytest.approx(joint.mutual_information, abs=1e-14)
    with pytest.raises(ArgumentError, match="decoder="):
        exact.barber_agakov(joint, true[::-1])  # and not where one is possible
    with pytest.raises(ArgumentError, match="decoder="):
        exact.barber_agakov(joint, np.array([[1.5, 0.5], [-0.5, 0.5]]))  # sums to 1, and is no probability
    value = exact.f_information(JOINT, F + 1.0, divergences.VINCZE_LE_CAM)
    assert value == pytest.approx(1 - float(divergences.VINCZE_LE_CAM.conjugate(torch.ones(1, dtype=torch.float64))))
