"""The checkpoint of a run: when it is written, what is in it, and how a run goes on from it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from contrastlab.pictures.task import Log
from contrastlab.support import collectives
from contrastlab.support.errors import ArgumentError, CorruptFileError, DeviceError
from contrastlab.train import checkpoint
from contrastlab.train.learner import Learner
from contrastlab.train.progress import Course, Progress, check_finite

SAVED = ("epoch", "step", "seconds", "terms", "spread")
"""Fields of the progress that a checkpoint has under ``progress``."""


class Saver:
    """Listens to a run and writes its checkpoint every so many seconds, less often where writing takes long."""

    def __init__(
        self,
        course: Course,
        progress: Progress,
        learner: Learner,
        optimiser: torch.optim.Optimizer,
        every: float,
    ) -> None:
        self.course, self.progress, self.learner, self.optimiser = course, progress, learner, optimiser
        self.every = every
        self.due = time.monotonic() + every
        # what a checkpoint must agree with: all that decides the weights, and nothing about how they are scored
        config = {
            "recipe": course.recipe.identity(),
            "settings": course.settings.identity(),
            "seed": course.seed,
            "images": course.images,
            "data": course.fingerprint,
        }
        self.config = json.dumps(config, sort_keys=True)

    def after_step(self) -> None:
        """Save if it is time to; several processes save after an epoch only."""
        if self.course.world == 1 and time.monotonic() > self.due:
            self.save()

    def after_epoch(self) -> None:
        """Save after the last epoch, and after each where there are several processes."""
        if self.course.world > 1 or self.progress.epoch == self.course.settings.epochs:
            self.save()
        else:
            self.after_step()

    def save(self) -> None:
        """One process writes; the stored keys are the same on all of them."""
        began = time.monotonic()
        progress = self.progress
        check_finite(self.course, progress)
        if self.course.checkpoint is not None and self.course.rank == 0:
            state = {
                "config": self.config,
                "learner": self.learner.state_dict(),
                "optimiser": self.optimiser.state_dict(),
                "sums": progress.sums,
                "progress": {name: getattr(progress, name) for name in SAVED},
                "history": progress.history,
            }
            checkpoint.save(state, self.course.checkpoint)
        now = time.monotonic()
        self.due = now + self.every * max(1.0, now - began)

    def load(self, log: Log) -> None:
        """Go on from the checkpoint, if there is one."""
        course, progress, file = self.course, self.progress, self.course.checkpoint
        there = file is not None and file.exists()
        seen = collectives.gather(torch.tensor([there], device=course.device)).tolist()
        if len(set(seen)) > 1:
            raise DeviceError(f"{file}: only some processes see this checkpoint; all need the same folder")
        if file is None or not seen[0]:
            return
        state = checkpoint.load(file, course.device)
        mine = json.loads(self.config)
        stored = {"data": mine["data"], **json.loads(state["config"])}  # older checkpoints do not name their data
        other = ", ".join(differing(stored, mine))
        if other:
            held = f"folder={str(file.parent)!r} holds a run with other settings ({other})"
            raise ArgumentError(f"{held}; choose another folder, or resume=False")
        try:
            self.learner.load_state_dict(state["learner"])
        except RuntimeError as error:
            reason = f"checkpoint {file} is of another version of contrastlab: {error}"
            raise CorruptFileError(f"{reason}; delete it to start anew, or pass resume=False") from error
        checkpoint.fill_optimiser(self.optimiser, state["optimiser"])
        progress.sums.copy_(state["sums"])
        for name in SAVED:
            setattr(progress, name, state["progress"].get(name, getattr(progress, name)))  # older ones have no spread
        progress.history = [dict(row) for row in state["history"]]
        log(f"[{course.name}] goes on from its checkpoint: epoch {progress.epoch}, step {progress.step}")


def differing(stored: Mapping[str, Any], mine: Mapping[str, Any], at: str = "") -> Iterator[str]:
    """Paths of the values that two configurations do not share, such as ``settings.lr``."""
    for name in sorted({*stored, *mine}):
        one, other = stored.get(name), mine.get(name)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from differing(one, other, f"{at}{name}.")
        elif one != other:
            yield at + name
