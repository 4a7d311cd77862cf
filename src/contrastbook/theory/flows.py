"""Densities of embeddings: RealNVP, and what unit vectors need to have a density at all.

Pairs of unit vectors (fmicl Figures 1 and 7) lie on a product of spheres, which has volume 0 in the space around it: a
flow fitted there gains likelihood for ever by growing thinner. A flow over the plane of :func:`stereographic` does not.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Literal

import numpy as np
import torch
from scipy.stats import vonmises_fisher
from torch import Tensor, nn
from torch import distributions as laws
from zuko.flows import (  # type: ignore[import-untyped]
    Flow,
    GeneralCouplingTransform,
    UnconditionalDistribution,
    UnconditionalTransform,
)
from zuko.transforms import MonotonicAffineTransform  # type: ignore[import-untyped]

from contrastlab.information.critics import Trace, early_stopping
from contrastlab.support.errors import NonFiniteLossError, reject
from contrastlab.support.seeds import fixed

Prior = Literal["gaussian", "uniform"]


def _logistic(low: Tensor, high: Tensor) -> laws.Distribution:
    logistic = laws.TransformedDistribution(laws.Uniform(low, high), laws.SigmoidTransform().inv)
    return laws.Independent(logistic, 1)


def _normal(mean: Tensor, scale: Tensor) -> laws.Distribution:
    return laws.Independent(laws.Normal(mean, scale), 1)


_stretch = partial(MonotonicAffineTransform, slope=math.exp(-2))  # a coupling scales by at most exp(2)


def real_nvp(x: Tensor, *, prior: Prior = "gaussian", layers: int = 8, width: int = 64, seed: int = 0) -> Flow:
    """A RealNVP for rows such as ``x`` ``[N, dim]``, which standardise the data; not trained yet.

    Affine couplings with two hidden layers of ``width``; masks alternate between even and odd coordinates, first and
    second half. ``prior``: ``"gaussian"``: the last variable h is standard normal; ``"uniform"``: sigmoid(h) is uniform
    on the unit box. ``flow().log_prob(x)`` is the ``[N]`` log density in nats per unit of the data's volume.
    """
    if x.dim() != 2 or min(x.shape) < 2:
        raise reject("x", tuple(x.shape), "at least two rows of at least 2 coordinates, one to condition the other")
    dim = x.shape[1]
    scale = x.std(0).clamp(min=1e-6)
    with fixed(seed):
        couplings = [_coupling(mask, width) for mask in _masks(dim, layers)]
    for coupling in couplings:
        _make_identity(coupling)
    standardised = UnconditionalTransform(laws.AffineTransform, -x.mean(0) / scale, 1 / scale, event_dim=1, buffer=True)
    law = _normal if prior == "gaussian" else _logistic
    zeros = torch.zeros_like(scale)
    ones = torch.ones_like(scale)
    base = UnconditionalDistribution(law, zeros, ones, buffer=True)
    return Flow([standardised, *couplings], base).to(x)


def _masks(dim: int, layers: int) -> list[Tensor]:
    """Which coordinates condition the others, ``[dim]`` for each layer."""
    place = torch.arange(dim)
    is_first_half = place < dim // 2
    is_even = place % 2 == 0
    cycle = (is_even, ~is_even, is_first_half, ~is_first_half)
    return [cycle[layer % len(cycle)] for layer in range(layers)]


def _coupling(mask: Tensor, width: int) -> GeneralCouplingTransform:
    hidden = (width, width)
    return GeneralCouplingTransform(len(mask), mask=mask, univariate=_stretch, hidden_features=hidden)


def _make_identity(coupling: GeneralCouplingTransform) -> None:
    for weight in coupling.hyper[-1].parameters():
        nn.init.zeros_(weight)


def fit(
    flow: Flow,
    x: Tensor,
    held_out: Tensor,
    *,
    epochs: int = 60,
    patience: int = 6,
    batch_size: int = 256,
    lr: float = 2e-3,
    seed: int = 0,
) -> Trace:
    """Maximum likelihood by Adam on ``x`` ``[N, dim]``; keeps the weights of the epoch that is best on ``held_out``.

    Rows of one image belong on one side. Returns mean log densities in nats; raises a ``NonFiniteLossError``.
    """
    optimiser = torch.optim.Adam(flow.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimiser, mode="max", factor=0.5, patience=max(patience // 2 - 1, 0)
    )
    generator = torch.Generator().manual_seed(seed)

    def train(_: int) -> float:
        total = 0.0
        for rows in torch.randperm(len(x), generator=generator).split(batch_size):
            likelihood = flow().log_prob(x[rows]).mean()
            total += _finite(likelihood) * len(rows)
            optimiser.zero_grad()
            (-likelihood).backward()
            nn.utils.clip_grad_norm_(flow.parameters(), 10.0)
            optimiser.step()
        return total / len(x)

    @torch.no_grad()
    def likelihood_held_out() -> float:
        likelihood = _finite(flow().log_prob(held_out).mean())
        schedule.step(likelihood)
        return likelihood

    return early_stopping(flow, train, likelihood_held_out, epochs=epochs, patience=patience)


def _finite(likelihood: Tensor) -> float:
    value = float(likelihood.detach())
    if not math.isfinite(value):
        raise NonFiniteLossError(f"the likelihood of the flow became {value}; lower lr")
    return value


def log_sphere_area(dim: int) -> float:
    """Log of the surface of the unit sphere of R^``dim``: 2π^(d/2) / Γ(d/2)."""
    return math.log(2) + dim / 2 * math.log(math.pi) - math.lgamma(dim / 2)


def _mirrored(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """``x`` reflected so that the unit vector ``a`` comes to lie on ``b``; each ``[N, d]`` or ``[d]``."""
    across = a - b
    size = across.square().sum(-1, keepdim=True).clamp(min=1e-12)
    along = (x * across).sum(-1, keepdim=True)
    return x - 2 * along / size * across


def stereographic(x: Tensor, pole: Tensor) -> tuple[Tensor, Tensor]:
    """Coordinates of unit vectors ``[N, d]`` seen from ``pole``, and by how much the chart shrinks the sphere.

    ``pole``: ``[d]``, goes to infinity; take one far from the data. Returns z ``[N, d − 1]`` and ``log_area`` ``[N]`` =
    ``(d − 1) log (2 / (1 + ‖z‖²))``. Of a density q over z, ``log q(z) − log_area + log_sphere_area(d)`` is the log
    density with respect to the uniform one.
    """
    last_axis = torch.eye(len(pole)).to(pole)[-1]
    x = _mirrored(x, pole, last_axis)
    z = x[:, :-1] / (1 - x[:, -1:]).clamp(min=1e-6)
    log_scale = math.log(2) - torch.log1p(z.square().sum(1))
    return z, z.shape[1] * log_scale


def log_von_mises_fisher(cosine: Tensor, concentration: float, dim: int) -> Tensor:
    """Log density, against the uniform one, at ``cosine`` to the mean; concentration κ > 0, 1/σ² of fmicl Eq. 6."""
    # the density is κ cos + a constant; scipy's is with respect to the area
    mean = np.eye(dim)[0]
    highest = float(vonmises_fisher(mean, concentration).logpdf(mean))
    return concentration * (cosine - 1) + highest + log_sphere_area(dim)


def von_mises_fisher(mean: Tensor, concentration: float, generator: torch.Generator | None = None) -> Tensor:
    """One draw around each mean, unit vectors ``[N, d]``, d ≥ 2: density ∝ exp(κ x·y), κ > 0 (fmicl Eq. 6)."""
    count, dim = mean.shape
    law = vonmises_fisher(np.eye(dim)[0], concentration)
    seed = int(torch.randint(2**63 - 1, (), generator=generator))
    samples = law.rvs(count, random_state=np.random.default_rng(seed))
    around_first_axis = torch.from_numpy(samples).to(mean)
    first_axis = torch.eye(dim).to(mean)[0]
    return _mirrored(around_first_axis, first_axis, mean)
