"""Annotated pictures in the JSON of COCO and LVIS; :mod:`contrastlab.data.voc` brings VOC's XML into the same form.

An :class:`Annotations` holds what the evaluators read: pictures, objects and categories. An object has a box
``(left, top, width, height)`` in pixels, and may have a mask (polygons or run lengths), keypoints, and be a crowd.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from contrastlab import files
from contrastlab.data import limits
from contrastlab.errors import CorruptFileError, MissingDataError, reject

Rule = Literal["coco", "voc07", "voc12", "lvis"]
_BEYOND = 1.0  # pixels that a polygon or box of a published set may reach beyond its picture
PERSON_AREA = 0.53
"""Share of a person's box that the person covers, as pycocotools' relatives have it where no area is annotated."""


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

    def __post_init__(self) -> None:
        if len(self.sigmas) != len(self.names):
            raise reject("sigmas", len(self.sigmas), f"one for each of the {len(self.names)} keypoints")
        for pair in self.flip:
            if not all(0 <= k < len(self.names) for k in pair):
                raise reject("flip", pair, f"numbers of keypoints, 0 to {len(self.names) - 1}")

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
        found: dict[int, list[Mapping[str, Any]]] = {image: [] for image in self.images}
        for each in self.objects:
            found[each["image_id"]].append(each)
        return {image: tuple(objects) for image, objects in found.items()}

    @cached_property
    def masks(self) -> bool:
        """Whether every object has a mask."""
        return bool(self.objects) and all("segmentation" in each for each in self.objects)

    def subset(self, images: Iterable[int]) -> Annotations:
        """The pictures of some ids, in that order, and their objects."""
        chosen = {image: self.images[image] for image in images}
        return replace(self, images=chosen, objects=tuple(each for i in chosen for each in self.of_image[i]))

    def only(self, names: Sequence[str] | None = None, *, merged: str = "") -> Annotations:
        """Objects of some categories, or all of them as one category.

        Args:
            names: of the categories that are kept; ``None`` is all.
            merged: name of the one category they become; empty keeps them apart.
        """
        kept = [c for c in self.categories if names is None or c["name"] in names]
        ids = {c["id"] for c in kept}
        objects = [each for each in self.objects if each["category_id"] in ids]
        if merged:
            kept, objects = [{"id": 1, "name": merged}], [{**each, "category_id": 1} for each in objects]
        return replace(self, categories=tuple(kept), objects=tuple(objects))

    def plain(self) -> dict[str, Any]:
        """COCO's JSON."""
        return {
            "images": [dict(image) for image in self.images.values()],
            "annotations": [dict(each) for each in self.objects],
            "categories": [dict(category) for category in self.categories],
        }

    @cached_property
    def fingerprint(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of everything that is known, and of the rule."""
        text = json.dumps([self.plain(), self.rule], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def load_json(path: Path) -> dict[str, Any]:
    """The content of a file of annotations.

    Raises:
        MissingDataError: it is not there.
        CorruptFileError: it has not the three lists of COCO's form.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise MissingDataError(f"{path} does not exist: annotations in COCO's form are looked for there") from error
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"{path} is not JSON: {error}") from error
    if not isinstance(raw, dict) or not all(isinstance(raw.get(key), list) for key in _LISTS):
        raise CorruptFileError(
            f"{path} is not in COCO's form: accepted is an object with the lists {', '.join(_LISTS)}"
        )
    return raw


_LISTS = ("images", "annotations", "categories")


def lists(path: Path) -> tuple[dict[int, Any], tuple[Any, ...], list[Any]]:
    """Pictures by id, categories by ascending id, and annotations of a file in COCO's form, not looked into.

    Raises:
        MissingDataError: the file is not there.
        CorruptFileError: it has not the three lists of COCO's form.
    """
    try:
        return _lists(load_json(path))
    except (KeyError, TypeError) as error:
        raise CorruptFileError(f"{path} is not in COCO's form: {error!r}") from error


def _lists(raw: Mapping[str, Any]) -> tuple[dict[int, Any], tuple[Any, ...], list[Any]]:
    images = {image["id"]: {**image, "file_name": _file_name(image)} for image in raw["images"]}
    return images, tuple(sorted(raw["categories"], key=lambda category: category["id"])), raw["annotations"]


def read_coco(
    path: Path, *, keypoints: KeypointKind | None = None, strict: bool = True, rule: Rule | None = None
) -> Annotations:
    """Annotations from COCO's or LVIS's JSON; LVIS's is told by its ``neg_category_ids``.

    Args:
        path: of the file.
        keypoints: the kind of points; by default what the file's categories say, with COCO's sigmas for its 17 points
            and 0.05 for others.
        strict: refuse a box without area or a mask that leaves its picture. A published set has a few: there they are
            left out, or cut by whoever draws the mask.
        rule: how detections are scored; by default by the file's form.

    Raises:
        MissingDataError: the file is not there.
        CorruptFileError: it is not JSON, or not in COCO's form.
        ArgumentError: an object that cannot be; the message names its file and id.
    """
    return parse(load_json(path), str(path), keypoints=keypoints, strict=strict, rule=rule)


def parse(
    raw: Mapping[str, Any], name: str, *, keypoints: KeypointKind | None = None, strict: bool = True,
    rule: Rule | None = None,
) -> Annotations:  # fmt: skip
    """Annotations from the content of a file in COCO's or LVIS's form; see :func:`read_coco`."""
    try:
        images, categories, marked = _lists(raw)
        known = {category["id"] for category in categories}
        kind = keypoints or _keypoint_kind(categories)
        objects, left_out = [], 0
        for image in images.values():
            width, height = image["width"], image["height"]
            if not all(isinstance(side, int) and side > 0 for side in (width, height)):
                raise reject(f"{name}, image {image['id']}: width, height", (width, height), "two positive integers")
            limits.check_pixels(width, height, f"{name}, image {image['id']}")
        for each in marked:
            where = f"{name}, annotation {each['id']}"
            if each["image_id"] not in images:
                raise reject(f"{where}: image_id", each["image_id"], "the id of one of the file's images")
            if each["category_id"] not in known:
                raise reject(f"{where}: category_id", each["category_id"], "the id of one of the file's categories")
            box = tuple(float(value) for value in each["bbox"] if isinstance(value, int | float))
            if len(box) != 4 or not all(map(math.isfinite, box)) or min(box[2:]) < 0:
                raise reject(f"{where}: bbox", each["bbox"], "four finite numbers: left, top, width, height")
            if min(box[2:]) == 0:
                if strict:
                    raise reject(f"{where}: bbox", each["bbox"], "a box with area: width and height above 0")
                left_out += 1
                continue
            image = images[each["image_id"]]
            _check_mask(each.get("segmentation"), image, where, strict)
            objects.append({**_checked(each, kind, where), "bbox": list(box)})
    except (KeyError, IndexError, TypeError, AttributeError, OverflowError) as error:
        raise CorruptFileError(f"{name} is not in COCO's form: {error!r}") from error
    federated = any("neg_category_ids" in image for image in images.values())
    chosen: Rule = rule or ("lvis" if federated else "coco")
    has_points = any("keypoints" in each for each in objects)
    return Annotations(images, tuple(objects), categories, chosen, kind if has_points else None, left_out)


def _checked(each: Mapping[str, Any], kind: KeypointKind | None, where: str) -> dict[str, Any]:
    made = {"iscrowd": 0, "area": float(each["bbox"][2]) * float(each["bbox"][3]), **each}
    if "keypoints" in each:
        expected = 3 * len(kind.names) if kind else 0
        if len(each["keypoints"]) != expected:
            raise reject(
                f"{where}: keypoints", f"{len(each['keypoints'])} numbers",
                f"{expected}: x, y and visibility of each of {expected // 3} points",
            )  # fmt: skip
        made["num_keypoints"] = sum(v > 0 for v in each["keypoints"][2::3])
    return made


def _check_mask(mask: Any, image: Mapping[str, Any], where: str, strict: bool) -> None:
    width, height = image["width"], image["height"]
    if isinstance(mask, dict):
        if list(mask["size"]) != [height, width]:
            raise reject(f"{where}: segmentation size", list(mask["size"]), f"its picture's, [{height}, {width}]")
    elif isinstance(mask, list) and strict:
        for polygon in mask:
            across, down = polygon[0::2], polygon[1::2]
            if len(polygon) < 6 or len(polygon) % 2:
                raise reject(f"{where}: segmentation", f"{len(polygon)} numbers", "x and y of at least three corners")
            inside = min(*across, *down) >= -_BEYOND and max(across) <= width + _BEYOND
            if not (inside and max(down) <= height + _BEYOND):
                raise reject(f"{where}: segmentation", "a polygon", f"corners inside its {width}x{height} picture")


def _keypoint_kind(categories: Sequence[Mapping[str, Any]]) -> KeypointKind | None:
    named = next((tuple(c["keypoints"]) for c in categories if c.get("keypoints")), None)
    if named is None or named == PERSON.names:
        return None if named is None else PERSON
    number = {point: k for k, point in enumerate(named)}
    flip = tuple((k, number[n.replace("left", "right")]) for n, k in number.items() if "left" in n
                 and n.replace("left", "right") in number)  # fmt: skip
    return KeypointKind(named, flip, (0.05,) * len(named))


def _file_name(image: Mapping[str, Any]) -> str:
    # LVIS 1.0 says where its pictures are by their address, LVIS 0.5 by COCO's names of 2014
    if "file_name" not in image:
        return "/".join(str(image["coco_url"]).split("/")[-2:])
    name = str(image["file_name"])
    return name[-16:] if name.startswith("COCO_") else name


def write(annotations: Annotations, path: Path) -> Path:
    """Write COCO's JSON, whole or not at all; :func:`read_coco` reads it back."""
    return files.write_whole(path, json.dumps(annotations.plain()) + "\n")
