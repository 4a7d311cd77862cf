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
        before, now = _decisive(self.stored), _decisive(self.again)
        return tuple(f"{name} {old or 'unknown'}, now {now[name]}" for name, old in before.items() if old != now[name])

    @property
    def tolerance(self) -> float:
        """The largest difference that is no sign of a change: 0 where nothing differs, else by :func:`spread`."""
        return SIGMAS * math.sqrt(2) * spread() if self.differs else 0.0

    @property
    def holds(self) -> bool:
        """Whether the number came out within the tolerance, by the recipe, settings and data that are stored."""
        same = self.again.config_hash == self.stored.config_hash
        return same and abs(self.difference) <= self.tolerance


def _decisive(result: Result) -> dict[str, str | int | None]:
    p = result.provenance
    return {
        "recipe": result.setup[:8],
        "data": p.data_fingerprint[:8],
        "precision": result.precision,
        "processor": p.gpu or p.cpu,
        "instructions": p.capability,
        "threads": p.threads,
        **{name: p.versions.get(name) for name in ("torch", "torchvision", "numpy", "scipy")},
    }


@cache
def spread() -> float:
    """Standard deviation, in points, of a cell's number over machines: pooled over the cells of :data:`SPREAD`."""
    values: dict[str, list[float]] = {}
    for measured in files.read_record(shipped.folder("results") / SPREAD)["runs"]:
        values.setdefault(measured["cell"], []).append(measured["value"])
    return math.sqrt(statistics.fmean(statistics.variance(each) for each in values.values()))


def seconds(result: Result) -> float:
    """That a replay takes at the speed of the stored run: training, whichever cell trained, and the score."""
    return max(result.curve[-1]["seconds"] if result.curve else 0.0, result.provenance.wall_s)


def replay(
    stored: Sequence[Result], *, minutes: float = 5.0, data_root: str | Path | None = None, accelerator: str = "auto"
) -> Iterator[Replay]:
    """Train stored cells again, the shortest first, while the next one should end within ``minutes``.

    Everything is written to a temporary folder. Raises ``NotApplicableError`` where not even one fits.
    """
    check(minutes > 0, "minutes", minutes, "a number above 0")
    ordered, ends = sorted(stored, key=seconds), time.monotonic() + 60 * minutes
    if not ordered or seconds(ordered[0]) > 60 * minutes:
        least = f"; the shortest took {seconds(ordered[0]) / 60:.1f}" if ordered else ": none is stored"
        raise NotApplicableError(f"no result of these can be replayed in {minutes:g} minutes{least}")
    with TemporaryDirectory() as folder:
        execution = Execution(data_root=data_root, out_dir=folder, read_also=(), accelerator=accelerator)
        for result in ordered:
            if time.monotonic() + seconds(result) > ends:
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
