"""Images in parquet tables, as Hugging Face writes them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from contrastlab.pictures import limits
from contrastlab.pictures.items import LABEL_COLUMNS, Splits, aligned, split_own
from contrastlab.pictures.sets import ImageSet, opened, stack, threaded, why_unreadable
from contrastlab.support.errors import ArgumentError, CorruptFileError, MissingDataError, TooLargeError, check, reject
from contrastlab.support.paths import files_below, own_path


@contextmanager
def _reading(path: Path | str) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            limits.check_count(file.metadata.num_rows, limits.MAX_ROWS, "rows", path)
            yield file
    except (OSError, pa.ArrowException) as error:
        raise CorruptFileError(f"{path} cannot be read as parquet: {error}") from error


def columns(path: Path, *names: str) -> list[list[Any]]:
    """The values of some columns of a parquet file."""
    with _reading(path) as file:
        values = file.read(columns=list(names)).to_pydict()
    return [values[name] for name in names]


class Decoded(NamedTuple):
    """The images of parquet files."""

    images: ImageSet
    form: str  #: how they are stored, such as ``JPEG``
    skipped: int  #: rows that could not be decoded

    def __str__(self) -> str:
        if self.skipped:
            return f"{self.form}; {self.skipped} unreadable images skipped"
        return self.form


def read_parquet(paths: Iterable[Path], skip_unreadable: bool = False) -> Decoded:
    """The images of parquet files, in order, decoded.

    The files have a column of images (struct with ``bytes``) and, if there are labels, a column of integers or strings
    whose name is one of :data:`contrastlab.pictures.items.LABEL_COLUMNS`. Labels are −1 where missing or negative.
    Images of several sizes are resized to the shortest side among them (at most 256) and cropped to the middle square.
    With ``skip_unreadable`` rows whose image is missing or cannot be decoded are left out.
    The last few results are kept in memory.
    """
    stamps = []
    for path in paths:
        stat = path.stat()
        stamps.append((str(path.resolve()), stat.st_mtime_ns, stat.st_size))
    return _read_parquet(tuple(stamps), skip_unreadable)


class _File(NamedTuple):
    """What is read of one parquet file."""

    images: list[bytes | None]  #: encoded; ``None`` where a row has none
    labels: list[int | str | None]
    class_names: tuple[str, ...] | None


@lru_cache(maxsize=4)
def _read_parquet(stamps: tuple[tuple[str, int, int], ...], skip_unreadable: bool) -> Decoded:
    encoded: list[bytes] = []
    values: list[int | str | None] = []
    names: tuple[str, ...] | None = None
    skipped = 0
    for path, _, _ in stamps:
        file = _read_file(path)
        if skip_unreadable:
            rows = len(file.images)
            file = _readable(file)
            skipped += rows - len(file.images)
        _check_none_missing(file.images, path)
        encoded += [content for content in file.images if content is not None]
        values += file.labels
        names = names or file.class_names
    where = ", ".join(path for path, _, _ in stamps)
    labels, classes = _as_labels(values, names, where)
    sources = [(content, f"{where}: image {number}") for number, content in enumerate(encoded)]
    images = ImageSet(where, stack(sources), labels, classes)
    return Decoded(images, _form(encoded), skipped)


def _form(encoded: Sequence[bytes]) -> str:
    """How images are encoded, by the first of them."""
    if not encoded:
        return "nothing"
    with opened(encoded[0]) as first:
        return str(first.format)


def _readable(file: _File) -> _File:
    """The rows of a file whose image can be decoded."""
    images = []
    labels = []
    for image, label, reason in zip(file.images, file.labels, threaded(_why_unreadable, file.images), strict=True):
        if not reason:
            images.append(image)
            labels.append(label)
    return file._replace(images=images, labels=labels)


def _why_unreadable(content: bytes | None) -> str:
    if content is None:
        return "it has no image"
    return why_unreadable(content)


def check_tables(folder: Path) -> Iterator[tuple[str, str]]:
    """Each image of the parquet files below a folder, and why it cannot be decoded; an empty text where it can."""
    for path in files_below(folder, (".parquet",)):
        try:
            file = _read_file(str(path))
        except (ArgumentError, CorruptFileError, TooLargeError) as error:
            yield str(path), str(error)
            continue
        for number, reason in enumerate(threaded(_why_unreadable, file.images)):
            yield f"{path}: row {number}", reason


def _read_file(path: str) -> _File:
    with _reading(path) as file:
        schema = file.schema_arrow
        image = _image_column(schema, path)
        label = _label_column(schema)
        wanted = [image]
        if label is not None:
            wanted.append(label)
        table = file.read(columns=wanted)
    images = table.flatten()[f"{image}.bytes"].to_pylist()
    labels: list[int | str | None] = [None] * len(images)
    if label is not None:
        kind = schema.field(label).type
        labels = _label_values(table[label].to_pylist(), f"{path}: column {label}", kind)
    return _File(images, labels, _class_names(schema, label))


def _label_column(schema: Any) -> str | None:
    for name in LABEL_COLUMNS:
        if name in schema.names:
            return name
    return None


def _check_none_missing(rows: Sequence[bytes | None], path: str) -> None:
    missing = [number for number, row in enumerate(rows) if row is None]
    if rows and len(missing) == len(rows):
        raise ArgumentError(f"{path}: the image bytes are not in the file, only paths to them")
    if missing:
        raise ArgumentError(f"{path}: row {missing[0]} of {len(rows)} has no image ({len(missing)} have none)")


def _label_values(values: Sequence[Any], where: str, kind: Any) -> list[int | str | None]:
    """Labels as whole numbers, texts or ``None``; a float that is whole is a number."""
    labels = []
    for value in values:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not (value is None or isinstance(value, int | str)):
            shown = value if isinstance(value, float) else str(kind)
            raise reject(where, shown, "one whole number or text for each image")
        labels.append(value)
    return labels


def _image_column(schema: Any, path: str) -> str:
    """A struct with a field ``bytes`` that is binary; ``img`` or ``image`` if there are several."""
    import pyarrow as pa

    usable = []
    for column in schema:
        if not pa.types.is_struct(column.type):
            continue
        for field in column.type:
            if field.name == "bytes" and field.type in (pa.binary(), pa.large_binary()):
                usable.append(str(column.name))
    if not usable:
        accepted = "a column of images, a struct with the fields bytes and path"
        raise ArgumentError(f"{path} has the columns {', '.join(schema.names)}: expected {accepted}")
    for name in ("img", "image"):
        if name in usable:
            return name
    return usable[0]


def _class_names(schema: Any, column: str | None) -> tuple[str, ...] | None:
    """Names in the Hugging Face metadata of the schema, if it has them; other metadata say nothing of classes."""
    metadata = schema.metadata or {}
    try:
        names: Any = json.loads(metadata[b"huggingface"])
        for key in ("info", "features", column, "names"):
            names = names.get(key, {})
    except (KeyError, ValueError, AttributeError, RecursionError):
        return None
    if isinstance(names, list) and names and all(isinstance(name, str) for name in names):
        return tuple(names)
    return None


def _as_labels(
    values: list[int | str | None], names: tuple[str, ...] | None, where: str
) -> tuple[Tensor, tuple[str, ...]]:
    """Labels ``[N]`` from 0, −1 where there is none, and the names of the classes."""
    kinds = {isinstance(value, str) for value in values if value is not None}
    check(len(kinds) < 2, f"{where}: label", "numbers and texts", "one kind of label in all files")
    if True in kinds:
        return _text_labels(values)
    numbers = []
    for value in values:
        number = -1 if value is None else int(value)
        numbers.append(max(number, -1))
    count = max(numbers, default=-1) + 1
    check(count <= limits.MAX_CLASSES, "label", count - 1, f"numbers of classes, below {limits.MAX_CLASSES}")
    if names is None or len(names) < count:
        names = tuple(str(number) for number in range(count))
    return torch.tensor(numbers, dtype=torch.int64), names


def _text_labels(values: Sequence[Any]) -> tuple[Tensor, tuple[str, ...]]:
    """Texts as classes, sorted; ``None`` has none."""
    names = tuple(sorted({value for value in values if value is not None}))
    index = {name: number for number, name in enumerate(names)}
    return torch.tensor([index.get(value, -1) for value in values]), names


def parquet_files(folder: Path) -> dict[str, list[Path]]:
    """Parquet files anywhere under ``folder``, sorted, by the split that their name or folder tells.

    Splits are ``train``, ``test``, ``val``, ``unlabel``, and the empty string where the name tells none.
    """
    by_split: dict[str, list[Path]] = {}
    for path in sorted(files_below(folder, (".parquet",))):
        split = _split_of(path.relative_to(folder).as_posix())
        by_split.setdefault(split, []).append(path)
    return by_split


def _split_of(name: str) -> str:
    """The split that the last word of a path tells which tells one; empty for none."""
    for word in reversed(re.findall("[a-z]+", name.lower())):
        for split in ("train", "test", "val", "unlabel"):
            if word.startswith(split):
                return split
    return ""


def load_parquet(name: str, location: str | Path, note: str = "", skip_unreadable: bool = False) -> Splits:
    """Splits of ``parquet:<path>``: a file, or a folder of files whose names tell ``train`` and ``test`` or ``val``.

    Without a test part, one image in five of each class is held out. Class names come from the Hugging Face
    metadata, or are the label values. A small copy of a published set has a ``note``.
    """
    path = own_path(name, location)
    if not path.exists():
        raise MissingDataError(f"{name}: {path} does not exist. Give a parquet file or a folder of them.")
    by_split = {"": [path]} if path.is_file() else parquet_files(path)
    train_files = by_split.get("train") or by_split.get("")
    if not train_files:
        raise MissingDataError(f"{name}: no training file *train*.parquet under {path}; give the path of one file.")
    train = read_parquet(train_files, skip_unreadable)
    storage = f"{path.name}: Hugging Face parquet, images stored as {train}"
    test = None
    test_files = None
    for split in ("test", "val"):  # published test parts are often unlabelled, their validation part is not
        if split not in by_split:
            continue
        if test is not None and int(test.labels.max()) >= 0:
            continue
        test_files = by_split[split]
        decoded = read_parquet(test_files, skip_unreadable)
        if decoded.skipped:
            storage += f"; {split} part: {decoded}"
        test = aligned(decoded.images, train.images.classes, f"{name}: the {split} part")
    if note:
        storage = f"{note}; {storage}"
    else:
        for files in by_split.values():
            if files not in (train_files, test_files):
                storage += "".join(f"; {unread.name} left out" for unread in files)
    return split_own(name, replace(train.images, name=f"{name}/train"), test, storage)
