"""What a person sees of a run: a bar, lines, CSV and TensorBoard files."""

from __future__ import annotations

import csv
import io
import multiprocessing
import re
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from tqdm.auto import tqdm

from contrastlab.pictures.task import Log
from contrastlab.support import files
from contrastlab.support.errors import StorageError
from contrastlab.train.progress import Course, Progress

LINE_EVERY_S = 10.0
"""Seconds between the lines of epochs at least."""
LINE_WITHIN_S = 60.0
"""Seconds without a line in the middle of an epoch at most, where there is no bar."""
LABEL_FREE = {"mi_bound": "bound", "alignment": "alignment", "uniformity": "uniformity", "effective_rank": "rank"}
"""Values of a row that need no labels, and their words in a line."""


def bottleneck(waiting: float) -> str:
    """``"data-bound 63 %"`` where steps spent most of their time waiting for data, else ``"compute-bound"``.

    ``waiting`` is the percentage of the steps' time between asking for a batch and having it. On a CPU faster data
    would save that time; on a GPU, which may work on while the host waits, they would save at most that.
    """
    return f"data-bound {waiting:.0f} %" if waiting > 50 else "compute-bound"


class Journal:
    """Listens to a run: its rows as CSV and TensorBoard files, a bar in a terminal, and a line now and then."""

    def __init__(self, course: Course, progress: Progress, log: Log) -> None:
        self.course, self.progress, self.log = course, progress, log
        self.folder = None
        if course.checkpoint is not None and course.rank == 0:
            self.folder = course.checkpoint.parent
        self.last_line = time.monotonic()
        self.bar = cast(Any, None)
        self.board = cast(Any, None)

    def after_step(self) -> None:
        """Move the bar; where there is none, write a line if there was none for long."""
        if self.bar is None:
            self.bar = bar(self.course, self.progress)
        if self.progress.host_may_look(self.course.device):
            self._show_step()
        self.bar.update()

    def _show_step(self) -> None:
        """What the bar shows of the step, or a line where there is no bar and none was written for long."""
        course, progress = self.course, self.progress
        within_epoch = progress.step % course.steps != 0
        if self.bar.disable and not (within_epoch and self._silent(LINE_WITHIN_S)):
            return
        total, count = progress.sums.tolist()
        speed = progress.images_per_s(course)
        bound_by = bottleneck(progress.waiting)
        self.bar.set_postfix(loss=f"{total / count:.3f}", nn1=self._accuracy(), img_s=f"{speed:.0f}", bound=bound_by)
        if self.bar.disable:
            step = progress.step - progress.epoch * course.steps
            place = f"{progress.epoch + 1}/{course.settings.epochs} step {step}/{course.steps}"
            self._say(place, total / count, speed, bound_by)

    def after_epoch(self) -> None:
        """Write the newest row into the files, and a line if it is the last one or none was written for a while."""
        self._close_bar()
        course, progress = self.course, self.progress
        row = progress.history[-1]
        if self.folder is not None:
            files.write_whole(self.folder / "metrics.csv", history_as_csv(progress.history))
            name = re.sub(r"[^\w.-]+", "-", f"{course.name} {course.images}")  # TensorBoard shows it
            self._write_board(self.folder / "tensorboard" / name[:100], row)
        if progress.epoch == course.settings.epochs or self._silent(LINE_EVERY_S):
            place = f"{progress.epoch}/{course.settings.epochs}"
            self._say(place, row["loss"], row["images_per_s"], bottleneck(row["waiting"]), row)

    def _write_board(self, folder: Path, row: dict[str, float]) -> None:
        """Add a row to the TensorBoard files of a folder."""
        from torch.utils.tensorboard import SummaryWriter

        step = int(row["step"])
        if self.board is not None and not folder.is_dir():
            self.board = None  # whose thread would write into it
            raise StorageError(f"{folder} was removed while the run wrote there; run again to continue")
        try:
            if self.board is None:  # what a killed run wrote of steps that are taken again is purged
                self.board = SummaryWriter(folder, purge_step=step)
            for name in row.keys() - {"step"}:
                self.board.add_scalar(name, row[name], step)
            self.board.flush()
        except OSError as error:
            raise StorageError(f"cannot write {folder}: {error.strerror or error}") from error

    def _silent(self, seconds: float) -> bool:
        """Whether no line was written for so long."""
        return time.monotonic() - self.last_line >= seconds

    def _accuracy(self) -> str:
        """The newest 1-NN accuracy, or a dash."""
        for row in reversed(self.progress.history):
            if "nn1" in row:
                return f"{row['nn1']:.1f}%"
        return "–"

    def _say(self, place: str, loss: float, speed: float, bound_by: str, row: dict[str, float] | None = None) -> None:
        """Write a line; ``row`` is that of an epoch that has ended."""
        course, progress = self.course, self.progress
        self.last_line = time.monotonic()
        seconds_of_step = progress.seconds / progress.step
        minutes, seconds = divmod(int(seconds_of_step * (course.all_steps - progress.step)), 60)
        label_free = ""
        for name, word in LABEL_FREE.items():
            if row and name in row:
                label_free += f" {word} {row[name]:.2f}"
        self.log(
            f"[{course.name}] epoch {place} loss {loss:.3f}{label_free} 1-NN {self._accuracy()}"
            f" {speed:.0f} img/s {bound_by}, eta {minutes}:{seconds:02d}"
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


def history_as_csv(history: list[dict[str, float]]) -> str:
    """The rows of a run as CSV, a column for every name that one of them has."""
    text = io.StringIO(newline="")
    columns = sorted({name for row in history for name in row})
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    for row in history:
        writer.writerow({**row, "step": int(row["step"])})
    return text.getvalue()


def bar(course: Course, progress: Progress) -> Any:
    """A bar over the steps of an epoch, in the terminal of a process that shares it with no other run."""
    shared = multiprocessing.parent_process() is not None  # with the one that shows a line for each worker
    return tqdm(
        total=course.steps,
        initial=progress.first_step - progress.epoch * course.steps,
        leave=False,
        unit="step",
        desc=f"{course.recipe.name} epoch {progress.epoch + 1}/{course.settings.epochs}",
        disable=course.rank > 0 or shared or not sys.stderr.isatty(),
    )
