"""A disk that is full, a folder that becomes read-only, a clock that jumps: an error that says so, and nothing lost.

*Full*: a small file system in memory, filled up to a random number of bytes below what a cell writes. The cell must end
with an error that names a file of it and leave nothing half-written; with room again it must end as an undisturbed one.
Only root may mount; others get a bound on the size of a file instead (``RLIMIT_FSIZE``), and the figures say so.
*Read-only*: the folder is bound to itself read-only (root) or loses its write permission at a random event of the cell.
*Clock*: every look at the time of day gives one up to a hundred days away from the true one, in either direction.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, tzinfo
from functools import cache
from pathlib import Path
from typing import Any

from contrastlab.support.errors import StorageError
from torments import kill
from torments.cells import content, difference
from torments.figures import Figures, Log

CASES = ("bank, clustered, linear by SGD", "queue, linear", "clips, action", "bank, boxes")
MEGABYTES = 20


@cache
def can_mount() -> bool:
    """Whether this process may mount file systems, found by trying: root of a container often may not."""
    if os.geteuid() != 0 or not sys.platform.startswith("linux"):
        return False
    with tempfile.TemporaryDirectory() as place:
        try:
            _mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", place)
        except (OSError, subprocess.CalledProcessError):
            return False
        subprocess.run(["umount", "-l", place], check=True)
    return True


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


@contextmanager
def small_disk(place: Path) -> Iterator[None]:
    """A file system of :data:`MEGABYTES` MB at ``place``."""
    place.mkdir(parents=True)
    _mount("-t", "tmpfs", "-o", f"size={MEGABYTES}m", "tmpfs", str(place))
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path, room: int) -> Path:
    """A file that leaves ``room`` bytes free."""
    free = shutil.disk_usage(place).free
    path = place / "filler"
    path.write_bytes(b"\0" * max(0, free - room))
    return path


def asked(name: str, place: Path, said: Path, before: Callable[[kill.Events], None]) -> int:
    """Compute a cell in a fork; exit code 3 and a line in ``said`` for a :class:`StorageError`."""

    def work() -> None:
        events = kill.Events()
        before(events)
        try:
            kill.compute(name, place, events)
        except StorageError as error:
            said.write_text(str(error))
            os._exit(3)

    return kill.forked(work)


def after(
    figures: Figures, what: str, name: str, place: Path, said: Path, code: int, whole: dict[str, Any], again: int
) -> None:
    """Count a try: refused by name and then identical, or identical at once; everything else failed."""
    wrong = f"exit code {again} with room" if again else difference(whole, content(place))
    if not wrong and code == 0:
        figures.count("identical", what)
        return
    line = said.read_text() if said.exists() else ""
    if not wrong and code != 3:
        wrong = f"exit code {code}"
    if not wrong and str(place) not in line:
        wrong = f"the error names no file: {line}"
    figures.count("failed" if wrong else "refused", what, f"{name}: {wrong}")


def full(name: str, place: Path, whole: dict[str, Any], draw: random.Random, figures: Figures) -> None:
    """One try on a disk that fills."""
    said = place.with_suffix(".txt")
    if not can_mount():
        _bounded(name, place, said, whole, draw, figures)
        return
    with small_disk(place):
        out = place / "out"
        out.mkdir()
        filler = fill(place, draw.randrange(1 << draw.randrange(12, 22)))
        code = asked(name, out, said, lambda events: None)
        torn = [path.name for path in out.rglob("*.tmp")]
        filler.unlink()
        again = kill.forked(lambda: kill.compute(name, out, kill.Events()))
        if torn:
            figures.count("failed", "full disk", f"{name}: left half-written: {torn}")
        else:
            after(figures, "full disk", name, out, said, code, whole, again)


def _bounded(name: str, place: Path, said: Path, whole: dict[str, Any], draw: random.Random, figures: Figures) -> None:
    bound = draw.randrange(1 << draw.randrange(10, 18))

    def limit(events: kill.Events) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (bound, bound))

    place.mkdir(parents=True)
    # the line of the error is shorter than any bound that a file of the cell meets
    code = asked(name, place, said, limit)
    again = kill.forked(lambda: kill.compute(name, place, kill.Events()))
    after(figures, "bounded files", name, place, said, code, whole, again)


def read_only(
    name: str, place: Path, whole: dict[str, Any], seen: Counter[str], draw: random.Random, figures: Figures
) -> None:
    """One try in a folder that becomes read-only at a random event."""
    place.mkdir(parents=True)
    said = place.with_suffix(".txt")
    phase = draw.choice([p for p in kill.PHASES if seen[p] and p != "collecting"])
    target = (phase, draw.randrange(seen[phase]))

    def before(events: kill.Events) -> None:
        count = events.event

        def event(*given: Any) -> None:
            if (events.phases[-1], events.seen[events.phases[-1]]) == target:
                _forbid(place)
            count(*given)

        events.event = event  # type: ignore[method-assign]

    try:
        code = asked(name, place, said, before)
    finally:
        _allow(place)
    again = kill.forked(lambda: kill.compute(name, place, kill.Events()))
    after(figures, "read-only folder", name, place, said, code, whole, again)


def _forbid(place: Path) -> None:
    if can_mount():
        _mount("--bind", str(place), str(place))
        _mount("-o", "remount,bind,ro", str(place))
    else:
        for folder in (place, *(path for path in place.rglob("*") if path.is_dir())):
            folder.chmod(stat.S_IRUSR | stat.S_IXUSR)


def _allow(place: Path) -> None:
    if can_mount():
        # a folder that is bound to itself is on the device it was on, so os.path.ismount sees nothing
        while f" {place} " in Path("/proc/self/mounts").read_text():
            subprocess.run(["umount", "-l", str(place)], check=True)
    else:
        for folder in (place, *(path for path in place.rglob("*") if path.is_dir())):
            folder.chmod(stat.S_IRWXU)


def clock(name: str, place: Path, whole: dict[str, Any], draw: random.Random, figures: Figures) -> None:
    """One try with a clock that jumps, killed on the way and resumed under it."""
    seed = draw.randrange(2**31)

    def jumping(events: kill.Events) -> None:
        jump(random.Random(seed))

    said = place.with_suffix(".txt")
    stop = draw.uniform(0.3, 1.5)

    def work() -> None:
        jump(random.Random(seed + 1))
        kill.compute(name, place, kill.Events())

    kill.forked(work, stop)
    code = asked(name, place, said, jumping)
    wrong = f"exit code {code}" if code else difference(whole, content(place))
    figures.count("failed" if wrong else "identical", "jumping clock", f"{name}: {wrong}")


def jump(draw: random.Random) -> None:
    """In this process, every look at the time of day is up to a hundred days wrong."""
    true = time.time
    days = 100 * 24 * 3600.0

    class Jumping(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(seconds=draw.uniform(-days, days))

    time.time = lambda: true() + draw.uniform(-days, days)  # type: ignore[assignment]
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("contrastlab") and getattr(module, "datetime", None) is datetime:
            module.datetime = Jumping  # type: ignore[attr-defined]


def run(count: int, seed: int, folder: Path, log: Log) -> Figures:
    """``count`` tries, in turn on a full disk, in a read-only folder and with a jumping clock.

    Args:
        count: of tries.
        seed: of the draws.
        folder: for runs and file systems.
        log: takes lines of progress.
    """
    figures, draw = Figures(), random.Random(seed)
    known: dict[str, tuple[dict[str, Any], Counter[str], float]] = {}
    if not can_mount():
        figures.skipped.append(
            "no file system that fills: only root can mount one; sizes of files were bounded instead"
        )
    for number in range(count):
        name = CASES[(number // 3) % len(CASES)]
        if name not in known:
            known[name] = kill.undisturbed(name, folder / f"undisturbed-{len(known)}")
        whole, seen, _ = known[name]
        place = folder / f"try-{number}"
        if number % 3 == 0:
            full(name, place, whole, draw, figures)
        elif number % 3 == 1:
            read_only(name, place, whole, seen, draw, figures)
        else:
            clock(name, place, whole, draw, figures)
        log(f"disk: {number + 1}/{count}, {figures.failed} failed")
    return figures
