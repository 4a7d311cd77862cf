"""Annotated pictures in PASCAL VOC's XML, brought into COCO's form."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.parsers import expat

from contrastlab.data import limits
from contrastlab.data.coco import Annotations, Rule
from contrastlab.errors import CorruptFileError, MissingDataError


def read_voc(folder: Path, part: str, classes: Sequence[str] | None = None, rule: Rule = "voc07") -> Annotations:
    """Annotations of one part of a folder in PASCAL VOC's form.

    A box of VOC counts pixels from 1 and has both ends inside; here it starts at 0 and has a width. What reaches
    beyond the picture is cut, and a box of which nothing is left is left out.

    Args:
        folder: with ``Annotations``, ``ImageSets/Main`` and ``JPEGImages``.
        part: such as ``trainval``.
        classes: their names; by default those that occur in all annotations of the folder, by alphabet.
        rule: how detections are scored: eleven points for 2007, the whole area for 2012.

    Raises:
        MissingDataError: a file is not there.
        CorruptFileError: an annotation cannot be read, or declares a document type.
        ArgumentError: a list names a file outside the folder.
    """
    listed = folder / "ImageSets" / "Main" / f"{part}.txt"
    try:
        stems = [line.split()[0] for line in _lines(listed) if line.strip()]
        limits.check_inside(f"{listed}: picture", stems)
        if classes is None:
            everything = [_voc_file(file) for file in sorted((folder / "Annotations").glob("*.xml"))]
            classes = sorted({found["name"] for _, objects in everything for found in objects})
        number = {name: k + 1 for k, name in enumerate(classes)}
        images: dict[int, Any] = {}
        objects: list[Mapping[str, Any]] = []
        left_out = 0
        for image, stem in enumerate(stems, 1):
            file = folder / "Annotations" / f"{stem}.xml"
            size, found = _voc_file(file)
            images[image] = {"id": image, "file_name": f"JPEGImages/{stem}.jpg", **size}
            for each in found:
                left, top = max(each["xmin"] - 1, 0), max(each["ymin"] - 1, 0)
                wide, tall = min(each["xmax"], size["width"]) - left, min(each["ymax"], size["height"]) - top
                if min(wide, tall) <= 0:
                    left_out += 1
                    continue
                objects.append(
                    {
                        "id": len(objects) + 1, "image_id": image, "category_id": number[each["name"]],
                        "bbox": [left, top, wide, tall], "area": wide * tall, "iscrowd": 0,
                        "difficult": each["difficult"],
                    }
                )  # fmt: skip
    except FileNotFoundError as error:
        raise MissingDataError(f"{error.filename} does not exist: {folder} is read in PASCAL VOC's form") from error
    categories = tuple({"id": k, "name": name} for name, k in number.items())
    return Annotations(images, tuple(objects), categories, rule, None, left_out)


def _voc_file(path: Path) -> tuple[dict[str, int], list[dict[str, Any]]]:
    try:
        root = _parsed(path.read_text(encoding="utf-8"))
        size = {side: int(_text(root, f"size/{side}")) for side in ("width", "height")}
        objects = []
        for each in root.iter("object"):
            corners = {name: float(_text(each, f"bndbox/{name}")) for name in ("xmin", "ymin", "xmax", "ymax")}
            difficult = int(each.findtext("difficult", "0"))
            if not all(map(math.isfinite, corners.values())):
                raise ValueError(f"a box has the corners {corners}: accepted are finite numbers")
            objects.append({"name": _text(each, "name"), "difficult": difficult, **corners})
    except (ElementTree.ParseError, expat.ExpatError, ValueError) as error:
        raise CorruptFileError(f"{path} is no annotation in PASCAL VOC's form: {error}") from error
    return size, objects


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise CorruptFileError(f"{path} is not UTF-8: {error.reason}") from error


def _parsed(text: str) -> ElementTree.Element:
    # without a document type there are no entities, which would make a small file large or name other files
    reader = expat.ParserCreate()

    def refuse(name: str, *_: object) -> None:
        raise ValueError(f"it declares a document type, <!DOCTYPE {name}>: accepted is XML without one")

    reader.StartDoctypeDeclHandler = refuse
    reader.Parse(text, True)
    return ElementTree.fromstring(text)  # noqa: S314 - it has no document type


def _text(element: ElementTree.Element, path: str) -> str:
    found = element.findtext(path)
    if found is None:
        raise ValueError(f"it has no {path}")
    return found.strip()
