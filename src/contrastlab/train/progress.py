"""What a person sees of a run, and how one stops it."""

from __future__ import annotations

import csv
import io
import math
import multiprocessing
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tqdm.auto import tqdm

from contrastlab.support import files
from contrastlab.support.errors import StorageError

if TYPE_CHECKING:
    from contrastlab.train.loop import _Loop

LINE_EVERY_S = 10.0  # between the lines of epochs at least
LINE_WITHIN_S = 60.0  # without a line in the middle of an epoch at most, where there is no bar
LABEL_FREE = {"mi_bound": "bound", "alignment": "alignment", "uniformity": "uniformity", "effective_rank": "rank"}
SAME_SIGNAL_S = 2.0  # in which a second signal is the first: a launcher passes on what the whole group was sent


def bottleneck(waiting: float) -> str:
    """``"data-bound 63 %"`` where steps spent most of their time waiting for data, else ``"compute-bound"``.

    ``waiting`` is the percentage of the steps' time between asking for a batch and having it. On a CPU faster data
    would save that time; on a GPU, which may work on while the host waits, they would save at most that.
    """
    return f"data-bound {waiting:.0f} %" if waiting > 50 else "compute-bound"


class Journal:
    """Listens to a run: its rows as CSV and TensorBoard files, a bar in a terminal, and a line now and then."""

    def __init__(self, loop: _Loop) -> None:
        self.loop, self.folder = loop, loop.file.parent if loop.file and loop.rank == 0 else None
        self.last_line, self.bar, self.board = time.monotonic(), cast(Any, None), cast(Any, None)

    def after_step(self) -> None:
        """Move the bar; where there is none, write a line if there was none for long."""
        loop = self.loop
        self.bar = self.bar or bar(loop)
        if loop.reads and (not self.bar.disable or (loop.step % loop.steps and self._silent(LINE_WITHIN_S))):
            loss, count = loop.sums.tolist()
            passed = loop.seconds - loop.since
            speed = (loop.step - loop.first) * loop.settings.batch_size / max(passed, 1e-9)
            bound_by = bottleneck(loop.waiting)
            self.bar.set_postfix(loss=f"{loss / count:.3f}", nn1=self._accuracy(), img_s=f"{speed:.0f}", bound=bound_by)
            if self.bar.disable:
                step = f"step {loop.step - loop.epoch * loop.steps}/{loop.steps}"
                self._say(f"{loop.epoch + 1}/{loop.settings.epochs} {step}", loss / count, speed, bound_by)
        self.bar.update()

    def after_epoch(self) -> None:
        """Write the newest row into the files, and a line if it is the last one or none was written for a while."""
        self._close_bar()
        loop, row, epochs = self.loop, self.loop.history[-1], self.loop.settings.epochs
        if self.folder is not None:
            files.write_whole(self.folder / "metrics.csv", table(loop.history))
            name = re.sub(r"[^\w.-]+", "-", f"{loop.name} {getattr(loop.source, 'name', '')}")  # TensorBoard shows it
            self._write_board(self.folder / "tensorboard" / name[:100], row)
        if loop.epoch == epochs or self._silent(LINE_EVERY_S):
            speed, bound_by = row["images_per_s"], bottleneck(row["waiting"])
            self._say(f"{loop.epoch}/{epochs}", row["loss"], speed, bound_by, row)

    def _write_board(self, folder: Path, row: dict[str, float]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        step = int(row["step"])
        if self.board is not None and not folder.is_dir():
            self.board = None  # whose thread would write into it
            raise StorageError(f"{folder} was removed while the run wrote there; run again to continue")
        try:  # what a killed run wrote of steps that are taken again is purged
            self.board = self.board or SummaryWriter(folder, purge_step=step)
            for name in row.keys() - {"step"}:
                self.board.add_scalar(name, row[name], step)
            self.board.flush()
        except OSError as error:
            raise StorageError(f"cannot write {folder}: {error.strerror or error}") from error

    def _silent(self, seconds: float) -> bool:
        return time.monotonic() - self.last_line >= seconds

    def _accuracy(self) -> str:
        values = [row["nn1"] for row in self.loop.history if "nn1" in row]
        return f"{values[-1]:.1f}%" if values else "–"

    def _say(self, place: str, loss: float, speed: float, bound_by: str, row: dict[str, float] | None = None) -> None:
        self.last_line, loop = time.monotonic(), self.loop
        left = loop.seconds / loop.step * (loop.settings.epochs * loop.steps - loop.step)
        lie = "".join(f" {word} {row[name]:.2f}" for name, word in LABEL_FREE.items() if row and name in row)
        loop.log(
            f"[{loop.name}] epoch {place} loss {loss:.3f}{lie} 1-NN {self._accuracy()}"
            f" {speed:.0f} img/s {bound_by}, eta {int(left // 60)}:{int(left % 60):02d}"
        )

    def _close_bar(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None

    def close(self) -> None:
        """Finish the bar and the files."""
        self._close_bar()
        if self.board is not None:
            with suppress(OSError):  # a full disk has been named
                self.board.close()


def table(history: list[dict[str, float]]) -> str:
    """The rows of a run as CSV, a column for every name that one of them has."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, sorted({name for row in history for name in row}))
    writer.writeheader()
    writer.writerows({**row, "step": int(row["step"])} for row in history)
    return text.getvalue()


def bar(loop: _Loop) -> Any:
    """A bar over the steps of an epoch, in the terminal of a process that shares it with no other run."""
    shared = multiprocessing.parent_process() is not None  # with the one that shows a line for each worker
    return tqdm(
        total=loop.steps, initial=loop.first - loop.epoch * loop.steps, leave=False, unit="step",
        desc=f"{loop.recipe.name} epoch {loop.epoch + 1}/{loop.settings.epochs}",
        disable=loop.rank > 0 or shared or not sys.stderr.isatty(),
    )  # fmt: skip


@contextmanager
def signals(handler: Any, *numbers: int) -> Iterator[None]:
    """What happens on some signals within, here and in processes that are started; only a main thread may say so."""
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handler) for number in numbers if main}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, signal.SIG_DFL if old is None else old)


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C, or SIGTERM, sets; a later one interrupts at once."""
    stop = threading.Event()
    first = math.inf

    def handle(number: int, frame: Any) -> None:
        nonlocal first
        now = time.monotonic()
        if now - first > SAME_SIGNAL_S:
            # not the old handler: a shell starts background jobs with SIGINT ignored
            signal.default_int_handler(number, frame)
        first = min(first, now)
        stop.set()

    with signals(handle, signal.SIGINT, signal.SIGTERM):
        yield stop
