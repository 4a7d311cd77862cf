"""What is annotated in pictures, in COCO's form: read from the JSON of COCO and LVIS, and from PASCAL VOC's XML.

An :class:`Annotations` holds what the evaluators read: pictures, objects and categories. An object has a box
``(left, top, width, height)`` in pixels, and may have a mask (polygons or run lengths), keypoints, and be a crowd.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

from contrastlab.data import limits
from contrastlab.errors import ContrastLabError, CorruptFileError, MissingDataError, reject

Rule = Literal["coco", "voc07", "voc12", "lvis"]
_COCO, _VOC = "COCO's form", "PASCAL VOC's form"
_LISTS = ("images", "annotations", "categories")
_BEYOND = 1.0  # pixels that a polygon may reach beyond its picture


@dataclass(frozen=True)
class KeypointKind:
    """The named points of an object.

    Args:
        names: of the points.
        flip: pairs of numbers that change places in a mirrored picture.
        sigmas: per point, how far apart people's clicks are, relative to the root of the object's area (COCO's OKS).
    """

    names: tuple[str, ...]
    flip: tuple[tuple[int, int], ...]
    sigmas: tuple[float, ...]

    @property
    def mirrored(self) -> tuple[int, ...]:
        """Which point stands at each place in a mirrored picture."""
        order = list(range(len(self.names)))
        for a, b in self.flip:
            order[a], order[b] = b, a
        return tuple(order)


_COCO_SIDES = ("eye", "ear", "shoulder", "elbow", "wrist", "hip", "knee", "ankle")
PERSON = KeypointKind(
    ("nose", *(f"{side}_{part}" for part in _COCO_SIDES for side in ("left", "right"))),
    tuple((k, k + 1) for k in range(1, 17, 2)),
    (.026, .025, .025, .035, .035, .079, .079, .072, .072, .062, .062, .107, .107, .087, .087, .089, .089),
)  # fmt: skip
"""COCO's 17 points of a person."""


@dataclass(frozen=True, eq=False)
class Annotations:
    """What is known of some pictures, in COCO's form.

    Attributes:
        images: by id: ``file_name``, ``width``, ``height``; for LVIS also ``neg_category_ids`` and
            ``not_exhaustive_category_ids``.
        objects: ``id``, ``image_id``, ``category_id``, ``bbox``, ``area``, ``iscrowd``, and where they are annotated
            ``segmentation``, ``keypoints`` with ``num_keypoints``, ``difficult``.
        categories: ``id`` and ``name``, by ascending id; ids may leave numbers out.
        rule: how detections are scored.
        keypoints: the kind of points, where there are any.
        left_out: how many boxes without area were left out.
    """

    images: Mapping[int, Mapping[str, Any]]
    objects: tuple[Mapping[str, Any], ...]
    categories: tuple[Mapping[str, Any], ...]
    rule: Rule = "coco"
    keypoints: KeypointKind | None = None
    left_out: int = 0

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
        return {image: tuple(own) for image, own in objects.items()}

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
        """COCO's JSON; ``renumbered`` for evaluators, which ask for ids of objects from 1 that occur once."""
        objects = [dict(each) for each in self.objects]
        return {
            "images": [dict(image) for image in self.images.values()],
            "annotations": [{**each, "id": k} for k, each in enumerate(objects, 1)] if renumbered else objects,
            "categories": [dict(category) for category in self.categories],
        }

    @cached_property
    def fingerprint(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of everything that is known, and of the rule."""
        text = json.dumps([self.plain(), self.rule], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@contextmanager
def reading(where: object, form: str) -> Iterator[None]:
    """Errors of reading a file, ``where``, as a CorruptFileError or MissingDataError that says so."""
    try:
        yield
    except ContrastLabError:
        raise
    except FileNotFoundError as error:
        raise MissingDataError(f"{error.filename} does not exist: {where} is read in {form}") from error
    except ValueError as error:
        raise CorruptFileError(f"{where} is not in {form}: {error}") from error
    except (LookupError, TypeError, AttributeError, OverflowError, RecursionError, SyntaxError) as error:
        raise CorruptFileError(f"{where} is not in {form}: {error!r}") from error


# COCO's and LVIS's JSON -----------------------------------------------------------------------------------------------


def _load(path: Path) -> dict[str, Any]:
    with reading(path, _COCO):
        raw = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(raw, dict) or not all(isinstance(raw.get(key), list) for key in _LISTS):
            raise ValueError(f"accepted is an object with the lists {', '.join(_LISTS)}")
    return raw


def lists(path: Path) -> tuple[dict[int, Any], tuple[Any, ...], list[Any]]:
    """Pictures by id, categories by ascending id, and annotations of a file in COCO's form, not looked into."""
    with reading(path, _COCO):
        return _lists(_load(path))


def _lists(raw: Mapping[str, Any]) -> tuple[dict[int, Any], tuple[Any, ...], list[Any]]:
    images = {image["id"]: {**image, "file_name": _file_name(image)} for image in raw["images"]}
    return images, tuple(sorted(raw["categories"], key=lambda category: category["id"])), raw["annotations"]


def _file_name(image: Mapping[str, Any]) -> str:
    # LVIS 1.0 says where its pictures are by their address, LVIS 0.5 by COCO's names of 2014
    if "file_name" not in image:
        return "/".join(str(image["coco_url"]).split("/")[-2:])
    name = str(image["file_name"])
    return name[-16:] if name.startswith("COCO_") else name


def read_coco(path: Path, *, strict: bool = True) -> Annotations:
    """Annotations from a file of COCO's or LVIS's JSON; see :func:`parse`."""
    return parse(_load(path), str(path), strict=strict)


def parse(raw: Mapping[str, Any], name: str, *, strict: bool = True) -> Annotations:
    """Annotations from the content of a file in COCO's form, or in LVIS's, which has ``neg_category_ids``.

    The kind of keypoints is what the categories say, with COCO's sigmas for its 17 points and 0.05 for others.

    Args:
        raw: the content.
        name: what to call it in errors.
        strict: refuse a box without area or a mask that leaves its picture. A published set has a few: there they are
            left out, or cut by whoever draws the mask.

    Raises:
        CorruptFileError: it is not in COCO's form.
        ArgumentError: an object that cannot be; the message names its file and id.
    """
    with reading(name, _COCO):
        images, categories, marked = _lists(raw)
        for image in images.values():
            width, height = image["width"], image["height"]
            if not all(isinstance(side, int) and side > 0 for side in (width, height)):
                raise reject(f"{name}, image {image['id']}: width, height", (width, height), "two positive integers")
            limits.check_pixels(width, height, f"{name}, image {image['id']}")
        ids = {category["id"] for category in categories}
        kind = _keypoint_kind(categories)
        objects, left_out = [], 0
        for each in marked:
            where = f"{name}, annotation {each['id']}"
            if each["image_id"] not in images:
                raise reject(f"{where}: image_id", each["image_id"], "the id of one of the file's images")
            if each["category_id"] not in ids:
                raise reject(f"{where}: category_id", each["category_id"], "the id of one of the file's categories")
            box = _box(each["bbox"], where)
            if min(box[2:]) > 0:
                _check_mask(each.get("segmentation"), images[each["image_id"]], where, strict)
                area = {"iscrowd": 0, "area": box[2] * box[3]}
                objects.append({**area, **each, **_visible(each, kind, where), "bbox": box})
            elif strict:
                raise reject(f"{where}: bbox", each["bbox"], "a box with area: width and height above 0")
            else:
                left_out += 1
        rule: Rule = "lvis" if any("neg_category_ids" in image for image in images.values()) else "coco"
        has_points = any("keypoints" in each for each in objects)
    return Annotations(images, tuple(objects), categories, rule, kind if has_points else None, left_out)


def _box(given: Sequence[float], where: str) -> list[float]:
    box = [float(value) for value in given if isinstance(value, int | float)]
    if len(box) != 4 or not all(map(math.isfinite, box)) or min(box[2:]) < 0:
        raise reject(f"{where}: bbox", given, "four finite numbers: left, top, width, height")
    return box


def _visible(each: Mapping[str, Any], kind: KeypointKind | None, where: str) -> dict[str, int]:
    if "keypoints" not in each:
        return {}
    points, expected = each["keypoints"], len(kind.names) if kind else 0
    if len(points) != 3 * expected:
        accepted = f"{3 * expected}: x, y and visibility of each of {expected} points"
        raise reject(f"{where}: keypoints", f"{len(points)} numbers", accepted)
    return {"num_keypoints": sum(v > 0 for v in points[2::3])}


def _check_mask(mask: Any, image: Mapping[str, Any], where: str, strict: bool) -> None:
    width, height = image["width"], image["height"]
    if isinstance(mask, dict):
        if list(mask["size"]) != [height, width]:
            raise reject(f"{where}: segmentation size", list(mask["size"]), f"its picture's, [{height}, {width}]")
    elif isinstance(mask, list) and strict:
        for polygon in mask:
            if len(polygon) < 6 or len(polygon) % 2:
                raise reject(f"{where}: segmentation", f"{len(polygon)} numbers", "x and y of at least three corners")
            sides = (width, height) * (len(polygon) // 2)
            if not all(-_BEYOND <= value <= side + _BEYOND for value, side in zip(polygon, sides, strict=True)):
                raise reject(f"{where}: segmentation", "a polygon", f"corners inside its {width}x{height} picture")


def _keypoint_kind(categories: Sequence[Mapping[str, Any]]) -> KeypointKind | None:
    names = next((tuple(c["keypoints"]) for c in categories if c.get("keypoints")), None)
    if names is None:
        return None
    if names == PERSON.names:
        return PERSON
    number = {point: k for k, point in enumerate(names)}
    mirror = {k: number.get(name.replace("left", "right")) for name, k in number.items() if "left" in name}
    return KeypointKind(names, tuple((k, m) for k, m in mirror.items() if m is not None), (0.05,) * len(names))


# PASCAL VOC's XML -----------------------------------------------------------------------------------------------------


def read_voc(folder: Path, *lists: str, classes: Sequence[str] | None = None, rule: Rule = "voc07") -> Annotations:
    """Annotations of some lists of pictures of a folder in PASCAL VOC's form.

    A box of VOC counts pixels from 1 and has both ends inside; here it starts at 0 and has a width. What reaches
    beyond the picture is cut, and a box of which nothing is left is left out.

    Args:
        folder: with ``Annotations``, ``ImageSets/Main`` and ``JPEGImages``, or with folders that have them.
        lists: such as ``"trainval"``, or ``"VOC2012/trainval"`` in a folder below ``folder``.
        classes: their names; by default those that occur in all annotations of the folder, by alphabet.
        rule: how detections are scored: eleven points for 2007, the whole area for 2012.
    """
    if classes is None:
        everything = [_voc_file(path) for path in sorted((folder / "Annotations").glob("*.xml"))]
        classes = sorted({each["name"] for _, objects in everything for each in objects})
    number = {name: k for k, name in enumerate(classes, 1)}
    images: dict[int, Any] = {}
    objects: list[Mapping[str, Any]] = []
    left_out = 0
    for listed in lists:
        base, _, part = f"./{listed}".rpartition("/")
        path = folder / base / "ImageSets" / "Main" / f"{part}.txt"
        with reading(path, _VOC):
            stems = [line.split()[0] for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        limits.check_inside(f"{path}: picture", stems)
        for image, stem in enumerate(stems, len(images) + 1):
            annotation = folder / base / "Annotations" / f"{stem}.xml"
            size, own = _voc_file(annotation)
            name = (Path(base) / "JPEGImages" / f"{stem}.jpg").as_posix()
            images[image] = {"id": image, "file_name": name, **size}
            for each in own:
                left, top = max(each["xmin"] - 1, 0), max(each["ymin"] - 1, 0)
                wide, tall = min(each["xmax"], size["width"]) - left, min(each["ymax"], size["height"]) - top
                if min(wide, tall) <= 0:
                    left_out += 1
                    continue
                if each["name"] not in number:
                    raise CorruptFileError(f"{annotation}: unknown class {each['name']!r}; known: {', '.join(number)}")
                objects.append({
                    "id": len(objects) + 1, "image_id": image, "category_id": number[each["name"]],
                    "bbox": [left, top, wide, tall], "area": wide * tall, "iscrowd": 0, "difficult": each["difficult"],
                })  # fmt: skip
    categories = tuple({"id": k, "name": name} for name, k in number.items())
    return Annotations(images, tuple(objects), categories, rule, None, left_out)


def _voc_file(path: Path) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """Width and height of a picture; name, corners and difficulty of its objects."""
    with reading(path, _VOC):
        root = ElementTree.parse(path, ElementTree.XMLParser(target=_NoEntities())).getroot()  # noqa: S314
        size = {side: int(_text(root, f"size/{side}")) for side in ("width", "height")}
        objects: list[dict[str, Any]] = []
        for each in root.iter("object"):
            corners = {name: float(_text(each, f"bndbox/{name}")) for name in ("xmin", "ymin", "xmax", "ymax")}
            if not all(map(math.isfinite, corners.values())):
                raise ValueError(f"a box has the corners {corners}: accepted are finite numbers")
            difficult = int(each.findtext("difficult", "0"))
            objects.append({"name": _text(each, "name"), "difficult": difficult, **corners})
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
