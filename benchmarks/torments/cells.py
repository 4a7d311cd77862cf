"""Jobs of every kind of keys and of task, so small that each takes seconds, and what is compared of them."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from contrastlab import data, papers
from contrastlab.tables import results
from contrastlab.tables.execution import Execution
from contrastlab.tables.job import Job, expand

CLOCK = {"seconds", "images_per_s", "waiting"}
"""Columns of a curve that a clock fills."""

TRAINING = {"epochs": 3, "batch_size": 16, "knn_every": 1, "train_images": 64, "test_images": 64, "milestones": ()}
PROBE = {"train_images": 64, "epochs": 2, "batch_size": 32}
KEYS = {
    "negatives.k": 16,
    "negatives.nearest": 24,
    "keys.size": 40,
    "negatives.clusters": 4,
    "positives.clusters": 4,
    "negatives.runs": 2,
    "positives.runs": 2,
}
DETECTOR = {
    "steps": 4,
    "batch_size": 2,
    "train_pictures": 8,
    "test_pictures": 3,
    "shorter": (64,),
    "test_shorter": 64,
    "longest": 96,
    "warmup_steps": 2,
    "milestones": (),
    "draws": 5,
    "box_features": 32,
    "channels": 16,
    "mask_layers": (16,),
    "keypoint_layers": (16,),
    "before_nms": (50, 50),
    "proposals": (20, 20),
    "trained": True,
    "batch_norm": True,
}


class SmallJob(Job):
    """A job of a published table on few items."""

    def load(self, execution: Execution) -> tuple[Any, Any]:
        """The data, as few as a generated set may have."""
        own = _load(self.data)
        return own, _load(self.on) if self.on else own


def _load(name: str) -> Any:
    few = {} if name not in SIZES else dict(zip(("n_train", "n_test"), SIZES[name], strict=True))
    return data.load(name, **few)


SIZES = {"shapes": (64, 64), "shapes_recoloured": (64, 64), "clips": (24, 8), "rooms": (12, 4), "voices": (64, 32)}
"""Items of generated data, training and test."""


@dataclass(frozen=True)
class Case:
    """A cell by name.

    Args:
        table: paper and number.
        dataset: of pre-training.
        column: its name in the table; empty: the one of the data set.
        method: full name of the row.
        more: changes of the settings beside those of all cases.
    """

    table: tuple[str, str]
    dataset: str
    method: str
    column: str = ""
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def changes(self) -> dict[str, Any]:
        """Changes of the settings."""
        return {**TRAINING, "linear": PROBE, "overrides": KEYS, **self.more}


RESNET = {"arch": "resnet18", "width": 0.125, "image_size": 32, "epochs": 2}
CASES = {
    "bank, clustered, linear by SGD": Case(
        ("ring", "1"), "shapes", "ring/la", more={"linear": {**PROBE, "solver": "sgd"}}
    ),
    "bank of two streams, transfer": Case(("ring", "3"), "shapes", "ring/cmcring", "shapes_recoloured"),
    "queue, linear": Case(("ring", "1"), "shapes", "ring/mocoring"),
    "batch, neighbours": Case(("fmicl", "10"), "shapes", "fmicl/kl"),
    "class vectors, linear": Case(("ring", "1"), "shapes", "ours/supervised"),
    "annealed cave, linear": Case(("vince", "1"), "shapes", "vince/cave_anneal"),
    "locations, layers": Case(("cmc", "7"), "shapes", "cmc/stl10_patch", "shapes"),
    "sentences, similarity": Case(("fmicl", "2"), "grammar", "fmicl/kl", "grammar", more={"batch_size": 32}),
    "clips, action": Case(
        ("cmc", "2"), "clips", "cmc/video_vd", "clips", more={"action": {"epochs": 2, "batch_size": 8, "frames": 2}}
    ),
    "scenes, segmentation": Case(
        ("cmc", "4"),
        "rooms",
        "cmc/full_4",
        "rooms miou_L",
        more={"batch_size": 4, "segmentation": {"epochs": 3, "batch_size": 4, "width": 4}},
    ),
    "pixels, one view": Case(("cmc", "5"), "rooms", "cmc/predict_depth", "rooms linear_L", more={"batch_size": 4}),
    "voices, transfer": Case(("ring", "5c"), "voices", "ring/moco", "voices_digit"),
    "queue, masks": Case(("ring", "4"), "shapes", "ring/moco", "silhouettes_mask", more={**RESNET, "masks": DETECTOR}),
    "bank, key points": Case(
        ("vince", "2c"), "shapes", "vince/ir_nce", "silhouettes_keypoints", more={**RESNET, "keypoints": DETECTOR}
    ),
    "bank, boxes": Case(
        ("vince", "2d"), "shapes", "vince/ir_nce", "silhouettes_detection", more={**RESNET, "boxes": DETECTOR}
    ),
}
"""By kind of keys and task."""


def job(name: str, seed: int = 0) -> SmallJob:
    """The job of a case, with fewer steps and keys."""
    case = CASES[name]
    plan = papers.plan(*case.table)
    whole, *_ = expand(plan, case.dataset, [case.method], [seed], "smoke", case.column or "all")
    given = {each.name: getattr(whole, each.name) for each in fields(whole)}
    return SmallJob(**given | {"settings": whole.settings.override(**case.changes)})


def where(folder: Path) -> Execution:
    """New results go to ``folder``, on one processor."""
    return Execution(out_dir=folder, read_also=(), accelerator="cpu", data_root=folder / "data")


def content(folder: Path) -> dict[str, Any]:
    """What a finished cell leaves, without times: metrics, items that were right, curves, tensors, and which files."""
    found: dict[str, Any] = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = path.relative_to(folder).as_posix()
        if "/tensorboard/" in name or path.suffix == ".lock":
            continue
        if path.suffix == ".safetensors":
            found |= {f"{name} {key}": value for key, value in load_file(path).items()}
        elif path.name == "metrics.csv":
            with path.open(newline="") as lines:
                found[name] = [_timeless(row) for row in csv.DictReader(lines)]
        elif path.name == "run.json":
            found[name] = [_timeless(row) for row in json.loads(path.read_text())["history"]]
        elif "/cells/" in f"/{name}":
            result = results.read(path)
            found[name] = (result.metrics, result.half_widths, result.correct, list(map(_timeless, result.curve)))
        else:
            found[name] = None
    return found


def _timeless(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in CLOCK}


def difference(one: dict[str, Any], other: dict[str, Any]) -> str:
    """Execution two contents differ; empty where nowhere."""
    if one.keys() != other.keys():
        return f"other files or tensors: {sorted(one.keys() ^ other.keys())[:4]}"
    return ", ".join(key for key, value in one.items() if not _same(value, other[key]))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one.nan_to_num(), other.nan_to_num())
    return bool(one == other)


def kinds() -> set[str]:
    """Names of the tasks that the cases ask."""
    return {job(name).task_name for name in CASES}
