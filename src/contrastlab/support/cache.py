"""What can be computed again, kept between processes in files of the user's cache folder: speed, and never evidence."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from contrastlab.support.checksums import verified, with_checksum
from contrastlab.support.errors import ContrastLabError
from contrastlab.support.files import DAMAGED, write_whole

_PACKAGE = Path(__file__).parents[1]


def root() -> Path:
    """``XDG_CACHE_HOME``, by default ``~/.cache``; of a user without a home ``.cache`` in the working folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache").removeprefix("~/"))


@cache
def code() -> str:
    """SHA-256 of the files of this package, and of those that add data sets to it: 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for root in [_PACKAGE, *_folders_of_data_packages()]:
        for folder, inner, files in os.walk(root):
            inner[:] = sorted(set(inner) - {"__pycache__", "_shipped"})
            for name in sorted(files):
                if name.endswith((".py", ".toml", ".csv")):
                    digest.update(f"{folder}/{name}\n".encode() + Path(folder, name).read_bytes())
    return digest.hexdigest()


def _folders_of_data_packages() -> list[Path]:
    """The folders of the packages that add data sets, sorted by the packages' names."""
    names = {point.module.partition(".")[0] for point in entry_points(group="contrastlab.data")}
    folders = []
    for name in sorted(names):
        spec = find_spec(name)
        if spec is not None:
            folders += [Path(place) for place in spec.submodule_search_locations or ()]
    return folders


class Cache:
    """Plain values by name in one file, which is empty to code that has changed since, and if it is damaged.

    Each ``name``, and each copy of the package, has a file of its own. Of processes that save at once the last wins.
    """

    def __init__(self, name: str) -> None:
        self._name = hashlib.sha256(f"{_PACKAGE}\n{name}".encode()).hexdigest()[:16]
        self._values: dict[str, Any] | None = None
        self._changed = False

    @property
    def path(self) -> Path:
        """The file: below :func:`root`."""
        return root() / "contrastlab" / ".kept" / f"{self._name}.json"

    def _read(self) -> dict[str, Any]:
        if not self.path.is_file():
            return {}
        with suppress(*DAMAGED):
            stored = verified(json.loads(self.path.read_text(encoding="utf-8")))
            if stored["code"] == code():
                return dict(stored["values"])
        return {}

    def get(self, key: str) -> Any:
        """The value, or ``None``."""
        if self._values is None:
            self._values = self._read()
        return self._values.get(key)

    def put(self, key: str, value: Any) -> None:
        """Keep a value of JSON, from :meth:`save` on for other processes."""
        if self.get(key) != value and self._values is not None:
            self._values[key] = value
            self._changed = True

    def save(self) -> None:
        """Write what was put."""
        if self._changed:
            with suppress(ContrastLabError, OSError):
                write_whole(self.path, json.dumps(with_checksum({"code": code(), "values": self._values})))
            self._changed = False
