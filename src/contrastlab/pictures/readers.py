"""Readers of sets of images: a user's own folder, and the layouts that published sets come in.

A published set is a row of ``published.toml``: which of these functions reads it, and the function's arguments. A
reader raises what Python raises on files that are missing or damaged; :func:`contrastlab.data.load` says it in words.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from contrastlab.pictures.sets import (
    AVIF,
    ImageSet,
    StreamedImages,
    chw,
    decode,
    opened,
    stack,
    threaded,
    why_unreadable,
)
from contrastlab.support.errors import MissingDataError, check
from contrastlab.support.paths import files_below, lines_of_words, matching, own_path

SUFFIXES = frozenset(
    {
        ".jpg",
        ".jpeg",
        ".jpe",
        ".jfif",
        ".jpg_large",
        ".png",
        ".bmp",
        ".gif",
        ".webp",
        ".tif",
        ".tiff",
        ".ppm",
        ".pgm",
        *AVIF,
    }
)
"""File name endings, in lower case, that count as images."""

_RESIDENT_BYTES = 2**30  # folders of equal-sized images up to this size are decoded once and kept


def streamed(
    name: str,
    folder: Path,
    paths: Iterable[str],
    labels: Iterable[int],
    classes: Iterable[str],
    boxes: Sequence[Sequence[int]] | None = None,
) -> StreamedImages:
    """Pictures in files, which are looked for at once; see :class:`contrastlab.pictures.sets.StreamedImages`."""
    numbers = torch.tensor(list(labels), dtype=torch.int64)
    box_rows = None
    if boxes is not None:
        box_rows = torch.tensor(boxes, dtype=torch.int64).reshape(-1, 4)
    pictures = StreamedImages(name, folder, tuple(paths), numbers, tuple(classes), boxes=box_rows)
    for path in dict.fromkeys(pictures.paths):
        file = folder / path
        if not file.exists():
            raise FileNotFoundError(2, "no such file", str(file))
    return pictures


def _listed(name: str, folder: Path, only: Iterable[str] | None = None) -> StreamedImages:
    """Images of the class subfolders (all, or ``only`` those), and loose ones, labelled −1."""
    return _images(name, layout.listed(folder, SUFFIXES, only))


def _images(name: str, files: layout.Listing) -> StreamedImages:
    labels = torch.tensor(files.labels, dtype=torch.int64)
    return StreamedImages(name, files.folder, files.paths, labels, files.classes)


def _decoded(part: StreamedImages) -> ImageSet:
    """The pictures in memory, as they are stored."""
    sources = [(path, "") for path in _paths_of(part)]
    return ImageSet(part.name, stack(sources), part.labels, part.classes)


def _paths_of(part: StreamedImages) -> list[Path]:
    return [part.path(index) for index in range(len(part))]


def _fits(paths: Sequence[Path]) -> bool:
    """Whether all images have one size and fit in memory together."""
    width, height = _size(paths[0])
    if len(paths) * 3 * width * height > _RESIDENT_BYTES:
        return False
    return all(_size(path) == (width, height) for path in paths)


def _size(path: Path) -> tuple[int, int]:
    """Width and height of a picture, from its header."""
    with opened(path) as image:
        return image.size


def _reasons(paths: Sequence[Path]) -> list[str]:
    """Of each picture, why it cannot be decoded; an empty text where it can."""
    return list(threaded(why_unreadable, paths))


def check_pictures(folder: Path) -> Iterator[tuple[str, str]]:
    """Each picture below a folder, and why it cannot be decoded; an empty text where it can."""
    paths = files_below(folder, SUFFIXES)
    yield from zip(map(str, paths), _reasons(paths), strict=True)


def load_folder(name: str, location: str, skip_unreadable: bool = False) -> Splits:
    """Splits of ``folder:<path>``, a user's own image files.

    The subfolders of ``<path>/train``, or else of ``<path>``, are the classes; images beside them are unlabelled. How
    parts may be called, and which is the test, says :func:`contrastlab.pictures.layout.read`. Without a test part
    that has labels, one image in five of each class is held out, always the same ones. Images of one size that fit in
    one GiB are decoded into memory; others are streamed as RGB: training crops whole pictures, evaluation sees the
    middle square with the shorter side at 256. With ``skip_unreadable`` every image is decoded once; those that cannot
    be are left out, and the note counts them.
    """
    path = _own_folder(name, location)
    reasons = _reasons if skip_unreadable else None
    parts = layout.read(name, path, SUFFIXES, "image", reasons)
    note = f"image files of {path.name}"
    if parts.note:
        note = f"{note}: {parts.note}"
    train = _images(name, parts.train)
    if parts.test is None:
        (train_pictures,) = _in_memory_if_small([train])
        return split_own(name, train_pictures, None, note)
    test = aligned(_images(name, parts.test), train.classes, f"{name}: {parts.test.folder}")
    train_pictures, test_pictures = _in_memory_if_small([train, test])
    return split_own(name, train_pictures, test_pictures, note)


def load_pictures(name: str, location: str, skip_unreadable: bool = False) -> Splits:
    """All pictures below the folder of ``unlabelled:<path>``, in the order of :func:`pictures_in`, without labels."""
    path = _own_folder(name, location)
    paths = pictures_in(path)
    skipped = ""
    if skip_unreadable:
        reasons = _reasons([path / each for each in paths])
        readable = tuple(each for each, reason in zip(paths, reasons, strict=True) if not reason)
        if len(readable) < len(paths):
            skipped = f"{len(paths) - len(readable)} unreadable image files skipped"
        paths = readable
    if not paths:
        raise MissingDataError(f"{name}: no image under {path} (looked for {' '.join(sorted(SUFFIXES))}).")
    without_labels = torch.full((len(paths),), -1)
    images = StreamedImages(name, path, paths, without_labels, ())
    (pictures,) = _in_memory_if_small([images])
    note = f"{len(paths)} image files of {path.name}, unlabelled"
    return UnlabelledSplits(name, pictures, layout.join_notes(note, skipped))


def pictures_in(folder: Path | str) -> tuple[str, ...]:
    """Names of all pictures below a folder, relative to it and sorted; see :data:`SUFFIXES`."""
    place = own_path("folder", folder)
    check(place.is_dir(), "folder", str(place), "a folder")
    names = [path.relative_to(place).as_posix() for path in files_below(place, SUFFIXES)]
    return tuple(sorted(names))


def _own_folder(name: str, location: str) -> Path:
    path = own_path(name, location).resolve()
    if not path.is_dir():
        raise MissingDataError(f"{name}: {path} is not a folder. Give the path of a folder of images.")
    return path


def _in_memory_if_small(parts: list[StreamedImages]) -> list[ImageSet] | list[StreamedImages]:
    """Parts of a set, decoded into memory where all their pictures have one size and fit."""
    paths: list[Path] = []
    for part in parts:
        paths += _paths_of(part)
    if _fits(paths):
        return [_decoded(part) for part in parts]
    return parts


def imagenet100_synsets() -> tuple[str, ...]:
    """The 100 synsets of ImageNet-100, ascending: Tian, Krishnan & Isola, Contrastive Multiview Coding, Table 6."""
    text = (files("contrastlab.pictures") / "imagenet100.txt").read_text()
    return tuple(text.split())


def imagenet(name: str, folder: Path, note: str, *, synsets: int) -> Splits:
    """``{train,val}/<synset>/*``, streamed: all 1,000 synsets, or the 100 of :func:`imagenet100_synsets`."""
    only = None
    if synsets == 100:
        only = imagenet100_synsets()
    parts = []
    for part, split in (("train", "train"), ("test", "val")):
        images = _listed(f"{name}/{part}", folder / split, only)
        if len(images.classes) != synsets:
            contents = f"{images.folder} has {len(images.classes)} of the {synsets} synset folders with pictures"
            raise MissingDataError(f"{name}: {contents}; another selection loads as 'folder:{folder}'.")
        parts.append(images)
    train, test = parts
    return Splits.of(name, train, test, note)


def tinyimagenet(name: str, folder: Path, note: str) -> Splits:
    """``tiny-imagenet-200`` as its authors pack it, decoded into memory: 200 synsets, 64×64, the grey ones as RGB."""
    train = _listed(f"{name}/train", folder / "train")
    synset_of = {}
    for image, synset, *_ in lines_of_words(folder / "val" / "val_annotations.txt"):
        synset_of[image] = synset
    images = folder / "val" / "images"
    paths = []
    synsets = []
    for path in files_below(images, SUFFIXES):
        if path.name in synset_of:
            paths.append(path.relative_to(images).as_posix())
            synsets.append(synset_of[path.name])
    strange = sorted(set(synsets) - set(train.classes))
    if strange:
        raise MissingDataError(f"{name}: {folder / 'train'} lacks the synset {strange[0]} of val_annotations.txt.")
    labels = [train.classes.index(synset) for synset in synsets]
    test = streamed(f"{name}/test", images, paths, labels, train.classes)
    return Splits.of(name, _decoded(train).coloured(), _decoded(test).coloured(), note)


def unlabelled(name: str, folder: Path, note: str) -> Splits:
    """A folder of pictures without labels, streamed."""
    return UnlabelledSplits(name, _listed(f"{name}/train", folder), note)


TORCHVISION: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        "cifar10": ("CIFAR-10", "CIFAR10", "cifar-10-batches-py"),
        "cifar100": ("CIFAR-100", "CIFAR100", "cifar-100-python"),
        "fashionmnist": ("Fashion-MNIST", "FashionMNIST", "FashionMNIST/raw"),
        "mnist": ("MNIST", "MNIST", "MNIST/raw"),
        "stl10": ("STL-10", "STL10", "stl10_binary"),
    }
)
"""Name to title, class of torchvision, and that class's folder below the data root."""


def load_published(name: str, root: Path, download: bool) -> Splits:
    """Splits of one of :data:`TORCHVISION`, from ``<root>/<name>/*.parquet`` or else through torchvision."""
    by_split: dict[str, list[Path]] = {}
    if (root / name).is_dir():
        by_split = parquet_files(root / name)
    if "train" not in by_split or "test" not in by_split:
        return _load_torchvision(name, root, download)
    training_part = read_parquet(by_split["train"])
    train = training_part.images
    test = read_parquet(by_split["test"]).images
    if "unlabel" in by_split:
        unlabelled = read_parquet(by_split["unlabel"]).images
        train = _with_unlabelled(train, unlabelled)
    title = TORCHVISION[name][0]
    note = f"{title}, parquet"
    if training_part.form == "JPEG":
        # the originals are stored without loss, so JPEG is a second, lossy coding that results must mention
        note = f"{note}, JPEG-compressed once more"
    return Splits.of(name, train, replace(test, classes=train.classes), note)


def _with_unlabelled(train: ImageSet, more: ImageSet) -> ImageSet:
    """A training set, and behind it the pictures of another one without their labels."""
    without_labels = torch.full((len(more),), -1)
    return replace(
        train,
        items=torch.cat([train.images, more.images]),
        labels=torch.cat([train.labels, without_labels]),
    )


def _load_torchvision(name: str, root: Path, download: bool) -> Splits:
    import torchvision.datasets

    title, kind, subfolder = TORCHVISION[name]
    dataset = getattr(torchvision.datasets, kind)
    train_split: str | bool = True  # the second argument of most classes is whether to train
    test_split: str | bool = False
    if name == "stl10":
        train_split = "train+unlabeled"
        test_split = "test"
    try:
        train = dataset(root, train_split, download=download)
        test = dataset(root, test_split, download=download)
    except (RuntimeError, OSError) as error:
        parquet = f"{root / name}/*train*.parquet (with *test*.parquet)"
        reason = f"{title} is neither at {parquet} nor at {root / subfolder}"
        if download:
            reason = f"{reason}, and the download failed: {error}"
        raise MissingDataError(f"{reason}.") from error
    classes = tuple(train.classes)
    train_images = ImageSet(name, *_tensors(train), classes)
    test_images = ImageSet(name, *_tensors(test), classes)
    return Splits.of(name, train_images, test_images, f"{title}, the distributed files read by torchvision")


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

    digits = bundled()
    grey = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    pixels = torch.from_numpy(grey)[:, None].contiguous()
    labels = torch.from_numpy(digits.target.astype(np.int64))
    classes = tuple(str(name) for name in digits.target_names)
    note = "UCI optical digits, 8x8, as bundled with scikit-learn; stratified 80/20 split"
    return Splits.held_out("digits", ImageSet("digits", pixels, labels, classes), note)


def mnist_t10k(name: str, folder: Path, note: str) -> Splits:
    """The test digits of MNIST, from the two files that its author distributes."""
    image_bytes = limits.gunzipped(folder / "t10k-images-idx3-ubyte.gz")[16:]
    label_bytes = limits.gunzipped(folder / "t10k-labels-idx1-ubyte.gz")[8:]
    images = torch.frombuffer(bytearray(image_bytes), dtype=torch.uint8).reshape(-1, 1, 28, 28)
    labels = torch.tensor(list(label_bytes))
    return Splits.held_out(name, ImageSet(name, images, labels, tuple("0123456789")), note)


def omniglot(name: str, folder: Path, note: str) -> Splits:
    """Omniglot's zip archives; drawers 1 to 16 train, the others test."""
    drawings = _omniglot_drawings(folder)
    pixels = []
    characters = []
    drawers = []
    for alphabet, character, drawer in sorted(drawings):
        png = drawings[alphabet, character, drawer]
        pixels.append(chw(decode(png), 1))
        characters.append(f"{alphabet}/{character}")
        drawers.append(drawer)
    classes, labels = np.unique(characters, return_inverse=True)
    drawer_numbers = torch.tensor(drawers)
    pool = ImageSet(
        name,
        torch.from_numpy(np.stack(pixels)),
        torch.from_numpy(labels),
        tuple(classes.tolist()),
        {"drawer": drawer_numbers},
    )
    return Splits.divided(name, pool, drawer_numbers > 16, note)


def _omniglot_drawings(folder: Path) -> dict[tuple[str, str, int], bytes]:
    """Alphabet, character and number of the drawer to a PNG file; the same alphabet may be in several archives."""
    drawings = {}
    for archive in matching(folder, "*.zip"):
        with zipfile.ZipFile(archive) as packed:
            for file in packed.namelist():
                parts = file.split("/")
                if file.endswith(".png") and len(parts) == 4:
                    _, alphabet, character, _ = parts
                    drawer = int(Path(file).stem.split("_")[1])
                    drawings[alphabet, character, drawer] = limits.unpacked(packed, file)
    return drawings


def torchvision_files(
    name: str,
    folder: Path,
    note: str,
    *,
    kind: str,
    up: int,
    train: Sequence[str],
    test: Sequence[str],
    boxes: str = "",
) -> Splits:
    """The image files of some splits of a class of torchvision, whose root lies ``up`` folders above ``folder``.

    ``boxes`` is a file below ``folder`` of lines ``<image> <left> <top> <right> <bottom>``, from 1, both ends inside.
    """
    import torchvision.datasets

    dataset = getattr(torchvision.datasets, kind)
    root = folder.parents[up - 1]
    box_of = None
    if boxes:
        box_of = _boxes_by_image(folder / boxes)

    def read(part: str, splits: Sequence[str]) -> StreamedImages:
        paths: list[str] = []
        labels: list[int] = []
        classes: Sequence[str] = ()
        for split in splits:
            source = dataset(root, split)
            paths += [Path(file).relative_to(folder).as_posix() for file in source._image_files]
            labels += source._labels
            classes = source.classes
        rows = None
        if box_of is not None:
            rows = [box_of[Path(path).stem] for path in paths]
        return streamed(f"{name}/{part}", folder, paths, labels, classes, rows)

    return Splits.of(name, read("train", train), read("test", test), note)


def _boxes_by_image(path: Path) -> dict[str, tuple[int, int, int, int]]:
    """Name of an image to (top, left, height, width), see :func:`torchvision_files`."""
    boxes = {}
    for image, *corners in lines_of_words(path):
        left, top, right, bottom = map(int, corners)
        boxes[image] = (top - 1, left - 1, bottom - top + 1, right - left + 1)
    return boxes


def birds(name: str, folder: Path, note: str) -> Splits:
    """Caltech-UCSD Birds, by the lists of its authors: ``<number> <value>`` a line."""

    def column(file: str) -> list[str]:
        return [value for _, value in lines_of_words(folder / file)]

    paths = column("images.txt")
    labels = [int(label) - 1 for label in column("image_class_labels.txt")]
    classes = column("classes.txt")
    is_test = torch.tensor([flag != "1" for flag in column("train_test_split.txt")])
    pool = streamed(name, folder / "images", paths, labels, classes)
    return Splits.divided(name, pool, is_test, note)


def flowers(name: str, folder: Path, note: str) -> Splits:
    """VGG Flower 102: ``jpg/image_<number>.jpg``, labels in ``imagelabels.mat``; all its parts pooled."""
    from scipy.io import loadmat

    from_one = loadmat(str(folder / "imagelabels.mat"))["labels"].ravel().astype(np.int64)
    labels = (from_one - 1).tolist()
    paths = [f"jpg/image_{number:05d}.jpg" for number in range(1, len(labels) + 1)]
    classes = [str(label + 1) for label in range(max(labels) + 1)]
    return Splits.held_out(name, streamed(name, folder, paths, labels, classes), note)


def traffic_signs(name: str, root: Path, note: str, *, by_track: bool) -> Splits:
    """The training frames of GTSRB, as published or as its copy ``gtsrb32``: 30 frames in a row show one sign.

    With ``by_track`` the frames of one sign stay on one side of the split.
    """
    published = root / "gtsrb" / "GTSRB" / "Final_Training" / "Images"
    copy = root / "gtsrb32" / "train.parquet"
    pool: ImageSet | StreamedImages
    if published.is_dir():
        pool = _listed("gtsrb", published)
        tracks = torch.tensor([_track(path) for path in pool.paths])
        origin = "GTSRB, Final_Training"
    else:
        images = read_parquet([copy]).images
        (track_column,) = columns(copy, "track")
        tracks = torch.tensor(track_column)
        pool = replace(images, factors={"track": tracks})
        origin = "GTSRB, training frames, 32 px JPEG copy"
    groups = tracks if by_track else None
    return Splits.held_out(name, pool, f"{origin}; {note}", groups)


def _track(path: str) -> int:
    """Number of the track in the name of a frame, ``<track>_<frame>``."""
    return int(Path(path).stem.split("_")[0])
