"""Files of a folder that a user gives: all of them, or an error; never those that happened to be readable."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import NoReturn


def files_below(folder: Path, suffixes: Collection[str]) -> list[Path]:
    """Files anywhere below a folder, links followed, whose ending in lower case is one of ``suffixes``; sorted.

    Names that begin with a dot are left out, and a folder that a link leads back to.

    Raises:
        OSError: a folder that may not be listed.
    """
    named: list[Path] = []
    seen = set()
    for parent, subfolders, names in os.walk(folder, onerror=_raise, followlinks=True):
        place = os.path.realpath(parent)
        if place in seen:
            subfolders.clear()
            continue
        seen.add(place)
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        chosen = (n for n in names if os.path.splitext(n)[1].lower() in suffixes and not n.startswith("."))
        named += [Path(parent, name) for name in sorted(chosen)]
    return named


def _raise(error: OSError) -> NoReturn:
    # os.walk leaves out a folder that it cannot list unless it is told otherwise
    raise error
