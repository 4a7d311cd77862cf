"""Readers of sets of images: a user's own folder, and the layouts that published sets come in.

A published set is a row of ``published.toml``: which of these functions reads it, and the function's arguments. A
reader raises what Python raises on files that are missing or damaged; :func:`contrastlab.data.load` says it in words.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from contrastlab.pictures import layout, limits
from contrastlab.pictures.items import Splits, UnlabelledSplits, aligned, split_own
from contrastlab.pictures.parquet import columns, parquet_files, read_parquet
from contrastlab.pictures.sets import AVIF, ImageSet, StreamedImages, chw, decode, opened, stack
from contrastlab.support.errors import MissingDataError

SUFFIXES = frozenset({
    ".jpg", ".jpeg", ".jpe", ".jfif", ".jpg_large", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm",
    *AVIF,
})  # fmt: skip
"""File name endings, in lower case, that count as images."""

_RESIDENT_BYTES = 2**30  # folders of equal-sized images up to this size are decoded once and kept


def streamed(
    name: str, folder: Path, paths: Iterable[str], labels: Iterable[int], classes: Iterable[str],
    boxes: Sequence[Sequence[int]] | None = None,
) -> StreamedImages:  # fmt: skip
    """Pictures in files, which are looked for at once; see :class:`contrastlab.pictures.sets.StreamedImages`."""
    marked = None if boxes is None else torch.tensor(boxes, dtype=torch.int64).reshape(-1, 4)
    numbers = torch.tensor(list(labels), dtype=torch.int64)
    made = StreamedImages(name, folder, tuple(paths), numbers, tuple(classes), boxes=marked)
    for path in dict.fromkeys(made.paths):
        if not (folder / path).exists():
            raise FileNotFoundError(2, "no such file", str(folder / path))
    return made


def _listed(name: str, folder: Path, only: Iterable[str] | None = None) -> StreamedImages:
    """Images of the class subfolders (all, or ``only`` those), and loose ones, labelled −1."""
    return _images(name, layout.listed(folder, SUFFIXES, only))


def _images(name: str, files: layout.Listing) -> StreamedImages:
    labels = torch.tensor(files.labels, dtype=torch.int64)
    return StreamedImages(name, files.folder, files.paths, labels, files.classes)


def _decoded(part: StreamedImages) -> ImageSet:
    """The pictures in memory, as they are stored."""
    return ImageSet(part.name, stack([(part.path(k), "") for k in range(len(part))]), part.labels, part.classes)


def _fits(paths: Sequence[Path]) -> bool:
    """Whether all images have one size and fit in memory together."""

    def size(path: Path) -> tuple[int, int]:
        with opened(path) as image:
            return image.size

    width, height = size(paths[0])
    return len(paths) * 3 * width * height <= _RESIDENT_BYTES and all(size(path) == (width, height) for path in paths)


def load_folder(name: str, location: str) -> Splits:
    """Splits of ``folder:<path>``, a user's own image files.

    The subfolders of ``<path>/train``, or else of ``<path>``, are the classes; images beside them are unlabelled. How
    parts may be called, and which is the test, says :func:`contrastlab.pictures.layout.read`. Without a test part
    that has labels, one image in five of each class is held out, always the same ones. Images of one size that fit in
    one GiB are decoded into memory; others are streamed as RGB: training crops whole pictures, evaluation sees the
    middle square with the shorter side at 256.
    """
    path = _own_folder(name, location)
    found = layout.read(name, path, SUFFIXES, "image")
    train, test = _images(name, found.train), None
    parts: list[Any] = [train]
    if found.test is not None:
        test = aligned(_images(name, found.test), train.classes, f"{name}: {found.test.folder}")
        parts.append(test)
    train, *tests = _resident(parts)
    note = f"image files of {path.name}: {found.note}" if found.note else f"image files of {path.name}"
    return split_own(name, train, tests[0] if tests else None, note)


def load_pictures(name: str, location: str) -> Splits:
    """All pictures below the folder of ``unlabelled:<path>``, in the order of :func:`pictures_in`, without labels."""
    path = _own_folder(name, location)
    paths = pictures_in(path)
    if not paths:
        raise MissingDataError(f"{name}: no image under {path} (looked for {' '.join(sorted(SUFFIXES))}).")
    images = StreamedImages(name, path, paths, torch.full((len(paths),), -1), ())
    (read,) = _resident([images])
    return UnlabelledSplits(name, read, f"{len(paths)} image files of {path.name}, unlabelled")


def pictures_in(folder: Path | str) -> tuple[str, ...]:
    """Names of all pictures below a folder, relative to it and sorted; see :data:`SUFFIXES`."""
    place = Path(folder)
    return tuple(sorted(path.relative_to(place).as_posix() for path in limits.files_below(place, SUFFIXES)))


def _own_folder(name: str, location: str) -> Path:
    path = limits.own_path(name, location).resolve()
    if not path.is_dir():
        raise MissingDataError(f"{name}: {path} is not a folder. Give the path of a folder of images.")
    return path


def _resident(parts: list[Any]) -> list[Any]:
    """Parts of a set, decoded into memory where all their pictures have one size and fit."""
    if _fits([part.path(k) for part in parts for k in range(len(part))]):
        return [_decoded(part) for part in parts]
    return parts


def imagenet100_synsets() -> tuple[str, ...]:
    """The 100 synsets of ImageNet-100, ascending: Tian, Krishnan & Isola, Contrastive Multiview Coding, Table 6."""
    return tuple((files("contrastlab.pictures") / "imagenet100.txt").read_text().split())


def imagenet(name: str, folder: Path, note: str, *, synsets: int) -> Splits:
    """``{train,val}/<synset>/*``, streamed: all 1,000 synsets, or the 100 of :func:`imagenet100_synsets`."""
    parts = []
    for part, split in (("train", "train"), ("test", "val")):
        listed = _listed(f"{name}/{part}", folder / split, imagenet100_synsets() if synsets == 100 else None)
        if len(listed.classes) != synsets:
            there = f"{folder / split} has {len(listed.classes)} of the {synsets} synset folders with pictures"
            raise MissingDataError(f"{name}: {there}; another selection loads as 'folder:{folder}'.")
        parts.append(listed)
    return Splits.of(name, parts[0], parts[1], note)


def tinyimagenet(name: str, folder: Path, note: str) -> Splits:
    """``tiny-imagenet-200`` as its authors pack it, decoded into memory: 200 synsets, 64×64, the grey ones as RGB."""
    train, images = _listed(f"{name}/train", folder / "train"), folder / "val" / "images"
    synset_of = dict(line[:2] for line in limits.words(folder / "val" / "val_annotations.txt"))
    held = [path for path in limits.files_below(images, SUFFIXES) if path.name in synset_of]
    synsets = [synset_of[path.name] for path in held]
    strange = sorted(set(synsets) - set(train.classes))
    if strange:
        raise MissingDataError(f"{name}: {folder / 'train'} lacks the synset {strange[0]} of val_annotations.txt.")
    paths = (path.relative_to(images).as_posix() for path in held)
    test = streamed(f"{name}/test", images, paths, map(train.classes.index, synsets), train.classes)
    return Splits.of(name, _decoded(train).coloured(), _decoded(test).coloured(), note)


def unlabelled(name: str, folder: Path, note: str) -> Splits:
    """A folder of pictures without labels, streamed."""
    return UnlabelledSplits(name, _listed(f"{name}/train", folder), note)


TORCHVISION: Mapping[str, tuple[str, str, str]] = MappingProxyType({
    "cifar10": ("CIFAR-10", "CIFAR10", "cifar-10-batches-py"),
    "cifar100": ("CIFAR-100", "CIFAR100", "cifar-100-python"),
    "fashionmnist": ("Fashion-MNIST", "FashionMNIST", "FashionMNIST/raw"),
    "mnist": ("MNIST", "MNIST", "MNIST/raw"),
    "stl10": ("STL-10", "STL10", "stl10_binary"),
})  # fmt: skip
"""Name to title, class of torchvision, and that class's folder below the data root."""


def load_published(name: str, root: Path, download: bool) -> Splits:
    """Splits of one of :data:`TORCHVISION`, from ``<root>/<name>/*.parquet`` or else through torchvision."""
    by_split = parquet_files(root / name) if (root / name).is_dir() else {}
    if "train" not in by_split or "test" not in by_split:
        return _load_torchvision(name, root, download)
    (train, encoding), (test, _) = read_parquet(by_split["train"]), read_parquet(by_split["test"])
    # The originals are stored without loss, so JPEG here is a second, lossy coding that results must mention.
    lossy = ", JPEG-compressed once more" if encoding == "JPEG" else ""
    if "unlabel" in by_split:
        more = read_parquet(by_split["unlabel"])[0].images
        labels = torch.cat([train.labels, torch.full((len(more),), -1)])
        train = replace(train, items=torch.cat([train.images, more]), labels=labels)
    return Splits.of(name, train, replace(test, classes=train.classes), f"{TORCHVISION[name][0]}, parquet{lossy}")


def _load_torchvision(name: str, root: Path, download: bool) -> Splits:
    import torchvision.datasets

    title, kind, layout = TORCHVISION[name]
    splits = ("train+unlabeled", "test") if name == "stl10" else (True, False)  # the second argument of the class
    try:
        read = [getattr(torchvision.datasets, kind)(root, split, download=download) for split in splits]
    except (RuntimeError, OSError) as error:
        places = f"at {root / name}/*train*.parquet (with *test*.parquet) nor at {root / layout}"
        failed = f", and the download failed: {error}" if download else ""
        raise MissingDataError(f"{title} is neither {places}{failed}.") from error
    train, test = (ImageSet(name, *_tensors(part), tuple(read[0].classes)) for part in read)
    return Splits.of(name, train, test, f"{title}, the distributed files read by torchvision")


def _tensors(part: Any) -> tuple[Tensor, Tensor]:
    """uint8 ``[N, C, H, W]`` and int64 ``[N]`` of a torchvision set (NHW tensor, NHWC or NCHW array)."""
    pixels = torch.as_tensor(np.asarray(part.data))
    if pixels.ndim == 3:
        pixels = pixels[:, None]
    elif pixels.shape[1] not in (1, 3):
        pixels = pixels.permute(0, 3, 1, 2)
    labels = part.labels if hasattr(part, "labels") else part.targets
    return pixels.contiguous(), torch.as_tensor(np.asarray(labels), dtype=torch.int64)


def load_digits() -> Splits:
    """scikit-learn's 1,797 handwritten digits, ``[N, 1, 8, 8]``: their 17 grey levels scaled to 0 … 255."""
    from sklearn.datasets import load_digits as bundled

    data = bundled()
    pixels = torch.from_numpy(np.rint(data.images * (255 / 16)).astype(np.uint8))[:, None].contiguous()
    labels = torch.from_numpy(data.target.astype(np.int64))
    pool = ImageSet("digits", pixels, labels, tuple(map(str, data.target_names)))
    note = "UCI optical digits, 8x8, as bundled with scikit-learn; stratified 80/20 split"
    return Splits.held_out("digits", pool, note)


def mnist_t10k(name: str, folder: Path, note: str) -> Splits:
    """The test digits of MNIST, from the two files that its author distributes."""
    pixels = bytearray(limits.gunzipped(folder / "t10k-images-idx3-ubyte.gz"))[16:]
    labels = torch.tensor(list(limits.gunzipped(folder / "t10k-labels-idx1-ubyte.gz")[8:]))
    images = torch.frombuffer(pixels, dtype=torch.uint8).reshape(-1, 1, 28, 28)
    return Splits.held_out(name, ImageSet(name, images, labels, tuple("0123456789")), note)


def omniglot(name: str, folder: Path, note: str) -> Splits:
    """Omniglot's zip archives; drawers 1 to 16 train, the others test."""
    drawings: dict[tuple[str, str, int], bytes] = {}
    for archive in limits.matching(folder, "*.zip"):  # the same alphabet may be in several
        with zipfile.ZipFile(archive) as packed:
            for file in packed.namelist():
                parts = file.split("/")
                if file.endswith(".png") and len(parts) == 4:
                    drawings[parts[1], parts[2], int(Path(file).stem.split("_")[1])] = limits.unpacked(packed, file)
    keys = sorted(drawings)
    classes, labels = np.unique([f"{alphabet}/{character}" for alphabet, character, _ in keys], return_inverse=True)
    pixels = torch.from_numpy(np.stack([chw(decode(drawings[key]), 1) for key in keys]))
    drawer = torch.tensor([drawer for *_, drawer in keys])
    pool = ImageSet(name, pixels, torch.from_numpy(labels), tuple(classes.tolist()), {"drawer": drawer})
    return Splits.divided(name, pool, drawer > 16, note)


def torchvision_files(
    name: str, folder: Path, note: str, *, kind: str, up: int, train: Sequence[str], test: Sequence[str],
    boxes: str = "",
) -> Splits:  # fmt: skip
    """The image files of some splits of a class of torchvision, whose root lies ``up`` folders above ``folder``.

    ``boxes`` is a file below ``folder`` of lines ``<image> <left> <top> <right> <bottom>``, from 1, both ends inside.
    """
    import torchvision.datasets

    corners = {}
    for image, *numbers in limits.words(folder / boxes) if boxes else ():
        left, top, right, bottom = map(int, numbers)
        corners[image] = (top - 1, left - 1, bottom - top + 1, right - left + 1)
    parts = []
    for part, splits in (("train", train), ("test", test)):
        sources = [getattr(torchvision.datasets, kind)(folder.parents[up - 1], split) for split in splits]
        paths = [Path(file).relative_to(folder).as_posix() for source in sources for file in source._image_files]
        labels = [label for source in sources for label in source._labels]
        marked = [corners[Path(path).stem] for path in paths] if boxes else None
        parts.append(streamed(f"{name}/{part}", folder, paths, labels, sources[-1].classes, marked))
    return Splits.of(name, parts[0], parts[1], note)


def birds(name: str, folder: Path, note: str) -> Splits:
    """Caltech-UCSD Birds, by the lists of its authors: ``<number> <value>`` a line."""

    def column(file: str) -> list[str]:
        return [value for _, value in limits.words(folder / file)]

    labels = [int(label) - 1 for label in column("image_class_labels.txt")]
    pool = streamed(name, folder / "images", column("images.txt"), labels, column("classes.txt"))
    tested = torch.tensor([flag != "1" for flag in column("train_test_split.txt")])
    return Splits.divided(name, pool, tested, note)


def flowers(name: str, folder: Path, note: str) -> Splits:
    """VGG Flower 102: ``jpg/image_<number>.jpg``, labels in ``imagelabels.mat``; all its parts pooled."""
    from scipy.io import loadmat

    labels = (loadmat(str(folder / "imagelabels.mat"))["labels"].ravel().astype(np.int64) - 1).tolist()
    paths = [f"jpg/image_{k:05d}.jpg" for k in range(1, len(labels) + 1)]
    classes = [str(k + 1) for k in range(max(labels) + 1)]
    return Splits.held_out(name, streamed(name, folder, paths, labels, classes), note)


def traffic_signs(name: str, root: Path, note: str, *, by_track: bool) -> Splits:
    """The training frames of GTSRB, as published or as its copy ``gtsrb32``: 30 frames in a row show one sign.

    With ``by_track`` the frames of one sign stay on one side of the split.
    """
    published, copy = root / "gtsrb" / "GTSRB" / "Final_Training" / "Images", root / "gtsrb32" / "train.parquet"
    pool: ImageSet | StreamedImages
    if published.is_dir():
        pool = _listed("gtsrb", published)
        tracks = torch.tensor([int(Path(path).stem.split("_")[0]) for path in pool.paths])
        origin = "GTSRB, Final_Training"
    else:
        (images, _), (tracks,) = read_parquet([copy]), map(torch.tensor, columns(copy, "track"))
        pool = replace(images, factors={"track": tracks})
        origin = "GTSRB, training frames, 32 px JPEG copy"
    return Splits.held_out(name, pool, f"{origin}; {note}", tracks if by_track else None)
