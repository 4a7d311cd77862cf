"""Generated data with a known answer: correlated Gaussians and two spirals.

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
Matrix = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class JointGaussian:
    """Zero-mean jointly normal X and Y, whose mutual information is known in closed form.

    ``covariance`` is that of (X, Y), ``[p + q, p + q]``; ``split`` is p, the dimension of X.
    """

    covariance: Matrix
    split: int

    def __post_init__(self) -> None:
        matrix = np.asarray(self.covariance, dtype=np.float64)
        if not _is_covariance(matrix):
            raise reject("covariance", matrix.tolist(), "a symmetric, positive definite matrix")
        check(0 < self.split < len(matrix), "split", self.split, f"an integer from 1 to {len(matrix) - 1}")
        object.__setattr__(self, "covariance", matrix)

    @classmethod
    def correlated(cls, rho: float, dimension: int = 1, variance: float = 1.0) -> JointGaussian:
        """Independent pairs (Xᵢ, Yᵢ) with correlation ρ; they share ``−(dimension / 2) log(1 − ρ²)`` nats."""
        check(is_number(rho) and -1 < rho < 1, "rho", rho, "a correlation between -1 and 1")
        check_integer("dimension", dimension)
        check_positive(variance=variance)
        identity = np.eye(dimension)
        correlations = np.block(
            [
                [identity, rho * identity],
                [rho * identity, identity],
            ]
        )
        return cls(variance * correlations, dimension)

    @classmethod
    def with_information(cls, nats: float, dimension: int = 1) -> JointGaussian:
        """:meth:`correlated` with ρ ≥ 0 chosen so that the mutual information is ``nats``."""
        check_integer("dimension", dimension)
        # of 1 − ρ² = exp(−2 nats / dimension) a float64 holds no less
        most = -dimension * math.log(np.finfo(np.float64).eps) / 2
        accepted = f"a number of nats from 0 to below {most:.4g} with dimension={dimension}"
        check(is_number(nats) and 0 <= nats < most, "nats", nats, accepted)
        rho_squared = -math.expm1(-2 * nats / dimension)
        return cls.correlated(math.sqrt(rho_squared), dimension)

    @property
    def mutual_information(self) -> float:
        """I(X; Y) in nats, ``½ (log det Σ_X + log det Σ_Y − log det Σ)``."""
        x = _log_determinant(self._of_x)
        y = _log_determinant(self._of_y)
        both = _log_determinant(self.covariance)
        return max(0.0, 0.5 * (x + y - both))

    @property
    def _of_x(self) -> Matrix:
        return self.covariance[: self.split, : self.split]

    @property
    def _of_y(self) -> Matrix:
        return self.covariance[self.split :, self.split :]

    def sample(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """``count`` independent pairs: ``[count, p]`` and ``[count, q]``, float32."""
        check_integer("count", count)
        noise = torch.randn(count, len(self.covariance), generator=generator, dtype=torch.float64)
        root = torch.from_numpy(np.linalg.cholesky(self.covariance))
        both = noise @ root.T
        x = both[:, : self.split]
        y = both[:, self.split :]
        return x.float(), y.float()

    def log_ratio(self, x: Tensor, y: Tensor) -> Tensor:
        """The optimal critic ``log p(x, y) / p(x) p(y)``, ``[B, p]`` and ``[M, q]`` → ``[B, M]`` nats, float64."""
        p = self.split
        _check_columns("x", x, p)
        _check_columns("y", y, len(self.covariance) - p)
        x = x.double()
        y = y.double()
        # −2 log p(x, y) is a quadratic form in (x, y), −2 log p(x) one in x, −2 log p(y) one in y
        inverse = np.linalg.inv(self.covariance)
        of_x = torch.from_numpy(inverse[:p, :p] - np.linalg.inv(self._of_x))
        of_y = torch.from_numpy(inverse[p:, p:] - np.linalg.inv(self._of_y))
        of_both = torch.from_numpy(inverse[:p, p:].copy())
        x_terms = ((x @ of_x) * x).sum(1)
        y_terms = ((y @ of_y) * y).sum(1)
        cross_terms = 2 * (x @ of_both) @ y.T
        quadratic = x_terms[:, None] + y_terms[None, :] + cross_terms
        return self.mutual_information - 0.5 * quadratic


def _is_covariance(matrix: Matrix) -> bool:
    """Whether a matrix is symmetric and positive definite."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        return False
    tolerance = 1e-12
    is_symmetric = np.allclose(matrix, matrix.T, rtol=tolerance, atol=tolerance * np.abs(matrix).max())
    return is_symmetric and bool(np.linalg.eigvalsh(matrix)[0] > 0)


def _log_determinant(matrix: Matrix) -> float:
    _, logarithm = np.linalg.slogdet(matrix)
    return float(logarithm)


def _check_columns(name: str, values: Tensor, columns: int) -> None:
    fits = values.dim() == 2 and values.shape[1] == columns
    check(fits, name, tuple(values.shape), f"a tensor of shape [N, {columns}]")


def spirals(
    count: int,
    generator: torch.Generator,
    *,
    handedness: Handedness = "same",
    turns: float = 2.0,
    radius: float = 2.0,
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
    directions = torch.stack([angle.cos(), angle.sin()], 1)
    points = (radius * along)[:, None] * directions
    signs = torch.tensor([-1.0, 1.0])
    if handedness == "same":
        signs = torch.tensor([-1.0, -1.0])
    points[labels == 1] *= signs
    return points, labels


def shifted(points: Tensor, eta: float, generator: torch.Generator) -> Tensor:
    """``points`` with a draw from U(0, η) added to each coordinate (vince, appendix G)."""
    draws = torch.rand(points.shape, generator=generator, dtype=points.dtype)
    return points + eta * draws
