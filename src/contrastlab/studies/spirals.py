"""Two spirals: does some amount of noise in the views make the labels linearly separable? vince Figure 6.

An encoder of points of the plane is trained with InfoNCE against a memory bank; the views of a point are the point
plus uniform noise of width η. The transfer task is to tell the two spirals apart by logistic regression on the
2-D representations. The paper reports near-chance accuracy at η = 0, a peak at η = 0.4 and chance far beyond.

Its text leaves the geometry, the output and the critic open; :data:`READINGS` are readings of it, trained by
:func:`accuracy_curve` and judged by :func:`peak`. All values of η and all seeds of a reading are trained at once, as
one batched network; a seed's points, initial weights and draws are the same for every η.

Source: vince appendix G, "A Second Toy Example" and its training details.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, get_args

import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch.nn import functional as F

from contrastlab.data.loading import generator
from contrastlab.errors import reject, unknown
from contrastlab.studies import Row, Study, location, measure, read
from contrastlab.theory.toys import Handedness, shifted, spirals

__all__ = [
    "PROFILES",
    "READINGS",
    "Encoders",
    "Peak",
    "Profile",
    "Reading",
    "accuracy_curve",
    "info_nce",
    "peak",
    "points_of",
    "representations",
    "stored",
    "study",
]

Output = Literal["sphere", "plane"]
Critic = Literal["dot", "distance"]
Spacing = Literal["angle", "length"]

# vince appendix G
LAYERS = 5
WIDTH = 128
BATCH = 128
LEARNING_RATE = 0.03
MOMENTUM = 0.9
WEIGHT_DECAY = 1e-5
TEMPERATURE = 0.07
BANK_RATE = 0.5

FAR = 1e-4  # a representation that varies less than this share of its size is one point


@dataclass(frozen=True)
class Reading:
    """One way to read what appendix G leaves open.

    Args:
        handedness: ``same``: the second spiral is the first turned by 180°, they interleave and never cross;
            ``opposite``: it is the first mirrored, "one spinning clockwise and one counter-clockwise", and they cross.
        turns: revolutions of each.
        spacing: points evenly spread over the ``angle``, denser towards the centre, or about evenly over the
            ``length`` of the curve (the angle is the root of a uniform draw, as in a widespread generator).
        output: ``sphere``: representations and bank rows have norm one, as in the paper's image models;
            ``plane``: they are left as they are.
        critic: ``dot``: q·k/τ; ``distance``: −‖q − k‖²/τ, on the sphere the same critic at half the temperature.
        centred: noise from U(−η/2, η/2) in place of the printed U(0, η).
        clip: largest norm of a model's gradient; none is printed.

    Raises:
        ArgumentError: a value that is not among these.
    """

    handedness: Handedness = "same"
    turns: float = 2.0
    spacing: Spacing = "angle"
    output: Output = "sphere"
    critic: Critic = "dot"
    centred: bool = False
    clip: float | None = None

    def __post_init__(self) -> None:
        options = {"handedness": Handedness, "spacing": Spacing, "output": Output, "critic": Critic}
        for name, kind in options.items():
            if getattr(self, name) not in get_args(kind):
                raise reject(name, getattr(self, name), " or ".join(map(repr, get_args(kind))))
        if not isinstance(self.centred, bool):
            raise reject("centred", self.centred, "True or False")
        _positive("turns", self.turns)
        if self.clip is not None:
            _positive("clip", self.clip)

    @property
    def name(self) -> str:
        """Short, such as ``same, 2 turns, sphere, dot``."""
        parts = [self.handedness, f"{self.turns:g} turn{'s' * (self.turns != 1)}", self.output, self.critic]
        extra = ["even length"] * (self.spacing == "length") + ["centred"] * self.centred
        return ", ".join(parts + extra + ([] if self.clip is None else [f"clip {self.clip:g}"]))


def _positive(name: str, value: float) -> None:
    if isinstance(value, bool) or not (math.isfinite(value) and value > 0):
        raise reject(name, value, "a positive number")


def _check(
    etas: Sequence[float], seeds: Sequence[int], iterations: int, negatives: int, points: int, held_out: int
) -> None:
    if not etas or not all(math.isfinite(eta) and eta >= 0 for eta in etas) or len(set(etas)) < len(etas):
        raise reject("etas", etas, "different numbers of at least 0, one or more")
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise reject("seeds", seeds, "different non-negative integers, one or more")
    for name, value in (("iterations", iterations), ("negatives", negatives)):
        if value < 1:
            raise reject(name, value, "an integer of at least 1")
    for name, value in (("points", points), ("held_out", held_out)):
        if value < 20:
            raise reject(name, value, "an integer of at least 20")


def _named(*readings: Reading) -> dict[str, Reading]:
    return {reading.name: reading for reading in readings}


READINGS: Mapping[str, Reading] = _named(
    Reading(turns=1.0, output="plane", clip=1.0),
    Reading(turns=1.0, output="plane", critic="distance", clip=1.0),
    Reading(),
    Reading(handedness="opposite", turns=1.0, output="plane", clip=1.0),
    Reading(turns=1.0, output="plane"),
    Reading(handedness="opposite"),
    Reading(output="plane", critic="distance", clip=1.0),
    Reading(turns=1.0, output="plane", centred=True, clip=1.0),
    Reading(turns=1.5, spacing="length"),
)
"""Readings that the text allows, by name, those first that came closest to the published curve in short runs."""


@dataclass(frozen=True)
class Profile:
    """How much of the study is run.

    Args:
        readings: names in :data:`READINGS`.
        etas: η, widths of the noise.
        seeds: of points, initial weights and draws.
        iterations: optimiser steps.
        negatives: K, bank rows against each positive.
        points: of the two spirals together, to train on; as many of the bank's rows.
        held_out: further points, on which accuracy is taken.
    """

    readings: tuple[str, ...] = tuple(READINGS)
    etas: tuple[float, ...] = (0.0, 0.2, 0.4, 0.8, 5.0)
    seeds: tuple[int, ...] = (0, 1, 2)
    iterations: int = 10_000
    negatives: int = 4096
    points: int = 10_000
    held_out: int = 5000

    def __post_init__(self) -> None:
        for name in self.readings:
            if name not in READINGS:
                raise unknown("reading", name, READINGS)
        _check(self.etas, self.seeds, self.iterations, self.negatives, self.points, self.held_out)


PROFILES: Mapping[str, Profile] = {
    "smoke": Profile(
        readings=tuple(READINGS)[:3], etas=(0.0, 0.4, 5.0), seeds=(0,), iterations=20, negatives=64, points=400,
        held_out=400,
    ),
    "quick": Profile(readings=tuple(READINGS)[:6], seeds=(0, 1), iterations=1500, negatives=512),
    "paper": Profile(),
}  # fmt: skip
"""``smoke`` shows that the code runs, ``quick`` is for reading along, ``paper`` is the printed protocol."""


def points_of(reading: Reading, count: int, seed: int, purpose: str = "train") -> tuple[Tensor, Tensor]:
    """``count`` points of the two spirals and their labels, ``[count, 2]`` float32 and ``[count]``.

    Args:
        reading: its geometry and spacing.
        count: points, half of them on each spiral.
        seed: of the points.
        purpose: points of different purposes are independent draws.
    """
    draws = generator(seed, f"spirals/{purpose}")
    points, labels = spirals(count, draws, handedness=reading.handedness, turns=reading.turns)
    if reading.spacing == "angle":
        return points, labels
    # keeping a share proportional to the radius makes a uniform radius the root of one
    kept, own = torch.empty(0, 2), torch.empty(0, dtype=labels.dtype)
    while min(int((own == label).sum()) for label in (0, 1)) < (count + 1) // 2:
        points, labels = spirals(4 * count, draws, handedness=reading.handedness, turns=reading.turns)
        inside = torch.rand(len(points), generator=draws) < points.norm(dim=1) / 2
        kept, own = torch.cat([kept, points[inside]]), torch.cat([own, labels[inside]])
    halves = [kept[own == label][: (count + 1) // 2] for label in (0, 1)]
    return torch.stack(halves, 1).reshape(-1, 2)[:count], torch.arange(count) % 2


def info_nce(
    queries: Tensor, positives: Tensor, negatives: Tensor, critic: Critic, scratch: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """InfoNCE with the positive in the denominator, and its gradient by the queries.

    ``L = −log exp s(q, k⁺) / (exp s(q, k⁺) + Σⱼ exp s(q, kⱼ))``. The keys are bank rows and get no gradient. The
    gradient is written out because one softmax then serves value and gradient: the step is bound by this table.

    Args:
        queries: ``[B, D]``.
        positives: ``[B, D]``.
        negatives: ``[K, D]``, shared by the queries.
        critic: s, at the paper's temperature.
        scratch: ``[2, B, K + 1]`` to work in; fresh memory of this size costs as much as the arithmetic.

    Returns:
        ``[B]`` nats and ``[B, D]``, the gradient of each query's loss.

    Source: vince Eq. 4 with the choices of appendix G.
    """
    scores, share = queries.new_empty(2, len(queries), len(negatives) + 1) if scratch is None else scratch
    columns = negatives.T.contiguous()
    rest = scores[:, 1:]
    # D is 2: products of columns are several times as quick as a matrix product
    torch.mul(queries[:, :1], columns[0], out=rest)
    for axis in range(1, queries.shape[1]):
        rest.addcmul_(queries[:, axis : axis + 1], columns[axis])
    scores[:, 0] = (queries * positives).sum(1)
    scale = 1 / TEMPERATURE
    if critic == "distance":
        # −‖q − k‖² = 2 q·k − ‖k‖² − ‖q‖², whose last term cancels in the softmax
        scale *= 2
        rest.sub_(0.5 * columns.square().sum(0))
        scores[:, 0] -= 0.5 * positives.square().sum(1)
    scores.mul_(scale)
    torch.softmax(scores, 1, out=share)
    # log-sum-exp from the largest share, which cannot underflow as the positive's can
    loss = scores.amax(1) - share.amax(1).log() - scores[:, 0]
    pulled = (columns @ share[:, 1:].T).T + share[:, :1] * positives
    return loss, scale * (pulled - positives)


class Encoders:
    """One network for every (seed, η), trained side by side; model ``m`` is seed ``m // E``, noise ``m % E``.

    Five linear layers with ReLU between them, 2 → 128 → 128 → 128 → 128 → 2; weights start as ``nn.Linear`` starts
    them, bank rows uniform as in the released image code, on the circle where the output is. The state of one model
    never depends on which others are trained beside it.

    Args:
        reading: what is trained.
        etas: E values of η.
        seeds: S seeds.
        points: N, points per seed.

    Attributes:
        points: ``[S, N, 2]``.
        labels: ``[S, N]``.
        bank: ``[S·E, N, 2]``, M.
        parameters: weights ``[S·E, in, out]`` of the layers, then biases ``[S·E, 1, out]``.
        broken: ``[S·E]`` bool, models whose loss was not finite at some step.
    """

    def __init__(self, reading: Reading, etas: Sequence[float], seeds: Sequence[int], points: int) -> None:
        self.reading, self.etas, self.seeds = reading, tuple(etas), tuple(seeds)
        noises, sizes = len(etas), [2, *[WIDTH] * (LAYERS - 1), 2]
        drawn = [points_of(reading, points, seed) for seed in seeds]
        self.points = torch.stack([pair[0] for pair in drawn])
        self.labels = torch.stack([pair[1] for pair in drawn])
        weights: list[list[Tensor]] = []
        biases: list[list[Tensor]] = []
        banks: list[Tensor] = []
        for seed in seeds:
            draws = generator(seed, "spirals/initial")
            bounds = [(size, after, size**-0.5) for size, after in itertools.pairwise(sizes)]
            weights.append([bound * (2 * torch.rand(a, b, generator=draws) - 1) for a, b, bound in bounds])
            biases.append([bound * (2 * torch.rand(1, b, generator=draws) - 1) for _, b, bound in bounds])
            banks.append(self._output(math.sqrt(1.5) * (2 * torch.rand(points, 2, generator=draws) - 1)))
        self.bank = torch.stack(banks).repeat_interleave(noises, 0)
        self.parameters = [
            torch.stack(layer).repeat_interleave(noises, 0).requires_grad_()
            for kind in (weights, biases)
            for layer in zip(*kind, strict=True)
        ]
        self.broken = torch.zeros(len(self.bank), dtype=torch.bool)
        self._widths = torch.tensor(self.etas)[:, None, None]
        self._optimizer = torch.optim.SGD(
            self.parameters, lr=LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY, foreach=True
        )
        self._scratch = torch.empty(0)
        self._draws = [generator(seed, "spirals/steps") for seed in seeds]

    def _output(self, raw: Tensor) -> Tensor:
        return F.normalize(raw, dim=-1) if self.reading.output == "sphere" else raw

    def encode(self, inputs: Tensor, models: slice = slice(None)) -> Tensor:
        """Representations ``[M, B, 2]`` of ``[M, B, 2]``, each by its own model, of all models or of a slice."""
        layers = [parameter[models] for parameter in self.parameters]
        hidden = inputs
        for index, (weight, bias) in enumerate(zip(layers[:LAYERS], layers[LAYERS:], strict=True)):
            hidden = torch.baddbmm(bias, hidden, weight)
            if index < LAYERS - 1:
                hidden = hidden.relu()
        return self._output(hidden)

    def views(self, anchors: Tensor, unit: Tensor) -> Tensor:
        """``[S·E, B, 2]``: ``anchors`` ``[S, B, 2]`` plus η times ``unit`` ``[S, B, 2]``, noise of width one."""
        return (anchors[:, None] + self._widths * unit[:, None]).flatten(0, 1)

    def draw(self, negatives: int) -> tuple[Tensor, Tensor, Tensor]:
        """The next draws of every seed: rows of the batch ``[S, B]``, unit noise ``[S, B, 2]``, negatives ``[S, K]``.

        Negatives are bank indices, with replacement, one draw a step for all queries of a seed.
        """
        count, size = self.points.shape[1], min(BATCH, self.points.shape[1])
        rows, noise, others = [], [], []
        for draws in self._draws:
            rows.append(torch.randperm(count, generator=draws)[:size])
            noise.append(shifted(torch.zeros(size, 2), 1.0, draws, centred=self.reading.centred))
            others.append(torch.randint(count, (negatives,), generator=draws))
        return torch.stack(rows), torch.stack(noise), torch.stack(others)

    def step(self, rows: Tensor, unit: Tensor, negatives: Tensor) -> Tensor:
        """One step of every model: InfoNCE against the bank, SGD, then ``M[i] ← α M[i] + (1 − α) g``.

        Args:
            rows: ``[S, B]`` different rows of the batch.
            unit: ``[S, B, 2]`` noise of width one.
            negatives: ``[S, K]`` bank rows.

        Returns:
            ``[S·E]`` mean loss, nats.
        """
        anchors = torch.stack([own[index] for own, index in zip(self.points, rows, strict=True)])
        queries = self.encode(self.views(anchors, unit))
        losses = torch.empty(len(self.bank))
        gradient = torch.empty_like(queries)
        scratch = self._room(len(rows[0]), len(negatives[0]) + 1)
        with torch.no_grad():
            for model, bank in enumerate(self.bank):
                seed = model // len(self.etas)
                loss, own = info_nce(
                    queries[model], bank[rows[seed]], bank[negatives[seed]], self.reading.critic, scratch
                )
                losses[model] = loss.mean()
                gradient[model] = own / len(loss)
        self._optimizer.zero_grad()
        queries.backward(gradient)
        if self.reading.clip is not None:
            self._clip(self.reading.clip)
        self._optimizer.step()
        with torch.no_grad():
            for model, bank in enumerate(self.bank):
                index = rows[model // len(self.etas)]
                bank[index] = self._output(BANK_RATE * bank[index] + (1 - BANK_RATE) * queries[model])
        self.broken |= ~losses.isfinite()
        return losses

    def _room(self, queries: int, keys: int) -> Tensor:
        if self._scratch.shape != (2, queries, keys):
            self._scratch = torch.empty(2, queries, keys)
        return self._scratch

    def _clip(self, largest: float) -> None:
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        norm = torch.stack([gradient.square().sum((1, 2)) for gradient in gradients]).sum(0).sqrt()
        factor = (largest / norm.clamp(min=1e-12)).clamp(max=1)[:, None, None]
        for gradient in gradients:
            gradient.mul_(factor)

    def train(self, iterations: int, negatives: int) -> Tensor:
        """``iterations`` steps against K ``negatives``; returns ``[S·E]``, the loss over the last tenth, in nats."""
        last = max(1, iterations // 10)
        recent = torch.zeros(len(self.bank))
        for step in range(iterations):
            loss = self.step(*self.draw(negatives))
            if step >= iterations - last:
                recent += loss / last
        return recent


def _one_place(encoded: Tensor) -> bool:
    return float(encoded.std(0).max()) <= FAR * float(encoded.abs().max())


def _score(train: Tensor, labels: Tensor, test: Tensor, truth: Tensor) -> float:
    """Accuracy of logistic regression on standardised coordinates, percent."""
    if _one_place(train):  # a constant answer; standardising would magnify rounding errors
        return 100 * float((truth == labels.mode().values).float().mean())
    probe = make_pipeline(StandardScaler(), LogisticRegression())
    # in single precision the solver may stop with a failed line search
    fitted = probe.fit(train.double().numpy(), labels.numpy())
    return 100 * float(fitted.score(test.double().numpy(), truth.numpy()))


@torch.no_grad()
def _evaluate(encoders: Encoders, held_out: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for order, seed in enumerate(encoders.seeds):
        points, labels = encoders.points[order], encoders.labels[order]
        test, truth = points_of(encoders.reading, held_out, seed, "test")
        draws = generator(seed, "spirals/views")
        unit = [shifted(torch.zeros_like(x), 1.0, draws, centred=encoders.reading.centred) for x in (points, test)]
        for number, eta in enumerate(encoders.etas):
            model = order * len(encoders.etas) + number
            one = slice(model, model + 1)
            clean = [encoders.encode(x[None], one)[0] for x in (points, test)]
            noisy = [encoders.encode((x + eta * u)[None], one)[0] for x, u in zip((points, test), unit, strict=True)]
            result: dict[str, Any] = {"accuracy": None, "accuracy_views": None}
            if encoders.broken[model] or not all(bool(x.isfinite().all()) for x in (*clean, *noisy)):
                result["outcome"] = "diverged"
            elif _one_place(clean[0]):
                result["outcome"] = "collapsed"
            else:
                result["outcome"] = "trained"
            if result["outcome"] != "diverged":
                result["accuracy"] = _score(clean[0], labels, clean[1], truth)
                result["accuracy_views"] = _score(noisy[0], labels, noisy[1], truth)
            found.append(result)
    return found


def accuracy_curve(
    reading: Reading,
    etas: Sequence[float],
    seeds: Sequence[int],
    *,
    iterations: int,
    negatives: int,
    points: int,
    held_out: int,
) -> list[Row]:
    """Train a reading at every η and seed, and probe it.

    Args:
        reading: what is trained.
        etas: widths of the noise.
        seeds: of points, initial weights and draws.
        iterations: optimiser steps of 128 points.
        negatives: K.
        points: to train on.
        held_out: further points, on which accuracy is taken.

    Returns:
        Rows with ``reading``, ``encoder``, ``eta``, ``seed``, ``accuracy`` (percent, of the points) and
        ``accuracy_views`` (percent, of fresh views of them), ``loss`` (nats, mean of the last tenth), ``mi_bound``
        (``log K − loss``, nats) and ``outcome``. ``encoder`` is ``trained``, or one of two references without η:
        ``raw``, the coordinates themselves, and ``untrained``, the initial network. ``outcome`` is ``trained``,
        ``collapsed`` (all points have one representation) or ``diverged`` (no number exists: they are None).

    Raises:
        ArgumentError: an empty or repeated list, a negative η, or a size too small.
    """
    _check(etas, seeds, iterations, negatives, points, held_out)
    rows: list[Row] = []
    encoders = Encoders(reading, (0.0,), seeds, points)
    for order, (seed, result) in enumerate(zip(seeds, _evaluate(encoders, held_out), strict=True)):
        test, truth = points_of(reading, held_out, seed, "test")
        raw = _score(encoders.points[order], encoders.labels[order], test, truth)
        empty: Row = {"reading": reading.name, "eta": None, "seed": seed, "loss": None, "mi_bound": None}
        rows.append(empty | {"encoder": "raw", "accuracy": raw, "accuracy_views": None, "outcome": "trained"})
        rows.append(empty | {"encoder": "untrained"} | result | {"accuracy_views": None})
    encoders = Encoders(reading, etas, seeds, points)
    losses = encoders.train(iterations, negatives).tolist()
    for model, (loss, result) in enumerate(zip(losses, _evaluate(encoders, held_out), strict=True)):
        own: Row = {"reading": reading.name, "encoder": "trained"}
        own |= {"eta": etas[model % len(etas)], "seed": seeds[model // len(etas)]}
        whole = result["outcome"] != "diverged"
        own |= {"loss": loss if whole else None, "mi_bound": math.log(negatives) - loss if whole else None}
        rows.append(own | result)
    return rows


@dataclass(frozen=True)
class Peak:
    """Whether an accuracy curve has the published shape; see :func:`peak`.

    Args:
        reading: its name.
        eta: η of the highest mean accuracy.
        accuracy: percent, mean over seeds at that η.
        ends: percent, mean over seeds at the smallest and at the largest η.
        raw: percent, mean over seeds, logistic regression on the coordinates.
        missing: what the published curve has and this one has not; empty where the peak is there.
    """

    reading: str
    eta: float
    accuracy: float
    ends: tuple[float, float]
    raw: float
    missing: tuple[str, ...] = field(default=())


PEAK_ETAS = (0.2, 0.8)
"""Where the best η counts as the published 0.4."""

NEAR_CHANCE = 60.0
"""Percent below which an end of the curve counts as "near chance" for two labels."""

SEPARATED = 75.0
"""Percent from which "a (mostly) linear separation" is granted: half-way from chance to certainty."""


def peak(rows: Sequence[Row], *, accuracy: str = "accuracy") -> Peak:
    """Judge the rows of one reading by the words of appendix G.

    The published curve (1) is highest at an η in :data:`PEAK_ETAS`; there (2) it separates the labels to at least
    :data:`SEPARATED` percent, (3) its worst seed is above the best seed of both ends and of the raw coordinates; and
    (4) at the smallest and the largest η its mean is below :data:`NEAR_CHANCE`.

    Args:
        rows: of :func:`accuracy_curve`; diverged models are left out.
        accuracy: the column, ``accuracy`` or ``accuracy_views``.

    Raises:
        ArgumentError: no trained rows with numbers at two values of η, no raw reference, or more than one reading.
    """
    names = {str(row["reading"]) for row in rows}
    if len(names) != 1:
        raise reject("rows", sorted(names), "rows of one reading")
    if accuracy not in ("accuracy", "accuracy_views"):
        raise unknown("column", accuracy, ("accuracy", "accuracy_views"))
    curve: dict[float, list[float]] = {}
    for row in rows:
        value, eta = row[accuracy], row["eta"]
        if row["encoder"] == "trained" and value is not None and eta is not None:
            curve.setdefault(float(eta), []).append(float(value))
    raw = [float(row["accuracy"]) for row in rows if row["encoder"] == "raw" and row["accuracy"] is not None]
    if len(curve) < 2 or not raw:
        raise reject("rows", f"{len(curve)} values of η, {len(raw)} raw", "two values of η and the raw reference")
    first, last = min(curve), max(curve)
    best = max(curve, key=lambda eta: fmean(curve[eta]))
    top, ends = fmean(curve[best]), (fmean(curve[first]), fmean(curve[last]))
    missing = []
    if not PEAK_ETAS[0] <= best <= PEAK_ETAS[1]:
        missing.append(f"highest at η = {best:g}, not between {PEAK_ETAS[0]:g} and {PEAK_ETAS[1]:g}")
    if top < SEPARATED:
        missing.append(f"at most {top:.0f} % there, no separation")
    if best in (first, last) or min(curve[best]) <= max(*curve[first], *curve[last], *raw):
        missing.append("not above both ends and the raw coordinates for every seed")
    if max(ends) >= NEAR_CHANCE:
        missing.append(f"{max(ends):.0f} % at one end, not near chance")
    return Peak(names.pop(), best, top, ends, fmean(raw), tuple(missing))


def _config(reading: Reading, profile: Profile) -> dict[str, Any]:
    """Everything that decides the numbers of one reading; code that changes them takes a new version."""
    constants = {
        "layers": LAYERS, "width": WIDTH, "batch": BATCH, "learning_rate": LEARNING_RATE, "momentum": MOMENTUM,
        "weight_decay": WEIGHT_DECAY, "temperature": TEMPERATURE, "bank_rate": BANK_RATE, "version": 1,
    }  # fmt: skip
    sizes = {key: value for key, value in asdict(profile).items() if key != "readings"}
    lists = {key: list(value) if isinstance(value, tuple) else value for key, value in sizes.items()}
    return {"reading": asdict(reading), **lists, **constants}


def study(
    profile: str,
    *,
    out_dir: Path | str,
    read_also: Sequence[Path | str] = (),
    readings: Sequence[str] | None = None,
    log: Callable[[str], None] = print,
) -> list[Study]:
    """The stored curves of a profile, one file per reading; those that are not stored are trained and stored.

    Args:
        profile: a name in :data:`PROFILES`.
        out_dir: where new curves are written.
        read_also: further folders that may hold them already.
        readings: names; all of the profile where left out.
        log: takes one line per reading.

    Raises:
        UnknownNameError: no such profile, or no such reading.
    """
    chosen = _profile(profile)
    found = []
    for number, name in enumerate(names := chosen.readings if readings is None else tuple(readings), 1):
        if name not in READINGS:
            raise unknown("reading", name, READINGS)
        reading = READINGS[name]
        stored = measure(
            "vince_figure6",
            profile,
            _config(reading, chosen),
            functools.partial(_curve, reading, chosen),
            out_dir=out_dir,
            read_also=read_also,
        )
        log(f"{number}/{len(names)} {name}: {stored.provenance['wall_s']:.0f} s")
        found.append(stored)
    return found


def stored(profile: str, roots: Sequence[Path | str]) -> list[Study]:
    """Those curves of a profile that are stored in one of ``roots``; nothing is trained.

    Raises:
        UnknownNameError: no such profile.
    """
    chosen = _profile(profile)
    configs = [_config(READINGS[name], chosen) for name in chosen.readings]
    return [found for config in configs for found in _first("vince_figure6", profile, config, roots)]


def _first(name: str, profile: str, config: Mapping[str, Any], roots: Sequence[Path | str]) -> list[Study]:
    paths = (location(root, name, profile, config) for root in roots)
    return [read(path) for path in paths if path.exists()][:1]


def _profile(profile: str) -> Profile:
    if profile not in PROFILES:
        raise unknown("profile", profile, PROFILES)
    return PROFILES[profile]


def _curve(reading: Reading, profile: Profile) -> list[Row]:
    return accuracy_curve(
        reading,
        profile.etas,
        profile.seeds,
        iterations=profile.iterations,
        negatives=profile.negatives,
        points=profile.points,
        held_out=profile.held_out,
    )


def representations(
    profile: str,
    reading: str,
    etas: Sequence[float] = (0.0, 0.4, 1.6),
    *,
    count: int = 200,
    out_dir: Path | str | None,
    read_also: Sequence[Path | str] = (),
) -> Study | None:
    """Representations of held-out points by a reading's encoders, as rows to draw.

    Args:
        profile: a name in :data:`PROFILES`, whose seeds and sizes are taken.
        reading: a name in :data:`READINGS`.
        etas: widths of the noise.
        count: points of each encoder.
        out_dir: where new rows are written; None: train nothing, and return None where nothing is stored.
        read_also: further folders that may hold them already.

    Returns:
        Rows with ``seed``, ``eta``, ``label``, ``x``, ``y`` (None where the model diverged).
    """
    chosen = _profile(profile)
    if reading not in READINGS:
        raise unknown("reading", reading, READINGS)
    what = READINGS[reading]
    _check(etas, chosen.seeds, chosen.iterations, chosen.negatives, chosen.points, count)

    def run() -> list[Row]:
        encoders = Encoders(what, etas, chosen.seeds, chosen.points)
        encoders.train(chosen.iterations, chosen.negatives)
        rows: list[Row] = []
        for model, (seed, eta) in enumerate(itertools.product(chosen.seeds, etas)):
            points, labels = points_of(what, count, seed, "test")
            with torch.no_grad():
                own = encoders.encode(points[None], slice(model, model + 1))[0]
            whole = bool(own.isfinite().all())
            for label, (x, y) in zip(labels.tolist(), own.tolist(), strict=True):
                place: Row = {"x": float(f"{x:.4g}"), "y": float(f"{y:.4g}")} if whole else {"x": None, "y": None}
                rows.append({"seed": seed, "eta": eta, "label": label} | place)
        return rows

    config = _config(what, chosen) | {"etas": list(etas), "held_out": count}
    if out_dir is None:
        return next(iter(_first("vince_figure6_points", profile, config, read_also)), None)
    return measure("vince_figure6_points", profile, config, run, out_dir=out_dir, read_also=read_also)
