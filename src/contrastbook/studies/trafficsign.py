"""What a split of filmed traffic signs measures: how far copying the label of the most similar training picture goes.

GTSRB shows each physical sign in a track of about 30 frames. A random split of images, the best reading of ring
Table 3, puts frames of one sign on both sides; a split of tracks, or the benchmark's own test part, does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from contrastbook.studies import Row, Study, measure
from contrastlab import data, tasks
from contrastlab.pictures.augmentations import augmentation
from contrastlab.pictures.items import ItemSet
from contrastlab.pictures.loading import batches
from contrastlab.support import shipped
from contrastlab.support.errors import unknown

SPLITS = {
    "trafficsign": "at random, per image (ring Table 3, best reading)",
    "trafficsign_tracks": "by track",
    "gtsrb32": "the benchmark's own",
}
"""Data set to how it is split."""

DISTANCES = ("euclidean", "correlation")
"""Between pixels; the second one does not see how bright a picture is, nor its contrast."""

SIDE = 16  # of the squares that are compared, in pixels


def nearest_pixels(train: ItemSet, test: ItemSet, *, distance: str = "euclidean", side: int = SIDE) -> Tensor:
    """Whether the training image with the nearest pixels has a test image's label: boolean, ``[test images]``."""
    if distance not in DISTANCES:
        raise unknown("distance", distance, DISTANCES)
    view = augmentation("none", side)

    def pixels(source: ItemSet) -> Tensor:
        every = batches(source, torch.arange(len(source)), 512, "cpu", drop_last=False)
        values = torch.cat([view.plain(images).flatten(1) for _, images in every])
        if distance == "euclidean":
            return values
        return F.normalize(values - values.mean(1, keepdim=True), dim=1)

    rows = pixels(train)
    queries = pixels(test)
    # ‖q − r‖² is ‖q‖² − 2 (q·r − ‖r‖²/2): the nearest row has the largest product with (q, 1)
    rows = torch.cat([rows, -rows.square().sum(1, keepdim=True) / 2], 1)
    queries = torch.cat([queries, torch.ones(len(queries), 1)], 1)
    return tasks.nearest_neighbour(rows, train.labels, queries, test.labels)


def study(
    *,
    data_root: str | Path | None = None,
    out_dir: Path | str = "runs",
    read_also: Sequence[Path | str] = shipped.RESULTS,
) -> Study:
    """1-NN accuracy of raw pixels under every split in :data:`SPLITS`, in percent; stored, or measured and stored."""

    def run() -> list[Row]:
        rows: list[Row] = []
        for name, split in SPLITS.items():
            splits = data.load(name, data_root)
            row: Row = {"data": name, "split": split, "train images": len(splits.train)}
            for distance in DISTANCES:
                right = nearest_pixels(splits.train, splits.test, distance=distance)
                row |= {"test images": len(right), f"1-NN, {distance}": 100 * float(right.double().mean())}
            rows.append(row | {"note": splits.note, "fingerprint": splits.test.fingerprint})
        return rows

    config = {"splits": SPLITS, "side": SIDE, "distances": DISTANCES}
    return measure("trafficsign_leak", "laptop", config, run, out_dir=out_dir, read_also=read_also)
