"""A name becomes labelled items: bundled, published, the user's own, or of a package that registers them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any

import contrastlab.support.lab  # noqa: F401

from contrastlab import domains
from contrastlab.pictures.items import Splits
from contrastlab.pictures.limits import NO_UTF8, data_root
from contrastlab.pictures.readers import TORCHVISION, load_digits, load_published
from contrastlab.support import errors


@dataclass(frozen=True)
class Request:
    """The arguments of :func:`load`, checked, with the data root resolved."""

    name: str
    root: Path
    download: bool
    n_train: int | None
    n_test: int | None
    seed: int


@dataclass(frozen=True)
class Source:
    """Where data of one name come from."""

    modality: str  #: see :mod:`contrastlab.domains`
    read: Callable[[Request], Splits]  #: makes the splits; :func:`load` cuts them to the sizes of the request
    get: str = ""  #: how to get the files, for whoever does not have them; ``<root>`` stands for the data root
    folder: str = ""  #: of the files, below the data root


PUBLISHED: Mapping[str, Mapping[str, Any]] = {
    name: row for each in domains.rows() for name, row in each.published.items()
}
"""Name of a published data set to its row: who reads it, where it lies, how to get it, what to note of it."""


@lru_cache(maxsize=32)
def _read_row(name: str, root: Path) -> Splits:
    row = dict(PUBLISHED[name])
    folder, get, read, _ = (row.pop(key) for key in ("folder", "get", "read", "modality"))
    for needed in row.pop("needs", [folder]):
        if not (root / needed).exists():
            raise FileNotFoundError(2, get, str(root / needed))
    splits: Splits = resolve_name(f"contrastlab.{read}")(name, root / folder, **row)
    return splits


SOURCES: Mapping[str, Source] = MappingProxyType({
    "digits": Source("image", lambda request: load_digits()),
    **{
        name: Source(
            "image", lambda request: load_published(request.name, request.root, request.download),
            f"contrastlab run downloads it, and so does contrastlab.data.load({name!r}, download=True)", folder,
        )
        for name, (_, _, folder) in TORCHVISION.items()
    },
    **{
        name: Source(row["modality"], lambda request: _read_row(request.name, request.root), row["get"], row["folder"])
        for name, row in PUBLISHED.items()
    },
})  # fmt: skip
"""Name of a data set to its source, of the package's own; see :func:`names`."""


def _own(modality: str, reader: str) -> Source:
    def read(request: Request) -> Splits:
        location = request.name.partition(":")[2]
        return resolve_name(reader)(request.name, location)

    return Source(modality, read)


OWN: Mapping[str, Source] = MappingProxyType(
    {kind: _own(modality, reader) for each in domains.rows() for kind, (modality, reader) in each.readers.items()}
)
"""Kind of a user's own data, ``<kind>:<path>``, to its source."""


def names() -> tuple[str, ...]:
    """Names that :func:`load` knows, ascending; ``<kind>:<path>`` of :data:`OWN` comes on top.

    They are those of :data:`SOURCES`, and of mappings like it in the entry point group ``contrastlab.data``.
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


def load(
    name: str, root: str | Path | None = None, *, download: bool = True, n_train: int | None = None,
    n_test: int | None = None, seed: int = 0,
) -> Splits:  # fmt: skip
    """Loads a data set by name, one of :func:`names`.

    Published sets are rows of ``published.toml``; those that torchvision downloads (``cifar10``, ``mnist``, …) and
    ``digits``, which is bundled, need no row. A user's own are ``folder:<path>`` of image files in a subfolder a class,
    or ``unlabelled:<path>`` of all image files below it; ``parquet:<path>`` of images, ``waves:<folder>``,
    ``sentences:<file>`` with a sentence a line, and ``annotated:<path>`` in COCO's, LVIS's or VOC's form; their readers
    are in :data:`OWN`.

    Args:
        name: of the set, or ``<kind>:<path>``.
        root: folder of the published sets, see :func:`data_root`.
        download: whether torchvision may fetch one of the sets of 28 to 96 pixels into ``root``, if it is not there.
        n_train: items in ``pretrain``, and at most so many in ``train``; None is all. Generated sets have any number.
        n_test: items in ``test``; None is all.
        seed: of the random subset, and of the generated sets. It does not change a held-out split.

    Returns:
        The splits; ``pretrain`` and ``train`` are one object unless some items are unlabelled. Published sets are kept
        in memory between calls.

    Raises:
        MissingDataError: the data are not where they were looked for; the message says where and what to do.
        CorruptFileError: a file cannot be read.
        TooLargeError: a file would take too much memory, see :mod:`contrastlab.pictures.limits`.
    """
    text = isinstance(name, str) and not NO_UTF8.search(name)
    errors.check(text, "name", name, "a text in UTF-8, see contrastlab.data.names()")
    errors.check(errors.is_integer(seed, 0) and seed < 2**32, "seed", seed, "an integer in [0, 2**32)")
    for argument, n in (("n_train", n_train), ("n_test", n_test)):
        errors.check(n is None or errors.is_integer(n), argument, n, "an integer of at least 1, or None for all")
    source = _source(name)
    if source is None and Path(name).is_dir():
        raise errors.unknown("data set", name, (f"folder:{name}", f"unlabelled:{name}", f"waves:{name}"))
    if source is None:
        raise domains.unknown("data set", name, (*names(), *(f"{kind}:<path>" for kind in OWN)))
    request = Request(name, data_root(root), download, n_train, n_test, seed)
    return _read(source, request).limited(n_train, n_test, seed)


def _read(source: Source, request: Request) -> Splits:
    """What a source reads; an error of missing or damaged files names the data set and how to get it."""
    how = f" {source.get}, or set CONTRASTLAB_DATA (or root=) to the folder that has it." if source.get else ""
    how = how.replace("<root>", str(request.root))
    try:
        return source.read(request)
    except errors.MissingDataError as error:
        raise errors.MissingDataError(f"{error}{how}") from error
    except ModuleNotFoundError as error:
        folder = domains.deleted(error)
        if folder is None:
            raise
        raise errors.NotApplicableError(f"{request.name} needs a domain that is not installed: {folder}") from error
    except FileNotFoundError as error:
        raise errors.MissingDataError(f"{request.name}: {error.filename} does not exist.{how}") from error
    except PermissionError as error:
        raise errors.unreadable(f"{request.name}: {error.filename or 'a file'}", error) from error
    except Exception as error:
        named = isinstance(error, errors.ContrastLabError)
        if source.get:  # what the files of a published set say is no argument of the user's
            named = named and not isinstance(error, errors.ArgumentError)
        if named or not (source.get or isinstance(error, OSError)):
            raise
        where = f"a file under {request.root / source.folder}" if source.get else "one of its files"
        reason = f"{type(error).__name__}: {error}"  # repr of an OSError leaves out the path
        raise errors.CorruptFileError(f"{request.name}: {where} cannot be read: {reason}") from error
