"""Sets of annotated pictures: published, copied, or a user's own; each has a layout of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from contrastlab.data import coco, voc
from contrastlab.data.annotated import AnnotatedImages, AnnotatedSplits
from contrastlab.data.pictures import decode
from contrastlab.errors import CorruptFileError, MissingDataError, unknown


def _note(text: str, *parts: coco.Annotations) -> str:
    left_out = sum(part.left_out for part in parts)
    return text + (f"; {left_out} boxes without area left out" if left_out else "")


def _coco_2017(name: str, root: Path, *, kind: str) -> AnnotatedSplits:
    folder, points = root / "coco", coco.PERSON if kind == "person_keypoints" else None
    parts = []
    for part, year in (("train", "train2017"), ("test", "val2017")):
        found = coco.read_coco(folder / "annotations" / f"{kind}_{year}.json", keypoints=points, strict=False)
        parts.append(AnnotatedImages(f"{name}/{part}", found, folder / year))
    note = f"MSCOCO 2017, {kind}; test is val2017"
    return AnnotatedSplits(name, parts[0], parts[1], _note(note, *(part.annotations for part in parts)))


def _lvis(name: str, root: Path) -> AnnotatedSplits:
    parts = []
    for part, split in (("train", "train"), ("test", "val")):
        found = coco.read_coco(root / "lvis" / f"lvis_v0.5_{split}.json", strict=False, rule="lvis")
        folder = root / "coco" if "/" in _first_name(found) else root / "coco" / f"{split}2017"
        parts.append(AnnotatedImages(f"{name}/{part}", found, folder))
    note = "LVIS 0.5 on the pictures of MSCOCO 2017; test is its validation part; scored on what was looked for"
    return AnnotatedSplits(name, parts[0], parts[1], _note(note, *(part.annotations for part in parts)))


def _first_name(annotations: coco.Annotations) -> str:
    return str(next(iter(annotations.images.values()), {"file_name": ""})["file_name"])


_VOC = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip


def _voc(name: str, root: Path) -> AnnotatedSplits:
    base = root / "VOCdevkit"
    older = voc.read_voc(base / "VOC2007", "trainval", _VOC)
    newer = voc.read_voc(base / "VOC2012", "trainval", _VOC)
    images = {k: {**image, "file_name": f"VOC2007/{image['file_name']}"} for k, image in older.images.items()}
    shift, objects = len(images), len(older.objects)
    for k, image in newer.images.items():
        images[k + shift] = {**image, "id": k + shift, "file_name": f"VOC2012/{image['file_name']}"}
    moved = ({**each, "id": each["id"] + objects, "image_id": each["image_id"] + shift} for each in newer.objects)
    both = replace(older, images=images, objects=(*older.objects, *moved))
    test = voc.read_voc(base / "VOC2007", "test", _VOC)
    note = "PASCAL VOC, trainval of 2007 and 2012; test is that of 2007, scored at eleven points of recall"
    return AnnotatedSplits(
        name, AnnotatedImages(f"{name}/train", both, base), AnnotatedImages(f"{name}/test", test, base / "VOC2007"),
        _note(note, older, newer, test),
    )  # fmt: skip


def _bccd(name: str, root: Path, *, parts: tuple[str, str] = ("trainval", "test")) -> AnnotatedSplits:
    folder = root / "bccd" / "BCCD"
    made = [
        AnnotatedImages(f"{name}/{part}", voc.read_voc(folder, listed), folder)
        for part, listed in zip(("train", "test"), parts, strict=True)
    ]
    note = f"BCCD, blood cells of three kinds, {parts[0]} against {parts[1]}"
    return AnnotatedSplits(name, made[0], made[1], _note(note, *(part.annotations for part in made)))


def _coco200(name: str, root: Path, *, only: tuple[str, ...] | None, merged: str, note: str) -> AnnotatedSplits:
    folder, made = root / "coco200", []
    for part, year in (("train", "train2017"), ("test", "val2017")):
        found = coco.read_coco(folder / f"instances_{year}.json", strict=False).only(only, merged=merged)
        made.append(AnnotatedImages(f"{name}/{part}", found, folder / year))
    note = f"200 pictures of MSCOCO 2017, 320 px, {note}"
    return AnnotatedSplits(name, made[0], made[1], _note(note, *(part.annotations for part in made)))


JOINTS = coco.KeypointKind(
    (
        "right_ankle", "right_knee", "right_hip", "left_hip", "left_knee", "left_ankle", "right_wrist", "right_elbow",
        "right_shoulder", "left_shoulder", "left_elbow", "left_wrist", "neck", "head_top",
    ),
    ((0, 5), (1, 4), (2, 3), (6, 11), (7, 10), (8, 9)),
    (.089, .087, .107, .107, .087, .089, .062, .072, .079, .079, .072, .062, .079, .079),
)  # fmt: skip
"""Leeds Sports Pose's 14 joints; COCO's sigmas, and for neck and head the shoulders'."""

_LSP_TEST = 5  # every fifth picture


def _lsp(name: str, root: Path) -> AnnotatedSplits:
    from scipy.io import loadmat

    folder = root / "lsp"
    try:
        joints = loadmat(str(folder / "joints.mat"))["joints"]
        if joints.ndim != 3 or joints.shape[:2] != (len(JOINTS.names), 3):
            raise ValueError(f"joints have the shape {joints.shape}, not {(len(JOINTS.names), 3, 'pictures')}")
    except FileNotFoundError as error:
        source = "make it from the GitHub repository axelcarlier/lsp (commit 8fabf31), as joints.mat and images/"
        raise MissingDataError(f"Leeds Sports Pose: {folder / 'joints.mat'} does not exist; {source}") from error
    except (OSError, LookupError, ValueError, TypeError, AttributeError) as error:
        raise CorruptFileError(f"Leeds Sports Pose: {folder / 'joints.mat'} cannot be read: {error}") from error
    images: list[dict[str, Any]] = []
    people: list[dict[str, Any]] = []
    for path in sorted((folder / "images").glob("im*.jpg")):
        number = int(path.stem[2:])
        width, height = decode(path).size
        x, y, seen = joints[:, 0, number - 1], joints[:, 1, number - 1], joints[:, 2, number - 1] > 0
        seen &= (x >= 0) & (y >= 0) & (x < width) & (y < height)
        if seen.sum() < 2:
            continue
        # the extent of the joints and a fifth, since a person reaches beyond them
        left, right, top, bottom = x[seen].min(), x[seen].max(), y[seen].min(), y[seen].max()
        across, down = 0.1 * max(right - left, 1), 0.1 * max(bottom - top, 1)
        left, top = max(left - across, 0), max(top - down, 0)
        box = [left, top, min(right + across, width) - left, min(bottom + down, height) - top]
        points = np.stack([x, y, 2.0 * seen], 1) * seen[:, None]
        images.append({"id": number, "file_name": f"images/{path.name}", "width": width, "height": height})
        people.append(
            {
                "id": number, "image_id": number, "category_id": 1, "iscrowd": 0, "bbox": [float(v) for v in box],
                "area": float(coco.PERSON_AREA * box[2] * box[3]), "keypoints": [float(v) for v in points.ravel()],
            }
        )  # fmt: skip
    parts = []
    for part in ("train", "test"):
        chosen = {image["id"] for k, image in enumerate(images) if (k % _LSP_TEST == 0) == (part == "test")}
        raw = {
            "images": [image for image in images if image["id"] in chosen],
            "annotations": [each for each in people if each["image_id"] in chosen],
            "categories": [{"id": 1, "name": "person", "keypoints": list(JOINTS.names)}],
        }
        parts.append(AnnotatedImages(f"{name}/{part}", coco.parse(raw, name, keypoints=JOINTS), folder))
    note = "Leeds Sports Pose, extended training set, one person a picture; test is every fifth picture here"
    return AnnotatedSplits(name, parts[0], parts[1], note)


def load_own(name: str, folder: Path) -> AnnotatedSplits:
    """A user's own folder, in COCO's, LVIS's or VOC's form, told by what lies there.

    COCO's and LVIS's form: ``train.json`` and ``test.json`` (or ``val.json``), there or in ``annotations``; pictures in
    a folder called like the part, in ``images``, or beside the JSON. VOC's form: ``Annotations``, ``JPEGImages``, and
    in ``ImageSets/Main`` the lists ``trainval.txt`` or ``train.txt``, and ``test.txt`` or ``val.txt``.

    Raises:
        MissingDataError: neither form is there, or a picture is not.
        ArgumentError: an object that cannot be, naming file and annotation.
    """
    lists = folder / "ImageSets" / "Main"
    if lists.is_dir():
        train, test = (
            next((stem for stem in stems if (lists / f"{stem}.txt").exists()), stems[0])
            for stems in (("trainval", "train"), ("test", "val"))
        )
        made = [
            AnnotatedImages(f"{name}/{part}", voc.read_voc(folder, listed, rule="voc12"), folder)
            for part, listed in (("train", train), ("test", test))
        ]
        return AnnotatedSplits(name, made[0], made[1], "the user's own, in PASCAL VOC's form")
    parts = []
    for part, stems in (("train", ("train",)), ("test", ("test", "val"))):
        places = [base / f"{stem}.json" for stem in stems for base in (folder, folder / "annotations")]
        path = next((place for place in places if place.exists()), None)
        if path is None:
            wanted = " or ".join(str(place) for place in places)
            raise MissingDataError(f"{folder} is no set of annotated pictures: neither {wanted} nor {lists} exists")
        found = coco.read_coco(path)
        inner = [base for base in (folder / path.stem, folder / "images", folder) if base.is_dir()]
        first = _first_name(found)
        pictures = next((base for base in inner if (base / first).exists()), inner[0])
        parts.append(AnnotatedImages(f"{name}/{part}", found, pictures))
    return AnnotatedSplits(name, parts[0], parts[1], "the user's own, in COCO's form")


_PERSONS = partial(_coco200, only=("person",), merged="", note="persons only")
_THINGS = partial(_coco200, only=None, merged="thing", note="all kinds of things as one class")

ANNOTATED: Mapping[str, Callable[[str, Path], AnnotatedSplits]] = MappingProxyType(
    {
        "coco_instances": partial(_coco_2017, kind="instances"),
        "coco_keypoints": partial(_coco_2017, kind="person_keypoints"),
        "voc07": _voc,
        "lvis": _lvis,
        "bccd": _bccd,
        "bccd_val": partial(_bccd, parts=("train", "val")),
        "coco200_persons": _PERSONS,
        "coco200_things": _THINGS,
        "lsp": _lsp,
    }
)
"""Name to reader of a set of annotated pictures under the data root."""


@lru_cache(maxsize=4)
def load_annotated(name: str, root: Path) -> AnnotatedSplits:
    """Splits of one of :data:`ANNOTATED`, read once a process.

    Raises:
        UnknownNameError: no set has that name.
        MissingDataError: a file of it is not there; the message says which.
        CorruptFileError: a file of it is not what its authors publish.
    """
    if name not in ANNOTATED:
        raise unknown("set of annotated pictures", name, ANNOTATED)
    try:
        return ANNOTATED[name](name, root)
    except MissingDataError as error:
        hint = "set CONTRASTLAB_DATA (or root=) to the folder that has it"
        raise MissingDataError(f"{error}; {hint}") from error
