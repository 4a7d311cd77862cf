"""A cell: one row and column of a table for one seed, which is a run and what a task says of it."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from contrastlab import data, keys, methods, tasks
from contrastlab.pictures.domain import modality
from contrastlab.pictures.items import Splits, fingerprint
from contrastlab.pictures.loading import decoders
from contrastlab.settings import Settings
from contrastlab.support import escape, files
from contrastlab.support.errors import NotApplicableError
from contrastlab.support.seeds import derive
from contrastlab.tables import results
from contrastlab.tables.execution import Execution
from contrastlab.tables.plan import Column, TablePlan
from contrastlab.tables.profiles import is_paper
from contrastlab.tables.report import Unavailable
from contrastlab.tables.results import Result
from contrastlab.tables.run import Run
from contrastlab.train import Speed, Trained
from contrastlab.train.loop import Log
from contrastlab.train.schedule import precision

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@dataclass(frozen=True)
class Cell:
    """One row (``method``, in full), column (by ``name``) and seed of a table (``plan``) in one of its profiles."""

    plan: TablePlan = field(compare=False)  # only cells of one table are compared
    name: str
    column: Column = field(compare=False)
    method: str
    seed: int
    profile: str
    given: Settings | None = None  # in place of those of the plan

    @cached_property
    def settings(self) -> Settings:
        """Protocol of this cell."""
        return self.given or self.plan.settings(self.column.data, self.method, self.profile, self.column)

    @cached_property
    def recipe(self) -> methods.Recipe:
        """The row's recipe, as the protocol changes it."""
        return methods.get(self.method).override(self.settings.overrides)

    @cached_property
    def task(self) -> tasks.Task:
        """What is asked of the encoders."""
        return tasks.get(self.column.task, self.settings)

    @cached_property
    def setup(self) -> str:
        """Hash of what decides the number beside data and seed; see :func:`contrastlab.tables.results.setup`."""
        settings = self.settings.model_dump(mode="json")
        return results.setup(self.recipe.describe(), settings, self.task.name, self.task.identity())

    def data(self, execution: Execution) -> tuple[Splits, Splits]:
        """Pre-training data, and the data the task scores on; the same object where they are the same."""
        own = data.load(self.column.data, execution.data_root)
        return own, data.load(self.column.on, execution.data_root) if self.column.on else own

    def check(self, splits: tuple[Splits, Splits]) -> None:
        """Refuse data that the recipe cannot see, or the task cannot be scored on, with a ``NotApplicableError``."""
        own, on = splits
        self.recipe.views.channels(own.pretrain.channels)
        self.task.check(on)
        size, images = self.settings.batch_size, len(own.pretrain)
        if self.recipe.keys is not None and size > min(images, self.settings.train_images or images):
            batches = f"profile {self.profile} trains with batches of {size}"
            raise NotApplicableError(f"{batches}, and {self.column.data} has {images} images")

    def stored(self, execution: Execution, splits: tuple[Splits, Splits]) -> Result | None:
        """The result in the first folder that has it, computed with today's settings, recipe and data."""
        hash_ = results.whole_hash(self.setup, data_hash(*splits), self.recipe.describe(), keys.world()[1])
        return results.look_up(
            (execution.out_dir, *execution.read_also), dataset=self.column.data, profile=self.profile, seed=self.seed,
            method=self.method, task=self.column.task, hash_=hash_, on=self.column.on,
        )  # fmt: skip

    def run(self, execution: Execution, *, wait: bool = True, log: Log) -> Result | Unavailable:
        """The result, read or computed, or why there is none; ``wait=False``: ``BusyError`` if another computes it."""
        if not is_paper(self.profile) and not torch.cuda.is_available():
            torch.set_num_threads(1)  # small networks are faster on one, and sums depend on the number
        splits = self.data(execution)
        try:
            self.check(splits)
        except NotApplicableError as reason:
            return Unavailable(self.method, str(reason))
        stored = self.stored(execution, splits) if execution.one_process and execution.resume else None
        if stored is not None:
            log(f"[{self.method} seed {self.seed}] stored: {self.text(stored)}")
            return self._with_metric(stored)
        run = Run(self.recipe, self.settings, splits[0], self.seed, files.make_folder(Path(execution.out_dir)))
        fabric = execution.fabric(self.settings.precision)
        # of several processes the first decides: the others may look at files at another moment
        with run.locked(fabric, wait=wait, log=log):
            look = fabric.is_global_zero and execution.resume
            answer: Any = fabric.broadcast(self.stored(execution, splits) if look else None)
            if answer is None:
                try:
                    answer = self._compute(run, splits[1], fabric, execution, log)
                except NotApplicableError as reason:
                    answer = Unavailable(self.method, str(reason))
                answer = fabric.broadcast(answer)
            else:
                log(f"[{self.method} seed {self.seed}] stored by another process: {self.text(answer)}")
        return self._with_metric(answer)

    def _with_metric(self, answer: Result | Unavailable) -> Result | Unavailable:
        metric = tasks.metric(self.column.metric)
        if isinstance(answer, Unavailable) or metric.name in answer.metrics:
            return answer
        return Unavailable(self.method, metric.absent or f"{metric.label} is not defined on these data")

    def _compute(self, run: Run, on: Splits, fabric: Fabric, execution: Execution, log: Log) -> Result | None:
        """Find or make the run, score it, store the result; only the first of several processes has one."""
        clock, data_fingerprint, on_own = results.Clock(fabric.device), data_hash(run.data, on), on is run.data
        run = run.to(fabric.device)
        on = run.data if on_own else on.to(fabric.device)
        trained = run.train(
            fabric, resume=execution.resume, max_minutes=execution.max_minutes, speed=execution.speed, log=log
        )
        if not fabric.is_global_zero:
            return None
        setting = self.setting(run, on, device=fabric.device, log=log)
        if not execution.resume and setting.folder is not None:
            shutil.rmtree(setting.folder, ignore_errors=True)
        with decoders((execution.speed or Speed()).workers * fabric.world_size):  # this process scores for all
            measured = self.task.score(trained.encoders, setting)
        result = Result(
            table=self.plan.name, dataset=self.column.data, on=self.column.on,
            method=self.method, seed=self.seed, profile=self.profile, recipe=run.recipe.describe(),
            curve=trained.history, precision=precision(run.settings.precision, execution.accelerator),
            provenance=clock.read(
                data_fingerprint=data_fingerprint, data_note=on.note,
                images_per_s=trained.images / trained.seconds if trained.seconds else None,
            ), **self.task.record(measured, setting, run.settings),
        )  # fmt: skip
        results.save(result, execution.out_dir)
        log(f"[{self.method} seed {self.seed}] {self.text(result)} in {result.provenance.wall_s:.0f} s")
        return result

    def pretrained(self, execution: Execution, log: Log = lambda line: None) -> tuple[Run, Trained]:
        """The run behind the cell and its encoders: read, trained, or as initialised."""
        fabric = execution.fabric(self.settings.precision)
        run = Run(self.recipe, self.settings, self.data(execution)[0], self.seed, execution.out_dir).to(fabric.device)
        return run, run.train(fabric, log=log)

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
        label = f"{metric.label} on {self.column.on}" if self.column.on else metric.label
        return f"{label} " + ("n/a" if value is None else f"{value:.2f} {metric.unit}")


def data_hash(own: Splits, on: Splits) -> str:
    """Hash of the data a number comes from."""
    return fingerprint(own) if on is own else f"{fingerprint(own)}+{fingerprint(on)}"


def first_process() -> bool:
    """Whether this is the process that speaks, under torchrun and Fabric's launcher, too."""
    return all(os.environ.get(name, "0") == "0" for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID"))


def say(line: str) -> None:
    """Print a line of progress, once however many processes there are."""
    if first_process():
        print(escape.line(line), flush=True)
