"""Flows against the change of variables, quadrature and densities that are known."""

import math

import pytest
import torch
from torch.nn import functional as F
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


def points(count: int, dim: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("dim", [2, 5])
def test_log_prob_is_the_change_of_variables(prior: flows.Prior, dim: int) -> None:
    flow = shaken(dim, prior)
    for x in points(6, dim):

        def to_prior(x: torch.Tensor) -> torch.Tensor:
            h = flow.transform()(x[None])[0]
            return torch.sigmoid(h) if prior == "uniform" else h

        jacobian = torch.autograd.functional.jacobian(to_prior, x)
        base = 0.0 if prior == "uniform" else -0.5 * float((to_prior(x).detach() ** 2 + math.log(2 * math.pi)).sum())
        assert flow().log_prob(x[None]).item() == pytest.approx(base + float(jacobian.slogdet()[1]), abs=1e-9)


@pytest.mark.parametrize("prior", PRIORS)
def test_the_inverse_undoes_the_flow(prior: flows.Prior) -> None:
    flow, x = shaken(7, prior), points(100, 7)
    torch.testing.assert_close(flow.transform().inv(flow.transform()(x)), x, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("prior", PRIORS)
def test_a_density_of_the_plane_integrates_to_one(prior: flows.Prior) -> None:
    flow = shaken(2, prior, 0.1)
    side = torch.linspace(-40, 40, 801, dtype=torch.float64)
    grid = torch.cartesian_prod(side, side)
    with torch.no_grad():
        total = sum(float(flow().log_prob(part).exp().sum()) for part in grid.split(200_000))
    assert total * 0.1**2 == pytest.approx(1, abs=2e-3)


@pytest.mark.parametrize("prior", PRIORS)
def test_samples_have_the_flows_own_density(prior: flows.Prior) -> None:
    # the mass of a box by counting samples and by quadrature of the density
    flow = shaken(2, prior, 0.1)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        drawn = flow().sample((40_000,))
    low, high = drawn.quantile(0.2, 0), drawn.quantile(0.7, 0)
    inside = ((drawn > low) & (drawn < high)).all(1).double().mean()
    sides = [a + (b - a) * (torch.arange(300, dtype=torch.float64) + 0.5) / 300 for a, b in zip(low, high, strict=True)]
    with torch.no_grad():
        mass = flow().log_prob(torch.cartesian_prod(*sides)).exp().mean() * (high - low).prod()
    assert float(inside) == pytest.approx(float(mass), abs=0.01)


@pytest.mark.parametrize("prior", [PRIORS[0], *(pytest.param(each, marks=pytest.mark.nightly) for each in PRIORS[1:])])
def test_a_fit_recovers_the_entropy_of_a_correlated_gaussian(prior: flows.Prior) -> None:
    root = torch.tensor([[1.0, 0, 0, 0], [0.9, 0.4, 0, 0], [0, 0.5, 0.3, 0], [-0.6, 0, 0.2, 0.5]])
    x = (points(6000, 4).float() @ root.T) + 3
    entropy = 0.5 * float(torch.logdet(2 * math.pi * math.e * root @ root.T))
    flow = real_nvp(x[:4000], prior=prior, layers=6, width=32)
    done = fit(flow, x[:4000], x[4000:5000], epochs=25, patience=5)
    with torch.no_grad():
        assert float(-flow().log_prob(x[5000:]).mean()) == pytest.approx(entropy, abs=0.12)
    assert max(done.held_out) == done.held_out[done.best]


def test_a_fit_keeps_the_best_weights_and_its_seed_decides_it() -> None:
    x = points(60, 3).float()
    flow = real_nvp(x[:30])
    done = fit(flow, x[:30], x[30:], epochs=60, patience=4, lr=0.01)
    assert len(done.held_out) < 60
    assert done.train[-1] > done.train[done.best]
    with torch.no_grad():
        assert float(flow().log_prob(x[30:]).mean()) == pytest.approx(done.held_out[done.best], abs=1e-5)

    def run(seed: int) -> tuple[torch.Tensor, tuple[float, ...]]:
        x = points(60, 3).float()
        start = torch.cat([weight.flatten() for weight in real_nvp(x, width=8, seed=seed).parameters()])
        return start, fit(real_nvp(x, width=8), x[:40], x[40:], epochs=2, batch_size=8, seed=seed).held_out

    (one, fitted), (again, same), (other, another) = map(run, (4, 4, 5))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert fitted == same != another


def test_a_likelihood_that_is_no_number_is_named() -> None:
    with pytest.raises(NonFiniteLossError):
        fit(real_nvp(points(9, 2).float()), torch.full((9, 2), math.nan), torch.ones(9, 2), epochs=1)


def test_a_chart_from_any_pole_keeps_the_uniform_distribution() -> None:
    # the uniform density over the sphere, 1 with respect to itself, becomes exp(log_area)/area over the plane
    side = torch.linspace(-150, 150, 1001, dtype=torch.float64)
    z = torch.cartesian_prod(side, side)
    x = torch.cat([2 * z, z.square().sum(1, keepdim=True) - 1], 1) / (1 + z.square().sum(1, keepdim=True))
    back, log_area = stereographic(x, torch.tensor([0.0, 0, 1], dtype=torch.float64))
    torch.testing.assert_close(back[::1001], z[::1001], rtol=1e-6, atol=1e-6)
    assert float(log_area.exp().sum() * 0.3**2) == pytest.approx(math.exp(flows.log_sphere_area(3)), rel=1e-3)
    x = F.normalize(points(20, 5), dim=1)
    pole = F.normalize(torch.tensor([1.0, -2, 0.5, 0, 1], dtype=torch.float64), dim=0)
    z, log_area = stereographic(x, pole)
    # (1 + ‖z‖²)/2 = 1/(1 − x·pole)
    torch.testing.assert_close((1 + z.square().sum(1)) / 2, 1 / (1 - x @ pole))
    torch.testing.assert_close(log_area, 4 * torch.log(1 - x @ pole))
    # conformal: distances in the plane are those on the sphere, stretched
    apart = (z[:10] - z[10:]).square().sum(1)
    torch.testing.assert_close(apart, (x[:10] - x[10:]).square().sum(1) / ((1 - x[:10] @ pole) * (1 - x[10:] @ pole)))


@pytest.mark.parametrize("dim", [2, 3, 8])
def test_von_mises_fisher_integrates_to_one_and_is_what_is_drawn(dim: int) -> None:
    kappa = 4.0
    angle = torch.linspace(0, math.pi, 20_001, dtype=torch.float64)
    uniform = torch.sin(angle) ** (dim - 2)
    uniform /= torch.trapezoid(uniform, angle)
    density = log_von_mises_fisher(angle.cos(), kappa, dim).exp() * uniform
    assert float(torch.trapezoid(density, angle)) == pytest.approx(1, abs=1e-6)
    mean = F.normalize(points(20_000, dim), dim=1)
    drawn = von_mises_fisher(mean, kappa, torch.Generator().manual_seed(0))
    torch.testing.assert_close(drawn.norm(dim=1), torch.ones(20_000, dtype=torch.float64))
    expected = float(torch.trapezoid(density * angle.cos(), angle))
    assert float((drawn * mean).sum(1).mean()) == pytest.approx(expected, abs=0.01)
