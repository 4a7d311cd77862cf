"""fmicl Figures 1 and 7: are positive pairs of unit features a Gaussian kernel?

By Assumption 3, log p is linear in the squared distance. A flow is fitted to pairs, two tensors ``[N, d]`` of unit
vectors; log p (nats, with respect to the uniform distribution) is averaged over pairs of similar distance, and a line
is drawn through the averages. :func:`control` makes pairs with known log p, where the assumption holds or not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastbook.theory import flows
from contrastlab.pictures.augmentations import augmentation
from contrastlab.pictures.items import ItemSet
from contrastlab.pictures.loading import batches
from contrastlab.settings import Settings
from contrastlab.support.errors import reject
from contrastlab.support.seeds import generator
from contrastlab.tasks import frozen, represent
from contrastlab.views import Augmented

Pairs = tuple[Tensor, Tensor]
Kind = Literal["kernel", "two widths", "clusters"]


@torch.no_grad()
def embedded(
    encoders: nn.ModuleList,
    settings: Settings,
    source: ItemSet,
    indices: Tensor,
    repeats: int,
    *,
    seed: int,
) -> Pairs:
    """Embeddings of two views of each image, drawn ``repeats`` times."""
    view = augmentation(settings.augmentation, settings.image_size)
    draws = generator(seed, "pairs of the assumption")
    first: list[Tensor] = []
    second: list[Tensor] = []
    with frozen(encoders):
        for _ in range(repeats):
            for _, pixels in batches(source, indices, 500, "cpu", drop_last=False):
                one, other = Augmented(2).make(pixels, view, draws)
                first.append(represent(encoders, (one,), "embedding"))
                second.append(represent(encoders, (other,), "embedding"))
    return torch.cat(first), torch.cat(second)


def control(kind: Kind, count: int, dim: int, seed: int) -> tuple[Pairs, Tensor]:
    """Generated pairs in d = ``dim`` ≥ 5 dimensions and their exact log p; f-MICL's assumption holds for one kind.

    ``"kernel"``: x is uniform, and the density of y around it is ∝ exp(6 x·y); the assumption holds.
    ``"two widths"``: half of the x have a close partner, the others a distant one. ``"clusters"``: the x crowd around
    five points.
    """
    if kind not in get_args(Kind):
        raise reject("kind", kind, " or ".join(map(repr, get_args(Kind))))
    if dim < 5:
        raise reject("dim", dim, "at least 5, a dimension for each cluster")
    draws = generator(seed, kind)
    x = F.normalize(torch.randn(count, dim, generator=draws), dim=1)
    concentration = torch.full((count,), 6.0)  # of y around x
    log_p = torch.zeros(count)  # of x; that of y given x is added below
    if kind == "two widths":
        concentration = torch.where(x[:, 0] > 0, 60.0, 2.0)
    if kind == "clusters":
        clusters = torch.randint(5, (count,), generator=draws)
        centres = torch.eye(dim)
        x = flows.von_mises_fisher(centres[clusters], 20.0, draws)
        cosines = x[:, :5]  # with the five centres, which are unit vectors of the axes
        log_density_of_clusters = flows.log_von_mises_fisher(cosines, 20.0, dim)
        log_p = log_density_of_clusters.logsumexp(1) - math.log(5)
    y = torch.empty_like(x)
    for value in concentration.unique().tolist():
        rows = concentration == value
        y[rows] = flows.von_mises_fisher(x[rows], value, draws)
        cosines = (x * y).sum(1)
        log_p[rows] += flows.log_von_mises_fisher(cosines[rows], value, dim)
    return (x, y), log_p


def estimate(
    parts: Sequence[Pairs],
    *,
    prior: flows.Prior = "gaussian",
    space: bool = False,
    epochs: int = 60,
    seed: int = 0,
) -> Tensor:
    """Log p by a flow of the last of three ``parts``; the first fits it, the second stops the fit.

    ``space``: fit coordinates in space, where no density exists (the literal reading), not those of charts.
    """
    mean_feature = torch.cat(parts[0]).mean(0)
    pole = -F.normalize(mean_feature, dim=0)  # where the chart ends, far from the features

    def coordinates(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """What the flow sees of pairs, and by how much the chart lowers the log density."""
        if space:
            return torch.cat([x, y], 1), torch.zeros(len(x))
        a, log_a = flows.stereographic(x, pole)
        b, log_b = flows.stereographic(y, pole)
        log_uniform = 2 * flows.log_sphere_area(x.shape[1])
        return torch.cat([a, b], 1), log_a + log_b - log_uniform

    fitted, _ = coordinates(*parts[0])
    stopping, _ = coordinates(*parts[1])
    scored, stretch = coordinates(*parts[2])
    flow = flows.real_nvp(fitted, prior=prior, seed=seed)
    flows.fit(flow, fitted, stopping, epochs=epochs, seed=seed)
    with torch.no_grad():
        log_p: Tensor = flow().log_prob(scored) - stretch
    return log_p


def averages(pairs: Pairs, log_p: Tensor, *, bins: int = 16, least: int = 20) -> pd.DataFrame:
    """Means and quartiles of log p in ``bins`` intervals of the squared distance, between its 0.5 and 99.5 % quantiles.

    Intervals of less than ``least`` pairs are left out.
    """
    x, y = pairs
    rows = pd.DataFrame({"distance": (x - y).square().sum(1), "log p": log_p})
    low, high = rows["distance"].quantile([0.005, 0.995]).to_numpy()
    edges = np.linspace(low, high, bins + 1).tolist()
    intervals = pd.cut(rows["distance"], edges, labels=False)
    groups = rows.groupby(intervals)
    means = groups.mean().assign(pairs=groups.size())
    means["low"] = groups["log p"].quantile(0.25)
    means["high"] = groups["log p"].quantile(0.75)
    has_enough = means["pairs"] >= least
    return means[has_enough].reset_index(drop=True)


def straight(means: pd.DataFrame) -> tuple[float, float, float]:
    """Slope, offset and R² of the line through :func:`averages`."""
    distance = means["distance"]
    log_p = means["log p"]
    slope, offset = np.polyfit(distance, log_p, 1)
    residual = log_p - offset - slope * distance
    r2 = 1 - residual.var(ddof=0) / log_p.var(ddof=0)
    return float(slope), float(offset), float(r2)


def judged(pairs: Pairs, log_p: Tensor) -> dict[str, float]:
    """What the assumption says, and what a line through averages does not show.

    ``explained by distance`` is the share of the variance of log p between pairs. ``mean length`` ‖E x‖ and
    ``dimensions`` (Σλ)²/Σλ² of E xxᵀ are 0 and d where features are uniform, as the assumption implies.
    """
    slope, _, r2 = straight(averages(pairs, log_p))
    x, y = pairs
    distance = (x - y).square().sum(1)
    correlations = torch.corrcoef(torch.stack([distance, log_p]))
    features = torch.cat(pairs)
    second_moments = features.T @ features / len(features)
    eigenvalues = torch.linalg.eigvalsh(second_moments)
    dimensions = eigenvalues.sum() ** 2 / eigenvalues.square().sum()
    return {
        "R² of averages": r2,
        "σ² of slope": -1 / (2 * slope) if slope < 0 else math.nan,
        "explained by distance": float(correlations[0, 1] ** 2),
        "mean length": float(features.mean(0).norm()),
        "dimensions": float(dimensions),
    }
