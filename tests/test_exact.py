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
    """A random joint distribution of n × m symbols."""
    weights = np.random.default_rng(seed).gamma(0.5, size=(n, m))
    return exact.Joint.of(weights + 1e-6)


def twin(
    joint: exact.Joint, critic: np.ndarray, draws: int, negatives: np.ndarray, with_positive: bool
) -> tuple[float, np.ndarray]:
    """Expectation of Z = f(x, y) − log mean exp f, and its variance for every pair ``[n, m]``.

    Both are sums over all ordered draws. ``negatives`` ``[n, m, m]`` is the distribution of a negative, given x and
    the positive y.
    """
    n, m = critic.shape
    mean = np.zeros((n, m))
    mean_square = np.zeros((n, m))
    for x, y in product(range(n), range(m)):
        for drawn in product(range(m), repeat=draws):
            probability = math.prod(negatives[x, y, j] for j in drawn)
            terms = [math.exp(critic[x, j]) for j in drawn]
            if with_positive:
                terms.append(math.exp(critic[x, y]))
            z = critic[x, y] - math.log(math.fsum(terms) / len(terms))
            mean[x, y] += probability * z
            mean_square[x, y] += probability * z**2
    expectation = float((joint.table * mean).sum())
    return expectation, mean_square - mean**2


@pytest.mark.parametrize("with_positive", [True, False])
@pytest.mark.parametrize("shape", ["marginal", "given x", "given x and y"])
@pytest.mark.parametrize("draws", [1, 3])
def test_enumeration_equals_the_sum_over_ordered_draws(with_positive, shape, draws):
    """For negatives from p(y), and from distributions that depend on x or on the pair."""
    joint = table(0)
    rng = np.random.default_rng(1)
    critic = rng.standard_normal((3, 4)) * 2
    given_x = rng.dirichlet(np.ones(4), 3)  # [3, 4]
    given_pair = rng.dirichlet(np.ones(4), (3, 4))  # [3, 4, 4]
    given = {"marginal": None, "given x": given_x, "given x and y": given_pair}
    written_out = {"marginal": joint.y, "given x": given_x[:, None], "given x and y": given_pair}
    negatives = np.broadcast_to(written_out[shape], (3, 4, 4))

    expectation, variance = twin(joint, critic, draws, negatives, with_positive)
    arguments = (joint, critic, draws, given[shape])
    measured = exact.contrastive(*arguments, positive_in_denominator=with_positive)
    assert measured == pytest.approx(expectation, abs=1e-12)
    _, measured = exact.normalised_similarity(*arguments, positive_in_denominator=with_positive)
    assert measured == pytest.approx(variance, abs=1e-10)


def test_fifty_terms_agree_with_sampling():
    """InfoNCE with K = 50, too many ordered draws to write out: within four standard errors of a sample mean.

    X and Y depend on each other so much that the leave-one-out bound lies further away than that.
    """
    joint = exact.Joint.of([[0.55, 0.02, 0.02], [0.02, 0.02, 0.37]])
    critic = joint.log_ratio
    rng = np.random.default_rng(0)
    pairs = rng.choice(6, size=40_000, p=joint.table.ravel())
    x, y = np.divmod(pairs, 3)
    negatives = rng.choice(3, size=(40_000, 49), p=joint.y)
    of_positive = np.exp(critic[x, y])
    of_negatives = np.exp(critic[x[:, None], negatives])
    z = critic[x, y] - np.log((of_positive + of_negatives.sum(1)) / 50)
    standard_error = z.std() / math.sqrt(len(z))
    assert abs(z.mean() - exact.info_nce(joint, critic, 50)) < 4 * standard_error
    assert abs(z.mean() - exact.leave_one_out(joint, critic, 50)) > 4 * standard_error


def test_information_of_a_copy_of_nothing_and_of_a_table():
    """A copy of four symbols has log 4 nats, and independent symbols have none; χ² is a sum over the cells."""
    copy = exact.Joint.of(np.eye(4))
    assert copy.mutual_information == pytest.approx(math.log(4), abs=1e-14)
    assert copy.f_information(divergences.KL) == pytest.approx(math.log(4), abs=1e-14)
    assert math.isinf(copy.f_information(divergences.REVERSE_KL))

    independent = exact.Joint.independent([1, 2], [3, 4, 5])
    assert independent.mutual_information == pytest.approx(0, abs=1e-14)

    joint = table(5)
    assert joint.f_information(divergences.KL) == pytest.approx(joint.mutual_information, abs=1e-12)
    chi_squared = (joint.table**2 / joint.product).sum() - 1
    assert joint.f_information(divergences.PEARSON) == pytest.approx(chi_squared, abs=1e-12)


def test_restrict_keeps_proportions_and_what_cannot_be_drawn_is_not_drawn():
    joint = table(6)
    region = np.array([[True, True, False, False], [False, False, False, True], [True, True, True, True]])
    negatives = exact.restrict(joint, region)
    assert negatives.sum(1) == pytest.approx(1)
    proportion = negatives[0, 0] / negatives[0, 1]
    assert proportion == pytest.approx(joint.y[0] / joint.y[1])
    assert negatives[2] == pytest.approx(joint.y)

    # All negatives are y = 1, so that Z is certain.
    joint = table(2)
    critic = np.random.default_rng(3).standard_normal((3, 4))
    log_c = np.log(np.exp(critic) @ joint.y)
    assert exact.threshold(joint, critic) == pytest.approx(log_c, abs=1e-12)
    certain = np.tile([0.0, 1.0, 0.0, 0.0], (3, 1))
    mean, variance = exact.normalised_similarity(joint, critic, 2, certain, positive_in_denominator=False)
    assert mean == pytest.approx(critic - critic[:, [1]], abs=1e-12)
    assert variance == pytest.approx(0, abs=1e-12)


def test_values_at_an_edge_that_is_attained_are_accepted():
    """A decoder may be 0 where the pair is impossible, and a score may be 1 where f* of Vincze and Le Cam ends."""
    joint = exact.Joint.of([[1.0, 0.0], [1.0, 2.0]])
    posterior = joint.table / joint.y
    assert exact.barber_agakov(joint, posterior) == pytest.approx(joint.mutual_information, abs=1e-14)
    is_0_where_possible = posterior[::-1]
    with pytest.raises(ArgumentError, match="decoder="):
        exact.barber_agakov(joint, is_0_where_possible)
    sums_to_1_with_a_negative = np.array([[1.5, 0.5], [-0.5, 0.5]])
    with pytest.raises(ArgumentError, match="decoder="):
        exact.barber_agakov(joint, sums_to_1_with_a_negative)

    divergence = divergences.VINCZE_LE_CAM
    at_the_end = np.ones((3, 4))
    conjugate = divergence.conjugate(torch.ones(1, dtype=torch.float64)).item()
    assert exact.f_information(table(7), at_the_end, divergence) == pytest.approx(1 - conjugate)
