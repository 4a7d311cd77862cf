"""What a person sees of a run, and how one stops it."""

from __future__ import annotations

import math
import multiprocessing
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from contrastlab import files

SILENCE = 10.0
"""Seconds between lines of progress at least; epochs may be shorter."""

TWICE = 2.0
"""Seconds in which a second signal is the first one again: a launcher passes on what the whole group was sent."""

PATIENCE = 60.0
"""Seconds without a line after which one is written in the middle of an epoch, where there is no bar."""

History = list[dict[str, float]]


def bottleneck(waiting: float, seconds: float) -> str:
    """``"data-bound 63 %"`` where steps spent most of their time waiting for data, else ``"compute-bound"``.

    The host measures the wait. On a CPU it is the time that faster data would save. A GPU may work through the steps
    it was handed while the host waits, so there it is the most that faster data would save.

    Args:
        waiting: seconds from asking for a batch to having it.
        seconds: of the steps, that wait included.
    """
    share = waiting / seconds if seconds > 0 else 0.0
    return f"data-bound {100 * share:.0f} %" if share > 0.5 else "compute-bound"


def last(history: History, name: str) -> str:
    """The newest value of an accuracy, for a line of progress."""
    values = [row[name] for row in history if name in row]
    return f"{values[-1]:.1f}%" if values else "–"


class Journal:
    """A run's rows as CSV and TensorBoard files, and as a line now and then.

    Args:
        name: of the run, for its lines.
        folder: for the files; ``None`` writes none.
        history: rows of earlier sittings, written again.
        step: of the run so far.
        log: takes lines.
    """

    def __init__(self, name: str, folder: Path | None, history: History, step: int, log: Any) -> None:
        self.name, self.log, self.said = name, log, time.monotonic()
        self.loggers: list[Any] = []
        if folder is not None:
            from lightning_fabric.loggers.tensorboard import TensorBoardLogger

            files.make_folder(folder)
            (folder / "metrics.csv").unlink(missing_ok=True)
            self.loggers = [
                _csv(folder), TensorBoardLogger(folder, name="", version="tensorboard", purge_step=step + 1),
            ]  # fmt: skip
        for row in history:
            for logger in self.loggers[:1]:
                logger.log_metrics({k: v for k, v in row.items() if k != "step"}, step=int(row["step"]))

    def write(self, history: History, epochs: int, bound_by: str) -> None:
        """The newest row into the files, and a line if it is the last one or none was written for a while."""
        row = history[-1]
        for logger in self.loggers:
            logger.log_metrics({k: v for k, v in row.items() if k != "step"}, step=int(row["step"]))
        epoch = int(row["epoch"])
        if epoch == epochs or self.silent(SILENCE):
            left = row["seconds"] / epoch * (epochs - epoch)
            self.say(f"epoch {epoch}/{epochs}", row["loss"], history, row["images_per_s"], bound_by, left)

    def silent(self, seconds: float) -> bool:
        """Whether there was no line for so long."""
        return time.monotonic() - self.said >= seconds

    def say(self, place: str, loss: float, history: History, speed: float, bound_by: str, left: float) -> None:
        """A line of progress.

        Args:
            place: of the run, such as ``"epoch 1/4 step 60/390"``.
            loss: mean so far of the epoch, in nats.
            history: rows of the epochs before.
            speed: images per second.
            bound_by: see :func:`bottleneck`.
            left: estimated seconds to the end.
        """
        self.said = time.monotonic()
        self.log(
            f"[{self.name}] {place} loss {loss:.3f} 1-NN {last(history, 'nn1')}"
            f" {speed:.0f} img/s {bound_by}, eta {int(left // 60)}:{int(left % 60):02d}"
        )

    def close(self) -> None:
        """The files are whole."""
        for logger in self.loggers:
            logger.finalize("success")


def bar(name: str, epoch: int, epochs: int, done: int, steps: int, *, quiet: bool) -> Any:
    """A bar over the steps of an epoch (from 0), in the terminal of a process that shares it with no other run."""
    shared = multiprocessing.parent_process() is not None  # with the one that shows a line for each worker
    return tqdm(
        total=steps, initial=done, desc=f"{name} epoch {epoch + 1}/{epochs}", leave=False, unit="step",
        disable=quiet or shared or not sys.stderr.isatty(),
    )  # fmt: skip


def _csv(folder: Path) -> Any:
    from lightning_fabric.loggers.csv_logs import CSVLogger

    # It warns that it will start its file anew, which is what is wanted: the history is written again.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        logger = CSVLogger(folder, name="", version="", flush_logs_every_n_steps=1)
        _ = logger.experiment
    return logger


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C, or SIGTERM, sets; a later one interrupts at once, see :data:`TWICE`."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    asked_by = (signal.SIGINT, signal.SIGTERM)
    old = [signal.getsignal(number) for number in asked_by]

    first = math.inf

    def ask(number: int, frame: Any) -> None:
        nonlocal first
        now = time.monotonic()
        if now - first > TWICE:
            # not the old handler: a shell starts background jobs with SIGINT ignored
            signal.default_int_handler(number, frame)
        first = min(first, now)
        stop.set()

    for number in asked_by:
        signal.signal(number, ask)
    try:
        yield stop
    finally:
        for number, before in zip(asked_by, old, strict=True):
            signal.signal(number, signal.SIG_DFL if before is None else before)
