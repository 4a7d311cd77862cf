"""What detectors on different encoders find in a few test pictures, to be looked at.

A row is one detection; AP stands in the tables, whose runs, detectors and settings these are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import torch

from contrastbook.studies import Row, Study, measure, stored
from contrastlab import data, papers, shipped, tasks
from contrastlab.data.annotated import AnnotatedImages
from contrastlab.errors import MissingDataError, NotApplicableError
from contrastlab.reproduce.cells import Cell
from contrastlab.reproduce.execution import Execution
from contrastlab.tasks.definitions import Detection
from contrastlab.tasks.dense import training
from contrastlab.tasks.dense.detectors import Kind

ROWS = ("ours/random", "ring/moco", "ours/supervised")
"""Encoders that are set side by side: as initialised, contrastive, and trained with labels."""


def study(
    column: str, dataset: str, *, profile: str = "smoke", rows: Sequence[str] = ROWS, pictures: int = 3,
    best: int = 12, data_root: str | Path | None = None, out_dir: Path | str = "runs",
    read_also: Sequence[Path | str] = shipped.RESULTS,
) -> Study:  # fmt: skip
    """The detections with the highest scores in the first test pictures; stored, or measured and stored.

    ``column``: of ring Table 4, one on annotated pictures. Returns rows of ``method``, ``picture`` (number in the test
    part), ``score``, ``label`` and ``found``, which is JSON of a detection in COCO's form.

    Raises:
        MissingDataError: nothing is stored, and the data are not there.
        NotApplicableError: the column's task finds no objects.
    """
    config, chosen = _config(column, dataset, profile, rows, pictures, best)
    plan, kind = papers.plan("ring", 4), chosen.task

    def run() -> list[Row]:
        execution, detections = Execution(data_root=data_root, out_dir=out_dir, read_also=read_also), list[Row]()
        for row in rows:
            cell = Cell(plan, column, chosen, row, 0, profile)
            detections += _rows(cell, execution, cast(Kind, kind), pictures, best)
        return detections

    return measure("found_objects", profile, config, run, out_dir=out_dir, read_also=read_also)


def _config(
    column: str, dataset: str, profile: str, rows: Sequence[str], pictures: int, best: int
) -> tuple[dict[str, Any], papers.Column]:
    plan = papers.plan("ring", 4)
    chosen = plan.select(dataset, column)[column]
    if chosen.task not in ("boxes", "masks", "keypoints"):
        raise NotApplicableError(f"{column} is a column of {chosen.task}, which finds no objects")
    setups = {row: plan.setup(chosen, row, profile) for row in rows}
    made = {"column": column, "data": dataset, "on": chosen.on, "rows": setups, "pictures": pictures, "best": best}
    return made, chosen


def at_hand(
    wanted: Sequence[tuple[str, str, str]], roots: Sequence[Path | str], data_root: str | Path | None = None
) -> list[tuple[Study, AnnotatedImages]]:
    """Those of some studies that are stored, with their test pictures, where these are there."""
    made = []
    for column, dataset, profile in wanted:
        config, chosen = _config(column, dataset, profile, ROWS, 3, 12)
        known = stored("found_objects", profile, config, roots)
        if known is not None:
            with suppress(MissingDataError):
                made.append((known, data.load(chosen.on, data_root).test))
    return made


def _rows(cell: Cell, execution: Execution, kind: Kind, pictures: int, best: int) -> list[Row]:
    torch.set_num_threads(1)
    on = cell.data(execution)[1]
    run, trained = cell.pretrained(execution)
    device = execution.fabric().device
    setting = cell.setting(run, on, device=device)
    task = cast("Detection", tasks.get(kind, cell.settings))
    model, test = training.trained_detector(task, trained.encoders, setting)
    shown = test.subset(range(min(pictures, len(test))))
    every = training.predict(model, shown, kind, device=device)
    names = {category["id"]: str(category["name"]) for category in shown.annotations.categories}
    rows: list[Row] = []
    for number, image in enumerate(shown.ids):
        mine = sorted((each for each in every if each["image_id"] == image), key=lambda each: -each["score"])[:best]
        rows += [
            {
                "method": cell.method, "picture": number, "score": float(each["score"]),
                "label": names[each["category_id"]], "found": json.dumps(_short(each)),
            }
            for each in mine
        ]  # fmt: skip
    return rows


def _short(each: dict[str, object]) -> dict[str, object]:
    """The place of a detection, in tenths of a pixel."""
    out: dict[str, object] = {}
    for name in ("bbox", "keypoints"):
        if isinstance(values := each.get(name), list):
            out[name] = [round(float(value), 1) for value in values]
    if "segmentation" in each:
        out["segmentation"] = each["segmentation"]
    return out
