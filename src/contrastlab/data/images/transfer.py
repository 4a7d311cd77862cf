"""Data that encoders are transferred to: the sets of ring Table 3 as they are published, and small copies.

A published set is streamed from its files; a copy lies in memory.

The file is long because every set has a layout of its own.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from contrastlab.data import coco, limits
from contrastlab.data.images.pictures import chw, decode
from contrastlab.data.images.sets import ImageSet, Splits, StreamedImages
from contrastlab.data.images.sources import scan
from contrastlab.data.images.subsets import hold_out
from contrastlab.data.images.tables import load_parquet, read_parquet, threaded
from contrastlab.errors import CorruptFileError, MissingDataError, unknown

_CROP_SIDE = 64  # pixels of a resident crop
_BOX_SCALE = 1.2  # Meta-Dataset's, of the crops of MSCOCO


def _streamed(
    name: str, folder: Path, paths: Sequence[str], labels: Sequence[int], classes: Sequence[str],
    boxes: Sequence[Sequence[int]] | None = None,
) -> StreamedImages:  # fmt: skip
    made = StreamedImages(name, folder, tuple(paths), torch.tensor(labels, dtype=torch.int64), tuple(classes))
    for path in dict.fromkeys(paths):
        if not (folder / path).exists():
            raise FileNotFoundError(2, "no such file", str(folder / path))
    return made if boxes is None else replace(made, boxes=torch.tensor(boxes, dtype=torch.int64).reshape(-1, 4))


def _given(name: str, parts: Sequence[ImageSet | StreamedImages], note: str) -> Splits:
    train, test = parts
    return Splits(name, train, train, test, note)


def _held_out(name: str, pool: ImageSet | StreamedImages, rows: Sequence[Tensor], note: str) -> Splits:
    parts = [replace(pool.subset(r), name=f"{name}/{split}") for split, r in zip(("train", "test"), rows, strict=True)]
    return _given(name, parts, note)


# As published -------------------------------------------------------------------------------------------------------


def _from_torchvision(
    name: str, folder: Path, sources: Iterable[Any], boxes: Callable[[str], Any] | None
) -> StreamedImages:
    # the image files and labels of several of torchvision's sets, one after the other
    files: list[str] = []
    labels: list[int] = []
    classes: Sequence[str] = ()
    for source in sources:
        files += [Path(file).relative_to(folder).as_posix() for file in source._image_files]
        labels += source._labels
        classes = source.classes
    return _streamed(name, folder, files, labels, classes, None if boxes is None else [boxes(f) for f in files])


def _aircraft(name: str, folder: Path) -> Splits:
    from torchvision.datasets import FGVCAircraft

    corners = {}
    for line in (folder / "data" / "images_box.txt").read_text(encoding="utf-8").splitlines():
        image, left, top, right, bottom = line.split()  # counted from 1, both ends inside
        corners[image] = (int(top) - 1, int(left) - 1, int(bottom) - int(top) + 1, int(right) - int(left) + 1)
    parts = [
        _from_torchvision(
            f"{name}/{part}", folder, [FGVCAircraft(folder.parent, split)], lambda file: corners[Path(file).stem]
        )
        for part, split in (("train", "trainval"), ("test", "test"))
    ]
    return _given(name, parts, "FGVC-Aircraft, variants, trainval and test, cropped to the bounding box")


def _dtd(name: str, folder: Path) -> Splits:
    from torchvision.datasets import DTD

    parts = [
        _from_torchvision(f"{name}/{part}", folder, [DTD(folder.parents[1], split) for split in splits], None)
        for part, splits in (("train", ("train", "val")), ("test", ("test",)))
    ]
    return _given(name, parts, "Describable Textures, partition 1, train and val against test")


def _birds(name: str, folder: Path) -> Splits:
    def column(file: str) -> list[str]:
        lines = (folder / file).read_text(encoding="utf-8").splitlines()
        return [line.split(maxsplit=1)[1] for line in lines if line.strip()]

    paths, labels = column("images.txt"), [int(label) - 1 for label in column("image_class_labels.txt")]
    pool = _streamed(name, folder / "images", paths, labels, column("classes.txt"))
    training = torch.tensor([flag == "1" for flag in column("train_test_split.txt")])
    rows = [part.nonzero().flatten() for part in (training, ~training)]
    return _held_out(name, pool, rows, "Caltech-UCSD Birds 200-2011, the split of its authors, whole pictures")


def _flowers(name: str, folder: Path) -> Splits:
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        labels = loadmat(str(folder / "imagelabels.mat"), squeeze_me=True)["labels"].astype(np.int64) - 1
    except MatReadError as error:
        raise ValueError(str(error)) from error
    paths = [f"jpg/image_{k:05d}.jpg" for k in range(1, len(labels) + 1)]
    pool = _streamed(name, folder, paths, labels.tolist(), [str(k + 1) for k in range(int(labels.max()) + 1)])
    note = "VGG Flower 102, all its parts pooled, stratified 80/20 split"
    return _held_out(name, pool, hold_out(pool.labels, name=name, classes=pool.classes), note)


def _fungi(name: str, folder: Path) -> Splits:
    parts = []
    for part, file in (("train", "train.json"), ("test", "val.json")):
        images, categories, marked = coco.lists(folder / file)  # one label a picture, without boxes
        paths = [images[a["image_id"]]["file_name"] for a in marked]
        number = {category["id"]: k for k, category in enumerate(categories)}
        labels = [number[a["category_id"]] for a in marked]
        parts.append(_streamed(f"{name}/{part}", folder, paths, labels, [str(c["name"]) for c in categories]))
    return _given(name, parts, "FGVCx Fungi 2018, train.json against val.json, whole pictures")


def scale_box(box: Sequence[float], width: int, height: int, scale: float = _BOX_SCALE) -> tuple[int, int, int, int]:
    """A box of COCO, grown about its middle and cut at the border of the picture.

    Args:
        box: (left, top, width, height) in pixels.
        width: of the picture.
        height: of the picture.
        scale: factor on both sides.

    Returns:
        (top, left, height, width) in whole pixels, at least one each.
    """
    edges = []
    for start, length, limit in ((box[1], box[3], height), (box[0], box[2], width)):
        middle, reach = start + length / 2, scale * length / 2
        low = min(max(round(middle - reach), 0), limit - 1)
        edges.append((low, max(min(round(middle + reach), limit) - low, 1)))
    (top, tall), (left, wide) = edges
    return top, left, tall, wide


def _objects(name: str, annotations: Path, pictures: Path) -> StreamedImages:
    # a crop of every object that is one; crowds and boxes without area are none
    known = coco.read_coco(annotations, strict=False)
    marked = [each for each in known.objects if not each["iscrowd"]]
    sizes = [known.images[each["image_id"]] for each in marked]
    boxes = [scale_box(each["bbox"], i["width"], i["height"]) for each, i in zip(marked, sizes, strict=True)]
    paths = [image["file_name"] for image in sizes]
    labels = [known.number[each["category_id"]] for each in marked]
    return _streamed(name, pictures, paths, labels, known.classes, boxes)


def _coco(name: str, folder: Path, annotations: str = "annotations") -> Splits:
    parts = [
        _objects(f"{name}/{part}", folder / annotations / f"instances_{year}.json", folder / year)
        for part, year in (("train", "train2017"), ("test", "val2017"))
    ]
    return _given(name, parts, "MSCOCO 2017 object crops, box x 1.2, one label a crop, no crowds; test is val")


# Traffic signs: filmed, so that 30 frames in a row show one sign ------------------------------------------------------


def hold_out_tracks(
    labels: Tensor, tracks: Tensor, fraction: float = 0.2, *, name: str = "", classes: Sequence[str] = ()
) -> tuple[Tensor, Tensor]:
    """A split that keeps the frames of a track together.

    Args:
        labels: int64 ``[N]``; tracks of one number and different labels are different tracks.
        tracks: int64 ``[N]``, from 0.
        fraction: share of each class's tracks that is held out; see :func:`contrastlab.data.images.subsets.hold_out`.
        name: of the data set, for the error.
        classes: names of the classes, for the error.

    Returns:
        Indices kept and indices held out, both ascending.

    Raises:
        NotApplicableError: a class has fewer than two tracks.
    """
    _, of_image = torch.unique(torch.stack([labels, tracks]), dim=1, return_inverse=True)
    of_track = torch.empty(int(of_image.max()) + 1, dtype=torch.int64).index_copy_(0, of_image, labels)
    split = hold_out(of_track, fraction, name=name, classes=classes, item="track")
    kept, held = (torch.isin(of_image, chosen).nonzero().flatten() for chosen in split)
    return kept, held


def _frames(root: Path) -> tuple[ImageSet | StreamedImages, Tensor, str]:
    # all training frames, the track of each within its class, and where they are from
    published, copy = root / "gtsrb" / "GTSRB" / "Final_Training" / "Images", root / "gtsrb32" / "train.parquet"
    if published.is_dir():
        found = scan(published)
        pool = StreamedImages("gtsrb", published, found.paths, found.labels, found.classes)
        tracks = torch.tensor([int(Path(path).stem.split("_")[0]) for path in found.paths])
        return pool, tracks, "GTSRB, Final_Training"
    if not copy.exists():
        raise MissingDataError(
            f"traffic signs: neither {published} nor {copy} exists. Unpack GTSRB_Final_Training_Images.zip into"
            f" {root / 'gtsrb'}, or set CONTRASTLAB_DATA (or root=) to the folder that has one of them."
        )
    import pyarrow.parquet as pq

    table = read_parquet([copy])
    tracks = torch.from_numpy(pq.read_table(copy, columns=["track"])["track"].to_numpy().astype(np.int64))
    copied = ImageSet("gtsrb32", table.images, table.labels, table.classes, {"track": tracks})
    return copied, tracks, "GTSRB, training frames, 32 px JPEG copy"


def _signs(name: str, root: Path) -> Splits:
    pool, tracks, note = _frames(root)
    if name == "trafficsign":
        note += "; random 80/20 split per image, so that frames of one physical sign are on both sides (it leaks)"
        return _held_out(name, pool, hold_out(pool.labels, name=name, classes=pool.classes), note)
    note += "; 80/20 split by track: no physical sign is on both sides"
    return _held_out(name, pool, hold_out_tracks(pool.labels, tracks, name=name, classes=pool.classes), note)


# Small copies ---------------------------------------------------------------------------------------------------------


def _parquet(note: str, name: str, folder: Path) -> Splits:
    splits = load_parquet(name, str(folder))
    return replace(splits, note=f"{note}; {splits.note}")


def _mnist_t10k(name: str, folder: Path) -> Splits:
    pixels, labels = (
        np.frombuffer(limits.gunzipped(folder / f"t10k-{kind}-ubyte.gz"), np.uint8, offset=offset)
        for kind, offset in (("images-idx3", 16), ("labels-idx1", 8))
    )
    images = torch.from_numpy(pixels.copy()).reshape(-1, 1, 28, 28)
    pool = ImageSet(name, images, torch.from_numpy(labels.astype(np.int64)), tuple(map(str, range(10))))
    note = "the test digits of MNIST alone, stratified 80/20 split"
    return _held_out(name, pool, hold_out(pool.labels, name=name, classes=pool.classes), note)


def _omniglot(name: str, folder: Path) -> Splits:
    drawings: dict[tuple[str, str, int], bytes] = {}
    archives = sorted(folder.glob("*.zip"))
    if not archives:
        raise FileNotFoundError(2, "no archive", str(folder / "*.zip"))
    for archive in archives:  # the same alphabet may be in several
        with zipfile.ZipFile(archive) as packed:
            for file in packed.namelist():
                parts = file.split("/")
                if file.endswith(".png") and len(parts) == 4:
                    drawings[parts[1], parts[2], int(Path(file).stem.split("_")[1])] = limits.unpacked(packed, file)
    keys = sorted(drawings)
    classes = tuple(dict.fromkeys(f"{alphabet}/{character}" for alphabet, character, _ in keys))
    number = {kind: k for k, kind in enumerate(classes)}
    pixels = np.stack([chw(decode(drawings[key]), 1) for key in keys])
    labels = torch.tensor([number[f"{alphabet}/{character}"] for alphabet, character, _ in keys])
    drawer = torch.tensor([drawer for *_, drawer in keys])
    pool = ImageSet(name, torch.from_numpy(pixels), labels, classes, {"drawer": drawer})
    rows = [part.nonzero().flatten() for part in (drawer <= 16, drawer > 16)]
    return _held_out(name, pool, rows, "Omniglot, the small background sets; drawers 1 to 16 against 17 to 20")


def _resident(part: Any) -> ImageSet:
    small = replace(part, resize=_CROP_SIDE)
    pixels = torch.stack(list(threaded(small.__getitem__, range(len(small)))))
    return ImageSet(part.name, pixels, part.labels, part.classes)


def _coco200(name: str, folder: Path) -> Splits:
    splits = _coco(name, folder, annotations="")
    note = f"{splits.note}; 200 pictures of 320 px in all, crops of {_CROP_SIDE} px"
    return _given(name, [_resident(splits.train), _resident(splits.test)], note)


# By name --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """A data set to transfer to.

    Args:
        title: in words.
        read: its name and :attr:`folder` to its parts.
        folder: below the data root; empty where the reader says itself what is missing, or nothing is read.
        source: how to get it.
    """

    title: str
    read: Callable[[str, Path], Splits]
    folder: str = ""
    source: str = ""


def _fetch(torchvision: str) -> str:
    return f"torchvision.datasets.{torchvision}('<root>', download=True) fetches it"


def _made(repository: str, commit: str, form: str) -> str:
    return f"Make it from the GitHub repository {repository} (commit {commit}) as {form}"


_COLUMNS = "with the columns image (PNG or JPEG bytes) and label"
_MADE = {
    "coco200": _made("lightly-ai/coco128_yolo", "6d6f7a0", "train2017 and val2017 with instances_<part>.json"),
    "dtd10": _made("pan8915/DeepTexture", "522f46f", f"a parquet file {_COLUMNS}"),
    "flowers17": _made("995114879/17flowers", "876e29c", f"a parquet file {_COLUMNS}"),
    "gtsrb32": _made(
        "hergerr/traffic-sign-recognition", "80c6270", "train.parquet (image, label, track, frame), test.parquet"
    ),
    "mnist_t10k": _made("kelas/mnist", "283b387", "t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz"),
    "omniglot_small": _made("brendenlake/omniglot", "057f034", "images_background_small1.zip and its like"),
    "tinyimagenet32": _made("DhanashriPalodkar/imageet32x32", "17536f5", f"train and test parquet files {_COLUMNS}"),
}

TARGETS: Mapping[str, Target] = MappingProxyType(
    {
        "aircraft": Target("FGVC-Aircraft", _aircraft, "fgvc-aircraft-2013b", _fetch("FGVCAircraft")),
        "cubirds": Target("CUB-200-2011", _birds, "CUB_200_2011", "Unpack CUB_200_2011.tgz into <root>"),
        "dtd": Target("Describable Textures", _dtd, "dtd/dtd", _fetch("DTD")),
        "fungi": Target(
            "FGVCx Fungi", _fungi, "fungi", "Unpack fungi_train_val.tgz and train_val_annotations.tgz into <root>/fungi"
        ),
        "trafficsign": Target("GTSRB", _signs),
        "trafficsign_tracks": Target("GTSRB", _signs),
        "vggflower": Target("VGG Flower 102", _flowers, "flowers-102", _fetch("Flowers102")),
        "mscoco": Target(
            "MSCOCO", _coco, "coco",
            "Unpack train2017.zip, val2017.zip and annotations_trainval2017.zip into <root>/coco",
        ),
        "coco200": Target("MSCOCO, 200 pictures", _coco200, "coco200", _MADE["coco200"]),
        "dtd10": Target(
            "Describable Textures", partial(_parquet, "10 of DTD's 47 textures, 128 px"), "dtd10", _MADE["dtd10"]
        ),
        "flowers17": Target(
            "VGG Flower 17", partial(_parquet, "the older set of 17 flowers, not the 102, 128 px"), "flowers17",
            _MADE["flowers17"],
        ),
        "gtsrb32": Target(
            "GTSRB", partial(_parquet, "GTSRB, the split of the benchmark, 32 px"), "gtsrb32", _MADE["gtsrb32"]
        ),
        "mnist_t10k": Target("MNIST's test digits", _mnist_t10k, "mnist_t10k", _MADE["mnist_t10k"]),
        "omniglot_small": Target("Omniglot", _omniglot, "omniglot_small", _MADE["omniglot_small"]),
        "tinyimagenet32": Target(
            "TinyImageNet", partial(_parquet, "200 classes of ImageNet at 32 px"), "tinyimagenet32",
            _MADE["tinyimagenet32"],
        ),
    }
)  # fmt: skip
"""Name to data set. None of them is downloaded: several are gigabytes, and a table asks for all."""


# what readers of these layouts raise on damaged files
_UNREADABLE = (ValueError, LookupError, TypeError, RuntimeError, EOFError, OSError, zipfile.BadZipFile, zlib.error)


@lru_cache(maxsize=len(TARGETS))
def load_target(name: str, root: Path) -> Splits:
    """Splits of one of :data:`TARGETS`, read once a process.

    Raises:
        UnknownNameError: no set has that name.
        MissingDataError: a file of it is not there; the message says which and how to get it.
        CorruptFileError: a file of it is not what its authors publish.
    """
    if name not in TARGETS:
        raise unknown("data set", name, TARGETS)
    target = TARGETS[name]
    folder = root / target.folder
    hint = f"{target.source}, or set CONTRASTLAB_DATA (or root=) to the folder that has it".replace("<root>", str(root))
    if target.folder and not folder.exists():
        raise MissingDataError(f"{target.title}: {folder} does not exist. {hint}.")
    try:
        return target.read(name, folder)
    except (MissingDataError, CorruptFileError):
        raise
    except FileNotFoundError as absent:
        raise MissingDataError(f"{target.title}: {absent.filename} does not exist. {hint}.") from absent
    except _UNREADABLE as error:
        raise CorruptFileError(f"{target.title}: a file under {folder} cannot be read: {error!r}") from error
