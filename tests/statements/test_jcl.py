"""JCL: many positive keys, the bound on infinitely many, its closed form, and the statistics Algorithm 1 estimates.

All that matters of a key is ``a = q·k / τ``, so a distribution of keys is one of numbers; the negatives enter as
``c = log Σ exp(q·k⁻ / τ)``. Expectations are finite sums, or integrals on a grid where the keys are Gaussian.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch
from draws import many, some
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import ive, logsumexp


def loss(a, c):
    """Eq. 2 for a positive key of similarity ``a``."""
    return np.logaddexp(a, c) - a


def infinite(p, a, c) -> float:
    """Eq. 4: the expectation over the keys."""
    return float(np.sum(p * loss(a, c)))


def jensen(p, a, c) -> float:
    """Eq. 7."""
    top = np.max(a)
    return float(np.logaddexp(np.log(np.sum(p * np.exp(a - top))) + top, c) - np.sum(p * a))


def closed(mean, variance, c, tau: float = 1.0, scale: float = 1.0):
    """Eq. 8 from the mean and variance of q·k; ``scale`` is λ."""
    return np.logaddexp(mean / tau + scale * variance / (2 * tau**2), c) - mean / tau


def weight(mean, variance, c, tau: float = 1.0, scale: float = 1.0):
    """p⁺, the share of the first term of the sum in Eq. 8."""
    return 1 / (1 + np.exp(c - mean / tau - scale * variance / (2 * tau**2)))


def _keys(seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    rng = np.random.default_rng(seed)
    count, d = rng.integers(2, 7), rng.integers(2, 6)
    tau = rng.choice([0.07, 0.2, 1.0])
    k = rng.standard_normal((count, d))
    if rng.random() < 0.5:
        k = k[:1] + 0.3 * k
    negatives = rng.standard_normal((rng.integers(1, 9), d))
    q = rng.standard_normal(d)
    q, k, negatives = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (q, k, negatives))
    p = rng.dirichlet(np.full(count, rng.choice([0.2, 1.0, 10.0])))
    return p, k @ q / tau, float(np.logaddexp.reduce(negatives @ q / tau))


def keys() -> st.SearchStrategy[tuple[np.ndarray, np.ndarray, float]]:
    """Probabilities and ``a`` of a finite distribution of unit keys, and ``c``; temperatures down to 0.07."""
    return st.integers(0, 2**32 - 1).map(_keys)


@st.composite
def gaussians(draw: st.DrawFn):
    """Mean and variance of q·k, ``c`` and τ."""
    return (
        draw(st.floats(-1, 1)),
        draw(st.sampled_from([1e-6, 0.001, 0.01, 0.05, 0.2])),
        draw(st.floats(-5, 12)),
        draw(st.sampled_from([0.07, 0.2, 1.0])),
    )


GRID = np.linspace(-20, 20, 8001)
NORMAL = np.exp(-(GRID**2) / 2)
NORMAL /= NORMAL.sum()


def infinite_gaussian(mean: float, variance: float, c: float, tau: float) -> float:
    """Eq. 4 for Gaussian keys; the trapezoid rule is exact to rounding for an analytic integrand."""
    return infinite(NORMAL, (mean + math.sqrt(variance) * GRID) / tau, c)


# ------------------------------------------------------------------------------------------------- many positive keys


def test_the_mean_of_m_losses_is_unbiased_and_its_variance_falls_as_one_over_m():
    rng = np.random.default_rng(0)
    for c in (-2.0, 1.0, 5.0):
        p, a = rng.dirichlet(np.ones(3)), rng.standard_normal(3) * 3
        one = loss(a, c)
        limit = infinite(p, a, c)
        spread = float(p @ (one - limit) ** 2)
        for m in range(1, 8):
            drawn = np.array(list(product(range(3), repeat=m)))
            probability = p[drawn].prod(1)
            mean = one[drawn].mean(1)  # Eq. 3
            assert probability @ mean == pytest.approx(limit, abs=1e-12)
            assert probability @ (mean - limit) ** 2 == pytest.approx(spread / m, rel=1e-10)


@many
@given(keys())
def test_jensen_bounds_the_limit_and_is_tight_for_constant_similarity_only(drawn):
    p, a, c = drawn
    limit, bound = infinite(p, a, c), jensen(p, a, c)
    assert limit == pytest.approx(float(p @ np.logaddexp(a, c) - p @ a), abs=1e-10)  # Eq. 6
    assert bound >= limit - 1e-12 * (1 + abs(a).max())
    assert jensen(p, np.full_like(a, a[0]), c) == pytest.approx(loss(a[0], c), abs=1e-11)
    logs = np.logaddexp(a, c)  # the gap is log E y − E log y with y = exp a + exp c: it is 0 only for constant y
    if p @ (logs - p @ logs) ** 2 > 1e-6:
        assert bound > limit


def test_keys_that_differ_across_the_query_leave_no_gap():
    q = np.array([1.0, 0, 0])
    k = np.array([[0.6, 0.8, 0], [0.6, -0.8, 0], [0.6, 0, 0.8]])
    p, c = np.array([0.5, 0.3, 0.2]), 2.0
    np.testing.assert_allclose(np.linalg.norm(k, axis=1), 1)
    assert np.ptp(k, axis=0).max() == pytest.approx(1.6)
    assert jensen(p, k @ q / 0.2, c) == pytest.approx(infinite(p, k @ q / 0.2, c), abs=1e-14)


# ---------------------------------------------------------------------------------------------------- the closed form


def test_the_gaussian_moment():
    nodes, weights = np.polynomial.hermite_e.hermegauss(100)
    weights = weights / weights.sum()
    rng = np.random.default_rng(0)
    plane = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), -1).reshape(-1, 2)
    plane_weights = np.outer(weights, weights).ravel()
    for tau in (0.2, 1.0):
        for _ in range(20):
            q, mu, root = rng.standard_normal(2), rng.standard_normal(2), 0.4 * rng.standard_normal((2, 2))
            q /= np.linalg.norm(q)
            sigma = root @ root.T
            a = (mu + plane @ root.T) @ q / tau
            right = q @ mu / tau + q @ sigma @ q / (2 * tau**2)
            assert logsumexp(a, b=plane_weights) == pytest.approx(right, abs=1e-10)
            assert jensen(plane_weights, a, 3.0) == pytest.approx(closed(q @ mu, q @ sigma @ q, 3.0, tau), abs=1e-10)


@some
@given(gaussians())
def test_eq_7_is_eq_8_for_lambda_one(drawn):
    mean, variance, c, tau = drawn
    for scale in (1.0, 0.25, 2.0):  # another λ is λ = 1 with keys of λ times the covariance
        a = (mean + math.sqrt(scale * variance) * GRID) / tau
        assert jensen(NORMAL, a, c) == pytest.approx(closed(mean, variance, c, tau, scale), abs=1e-10)


def test_eq_7_is_not_eq_8_for_another_lambda():
    mean, variance, c, tau = 0.8, 0.02, math.log(64), 0.2
    a = (mean + math.sqrt(variance) * GRID) / tau
    assert jensen(NORMAL, a, c) == pytest.approx(0.898626, abs=1e-6)
    assert closed(mean, variance, c, tau, 4.0) == pytest.approx(1.358533, abs=1e-6)  # the paper's λ
    assert closed(mean, variance, c, tau, 0.25) == pytest.approx(0.804999, abs=1e-6)


@many
@given(gaussians(), st.sampled_from([1.0, 1.5, 4.0]))
def test_eq_8_bounds_the_limit_from_lambda_one_on(drawn, scale):
    mean, variance, c, tau = drawn
    assert closed(mean, variance, c, tau, scale) >= infinite_gaussian(mean, variance, c, tau) - 1e-11


def test_eq_8_is_below_the_limit_for_small_lambda():
    mean, variance, c, tau = 0.8, 0.02, math.log(64), 0.2  # 64 negatives orthogonal to the query
    limit = infinite_gaussian(mean, variance, c, tau)
    assert limit == pytest.approx(0.834537, abs=1e-6)
    # 0.2 is in the range that Sec. 4.4 calls stable.
    gaps = [closed(mean, variance, c, tau, scale) - limit for scale in (0.0, 0.2, 1.0, 4.0)]
    np.testing.assert_allclose(gaps, [-0.0588, -0.0355, 0.0641, 0.5240], atol=1e-4)
    # A schedule that rises from 0 to λ = 2 is no bound in the first part of the training.
    below = [step for step in range(1, 21) if closed(mean, variance, c, tau, 2 * step / 20) < limit]
    assert below == [1, 2, 3, 4]


def vmf_moment(d: int, concentration: float, tau: float, cosine: float) -> tuple[float, float]:
    """log E exp(q·k / τ) of von Mises–Fisher keys, and what the Gaussian of the same mean and variance has."""

    def log_normaliser(k: float) -> float:
        return (d / 2 - 1) * math.log(k) - math.log(ive(d / 2 - 1, k)) - k

    length = ive(d / 2, concentration) / ive(d / 2 - 1, concentration)  # of the mean key
    along = 1 - length**2 - (d - 1) / concentration * length
    variance = cosine**2 * along + (1 - cosine**2) * length / concentration
    moved = math.sqrt(concentration**2 + tau**-2 + 2 * concentration * cosine / tau)
    return log_normaliser(concentration) - log_normaliser(moved), cosine * length / tau + variance / (2 * tau**2)


def vmf_concentration(d: int, length: float) -> float:
    return float(brentq(lambda k: ive(d / 2, k) / ive(d / 2 - 1, k) - length, 1e-3, 1e5))


def test_keys_on_the_sphere_are_nearly_gaussian_in_many_dimensions():
    errors = {}
    for d in (3, 16, 128):
        for tau in (0.07, 0.2):
            found = []
            for length in (0.6, 0.8, 0.95):
                for cosine in (0.3, 0.7, 1.0):
                    moment, gaussian = vmf_moment(d, vmf_concentration(d, length), tau, cosine)
                    assert moment <= gaussian  # Eq. 8 stays a bound for these keys
                    found.append(gaussian - moment)
            errors[d, tau] = max(found)
    assert errors[128, 0.2] < 0.001
    assert errors[128, 0.07] < 0.02
    assert errors[3, 0.07] > 10 > 1 > errors[16, 0.07] > 0.5


def test_two_kinds_of_keys_on_the_sphere_break_the_closed_form():
    # One augmentation in fifty keeps the query's direction, all others turn it by a right angle; 148 negatives.
    p, similarity, tau, c = np.array([0.98, 0.02]), np.array([0.0, 1.0]), 0.07, math.log(148)
    mean = p @ similarity
    variance = p @ (similarity - mean) ** 2
    limit = infinite(p, similarity / tau, c)
    assert limit == pytest.approx(4.903869, abs=1e-6)
    assert closed(mean, variance, c, tau) == pytest.approx(4.775821, abs=1e-6)
    assert jensen(p, similarity / tau, c) > limit


@some
@given(keys())
def test_half_the_range_makes_a_bound_for_any_keys(drawn):
    p, a, c = drawn
    variance = np.ptp(a) ** 2 / 4  # Hoeffding's lemma: no variance on this range is larger
    assert closed(p @ a, variance, c) >= jensen(p, a, c) - 1e-10 * (1 + abs(a).max())
    assert p @ (a - p @ a) ** 2 <= variance + 1e-12


# ------------------------------------------------------------------------------------------------------------ analysis


@some
@given(gaussians(), st.sampled_from([0.5, 1.0, 4.0]))
def test_the_slopes_of_the_loss(drawn, scale):
    values = torch.tensor([*drawn[:3]], dtype=torch.float64, requires_grad=True)
    mean, variance, c = values
    tau = drawn[3]
    exponent = mean / tau + scale * variance / (2 * tau**2)
    bound = torch.logaddexp(exponent, c) - mean / tau
    assert bound.item() == pytest.approx(float(closed(*drawn, scale)), abs=1e-12)
    (slopes,) = torch.autograd.grad(bound, values)
    share = float(weight(*drawn, scale))
    right = [(share - 1) / tau, scale * share / (2 * tau**2), 1 - share]
    np.testing.assert_allclose(slopes.numpy(), right, rtol=1e-9, atol=1e-12)
    assert right[0] <= 0 <= min(right[1:])


@many
@given(gaussians(), st.floats(0.01, 1), st.sampled_from([0.5, 1.0, 4.0]))
def test_the_loss_falls_with_the_mean_and_rises_with_negatives_and_variance(drawn, step, scale):
    mean, variance, c, tau = drawn
    here = closed(mean, variance, c, tau, scale)
    rounding = 1e-14 * (100 + abs(here))  # where the positive has all of the denominator the mean cancels
    assert closed(mean + step, variance, c, tau, scale) <= here + rounding
    assert closed(mean, variance, c - step, tau, scale) <= here + rounding
    assert closed(mean, variance + step, c, tau, scale) >= here - rounding


@some
@given(gaussians())
def test_the_gap_to_the_limit_rises_with_the_variance(drawn):
    mean, _, c, tau = drawn
    variances = [0.0, 0.002, 0.01, 0.05, 0.1, 0.2]
    gaps = [closed(mean, v, c, tau) - infinite_gaussian(mean, v, c, tau) for v in variances]
    assert gaps[0] == pytest.approx(0, abs=1e-11)
    assert (np.diff(gaps) >= -1e-11).all()
    assert gaps[-1] > 0


def test_a_query_nearer_to_the_mean_key_may_have_a_larger_loss():
    mu, sigma, tau, scale, c = np.array([0.8, 0.0]), np.diag([0.1, 0.0]), 0.2, 4.0, math.log(64)
    across, along = np.array([0.0, 1.0]), np.array([1.0, 0.0])
    values = [closed(q @ mu, q @ sigma @ q, c, tau, scale) for q in (across, along)]
    assert values == pytest.approx([math.log(65), 5.007867], abs=1e-6)


def test_the_gradient_by_the_query_is_analytic():
    rng = np.random.default_rng(0)
    tau, scale = 0.2, 4.0
    k, negatives, start = rng.standard_normal((5, 7)), rng.standard_normal((9, 7)), rng.standard_normal(7)
    k, negatives, start = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (k, negatives, start))
    mu, sigma = k.mean(0), np.cov(k.T, bias=True)
    q = torch.tensor(start, requires_grad=True)
    exponent = q @ torch.from_numpy(mu) / tau + scale / (2 * tau**2) * q @ torch.from_numpy(sigma) @ q
    logits = torch.cat([exponent[None], torch.from_numpy(negatives) @ q / tau])
    (torch.logsumexp(logits, 0) - q @ torch.from_numpy(mu) / tau).backward()
    share = torch.softmax(logits, 0).detach().numpy()
    right = share[0] * (mu / tau + scale * sigma @ start / tau**2) + share[1:] @ negatives / tau - mu / tau
    np.testing.assert_allclose(q.grad.numpy(), right, atol=1e-12)


@many
@given(keys(), st.floats(0.01, 2), st.floats(1.01, 4))
def test_the_conventional_loss_has_the_same_merits_in_expectation(drawn, step, stretch):
    p, a, c = drawn
    here = infinite(p, a, c)  # the expectation of Eq. 1 over its one random key
    tolerance = 1e-11 * (1 + stretch * abs(a).max())
    assert infinite(p, a + step, c) <= here + tolerance
    assert infinite(p, a, c - step) <= here + tolerance
    middle = p @ a
    assert infinite(p, middle + stretch * (a - middle), c) >= here - tolerance  # the same mean key, less alike
    assert here >= loss(middle, c) - tolerance


def test_the_conventional_loss_pays_for_the_variance_of_its_key():
    p, c = np.array([0.5, 0.5]), math.log(64)
    alike, apart = np.array([4.0, 4.0]), np.array([2.0, 6.0])
    assert infinite(p, alike, c) == pytest.approx(0.775741, abs=1e-6)
    assert infinite(p, apart, c) == pytest.approx(1.207696, abs=1e-6)


# ------------------------------------------------------------------------------------------------------------- lambda


@some
@given(gaussians())
def test_lambda_zero_is_info_nce_with_the_mean_key_and_below_the_limit(drawn):
    mean, variance, c, tau = drawn
    value = closed(mean, variance, c, tau, 0.0)
    assert value == pytest.approx(float(loss(mean / tau, c)), abs=1e-12)
    assert value <= infinite_gaussian(mean, variance, c, tau) + 1e-11
    assert closed(mean, variance, c, tau, 1e-9) == pytest.approx(value, abs=1e-6)


@some
@given(gaussians())
def test_negatives_vanish_as_lambda_grows(drawn):
    mean, variance, c, tau = drawn
    shares = weight(mean, variance, c, tau, np.array([1.0, 10.0, 1e3, 1e6, 1e9]))
    assert (np.diff(shares) >= 0).all()
    assert shares[-1] == pytest.approx(1, abs=1e-12)  # the slope by a negative's logit is at most 1 − p⁺
    scale = 1e9
    assert closed(mean, variance, c, tau, scale) == pytest.approx(scale * variance / (2 * tau**2), rel=1e-9)


def test_no_lambda_moves_keys_without_variance_along_the_query():
    for scale in (0.0, 1.0, 1e9):
        assert weight(0.8, 0.0, math.log(64), 0.2, scale) == pytest.approx(0.460363, abs=1e-6)


# --------------------------------------------------------------------------------------------------------- Algorithm 1


def statistics(k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lines 7 to 9 of Algorithm 1."""
    mu = k.sum(0) / len(k)
    centred = k - mu
    return mu, centred.T @ centred / len(k)


def test_the_quadratic_form_is_the_variance_of_the_similarities():
    rng = np.random.default_rng(0)
    for count in (1, 2, 5, 9):
        k, q = rng.standard_normal((count, 16)), rng.standard_normal(16)
        mu, sigma = statistics(k)
        np.testing.assert_allclose(sigma, np.cov(k.T, bias=True) if count > 1 else 0 * sigma, atol=1e-12)
        assert q @ sigma @ q == pytest.approx((k @ q).var(), abs=1e-12)
        assert q @ mu == pytest.approx((k @ q).mean(), abs=1e-12)
        assert np.linalg.matrix_rank(sigma, tol=1e-9) <= count - 1


def estimates(p: np.ndarray, similarity: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probability of every draw of ``count`` keys, and its q·μ and qᵀΣq."""
    drawn = np.array(list(product(range(len(p)), repeat=count)))
    return p[drawn].prod(1), similarity[drawn].mean(1), similarity[drawn].var(1)


FEW = np.array([0.5, 0.3, 0.2]), np.array([0.9, 0.7, 0.2])


def test_few_keys_show_part_of_the_variance_and_the_mean_key_the_rest():
    p, similarity = FEW
    mean = p @ similarity
    variance = p @ (similarity - mean) ** 2
    for count in range(1, 9):
        probability, means, variances = estimates(p, similarity, count)
        assert probability @ variances == pytest.approx((count - 1) / count * variance, abs=1e-14)
        assert probability @ means == pytest.approx(mean, abs=1e-14)
        assert probability @ (means - mean) ** 2 == pytest.approx(variance / count, abs=1e-14)


def test_five_keys_show_four_fifths_of_the_variance():
    p, similarity = FEW
    variance = p @ (similarity - p @ similarity) ** 2
    shown = {count: (lambda w, _, v: w @ v)(*estimates(p, similarity, count)) / variance for count in (1, 2, 5)}
    assert shown == pytest.approx({1: 0.0, 2: 0.5, 5: 0.8})


def test_a_third_key_can_make_the_variance_worse():
    # Unit keys: one augmentation in twenty keeps the query, the others are orthogonal to it.
    p, similarity = np.array([0.95, 0.05]), np.array([0.0, 1.0])
    mean = p @ similarity
    variance = p @ (similarity - mean) ** 2
    squared = []
    for count in (1, 2, 3, 12):
        probability, means, variances = estimates(p, similarity, count)
        squared.append(probability @ (variances - variance) ** 2)
        assert probability @ (means - mean) ** 2 == pytest.approx(variance / count, abs=1e-14)
    assert squared[0] < squared[3] < squared[1] < squared[2]
    np.testing.assert_allclose(squared[:3], [0.002256, 0.005938, 0.006285], atol=1e-6)


def test_the_error_of_the_variance_falls_in_the_end():
    p, similarity = np.array([0.95, 0.05]), np.array([0.0, 1.0])
    variance = 0.95 * 0.05
    squared = []
    for count in (3, 6, 12, 50, 200):
        ones = np.arange(count + 1)
        probability = np.array([math.comb(count, k) * p[1] ** k * p[0] ** (count - k) for k in ones])
        squared.append(probability @ (ones / count * (1 - ones / count) - variance) ** 2)
    assert (np.diff(squared) < 0).all()
    first, _, variances = estimates(p, similarity, 3)
    assert first @ (variances - variance) ** 2 == pytest.approx(squared[0], abs=1e-14)


# ------------------------------------------------------------------------------------------------------------ Figure 3


def test_similarity_and_variance_of_unit_features_mirror_each_other():
    rng = np.random.default_rng(0)
    panels = []
    for views, d, noise in ((32, 128, 0.3), (32, 128, 3.0), (2, 5, 1.0), (7, 3, 0.1), (1, 4, 1.0)):
        k = rng.standard_normal(d) + noise * rng.standard_normal((views, d))
        k /= np.linalg.norm(k, axis=1, keepdims=True)
        cosines = [float(x @ y) for x in k for y in k]
        diagonal = [float(np.mean((column - column.mean()) ** 2)) for column in k.T]
        assert np.mean(diagonal) == pytest.approx((1 - np.mean(cosines)) / d, abs=1e-14)
        panels.append((np.mean(cosines), np.mean(diagonal)))
        if views > 1:  # no view with itself and the divisor M − 1: the same
            apart = [float(k[i] @ k[j]) for i in range(views) for j in range(views) if i != j]
            assert k.var(0, ddof=1).mean() == pytest.approx((1 - np.mean(apart)) / d, abs=1e-14)
    assert panels[0][0] > panels[1][0] + 0.1  # more alike
    assert panels[0][1] < panels[1][1]  # so with less variance
    longer = 2 * k  # the length matters
    assert longer.var(0).mean() != pytest.approx((1 - (longer @ longer.T).mean()) / d, abs=0.1)


# ---------------------------------------------------------------------------------------------------------- Appendix C


def queue_sizes(enqueued: int, dequeued: int, steps: int, start: int = 65_536) -> list[int]:
    return [start + step * (enqueued - dequeued) for step in range(steps + 1)]


def test_a_queue_that_loses_fewer_keys_than_it_gains_grows():
    assert queue_sizes(512, 256, 4) == [65536, 65792, 66048, 66304, 66560]
    # One epoch of ImageNet, 1.2 million images, makes it tenfold.
    assert queue_sizes(512, 256, 1_281_167 // 512)[-1] > 10 * 65_536


def test_a_queue_that_loses_as_many_keys_as_it_gains_keeps_its_size():
    assert set(queue_sizes(512, 512, 10)) == {65536}
    assert set(queue_sizes(256, 256, 10)) == {65536}
    assert 65_536 % 512 == 65_536 % 256 == 0
