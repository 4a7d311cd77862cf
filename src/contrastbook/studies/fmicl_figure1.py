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
    encoders: nn.ModuleList, settings: Settings, source: ItemSet, indices: Tensor, repeats: int, *, seed: int
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
    concentration = torch.full((count,), 6.0)
    log_x = torch.zeros(count)
    if kind == "two widths":
        concentration = torch.where(x[:, 0] > 0, 60.0, 2.0)
    if kind == "clusters":
        centres = torch.eye(dim)[torch.randint(5, (count,), generator=draws)]
        x = flows.von_mises_fisher(centres, 20.0, draws)
        log_x = flows.log_von_mises_fisher(x[:, :5], 20.0, dim).logsumexp(1) - math.log(5)
    y = torch.empty_like(x)
    log_p = log_x.clone()
    for value in concentration.unique().tolist():
        rows = concentration == value
        y[rows] = flows.von_mises_fisher(x[rows], value, draws)
        log_p[rows] += flows.log_von_mises_fisher((x * y).sum(1)[rows], value, dim)
    return (x, y), log_p


def estimate(
    parts: Sequence[Pairs], *, prior: flows.Prior = "gaussian", space: bool = False, epochs: int = 60, seed: int = 0
) -> Tensor:
    """Log p by a flow of the last of three ``parts``; the first fits it, the second stops the fit.

    ``space``: fit coordinates in space, where no density exists (the literal reading), not those of charts.
    """
    pole = -F.normalize(torch.cat(parts[0]).mean(0), dim=0)  # opposite to the mean feature

    def coordinates(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """What the flow sees of pairs, and by how much the chart lowers the log density."""
        if space:
            return torch.cat([x, y], 1), torch.zeros(len(x))
        a, log_a = flows.stereographic(x, pole)
        b, log_b = flows.stereographic(y, pole)
        return torch.cat([a, b], 1), log_a + log_b - 2 * flows.log_sphere_area(x.shape[1])

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
    rows = pd.DataFrame({"distance": (pairs[0] - pairs[1]).square().sum(1), "log p": log_p})
    low, high = rows["distance"].quantile([0.005, 0.995]).to_numpy()
    groups = rows.groupby(pd.cut(rows["distance"], np.linspace(low, high, bins + 1).tolist(), labels=False))
    means = groups.mean().assign(pairs=groups.size())
    means["low"], means["high"] = groups["log p"].quantile(0.25), groups["log p"].quantile(0.75)
    return means[means["pairs"] >= least].reset_index(drop=True)


def straight(means: pd.DataFrame) -> tuple[float, float, float]:
    """Slope, offset and R² of the line through :func:`averages`."""
    slope, offset = np.polyfit(means["distance"], means["log p"], 1)
    rest = means["log p"] - offset - slope * means["distance"]
    return float(slope), float(offset), float(1 - rest.var(ddof=0) / means["log p"].var(ddof=0))


def judged(pairs: Pairs, log_p: Tensor) -> dict[str, float]:
    """What the assumption says, and what a line through averages does not show.

    ``explained by distance`` is the share of the variance of log p between pairs. ``mean length`` ‖E x‖ and
    ``dimensions`` (Σλ)²/Σλ² of E xxᵀ are 0 and d where features are uniform, as the assumption implies.
    """
    slope, _, r2 = straight(averages(pairs, log_p))
    distance, x = (pairs[0] - pairs[1]).square().sum(1), torch.cat(pairs)
    values = torch.linalg.eigvalsh(x.T @ x / len(x))
    return {
        "R² of averages": r2,
        "σ² of slope": -1 / (2 * slope) if slope < 0 else math.nan,
        "explained by distance": float(torch.corrcoef(torch.stack([distance, log_p]))[0, 1] ** 2),
        "mean length": float(x.mean(0).norm()),
        "dimensions": float(values.sum() ** 2 / values.square().sum()),
    }
