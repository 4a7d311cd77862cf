"""JCL: many positive keys, the bound on infinitely many, its closed form, and the statistics Algorithm 1 estimates.

A query sees of a key only ``a = q·k / τ``, so a distribution of keys is one of numbers: ``a`` ``[n]`` with the
probabilities ``p`` ``[n]``. The negatives enter as ``c = log Σ exp(q·k⁻ / τ)``. Expectations are finite sums, or
integrals on a grid where the keys are Gaussian.

The limit is the loss of infinitely many keys, Eq. 4. ``closed_form`` is Eq. 8, where ``mean`` is ``q·μ``, ``variance``
is ``qᵀΣq`` and ``strength`` is λ. ``positive_weight`` is the softmax weight p⁺ of the positive in it.
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
from torch.nn.functional import normalize
from torch.utils.flop_counter import FlopCounterMode

from contrastbook.theory.joint import closed_form, positive_weight
from contrastlab import methods, objectives, papers


def loss(a, c):
    """Eq. 2, the loss of one positive key."""
    return np.logaddexp(a, c) - a


def expected_loss(p, a, c) -> float:
    """Eq. 4, the limit: the expectation of the loss over the keys."""
    return float(np.sum(p * loss(a, c)))


def jensen_bound(p, a, c) -> float:
    """Eq. 7: the expectation over the keys is taken inside the logarithm."""
    highest = np.max(a)
    log_moment = np.log(np.sum(p * np.exp(a - highest))) + highest
    return float(np.logaddexp(log_moment, c) - np.sum(p * a))


def mean_and_variance(p: np.ndarray, values: np.ndarray) -> tuple[float, float]:
    """Of a number that takes ``values`` ``[n]`` with probabilities ``p`` ``[n]``."""
    mean = p @ values
    return mean, p @ (values - mean) ** 2


def unit(vectors: np.ndarray) -> np.ndarray:
    """``[..., d]`` the vectors at length 1."""
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def random_keys(seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    """``p`` and ``a`` of a few unit keys, and ``c`` of a few unit negatives, at one of three temperatures."""
    rng = np.random.default_rng(seed)
    count = rng.integers(2, 7)
    dimension = rng.integers(2, 6)
    tau = rng.choice([0.07, 0.2, 1.0])
    keys = rng.standard_normal((count, dimension))
    are_alike = rng.random() < 0.5
    if are_alike:
        keys = keys[:1] + 0.3 * keys
    count_of_negatives = rng.integers(1, 9)
    negatives = unit(rng.standard_normal((count_of_negatives, dimension)))
    query = unit(rng.standard_normal(dimension))
    concentration = rng.choice([0.2, 1.0, 10.0])
    p = rng.dirichlet(np.full(count, concentration))
    a = unit(keys) @ query / tau
    c = np.logaddexp.reduce(negatives @ query / tau)
    return p, a, float(c)


finite_keys = seeds.map(random_keys)
gaussian_keys = st.tuples(
    st.floats(-1, 1),  # the mean of q·k
    st.sampled_from([1e-6, 0.001, 0.01, 0.05, 0.2]),  # its variance
    st.floats(-5, 12),  # c
    st.sampled_from([0.07, 0.2, 1.0]),  # τ
)

GRID = np.linspace(-20, 20, 8001)
_DENSITY = np.exp(-(GRID**2) / 2)
NORMAL = _DENSITY / _DENSITY.sum()
"""``[8001]`` probabilities of a standard normal number on ``GRID``.

The trapezoid rule is exact to rounding for an analytic integrand.
"""


def on_grid(mean: float, variance: float, tau: float) -> np.ndarray:
    """``[8001]`` a of Gaussian keys, with the probabilities ``NORMAL``."""
    return (mean + math.sqrt(variance) * GRID) / tau


def gaussian_limit(mean: float, variance: float, c: float, tau: float) -> float:
    """Eq. 4 for Gaussian keys."""
    return expected_loss(NORMAL, on_grid(mean, variance, tau), c)


def every_draw(keys: int, count: int) -> np.ndarray:
    """``[keys^count, count]`` the numbers of the drawn keys, for every way to draw ``count`` keys one after another."""
    return np.array(list(product(range(keys), repeat=count)))


def test_the_mean_of_m_losses_is_unbiased_and_its_variance_falls_as_one_over_m():
    """Eqs. 3 and 4: the mean of the losses of M independent keys has the limit as its expectation for every M.

    Its variance is 1/M of the variance of one loss.
    """
    rng = np.random.default_rng(0)
    for c in (-2.0, 1.0, 5.0):
        p = rng.dirichlet(np.ones(3))
        a = 3 * rng.standard_normal(3)
        losses = loss(a, c)
        limit = expected_loss(p, a, c)
        _, variance_of_one = mean_and_variance(p, losses)
        for m in range(1, 8):
            drawn = every_draw(3, m)
            probability = p[drawn].prod(1)
            mean_loss = losses[drawn].mean(1)  # Eq. 3
            expectation, variance = mean_and_variance(probability, mean_loss)
            assert expectation == pytest.approx(limit, abs=1e-12)
            assert variance == pytest.approx(variance_of_one / m, rel=1e-10)


@many
@given(finite_keys)
def test_jensen_bounds_the_limit_and_is_tight_for_constant_similarity_only(drawn):
    """Eqs. 5 to 7 and Sec. 3.3: Eq. 7 is at least the limit for any keys.

    It equals the limit if and only if the similarity ``q·k`` is constant.
    """
    p, a, c = drawn
    limit = expected_loss(p, a, c)
    bound = jensen_bound(p, a, c)
    log_sums = np.logaddexp(a, c)
    eq_6 = float(p @ log_sums - p @ a)
    assert limit == pytest.approx(eq_6, abs=1e-10)
    rounding = 1e-12 * (1 + abs(a).max())
    assert bound >= limit - rounding
    constant = np.full_like(a, a[0])
    assert jensen_bound(p, constant, c) == pytest.approx(loss(a[0], c), abs=1e-11)
    # The gap is log E y − E log y with y = exp a + exp c: it is 0 only for constant y.
    _, variance = mean_and_variance(p, log_sums)
    if variance > 1e-6:
        assert bound > limit


def test_keys_that_differ_across_the_query_leave_no_gap():
    """Sec. 3.3: Eq. 7 equals the limit although the keys are no constant, since all have the same ``q·k``."""
    query = np.array([1.0, 0, 0])
    keys = np.array([[0.6, 0.8, 0], [0.6, -0.8, 0], [0.6, 0, 0.8]])
    p = np.array([0.5, 0.3, 0.2])
    c = 2.0
    np.testing.assert_allclose(np.linalg.norm(keys, axis=1), 1)
    assert np.ptp(keys, axis=0).max() == pytest.approx(1.6)
    a = keys @ query / 0.2
    assert jensen_bound(p, a, c) == pytest.approx(expected_loss(p, a, c), abs=1e-14)


def test_the_mean_loss_sees_the_law_of_one_key_however_keys_depend(stated):
    """Sec. 3.2: the expectation of Eq. 3 depends on the law of one key only, not on how the keys of an image depend.

    Two keys of one law are always equal, always opposite, or independent.
    """
    law = np.array([0.2, 0.3, 0.3, 0.2])  # symmetric about its middle
    similarity = np.array([0.9, 0.5, 0.1, -0.3])
    a = similarity / 0.2
    c = math.log(64)
    joint_laws = {  # [4, 4] each
        "equal": np.diag(law),
        "opposite": np.diag(law)[::-1],
        "independent": np.outer(law, law),
    }
    losses = loss(a, c)
    mean_loss = (losses[:, None] + losses[None]) / 2  # Eq. 3 with M = 2
    limit = expected_loss(law, a, c)
    variance = {}
    for dependence, joint_law in joint_laws.items():
        for axis in (0, 1):
            np.testing.assert_allclose(joint_law.sum(axis), law, atol=1e-15)
        expectation, variance[dependence] = mean_and_variance(joint_law.ravel(), mean_loss.ravel())
        assert expectation == pytest.approx(limit, abs=1e-14)
    # Only the noise of two keys sees how they depend.
    assert variance["equal"] > 1.5 * variance["independent"]
    assert variance["independent"] > 1.2 * variance["opposite"]
    stated("jcl/dependent-keys", value=limit)


def test_the_gaussian_moment():
    """Eqs. 10 and 11: log E exp(q·k / τ) is q·μ / τ + qᵀΣq / 2τ² for Gaussian keys, so Eq. 7 is Eq. 8 with λ = 1.

    The keys are in the plane, and Gauss–Hermite quadrature takes the expectation.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(100)
    weights = weights / weights.sum()
    first, second = np.meshgrid(nodes, nodes, indexing="ij")
    standard = np.stack([first.ravel(), second.ravel()], 1)
    p = np.outer(weights, weights).ravel()
    rng = np.random.default_rng(0)
    c = 3.0
    for tau in (0.2, 1.0):
        for _ in range(20):
            query = unit(rng.standard_normal(2))
            mu = rng.standard_normal(2)
            root = 0.4 * rng.standard_normal((2, 2))
            sigma = root @ root.T
            keys = mu + standard @ root.T
            a = keys @ query / tau
            mean = query @ mu
            variance = query @ sigma @ query
            log_moment = logsumexp(a, b=p)
            assert log_moment == pytest.approx(mean / tau + variance / (2 * tau**2), abs=1e-10)
            closed = closed_form(mean, variance, c, tau, strength=1.0)
            assert jensen_bound(p, a, c) == pytest.approx(closed, abs=1e-10)


@some
@given(gaussian_keys)
def test_eq_7_is_eq_8_for_lambda_one(drawn):
    """Eq. 8: for Gaussian keys it is Eq. 7 at λ = 1; at another λ it is Eq. 7 for keys of covariance λΣ."""
    mean, variance, c, tau = drawn
    for strength in (1.0, 0.25, 2.0):
        a = on_grid(mean, strength * variance, tau)
        closed = closed_form(mean, variance, c, tau, strength)
        assert jensen_bound(NORMAL, a, c) == pytest.approx(closed, abs=1e-10)


def test_eq_8_of_another_lambda_is_not_eq_7_nor_always_a_bound_or_another_number(stated):
    """Eq. 8 and Fig. 1: with λ = 4 or 0.25 Eq. 8 is not Eq. 7, and for small λ it is no upper bound of the limit.

    Sec. 4.4: where the keys have no variance along the query, λ has no effect on p⁺, nor so on the negatives.
    """
    mean = 0.8
    variance = 0.02
    tau = 0.2
    c = math.log(64)  # 64 negatives orthogonal to the query
    limit = gaussian_limit(mean, variance, c, tau)
    strengths = np.array([0.0, 0.2, 0.25, 1.0, 4.0])
    none, fifth, quarter, one, four = closed_form(mean, variance, c, tau, strengths)

    eq_7 = jensen_bound(NORMAL, on_grid(mean, variance, tau), c)
    assert quarter + 0.09 < eq_7
    assert eq_7 < four - 0.4  # the paper's λ
    stated("jcl/eq-8-reduction", eq_7=eq_7, four=four, quarter=quarter)

    assert none < fifth < limit  # 0.2 is in the range that Sec. 4.4 calls stable
    assert limit < one < four

    def gap(strength: float) -> float:
        """Eq. 8 minus the limit."""
        return float(closed_form(mean, variance, c, tau, strength) - limit)

    stated("jcl/eq-8-bound", limit=limit, short=limit - fifth, edge=brentq(gap, 0, 1))

    # A schedule that rises from 0 to λ = 2 is no bound in the first part of the training.
    steps = np.arange(1, 21)
    scheduled = closed_form(mean, variance, c, tau, 2 * steps / 20)
    assert steps[scheduled < limit].tolist() == [1, 2, 3, 4]

    weight = 1 / (1 + 64 * math.exp(-mean / tau))
    without_variance = positive_weight(mean, 0.0, c, tau, np.array([0.0, 1.0, 1e9]))
    np.testing.assert_allclose(without_variance, weight, rtol=0, atol=1e-6)


@many
@given(gaussian_keys, st.sampled_from([1.0, 1.5, 4.0]))
def test_eq_8_bounds_the_limit_from_lambda_one_on(drawn, scale):
    """Fig. 1 and Eq. 8: for Gaussian keys and λ ≥ 1 (``scale``) Eq. 8 is at least the limit."""
    mean, variance, c, tau = drawn
    assert closed_form(mean, variance, c, tau, scale) >= gaussian_limit(mean, variance, c, tau) - 1e-11


def mean_length(dimension: int, concentration):
    """A(κ), the length of the mean of von Mises–Fisher keys."""
    return ive(dimension / 2, concentration) / ive(dimension / 2 - 1, concentration)


def sphere_variances(dimension: int, concentration):
    """Variance of von Mises–Fisher keys along their mean, A′(κ), and in a direction across it, A(κ) / κ."""
    length = mean_length(dimension, concentration)
    across = length / concentration
    return 1 - length**2 - (dimension - 1) * across, across


def tilted_concentration(concentration: float, cosine: float, slope):
    """‖s q + κ μ/‖μ‖‖, for a cosine between q and μ and a slope s.

    The density of von Mises–Fisher keys, times exp(s q·k), is one of this concentration.
    """
    return np.sqrt(concentration**2 + slope**2 + 2 * concentration * slope * cosine)


def vmf_log_moment(dimension: int, concentration: float, tau: float, cosine: float) -> float:
    """log E exp(q·k / τ) of von Mises–Fisher keys, for a cosine between the query and the mean key."""

    def log_normaliser(kappa: float) -> float:
        order = dimension / 2 - 1
        return order * math.log(kappa) - math.log(ive(order, kappa)) - kappa

    return log_normaliser(concentration) - log_normaliser(tilted_concentration(concentration, cosine, 1 / tau))


def gaussian_log_moment(dimension: int, concentration: float, tau: float, cosine: float) -> float:
    """What log E exp(q·k / τ) would be if q·k were Gaussian, with the mean and variance of von Mises–Fisher keys."""
    along, across = sphere_variances(dimension, concentration)
    mean = cosine * mean_length(dimension, concentration)
    variance = cosine**2 * along + (1 - cosine**2) * across
    return mean / tau + variance / (2 * tau**2)


def vmf_concentration(dimension: int, length: float) -> float:
    """The κ at which the mean key has this length."""
    return float(brentq(lambda kappa: mean_length(dimension, kappa) - length, 1e-3, 1e5))


def excess(d: int, tau: float, length: float, cosine: float) -> float:
    """By how much the Gaussian log moment exceeds that of von Mises–Fisher keys, whose mean has this length."""
    concentration = vmf_concentration(d, length)
    return gaussian_log_moment(d, concentration, tau, cosine) - vmf_log_moment(d, concentration, tau, cosine)


def test_the_moment_of_keys_on_the_sphere_by_quadrature():
    """Sec. 3.2: ``vmf_log_moment`` and ``gaussian_log_moment`` are right in three dimensions.

    There the cosine t of a key with the mean has a density ∝ exp(κ t) on [−1, 1]. The angle around the mean is
    uniform; its mean of exp(q·k / τ) is a Bessel function I₀.
    """
    t, weights = np.polynomial.legendre.leggauss(400)
    for length, cosine, tau in ((0.6, 0.7, 0.2), (0.8, -0.5, 0.2), (0.95, 1.0, 0.07)):
        concentration = vmf_concentration(3, length)
        p = weights * np.exp(concentration * (t - 1))
        p /= p.sum()
        assert p @ t == pytest.approx(length, abs=1e-9)

        along = t * cosine / tau
        across = np.sqrt((1 - t**2) * (1 - cosine**2)) / tau
        log_i0 = np.log(ive(0, across)) + across
        log_moment = logsumexp(along + log_i0, b=p)
        assert vmf_log_moment(3, concentration, tau, cosine) == pytest.approx(log_moment, abs=1e-8)

        variance_along = p @ t**2 - length**2
        variance_across = p @ (1 - t**2) / 2
        variance = cosine**2 * variance_along + (1 - cosine**2) * variance_across
        exponent = cosine * length / tau + variance / (2 * tau**2)
        assert gaussian_log_moment(3, concentration, tau, cosine) == pytest.approx(exponent, abs=1e-8)


def test_keys_on_the_sphere_are_nearly_gaussian_in_many_dimensions(stated):
    """Sec. 3.2, "the Gaussian assumption is legitimate", read for von Mises–Fisher keys.

    If q·μ ≥ 0 the Gaussian log moment is at least theirs, so Eq. 8 stays a bound, and in many dimensions it is not
    much larger. If q·μ < 0 it can be too small.
    """
    lengths = (0.6, 0.7, 0.8, 0.9, 0.95)
    cosines = np.linspace(0, 1, 21)
    most = {}
    for dimension, tau in product((3, 16, 128), (0.07, 0.2)):
        excesses = [excess(dimension, tau, length, cosine) for length, cosine in product(lengths, cosines)]
        assert min(excesses) > -1e-9  # to rounding
        most[dimension, tau] = max(excesses)
    assert most[128, 0.2] < most[128, 0.07] < 0.05
    assert 0.5 < most[16, 0.07] < 1
    assert most[3, 0.07] > 10
    short = -excess(128, 0.07, 0.6, -0.5)
    assert short > 0.01
    stated(
        "jcl/gaussian-legitimate",
        excess_20=most[128, 0.2],
        excess_07=most[128, 0.07],
        excess_3=most[3, 0.07],
        short=short,
    )


def test_the_variance_along_the_query_falls_as_keys_on_the_sphere_are_tilted_towards_it():
    """Sec. 3.2, the steps of the proof that Eq. 8 stays a bound for von Mises–Fisher keys with q·μ ≥ 0.

    K(s) = log E exp(s q·k) has as K″(s) the variance along q of keys tilted towards q. A / κ and A′ fall with κ and
    A′ ≤ A / κ, so K″ falls with s, and K(s) is at most the Gaussian s q·μ + s² K″(0) / 2.
    """
    concentrations = np.geomspace(0.1, 1000, 400)
    slopes = np.linspace(0.1, 20, 200)
    step = 1e-3
    for dimension in (2, 3, 5, 16, 128):
        along, across = sphere_variances(dimension, concentrations)
        assert (np.diff(along) < 0).all()
        assert (np.diff(across) < 0).all()
        assert (along < across).all()
        for concentration, cosine in product((0.5, 5.0, 200.0), (0.0, 0.4, 1.0)):
            tilted = tilted_concentration(concentration, cosine, slopes)
            squared_cosine = ((slopes + concentration * cosine) / tilted) ** 2  # of the query and the tilted mean
            along, across = sphere_variances(dimension, tilted)
            variance = squared_cosine * along + (1 - squared_cosine) * across
            assert np.diff(variance).max() < 1e-13
            around_2 = (2 - step, 2, 2 + step)
            log_moments = [vmf_log_moment(dimension, concentration, 1 / slope, cosine) for slope in around_2]
            second_derivative = np.diff(log_moments, 2)[0] / step**2
            assert second_derivative == pytest.approx(np.interp(2, slopes, variance), abs=1e-3)


def test_two_kinds_of_keys_on_the_sphere_break_the_closed_form(stated):
    """Sec. 3.2: for unit keys that are not Gaussian Eq. 8 with λ = 1 can lie below the limit; Eq. 7 does not.

    One augmentation in fifty keeps the query's direction, all others turn it by a right angle.
    """
    p = np.array([0.98, 0.02])
    similarity = np.array([0.0, 1.0])
    tau = 0.07
    c = math.log(148)  # 148 negatives orthogonal to the query
    mean, variance = mean_and_variance(p, similarity)
    limit = expected_loss(p, similarity / tau, c)
    closed = closed_form(mean, variance, c, tau, strength=1.0)
    assert closed < limit - 0.1
    assert limit - 0.1 < jensen_bound(p, similarity / tau, c)
    stated("jcl/gaussian-keys", limit=limit, closed=closed)


@some
@given(finite_keys)
def test_half_the_range_makes_a_bound_for_any_keys(drawn):
    """Sec. 3.2: Eq. 8 bounds Eq. 7 for any keys if half the range of ``a``, squared, stands for the variance.

    This is Hoeffding's lemma. No variance on this range is larger.
    """
    p, a, c = drawn
    half_range = np.ptp(a) / 2
    mean, variance = mean_and_variance(p, a)
    rounding = 1e-10 * (1 + abs(a).max())
    bound = closed_form(mean, half_range**2, c, tau=1.0, strength=1.0)
    assert bound >= jensen_bound(p, a, c) - rounding
    assert variance <= half_range**2 + 1e-12


@some
@given(gaussian_keys, st.sampled_from([0.5, 1.0, 4.0]))
def test_the_slopes_of_the_loss(drawn, scale):
    """Sec. 3.3: the slopes of Eq. 8 by q·μ, by qᵀΣq and by ``c``, with p⁺ the softmax weight of the positive.

    They are (p⁺ − 1) / τ ≤ 0, λ p⁺ / 2τ² ≥ 0 and 1 − p⁺ ≥ 0; ``scale`` is λ.
    """
    tau = drawn[3]
    values = torch.tensor(drawn[:3], dtype=torch.float64, requires_grad=True)
    mean, variance, c = values
    lift = scale * variance / (2 * tau**2)
    bound = torch.logaddexp(mean / tau + lift, c) - mean / tau
    assert bound.item() == pytest.approx(float(closed_form(*drawn, scale)), abs=1e-12)
    (slopes,) = torch.autograd.grad(bound, values)
    weight = float(positive_weight(*drawn, scale))
    by_mean = (weight - 1) / tau
    by_variance = scale * weight / (2 * tau**2)
    by_negatives = 1 - weight
    np.testing.assert_allclose(slopes.numpy(), [by_mean, by_variance, by_negatives], rtol=1e-9, atol=1e-12)
    assert by_mean <= 0
    assert min(by_variance, by_negatives) >= 0


@many
@given(gaussian_keys, st.floats(0.01, 1), st.sampled_from([0.5, 1.0, 4.0]))
def test_the_loss_falls_with_the_mean_and_rises_with_negatives_and_variance(drawn, step, scale):
    """Sec. 3.3: Eq. 8 falls where q·μ rises and where the negatives' sum falls, and rises with qᵀΣq.

    The other terms stay as they are; ``scale`` is λ.
    """
    mean, variance, c, tau = drawn
    here = closed_form(mean, variance, c, tau, scale)
    rounding = 1e-14 * (100 + abs(here))  # where the positive has all of the denominator the mean cancels
    assert closed_form(mean + step, variance, c, tau, scale) <= here + rounding
    assert closed_form(mean, variance, c - step, tau, scale) <= here + rounding
    assert closed_form(mean, variance + step, c, tau, scale) >= here - rounding


def test_negatives_with_a_smaller_sum_at_temperature_one_may_have_a_larger_loss(stated):
    """Sec. 3.3: the loss need not fall with Σ exp(q·k⁻), the printed sum, which has no temperature.

    Two negatives move. The printed sum falls; the sum with τ, and with it the loss, rises.
    """
    tau = 0.2
    mean = 0.5
    similarities = np.array([[0.0, 0.0], [-1.0, 0.4]])  # before and after, of two negatives
    sum_before, sum_after = np.exp(similarities).sum(1)
    c_before, c_after = logsumexp(similarities / tau, axis=1)
    before = float(closed_form(mean, 0.0, c_before, tau, strength=1.0))
    after = float(closed_form(mean, 0.0, c_after, tau, strength=1.0))
    assert sum_after < sum_before
    assert c_after > c_before
    assert after > before + 0.3
    stated("jcl/monotone-negatives", sum_before=sum_before, sum_after=sum_after, before=before, after=after)


@some
@given(gaussian_keys)
def test_the_gap_to_the_limit_rises_with_the_variance(drawn):
    """Sec. 3.3: for Gaussian keys and λ = 1 the gap between Eq. 8 and the limit rises with the variance of q·k."""
    mean, _, c, tau = drawn
    variances = np.array([0.0, 0.002, 0.01, 0.05, 0.1, 0.2])
    limits = np.array([gaussian_limit(mean, variance, c, tau) for variance in variances])
    gaps = closed_form(mean, variances, c, tau, strength=1.0) - limits
    assert gaps[0] == pytest.approx(0, abs=1e-11)
    assert (np.diff(gaps) >= -1e-11).all()
    assert gaps[-1] > 0


def test_a_query_nearer_to_the_mean_key_may_have_a_larger_loss(stated):
    """Sec. 3.3: the loss can rise as q comes close to μ, because qᵀΣq rises too."""
    mu = np.array([0.8, 0.0])
    sigma = np.diag([0.1, 0.0])
    tau = 0.2
    strength = 4.0
    c = math.log(64)  # 64 negatives orthogonal to the query

    def loss_of(query: np.ndarray) -> float:
        return float(closed_form(query @ mu, query @ sigma @ query, c, tau, strength))

    across = loss_of(np.array([0.0, 1.0]))
    along = loss_of(np.array([1.0, 0.0]))
    assert across < along
    assert across == pytest.approx(math.log(65))
    stated("jcl/monotone-mean", across=across, along=along)


def test_the_gradient_by_the_query_is_analytic():
    """Before Eq. 9: the gradient of Eq. 8 by q is p⁺ (μ / τ + λ Σq / τ²) + Σ pⱼ kⱼ⁻ / τ − μ / τ.

    p⁺ and pⱼ are the softmax weights of the positive and of the negatives.
    """
    tau = 0.2
    strength = 4.0
    rng = np.random.default_rng(0)
    keys = unit(rng.standard_normal((5, 7)))
    negatives = unit(rng.standard_normal((9, 7)))
    start = unit(rng.standard_normal(7))
    mu = keys.mean(0)
    sigma = np.cov(keys.T, bias=True)

    query = torch.tensor(start, requires_grad=True)
    mean = query @ torch.from_numpy(mu)
    variance = query @ torch.from_numpy(sigma) @ query
    positive = mean / tau + strength / (2 * tau**2) * variance
    logits = torch.cat([positive[None], torch.from_numpy(negatives) @ query / tau])
    eq_8 = torch.logsumexp(logits, 0) - mean / tau
    eq_8.backward()

    weights = torch.softmax(logits, 0).detach().numpy()
    by_positive = weights[0] * (mu / tau + strength * sigma @ start / tau**2)
    by_negatives = weights[1:] @ negatives / tau
    np.testing.assert_allclose(query.grad.numpy(), by_positive + by_negatives - mu / tau, atol=1e-12)


@many
@given(finite_keys, st.floats(0.01, 2), st.floats(1.01, 4))
def test_the_conventional_loss_has_the_same_merits_in_expectation(drawn, step, stretch):
    """Sec. 3.3: Eq. 1, averaged over its one random key, is the limit and has the merits of JCL.

    It falls where all ``a`` rise and where the negatives' sum falls, and rises where the same mean has more spread.
    """
    p, a, c = drawn
    here = expected_loss(p, a, c)
    rounding = 1e-11 * (1 + stretch * abs(a).max())
    assert expected_loss(p, a + step, c) <= here + rounding
    assert expected_loss(p, a, c - step) <= here + rounding
    mean = p @ a
    less_alike = mean + stretch * (a - mean)
    assert expected_loss(p, less_alike, c) >= here - rounding
    assert here >= loss(mean, c) - rounding


def test_the_conventional_loss_pays_for_the_variance_of_its_key(stated):
    """Sec. 3.3: of two distributions with the same mean ``a`` the one with more spread has a larger expected loss."""
    p = np.array([0.5, 0.5])
    c = math.log(64)  # 64 negatives orthogonal to the query
    alike = expected_loss(p, np.array([4.0, 4.0]), c)
    apart = expected_loss(p, np.array([2.0, 6.0]), c)
    assert alike < apart - 0.4
    stated("jcl/conventional-loss", alike=alike, apart=apart)


@some
@given(gaussian_keys)
def test_lambda_zero_is_info_nce_with_the_mean_key_and_below_the_limit(drawn):
    """Sec. 4.4, small λ: at λ = 0 Eq. 8 is InfoNCE with the mean key, at most the limit; it is continuous there."""
    mean, variance, c, tau = drawn
    value = closed_form(mean, variance, c, tau, strength=0.0)
    assert value == pytest.approx(float(loss(mean / tau, c)), abs=1e-12)
    assert value <= gaussian_limit(mean, variance, c, tau) + 1e-11
    assert closed_form(mean, variance, c, tau, strength=1e-9) == pytest.approx(value, abs=1e-6)


@some
@given(gaussian_keys)
def test_negatives_vanish_as_lambda_grows(drawn):
    """Sec. 4.4, large λ: the effect of the negatives vanishes where qᵀΣq > 0.

    The slopes of Eq. 8 by the negatives' logits add up to 1 − p⁺, and p⁺ rises to 1. Eq. 8 becomes λ qᵀΣq / 2τ².
    """
    mean, variance, c, tau = drawn
    weights = positive_weight(mean, variance, c, tau, np.array([1.0, 10.0, 1e3, 1e6, 1e9]))
    assert (np.diff(weights) >= 0).all()
    assert weights[-1] == pytest.approx(1, abs=1e-12)
    strength = 1e9
    value = closed_form(mean, variance, c, tau, strength)
    assert value == pytest.approx(strength * variance / (2 * tau**2), rel=1e-9)


def statistics(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lines 7 to 9 of Algorithm 1: mean ``[d]`` and covariance ``[d, d]`` of ``keys`` ``[M, d]``."""
    mu = keys.sum(0) / len(keys)
    centred = keys - mu
    return mu, centred.T @ centred / len(keys)


def test_the_quadratic_form_is_the_variance_of_the_similarities():
    """Algorithm 1, lines 7 to 9: Σ is the covariance of the M′ keys themselves, of rank at most M′ − 1.

    So qᵀΣq is the variance of their M′ similarities q·k, and q·μ is the mean.
    """
    rng = np.random.default_rng(0)
    for count in (1, 2, 5, 9):
        keys = rng.standard_normal((count, 16))
        query = rng.standard_normal(16)
        similarities = keys @ query
        mu, sigma = statistics(keys)
        np.testing.assert_allclose(sigma, np.cov(keys.T, bias=True), atol=1e-12)
        assert query @ sigma @ query == pytest.approx(similarities.var(), abs=1e-12)
        assert query @ mu == pytest.approx(similarities.mean(), abs=1e-12)
        assert np.linalg.matrix_rank(sigma, tol=1e-9) <= count - 1


def estimates(p: np.ndarray, similarity: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The probability, q·μ and qᵀΣq, each ``[n^count]``, of every draw of ``count`` keys out of n.

    ``p`` ``[n]`` are the probabilities of the keys, ``similarity`` ``[n]`` their q·k.
    """
    drawn = every_draw(len(p), count)
    return p[drawn].prod(1), similarity[drawn].mean(1), similarity[drawn].var(1)


def test_few_keys_show_part_of_the_variance_and_the_mean_key_the_rest(stated):
    """Sec. 3.2 and Algorithm 1: the expectation of qᵀΣq over draws of M′ keys is (M′ − 1) / M′ of the true variance.

    That of q·μ is the true mean, and q·μ has the missing part, 1 / M′ of the variance, as its own variance.
    """
    p = np.array([0.5, 0.3, 0.2])
    similarity = np.array([0.9, 0.7, 0.2])
    mean, variance = mean_and_variance(p, similarity)
    for count in range(1, 9):
        probability, means, variances = estimates(p, similarity, count)
        shown = probability @ variances
        assert shown == pytest.approx((count - 1) / count * variance, abs=1e-14)
        assert probability @ means == pytest.approx(mean, abs=1e-14)
        assert probability @ (means - mean) ** 2 == pytest.approx(variance / count, abs=1e-14)
        if count == 5:
            stated("jcl/sufficient-statistics", five=shown / variance, acts=4 * shown / variance)


def test_a_third_key_can_make_the_variance_worse(stated):
    """Sec. 4.4: qᵀΣq of three keys can have a larger squared error than that of two. The error of q·μ is v / M′.

    v is the variance of q·k. One augmentation in twenty keeps the query, the others are orthogonal to it.
    """
    p = np.array([0.95, 0.05])
    similarity = np.array([0.0, 1.0])
    mean, variance = mean_and_variance(p, similarity)
    squared_error = {}
    for count in (1, 2, 3, 12):
        probability, means, variances = estimates(p, similarity, count)
        squared_error[count] = probability @ (variances - variance) ** 2
        assert probability @ (means - mean) ** 2 == pytest.approx(variance / count, abs=1e-14)
    assert squared_error[1] < squared_error[12] < squared_error[2] < squared_error[3]
    stated("jcl/more-keys", two=squared_error[2], three=squared_error[3])

    # With more keys the error falls. The number of drawn keys that equal the query is binomial.
    many_keys = []
    for count in (3, 6, 12, 50, 200):
        numbers = np.arange(count + 1)
        ways = np.array([math.comb(count, number) for number in numbers], dtype=float)
        probability = ways * p[1] ** numbers * p[0] ** (count - numbers)
        share = numbers / count
        variances = share * (1 - share)
        many_keys.append(probability @ (variances - variance) ** 2)
    assert (np.diff(many_keys) < 0).all()
    assert many_keys[0] == pytest.approx(squared_error[3], abs=1e-14)


def test_similarity_and_variance_of_unit_features_mirror_each_other():
    """Sec. 4.5, Fig. 3: of unit features the mean variance of a coordinate is (1 − mean cosine of two views) / d.

    So panel (b), the diagonal of the covariance, is panel (a), the cosines of all pairs of views, mirrored.
    """
    rng = np.random.default_rng(0)
    cosine_means, variance_means = [], []
    for views, d, noise in ((32, 128, 0.3), (32, 128, 3.0), (2, 5, 1.0), (7, 3, 0.1), (1, 4, 1.0)):
        image = rng.standard_normal(d)
        features = unit(image + noise * rng.standard_normal((views, d)))
        cosines = features @ features.T
        _, covariance = statistics(features)
        diagonal = covariance.diagonal()
        assert diagonal.mean() == pytest.approx((1 - cosines.mean()) / d, abs=1e-14)
        cosine_means.append(cosines.mean())
        variance_means.append(diagonal.mean())
        if views > 1:  # without the pairs of a view with itself, and with the divisor M − 1, it is the same
            of_two_views = ~np.eye(views, dtype=bool)
            variance = features.var(0, ddof=1).mean()
            assert variance == pytest.approx((1 - cosines[of_two_views].mean()) / d, abs=1e-14)
    assert cosine_means[0] > cosine_means[1] + 0.1  # the first case has less noise than the second
    assert variance_means[0] < variance_means[1]

    # For features of another length it is not so.
    longer = 2 * np.eye(2)
    products = longer @ longer.T
    assert longer.var(0).mean() != pytest.approx((1 - products.mean()) / 2, abs=0.1)


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
IMAGENET = 1_281_167
"""Training images of ImageNet."""


def test_a_queue_that_loses_fewer_keys_than_it_gains_grows(stated):
    """Appendix C: a queue of 65,536 keys that gains those of a batch of 512 and loses 256 does not keep its size.

    One that loses as many as it gains does, and holds every key for as many steps as it holds batches.
    """
    after_a_step = len(queue_after(1, BATCH, 256, QUEUE))
    after_an_epoch = len(queue_after(IMAGENET // BATCH, BATCH, 256, QUEUE))
    times = after_an_epoch / QUEUE
    assert after_a_step > QUEUE
    assert times > 10
    stated("jcl/queue", after=after_a_step, times=times)
    for batch in (256, BATCH):
        batches = QUEUE // batch
        last_step = batches + 3
        queue = queue_after(last_step, batch, batch, QUEUE)
        assert len(queue) == QUEUE
        assert queue[0] == last_step - batches + 1
        assert queue[-1] == last_step


def moves_of_the_key_encoder(learning_rate: float = 0.06, momentum: float = 0.999) -> tuple[torch.Tensor, torch.Tensor]:
    """How far one step moves the key encoder: by the gradient of Eq. 8, and by momentum; ``[6, 4]`` each.

    The encoders are equal matrices. An image has five views as its keys; τ is 0.2 and λ is 4.
    """
    generator = torch.Generator().manual_seed(0)
    query_encoder = torch.randn(6, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    key_encoder = query_encoder.detach().clone().requires_grad_()
    pictures = torch.randn(6, 6, generator=generator, dtype=torch.float64)
    image, views = pictures[0], pictures[1:]
    negatives = torch.randn(9, 4, generator=generator, dtype=torch.float64)
    query = normalize(image @ query_encoder, dim=0)
    a = normalize(views @ key_encoder, dim=1) @ query / 0.2
    c = torch.logsumexp(normalize(negatives, dim=1) @ query / 0.2, 0)
    lift = 4 / 2 * a.var(correction=0)
    eq_8 = torch.logaddexp(a.mean() + lift, c) - a.mean()
    eq_8.backward()
    by_loss = -learning_rate * key_encoder.grad
    moved_query_encoder = query_encoder - learning_rate * query_encoder.grad
    by_momentum = (1 - momentum) * (moved_query_encoder - key_encoder)
    return by_loss, by_momentum.detach()


def test_a_step_of_the_loss_is_no_step_of_momentum(stated):
    """Algorithm 1, line 12: an update of the key encoder by the loss is not that by momentum, which Appendix C has."""
    by_loss, by_momentum = moves_of_the_key_encoder()
    assert by_loss.norm() > max(1e-3, 100 * by_momentum.norm())
    assert by_momentum.norm() > 0
    stated("jcl/algorithm-1-line-12", by_loss=by_loss.norm(), by_momentum=by_momentum.norm())


def embeddings(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A query ``[d]``, its M = 5 keys ``[M, d]`` and K = 64 negatives ``[K, d]``, all of length 1, with d = 128."""
    rng = np.random.default_rng(seed)
    query = unit(rng.standard_normal(128))
    keys = unit(rng.standard_normal((5, 128)))
    negatives = unit(rng.standard_normal((64, 128)))
    return query, keys, negatives


def test_both_losses_are_functions_of_the_same_products(stated):
    """Appendix B: Eq. 3 and Eq. 8 are functions of the same M + K products of the query with keys and negatives."""
    tau = 0.2
    strength = 4.0
    query, keys, negatives = embeddings(0)
    mu, sigma = statistics(keys)
    mean = query @ mu
    variance = query @ sigma @ query
    c = logsumexp(negatives @ query / tau)
    eq_3 = np.mean([loss(query @ key / tau, c) for key in keys])
    eq_8 = np.logaddexp(mean / tau + strength * variance / (2 * tau**2), c) - mean / tau

    logits = torch.from_numpy(np.concatenate([keys, negatives]) @ query / tau)  # all that the two below are given
    assert len(logits) == len(keys) + len(negatives)
    own = logits[None, : len(keys)]
    others = logits[None, len(keys) :]
    assert float(objectives.multi_key_info_nce(own, others)) == pytest.approx(eq_3, abs=1e-12)
    lift = strength / 2 * own.var(1, correction=0)
    assert float(objectives.multi_key_info_nce(own.mean(1), others, lift)) == pytest.approx(eq_8, abs=1e-12)


# Four ways to compute the losses ``[N]`` of N images, from queries ``[N, d]``, keys ``[N, M, d]`` and negatives
# ``[K, d]`` in matrix products, whose multiplications torch counts.


def products_with_keys(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """``[N, M]`` products of each query with its own keys."""
    return torch.bmm(keys, queries[:, :, None]).squeeze(2)


def batch_of_pairs(queries, keys, negatives, tau=0.2):
    """Eq. 3 as a batch of NM pairs: each pair multiplies its query with the negatives anew."""
    images, many, _ = keys.shape
    repeated = queries.repeat_interleave(many, 0)
    own = products_with_keys(repeated, keys.flatten(0, 1)[:, None]).squeeze(1) / tau
    others = (repeated @ negatives.T / tau).logsumexp(1)
    losses = torch.logaddexp(own, others) - own
    return losses.view(images, many).mean(1)


def one_query(queries, keys, negatives, tau=0.2):
    """Eq. 3 with the products of a query and its negatives computed once."""
    own = products_with_keys(queries, keys) / tau
    others = (queries @ negatives.T / tau).logsumexp(1)
    losses = torch.logaddexp(own, others[:, None]) - own
    return losses.mean(1)


def by_similarities(queries, keys, negatives, tau=0.2, strength=4.0):
    """Eq. 8 from the similarities of the query and its keys."""
    own = products_with_keys(queries, keys) / tau
    others = (queries @ negatives.T / tau).logsumexp(1)
    mean = own.mean(1)
    variance = own.var(1, correction=0)
    return torch.logaddexp(mean + strength / 2 * variance, others) - mean


def algorithm_1(queries, keys, negatives, tau=0.2, strength=4.0):
    """Eq. 8 with the mean key and the covariance matrix, lines 7 to 10."""
    mu = keys.mean(1)
    centred = keys - mu[:, None]
    sigma = torch.bmm(centred.mT, centred) / keys.shape[1]
    mean = products_with_keys(queries, mu[:, None]).squeeze(1) / tau
    sigma_query = torch.bmm(sigma, queries[:, :, None]).squeeze(2)
    variance = products_with_keys(queries, sigma_query[:, None]).squeeze(1) / tau**2
    others = (queries @ negatives.T / tau).logsumexp(1)
    return torch.logaddexp(mean + strength / 2 * variance, others) - mean


def test_multiplications_of_the_vanilla_form_and_of_jcl_are_counted(stated):
    """Appendix B: JCL saves multiplications only against Eq. 3 run as a batch of pairs.

    If the products of a query with its negatives are computed once, Eq. 3 takes as many as Eq. 8 by similarities. With
    the covariance matrices of Algorithm 1 Eq. 8 takes more than the batch of pairs.
    """
    of_images = [embeddings(seed) for seed in range(8)]
    queries = torch.from_numpy(np.stack([query for query, _, _ in of_images]))
    keys = torch.from_numpy(np.stack([keys for _, keys, _ in of_images]))
    _, _, negatives = of_images[0]
    negatives = torch.from_numpy(negatives)
    ways = {"batch": batch_of_pairs, "shared": one_query, "joint": by_similarities, "listed": algorithm_1}
    losses, counted = {}, {}
    for name, way in ways.items():
        with FlopCounterMode(display=False) as counter:
            losses[name] = way(queries, keys, negatives)
        counted[name] = counter.get_total_flops() // 2  # a multiplication and an addition
    torch.testing.assert_close(losses["batch"], losses["shared"], rtol=0, atol=1e-12)
    torch.testing.assert_close(losses["joint"], losses["listed"], rtol=0, atol=1e-12)
    images, keys_of_one, d = keys.shape
    assert counted["shared"] == images * (keys_of_one + len(negatives)) * d
    assert counted["joint"] == counted["shared"]
    assert counted["batch"] == images * keys_of_one * (1 + len(negatives)) * d
    assert counted["listed"] > counted["batch"]
    stated("jcl/appendix-b-memory", **counted)


def test_an_epoch_of_jcl_encodes_three_times_the_views(stated):
    """Sec. 4.1, "strictly follow MoCo v2": keys, τ and the rate for each image are equal, batch and views are not.

    The batch is twice MoCo v2's 256, and JCL encodes 6 views of an image in place of 2.
    """
    plan = papers.plan("jcl", 1)
    jcl = methods.get("jcl/jcl")
    moco = methods.get("jcl/moco_v2")
    for name in ("jcl/jcl", "jcl/moco_v2"):
        settings = plan.settings("imagenet", name, "paper")
        assert settings.batch_size == 2 * 256
        assert settings.lr / settings.batch_size == pytest.approx(0.03 / 256)
    assert jcl.keys == moco.keys
    assert jcl.temperature == moco.temperature
    assert jcl.views.count == 1 + jcl.positives.count == 6
    assert jcl.views.count == 3 * moco.views.count
    stated(
        "jcl/follows-moco-v2",
        jcl=jcl.views.count * IMAGENET / 1e6,
        moco=moco.views.count * IMAGENET / 1e6,
    )
