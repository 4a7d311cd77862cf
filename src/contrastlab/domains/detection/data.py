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
from contrastlab.pictures import limits
from contrastlab.pictures.items import ItemSet, Splits
from contrastlab.pictures.sets import chw, decode
from contrastlab.support.errors import CorruptFileError, MissingDataError, NotApplicableError, check, import_extra


@dataclass(frozen=True, eq=False, repr=False)
class AnnotatedImages(ItemSet):
    """Pictures and what is known of the objects in them; its name is of data set and part, such as ``"bccd/train"``."""

    domain: ClassVar[str] = "contrastlab.domains.detection"
    modality: ClassVar[str] = "annotated image"
    resident: ClassVar[bool] = False
    channels: ClassVar[int] = 3
    labelled: ClassVar[bool] = True  # what is known of a picture are its objects

    name: str
    annotations: coco.Annotations
    folder: Path | None = None  #: what file names are relative to; ``None`` where the pictures lie in memory
    pictures: tuple[Tensor, ...] = ()  #: where they do, uint8 ``[3, H, W]``, one for each of ``annotations.images``

    def __post_init__(self) -> None:
        shown = len(self.pictures)
        check(self.folder or shown == len(self), "pictures", shown, f"{len(self)}, one for each annotated")
        limits.check_inside(f"{self.name}: file_name", (str(i["file_name"]) for i in self.annotations.images.values()))
        absent = [path for path in self._files() if not path.exists()]
        if absent:
            some = f"{len(absent)} of {len(self)} annotated pictures"
            raise MissingDataError(f"{self.name}: {some} are not there, first {absent[0]}")

    def _files(self) -> list[Path]:
        folder = self.folder
        return [folder / str(image["file_name"]) for image in self.annotations.images.values()] if folder else []

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
        about = self.annotations.images[self.ids[index]]
        file = self.folder and self.folder / about["file_name"]
        pixels = torch.from_numpy(chw(decode(file), 3)) if file else self.pictures[index]
        width, height = about["width"], about["height"]
        if pixels.shape[1:] != (height, width):
            has = f"{about['file_name']} has {pixels.shape[2]}x{pixels.shape[1]} pixels"
            raise CorruptFileError(f"{self.name}: {has}; its annotations say {width}x{height}")
        return pixels

    def target(self, index: int, *, masks: bool = False, keypoints: bool = False) -> dict[str, Tensor]:
        """What a detector is trained on in the picture of an index, crowds left out.

        Returns:
            ``boxes`` float32 ``[n, 4]`` (left, top, right, bottom) in pixels; ``labels`` int64 ``[n]`` from 1; on
            request ``masks`` uint8 ``[n, H, W]``, and ``keypoints`` ``[n, K, 3]`` of x, y and visibility, without
            objects that show none. A set without masks or keypoints refuses them by a ``NotApplicableError``.
        """
        known, about = self.annotations, self.annotations.images[self.ids[index]]
        for what, wanted, there in (("masks", masks, known.masks), ("keypoints", keypoints, known.keypoints)):
            if wanted and not there:
                raise NotApplicableError(f"{self.name} has no {what}")
        objects = [each for each in known.of_image[self.ids[index]] if not each["iscrowd"]]
        if keypoints:
            objects = [each for each in objects if each.get("num_keypoints", 0) > 0]
        boxes = torch.tensor([each["bbox"] for each in objects], dtype=torch.float32).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        labels = [known.number[each["category_id"]] + 1 for each in objects]
        target = {"boxes": boxes, "labels": torch.tensor(labels, dtype=torch.int64)}
        if masks:
            size = about["height"], about["width"]
            drawn = [draw(each["segmentation"], *size, f"{self.name}, annotation {each['id']}") for each in objects]
            target["masks"] = torch.stack(drawn) if drawn else torch.zeros((0, *size), dtype=torch.uint8)
        if keypoints and known.keypoints:
            points = torch.tensor([each["keypoints"] for each in objects], dtype=torch.float32)
            target["keypoints"] = points.reshape(-1, len(known.keypoints.names), 3)
        return target

    def _hashed(self) -> Iterator[str | Tensor]:
        yield self.annotations.fingerprint
        yield from self.pictures
        yield from (str(path.stat().st_size) for path in self._files())

    def subset(self, indices: Sequence[int] | Tensor) -> AnnotatedImages:
        """The pictures of some indices, in that order."""
        rows = [int(k) for k in indices]
        chosen = tuple(self.pictures[k] for k in rows) if self.pictures else ()
        return replace(self, annotations=self.annotations.subset(self.ids[k] for k in rows), pictures=chosen)

    def take(self, n: int | None, seed: int = 0) -> AnnotatedImages:
        """At most ``n`` pictures, drawn at random, in their order; all with ``None``."""
        if n is None or n >= len(self):
            return self
        return self.subset(torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))[:n].sort().values)


def draw(mask: Mapping[str, Any] | Sequence[Sequence[float]], height: int, width: int, where: str = "a mask") -> Tensor:
    """Pixels of a mask, uint8 ``[height, width]``, one inside, from run lengths (packed or as a list) or polygons."""
    functions = import_extra("faster_coco_eval", "dense").mask
    try:
        if isinstance(mask, Mapping):
            listed = isinstance(mask["counts"], list)
            packed = functions.frPyObjects(dict(mask), height, width) if listed else dict(mask)
        else:
            reach = 16 * max(height, width)  # a corner far outside would be walked to pixel by pixel
            if not all(abs(value) <= reach for polygon in mask for value in polygon):
                raise ValueError(f"a corner is more than {reach} pixels away")
            packed = functions.merge(functions.frPyObjects([list(polygon) for polygon in mask], height, width))
        return torch.tensor(functions.decode(packed), dtype=torch.uint8).reshape(height, width)
    except (ValueError, RuntimeError, TypeError, KeyError) as error:
        reason = str(error).partition("\n")[0]
        raise CorruptFileError(f"{where}: the segmentation is no mask of {width}x{height} pixels: {reason}") from error


# Readers of published sets, rows of published.toml --------------------------------------------------------------------


def _splits(name: str, note: str, *read: tuple[coco.Annotations, Path]) -> Splits:
    train, test = (AnnotatedImages(f"{name}/{part}", *each) for part, each in zip(("train", "test"), read, strict=True))
    check(train.classes == test.classes, "test.classes", test.classes, f"those of the training part, {train.classes}")
    left_out = train.annotations.left_out + test.annotations.left_out
    return Splits.of(name, train, test, f"{note}; {left_out} boxes without area left out" if left_out else note)


def _first_file(annotations: coco.Annotations) -> str:
    return next((str(image["file_name"]) for image in annotations.images.values()), "")


def coco_form(
    name: str, folder: Path, note: str, *, annotations: str, pictures: str = "{}",
    parts: Sequence[str] = ("train2017", "val2017"), only: Sequence[str] | None = None, merged: str = "",
) -> Splits:  # fmt: skip
    """A set in COCO's or LVIS's form, of JSON files and folders of pictures below ``folder``, ``{}`` for a part.

    Only the categories ``only`` are kept, by default all; with ``merged`` they become one category of that name.
    Names of pictures with a folder in them are relative to the folder above that of the part.
    """
    read = []
    for part in parts:
        known = coco.read_coco(folder / annotations.format(part), strict=False).only(only, merged=merged)
        place = folder / pictures.format(part)
        read.append((known, place.parent if "/" in _first_file(known) else place))
    return _splits(name, note, *read)


def voc_form(
    name: str, folder: Path, note: str, *, train: Sequence[str], test: str, classes: Sequence[str] | None = None
) -> Splits:
    """A set in PASCAL VOC's form, of one or several lists; see :func:`contrastlab.domains.detection.coco.read_voc`."""
    place = folder / Path(test).parent
    trained = coco.read_voc(folder, *train, classes=classes)
    tested = coco.read_voc(place, Path(test).name, classes=classes)
    return _splits(name, note, (trained, folder), (tested, place))


_PERSON_AREA = 0.53  # of a person's box, as pycocotools' relatives have it where no area is annotated


def leeds_sports_pose(name: str, folder: Path, note: str) -> Splits:
    """Leeds Sports Pose, one person a picture, as ``joints.mat`` and ``images``; every fifth picture is the test."""
    from scipy.io import loadmat

    joints = loadmat(str(folder / "joints.mat"))["joints"]
    images, people = [], []
    for picture in sorted((folder / "images").glob("im*.jpg")):
        number = int(picture.stem[2:])
        width, height = decode(picture).size
        x, y, visible = joints[:, :, number - 1].T
        seen = (visible > 0) & (x >= 0) & (x < width) & (y >= 0) & (y < height)
        if seen.sum() < 2:
            continue
        # a person reaches beyond the joints
        left, wide = _widened(x[seen].min(), x[seen].max(), width)
        top, tall = _widened(y[seen].min(), y[seen].max(), height)
        points = np.stack([x, y, 2.0 * seen], 1) * seen[:, None]
        images.append({"id": number, "file_name": f"images/{picture.name}", "width": width, "height": height})
        people.append(
            {
                "id": number,
                "image_id": number,
                "category_id": 1,
                "bbox": [float(value) for value in (left, top, wide, tall)],
                "area": float(_PERSON_AREA * wide * tall),
                "keypoints": [float(value) for value in points.ravel()],
            }
        )
    categories = [{"id": 1, "name": "person", "keypoints": list(coco.KEYPOINTS["joints"].names)}]
    known = coco.parse({"images": images, "annotations": people, "categories": categories}, name)
    test = list(known.images)[::5]
    train = [image for image in known.images if image not in set(test)]
    return _splits(name, note, (known.subset(train), folder), (known.subset(test), folder))


def _widened(low: float, high: float, side: int) -> tuple[float, float]:
    """Start and length of an extent that is a fifth longer, within a picture of ``side`` pixels."""
    margin = 0.1 * max(high - low, 1)
    start = max(low - margin, 0)
    return start, min(high + margin, side) - start


# A user's own ---------------------------------------------------------------------------------------------------------


def load_own(name: str, location: str) -> Splits:
    """Splits of ``annotated:<path>``, a folder in COCO's, LVIS's or VOC's form; what lies there decides.

    COCO's and LVIS's form: ``train.json`` and ``test.json`` (or ``val.json``), there or in ``annotations``; pictures in
    a folder called like the part, in ``images``, or beside the JSON. VOC's form: ``Annotations``, ``JPEGImages``, and
    in ``ImageSets/Main`` the lists ``trainval.txt`` or ``train.txt``, and ``test.txt`` or ``val.txt``.
    """
    folder = limits.own_path(name, location)
    lists, parts = folder / "ImageSets" / "Main", []
    if lists.is_dir():
        for stems in (("trainval", "train"), ("test", "val")):
            part = next((stem for stem in stems if (lists / f"{stem}.txt").exists()), stems[0])
            parts.append((coco.read_voc(folder, part, rule="voc12"), folder))
        return _splits(name, "the user's own, in PASCAL VOC's form", *parts)
    for files in (["train.json"], ["test.json", "val.json"]):
        places = [base / file for file in files for base in (folder, folder / "annotations")]
        path = next((place for place in places if place.exists()), None)
        if path is None:
            wanted = " or ".join(map(str, places))
            raise MissingDataError(f"{folder} is no set of annotated pictures: neither {wanted} nor {lists} exists")
        known = coco.read_coco(path)
        inner = [base for base in (folder / path.stem, folder / "images", folder) if base.is_dir()]
        parts.append((known, next((base for base in inner if (base / _first_file(known)).exists()), inner[0])))
    return _splits(name, "the user's own, in COCO's form", *parts)
