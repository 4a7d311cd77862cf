"""A job: what decides one number of a table, and what turns it into a stored result."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from contrastlab import methods, tasks
from contrastlab.pictures.domain import modality
from contrastlab.pictures.items import Splits, fingerprint
from contrastlab.pictures.loading import decoders
from contrastlab.recipe import Recipe
from contrastlab.settings import Settings
from contrastlab.support import collectives, files
from contrastlab.support.errors import NotApplicableError
from contrastlab.support.seeds import derive
from contrastlab.tables import results
from contrastlab.tables.execution import Execution, say
from contrastlab.tables.plan import TablePlan
from contrastlab.tables.profiles import is_paper
from contrastlab.tables.report import Unavailable
from contrastlab.tables.results import Result
from contrastlab.tables.runs import Run
from contrastlab.train import Speed, Trained
from contrastlab.train.loop import Log
from contrastlab.train.schedule import precision

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Answer = Result | Unavailable
"""What comes of a job: a result, or why there is none."""


@dataclass(frozen=True)
class Job:
    """One number: a recipe trained with settings on data with a seed, and a metric of its encoders.

    A job fills one cell of a table for one seed. :func:`expand` makes the jobs of a published table. A job of your own
    needs no table.

    Args:
        recipe: the method, before the settings override fields of its parts.
        settings: of training and of the task.
        data: name of the pre-training data, as :func:`contrastlab.data.load` takes it.
        seed: of everything that is drawn.
        metric: name of a metric in :mod:`contrastlab.tasks`; it decides the task.
        on: name of the data that the task scores on; empty: those of pre-training.
        profile: that the result carries.
        table: that the result carries, such as ``ring/table1``.
        column: of the table.
    """

    recipe: Recipe
    settings: Settings = field(hash=False)
    data: str
    seed: int = 0
    metric: str = "linear"
    on: str = ""
    profile: str = "own"
    table: str = "own"
    column: str = ""

    @property
    def method(self) -> str:
        """Full name of the recipe."""
        return self.recipe.name

    @cached_property
    def effective_recipe(self) -> Recipe:
        """The recipe with the overrides of the settings."""
        return self.recipe.override(self.settings.overrides)

    @property
    def task_name(self) -> str:
        """The task that gives the metric."""
        return tasks.task_of(self.metric)

    @property
    def task(self) -> tasks.Task:
        """What is asked of the encoders."""
        return tasks.get(self.task_name, self.settings)

    @cached_property
    def setup_hash(self) -> str:
        """Hash of what decides the number beside data and seed: :func:`contrastlab.tables.results.setup_hash`."""
        settings = self.settings.model_dump(mode="json")
        return results.setup_hash(self.effective_recipe.describe(), settings, self.task.name, self.task.identity())

    def load(self, execution: Execution) -> tuple[Splits, Splits]:
        """Pre-training data, and the data the task scores on; the same object where they are the same."""
        pretraining = execution.load(self.data)
        if not self.on:
            return pretraining, pretraining
        return pretraining, execution.load(self.on)

    def config_hash(self, splits: tuple[Splits, Splits]) -> str:
        """Hash of what decides the number beside the seed, for data as :meth:`load` gives them."""
        return results.whole_hash(
            self.setup_hash, data_hash(*splits), self.effective_recipe.describe(), collectives.world()[1]
        )

    def check(self, splits: tuple[Splits, Splits]) -> None:
        """Refuse data that the recipe cannot see, or the task cannot be scored on, with a ``NotApplicableError``."""
        pretraining, scored_on = splits
        self.effective_recipe.views.channels(pretraining.pretrain.channels)
        self.task.check(scored_on)
        if self.effective_recipe.keys is None:
            return
        images = len(pretraining.pretrain)
        used_images = min(images, self.settings.train_images or images)
        if self.settings.batch_size > used_images:
            batches = f"profile {self.profile} trains with batches of {self.settings.batch_size}"
            raise NotApplicableError(f"{batches}, and {self.data} has {images} images")

    def run_of(self, own: Splits, execution: Execution) -> Run:
        """The run whose encoders are scored; jobs that differ in their task alone share it."""
        return Run(self.effective_recipe, self.settings, own, self.seed, execution.out_dir)

    def evaluation(
        self, run: Run, on: Splits, *, device: torch.device | str = "cpu", log: Log = lambda line: None
    ) -> tasks.Evaluation:
        """What the task is given beside the encoders; what it trains itself is kept beside them."""
        decisive = {"task": self.task.identity(), "data": data_hash(run.data, on), "seed": self.seed}
        return tasks.Evaluation(
            views=run.recipe.views,
            augmentation=modality(on.train).augmentation(run.settings),
            data=on,
            seed=derive(self.seed, "probe") % 2**31,
            device=device,
            log=log,
            folder=run.folder / f"{self.task.name}-{results.digest(decisive)[:16]}",
        )

    def text(self, result: Result) -> str:
        """``transfer accuracy on digits 61.20 percent``; without the data where they are those of pre-training."""
        metric = tasks.metric(self.metric)
        label = metric.label
        if self.on:
            label = f"{label} on {self.on}"
        value = result.metrics.get(metric.name)
        if value is None:
            return f"{label} n/a"
        return f"{label} {value:.2f} {metric.unit}"


def expand(
    plan: TablePlan, dataset: str, rows: Iterable[str], seeds: Iterable[int], profile: str, columns: str = "all"
) -> list[Job]:
    """The jobs of some rows of a published table (full names), seed after seed."""
    selected = plan.select(dataset, columns)
    jobs = []
    for seed, row, (name, column) in itertools.product(seeds, rows, selected.items()):
        job = Job(
            recipe=methods.get(row),
            settings=plan.settings(column.data, row, profile, column),
            data=column.data,
            seed=seed,
            metric=column.metric,
            on=column.on,
            profile=profile,
            table=plan.name,
            column=name,
        )
        jobs.append(job)
    return jobs


def refusal(job: Job, splits: tuple[Splits, Splits]) -> Unavailable | None:
    """Why the job cannot be run on these data; ``None`` where it can."""
    try:
        job.check(splits)
    except NotApplicableError as reason:
        return Unavailable(job.method, str(reason))
    return None


def stored(job: Job, execution: Execution, splits: tuple[Splits, Splits]) -> Result | None:
    """The result in the first folder that has it, computed with today's recipe, settings and data."""
    if not execution.resume:
        return None
    return results.look_up(
        (execution.out_dir, *execution.read_also),
        dataset=job.data,
        profile=job.profile,
        seed=job.seed,
        method=job.method,
        task=job.task_name,
        hash_=job.config_hash(splits),
        on=job.on,
    )


def run(job: Job, execution: Execution | None = None, *, wait: bool = True, log: Log = say) -> Answer:
    """The result of a job, read or computed and stored, or why there is none.

    One process computes a run at a time. Where another one does, this one waits for it, or raises a ``BusyError`` with
    ``wait=False``.
    """
    execution = execution or Execution()
    if not is_paper(job.profile) and not torch.cuda.is_available():
        torch.set_num_threads(1)  # small networks are faster on one, and sums depend on the number
    splits = job.load(execution)
    refused = refusal(job, splits)
    if refused is not None:
        return refused
    files.make_folder(Path(execution.out_dir))
    fabric = execution.fabric(job.settings.precision)
    pretraining, scored_on = splits
    run_of_job = job.run_of(pretraining, execution)
    with run_of_job.locked(fabric, wait=wait, log=log):
        result = None
        if fabric.is_global_zero:  # it decides for all processes: others may look at files at another moment
            result = stored(job, execution, splits)
        result = fabric.broadcast(result)
        if result is not None:
            log(f"[{job.method} seed {job.seed}] stored: {job.text(result)}")
            return with_metric(job, result)
        answer = _compute(job, run_of_job, scored_on, fabric, execution, log)
        shared_answer: Any = fabric.broadcast(answer)
        return with_metric(job, shared_answer)


def with_metric(job: Job, answer: Answer) -> Answer:
    """An answer, which is no result where the metric is not defined on these data."""
    metric = tasks.metric(job.metric)
    if isinstance(answer, Unavailable) or metric.name in answer.metrics:
        return answer
    return Unavailable(job.method, metric.absent or f"{metric.label} is not defined on these data")


def _compute(job: Job, run: Run, on: Splits, fabric: Fabric, execution: Execution, log: Log) -> Answer | None:
    """Find or make the run, score it, store the result; only the first of several processes has an answer."""
    clock = results.Clock(fabric.device)
    data_fingerprint = data_hash(run.data, on)
    scored_on_own_data = on is run.data
    run = run.to(fabric.device)
    on = run.data if scored_on_own_data else on.to(fabric.device)
    try:
        trained = run.train(
            fabric, resume=execution.resume, max_minutes=execution.max_minutes, speed=execution.speed, log=log
        )
    except NotApplicableError as reason:
        return Unavailable(job.method, str(reason))

    def score() -> Answer:
        record = _score(job, run, trained, on, fabric, execution, log)
        if isinstance(record, Unavailable):
            return record
        images_per_s = trained.images / trained.seconds if trained.seconds else None
        provenance = clock.read(data_fingerprint=data_fingerprint, data_note=on.note, images_per_s=images_per_s)
        result = _result(job, run, trained, record, execution, provenance)
        results.save(result, execution.out_dir)
        log(f"[{job.method} seed {job.seed}] {job.text(result)} in {result.provenance.wall_s:.0f} s")
        return result

    return collectives.by_first(score)


def _score(
    job: Job, run: Run, trained: Trained, on: Splits, fabric: Fabric, execution: Execution, log: Log
) -> dict[str, Any] | Unavailable:
    """What is recorded of the task, asked in this process for all, or why it cannot be asked."""
    evaluation = job.evaluation(run, on, device=fabric.device, log=log)
    if not execution.resume and evaluation.folder is not None:
        shutil.rmtree(evaluation.folder, ignore_errors=True)
    try:
        speed = execution.speed or Speed()
        with decoders(speed.workers * fabric.world_size):
            measured = job.task.score(trained.encoders, evaluation)
    except NotApplicableError as reason:
        return Unavailable(job.method, str(reason))
    return job.task.record(measured, evaluation, run.settings)


def _result(
    job: Job,
    run: Run,
    trained: Trained,
    record: dict[str, Any],
    execution: Execution,
    provenance: results.Provenance,
) -> Result:
    """What is stored of a job: its own fields, the run's, and the task's ``record``."""
    return Result(
        table=job.table,
        dataset=job.data,
        on=job.on,
        method=job.method,
        seed=job.seed,
        profile=job.profile,
        recipe=run.recipe.describe(),
        curve=trained.history,
        precision=precision(run.settings.precision, execution.accelerator),
        provenance=provenance,
        **record,
    )


def pretrained(job: Job, execution: Execution, log: Log = lambda line: None) -> tuple[Run, Trained]:
    """The run behind a job and its encoders: read, trained, or as initialised."""
    fabric = execution.fabric(job.settings.precision)
    run = job.run_of(job.load(execution)[0], execution).to(fabric.device)
    return run, run.train(fabric, log=log)


def data_hash(own: Splits, on: Splits) -> str:
    """Hash of the data a number comes from."""
    if on is own:
        return fingerprint(own)
    return f"{fingerprint(own)}+{fingerprint(on)}"
