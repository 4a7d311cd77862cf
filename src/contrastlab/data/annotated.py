"""Pictures with annotated objects: from files or in memory, published, copied, generated, or a user's own.

The file is long because every set has a layout of its own.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from contrastlab.data import coco, silhouettes
from contrastlab.data.images.pictures import chw, decode
from contrastlab.data.images.sets import Splits
from contrastlab.errors import CorruptFileError, MissingDataError, NotApplicableError, import_extra, reject, unknown


@dataclass(frozen=True, eq=False)
class AnnotatedImages:
    """Pictures and what is known of the objects in them.

    Attributes:
        name: data set and part, such as ``"bccd/train"``.
        annotations: of the pictures, in COCO's form.
        folder: what their file names are relative to; ``None`` where they lie in memory.
        pictures: uint8 ``[3, H, W]``, one for each of ``annotations.images``, where they lie in memory.

    Raises:
        ArgumentError: there is not one picture for each of the annotated ones.
        MissingDataError: a file that the annotations name is not there.
    """

    modality: ClassVar[str] = "annotated image"
    resident: ClassVar[bool] = False
    channels: ClassVar[int] = 3

    name: str
    annotations: coco.Annotations
    folder: Path | None = None
    pictures: tuple[Tensor, ...] = ()

    def __post_init__(self) -> None:
        if self.folder is None:
            if len(self.pictures) != len(self.annotations.images):
                raise reject("pictures", len(self.pictures), f"{len(self.annotations.images)}, one for each annotated")
            return
        names = [str(image["file_name"]) for image in self.annotations.images.values()]
        absent = [name for name in names if not (self.folder / name).exists()]
        if absent:
            raise MissingDataError(
                f"{self.name}: {len(absent)} of {len(names)} annotated pictures are not there, first"
                f" {self.folder / absent[0]}"
            )

    @cached_property
    def ids(self) -> tuple[int, ...]:
        """Of the pictures, in order."""
        return tuple(self.annotations.images)

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"AnnotatedImages({self.name!r}, {len(self)} pictures, {len(self.annotations.objects)} objects)"

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the categories."""
        return self.annotations.classes

    def __getitem__(self, index: int) -> Tensor:
        """Pixels of a picture, uint8 ``[3, H, W]``; a grey one has three equal channels.

        Raises:
            CorruptFileError: the file cannot be decoded, or has not the size that its annotations say.
        """
        about = self.annotations.images[self.ids[index]]
        if self.folder is None:
            pixels = self.pictures[index]
        else:
            pixels = torch.from_numpy(chw(decode(self.folder / about["file_name"]), 3))
        if pixels.shape[1:] != (about["height"], about["width"]):
            raise CorruptFileError(
                f"{self.name}: {about['file_name']} has {pixels.shape[2]}x{pixels.shape[1]} pixels; its annotations say"
                f" {about['width']}x{about['height']}"
            )
        return pixels

    def target(self, index: int, *, masks: bool = False, keypoints: bool = False) -> dict[str, Tensor]:
        """What a detector is trained on, crowds left out.

        Args:
            index: of the picture.
            masks: with ``masks``, uint8 ``[n, H, W]``.
            keypoints: with ``keypoints``, ``[n, K, 3]`` of x, y and visibility; without objects that show none.

        Returns:
            ``boxes`` float32 ``[n, 4]`` (left, top, right, bottom) in pixels, ``labels`` int64 ``[n]`` from 1, and what
            was asked for.

        Raises:
            NotApplicableError: the set has no masks or keypoints.
        """
        image = self.ids[index]
        objects = [each for each in self.annotations.of_image[image] if not each["iscrowd"]]
        if keypoints:
            kind = self.annotations.keypoints
            if kind is None:
                raise NotApplicableError(f"{self.name} has no keypoints")
            objects = [each for each in objects if each.get("num_keypoints", 0) > 0]
        boxes = torch.tensor([each["bbox"] for each in objects], dtype=torch.float32).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        labels = [self.annotations.number[each["category_id"]] + 1 for each in objects]
        found = {"boxes": boxes, "labels": torch.tensor(labels, dtype=torch.int64)}
        about = self.annotations.images[image]
        if masks:
            if not self.annotations.masks:
                raise NotApplicableError(f"{self.name} has no masks")
            drawn = [draw(each["segmentation"], about["height"], about["width"]) for each in objects]
            shape = (0, about["height"], about["width"])
            found["masks"] = torch.stack(drawn) if drawn else torch.zeros(shape, dtype=torch.uint8)
        if keypoints and kind is not None:
            points = [each["keypoints"] for each in objects]
            found["keypoints"] = torch.tensor(points, dtype=torch.float32).reshape(-1, len(kind.names), 3)
        return found

    @cached_property
    def fingerprint(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of the annotations and of the pixels, or of the files' sizes."""
        digest = hashlib.sha256(self.annotations.fingerprint.encode())
        for pixels in self.pictures:
            digest.update(pixels.contiguous().numpy().data)
        if self.folder is not None:
            for image in self.annotations.images.values():
                digest.update(str(os.stat(self.folder / image["file_name"]).st_size).encode())
        return digest.hexdigest()[:16]

    def subset(self, indices: Sequence[int]) -> AnnotatedImages:
        """The pictures of some indices, in that order."""
        rows = [int(k) for k in indices]
        chosen = tuple(self.pictures[k] for k in rows) if self.pictures else ()
        return replace(self, annotations=self.annotations.subset(self.ids[k] for k in rows), pictures=chosen)

    def take(self, n: int | None, seed: int = 0) -> AnnotatedImages:
        """At most ``n`` pictures, drawn at random, in their order; all with ``None``."""
        if n is None or n >= len(self):
            return self
        drawn = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))[:n]
        return self.subset(drawn.sort().values.tolist())


class AnnotatedSplits(Splits):
    """The two parts of a set of annotated pictures; what is pre-trained on is the training part."""

    def __init__(self, name: str, train: AnnotatedImages, test: AnnotatedImages, note: str) -> None:
        for argument, part in (("train", train), ("test", test)):
            if not len(part):
                raise reject(argument, part, "at least one picture")
        if train.classes != test.classes:
            raise reject("test.classes", test.classes, f"those of the training part, {train.classes}")
        for field, value in (("name", name), ("pretrain", train), ("train", train), ("test", test), ("note", note)):
            object.__setattr__(self, field, value)

    def limited(self, n_train: int | None, n_test: int | None, seed: int = 0) -> AnnotatedSplits:
        """At most so many pictures in each part; all with ``None``."""
        train, test = cast(AnnotatedImages, self.train), cast(AnnotatedImages, self.test)
        return AnnotatedSplits(self.name, train.take(n_train, seed), test.take(n_test, seed), self.note)

    def to(self, device: torch.device | str) -> AnnotatedSplits:
        """Itself: a detector moves a batch at a time."""
        return self


def draw(mask: Mapping[str, Any] | Sequence[Sequence[float]], height: int, width: int) -> Tensor:
    """Pixels of a mask: uint8 ``[height, width]``, one inside.

    Args:
        mask: run lengths, packed or as a list, or polygons.
        height: of the picture in pixels.
        width: of the picture in pixels.

    Raises:
        MissingExtraError: the extra ``dense`` is not installed.
    """
    functions = import_extra("faster_coco_eval", "dense").mask
    if isinstance(mask, Mapping):
        packed = functions.frPyObjects(dict(mask), height, width) if isinstance(mask["counts"], list) else dict(mask)
    else:
        packed = functions.merge(functions.frPyObjects([list(polygon) for polygon in mask], height, width))
    pixels = np.asarray(functions.decode(packed)).reshape(height, width)
    return torch.from_numpy(np.array(pixels, dtype=np.uint8))


# By name --------------------------------------------------------------------------------------------------------------


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
    older = coco.read_voc(base / "VOC2007", "trainval", _VOC)
    newer = coco.read_voc(base / "VOC2012", "trainval", _VOC)
    images = {k: {**image, "file_name": f"VOC2007/{image['file_name']}"} for k, image in older.images.items()}
    shift, objects = len(images), len(older.objects)
    for k, image in newer.images.items():
        images[k + shift] = {**image, "id": k + shift, "file_name": f"VOC2012/{image['file_name']}"}
    moved = ({**each, "id": each["id"] + objects, "image_id": each["image_id"] + shift} for each in newer.objects)
    both = replace(older, images=images, objects=(*older.objects, *moved))
    test = coco.read_voc(base / "VOC2007", "test", _VOC)
    note = "PASCAL VOC, trainval of 2007 and 2012; test is that of 2007, scored at eleven points of recall"
    return AnnotatedSplits(
        name, AnnotatedImages(f"{name}/train", both, base), AnnotatedImages(f"{name}/test", test, base / "VOC2007"),
        _note(note, older, newer, test),
    )  # fmt: skip


def _bccd(name: str, root: Path, *, parts: tuple[str, str] = ("trainval", "test")) -> AnnotatedSplits:
    folder = root / "bccd" / "BCCD"
    made = [
        AnnotatedImages(f"{name}/{part}", coco.read_voc(folder, listed), folder)
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
    except (FileNotFoundError, OSError) as error:
        raise MissingDataError(f"Leeds Sports Pose: {folder / 'joints.mat'} does not exist") from error
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


def _silhouettes(name: str, root: Path) -> AnnotatedSplits:
    made = silhouettes.make(silhouettes.TWINS[name])
    parts = [
        AnnotatedImages(f"{name}/{part}", annotations, None, tuple(pictures))
        for part, (pictures, annotations) in made.items()
    ]
    return AnnotatedSplits(name, parts[0], parts[1], "generated silhouettes, painted one over the other")


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
            AnnotatedImages(f"{name}/{part}", coco.read_voc(folder, listed, rule="voc12"), folder)
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
        **dict.fromkeys(silhouettes.TWINS, _silhouettes),
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
