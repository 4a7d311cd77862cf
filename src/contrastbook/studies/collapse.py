"""fmicl Theorem 4 on trained encoders: what becomes of features where the theorem does not apply (RKL, Neyman).

The paper remarks that such features "all collapse to a constant".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pandas as pd
import torch
from torch import Tensor, nn

from contrastlab import data, papers
from contrastlab.data import ImageSet
from contrastlab.methods import get
from contrastlab.pictures.augmentations import augmentation
from contrastlab.settings import Settings
from contrastlab.support.seeds import generator
from contrastlab.tables import Run
from contrastlab.tasks import frozen
from contrastlab.train import cpu_fabric
from contrastlab.train.spread import effective_rank

RUNS: Mapping[str, tuple[str, bool, int]] = {
    "untrained": ("ours/random", False, 0),
    "KL": ("fmicl/kl", False, 0),
    "JS": ("fmicl/js", False, 0),
    "RKL": ("fmicl/reverse_kl", False, 0),
    "RKL, large rate, seed 0": ("fmicl/reverse_kl", True, 0),
    "RKL, large rate, seed 1": ("fmicl/reverse_kl", True, 1),
    "Neyman": ("fmicl/neyman", False, 0),
    "Neyman, large rate, seed 0": ("fmicl/neyman", True, 0),
    "Neyman, large rate, seed 1": ("fmicl/neyman", True, 1),
}
"""Label to method, whether it is trained at the paper's learning rate, which is larger, and seed."""


@dataclass(frozen=True)
class Spread:
    """How unit features of test images lie."""

    apart: Tensor  # squared distances of all pairs of different images, sorted
    same: Tensor  # squared distances of two views of one image, sorted
    rank: float  # effective rank of the squared singular values: how many directions are in use


def settings() -> Settings:
    """Those of fmicl Table 2 at smoke size on the bundled shapes, but with 2,000 pictures and four epochs."""
    return papers.plan("fmicl", "2").settings("shapes", "kl", "smoke").override(epochs=4, train_images=2000)


def spread(encoder: nn.Module, how: Settings, images: Tensor) -> Spread:
    """How an encoder spreads two random views of each image, uint8 ``[N, C, H, W]``."""
    view = augmentation(how.augmentation, how.image_size)
    views = get("fmicl/kl").views.make(images, view, generator(0, "views"))
    with frozen(encoder):
        x, y = (encoder(v) for v in views)
    rows, columns = torch.triu_indices(len(x), len(x), 1)
    apart = (2 - 2 * x @ x.T)[rows, columns].clamp(min=0)
    same = (2 - 2 * (x * y).sum(1)).clamp(min=0)
    return Spread(apart.sort()[0], same.sort()[0], effective_rank(x, squared=True))


def study(root: Path | str, *, images: int = 256) -> dict[str, Spread]:
    """Every encoder of :data:`RUNS`, trained on the bundled shapes, or read where it was."""
    shapes = data.load("shapes")
    pictures = cast("ImageSet", shapes.test).images[:images]
    large_rate = papers.plan("fmicl", "2").settings("cifar10", "kl").lr
    spreads = {}
    for label, (method, is_large, seed) in RUNS.items():
        how = settings()
        if is_large:
            how = how.override(lr=large_rate)
        run = Run(get(method).override(how.overrides), how, shapes, seed, Path(root))
        (encoder,) = run.train(cpu_fabric(), log=lambda line: None).encoders
        spreads[label] = spread(encoder, how, pictures)
    return spreads


def numbers(spreads: Mapping[str, Spread]) -> pd.DataFrame:
    """A row for each encoder: squared distances, percent of them below 0.4 or above 3.6, the rank, and a verdict."""
    columns = ["mean", "sd", "near 0 or 4 (%)", "same image", "effective rank"]
    frame = pd.DataFrame(index=list(spreads), columns=columns, dtype=float)
    for label, of in spreads.items():
        near = 100 * ((of.apart < 0.4) | (of.apart > 3.6)).float().mean()
        values = (of.apart.mean(), of.apart.std(), near, of.same.mean(), of.rank)
        frame.loc[label] = [float(value) for value in values]
    verdicts = [verdict(dict(zip(columns, row, strict=True))) for row in frame.to_numpy()]
    return frame.assign(verdict=verdicts)


def verdict(row: Mapping[str, float]) -> str:
    """A line of :func:`numbers` in words."""
    if row["mean"] < 1e-3:
        return "one constant"
    if row["near 0 or 4 (%)"] > 90:
        return "no constant; two heaps" if row["mean"] > 0.4 else "all close together, not equal"
    return "no constant; few directions" if row["effective rank"] < 3 else "spread"
