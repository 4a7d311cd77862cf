"""How near and how far negatives may lie: rings with many pairs of edges, trained on the features of a frozen network.

:func:`study` trains one ring with one seed. :func:`table` reads what is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from contrastbook import studies
from contrastbook.studies import Row, Study, probing
from contrastlab import data, methods, papers, tasks
from contrastlab.data import Splits
from contrastlab.methods import Recipe
from contrastlab.negatives import Ball, Ring, Uniform
from contrastlab.pictures.items import fingerprint
from contrastlab.pictures.representations import own_class_share
from contrastlab.settings import Settings
from contrastlab.support import shipped
from contrastlab.train import cpu_fabric
from contrastlab.train.loop import Log

NAME = "ring_edges"
METHOD = "ring/iring_noanneal"
"""IRing with edges that stay where they are."""
OUTER = (5, 10, 25, 50, 100)
INNER = (0, 1, 2, 5, 10)
EDGES = (
    *((0, outer) for outer in OUTER),
    *((1, outer) for outer in OUTER),
    *((inner, 25) for inner in INNER[2:]),
)
"""Inner and outer edges, in percent of the keys: balls, rings from 1 %, and rings that end at 25 %."""
SHARES = (1, 2, 5, 10, 25, 50)
"""Percent of the keys in which the share of the query's class is counted."""


def recipe_of(inner: int, outer: int) -> Recipe:
    """IR with negatives between two edges, in percent of the keys; from 0 to 100 they are uniform."""
    negatives: Uniform | Ball | Ring
    if (inner, outer) == (0, 100):
        negatives = Uniform(4095)
    elif inner == 0:
        negatives = Ball(outer, k=4095)
    else:
        negatives = Ring(inner, outer, k=4095)
    return replace(methods.get(METHOD), negatives=negatives)


def study(
    inner: int,
    outer: int,
    dataset: str,
    profile: str,
    seed: int,
    *,
    data_root: str | Path | None = None,
    log: Log = lambda line: None,
    **where: Any,
) -> Study:
    """One ring with one seed, measured or read, in a file of its own; ``where``: of :func:`studies.measure`.

    The row has the linear accuracy in percent and, of the training items under the trained encoder, the share of the
    query's class among the closest 1, 2, 5, … percent, in percent as well.
    """
    settings = papers.plan("ring", "2").settings(dataset, METHOD, profile)
    splits = data.load(dataset, data_root).limited(settings.train_images, settings.test_images)
    recipe = recipe_of(inner, outer).override(settings.overrides)
    config = {
        "dataset": dataset,
        "data": fingerprint(splits),
        "edges": [inner, outer],
        "recipe": recipe.describe(),
        "settings": settings.model_dump(mode="json", exclude_defaults=True),
        "shares": list(SHARES),
        "seed": seed,
    }
    torch.set_num_threads(1)
    rows = partial(_rows, inner, outer, recipe, settings, splits, seed, log)
    return studies.measure(NAME, profile, config, rows, **where)


def _rows(inner: int, outer: int, recipe: Recipe, settings: Settings, splits: Splits, seed: int, log: Log) -> list[Row]:
    trained, evaluation = probing.train(recipe, settings, splits, seed, cpu_fabric(settings.precision), log)
    accuracy = tasks.Linear.of(settings).score(trained.encoders, evaluation)["linear"]
    embeddings, labels = tasks.encode(trained.encoders, recipe.views, evaluation.augmentation, splits.train)
    row: Row = {"inner": inner, "outer": outer, "seed": seed, "linear": accuracy.value, "test_items": accuracy.items}
    for percent in SHARES:
        row[f"own_class_{percent}"] = own_class_share(embeddings, labels, percent=percent)
    row["train_s"] = trained.seconds
    return [row]


def table(roots: Sequence[Path | str] = shipped.RESULTS, profile: str = "features") -> pd.DataFrame:
    """A row for each pair of edges and seed that is stored, as :func:`study` measured it.

    Raises:
        MissingDataError: none is stored.
    """
    return studies.stored_rows(NAME, profile, roots, ["inner", "outer", "seed"])
