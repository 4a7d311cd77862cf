"""Images in parquet tables, as Hugging Face writes them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from contrastlab.data import limits
from contrastlab.data.items import LABEL_COLUMNS, Splits, UnlabelledSplits, hold_out
from contrastlab.data.pictures import ImageSet, StreamedImages, decode, opened, stack, threaded
from contrastlab.errors import ArgumentError, CorruptFileError, MissingDataError, NotApplicableError, reject


@dataclass(frozen=True)
class Table:
    """Decoded images of parquet files: uint8 ``[N, C, H, W]``, int64 ``[N]``, class names, how images are stored."""

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    encoding: str


def read_parquet(paths: Iterable[Path]) -> Table:
    """Decodes the images of parquet files, in order. The last few results are kept in memory.

    Args:
        paths: files with a column of images (struct with ``bytes``) and, if there are labels, a column of integers or
            strings whose name is one of :data:`contrastlab.data.items.LABEL_COLUMNS`.

    Returns:
        The images; labels are −1 where missing or negative. Images of several sizes are resized to the shortest side
        among them (at most 256) and cropped to the middle square.
    """
    stats = ((path, path.stat()) for path in paths)
    return _read_parquet(tuple((str(path.resolve()), stat.st_mtime_ns, stat.st_size) for path, stat in stats))


@lru_cache(maxsize=4)
def _read_parquet(stamps: tuple[tuple[str, int, int], ...]) -> Table:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    encoded: list[bytes] = []
    values: list[Any] = []
    names: tuple[str, ...] | None = None
    for path, _, _ in stamps:
        try:
            schema = pq.read_schema(path)
            image_column = _image_column(schema)
            if image_column is None:
                raise ArgumentError(
                    f"{path} has the columns {', '.join(schema.names)}: accepted is a column of images, "
                    "a struct with the fields bytes and path"
                )
            label_column = next((name for name in LABEL_COLUMNS if name in schema.names), None)
            if label_column:
                _check_label_type(schema.field(label_column).type, f"{path}: column {label_column}")
            table = pq.read_table(path, columns=[image_column] + ([label_column] if label_column else []))
        except (OSError, pa.ArrowException) as error:
            raise CorruptFileError(f"{path} cannot be read as parquet: {error}") from error
        rows = pc.struct_field(table[image_column], "bytes").to_pylist()
        if any(row is None for row in rows):
            raise ArgumentError(f"{path}: the image bytes are not in the file, only paths to them")
        encoded += rows
        values += table[label_column].to_pylist() if label_column else [None] * len(rows)
        if label_column and names is None:
            names = _class_names(schema, label_column)
    labels, classes = _as_labels(values, names)
    files = ", ".join(path for path, _, _ in stamps)
    numbered = [(f"{files}: image {k}", content) for k, content in enumerate(encoded)]
    images = stack(threaded(lambda item: decode(item[1], item[0]), numbered))
    encoding = None
    if encoded:
        with opened(encoded[0]) as first:
            encoding = first.format
    return Table(images, labels, classes, encoding or "nothing")


def whole_numbers(path: Path, *columns: str) -> list[Tensor]:
    """Columns of whole numbers of a parquet file, int64 ``[N]`` each."""
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=list(columns))
    return [torch.from_numpy(table[column].to_numpy().astype(np.int64)) for column in columns]


def _image_column(schema: Any) -> str | None:
    """The column that holds encoded images: a struct with the binary field ``bytes``; a text is no picture."""
    import pyarrow as pa

    def holds_bytes(kind: Any) -> bool:
        if not pa.types.is_struct(kind) or kind.get_field_index("bytes") < 0:
            return False
        inner = kind.field("bytes").type
        return bool(pa.types.is_binary(inner) or pa.types.is_large_binary(inner))

    usable = [f.name for f in schema if holds_bytes(f.type)]
    preferred = [name for name in ("img", "image") if name in usable]
    return next(iter(preferred + usable), None)


def _class_names(schema: Any, column: str) -> tuple[str, ...] | None:
    """Names in the Hugging Face metadata of the schema, if it has them; other metadata say nothing of classes."""
    try:
        names: Any = json.loads((schema.metadata or {})[b"huggingface"])
        for key in ("info", "features", column, "names"):
            names = names.get(key, {})
    except (KeyError, ValueError, AttributeError, RecursionError):
        return None
    return tuple(names) if isinstance(names, list) and names and all(isinstance(name, str) for name in names) else None


def _check_label_type(kind: Any, where: str) -> None:
    import pyarrow as pa

    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    tests = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_string, pa.types.is_large_string, pa.types.is_null)
    if not any(test(inner) for test in tests):
        raise reject(where, str(kind), "one whole number or text for each image")


def _as_labels(values: list[Any], names: tuple[str, ...] | None) -> tuple[Tensor, tuple[str, ...]]:
    largest = max((value for value in values if isinstance(value, int)), default=0)
    if largest >= limits.MAX_CLASSES:
        raise reject("label", largest, f"numbers of classes, below {limits.MAX_CLASSES}")
    if any(isinstance(value, str) for value in values):
        names = tuple(sorted({value for value in values if value is not None}))
        index = {name: k for k, name in enumerate(names)}
        return torch.tensor([index.get(value, -1) for value in values]), names
    labels = torch.tensor([-1 if value is None else max(int(value), -1) for value in values], dtype=torch.int64)
    count = int(labels.max()) + 1 if len(labels) else 0
    if names is None or len(names) < count:
        names = tuple(str(k) for k in range(count))
    return labels, names


def parquet_files(folder: Path) -> dict[str, list[Path]]:
    """Parquet files anywhere under ``folder``, sorted, by the split that their name or folder tells.

    Splits are ``train``, ``test``, ``val``, ``unlabel``, and the empty string where the name tells none.
    """
    by_split: dict[str, list[Path]] = {}
    for path in sorted(limits.files_below(folder, (".parquet",))):
        words = reversed(re.findall("[a-z]+", path.relative_to(folder).as_posix().lower()))
        splits = (split for word in words for split in ("train", "test", "val", "unlabel") if word.startswith(split))
        by_split.setdefault(next(splits, ""), []).append(path)
    return by_split


def load_parquet(name: str, location: str | Path) -> Splits:
    """Splits of ``parquet:<path>``: a file, or a folder of files whose names tell ``train`` and ``test`` or ``val``.

    Without a test part, one image in five of each class is held out. Class names come from the Hugging Face
    metadata, or are the label values.
    """
    path = limits.own_path(name, location)
    if not path.exists():
        raise MissingDataError(f"{name}: {path} does not exist. Give a parquet file or a folder of them.")
    by_split = {"": [path]} if path.is_file() else parquet_files(path)
    train_files = by_split.get("train") or by_split.get("")
    if not train_files:
        raise MissingDataError(f"{name}: no training file *train*.parquet under {path}; give the path of one file.")
    table = read_parquet(train_files)
    train = ImageSet(f"{name}/train", table.images, table.labels, table.classes)
    if not len(train):
        raise MissingDataError(f"{name}: the files under {path} have no rows.")
    note = f"{path.name}: Hugging Face parquet, images stored as {table.encoding}"
    test = None
    for split in ("test", "val"):  # published test parts are often unlabelled, their validation part is not
        if split in by_split and (test is None or int(test.labels.max()) < 0):
            part = read_parquet(by_split[split])
            labels = align(part.labels, part.classes, table.classes, f"{name}: the {split} part")
            test = ImageSet(f"{name}/test", part.images, labels, table.classes)
    return assemble(name, train, test, note)


def copy_in_parquet(name: str, folder: Path, note: str) -> Splits:
    """A small copy of a published set, in parquet."""
    splits = load_parquet(name, folder)
    return replace(splits, note=f"{note}; {splits.note}")


# Pictures of which some may have no label -----------------------------------------------------------------------------


def align(labels: Tensor, own: tuple[str, ...], classes: tuple[str, ...], where: str) -> Tensor:
    """``labels`` counted in ``own`` classes, re-counted in ``classes``."""
    strange = sorted(set(own) - set(classes))
    if strange:
        raise ArgumentError(f"{where} has classes that the training images lack: {', '.join(strange[:5])}")
    table = torch.tensor([classes.index(name) for name in own] + [-1])
    return table[labels]


def assemble(name: str, train: ImageSet | StreamedImages, test: ImageSet | StreamedImages | None, note: str) -> Splits:
    """Splits of a pool or of a given pair; unlabelled images stay in ``pretrain`` only."""
    known = (train.labels >= 0).nonzero().flatten()
    if not len(known):
        return UnlabelledSplits(name, train, note)
    pretrain = train
    if test is None:
        kept, held = hold_out(train.labels, name=name, classes=train.classes)
        test = train.subset(held)
        labelled = pretrain = train.subset(kept)
        if len(known) < len(train):
            loose = (train.labels < 0).nonzero().flatten()
            pretrain = train.subset(torch.cat([kept, loose]).sort().values)
        note = f"{note}; stratified 80/20 split"
    else:
        labelled = train if len(known) == len(train) else train.subset(known)
        scored = (test.labels >= 0).nonzero().flatten()
        test = test if len(scored) == len(test) else test.subset(scored)
        if not len(test):
            raise NotApplicableError(f"{name!r}: the test images have no labels")
    return Splits(name, pretrain, renamed(labelled, f"{name}/train"), renamed(test, f"{name}/test"), note)


def renamed(part: Any, name: str) -> Any:
    """The same set of items by another name; itself if that is its name."""
    return part if part.name == name else replace(part, name=name)
