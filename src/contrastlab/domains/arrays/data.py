"""The reader of a user's own pictures in NumPy's files; no pickle is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from contrastlab.pictures import limits
from contrastlab.pictures.items import Splits, aligned, split_own
from contrastlab.pictures.sets import ImageSet
from contrastlab.support.errors import CorruptFileError, MissingDataError
from contrastlab.support.files import check_regular
from contrastlab.support.paths import own_path

TYPES = ("uint8", "uint16")


def load_arrays(name: str, location: str) -> Splits:
    """Splits of ``arrays:<path>``, a folder with ``train.npy``, and perhaps ``test.npy``.

    Pictures are uint8 or uint16 ``[N, C, H, W]``. Their classes are integers ``[N]`` in ``train_labels.npy`` and
    ``test_labels.npy``; without them the pictures are unlabelled. Without a test part a fifth of them is held out.
    """
    folder = own_path(name, location)
    if not (folder / "train.npy").exists():
        raise MissingDataError(f"{name}: {folder / 'train.npy'} does not exist")
    train = _part(f"{name}/train", folder, "train")
    note = f"arrays of {folder.name}, {train.channels} channels, {train.items.dtype}"
    if not (folder / "test.npy").exists():
        return split_own(name, train, None, note)
    test = _part(f"{name}/test", folder, "test")
    if test.channels != train.channels:
        raise CorruptFileError(f"{name}: test.npy has {test.channels} channels, train.npy {train.channels}")
    return split_own(name, train, aligned(test, train.classes, f"{name}: test.npy"), note)


def _part(name: str, folder: Path, part: str) -> ImageSet:
    """The pictures of a part, and the classes that they have."""
    path = folder / f"{part}.npy"
    pixels = _read(path)
    if pixels.dtype.name not in TYPES or pixels.ndim != 4:
        shown = f"{pixels.dtype} of shape {list(pixels.shape)}"
        raise CorruptFileError(f"{path} holds {shown}; accepted are uint8 or uint16 of shape [N, C, H, W]")
    limits.check_count(pixels.size, limits.MAX_SET_PIXELS, "values", path)
    items = torch.from_numpy(np.array(pixels, order="C"))
    place = folder / f"{part}_labels.npy"
    if not place.exists():
        return ImageSet(name, items, torch.full((len(items),), -1), ())
    labels = _read(place)
    if labels.dtype.kind not in "iu" or labels.shape != (len(items),):
        shown = f"{labels.dtype} of shape {list(labels.shape)}"
        raise CorruptFileError(f"{place} holds {shown}; accepted are integers of shape [{len(items)}]")
    numbers, places = np.unique(labels, return_inverse=True)
    return ImageSet(name, items, torch.from_numpy(places.astype(np.int64)), tuple(map(str, numbers.tolist())))


def _read(path: Path) -> Any:
    """An array, whose values are read when they are used."""
    check_regular(path)
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise CorruptFileError(f"{path} is no array of NumPy: {error}") from error
