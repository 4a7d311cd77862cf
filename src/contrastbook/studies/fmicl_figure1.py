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
    encoders: nn.ModuleList, settings: Settings, source: ItemSet, indices: Tensor, each: int, *, seed: int
) -> Pairs:
    """Embeddings of two views of each image, drawn ``each`` times."""
    view, draw = augmentation(settings.augmentation, settings.image_size), generator(seed, "pairs of the assumption")
    rows = []
    with frozen(encoders):
        for _ in range(each):
            for _, pixels in batches(source, indices, 500, "cpu", drop_last=False):
                views = Augmented(2).make(pixels, view, draw)
                rows.append([represent(encoders, (one,), "embedding") for one in views])
    first, second = (torch.cat(part) for part in zip(*rows, strict=True))
    return first, second


def control(kind: Kind, count: int, dim: int, seed: int) -> tuple[Pairs, Tensor]:
    """Made pairs in d = ``dim`` ≥ 5 dimensions and their exact log p; the assumption holds for ``"kernel"`` alone.

    There x is uniform, y around it with density ∝ exp(6 x·y); with ``"two widths"`` half of the x have a close partner,
    the others a distant one; with ``"clusters"`` the x crowd around five points.
    """
    if kind not in get_args(Kind):
        raise reject("kind", kind, " or ".join(map(repr, get_args(Kind))))
    if dim < 5:
        raise reject("dim", dim, "at least 5, a dimension for each cluster")
    draw, kappa, log_x = generator(seed, kind), torch.full((count,), 6.0), torch.zeros(count)
    x = F.normalize(torch.randn(count, dim, generator=draw), dim=1)
    if kind == "two widths":
        kappa = torch.where(x[:, 0] > 0, 60.0, 2.0)
    if kind == "clusters":
        x = flows.von_mises_fisher(torch.eye(dim)[torch.randint(5, (count,), generator=draw)], 20.0, draw)
        log_x = flows.log_von_mises_fisher(x[:, :5], 20.0, dim).logsumexp(1) - math.log(5)
    y, log_p = torch.empty_like(x), log_x.clone()
    for value in kappa.unique().tolist():
        rows = kappa == value
        y[rows] = flows.von_mises_fisher(x[rows], value, draw)
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
        if space:
            return torch.cat([x, y], 1), torch.zeros(len(x))
        (a, log_a), (b, log_b) = flows.stereographic(x, pole), flows.stereographic(y, pole)
        return torch.cat([a, b], 1), log_a + log_b - 2 * flows.log_sphere_area(x.shape[1])

    (fitted, _), (stops, _), (scored, stretch) = (coordinates(*pairs) for pairs in parts)
    flow = flows.real_nvp(fitted, prior=prior, seed=seed)
    flows.fit(flow, fitted, stops, epochs=epochs, seed=seed)
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
