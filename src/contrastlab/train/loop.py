"""The one training loop.

Randomness is counted, not carried: order, augmentation and draws of step t come from generators seeded by
(seed, purpose, t). A resumed run therefore needs no random state to continue as if it had never stopped,
and N processes agree on the draws of the global batch without talking.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
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
from contrastlab.pictures.encoder import begin_with, set_memory_format
from contrastlab.pictures.items import ItemSet
from contrastlab.pictures.loading import WORKERS, Crops, batches, decoders, subset_order
from contrastlab.pictures.representations import own_class_share
from contrastlab.pictures.task import Log as Log
from contrastlab.recipe import Recipe
from contrastlab.settings import Settings
from contrastlab.support import collectives, host
from contrastlab.support.errors import NotApplicableError, check
from contrastlab.support.seeds import derive, fixed, generator
from contrastlab.train import checkpoint
from contrastlab.train.journal import Journal
from contrastlab.train.learner import Learner, Step
from contrastlab.train.progress import Course, Progress, check_finite
from contrastlab.train.saver import Saver
from contrastlab.train.schedule import cpu_fabric, learning_rate, optimiser, plateau_drops
from contrastlab.train.signals import interruptible
from contrastlab.train.spread import SpreadListener
from contrastlab.views.base import crop_options

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@dataclass(frozen=True)
class Speed:
    """Switches that change how fast a run is, and no number of it beyond float32 rounding: no part of its settings."""

    channels_last: bool = True  #: memory format of views and weights
    fused: bool = True  #: the optimiser step as one kernel
    cudnn_benchmark: bool = True  #: on CUDA, cuDNN tries which of its kernels is fastest
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
    recipe: Recipe,
    settings: Settings,
    images: ItemSet,
    test: ItemSet | None = None,
    *,
    seed: int = 0,
    folder: str | Path | None = None,
    fabric: Fabric | None = None,
    resume: bool = True,
    checkpoint_every: float = 60.0,
    max_minutes: float | None = None,
    speed: Speed | None = None,
    log: Log | None = None,
    start: nn.ModuleList | None = None,
) -> Trained:
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
    fabric = fabric or cpu_fabric(settings.precision)
    fabric.launch()
    log = log or _print_once
    _check_batch(settings)
    modality(images)  # refuses what is no set of items
    order = subset_order(images.labels, settings.train_images, seed=0)
    _check_images(recipe, settings, images.labels[order])
    encoders = _first_encoders(recipe, settings, images, seed, start)
    learner = Learner(recipe, settings, images=len(order), classes=len(images.classes), seed=seed, encoders=encoders)
    if recipe.keys is None:
        return Trained(learner.network.encoders.eval().to(fabric.device))
    data = _Data.on(fabric.device, images, test, order)
    course = _course(recipe, settings, data, seed, fabric.device, folder)
    _say_copies(course, len(order), log)
    loop = _Loop(course, learner, data, fabric, speed or Speed(), log)
    return loop.fit(resume, checkpoint_every, max_minutes)


def _first_encoders(
    recipe: Recipe, settings: Settings, images: ItemSet, seed: int, start: nn.ModuleList | None
) -> nn.ModuleList:
    """The encoders that training begins with: drawn from the seed, or with the weights of others."""
    with fixed(seed):
        encoders = modality(images).encoders(recipe.views, images, settings)
    if start is not None:
        encoders.load_state_dict(start.state_dict())
    elif settings.weights is not None:
        begin_with(encoders, settings.weights, settings.arch)
    return encoders


def _course(
    recipe: Recipe, settings: Settings, data: _Data, seed: int, device: torch.device, folder: str | Path | None
) -> Course:
    """What this process does, and on what."""
    rank, world = collectives.world()
    checkpoint_file = None
    if folder is not None:
        checkpoint_file = Path(folder) / checkpoint.FILE
    return Course(
        recipe,
        settings,
        seed,
        steps=len(data.order) // settings.batch_size,
        rank=rank,
        world=world,
        device=device,
        checkpoint=checkpoint_file,
        images=getattr(data.images, "name", "images"),
        fingerprint=getattr(data.images, "fingerprint", ""),
    )


def _print_once(line: str) -> None:
    """Print a line, in the first of several processes."""
    rank, _ = collectives.world()
    if rank == 0:
        print(line, flush=True)


def _check_images(recipe: Recipe, settings: Settings, labels: Tensor) -> None:
    """Refuse images that do not fill a batch, or lack the labels that the recipe reads."""
    if recipe.keys is None:
        return
    images = len(labels)
    check(settings.batch_size <= images, "batch_size", settings.batch_size, f"at most the number of images, {images}")
    if recipe.reads_labels and int(labels.min()) < 0:
        raise NotApplicableError(f"{recipe.name} reads labels; this pre-training set has unlabelled images")


def _check_batch(settings: Settings) -> None:
    """Refuse a batch that processes or chunks cannot share evenly."""
    _, world = collectives.world()
    size, chunks = settings.batch_size, settings.accumulate
    check(size % world == 0, "batch_size", size, f"a multiple of the number of processes, {world}")
    local = size // world
    accepted = f"1, or a divisor of {local}, the batch of a process, that leaves two items or more in each chunk"
    check(chunks == 1 or (local % chunks == 0 and local >= 2 * chunks), "accumulate", chunks, accepted)


def _say_copies(course: Course, items: int, log: Log) -> None:
    """Say so where a queue is so long that it holds copies of each item."""
    size = getattr(course.recipe.keys, "size", 0)
    copies = size // max(items, 1)
    if copies > 1:
        held = f"{copies} copies of each of {items} items, a query's own among its negatives"
        log(f"[{course.name}] the queue of {size} keys comes to hold {held}")


def choose_kernels(device: torch.device, speed: Speed) -> None:
    """Let cuDNN try kernels or not; it stays so after the run, whose result says what it was."""
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = speed.cudnn_benchmark


@dataclass(frozen=True)
class _Data:
    """What a run is trained on and watched with, on the device where it is resident."""

    images: ItemSet
    test: ItemSet | None
    order: Tensor  #: numbers of the images that are trained on, ``[N]``, on the CPU
    place: Tensor  #: of an image in ``order``, which is its row in a bank; -1 for the others, ``[all images]``
    labels: Tensor  #: ``[all images]``

    @classmethod
    def on(cls, device: torch.device, images: ItemSet, test: ItemSet | None, order: Tensor) -> _Data:
        """With what is resident on a device."""
        place = torch.full((len(images),), -1).scatter_(0, order, torch.arange(len(order)))
        if test is not None:
            test = test.to(device)
        return cls(
            images=images.to(device),
            test=test,
            order=order,
            place=place.to(device),
            labels=images.labels.to(device),
        )


class _Loop:
    """A run between its steps."""

    def __init__(self, course: Course, learner: Learner, data: _Data, fabric: Fabric, speed: Speed, log: Log) -> None:
        self.course, self.data, self.fabric, self.speed, self.log = course, data, fabric, speed, log
        self.recipe, self.settings, self.device = course.recipe, course.settings, course.device
        self.progress = Progress.begin(self.device)
        self.augmentation = modality(data.images).augmentation(self.settings)
        choose_kernels(self.device, speed)
        self.learner = learner.to(self.device)
        if not host.holds(self.device) and self.settings.accumulate == 1:
            learner.keys.norm_in_one_pass(learner.network.encoders)
        set_memory_format(learner, channels_last=speed.channels_last)
        self.fused = speed.fused and self.device.type in ("cpu", "cuda") and self.settings.optimiser.name != "lars"
        self.optimiser = optimiser(self.settings, learner.network.parameters(), fused=self.fused)
        network = self._network()
        self.has_dropout = any(isinstance(layer, nn.Dropout) and layer.p > 0 for layer in network.modules())
        # compiled before it is wrapped: Fabric then compiles what it wraps, without a break in the graph
        module, self.wrapped_optimiser = fabric.setup(network, self.optimiser)
        learner.bind(module)

    def _network(self) -> Any:
        """The query network, compiled and in chunks where that is asked for."""
        network: Any = self.learner.network
        if self.speed.compile:
            network = torch.compile(network, dynamic=False)
            for encoder in self.learner.keys.slow or ():
                encoder.compile(dynamic=False)
        if self.settings.accumulate > 1:
            network = keys.Chunked(network, self.course.local_batch // self.settings.accumulate)
        return network

    def fit(self, resume: bool, checkpoint_every: float, max_minutes: float | None) -> Trained:
        """All remaining epochs; stopped in good order, a later call goes on."""
        course, progress = self.course, self.progress
        saver = Saver(course, progress, self.learner, self.optimiser, checkpoint_every)
        if resume:
            saver.load(self.log)
        end = math.inf
        if max_minutes is not None:
            end = time.monotonic() + 60 * max_minutes
        journal = Journal(course, progress, self.log)
        listeners = (SpreadListener(course, progress, self.log), journal, saver)
        with interruptible() as stop, closing(journal), closing(self.batches()) as stream:
            while progress.epoch < self.settings.epochs:
                self.begin_epoch()
                while progress.step < (progress.epoch + 1) * course.steps:
                    self.timed_step(stream)
                    for listener in listeners:
                        listener.after_step()
                    if self.all_stop(stop.is_set() or time.monotonic() > end):
                        saver.save()
                        self.fabric.barrier()  # a launcher kills all processes soon after the first one ends
                        raise KeyboardInterrupt(f"stopped at step {progress.step}; run again to continue")
                self.end_epoch()
                for listener in listeners:
                    listener.after_epoch()
        encoders = self.learner.network.encoders.eval()
        keys.norm_plainly(encoders)  # one process scores
        return Trained(encoders, progress.history, progress.seconds, progress.step * self.settings.batch_size)

    def all_stop(self, stop: bool) -> bool:
        """Whether all processes stop here; Ctrl-C reaches them at different steps."""
        if self.course.world == 1:
            return stop
        if not self.progress.host_may_look(self.device):
            return False
        return bool(collectives.gather(torch.tensor([stop], device=self.device)).any())

    def begin_epoch(self) -> None:
        """Set the clocks of an epoch, and cluster the keys between epochs."""
        progress = self.progress
        self.learner.train()
        progress.first_step = progress.step
        progress.seconds_before = progress.seconds
        progress.waited = 0.0
        at_first_step = (
            progress.step == progress.epoch * self.course.steps
        )  # of the epoch; a resumed run may be past it
        if at_first_step and progress.epoch > 0:
            self.learner.keys.cluster(seed=derive(self.course.seed, "clusters", progress.epoch) % 2**31)

    def set_lr(self) -> None:
        """Set the learning rate of this step."""
        progress = self.progress
        share_of_epoch = progress.step / self.course.steps - progress.epoch
        rate = learning_rate(self.settings, progress.epoch, share_of_epoch)
        if self.settings.schedule == "plateau":
            rate *= self.settings.gamma ** plateau_drops(progress.history, self.settings)
        for group in self.optimiser.param_groups:
            group["lr"] = rate

    def batches(self) -> Generator[tuple[Tensor, Tensor], None, None]:
        """Numbers and pixels of the batches of all remaining steps."""
        course, progress = self.course, self.progress
        crop = None
        if not self.data.images.whole:
            items_before = progress.epoch * course.steps * self.settings.batch_size
            options = crop_options(self.recipe.views, self.settings.image_size)
            crop = Crops(self.augmentation, seed=course.seed, before=items_before, **options)
        return batches(
            self.data.images,
            self.orders(progress.epoch),
            course.local_batch,
            self.device,
            drop_last=True,
            rank=course.rank,
            world=course.world,
            start=progress.step - progress.epoch * course.steps,
            workers=self.speed.workers,
            crop=crop,
        )

    def orders(self, first_epoch: int) -> Iterator[Tensor]:
        """Numbers of the images in the order of each epoch from the first one on."""
        order = self.data.order
        for epoch in range(first_epoch, self.settings.epochs):
            shuffled = torch.randperm(len(order), generator=generator(self.course.seed, "order", epoch))
            yield order[shuffled]

    def timed_step(self, stream: Iterator[tuple[Tensor, Tensor]]) -> None:
        """One step and the time it takes."""
        began = time.monotonic()
        numbers, pixels = next(stream)
        self.progress.waited += time.monotonic() - began
        self.train_step(numbers, pixels)
        self.progress.seconds += time.monotonic() - began
        if self.progress.host_may_look(self.device):
            check_finite(self.course, self.progress)

    def train_step(self, numbers: Tensor, pixels: Tensor) -> None:
        """One step; on a GPU the host waits for nothing in it."""
        self.set_lr()
        places = self.data.place[numbers]
        out = self.loss(pixels, places, self.data.labels[numbers])
        self.wrapped_optimiser.zero_grad()
        self.fabric.backward(out.loss)
        self.note_if_not_finite(out.loss)
        self.wrapped_optimiser.step()
        self.learner.commit(places, out)
        self.progress.count_step(out.loss, out.terms, out.pairs)

    def loss(self, pixels: Tensor, places: Tensor, labels: Tensor) -> Step:
        """Views of a batch, and their loss; every draw is seeded by the number of the step."""
        course, step, device = self.course, self.progress.step, self.device
        view_draws = generator(course.seed, f"views/{course.rank}", step, device)
        shared_draws = generator(course.seed, "draws", step, device)
        views = self.recipe.views.make(pixels, self.augmentation, view_draws)
        draws = BatchRandom(shared_draws, course.rank * course.local_batch, self.settings.batch_size)
        with self.fabric.autocast(), self.dropout_masks():
            return self.learner.loss(views, places, labels, draws, step, course.all_steps)

    def dropout_masks(self) -> AbstractContextManager[None]:
        """The generator that masks are drawn from, seeded by the step; as it is where nothing drops out."""
        if not self.has_dropout:
            return nullcontext()
        seed = derive(self.course.seed, f"dropout/{self.course.rank}", self.progress.step)
        return fixed(seed, self.device)

    def note_if_not_finite(self, loss: Tensor) -> None:
        """Note a step whose loss or gradient is not finite; a fused optimiser then leaves the weights as they are."""
        progress = self.progress
        finite = self.finite(loss)
        is_first = (progress.first_bad_step < 0) & ~finite
        progress.first_bad_step = torch.where(is_first, progress.step, progress.first_bad_step)
        if host.holds(self.device) and not bool(finite):
            check_finite(self.course, progress)
        if self.fused:
            # it skips its step where this is 1, and the host need not wait; a plain one takes it, and nothing is stored
            self.optimiser.found_inf = (~finite).float()  # type: ignore[attr-defined]

    def finite(self, loss: Tensor) -> Tensor:
        """Whether the loss and every gradient are finite; an infinite slope can hide behind a finite loss."""
        gradients = [p.grad for p in self.learner.network.parameters() if p.grad is not None]
        return loss.detach().isfinite() & torch.stack(torch._foreach_norm(gradients)).sum().isfinite()

    def end_epoch(self) -> None:
        """Add the row of an epoch to the history."""
        course, progress = self.course, self.progress
        check_finite(course, progress)
        total, count = collectives.gather(progress.sums[None]).sum(0).tolist()
        progress.sums.zero_()
        progress.epoch += 1
        row = {
            "epoch": float(progress.epoch),
            "step": float(progress.step),
            "loss": total / count,
            "lr": self.optimiser.param_groups[0]["lr"],
            "seconds": progress.seconds,
            "images_per_s": progress.step * self.settings.batch_size / max(progress.seconds, 1e-9),
            "waiting": progress.waiting,
        }
        bound = self.recipe.objective.bound(row["loss"] / len(self.recipe.views.pairs), progress.terms)
        if bound is not None and self.recipe.bounds_information and progress.terms <= len(self.data.images):
            row["mi_bound"] = bound
        if self._is_neighbour_epoch():
            row |= self._neighbour_columns()
        progress.history.append(row)

    def _is_neighbour_epoch(self) -> bool:
        """Whether the neighbours of test images are looked at after this epoch."""
        every = self.settings.knn_every
        if self.data.test is None or not every:
            return False
        return self.progress.epoch % every == 0 or self.progress.epoch == self.settings.epochs

    def _neighbour_columns(self) -> dict[str, float]:
        """The values of :meth:`neighbours` by their columns in the history.

        The first process computes them for all: each has batch-norm statistics of its own, and the learning rate may
        depend on the accuracy.
        """
        with decoders(self.speed.workers * self.course.world):
            values = collectives.by_first(self.neighbours) or (0.0, 0.0, 0.0)
        of_all = collectives.gather(torch.tensor([values], dtype=torch.float64, device=self.device))
        return dict(zip(("nn1", "own_class", "own_class_10"), of_all[0].tolist(), strict=True))

    def neighbours(self) -> tuple[float, float, float]:
        """1-NN accuracy of test images, and own-class shares of the closest 1 and 10 %, in percent.

        Neighbours are rows of the banks (vince, ring, LA), or else training images that are encoded again.
        """
        images, test_images, order = self.data.images, self.data.test, self.data.order
        assert test_images is not None
        encoders = self.learner.network.encoders
        encode = partial(representations.encode, encoders, self.recipe.views, self.augmentation, device=self.device)
        labels = self.data.labels[order.to(self.device)]
        has_label = labels >= 0
        if not bool(has_label.any()):
            return math.nan, math.nan, math.nan
        if self.learner.keys.row_per_item:
            streams = [self.learner.keys.stored(i) for i in range(len(encoders))]
            rows = nn.functional.normalize(torch.cat(streams, 1), dim=1)[has_label]
        else:
            rows, _ = encode(images, indices=order[has_label.cpu()])
        test, truth = encode(test_images, indices=subset_order(test_images.labels, self.settings.test_images, seed=0))
        labels = labels[has_label]
        is_right = representations.nearest_neighbour(rows, labels, test, truth)
        accuracy = 100 * float(is_right.double().mean())
        closest = own_class_share(rows, labels, percent=1)
        close = own_class_share(rows, labels, percent=10)
        return accuracy, closest, close
