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
    return laws.Independent(laws.TransformedDistribution(laws.Uniform(low, high), laws.SigmoidTransform().inv), 1)


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
    place, scale = torch.arange(dim), x.std(0).clamp(min=1e-6)
    masks = [place % 2 == 0, place % 2 == 1, place < dim // 2, place >= dim // 2]
    zeros, ones = torch.zeros_like(scale), torch.ones_like(scale)
    with fixed(seed):
        couplings = [
            GeneralCouplingTransform(dim, mask=masks[i % 4], univariate=_stretch, hidden_features=(width, width))
            for i in range(layers)
        ]
    for coupling in couplings:  # the flow begins as the identity
        for weight in coupling.hyper[-1].parameters():
            nn.init.zeros_(weight)
    standardised = UnconditionalTransform(laws.AffineTransform, -x.mean(0) / scale, 1 / scale, event_dim=1, buffer=True)
    base = UnconditionalDistribution(_normal if prior == "gaussian" else _logistic, zeros, ones, buffer=True)
    return Flow([standardised, *couplings], base).to(x)


def fit(
    flow: Flow, x: Tensor, held_out: Tensor, *,
    epochs: int = 60, patience: int = 6, batch_size: int = 256, lr: float = 2e-3, seed: int = 0,
) -> Trace:  # fmt: skip
    """Maximum likelihood by Adam on ``x`` ``[N, dim]``; keeps the weights of the epoch that is best on ``held_out``.

    Rows of one image belong on one side. Returns mean log densities in nats; raises a ``NonFiniteLossError``.
    """
    optimiser = torch.optim.Adam(flow.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimiser, mode="max", factor=0.5, patience=max(patience // 2 - 1, 0)
    )
    generator = torch.Generator().manual_seed(seed)

    def finite(value: Tensor) -> float:
        if not bool(value.isfinite()):
            raise NonFiniteLossError(f"the likelihood of the flow became {float(value.detach())}; lower lr")
        return float(value.detach())

    def train(_: int) -> float:
        total = 0.0
        for rows in torch.randperm(len(x), generator=generator).split(batch_size):
            value = flow().log_prob(x[rows]).mean()
            total += finite(value) * len(rows)
            optimiser.zero_grad()
            (-value).backward()
            nn.utils.clip_grad_norm_(flow.parameters(), 10.0)
            optimiser.step()
        return total / len(x)

    @torch.no_grad()
    def held_out_value() -> float:
        value = finite(flow().log_prob(held_out).mean())
        schedule.step(value)
        return value

    return early_stopping(flow, train, held_out_value, epochs=epochs, patience=patience)


def log_sphere_area(dim: int) -> float:
    """Log of the surface of the unit sphere of R^``dim``: 2π^(d/2) / Γ(d/2)."""
    return math.log(2) + dim / 2 * math.log(math.pi) - math.lgamma(dim / 2)


def _mirrored(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """``x`` reflected so that the unit vector ``a`` comes to lie on ``b``; each ``[N, d]`` or ``[d]``."""
    across = a - b
    size = across.square().sum(-1, keepdim=True)
    return x - 2 * (x * across).sum(-1, keepdim=True) / size.clamp(min=1e-12) * across


def stereographic(x: Tensor, pole: Tensor) -> tuple[Tensor, Tensor]:
    """Coordinates of unit vectors ``[N, d]`` seen from ``pole``, and by how much the chart shrinks the sphere.

    ``pole``: ``[d]``, goes to infinity; take one far from the data. Returns z ``[N, d − 1]`` and ``log_area`` ``[N]`` =
    ``(d − 1) log (2 / (1 + ‖z‖²))``. Of a density q over z, ``log q(z) − log_area + log_sphere_area(d)`` is the log
    density with respect to the uniform one.
    """
    x = _mirrored(x, pole, torch.eye(len(pole)).to(pole)[-1])
    z = x[:, :-1] / (1 - x[:, -1:]).clamp(min=1e-6)
    return z, z.shape[1] * (math.log(2) - torch.log1p(z.square().sum(1)))


def log_von_mises_fisher(cosine: Tensor, concentration: float, dim: int) -> Tensor:
    """Log density, against the uniform one, at ``cosine`` to the mean; concentration κ > 0, 1/σ² of fmicl Eq. 6."""
    # the density is κ cos + a constant; scipy's is with respect to the area
    highest = float(vonmises_fisher(np.eye(dim)[0], concentration).logpdf(np.eye(dim)[0]))
    return concentration * (cosine - 1) + highest + log_sphere_area(dim)


def von_mises_fisher(mean: Tensor, concentration: float, generator: torch.Generator | None = None) -> Tensor:
    """One draw around each mean, unit vectors ``[N, d]``, d ≥ 2: density ∝ exp(κ x·y), κ > 0 (fmicl Eq. 6)."""
    count, dim = mean.shape
    law = vonmises_fisher(np.eye(dim)[0], concentration)
    seed = int(torch.randint(2**63 - 1, (), generator=generator))
    drawn = torch.from_numpy(law.rvs(count, random_state=np.random.default_rng(seed))).to(mean)
    return _mirrored(drawn, torch.eye(dim).to(mean)[0], mean)
