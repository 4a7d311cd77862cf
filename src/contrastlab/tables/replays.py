"""Stored cells trained again: does the stored number come out, and if not, what is different?"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from contrastlab import methods, tasks
from contrastlab.settings import Settings
from contrastlab.support import files, shipped
from contrastlab.support.errors import NotApplicableError, check
from contrastlab.tables.execution import Execution
from contrastlab.tables.job import Job, run
from contrastlab.tables.results import Result

SPREAD = "replays.json"
"""File in ``results``: cells trained with several instruction sets, in two precisions, on one and two threads."""
SIGMAS = 3.0
RENAMED = {"keys.parts": "keys.shuffle_groups"}  # fields of recipes that older results override by another name


@dataclass(frozen=True)
class Replay:
    """A stored result and the same cell computed anew, by the settings that are stored with it."""

    stored: Result
    again: Result
    metric: str

    @property
    def difference(self) -> float:
        """Replayed minus stored, in the metric's unit."""
        return self.again.metrics[self.metric] - self.stored.metrics[self.metric]

    @property
    def differs(self) -> tuple[str, ...]:
        """What is not as it was and may change the number, such as ``precision bf16-mixed, now 32-true``."""
        now = _decisive(self.again)
        changes = []
        for name, before in _decisive(self.stored).items():
            if before != now[name]:
                changes.append(f"{name} {before or 'unknown'}, now {now[name]}")
        return tuple(changes)

    @property
    def tolerance(self) -> float:
        """The largest difference that is no sign of a change: 0 where nothing differs, else by :func:`spread`."""
        if not self.differs:
            return 0.0
        return SIGMAS * math.sqrt(2) * spread()

    @property
    def holds(self) -> bool:
        """Whether the number came out within the tolerance, by the recipe, settings and data that are stored."""
        same = self.again.config_hash == self.stored.config_hash
        return same and abs(self.difference) <= self.tolerance


def _decisive(result: Result) -> dict[str, str | int | None]:
    """What may change a number from one computation to the next."""
    provenance = result.provenance
    versions = {name: provenance.versions.get(name) for name in ("torch", "torchvision", "numpy", "scipy")}
    return {
        "recipe": result.setup_hash[:8],
        "data": provenance.data_fingerprint[:8],
        "precision": result.precision,
        "processor": provenance.gpu or provenance.cpu,
        "instructions": provenance.capability,
        "threads": provenance.threads,
        **versions,
    }


@cache
def spread() -> float:
    """Standard deviation, in points, of a cell's number over machines: pooled over the cells of :data:`SPREAD`."""
    values: dict[str, list[float]] = {}
    for measured in files.read_record(shipped.folder("results") / SPREAD)["runs"]:
        values.setdefault(measured["cell"], []).append(measured["value"])
    variances = [statistics.variance(of_cell) for of_cell in values.values()]
    return math.sqrt(statistics.fmean(variances))


def seconds(result: Result) -> float:
    """That a replay takes at the speed of the stored run: training, whichever cell trained, and the score."""
    if not result.curve:
        return result.provenance.wall_s
    return max(result.curve[-1]["seconds"], result.provenance.wall_s)


def replay(
    stored: Sequence[Result], *, minutes: float = 5.0, data_root: str | Path | None = None, accelerator: str = "auto"
) -> Iterator[Replay]:
    """Train stored cells again, the shortest first, while the next one should end within ``minutes``.

    Everything is written to a temporary folder. Raises ``NotApplicableError`` where not even one fits.
    """
    check(minutes > 0, "minutes", minutes, "a number above 0")
    end = time.monotonic() + 60 * minutes
    ordered = sorted(stored, key=seconds)
    if not ordered or seconds(ordered[0]) > 60 * minutes:
        least = f"; the shortest took {seconds(ordered[0]) / 60:.1f}" if ordered else ": none is stored"
        raise NotApplicableError(f"no result of these can be replayed in {minutes:g} minutes{least}")
    with TemporaryDirectory() as folder:
        execution = Execution(data_root=data_root, out_dir=folder, read_also=(), accelerator=accelerator)
        for result in ordered:
            if time.monotonic() + seconds(result) > end:
                return
            job = job_of(result)
            again = run(job, execution, log=lambda line: None)
            if not isinstance(again, Result):
                raise NotApplicableError(f"{result.method} on {result.dataset}: {again.reason}")
            yield Replay(result, again, job.metric)


def job_of(result: Result) -> Job:
    """The job that a result is of, with the settings that are stored with it."""
    overrides = result.settings.get("overrides", {})
    renamed = {RENAMED.get(name, name): value for name, value in overrides.items()}
    return Job(
        recipe=methods.get(result.method),
        settings=Settings.model_validate({**result.settings, "overrides": renamed}),
        data=result.dataset,
        seed=result.seed,
        metric=next(metric for metric in result.metrics if tasks.task_of(metric) == result.task),
        on=result.on,
        profile=result.profile,
        table=result.table,
    )
