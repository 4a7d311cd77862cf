"""The n-th call that changes a file fails, n = 1, 2, …, as SQLite's tests do: an error that names a file, nothing lost.

Calls are counted below the folder of a cell: opening a file for writing, writing, flushing, syncing, moving, removing,
making a folder. One of them raises an error of input and output; all others work. The cell must end as an undisturbed
one, or stop with a ``StorageError`` that names a file of it; run again without a fault it must end as an undisturbed
one. Cells write a checkpoint after every step.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from torments import disk, kill
from torments.figures import Figures, Log

CASES = ("queue, linear", "bank, boxes", "sentences, similarity")
"""One cell of pictures, one dense one, one of text."""
ERRORS = (errno.EIO, errno.ENOSPC, errno.EACCES)
CALLS = ("replace", "rename", "unlink", "mkdir", "rmdir", "truncate", "link")
"""Functions of ``os`` whose first argument is the path that they change."""


class Faults:
    """In this process, call ``number`` that changes a file below ``place`` fails, from 1; 0 only counts."""

    def __init__(self, place: Path, number: int = 0) -> None:
        self.place, self.number, self.seen = str(place), number, [""]

    def call(self, kind: str, path: Any) -> None:
        """One call; raises where it is the one that fails."""
        if not isinstance(path, str | os.PathLike) or not os.path.abspath(path).startswith(self.place):
            return
        self.seen.append(kind)
        if len(self.seen) - 1 == self.number:
            error = ERRORS[self.number % len(ERRORS)]
            raise OSError(error, os.strerror(error), str(path))

    def watch(self) -> None:
        """Count from now on."""
        for name in CALLS:
            setattr(os, name, self._counted(name, getattr(os, name)))
        sync, open_file, open_number = os.fsync, builtins.open, os.open

        def fsync(number: int) -> None:
            self.call("fsync", os.readlink(f"/proc/self/fd/{number}"))
            sync(number)

        def opened(path: Any, mode: str = "r", *given: Any, **named: Any) -> Any:
            writes = bool(set("wax+") & set(mode))
            if writes:
                self.call("open", path)
            file = open_file(path, mode, *given, **named)
            return _Watched(file, path, self.call) if writes else file

        def opened_number(path: Any, flags: int, *given: Any, **named: Any) -> int:
            if flags & (os.O_WRONLY | os.O_RDWR):
                self.call("open", path)
            return open_number(path, flags, *given, **named)

        os.fsync, os.open = fsync, opened_number
        builtins.open = io.open = opened  # type: ignore[assignment]

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def counted(path: Any, *given: Any, **named: Any) -> Any:
            self.call(name, path)
            return function(path, *given, **named)

        return counted


class _Watched:
    """A file whose writes and flushes are counted."""

    def __init__(self, file: Any, path: Any, call: Callable[[str, Any], None]) -> None:
        self.file, self.path, self.call = file, path, call

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def write(self, content: Any) -> Any:
        """Counted."""
        self.call("write", self.path)
        return self.file.write(content)

    def flush(self) -> None:
        """Counted."""
        self.call("flush", self.path)
        self.file.flush()


def calls(name: str, place: Path, said: Path) -> list[str]:
    """Kinds of the calls of an undisturbed cell, in their order."""
    place.mkdir(parents=True)
    faults = Faults(place)

    def work() -> None:
        faults.watch()
        kill.compute(name, place, kill.Events())
        said.write_text("\n".join(faults.seen[1:]))

    if code := kill.forked(work):
        raise RuntimeError(f"{name} does not run while its calls are counted: exit code {code}")
    return said.read_text().split("\n")


def run(count: int, seed: int, folder: Path, log: Log, names: tuple[str, ...] = CASES) -> Figures:
    """Every call of every cell fails once; ``count`` bounds the calls of a cell, spread evenly, 0 is all.

    Args:
        count: of calls that fail, for each cell.
        seed: not used.
        folder: for runs.
        log: takes lines of progress.
        names: of :data:`torments.cells.CASES`.
    """
    figures = Figures()
    for k, name in enumerate(names):
        whole, _, _ = kill.undisturbed(name, folder / f"undisturbed-{k}")
        kinds = calls(name, folder / f"counted-{k}" / "out", folder / f"counted-{k}.txt")
        step = max(1.0, len(kinds) / (count or len(kinds)))
        for number in sorted({1 + int(step * i) for i in range(int(len(kinds) / step))}):
            place = folder / f"fault-{k}-{number}"
            place.mkdir(parents=True)
            faults = Faults(place, number)
            code = disk.asked(name, place, place.with_suffix(".txt"), lambda _: faults.watch())  # noqa: B023
            again = kill.forked(lambda: kill.compute(name, place, kill.Events()))  # noqa: B023
            what = f"{kinds[number - 1]} of {name}"
            disk.after(figures, what, f"call {number}", place, place.with_suffix(".txt"), code, whole, again)
        log(f"faults: {name}, {len(kinds)} calls, {figures.failed} failed")
    return figures
