"""Exact values of bounds with hard negatives, against sampling and brute force."""

import math

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import ncx2, norm
from sklearn.isotonic import IsotonicRegression

from contrastbook.theory import gaussians
from contrastlab.information.toys import JointGaussian

MI = gaussians.information()


def test_without_hard_negatives_the_value_is_the_information_and_the_optimal_critic_the_best() -> None:
    gaussian = JointGaussian(np.array(((2.0, 0.4), (0.4, 2.0))), 1)
    assert pytest.approx(gaussian.mutual_information, abs=1e-12) == MI
    assert gaussians.population(100).value == pytest.approx(MI, abs=1e-6)
    assert gaussians.largest(100).value == pytest.approx(MI, abs=1e-12)
    step = 1e-4
    slope = (gaussians.population(100, scale=1 + step).value - gaussians.population(100, scale=1 - step).value) / step
    assert abs(slope) < 1e-6
    assert gaussians.population(100).best_scale == pytest.approx(1, abs=1e-6)
    assert 0 < gaussians.population(90).best_scale < 0.5


@pytest.mark.parametrize("rho", [0.2, -0.2, 0.6])
def test_harder_negatives_lower_every_value(rho: float) -> None:
    percents = [100, 95, 90, 75, 50, 25, 10, 5, 1]
    values = [gaussians.population(p, rho=rho) for p in percents]
    critics = [gaussians.largest(p, rho=rho) for p in percents]
    most = [critic.value for critic in critics]
    assert (np.diff([[v.value for v in values], most]) < 0).all()
    for value, top in zip(values, most, strict=True):
        assert max(value.value, 0) <= value.best + 1e-12 <= top + 1e-9 <= gaussians.information(rho) + 2e-9
    # negatives from everywhere are easier
    assert all(critic.value <= critic.infonce + 1e-12 <= gaussians.information(rho) + 2e-12 for critic in critics)


def test_special_cases_are_exact() -> None:
    ours, theirs = gaussians.population(75, scale=0.7, rho=0.4), gaussians.population(75, scale=0.7, rho=-0.4)
    assert ours.value == pytest.approx(theirs.value, abs=1e-12)  # the sign of the correlation does not matter
    assert gaussians.population(30, scale=0).value == pytest.approx(0, abs=1e-12)  # a constant critic
    assert gaussians.independent_value(100) == 0
    assert gaussians.independent_simulated(100) == (0, 0)


def simulated(percent: float, scale: float, *, negatives: int = 100, rho: float = 0.2) -> tuple[float, float]:
    """Mean and standard error of VINCE at a·f* with K drawn negatives and the positive among them."""
    generator, count = np.random.default_rng(1), 10_000
    x = generator.standard_normal(count)
    positive = rho * x + math.sqrt(1 - rho**2) * generator.standard_normal(count)
    # the p % are an interval around x/ρ: draw its ends' uniform numbers, and invert
    half = np.sqrt(ncx2.ppf(percent / 100, 1, (x / rho) ** 2)) if percent < 100 else np.full(count, np.inf)
    low, high = ndtr(-np.abs(x / rho) - half), ndtr(-np.abs(x / rho) + half)
    drawn = ndtri(low[:, None] + (high - low)[:, None] * generator.random((count, negatives)))
    drawn *= -np.where(x == 0, 1, np.sign(x / rho))[:, None]

    def critic(y: np.ndarray, at: np.ndarray) -> np.ndarray:
        return scale * (norm.logpdf(y, rho * at, math.sqrt(1 - rho**2)) - norm.logpdf(y))

    own = critic(positive, x)
    each = own - np.log((np.exp(own) + np.exp(critic(drawn, x[:, None])).sum(1)) / (negatives + 1))
    return float(each.mean()), float(each.std(ddof=1) / math.sqrt(count))


@pytest.mark.parametrize("percent", [100.0, 90.0, 50.0, 5.0])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_quadrature_against_draws(percent: float, scale: float) -> None:
    value, error = simulated(percent, scale)
    # K = 100 rather than ∞ moves the value by about var(exp f) / 2K
    assert abs(value - gaussians.population(percent, scale=scale).value) < 4 * error + 5e-4


def test_share_of_x_that_meets_the_hypothesis_against_ranks() -> None:
    generator = np.random.default_rng(0)
    x, y = generator.standard_normal((4000, 1)), norm.ppf((np.arange(4001) + 0.5) / 4001)
    log_c = 0.0  # the mean of exp f* over y is 1
    f = MI - 0.5 * (y - 0.2 * x) ** 2 / (1 - 0.04) + 0.5 * y**2
    threshold = np.quantile(f, 0.5, axis=1)
    share = (threshold > log_c).mean()
    assert abs(share - gaussians.population(50).share) < 4 * math.sqrt(share * (1 - share) / len(x))
    assert gaussians.population(90).share == 0
    assert gaussians.population(5).share > 0.999


@pytest.mark.parametrize("percent", [95.0, 75.0, 50.0])
def test_the_supremum_against_monotone_regression(percent: float) -> None:
    # the majorant's slope is the decreasing fit to the positives' mass over cells of equal rank, the last cell
    # holding everybody beyond p; sklearn's fit knows nothing of the closed forms
    cells, rho = 2000, 0.2
    x, weight = np.polynomial.hermite_e.hermegauss(50)
    total = infonce = 0.0
    for at, w in zip(x, weight / weight.sum(), strict=True):
        low, high = np.zeros(cells), np.full(cells, abs(at / rho) + 40)
        rank = np.arange(1, cells + 1) / cells * percent / 100
        for _ in range(50):
            half = 0.5 * (low + high)
            enough = ndtr(at / rho + half) - ndtr(at / rho - half) >= rank
            low, high = np.where(enough, low, half), np.where(enough, half, high)
        spread = math.sqrt(1 - rho**2)
        reached = ndtr((at / rho + high - rho * at) / spread) - ndtr((at / rho - high - rho * at) / spread)
        mass = np.diff(reached, prepend=0)
        mass[-1] += 1 - reached[-1]
        fit = IsotonicRegression(increasing=False).fit_transform(np.arange(cells), mass)
        each = float(fit @ np.log(np.maximum(fit, 1e-300) * cells))
        total += w * each
        infonce += w * (each - math.log(percent / 100 + (1 - percent / 100) * fit[-1] * cells))
    found = gaussians.largest(percent)
    assert found.value == pytest.approx(total, rel=0.01, abs=2e-6)
    assert found.infonce == pytest.approx(infonce, rel=0.01, abs=2e-6)


def test_the_supremum_is_what_a_monotone_critic_attains_and_not_less() -> None:
    # at one x, many decreasing critics of the rank: none passes the sum for its x
    generator = np.random.default_rng(0)
    cells, part = 400, 0.75
    inside = round(cells * part)
    density = np.sort(generator.gamma(2.0, size=cells))[::-1]
    density /= density.sum()
    mass = density[:inside].copy()
    mass[-1] += density[inside:].sum()
    fit = IsotonicRegression(increasing=False).fit_transform(np.arange(inside), mass)
    most = float(fit @ np.log(fit * inside))
    for _ in range(500):
        critic = np.sort(generator.normal(scale=generator.uniform(0, 2), size=cells))[::-1]
        assert density @ critic - math.log(np.exp(critic[:inside]).mean()) <= most + 1e-12
    best = np.append(np.log(fit), np.full(cells - inside, np.log(fit[-1])))
    assert density @ best - math.log(np.exp(best[:inside]).mean()) == pytest.approx(most, abs=1e-12)


@pytest.mark.parametrize("percent", [99.0, 90.0, 75.0, 50.0, 10.0, 5.0])
def test_information_between_independent_variables(percent: float) -> None:
    value, error = gaussians.independent_simulated(percent, negatives=4000, height=12, count=40_000)
    closed = gaussians.independent_value(percent)
    # finite H and K cost a little
    assert abs(value - closed) < 4 * error + 0.01 * closed
    shares = np.linspace(1e-4, 1 - percent / 100, 2000)
    assert closed == pytest.approx(np.max(shares * np.log(percent / 100 / shares)), abs=1e-4)


def test_redrawing_the_data_moves_the_plug_in_estimate() -> None:
    estimates = gaussians.plug_in_simulated(samples=1000)
    assert estimates.shape == (1000,)
    # the standard error of a standard deviation is sd/√(2n); the delta method leaves out terms of order 1/N
    assert abs(estimates.std() - gaussians.plug_in_deviation()) < 4 * estimates.std() / math.sqrt(2000) + 1e-4
