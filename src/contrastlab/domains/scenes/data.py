"""Scenes with classes, depth and normals of their pixels, in memory or in files: CamVid, NYU-Depth-V2."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from contrastlab.domains.scenes.views import slices
from contrastlab.pictures.items import Items, ItemSet, Splits
from contrastlab.pictures.parquet import columns
from contrastlab.pictures.sets import decode, opened
from contrastlab.support.errors import CorruptFileError, import_extra


@dataclass(frozen=True, eq=False, repr=False)
class SceneSet(Items):
    """Scenes in memory, float16 ``[N, C, H, W]``, packed as :data:`contrastlab.domains.scenes.views.LAYOUT` says.

    The colours are whole numbers from 0 to 255. Float16 holds these exactly, and depth and normals to half a
    thousandth. Labels and ``classes`` are those of whole scenes, ``pixel_classes`` those of pixels.
    """

    domain: ClassVar[str] = "contrastlab.domains.scenes"
    modality: ClassVar[str] = "scene"
    shape: ClassVar[str] = "float16 of shape [N, C, H, W]"

    pixel_classes: tuple[str, ...]
    #: How generated items are made, in words. Their fingerprint is then that of these words: it must not depend on how
    #: a machine rounds a sine. Without words it is that of the numbers.
    origin: str = ""

    def _fits(self) -> bool:
        if self.items.dtype != torch.float16 or self.items.ndim != 4:
            return False
        return bool(slices(self.channels))

    def _hashed(self) -> Iterator[str | Tensor]:
        yield self._form()
        yield self.origin or self.items
        yield self.labels

    def subset(self, indices: Tensor) -> Self:
        """The scenes at ``indices`` (int64 ``[n]``), in that order."""
        subset = super().subset(indices)
        if not self.origin:
            return subset
        numbers = indices.cpu().numpy().astype("<i8")
        digest = hashlib.sha256(numbers.data).hexdigest()[:16]
        return replace(subset, origin=f"{self.origin}, scenes {digest}")


def camvid(name: str, folder: Path, note: str, *, classes: Sequence[str]) -> Splits:
    """CamVid as SegNet's authors cut it: street frames of 240x180 with 11 classes of pixels; no depth, no normals.

    The number of a mask behind those of ``classes``, 11, is void.
    """
    train = _camvid(name, folder / "train.parquet", tuple(classes))
    test = _camvid(name, folder / "test.parquet", tuple(classes))
    return Splits.of(name, train, test, note)


def _camvid(name: str, path: Path, pixel_classes: tuple[str, ...]) -> SceneSet:
    scenes = []
    for picture, mask in zip(*columns(path, "image", "mask"), strict=True):
        rgb = np.asarray(decode(picture["bytes"], str(path)).convert("RGB"))
        classes = _mask(mask["bytes"], path, rgb.shape[:2], void=len(pixel_classes))
        packed = np.concatenate([rgb.transpose(2, 0, 1), classes[None]])
        scenes.append(packed.astype(np.float16))
    items = torch.from_numpy(np.stack(scenes))
    labels = torch.zeros(len(scenes), dtype=torch.int64)
    return SceneSet(name, items, labels, ("street",), pixel_classes)


def _mask(content: bytes, path: Path, shape: tuple[int, ...], void: int) -> NDArray[np.int16]:
    """Classes of the pixels of a picture, of height and width ``shape``; -1 for void."""
    with opened(content, str(path)) as image:  # of a palette, the numbers are the classes
        classes = np.asarray(image).astype(np.int16)
    largest = int(classes.max())
    if classes.shape != shape or largest > void:
        raise CorruptFileError(
            f"{path}: a mask of shape {classes.shape} with values to {largest} beside a picture of"
            f" {shape}; accepted are masks of the same size with 0 to {void}"
        )
    classes[classes == void] = -1
    return classes


NYU_FILE = "nyu_depth_v2_labeled.mat"
NYU_INTRINSICS = (518.85790117450188, 519.46961112127485, 325.58244941119034, 253.73616633400465)
"""Focal lengths and centre of the colour camera in pixels, to which depth is registered (the authors' toolbox)."""


@dataclass(frozen=True, eq=False, repr=False)
class StreamedScenes(ItemSet):
    """Frames of NYU-Depth-V2, read when they are used; holds a path only, so ``DataLoader`` workers can have it.

    Labels and ``classes`` are those of whole scenes, ``pixel_classes`` those of pixels.
    """

    resident: ClassVar[bool] = False
    domain: ClassVar[str] = "contrastlab.domains.scenes"
    modality: ClassVar[str] = "scene"
    by_item: ClassVar[tuple[str, ...]] = ("indices", "labels")
    channels: ClassVar[int] = 8

    name: str
    path: Path  #: of the authors' file
    indices: Tensor  #: int64 ``[N]``, numbers of the frames in the file
    labels: Tensor
    classes: tuple[str, ...]
    pixel_classes: tuple[str, ...]
    table: tuple[int, ...] = ()  #: the file's class of a pixel, from 1, to ours, from 1; empty if they are the same

    def __getitem__(self, index: int) -> Tensor:
        number = int(self.indices[index])
        with import_extra("h5py", "scenes").File(self.path, "r") as file:
            rgb = _frame(file, "images", number)
            depth = _frame(file, "depths", number)
            classes = _frame(file, "labels", number).astype(np.int64)
        if self.table:
            classes = np.array([0, *self.table])[classes]
        depth = np.where(depth > 0, depth, np.nan).astype(np.float32)
        parts = [rgb, (classes - 1)[None], depth[None], normals(depth, *NYU_INTRINSICS)]
        packed = np.concatenate(parts).astype(np.float16)
        return torch.from_numpy(packed)

    def _form(self) -> str:
        return f"{self.path.name} {self.path.stat().st_size} {self.pixel_classes}"


def _frame(file: Any, part: str, number: int) -> NDArray[Any]:
    """A frame's part, ``[…, H, W]``; MATLAB's order is column by column."""
    return np.asarray(file[part][number]).swapaxes(-1, -2)


def nyu(name: str, folder: Path, note: str) -> Splits:
    """NYU-Depth-V2's 1,449 labelled frames, 640x480, streamed from the authors' file.

    Depth is what they filled in (``depths``), normals are computed from it. Train and test are those of their
    ``splits.mat``. With ``classMapping40.mat`` (Gupta et al.) beside it there are 40 classes of pixels, otherwise 894.
    """
    path = folder / NYU_FILE
    kinds, pixel_classes = _read_words(path)
    from scipy.io import loadmat

    table: tuple[int, ...] = ()
    mapping = folder / "classMapping40.mat"
    if mapping.exists():
        forty = loadmat(mapping, squeeze_me=True)
        table = tuple(forty["mapClass"].tolist())
        pixel_classes = tuple(map(str, forty["className"]))
    classes = tuple(sorted(set(kinds)))
    labels = torch.tensor([classes.index(kind) for kind in kinds])
    numbers = loadmat(folder / "splits.mat")

    def scenes(part: str) -> StreamedScenes:
        counted_from_1 = numbers[f"{part}Ndxs"].ravel().astype(np.int64)
        indices = torch.from_numpy(counted_from_1 - 1)
        return StreamedScenes(f"{name}/{part}", path, indices, labels[indices], classes, pixel_classes, table)

    train = scenes("train")
    test = scenes("test")
    note = note.format(train=len(train), test=len(test), classes=len(pixel_classes))
    return Splits.of(name, train, test, note)


def _read_words(path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The kind of each scene and the names of pixels' classes, from the authors' file, whose shapes are looked at."""
    h5py = import_extra("h5py", "scenes")
    with h5py.File(path, "r") as file:
        kinds = _strings(file, "sceneTypes")
        pixel_classes = _strings(file, "names")
        shapes = {
            "depths": (len(kinds), 640, 480),
            "labels": (len(kinds), 640, 480),
            "images": (len(kinds), 3, 640, 480),
        }
        for field, shape in shapes.items():
            if file[field].shape != shape:
                raise CorruptFileError(f"{path}: {field} has the shape {file[field].shape}, not {shape}")
    return kinds, pixel_classes


def _strings(file: Any, name: str) -> tuple[str, ...]:
    """A MATLAB cell array of strings."""
    strings = []
    for reference in np.asarray(file[name]).ravel():
        codes = np.asarray(file[reference]).ravel()
        strings.append("".join(chr(code) for code in codes))
    return tuple(strings)


def normals(depth: NDArray[Any], fx: float, fy: float, cx: float, cy: float) -> NDArray[np.float32]:
    """Unit normals of the surface that a depth map shows, towards the camera.

    The cross product of the differences between a pixel's neighbours, two to each side, back-projected. Of depth
    ``[H, W]`` in metres, NaN where missing, focal lengths (right, down) and centre in pixels, counted from the first
    pixel's centre, they are ``[3, H, W]`` in the camera's axes (right, down, forward); NaN where the pixel or a
    neighbour is missing.
    """
    height, width = depth.shape
    columns = (np.arange(width) - cx) / fx
    rows = (np.arange(height) - cy) / fy
    x, y = np.meshgrid(columns, rows)
    points = np.stack([x * depth, y * depth, depth]).astype(np.float64)
    padded = np.pad(points, ((0, 0), (2, 2), (2, 2)), constant_values=np.nan)
    same_rows = padded[:, 2:-2]
    same_columns = padded[:, :, 2:-2]
    across = same_rows[:, :, 4:] - same_rows[:, :, :-4]
    down = same_columns[:, 4:] - same_columns[:, :-4]
    normal = np.cross(down, across, axis=0)
    normal = np.where(np.isfinite(depth), normal, np.nan)
    with np.errstate(invalid="ignore"):
        unit = normal / np.linalg.norm(normal, axis=0)
    return np.asarray(unit.astype(np.float32))
