"""fmicl Table 7: the settings the paper prints beside those that its protocols here have, cell by cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import pandas as pd

from contrastlab import methods, papers
from contrastlab.methods import Recipe
from contrastlab.settings import Settings
from contrastlab.tasks import Neighbours

PLACES: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        "CIFAR-10": ("2", "cifar10", "fmicl/kl"),
        "STL-10": ("2", "stl10", "fmicl/kl"),
        "TinyImageNet": ("2", "tinyimagenet", "fmicl/kl"),
        "ImageNet": ("3", "imagenet", "fmicl/moco_v3_kl"),
        "Wikipedia": ("9", "wikipedia", "fmicl/sentences_kl_alpha409600"),
    }
)
"""Printed row to table, pre-training data and method of the protocol that has it."""

COLUMNS: Mapping[str, Callable[[Settings, Recipe], float]] = MappingProxyType(
    {
        "N batch": lambda settings, recipe: settings.batch_size,
        "d": lambda settings, recipe: settings.dim,
        "lr": lambda settings, recipe: settings.lr,
        "mu": lambda settings, recipe: recipe.objective.mu,  # type: ignore[attr-defined]
        "1/(2 sigma^2)": lambda settings, recipe: 1 / (2 * recipe.temperature),
        "alpha": lambda settings, recipe: recipe.objective.weight,  # type: ignore[attr-defined]
        "epoch": lambda settings, recipe: settings.epochs,
        "k (kNN)": lambda settings, recipe: Neighbours.of(settings).k,
    }
)
"""Printed column to what it is in a protocol."""

ARCHITECTURES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "ResNet-18": ("resnet18",),
        "ResNet-50": ("resnet50",),
        "ViT-S": ("vit_small_6",),
        "BERT-base": ("bert-base-uncased",),
    }
)
"""Printed encoder to the names it has here; fmicl §4.1 says that its ViT-S has 6 blocks."""

DIFFERENT: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("ImageNet", "lr"): "AdamW takes no steps of 0.1; MoCo v3's own rate for this batch is taken",
    }
)
"""Cells that a protocol cannot take as they are printed, and why."""


def table() -> pd.DataFrame:
    """A line for each printed number: ``data``, ``setting``, ``printed``, ``protocol``, ``equal``, ``why``."""
    numbers = papers.published("fmicl", 7)
    rows = []
    for data, column, value, note in numbers[["row", "column", "value", "note"]].itertuples(index=False):
        number, dataset, method = PLACES[data]
        settings = papers.plan("fmicl", number).settings(dataset, method)
        here = COLUMNS[column](settings, methods.get(method).override(settings.overrides))
        equal = abs(here - value) <= 1e-9 * abs(value)
        rows.append((data, note.removeprefix("arch "), column, value, here, equal, DIFFERENT.get((data, column), "")))
    return pd.DataFrame(rows, columns=["data", "encoder", "setting", "printed", "protocol", "equal", "why"])


def encoder(data: str) -> str:
    """The encoder that the protocol of a printed row has."""
    number, dataset, method = PLACES[data]
    settings = papers.plan("fmicl", number).settings(dataset, method)
    return settings.text.model or settings.arch
