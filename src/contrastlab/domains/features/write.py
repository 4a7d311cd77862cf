"""Features of a data set by a frozen network, written part by part: an interrupted call is continued by the next one.

Several processes may write into one folder at a time; each takes parts that no other one is at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from contrastlab.domains.features.data import PART_ITEMS, RECORD, SPLITS, part_path, read_record
from contrastlab.pictures.augmentations import Augmentation
from contrastlab.pictures.items import Splits, fingerprint
from contrastlab.pictures.loading import batches
from contrastlab.support import files
from contrastlab.support.errors import ArgumentError, check, check_integer
from contrastlab.support.seeds import generator
from contrastlab.support.tensors import check_finite, frozen

BATCH = 100  # items that the network sees at a time: the memory of one view of each


def write_features(
    network: nn.Module,
    splits: Splits,
    folder: Path | str,
    augmentation: Augmentation,
    *,
    views: int = 8,
    seed: int = 0,
    log: Callable[[str], None] = print,
) -> Path:
    """Write what a frozen network gives for a plain view and ``views`` random ones of each picture of a data set.

    ``contrastlab.data.load("features:<folder>")`` reads them. Test pictures have the plain view alone.

    Args:
        network: from normalised views ``[B, C, size, size]`` to features ``[B, F]``, or to a map that is averaged over
            its positions. It runs where its parameters are, in evaluation mode.
        splits: pictures, such as :func:`contrastlab.data.load` gives.
        folder: is made; features that are already in it, of the same call, are kept.
        augmentation: of the random views, with the size and the mean and deviation that the network was trained with.
        views: random views of each training picture.
        seed: of the random views.
        log: is called with a line for each part.

    Raises:
        ArgumentError: the folder has features of other pictures, of another network or of other views.
        CorruptFileError: the folder's record cannot be read.
    """
    check_integer("views", views)
    folder = files.make_folder(Path(folder))
    origin = {
        "network": files.fingerprint(network.state_dict(), {"class": type(network).__name__}),
        "data": fingerprint(splits),
        "augmentation": _plain(asdict(augmentation)),
        "size": augmentation.size,
        "views": views,
        "seed": seed,
    }
    _write_record(folder, splits, origin)
    sets = {"train": splits.pretrain, "test": splits.test}
    for split in SPLITS:
        random_views = views if split == "train" else 0
        for first in range(0, len(sets[split]), PART_ITEMS):
            path = part_path(folder, split, first)
            lock = files.lock(path.with_suffix(".lock"), wait=False)
            if lock is None:
                continue  # another process is at this part
            with lock:
                if not path.exists():
                    numbers = torch.arange(first, min(first + PART_ITEMS, len(sets[split])))
                    draws = generator(seed, f"features of {split}", first)
                    features = _features(network, sets[split], numbers, augmentation, random_views, draws)
                    tensors = {"features": features, "labels": sets[split].labels[numbers]}
                    files.write_tensors(path, tensors, {"origin": origin})
                    log(f"{path.name}: {len(numbers)} of {len(sets[split])} items")
    return folder


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Values as JSON gives them back."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _write_record(folder: Path, splits: Splits, origin: dict[str, Any]) -> None:
    """Write what the features are of; a folder of other ones is refused."""
    path = folder / RECORD
    items = {"train": len(splits.pretrain), "test": len(splits.test)}
    record = {
        "origin": origin,
        "source": splits.name,
        "note": splits.note,
        "items": items,
        "classes": list(splits.train.classes),
    }
    held = files.lock(folder / ".lock")
    try:
        if not path.exists():
            files.write_record(path, record)
        stored = read_record(folder)
    finally:
        if held is not None:
            held.release()
    differing = [name for name in origin if stored["origin"].get(name) != origin[name]]
    if differing:
        raise ArgumentError(f"folder: {folder} has features that differ in {', '.join(differing)}; name another folder")


@torch.no_grad()
def _features(
    network: nn.Module, source: Any, numbers: Tensor, augmentation: Augmentation, views: int, draws: torch.Generator
) -> Tensor:
    """Float16 ``[n, 1 + views, F]`` of some items, the plain view first."""
    device = next(network.parameters()).device
    parts = []
    with frozen(network):
        for _, pictures in batches(source, numbers, BATCH, "cpu", drop_last=False):
            seen = [augmentation.plain(pictures)]
            seen += [augmentation.random(pictures, draws) for _ in range(views)]
            rows = []
            for view in seen:
                features = network(augmentation.normalise(view).to(device))
                if features.dim() == 4:
                    features = features.mean((2, 3))
                check(features.dim() == 2, "network", tuple(features.shape), "features [B, F] or a map [B, F, h, w]")
                rows.append(features.half().cpu())
            parts.append(torch.stack(rows, 1))
    features = torch.cat(parts)
    check_finite(features=features)
    return features
