"""What must not change while the code is rearranged, as ``tests/golden.json`` keeps it.

``python tests/golden.py --write`` stores today's values again, on purpose: data sets that are not on this machine keep
theirs. ``python tests/golden.py --add`` stores recipes, results with their data sets, and profiles of tables that the
file does not have yet, and changes no value of it.
``python tests/golden.py --bits FILE`` writes every loss and every tensor of the recipes without rounding; two
such files of one machine, of before and after a change, have to be equal.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from contrastbook.made import rooms
from contrastlab import data, methods, papers
from contrastlab.data import ImageSet
from contrastlab.domains.clips.views import Flow, Frames
from contrastlab.domains.scenes.data import SceneSet
from contrastlab.domains.scenes.views import Channels
from contrastlab.domains.text.views import Captions
from contrastlab.keys import Locations
from contrastlab.methods import CHOICES, Recipe
from contrastlab.pictures.items import UnlabelledSplits, fingerprint
from contrastlab.recipe import build, types_of
from contrastlab.settings import Settings
from contrastlab.support.errors import ContrastLabError, MissingDataError, NotApplicableError
from contrastlab.tables import results
from contrastlab.tables.replays import RENAMED
from contrastlab.tables.runs import Run
from contrastlab.train import checkpoint, pretrain
from contrastlab.views import Dropout

ROOT = Path(__file__).parents[1]
FILE = Path(__file__).with_suffix(".json")
CELLS = ROOT / "results" / "cells"

BUNDLED = ("digits",)
SLOW_TO_MAKE = (
    "captions", "clips", "rooms", "silhouettes_1200", "silhouettes_keypoints", "silhouettes_lvis", "voices",
)  # fmt: skip
"""Generated data sets that take two seconds or more. Two steps of a recipe hold the first items of ``captions``,
``clips``, ``rooms`` and ``voices``, too."""

FOLD = 31
"""Counts of chosen keys are kept for the key's number modulo this."""


# data sets


def generated() -> tuple[str, ...]:
    """Names of the data sets that every machine has."""
    here = [name for name in data.names() if name not in data.SOURCES]
    return (*BUNDLED, *here)


@dataclass(frozen=True)
class DataSet:
    """What hashes read of a data set."""

    whole: str  #: fingerprint of all its parts
    pretrain: str  #: fingerprint of what is pre-trained on
    channels: int


def data_set(name: str) -> DataSet:
    """Its fingerprints; a ``MissingDataError`` where it is not on this machine."""
    splits = data.load(name, download=False)
    return DataSet(fingerprint(splits), splits.pretrain.fingerprint, splits.pretrain.channels)


# stored results and the runs behind them


@dataclass(frozen=True)
class Described:
    """A data set of which only the fingerprint is known: enough for the hash of a run."""

    name: str
    fingerprint: str
    channels: int

    def __len__(self) -> int:
        return 1


def recipe_of(result: results.Result) -> Recipe:
    """The recipe that a stored description says."""
    return _recipe(result.method, json.dumps(result.recipe))


@cache
def _recipe(method: str, description: str) -> Recipe:
    """The recipe of a description in JSON, which many results share."""
    stored = json.loads(description)
    parts: dict[str, Any] = {}
    for choice in CHOICES:
        described = stored[choice]
        parts[choice] = None if described is None else build(choice, described, types_of(choice))
    return Recipe(method, "", temperature=stored["temperature"], **parts)


def run_hash(result: results.Result, source: DataSet) -> str:
    """Hash of the run that a stored result scored."""
    stored = Settings.model_validate(result.settings)
    overrides = {RENAMED.get(name, name): value for name, value in stored.overrides.items()}
    settings = stored.model_copy(update={"overrides": overrides})
    items = Described(result.dataset, source.pretrain, source.channels)
    splits = UnlabelledSplits(result.dataset, items, "")
    return Run(recipe_of(result), settings, splits, result.seed).hash


def stored_result(path: Path, sources: dict[str, DataSet]) -> str:
    """Hashes of a result, of its setup and of its run, 16 digits each."""
    result = results.read(path)
    hashes = [result.config_hash, result.setup_hash]
    if not result.method.startswith(results.FOREIGN):
        hashes.append(run_hash(result, sources[result.dataset]))
    return " ".join(each[:16] for each in hashes)


# protocols of all tables


def table_setups(paper: str, table: str) -> dict[str, str]:
    """A digest for each profile of a table: the hashes of what decides the number of every cell."""
    plan = papers.plan(paper, table)
    digests: dict[str, str] = {}
    for profile in plan.profiles:
        setups: dict[str, str] = {}
        for name, column in plan.columns.items():
            for method in (*plan.rows, *plan.references):
                try:
                    setups[f"{name} {method}"] = plan.setup_hash(column, method, profile)
                except NotApplicableError:
                    setups[f"{name} {method}"] = "not applicable"
        digests[profile] = results.digest(setups)[:16]
    return digests


# two steps of every recipe

PICTURES = Settings(
    image_size=16, arch="tiny", stem="cifar", dim=16, epochs=2, batch_size=32, milestones=(), knn_every=0
)
SCENES = Settings(
    image_size=32, arch="scene", width=0.03125, dim=8, augmentation="cmc", optimiser={"name": "adam"}, lr=1e-3,
    epochs=2, batch_size=8, milestones=(), knn_every=0,
)  # fmt: skip
SENTENCES = Settings(
    dim=16, text={"width": 16, "vocabulary": 256}, optimiser={"name": "adam"}, lr=1e-3, epochs=2, batch_size=32,
    milestones=(), knn_every=0,
)  # fmt: skip
PATCHES = PICTURES.override(image_size=32, arch="half_alexnet64", width=0.125, dim=12)
VOICES = PICTURES.override(
    speech={
        "rate": 8000, "window": 128, "hop": 64, "mels": 8, "mean": -40.0, "std": 20.0, "frequency_mask": 3,
        "time_mask": 5,
    }
)  # fmt: skip
CAPTIONS = PICTURES.override(text={"width": 16, "vocabulary": 256}, optimiser={"name": "adam"}, lr=1e-3)
SETTINGS = {
    "pictures": PICTURES, "scenes": SCENES, "grammar": SENTENCES, "captions": CAPTIONS, "clips": PICTURES,
    "voices": VOICES,
}  # fmt: skip
SMALL = {
    "keys.size": 40, "negatives.k": 16, "negatives.nearest": 16, "negatives.clusters": 4, "negatives.runs": 2,
    "positives.clusters": 4, "positives.runs": 2, "views.distance": 0,
}  # fmt: skip

EXTRA = {"voices ring/iring": ("voices", "ring/iring"), "voices fmicl/kl": ("voices", "fmicl/kl")}
"""Recipes of pictures on other data."""


@cache
def items(kind: str) -> Any:
    """32 items of a modality, or 8 scenes."""
    if kind == "pictures":
        generator = torch.Generator().manual_seed(0)
        pixels = torch.randint(0, 256, (32, 3, 16, 16), generator=generator).to(torch.uint8)
        return ImageSet("pictures", pixels, torch.arange(32) % 2, ("even", "odd"))
    if kind == "scenes":
        scenes, classes = rooms.render(torch.arange(8), height=40, width=48)
        return SceneSet("few", scenes, classes, rooms.KINDS, rooms.CLASSES)
    return data.load(kind, n_train=32, n_test=8).pretrain


def kind_of(recipe: Recipe) -> str:
    """The modality that a recipe is for."""
    if isinstance(recipe.views, Channels):
        return "scenes"
    if isinstance(recipe.views, Dropout):
        return "grammar"
    if isinstance(recipe.views, Captions):
        return "captions"
    if isinstance(recipe.views, Flow | Frames):
        return "clips"
    return "pictures"


def experiments() -> dict[str, tuple[str, str]]:
    """Name of an experiment to the kind of its items and its recipe."""
    own = {name: (kind_of(methods.get(name)), name) for name in methods.names()}
    return {**own, **EXTRA}


def chosen_counts(chosen: Any, shape: tuple[int, int]) -> Tensor:
    """How often each of N keys was chosen by B queries, int64 ``[N]``."""
    queries, keys = shape
    if chosen.indices is None:
        taken = torch.ones(queries, keys, dtype=torch.int64)
        if chosen.columns is not None:
            taken.scatter_(1, chosen.columns, 0)
        if chosen.absent is not None:
            taken[chosen.absent] = 0
        return taken.sum(0)
    weights = torch.ones_like(chosen.indices)
    if chosen.absent is not None:
        weights[chosen.absent] = 0
    return torch.zeros(keys, dtype=torch.int64).scatter_add_(0, chosen.indices.flatten(), weights.flatten())


@dataclass
class Watched:
    """Counts of the keys that negatives and positives chose, over all steps and directions."""

    negatives: Tensor = field(default_factory=lambda: torch.zeros(FOLD, dtype=torch.int64))
    positives: Tensor = field(default_factory=lambda: torch.zeros(FOLD, dtype=torch.int64))

    def add(self, choice: str, chosen: Any, shape: tuple[int, int]) -> None:
        """Count what a part chose of the keys."""
        counts = chosen_counts(chosen, shape)
        numbers = torch.arange(len(counts)) % FOLD
        getattr(self, choice).scatter_add_(0, numbers, counts)


@contextmanager
def watching(recipe: Recipe) -> Iterator[Watched]:
    """Count what the parts of a recipe choose meanwhile."""
    seen = Watched()
    before: list[tuple[type, Callable[..., Any]]] = []
    for choice in ("negatives", "positives"):
        kind = type(getattr(recipe, choice))
        holder = next(each for each in kind.__mro__ if "select" in vars(each))
        select = vars(holder)["select"]

        def watched(part: Any, candidates: Any, *arguments: Any, _select: Any = select, _choice: str = choice) -> Any:
            chosen = _select(part, candidates, *arguments)
            if chosen is not None:
                seen.add(_choice, chosen, candidates.shape)
            return chosen

        before.append((holder, select))
        holder.select = watched  # type: ignore[attr-defined]
    try:
        yield seen
    finally:
        for holder, select in before:
            holder.select = select  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Trained:
    """What two steps of a recipe gave."""

    losses: list[float]
    watched: Watched
    encoders: dict[str, Tensor]
    learner: dict[str, Tensor]


def settings_of(kind: str, recipe: Recipe) -> Settings:
    """Small ones, with an encoder that has the map whose locations a recipe may ask for."""
    if kind == "pictures" and isinstance(recipe.keys, Locations):
        return PATCHES
    return SETTINGS[kind]


def train(kind: str, recipe: Recipe) -> Trained:
    """Two steps, one an epoch, so that keys are clustered between them and schedules move."""
    settings = settings_of(kind, recipe)
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder, watching(recipe) as watched:
        done = pretrain(recipe, settings, items(kind), seed=1, folder=folder, log=lambda line: None)
        file = Path(folder) / checkpoint.FILE
        state = checkpoint.load(file)["learner"] if file.exists() else {}
    losses = [row["loss"] for row in done.history]
    return Trained(losses, watched, done.encoders.state_dict(), state)


def norm(tensors: dict[str, Tensor]) -> float:
    """Euclidean norm over all tensors; what is no number yet counts as 0."""
    squares = [tensor.double().nan_to_num().square().sum() for tensor in tensors.values()]
    return float(torch.stack(squares).sum().sqrt()) if squares else 0.0


def names_hash(tensors: dict[str, Tensor]) -> str:
    """16 digits over the names and shapes of a state."""
    shapes = [f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items()]
    return hashlib.sha256("\n".join(shapes).encode()).hexdigest()[:16]


def identity(recipe: Recipe) -> str:
    """16 digits of the hash of what a recipe is."""
    return results.digest(recipe.describe())[:16]


def recipe_values(kind: str, name: str) -> dict[str, Any]:
    """Two steps of a recipe, as the golden file has them."""
    recipe = methods.get(name)
    done = train(kind, recipe.override(SMALL))
    return {
        "identity": identity(recipe),
        "losses": [float(f"{loss:.7g}") for loss in done.losses],
        "negatives": done.watched.negatives.tolist(),
        "positives": done.watched.positives.tolist(),
        "state": names_hash(done.encoders),
        "encoders": float(f"{norm(done.encoders):.7g}"),
        "learner": float(f"{norm(done.learner):.7g}"),
    }


def bits(kind: str, name: str) -> str:
    """Every loss and tensor of two steps of a recipe, without rounding: 64 digits."""
    done = train(kind, methods.get(name).override(SMALL))
    digest = hashlib.sha256(json.dumps([loss.hex() for loss in done.losses]).encode())
    for part in (done.encoders, done.learner):
        for tensor in part.values():
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


# the file


def read() -> dict[str, Any]:
    """What is stored."""
    content: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return content


def sources_of(content: dict[str, Any]) -> dict[str, DataSet]:
    """The stored fingerprints by the name of a data set."""
    return {name: DataSet(**row) for name, row in content["data"].items()}


def say(line: str) -> None:
    """A line of progress."""
    print(line, file=sys.stderr, flush=True)


def today(before: dict[str, Any]) -> dict[str, Any]:
    """All values, as the code has them today; of data sets that are not here those of ``before``."""
    rows: dict[str, Any] = {}
    for name in data.names():
        try:
            rows[name] = vars(data_set(name))
            say(f"data {name}")
        except ContrastLabError as error:
            if not isinstance(error, MissingDataError):
                raise
            if name in before.get("data", {}):
                rows[name] = before["data"][name]
    sources = {name: DataSet(**row) for name, row in rows.items()}
    say("results")
    paths = sorted(CELLS.rglob("*.json"))
    stored = {path.relative_to(CELLS).as_posix(): stored_result(path, sources) for path in paths}
    say("tables")
    tables = {f"{paper}/{table}": table_setups(paper, table) for paper, table in papers.plans()}
    return {"data": rows, "results": stored, "tables": tables, "recipes": recipes_today()}


def recipes_today() -> dict[str, Any]:
    """Two steps of every recipe."""
    recipes: dict[str, Any] = {}
    for name, (kind, recipe) in experiments().items():
        say(f"recipe {name}")
        recipes[name] = recipe_values(kind, recipe)
    return recipes


def with_new(before: dict[str, Any]) -> dict[str, Any]:
    """``before`` with what it does not have; what it has stays as it is.

    That is generated data sets, recipes, profiles of tables, and results with the data sets that they were trained on.
    """
    rows: dict[str, Any] = {}
    paths = [
        path for path in sorted(CELLS.rglob("*.json")) if path.relative_to(CELLS).as_posix() not in before["results"]
    ]
    here = {*generated(), *(results.read(path).dataset for path in paths)}
    for name in data.names():
        if name in before["data"]:
            rows[name] = before["data"][name]
        elif name in here:
            say(f"data {name}")
            rows[name] = vars(data_set(name))
    recipes: dict[str, Any] = {}
    for name, (kind, recipe) in experiments().items():
        if name in before["recipes"]:
            recipes[name] = before["recipes"][name]
        else:
            say(f"recipe {name}")
            recipes[name] = recipe_values(kind, recipe)
    sources = sources_of({"data": rows})
    stored = dict(before["results"])
    for path in paths:
        stored[path.relative_to(CELLS).as_posix()] = stored_result(path, sources)
    tables: dict[str, Any] = {}
    for paper, table in papers.plans():
        name = f"{paper}/{table}"
        tables[name] = {**table_setups(paper, table), **before["tables"].get(name, {})}
    return {"data": rows, "results": dict(sorted(stored.items())), "tables": tables, "recipes": recipes}


def text_of(content: dict[str, Any]) -> str:
    """The file's text: a line for each entry, so that a change shows as one line."""
    sections: list[str] = []
    for section, rows in content.items():
        lines = [f" {json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items()]
        sections.append(f"{json.dumps(section)}: {{\n" + ",\n".join(lines) + "\n}")
    return "{\n" + ",\n".join(sections) + "\n}\n"


def main() -> None:
    """Store the values again, or write those of the recipes without rounding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="store today's values in golden.json")
    parser.add_argument("--add", action="store_true", help="store what it lacks")
    parser.add_argument("--bits", metavar="FILE", help="write the recipes' values without rounding to FILE")
    options = parser.parse_args()
    if options.bits:
        exact = {name: bits(kind, recipe) for name, (kind, recipe) in experiments().items()}
        Path(options.bits).write_text(json.dumps(exact, indent=1) + "\n", encoding="utf-8")
    if options.add:
        FILE.write_text(text_of(with_new(read())), encoding="utf-8")
    if options.write:
        before = read() if FILE.exists() else {}
        FILE.write_text(text_of(today(before)), encoding="utf-8")


if __name__ == "__main__":
    main()
