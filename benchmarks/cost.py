"""What a run costs: operations, bytes and messages counted, seconds by dividing through stated rates.

Counts are of the algorithms as this package computes them. Rates are arguments, each with where it comes from: a
measurement (``scale.py``), a count (``counts.py``) or an assumption. Seconds that come of assumptions are estimates.
``book/engineering.md`` reads it.

Left out: evaluations, k-means (LA, CAVE), the messages that carry a few bytes, the batch-norm buffers that DDP
broadcasts (thousandths of the parameters), and that a small batch of one device uses it badly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from contrastlab import encoders
from contrastlab.keys import Bank, InBatch, Queue
from contrastlab.methods import Recipe
from contrastlab.negatives import Ball, Every, Ring, Uniform, edges
from contrastlab.positives import Joint, Many
from contrastlab.scores import schedules
from contrastlab.scores.candidates import DENSE_BYTES, FEW
from contrastlab.settings import Settings
from contrastlab.support.errors import NotApplicableError, reject, unknown
from contrastlab.views import Split

Kind = Literal["every", "uniform", "uniform, few", "region", "region, streamed"]
KINDS: tuple[Kind, ...] = ("every", "uniform", "uniform, few", "region", "region, streamed")
"""Ways to choose negatives that differ in cost: all keys; keys drawn blindly, from all scores or, where they are few
among the stored, scored one by one; keys chosen by their scores, all held or, where they are too many, in one pass."""

FLOAT, INDEX = 4, 8


@dataclass(frozen=True)
class Counts:
    """Of one encoder and one view of one image.

    Args:
        forward: operations (a multiplication and an addition are two).
        training: operations of forward and backward; the input needs no gradient.
        parameters: numbers.
        activations: numbers kept for the backward pass.
    """

    forward: int
    training: int
    parameters: int
    activations: int


@lru_cache
def encoder(
    arch: str,
    *,
    stem: encoders.Stem = "imagenet",
    head: encoders.Head = "linear",
    dim: int = 128,
    side: int = 224,
    channels: int = 3,
) -> Counts:
    """Counts of an encoder, from a pass without data (on the device ``meta``).

    Args:
        arch: as for :func:`contrastlab.encoders.build`, and so are ``stem``, ``head`` and ``dim``.
        stem: see there.
        head: see there.
        dim: see there.
        side: of a view, pixels.
        channels: of a view.
    """
    images = 2  # batch-norm of a map of one pixel needs two
    with torch.device("meta"):
        network = encoders.build(arch, in_channels=channels, stem=stem, head=head, dim=dim)
        views = torch.empty(images, channels, side, side)
    own = {p.untyped_storage()._cdata for p in network.parameters()}
    kept: dict[int, int] = {}

    def keep(x: Tensor) -> Tensor:
        # several operations may keep the same tensor
        storage = x.untyped_storage()
        if storage._cdata not in own and x.dtype == torch.float32:
            kept[storage._cdata] = storage.nbytes() // FLOAT
        return x

    counter = FlopCounterMode(display=False)
    with counter, torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        out = network(views)
        forward = counter.get_total_flops()
        out.sum().backward()
    return Counts(
        forward // images,
        counter.get_total_flops() // images,
        sum(p.numel() for p in network.parameters()),
        sum(kept.values()) // images,
    )


def all_reduce(size: float, processes: int) -> float:
    """Bytes each process sends for the sum of ``size`` bytes on every process (ring: reduce-scatter, all-gather)."""
    return 2 * (processes - 1) / processes * size


def all_gather(size: float, processes: int) -> float:
    """Bytes each process receives when ``size`` bytes, shared out evenly, come to all."""
    return (processes - 1) / processes * size


@dataclass(frozen=True)
class Work:
    """One step of one process.

    Args:
        kind: one of :data:`KINDS`.
        queries: of this process, b.
        steps: of an epoch.
        encoder: operations of all encoders.
        product: operations of scores and their gradient.
        pairs: queries × keys, over all directions.
        scores: as many, or 0 where only drawn keys are scored.
        drawn: queries × negatives whose logits enter the loss, likewise.
        drawn_bytes: moved for them: indices, values, gradients, and the keys themselves.
        views: pixels × channels of all views made.
        reduced: bytes sent for the gradients.
        gathered: bytes received for keys (and images, where batch-norm shuffles them).
        state: bytes of parameters, gradients, momentum and slow network.
        stored: bytes of bank or queue; every process holds all of it.
        activations: numbers kept for the backward pass of the encoders.
    """

    kind: Kind
    queries: int
    steps: int
    encoder: float
    product: float
    pairs: float
    scores: float
    drawn: float
    drawn_bytes: float
    views: float
    reduced: float
    gathered: float
    state: float
    stored: float
    activations: float


def _kind(recipe: Recipe, keys: int, batch: int) -> Kind:
    # as Learner decides it; a CPU passes over fewer keys already, which is faster there but no other count
    part: Any = recipe.negatives
    in_batch = isinstance(recipe.keys, InBatch)
    if isinstance(part, Every):
        return "every"
    many = FLOAT * batch * keys > DENSE_BYTES
    if isinstance(part, Uniform):
        return "uniform" if in_batch or (FEW * part.k >= keys and not many) else "uniform, few"
    return "region, streamed" if many and not in_batch else "region"


def _drawn(recipe: Recipe, keys: int, progress: float) -> int:
    part: Any = recipe.negatives
    if isinstance(part, Every):
        return keys
    if part.k is not None:
        return int(part.k)
    if isinstance(part, Ball) and part.nearest is not None:
        return min(part.nearest, keys)
    outer = _at(part.outer, progress)
    if isinstance(part, Ring):
        first, last = edges(keys, _at(part.inner, progress), outer, part.inner_of)
        return last - first
    return edges(keys, 0, outer)[1]  # a cave is no larger than its ball


def _at(percent: schedules.Percent, progress: float) -> float:
    # a schedule is read at whole steps
    return schedules.at(percent, round(progress * 1000), 1000)


class _Keys(NamedTuple):
    """What the keys of a recipe add to a step, of all processes together where bytes are meant."""

    count: int
    """Keys that a query is compared with."""
    slow: int
    """Views without gradient, of each stream."""
    directions: int
    """Scores are taken from so many streams."""
    products: int
    """Matrix products of the size of the scores: forward, gradient of the queries, gradient of the keys."""
    gathered: float
    """Bytes that come to every process."""
    stored: int
    """Rows that every process holds, of each stream."""


def _bank(images: int, streams: int, batch: int, row: int) -> _Keys:
    gathered = float(batch * streams * (row + INDEX))
    return _Keys(images, slow=0, directions=streams, products=2, gathered=gathered, stored=images)


def _queue(keys: Queue, views: int, inputs: Sequence[int], batch: int, row: int, pixels: int) -> _Keys:
    streams = len(inputs)
    slow = 1 if views == 1 else views - 1
    gathered = float(batch * streams * row)
    if keys.shuffle_groups > 1:  # images go to other processes, and their keys come back
        gathered += sum(batch * slow * (FLOAT * channels * pixels + row) for channels in inputs)
    return _Keys(keys.size, slow, directions=streams, products=2, gathered=gathered, stored=keys.size)


def _in_batch(keys: InBatch, is_split: bool, trained: int, batch: int, row: int) -> _Keys:
    by_momentum = keys.momentum is not None
    count = 2 * batch if keys.against == "both" and not is_split else batch
    return _Keys(
        count,
        slow=trained if by_momentum else 0,
        directions=2 if keys.symmetric else 1,
        products=2 if by_momentum else 3,
        gathered=2.0 * batch * row * (2 if not by_momentum else 1),  # keys come, and their gradients go back
        stored=0,
    )


def _check(recipe: Recipe, settings: Settings, images: int, processes: int, progress: float) -> None:
    if processes < 1 or settings.batch_size % processes:
        raise reject("processes", processes, f"a divisor of the batch, {settings.batch_size}")
    if images < settings.batch_size:
        raise reject("images", images, f"at least the batch, {settings.batch_size}")
    if not 0 <= progress <= 1:
        raise reject("progress", progress, "a number from 0 to 1")
    if not isinstance(recipe.keys, Bank | Queue | InBatch):
        raise NotApplicableError(f"{recipe.name}: keys={recipe.keys!r} are no stored embeddings")


def _operations_of_scores(kind: Kind, is_in_batch: bool, keys: _Keys, drawn: int, dim: int) -> float:
    """Operations for one query: scores and their gradients."""
    if kind == "every" or is_in_batch:
        return 2.0 * dim * keys.products * keys.count
    if kind == "uniform, few":  # forward and gradient of the drawn keys alone
        return 2.0 * dim * 2 * drawn
    if kind == "region, streamed":  # a chosen key is scored once more
        return 2.0 * dim * (keys.count + 2 * drawn)
    return 2.0 * dim * (keys.count + drawn)


def _bytes_of_a_drawn_logit(kind: Kind, is_in_batch: bool, row: int) -> int:
    """Index, value and gradient, and the key itself."""
    numbers = INDEX + 2 * FLOAT
    if kind == "every" or is_in_batch:
        return numbers
    if kind in ("uniform, few", "region, streamed"):  # a key scored by itself is read, put in order and read before
        return numbers + 4 * row
    return numbers + row  # a chosen key is read for the gradient


def work(
    recipe: Recipe,
    settings: Settings,
    images: int,
    *,
    processes: int = 1,
    image_channels: int = 3,
    progress: float = 1.0,
) -> Work:
    """Work of a step.

    Args:
        recipe: with a bank, a queue or in-batch keys.
        settings: encoder, view and batch (of all processes together).
        images: rows of the data set, and of a bank.
        processes: n.
        image_channels: 1 or 3.
        progress: share of the run that is done, for annealed regions.

    Raises:
        ArgumentError: a batch that cannot be shared out, or that is larger than the data set.
        NotApplicableError: keys that are not stored embeddings.
    """
    _check(recipe, settings, images, processes, progress)
    inputs = recipe.views.channels(image_channels)
    encoders_of_streams = [
        encoder(
            settings.arch,
            stem=settings.stem,
            head=settings.head,
            dim=settings.dim,
            side=settings.image_size,
            channels=channels,
        )
        for channels in inputs
    ]
    batch, pixels, row = settings.batch_size, settings.image_size**2, FLOAT * settings.dim
    queries = batch // processes
    views = recipe.views.count
    is_in_batch = isinstance(recipe.keys, InBatch)
    is_split = isinstance(recipe.views, Split)
    trained = 2 if is_in_batch and not is_split else 1  # views with gradient, of each stream
    match recipe.keys:
        case Bank():
            keys = _bank(images, len(inputs), batch, row)
        case Queue():
            keys = _queue(recipe.keys, views, inputs, batch, row, pixels)
        case InBatch():
            keys = _in_batch(recipe.keys, is_split, trained, batch, row)

    kind = _kind(recipe, keys.count, batch)
    drawn = _drawn(recipe, keys.count, progress)
    asked = keys.directions * queries
    scored = 0 if kind == "uniform, few" else keys.count
    operations = _operations_of_scores(kind, is_in_batch, keys, drawn, settings.dim)
    if isinstance(recipe.positives, Many | Joint):
        operations += 4.0 * recipe.positives.count * settings.dim
    parameters = sum(each.parameters for each in encoders_of_streams)
    operations_of_encoders = sum(trained * each.training + keys.slow * each.forward for each in encoders_of_streams)
    copies = 4 if keys.slow else 3  # parameters, gradients, momentum, slow network
    return Work(
        kind=kind,
        queries=queries,
        steps=images // batch,
        encoder=float(queries * operations_of_encoders),
        product=asked * operations,
        pairs=float(asked * keys.count),
        scores=float(asked * scored),
        drawn=float(asked * drawn),
        drawn_bytes=float(asked * drawn * _bytes_of_a_drawn_logit(kind, is_in_batch, row)),
        views=float(queries * views * sum(inputs) * pixels),
        reduced=all_reduce(FLOAT * parameters, processes),
        gathered=all_gather(keys.gathered, processes),
        state=float(FLOAT * parameters * copies),
        stored=float(len(inputs) * keys.stored * row),
        activations=float(queries * trained * sum(each.activations for each in encoders_of_streams)),
    )


@dataclass(frozen=True)
class Rate:
    """A number that was not counted, with where it comes from."""

    value: float
    unit: str
    origin: str


@dataclass(frozen=True)
class Machine:
    """Rates of one device, of its share of the host, and of the link between devices.

    Args:
        encoder: operations a second that an encoder's training reaches.
        product: of a float32 matrix product.
        memory: bytes a second.
        link: bytes a second in one direction, per device.
        images: a second that the host decodes, for this device.
        passes: reads and writes of all scores a step, by kind; ``"views"``: of all pixels of the views, beside them.
    """

    encoder: Rate
    product: Rate
    memory: Rate
    link: Rate
    images: Rate
    passes: Mapping[str, Rate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("encoder", "product", "memory", "link", "images"):
            if not getattr(self, name).value > 0:
                raise reject(name, getattr(self, name).value, "a rate above 0")
        for needed in (*KINDS, "views"):
            if needed not in self.passes:
                raise unknown("passes", needed, self.passes)


@dataclass(frozen=True)
class Epoch:
    """Estimated seconds of an epoch.

    Args:
        data: decoding; beside all else, since workers do it.
        views: augmentation on the device.
        encoder: forward and backward, and the slow network.
        objective: scores, choice of negatives, loss.
        link: gradients and keys; not hidden behind the backward pass, which is the worst case.
    """

    data: float
    views: float
    encoder: float
    objective: float
    link: float

    @property
    def parts(self) -> dict[str, float]:
        """Seconds by name."""
        return {name: getattr(self, name) for name in ("data", "views", "encoder", "objective", "link")}

    @property
    def seconds(self) -> float:
        """The longer of decoding and of all that comes after it."""
        return max(self.data, self.views + self.encoder + self.objective + self.link)

    @property
    def bottleneck(self) -> str:
        """``data`` where the device waits for it, else the longest of the device's parts."""
        if self.data >= self.seconds:
            return "data"
        return max((n for n in self.parts if n != "data"), key=lambda n: self.parts[n])

    def __str__(self) -> str:
        return f"estimate: {self.seconds:.3g} s an epoch, bound by {self.bottleneck}"


def epoch(step: Work, machine: Machine) -> Epoch:
    """Estimated seconds of an epoch, by part.

    Args:
        step: from :func:`work`.
        machine: rates of each of its processes' devices.
    """
    score_bytes = FLOAT * step.scores * machine.passes[step.kind].value
    view_bytes = FLOAT * step.views * machine.passes["views"].value
    return Epoch(
        data=step.steps * step.queries / machine.images.value,
        views=step.steps * view_bytes / machine.memory.value,
        encoder=step.steps * step.encoder / machine.encoder.value,
        objective=step.steps
        * (step.product / machine.product.value + (score_bytes + step.drawn_bytes) / machine.memory.value),
        link=step.steps * (step.reduced + step.gathered) / machine.link.value,
    )


@dataclass(frozen=True)
class Fit:
    """``fixed + per_pair · pairs + per_drawn · drawn``.

    Where only drawn keys are scored, ``per_pair`` is what a larger bank costs because its rows are not in a cache.
    """

    fixed: float
    per_pair: float
    per_drawn: float

    def __call__(self, pairs: float, drawn: float) -> float:
        """The value at a size."""
        return self.fixed + self.per_pair * pairs + self.per_drawn * drawn


def _size(recipe: Recipe, keys: int, batch: int) -> tuple[Kind, float, float]:
    return _kind(recipe, keys, batch), float(batch * keys), float(batch * _drawn(recipe, keys, 1.0))


def calibrate(rows: Iterable[tuple[Recipe, Mapping[str, Any]]], quantity: str = "cpu_s") -> dict[Kind, Fit]:
    """Constants of the objective's cost from measured steps: least squares of the relative error, none below 0.

    Args:
        rows: recipe, and a measurement with ``keys``, ``batch`` and the quantity, as ``scale.py`` stores it.
        quantity: ``cpu_s``, ``wall_s`` (seconds a step) or ``peak_bytes``.

    Returns:
        A fit for each kind that was measured.
    """
    found: dict[Kind, list[tuple[float, float, float]]] = {}
    for recipe, row in rows:
        kind, pairs, drawn = _size(recipe, row["keys"], row["batch"])
        if row[quantity] > 0:
            found.setdefault(kind, []).append((pairs, drawn, float(row[quantity])))
    fits: dict[Kind, Fit] = {}
    for kind, measured in found.items():
        table = np.array(measured)
        columns = np.column_stack([np.ones(len(table)), table[:, 0], table[:, 1]]) / table[:, 2:]
        scale = columns.max(0)
        solution, _ = nnls(columns / scale, np.ones(len(table)))
        fits[kind] = Fit(*(float(x) for x in solution / scale))
    return fits


def predict(fits: Mapping[Kind, Fit], recipe: Recipe, keys: int, batch: int) -> float:
    """What :func:`calibrate` says of one direction of a step.

    Raises:
        UnknownNameError: a kind that was not measured.
    """
    kind, pairs, drawn = _size(recipe, keys, batch)
    if kind not in fits:
        raise unknown("kind of negatives", kind, fits)
    return fits[kind](pairs, drawn)


def memory(step: Work, objective: Mapping[Kind, Fit], activation_bytes: int = FLOAT) -> dict[str, float]:
    """Estimated bytes of a process, by part.

    Args:
        step: from :func:`work`.
        objective: fits of ``peak_bytes``.
        activation_bytes: of a number kept for the backward pass; 2 in bfloat16.
    """
    if step.kind not in objective:
        raise unknown("kind of negatives", step.kind, objective)
    return {
        "networks": step.state,
        "stored keys": step.stored,
        "activations": activation_bytes * step.activations,
        "objective": objective[step.kind](step.pairs, step.drawn),
    }
