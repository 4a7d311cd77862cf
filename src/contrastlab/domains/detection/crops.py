"""Sets of pictures with one label each, from files in COCO's form: whole pictures, or a crop of each object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from contrastlab.domains.detection import coco
from contrastlab.pictures.items import Splits
from contrastlab.pictures.readers import streamed
from contrastlab.pictures.sets import ImageSet, StreamedImages, threaded


def coco_labels(name: str, folder: Path, note: str, *, train: str, test: str) -> Splits:
    """Pictures with one label each, in files of COCO's form."""

    def pictures(part: str, file: str) -> StreamedImages:
        images, categories, annotations = coco.lists(coco.read_json(folder / file))
        classes = [str(category["name"]) for category in categories]
        number = {category["id"]: k for k, category in enumerate(categories)}
        paths = []
        labels = []
        for annotation in annotations:
            image = images[annotation["image_id"]]
            paths.append(image["file_name"])
            labels.append(number[annotation["category_id"]])
        return streamed(f"{name}/{part}", folder, paths, labels, classes)

    return Splits.of(name, pictures("train", train), pictures("test", test), note)


def scale_box(box: Sequence[float], width: int, height: int) -> tuple[int, int, int, int]:
    """A box of COCO, grown by 1.2 about its middle, as Meta-Dataset has it, and cut at the picture's border.

    (left, top, width, height) in pixels become (top, left, height, width) in whole pixels, at least one each.
    """
    left, top, box_width, box_height = box
    grown_top, grown_height = _grown(top, box_height, height)
    grown_left, grown_width = _grown(left, box_width, width)
    return grown_top, grown_left, grown_height, grown_width


def _grown(start: float, length: float, limit: int) -> tuple[int, int]:
    """Start and length of an extent that grew by 1.2, between 0 and ``limit``."""
    middle = start + length / 2
    reach = 1.2 * length / 2
    low = max(round(middle - reach), 0)
    low = min(low, limit - 1)
    high = min(round(middle + reach), limit)
    return low, max(high - low, 1)


def coco_objects(name: str, folder: Path, note: str, *, annotations: str = "", side: int = 0) -> Splits:
    """A crop of every single object of MSCOCO 2017; crowds and boxes without area are left out.

    Crops of ``side`` pixels are kept in memory; with 0 they are streamed.
    """

    def crops(part: str, year: str) -> StreamedImages | ImageSet:
        path = folder / annotations / f"instances_{year}.json"
        of_part = _streamed_crops(f"{name}/{part}", folder / year, coco.read_coco(path, strict=False))
        if side:
            return _in_memory(of_part, side)
        return of_part

    return Splits.of(name, crops("train", "train2017"), crops("test", "val2017"), note)


def _streamed_crops(name: str, folder: Path, annotations: coco.Annotations) -> StreamedImages:
    """A crop of every object that is no crowd, from pictures in a folder."""
    paths = []
    labels = []
    boxes = []
    for each in annotations.objects:
        if each["iscrowd"]:
            continue
        image = annotations.images[each["image_id"]]
        paths.append(image["file_name"])
        labels.append(annotations.number[each["category_id"]])
        boxes.append(scale_box(each["bbox"], image["width"], image["height"]))
    return streamed(name, folder, paths, labels, annotations.classes, boxes)


def _in_memory(crops: StreamedImages, side: int) -> ImageSet:
    """All crops, ``side`` pixels high and wide."""
    resized = replace(crops, resize=side)
    pixels = list(threaded(resized.__getitem__, range(len(resized))))
    return ImageSet(crops.name, torch.stack(pixels), crops.labels, crops.classes)
