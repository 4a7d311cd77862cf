"""Divergences as functions on tensors: names, domains, finite values and gradients at the ends of floating point."""

import math

import pytest
import torch
from scipy.special import lambertw
from torch import Tensor

from contrastlab.scores import divergences
from contrastlab.support.errors import ArgumentError

DTYPES = [torch.float32, torch.float64]
EVERY = [*map(divergences.get, divergences.names()), divergences.tsallis(1.5), divergences.tsallis(2)]
every = pytest.mark.parametrize("divergence", EVERY, ids=lambda d: d.name)
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def vector(*values: float, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(values, dtype=dtype)


def slope(function, points: Tensor) -> Tensor:
    points = points.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(function(points).sum(), points)
    return gradient


def test_names_lead_to_divergences_and_only_tsallis_has_an_order():
    assert len(divergences.names()) == len(set(divergences.names())) == 10
    for name in divergences.names():
        assert divergences.get(name).name == name
        assert repr(divergences.get(name)) == f"divergences.get({name!r})"
        assert divergences.get(name)._repr_markdown_().startswith(f"**{divergences.get(name).title}**: $f(u)=")
    assert divergences.get("kl") is divergences.KL
    assert divergences.get("tsallis") is divergences.TSALLIS
    assert divergences.get("tsallis", alpha=2).name == "tsallis(2)"
    assert divergences.get("tsallis", alpha=3).name == "tsallis"
    assert divergences.get("kl", alpha=None) is divergences.KL
    with pytest.raises(TypeError, match="positional"):
        divergences.get("tsallis", 2)


def test_which_divergences_spread_and_their_domains_in_words():
    for most, name in ((1e6, "kl"), (2, "vincze_le_cam"), (1, "vincze_le_cam_printed")):
        assert divergences.get(name).spreads(most)
    for name, most in (("vincze_le_cam", 2), ("vincze_le_cam_printed", 1), ("reverse_kl", 0), ("neyman", 0)):
        assert not divergences.get(name).spreads(most + 1e-6)
    assert divergences.KL.domain == "every real number"
    assert divergences.JS.domain == "numbers below 0.693147"
    assert divergences.NEYMAN.domain == "numbers up to 1"


@every
def test_the_conjugate_is_infinite_exactly_outside_the_domain_and_the_slope_of_f_at_zero_its_limit(divergence):
    edge = divergence.highest if math.isfinite(divergence.highest) else 5.0
    points = vector(-40.0, -3.0, -1.0, edge - 1e-3, edge, edge + 1e-3, edge + 2)
    assert divergence.contains(points).tolist() == divergence.conjugate(points).isfinite().tolist()
    assert not divergence.contains(vector(math.nan)).any()
    assert not divergence.conjugate(points).isnan().any()
    limit = float(divergence.derivative(vector(-800.0)))
    gradient = float(slope(divergence.f, vector(0.0)))
    finite = {"pearson", "tsallis", "tsallis(1.5)", "tsallis(2)", "vincze_le_cam", "vincze_le_cam_printed"}
    if divergence.name in finite:
        assert gradient == pytest.approx(limit, abs=1e-12)
        below = vector(limit - 3, limit)  # the supremum over u ≥ 0 lies at u = 0
        torch.testing.assert_close(divergence.conjugate(below), -divergence.f(vector(0.0, 0.0)), rtol=0, atol=1e-12)
    else:
        assert gradient == -math.inf


@every
@dtypes
def test_nothing_is_nan_at_the_ends(divergence, dtype):
    ends = vector(-50.0, -1e-7, 0.0, 1e-7, 50.0, dtype=dtype)
    for function in (divergence.derivative, divergence.composition):
        values = function(ends)
        assert values.dtype == dtype
        assert not values.isnan().any()
        gradients = slope(function, ends)
        assert not gradients.isnan().any()
        assert (gradients >= 0).all()


# log u = -50 and 50: f′ and f*∘f′, None where it is beyond float32.
ENDS = {
    "kl": ((-49, 51), (math.exp(-50), math.exp(50))),
    "js": ((math.log(2) - 50, math.log(2)), (-math.log(2), 50 - math.log(2))),
    "pearson": ((-2, 2 * math.exp(50)), (-1, None)),
    "hellinger": ((1 - math.exp(25), 1 - math.exp(-25)), (math.exp(-25) - 1, math.exp(25) - 1)),
    "tsallis": ((0, None), (0.5, None)),
    "vincze_le_cam": ((-3, 1), (-1, 3)),
    "vincze_le_cam_printed": ((-3, 1), (-1, 3)),
    "reverse_kl": ((-math.exp(50), 0), (-51, 49)),
    "neyman": ((None, 1), (-2 * math.exp(50), 2)),
    "jeffrey": ((-50 - math.exp(50), 51), (-51, 50 + math.exp(50))),
}


@pytest.mark.parametrize("name", divergences.names())
@dtypes
def test_the_ends_have_their_limits(name, dtype):
    divergence = divergences.get(name)
    for function, limits in zip((divergence.derivative, divergence.composition), ENDS[name], strict=True):
        for value, limit in zip(function(vector(-50.0, 50.0, dtype=dtype)).tolist(), limits, strict=True):
            if limit is None:
                assert value == pytest.approx(math.copysign(math.inf, value)) or dtype == torch.float64
            else:
                assert value == pytest.approx(limit, rel=2e-6 if dtype == torch.float32 else 1e-12, abs=1e-12)


@every
def test_gradients_are_those_of_finite_differences(divergence):
    v = vector(-3.1, -1.2, -0.3, 0.4, 1.7, 2.6)
    inside = min(divergence.highest, 3.0) - vector(0.1, 0.31, 0.77, 1.3, 2.4, 3.3, 5.7)  # the domain, off its kinks
    functions = [(divergence.derivative, v), (divergence.composition, v), (divergence.f, v.exp())]
    for function, points in [*functions, (divergence.conjugate, inside)]:
        step = 1e-5
        difference = (function(points + step) - function(points - step)) / (2 * step)
        torch.testing.assert_close(slope(function, points), difference, rtol=1e-6, atol=1e-7)
        _, forward = torch.func.jvp(function, (points,), (torch.ones_like(points),))
        torch.testing.assert_close(forward, difference, rtol=1e-6, atol=1e-7)


def test_the_second_derivative_of_the_jeffrey_conjugate_is_that_of_finite_differences():
    t = vector(-2.0, -0.1, 0.5, 1.0, 3.0)
    gradient = torch.func.grad(lambda points: divergences.JEFFREY.conjugate(points).sum())
    _, second = torch.func.jvp(gradient, (t,), (torch.ones_like(t),))
    step = 1e-5
    torch.testing.assert_close(second, (gradient(t + step) - gradient(t - step)) / (2 * step), rtol=1e-6, atol=1e-7)


@every
@dtypes
def test_gradients_over_the_edge_are_not_nan(divergence, dtype):
    edges = [-3.0, -2.0, 0.0, math.log(2), 1.0]
    points = [e + d for e in edges for d in (-1e-3, -1e-6, 0.0, 1e-6, 1e-3)]
    points += [-1e4, -300.0, 60.0, 110.0, 800.0, 1e4]
    for point in points:  # one by one: no neighbour hides a NaN
        t = vector(point, dtype=dtype)
        assert not slope(divergence.conjugate, t).isnan().any(), point
        assert not divergence.conjugate(t).isnan().any(), point
        assert (slope(divergence.conjugate, t)[~divergence.contains(t)] == 0).all()


@dtypes
def test_the_jeffrey_conjugate_overflows_to_infinity_and_its_gradient_is_one_over_w(dtype):
    t = vector(-1e4, -30.0, -2.0, -0.1, 0.0, 0.5, 1.0, 3.0, 20.0, 80.0, dtype=dtype)
    w = torch.exp(1 - t.double()).clamp(max=1e300)
    w = torch.from_numpy(lambertw(w.numpy()).real)
    keep = t > -500  # below, e^(1 − t) itself overflows; W ≈ 1 − t − log W
    rtol = 1e-12 if dtype == torch.float64 else 2e-6
    gradient = slope(divergences.JEFFREY.conjugate, t).double()
    torch.testing.assert_close(gradient[keep], 1 / w[keep], rtol=max(rtol, 1e-12), atol=0)
    assert float(gradient[0]) == pytest.approx(1 / (10001 - math.log(9992)), rel=1e-5)
    value = divergences.JEFFREY.conjugate(t).double()
    torch.testing.assert_close(value[keep], (w + 1 / w + t.double() - 2)[keep], rtol=rtol * 10, atol=rtol * 10)
    t = vector(800.0, 5000.0, dtype=dtype)
    assert divergences.JEFFREY.conjugate(t).tolist() == [math.inf, math.inf]
    assert slope(divergences.JEFFREY.conjugate, t).tolist() == [math.inf, math.inf]


def test_the_printed_vincze_le_cam_differs_in_its_composition_only():
    printed, right = divergences.VINCZE_LE_CAM_PRINTED, divergences.VINCZE_LE_CAM
    v = torch.linspace(-2, 2, 9, dtype=torch.float64)
    assert torch.equal(printed.f(v.exp()), right.f(v.exp()))
    assert torch.equal(printed.derivative(v), right.derivative(v))
    assert torch.equal(printed.conjugate(v), right.conjugate(v))
    assert float((printed.composition(v) - right.composition(v)).abs().max()) == pytest.approx(1)


def test_tsallis_has_an_order_above_one_and_prints_it() -> None:
    for order in (1, 0.5, 0, -2.0, math.nan, "3"):
        with pytest.raises(ArgumentError, match="expected a number greater than 1"):
            divergences.tsallis(order)
    assert divergences.tsallis(4.0).latex == r"\frac{u^{4}-1}{3}"
