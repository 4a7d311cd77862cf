"""Crosses of the papers' choices: which exist, and what some that no paper tried are worth beside their parents.

:func:`grid` tries all combinations of one example of each kind of choice; :data:`CROSSES` are a few that nobody tried,
:func:`run` trains one of them, or a parent, under one protocol that is the same for all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from contrastbook.studies import Row, Study, measure, probing
from contrastlab import data, methods, papers, tasks
from contrastlab.keys import Bank, InBatch, Queue
from contrastlab.methods import Recipe, get
from contrastlab.negatives import Ball, Cave, Every, Ring, Uniform
from contrastlab.objectives import FMICL, AlignUniform, BinaryNCE, InfoNCE, LocalAggregation, Spectral
from contrastlab.pictures.items import fingerprint
from contrastlab.positives import Joint, Many, Neighbours, One, SameCluster
from contrastlab.scores.schedules import Linear
from contrastlab.settings import Settings
from contrastlab.support.errors import NotApplicableError, unknown
from contrastlab.train import cpu_fabric
from contrastlab.train.loop import Log
from contrastlab.views import Augmented, Split

REFERENCES = ("ours/random", "ours/random_lab")
METRICS = ("linear", "knn200")


@dataclass(frozen=True)
class Cross:
    """A combination that no paper tried."""

    recipe: Recipe
    parents: tuple[str, ...]
    asks: str


def _cross(base: str, name: str, label: str, asks: str, parents: tuple[str, ...], **changes: Any) -> Cross:
    return Cross(replace(get(base), name=f"crosses/{name}", label=label, note="", **changes), parents, asks)


_ROWS = (
    _cross(
        base="jcl/jcl",
        name="jcl_ring",
        label="JCL × Ring",
        asks="Do hard negatives add to many positives?",
        parents=("jcl/jcl", "ring/mocoring_v2"),
        negatives=Ring(1, Linear(100, 10, until=0.5), k=None),
    ),
    _cross(
        base="fmicl/js",
        name="js_queue",
        label="f-MICL (JS) × queue",
        asks="Does a bounded divergence need the batch?",
        parents=("fmicl/js", "ring/moco_v2"),
        keys=Queue(),
    ),
    _cross(
        base="fmicl/kl",
        name="kl_bank_ball",
        label="f-MICL (KL) × bank × Ball",
        asks="Do hard negatives help an objective that averages over pairs?",
        parents=("fmicl/kl", "vince/ball"),
        views=Augmented(1),
        keys=Bank(0.5),
        negatives=Ball(10, k=4095),
    ),
    _cross(
        base="jcl/jcl",
        name="cmc_jcl",
        label="CMC × JCL",
        asks="Does the expectation over keys work across colour spaces?",
        parents=("ring/cmc", "jcl/jcl"),
        views=Split("lab", 6),
    ),
    _cross(
        base="ring/simclr",
        name="simclr_ball",
        label="SimCLR × Ball",
        asks="Are the closest images of a batch hard enough?",
        parents=("ring/simclr", "vince/ball"),
        negatives=Ball(10, k=None),
    ),
)
CROSSES: dict[str, Cross] = {cross.recipe.name: cross for cross in _ROWS}


def recipe_of(name: str) -> Recipe:
    """A cross (``"jcl_ring"`` or in full) or a published method."""
    for full in (name, f"crosses/{name}"):
        if full in CROSSES:
            return CROSSES[full].recipe
    if name.startswith("crosses/"):
        raise unknown("cross", name, CROSSES)
    return get(name)


def floor(name: str) -> str:
    """The random encoder that a method is compared with: two random ones for a method with two."""
    return REFERENCES[len(recipe_of(name).views.streams) - 1]


CHOICES: dict[str, dict[str, Any]] = {
    "views": {"augmented": Augmented(), "L and ab": Split()},
    "keys": {"bank": Bank(), "queue": Queue(), "batch": InBatch()},
    "negatives": {
        "every": Every(),
        "uniform": Uniform(),
        "ball": Ball(10, k=None),
        "ring": Ring(1, 10, k=None),
        "cave": Cave(),
    },
    "positives": {
        "one": One(),
        "neighbours": Neighbours(),
        "cluster": SameCluster(),
        "many": Many(),
        "joint": Joint(),
    },
    "objective": {
        "InfoNCE": InfoNCE(),
        "logistic": BinaryNCE(),
        "LA": LocalAggregation(),
        "f-MICL": FMICL(),
        "align + uniform": AlignUniform(),
        "spectral": Spectral(),
    },
}
"""One example of each kind of each choice; :func:`grid` takes as many views as keys and positives ask for."""


def _kinds(recipe: Recipe) -> tuple[str, ...] | None:
    """The kind of each part of a recipe, as :data:`CHOICES` names it; ``None`` if one is of no kind there.

    So are the parts of untrained encoders and of prototypes.
    """
    kinds = []
    for choice, part in recipe.choices().items():
        examples = CHOICES[choice]
        of_this_type = [name for name, example in examples.items() if type(example) is type(part)]
        if not of_this_type:
            return None
        kinds.append(of_this_type[0])
    return tuple(kinds)


def _published_methods() -> list[str]:
    """Methods that a paper has in a table, in the order of the catalogue."""
    published: set[str] = set()
    for name in papers.plans():
        rows = papers.plan(*name).rows
        published.update(method for method, label in rows.items() if label)
    return [name for name in methods.names() if name in published]


def _recipe_of(parts: Mapping[str, Any]) -> Recipe:
    """The recipe of some parts, with as many views as its keys and positives ask for; refused if there is none."""
    views = parts["views"]
    count = parts["keys"].views_needed(len(views.streams), parts["positives"].further_keys)
    return Recipe("x", "x", **{**parts, "views": replace(views, count=count)}, temperature=0.5)


def grid() -> pd.DataFrame:
    """Every combination of :data:`CHOICES`, tried: its recipe, or the ``reason`` why it cannot exist.

    ``tried`` are the methods of these kinds that a paper has in a table.
    """
    tried: dict[tuple[str, ...] | None, list[str]] = {}
    for name in _published_methods():
        tried.setdefault(_kinds(get(name)), []).append(name)
    rows = []
    for kinds in product(*CHOICES.values()):
        parts = {choice: CHOICES[choice][kind] for choice, kind in zip(CHOICES, kinds, strict=True)}
        recipe = None
        reason = ""
        try:
            recipe = _recipe_of(parts)
        except NotApplicableError as error:
            reason = _without_arguments(error.reason)
        rows.append((*kinds, recipe, reason, tried.get(kinds, [])))
    frame = pd.DataFrame(rows, columns=[*CHOICES, "recipe", "reason", "tried"])
    return frame.assign(exists=frame["reason"] == "", published=frame["tried"].map(bool))


def _without_arguments(reason: str) -> str:
    """A reason that names kinds of parts, ``Many`` in place of ``Many(count=5)``."""
    return re.sub(r"\b(\w+)\([^()]*\)", r"\1", reason)


def protocol(dataset: str, profile: str) -> Settings:
    """Settings that crosses and parents share: those of ring Table 5(d), SimCLR; fewer steps at smoke."""
    settings = papers.plan("ring", "5d").settings(dataset, "ring/simclr", profile)
    if profile == "smoke":
        return settings.override(
            batch_size=64,
            knn_every=0,
            overrides={"keys.size": 512, "keys.momentum": 0.99, "keys.shuffle_groups": 2, "negatives.k": 127},
        )
    overrides = {"keys.shuffle_groups": 4} if profile == "laptop" else {}
    return settings.override(knn_every=0, overrides=overrides)


def run(
    name: str,
    dataset: str,
    profile: str,
    seed: int,
    *,
    data_root: str | Path | None = None,
    log: Log = lambda line: None,
) -> list[Row]:
    """One row: a cross or a parent trained and probed, ``linear`` and ``knn200`` in percent of test images."""
    settings = protocol(dataset, profile)
    recipe = recipe_of(name).override(settings.overrides)
    splits = data.load(dataset, data_root)
    recipe.views.channels(splits.pretrain.channels)
    trained, evaluation = probing.train(recipe, settings, splits, seed, cpu_fabric(), log)
    linear = tasks.Linear.of(settings).score(trained.encoders, evaluation)["linear"]
    neighbours = tasks.Neighbours.of(settings).score(trained.encoders, evaluation)["knn200"]
    row: Row = {
        "name": recipe.name,
        "seed": seed,
        "linear": linear.value,
        "knn200": neighbours.value,
        "loss": trained.history[-1]["loss"] if trained.history else None,
        "train_s": trained.seconds,
        "test_images": linear.items,
    }
    return [row]


def study(
    name: str,
    dataset: str,
    profile: str,
    seed: int,
    *,
    data_root: str | Path | None = None,
    log: Log = lambda line: None,
    **where: Any,
) -> Study:
    """:func:`run`, stored: one file for each name and seed; ``where``: of :func:`contrastbook.studies.measure`."""
    settings = protocol(dataset, profile)
    config = {
        "dataset": dataset,
        "data": fingerprint(data.load(dataset, data_root)),
        "recipe": recipe_of(name).override(settings.overrides).describe(),
        "settings": settings.model_dump(mode="json"),
        "seed": seed,
    }
    torch.set_num_threads(1)
    rows = partial(run, name, dataset, profile, seed, data_root=data_root, log=log)
    return measure("crosses", profile, config, rows, **where)


def objections(grid: pd.DataFrame) -> pd.DataFrame:
    """Why combinations of :func:`grid` cannot exist: their first objection, how many have it, an example."""
    groups = grid[~grid["exists"]].groupby("reason")
    example = groups.first()[list(CHOICES)].agg(" × ".join, axis=1)
    frame = pd.DataFrame({"combinations": groups.size(), "for example": example})
    return frame.sort_values("combinations", ascending=False).rename_axis("because")


def states(grid: pd.DataFrame) -> pd.DataFrame:
    """The grid as a picture: 0 cannot exist, 1 exists, 2 is published; positives and objectives across."""
    row = grid[["views", "keys", "negatives"]].agg(", ".join, axis=1)
    column = grid[["positives", "objective"]].agg(", ".join, axis=1)
    frame = pd.DataFrame({"row": row, "column": column, "state": grid["exists"] * 1 + grid["published"]})
    return frame.pivot_table(index="row", columns="column", values="state", sort=False)


def chosen(rows: str) -> dict[str, Cross]:
    """Full name to cross, from ``"all"`` or ``"jcl_ring,cmc_jcl"``."""
    if rows == "all":
        return dict(CROSSES)
    names = [recipe_of(f"crosses/{name.strip()}").name for name in rows.split(",")]
    return {name: CROSSES[name] for name in names}


def measured(
    wanted: Mapping[str, Cross], dataset: str, profile: str, seeds: Sequence[int], **where: Any
) -> tuple[pd.DataFrame, dict[str, str]]:
    """Every cross of :func:`chosen`, its parents and their random encoders, read or run; ``where``: of :func:`study`.

    Returns rows of :func:`run` by name and seed, and what cannot exist on these data, with the reason.
    """
    floors: list[str] = []
    trained: list[str] = []
    for name, cross in wanted.items():
        floors += [floor(each) for each in (name, *cross.parents)]
        trained += [*cross.parents, name]
    names = dict.fromkeys([*floors, *trained])  # each once, the quick ones first
    rows, missing = [], {}
    for seed, name in product(seeds, names):
        try:
            rows += study(name, dataset, profile, seed, **where).rows
        except NotApplicableError as reason:
            missing[name] = str(reason)
    return pd.DataFrame(rows).set_index(["name", "seed"]).sort_index(), missing


def mean(runs: pd.DataFrame, name: str, metric: str) -> float:
    """Mean over seeds; NaN where nothing was run."""
    return float(runs[metric][runs.index.get_level_values("name") == name].mean())


def family(runs: pd.DataFrame, wanted: Mapping[str, Cross]) -> pd.DataFrame:
    """Each cross with its parents and its random encoder: accuracies in percent, and points above random."""
    rows = []
    for child, cross in wanted.items():
        roles = [(child, "child"), *((parent, "parent") for parent in cross.parents), (floor(child), "random")]
        for name, role in roles:
            row: dict[str, Any] = {"cross": recipe_of(child).label, "role": role, "method": recipe_of(name).label}
            for metric in METRICS:
                row[metric] = mean(runs, name, metric)
            for metric in METRICS:
                row[f"{metric} − random"] = row[metric] - mean(runs, floor(name), metric)
            rows.append(row)
    return pd.DataFrame(rows).set_index(["cross", "role", "method"])
