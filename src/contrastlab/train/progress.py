"""A run in two parts: its course, which is fixed, and its progress, which every step moves on."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from contrastlab.recipe import Recipe
from contrastlab.settings import Settings
from contrastlab.support import host
from contrastlab.support.errors import NonFiniteLossError

READ_EVERY = 50
"""Steps between looks at what a GPU has computed; each look makes the host wait for it."""


@dataclass(frozen=True)
class Course:
    """What a run does, and on what."""

    recipe: Recipe
    settings: Settings
    seed: int
    steps: int  #: of an epoch
    rank: int  #: of this process
    world: int  #: number of processes
    device: torch.device
    checkpoint: Path | None  #: file; ``None`` keeps nothing
    images: str  #: name of the pre-training set
    fingerprint: str  #: of the pre-training set

    @property
    def name(self) -> str:
        """``ring/ir seed 0``."""
        return f"{self.recipe.name} seed {self.seed}"

    @property
    def local_batch(self) -> int:
        """Items of a step of this process."""
        return self.settings.batch_size // self.world

    @property
    def all_steps(self) -> int:
        """Steps of the whole run."""
        return self.steps * self.settings.epochs


@dataclass
class Progress:
    """Where a run stands.

    A checkpoint keeps ``sums``, ``history`` and what :data:`contrastlab.train.saver.SAVED` names. It is written only
    where every step was finite. The other fields speak of the last step, or of this session's share of the epoch.
    """

    sums: Tensor  #: of this epoch's losses, and their number: ``[2]``, float64, on the device
    first_bad_step: Tensor  #: at which the loss or a gradient was not finite; -1 where none was; on the device
    epoch: int = 0
    step: int = 0
    seconds: float = 0.0  #: of training, evaluations not counted, over all sessions
    terms: int = 0  #: in the denominator of the last step's loss
    spread: dict[str, float] = field(default_factory=dict)  #: of the last epoch's embeddings
    history: list[dict[str, float]] = field(default_factory=list)  #: a row for each epoch
    pairs: tuple[tuple[Tensor, Tensor], ...] = ()  #: unit queries and positives of the last step
    first_step: int = 0  #: of this epoch in this session
    seconds_before: float = 0.0  #: of training before that step
    waited: float = 0.0  #: seconds of this epoch in which steps waited for data

    @classmethod
    def begin(cls, device: torch.device) -> Progress:
        """Before the first step."""
        sums = torch.zeros(2, dtype=torch.float64, device=device)
        return cls(sums, torch.full((), -1, dtype=torch.int64, device=device))

    def count_step(self, loss: Tensor, terms: int, pairs: tuple[tuple[Tensor, Tensor], ...]) -> None:
        """Count a step that had this loss."""
        value = loss.detach().double()
        self.sums += torch.stack([value, torch.ones_like(value)])
        self.terms = terms
        self.pairs = pairs
        self.step += 1

    def host_may_look(self, device: torch.device) -> bool:
        """Whether the host may wait for the device after this step."""
        return host.holds(device) or self.step % READ_EVERY == 0

    @property
    def waiting(self) -> float:
        """Percent of the time of this epoch's steps in which they waited for data."""
        return 100 * self.waited / max(self.seconds - self.seconds_before, 1e-9)

    def images_per_s(self, course: Course) -> float:
        """Speed in this epoch and session."""
        images = (self.step - self.first_step) * course.settings.batch_size
        return images / max(self.seconds - self.seconds_before, 1e-9)


def check_finite(course: Course, progress: Progress) -> None:
    """Raise a ``NonFiniteLossError`` if a step was not finite; waits for the device, which is time of training, too."""
    began = time.monotonic()
    step = int(progress.first_bad_step)
    progress.seconds += time.monotonic() - began
    if step < 0:
        return
    last = "there is no checkpoint yet"
    if course.checkpoint is not None and course.checkpoint.exists():
        last = f"the last good checkpoint is {course.checkpoint}"
    where = f"at step {step} (epoch {step // course.steps})"
    raise NonFiniteLossError(f"{course.recipe.name}: the loss or a gradient is not finite {where}; {last}")
