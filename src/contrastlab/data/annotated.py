"""Pictures with annotated objects, in files or in memory; :mod:`contrastlab.data.annotated_sources` reads sets."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from contrastlab.data import coco, limits
from contrastlab.data.items import Splits
from contrastlab.data.pictures import chw, decode
from contrastlab.errors import CorruptFileError, MissingDataError, NotApplicableError, import_extra, reject


@dataclass(frozen=True, eq=False)
class AnnotatedImages:
    """Pictures and what is known of the objects in them.

    Attributes:
        name: data set and part, such as ``"bccd/train"``.
        annotations: of the pictures, in COCO's form.
        folder: what their file names are relative to; ``None`` where they lie in memory.
        pictures: uint8 ``[3, H, W]``, one for each of ``annotations.images``, where they lie in memory.

    Raises:
        ArgumentError: there is not one picture for each of the annotated ones, or a file name leads out of the folder.
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
        limits.check_inside(f"{self.name}: file_name", names)
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
            where = f"{self.name}, annotation"
            drawn = [
                draw(each["segmentation"], about["height"], about["width"], f"{where} {each['id']}") for each in objects
            ]
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


def draw(
    mask: Mapping[str, Any] | Sequence[Sequence[float]], height: int, width: int, where: str = "a mask"
) -> Tensor:  # fmt: skip
    """Pixels of a mask: uint8 ``[height, width]``, one inside.

    Args:
        mask: run lengths, packed or as a list, or polygons.
        height: of the picture in pixels.
        width: of the picture in pixels.
        where: what to call it in errors.

    Raises:
        CorruptFileError: its run lengths or polygons are not those of a mask of this size.
        MissingExtraError: the extra ``dense`` is not installed.
    """
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
        pixels = np.asarray(functions.decode(packed)).reshape(height, width)
    except (ValueError, RuntimeError, TypeError, KeyError) as error:
        reason = str(error).partition("\n")[0]
        raise CorruptFileError(f"{where}: the segmentation is no mask of {width}x{height} pixels: {reason}") from error
    return torch.from_numpy(np.array(pixels, dtype=np.uint8))
