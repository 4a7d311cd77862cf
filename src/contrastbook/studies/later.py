"""Later methods side by side: the same pictures, encoder and epochs, each method with the rate that its search chose.

:func:`study` trains one method with one seed and measures its encoder: the accuracy of a linear classifier, and the
InfoNCE bound, alignment, uniformity and effective rank on views of test pictures. :func:`table` reads what is stored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from contrastbook import studies
from contrastbook.evidence import inference, searches
from contrastbook.studies import Row, Study, probing
from contrastlab import data, methods, tasks
from contrastlab.data import Splits
from contrastlab.information import bounds
from contrastlab.pictures.augmentations import augmentation
from contrastlab.pictures.items import fingerprint
from contrastlab.settings import Settings
from contrastlab.support import shipped
from contrastlab.support.seeds import derive
from contrastlab.train import cpu_fabric
from contrastlab.train.loop import Log
from contrastlab.train.spread import spread
from contrastlab.views import Augmented

NAME = "later"
UNTRAINED = "ours/random"
METHODS = {
    "decoupled/simclr": "negatives",
    "decoupled/dcl": "negatives",
    "debiased/debiased": "negatives",
    "hard/hard": "negatives",
    "rince/rince": "negatives",
    "siglip/sigmoid": "negatives",
    "fmicl/au": "negatives",
    "fmicl/spectral": "negatives",
    "barlow/barlow": "no negatives",
    "vicreg/vicreg": "no negatives",
    "byol/byol": "no negatives",
    "simsiam/simsiam": "no negatives",
    "supcon/out": "labels",
}
"""What each method learns from, beside two views of a picture."""
MEASURES = {
    "linear": "linear accuracy (%)",
    "bound": "InfoNCE bound (nats)",
    "alignment": "alignment, mean ‖q − k‖²",
    "uniformity": "uniformity, log mean e^(−2‖q − q′‖²)",
    "effective_rank": "effective rank",
}
"""What is measured of an encoder, in words."""
PAIRS = 2048
"""Test pictures of which two views are looked at, at most."""
BATCH = 256
"""K of the InfoNCE bound: one of two views among those of so many pictures. Its ceiling is log K."""
SCALES = tuple(2.0**power for power in range(-1, 11))
"""Factors of the cosine, of which the critic of the bound takes the best."""


def settings_of(method: str, profile: str) -> Settings:
    """What a method is trained with: the winner of its search, or seconds of it at ``smoke``.

    Raises:
        MissingDataError: no search of the method is stored.
    """
    if profile == "smoke":
        overrides = {"keys.momentum": 0.99, "keys.predictor": 64} if method == "byol/byol" else {}
        return Settings().override(
            image_size=16,
            augmentation="mocov2",
            arch="tiny",
            stem="cifar",
            head="mlp",
            dim=32,
            train_images=256,
            test_images=256,
            epochs=2,
            batch_size=64,
            lr=0.05,
            schedule="cosine",
            milestones=[],
            knn_every=0,
            linear={"solver": "lbfgs", "features": "pooled"},
            overrides=overrides,
        )
    searched = "decoupled/simclr" if method == UNTRAINED else method
    path = shipped.folder("results") / "searches" / f"later-{searched.partition('/')[2]}.json"
    _, chosen = searches.winner(path)
    return Settings.model_validate(chosen)


def study(
    method: str,
    dataset: str,
    profile: str,
    seed: int,
    *,
    data_root: str | Path | None = None,
    log: Log = lambda line: None,
    **where: Any,
) -> Study:
    """One method with one seed, measured or read, in a file of its own; ``where``: of :func:`studies.measure`."""
    settings = settings_of(method, profile)
    splits = data.load(dataset, data_root)
    config = {
        "dataset": dataset,
        "data": fingerprint(splits),
        "method": method,
        "recipe": methods.get(method).override(settings.overrides).describe(),
        "settings": settings.model_dump(mode="json", exclude_defaults=True),
        "pairs": PAIRS,
        "batch": BATCH,
        "scales": list(SCALES),
        "seed": seed,
    }
    torch.set_num_threads(1)
    rows = partial(_rows, method, settings, splits, seed, log)
    return studies.measure(NAME, profile, config, rows, **where)


def _rows(method: str, settings: Settings, splits: Splits, seed: int, log: Log) -> list[Row]:
    recipe = methods.get(method).override(settings.overrides)
    trained, evaluation = probing.train(recipe, settings, splits, seed, cpu_fabric(settings.precision), log)
    accuracy = tasks.Linear.of(settings).score(trained.encoders, evaluation)["linear"]
    first, second = two_views(trained.encoders, splits, settings)
    row: Row = {"method": method, "seed": seed, "linear": accuracy.value, "test_images": accuracy.items}
    row["bound"] = bound(first, second)
    row |= spread(first, second[:, None])
    row["train_s"] = trained.seconds
    return [row]


@torch.no_grad()
def two_views(encoders: nn.ModuleList, splits: Splits, settings: Settings) -> tuple[Tensor, Tensor]:
    """Unit embeddings ``[N, d]`` of two views of the first test pictures, the same views for every encoder."""
    view = augmentation(settings.augmentation, settings.image_size)
    draws = torch.Generator().manual_seed(derive(0, "views of test pictures") % 2**31)
    encoder = encoders[0].eval()
    count = min(PAIRS, len(splits.test))
    embedded: list[list[Tensor]] = [[], []]
    for rows in torch.arange(count).split(BATCH):
        views = Augmented(2).make(splits.test.subset(rows).items, view, draws)
        for parts, pictures in zip(embedded, views, strict=True):
            parts.append(encoder(pictures))
    return torch.cat(embedded[0]), torch.cat(embedded[1])


def bound(first: Tensor, second: Tensor) -> float:
    """InfoNCE in nats between two views, ``[N, d]`` unit embeddings each, with the cosine as critic.

    The factor of the cosine is the best of :data:`SCALES` on the first half of the pairs; the bound is that of the
    second half, a mean over whole batches of :data:`BATCH`.
    """
    half = len(first) // 2
    size = min(BATCH, half)

    def nats(scale: float, rows: range) -> float:
        values = []
        for start in range(rows.start, rows.stop - size + 1, size):
            batch = slice(start, start + size)
            scores = scale * (first[batch].double() @ second[batch].double().T)
            values.append(float(bounds.info_nce(*bounds.pairs(scores))))
        return math.fsum(values) / len(values)

    best = max(SCALES, key=lambda scale: nats(scale, range(half)))
    return nats(best, range(half, 2 * half))


def table(roots: Sequence[Path | str] = shipped.RESULTS, profile: str = "laptop") -> pd.DataFrame:
    """A row for each method and seed that is stored, as :func:`study` measured it.

    Raises:
        MissingDataError: none is stored.
    """
    return studies.stored_rows(NAME, profile, roots, ["method", "seed"])


def summary(measured: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds and half-widths of their 95 % t intervals, a row for each method, in the order of METHODS.

    Args:
        measured: rows of :func:`table`.
    """
    order = [method for method in (UNTRAINED, *METHODS) if method in measured.index.get_level_values("method")]
    rows: list[dict[str, Any]] = []
    for method in order:
        runs = measured.loc[method]
        row: dict[str, Any] = {"method": method, "label": methods.get(method).label, "seeds": len(runs)}
        row["learns_from"] = METHODS.get(method, "nothing")
        for measure in MEASURES:
            estimate = inference.paired(runs[measure].tolist())
            row[measure] = estimate.mean
            row[f"{measure}_half_width"] = estimate.half_width
        rows.append(row)
    return pd.DataFrame(rows).set_index("method")


def gains(measured: pd.DataFrame, base: str = "decoupled/simclr") -> pd.DataFrame:
    """Differences to one method over paired seeds, with half-widths of 95 % t intervals; largest accuracy first.

    Args:
        measured: rows of :func:`table`.
        base: the method that the others are compared with.
    """
    measures = list(MEASURES)
    differences = measured[measures].sub(measured.loc[base][measures], level="seed").dropna()
    apart = summary(differences).drop(index=[base, UNTRAINED], errors="ignore")
    return apart.sort_values("linear", ascending=False)
