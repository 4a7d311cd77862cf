"""JCL: many positive keys, the bound on infinitely many, its closed form, and the statistics Algorithm 1 estimates.

All that matters of a key is ``a = q·k / τ``, so a distribution of keys is one of numbers; the negatives enter as
``c = log Σ exp(q·k⁻ / τ)``. Expectations are finite sums, or integrals on a grid where the keys are Gaussian.
"""

import math
from collections import deque
from itertools import product

import numpy as np
import pytest
import torch
from draws import many, seeds, some
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import ive, logsumexp
from torch.utils.flop_counter import FlopCounterMode

from contrastbook.theory.joint import closed_form
from contrastbook.theory.joint import positive_weight as weight
from contrastlab import methods, objectives, papers


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
    return closed_form(mean, variance, c, tau, scale)


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


keys = seeds.map(_keys)
"""Probabilities and ``a`` of a finite distribution of unit keys, and ``c``; temperatures down to 0.07."""
gaussians = st.tuples(
    st.floats(-1, 1), st.sampled_from([1e-6, 0.001, 0.01, 0.05, 0.2]), st.floats(-5, 12),
    st.sampled_from([0.07, 0.2, 1.0]),
)  # fmt: skip
"""Mean and variance of q·k, ``c`` and τ."""
GRID = np.linspace(-20, 20, 8001)
NORMAL = np.exp(-(GRID**2) / 2)
NORMAL /= NORMAL.sum()


def infinite_gaussian(mean: float, variance: float, c: float, tau: float) -> float:
    """Eq. 4 for Gaussian keys; the trapezoid rule is exact to rounding for an analytic integrand."""
    return infinite(NORMAL, (mean + math.sqrt(variance) * GRID) / tau, c)


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
@given(keys)
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


def paired(p: np.ndarray, dependence: str) -> np.ndarray:
    """``[n, n]`` joint law of two keys with the law p (symmetric about its middle) each."""
    return {"equal": np.diag(p), "opposite": np.diag(p)[::-1], "independent": np.outer(p, p)}[dependence]


LAW, KEYS = np.array([0.2, 0.3, 0.3, 0.2]), np.array([0.9, 0.5, 0.1, -0.3])


def test_the_mean_loss_sees_the_law_of_one_key_however_keys_depend(stated):
    one = loss(KEYS / 0.2, math.log(64))
    pair = (one[:, None] + one[None]) / 2  # Eq. 3 with M = 2
    spread, means = [], []
    for dependence in ("equal", "opposite", "independent"):
        together = paired(LAW, dependence)
        for axis in (0, 1):
            np.testing.assert_allclose(together.sum(axis), LAW, atol=1e-15)
        means.append((together * pair).sum())
        spread.append((together * (pair - means[-1]) ** 2).sum())
    assert means == pytest.approx([infinite(LAW, KEYS / 0.2, math.log(64))] * 3, abs=1e-14)
    assert spread[0] > 1.5 * spread[2] > 1.5 * 1.2 * spread[1]  # only the noise of two keys sees how they depend
    stated("jcl/dependent-keys", value=means[0])


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
@given(gaussians)
def test_eq_7_is_eq_8_for_lambda_one(drawn):
    mean, variance, c, tau = drawn
    for scale in (1.0, 0.25, 2.0):  # another λ is λ = 1 with keys of λ times the covariance
        a = (mean + math.sqrt(scale * variance) * GRID) / tau
        assert jensen(NORMAL, a, c) == pytest.approx(closed(mean, variance, c, tau, scale), abs=1e-10)


def test_eq_8_of_another_lambda_is_not_eq_7_nor_always_a_bound_or_another_number(stated):
    mean, variance, c, tau = 0.8, 0.02, math.log(64), 0.2  # 64 negatives orthogonal to the query
    a = (mean + math.sqrt(variance) * GRID) / tau
    four, quarter = (closed(mean, variance, c, tau, scale) for scale in (4.0, 0.25))
    eq_7 = jensen(NORMAL, a, c)
    assert quarter + 0.09 < eq_7 < four - 0.4  # the paper's λ is 4
    stated("jcl/eq-8-reduction", eq_7=eq_7, four=four, quarter=quarter)
    limit = infinite_gaussian(mean, variance, c, tau)
    # 0.2 is in the range that Sec. 4.4 calls stable.
    gaps = [closed(mean, variance, c, tau, scale) - limit for scale in (0.0, 0.2, 1.0, 4.0)]
    assert gaps[0] < gaps[1] < 0 < gaps[2] < gaps[3]
    edge = brentq(lambda scale: closed(mean, variance, c, tau, scale) - limit, 0, 1)
    stated("jcl/eq-8-bound", limit=limit, short=-gaps[1], edge=edge)
    # A schedule that rises from 0 to λ = 2 is no bound in the first part of the training.
    below = [step for step in range(1, 21) if closed(mean, variance, c, tau, 2 * step / 20) < limit]
    assert below == [1, 2, 3, 4]
    for scale in (0.0, 1.0, 1e9):  # keys without variance along the query
        assert weight(0.8, 0.0, math.log(64), 0.2, scale) == pytest.approx(0.460363, abs=1e-6)


@many
@given(gaussians, st.sampled_from([1.0, 1.5, 4.0]))
def test_eq_8_bounds_the_limit_from_lambda_one_on(drawn, scale):
    mean, variance, c, tau = drawn
    assert closed(mean, variance, c, tau, scale) >= infinite_gaussian(mean, variance, c, tau) - 1e-11


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


def excess(d: int, tau: float, length: float, cosine: float) -> float:
    """By how much the Gaussian exponent exceeds the moment of von Mises–Fisher keys."""
    moment, gaussian = vmf_moment(d, vmf_concentration(d, length), tau, cosine)
    return gaussian - moment


def test_the_moment_of_keys_on_the_sphere_by_quadrature():
    # d = 3: the cosine t with the mean has a density ∝ exp(κ t) on [−1, 1]; around it the query's share is a Bessel I₀
    nodes, weights = np.polynomial.legendre.leggauss(400)
    for length, cosine, tau in ((0.6, 0.7, 0.2), (0.8, -0.5, 0.2), (0.95, 1.0, 0.07)):
        k = vmf_concentration(3, length)
        density = weights * np.exp(k * (nodes - 1))
        density /= density.sum()
        assert density @ nodes == pytest.approx(length, abs=1e-9)
        across = np.sqrt((1 - nodes**2) * (1 - cosine**2)) / tau
        log_moment = logsumexp(nodes * cosine / tau + np.log(ive(0, across)) + across, b=density)
        moment, gaussian = vmf_moment(3, k, tau, cosine)
        assert moment == pytest.approx(log_moment, abs=1e-8)
        variance = cosine**2 * (density @ nodes**2 - length**2) + (1 - cosine**2) * (density @ (1 - nodes**2)) / 2
        assert gaussian == pytest.approx(cosine * length / tau + variance / (2 * tau**2), abs=1e-8)


def test_keys_on_the_sphere_are_nearly_gaussian_in_many_dimensions(stated):
    cosines = np.linspace(0, 1, 21)
    errors = {
        (d, tau): [excess(d, tau, length, cosine) for length in (0.6, 0.7, 0.8, 0.9, 0.95) for cosine in cosines]
        for d in (3, 16, 128) for tau in (0.07, 0.2)
    }  # fmt: skip
    # q·μ ≥ 0: Eq. 8 stays a bound for these keys, to rounding
    assert min(min(found) for found in errors.values()) > -1e-9
    most = {key: max(found) for key, found in errors.items()}
    assert most[128, 0.2] < most[128, 0.07] < 0.05 < 0.5 < most[16, 0.07] < 1 < 10 < most[3, 0.07]
    numbers = {"excess_20": most[128, 0.2], "excess_07": most[128, 0.07], "excess_3": most[3, 0.07]}
    short = -excess(128, 0.07, 0.6, -0.5)  # a mean that points away from the query
    assert short > 0.01
    stated("jcl/gaussian-legitimate", **numbers, short=short)


def test_the_variance_along_the_query_falls_as_keys_on_the_sphere_are_tilted_towards_it():
    for d in (2, 3, 5, 16, 128):

        def ratios(kappa, d=d):
            a = ive(d / 2, kappa) / ive(d / 2 - 1, kappa)  # A, and then A / κ and A′
            return a / kappa, 1 - a**2 - (d - 1) * a / kappa

        both = np.array(ratios(np.geomspace(0.1, 1000, 400)))
        assert (np.diff(both) < 0).all()
        assert (both[1] < both[0]).all()
        for kappa, cosine in product((0.5, 5.0, 200.0), (0.0, 0.4, 1.0)):
            s, step = np.linspace(0.1, 20, 200), 1e-3
            moved = np.sqrt(kappa**2 + s**2 + 2 * kappa * s * cosine)
            share = ((s + kappa * cosine) / moved) ** 2  # of the query along the tilted mean
            variance = (1 - share) * ratios(moved)[0] + share * ratios(moved)[1]
            assert np.diff(variance).max() < 1e-13
            low, middle, high = (vmf_moment(d, kappa, 1 / x, cosine)[0] for x in (2 - step, 2, 2 + step))
            assert (low - 2 * middle + high) / step**2 == pytest.approx(np.interp(2, s, variance), abs=1e-3)


def test_two_kinds_of_keys_on_the_sphere_break_the_closed_form(stated):
    # One augmentation in fifty keeps the query's direction, all others turn it by a right angle; 148 negatives.
    p, similarity, tau, c = np.array([0.98, 0.02]), np.array([0.0, 1.0]), 0.07, math.log(148)
    mean = p @ similarity
    variance = p @ (similarity - mean) ** 2
    limit = infinite(p, similarity / tau, c)
    assert closed(mean, variance, c, tau) < limit - 0.1 < jensen(p, similarity / tau, c)
    stated("jcl/gaussian-keys", limit=limit, closed=closed(mean, variance, c, tau))


@some
@given(keys)
def test_half_the_range_makes_a_bound_for_any_keys(drawn):
    p, a, c = drawn
    variance = np.ptp(a) ** 2 / 4  # Hoeffding's lemma: no variance on this range is larger
    assert closed(p @ a, variance, c) >= jensen(p, a, c) - 1e-10 * (1 + abs(a).max())
    assert p @ (a - p @ a) ** 2 <= variance + 1e-12


@some
@given(gaussians, st.sampled_from([0.5, 1.0, 4.0]))
def test_the_slopes_of_the_loss(drawn, scale):
    values = torch.tensor([*drawn[:3]], dtype=torch.float64, requires_grad=True)
    mean, variance, c = values
    tau = drawn[3]
    bound = torch.logaddexp(mean / tau + scale * variance / (2 * tau**2), c) - mean / tau
    assert bound.item() == pytest.approx(float(closed(*drawn, scale)), abs=1e-12)
    (slopes,) = torch.autograd.grad(bound, values)
    share = float(weight(*drawn, scale))
    right = [(share - 1) / tau, scale * share / (2 * tau**2), 1 - share]
    np.testing.assert_allclose(slopes.numpy(), right, rtol=1e-9, atol=1e-12)
    assert right[0] <= 0 <= min(right[1:])


@many
@given(gaussians, st.floats(0.01, 1), st.sampled_from([0.5, 1.0, 4.0]))
def test_the_loss_falls_with_the_mean_and_rises_with_negatives_and_variance(drawn, step, scale):
    mean, variance, c, tau = drawn
    here = closed(mean, variance, c, tau, scale)
    rounding = 1e-14 * (100 + abs(here))  # where the positive has all of the denominator the mean cancels
    assert closed(mean + step, variance, c, tau, scale) <= here + rounding
    assert closed(mean, variance, c - step, tau, scale) <= here + rounding
    assert closed(mean, variance + step, c, tau, scale) >= here - rounding


def test_negatives_with_a_smaller_sum_at_temperature_one_may_have_a_larger_loss(stated):
    tau, mean = 0.2, 0.5
    before, after = np.zeros(2), np.array([-1.0, 0.4])  # q·k of two negatives
    printed = [np.exp(similarities).sum() for similarities in (before, after)]
    meant = [logsumexp(similarities / tau) for similarities in (before, after)]
    losses = [float(closed(mean, 0.0, c, tau)) for c in meant]
    assert printed[1] < printed[0]
    assert meant[1] > meant[0]
    assert losses[1] > losses[0] + 0.3
    stated("jcl/monotone-negatives", sum_before=printed[0], sum_after=printed[1], before=losses[0], after=losses[1])


@some
@given(gaussians)
def test_the_gap_to_the_limit_rises_with_the_variance(drawn):
    mean, _, c, tau = drawn
    variances = [0.0, 0.002, 0.01, 0.05, 0.1, 0.2]
    gaps = [closed(mean, v, c, tau) - infinite_gaussian(mean, v, c, tau) for v in variances]
    assert gaps[0] == pytest.approx(0, abs=1e-11)
    assert (np.diff(gaps) >= -1e-11).all()
    assert gaps[-1] > 0


def test_a_query_nearer_to_the_mean_key_may_have_a_larger_loss(stated):
    mu, sigma, tau, scale, c = np.array([0.8, 0.0]), np.diag([0.1, 0.0]), 0.2, 4.0, math.log(64)
    across, along = np.array([0.0, 1.0]), np.array([1.0, 0.0])
    values = [closed(q @ mu, q @ sigma @ q, c, tau, scale) for q in (across, along)]
    assert values[0] < values[1]
    assert values[0] == pytest.approx(math.log(65))
    stated("jcl/monotone-mean", across=values[0], along=values[1])


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
@given(keys, st.floats(0.01, 2), st.floats(1.01, 4))
def test_the_conventional_loss_has_the_same_merits_in_expectation(drawn, step, stretch):
    p, a, c = drawn
    here = infinite(p, a, c)  # the expectation of Eq. 1 over its one random key
    tolerance = 1e-11 * (1 + stretch * abs(a).max())
    assert infinite(p, a + step, c) <= here + tolerance
    assert infinite(p, a, c - step) <= here + tolerance
    middle = p @ a
    assert infinite(p, middle + stretch * (a - middle), c) >= here - tolerance  # the same mean key, less alike
    assert here >= loss(middle, c) - tolerance


def test_the_conventional_loss_pays_for_the_variance_of_its_key(stated):
    p, c = np.array([0.5, 0.5]), math.log(64)
    alike, apart = np.array([4.0, 4.0]), np.array([2.0, 6.0])
    assert infinite(p, alike, c) < infinite(p, apart, c) - 0.4
    stated("jcl/conventional-loss", alike=infinite(p, alike, c), apart=infinite(p, apart, c))


@some
@given(gaussians)
def test_lambda_zero_is_info_nce_with_the_mean_key_and_below_the_limit(drawn):
    mean, variance, c, tau = drawn
    value = closed(mean, variance, c, tau, 0.0)
    assert value == pytest.approx(float(loss(mean / tau, c)), abs=1e-12)
    assert value <= infinite_gaussian(mean, variance, c, tau) + 1e-11
    assert closed(mean, variance, c, tau, 1e-9) == pytest.approx(value, abs=1e-6)


@some
@given(gaussians)
def test_negatives_vanish_as_lambda_grows(drawn):
    mean, variance, c, tau = drawn
    shares = weight(mean, variance, c, tau, np.array([1.0, 10.0, 1e3, 1e6, 1e9]))
    assert (np.diff(shares) >= 0).all()
    assert shares[-1] == pytest.approx(1, abs=1e-12)  # the slope by a negative's logit is at most 1 − p⁺
    scale = 1e9
    assert closed(mean, variance, c, tau, scale) == pytest.approx(scale * variance / (2 * tau**2), rel=1e-9)


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


def test_few_keys_show_part_of_the_variance_and_the_mean_key_the_rest(stated):
    p, similarity = np.array([0.5, 0.3, 0.2]), np.array([0.9, 0.7, 0.2])
    mean = p @ similarity
    variance = p @ (similarity - mean) ** 2
    for count in range(1, 9):
        probability, means, variances = estimates(p, similarity, count)
        assert probability @ variances == pytest.approx((count - 1) / count * variance, abs=1e-14)
        if count == 5:  # four fifths of the variance
            shown = probability @ variances / variance
            stated("jcl/sufficient-statistics", five=shown, acts=4 * shown)
        assert probability @ means == pytest.approx(mean, abs=1e-14)
        assert probability @ (means - mean) ** 2 == pytest.approx(variance / count, abs=1e-14)


def test_a_third_key_can_make_the_variance_worse(stated):
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
    stated("jcl/more-keys", two=squared[1], three=squared[2])
    squared = []
    for count in (3, 6, 12, 50, 200):  # in the end the error falls
        ones = np.arange(count + 1)
        probability = np.array([math.comb(count, k) * p[1] ** k * p[0] ** (count - k) for k in ones])
        squared.append(probability @ (ones / count * (1 - ones / count) - variance) ** 2)
    assert (np.diff(squared) < 0).all()
    first, _, variances = estimates(p, similarity, 3)
    assert first @ (variances - variance) ** 2 == pytest.approx(squared[0], abs=1e-14)


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


def queue_after(steps: int, enqueued: int, dequeued: int, size: int) -> deque[int]:
    """The steps at which the keys of a first-in, first-out queue were made; those it started with at step 0."""
    queue = deque([0] * size)
    for step in range(1, steps + 1):
        queue.extend([step] * enqueued)
        for _ in range(dequeued):
            queue.popleft()
    return queue


BATCH = papers.plan("jcl", 1).settings("imagenet", "jcl/jcl", "paper").batch_size
QUEUE = 65_536  # appendix C


def test_a_queue_that_loses_fewer_keys_than_it_gains_grows(stated):
    after, epoch = (len(queue_after(steps, BATCH, 256, QUEUE)) for steps in (1, 1_281_167 // BATCH))
    times = epoch / QUEUE
    assert after > QUEUE
    assert times > 10
    stated("jcl/queue", after=after, times=times)
    for batch in (256, BATCH):  # a queue that loses as many keys as it gains keeps its size …
        whole = QUEUE // batch
        queue = queue_after(whole + 3, batch, batch, QUEUE)
        assert len(queue) == QUEUE
        assert (queue[0], queue[-1]) == (4, whole + 3)  # … and every key for as many steps as batches fit in


def line_12(learning_rate: float = 0.06, momentum: float = 0.999) -> tuple[torch.Tensor, torch.Tensor]:
    """How far one step moves the key encoder, a matrix equal to the query encoder: by the loss, and by momentum."""
    generator = torch.Generator().manual_seed(0)
    f = torch.randn(6, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    g = f.detach().clone().requires_grad_()
    image, *views = torch.randn(6, 6, generator=generator, dtype=torch.float64)
    negatives = torch.randn(9, 4, generator=generator, dtype=torch.float64)
    q = torch.nn.functional.normalize(image @ f, dim=0)
    a = torch.nn.functional.normalize(torch.stack(views) @ g, dim=1) @ q / 0.2
    rest = torch.logsumexp(torch.nn.functional.normalize(negatives, dim=1) @ q / 0.2, 0)
    torch.logaddexp(a.mean() + 4 * a.var(correction=0) / 2, rest).sub(a.mean()).backward()
    moved_f = f - learning_rate * f.grad
    return -learning_rate * g.grad, (1 - momentum) * (moved_f - g).detach()


def test_a_step_of_the_loss_is_no_step_of_momentum(stated):
    by_loss, by_momentum = line_12()
    assert by_loss.norm() > max(1e-3, 100 * by_momentum.norm())
    assert by_momentum.norm() > 0
    stated("jcl/algorithm-1-line-12", by_loss=by_loss.norm(), by_momentum=by_momentum.norm())


def products(seed: int, keys_of_one: int = 5, negatives: int = 64, d: int = 128) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    q, k, n = rng.standard_normal(d), rng.standard_normal((keys_of_one, d)), rng.standard_normal((negatives, d))
    q, k, n = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (q, k, n))
    return q, k, n


def test_both_losses_are_functions_of_the_same_products(stated):
    q, k, n = products(0)
    own, others = torch.from_numpy(k @ q / 0.2)[None], torch.from_numpy(n @ q / 0.2)[None]
    mu, sigma = statistics(k)
    eq_8 = np.logaddexp(q @ mu / 0.2 + 4 / (2 * 0.2**2) * q @ sigma @ q, logsumexp(n @ q / 0.2)) - q @ mu / 0.2
    ours = objectives.multi_key_info_nce(own.mean(1), others, 2 * own.var(1, correction=0))
    assert float(ours) == pytest.approx(eq_8, abs=1e-12)
    row = np.concatenate([k, n]) @ q / 0.2  # all that either loss needs of the query
    own, others = torch.from_numpy(row[:5])[None], torch.from_numpy(row[5:])[None]
    one_by_one = np.mean([np.logaddexp(q @ key / 0.2, logsumexp(n @ q / 0.2)) - q @ key / 0.2 for key in k])
    assert float(objectives.multi_key_info_nce(own, others)) == pytest.approx(one_by_one, abs=1e-12)
    assert row.size == len(k) + len(n)


def batch_of_pairs(q, keys, negatives, tau=0.2):
    """Eq. 3 as a batch of NM pairs, from ``[N, d]`` queries, ``[N, M, d]`` keys and ``[K, d]`` negatives."""
    repeated = q.repeat_interleave(keys.shape[1], 0)
    own = torch.bmm(repeated[:, None], keys.flatten(0, 1)[:, :, None]).flatten() / tau
    others = (repeated @ negatives.T / tau).logsumexp(1)
    return (torch.logaddexp(own, others) - own).view(len(q), -1).mean(1)


def one_query(q, keys, negatives, tau=0.2):
    """Eq. 3 with the products of a query and its negatives computed once."""
    own = torch.bmm(keys, q[:, :, None]).squeeze(2) / tau
    others = (q @ negatives.T / tau).logsumexp(1)[:, None]
    return (torch.logaddexp(own, others) - own).mean(1)


def by_similarities(q, keys, negatives, tau=0.2, strength=4.0):
    """Eq. 8 from the similarities of the query and its keys."""
    own = torch.bmm(keys, q[:, :, None]).squeeze(2) / tau
    others = (q @ negatives.T / tau).logsumexp(1)
    mean = own.mean(1)
    return torch.logaddexp(mean + strength / 2 * own.var(1, correction=0), others) - mean


def algorithm_1(q, keys, negatives, tau=0.2, strength=4.0):
    """Eq. 8 with the mean key and the covariance matrix, lines 7 to 10."""
    mu = keys.mean(1)
    centred = keys - mu[:, None]
    sigma = torch.bmm(centred.mT, centred) / keys.shape[1]
    mean = torch.bmm(mu[:, None], q[:, :, None]).flatten() / tau
    form = torch.bmm(torch.bmm(q[:, None], sigma), q[:, :, None]).flatten() / tau**2
    others = (q @ negatives.T / tau).logsumexp(1)
    return torch.logaddexp(mean + strength / 2 * form, others) - mean


def test_multiplications_of_the_vanilla_form_and_of_jcl_are_counted(stated):
    images = [products(seed) for seed in range(8)]
    q, keys = (torch.from_numpy(np.stack(parts)) for parts in list(zip(*images, strict=True))[:2])
    negatives = torch.from_numpy(images[0][2])
    ways = {"batch": batch_of_pairs, "shared": one_query, "joint": by_similarities, "listed": algorithm_1}
    losses, counted = {}, {}
    for name, way in ways.items():
        with FlopCounterMode(display=False) as counter:
            losses[name] = way(q, keys, negatives)
        counted[name] = counter.get_total_flops() // 2  # a multiplication and an addition
    torch.testing.assert_close(losses["batch"], losses["shared"], rtol=0, atol=1e-12)
    torch.testing.assert_close(losses["joint"], losses["listed"], rtol=0, atol=1e-12)
    (images, many, d), others = keys.shape, len(negatives)
    assert counted["shared"] == counted["joint"] == images * (many + others) * d
    assert counted["batch"] == images * many * (1 + others) * d
    assert counted["listed"] > counted["batch"]
    stated("jcl/appendix-b-memory", **counted)


def test_an_epoch_of_jcl_encodes_three_times_the_views(stated):
    plan, images = papers.plan("jcl", 1), 1_281_167
    encoded = {}
    for name in ("jcl", "moco_v2"):
        recipe = methods.get(f"jcl/{name}")
        settings = plan.settings("imagenet", f"jcl/{name}", "paper")
        assert settings.lr / settings.batch_size == pytest.approx(0.03 / 256)  # the rate for each image
        assert settings.batch_size == 2 * 256
        encoded[name] = recipe.views.count * images / 1e6
    jcl, moco = methods.get("jcl/jcl"), methods.get("jcl/moco_v2")
    assert (jcl.keys, jcl.temperature) == (moco.keys, moco.temperature)
    assert jcl.views.count == 1 + jcl.positives.count == 6
    assert encoded["jcl"] == pytest.approx(3 * encoded["moco_v2"])
    stated("jcl/follows-moco-v2", jcl=encoded["jcl"], moco=encoded["moco_v2"])
