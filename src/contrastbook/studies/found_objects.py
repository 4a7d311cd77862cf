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
from contrastlab import data, papers
from contrastlab.domains.detection import task as training
from contrastlab.domains.detection.data import AnnotatedImages
from contrastlab.domains.detection.definitions import Detection
from contrastlab.domains.detection.network import Kind
from contrastlab.support import shipped
from contrastlab.support.errors import MissingDataError, NotApplicableError
from contrastlab.tables.execution import Execution
from contrastlab.tables.job import Job, expand, pretrained

ROWS = ("ours/random", "ring/moco", "ours/supervised")
"""Encoders that are set side by side: as initialised, contrastive, and trained with labels."""

PICTURES = 3  # test pictures that are looked at
BEST = 12  # detections with the highest scores in each


def _jobs(column: str, dataset: str, profile: str, rows: Sequence[str]) -> tuple[list[Job], dict[str, Any]]:
    """The jobs of the rows, and the configuration of a study of them."""
    plan = papers.plan("ring", 4)
    of_table = plan.select(dataset, column)[column]
    if of_table.task not in ("boxes", "masks", "keypoints"):
        raise NotApplicableError(f"{column} is a column of {of_table.task}, which finds no objects")
    jobs = expand(plan, dataset, rows, [0], profile, column)
    setups = {row: plan.setup_hash(of_table, row, profile) for row in rows}
    config = {"column": column, "data": dataset, "on": of_table.on, "rows": setups, "pictures": PICTURES, "best": BEST}
    return jobs, config


def study(
    column: str,
    dataset: str,
    *,
    profile: str = "smoke",
    rows: Sequence[str] = ROWS,
    data_root: str | Path | None = None,
    out_dir: Path | str = "runs",
    read_also: Sequence[Path | str] = shipped.RESULTS,
) -> Study:
    """The detections with the highest scores in the first test pictures; stored, or measured and stored.

    ``column``: of ring Table 4, one on annotated pictures. ``found`` in a row is JSON of a detection in COCO's form.
    """
    jobs, config = _jobs(column, dataset, profile, rows)

    def run() -> list[Row]:
        execution = Execution(data_root=data_root, out_dir=out_dir, read_also=read_also)
        return [row for job in jobs for row in _rows(job, execution)]

    return measure("found_objects", profile, config, run, out_dir=out_dir, read_also=read_also)


def at_hand(
    wanted: Sequence[tuple[str, str, str]], roots: Sequence[Path | str], data_root: str | Path | None = None
) -> list[tuple[Study, AnnotatedImages]]:
    """Those of some studies that are stored, with their test pictures, where these are there."""
    complete = []
    for column, dataset, profile in wanted:
        _, config = _jobs(column, dataset, profile, ROWS)
        study = stored("found_objects", profile, config, roots)
        if study is None:
            continue
        with suppress(MissingDataError):
            complete.append((study, data.load(config["on"], data_root).test))
    return complete


def _rows(job: Job, execution: Execution) -> list[Row]:
    """A row for each of the best detections of a job's detector."""
    torch.set_num_threads(1)
    _, on = job.load(execution)
    kind = cast(Kind, job.task_name)
    task = cast("Detection", job.task)
    run, trained = pretrained(job, execution)
    device = execution.fabric().device
    model, test = training.trained_detector(task, trained.encoders, job.evaluation(run, on, device=device))
    pictures = test.subset(range(min(PICTURES, len(test))))
    detections = training.predict(model, pictures, kind, device=device)
    names = {category["id"]: str(category["name"]) for category in pictures.annotations.categories}
    rows: list[Row] = []
    for number, image in enumerate(pictures.ids):
        of_picture = [each for each in detections if each["image_id"] == image]
        of_picture.sort(key=lambda each: -each["score"])
        for each in of_picture[:BEST]:
            row: Row = {"method": job.method, "picture": number, "score": float(each["score"])}
            rows.append(row | {"label": names[each["category_id"]], "found": json.dumps(_short(each))})
    return rows


def _short(detection: dict[str, Any]) -> dict[str, Any]:
    """The place of a detection, in tenths of a pixel."""
    place: dict[str, Any] = {}
    for name in ("bbox", "keypoints"):
        if name in detection:
            place[name] = [round(float(value), 1) for value in detection[name]]
    if "segmentation" in detection:
        place["segmentation"] = detection["segmentation"]
    return place
