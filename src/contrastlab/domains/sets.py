"""A name becomes labelled items: bundled, published, the user's own, or of a package that registers them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import entry_points
from inspect import signature
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any

import contrastlab.support.lab  # noqa: F401

from contrastlab import domains
from contrastlab.pictures.items import Splits
from contrastlab.pictures.readers import TORCHVISION, load_digits, load_published
from contrastlab.support import errors
from contrastlab.support.paths import NO_UTF8, data_root, own_path


@dataclass(frozen=True)
class Request:
    """The arguments of :func:`load`, checked, with the data root resolved."""

    name: str
    root: Path
    download: bool
    n_train: int | None
    n_test: int | None
    seed: int
    skip_unreadable: bool = False


@dataclass(frozen=True)
class Source:
    """Where data of one name come from."""

    modality: str  #: see :mod:`contrastlab.domains`
    read: Callable[[Request], Splits]  #: makes the splits; :func:`load` cuts them to the sizes of the request
    get: str = ""  #: how to get the files, for whoever does not have them; ``<root>`` stands for the data root
    folder: str = ""  #: of the files, below the data root


def _published() -> dict[str, Mapping[str, Any]]:
    rows: dict[str, Mapping[str, Any]] = {}
    for domain in domains.rows():
        rows |= domain.published
    return rows


PUBLISHED: Mapping[str, Mapping[str, Any]] = _published()
"""Name of a published data set to its row: who reads it, where it lies, how to get it, what to note of it."""


@lru_cache(maxsize=32)
def _read_row(name: str, root: Path) -> Splits:
    arguments = dict(PUBLISHED[name])
    arguments.pop("modality")
    folder = arguments.pop("folder")
    how_to_get = arguments.pop("get")
    reader = arguments.pop("read")
    for needed in arguments.pop("needs", [folder]):
        if not (root / needed).exists():
            raise FileNotFoundError(2, how_to_get, str(root / needed))
    read = resolve_name(f"contrastlab.{reader}")
    splits: Splits = read(name, root / folder, **arguments)
    return splits


def _read_digits(request: Request) -> Splits:
    return load_digits()


def _read_torchvision(request: Request) -> Splits:
    return load_published(request.name, request.root, request.download)


def _read_published(request: Request) -> Splits:
    return _read_row(request.name, request.root)


def _package_sources() -> dict[str, Source]:
    """The bundled set, those that torchvision downloads, and the published ones."""
    sources = {"digits": Source("image", _read_digits)}
    for name, (_, _, folder) in TORCHVISION.items():
        get = f"contrastlab run downloads it, and so does contrastlab.data.load({name!r}, download=True)"
        sources[name] = Source("image", _read_torchvision, get, folder)
    for name, row in PUBLISHED.items():
        sources[name] = Source(row["modality"], _read_published, row["get"], row["folder"])
    return sources


SOURCES: Mapping[str, Source] = MappingProxyType(_package_sources())
"""Name of a data set to its source, of the package's own; see :func:`names`."""


def _own(modality: str, reader: str) -> Source:
    def read(request: Request) -> Splits:
        location = request.name.partition(":")[2]
        load_own = resolve_name(reader)
        if not request.skip_unreadable:
            return load_own(request.name, location)
        accepted = f"False with {request.name.partition(':')[0]}:, whose items are not files of their own"
        can_skip = "skip_unreadable" in signature(load_own).parameters
        errors.check(can_skip, "skip_unreadable", True, accepted)
        return load_own(request.name, location, skip_unreadable=True)

    return Source(modality, read)


def _own_sources() -> dict[str, Source]:
    sources = {}
    for domain in domains.rows():
        for kind, (modality, reader) in domain.readers.items():
            sources[kind] = _own(modality, reader)
    return sources


OWN: Mapping[str, Source] = MappingProxyType(_own_sources())
"""Kind of a user's own data, ``<kind>:<path>``, to its source."""


def names() -> tuple[str, ...]:
    """Names that :func:`load` knows, ascending; ``<kind>:<path>`` of :data:`OWN` comes on top.

    They are those of :data:`SOURCES`, and of mappings like it in the entry point group ``contrastlab.data``.
    """
    return tuple(sorted(_sources()))


@cache
def _sources() -> Mapping[str, Source]:
    sources: dict[str, Source] = {}
    for entry in entry_points(group="contrastlab.data"):
        sources |= entry.load()
    sources.update(SOURCES)
    return sources


def _source(name: str) -> Source | None:
    kind, _, location = name.partition(":")
    if location:
        return OWN.get(kind)
    return _sources().get(name)


def modality_of(name: str) -> str:
    """The modality of a data set by its name, without loading it; ``image`` for a name that is none."""
    source = _source(name)
    return source.modality if source else "image"


def original_modality_of(name: str) -> str:
    """The modality of what a data set was made of, such as the pictures behind features; else its own."""
    modality = modality_of(name)
    for domain in domains.rows():
        if modality in domain.made_of:
            return domain.made_of[modality]
    return modality


def load(
    name: str,
    root: str | Path | None = None,
    *,
    download: bool = True,
    n_train: int | None = None,
    n_test: int | None = None,
    seed: int = 0,
    skip_unreadable: bool = False,
) -> Splits:
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
        skip_unreadable: leave out what cannot be decoded of a user's own pictures and sounds; the note counts it.

    Returns:
        The splits; ``pretrain`` and ``train`` are one object unless some items are unlabelled. Published sets are kept
        in memory between calls.

    Raises:
        MissingDataError: the data are not where they were looked for; the message says where and what to do.
        CorruptFileError: a file cannot be read.
        TooLargeError: a file would take too much memory, see :mod:`contrastlab.pictures.limits`.
    """
    is_text = isinstance(name, str) and not NO_UTF8.search(name)
    errors.check(is_text, "name", name, "a text in UTF-8, see contrastlab.data.names()")
    errors.check(errors.is_integer(seed, 0) and seed < 2**32, "seed", seed, "an integer in [0, 2**32)")
    _check_size("n_train", n_train)
    _check_size("n_test", n_test)
    source = _source(name)
    if source is None:
        raise _unknown_set(name)
    errors.check_flag("skip_unreadable", skip_unreadable)
    is_own = name.partition(":")[0] in OWN
    errors.check(is_own or not skip_unreadable, "skip_unreadable", True, f"False with {name}, which is nobody's own")
    request = Request(name, data_root(root), download, n_train, n_test, seed, skip_unreadable)
    return _read(source, request).limited(n_train, n_test, seed)


def check_files(folder: str | Path) -> Iterator[tuple[str, str]]:
    """Each picture, sound and row of a parquet file below a folder, and why it cannot be read; empty where it can."""
    place = own_path("folder", folder)
    errors.check(place.is_dir(), "folder", str(place), "a folder")
    for domain in domains.rows():
        for check in domain.checks:
            yield from resolve_name(check)(place)


def _check_size(argument: str, size: int | None) -> None:
    is_size = size is None or errors.is_integer(size)
    errors.check(is_size, argument, size, "an integer of at least 1, or None for all")


def _unknown_set(name: str) -> errors.UnknownNameError:
    if Path(name).is_dir():
        return errors.unknown("data set", name, (f"folder:{name}", f"unlabelled:{name}", f"waves:{name}"))
    own = [f"{kind}:<path>" for kind in OWN]
    return domains.unknown("data set", name, (*names(), *own))


def _read(source: Source, request: Request) -> Splits:
    """What a source reads; an error of missing or damaged files names the data set and how to get it."""
    how = ""
    if source.get:
        get = source.get.replace("<root>", str(request.root))
        how = f" {get}, or set CONTRASTLAB_DATA (or root=) to the folder that has it."
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
        if not _is_of_files(error, source):
            raise
        where = "one of its files"
        if source.get:
            where = f"a file under {request.root / source.folder}"
        reason = f"{type(error).__name__}: {error}"  # repr of an OSError leaves out the path
        raise errors.CorruptFileError(f"{request.name}: {where} cannot be read: {reason}") from error


def _is_of_files(error: Exception, source: Source) -> bool:
    """Whether an error says that files are damaged, in words that do not name the data set."""
    is_named = isinstance(error, errors.ContrastLabError)
    if not source.get:
        return isinstance(error, OSError) and not is_named
    # what the files of a published set say is no argument of the user's
    return not is_named or isinstance(error, errors.ArgumentError)
