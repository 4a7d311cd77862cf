"""Features on disk: a folder of parts that a frozen network wrote, and the sets of items that they make.

``features.json`` says of what and how they were made. A part is one safetensors file of some items with its checksum.
Sets are standardised: a network's features are often positive, and then the embeddings of new layers all point the same
way, from where a memory bank does not learn.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from contrastlab.pictures import limits
from contrastlab.pictures.items import Items, Splits
from contrastlab.support import files, paths
from contrastlab.support.errors import CorruptFileError, MissingDataError

RECORD = "features.json"
PART_ITEMS = 500
"""Items of a part."""
SPLITS = ("train", "test")
LEAST_DEVIATION = 1e-3
"""A feature of less deviation over the plain views of training is divided by this: it is all but constant."""


@dataclass(frozen=True, eq=False, repr=False)
class FeatureSet(Items):
    """Standardised features of several views of each item, float16 ``[N, 1 + V, F]``, the plain view first.

    The fingerprint is of what they were made of, and not of the features: the last bits of these depend on the
    processor that computed them.
    """

    domain: ClassVar[str] = "contrastlab.domains.features"
    modality: ClassVar[str] = "feature vector"
    by_item: ClassVar[tuple[str, ...]] = (*Items.by_item, "numbers")
    shape: ClassVar[str] = "float16 of shape [N, 1 + V, F]"

    numbers: Tensor  #: int64 ``[N]``: which of the written items each one is
    origin: str  #: what they were made of and how, in canonical JSON

    def _fits(self) -> bool:
        return self.items.dtype == torch.float16 and self.items.ndim == 3

    def _form(self) -> str:
        return f"standardised {self.origin}"

    def _hashed(self) -> Iterator[str | Tensor]:
        yield self._form()
        yield self.numbers
        yield self.labels

    @property
    def channels(self) -> int:
        """F."""
        return self.items.shape[-1]


def part_path(folder: Path, split: str, first: int) -> Path:
    """The file of the items from number ``first`` on."""
    return folder / f"{split}-{first:07d}.safetensors"


def load_features(name: str, location: str) -> Splits:
    """Splits of ``features:<path>``, a folder that :func:`contrastlab.domains.features.write.write_features` wrote."""
    folder = paths.own_path(name, location)
    return read_features(name, folder, f"features in {folder.name}")


def read_features(name: str, folder: Path, note: str) -> Splits:
    """Splits of a folder of features; a missing part is a ``MissingDataError``, a damaged one ``CorruptFileError``."""
    record = read_record(folder)
    origin = record["origin"]
    sets = {split: _set(f"{name}/{split}", folder, split, record) for split in SPLITS}
    plain = sets["train"].items[:, 0].float()
    mean = plain.mean(0)
    deviation = plain.std(0).clamp(min=LEAST_DEVIATION)
    for split, items in sets.items():
        sets[split] = replace(items, items=standardised(items.items, mean, deviation))
    views = f"{origin['views']} random views of {origin['size']} pixels and a plain one"
    return Splits.of(name, sets["train"], sets["test"], f"{note}; {views}")


def standardised(features: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """Features ``[N, 1 + V, F]`` less the mean ``[F]``, divided by the deviation ``[F]``; float16."""
    out = torch.empty_like(features)
    for view in range(features.shape[1]):  # float32 of one view at a time
        out[:, view] = (features[:, view].float() - mean) / deviation
    return out


def read_record(folder: Path) -> Mapping[str, Any]:
    """What the features in a folder were made of; a ``CorruptFileError`` where it cannot be read."""
    path = folder / RECORD
    if not path.exists():
        raise MissingDataError(f"{path} does not exist: expected a folder that write_features wrote")
    try:
        record = files.read_record(path)
        for split in SPLITS:
            limits.check_count(record["items"][split], limits.MAX_ROWS, "items", path)
        return {**record, "classes": tuple(record["classes"])}
    except files.DAMAGED as error:
        raise CorruptFileError(f"{path} cannot be read ({error}); write the features again") from error


def _set(name: str, folder: Path, split: str, record: Mapping[str, Any]) -> FeatureSet:
    """The items of a split, from all of its parts."""
    origin = json.dumps(record["origin"], sort_keys=True, separators=(",", ":"))
    count = record["items"][split]
    features = []
    labels = []
    for first in range(0, count, PART_ITEMS):
        path = part_path(folder, split, first)
        if not path.exists():
            raise MissingDataError(f"{path} does not exist: the features were not written to the end; write them again")
        tensors, values = files.read_tensors(path)
        if values.get("origin") != record["origin"]:
            raise CorruptFileError(f"{path} is of other features than {RECORD} beside it speaks of")
        features.append(tensors["features"])
        labels.append(tensors["labels"])
    numbers = torch.arange(count)
    return FeatureSet(name, torch.cat(features), torch.cat(labels), record["classes"], numbers, origin)
