"""fmicl's tables beside theory: ranks (Tables 2 and 10), domains of scores (4), settings (7), weights α (8)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import cast

import pandas as pd
import torch
from scipy.special import hyp0f1
from torch import Tensor

from contrastlab import data, methods, objectives, papers
from contrastlab.methods import Recipe, get
from contrastlab.objectives import FMICL, Scores
from contrastlab.pictures.augmentations import augmentation
from contrastlab.scores import divergences
from contrastlab.scores.divergences import Divergence
from contrastlab.settings import Settings
from contrastlab.support.errors import ArgumentError, reject
from contrastlab.tables.report import Report
from contrastlab.tasks import Neighbours, encode
from contrastlab.train import pretrain


def leads() -> pd.DataFrame:
    """The best of each row of Table 2, and its lead over the second in points and in published sd of the two."""
    rows: dict[object, tuple[str, str, float, float]] = {}
    for name, part in papers.published("fmicl", "2").groupby("row", sort=False):
        first, second = part.nlargest(2, "value").to_dict("records")
        lead = first["value"] - second["value"]
        deviation = math.hypot(first["std"], second["std"])
        rows[name] = (first["column"], second["column"], lead, lead / deviation)
    return pd.DataFrame.from_dict(rows, orient="index", columns=["best", "second", "lead (points)", "lead (sd)"])


def contradictions() -> pd.DataFrame:
    """Linear accuracies that Table 10 repeats from Table 2 with another value."""
    table_2 = papers.published("fmicl", "2")
    table_10 = papers.published("fmicl", "10")
    datasets = table_10["row"].str.removeprefix("Linear ")
    table_10 = table_10.assign(row=datasets)
    both = table_2.merge(table_10, on=["row", "column"], suffixes=(" in table 2", " in table 10"))
    differs = both["value in table 2"] != both["value in table 10"]
    return both.loc[differs, ["row", "column", "value in table 2", "value in table 10"]]


def published_agreement() -> pd.Series[float]:
    """Rank correlation of linear and k-NN accuracy over the columns of Table 10, by data set."""
    wide = papers.published("fmicl", "10").pivot_table(index="column", columns="row", values="value")
    correlations = wide.corr("spearman")
    by_dataset: dict[str, float] = {}
    for dataset in ("CIFAR-10", "STL-10", "TinyImageNet"):
        with_linear = correlations[f"Linear {dataset}"]
        by_dataset[dataset] = float(with_linear[f"k-NN {dataset}"])
    return pd.Series(by_dataset, name="rank correlation")


def agreement(one: Report, other: Report) -> tuple[float | None, int]:
    """Rank correlation of the measured rows that two reports share (``None`` for less than 3), and their number."""
    means_of_both = pd.DataFrame({"one": _means(one), "other": _means(other)})
    shared = means_of_both.dropna()
    if len(shared) < 3:
        return None, len(shared)
    with_one = shared.corr("spearman")["one"]
    return float(with_one["other"]), len(shared)


def _means(table: Report) -> dict[str, float]:
    """Method to its measured mean."""
    means: dict[str, float] = {}
    for row in table.rows:
        if row.kind == "method" and row.measured:
            means[row.method] = row.measured.mean
    return means


_NAMES = ("kl", "js", "pearson", "hellinger", "tsallis", "vincze_le_cam")
SIX = tuple(divergences.get(name) for name in _NAMES)
"""The divergences of Table 4."""


def slope(f: Divergence, score: Tensor) -> float:
    """Slope of f* at a score ``[1]``, how hard the negatives' term pushes there; NaN outside of the domain."""
    if not bool(f.contains(score).all()):
        return math.nan
    at = score.clone().requires_grad_()
    (derivative,) = torch.autograd.grad(f.conjugate(at).sum(), at)
    return float(derivative)


def conjugates() -> pd.DataFrame:
    """For each divergence: its domain, f* at cosine 1, and the slope just below."""
    almost_one = torch.tensor([1 - 1e-6], dtype=torch.float64)
    one = torch.ones(1)
    rows = {f.title: (f.domain, float(f.conjugate(one)), slope(f, almost_one)) for f in SIX}
    columns = ["f* is finite for", "f* at cosine 1", "slope of f* just below 1"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns)


def untrained_cosines(images: int = 300) -> Tensor:
    """Cosines of all pairs of different test images of the bundled shapes, by an encoder as it is initialised."""
    settings = papers.plan("fmicl", "4").settings("shapes", "kl", "smoke")
    shapes = data.load("shapes")
    untrained = pretrain(get("ours/random"), settings, shapes.pretrain, log=lambda line: None)
    view = augmentation(settings.augmentation, settings.image_size)
    x, _ = encode(untrained.encoders, get("fmicl/kl").views, view, shapes.test.take(images))
    cosines = x @ x.T
    first, second = torch.triu_indices(len(x), len(x), 1)
    return cosines[first, second].double()


def outside(pairs: Tensor) -> pd.DataFrame:
    """For each divergence: percent of scores ``[N]`` outside of the conjugate's domain, the largest slope inside."""
    rows: dict[str, tuple[float, float]] = {}
    for f in SIX:
        inside = pairs[f.contains(pairs)]
        percent_outside = 100 * (1 - len(inside) / len(pairs))
        largest_slope = slope(f, inside.max()[None]) if len(inside) else math.nan
        rows[f.title] = (percent_outside, largest_slope)
    columns = ["pairs outside of the domain (%)", "largest slope of f* inside"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns)


def refusals() -> dict[tuple[str, float], str]:
    """What training says of a cosine over τ in the conjugate: empty, or the reason it is refused for."""
    reasons: dict[tuple[str, float], str] = {}
    for name in ("kl", "vincze_le_cam"):
        for temperature in (1.0, 2.0):
            try:
                objectives.FMICL(name, similarity="cosine").check(temperature)
                reasons[name, temperature] = ""
            except ArgumentError as error:
                reasons[name, temperature] = str(error)
    return reasons


PLACES: Mapping[str, tuple[str, str, str]] = {
    "CIFAR-10": ("2", "cifar10", "fmicl/kl"),
    "STL-10": ("2", "stl10", "fmicl/kl"),
    "TinyImageNet": ("2", "tinyimagenet", "fmicl/kl"),
    "ImageNet": ("3", "imagenet", "fmicl/moco_v3_kl"),
    "Wikipedia": ("9", "wikipedia", "fmicl/sentences_kl_alpha409600"),
}
"""Row of Table 7 to table, pre-training data and method of the protocol that has it."""

COLUMNS: Mapping[str, Callable[[Settings, Recipe], float]] = {
    "N batch": lambda settings, recipe: settings.batch_size,
    "d": lambda settings, recipe: settings.dim,
    "lr": lambda settings, recipe: settings.lr,
    "mu": lambda settings, recipe: recipe.objective.mu,  # type: ignore[attr-defined]
    "1/(2 sigma^2)": lambda settings, recipe: 1 / (2 * recipe.temperature),
    "alpha": lambda settings, recipe: recipe.objective.weight,  # type: ignore[attr-defined]
    "epoch": lambda settings, recipe: settings.epochs,
    "k (kNN)": lambda settings, recipe: Neighbours.of(settings).k,
}
"""Column of Table 7 to what it is in a protocol."""

DIFFERENT: Mapping[tuple[str, str], str] = {
    ("ImageNet", "lr"): "AdamW takes no steps of 0.1; MoCo v3's own rate for this batch is taken"
}
"""Cells that a protocol cannot take as they are published, and why."""


def table() -> pd.DataFrame:
    """A line for each published setting of Table 7, beside that of the protocol; ``why`` says why they differ."""
    numbers = papers.published("fmicl", 7)
    lines: list[dict[str, object]] = []
    for row, column, printed, note in numbers[["row", "column", "value", "note"]].itertuples(index=False):
        number, dataset, method = PLACES[row]
        settings = papers.plan("fmicl", number).settings(dataset, method)
        recipe = methods.get(method).override(settings.overrides)
        of_protocol = COLUMNS[column](settings, recipe)
        lines.append(
            {
                "data": row,
                "encoder": note.removeprefix("arch "),
                "setting": column,
                "printed": printed,
                "protocol": of_protocol,
                "equal": abs(of_protocol - printed) <= 1e-9 * abs(printed),
                "why": DIFFERENT.get((row, column), ""),
            }
        )
    return pd.DataFrame(lines)


def knob_gap(divergence: str, mu: float, alpha: float) -> Tensor:
    """Loss with kernel height μ and weight α, plus log μ, minus that with 1 and αμ, ``[64]``: 0 for KL (Prop. 5)."""
    draws = torch.Generator().manual_seed(0)
    tau = get("fmicl/kl").temperature
    cosines = torch.rand(64, 32, generator=draws, dtype=torch.float64) * 2 - 1
    scores = Scores(cosines[:, 0] / tau, cosines[:, 1:] / tau, highest=1 / tau)
    with_height = FMICL(divergence, weight=alpha, mu=mu)
    with_weight = FMICL(divergence, weight=alpha * mu)
    return with_height(scores) + math.log(mu) - with_weight(scores)


def natural(dimension: float, c: float) -> float:
    """``1 / E exp(−c‖x − y‖²)``, points uniform on the unit sphere: the α that makes αu a density ratio; c is 1/2σ²."""
    if dimension < 2 or not c > 0:
        raise reject("dimension, c", (dimension, c), "at least 2, and above 0")
    return math.exp(2 * c) / float(hyp0f1(dimension / 2, c**2))


def table7() -> pd.DataFrame:
    """The paper's d, ``1/2σ²`` and α beside the natural α."""
    wide = papers.published("fmicl", "7").pivot_table(index="row", columns="column", values="value")
    printed = wide.loc[["CIFAR-10", "Wikipedia"], ["d", "1/(2 sigma^2)", "alpha"]]
    weights = [natural(float(d), float(c)) for d, c, _ in printed.to_numpy()]
    return printed.assign(natural=weights)


def accuracy(table: Report) -> pd.DataFrame:
    """A line for each row of a report of Table 8, sorted by α; ``half width`` is of seeds, or of one's test images."""
    rows: list[tuple[object, ...]] = []
    for row in table.rows:
        if row.kind != "method":
            continue
        recipe = get(row.method)
        weight = cast("FMICL", recipe.objective).weight
        mean = None
        error = None
        if row.measured is not None:
            mean = row.measured.mean
            error = row.measured.error
        rows.append((recipe.label[:2], weight, row.published, mean, error))
    columns = ["divergence", "alpha", "published", "measured", "half width"]
    frame = pd.DataFrame(rows, columns=columns)
    types = {column: "float64" for column in columns if column != "divergence"}
    return frame.astype(types).sort_values("alpha", ignore_index=True)
