"""The one training loop.

Randomness is counted, not carried: order, augmentation and draws of step t come from generators seeded by
(seed, purpose, t). A resumed run therefore needs no random state to continue as if it had never stopped,
and N processes agree on the draws of the global batch without talking.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from contrastlab import keys
from contrastlab.negatives import BatchRandom
from contrastlab.pictures import representations
from contrastlab.pictures.domain import modality
from contrastlab.pictures.encoder import set_memory_format
from contrastlab.pictures.items import ItemSet
from contrastlab.pictures.loading import WORKERS, Crops, batches, decoders, subset_order
from contrastlab.pictures.representations import own_class_share
from contrastlab.pictures.task import Log as Log
from contrastlab.recipe import Recipe
from contrastlab.settings import Settings
from contrastlab.support import host
from contrastlab.support.errors import ArgumentError, DeviceError, NonFiniteLossError, NotApplicableError, check
from contrastlab.support.seeds import derive, fixed, generator
from contrastlab.train import checkpoint
from contrastlab.train.learner import Learner
from contrastlab.train.progress import Journal, interruptible
from contrastlab.train.schedule import cpu_fabric, learning_rate, optimiser, plateau_drops
from contrastlab.train.spread import Watch
from contrastlab.views.base import crop_options

if TYPE_CHECKING:
    from lightning_fabric import Fabric


READ_EVERY = 50  # steps between looks at what a GPU has computed: each makes the host wait for it
_PROGRESS = ("epoch", "step", "seconds", "terms", "spread")


@dataclass(frozen=True)
class Speed:
    """Switches that change how fast a run is, and no number of it beyond float32 rounding: no part of its settings."""

    channels_last: bool = True  #: memory format of views and weights
    fused: bool = True  #: the optimiser step as one kernel
    compile: bool = False  #: ``torch.compile`` of the encoders, for one shape; the first step then takes long
    workers: int = WORKERS  #: processes that decode a streaming set, for each one that trains; 0 decodes in that one

    def __post_init__(self) -> None:
        check(self.workers >= 0, "workers", self.workers, "0 (decode in the process that trains) or more")


@dataclass
class Trained:
    """A finished run: encoders, one per stream, in evaluation mode on the run's device.

    History has a row per epoch: loss (nats), lr, where measured 1-NN accuracy and own-class shares of the closest 1 and
    10 % of the rows (percent), waiting for data (percent of the steps' time), how the last batch's embeddings lie
    (:func:`contrastlab.train.spread.spread`), and so on.
    """

    encoders: nn.ModuleList
    history: list[dict[str, float]] = field(default_factory=list)
    seconds: float = 0.0  #: of training, evaluations not counted, over all sessions
    images: int = 0  #: seen in that time by all processes; views are not counted apart


def pretrain(
    recipe: Recipe, settings: Settings, images: ItemSet, test: ItemSet | None = None, *, seed: int = 0,
    folder: str | Path | None = None, fabric: Fabric | None = None, resume: bool = True, checkpoint_every: float = 60.0,
    max_minutes: float | None = None, speed: Speed | None = None, log: Log | None = None,
    start: nn.ModuleList | None = None,
) -> Trained:  # fmt: skip
    """Train the encoders of ``recipe`` on unlabelled images.

    Args:
        recipe: the method; without keys (the random reference) the encoders come back as initialised.
        settings: everything else; ``batch_size`` is that of all processes together.
        images: pre-training images; labels, where known, are used to watch 1-NN accuracy only.
        test: labelled images for that accuracy.
        seed: of weights, order, augmentation and draws.
        folder: for checkpoint and metrics (CSV and TensorBoard); ``None`` keeps nothing.
        fabric: device, precision, processes; ``None`` is one CPU process.
        resume: continue from the folder's checkpoint; ``False`` starts anew.
        checkpoint_every: seconds between checkpoints, longer where one takes more than a second to write; one is also
            written at the end and on Ctrl-C.
        max_minutes: stop in good order after this time, resumable.
        speed: switches that change no number.
        log: takes a line after an epoch, at most one in ten seconds and one at the end, and where there is no bar one
            a minute in a longer epoch; the default prints it.
        start: encoders of a finished run whose weights these begin with; keys begin anew.

    Raises:
        NonFiniteLossError: with step and last checkpoint.
        KeyboardInterrupt: after Ctrl-C or ``max_minutes``, with the checkpoint written.
    """
    kind, fabric = modality(images), fabric or cpu_fabric(settings.precision)
    fabric.launch()
    rank, world = keys.world()
    log = log or (lambda line: print(line, flush=True) if rank == 0 else None)
    size, chunks = settings.batch_size, settings.accumulate
    check(size % world == 0, "batch_size", size, f"a multiple of the number of processes, {world}")
    local = size // world
    accepted = f"1, or a divisor of {local}, the batch of a process, that leaves two items or more in each chunk"
    check(chunks == 1 or (local % chunks == 0 and local >= 2 * chunks), "accumulate", chunks, accepted)
    order = subset_order(images.labels, settings.train_images, seed=0)
    steps = len(order) // size
    check(steps or recipe.keys is None, "batch_size", size, f"at most the number of images, {len(order)}")
    if recipe.keys is not None and recipe.keys.reads_labels and int(images.labels[order].min()) < 0:
        raise NotApplicableError("the supervised reference needs labels; this pre-training set has unlabelled images")
    with fixed(seed):
        encoders = kind.encoders(recipe.views, images, settings)
    if start is not None:
        encoders.load_state_dict(start.state_dict())
    learner = Learner(recipe, settings, images=len(order), classes=len(images.classes), seed=seed, encoders=encoders)
    copies = getattr(recipe.keys, "size", 0) // max(len(order), 1)
    if copies > 1:
        held = f"{copies} copies of each of {len(order)} items, a query's own among its negatives"
        log(f"[{recipe.name} seed {seed}] the queue of {recipe.keys.size} keys comes to hold {held}")  # type: ignore[union-attr]
    if recipe.keys is None:
        return Trained(learner.network.encoders.eval().to(fabric.device))
    loop = _Loop(recipe, settings, learner, images, test, order, steps, seed, fabric, folder, log, speed or Speed())
    return loop.fit(resume, checkpoint_every, max_minutes)


class _Loop:
    """The state of :func:`pretrain` between its steps."""

    def __init__(
        self, recipe: Recipe, settings: Settings, learner: Learner, images: ItemSet, test: ItemSet | None,
        order: Tensor, steps: int, seed: int, fabric: Fabric, folder: str | Path | None, log: Log, speed: Speed,
    ) -> None:  # fmt: skip
        self.recipe, self.settings, self.speed, self.name = recipe, settings, speed, f"{recipe.name} seed {seed}"
        self.order, self.steps, self.seed, self.fabric, self.log = order, steps, seed, fabric, log
        self.rank, self.world = keys.world()
        self.local = settings.batch_size // self.world  # items of a step of this process
        self.file = None if folder is None else Path(folder) / checkpoint.FILE
        self.augmentation = modality(images).augmentation(settings)
        self.device, self.source = fabric.device, images
        self.learner = learner.to(self.device)
        self.images, self.test = images.to(self.device), None if test is None else test.to(self.device)
        set_memory_format(learner, channels_last=speed.channels_last)
        network: Any = learner.network
        if speed.compile:
            network = torch.compile(network, dynamic=False)
            for encoder in learner.keys.slow or ():
                encoder.compile(dynamic=False)
        if settings.accumulate > 1:
            network = keys.Chunked(network, self.local // settings.accumulate)
        self.fused = speed.fused and self.device.type in ("cpu", "cuda")
        self.optimiser = optimiser(settings, learner.network.parameters(), fused=self.fused)
        self.has_dropout = any(isinstance(m, nn.Dropout) and m.p > 0 for m in network.modules())
        # compiled before it is wrapped: Fabric then compiles what it wraps, without a break in the graph
        module, self.wrapped_optimiser = fabric.setup(network, self.optimiser)
        learner.bind(module)
        self.epoch, self.step, self.seconds = 0, 0, 0.0  # where the next step is
        # of this epoch and session: its first step, the seconds before it, and those of waiting for data
        self.first, self.since, self.waited = 0, 0.0, 0.0
        self.sums = torch.zeros(2, dtype=torch.float64, device=self.device)  # loss, batches
        self.bad = torch.full((), -1, dtype=torch.int64, device=self.device)
        self.history: list[dict[str, float]] = []
        self.terms, self.spread, self.pairs = 0, dict[str, float](), tuple[tuple[Tensor, Tensor], ...]()
        # position of an image in the bank: its place in the subset, not in the full set
        self.row = torch.full((len(images),), -1).scatter_(0, order, torch.arange(len(order))).to(self.device)
        self.all_labels = images.labels.to(self.device)

    def fit(self, resume: bool, checkpoint_every: float, max_minutes: float | None) -> Trained:
        """All remaining epochs; stopped in good order, a later call goes on."""
        saver = _Saver(self, checkpoint_every)
        if resume:
            saver.load()
        ends = time.monotonic() + 60 * (math.inf if max_minutes is None else max_minutes)
        with interruptible() as stop, closing(Journal(self)) as journal, closing(self.batches()) as stream:
            listeners = (Watch(self), journal, saver)
            while self.epoch < self.settings.epochs:
                self.begin_epoch()
                while self.step < (self.epoch + 1) * self.steps:
                    self.timed_step(stream)
                    for listener in listeners:
                        listener.after_step()
                    if self.all_stop(stop.is_set() or time.monotonic() > ends):
                        saver.save()
                        self.fabric.barrier()  # a launcher kills all processes soon after the first one ends
                        raise KeyboardInterrupt(f"stopped at step {self.step}; run again to continue")
                self.end_epoch()
                for listener in listeners:
                    listener.after_epoch()
        encoders = self.learner.network.encoders.eval()
        keys.synchronise(encoders, on=False)  # one process scores
        return Trained(encoders, self.history, self.seconds, self.step * self.settings.batch_size)

    def all_stop(self, stop: bool) -> bool:
        """Ctrl-C reaches the processes at different steps; they must stop at the same one."""
        if self.world == 1:
            return stop
        return self.reads and bool(keys.gather(torch.tensor([stop], device=self.device)).any())

    def begin_epoch(self) -> None:
        self.learner.train()
        self.first, self.since, self.waited = self.step, self.seconds, 0.0
        if self.step == self.epoch * self.steps and self.epoch > 0:
            self.learner.keys.cluster(seed=derive(self.seed, "clusters", self.epoch) % 2**31)

    def set_lr(self) -> None:
        rate = learning_rate(self.settings, self.epoch, self.step / self.steps - self.epoch)
        if self.settings.schedule == "plateau":
            rate *= self.settings.gamma ** plateau_drops(self.history, self.settings)
        for group in self.optimiser.param_groups:
            group["lr"] = rate

    @property
    def reads(self) -> bool:
        """Whether the host looks at the device after this step."""
        return host.holds(self.device) or self.step % READ_EVERY == 0

    @property
    def waiting(self) -> float:
        """Percent of the time of this epoch's steps in which they waited for data."""
        return 100 * self.waited / max(self.seconds - self.since, 1e-9)

    def batches(self) -> Generator[tuple[Tensor, Tensor], None, None]:
        """The batches of all remaining steps."""
        crop = None
        if not self.images.whole:
            before = self.epoch * self.steps * self.settings.batch_size
            options = crop_options(self.recipe.views, self.settings.image_size)
            crop = Crops(self.augmentation, seed=self.seed, before=before, **options)
        orders = (
            self.order[torch.randperm(len(self.order), generator=generator(self.seed, "order", epoch))]
            for epoch in range(self.epoch, self.settings.epochs)
        )
        return batches(
            self.images, orders, self.local, self.device, drop_last=True, rank=self.rank, world=self.world,
            start=self.step - self.epoch * self.steps, workers=self.speed.workers, crop=crop,
        )  # fmt: skip

    def timed_step(self, stream: Iterator[tuple[Tensor, Tensor]]) -> None:
        began = time.monotonic()
        numbers, pixels = next(stream)
        self.waited += time.monotonic() - began
        self.train_step(numbers, pixels)
        self.seconds += time.monotonic() - began
        if self.reads:
            self.check_finite()

    def train_step(self, numbers: Tensor, pixels: Tensor) -> None:
        """One step; on a GPU the host waits for nothing in it."""
        device, purposes = self.device, (f"views/{self.rank}", "draws")
        own, shared = (generator(self.seed, purpose, self.step, device) for purpose in purposes)
        views = self.recipe.views.make(pixels, self.augmentation, own)
        draws = BatchRandom(shared, self.rank * self.local, self.settings.batch_size)
        rows, total = self.row[numbers], self.steps * self.settings.epochs
        self.set_lr()
        masks = derive(self.seed, f"dropout/{self.rank}", self.step)  # those of the step, whether it is resumed or not
        with self.fabric.autocast(), fixed(masks, device) if self.has_dropout else nullcontext():
            out = self.learner.loss(views, rows, self.all_labels[numbers], draws, self.step, total)
        self.wrapped_optimiser.zero_grad()
        self.fabric.backward(out.loss)
        finite = self.finite(out.loss)
        self.bad = torch.where((self.bad < 0) & ~finite, self.step, self.bad)
        if host.holds(device) and not bool(finite):
            self.check_finite()
        if self.fused:
            # it skips its step where this is 1, and the host need not wait; a plain one takes it, and nothing is stored
            self.optimiser.found_inf = (~finite).float()  # type: ignore[attr-defined]
        self.wrapped_optimiser.step()
        self.learner.commit(rows, out)
        loss = out.loss.detach().double()
        self.sums += torch.stack([loss, torch.ones_like(loss)])
        self.terms, self.pairs = out.terms, out.pairs
        self.step += 1

    def finite(self, loss: Tensor) -> Tensor:
        """Whether the loss and every gradient are; an infinite slope can hide behind a finite loss."""
        norms = torch._foreach_norm([p.grad for p in self.learner.network.parameters() if p.grad is not None])
        return loss.detach().isfinite() & torch.stack(norms).sum().isfinite()

    def end_epoch(self) -> None:
        self.check_finite()
        loss, count = keys.gather(self.sums[None]).sum(0).tolist()
        self.sums.zero_()
        self.epoch += 1
        row = {
            "epoch": float(self.epoch), "step": float(self.step), "loss": loss / count,
            "lr": self.optimiser.param_groups[0]["lr"], "seconds": self.seconds,
            "images_per_s": self.step * self.settings.batch_size / max(self.seconds, 1e-9),
            "waiting": self.waiting,
        }  # fmt: skip
        bound = self.recipe.objective.bound(row["loss"] / len(self.recipe.views.pairs), self.terms)
        if bound is not None and self.recipe.bounds_information and self.terms <= len(self.images):
            row["mi_bound"] = bound
        every = self.settings.knn_every
        if self.test is not None and every and (self.epoch % every == 0 or self.epoch == self.settings.epochs):
            # of the first process: each has batch-norm statistics of its own, and the learning rate may depend on it
            with decoders(self.speed.workers * self.world):
                values = self.neighbours() if self.rank == 0 else (0.0, 0.0, 0.0)
            seen = keys.gather(torch.tensor([values], dtype=torch.float64, device=self.device))
            row["nn1"], row["own_class"], row["own_class_10"] = seen[0].tolist()
        self.history.append(row)

    def neighbours(self) -> tuple[float, float, float]:
        """1-NN of test images, and own-class shares, in the banks (vince, ring, LA), or else in re-encoded images."""
        assert self.test is not None
        encoders = self.learner.network.encoders
        encode = partial(representations.encode, encoders, self.recipe.views, self.augmentation, device=self.device)
        labels = self.all_labels[self.order.to(self.device)]
        known = labels >= 0
        if not bool(known.any()):
            return math.nan, math.nan, math.nan
        if self.learner.keys.row_per_item:
            streams = [self.learner.keys.rows(i) for i in range(len(encoders))]
            rows = nn.functional.normalize(torch.cat(streams, 1), dim=1)[known]
        else:
            rows, _ = encode(self.images, indices=self.order[known.cpu()])
        test, truth = encode(self.test, indices=subset_order(self.test.labels, self.settings.test_images, seed=0))
        right = 100 * float(representations.nearest_neighbour(rows, labels[known], test, truth).double().mean())
        near, wide = (own_class_share(rows, labels[known], percent=percent) for percent in (1, 10))
        return right, near, wide

    def check_finite(self) -> None:
        """Waits for the device, which is time of training, too."""
        began = time.monotonic()
        bad = int(self.bad)
        self.seconds += time.monotonic() - began
        if bad >= 0:
            where = f"at step {bad} (epoch {bad // self.steps})"
            kept = self.file is not None and self.file.exists()
            last = f"the last good checkpoint is {self.file}" if kept else "there is no checkpoint yet"
            raise NonFiniteLossError(f"{self.recipe.name}: the loss or a gradient is not finite {where}; {last}")


class _Saver:
    """Listens to a loop and writes its checkpoint every so many seconds; times those that writing it takes, if more."""

    def __init__(self, loop: _Loop, every: float) -> None:
        self.loop, self.every, self.due = loop, every, time.monotonic() + every
        # what a checkpoint must agree with: all that decides the weights, and nothing about how they are scored
        config = {
            "recipe": loop.recipe.identity(), "settings": loop.settings.identity(), "seed": loop.seed,
            "images": getattr(loop.images, "name", "images"), "data": getattr(loop.source, "fingerprint", ""),
        }  # fmt: skip
        self.config = json.dumps(config, sort_keys=True)

    def after_step(self, *, certainly: bool = False) -> None:
        if certainly or (self.loop.world == 1 and time.monotonic() > self.due):
            self.save()

    def after_epoch(self) -> None:
        self.after_step(certainly=self.loop.world > 1 or self.loop.epoch == self.loop.settings.epochs)

    def save(self) -> None:
        """One process writes; the stored keys are the same on all of them."""
        began, loop = time.monotonic(), self.loop
        loop.check_finite()
        if loop.file is not None and loop.rank == 0:
            state = {
                "config": self.config, "learner": loop.learner.state_dict(), "optimiser": loop.optimiser.state_dict(),
                "sums": loop.sums, "progress": {name: getattr(loop, name) for name in _PROGRESS},
                "history": loop.history,
            }  # fmt: skip
            checkpoint.save(state, loop.file)
        now = time.monotonic()
        self.due = now + self.every * max(1.0, now - began)

    def load(self) -> None:
        """Go on from the checkpoint, if there is one."""
        loop, file = self.loop, self.loop.file
        seen = keys.gather(torch.tensor([file is not None and file.exists()], device=loop.device)).tolist()
        if len(set(seen)) > 1:
            raise DeviceError(f"{file}: only some processes see this checkpoint; all need the same folder")
        if file is None or not seen[0]:
            return
        state, mine = checkpoint.load(file, loop.device), json.loads(self.config)
        stored = {"data": mine["data"], **json.loads(state["config"])}  # older checkpoints do not name their data
        if other := ", ".join(_differing(stored, mine)):
            held = f"folder={str(file.parent)!r} holds a run with other settings ({other})"
            raise ArgumentError(f"{held}; choose another folder, or resume=False")
        loop.learner.load_state_dict(state["learner"])
        checkpoint.fill_optimiser(loop.optimiser, state["optimiser"])
        loop.sums.copy_(state["sums"])
        for name in _PROGRESS:
            setattr(loop, name, state["progress"].get(name, getattr(loop, name)))  # older ones have no spread
        loop.history = [dict(row) for row in state["history"]]
        loop.log(f"[{loop.name}] resume at epoch {loop.epoch}, step {loop.step}")


def _differing(stored: Mapping[str, Any], mine: Mapping[str, Any], at: str = "") -> Iterator[str]:
    """Paths of the values that two configurations do not share, such as ``settings.lr``."""
    for name in sorted({*stored, *mine}):
        one, other = stored.get(name), mine.get(name)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from _differing(one, other, f"{at}{name}.")
        elif one != other:
            yield at + name
