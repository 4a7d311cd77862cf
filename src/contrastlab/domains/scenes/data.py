"""Scenes with what is known of each pixel, in memory or read when they are used: CamVid, NYU-Depth-V2."""

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
    #: what generated items are a function of; their fingerprint is then that of these words, which does not depend on
    #: how a machine rounds a sine. Empty: the fingerprint is that of the numbers
    origin: str = ""

    def _fits(self) -> bool:
        return self.items.dtype == torch.float16 and self.items.ndim == 4 and bool(slices(self.channels))

    def _hashed(self) -> Iterator[str | Tensor]:
        yield self._form()
        yield from (self.origin or self.items, self.labels)

    def subset(self, indices: Tensor) -> Self:
        """The scenes at ``indices`` (int64 ``[n]``), in that order."""
        chosen = hashlib.sha256(indices.cpu().numpy().astype("<i8").data).hexdigest()[:16]
        return replace(super().subset(indices), origin=self.origin and f"{self.origin}, scenes {chosen}")


def camvid(name: str, folder: Path, note: str, *, classes: Sequence[str]) -> Splits:
    """CamVid as SegNet's authors cut it: street frames of 240x180 with 11 classes of pixels; no depth, no normals.

    The number of a mask behind those of ``classes``, 11, is void.
    """
    train, test = (_camvid(name, folder / f"{part}.parquet", tuple(classes)) for part in ("train", "test"))
    return Splits.of(name, train, test, note)


def _camvid(name: str, path: Path, pixel_classes: tuple[str, ...]) -> SceneSet:
    scenes, void = [], len(pixel_classes)
    for picture, mask in zip(*columns(path, "image", "mask"), strict=True):
        rgb = np.asarray(decode(picture["bytes"], str(path)).convert("RGB"))
        with opened(mask["bytes"], str(path)) as image:  # of a palette, the numbers are the classes
            classes = np.asarray(image).astype(np.int16)
        if classes.shape != rgb.shape[:2] or int(classes.max()) > void:
            raise CorruptFileError(
                f"{path}: a mask of shape {classes.shape} with values to {int(classes.max())} beside a picture of"
                f" {rgb.shape[:2]}; accepted are masks of the same size with 0 to {void}"
            )
        classes[classes == void] = -1
        scenes.append(np.concatenate([rgb.transpose(2, 0, 1), classes[None]]).astype(np.float16))
    labels = torch.zeros(len(scenes), dtype=torch.int64)
    return SceneSet(name, torch.from_numpy(np.stack(scenes)), labels, ("street",), pixel_classes)


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
        number, parts = int(self.indices[index]), ("images", "depths", "labels")
        with import_extra("h5py", "scenes").File(self.path, "r") as file:  # MATLAB's order is column by column
            rgb, depth, label = (np.asarray(file[part][number]).swapaxes(-1, -2) for part in parts)
        classes = label.astype(np.int64)
        if self.table:
            classes = np.array([0, *self.table])[classes]
        depth = np.where(depth > 0, depth, np.nan).astype(np.float32)
        packed = [rgb, (classes - 1)[None], depth[None], normals(depth, *NYU_INTRINSICS)]
        return torch.from_numpy(np.concatenate(packed).astype(np.float16))

    def _form(self) -> str:
        return f"{self.path.name} {self.path.stat().st_size} {self.pixel_classes}"


def nyu(name: str, folder: Path, note: str) -> Splits:
    """NYU-Depth-V2's 1,449 labelled frames, 640x480, streamed from the authors' file.

    Depth is what they filled in (``depths``), normals are computed from it. Train and test are those of their
    ``splits.mat``. With ``classMapping40.mat`` (Gupta et al.) beside it there are 40 classes of pixels, otherwise 894.
    """
    h5py, path, mapping = import_extra("h5py", "scenes"), folder / NYU_FILE, folder / "classMapping40.mat"
    from scipy.io import loadmat

    with h5py.File(path, "r") as file:
        kinds, pixel_classes = _strings(file, "sceneTypes"), _strings(file, "names")
        for field, last in (("depths", (640, 480)), ("labels", (640, 480)), ("images", (3, 640, 480))):
            if file[field].shape != (len(kinds), *last):
                raise CorruptFileError(f"{path}: {field} has the shape {file[field].shape}, not {(len(kinds), *last)}")
    table: tuple[int, ...] = ()
    if mapping.exists():
        forty = loadmat(mapping, squeeze_me=True)
        table, pixel_classes = tuple(forty["mapClass"].tolist()), tuple(map(str, forty["className"]))
    classes = tuple(sorted(set(kinds)))
    labels, numbers = torch.tensor([classes.index(kind) for kind in kinds]), loadmat(folder / "splits.mat")
    train, test = (
        StreamedScenes(f"{name}/{part}", path, chosen, labels[chosen], classes, pixel_classes, table)
        for part in ("train", "test")
        for chosen in [torch.from_numpy(numbers[f"{part}Ndxs"].ravel().astype(np.int64) - 1)]
    )
    return Splits.of(name, train, test, note.format(train=len(train), test=len(test), classes=len(pixel_classes)))


def _strings(file: Any, name: str) -> tuple[str, ...]:
    """A MATLAB cell array of strings."""
    return tuple("".join(chr(c) for c in np.asarray(file[ref]).ravel()) for ref in np.asarray(file[name]).ravel())


def normals(depth: NDArray[Any], fx: float, fy: float, cx: float, cy: float) -> NDArray[np.float32]:
    """Unit normals of the surface that a depth map shows, towards the camera.

    The cross product of the differences between a pixel's neighbours, two to each side, back-projected. Of depth
    ``[H, W]`` in metres, NaN where missing, focal lengths (right, down) and centre in pixels, counted from the first
    pixel's centre, they are ``[3, H, W]`` in the camera's axes (right, down, forward); NaN where the pixel or a
    neighbour is missing.
    """
    height, width = depth.shape
    x, y = np.meshgrid((np.arange(width) - cx) / fx, (np.arange(height) - cy) / fy)
    points = np.stack([x * depth, y * depth, depth]).astype(np.float64)
    padded = np.pad(points, ((0, 0), (2, 2), (2, 2)), constant_values=np.nan)
    across = padded[:, 2:-2, 4:] - padded[:, 2:-2, :-4]
    down = padded[:, 4:, 2:-2] - padded[:, :-4, 2:-2]
    normal = np.where(np.isfinite(depth), np.cross(down, across, axis=0), np.nan)
    with np.errstate(invalid="ignore"):
        out: NDArray[np.float32] = (normal / np.linalg.norm(normal, axis=0)).astype(np.float32)
    return out
