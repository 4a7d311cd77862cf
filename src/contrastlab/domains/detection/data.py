"""Pictures with annotated objects, in files or in memory, and the readers of published sets and a user's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from contrastlab.domains.detection import coco
from contrastlab.pictures.items import ItemSet, Splits
from contrastlab.pictures.loading import subset_order
from contrastlab.pictures.sets import chw, decode
from contrastlab.support.errors import CorruptFileError, MissingDataError, NotApplicableError, check, import_extra
from contrastlab.support.paths import check_inside, own_path


@dataclass(frozen=True, eq=False, repr=False)
class AnnotatedImages(ItemSet):
    """Pictures and the objects annotated in them; the name says data set and part, such as ``"bccd/train"``."""

    domain: ClassVar[str] = "contrastlab.domains.detection"
    modality: ClassVar[str] = "annotated image"
    resident: ClassVar[bool] = False
    channels: ClassVar[int] = 3
    labelled: ClassVar[bool] = True  # by the objects in a picture

    name: str
    annotations: coco.Annotations
    folder: Path | None = None  #: what file names are relative to; ``None`` where the pictures lie in memory
    pictures: tuple[Tensor, ...] = ()  #: where they do, uint8 ``[3, H, W]``, one for each of ``annotations.images``

    def __post_init__(self) -> None:
        shown = len(self.pictures)
        check(self.folder or shown == len(self), "pictures", shown, f"{len(self)}, one for each annotated")
        check_inside(f"{self.name}: file_name", self._file_names())
        absent = [path for path in self._files() if not path.exists()]
        if absent:
            some = f"{len(absent)} of {len(self)} annotated pictures"
            raise MissingDataError(f"{self.name}: {some} are not there, first {absent[0]}")

    def _file_names(self) -> list[str]:
        return [str(image["file_name"]) for image in self.annotations.images.values()]

    def _files(self) -> list[Path]:
        if not self.folder:
            return []
        return [self.folder / file_name for file_name in self._file_names()]

    @cached_property
    def ids(self) -> tuple[int, ...]:
        """Ids of the pictures, in order."""
        return tuple(self.annotations.images)

    @property
    def classes(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names of the categories."""
        return self.annotations.classes

    def __len__(self) -> int:
        return len(self.annotations.images)

    def __getitem__(self, index: int) -> Tensor:
        """Pixels of a picture, uint8 ``[3, H, W]``; a grey one has three equal channels."""
        image = self.annotations.images[self.ids[index]]
        file_name = image["file_name"]
        width = image["width"]
        height = image["height"]
        if self.folder:
            picture = decode(self.folder / file_name)
            pixels = torch.from_numpy(chw(picture, 3))
        else:
            pixels = self.pictures[index]
        if pixels.shape[1:] != (height, width):
            _, actual_height, actual_width = pixels.shape
            reason = f"{file_name} has {actual_width}x{actual_height} pixels; its annotations say {width}x{height}"
            raise CorruptFileError(f"{self.name}: {reason}")
        return pixels

    def target(self, index: int, *, masks: bool = False, keypoints: bool = False) -> dict[str, Tensor]:
        """What a detector is trained on in the picture of an index, crowds left out.

        Returns:
            ``boxes`` float32 ``[n, 4]`` (left, top, right, bottom) in pixels; ``labels`` int64 ``[n]`` from 1; on
            request ``masks`` uint8 ``[n, H, W]``, and ``keypoints`` ``[n, K, 3]`` of x, y and visibility, without
            objects that show none. A set without masks or keypoints refuses them by a ``NotApplicableError``.
        """
        annotations = self.annotations
        image_id = self.ids[index]
        if masks and not annotations.masks:
            raise NotApplicableError(f"{self.name} has no masks")
        if keypoints and not annotations.keypoints:
            raise NotApplicableError(f"{self.name} has no keypoints")
        objects = [each for each in annotations.of_image[image_id] if not each["iscrowd"]]
        if keypoints:
            objects = [each for each in objects if each.get("num_keypoints", 0) > 0]
        labels = [annotations.number[each["category_id"]] + 1 for each in objects]
        target = {"boxes": _corners(objects), "labels": torch.tensor(labels, dtype=torch.int64)}
        if masks:
            target["masks"] = self._masks(objects, annotations.images[image_id])
        if keypoints and annotations.keypoints:
            points = torch.tensor([each["keypoints"] for each in objects], dtype=torch.float32)
            target["keypoints"] = points.reshape(-1, len(annotations.keypoints.names), 3)
        return target

    def _masks(self, objects: Sequence[Mapping[str, Any]], image: Mapping[str, Any]) -> Tensor:
        height = image["height"]
        width = image["width"]
        if not objects:
            return torch.zeros((0, height, width), dtype=torch.uint8)
        masks = []
        for each in objects:
            where = f"{self.name}, annotation {each['id']}"
            masks.append(draw(each["segmentation"], height, width, where))
        return torch.stack(masks)

    def _hashed(self) -> Iterator[str | Tensor]:
        yield self.annotations.fingerprint
        yield from self.pictures
        yield from (str(path.stat().st_size) for path in self._files())

    def subset(self, indices: Sequence[int] | Tensor) -> AnnotatedImages:
        """The pictures of some indices, in that order."""
        rows = [int(index) for index in indices]
        annotations = self.annotations.subset(self.ids[row] for row in rows)
        pictures: tuple[Tensor, ...] = ()
        if self.pictures:
            pictures = tuple(self.pictures[row] for row in rows)
        return replace(self, annotations=annotations, pictures=pictures)

    def take(self, n: int | None, seed: int = 0) -> AnnotatedImages:
        """At most ``n`` pictures, drawn at random, in their order; all with ``None``."""
        if n is None or n >= len(self):
            return self
        return self.subset(subset_order(self, n, seed).sort().values)


def _corners(objects: Sequence[Mapping[str, Any]]) -> Tensor:
    """Boxes ``[n, 4]`` of left, top, right, bottom."""
    boxes = torch.tensor([each["bbox"] for each in objects], dtype=torch.float32).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    return boxes


Mask = Mapping[str, Any] | Sequence[Sequence[float]]


def draw(mask: Mask, height: int, width: int, where: str = "a mask") -> Tensor:
    """Pixels of a mask, uint8 ``[height, width]``, one inside, from run lengths (packed or as a list) or polygons."""
    functions = import_extra("faster_coco_eval", "dense").mask
    try:
        if isinstance(mask, Mapping):
            packed = dict(mask)
            if isinstance(mask["counts"], list):
                packed = functions.frPyObjects(packed, height, width)
        else:
            polygons = [list(polygon) for polygon in mask]
            _check_reach(polygons, 16 * max(height, width))
            packed = functions.merge(functions.frPyObjects(polygons, height, width))
        return torch.tensor(functions.decode(packed), dtype=torch.uint8).reshape(height, width)
    except (ValueError, RuntimeError, TypeError, KeyError) as error:
        reason = str(error).partition("\n")[0]
        raise CorruptFileError(f"{where}: the segmentation is no mask of {width}x{height} pixels: {reason}") from error


def _check_reach(polygons: Sequence[Sequence[float]], reach: int) -> None:
    """Refuse a corner far outside, which would be walked to pixel by pixel."""
    for polygon in polygons:
        if not all(abs(value) <= reach for value in polygon):
            raise ValueError(f"a corner is more than {reach} pixels away")


# Readers of published sets, rows of published.toml --------------------------------------------------------------------

_Part = tuple[coco.Annotations, Path]
"""The annotations of one part of a set, and the folder of its pictures."""


def _splits(name: str, note: str, train_part: _Part, test_part: _Part) -> Splits:
    train = AnnotatedImages(f"{name}/train", *train_part)
    test = AnnotatedImages(f"{name}/test", *test_part)
    check(train.classes == test.classes, "test.classes", test.classes, f"those of the training part, {train.classes}")
    left_out = train.annotations.left_out + test.annotations.left_out
    if left_out:
        note = f"{note}; {left_out} boxes without area left out"
    return Splits.of(name, train, test, note)


def _first_file(annotations: coco.Annotations) -> str:
    for image in annotations.images.values():
        return str(image["file_name"])
    return ""


def coco_form(
    name: str,
    folder: Path,
    note: str,
    *,
    annotations: str,
    pictures: str = "{}",
    parts: Sequence[str] = ("train2017", "val2017"),
    only: Sequence[str] | None = None,
    merged: str = "",
) -> Splits:
    """A set in COCO's or LVIS's form, of JSON files and folders of pictures below ``folder``, ``{}`` for a part.

    Only the categories ``only`` are kept, by default all; with ``merged`` they become one category of that name.
    Names of pictures with a folder in them are relative to the folder above that of the part.
    """

    def read(part: str) -> _Part:
        every = coco.read_coco(folder / annotations.format(part), strict=False)
        kept = every.only(only, merged=merged)
        place = folder / pictures.format(part)
        if "/" in _first_file(kept):
            place = place.parent
        return kept, place

    train, test = parts
    return _splits(name, note, read(train), read(test))


def voc_form(
    name: str,
    folder: Path,
    note: str,
    *,
    train: Sequence[str],
    test: str,
    classes: Sequence[str] | None = None,
) -> Splits:
    """A set in PASCAL VOC's form, of one or several lists; see :func:`contrastlab.domains.detection.coco.read_voc`."""
    test_folder = folder / Path(test).parent
    train_annotations = coco.read_voc(folder, *train, classes=classes)
    test_annotations = coco.read_voc(test_folder, Path(test).name, classes=classes)
    return _splits(name, note, (train_annotations, folder), (test_annotations, test_folder))


_PERSON_AREA = 0.53  # share of its box that a person covers; pycocotools' relatives take it where none is annotated


def leeds_sports_pose(name: str, folder: Path, note: str) -> Splits:
    """Leeds Sports Pose, one person a picture, as ``joints.mat`` and ``images``; every fifth picture is the test."""
    from scipy.io import loadmat

    joints = loadmat(str(folder / "joints.mat"))["joints"]
    images = []
    people = []
    for picture in sorted((folder / "images").glob("im*.jpg")):
        number = int(picture.stem[2:])
        width, height = decode(picture).size
        person = _person(joints[:, :, number - 1].T, width, height)
        if person is None:
            continue
        image = {"id": number, "file_name": f"images/{picture.name}", "width": width, "height": height}
        images.append(image)
        people.append({"id": number, "image_id": number, "category_id": 1, **person})
    category = {"id": 1, "name": "person", "keypoints": list(coco.KEYPOINTS["joints"].names)}
    raw = {"images": images, "annotations": people, "categories": [category]}
    annotations = coco.parse(raw, name)
    ids = list(annotations.images)
    test_ids = ids[::5]
    train_ids = [image_id for place, image_id in enumerate(ids) if place % 5 != 0]
    train_part = (annotations.subset(train_ids), folder)
    test_part = (annotations.subset(test_ids), folder)
    return _splits(name, note, train_part, test_part)


def _person(joints: Any, width: int, height: int) -> dict[str, Any] | None:
    """Box, area and keypoints of ``joints`` ``[3, 14]`` (x, y, visibility); ``None`` if fewer than two are seen."""
    x, y, visible = joints
    is_inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    is_seen = (visible > 0) & is_inside
    if is_seen.sum() < 2:
        return None
    # a person reaches beyond the joints
    left, box_width = _widened(x[is_seen].min(), x[is_seen].max(), width)
    top, box_height = _widened(y[is_seen].min(), y[is_seen].max(), height)
    points = np.stack([x, y, 2.0 * is_seen], 1) * is_seen[:, None]
    return {
        "bbox": [float(left), float(top), float(box_width), float(box_height)],
        "area": float(_PERSON_AREA * box_width * box_height),
        "keypoints": [float(value) for value in points.ravel()],
    }


def _widened(low: float, high: float, side: int) -> tuple[float, float]:
    """Start and length of an extent that is a fifth longer, within a picture of ``side`` pixels."""
    margin = 0.1 * max(high - low, 1)
    start = max(low - margin, 0)
    end = min(high + margin, side)
    return start, end - start


# A user's own ---------------------------------------------------------------------------------------------------------


_FORMS = ("{}.json", "annotations/{}.json", "annotations/instances_{}*.json", "{}/_annotations.coco.json")
"""Where the annotations of a part may lie below a user's folder: plain, as COCO packs them, as Roboflow does."""


def load_own(name: str, location: str) -> Splits:
    """Splits of ``annotated:<path>``, a folder in COCO's, LVIS's or VOC's form; what lies there decides.

    COCO's and LVIS's form: ``train.json`` and ``test.json`` (or ``val.json``, ``valid.json``), there or in
    ``annotations``, where they may be called as COCO's own are, ``instances_train2017.json``, the last of several
    years; or a file ``_annotations.coco.json`` in the folder of each part, as Roboflow writes them. Pictures lie in a
    folder called like the part, in ``images``, or beside the JSON. VOC's form: ``Annotations``, ``JPEGImages``, and in
    ``ImageSets/Main`` the lists ``trainval.txt`` or ``train.txt``, and ``test.txt`` or ``val.txt``.
    """
    folder = own_path(name, location)
    lists = folder / "ImageSets" / "Main"
    if lists.is_dir():
        train = _own_voc_part(folder, lists, ("trainval", "train"))
        test = _own_voc_part(folder, lists, ("test", "val"))
        return _splits(name, "the user's own, in PASCAL VOC's form", train, test)
    train = _own_coco_part(folder, lists, ("train",))
    test = _own_coco_part(folder, lists, ("test", "val", "valid"))
    return _splits(name, "the user's own, in COCO's form", train, test)


def _own_voc_part(folder: Path, lists: Path, names: tuple[str, str]) -> _Part:
    """The part of the first of two lists that exists."""
    present = [name for name in names if (lists / f"{name}.txt").exists()]
    name = present[0] if present else names[0]
    return coco.read_voc(folder, name, rule="voc12"), folder


def _own_coco_part(folder: Path, lists: Path, names: Sequence[str]) -> _Part:
    """The part whose annotations are the first that exist, and the folder where its first picture lies."""
    patterns = [form.format(name) for name in names for form in _FORMS]
    present = [path for pattern in patterns for path in sorted(folder.glob(pattern), reverse=True)]
    if not present:
        wanted = " or ".join(str(folder / pattern) for pattern in patterns)
        raise MissingDataError(f"{folder} is no set of annotated pictures: neither {wanted} nor {lists} exists")
    path = present[0]
    annotations = coco.read_coco(path)
    part = path.stem.removeprefix("instances_")
    every = (folder / part, folder / "images" / part, folder / "images", path.parent, folder)
    picture_folders = [base for base in every if base.is_dir()]
    for picture_folder in picture_folders:
        if (picture_folder / _first_file(annotations)).exists():
            return annotations, picture_folder
    return annotations, picture_folders[0]
