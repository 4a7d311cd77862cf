"""Crosses of the papers' choices: which exist, and what some that no paper tried are worth beside their parents.

A recipe is five choices (views, keys, negatives, positives, objective). :func:`grid` tries all combinations of one
example of each kind; :data:`CROSSES` are a few that nobody tried, :func:`run` trains one of them, or a parent, under
one protocol that is the same for all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch

from contrastbook.studies import Row, Study, measure
from contrastlab import data, methods, papers, reproduce, tasks
from contrastlab.data.augmentations import augmentation
from contrastlab.errors import NotApplicableError, unknown
from contrastlab.keys import Bank, InBatch, Queue
from contrastlab.methods import Recipe, get
from contrastlab.negatives import Ball, Cave, Every, Ring, Uniform
from contrastlab.objectives import FMICL, AlignUniform, BinaryNCE, InfoNCE, LocalAggregation, Spectral
from contrastlab.positives import Joint, Many, Neighbours, One, SameCluster
from contrastlab.pretrain import cpu_fabric, pretrain
from contrastlab.pretrain.loop import Log
from contrastlab.schedules import Linear
from contrastlab.seeds import derive
from contrastlab.settings import Settings
from contrastlab.views import Augmented, Split

__all__ = [
    "CHOICES",
    "CROSSES",
    "REFERENCES",
    "Cell",
    "Cross",
    "floor",
    "grid",
    "protocol",
    "recipe_of",
    "run",
    "study",
]

REFERENCES = ("ours/random", "ours/random_lab")


@dataclass(frozen=True)
class Cross:
    """A combination that no paper tried.

    Args:
        recipe: the method.
        parents: recipes it has its choices from.
        asks: what it could show.
    """

    recipe: Recipe
    parents: tuple[str, ...]
    asks: str


def _crosses() -> Iterator[Cross]:
    annealed = Linear(100, 10, until=0.5)
    jcl, js, kl = get("jcl/jcl"), get("fmicl/js"), get("fmicl/kl")
    yield Cross(
        replace(jcl, name="crosses/jcl_ring", label="JCL × Ring", negatives=Ring(1, annealed, k=None), note=""),
        ("jcl/jcl", "ring/mocoring_v2"),
        "Do hard negatives add to many positives?",
    )
    yield Cross(
        replace(js, name="crosses/js_queue", label="f-MICL (JS) × queue", keys=Queue(), note=""),
        ("fmicl/js", "ring/moco_v2"),
        "Does a bounded divergence need the batch?",
    )
    yield Cross(
        replace(
            kl, name="crosses/kl_bank_ball", label="f-MICL (KL) × bank × Ball", views=Augmented(1), keys=Bank(0.5),
            negatives=Ball(10, k=4095), note="",
        ),
        ("fmicl/kl", "vince/ball"),
        "Do hard negatives help an objective that averages over pairs?",
    )  # fmt: skip
    yield Cross(
        replace(jcl, name="crosses/cmc_jcl", label="CMC × JCL", views=Split("lab", 6), note=""),
        ("ring/cmc", "jcl/jcl"),
        "Does the expectation over keys work across colour spaces?",
    )
    yield Cross(
        replace(
            get("ring/simclr"), name="crosses/simclr_ball", label="SimCLR × Ball", negatives=Ball(10, k=None), note=""
        ),
        ("ring/simclr", "vince/ball"),
        "Are the closest images of a batch hard enough?",
    )


CROSSES: dict[str, Cross] = {cross.recipe.name: cross for cross in _crosses()}


def recipe_of(name: str) -> Recipe:
    """A cross (``"jcl_ring"`` or in full) or a published method.

    Raises:
        UnknownNameError: with near matches.
    """
    for full in (name, f"crosses/{name}"):
        if full in CROSSES:
            return CROSSES[full].recipe
    if name.startswith("crosses/"):
        raise unknown("cross", name, CROSSES)
    return get(name)


def floor(name: str) -> str:
    """The random encoder that a method is read against: two random ones for a method with two."""
    return REFERENCES[len(recipe_of(name).views.streams) - 1]


# ---------------------------------------------------------------------------------------------------------------
# The grid

CHOICES: dict[str, dict[str, Any]] = {
    "views": {"augmented": Augmented(), "L and ab": Split()},
    "keys": {"bank": Bank(), "queue": Queue(), "batch": InBatch()},
    "negatives": {
        "every": Every(), "uniform": Uniform(), "ball": Ball(10, k=None), "ring": Ring(1, 10, k=None), "cave": Cave(),
    },
    "positives": {"one": One(), "neighbours": Neighbours(), "cluster": SameCluster(), "many": Many(), "joint": Joint()},
    "objective": {
        "InfoNCE": InfoNCE(), "logistic": BinaryNCE(), "LA": LocalAggregation(), "f-MICL": FMICL(),
        "align + uniform": AlignUniform(), "spectral": Spectral(),
    },
}  # fmt: skip
"""One example of each kind of each choice; views are taken as many as keys and positives ask for."""


@dataclass(frozen=True)
class Cell:
    """A combination of the grid.

    Args:
        choices: views, keys, negatives, positives, objective, by their names in :data:`CHOICES`.
        recipe: the method, ``None`` where it cannot exist.
        reason: why not.
        tried: methods of these kinds that a paper prints in a table.
    """

    choices: tuple[str, ...]
    recipe: Recipe | None
    reason: str
    tried: tuple[str, ...]


def _views(kind: str, keys: Any, positives: Any) -> Augmented | Split:
    example: Augmented | Split = CHOICES["views"][kind]
    return replace(example, count=keys.views_needed(len(example.streams), positives.further_keys))


def _kinds(recipe: Recipe) -> tuple[str, ...] | None:
    kinds = []
    for choice, part in recipe.choices().items():
        kinds += [name for name, example in CHOICES[choice].items() if type(example) is type(part)]
    return tuple(kinds) if len(kinds) == len(CHOICES) else None  # untrained encoders and prototypes are of no kind


def grid() -> list[Cell]:
    """Every combination of :data:`CHOICES`, tried."""
    tried: dict[tuple[str, ...], list[str]] = {}
    printed = {name for each in papers.plans() for name, label in papers.plan(*each).rows.items() if label}
    for name in methods.names():
        kinds = _kinds(get(name))
        if kinds is not None and name in printed:
            tried.setdefault(kinds, []).append(name)
    cells = []
    for choices in product(*CHOICES.values()):
        keys, negatives, positives, objective = (
            CHOICES[part][name] for part, name in zip(list(CHOICES)[1:], choices[1:], strict=True)
        )
        views = _views(choices[0], keys, positives)
        recipe, reason = None, ""
        try:
            recipe = Recipe("x", "x", views, keys, negatives, positives, objective, 0.5)
        except NotApplicableError as error:
            reason = _general(str(error))
        cells.append(Cell(choices, recipe, reason, tuple(tried.get(choices, ()))))
    return cells


def _general(message: str) -> str:
    """The reason without the name and the values of one combination."""
    message = message.removeprefix("x: ")
    message = re.sub(r"; (given( is)?:? .*|with objective=.*|keys=(?=\w+\().*)$", "", message)
    return re.sub(r"\b(\w+)\([^()]*\)", r"\1", message)


# ---------------------------------------------------------------------------------------------------------------
# One protocol


def protocol(dataset: str, profile: str) -> Settings:
    """Settings that crosses and parents share: those of ring Table 5(d), SimCLR, in the profile; fewer steps at smoke.

    Raises:
        UnknownNameError: an unknown profile.
    """
    settings = papers.plan("ring", "5d").settings(dataset, "ring/simclr", profile)
    if profile == "smoke":
        return settings.override(
            train_images=1000, test_images=1000, epochs=3, batch_size=64, knn_every=0,
            overrides={"keys.size": 512, "keys.momentum": 0.99, "keys.shuffle_groups": 2, "negatives.k": 127},
        )  # fmt: skip
    overrides = {"keys.shuffle_groups": 4} if profile == "laptop" else {}
    return settings.override(knn_every=0, overrides=overrides)


def _trained(recipe: Recipe, settings: Settings, splits: data.Splits, seed: int, log: Log) -> list[Row]:
    done = pretrain(recipe, settings, splits.pretrain, seed=seed, fabric=cpu_fabric(), log=log)
    view = augmentation(settings.augmentation, settings.image_size)
    setting = tasks.Setting(recipe.views, view, splits, seed=derive(seed, "probe") % 2**31)
    measured: dict[str, tasks.Measured] = {}
    for task in (tasks.Linear.of(settings), tasks.Neighbours.of(settings)):
        measured |= task.score(done.encoders, setting)
    return [
        {
            "name": recipe.name,
            "seed": seed,
            "linear": measured["linear"].value,
            "knn200": measured["knn200"].value,
            "loss": done.history[-1]["loss"] if done.history else None,
            "train_s": done.seconds,
            "test_images": measured["linear"].items,
        }
    ]


def run(
    name: str, dataset: str, profile: str, seed: int, *, data_root: str | Path | None = None,
    log: Log = lambda line: None,
) -> list[Row]:  # fmt: skip
    """One row: a cross or a parent trained and probed, ``linear`` and ``knn200`` in percent of test images.

    Args:
        name: see :func:`recipe_of`.
        dataset: name in :func:`contrastlab.data.names`.
        profile: ``smoke``, ``laptop`` or ``paper``.
        seed: of weights, order, augmentation, draws and probe.
        data_root: where data sets lie.
        log: takes lines of progress.

    Raises:
        NotApplicableError: L and ab of grey images.
    """
    settings = protocol(dataset, profile)
    recipe = recipe_of(name).override(settings.overrides)
    splits = data.load(dataset, data_root)
    recipe.views.channels(splits.pretrain.channels)
    return _trained(recipe, settings, splits, seed, log)


def study(
    name: str, dataset: str, profile: str, seed: int, *, out_dir: Path | str, read_also: Sequence[Path | str] = (),
    data_root: str | Path | None = None, log: Log = lambda line: None,
) -> Study:  # fmt: skip
    """:func:`run`, stored: one file for each name and seed."""
    settings = protocol(dataset, profile)
    recipe = recipe_of(name).override(settings.overrides)
    config = {
        "dataset": dataset,
        "data": reproduce.fingerprint(data.load(dataset, data_root)),
        "recipe": recipe.describe(),
        "settings": settings.model_dump(mode="json"),
        "seed": seed,
    }
    torch.set_num_threads(1)

    def rows() -> list[Row]:
        return run(name, dataset, profile, seed, data_root=data_root, log=log)

    return measure("crosses", profile, config, rows, out_dir=out_dir, read_also=read_also)
