"""Exact values of bounds with hard negatives, against sampling and brute force."""

import math
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import ncx2, norm
from sklearn.isotonic import IsotonicRegression

from contrastbook.theory import gaussians
from contrastlab.information.toys import JointGaussian

Array = NDArray[np.float64]

MI = gaussians.information()


def test_without_hard_negatives_the_value_is_the_information_and_the_optimal_critic_the_best() -> None:
    covariance = np.array([[2.0, 0.4], [0.4, 2.0]])
    gaussian = JointGaussian(covariance, 1)
    assert gaussian.mutual_information == pytest.approx(MI, abs=1e-12)
    at_optimum = gaussians.population(100)
    assert at_optimum.value == pytest.approx(MI, abs=1e-6)
    assert gaussians.largest(100).value == pytest.approx(MI, abs=1e-12)
    assert at_optimum.best_scale == pytest.approx(1, abs=1e-6)
    step = 1e-4
    above = gaussians.population(100, scale=1 + step).value
    below = gaussians.population(100, scale=1 - step).value
    slope = (above - below) / (2 * step)
    assert abs(slope) < 5e-7


def test_with_hard_negatives_a_flatter_critic_is_the_best() -> None:
    assert 0 < gaussians.population(90).best_scale < 0.5


@pytest.mark.parametrize("rho", [0.2, -0.2, 0.6])
def test_harder_negatives_lower_every_value(rho: float) -> None:
    """The value falls with the share p, at the optimal critic and at the best one."""
    percents = [100, 95, 90, 75, 50, 25, 10, 5, 1]
    of_optimal_critic = [gaussians.population(p, rho=rho).value for p in percents]
    of_best_critic = [gaussians.largest(p, rho=rho).value for p in percents]
    assert (np.diff(of_optimal_critic) < 0).all()
    assert (np.diff(of_best_critic) < 0).all()
    information = gaussians.information(rho)
    for percent in percents:
        population = gaussians.population(percent, rho=rho)
        largest = gaussians.largest(percent, rho=rho)
        # the best scale is no worse than scale 1, and than scale 0, where the value is 0
        assert population.best >= population.value - 1e-12
        assert population.best >= -1e-12
        assert largest.value >= population.best - 1e-9
        assert information >= largest.value - 1e-9
        # negatives from everywhere are easier
        assert largest.infonce >= largest.value - 1e-12
        assert information >= largest.infonce - 1e-12


def test_special_cases_are_exact() -> None:
    correlated = gaussians.population(75, scale=0.7, rho=0.4)
    anticorrelated = gaussians.population(75, scale=0.7, rho=-0.4)
    assert correlated.value == pytest.approx(anticorrelated.value, abs=1e-12)
    constant_critic = gaussians.population(30, scale=0)
    assert constant_critic.value == pytest.approx(0, abs=1e-12)
    assert gaussians.independent_value(100) == 0
    assert gaussians.independent_simulated(100) == (0, 0)


class Estimate(NamedTuple):
    """A mean over draws, in nats."""

    mean: float
    error: float  # its standard error


def nearest_normals(centre: Array, percent: float, uniform: Array) -> Array:
    """Draws of a standard normal y from the ``percent`` % nearest to ``centre`` ``[N]``, one for each of ``uniform``.

    They lie in an interval around the centre. Its ends have uniform numbers; one between them is drawn, and inverted.
    """
    half = np.full(len(centre), np.inf)
    if percent < 100:
        half = np.sqrt(ncx2.ppf(percent / 100, 1, centre**2))
    # around −|centre|, where the distribution function has all its digits, and mirrored afterwards
    low = ndtr(-np.abs(centre) - half)[:, None]
    high = ndtr(-np.abs(centre) + half)[:, None]
    mirrored = ndtri(low + (high - low) * uniform)
    side = np.where(centre == 0, 1, np.sign(centre))
    return -side[:, None] * mirrored


def simulated_vince(percent: float, scale: float, *, negatives: int = 100, rho: float = 0.2) -> Estimate:
    """VINCE at a·f* with K drawn negatives and the positive among them."""
    generator = np.random.default_rng(1)
    count = 10_000
    spread = math.sqrt(1 - rho**2)
    x = generator.standard_normal(count)
    positive = rho * x + spread * generator.standard_normal(count)
    # f* is largest at x/ρ and falls on both sides
    negative = nearest_normals(x / rho, percent, generator.random((count, negatives)))

    def critic(x: Array, y: Array) -> Array:
        return scale * (norm.logpdf(y, rho * x, spread) - norm.logpdf(y))

    of_positive = critic(x, positive)
    of_negatives = critic(x[:, None], negative)
    mean = (np.exp(of_positive) + np.exp(of_negatives).sum(1)) / (negatives + 1)
    values = of_positive - np.log(mean)
    return Estimate(float(values.mean()), float(values.std(ddof=1) / math.sqrt(count)))


@pytest.mark.parametrize("percent", [100.0, 90.0, 50.0, 5.0])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_quadrature_against_draws(percent: float, scale: float) -> None:
    drawn = simulated_vince(percent, scale)
    exact = gaussians.population(percent, scale=scale).value
    # K = 100 rather than ∞ moves the value by about var(exp f) / 2K
    assert abs(drawn.mean - exact) < 4 * drawn.error + 5e-4


def test_share_of_x_that_meets_the_hypothesis_against_ranks() -> None:
    """A drawn x meets it if the median of f* over y, the least of the highest-scored half, is above log c."""
    rho = 0.2
    x = np.random.default_rng(0).standard_normal((4000, 1))
    y = norm.ppf((np.arange(4001) + 0.5) / 4001)
    spread = math.sqrt(1 - rho**2)
    # both less ½ log 2π
    log_conditional = -0.5 * ((y - rho * x) / spread) ** 2 - math.log(spread)
    log_marginal = -0.5 * y**2
    f = log_conditional - log_marginal
    least_negative = np.median(f, axis=1)
    log_c = 0.0  # the mean of exp f* over y is 1
    share = (least_negative > log_c).mean()
    error = math.sqrt(share * (1 - share) / len(x))
    assert abs(share - gaussians.population(50).share) < 4 * error
    assert gaussians.population(90).share == 0
    assert gaussians.population(5).share > 0.999


def decreasing_fit(mass: Array) -> Array:
    """Of all decreasing sequences the nearest to ``mass``: the slopes of its least concave majorant.

    It is sklearn's, which knows nothing of the closed forms.
    """
    regression = IsotonicRegression(increasing=False)
    return np.asarray(regression.fit_transform(np.arange(len(mass)), mass))


def half_width_of_rank(centre: float, rank: Array) -> Array:
    """Half the width of the interval around ``centre`` that holds the share ``rank`` of y, by bisection."""
    low = np.zeros_like(rank)
    high = np.full_like(rank, abs(centre) + 40)
    for _ in range(50):
        half = 0.5 * (low + high)
        is_enough = ndtr(centre + half) - ndtr(centre - half) >= rank
        low = np.where(is_enough, low, half)
        high = np.where(is_enough, half, high)
    return high


def mass_of_positives(x: float, rho: float, rank: Array) -> Array:
    """Mass under p(y|x) of the cells of y that end at each ``rank``; the last one holds everybody beyond, too."""
    half = half_width_of_rank(x / rho, rank)
    spread = math.sqrt(1 - rho**2)
    low = (x / rho - half - rho * x) / spread
    high = (x / rho + half - rho * x) / spread
    reached = ndtr(high) - ndtr(low)
    mass = np.diff(reached, prepend=0)
    mass[-1] += 1 - reached[-1]
    return mass


@pytest.mark.parametrize("percent", [95.0, 75.0, 50.0])
def test_the_supremum_against_monotone_regression(percent: float) -> None:
    """The majorant's slope is the decreasing fit to the positives' mass over cells of equal rank, for every x."""
    cells = 2000
    part = percent / 100
    rank = part * np.arange(1, cells + 1) / cells
    nodes, weights = np.polynomial.hermite_e.hermegauss(50)
    weights = weights / weights.sum()
    supremum = 0.0
    infonce = 0.0
    for x, weight in zip(nodes, weights, strict=True):
        fit = decreasing_fit(mass_of_positives(x, 0.2, rank))
        value = float(fit @ np.log(np.maximum(fit, 1e-300) * cells))
        # over all y, those beyond p have the last cell's value, and the mean within p is 1
        mean_over_all = part + (1 - part) * fit[-1] * cells
        supremum += weight * value
        infonce += weight * (value - math.log(mean_over_all))
    found = gaussians.largest(percent)
    assert found.value == pytest.approx(supremum, rel=0.01, abs=2e-6)
    assert found.infonce == pytest.approx(infonce, rel=0.01, abs=2e-6)


def test_the_supremum_is_what_a_monotone_critic_attains_and_not_less() -> None:
    """At one x, no decreasing critic of the rank passes the sum over the decreasing fit, and its logarithm attains it.

    y has 400 ranks, best first. Negatives are from the first three quarters.
    """
    generator = np.random.default_rng(0)
    cells = 400
    inside = 300
    density = np.sort(generator.gamma(2.0, size=cells))[::-1]
    density /= density.sum()

    def value(critic: Array) -> float:
        return float(density @ critic - math.log(np.exp(critic[:inside]).mean()))

    mass = density[:inside].copy()
    mass[-1] += density[inside:].sum()
    fit = decreasing_fit(mass)
    supremum = float(fit @ np.log(fit * inside))
    for _ in range(500):
        scale = generator.uniform(0, 2)
        critic = np.sort(generator.normal(scale=scale, size=cells))[::-1]
        assert value(critic) <= supremum + 1e-12
    beyond = np.full(cells - inside, np.log(fit[-1]))
    best = np.append(np.log(fit), beyond)
    assert value(best) == pytest.approx(supremum, abs=1e-12)


@pytest.mark.parametrize("percent", [99.0, 90.0, 75.0, 50.0, 10.0, 5.0])
def test_information_between_independent_variables(percent: float) -> None:
    """The closed form is the largest r log(p/r) over shares r up to 1 − p, and near the mean over draws."""
    part = percent / 100
    closed = gaussians.independent_value(percent)
    drawn = Estimate(*gaussians.independent_simulated(percent, negatives=4000, height=12, count=40_000))
    # finite H and K cost a little
    assert abs(drawn.mean - closed) < 4 * drawn.error + 0.01 * closed
    shares = np.linspace(1e-4, 1 - part, 2000)
    gains = shares * np.log(part / shares)
    assert closed == pytest.approx(gains.max(), abs=1e-4)


def test_redrawing_the_data_moves_the_plug_in_estimate() -> None:
    samples = 1000
    estimates = gaussians.plug_in_simulated(samples=samples)
    assert estimates.shape == (samples,)
    deviation = estimates.std()
    error = deviation / math.sqrt(2 * samples)  # standard error of a standard deviation
    # the delta method leaves out terms of order 1/N
    assert abs(deviation - gaussians.plug_in_deviation()) < 4 * error + 1e-4
