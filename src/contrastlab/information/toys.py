"""Made data with a known answer: correlated Gaussians and two spirals.

Sources: vince appendix E (Gaussians with mutual information ``−½ log(1 − ρ²)``) and appendix G (spirals).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from contrastlab.support.errors import check, check_choice, check_integer, check_positive, is_number, reject

Handedness = Literal["same", "opposite"]


@dataclass(frozen=True, eq=False)
class JointGaussian:
    """Zero-mean jointly normal X and Y, whose mutual information is known in closed form.

    ``covariance`` is that of (X, Y), ``[p + q, p + q]``; ``split`` is p, the dimension of X.
    """

    covariance: NDArray[np.float64]
    split: int

    def __post_init__(self) -> None:
        matrix = np.asarray(self.covariance, dtype=np.float64)
        square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1]
        symmetric = square and np.allclose(matrix, matrix.T, rtol=1e-12, atol=1e-12 * np.abs(matrix).max())
        if not symmetric or np.linalg.eigvalsh(matrix)[0] <= 0:
            raise reject("covariance", matrix.tolist(), "a symmetric, positive definite matrix")
        check(0 < self.split < len(matrix), "split", self.split, f"an integer from 1 to {len(matrix) - 1}")
        object.__setattr__(self, "covariance", matrix)

    @classmethod
    def correlated(cls, rho: float, dimension: int = 1, variance: float = 1.0) -> JointGaussian:
        """Independent pairs (Xᵢ, Yᵢ) with correlation ρ; they share ``−(dimension / 2) log(1 − ρ²)`` nats."""
        check(is_number(rho) and -1 < rho < 1, "rho", rho, "a correlation between -1 and 1")
        check_integer("dimension", dimension)
        check_positive(variance=variance)
        one = np.eye(dimension)
        return cls(variance * np.block([[one, rho * one], [rho * one, one]]), dimension)

    @classmethod
    def with_information(cls, nats: float, dimension: int = 1) -> JointGaussian:
        """:meth:`correlated` with ρ ≥ 0 chosen so that the mutual information is ``nats``."""
        check_integer("dimension", dimension)
        # of 1 − ρ² = exp(−2 nats / dimension) a float64 holds no less
        most = -dimension * math.log(np.finfo(np.float64).eps) / 2
        accepted = f"a number of nats from 0 to below {most:.4g} with dimension={dimension}"
        check(is_number(nats) and 0 <= nats < most, "nats", nats, accepted)
        return cls.correlated(math.sqrt(-math.expm1(-2 * nats / dimension)), dimension)

    @property
    def mutual_information(self) -> float:
        """I(X; Y) in nats, ``½ (log det Σ_X + log det Σ_Y − log det Σ)``."""
        p = self.split
        parts = (self.covariance[:p, :p], self.covariance[p:, p:], self.covariance)
        x, y, both = (float(np.linalg.slogdet(part)[1]) for part in parts)
        return max(0.0, 0.5 * (x + y - both))

    def sample(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """``count`` independent pairs: ``[count, p]`` and ``[count, q]``, float32."""
        check_integer("count", count)
        noise = torch.randn(count, len(self.covariance), generator=generator, dtype=torch.float64)
        both = noise @ torch.from_numpy(np.linalg.cholesky(self.covariance)).T
        return both[:, : self.split].float(), both[:, self.split :].float()

    def log_ratio(self, x: Tensor, y: Tensor) -> Tensor:
        """The optimal critic ``log p(x, y) / p(x) p(y)``, ``[B, p]`` and ``[M, q]`` → ``[B, M]`` nats, float64."""
        p = self.split
        for name, values, columns in (("x", x, p), ("y", y, len(self.covariance) - p)):
            fits = values.dim() == 2 and values.shape[1] == columns
            check(fits, name, tuple(values.shape), f"a tensor of shape [N, {columns}]")
        inverse = np.linalg.inv(self.covariance)
        own_x = inverse[:p, :p] - np.linalg.inv(self.covariance[:p, :p])
        own_y = inverse[p:, p:] - np.linalg.inv(self.covariance[p:, p:])
        x, y = x.double(), y.double()
        a, b, c = (torch.from_numpy(part.copy()) for part in (own_x, own_y, inverse[:p, p:]))
        quadratic = ((x @ a) * x).sum(1)[:, None] + ((y @ b) * y).sum(1)[None, :] + 2 * (x @ c) @ y.T
        return self.mutual_information - 0.5 * quadratic


def spirals(
    count: int, generator: torch.Generator, *, handedness: Handedness = "same", turns: float = 2.0, radius: float = 2.0
) -> tuple[Tensor, Tensor]:
    """``[count, 2]`` points on two Archimedean spirals within ``[−radius, radius]²``, and ``[count]`` labels 0 or 1.

    They are evenly spread over the angle. Handedness ``"same"`` turns the second spiral by 180°, so that the two never
    cross; ``"opposite"`` mirrors it (vince appendix G: one clockwise, the other counter-clockwise), and they cross.
    """
    check_choice("handedness", handedness, ("same", "opposite"))
    check_integer("count", count)
    labels = torch.arange(count) % 2
    along = torch.rand(count, generator=generator)
    angle = 2 * math.pi * turns * along
    points = (radius * along)[:, None] * torch.stack([angle.cos(), angle.sin()], 1)
    points[labels == 1] *= torch.tensor([-1.0, -1.0 if handedness == "same" else 1.0])
    return points, labels


def shifted(points: Tensor, eta: float, generator: torch.Generator) -> Tensor:
    """``points`` with a draw from U(0, η) added to each coordinate (vince, appendix G)."""
    return points + eta * torch.rand(points.shape, generator=generator, dtype=points.dtype)
