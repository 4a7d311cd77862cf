"""Densities of embeddings: RealNVP, and what unit vectors need to have a density at all.

fmicl Figures 1 and 7 fit a flow to pairs of unit vectors. Those lie on a product of spheres, which has volume 0 in
the space around it: a density over that space does not exist, and a flow fitted there gains likelihood for ever by
growing thinner. :func:`stereographic` turns a sphere into a plane and says by how much it stretches, so that a flow
over the plane is a density over the sphere.

Sources: Dinh et al. 2017 (RealNVP), fmicl Assumption 3 and appendix D.3.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from scipy.special import ive
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab.errors import NonFiniteLossError, reject
from contrastlab.theory.critics import mlp

__all__ = [
    "Fitted",
    "Prior",
    "RealNVP",
    "fit",
    "log_sphere_area",
    "log_von_mises_fisher",
    "stereographic",
    "von_mises_fisher",
]

Prior = Literal["gaussian", "uniform"]

STRETCH = 2.0
"""Largest |log scale| of a coupling: keeps exp finite, and eight couplings reach a factor of exp(16)."""


class RealNVP(nn.Module):
    """Affine couplings between data and a simple prior.

    Standardised data go through ``layers`` couplings. Each leaves the masked coordinates as they are and shifts and
    scales the others by a network of them. Masks go round four: even and odd coordinates, first and second half, so
    that the two vectors of a pair condition each other.

    Args:
        dim: coordinates, at least 2.
        prior: of the last variable h. ``"gaussian"``: standard normal. ``"uniform"``: sigmoid(h) is uniform on the
            unit box, which is h standard logistic; the flow is then a map from data into the box.
        layers: couplings.
        width: units of the two hidden layers of a coupling.
        seed: of the initial weights.

    Raises:
        ArgumentError: an unknown prior, fewer than 2 coordinates or no coupling.
    """

    mean: Tensor
    scale: Tensor
    masks: Tensor

    def __init__(self, dim: int, *, prior: Prior = "gaussian", layers: int = 8, width: int = 64, seed: int = 0) -> None:
        super().__init__()
        if prior not in get_args(Prior):
            raise reject("prior", prior, "'gaussian' or 'uniform'")
        if dim < 2:
            raise reject("dim", dim, "at least 2 coordinates, one to condition the other")
        if layers < 1:
            raise reject("layers", layers, "at least one coupling")
        self.dim, self.prior = dim, prior
        place = torch.arange(dim)
        kinds = [place % 2 == 0, place % 2 == 1, place < dim // 2, place >= dim // 2]
        self.register_buffer("masks", torch.stack([kinds[i % 4] for i in range(layers)]).float())
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("scale", torch.ones(dim))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.networks = nn.ModuleList(_network(dim, width) for _ in range(layers))

    def standardise(self, x: Tensor) -> None:
        """Take mean and standard deviation of ``[N, dim]`` as those of the data."""
        self.mean.copy_(x.mean(0))
        self.scale.copy_(x.std(0).clamp(min=1e-6))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """``[N, dim]`` last variable h of the data, and ``[N]`` log |det ∂h/∂x|."""
        h = (x - self.mean) / self.scale
        log_det = -self.scale.log().sum().expand(len(x))
        for mask, network in zip(self.masks, self.networks, strict=True):
            stretch, shift = _coupling(network, h, mask)
            h = h * stretch.exp() + shift
            log_det = log_det + stretch.sum(1)
        return h, log_det

    def inverse(self, h: Tensor) -> Tensor:
        """``[N, dim]`` data of the last variable."""
        for mask, network in zip(reversed(self.masks), reversed(self.networks), strict=True):
            stretch, shift = _coupling(network, h, mask)
            h = (h - shift) * (-stretch).exp()
        return h * self.scale + self.mean

    def log_prob(self, x: Tensor) -> Tensor:
        """``[N]`` log density of ``[N, dim]`` data, nats per unit of the data's volume."""
        h: Tensor
        log_det: Tensor
        h, log_det = self(x)
        if self.prior == "gaussian":
            return log_det - 0.5 * (h.square() + math.log(2 * math.pi)).sum(1)
        return log_det + (F.logsigmoid(h) + F.logsigmoid(-h)).sum(1)

    @torch.no_grad()
    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """``[count, dim]`` draws."""
        like = self.mean
        if self.prior == "gaussian":
            return self.inverse(torch.randn(count, self.dim, generator=generator, dtype=like.dtype, device=like.device))
        unit = torch.rand(count, self.dim, generator=generator, dtype=like.dtype, device=like.device)
        return self.inverse(torch.logit(unit, eps=1e-6))


def _network(dim: int, width: int) -> nn.Sequential:
    network = mlp([dim, width, width, 2 * dim])
    last = network[-1]
    assert isinstance(last, nn.Linear)
    nn.init.zeros_(last.weight)  # the flow begins as the identity
    nn.init.zeros_(last.bias)
    return network


def _coupling(network: nn.Module, h: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    stretch, shift = network(h * mask).chunk(2, 1)
    return STRETCH * torch.tanh(stretch / STRETCH) * (1 - mask), shift * (1 - mask)


@dataclass(frozen=True)
class Fitted:
    """How a fit went.

    Args:
        train: mean negative log density of the training rows in each epoch, nats.
        held_out: of the held-out rows after each epoch, nats.
        best: epoch whose weights were kept, from 0.
    """

    train: list[float]
    held_out: list[float]
    best: int


def fit(
    flow: RealNVP, x: Tensor, held_out: Tensor, *,
    epochs: int = 60, patience: int = 6, batch_size: int = 256, lr: float = 2e-3, seed: int = 0,
) -> Fitted:  # fmt: skip
    """Maximum likelihood by Adam; the weights of the epoch that is best on held-out rows are kept.

    Args:
        flow: standardised to ``x`` and trained in place.
        x: ``[N, dim]`` training rows.
        held_out: ``[M, dim]`` rows that decide when to stop. Rows of one image belong on one side.
        epochs: at most.
        patience: epochs without a better held-out value before stopping; the learning rate is halved half-way.
        batch_size: rows of a step.
        lr: learning rate.
        seed: of the order of the rows.

    Raises:
        ArgumentError: rows of another shape, or none.
        NonFiniteLossError: the likelihood is not finite.
    """
    for name, rows in (("x", x), ("held_out", held_out)):
        if rows.dim() != 2 or rows.shape[1] != flow.dim or len(rows) < 2:
            raise reject(name, tuple(rows.shape), f"at least two rows of {flow.dim} coordinates")
    flow.standardise(x)
    optimiser = torch.optim.Adam(flow.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimiser, factor=0.5, patience=max(patience // 2 - 1, 0))
    generator = torch.Generator().manual_seed(seed)
    train: list[float] = []
    found: list[float] = []
    best, kept = 0, copy.deepcopy(flow.state_dict())
    for epoch in range(epochs):
        total = torch.zeros((), dtype=x.dtype, device=x.device)
        for rows in torch.randperm(len(x), generator=generator).split(batch_size):
            loss = -flow.log_prob(x[rows]).mean()
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(flow.parameters(), 10.0)
            optimiser.step()
            total += loss.detach() * len(rows)
        with torch.no_grad():
            value = float(-flow.log_prob(held_out).mean())
        if not (math.isfinite(value) and math.isfinite(float(total))):
            raise NonFiniteLossError(f"the likelihood of the flow is not finite in epoch {epoch}")
        train.append(float(total) / len(x))
        found.append(value)
        schedule.step(value)
        if value <= min(found):
            best, kept = epoch, copy.deepcopy(flow.state_dict())
        elif epoch - best >= patience:
            break
    flow.load_state_dict(kept)
    return Fitted(train, found, best)


def log_sphere_area(dim: int) -> float:
    """Log of the surface of the unit sphere of R^``dim``: 2π^(d/2) / Γ(d/2)."""
    return math.log(2) + dim / 2 * math.log(math.pi) - math.lgamma(dim / 2)


def stereographic(x: Tensor, pole: Tensor) -> tuple[Tensor, Tensor]:
    """Coordinates of unit vectors seen from ``pole``, and by how much the chart shrinks the sphere.

    With q the density over the coordinates, the density with respect to the uniform distribution over the sphere is
    ``log q(z) − log_area + log_sphere_area(d)``.

    Args:
        x: ``[N, d]`` unit vectors.
        pole: ``[d]`` unit vector that goes to infinity; take one far from the data.

    Returns:
        ``[N, d − 1]`` coordinates z, and ``[N]`` log of the surface per unit of the coordinates' volume,
        ``(d − 1) log (2 / (1 + ‖z‖²))``.
    """
    last = torch.zeros_like(pole)
    last[-1] = 1
    mirror = pole - last  # the reflection that takes the pole to the last axis
    size = mirror @ mirror
    if size > 1e-12:
        x = x - (2 / size) * (x @ mirror)[:, None] * mirror
    z = x[:, :-1] / (1 - x[:, -1:]).clamp(min=1e-6)
    return z, z.shape[1] * (math.log(2) - torch.log1p(z.square().sum(1)))


def log_von_mises_fisher(cosine: Tensor, concentration: float, dim: int) -> Tensor:
    """Log density of von Mises–Fisher at ``cosine`` to its mean, with respect to the uniform distribution.

    ``κ cos − log E exp(κ cos)``, with ``E = Γ(d/2) (2/κ)^(d/2 − 1) I_{d/2 − 1}(κ)``.

    Args:
        cosine: any shape.
        concentration: κ > 0, 1/σ² of fmicl Eq. 6.
        dim: d of the sphere in R^d.
    """
    if not (math.isfinite(concentration) and concentration > 0):
        raise reject("concentration", concentration, "a positive number")
    order = dim / 2 - 1
    log_bessel = math.log(float(ive(order, concentration))) + concentration
    return concentration * cosine - (math.lgamma(dim / 2) + order * math.log(2 / concentration) + log_bessel)


def von_mises_fisher(mean: Tensor, concentration: float, generator: torch.Generator | None = None) -> Tensor:
    """One draw around each mean: density ∝ exp(κ x·y), so fmicl Eq. 6 where the means are uniform.

    Args:
        mean: ``[N, d]`` unit vectors, d ≥ 2.
        concentration: κ > 0.
        generator: of the draws.

    Returns:
        ``[N, d]`` unit vectors. The angle is drawn by inverting its distribution on a fine grid.
    """
    count, dim = mean.shape
    angle = np.linspace(0, math.pi, 20_001)
    density = np.exp(concentration * (np.cos(angle) - 1)) * np.sin(angle) ** (dim - 2)
    mass = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    unit = torch.rand(count, generator=generator, dtype=torch.float64).numpy()
    theta = torch.from_numpy(np.interp(unit, mass / mass[-1], angle)).to(mean)[:, None]
    side = torch.randn(count, dim, generator=generator, dtype=torch.float64).to(mean)
    side = F.normalize(side - (side * mean).sum(1, keepdim=True) * mean, dim=1)
    return F.normalize(theta.cos() * mean + theta.sin() * side, dim=1)
