"""Labelled images: resident in one tensor, or decoded from files when asked for."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from contrastlab.data import limits
from contrastlab.data.images.pictures import chw, cropped, decode, square
from contrastlab.data.images.subsets import balanced_subset
from contrastlab.errors import CorruptFileError, NotApplicableError, reject

LABEL_COLUMNS = ("label", "fine_label", "labels", "fine_labels", "target", "class")
"""Names of a table's column of labels, the first one there is."""


def check_labels(labels: Tensor, classes: tuple[str, ...], count: int) -> None:
    """Refuse labels that are not −1 (unknown) or an index into ``classes`` for each of ``count`` items (int64)."""
    if labels.dtype != torch.int64 or labels.shape != (count,):
        raise reject("labels", f"{labels.dtype} of shape {tuple(labels.shape)}", f"int64 of shape ({count},)")
    if count and not (int(labels.min()) >= -1 and int(labels.max()) < len(classes)):
        span = (int(labels.min()), int(labels.max()))
        raise reject("labels", span, f"-1 for unlabelled, else 0 to {len(classes) - 1}, the index into classes")


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images that fit in memory. Sets may share storage with each other: treat the tensors as read-only.

    Attributes:
        name: data set and split, such as ``"cifar10/train"``.
        images: uint8 ``[N, C, H, W]`` with C 1 (grey) or 3 (RGB).
        labels: int64 ``[N]``: index into ``classes``, or −1 where unknown.
        classes: class names.
        factors: what else is known of each image, ``[N]`` by name: what a generated one was made from, or the track
            of a video frame.

    Raises:
        ArgumentError: a tensor has another type or shape, or a label has no class.
    """

    resident: ClassVar[bool] = True
    modality: ClassVar[str] = "image"

    name: str
    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    factors: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.ndim != 4 or self.images.shape[1] not in (1, 3):
            given = f"{self.images.dtype} of shape {tuple(self.images.shape)}"
            raise reject("images", given, "uint8 of shape [N, C, H, W] with C 1 or 3")
        check_labels(self.labels, self.classes, len(self.images))
        for name, values in self.factors.items():
            if len(values) != len(self.images):
                raise reject(
                    f"factors[{name!r}]", f"{len(values)} values", f"one for each of {len(self.images)} images"
                )

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Tensor:
        return self.images[index]

    def __repr__(self) -> str:
        return f"ImageSet({self.name!r}, {list(self.images.shape)}, {len(self.classes)} classes)"

    @property
    def channels(self) -> int:
        """1 for grey, 3 for RGB."""
        return self.images.shape[1]

    @property
    def items(self) -> Tensor:
        """The images, as loading reads them."""
        return self.images

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return self.images.shape[2], self.images.shape[3]

    @cached_property
    def fingerprint(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of shape, pixels and labels; the same on every device."""
        digest = hashlib.sha256(repr(tuple(self.images.shape)).encode())
        digest.update(self.images.cpu().contiguous().numpy().data)
        digest.update(self.labels.cpu().contiguous().numpy().astype("<i8").data)
        return digest.hexdigest()[:16]

    def subset(self, indices: Tensor) -> ImageSet:
        """The images at ``indices`` (int64 ``[n]``), in that order."""
        rows = indices.to(self.images.device)
        return replace(
            self,
            images=self.images[rows],
            labels=self.labels[rows.to(self.labels.device)],
            factors={name: values[rows.to(values.device)] for name, values in self.factors.items()},
        )

    def take(self, n: int | None, seed: int = 0) -> ImageSet:
        """A random subset, the same for the same seed; see :func:`balanced_subset`.

        Args:
            n: number of images, from 1 to ``len(self)``; None is all of them.
            seed: of the draw.

        Returns:
            ``n`` images in their original order, with class counts as equal as possible.

        Raises:
            ArgumentError: ``n`` is out of range.
        """
        return self if n is None else self.subset(balanced_subset(self.labels, n, seed))

    def coloured(self) -> ImageSet:
        """The same images with three channels; grey becomes three equal ones, which share their memory."""
        return self if self.channels == 3 else replace(self, images=self.images.expand(-1, 3, -1, -1))

    def to(self, device: torch.device | str) -> ImageSet:
        """The same set with all its tensors on ``device``."""
        moved = {name: values.to(device) for name, values in self.factors.items()}
        return replace(self, images=self.images.to(device), labels=self.labels.to(device), factors=moved)


@dataclass(frozen=True, eq=False)
class StreamedImages:
    """Image files that are decoded one at a time; holds paths only, so it can be sent to ``DataLoader`` workers.

    ``images[index]`` is what evaluation sees: the middle square of the picture with its shorter side at ``resize``.
    Training takes its random crops from the whole picture, :meth:`crops`, as the papers' protocols do.

    Attributes:
        name: data set and split, such as ``"imagenet/train"``.
        folder: what ``paths`` are relative to.
        paths: N file paths.
        labels: int64 ``[N]``: index into ``classes``, or −1 where unknown.
        classes: class names.
        channels: 1 (grey) or 3 (RGB): what every file is converted to.
        resize: side of the decoded square in pixels.
        boxes: int64 ``[N, 4]`` of (top, left, height, width): the part of each file that is the picture, such as one
            object; a file may occur several times. None is whole files.

    Raises:
        ArgumentError: ``channels``, ``resize`` or a box is out of range, labels, boxes and paths do not match, or a
            path leads out of the folder.
    """

    resident: ClassVar[bool] = False
    modality: ClassVar[str] = "image"

    name: str
    folder: Path
    paths: tuple[str, ...]
    labels: Tensor
    classes: tuple[str, ...]
    channels: int = 3
    resize: int = 256
    boxes: Tensor | None = None

    def __post_init__(self) -> None:
        if self.channels not in (1, 3):
            raise reject("channels", self.channels, "1 or 3")
        if self.resize < 1:
            raise reject("resize", self.resize, "a side of at least 1 pixel")
        limits.check_inside("paths", self.paths)
        check_labels(self.labels, self.classes, len(self.paths))
        if self.boxes is not None:
            if self.boxes.dtype != torch.int64 or self.boxes.shape != (len(self.paths), 4):
                given = f"{self.boxes.dtype} of shape {tuple(self.boxes.shape)}"
                raise reject("boxes", given, f"int64 of shape ({len(self.paths)}, 4), a box for each path")
            wrong = ((self.boxes[:, :2] < 0) | (self.boxes[:, 2:] < 1)).any(1).nonzero().flatten()
            if len(wrong):
                raise reject("boxes", self.boxes[wrong[0]].tolist(), "top and left >= 0, height and width >= 1")

    def __len__(self) -> int:
        return len(self.paths)

    def picture(self, index: int) -> Image.Image:
        """The picture at its full size.

        Raises:
            CorruptFileError: the file cannot be decoded, or its box reaches beyond it.
        """
        image = decode(self.folder / self.paths[index])
        if self.boxes is None:
            return image
        top, left, height, width = self.boxes[index].tolist()
        if left + width > image.width or top + height > image.height:
            raise CorruptFileError(
                f"{self.folder / self.paths[index]} has {image.width}x{image.height} pixels: the box"
                f" (top, left, height, width) = {(top, left, height, width)} reaches beyond them"
            )
        return image.crop((left, top, left + width, top + height))

    def __getitem__(self, index: int) -> Tensor:
        image = self.picture(index)
        return torch.from_numpy(chw(square(image, self.resize), self.channels))

    def crops(self, index: int, boxes: Callable[[int, int], Tensor], size: int) -> Tensor:
        """Resized crops of one picture, which is decoded once, at its full size.

        Args:
            index: of the picture.
            boxes: its height and width in pixels to ``[V, 4]`` of (top, left, height, width), inside it.
            size: side of a crop in pixels.

        Returns:
            uint8 ``[V, channels, size, size]``: torchvision's ``resized_crop`` of Pillow images, to the bit.

        Raises:
            CorruptFileError: the file cannot be decoded.
        """
        # JPEG's own reduced decoding would give other pixels, and helps only where a crop shrinks to a half or less.
        image = self.picture(index)
        parts = (cropped(image, tuple(box), size) for box in boxes(image.height, image.width).tolist())
        return torch.from_numpy(np.stack([chw(part, self.channels) for part in parts]))

    def __repr__(self) -> str:
        return f"StreamedImages({self.name!r}, {len(self)} files, {len(self.classes)} classes)"

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in pixels after decoding."""
        return self.resize, self.resize

    @cached_property
    def fingerprint(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of relative paths, file sizes, labels, decoded size and boxes.

        The pixels are not read, which would take as long as an epoch.
        """
        digest = hashlib.sha256(f"{self.channels} {self.resize}, crops of whole pictures".encode())
        for path, label in zip(self.paths, self.labels.tolist(), strict=True):
            digest.update(f"\0{path}\0{os.stat(self.folder / path).st_size}\0{label}".encode())
        if self.boxes is not None:
            digest.update(self.boxes.contiguous().numpy().astype("<i8").data)
        return digest.hexdigest()[:16]

    def subset(self, indices: Tensor) -> StreamedImages:
        """The images at ``indices`` (int64 ``[n]``), in that order."""
        rows = indices.cpu()
        boxes = None if self.boxes is None else self.boxes[rows]
        return replace(self, paths=tuple(self.paths[i] for i in rows.tolist()), labels=self.labels[rows], boxes=boxes)

    def take(self, n: int | None, seed: int = 0) -> StreamedImages:
        """A random subset, as :meth:`ImageSet.take`."""
        return self if n is None else self.subset(balanced_subset(self.labels, n, seed))

    def coloured(self) -> StreamedImages:
        """The same pictures, decoded as RGB."""
        return replace(self, channels=3)


@dataclass(frozen=True, eq=False)
class Splits:
    """The three parts of a data set: sets of items of one modality.

    Attributes:
        name: the name it was loaded by.
        pretrain: what self-supervision sees; its labels may be −1 and are not to be trained on.
        train: labelled images for probes.
        test: labelled images to score on; disjoint from ``pretrain`` and ``train``.
        note: where the pixels came from, in words.

    Raises:
        ArgumentError: ``train`` or ``test`` is empty or has an unlabelled image.
    """

    name: str
    pretrain: Any
    train: Any
    test: Any
    note: str

    def __post_init__(self) -> None:
        for argument, part in (("train", self.train), ("test", self.test)):
            if not len(part) or int(part.labels.min()) < 0:
                raise reject(argument, part, "at least one image, and a label for every image")

    @property
    def labelled(self) -> bool:
        """Whether ``train`` and ``test`` exist: false for images without any label."""
        return True

    def to(self, device: torch.device | str) -> Splits:
        """The same splits with resident parts on ``device``, each once; files stay files."""
        parts = (self.pretrain, self.train, self.test)
        moved = {id(part): part.to(device) if part.resident else part for part in parts}
        pretrain, train, test = (moved[id(part)] for part in parts)
        return replace(self, pretrain=pretrain, train=train, test=test)


class UnlabelledSplits(Splits):
    """Images without labels: they can be pre-trained on, and asking for ``train`` or ``test`` is refused."""

    def __init__(self, name: str, pretrain: Any, note: str) -> None:
        for attribute, value in (("name", name), ("pretrain", pretrain), ("note", note)):
            object.__setattr__(self, attribute, value)

    def __repr__(self) -> str:
        return f"UnlabelledSplits(name={self.name!r}, pretrain={self.pretrain!r}, note={self.note!r})"

    def _refuse(self, part: str) -> NoReturn:
        raise NotApplicableError(
            f"{self.name!r} has no labels, so it has no {part!r} split and cannot be probed. "
            "To give labels, sort the images into one subfolder a class, or name a column of a table"
            f" {', '.join(LABEL_COLUMNS)}."
        )

    @property
    def train(self) -> NoReturn:
        """Refused.

        Raises:
            NotApplicableError: always.
        """
        self._refuse("train")

    @property
    def test(self) -> NoReturn:
        """Refused.

        Raises:
            NotApplicableError: always.
        """
        self._refuse("test")

    @property
    def labelled(self) -> bool:
        """False."""
        return False

    def to(self, device: torch.device | str) -> UnlabelledSplits:
        """The same items on ``device``; files stay files."""
        pretrain = self.pretrain.to(device) if self.pretrain.resident else self.pretrain
        return type(self)(self.name, pretrain, self.note)
