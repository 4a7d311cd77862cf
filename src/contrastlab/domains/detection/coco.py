"""What is annotated in pictures, in COCO's form: read from the JSON of COCO and LVIS, and from PASCAL VOC's XML.

An :class:`Annotations` holds what the evaluators read: pictures, objects and categories. An object has a box
``(left, top, width, height)`` in pixels, and may have a mask (polygons or run lengths), keypoints, and be a crowd.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.resources import files
from itertools import cycle
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

from contrastlab.pictures import limits
from contrastlab.support.errors import ContrastLabError, CorruptFileError, check, is_integer, is_number

Rule = Literal["coco", "voc07", "voc12", "lvis"]
_BEYOND = 1.0  # pixels that a polygon may reach beyond its picture


@dataclass(frozen=True)
class KeypointKind:
    """The named points of an object; in a mirrored picture those called left and right change places."""

    names: tuple[str, ...]
    sigmas: tuple[float, ...]  # how far apart people's clicks are, relative to the root of the area (COCO's OKS)

    @property
    def mirrored(self) -> tuple[int, ...]:
        """Which point stands at each place in a mirrored picture."""
        other = [re.sub("left|right", lambda side: "right" if side[0] == "left" else "left", n) for n in self.names]
        return tuple(self.names.index(name) if name in self.names else k for k, name in enumerate(other))


_ROWS = tomllib.loads((files("contrastlab.domains.detection") / "keypoints.toml").read_text(encoding="utf-8"))
KEYPOINTS = {name: KeypointKind(tuple(row["names"]), tuple(row["sigmas"])) for name, row in _ROWS.items()}
"""COCO's 17 points of a ``person``, and Leeds Sports Pose's 14 ``joints``."""


@dataclass(frozen=True, eq=False)
class Annotations:
    """What is known of some pictures, in COCO's form.

    Images, by id, have ``file_name``, ``width``, ``height``, for LVIS also ``neg_category_ids`` and
    ``not_exhaustive_category_ids``; objects ``id``, ``image_id``, ``category_id``, ``bbox``, ``area``, ``iscrowd``, and
    where they are annotated ``segmentation``, ``keypoints`` with ``num_keypoints``, ``difficult``; categories, by
    ascending id, ``id`` and ``name``. ``rule`` is how detections are scored, ``keypoints`` the kind of points.
    """

    images: Mapping[int, Mapping[str, Any]]
    objects: tuple[Mapping[str, Any], ...]
    categories: tuple[Mapping[str, Any], ...]
    rule: Rule = "coco"
    keypoints: KeypointKind | None = None
    left_out: int = 0  # boxes without area

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the categories."""
        return tuple(str(category["name"]) for category in self.categories)

    @cached_property
    def number(self) -> Mapping[int, int]:
        """Category id to class number, from 0."""
        return {category["id"]: k for k, category in enumerate(self.categories)}

    @cached_property
    def of_image(self) -> Mapping[int, tuple[Mapping[str, Any], ...]]:
        """The objects of each picture, by its id."""
        objects: dict[int, list[Mapping[str, Any]]] = {image: [] for image in self.images}
        for each in self.objects:
            objects[each["image_id"]].append(each)
        return {image: tuple(shown) for image, shown in objects.items()}

    @cached_property
    def masks(self) -> bool:
        """Whether every object has a mask."""
        return bool(self.objects) and all("segmentation" in each for each in self.objects)

    def subset(self, images: Iterable[int]) -> Annotations:
        """The pictures of some ids, in that order, and their objects."""
        chosen = {image: self.images[image] for image in images}
        return replace(self, images=chosen, objects=tuple(each for i in chosen for each in self.of_image[i]))

    def only(self, names: Sequence[str] | None = None, *, merged: str = "") -> Annotations:
        """Objects of some categories (None is all), kept apart or as one category called ``merged``."""
        kept = [c for c in self.categories if names is None or c["name"] in names]
        ids = {c["id"] for c in kept}
        objects = [each for each in self.objects if each["category_id"] in ids]
        if merged:
            kept, objects = [{"id": 1, "name": merged}], [{**each, "category_id": 1} for each in objects]
        return replace(self, categories=tuple(kept), objects=tuple(objects))

    def plain(self, *, renumbered: bool = False) -> dict[str, Any]:
        """COCO's JSON; ``renumbered`` for evaluators: ids of objects from 1 that occur once, and LVIS's frequencies."""
        further = {"frequency": "f"} if renumbered else {}  # read for means over rare classes, which are not shown
        return {
            "images": [dict(image) for image in self.images.values()],
            "annotations": [{**each, "id": k} if renumbered else dict(each) for k, each in enumerate(self.objects, 1)],
            "categories": [{**further, **category} for category in self.categories],
        }

    @cached_property
    def fingerprint(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of everything that is known, and of the rule."""
        text = json.dumps([self.plain(), self.rule], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@contextmanager
def _reading(where: object, form: str) -> Iterator[None]:
    if isinstance(where, Path):
        limits.check_regular(where)
    try:
        yield
    except (ContrastLabError, OSError):
        raise
    except KeyError as error:
        raise CorruptFileError(f"{where} is not in {form}: a field {error} is missing") from error
    except Exception as error:
        raise CorruptFileError(f"{where} is not in {form}: {type(error).__name__}: {error}") from error


# COCO's and LVIS's JSON -----------------------------------------------------------------------------------------------


def read_json(path: Path) -> Any:
    """The content of a file of COCO's or LVIS's JSON."""
    with _reading(path, "COCO's form"):
        return json.loads(path.read_text(encoding="utf-8-sig"))  # some editors begin a file with a mark


def lists(raw: Mapping[str, Any]) -> tuple[dict[int, Any], tuple[Any, ...], list[Any]]:
    """Pictures by id, categories by ascending id, and annotations, not looked into."""
    images = {image["id"]: {**image, "file_name": _file_name(image)} for image in raw["images"]}
    return images, tuple(sorted(raw["categories"], key=lambda category: category["id"])), list(raw["annotations"])


def _file_name(image: Mapping[str, Any]) -> str:
    # LVIS 1.0 says where its pictures are by their address, LVIS 0.5 by COCO's names of 2014
    if "file_name" not in image:
        return "/".join(str(image["coco_url"]).split("/")[-2:])
    name = str(image["file_name"])
    return name[-16:] if name.startswith("COCO_") else name


def read_coco(path: Path, *, strict: bool = True) -> Annotations:
    """Annotations from a file of COCO's or LVIS's JSON; see :func:`parse`."""
    return parse(read_json(path), str(path), strict=strict)


def parse(raw: Mapping[str, Any], name: str, *, strict: bool = True) -> Annotations:
    """Annotations from the content of a file in COCO's form, or in LVIS's, which has ``neg_category_ids``.

    The kind of keypoints is what the categories say, with sigmas of 0.05 where they are not known. What is not in
    COCO's form is a ``CorruptFileError``; an object that cannot be is an ``ArgumentError`` with ``name`` and its id.
    ``strict`` refuses a box without area and a mask that leaves its picture. A published set has a few: without it
    they are left out, or cut by whoever draws the mask.
    """
    with _reading(name, "COCO's form"):
        images, categories, annotations = lists(raw)
        _check_ids(name, *images)
        _check_ids(name, *(category["id"] for category in categories))
        _check_ids(name, *(annotation["id"] for annotation in annotations))
        if strict:
            _check_once(f"{name}: id of an image", [image["id"] for image in raw["images"]])
            _check_once(f"{name}: id of a category", [category["id"] for category in categories])
            _check_once(f"{name}: name of a category", [category.get("name") for category in categories])
        for image in images.values():
            _check_image(image, name)
        for category in categories:
            check("name" in category, f"{name}, category {category['id']}", "no name", "a name for every category")
        kind = _keypoint_kind(categories)
        category_ids = {category["id"] for category in categories}
        objects = []
        for annotation in annotations:
            where = f"{name}, annotation {annotation['id']}"
            _check_fields(annotation, images, category_ids, where)
            each = _object(annotation, images[annotation["image_id"]], kind, where, strict)
            if each is not None:
                objects.append(each)
        if strict:
            _check_boxes(name, images, objects)
        rule: Rule = "coco"
        if any("neg_category_ids" in image for image in images.values()):
            rule = "lvis"
        if not any("keypoints" in each for each in objects):
            kind = None
    left_out = len(annotations) - len(objects)
    return Annotations(images, tuple(objects), categories, rule, kind, left_out)


def _check_image(image: Mapping[str, Any], name: str) -> None:
    where = f"{name}, image {image['id']}"
    size = (image["width"], image["height"])
    check(all(map(is_integer, size)), f"{where}: width, height", size, "two positive integers")
    limits.check_pixels(*size, where)
    _check_ids(name, *image.get("neg_category_ids", []), *image.get("not_exhaustive_category_ids", []))


def _check_fields(
    annotation: Mapping[str, Any], images: Container[int], categories: Container[int], where: str
) -> None:
    """Refuse an object of a picture or category that is not there, or with an impossible crowd or area."""
    for field, ids in (("image_id", images), ("category_id", categories)):
        check(annotation[field] in ids, f"{where}: {field}", annotation[field], "an id that the file lists")
    crowd, area = annotation.get("iscrowd", 0), annotation.get("area", 0)
    check(crowd in (0, 1), f"{where}: iscrowd", crowd, "0 or 1")
    check(is_number(area) and area >= 0, f"{where}: area", area, "a finite number of at least 0")


def _object(
    annotation: Mapping[str, Any], image: Mapping[str, Any], kind: KeypointKind | None, where: str, strict: bool
) -> dict[str, Any] | None:
    """An annotation with every field that evaluators read; ``None`` for a box without area, unless ``strict``."""
    at, stated = f"{where}: bbox", annotation["bbox"]
    box = [float(value) for value in stated if is_number(value)]
    check(len(box) == 4 and min(box[2:]) >= 0, at, stated, "four finite numbers: left, top, width, height")
    left, top, box_width, box_height = box
    if min(box_width, box_height) == 0:
        check(not strict, at, stated, "a box with area: width and height above 0")
        return None
    width, height = image["width"], image["height"]
    is_inside = _inside(left, box_width, width) and _inside(top, box_height, height)
    check(is_inside or not strict, at, box, f"a box with area inside its {width}x{height} picture")
    _check_mask(annotation.get("segmentation"), width, height, where, strict)
    visible = _visible(annotation, kind, where)
    each = {"iscrowd": 0, "area": box_width * box_height, **annotation, **visible, "bbox": box}
    # exports of boxes alone have an empty mask, or null
    if strict and each.get("segmentation", True) in ([], None):
        del each["segmentation"]
    return each


def _check_ids(name: str, *ids: Any) -> None:
    for each in ids:
        check(is_integer(each, -(2**62)), f"{name}: an id", each, "an integer")


def _check_once(argument: str, values: Iterable[Any]) -> None:
    """Refuse a value that occurs twice: what it stands for would not be known."""
    for value, count in Counter(values).items():
        check(count == 1, argument, value, f"a value that occurs once, not {count} times")


def _inside(low: float, length: float, side: int) -> bool:
    # float32 has no smaller share of a pixel at the far end of a picture
    return min(low + length, side) - max(low, 0) >= 0.01 and length <= 16 * side


def _check_boxes(name: str, images: Mapping[int, Any], objects: Sequence[Mapping[str, Any]]) -> None:
    """Refuse boxes that all look as if they were no left, top, width and height in pixels."""
    if not objects:
        return
    fractions, corners, leaves = True, True, False
    for each in objects:
        image, (left, top, width, height) = images[each["image_id"]], each["bbox"]
        fractions = fractions and max(each["bbox"]) <= 1
        corners = corners and left < width <= image["width"] and top < height <= image["height"]
        leaves = leaves or left + width > 1.05 * image["width"] or top + height > 1.05 * image["height"]
    at, first = f"{name}: bbox of {len(objects)} annotations", objects[0]["bbox"]
    accepted = "left, top, width and height in pixels"
    check(not fractions, at, first, f"{accepted}; all numbers are at most 1, as fractions of a picture are")
    check(not (corners and leaves), at, first, f"{accepted}; read so some leave their picture, read as corners none")


def _visible(each: Mapping[str, Any], kind: KeypointKind | None, where: str) -> dict[str, int]:
    if "keypoints" not in each:
        return {}
    points, at = each["keypoints"], f"{where}: keypoints"
    expected = 0 if kind is None else len(kind.names)
    check(all(map(is_number, points)), at, points, "finite numbers")
    accepted = f"{3 * expected}: x, y and visibility of each of {expected} points"
    check(len(points) == 3 * expected, at, f"{len(points)} numbers", accepted)
    return {"num_keypoints": sum(v > 0 for v in points[2::3])}


def _check_mask(mask: Any, width: int, height: int, where: str, strict: bool) -> None:
    at = f"{where}: segmentation"
    if isinstance(mask, dict):
        size = list(mask["size"])
        check(size == [height, width], f"{at} size", size, f"its picture's, [{height}, {width}]")
        return
    if not strict:
        return
    check(mask is None or isinstance(mask, list), at, mask, "polygons or run lengths, or no such field")
    if isinstance(mask, list):
        for polygon in mask:
            count = len(polygon)
            check(count >= 6 and count % 2 == 0, at, f"{count} numbers", "x and y of at least three corners")
            inside = all(-_BEYOND <= value <= side + _BEYOND for value, side in zip(polygon, cycle((width, height))))
            check(inside, at, "a polygon", f"corners inside its {width}x{height} picture")


def _keypoint_kind(categories: Sequence[Mapping[str, Any]]) -> KeypointKind | None:
    for names in (tuple(map(str, category["keypoints"])) for category in categories if category.get("keypoints")):
        known = (kind for kind in KEYPOINTS.values() if kind.names == names)
        return next(known, KeypointKind(names, (0.05,) * len(names)))
    return None


# PASCAL VOC's XML -----------------------------------------------------------------------------------------------------


def read_voc(folder: Path, *lists: str, classes: Sequence[str] | None = None, rule: Rule = "voc07") -> Annotations:
    """Annotations of some lists of pictures of a folder in PASCAL VOC's form.

    A box of VOC counts pixels from 1 and has both ends inside; here it starts at 0 and has a width. What reaches
    beyond the picture is cut, and a box of which nothing is left is left out.
    Lists are such as ``"trainval"``, or ``"VOC2012/trainval"`` in a folder below ``folder``; classes by default those
    that occur in all annotations of the folder, by alphabet.
    """
    if classes is None:
        classes = _voc_classes(folder)
    number = {name: k for k, name in enumerate(classes, 1)}
    images: list[dict[str, Any]] = []
    objects: list[dict[str, Any]] = []
    for name in lists:
        base, _, part = f"./{name}".rpartition("/")
        for stem in _voc_list(folder / base / "ImageSets" / "Main" / f"{part}.txt"):
            size, annotated = _voc_file(folder / base / "Annotations" / f"{stem}.xml")
            image = len(images) + 1
            file_name = (Path(base) / "JPEGImages" / f"{stem}.jpg").as_posix()
            images.append({"id": image, "file_name": file_name, **size})
            for category, difficult, *corners in annotated:
                objects.append(
                    {
                        "id": len(objects) + 1,
                        "image_id": image,
                        "category_id": number[category],
                        "bbox": _voc_box(corners, size["width"], size["height"]),
                        "difficult": difficult,
                    }
                )
    categories = [{"id": k, "name": name} for name, k in number.items()]
    annotations = parse({"images": images, "annotations": objects, "categories": categories}, str(folder), strict=False)
    return replace(annotations, rule=rule)


def _voc_classes(folder: Path) -> list[str]:
    """Names that occur in all annotations of a folder, by alphabet."""
    names = set()
    for path in sorted((folder / "Annotations").glob("*.xml")):
        _, objects = _voc_file(path)
        names |= {name for name, *_ in objects}
    return sorted(names)


def _voc_list(path: Path) -> list[str]:
    """Names of pictures without their ending, each once."""
    with _reading(path, "PASCAL VOC's form"):
        stems = list(dict.fromkeys(line[0] for line in limits.words(path)))
    limits.check_inside(f"{path}: picture", stems)
    return stems


def _voc_box(corners: Sequence[float], width: int, height: int) -> list[float]:
    """Left, top, width and height from 0 of a box that counts pixels from 1, cut to its picture."""
    xmin, ymin, xmax, ymax = corners
    left, top = max(xmin - 1, 0), max(ymin - 1, 0)
    wide, tall = min(xmax, width) - left, min(ymax, height) - top
    return [left, top, max(wide, 0), max(tall, 0)]


def _voc_file(path: Path) -> tuple[dict[str, int], list[tuple[str, int, float, float, float, float]]]:
    """Width and height of a picture; name, difficulty and corners of its objects."""
    with _reading(path, "PASCAL VOC's form"):
        root = ElementTree.parse(path, ElementTree.XMLParser(target=_NoEntities())).getroot()  # noqa: S314
        size = {side: int(_text(root, f"size/{side}")) for side in ("width", "height")}
        objects = []
        for each in root.iter("object"):
            xmin, ymin, xmax, ymax = (float(_text(each, f"bndbox/{end}")) for end in ("xmin", "ymin", "xmax", "ymax"))
            if not all(map(math.isfinite, (xmin, ymin, xmax, ymax))):
                raise ValueError(f"a box has the corners {(xmin, ymin, xmax, ymax)}: accepted are finite numbers")
            objects.append((_text(each, "name"), int(each.findtext("difficult", "0")), xmin, ymin, xmax, ymax))
        return size, objects


class _NoEntities(ElementTree.TreeBuilder):
    def doctype(self, name: str, *_: object) -> None:
        # without a document type there are no entities, which would make a small file large or name other files
        raise ValueError(f"it declares a document type, <!DOCTYPE {name}>: accepted is XML without one")


def _text(element: ElementTree.Element, path: str) -> str:
    text = element.findtext(path)
    if text is None:
        raise ValueError(f"it has no {path}")
    return text.strip()
