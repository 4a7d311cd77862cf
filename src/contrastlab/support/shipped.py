"""What travels with the package: stored results and notebooks, in the root of a checkout, packed in a wheel."""

from __future__ import annotations

import json
import lzma
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from contrastlab.support import checksums
from contrastlab.support.errors import CorruptFileError, check_name

ARCHIVE = "cells.json.xz"
"""Name of the file that holds the results of a folder in a wheel: its path to the content of each, as JSON."""

_PACKAGE = Path(__file__).parents[1]


def folder(name: Literal["results", "nbs"]) -> Path:
    """Where the installed package, or the checkout that it is imported from, keeps its results or notebooks."""
    packed = _PACKAGE / "_shipped" / name
    if packed.is_dir():
        return packed
    return _PACKAGE.parents[1] / name


RESULTS: tuple[Path, ...] = (Path("results"), folder("results"))
"""Folders of results that are kept: that of the project one works in, and the package's own."""


def pack(root: Path) -> bytes:
    """All results under ``root`` as the content of :data:`ARCHIVE`, but for which test items were right.

    That is most of their size, and no table needs it. What was altered stays as it is, so that a reader refuses it.
    """
    every = {}
    for path in sorted(root.glob("cells/*/*/*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        with suppress(ValueError):
            record = _without_correct(record)
        every[path.relative_to(root).as_posix()] = record
    text = json.dumps(every, ensure_ascii=False, separators=(",", ":"))
    return lzma.compress(text.encode())


def _without_correct(record: dict[str, Any]) -> dict[str, Any]:
    """A result without which test items were right; a ``ValueError`` if it was altered."""
    light = {**checksums.verified(record), "correct": {}}
    if checksums.CHECKSUM in record:
        return checksums.with_checksum(light)
    return light


def records(archive: Path) -> dict[str, Any]:
    """Path to the content of each result that :func:`pack` was given; not to be changed."""
    return _records(archive, archive.stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _records(archive: Path, _: int) -> dict[str, Any]:
    try:
        return dict(json.loads(lzma.decompress(archive.read_bytes())))
    except (OSError, EOFError, ValueError, TypeError, lzma.LZMAError) as error:
        raise CorruptFileError(f"{archive} cannot be read: {error!r}. Install the package again.") from error


def notebooks() -> tuple[str, ...]:
    """Names of the notebooks, such as ``repro_table1``."""
    return tuple(sorted(path.stem for path in folder("nbs").glob("*.ipynb")))


def notebook(name: str) -> dict[str, Any]:
    """A notebook as its JSON, without outputs, counts and times of a run."""
    check_name("notebook", name, notebooks())
    path = folder("nbs") / f"{name}.ipynb"
    try:
        return without_outputs(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptFileError(f"{path} is not a notebook: {error!r}. Install the package again.") from error


def without_outputs(document: dict[str, Any]) -> dict[str, Any]:
    """The JSON of a notebook with what a run leaves in its cells taken out; the argument stays as it is."""
    cells = []
    for cell in document["cells"]:
        metadata = {key: value for key, value in cell["metadata"].items() if key != "execution"}
        cell = {**cell, "metadata": metadata}
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
        cells.append(cell)
    return {**document, "cells": cells}
