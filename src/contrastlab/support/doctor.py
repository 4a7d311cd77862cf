"""What this installation has: the first page of a bug report."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, metadata, version
from itertools import chain
from pathlib import Path
from typing import Any

import contrastlab.support.lab  # noqa: F401

import torch
from packaging.requirements import Requirement

from contrastlab import data
from contrastlab.support import escape
from contrastlab.support.errors import ContrastLabError, CorruptFileError, MissingDataError
from contrastlab.support.paths import own_path
from contrastlab.support.provenance import provenance
from contrastlab.train.schedule import precision


def facts(
    out_dir: Path | str, data_root: str | Path | None = None, *, read_data: bool = False
) -> Iterator[tuple[str, str]]:
    """Names and values of the installation; with ``read_data``, which takes minutes, also of each data set."""
    yield from _installation()
    yield from _extras()
    yield _folder(own_path("out", out_dir))
    yield _data_root(data_root)
    if read_data:
        yield from _data_sets(data_root)


def lines(out_dir: Path | str, data_root: str | Path | None = None, *, read_data: bool = False) -> Iterator[str]:
    """The :func:`facts` as lines of a name and a value; that of a data set comes as soon as it was read."""
    first = list(facts(out_dir, data_root))
    names = [name for name, _ in first]
    sets: Iterable[tuple[str, str]] = ()
    if read_data:
        names += [f"data {dataset}" for dataset in data.names()]
        sets = _data_sets(data_root)
    else:
        first.append(("", "--data reads every data set and says how to get those that are missing"))
    wide = max(map(len, names))
    for name, value in chain(first, sets):
        yield f"{name:{wide}s}  {escape.line(value)}"


def unreadable(folder: Path | str) -> Iterator[str]:
    """A line for each file below a folder that cannot be read as what its name says, then how many were read.

    Read are pictures, sounds and the images of parquet files. A ``CorruptFileError`` at the end says how many cannot be
    read, if any, and a ``MissingDataError`` that there is none.
    """
    count = 0
    refused = 0
    for name, reason in data.check_files(folder):
        count += 1
        if not reason:
            continue
        refused += 1
        if name not in reason:
            reason = f"{name}: {reason}"
        yield escape.line(reason)
    if refused:
        advice = "contrastlab run --skip-unreadable leaves them out"
        raise CorruptFileError(f"{folder}: {refused} of {count} files and rows cannot be read; {advice}")
    if not count:
        raise MissingDataError(f"{folder}: no picture, sound or parquet file is below it")
    yield f"{folder}: {count} files and rows, all can be read"


def _installation() -> Iterator[tuple[str, str]]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    about = provenance(device)
    yield "contrastlab", f"{about['package']}, {_origin(about)}"
    yield from about["versions"].items()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    yield "system", f"{platform.platform()}, {memory:.1f} GiB of memory"
    yield "processor", f"{about['cpu']}, {about['cores']} cores, torch on {about['threads']} threads"
    yield "instructions", torch.backends.cpu.get_cpu_capability()
    device = "cpu"
    if about["gpu"]:
        device = f"{about['gpu']}, CUDA {about['cuda']}, driver {about['driver']}"
    yield "device", device
    yield "precision auto", precision("auto")


def _origin(about: Mapping[str, Any]) -> str:
    """Which commit the package is of; ``installed`` where there is no checkout."""
    if not about["git_commit"]:
        return "installed"
    origin = f"commit {about['git_commit'][:9]}"
    if about["git_dirty"]:
        origin += ", with changes that are not committed"
    return origin


def _extras() -> Iterator[tuple[str, str]]:
    try:
        about = metadata("contrastlab")
    except PackageNotFoundError:
        return
    needs = [Requirement(text) for text in about.get_all("Requires-Dist", [])]
    for extra in sorted(about.get_all("Provides-Extra", [])):
        of_extra = [need for need in needs if f'extra == "{extra}"' in str(need.marker)]
        missing = ", ".join(need.name for need in of_extra if not _installed(need))
        state = "installed"
        if missing:
            state = f"missing {missing}: pip install 'contrastlab[{extra}]'"
        yield f"extra {extra}", state


def _installed(need: Requirement) -> bool:
    try:
        return need.specifier.contains(version(need.name), prereleases=True)
    except PackageNotFoundError:
        return False


def _folder(out_dir: Path) -> tuple[str, str]:
    """Where results go, whether they can be written there, and how much space is left."""
    folder = out_dir.resolve()
    above = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(above).free / 2**30
    permission = "can be written"
    if not os.access(above, os.W_OK):
        permission = f"cannot be written: no permission for {above}"
    return "results", f"{folder}, {permission}, {free:.1f} GiB free"


def _data_root(root: str | Path | None) -> tuple[str, str]:
    """Where data sets are looked for, who said so, and what lies there."""
    folder = data.data_root(root)
    origin = "default"
    if root is not None:
        origin = "given"
    elif os.environ.get("CONTRASTLAB_DATA"):
        origin = "CONTRASTLAB_DATA"
    names = []
    if folder.is_dir():
        names = sorted(path.name for path in folder.iterdir())
    content = ", ".join(names) or "empty or not there"
    return "data root", f"{folder} ({origin}), {content}"


def _data_sets(root: str | Path | None) -> Iterator[tuple[str, str]]:
    for dataset in data.names():
        yield f"data {dataset}", _read(dataset, root)


def _read(dataset: str, root: str | Path | None) -> str:
    try:
        items = data.load(dataset, root, download=False).pretrain
    except MissingDataError as error:
        return f"missing: {error}"
    except ContrastLabError as error:
        return f"refused: {error}"
    return f"{len(items)} items to train on"
