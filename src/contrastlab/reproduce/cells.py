"""A cell: one row and column of a table for one seed, which is a run and what a task says of it."""

from __future__ import annotations

import os
import resource
import shutil
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from contrastlab import data, files, methods, results, tasks
from contrastlab.data import Splits
from contrastlab.data.loading import decoders
from contrastlab.data.modalities import modality
from contrastlab.errors import NotApplicableError
from contrastlab.papers import Column, TablePlan
from contrastlab.pretrain import Speed
from contrastlab.pretrain.loop import Log
from contrastlab.pretrain.schedule import precision
from contrastlab.report import Unavailable
from contrastlab.reproduce.run import Run, fingerprint, on_device
from contrastlab.reproduce.where import Where
from contrastlab.results import Result, slug
from contrastlab.seeds import derive

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class BusyError(Exception):
    """Another process computes this cell."""


@dataclass(frozen=True, eq=False)
class Cell:
    """One row, column and seed of a table in one profile.

    Args:
        plan: of the table.
        name: of the column.
        column: the column.
        method: full name of the row.
        seed: of the run and of the task.
        profile: one of ``plan.profiles``.
    """

    plan: TablePlan
    name: str
    column: Column
    method: str
    seed: int
    profile: str

    @property
    def settings(self) -> Any:
        """Protocol of this cell."""
        return self.plan.settings(self.column.data, self.method, self.profile, self.column)

    @property
    def recipe(self) -> methods.Recipe:
        """The row's recipe, as the protocol changes it."""
        return methods.get(self.method).override(self.settings.overrides)

    @property
    def task(self) -> tasks.Task:
        """What is asked of the encoders."""
        return tasks.get(self.column.task, self.settings)

    @property
    def setup(self) -> str:
        """Hash of what decides the number beside data and seed; see :func:`contrastlab.results.setup`."""
        return self.plan.setup(self.column, self.method, self.profile)

    def data(self, where: Where) -> tuple[Splits, Splits]:
        """Pre-training data, and the data the task scores on; the same object where they are the same."""
        own = data.load(self.column.data, where.data_root)
        return own, data.load(self.column.on, where.data_root) if self.column.on else own

    def check(self, splits: tuple[Splits, Splits]) -> None:
        """Refuse data that the recipe cannot see, or the task cannot be scored on, before anything is trained.

        Raises:
            NotApplicableError: with the reason.
        """
        own, on = splits
        self.recipe.views.channels(own.pretrain.channels)
        self.task.check(on)
        settings, images = self.settings, len(own.pretrain)
        if self.recipe.keys is not None and settings.batch_size > min(images, settings.train_images or images):
            raise NotApplicableError(
                f"profile {self.profile} trains with batches of {settings.batch_size}, and {self.column.data} has"
                f" {images} images"
            )

    def stored(self, where: Where, splits: tuple[Splits, Splits] | None = None) -> Result | None:
        """The result in the first folder that has it, computed with today's settings, recipe and data."""
        own, on = splits or self.data(where)
        hash_ = results.digest({"setup": self.setup, "data": data_hash(own, on)})
        for root in (where.out_dir, *where.read_also):
            known = results.look_up(
                root, dataset=self.column.data, profile=self.profile, method=self.method, seed=self.seed,
                task=self.column.task, hash_=hash_, on=self.column.on,
            )  # fmt: skip
            if known is not None:
                return known
        return None

    def run(self, where: Where, *, wait: bool = True, log: Log) -> Result | Unavailable:
        """Read, resumed or computed, and stored.

        Args:
            where: folders, devices and so on.
            wait: for another process that computes the same run.
            log: takes lines of progress.

        Returns:
            The stored result, or why the row cannot exist on this data set.

        Raises:
            MissingDataError: the pre-training data are not there; the message says where they were looked for.
            NonFiniteLossError: training diverged; nothing is stored.
            BusyError: another process computes this run, with ``wait=False``.
        """
        one_thread(self.profile)
        tag = f"[{self.method} seed {self.seed}]"
        splits = self.data(where)
        own, on = splits
        try:
            self.check(splits)
        except NotApplicableError as reason:
            return Unavailable(self.method, str(reason))
        if where.alone and where.resume and (known := self.stored(where, splits)) is not None:
            log(f"{tag} stored: {self.text(known)}")
            return self._asked(known)
        settings = self.settings
        run = Run(self.recipe, settings, own, self.seed, Path(where.out_dir))
        files.make_folder(Path(where.out_dir))
        # of several processes the first decides whatever files and locks say: the others may look at another moment
        fabric = where.fabric(settings.precision)
        first = fabric.is_global_zero
        held = files.lock(run.folder.with_suffix(".lock"), wait=False) if first else None
        try:
            if fabric.broadcast(first and held is None):
                if not wait:
                    raise BusyError
                log(f"{tag} waits for another process that computes this run")
                held = files.lock(run.folder.with_suffix(".lock")) if first else None
            known = fabric.broadcast(self.stored(where, splits) if first and where.resume else None)
            if known is not None:
                log(f"{tag} stored by another process: {self.text(known)}")
                return self._asked(known)
            try:
                done: Result | Unavailable | None = self._compute(run, on, fabric, where, log)
            except NotApplicableError as reason:
                done = Unavailable(self.method, str(reason))
            if isinstance(done, Result):
                results.save(done, where.out_dir)
                log(f"{tag} {self.text(done)} in {done.provenance.wall_s:.0f} s")
            answer: Result | Unavailable = fabric.broadcast(done)  # type: ignore[assignment]
        finally:
            if held is not None:
                held.release()
        return self._asked(answer) if isinstance(answer, Result) else answer

    def _asked(self, result: Result) -> Result | Unavailable:
        """The result, or why it has not the column's metric."""
        metric = tasks.metric(self.column.metric)
        if metric.name in result.metrics:
            return result
        return Unavailable(self.method, metric.absent or f"{metric.label} is not defined on these data")

    def _compute(self, run: Run, on: Splits, fabric: Fabric, where: Where, log: Log) -> Result | None:
        began, clock, cpu = datetime.now(UTC), time.monotonic(), time.process_time()
        cuda = fabric.device.type == "cuda"
        if cuda:
            torch.cuda.reset_peak_memory_stats(fabric.device)
        same = on is run.data
        print_ = data_hash(run.data, on)
        run = on_device(run, fabric.device)
        on = run.data if same else on.to(fabric.device)
        trained = run.train(
            fabric, resume=where.resume, max_minutes=where.max_minutes, speed=where.speed, log=log
        )  # fmt: skip
        if not fabric.is_global_zero:
            return None
        setting = self.setting(run, on, device=fabric.device, log=log)
        if not where.resume and setting.folder is not None:
            shutil.rmtree(setting.folder, ignore_errors=True)
        with decoders((where.speed or Speed()).workers * fabric.world_size):  # this process scores for all
            measured = self.task.score(trained.encoders, setting)
        used, settings = {m.items for m in measured.values()}, run.settings
        protocol = {
            **self.task.protocol(setting), "arch": settings.arch, "stem": settings.stem,
            "image_size": settings.image_size, "split": f"{on.test.name}, {max(used)} test items",
        }  # fmt: skip
        peak = (
            torch.cuda.max_memory_allocated(fabric.device)
            if cuda
            else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        )
        return Result(
            table=f"{self.plan.paper}/{slug(self.plan.table)}", dataset=self.column.data, on=self.column.on,
            method=self.method, seed=self.seed, profile=self.profile, task=self.task.name,
            task_config=self.task.identity(), protocol=protocol, items=max(used),
            settings=settings.model_dump(mode="json"), recipe=run.recipe.describe(),
            metrics={name: m.value for name, m in measured.items()},
            half_widths={name: m.half_width for name, m in measured.items() if m.half_width is not None},
            correct={name: results.pack(m.correct) for name, m in measured.items() if m.correct is not None},
            curve=trained.history, precision=precision(settings.precision, where.accelerator),
            provenance=results.Provenance(
                **results.provenance(fabric.device), data_fingerprint=print_, data_note=on.note, started=began,
                finished=datetime.now(UTC), wall_s=time.monotonic() - clock, cpu_s=time.process_time() - cpu,
                images_per_s=trained.images / trained.seconds if trained.seconds else None, peak_memory_bytes=peak,
            ),
        )  # fmt: skip

    def setting(
        self, run: Run, on: Splits, *, device: torch.device | str = "cpu", log: Log = lambda line: None
    ) -> tasks.Setting:
        """What the task is given beside the encoders; what it trains itself is kept beside them."""
        mine = results.digest({"task": self.task.identity(), "data": data_hash(run.data, on), "seed": self.seed})
        return tasks.Setting(
            run.recipe.views, modality(on.train).augmentation(run.settings), on,
            seed=derive(self.seed, "probe") % 2**31, device=device, log=log,
            folder=run.folder / f"{self.task.name}-{mine[:16]}",
        )  # fmt: skip

    def text(self, result: Result) -> str:
        """``transfer accuracy on digits 61.20 percent``; without the data where they are those of pre-training."""
        metric = tasks.metric(self.column.metric)
        value = result.metrics.get(metric.name)
        asked = f"{metric.label} on {self.column.on}" if self.column.on else metric.label
        return f"{asked} " + ("n/a" if value is None else f"{value:.2f} {metric.unit}")


def data_hash(own: Splits, on: Splits) -> str:
    """Hash of the data a number comes from."""
    return fingerprint(own) if on is own else f"{fingerprint(own)}+{fingerprint(on)}"


def first_process() -> bool:
    """Whether this is the process that speaks, under torchrun and Fabric's launcher, too."""
    return all(os.environ.get(name, "0") == "0" for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID"))


def one_thread(profile: str) -> None:
    """The small profiles' networks are slower on two threads than on one, and their sums depend on the number."""
    if profile != "paper" and not torch.cuda.is_available():
        torch.set_num_threads(1)


def say(line: str) -> None:
    """Print a line of progress, once however many processes there are."""
    if first_process():
        print(line, flush=True)
