"""vince Figure 6: does some amount of noise in the views make the labels of two spirals linearly separable?

Logistic regression on the 2-D representations tells the two spirals apart: near chance at η = 0, best at η = 0.4 and at
chance far beyond, by appendix G. :data:`READINGS` are trained by :func:`accuracy_curve` and judged by :func:`peak`.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import pandas as pd
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from contrastbook import studies
from contrastbook.studies import Row, Study, lookup, measure, spirals
from contrastbook.studies.spirals import Encoders, Reading, points_of
from contrastlab.support.errors import reject
from contrastlab.support.seeds import generator

STUDY = "vince_figure6"
COLLAPSED = 1e-4  # a representation that varies less than this share of its size is one point

_READINGS = (
    Reading(turns=1.0, output="plane", clip=1.0),
    Reading(turns=1.0, output="plane", critic="distance", clip=1.0),
    Reading(),
    Reading(handedness="opposite", turns=1.0, output="plane", clip=1.0),
    Reading(turns=1.0, output="plane"),
    Reading(handedness="opposite"),
)
READINGS: Mapping[str, Reading] = {reading.name: reading for reading in _READINGS}
"""Readings that the text allows, by name."""


@dataclass(frozen=True)
class Sizes:
    """How much of the study is run: ``points`` of both spirals train and fill the bank, ``held_out`` are scored."""

    readings: tuple[str, ...] = tuple(READINGS)
    etas: tuple[float, ...] = (0.0, 0.2, 0.4, 0.8, 5.0)
    seeds: tuple[int, ...] = (0, 1, 2)
    iterations: int = 10_000
    negatives: int = 4096
    points: int = 10_000
    held_out: int = 5000

    @property
    def sizes(self) -> dict[str, Any]:
        """All but the readings: the arguments of :func:`accuracy_curve`."""
        sizes = asdict(self)
        del sizes["readings"]
        return sizes


PROFILES: Mapping[str, Sizes] = {
    "smoke": Sizes(tuple(READINGS)[:3], (0.0, 0.4, 5.0), (0,), iterations=20, negatives=64, points=400, held_out=400),
    "laptop": Sizes(seeds=(0, 1), iterations=1500, negatives=512),
    "paper": Sizes(),
}
"""``smoke`` shows that the code runs, ``laptop`` is for reading along, ``paper`` is the published protocol."""


def _one_place(encoded: Tensor) -> bool:
    """Whether representations ``[N, 2]`` are one point, but for rounding."""
    spread = float(encoded.std(0).max())
    size = float(encoded.abs().max())
    return spread <= COLLAPSED * size


def _score(train: Tensor, labels: Tensor, test: Tensor, truth: Tensor) -> float:
    """Accuracy of logistic regression on standardised coordinates, percent."""
    if _one_place(train):  # a constant answer; standardising would magnify rounding errors
        most_frequent = labels.bincount().argmax()
        is_right = truth == most_frequent
        return 100 * float(is_right.float().mean())
    probe = make_pipeline(StandardScaler(), LogisticRegression())
    # in single precision the solver may stop with a failed line search
    fitted = probe.fit(train.double().numpy(), labels.numpy())
    return 100 * float(fitted.score(test.double().numpy(), truth.numpy()))


@torch.no_grad()
def _evaluate(encoders: Encoders, held_out: int) -> list[Row]:
    """``accuracy``, ``accuracy_views`` and ``outcome`` of each model."""
    results: list[Row] = []
    for order, seed in enumerate(encoders.seeds):
        points = encoders.points[order]
        labels = encoders.labels[order]
        test, truth = points_of(encoders.reading, held_out, seed, "test")
        draws = generator(seed, "spirals/views")
        noise = torch.rand(points.shape, generator=draws)
        test_noise = torch.rand(test.shape, generator=draws)
        for number, eta in enumerate(encoders.etas):
            model = order * len(encoders.etas) + number
            train = _representations(encoders, model, points)
            held = _representations(encoders, model, test)
            train_views = _representations(encoders, model, points + eta * noise)
            held_views = _representations(encoders, model, test + eta * test_noise)
            all_representations = torch.cat([train, held, train_views, held_views])
            if encoders.broken[model] or not all_representations.isfinite().all():
                results.append({"accuracy": None, "accuracy_views": None, "outcome": "diverged"})
                continue
            results.append(
                {
                    "accuracy": _score(train, labels, held, truth),
                    "accuracy_views": _score(train_views, labels, held_views, truth),
                    "outcome": "collapsed" if _one_place(train) else "trained",
                }
            )
    return results


def _representations(encoders: Encoders, model: int, points: Tensor) -> Tensor:
    """Of points ``[N, 2]`` by one model, ``[N, 2]``."""
    (encoded,) = encoders.encode(points[None], slice(model, model + 1))
    return encoded


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
    """Train a reading at every η and seed, for ``iterations`` steps of 128 points, and probe it.

    Rows have ``accuracy`` of the points and ``accuracy_views`` of fresh views of them (percent), ``loss`` (nats, mean
    of the last tenth) and ``mi_bound`` (``log K − loss``). ``encoder`` is ``trained``, or one of two references without
    η: ``raw``, the coordinates, and ``untrained``, the initial network. ``outcome`` is ``trained``, ``collapsed`` (one
    representation for all points) or ``diverged`` (the numbers are None).
    """
    rows = _references(reading, seeds, points, held_out)
    encoders = Encoders(reading, etas, seeds, points)
    losses = encoders.train(iterations, negatives).tolist()
    results = _evaluate(encoders, held_out)
    models = itertools.product(seeds, etas)
    for (seed, eta), loss, result in zip(models, losses, results, strict=True):
        row: Row = {"reading": reading.name, "encoder": "trained", "eta": eta, "seed": seed}
        if result["outcome"] == "diverged":
            row |= {"loss": None, "mi_bound": None}
        else:
            row |= {"loss": loss, "mi_bound": math.log(negatives) - loss}
        rows.append(row | result)
    return rows


def _references(reading: Reading, seeds: Sequence[int], points: int, held_out: int) -> list[Row]:
    """The rows ``raw`` and ``untrained`` of each seed."""
    encoders = Encoders(reading, (0.0,), seeds, points)
    untrained = _evaluate(encoders, held_out)
    rows: list[Row] = []
    for order, seed in enumerate(seeds):
        test, truth = points_of(reading, held_out, seed, "test")
        raw = _score(encoders.points[order], encoders.labels[order], test, truth)
        empty: Row = {"reading": reading.name, "eta": None, "seed": seed, "loss": None, "mi_bound": None}
        of_raw: Row = {"encoder": "raw", "accuracy": raw, "accuracy_views": None, "outcome": "trained"}
        of_untrained: Row = {"encoder": "untrained"} | untrained[order] | {"accuracy_views": None}
        rows.append(empty | of_raw)
        rows.append(empty | of_untrained)
    return rows


def _config(reading: Reading, profile: Sizes) -> dict[str, Any]:
    """Everything that decides the numbers of one reading; code that changes them takes a new version."""
    choices = asdict(reading) | {"spacing": "angle", "centred": False}  # points and noise that stored rows name
    constants = {
        "layers": spirals.LAYERS,
        "width": spirals.WIDTH,
        "batch": spirals.BATCH,
        "learning_rate": spirals.LEARNING_RATE,
        "momentum": spirals.MOMENTUM,
        "weight_decay": spirals.WEIGHT_DECAY,
        "temperature": spirals.TEMPERATURE,
        "bank_rate": spirals.BANK_RATE,
        "version": 1,
    }
    return {"reading": choices, **profile.sizes, **constants}


def study(
    profile: str,
    *,
    out_dir: Path | str,
    read_also: Sequence[Path | str] = (),
    log: Callable[[str], None] = print,
) -> list[Study]:
    """The stored curves of a profile, one file for each reading; those that are not stored are trained and stored."""
    sizes = lookup(PROFILES, profile)
    curves: list[Study] = []
    for name in sizes.readings:
        reading = READINGS[name]
        run = functools.partial(accuracy_curve, reading, **sizes.sizes)
        curve = measure(STUDY, profile, _config(reading, sizes), run, out_dir=out_dir, read_also=read_also)
        log(f"{reading.name}: {curve.provenance['wall_s']:.0f} s when measured")
        curves.append(curve)
    return curves


def stored(profile: str, roots: Sequence[Path | str]) -> list[Study]:
    """Those curves of a profile that are stored in one of ``roots``; nothing is trained."""
    sizes = lookup(PROFILES, profile)
    curves: list[Study] = []
    for name in sizes.readings:
        curve = studies.stored(STUDY, profile, _config(READINGS[name], sizes), roots)
        if curve is not None:
            curves.append(curve)
    return curves


def representations(
    profile: str,
    reading: str,
    etas: Sequence[float] = (0.0, 0.4, 1.6),
    *,
    count: int = 200,
    out_dir: Path | str | None,
    read_also: Sequence[Path | str] = (),
) -> Study | None:
    """Representations x and y of ``count`` held-out points by each encoder of a reading; None where it diverged.

    ``out_dir``: where new rows are written; None: train nothing, and return None where nothing is stored.
    """
    sizes = lookup(PROFILES, profile)
    way = lookup(READINGS, reading, "reading")
    config = _config(way, sizes) | {"etas": etas, "held_out": count}
    if out_dir is None:
        return studies.stored(f"{STUDY}_points", profile, config, read_also)
    run = functools.partial(_encoded_points, way, sizes, etas, count)
    return measure(f"{STUDY}_points", profile, config, run, out_dir=out_dir, read_also=read_also)


def _encoded_points(reading: Reading, sizes: Sizes, etas: Sequence[float], count: int) -> list[Row]:
    """Train the encoders of a reading; a row for each of them and each of ``count`` held-out points."""
    encoders = Encoders(reading, etas, sizes.seeds, sizes.points)
    encoders.train(sizes.iterations, sizes.negatives)
    rows: list[Row] = []
    for model, (seed, eta) in enumerate(itertools.product(sizes.seeds, etas)):
        points, labels = points_of(reading, count, seed, "test")
        with torch.no_grad():
            encoded = _representations(encoders, model, points)
        diverged = not encoded.isfinite().all()
        for label, (x, y) in zip(labels.tolist(), encoded.tolist(), strict=True):
            place: Row = {"x": None, "y": None}
            if not diverged:
                place = {"x": float(f"{x:.4g}"), "y": float(f"{y:.4g}")}
            rows.append({"seed": seed, "eta": eta, "label": label} | place)
    return rows


def frame(curve: Study) -> pd.DataFrame:
    """The trained rows of a curve, their numbers as floats (NaN where a model diverged)."""
    rows = pd.DataFrame(curve.rows)
    trained = rows[rows["encoder"] == "trained"]
    numbers = ("eta", "accuracy", "accuracy_views", "loss", "mi_bound")
    return trained.astype(dict.fromkeys(numbers, float))


@dataclass(frozen=True)
class Peak:
    """Whether an accuracy curve has the published shape, see :func:`peak`; percentages are means over seeds."""

    reading: str
    eta: float  # of the highest accuracy
    accuracy: float  # there
    ends: tuple[float, float]  # accuracy at the smallest and at the largest η
    raw: float  # accuracy of logistic regression on the coordinates
    missing: tuple[str, ...]  # what the published curve has and this one has not


PEAK_ETAS = (0.2, 0.8)  # where the best η counts as the published 0.4
NEAR_CHANCE = 60.0  # percent below which an end of the curve counts as "near chance" for two labels
SEPARATED = 75.0  # percent from which "a (mostly) linear separation" is granted: half-way from chance to certainty


def peak(rows: Sequence[Row], *, accuracy: Literal["accuracy", "accuracy_views"] = "accuracy") -> Peak:
    """Judge the rows of one reading, of :func:`accuracy_curve`, without diverged models, by appendix G.

    The curve (1) is highest at an η in :data:`PEAK_ETAS`, (2) where it reaches :data:`SEPARATED` percent and (3) its
    worst seed is above the best of both ends and of the raw points; (4) its ends are below :data:`NEAR_CHANCE`.
    """
    names = {str(row["reading"]) for row in rows}
    if len(names) != 1:
        raise reject("rows", sorted(names), "rows of one reading")
    curve = _by_eta(rows, accuracy)
    raw: list[float] = []
    for row in rows:
        if row["encoder"] == "raw" and row["accuracy"] is not None:
            raw.append(float(row["accuracy"]))
    if len(curve) < 2 or not raw:
        raise reject("rows", f"{len(curve)} values of η, {len(raw)} raw", "two values of η and the raw reference")
    means = {eta: fmean(values) for eta, values in curve.items()}
    best = max(means, key=means.__getitem__)
    return Peak(
        reading=names.pop(),
        eta=best,
        accuracy=means[best],
        ends=(means[min(means)], means[max(means)]),
        raw=fmean(raw),
        missing=tuple(_missing(curve, best, raw)),
    )


def _by_eta(rows: Sequence[Row], accuracy: str) -> dict[float, list[float]]:
    """The accuracies of the models that trained, one for each seed, by η."""
    curve: dict[float, list[float]] = {}
    for row in rows:
        value = row[accuracy]
        eta = row["eta"]
        if row["encoder"] == "trained" and value is not None and eta is not None:
            curve.setdefault(float(eta), []).append(float(value))
    return curve


def _missing(curve: Mapping[float, Sequence[float]], best: float, raw: Sequence[float]) -> Iterator[str]:
    """What the published curve has and this one, which is highest at ``best``, has not; see :func:`peak`."""
    low, high = PEAK_ETAS
    first = min(curve)
    last = max(curve)
    top = fmean(curve[best])
    higher_end = max(fmean(curve[first]), fmean(curve[last]))
    is_end = best in (first, last)
    to_beat = max(*curve[first], *curve[last], *raw)
    if not low <= best <= high:
        yield f"highest at η = {best:g}, not between {low:g} and {high:g}"
    if top < SEPARATED:
        yield f"at most {top:.0f} % there, no separation"
    if is_end or min(curve[best]) <= to_beat:
        yield "not above both ends and the raw coordinates for every seed"
    if higher_end >= NEAR_CHANCE:
        yield f"{higher_end:.0f} % at one end, not near chance"


def closest(peaks: Sequence[Peak]) -> Peak:
    """The one that lacks least of the published shape; of equals the highest."""
    least = min(len(each.missing) for each in peaks)
    lack_least = [each for each in peaks if len(each.missing) == least]
    return max(lack_least, key=attrgetter("accuracy"))


def table(peaks: Sequence[Peak]) -> pd.DataFrame:
    """A line for each reading."""
    lines: list[dict[str, object]] = []
    for peak_of_reading in peaks:
        at_smallest, at_largest = peak_of_reading.ends
        lines.append(
            {
                "reading": peak_of_reading.reading,
                "best η": peak_of_reading.eta,
                "accuracy there [%]": peak_of_reading.accuracy,
                "η smallest [%]": at_smallest,
                "η largest [%]": at_largest,
                "raw coordinates [%]": peak_of_reading.raw,
                "what is missing": "; ".join(peak_of_reading.missing) or "nothing",
            }
        )
    return pd.DataFrame(lines).set_index("reading")


def sentence(curves: Sequence[Study]) -> str:
    """Which readings of a profile show the published peak, and on how many of their seeds taken alone; Markdown."""
    peaks = [peak(curve.rows) for curve in curves]
    readings = [f"*{each.reading}* ({each.accuracy:.0f} % at η = {each.eta:g})" for each in peaks if not each.missing]
    shown_by = "; ".join(readings)
    if not readings:
        best = closest(peaks)
        shown_by = f"none. Closest is *{best.reading}*, highest at η = {best.eta:g} with {best.accuracy:.0f} %: "
        shown_by += "; ".join(best.missing)
    of_seeds: list[Peak] = []
    for curve in curves:
        for seed in {row["seed"] for row in curve.rows}:
            rows_of_seed = [row for row in curve.rows if row["seed"] == seed]
            of_seeds.append(peak(rows_of_seed))
    with_the_shape = sum(not each.missing for each in of_seeds)
    of_views = [peak(curve.rows, accuracy="accuracy_views") for curve in curves]
    on_views = ", ".join(f"*{each.reading}*" for each in of_views if not each.missing) or "none"
    return (
        f"The published peak is shown by {shown_by}. Curves of one seed with the published shape: "
        f"{with_the_shape} of {len(of_seeds)}. Probed on views in place of the points: {on_views}."
    )
