"""Flows against the change of variables, quadrature and densities that are known."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close
from zuko.flows import Flow

from contrastbook.theory import flows
from contrastbook.theory.flows import fit, log_von_mises_fisher, real_nvp, stereographic, von_mises_fisher
from contrastlab.support.errors import NonFiniteLossError

PRIORS = ("gaussian", "uniform")


def shaken(dim: int, prior: flows.Prior, scale: float = 0.3) -> Flow:
    """A flow with weights at random, of standardised data with mean 1 and standard deviation 2."""
    generator = torch.Generator().manual_seed(0)
    flow = real_nvp(2 * points(50, dim) + 1, prior=prior, width=16)
    for weight in flow.parameters():
        weight.data += scale * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    return flow


def points(count: int, dim: int, seed: int = 1) -> Tensor:
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_flow_that_is_not_trained_standardises_its_data() -> None:
    x = 2 * points(50, 3) + 1
    h = real_nvp(x).transform()(x)
    assert_close(h.mean(0), torch.zeros(3, dtype=torch.float64), rtol=0, atol=1e-6)
    assert_close(h.std(0), torch.ones(3, dtype=torch.float64), rtol=0, atol=1e-6)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("dim", [2, 5])
def test_log_prob_is_the_change_of_variables(prior: flows.Prior, dim: int) -> None:
    """It is the log density of the prior where x comes to lie, and the log determinant of the Jacobian at x."""
    flow = shaken(dim, prior)

    def to_prior(x: Tensor) -> Tensor:
        (h,) = flow.transform()(x[None])
        if prior == "uniform":
            return torch.sigmoid(h)
        return h

    def log_prior(at: Tensor) -> float:
        if prior == "uniform":
            return 0.0
        return -0.5 * float((at.square() + math.log(2 * math.pi)).sum())

    for x in points(6, dim):
        jacobian = torch.autograd.functional.jacobian(to_prior, x)
        log_determinant = float(jacobian.slogdet().logabsdet)
        expected = log_prior(to_prior(x).detach()) + log_determinant
        assert flow().log_prob(x[None]).item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("prior", PRIORS)
def test_the_inverse_undoes_the_flow(prior: flows.Prior) -> None:
    flow = shaken(7, prior)
    x = points(100, 7)
    h = flow.transform()(x)
    assert_close(flow.transform().inv(h), x, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("prior", PRIORS)
def test_a_density_of_the_plane_integrates_to_one(prior: flows.Prior) -> None:
    flow = shaken(2, prior, 0.1)
    step = 0.1
    side = torch.linspace(-40, 40, 801, dtype=torch.float64)
    grid = torch.cartesian_prod(side, side)
    total = 0.0
    with torch.no_grad():
        for part in grid.split(200_000):
            total += float(flow().log_prob(part).exp().sum())
    assert total * step**2 == pytest.approx(1, abs=2e-3)


def mass_of_box(flow: Flow, low: Tensor, high: Tensor) -> float:
    """By quadrature of the flow's density at the middles of 300 by 300 cells."""
    middles = (torch.arange(300, dtype=torch.float64) + 0.5) / 300
    sides = [start + (end - start) * middles for start, end in zip(low, high, strict=True)]
    with torch.no_grad():
        density = flow().log_prob(torch.cartesian_prod(*sides)).exp()
    area = (high - low).prod()
    return float(density.mean() * area)


@pytest.mark.parametrize("prior", PRIORS)
def test_samples_have_the_flows_own_density(prior: flows.Prior) -> None:
    """The share of the samples in a box is the mass that the density has there."""
    flow = shaken(2, prior, 0.1)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        drawn = flow().sample((40_000,))
    low = drawn.quantile(0.2, 0)
    high = drawn.quantile(0.7, 0)
    is_inside = ((drawn > low) & (drawn < high)).all(1)
    share = float(is_inside.double().mean())
    assert share == pytest.approx(mass_of_box(flow, low, high), abs=0.01)


@pytest.mark.parametrize("prior", ["gaussian", pytest.param("uniform", marks=pytest.mark.nightly)])
def test_a_fit_recovers_the_entropy_of_a_correlated_gaussian(prior: flows.Prior) -> None:
    root = torch.tensor([[1.0, 0, 0, 0], [0.9, 0.4, 0, 0], [0, 0.5, 0.3, 0], [-0.6, 0, 0.2, 0.5]])
    x = points(6000, 4).float() @ root.T + 3
    fitted, stopping, test = x.split([4000, 1000, 1000])
    flow = real_nvp(fitted, prior=prior, layers=6, width=32)
    trace = fit(flow, fitted, stopping, epochs=25, patience=5)
    assert trace.held_out[trace.best] == max(trace.held_out)
    with torch.no_grad():
        cross_entropy = float(-flow().log_prob(test).mean())
    covariance = root @ root.T
    entropy = 0.5 * float(torch.logdet(2 * math.pi * math.e * covariance))
    assert cross_entropy == pytest.approx(entropy, abs=0.12)


def initial_weights(x: Tensor, seed: int) -> Tensor:
    flow = real_nvp(x, width=8, seed=seed)
    return torch.cat([weight.flatten() for weight in flow.parameters()])


def held_out_of_fit(x: Tensor, seed: int) -> tuple[float, ...]:
    """The likelihoods that two epochs reach on held-out rows, where ``seed`` orders the batches."""
    flow = real_nvp(x, width=8)
    return fit(flow, x[:40], x[40:], epochs=2, batch_size=8, seed=seed).held_out


def test_a_fit_keeps_the_best_weights_and_its_seed_decides_it() -> None:
    x = points(60, 3).float()
    fitted, stopping = x.split(30)
    flow = real_nvp(fitted)
    trace = fit(flow, fitted, stopping, epochs=60, patience=4, lr=0.01)
    assert len(trace.held_out) < 60
    assert trace.train[-1] > trace.train[trace.best]
    with torch.no_grad():
        kept = float(flow().log_prob(stopping).mean())
    assert kept == pytest.approx(trace.held_out[trace.best], abs=1e-5)

    assert torch.equal(initial_weights(x, seed=4), initial_weights(x, seed=4))
    assert not torch.equal(initial_weights(x, seed=4), initial_weights(x, seed=5))
    assert held_out_of_fit(x, seed=4) == held_out_of_fit(x, seed=4)
    assert held_out_of_fit(x, seed=4) != held_out_of_fit(x, seed=5)


def test_a_likelihood_that_is_no_number_is_named() -> None:
    flow = real_nvp(points(9, 2).float())
    not_a_number = torch.full((9, 2), math.nan)
    with pytest.raises(NonFiniteLossError):
        fit(flow, not_a_number, torch.ones(9, 2), epochs=1)


def test_a_chart_from_any_pole_keeps_the_uniform_distribution() -> None:
    """On a grid, from the north pole: the area that the chart reports for the cells is that of the sphere.

    From any pole the scale of the chart is (1 + ‖z‖²)/2 = 1/(1 − x·pole), and the chart is conformal: distances in
    the plane are those on the sphere, stretched by the scale at both points.
    """
    step = 0.3
    side = torch.linspace(-150, 150, 1001, dtype=torch.float64)
    grid = torch.cartesian_prod(side, side)
    square = grid.square().sum(1, keepdim=True)
    x = torch.cat([2 * grid, square - 1], 1) / (1 + square)
    north = torch.tensor([0.0, 0, 1], dtype=torch.float64)
    z, log_area = stereographic(x, north)
    assert_close(z[::1001], grid[::1001], rtol=1e-6, atol=1e-6)
    area = float(log_area.exp().sum()) * step**2
    assert area == pytest.approx(4 * math.pi, rel=1e-3)
    assert flows.log_sphere_area(3) == pytest.approx(math.log(4 * math.pi))

    x = F.normalize(points(20, 5), dim=1)
    pole = F.normalize(torch.tensor([1.0, -2, 0.5, 0, 1], dtype=torch.float64), dim=0)
    z, log_area = stereographic(x, pole)
    scale = 1 / (1 - x @ pole)
    assert_close((1 + z.square().sum(1)) / 2, scale)
    assert_close(log_area, -4 * scale.log())
    in_plane = (z[:10] - z[10:]).square().sum(1)
    on_sphere = (x[:10] - x[10:]).square().sum(1)
    assert_close(in_plane, on_sphere * scale[:10] * scale[10:])


@pytest.mark.parametrize("dim", [2, 3, 8])
def test_von_mises_fisher_integrates_to_one_and_is_what_is_drawn(dim: int) -> None:
    """By the angle to the mean; the mean cosine of draws is that of the density."""
    kappa = 4.0
    angle = torch.linspace(0, math.pi, 20_001, dtype=torch.float64)
    cosine = angle.cos()
    uniform = torch.sin(angle) ** (dim - 2)
    uniform /= torch.trapezoid(uniform, angle)
    density = log_von_mises_fisher(cosine, kappa, dim).exp() * uniform
    assert float(torch.trapezoid(density, angle)) == pytest.approx(1, abs=1e-6)

    mean = F.normalize(points(20_000, dim), dim=1)
    drawn = von_mises_fisher(mean, kappa, torch.Generator().manual_seed(0))
    assert_close(drawn.norm(dim=1), torch.ones(20_000, dtype=torch.float64))
    mean_cosine = float((drawn * mean).sum(1).mean())
    expected = float(torch.trapezoid(density * cosine, angle))
    assert mean_cosine == pytest.approx(expected, abs=0.01)
