"""jcl: what the covariance of an item's keys adds to the loss, and whether views of one image end up closer (Figure 3).

Source: jcl §3, Figures 2 and 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastbook.theory import joint
from contrastlab import tasks
from contrastlab.methods import get
from contrastlab.objectives import multi_key_info_nce
from contrastlab.pictures.augmentations import augmentation
from contrastlab.pictures.loading import batches, subset_order
from contrastlab.pictures.representations import Kind
from contrastlab.positives import Joint
from contrastlab.support.errors import reject
from contrastlab.support.seeds import generator
from contrastlab.tables import Run
from contrastlab.views import Augmented

KINDS: tuple[Kind, ...] = ("embedding", "pooled")
TAU = 0.2

SAID_GOOD: Mapping[str, tuple[Mapping[str, float], tuple[float, float]]] = {
    "keys, M′": ({"jcl/keys2": 2, "jcl/jcl": 5, "jcl/keys9": 9}, (5, 11)),
    "strength, λ": ({"jcl/lambda0": 0, "jcl/lambda1": 1, "jcl/jcl": 4, "jcl/lambda10": 10}, (0.2, 4)),
    "temperature, τ": ({"jcl/tau0.07": 0.07, "jcl/jcl": 0.2, "jcl/tau0.5": 0.5}, (0.19, 0.21)),
}
"""Panel of Figure 2 to its methods with their place on the axis, and to the range that the paper calls good."""


def two_forms(keys: int = 5) -> tuple[Tensor, Tensor]:
    """Eq. 8 with the ``d × d`` covariance, and as the library has it: losses of six queries, float64, in nats."""
    draws = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draws, dtype=torch.float64)

    q = F.normalize(normal(6, 16), dim=1)
    k = F.normalize(q[:, None] + 0.3 * normal(6, keys, 16), dim=2)
    negatives = F.normalize(normal(100, 16), dim=1)
    others = q @ negatives.T / TAU
    positives = cast("Joint", get("jcl/jcl").positives)
    strength = float(positives.strength)  # type: ignore[arg-type]
    mu = k.mean(1)
    centred = k - mu[:, None]
    sigma = torch.einsum("bmi,bmj->bij", centred, centred) / keys
    spread = torch.einsum("bi,bij,bj->b", q, sigma, q)
    mean = (q * mu).sum(1) / TAU
    lifted = mean + strength / (2 * TAU**2) * spread
    with_matrix = torch.logaddexp(lifted, others.logsumexp(1)) - mean
    scores_of_keys = torch.einsum("bmi,bi->bm", k, q) / TAU
    own, lift = positives.pair(scores_of_keys, 0, 1)
    without_matrix = multi_key_info_nce(own, others, lift)
    return with_matrix, without_matrix


@dataclass(frozen=True)
class Averages:
    """The loss of one image averaged over M of its keys, and what it tends to, in nats."""

    frame: pd.DataFrame  # by M: mean over the draws, and their 5 and 95 % quantiles
    limit: float  # mean over all draws and keys
    error: float  # its standard error
    closed: Mapping[float, float]  # λ to JCL's closed form for the same distribution


def averages(*, most: int = 1024, draws: int = 400) -> Averages:
    """Averages over up to ``most`` keys with ``q·k⁺ ~ N(.8, .2²)``: they settle at Eq. 4, not at the closed form."""
    mean, sd, c = 0.8, 0.2, 5.0
    generator_of_draws = torch.Generator().manual_seed(0)
    cosines = mean + sd * torch.randn(draws, most, generator=generator_of_draws, dtype=torch.float64)
    scores = cosines / TAU
    losses = torch.logaddexp(scores, torch.tensor(c)) - scores
    counts = [2**power for power in range(most.bit_length())]
    means = torch.stack([losses[:, :count].mean(1) for count in counts])
    columns = {
        "mean": means.mean(1),
        "low": means.quantile(0.05, dim=1),
        "high": means.quantile(0.95, dim=1),
    }
    frame = pd.DataFrame(columns, index=pd.Index(counts, name="keys"))
    limit = float(losses.mean())
    error = float(losses.std()) / losses.numel() ** 0.5
    closed: dict[float, float] = {}
    for strength in (0.0, 1.0, 4.0):
        closed[strength] = float(joint.closed_form(mean, sd**2, c, TAU, strength))
    return Averages(frame, limit, error, closed)


def sweep(c: float) -> pd.DataFrame:
    """Losses above that of the mean key, in nats, by variance of ``q·k⁺``, whose mean is .8."""
    m = 0.8
    variances = np.linspace(0, 0.04, 41)
    base = float(joint.closed_form(m, 0, c, TAU, 0))
    of_many_keys = [joint.expected_loss(m, v, c, TAU) - base for v in variances]
    columns = {"infinitely many keys": of_many_keys}
    for strength in (0, 0.5, 1, 4):
        losses = joint.closed_form(m, variances, c, TAU, strength)
        columns[f"λ = {strength:g}"] = list(losses - base)
    return pd.DataFrame(columns, index=pd.Index(variances, name="variance of q·k⁺"))


def inertness() -> pd.DataFrame:
    """What the covariance does to the loss, by number of negatives and λ; ``q·k⁺`` has mean .8 and variance .02."""
    m = 0.8
    v = 0.02
    rows: list[tuple[float, ...]] = []
    for count in (64, 1024, 4096, 65536):
        c = joint.log_sum_on_sphere(count, 128, TAU)
        without = joint.closed_form(m, v, c, TAU, 0)
        for strength in (0, 1, 4, 10):
            p = float(joint.positive_weight(m, v, c, TAU, strength))
            loss = joint.closed_form(m, v, c, TAU, strength)
            added = float(loss - without)
            slope_by_v = strength * p / (2 * TAU**2)
            slope_by_m = (1 - p) / TAU
            rows.append((count, strength, p, added, slope_by_v / slope_by_m))
    columns = ["negatives", "λ", "p⁺", "added (nats)", "slope by v / by m"]
    return pd.DataFrame(rows, columns=columns).set_index(["negatives", "λ"])


@dataclass(frozen=True)
class ViewStatistics:
    """Of each of N images, over random views of it."""

    cosine: Tensor  # mean cosine of two of its views, each with itself included: Figure 3(a)
    variance: Tensor  # mean variance of a coordinate: Figure 3(b)
    centre: Tensor  # mean view, [N, d]
    m: Tensor  # mean of q·k⁺ of a view with the others
    v: Tensor  # variance of q·k⁺

    @classmethod
    def of(cls, z: Tensor) -> ViewStatistics:
        """From unit features of views, ``[N, copies, d]``."""
        copies = z.shape[1]
        if copies < 2:
            raise reject("copies", copies, "at least 2 views")
        cosines = z @ z.mT  # [N, copies, copies]
        others = copies - 1
        m = (cosines.sum(2) - 1) / others  # without the view itself, whose cosine is 1
        mean_square = (cosines.square().sum(2) - 1) / others
        v = mean_square - m.square()
        return cls(
            cosine=cosines.mean((1, 2)),
            variance=z.var(1, correction=0).mean(1),
            centre=z.mean(1),
            m=m.mean(1),
            v=v.mean(1),
        )


def view_statistics(run: Run, encoders: nn.ModuleList, images: int, copies: int = 32) -> dict[Kind, ViewStatistics]:
    """How close ``copies`` random views of an image are, by embedding and features; the paper: 32 of 32,768 images."""
    device = next(encoders.parameters()).device
    statistics: dict[Kind, list[ViewStatistics]] = {kind: [] for kind in KINDS}
    view = augmentation(run.settings.augmentation, run.settings.image_size)
    source = run.data.pretrain
    order = subset_order(source.labels, images, seed=0)
    for number, (_, pixels) in enumerate(batches(source, order, 128, device, drop_last=False)):
        draws = generator(run.seed, "figure 3", number, device)
        views = [Augmented(1).make(pixels, view, draws) for _ in range(copies)]
        for kind in KINDS:
            with tasks.frozen(encoders):
                features = [tasks.represent(encoders, each, kind) for each in views]
            unit_features = F.normalize(torch.stack(features, 1), dim=2)
            statistics[kind].append(ViewStatistics.of(unit_features.double()))
    return {kind: _joined(batches_of_kind) for kind, batches_of_kind in statistics.items()}


def _joined(parts: Sequence[ViewStatistics]) -> ViewStatistics:
    """The statistics of the images of several batches, on the CPU."""
    columns: list[Tensor] = []
    for field in fields(ViewStatistics):
        values = [getattr(part, field.name) for part in parts]
        columns.append(torch.cat(values).cpu())
    return ViewStatistics(*columns)


def closeness(numbers: Mapping[str, Mapping[Kind, ViewStatistics]]) -> pd.DataFrame:
    """Mean cosine of views of one image, of views of different images, and the difference; label to statistics."""
    rows: dict[tuple[str, Kind], dict[str, float]] = {}
    for label, kinds in numbers.items():
        for kind, statistics in kinds.items():
            n = len(statistics.centre)
            total = statistics.centre.sum(0)
            products = total @ total - statistics.centre.square().sum()  # over all pairs of different images
            other = float(products / (n * (n - 1)))
            same = float(statistics.cosine.mean())
            rows[label, kind] = {"same image": same, "other images": other, "apart": same - other}
    return pd.DataFrame(rows).T.rename_axis(["row", "features"])


def weights(numbers: Mapping[str, Mapping[Kind, ViewStatistics]], c: float) -> pd.DataFrame:
    """p⁺ at λ = 0 and 4, at the m and v that encoders have: means over the images; label to statistics."""
    rows: dict[str, dict[str, float]] = {}
    for label, kinds in numbers.items():
        statistics = kinds["embedding"]
        m = statistics.m.numpy()
        v = statistics.v.clamp(min=0).numpy()
        row = {"m": m.mean(), "v": v.mean()}
        for strength in (0, 4):
            p = joint.positive_weight(m, v, c, TAU, strength)
            row[f"p⁺, λ = {strength:g}"] = p.mean()
        rows[label] = row
    return pd.DataFrame(rows).T
