"""Readers of sets of images: a user's own folder, and the layouts that published sets come in.

A published set is a row of ``published.toml``: which of these functions reads it, and the function's arguments. A
reader raises what Python raises on files that are missing or damaged; :func:`contrastlab.data.load` says it in words.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from contrastlab.data import coco, limits
from contrastlab.data.items import Splits, UnlabelledSplits, hold_out, hold_out_groups
from contrastlab.data.parquet import align, assemble, parquet_files, read_parquet, renamed, whole_numbers
from contrastlab.data.pictures import ImageSet, StreamedImages, chw, decode, opened, stack, threaded
from contrastlab.errors import MissingDataError

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})
"""File name endings, in lower case, that count as images."""

_RESIDENT_BYTES = 2**30  # folders of equal-sized images up to this size are decoded once and kept


def _streamed(
    name: str, folder: Path, paths: Sequence[str], labels: Sequence[int], classes: Sequence[str],
    boxes: Sequence[Sequence[int]] | None = None,
) -> StreamedImages:  # fmt: skip
    marked = None if boxes is None else torch.tensor(boxes, dtype=torch.int64).reshape(-1, 4)
    numbers = torch.tensor(labels, dtype=torch.int64)
    made = StreamedImages(name, folder, tuple(paths), numbers, tuple(classes), boxes=marked)
    for path in dict.fromkeys(paths):
        if not (folder / path).exists():
            raise FileNotFoundError(2, "no such file", str(folder / path))
    return made


def _halves(name: str, pool: ImageSet | StreamedImages, rows: Sequence[Tensor], note: str) -> Splits:
    train, test = (renamed(pool.subset(r), f"{name}/{split}") for r, split in zip(rows, ("train", "test"), strict=True))
    return Splits.of(name, train, test, note)


def _held_out(name: str, pool: ImageSet | StreamedImages, note: str) -> Splits:
    return _halves(name, pool, hold_out(pool.labels, name=name, classes=pool.classes), note)


# Folders ------------------------------------------------------------------------------------------------------------


def _subfolders(folder: Path) -> list[str]:
    return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))


def _listed(name: str, folder: Path, only: Iterable[str] | None = None) -> StreamedImages:
    """Images of the class subfolders (all, or ``only`` those), and loose ones, labelled −1."""
    paths: list[str] = []
    labels: list[int] = []
    classes: list[str] = []
    for subfolder in _subfolders(folder) if only is None else sorted(only):
        inside = [path.relative_to(folder).as_posix() for path in limits.files_below(folder / subfolder, SUFFIXES)]
        if inside:
            labels += [len(classes)] * len(inside)
            classes.append(subfolder)
            paths += inside
    if only is None:
        loose = sorted(e.name for e in os.scandir(folder) if e.is_file() and not e.name.startswith("."))
        loose = [file for file in loose if os.path.splitext(file)[1].lower() in SUFFIXES]
        paths += loose
        labels += [-1] * len(loose)
    limits.check_inside(name, paths)
    return StreamedImages(name, folder, tuple(paths), torch.tensor(labels, dtype=torch.int64), tuple(classes))


def _decoded(part: StreamedImages) -> ImageSet:
    """The pictures in memory, as they are stored; see :func:`contrastlab.data.pictures.stack`."""
    paths = [part.path(k) for k in range(len(part))]
    return ImageSet(part.name, stack(threaded(decode, paths)), part.labels, part.classes)


def _fits(paths: Sequence[Path]) -> bool:
    """Whether all images have one size and fit in memory together."""

    def size(path: Path) -> tuple[int, int]:
        with opened(path) as image:
            return image.size

    width, height = size(paths[0])
    return len(paths) * 3 * width * height <= _RESIDENT_BYTES and all(size(path) == (width, height) for path in paths)


def load_folder(name: str, location: str) -> Splits:
    """Splits of ``folder:<path>``, a user's own image files.

    The subfolders of ``<path>/train`` and ``<path>/test`` (or ``val``, ``valid``, ``validation``) are the classes;
    without a test folder, one image in five of each class is held out, always the same ones. Without ``train``
    the subfolders of ``<path>`` itself are the classes. Images beside the class folders are unlabelled and are seen in
    pre-training only; if there is no class folder at all, asking the result for ``train`` or ``test`` is refused.

    Images of one size that fit in one GiB are decoded into memory as they are; others are streamed as RGB: training
    crops whole pictures, evaluation sees the middle square with the shorter side at 256.
    """
    path = limits.own_path(name, location).resolve()
    if not path.is_dir():
        raise MissingDataError(f"{name}: {path} is not a folder. Give the path of a folder of images.")
    held = next((path / s for s in ("test", "val", "valid", "validation") if (path / s).is_dir()), None)
    if (path / "train").is_dir():
        folders = [path / "train", *([held] if held else [])]
    elif held is None:
        folders = [path]
    else:
        raise MissingDataError(f"{name}: {held} exists, but {path / 'train'} does not.")
    parts: list[Any] = [_listed(f"{name}/{s}", folder) for s, folder in zip(("train", "test"), folders, strict=False)]
    for part in parts:
        if not part.paths:
            endings = " ".join(sorted(SUFFIXES))
            raise MissingDataError(f"{name}: no image under {part.folder} (looked for {endings}).")
    resident = _fits([part.path(k) for part in parts for k in range(len(part))])
    if len(parts) > 1:
        test, classes = parts[1], parts[0].classes
        labels = align(test.labels, test.classes, classes, f"{name}: {test.folder}")
        parts[1] = replace(test, labels=labels, classes=classes)
    if resident:
        parts = [_decoded(part) for part in parts]
    return assemble(name, parts[0], parts[1] if len(parts) > 1 else None, f"image files of {path.name}")


def imagenet100_synsets() -> tuple[str, ...]:
    """The 100 synsets of ImageNet-100, ascending: Tian, Krishnan & Isola, Contrastive Multiview Coding, Table 6."""
    return tuple((files("contrastlab.data") / "imagenet100.txt").read_text().split())


def imagenet(name: str, folder: Path, note: str, *, synsets: int) -> Splits:
    """``{train,val}/<synset>/*``, streamed: all 1,000 synsets, or the 100 of :func:`imagenet100_synsets`."""
    only = imagenet100_synsets() if synsets == 100 else None
    parts = []
    for split in ("train", "val"):
        present = _subfolders(folder / split)
        part = f"{name}/{'train' if split == 'train' else 'test'}"
        listed = _listed(part, folder / split, set(only) & set(present) if only else present)
        if len(listed.classes) != synsets:
            raise MissingDataError(
                f"{name}: {folder / split} has {len(listed.classes)} of the {synsets} synset folders with pictures;"
                f" another selection loads as 'folder:{folder}'."
            )
        parts.append(listed)
    return Splits.of(name, parts[0], parts[1], note)


def tinyimagenet(name: str, folder: Path, note: str) -> Splits:
    """``tiny-imagenet-200`` as its authors pack it, decoded into memory: 200 synsets, 64×64, the grey ones as RGB."""
    train, images = _listed(f"{name}/train", folder / "train"), folder / "val" / "images"
    lines = (folder / "val" / "val_annotations.txt").read_text(encoding="utf-8").splitlines()
    synset_of = dict(line.split("\t")[:2] for line in lines if "\t" in line)
    held = [path for path in limits.files_below(images, SUFFIXES) if path.name in synset_of]
    if not train.paths or not held:
        raise MissingDataError(f"{name}: no labelled image under {folder}.")
    strange = sorted({synset_of[path.name] for path in held} - set(train.classes))
    if strange:
        raise MissingDataError(f"{name}: {folder / 'train'} lacks the synset {strange[0]} of val_annotations.txt.")
    labels = [train.classes.index(synset_of[path.name]) for path in held]
    test = _streamed(f"{name}/test", images, [str(path.relative_to(images)) for path in held], labels, train.classes)
    return Splits.of(name, _decoded(train).coloured(), _decoded(test).coloured(), note)


def unlabelled(name: str, folder: Path, note: str) -> Splits:
    """A folder of pictures without labels, streamed."""
    pictures = _listed(f"{name}/train", folder)
    if not pictures.paths:
        raise MissingDataError(f"{name}: {folder} holds no picture.")
    return UnlabelledSplits(name, pictures, note)


# Sets in memory -----------------------------------------------------------------------------------------------------


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
    table, test_table = read_parquet(by_split["train"]), read_parquet(by_split["test"])
    # The originals are stored without loss, so JPEG here is a second, lossy coding that results must mention.
    lossy = ", JPEG-compressed once more" if table.encoding == "JPEG" else ""
    train = pretrain = ImageSet(f"{name}/train", table.images, table.labels, table.classes)
    test = ImageSet(f"{name}/test", test_table.images, test_table.labels, table.classes)
    if "unlabel" in by_split:
        more = read_parquet(by_split["unlabel"]).images
        pixels, labels = torch.cat([train.items, more]), torch.cat([train.labels, torch.full((len(more),), -1)])
        pretrain = ImageSet(f"{name}/train+unlabelled", pixels, labels, train.classes)
    return Splits(name, pretrain, train, test, f"{TORCHVISION[name][0]}, parquet{lossy}")


def _load_torchvision(name: str, root: Path, download: bool) -> Splits:
    import torchvision.datasets

    title, kind, layout = TORCHVISION[name]
    factory, folder = getattr(torchvision.datasets, kind), root / layout
    splits = [{"split": part} for part in ("train+unlabeled", "test")] if name == "stl10" else [
        {"train": part} for part in (True, False)
    ]  # fmt: skip
    looked = f"{title} is neither at {root / name}/*train*.parquet (with *test*.parquet) nor at {folder}"
    try:
        read = [factory(root, **split) for split in splits]
    except (RuntimeError, OSError) as absent:
        if not download:
            raise MissingDataError(
                f"{looked}. Set CONTRASTLAB_DATA (or root=) to the folder that has it; or let it be downloaded:"
                f" contrastlab run downloads it, and so does contrastlab.data.load({name!r}, download=True)."
            ) from absent
        absent_before = [path for path in (folder, *folder.parents) if not path.exists()]
        try:
            read = [factory(root, **split, download=True) for split in splits]
        except (RuntimeError, OSError) as error:
            for path in absent_before:  # the deepest first; only what the failed download made and left empty
                with suppress(OSError):
                    path.rmdir()
            raise MissingDataError(
                f"{looked}, and the download failed: {error}. "
                "Put it there by hand, or set CONTRASTLAB_DATA (or root=) to the folder that has it."
            ) from error
    classes = tuple(read[0].classes)
    whole, test = (
        ImageSet(f"{name}/{s}", *_tensors(part), classes) for s, part in zip(("train", "test"), read, strict=True)
    )
    note = f"{title}, the distributed files read by torchvision"
    known = whole.labels >= 0
    if bool(known.all()):
        return Splits.of(name, whole, test, note)
    train = whole.subset(known.nonzero().flatten())
    return Splits(name, renamed(whole, f"{name}/train+unlabelled"), train, test, note)


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
    return assemble("digits", pool, None, "UCI optical digits, 8x8, as bundled with scikit-learn")


def mnist_t10k(name: str, folder: Path, note: str) -> Splits:
    """The test digits of MNIST, from the two files that its author distributes."""
    pixels, labels = (
        np.frombuffer(limits.gunzipped(folder / f"t10k-{kind}-ubyte.gz"), np.uint8, offset=offset)
        for kind, offset in (("images-idx3", 16), ("labels-idx1", 8))
    )
    images = torch.from_numpy(pixels.copy()).reshape(-1, 1, 28, 28)
    return _held_out(
        name, ImageSet(name, images, torch.from_numpy(labels.astype(np.int64)), tuple(map(str, range(10)))), note
    )


def omniglot(name: str, folder: Path, note: str) -> Splits:
    """Omniglot's zip archives; drawers 1 to 16 train, the others test."""
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
    kinds = [f"{alphabet}/{character}" for alphabet, character, _ in keys]
    classes = tuple(dict.fromkeys(kinds))
    number = {kind: k for k, kind in enumerate(classes)}
    pixels = torch.from_numpy(np.stack([chw(decode(drawings[key]), 1) for key in keys]))
    drawer = torch.tensor([drawer for *_, drawer in keys])
    pool = ImageSet(name, pixels, torch.tensor([number[kind] for kind in kinds]), classes, {"drawer": drawer})
    return _halves(name, pool, [part.nonzero().flatten() for part in (drawer <= 16, drawer > 16)], note)


# Streamed sets with lists of their own ------------------------------------------------------------------------------


def torchvision_files(
    name: str, folder: Path, note: str, *, kind: str, up: int, train: Sequence[str], test: Sequence[str],
    boxes: str = "",
) -> Splits:  # fmt: skip
    """The image files of some splits of a class of torchvision, whose root lies ``up`` folders above ``folder``.

    ``boxes`` is a file below ``folder`` of lines ``<image> <left> <top> <right> <bottom>``, from 1, both ends inside.
    """
    import torchvision.datasets

    corners = {}
    for line in (folder / boxes).read_text(encoding="utf-8").splitlines() if boxes else ():
        image, left, top, right, bottom = line.split()
        corners[image] = (int(top) - 1, int(left) - 1, int(bottom) - int(top) + 1, int(right) - int(left) + 1)
    parts = []
    for part, splits in (("train", train), ("test", test)):
        sources = [getattr(torchvision.datasets, kind)(folder.parents[up - 1], split) for split in splits]
        paths = [Path(file).relative_to(folder).as_posix() for source in sources for file in source._image_files]
        labels = [label for source in sources for label in source._labels]
        marked = [corners[Path(path).stem] for path in paths] if boxes else None
        parts.append(_streamed(f"{name}/{part}", folder, paths, labels, sources[-1].classes, marked))
    return Splits.of(name, parts[0], parts[1], note)


def birds(name: str, folder: Path, note: str) -> Splits:
    """Caltech-UCSD Birds, by the lists of its authors: ``<number> <value>`` a line."""

    def column(file: str) -> list[str]:
        lines = (folder / file).read_text(encoding="utf-8").splitlines()
        return [line.split(maxsplit=1)[1] for line in lines if line.strip()]

    labels = [int(label) - 1 for label in column("image_class_labels.txt")]
    pool = _streamed(name, folder / "images", column("images.txt"), labels, column("classes.txt"))
    training = torch.tensor([flag == "1" for flag in column("train_test_split.txt")])
    return _halves(name, pool, [part.nonzero().flatten() for part in (training, ~training)], note)


def flowers(name: str, folder: Path, note: str) -> Splits:
    """VGG Flower 102: ``jpg/image_<number>.jpg``, labels in ``imagelabels.mat``; all its parts pooled."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        labels = loadmat(str(folder / "imagelabels.mat"), squeeze_me=True)["labels"].astype(np.int64) - 1
    except MatReadError as error:
        raise ValueError(str(error)) from error
    paths = [f"jpg/image_{k:05d}.jpg" for k in range(1, len(labels) + 1)]
    classes = [str(k + 1) for k in range(int(labels.max()) + 1)]
    return _held_out(name, _streamed(name, folder, paths, labels.tolist(), classes), note)


def coco_labels(name: str, folder: Path, note: str, *, train: str, test: str) -> Splits:
    """Pictures with one label each, in files of COCO's form."""
    parts = []
    for part, file in (("train", train), ("test", test)):
        images, categories, marked = coco.lists(folder / file)
        number = {category["id"]: k for k, category in enumerate(categories)}
        paths, labels = [images[a["image_id"]]["file_name"] for a in marked], [number[a["category_id"]] for a in marked]
        parts.append(_streamed(f"{name}/{part}", folder, paths, labels, [str(c["name"]) for c in categories]))
    return Splits.of(name, parts[0], parts[1], note)


def scale_box(box: Sequence[float], width: int, height: int, scale: float = 1.2) -> tuple[int, int, int, int]:
    """A box of COCO, grown by ``scale`` about its middle (Meta-Dataset's is 1.2) and cut at the picture's border.

    (left, top, width, height) in pixels become (top, left, height, width) in whole pixels, at least one each.
    """
    edges = []
    for start, length, limit in ((box[1], box[3], height), (box[0], box[2], width)):
        middle, reach = start + length / 2, scale * length / 2
        low = min(max(round(middle - reach), 0), limit - 1)
        edges.append((low, max(min(round(middle + reach), limit) - low, 1)))
    (top, tall), (left, wide) = edges
    return top, left, tall, wide


def coco_objects(name: str, folder: Path, note: str, *, annotations: str = "", side: int = 0) -> Splits:
    """A crop of every object of MSCOCO 2017 that is one; crowds and boxes without area are none.

    Crops of ``side`` pixels are kept in memory; with 0 they are streamed.
    """
    parts: list[Any] = []
    for part, year in (("train", "train2017"), ("test", "val2017")):
        known = coco.read_coco(folder / annotations / f"instances_{year}.json", strict=False)
        marked = [each for each in known.objects if not each["iscrowd"]]
        sizes = [known.images[each["image_id"]] for each in marked]
        boxes = [scale_box(each["bbox"], i["width"], i["height"]) for each, i in zip(marked, sizes, strict=True)]
        labels = [known.number[each["category_id"]] for each in marked]
        paths = [image["file_name"] for image in sizes]
        crops = _streamed(f"{name}/{part}", folder / year, paths, labels, known.classes, boxes)
        if side:
            small = replace(crops, resize=side)
            pixels = torch.stack(list(threaded(small.__getitem__, range(len(small)))))
            parts.append(ImageSet(crops.name, pixels, crops.labels, crops.classes))
        else:
            parts.append(crops)
    return Splits.of(name, parts[0], parts[1], note)


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
        table = read_parquet([copy])
        tracks = whole_numbers(copy, "track")[0]
        pool = ImageSet("gtsrb32", table.images, table.labels, table.classes, {"track": tracks})
        origin = "GTSRB, training frames, 32 px JPEG copy"
    if not by_track:
        return _held_out(name, pool, f"{origin}; {note}")
    rows = hold_out_groups(pool.labels, tracks, name=name, classes=pool.classes)
    return _halves(name, pool, rows, f"{origin}; {note}")
