"""Annotations of pictures in COCO's form, read from the JSON of COCO and LVIS, and from PASCAL VOC's XML.

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
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

from contrastlab.pictures import limits
from contrastlab.support.errors import ContrastLabError, CorruptFileError, check, is_integer, is_number
from contrastlab.support.files import check_regular
from contrastlab.support.paths import check_inside, lines_of_words

Rule = Literal["coco", "voc07", "voc12", "lvis"]
_BEYOND = 1.0  # pixels that a polygon may reach beyond its picture
_USUAL_SIGMA = 0.05  # of keypoints for which none is published


@dataclass(frozen=True)
class KeypointKind:
    """The named points of an object; in a mirrored picture those called left and right change places."""

    names: tuple[str, ...]
    sigmas: tuple[float, ...]  # how far apart people's clicks are, relative to the root of the area (COCO's OKS)

    @property
    def mirrored(self) -> tuple[int, ...]:
        """Which point stands at each place in a mirrored picture."""
        places = []
        for place, name in enumerate(self.names):
            other_side = re.sub("left|right", lambda side: _OTHER_SIDE[side[0]], name)
            if other_side in self.names:
                places.append(self.names.index(other_side))
            else:
                places.append(place)
        return tuple(places)


_OTHER_SIDE = {"left": "right", "right": "left"}


def _read_keypoint_kinds() -> dict[str, KeypointKind]:
    path = files("contrastlab.domains.detection") / "keypoints.toml"
    kinds = {}
    for name, row in tomllib.loads(path.read_text(encoding="utf-8")).items():
        kinds[name] = KeypointKind(tuple(row["names"]), tuple(row["sigmas"]))
    return kinds


KEYPOINTS = _read_keypoint_kinds()
"""COCO's 17 points of a ``person``, and Leeds Sports Pose's 14 ``joints``."""


@dataclass(frozen=True, eq=False)
class Annotations:
    """The annotations of some pictures, in COCO's form.

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
        return {image: tuple(in_image) for image, in_image in objects.items()}

    @cached_property
    def masks(self) -> bool:
        """Whether every object has a mask."""
        return bool(self.objects) and all("segmentation" in each for each in self.objects)

    def subset(self, images: Iterable[int]) -> Annotations:
        """The pictures of some ids, in that order, and their objects."""
        subset = {image: self.images[image] for image in images}
        objects: list[Mapping[str, Any]] = []
        for image in subset:
            objects += self.of_image[image]
        return replace(self, images=subset, objects=tuple(objects))

    def only(self, names: Sequence[str] | None = None, *, merged: str = "") -> Annotations:
        """Objects of some categories (of all if ``None``), kept apart or as one category called ``merged``."""
        categories = list(self.categories)
        if names is not None:
            categories = [category for category in categories if category["name"] in names]
        ids = {category["id"] for category in categories}
        objects = [each for each in self.objects if each["category_id"] in ids]
        if merged:
            categories = [{"id": 1, "name": merged}]
            objects = [{**each, "category_id": 1} for each in objects]
        return replace(self, categories=tuple(categories), objects=tuple(objects))

    def plain(self, *, renumbered: bool = False) -> dict[str, Any]:
        """COCO's JSON; ``renumbered`` for evaluators: ids of objects from 1 that occur once, and LVIS's frequencies."""
        images = [dict(image) for image in self.images.values()]
        objects = [dict(each) for each in self.objects]
        categories = [dict(category) for category in self.categories]
        if renumbered:
            for number, each in enumerate(objects, 1):
                each["id"] = number
            for category in categories:
                # evaluators read it for means over rare classes, which are not shown
                category.setdefault("frequency", "f")
        return {"images": images, "annotations": objects, "categories": categories}

    @cached_property
    def fingerprint(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of all annotations and of the rule."""
        text = json.dumps([self.plain(), self.rule], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@contextmanager
def _reading(where: object, form: str) -> Iterator[None]:
    """What fails within is a ``CorruptFileError`` that says which form was expected."""
    if isinstance(where, Path):
        check_regular(where)
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
    images = {}
    for image in raw["images"]:
        images[image["id"]] = {**image, "file_name": _file_name(image)}
    categories = sorted(raw["categories"], key=lambda category: category["id"])
    return images, tuple(categories), list(raw["annotations"])


def _file_name(image: Mapping[str, Any]) -> str:
    if "file_name" not in image:  # LVIS 1.0 has addresses, which end in COCO's folder and name
        parts = str(image["coco_url"]).split("/")
        return "/".join(parts[-2:])
    name = str(image["file_name"])
    if name.startswith("COCO_"):  # LVIS 0.5 has COCO's names of 2014, which begin with the part of the set
        return name[-16:]
    return name


def read_coco(path: Path, *, strict: bool = True) -> Annotations:
    """Annotations from a file of COCO's or LVIS's JSON; see :func:`parse`."""
    return parse(read_json(path), str(path), strict=strict)


def parse(raw: Mapping[str, Any], name: str, *, strict: bool = True) -> Annotations:
    """Annotations from the content of a file in COCO's form, or in LVIS's, which has ``neg_category_ids``.

    The categories say the kind of keypoints, with sigmas of 0.05 where none are published. Content that is not in
    COCO's form is a ``CorruptFileError``; an impossible object is an ``ArgumentError`` with ``name`` and its id.
    ``strict`` refuses a box without area and a mask that leaves its picture. Published sets have a few of these.
    Without ``strict`` such boxes are left out, and such masks are cut when they are drawn.
    """
    with _reading(name, "COCO's form"):
        images, categories, annotations = lists(raw)
        _check_listed(name, images, categories, annotations)
        if strict:
            _check_once(f"{name}: id of an image", [image["id"] for image in raw["images"]])
            _check_once(f"{name}: id of a category", [category["id"] for category in categories])
            _check_once(f"{name}: name of a category", [category.get("name") for category in categories])
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


def _check_listed(
    name: str,
    images: Mapping[int, Any],
    categories: Sequence[Any],
    annotations: Sequence[Mapping[str, Any]],
) -> None:
    """Refuse ids that are no integers, pictures without a size, and categories without a name."""
    _check_ids(name, images)
    _check_ids(name, [category["id"] for category in categories])
    _check_ids(name, [annotation["id"] for annotation in annotations])
    for image in images.values():
        _check_image(image, name)
    for category in categories:
        check("name" in category, f"{name}, category {category['id']}", "no name", "a name for every category")


def _check_image(image: Mapping[str, Any], name: str) -> None:
    where = f"{name}, image {image['id']}"
    size = (image["width"], image["height"])
    check(all(map(is_integer, size)), f"{where}: width, height", size, "two positive integers")
    limits.check_pixels(*size, where)
    _check_ids(name, image.get("neg_category_ids", []))
    _check_ids(name, image.get("not_exhaustive_category_ids", []))


def _check_fields(
    annotation: Mapping[str, Any],
    images: Container[int],
    categories: Container[int],
    where: str,
) -> None:
    """Refuse an object of a picture or category that is not there, or with an impossible crowd or area."""
    image = annotation["image_id"]
    check(image in images, f"{where}: image_id", image, "an id that the file lists")
    category = annotation["category_id"]
    check(category in categories, f"{where}: category_id", category, "an id that the file lists")
    crowd = annotation.get("iscrowd", 0)
    check(crowd in (0, 1), f"{where}: iscrowd", crowd, "0 or 1")
    area = annotation.get("area", 0)
    check(is_number(area) and area >= 0, f"{where}: area", area, "a finite number of at least 0")


def _object(
    annotation: Mapping[str, Any],
    image: Mapping[str, Any],
    kind: KeypointKind | None,
    where: str,
    strict: bool,
) -> dict[str, Any] | None:
    """An annotation with every field that evaluators read; ``None`` for a box without area, unless ``strict``."""
    box = _box(annotation["bbox"], where)
    left, top, box_width, box_height = box
    if min(box_width, box_height) == 0:
        check(not strict, f"{where}: bbox", annotation["bbox"], "a box with area: width and height above 0")
        return None
    width = image["width"]
    height = image["height"]
    if strict:
        is_inside = _inside(left, box_width, width) and _inside(top, box_height, height)
        check(is_inside, f"{where}: bbox", box, f"a box with area inside its {width}x{height} picture")
    _check_mask(annotation.get("segmentation"), width, height, where, strict)
    each = {"iscrowd": 0, "area": box_width * box_height, **annotation, "bbox": box}
    if "keypoints" in annotation:
        each["num_keypoints"] = _visible(annotation["keypoints"], kind, where)
    # exports of boxes alone have an empty mask, or null
    if strict and each.get("segmentation", True) in ([], None):
        del each["segmentation"]
    return each


def _box(values: Any, where: str) -> list[float]:
    numbers = [value for value in values if is_number(value)]
    is_box = len(numbers) == 4 and min(numbers[2:]) >= 0
    check(is_box, f"{where}: bbox", values, "four finite numbers: left, top, width, height")
    return [float(number) for number in numbers]


def _check_ids(name: str, ids: Iterable[Any]) -> None:
    for each in ids:
        check(is_integer(each, -(2**62)), f"{name}: an id", each, "an integer")


def _check_once(argument: str, values: Iterable[Any]) -> None:
    """Refuse a value that occurs twice: what it stands for would not be known."""
    for value, count in Counter(values).items():
        check(count == 1, argument, value, f"a value that occurs once, not {count} times")


def _inside(low: float, length: float, side: int) -> bool:
    # float32 has no smaller share of a pixel at the far end of a picture
    inside = min(low + length, side) - max(low, 0)
    return inside >= 0.01 and length <= 16 * side


def _check_boxes(name: str, images: Mapping[int, Any], objects: Sequence[Mapping[str, Any]]) -> None:
    """Refuse boxes that all look as if they were no left, top, width and height in pixels."""
    if not objects:
        return
    are_fractions = True
    are_corners = True
    some_leave = False
    for each in objects:
        image = images[each["image_id"]]
        picture_width = image["width"]
        picture_height = image["height"]
        left, top, width, height = each["bbox"]
        if max(each["bbox"]) > 1:
            are_fractions = False
        if not (left < width <= picture_width and top < height <= picture_height):
            are_corners = False
        if left + width > 1.05 * picture_width or top + height > 1.05 * picture_height:
            some_leave = True
    at = f"{name}: bbox of {len(objects)} annotations"
    first = objects[0]["bbox"]
    accepted = "left, top, width and height in pixels"
    check(not are_fractions, at, first, f"{accepted}; all numbers are at most 1, as fractions of a picture are")
    misread = f"{accepted}; read so some leave their picture, read as corners none"
    check(not (are_corners and some_leave), at, first, misread)


def _visible(points: Any, kind: KeypointKind | None, where: str) -> int:
    """How many keypoints of an object are annotated."""
    at = f"{where}: keypoints"
    expected = 0 if kind is None else len(kind.names)
    check(all(map(is_number, points)), at, points, "finite numbers")
    accepted = f"{3 * expected}: x, y and visibility of each of {expected} points"
    check(len(points) == 3 * expected, at, f"{len(points)} numbers", accepted)
    visibilities = points[2::3]
    return sum(visibility > 0 for visibility in visibilities)


def _check_mask(mask: Any, width: int, height: int, where: str, strict: bool) -> None:
    at = f"{where}: segmentation"
    if isinstance(mask, dict):
        size = list(mask["size"])
        check(size == [height, width], f"{at} size", size, f"its picture's, [{height}, {width}]")
        return
    if not strict:
        return
    check(mask is None or isinstance(mask, list), at, mask, "polygons or run lengths, or no such field")
    for polygon in mask or ():
        _check_polygon(polygon, width, height, at)


def _check_polygon(polygon: Sequence[float], width: int, height: int, at: str) -> None:
    count = len(polygon)
    check(count >= 6 and count % 2 == 0, at, f"{count} numbers", "x and y of at least three corners")
    x_inside = all(-_BEYOND <= x <= width + _BEYOND for x in polygon[::2])
    y_inside = all(-_BEYOND <= y <= height + _BEYOND for y in polygon[1::2])
    check(x_inside and y_inside, at, "a polygon", f"corners inside its {width}x{height} picture")


def _keypoint_kind(categories: Sequence[Mapping[str, Any]]) -> KeypointKind | None:
    """The keypoints of the first category that has some."""
    for category in categories:
        if not category.get("keypoints"):
            continue
        names = tuple(map(str, category["keypoints"]))
        for kind in KEYPOINTS.values():
            if kind.names == names:
                return kind
        return KeypointKind(names, (_USUAL_SIGMA,) * len(names))
    return None


# PASCAL VOC's XML -----------------------------------------------------------------------------------------------------


def read_voc(
    folder: Path,
    *lists: str,
    classes: Sequence[str] | None = None,
    rule: Rule = "voc07",
) -> Annotations:
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
    for inside, stem in _voc_pictures(folder, lists):
        size, in_picture = _voc_file(folder / inside / "Annotations" / f"{stem}.xml")
        picture = inside / "JPEGImages" / f"{stem}.jpg"
        image_id = len(images) + 1
        images.append({"id": image_id, "file_name": picture.as_posix(), **size})
        for each in in_picture:
            annotation = {
                "id": len(objects) + 1,
                "image_id": image_id,
                "category_id": number[each.name],
                "bbox": _voc_box(each.corners, size["width"], size["height"]),
                "difficult": each.difficult,
            }
            objects.append(annotation)
    categories = [{"id": k, "name": name} for name, k in number.items()]
    raw = {"images": images, "annotations": objects, "categories": categories}
    annotations = parse(raw, str(folder), strict=False)
    return replace(annotations, rule=rule)


@dataclass(frozen=True)
class _VocObject:
    """An object as the XML has it."""

    name: str
    difficult: int
    corners: tuple[float, ...]  #: xmin, ymin, xmax, ymax


def _voc_pictures(folder: Path, lists: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """Folder below ``folder``, and name without ending, of each picture of some lists."""
    for name in lists:
        path = Path(f"./{name}")
        inside = path.parent
        for stem in _voc_list(folder / inside / "ImageSets" / "Main" / f"{path.name}.txt"):
            yield inside, stem


def _voc_classes(folder: Path) -> list[str]:
    """Names that occur in all annotations of a folder, by alphabet."""
    names = set()
    for path in sorted((folder / "Annotations").glob("*.xml")):
        _, objects = _voc_file(path)
        for each in objects:
            names.add(each.name)
    return sorted(names)


def _voc_list(path: Path) -> list[str]:
    """Names of pictures without their ending, each once."""
    with _reading(path, "PASCAL VOC's form"):
        first_words = [words[0] for words in lines_of_words(path)]
        stems = list(dict.fromkeys(first_words))
    check_inside(f"{path}: picture", stems)
    return stems


def _voc_box(corners: Sequence[float], width: int, height: int) -> list[float]:
    """Left, top, width and height from 0 of a box that counts pixels from 1, cut to its picture."""
    xmin, ymin, xmax, ymax = corners
    left = max(xmin - 1, 0)
    top = max(ymin - 1, 0)
    box_width = min(xmax, width) - left
    box_height = min(ymax, height) - top
    return [left, top, max(box_width, 0), max(box_height, 0)]


def _voc_file(path: Path) -> tuple[dict[str, int], list[_VocObject]]:
    """Width and height of a picture, and its objects."""
    with _reading(path, "PASCAL VOC's form"):
        parser = ElementTree.XMLParser(target=_NoEntities())  # noqa: S314
        root = ElementTree.parse(path, parser).getroot()  # noqa: S314
        size = {side: int(_text(root, f"size/{side}")) for side in ("width", "height")}
        return size, [_voc_object(element) for element in root.iter("object")]


def _voc_object(element: ElementTree.Element) -> _VocObject:
    corners = tuple(float(_text(element, f"bndbox/{end}")) for end in ("xmin", "ymin", "xmax", "ymax"))
    if not all(map(math.isfinite, corners)):
        raise ValueError(f"a box has the corners {corners}: accepted are finite numbers")
    difficult = int(element.findtext("difficult", "0"))
    return _VocObject(_text(element, "name"), difficult, corners)


class _NoEntities(ElementTree.TreeBuilder):
    def doctype(self, name: str, *_: object) -> None:
        # without a document type there are no entities, which would make a small file large or name other files
        raise ValueError(f"it declares a document type, <!DOCTYPE {name}>: expected XML without one")


def _text(element: ElementTree.Element, path: str) -> str:
    text = element.findtext(path)
    if text is None:
        raise ValueError(f"it has no {path}")
    return text.strip()
