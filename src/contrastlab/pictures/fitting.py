"""Training for a task: classifiers and decoders over shuffled batches, and long trainings that resume."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from contrastlab.pictures.loading import Crops, batches
from contrastlab.pictures.task import Evaluation, Log
from contrastlab.settings import ActionRecognition, Detector, LinearProbe, SegmentationProbe
from contrastlab.support.errors import NonFiniteLossError, NotApplicableError
from contrastlab.train import checkpoint
from contrastlab.train.checkpoint import Artefact

SAVE_EVERY_S = 60.0
SPEAK_EVERY_S = 10.0
DROPS = (2 / 3, 0.8, 14 / 15)  # of the epochs, after which Adam's rate falls to a fifth: 2,000, … of 3,000 (CMC, E.4)


@dataclass
class Fitting:
    """What is fitted, with an optimiser and a schedule by epochs."""

    network: nn.Module
    optimiser: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler

    @classmethod
    def adam(cls, network: nn.Module, how: SegmentationProbe) -> Fitting:
        """A network trained by Adam, whose rate falls as ``DROPS`` says."""
        adam = torch.optim.Adam(network.parameters(), lr=how.lr, betas=how.betas)
        milestones = {max(1, round(share * how.epochs)) for share in DROPS}
        schedule = torch.optim.lr_scheduler.MultiStepLR(adam, sorted(milestones), 0.2)
        return cls(network, adam, schedule)


def descend(optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    """Take one step."""
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


def fit(
    losses: Callable[[Tensor, Tensor, torch.Generator], dict[str, Tensor]],
    fits: dict[str, Fitting],
    evaluation: Evaluation,
    chosen: Tensor,
    how: LinearProbe | SegmentationProbe,
    name: str,
    crops: tuple[Any, int] | None = None,
) -> None:
    """Minimise losses over the training items numbered ``chosen``, each with an optimiser of its own.

    Incomplete batches are left out. Only the loss of the last batch of an epoch is logged and has to be finite.

    Args:
        losses: from item numbers ``[B]``, items and a generator for their augmentation to a scalar for each fit.
        fits: what is fitted, by the names of the losses; ``losses`` may add to it when it sees the first batch.
        evaluation: has the data, the seed of order and augmentation, and the device.
        chosen: numbers of the training items.
        how: epochs and size of a batch.
        name: for messages.
        crops: augmentation and number of views of an item, for a set whose workers cut the views themselves.
    """
    if not len(chosen):
        raise NotApplicableError(f"{name}: the training set is empty")
    order = torch.Generator().manual_seed(evaluation.seed)
    draws = torch.Generator(device=evaluation.device).manual_seed(evaluation.seed)
    size = min(how.batch_size, len(chosen))
    for epoch in range(how.epochs):
        shuffled = chosen[torch.randperm(len(chosen), generator=order)]
        crop = None
        if crops is not None:
            crop = Crops(*crops, evaluation.seed, before=epoch * len(chosen))
        losses_of_batch: dict[str, Tensor] = {}
        for index, items in batches(
            evaluation.data.train, shuffled, size, evaluation.device, drop_last=True, crop=crop
        ):
            losses_of_batch = losses(index, items, draws)
            for key, loss in losses_of_batch.items():
                descend(fits[key].optimiser, loss)
        for fitting in fits.values():
            fitting.schedule.step()
        last_loss = _mean(losses_of_batch)
        if not math.isfinite(last_loss):
            raise NonFiniteLossError(f"{name}: the loss is {last_loss} in epoch {epoch + 1}; are the features finite?")
        evaluation.log(f"{name}, epoch {epoch + 1}/{how.epochs}, loss {last_loss:.3f}")


def _mean(losses: dict[str, Tensor]) -> float:
    return sum(loss.item() for loss in losses.values()) / len(losses)


class Resumable:
    """A long training by SGD whose draws are counted, so that it goes on from its checkpoint to the same bits on a CPU.

    ``name`` and ``unit`` (step or epoch) are for messages; without ``artefact`` there is no checkpoint.
    """

    def __init__(
        self,
        network: nn.Module,
        how: ActionRecognition | Detector,
        name: str,
        artefact: Artefact | None,
        unit: str = "step",
    ) -> None:
        self.network = network
        self.name = name
        self.artefact = artefact
        self.unit = unit
        trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
        self.optimiser = torch.optim.SGD(trained, lr=how.lr, momentum=how.momentum, weight_decay=how.weight_decay)
        self.losses: list[float] = []

    def descend(self, loss: Tensor, lr: float) -> float:
        """Take one step at this rate, and give the loss."""
        for group in self.optimiser.param_groups:
            group["lr"] = lr
        descend(self.optimiser, loss)
        return float(loss.detach())

    def run(self, steps: Callable[[int], Iterator[float]], total: int, log: Log) -> list[float]:
        """Losses of all ``total`` steps; ``steps`` takes those from a number on, and yields the loss of each.

        After a ``NonFiniteLossError`` nothing more is stored.
        """
        self._resume(log)
        first = len(self.losses)
        began = time.monotonic()
        saved = began
        spoke = began
        with torch.enable_grad():
            for loss in steps(first):
                if not math.isfinite(loss):
                    raise NonFiniteLossError(f"{self.name}: the loss is {loss} at {self.unit} {len(self.losses) + 1}")
                self.losses.append(loss)
                done = len(self.losses)
                now = time.monotonic()
                if now - spoke > SPEAK_EVERY_S or done == total:
                    seconds_per_step = (now - began) / (done - first)
                    seconds_left = int(seconds_per_step * (total - done))
                    log(self._progress(loss, total, seconds_left))
                    spoke = now
                if now - saved > SAVE_EVERY_S and done < total:
                    self.save()
                    saved = now
        return self.losses

    def _progress(self, loss: float, total: int, seconds_left: int) -> str:
        minutes, seconds = divmod(seconds_left, 60)
        done = len(self.losses)
        return f"{self.name}: {self.unit} {done}/{total} loss {loss:.3f} eta {minutes}:{seconds:02d}"

    def save(self) -> None:
        """Write the checkpoint, where there is an artefact."""
        if self.artefact is None:
            return
        state = {
            "model": tensors_of(self.network),
            "optimiser": self.optimiser.state_dict(),
            "losses": self.losses,
        }
        self.artefact.save_checkpoint(state)

    def _resume(self, log: Log) -> None:
        """Continue from the checkpoint, if there is one."""
        if self.artefact is None:
            return
        state = self.artefact.load_checkpoint()
        if state is None:
            return
        with torch.no_grad():
            for name, tensor in tensors_of(self.network).items():
                tensor.copy_(state["model"][name])
        checkpoint.fill_optimiser(self.optimiser, state["optimiser"])
        self.losses = list(state["losses"])
        log(f"{self.name}: resumed at {self.unit} {len(self.losses)}")


class Pooled(nn.Module):
    """The average of a map over positions."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))


def tensors_of(network: nn.Module) -> dict[str, Tensor]:
    """Every tensor of a network once, by name."""
    tensors: dict[str, Tensor] = dict(network.named_parameters())
    tensors.update(network.named_buffers())
    return tensors
