"""Sets of pictures with one label each, from files in COCO's form: whole pictures, or a crop of each object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from contrastlab.domains.detection import coco
from contrastlab.pictures.items import Splits
from contrastlab.pictures.readers import streamed
from contrastlab.pictures.sets import ImageSet, threaded


def coco_labels(name: str, folder: Path, note: str, *, train: str, test: str) -> Splits:
    """Pictures with one label each, in files of COCO's form."""
    parts = []
    for part, file in (("train", train), ("test", test)):
        images, categories, marked = coco.lists(coco.read_json(folder / file))
        number = {category["id"]: k for k, category in enumerate(categories)}
        paths = [images[each["image_id"]]["file_name"] for each in marked]
        labels = [number[each["category_id"]] for each in marked]
        classes = [str(category["name"]) for category in categories]
        parts.append(streamed(f"{name}/{part}", folder, paths, labels, classes))
    return Splits.of(name, parts[0], parts[1], note)


def scale_box(box: Sequence[float], width: int, height: int) -> tuple[int, int, int, int]:
    """A box of COCO, grown by 1.2 about its middle, as Meta-Dataset has it, and cut at the picture's border.

    (left, top, width, height) in pixels become (top, left, height, width) in whole pixels, at least one each.
    """
    edges = []
    for start, length, limit in ((box[1], box[3], height), (box[0], box[2], width)):
        middle, reach = start + length / 2, 1.2 * length / 2
        low = min(max(round(middle - reach), 0), limit - 1)
        edges.append((low, max(min(round(middle + reach), limit) - low, 1)))
    (top, tall), (left, wide) = edges
    return top, left, tall, wide


def coco_objects(name: str, folder: Path, note: str, *, annotations: str = "", side: int = 0) -> Splits:
    """A crop of every object of MSCOCO 2017 that is one; crowds and boxes without area are none.

    Crops of ``side`` pixels are kept in memory; with 0 they are streamed.
    """
    parts: list[Any] = []
    for part, year in (("train", "train2017"), ("test", "val2017")):
        known = coco.read_coco(folder / annotations / f"instances_{year}.json", strict=False)
        marked = [each for each in known.objects if not each["iscrowd"]]
        pictures = [known.images[each["image_id"]] for each in marked]
        boxes = [scale_box(each["bbox"], i["width"], i["height"]) for each, i in zip(marked, pictures, strict=True)]
        labels = [known.number[each["category_id"]] for each in marked]
        paths = [picture["file_name"] for picture in pictures]
        crops = streamed(f"{name}/{part}", folder / year, paths, labels, known.classes, boxes)
        pixels = list(threaded(replace(crops, resize=side).__getitem__, range(len(crops)))) if side else []
        parts.append(ImageSet(crops.name, torch.stack(pixels), crops.labels, crops.classes) if side else crops)
    return Splits.of(name, parts[0], parts[1], note)
