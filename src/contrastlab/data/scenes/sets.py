"""Scenes in memory, or read from a file when asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from contrastlab.data.images.sets import check_labels
from contrastlab.data.images.subsets import balanced_subset
from contrastlab.errors import reject
from contrastlab.views.channels import slices


@dataclass(frozen=True, eq=False)
class SceneSet:
    """Scenes that fit in memory. Sets may share storage: treat the tensors as read-only.

    Attributes:
        name: data set and split, such as ``"rooms/train"``.
        items: float16 ``[N, C, H, W]``, packed as :data:`contrastlab.views.channels.LAYOUT` says, with the colours as
            whole numbers from 0 to 255. Float16 holds these exactly, and depth and normals to half a thousandth.
        labels: int64 ``[N]``, class of the whole scene, -1 where unknown.
        classes: of whole scenes.
        pixel_classes: of pixels.
        origin: what generated items are a function of; their fingerprint is then that of these words, which does not
            depend on how a machine rounds a sine. Empty: the fingerprint is that of the numbers.

    Raises:
        ArgumentError: a tensor has another type or shape, or a label has no class.
    """

    resident: ClassVar[bool] = True
    modality: ClassVar[str] = "scene"

    name: str
    items: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    pixel_classes: tuple[str, ...]
    origin: str = ""

    def __post_init__(self) -> None:
        if self.items.dtype != torch.float16 or self.items.ndim != 4:
            given = f"{self.items.dtype} of shape {tuple(self.items.shape)}"
            raise reject("items", given, "float16 of shape [N, C, H, W]")
        slices(self.items.shape[1])
        check_labels(self.labels, self.classes, len(self.items))

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Tensor:
        return self.items[index]

    def __repr__(self) -> str:
        return f"SceneSet({self.name!r}, {list(self.items.shape)}, {len(self.pixel_classes)} classes of pixels)"

    @property
    def channels(self) -> int:
        """Numbers of a pixel."""
        return self.items.shape[1]

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return self.items.shape[2], self.items.shape[3]

    @cached_property
    def fingerprint(self) -> str:
        """First 16 hexadecimal digits of a SHA-256; the same on every device."""
        digest = hashlib.sha256(repr(tuple(self.items.shape)).encode())
        if self.origin:
            digest.update(self.origin.encode())
        else:
            digest.update(self.items.cpu().contiguous().view(torch.int16).numpy().astype("<i2").data)
        digest.update(self.labels.cpu().contiguous().numpy().astype("<i8").data)
        return digest.hexdigest()[:16]

    def subset(self, indices: Tensor) -> SceneSet:
        """The scenes at ``indices`` (int64 ``[n]``), in that order."""
        rows = indices.to(self.items.device)
        chosen = hashlib.sha256(indices.cpu().numpy().astype("<i8").data).hexdigest()[:16]
        return replace(
            self, items=self.items[rows], labels=self.labels[rows.to(self.labels.device)],
            origin=self.origin and f"{self.origin}, scenes {chosen}",
        )  # fmt: skip

    def take(self, n: int | None, seed: int = 0) -> SceneSet:
        """A random subset with class counts as equal as possible, the same for the same seed."""
        return self if n is None or n == len(self) else self.subset(balanced_subset(self.labels, n, seed))

    def to(self, device: torch.device | str) -> SceneSet:
        """The same set on ``device``."""
        return replace(self, items=self.items.to(device), labels=self.labels.to(device))


@dataclass(frozen=True, eq=False)
class StreamedScenes:
    """Scenes that are read from a file one at a time; holds the path only, so ``DataLoader`` workers can have it.

    Attributes:
        name: data set and split, such as ``"nyu_depth_v2/train"``.
        path: of the file.
        indices: int64 ``[N]`` numbers of the scenes in the file.
        labels: int64 ``[N]``, class of the whole scene.
        classes: of whole scenes.
        pixel_classes: of pixels.
        channels: numbers of a pixel.
        read: file and number to float16 ``[C, H, W]``.

    Raises:
        ArgumentError: labels and numbers do not match.
    """

    resident: ClassVar[bool] = False
    modality: ClassVar[str] = "scene"

    name: str
    path: Path
    indices: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    pixel_classes: tuple[str, ...]
    channels: int
    read: Callable[[Path, int], Tensor]

    def __post_init__(self) -> None:
        check_labels(self.labels, self.classes, len(self.indices))

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Tensor:
        return self.read(self.path, int(self.indices[index]))

    def __repr__(self) -> str:
        return f"StreamedScenes({self.name!r}, {len(self)} scenes of {self.path.name})"

    @cached_property
    def fingerprint(self) -> str:
        """First 16 hexadecimal digits of a SHA-256 of the file's size, the scenes' numbers and their labels."""
        digest = hashlib.sha256(f"{self.path.name} {self.path.stat().st_size} {self.pixel_classes}".encode())
        digest.update(self.indices.numpy().astype("<i8").data)
        digest.update(self.labels.numpy().astype("<i8").data)
        return digest.hexdigest()[:16]

    def subset(self, indices: Tensor) -> StreamedScenes:
        """The scenes at ``indices`` (int64 ``[n]``), in that order."""
        rows = indices.cpu()
        return replace(self, indices=self.indices[rows], labels=self.labels[rows])

    def take(self, n: int | None, seed: int = 0) -> StreamedScenes:
        """A random subset with class counts as equal as possible, the same for the same seed."""
        return self if n is None or n == len(self) else self.subset(balanced_subset(self.labels, n, seed))
