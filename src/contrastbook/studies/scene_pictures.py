"""What segmenters of cmc Table 3 see in a few rooms: pictures of classes, small enough to be kept with the results."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from contrastbook.studies import Row, Study, measure, stored
from contrastlab import papers
from contrastlab.domains.scenes.task import predict, segment, stream_of
from contrastlab.support import shipped
from contrastlab.support.errors import CorruptFileError
from contrastlab.tables.execution import Execution
from contrastlab.tables.job import Job, expand, pretrained

ROWS: Mapping[str, str] = {
    "random": "cmc/scenes_random",
    "CMC, 4 views": "cmc/core_4",
    "supervised": "cmc/scenes_supervised",
}
"""Label to row: a random, a contrasted and a supervised encoder of luminance."""

SCENES = 4


def pack(classes: Tensor) -> str:
    """Classes ``[B, H, W]`` below 256 as text."""
    return base64.b85encode(zlib.compress(classes.to(torch.uint8).numpy().tobytes(), 9)).decode()


def unpack(text: str, shape: Sequence[int]) -> Tensor:
    """The classes that :func:`pack` wrote, int64; a ``CorruptFileError`` where they are not of this shape."""
    try:
        flat = np.frombuffer(zlib.decompressobj().decompress(base64.b85decode(text), math.prod(shape) + 1), np.uint8)
        return torch.from_numpy(flat.reshape(tuple(shape)).astype(np.int64))
    except (ValueError, zlib.error) as error:
        raise CorruptFileError(f"stored classes are not of shape {tuple(shape)}: {error}") from error


def _jobs(dataset: str, profile: str) -> dict[str, Job]:
    plan = papers.plan("cmc", 3)
    names = [name for name, column in plan.select(dataset).items() if column.metric == "miou_L"]
    jobs = expand(plan, dataset, ROWS.values(), [0], profile, names[0])
    return dict(zip(ROWS, jobs, strict=True))


def _config(dataset: str, profile: str) -> dict[str, Any]:
    rows = {label: job.setup_hash for label, job in _jobs(dataset, profile).items()}
    return {"dataset": dataset, "scenes": SCENES, "rows": rows}


def study(
    dataset: str,
    profile: str,
    *,
    data_root: str | Path | None = None,
    out_dir: Path | str = "runs",
    read_also: Sequence[Path | str] = shipped.RESULTS,
) -> Study:
    """What the table's segmenters of :data:`ROWS` with seed 0 see in the first test scenes; stored, or measured.

    Stored pictures of the profile ``laptop`` are taken whatever ``profile`` is.
    """
    laptop = stored("scene_pictures", "laptop", _config(dataset, "laptop"), (out_dir, *read_also))
    if laptop is not None:
        return laptop

    def run() -> list[Row]:
        execution = Execution(data_root=data_root, out_dir=out_dir)
        rows: list[Row] = []
        for label, job in _jobs(dataset, profile).items():
            splits, _ = job.load(execution)
            task_run, trained = pretrained(job, execution)
            evaluation = job.evaluation(task_run, splits)
            encoder = stream_of(trained.encoders, evaluation, "L")
            model = segment(encoder, "L", evaluation, job.settings.segmentation)
            predicted, truth = predict(model, "L", evaluation, splits.test.subset(torch.arange(SCENES)))
            right = float((predicted == truth)[truth >= 0].double().mean())
            rows.append({"row": label, "classes": pack(predicted), "pixels right": 100 * right})
        return rows

    return measure("scene_pictures", profile, _config(dataset, profile), run, out_dir=out_dir, read_also=read_also)


def predictions(study: Study, shape: Sequence[int]) -> dict[str, Tensor]:
    """Label to predicted classes ``[B, H, W]``, of scenes of that ``shape``."""
    return {str(row["row"]): unpack(str(row["classes"]), shape) for row in study.rows}
