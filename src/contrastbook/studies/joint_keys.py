"""jcl: what the covariance of an item's keys adds to the loss, and whether views of one image end up closer (Figure 3).

Source: jcl §3, Figures 2 and 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastbook.theory import joint
from contrastlab import tasks
from contrastlab.data.augmentations import augmentation
from contrastlab.data.loading import batches, subset_order
from contrastlab.errors import reject
from contrastlab.methods import get
from contrastlab.objectives import multi_key_info_nce
from contrastlab.positives import Joint
from contrastlab.reproduce import Run
from contrastlab.seeds import generator
from contrastlab.tasks.representations import Kind
from contrastlab.views import Augmented

KINDS: tuple[Kind, ...] = ("embedding", "pooled")

SAID_GOOD: Mapping[str, tuple[Mapping[str, float], tuple[float, float]]] = {
    "keys, M′": ({"jcl/keys2": 2, "jcl/jcl": 5, "jcl/keys9": 9}, (5, 11)),
    "strength, λ": ({"jcl/lambda0": 0, "jcl/lambda1": 1, "jcl/jcl": 4, "jcl/lambda10": 10}, (0.2, 4)),
    "temperature, τ": ({"jcl/tau0.07": 0.07, "jcl/jcl": 0.2, "jcl/tau0.5": 0.5}, (0.19, 0.21)),
}
"""Panel of Figure 2 to its methods with their place on the axis, and to the range that the paper calls good."""


def two_forms(
    queries: int = 6, keys: int = 5, dimension: int = 16, *, tau: float = 0.2, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Eq. 8 with the ``d × d`` covariance, and as the library has it: both losses, float64 ``[B]``, in nats."""
    draw = torch.Generator().manual_seed(seed)

    def unit(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    q = F.normalize(unit(queries, dimension), dim=1)
    k = F.normalize(q[:, None] + 0.3 * unit(queries, keys, dimension), dim=2)
    others = q @ F.normalize(unit(100, dimension), dim=1).T / tau
    positives = cast("Joint", get("jcl/jcl").positives)
    mu, centred = k.mean(1), k - k.mean(1, keepdim=True)
    sigma = torch.einsum("bmi,bmj->bij", centred, centred) / keys
    spread = torch.einsum("bi,bij,bj->b", q, sigma, q)
    mean = (q * mu).sum(1) / tau
    matrix = torch.logaddexp(mean + float(positives.strength) / (2 * tau**2) * spread, others.logsumexp(1)) - mean  # type: ignore[arg-type]
    own, lift = positives.pair(torch.einsum("bmi,bi->bm", k, q) / tau, 0, 1)
    return matrix, multi_key_info_nce(own, others, lift)


@dataclass(frozen=True)
class Averages:
    """The loss of one image averaged over M of its keys, and what it tends to.

    Args:
        frame: by M: mean over the draws, and their 5 and 95 % quantiles, in nats.
        limit: mean over all draws and keys, in nats.
        closed: λ to JCL's closed form for the same distribution.
    """

    frame: pd.DataFrame
    limit: float
    error: float
    closed: Mapping[float, float]


def averages(
    mean: float = 0.8, sd: float = 0.2, c: float = 5.0, *, tau: float = 0.2, most: int = 1024, draws: int = 400,
    strengths: Sequence[float] = (0, 1, 4), seed: int = 0,
) -> Averages:  # fmt: skip
    """Averages over up to ``most`` keys with ``q·k⁺ ~ N(mean, sd²)``: they settle at Eq. 4, not at the closed form."""
    draw = torch.Generator().manual_seed(seed)
    a = (mean + sd * torch.randn(draws, most, generator=draw, dtype=torch.float64)) / tau
    losses = torch.logaddexp(a, torch.tensor(c)) - a
    counts = [2**i for i in range(most.bit_length())]
    means = torch.stack([losses[:, :m].mean(1) for m in counts])
    frame = pd.DataFrame(
        {"mean": means.mean(1), "low": means.quantile(0.05, dim=1), "high": means.quantile(0.95, dim=1)},
        index=pd.Index(counts, name="keys"),
    )
    closed = {s: float(joint.closed_form(mean, sd**2, c, tau, s)) for s in strengths}
    return Averages(frame, float(losses.mean()), float(losses.std()) / losses.numel() ** 0.5, closed)


def sweep(c: float, *, m: float = 0.8, tau: float = 0.2, strengths: Sequence[float] = (0, 0.5, 1, 4)) -> pd.DataFrame:
    """Losses above that of the mean key, in nats, by variance of ``q·k⁺``, whose mean is ``m``; strengths are λ."""
    variances = np.linspace(0, 0.04, 41)
    base = float(joint.closed_form(m, 0, c, tau, 0))
    columns = {"infinitely many keys": [joint.expected_loss(m, v, c, tau) - base for v in variances]}
    columns |= {f"λ = {s:g}": list(joint.closed_form(m, variances, c, tau, s) - base) for s in strengths}
    return pd.DataFrame(columns, index=pd.Index(variances, name="variance of q·k⁺"))


def inertness(
    negatives: Sequence[int] = (64, 1024, 4096, 65536), strengths: Sequence[float] = (0, 1, 4, 10), *,
    m: float = 0.8, v: float = 0.02, tau: float = 0.2, dimension: int = 128,
) -> pd.DataFrame:  # fmt: skip
    """What the covariance does to the loss, by number of negatives and λ.

    ``m``: mean of ``q·k⁺``. ``v``: variance of ``q·k⁺``. Returns ``p⁺``; the nats that the covariance adds; the slope
    of the loss by ``v`` over that by ``m``.
    """
    rows = []
    for count in negatives:
        c = joint.log_sum_on_sphere(count, dimension, tau)
        for strength in strengths:
            p = float(joint.positive_weight(m, v, c, tau, strength))
            added = float(joint.closed_form(m, v, c, tau, strength) - joint.closed_form(m, v, c, tau, 0))
            slope = (strength * p / (2 * tau**2)) / ((1 - p) / tau)
            rows.append((count, strength, p, added, slope))
    columns = ["negatives", "λ", "p⁺", "added (nats)", "slope by v / by m"]
    return pd.DataFrame(rows, columns=columns).set_index(["negatives", "λ"])


@dataclass(frozen=True)
class ViewStatistics:
    """Of each image, over random views of it.

    Args:
        cosine: mean cosine of two of its views, each with itself included, ``[N]``: Figure 3(a).
        variance: mean variance of a coordinate, ``[N]``: Figure 3(b).
        centre: mean view, ``[N, d]``.
        m: mean of ``q·k⁺`` of a view with the others, ``[N]``.
        v: variance of ``q·k⁺``, ``[N]``.
    """

    cosine: Tensor
    variance: Tensor
    centre: Tensor
    m: Tensor
    v: Tensor

    @classmethod
    def of(cls, z: Tensor) -> ViewStatistics:
        """From unit features of views, ``[N, copies, d]``."""
        copies = z.shape[1]
        if copies < 2:
            raise reject("copies", copies, "at least 2 views")
        pairs = z @ z.mT
        m = (pairs.sum(2) - 1) / (copies - 1)  # without the view itself, whose cosine is 1
        v = (pairs.square().sum(2) - 1) / (copies - 1) - m.square()
        return cls(pairs.mean((1, 2)), z.var(1, correction=0).mean(1), z.mean(1), m.mean(1), v.mean(1))

    @classmethod
    def joined(cls, parts: Sequence[ViewStatistics]) -> ViewStatistics:
        """Of several batches, on the CPU."""
        names = ("cosine", "variance", "centre", "m", "v")
        return cls(*(torch.cat([getattr(part, name) for part in parts]).cpu() for name in names))


def _views(run: Run, encoders: nn.ModuleList, images: int, copies: int, device: torch.device) -> Iterator[
    dict[Kind, Tensor]
]:  # fmt: skip
    view = augmentation(run.settings.augmentation, run.settings.image_size)
    source = run.data.pretrain
    order = subset_order(source.labels, images, seed=0)
    for number, (_, pixels) in enumerate(batches(source, order, 128, device, drop_last=False)):
        draw = generator(run.seed, "figure 3", number, device)
        made = [Augmented(1).make(pixels, view, draw) for _ in range(copies)]
        with tasks.frozen(encoders):
            yield {
                kind: torch.stack([F.normalize(tasks.represent(encoders, x, kind), dim=1) for x in made], 1).double()
                for kind in KINDS
            }


def view_statistics(run: Run, encoders: nn.ModuleList, images: int, copies: int = 32) -> dict[Kind, ViewStatistics]:
    """How close ``copies`` random views of an image are, by embedding and features; the paper: 32 of 32,768 images."""
    device = next(encoders.parameters()).device
    parts = [
        {kind: ViewStatistics.of(z) for kind, z in batch.items()}
        for batch in _views(run, encoders, images, copies, device)
    ]
    return {kind: ViewStatistics.joined([part[kind] for part in parts]) for kind in KINDS}


def closeness(numbers: Mapping[str, Mapping[Kind, ViewStatistics]]) -> pd.DataFrame:
    """Mean cosine of views of one image, of views of different images, and the difference; label to statistics."""
    rows = {}
    for label, kinds in numbers.items():
        for kind, of in kinds.items():
            n, total = len(of.centre), of.centre.sum(0)
            other = float((total @ total - of.centre.square().sum()) / (n * (n - 1)))
            same = float(of.cosine.mean())
            rows[label, kind] = {"same image": same, "other images": other, "apart": same - other}
    return pd.DataFrame(rows).T.rename_axis(["row", "features"])


def weights(
    numbers: Mapping[str, Mapping[Kind, ViewStatistics]], c: float, *, tau: float = 0.2,
    strengths: Sequence[float] = (0, 4),
) -> pd.DataFrame:  # fmt: skip
    """p⁺ at each strength λ, at the m and v that encoders have: means over the images; label to statistics."""
    rows = {}
    for label, kinds in numbers.items():
        m, v = kinds["embedding"].m.numpy(), kinds["embedding"].v.clamp(min=0).numpy()
        each = {f"p⁺, λ = {s:g}": joint.positive_weight(m, v, c, tau, s).mean() for s in strengths}
        rows[label] = {"m": m.mean(), "v": v.mean(), **each}
    return pd.DataFrame(rows).T
