"""Where files may lie, which files a folder has, and what is in a file of words."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NoReturn

from contrastlab.support import cache
from contrastlab.support.errors import check, reject
from contrastlab.support.files import check_regular

_ROOTS = r"|\\|^[A-Za-z]:" if os.name == "nt" else ""  # of Windows
_OUTSIDE = re.compile(r"(^|/)\.\.(/|$)|^/|\0" + _ROOTS)
NO_UTF8 = re.compile("[\ud800-\udfff]")  # how Python shows the bytes of a name that are no UTF-8


def check_inside(argument: str, paths: Iterable[str]) -> None:
    """Refuse a path that leads out of the folder it is relative to, or that is no UTF-8."""
    for path in paths:
        inside = not _OUTSIDE.search(path)
        check(inside, argument, path, "a path inside the folder of the data, without a root or '..'")
        check(not NO_UTF8.search(path), argument, path, "a file name in UTF-8; rename the file")


def files_below(folder: Path, suffixes: Collection[str]) -> list[Path]:
    """Files anywhere below a folder, links followed, whose ending in lower case is one of ``suffixes``; sorted.

    Names that begin with a dot are left out, and a folder that a link leads back to. A folder that may not be listed
    is an ``OSError``: all files of a folder are read, never those that happen to be readable.
    """
    paths = [path for path in _every_file(folder) if path.suffix.lower() in suffixes]
    for path in paths:
        check_regular(path)
    return paths


def other_files(folder: Path, suffixes: Collection[str]) -> Counter[str]:
    """How many files below a folder have which other ending, in lower case; those without one are called files."""
    counts: Counter[str] = Counter()
    for path in _every_file(folder):
        suffix = path.suffix.lower()
        if suffix not in suffixes:
            counts[suffix or "files"] += 1
    return counts


def _every_file(folder: Path) -> list[Path]:
    """Files anywhere below a folder, as :func:`files_below` walks."""

    def refuse(error: OSError) -> NoReturn:
        raise error  # os.walk would leave out a folder that it cannot list

    paths: list[Path] = []
    seen = set()
    for parent, subfolders, names in os.walk(folder, onerror=refuse, followlinks=True):
        place = os.path.realpath(parent)
        if place in seen:
            subfolders.clear()
            continue
        seen.add(place)
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        paths += [Path(parent, name) for name in sorted(names) if not name.startswith(".")]
    return paths


def matching(folder: Path, pattern: str) -> list[Path]:
    """Files of a folder that match a ``glob`` pattern, sorted; raises ``FileNotFoundError`` if there are none."""
    paths = sorted(folder.glob(pattern))
    if not paths:
        raise FileNotFoundError(2, "no file", str(folder / pattern))
    return paths


def lines_of_words(path: Path) -> list[list[str]]:
    """The words of each line of a text file that is not blank."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.split() for line in lines if line.strip()]


def own_path(argument: str, path: str | Path) -> Path:
    """A path that the user gives, ``~`` taken for a home folder; it may lead anywhere."""
    check("\0" not in str(path), argument, str(path), "a path without a zero byte")
    check(str(path), argument, "", "a path; . is the working folder")
    try:
        expanded = Path(path).expanduser()
        expanded.resolve()
    except RuntimeError as error:  # no such home, or links in a circle
        raise reject(argument, str(path), f"a path ({error})") from error
    check_regular(expanded)
    return expanded


def cache_folder() -> Path:
    """``contrastlab`` in the user's cache folder, see :func:`contrastlab.support.cache.root`."""
    return own_path("XDG_CACHE_HOME", cache.root()) / "contrastlab"


def data_root(root: str | Path | None = None) -> Path:
    """Where published sets are looked for: ``root``, else ``CONTRASTLAB_DATA``, else a folder in the user's cache."""
    if root is None:
        root = os.environ.get("CONTRASTLAB_DATA") or cache_folder()
    return own_path("data root", root)
