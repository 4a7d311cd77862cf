"""Published sets, as parquet or torchvision's downloads; folders of image files; scikit-learn's digits."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from contrastlab.data.folders import files_below
from contrastlab.data.images.pictures import decode, opened
from contrastlab.data.images.sets import ImageSet, Splits, StreamedImages
from contrastlab.data.images.tables import _align, _assemble, _renamed, _stack, parquet_files, read_parquet, threaded
from contrastlab.data.limits import check_inside, own_path
from contrastlab.errors import MissingDataError

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})
"""File name endings, in lower case, that count as images."""

_RESIDENT_BYTES = 2**30  # folders of equal-sized images up to this size are decoded once and kept


# The published sets -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Published:
    """A set that lies under the data root as parquet or in torchvision's layout."""

    title: str
    torchvision: str
    folder: str


PUBLISHED = {
    "cifar10": Published("CIFAR-10", "CIFAR10", "cifar-10-batches-py"),
    "cifar100": Published("CIFAR-100", "CIFAR100", "cifar-100-python"),
    "fashionmnist": Published("Fashion-MNIST", "FashionMNIST", "FashionMNIST/raw"),
    "mnist": Published("MNIST", "MNIST", "MNIST/raw"),
    "stl10": Published("STL-10", "STL10", "stl10_binary"),
}


def load_published(name: str, root: Path, download: bool) -> Splits:
    """Splits of one of :data:`PUBLISHED`, from ``<root>/<name>/*.parquet`` or else through torchvision.

    Raises:
        MissingDataError: it is in neither place, and may not or cannot be downloaded.
    """
    entry = PUBLISHED[name]
    found = parquet_files(root / name) if (root / name).is_dir() else {}
    if "train" not in found or "test" not in found:
        return _load_torchvision(name, entry, root, download)
    train_table, test_table = read_parquet(found["train"]), read_parquet(found["test"])
    classes = train_table.classes
    train = ImageSet(f"{name}/train", train_table.images, train_table.labels, classes)
    test = ImageSet(f"{name}/test", test_table.images, test_table.labels, classes)
    # The originals are stored without loss, so JPEG here is a second, lossy coding that results must mention.
    lossy = ", JPEG-compressed once more" if train_table.encoding == "JPEG" else ""
    pretrain = train
    if "unlabel" in found:
        pixels = read_parquet(found["unlabel"]).images
        pretrain = _with_unlabelled(name, train, pixels)
    return Splits(name, pretrain, train, test, f"{entry.title}, parquet{lossy}")


def _with_unlabelled(name: str, train: ImageSet, pixels: Tensor) -> ImageSet:
    labels = torch.cat([train.labels, torch.full((len(pixels),), -1)])
    return ImageSet(f"{name}/train+unlabelled", torch.cat([train.images, pixels]), labels, train.classes)


def _load_torchvision(name: str, entry: Published, root: Path, download: bool) -> Splits:
    import torchvision.datasets

    factory = getattr(torchvision.datasets, entry.torchvision)
    stl = name == "stl10"

    def read(fetch: bool) -> tuple[Any, Any]:
        if stl:
            return factory(root, "train+unlabeled", download=fetch), factory(root, "test", download=fetch)
        return factory(root, train=True, download=fetch), factory(root, train=False, download=fetch)

    looked = (
        f"{entry.title} is neither at {root / name}/*train*.parquet (with *test*.parquet) nor at {root / entry.folder}"
    )
    try:
        first, second = read(fetch=False)
    except (RuntimeError, OSError) as absent:
        if not download:
            raise MissingDataError(
                f"{looked}. Set CONTRASTLAB_DATA (or root=) to the folder that has it; or let it be downloaded:"
                f" contrastlab run downloads it, and so does contrastlab.data.load({name!r}, download=True)."
            ) from absent
        folder = root / entry.folder
        absent_before = [path for path in (folder, *folder.parents) if not path.exists()]
        try:
            first, second = read(fetch=True)
        except (RuntimeError, OSError) as error:
            for path in absent_before:  # the deepest first; only what the failed download made and left empty
                with suppress(OSError):
                    path.rmdir()
            raise MissingDataError(
                f"{looked}, and the download failed: {error}. "
                "Put it there by hand, or set CONTRASTLAB_DATA (or root=) to the folder that has it."
            ) from error
    classes = tuple(first.classes)
    (train_pixels, train_labels), (test_pixels, test_labels) = (_tensors(part) for part in (first, second))
    whole = ImageSet(f"{name}/train", train_pixels, train_labels, classes)
    test = ImageSet(f"{name}/test", test_pixels, test_labels, classes)
    note = f"{entry.title}, the distributed files read by torchvision"
    known = train_labels >= 0
    if bool(known.all()):
        return Splits(name, whole, whole, test, note)
    train = whole.subset(known.nonzero().flatten())
    return Splits(name, _renamed(whole, f"{name}/train+unlabelled"), train, test, note)


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
    classes = tuple(str(name) for name in data.target_names)
    pool = ImageSet("digits/train", pixels, torch.from_numpy(data.target.astype(np.int64)), classes)
    return _assemble("digits", pool, None, "UCI optical digits, 8x8, as bundled with scikit-learn")


# Folders ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Listing:
    folder: Path
    paths: tuple[str, ...]
    labels: Tensor
    classes: tuple[str, ...]


def _subfolders(folder: Path) -> list[str]:
    return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))


def scan(folder: Path, only: Iterable[str] | None = None) -> _Listing:
    """Images of the class subfolders (all, or ``only`` those), and loose ones, labelled −1."""
    paths: list[str] = []
    labels: list[int] = []
    classes: list[str] = []
    for name in _subfolders(folder) if only is None else sorted(only):
        inside = [path.relative_to(folder).as_posix() for path in files_below(folder / name, SUFFIXES)]
        if inside:
            labels += [len(classes)] * len(inside)
            classes.append(name)
            paths += inside
    if only is None:
        loose = sorted(e.name for e in os.scandir(folder) if e.is_file() and not e.name.startswith("."))
        loose = [name for name in loose if os.path.splitext(name)[1].lower() in SUFFIXES]
        paths += loose
        labels += [-1] * len(loose)
    return _Listing(folder, tuple(paths), torch.tensor(labels, dtype=torch.int64), tuple(classes))


def _size(path: Path) -> tuple[int, int]:
    with opened(path) as image:
        return image.size


def _fits(paths: list[Path]) -> bool:
    """Whether all images have one size and fit in memory together."""
    width, height = _size(paths[0])
    if len(paths) * 3 * width * height > _RESIDENT_BYTES:
        return False
    return all(_size(path) == (width, height) for path in paths)


def load_folder(name: str, location: str) -> Splits:
    """Splits of ``folder:<path>``, a user's own image files.

    The subfolders of ``<path>/train`` and ``<path>/test`` (or ``val``, ``valid``, ``validation``) are the classes;
    without a test folder, one image in five of each class is held out, always the same ones. Without ``train``
    the subfolders of ``<path>`` itself are the classes. Images beside the class folders are unlabelled and are seen in
    pre-training only; if there is no class folder at all, asking the result for ``train`` or ``test`` is refused.

    Images of one size that fit in one GiB are decoded into memory as they are; others are streamed as RGB: training
    crops whole pictures, evaluation sees the middle square with the shorter side at 256.

    Raises:
        MissingDataError: the folder does not exist or has no images.
        ArgumentError: the test folder has a class that the training folder lacks, or a name is not UTF-8.
        TooLargeError: a picture has too many pixels, see :mod:`contrastlab.data.limits`.
        CorruptFileError: a file cannot be decoded.
        StorageError: a file or folder that may not be read.
    """
    path = own_path(name, location).resolve()
    if not path.is_dir():
        raise MissingDataError(f"{name}: {path} is not a folder. Give the path of a folder of images.")
    held = next((path / s for s in ("test", "val", "valid", "validation") if (path / s).is_dir()), None)
    if not (path / "train").is_dir():
        if held is not None:
            raise MissingDataError(f"{name}: {held} exists, but {path / 'train'} does not.")
        listings = [scan(path)]
    else:
        listings = [scan(path / "train")] + ([scan(held)] if held else [])
    for listing in listings:
        if not listing.paths:
            endings = " ".join(sorted(SUFFIXES))
            raise MissingDataError(f"{name}: no image under {listing.folder} (looked for {endings}).")
        check_inside(name, listing.paths)
    classes = listings[0].classes
    resident = _fits([listing.folder / p for listing in listings for p in listing.paths])
    parts: list[ImageSet | StreamedImages] = []
    for listing, split in zip(listings, ("train", "test"), strict=False):
        labels = (
            _align(listing.labels, listing.classes, classes, f"{name}: {listing.folder}") if classes else listing.labels
        )
        if resident:
            whole = [listing.folder / p for p in listing.paths]
            parts.append(ImageSet(f"{name}/{split}", _stack(threaded(decode, whole), len(whole)), labels, classes))
        else:
            parts.append(StreamedImages(f"{name}/{split}", listing.folder, listing.paths, labels, classes))
    return _assemble(name, parts[0], parts[1] if len(parts) > 1 else None, f"image files of {path.name}")


def imagenet100_synsets() -> tuple[str, ...]:
    """The 100 synsets of ImageNet-100, ascending: Tian, Krishnan & Isola, Contrastive Multiview Coding, Table 6."""
    return tuple((files("contrastlab.data.images") / "imagenet100.txt").read_text().split())


def load_imagenet(name: str, root: Path) -> Splits:
    """Splits of ``imagenet`` or ``imagenet100`` from ``<root>/imagenet/{train,val}/<synset>/*``, streamed.

    Raises:
        MissingDataError: the folders are not there, or some of the synsets are not.
    """
    base = root / "imagenet"
    hint = (
        "ImageNet asks for an account, so it cannot be downloaded here: unpack ILSVRC 2012 so that "
        "<root>/imagenet/train/<synset>/*.JPEG and <root>/imagenet/val/<synset>/*.JPEG exist, and set "
        "CONTRASTLAB_DATA (or root=) to <root>"
    )
    only = imagenet100_synsets() if name == "imagenet100" else None
    parts = []
    for split in ("train", "val"):
        folder = base / split
        if not folder.is_dir():
            raise MissingDataError(f"{name}: {folder} does not exist. {hint}.")
        present = _subfolders(folder)
        count, wanted = (len(set(only) & set(present)), 100) if only else (len(present), 1000)
        if count != wanted:
            raise MissingDataError(
                f"{name}: {folder} has {count} of the {wanted} synset folders. "
                f"{hint}; another selection loads as 'folder:{base}'."
            )
        listing = scan(folder, only or present)
        if len(listing.classes) != wanted:
            raise MissingDataError(f"{name}: some synset folders of {folder} are empty. {hint}.")
        label = "train" if split == "train" else "test"
        parts.append(StreamedImages(f"{name}/{label}", folder, listing.paths, listing.labels, listing.classes))
    note = f"ILSVRC 2012{' (the 100 synsets of CMC)' if only else ''}, training crops of whole pictures; test is val"
    return Splits(name, parts[0], parts[0], parts[1], note)


def load_tinyimagenet(root: Path) -> Splits:
    """Splits of ``tinyimagenet`` from ``<root>/tiny-imagenet-200`` as its authors pack it, decoded into memory.

    100,000 training images of 200 synsets, 64×64; ``test`` is the validation part, since the labels of the test part
    are not public.

    Raises:
        MissingDataError: the folder or one of its parts is not there.
        CorruptFileError: a file cannot be decoded.
    """
    base = root / "tiny-imagenet-200"
    hint = "unpack tiny-imagenet-200.zip there, or set CONTRASTLAB_DATA (or root=) to the folder that holds it"
    for part in ("train", "val/images", "val/val_annotations.txt"):
        if not (base / part).exists():
            raise MissingDataError(f"tinyimagenet: {base / part} does not exist; {hint}.")
    listing = scan(base / "train")
    lines = (base / "val" / "val_annotations.txt").read_text(encoding="utf-8").splitlines()
    named = dict(line.split("\t")[:2] for line in lines if "\t" in line)
    held = [path for path in files_below(base / "val" / "images", SUFFIXES) if path.name in named]
    if not listing.paths or not held:
        raise MissingDataError(f"tinyimagenet: no labelled image under {base}; {hint}.")
    strange = sorted({named[path.name] for path in held} - set(listing.classes))
    if strange:
        raise MissingDataError(f"tinyimagenet: {base / 'train'} lacks the synset {strange[0]} of val_annotations.txt.")
    number = {synset: k for k, synset in enumerate(listing.classes)}
    parts = [
        ("train", [listing.folder / p for p in listing.paths], listing.labels),
        ("test", held, torch.tensor([number[named[path.name]] for path in held])),
    ]
    train, test = (
        ImageSet(f"tinyimagenet/{split}", _coloured(paths), labels, listing.classes) for split, paths, labels in parts
    )
    return Splits("tinyimagenet", train, train, test, "TinyImageNet, 64×64 JPEG; test is its validation part")


def _coloured(paths: list[Path]) -> Tensor:
    # some of its files are grey; all become RGB
    pixels = _stack(threaded(decode, paths), len(paths))
    return pixels.expand(-1, 3, -1, -1).contiguous() if pixels.shape[1] == 1 else pixels
