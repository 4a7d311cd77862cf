"""SIGKILL at random instants of a cell; resumed, it must end as if nobody had killed it.

Instants are chosen in two ways, in turn. *Counted*: every cell is run once undisturbed while its events are counted:
calls of a network, steps, clusterings, and of each written file the first half of its bytes, the moment before it is
synced, before it is moved into place, and after. Each event belongs to the phase in force. A try takes the phase that
was hit least, draws one of its events, and kills there; every second of these only after a random delay of up to five
milliseconds, which falls between events. *By the clock*: the parent kills after a random part of the time that the
undisturbed cell took.

Half of the tries kill a second time while the cell is being resumed. Every process is forked from one that has imported
all and computed nothing, so a start costs milliseconds. Checkpoints are written after every step.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import torch

from contrastlab import data, papers, tables
from contrastlab.domains.detection import task as training
from contrastlab.keys import BankState
from contrastlab.pictures import fitting
from contrastlab.support import files
from contrastlab.tables import report, results
from contrastlab.tables import runs as runs_module
from contrastlab.tasks import TASKS
from contrastlab.train import checkpoint, loop
from torments.cells import CASES, content, difference, job, where
from torments.figures import Figures, Log

PHASES = ("loading", "training", "saving", "clustering", "probing", "fine-tuning", "storing", "collecting")


class Events:
    """Counts events by phase, and at one of them kills this process.

    Args:
        target: phase and number of the event to be killed at, from 0; ``None`` only counts.
        delay: seconds after that event.
    """

    def __init__(self, target: tuple[str, int] | None = None, delay: float = 0.0) -> None:
        self.target, self.delay = target, delay
        self.seen: Counter[str] = Counter()
        self.phases = ["starting"]

    def event(self, *_: Any) -> None:
        """One event of the phase in force."""
        phase = self.phases[-1]
        if self.target == (phase, self.seen[phase]):
            if self.delay:
                threading.Thread(target=self._later, daemon=True).start()
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        self.seen[phase] += 1

    def _later(self) -> None:
        time.sleep(self.delay)
        os.kill(os.getpid(), signal.SIGKILL)

    def during(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, whose events are of ``phase``, its call being the first."""

        @wraps(function)
        def watched(*given: Any, **named: Any) -> Any:
            self.phases.append(phase)
            self.event()
            try:
                return function(*given, **named)
            finally:
                self.phases.pop()

        return watched

    def watch(self) -> None:
        """Count in this process from now on."""
        files._temporary = self._halved(files._temporary)  # type: ignore[assignment]
        os.fsync = self._before(os.fsync)
        os.replace = self._around(os.replace)
        torch.nn.modules.module.register_module_forward_pre_hook(self.event)
        for place, name, phase in (
            (data, "load", "loading"),
            (runs_module, "pretrain", "training"),
            (checkpoint, "save", "saving"),
            (BankState, "cluster", "clustering"),
            (runs_module.Run, "store", "storing"),
            (results, "save", "storing"),
            (training, "store", "storing"),
            (results, "find", "collecting"),
        ):
            setattr(place, name, self.during(phase, getattr(place, name)))
        for kind in set(TASKS.values()):
            phase = "fine-tuning" if kind.name in ("action", "boxes", "masks", "keypoints") else "probing"
            kind.score = self.during(phase, kind.score)  # type: ignore[method-assign]

    def _before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*given: Any) -> Any:
            self.event()
            return function(*given)

        return watched

    def _around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*given: Any) -> Any:
            self.event()
            done = function(*given)
            self.event()
            return done

        return watched

    def _halved(self, make: Callable[..., Any]) -> Callable[..., Any]:
        return lambda path: _Halves(make(path), self.event)


class _Halves:
    """A file whose content is written in two parts, with an event between them."""

    def __init__(self, file: Any, event: Callable[[], None]) -> None:
        self.file, self.event = file, event

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def write(self, content: bytes) -> None:
        """The first half, an event, the second half."""
        self.file.write(content[: len(content) // 2])
        self.file.flush()
        self.event()
        self.file.write(content[len(content) // 2 :])


def compute(name: str, folder: Path, events: Events) -> None:
    """A cell from start to report, with a checkpoint after every step."""
    torch.set_num_threads(1)
    events.watch()
    step = loop.pretrain

    def often(*given: Any, **named: Any) -> Any:
        return step(*given, **named, checkpoint_every=-1.0)

    runs_module.pretrain = events.during("training", often)
    fitting.SAVE_EVERY_S = -1.0
    each = job(name)
    tables.run(each, where(folder), log=lambda line: None)
    found = results.find(folder)
    plan = papers.plan(*CASES[name].table)
    if each.data in plan.columns:  # a column made for a case is in no printed table
        report.table(plan, found, each.data, "smoke")


def forked(work: Callable[[], None], stop_after: float | None = None) -> int:
    """Run ``work`` in a fork of this process; its exit code, or minus the signal that ended it.

    Args:
        work: whose exceptions go to standard error and give the code 1.
        stop_after: seconds until it is killed.
    """
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    if stop_after is not None:
        timer = threading.Timer(stop_after, os.kill, (child, signal.SIGKILL))
        timer.start()
        _, status = os.waitpid(child, 0)
        timer.cancel()
    else:
        _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def undisturbed(name: str, folder: Path) -> tuple[dict[str, Any], Counter[str], float]:
    """What a cell leaves that nobody kills, its events by phase, and its seconds."""
    events, said = Events(), folder / "events.txt"
    folder.mkdir(parents=True)

    def work() -> None:
        compute(name, folder / "out", events)
        said.write_text(json.dumps(events.seen))

    began = time.monotonic()
    if (code := forked(work)) != 0:
        raise RuntimeError(f"{name} does not run undisturbed: exit code {code}")
    return content(folder / "out"), Counter(json.loads(said.read_text())), time.monotonic() - began


def instant(seen: Counter[str], seconds: float, number: int, draw: random.Random, phase: str = "") -> dict[str, Any]:
    """The instant of a kill: an event, an event and a delay, or a time; ``phase`` is drawn where it is empty."""
    if number % 3 == 2:
        return {"stop_after": draw.uniform(0, seconds)}
    phase = phase or draw.choice([p for p in PHASES if seen[p]])
    return {"target": (phase, draw.randrange(seen[phase])), "delay": draw.uniform(0, 0.005) if number % 3 else 0.0}


def killed(name: str, folder: Path, when: dict[str, Any]) -> int:
    """Compute a cell and kill it; the exit code, 0 where it ended before."""
    events = Events(when.get("target"), when.get("delay", 0.0))
    return forked(lambda: compute(name, folder, events), when.get("stop_after"))


def run(count: int, seed: int, folder: Path, log: Log, names: tuple[str, ...] = ()) -> Figures:
    """``count`` killed cells, spread over kinds of cells and phases.

    Args:
        count: of cells that were killed; a cell that ended before its instant is drawn anew.
        seed: of the draws.
        folder: for runs.
        log: takes lines of progress.
        names: of :data:`torments.cells.CASES`; empty: all.
    """
    figures, draw = Figures(), random.Random(seed)
    names = names or tuple(CASES)
    known: dict[str, tuple[dict[str, Any], Counter[str], float]] = {}
    hit: Counter[str] = Counter()
    number = 0
    while figures.tried < count:
        name = names[number % len(names)]
        if name not in known:
            known[name] = undisturbed(name, folder / f"undisturbed-{len(known)}")
        whole, seen, seconds = known[name]
        place = folder / f"killed-{number}"
        rarest = min((p for p in PHASES if seen[p]), key=lambda p: (hit[p], draw.random()))
        when = instant(seen, seconds, number, draw, rarest)
        code = killed(name, place, when)
        number += 1
        if code not in (0, -signal.SIGKILL):
            figures.count("failed", name, f"{when}: exit code {code}")
            continue
        if code == 0:
            continue
        phase = when["target"][0] if "target" in when else "by the clock"
        hit[phase] += 1
        if number % 2:
            killed(name, place, instant(seen, seconds, draw.randrange(3), draw))
        code = forked(lambda: compute(name, place, Events()))  # noqa: B023
        wrong = f"exit code {code} when resumed" if code else difference(whole, content(place))
        figures.count("failed" if wrong else "identical", phase, f"{name}, {when}: {wrong}")
        if not wrong:
            shutil.rmtree(place)
        log(f"kill: {figures.tried}/{count}, {name}, {phase}: {wrong or 'identical'}")
    return figures
