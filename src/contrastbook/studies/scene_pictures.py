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
from contrastlab import data, papers, shipped
from contrastlab.data.modalities import modality
from contrastlab.errors import CorruptFileError
from contrastlab.reproduce.cells import Cell
from contrastlab.reproduce.execution import Execution
from contrastlab.reproduce.run import Run
from contrastlab.seeds import derive
from contrastlab.tasks import Setting
from contrastlab.tasks.segmentation import predict, segment, stream_of

ROWS: Mapping[str, str] = {
    "random": "cmc/scenes_random", "CMC, 4 views": "cmc/core_4", "supervised": "cmc/scenes_supervised",
}  # fmt: skip
"""Label to row: a random, a contrasted and a supervised encoder of luminance."""


def pack(classes: Tensor) -> str:
    """Classes ``[B, H, W]`` below 256 as text."""
    return base64.b85encode(zlib.compress(classes.to(torch.uint8).numpy().tobytes(), 9)).decode()


def unpack(text: str, shape: Sequence[int]) -> Tensor:
    """The classes that :func:`pack` wrote, int64.

    Raises:
        CorruptFileError: the text holds other than ``shape`` classes.
    """
    try:
        flat = np.frombuffer(zlib.decompressobj().decompress(base64.b85decode(text), math.prod(shape) + 1), np.uint8)
        return torch.from_numpy(flat.reshape(tuple(shape)).astype(np.int64))
    except (ValueError, zlib.error) as error:
        raise CorruptFileError(f"stored classes are not of shape {tuple(shape)}: {error}") from error


def _cell(dataset: str, row: str, profile: str) -> Cell:
    plan = papers.plan("cmc", 3)
    column = next(c for c in plan.select(dataset).values() if c.metric == "miou_L")
    return Cell(plan, "", column, row, 0, profile)


def _config(dataset: str, profile: str, scenes: int) -> dict[str, Any]:
    return {
        "dataset": dataset,
        "scenes": scenes,
        "rows": {k: _cell(dataset, m, profile).setup for k, m in ROWS.items()},
    }


def study(
    dataset: str, profile: str, *, scenes: int = 4, data_root: str | Path | None = None, out_dir: Path | str = "runs",
    read_also: Sequence[Path | str] = shipped.RESULTS, prefer: str = "laptop",
) -> Study:  # fmt: skip
    """What the segmenters of :data:`ROWS` with seed 0 see in the first test scenes; stored, or measured and stored.

    Encoders and decoders are those of the table's cells.

    ``out_dir``: where runs are, and where new pictures are written. ``prefer``: profile whose stored pictures are taken
    if there are any, whatever ``profile`` is.
    """
    for name in (prefer, profile):
        known = stored("scene_pictures", name, _config(dataset, name, scenes), (out_dir, *read_also))
        if known is not None:
            return known

    def run() -> list[Row]:
        splits = data.load(dataset, data_root)
        test = splits.test.subset(torch.arange(scenes))
        rows: list[Row] = []
        for label, method in ROWS.items():
            cell = _cell(dataset, method, profile)
            fabric = Execution().fabric(cell.settings.precision)
            trained = Run(cell.recipe, cell.settings, splits, 0, Path(out_dir)).train(fabric, log=lambda line: None)
            setting = Setting(
                cell.recipe.views, modality(test).augmentation(cell.settings), splits, seed=derive(0, "probe") % 2**31
            )
            encoder = stream_of(trained.encoders, setting, "L")
            model = segment(encoder, "L", setting, cell.settings.segmentation)
            predicted, truth = predict(model, "L", setting, test)
            right = float((predicted == truth)[truth >= 0].double().mean())
            rows.append({"row": label, "classes": pack(predicted), "pixels right": 100 * right})
        return rows

    config = _config(dataset, profile, scenes)
    return measure("scene_pictures", profile, config, run, out_dir=out_dir, read_also=read_also)


def predictions(made: Study, shape: Sequence[int]) -> dict[str, Tensor]:
    """Label to predicted classes ``[B, H, W]``, of scenes of that ``shape``."""
    return {str(row["row"]): unpack(str(row["classes"]), shape) for row in made.rows}
