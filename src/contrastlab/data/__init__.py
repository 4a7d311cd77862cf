"""A name becomes labelled items: bundled, published, the user's own, or of a package that registers them.

>>> splits = load("digits")
>>> splits.train.items.shape
torch.Size([1438, 1, 8, 8])
"""

from __future__ import annotations

import csv
import os
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

from contrastlab.data.annotated import load_own
from contrastlab.data.image_readers import TORCHVISION, load_digits, load_folder, load_published
from contrastlab.data.items import Splits
from contrastlab.data.limits import NO_UTF8, cache_folder, own_path
from contrastlab.data.parquet import load_parquet
from contrastlab.data.pictures import ImageSet, StreamedImages
from contrastlab.data.sentences import load_sentences
from contrastlab.data.sounds import load_waves
from contrastlab.errors import (
    ArgumentError,
    ContrastLabError,
    CorruptFileError,
    MissingDataError,
    reject,
    unknown,
    unreadable,
)

__all__ = [
    "OWN",
    "PUBLISHED",
    "SOURCES",
    "ImageSet",
    "Request",
    "Source",
    "Splits",
    "StreamedImages",
    "data_root",
    "load",
    "modality_of",
    "names",
]


@dataclass(frozen=True)
class Request:
    """The arguments of :func:`load`, checked, with the data root resolved."""

    name: str
    root: Path
    download: bool
    n_train: int | None
    n_test: int | None
    seed: int

    @property
    def path(self) -> str:
        """The part behind the colon of a user's own data."""
        return self.name.partition(":")[2]

    def limit(self, splits: Splits) -> Splits:
        """A whole data set, cut to the sizes of the request."""
        return splits.limited(self.n_train, self.n_test, self.seed)


@dataclass(frozen=True)
class Source:
    """Where data of one name come from.

    Args:
        modality: see :mod:`contrastlab.data.modalities`.
        read: makes the splits, cut to the sizes of the request.
        get: how to get the files, for whoever does not have them; ``<root>`` stands for the data root.
        folder: of the files, below the data root.
    """

    modality: str
    read: Callable[[Request], Splits]
    get: str = ""
    folder: str = ""


def _whole(modality: str, read: Callable[[Request], Splits], get: str = "", folder: str = "") -> Source:
    return Source(modality, lambda request: request.limit(read(request)), get, folder)


PUBLISHED: Mapping[str, Mapping[str, Any]] = tomllib.loads(
    (files("contrastlab.data") / "published.toml").read_text(encoding="utf-8")
)
"""Name of a published data set to its row: who reads it, where it lies, how to get it, what to note of it."""


@lru_cache(maxsize=32)
def _read_row(name: str, root: Path) -> Splits:
    row = dict(PUBLISHED[name])
    folder, get = row.pop("folder"), row.pop("get")
    for needed in row.pop("needs", [folder]):
        if not (root / needed).exists():
            raise FileNotFoundError(2, get, str(root / needed))
    module, _, reader = row.pop("read").rpartition(".")
    del row["modality"]
    splits: Splits = getattr(import_module(f"contrastlab.data.{module}"), reader)(name, root / folder, **row)
    return splits


def _row(request: Request) -> Splits:
    try:
        return _read_row(request.name, request.root)
    except ArgumentError as error:  # what a file says is no argument of the user's
        raise ValueError(str(error)) from error


SOURCES: Mapping[str, Source] = MappingProxyType({
    "digits": _whole("image", lambda request: load_digits()),
    **dict.fromkeys(TORCHVISION, _whole("image", lambda r: load_published(r.name, r.root, r.download))),
    **{name: _whole(row["modality"], _row, row["get"], row["folder"]) for name, row in PUBLISHED.items()},
})  # fmt: skip
"""Name of a data set to its source, of the package's own; see :func:`names`."""

OWN: Mapping[str, Source] = MappingProxyType({
    "folder": _whole("image", lambda request: load_folder(request.name, request.path)),
    "parquet": _whole("image", lambda request: load_parquet(request.name, request.path)),
    "annotated": _whole("annotated image", lambda r: load_own(r.name, own_path(r.name, r.path))),
    "sentences": _whole("sentence", lambda request: load_sentences(request.name, request.path)),
    "waves": _whole("waveform", lambda request: load_waves(request.name, request.path)),
})  # fmt: skip
"""Kind of a user's own data, ``<kind>:<path>``, to its source."""


def names() -> tuple[str, ...]:
    """Names that :func:`load` knows, ascending; ``<kind>:<path>`` of :data:`OWN` comes on top.

    They are those of :data:`SOURCES`, and of the mappings like it that installed packages register in the entry point
    group ``contrastlab.data``.
    """
    return tuple(sorted(_sources()))


@cache
def _sources() -> Mapping[str, Source]:
    added = [entry.load() for entry in entry_points(group="contrastlab.data")]
    return {name: source for sources in (*added, SOURCES) for name, source in sources.items()}


def _source(name: str) -> Source | None:
    kind, _, location = name.partition(":")
    return OWN.get(kind) if location else _sources().get(name)


def modality_of(name: str) -> str:
    """The modality of a data set by its name, without loading it; ``image`` for a name that is none."""
    source = _source(name)
    return source.modality if source else "image"


def data_root(root: str | Path | None = None) -> Path:
    """Where published data sets are looked for.

    ``root`` if given, else the environment variable ``CONTRASTLAB_DATA``, else ``contrastlab`` in the user's cache
    folder (``XDG_CACHE_HOME``, by default ``~/.cache``).
    """
    if root is None:
        root = os.environ.get("CONTRASTLAB_DATA") or cache_folder()
    return own_path("data root", root)


def load(
    name: str, root: str | Path | None = None, *, download: bool = True, n_train: int | None = None,
    n_test: int | None = None, seed: int = 0,
) -> Splits:  # fmt: skip
    """Loads a data set by name.

    - images in memory: ``digits`` (bundled, 1×8×8), ``cifar10``, ``cifar100``, ``fashionmnist``, ``mnist``, ``stl10``
      (96×96; ``pretrain`` has 100,000 unlabelled images, too), ``tinyimagenet`` (64×64; ``test`` is validation)
    - image files: ``imagenet`` (``test`` is validation), ``imagenet100`` (CMC's Table 6), ``div2k`` (no labels)
    - to transfer to, files: ``aircraft``, ``cubirds``, ``dtd``, ``fungi``, ``mscoco``, ``trafficsign``,
      ``trafficsign_tracks``, ``vggflower``; small copies of them: ``dtd10``, ``flowers17``, ``gtsrb32``,
      ``mnist_t10k``, ``omniglot_small``, ``coco200``, ``tinyimagenet32``
    - clips: ``gtsrb32_clips``, ``ucf101``, ``hmdb51`` (frames and TV-L1 flow are kept in the user's cache)
    - scenes: ``camvid`` (classes of pixels), ``nyu_depth_v2`` (also depth, and normals computed from it)
    - sentences: ``wikipedia``, ``wikisplit``; scored pairs of them: ``sts``
    - speech: ``librispeech``, ``audiomnist``, ``google_commands``, ``fluent_action``, ``fsdd`` and more
    - annotated pictures: ``coco_instances``, ``coco_keypoints``, ``voc07``, ``lvis``, ``bccd``, ``bccd_val``, ``lsp``,
      ``coco200_persons``, ``coco200_things``
    - a user's own: ``folder:<path>`` of image files (:func:`contrastlab.data.image_readers.load_folder`),
      ``parquet:<path>`` (:func:`contrastlab.data.parquet.load_parquet`), ``waves:<folder>`` of sound files
      (:func:`contrastlab.data.sounds.load_waves`), ``sentences:<file>`` with a sentence a line,
      ``annotated:<path>`` in COCO's, LVIS's or VOC's form (:func:`contrastlab.data.annotated.load_own`)
    - generated sets, of any size: see :mod:`contrastbook.made`

    ``published.toml`` beside this module says where each published set lies. ``cifar10`` and its like are read from
    ``<root>/<name>/`` if parquet files with ``train`` and ``test`` in their names lie there, else from torchvision's
    layout under ``<root>``. Published sets are kept in memory between calls.

    Args:
        name: see the list.
        root: folder of the published sets, see :func:`data_root`.
        download: whether torchvision may fetch one of the sets of 28 to 96 pixels into ``root``, if it is not there.
        n_train: items in ``pretrain``, and at most so many in ``train``; None is all. Generated sets have any number.
        n_test: items in ``test``; None is all.
        seed: of the random subset, and of the generated sets. It does not change a held-out split.

    Returns:
        The splits. ``pretrain`` and ``train`` are one object unless some items are unlabelled.

    Raises:
        UnknownNameError: no data set has that name; near matches are listed.
        MissingDataError: the data are not where they were looked for; the message says where and what to do.
        ArgumentError: ``n_train``, ``n_test`` or ``seed`` is out of range.
        CorruptFileError: a stored image or table cannot be read.
        StorageError: a file or folder that may not be read.
        TooLargeError: a file would take too much memory, see :mod:`contrastlab.data.limits`.
    """
    if not isinstance(name, str) or NO_UTF8.search(name):
        raise reject("name", name, "a text in UTF-8, see contrastlab.data.names()")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise reject("seed", seed, "an integer in [0, 2**32)")
    for argument, value in (("n_train", n_train), ("n_test", n_test)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise reject(argument, value, "an integer of at least 1, or None for all")
    source = _source(name)
    if source is None:
        raise unknown("data set", name, (*names(), *(f"{kind}:<path>" for kind in OWN)))
    request = Request(name, data_root(root), download, n_train, n_test, seed)
    with _errors_named(request, source):
        return source.read(request)


# what readers raise on damaged files of published layouts
_UNREADABLE = (
    OSError, EOFError, ValueError, LookupError, TypeError, RuntimeError, csv.Error, zipfile.BadZipFile, zlib.error
)  # fmt: skip


@contextmanager
def _errors_named(request: Request, source: Source) -> Iterator[None]:
    """What a reader raises on missing or damaged files, as an error that names the data set."""
    how = f" {source.get}, or set CONTRASTLAB_DATA (or root=) to the folder that has it." if source.get else ""
    how = how.replace("<root>", str(request.root))
    try:
        yield
    except ContrastLabError as error:
        if how and isinstance(error, MissingDataError):
            raise MissingDataError(f"{error}{how}") from error
        raise
    except FileNotFoundError as error:
        raise MissingDataError(f"{request.name}: {error.filename} does not exist.{how}") from error
    except PermissionError as error:
        raise unreadable(f"{request.name}: {error.filename or 'a file'}", error) from error
    except _UNREADABLE as error:
        if not source.get and isinstance(error, (TypeError, RuntimeError)):
            raise  # a fault of a generator is no damaged file
        where = f"a file under {request.root / source.folder}" if source.get else "one of its files"
        raise CorruptFileError(f"{request.name}: {where} cannot be read: {_describe(error)}") from error


def _describe(error: Exception) -> str:
    """The kind of an error and what it says: ``repr`` of an OSError leaves out the path."""
    return f"{type(error).__name__}: {error}" if isinstance(error, OSError) else repr(error)
