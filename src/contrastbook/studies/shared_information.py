"""cmc Figure 5: how much information do the two views of a picture share?

The paper estimates it with MINE and describes neither network nor training. Here the critic is g(x)·h(y), two networks
of three layers: trained on one part of the pictures, stopped on a second, scored on a third with a bootstrap. No such
bound can vouch for much more than log N nats from N pictures. :func:`control`: textures whose information is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from contrastbook.studies import Row, Study, lookup, measure
from contrastlab import data, methods, papers
from contrastlab.information import bounds, critics
from contrastlab.information.toys import JointGaussian
from contrastlab.methods import Recipe
from contrastlab.pictures.augmentations import augmentation
from contrastlab.pictures.items import ItemSet
from contrastlab.pictures.loading import Crops, batches, subset_order
from contrastlab.settings import Settings
from contrastlab.support.errors import NotApplicableError, reject
from contrastlab.support.seeds import fixed, generator
from contrastlab.tasks import bootstrap
from contrastlab.views import Offset, Views
from contrastlab.views.base import crop_options

STUDY = "cmc_figure5"
OUTLIER = 4.0  # deviations beyond which a value of a view is cut off: one picture can ruin a mean of exponentials
BATCH = 64  # pairs that the critic sees at once


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    pictures: int  # a fifth is scored, a tenth stops the training
    side: int  # of the views that the critic sees, in pixels: larger ones are averaged down to it
    hidden: int
    epochs: int
    patience: int
    seeds: tuple[int, ...]
    draws: int


PROFILES: Mapping[str, Sizes] = {
    "smoke": Sizes(1200, 4, 32, 12, 4, (0,), 50),
    "first": Sizes(2000, 8, 64, 40, 8, (0, 1), 200),
    "laptop": Sizes(10000, 8, 128, 100, 10, (0, 1, 2), 200),
    "paper": Sizes(50000, 16, 256, 200, 20, (0, 1, 2, 3, 4), 500),
}


def estimate(x: Tensor, y: Tensor, sizes: Sizes, seed: int) -> tuple[float, float]:
    """MINE's lower bound on I(X; Y), nats, from pairs ``[N, p]`` and ``[N, q]``; 95 % half-width of its sampling."""
    count = len(x) // 5
    if len(x) < 10 * BATCH:
        raise reject("x", f"{len(x)} rows", f"at least {10 * BATCH}: a tenth of them is a batch")
    order = torch.randperm(len(x), generator=generator(seed, "pairs for an estimate"))
    scored, fitted = order[:count], order[count:]
    x = _standardised(x, x[fitted])
    y = _standardised(y, y[fitted])
    critic = _fitted_critic(x[fitted], y[fitted], sizes, seed)
    with torch.no_grad():
        scores = critic(x[scored], y[scored]).double()
    return bootstrap(partial(_donsker_varadhan, scores), count, draws=sizes.draws, seed=seed)


def _fitted_critic(x: Tensor, y: Tensor, sizes: Sizes, seed: int) -> critics.Separable:
    """A critic of pairs ``[N, p]`` and ``[N, q]`` that MINE has trained."""
    with fixed(seed):
        network_x = critics.mlp([x.shape[1], *[sizes.hidden] * 3])
        network_y = critics.mlp([y.shape[1], *[sizes.hidden] * 3])
        critic = critics.Separable(network_x, network_y, temperature=math.sqrt(sizes.hidden))
    mine = bounds.Mine()

    def bound(scores: Tensor) -> Tensor:
        positives, negatives = bounds.pairs(scores)
        if scores.requires_grad:  # the running mean is of the batches that train
            return mine(positives, negatives)
        return bounds.donsker_varadhan(positives, negatives)

    critics.fit(
        critic,
        bound,
        x,
        y,
        batch=BATCH,
        epochs=sizes.epochs,
        patience=sizes.patience,
        held_out=0.126,
        seed=seed,
    )
    return critic


def _donsker_varadhan(scores: Tensor, rows: Tensor) -> float:
    """The bound in nats from rows of all scores ``[N, N]``; one drawn twice is no independent pair with itself."""
    others = rows[:, None] != rows
    drawn = scores[rows][:, rows]
    log_mean = torch.logsumexp(drawn[others], 0) - math.log(int(others.sum()))
    return float(drawn.diagonal().mean() - log_mean)


def _standardised(view: Tensor, fitted: Tensor) -> Tensor:
    """A view with mean 0 and deviation 1 over the pairs of the fit, without its outliers.

    A function of a view tells no more than the view, so a lower bound without the outliers is one with them.
    """
    mean, std = fitted.mean(0), fitted.std(0)
    return ((view - mean) / std.clamp(min=1e-3)).clamp(-OUTLIER, OUTLIER)


def texture(distance: int, *, size: int = 4, length: float = 6.0, noise: float = 0.1) -> JointGaussian:
    """Patches of ``size``² pixels, ``distance`` apart along both axes; their texture correlates as exp(−r/``length``).

    ``noise``: variance that each pixel has by itself, beside the texture's of 1.
    """
    if distance < size:
        raise reject("distance", distance, f"at least {size}, the side of a patch: no pixel is in both")
    line = np.arange(size)
    patch = np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)
    places = np.concatenate([patch, patch + distance]).astype(float)
    apart = np.linalg.norm(places[:, None] - places, axis=2)
    return JointGaussian(np.exp(-apart / length) + noise * np.eye(len(places)), size * size)


def control(
    profile: str,
    *,
    out_dir: Path | str,
    read_also: Sequence[Path | str] = (),
    distances: Sequence[int] = (4, 6, 8, 12, 16, 24),
) -> Study:
    """The estimate beside the exact information of two patches of a texture, in nats, by distance in pixels."""
    sizes = lookup(PROFILES, profile)

    def run() -> list[Row]:
        rows: list[Row] = []
        for distance in distances:
            pair = texture(distance)
            for seed in sizes.seeds:
                x, y = pair.sample(sizes.pictures, generator(seed, "texture", distance))
                nats, half = estimate(x.float(), y.float(), sizes, seed)
                row: Row = {"distance": distance, "seed": seed, "exact": pair.mutual_information}
                rows.append(row | {"nats": nats, "half_width": half})
        return rows

    config = {"distances": distances, **asdict(sizes), "version": 2}
    return measure(f"{STUDY}_control", profile, config, run, out_dir=out_dir, read_also=read_also)


def study(
    profile: str,
    dataset: str,
    rows: Sequence[str],
    *,
    data_root: Path | str | None = None,
    out_dir: Path | str,
    read_also: Sequence[Path | str] = (),
    log: Callable[[str], None] = print,
) -> Study:
    """The estimate for the views of rows of Figure 5, such as ``cmc/split_rgb``, on the pictures of their training.

    Colour spaces are split as evaluation sees a picture; patches are cut as training cuts them, without colour changes;
    ``distance`` is in patches. Where there are no views, ``nats`` and ``half_width`` are None with a ``reason``.
    """
    sizes = lookup(PROFILES, profile)
    source = data.load(dataset, data_root).pretrain
    methods_of_rows = {name: _method(name, dataset, profile) for name in rows}

    def run() -> list[Row]:
        measured: list[Row] = []
        for name, (recipe, settings) in methods_of_rows.items():
            measured += [_row(recipe, settings, source, sizes, seed) for seed in sizes.seeds]
            nats = measured[-1]["nats"]
            in_words = "n/a" if nats is None else f"{nats:.2f} nats"
            log(f"{name}: {in_words}")
        return measured

    views = [[recipe.describe()["views"], settings.image_size] for recipe, settings in methods_of_rows.values()]
    config = {
        "rows": rows,
        "data": getattr(source, "fingerprint", source.name),
        **asdict(sizes),
        "version": 2,
        "views": views,
    }
    return measure(STUDY, profile, config, run, out_dir=out_dir, read_also=read_also)


def _method(name: str, dataset: str, profile: str) -> tuple[Recipe, Settings]:
    """The recipe of a row of Figure 5, and its settings."""
    settings = papers.plan("cmc", "figure5").settings(dataset, name, profile)
    return methods.get(name).override(settings.overrides), settings


def _row(recipe: Recipe, settings: Settings, source: ItemSet, sizes: Sizes, seed: int) -> Row:
    """The estimate for the views of a recipe, or why there are no views."""
    views = recipe.views
    label, kind, distance = " and ".join(views.streams), "colours", None
    if isinstance(views, Offset):
        label, kind, distance = recipe.label, "patches", views.distance / settings.image_size
    row: Row = {"row": recipe.name, "label": label, "kind": kind, "seed": seed, "distance": distance}
    try:
        x, y = _two_views(views, settings.image_size, source, sizes, seed)
    except NotApplicableError as reason:
        return row | {"nats": None, "half_width": None, "reason": str(reason)}
    nats, half_width = estimate(x, y, sizes, seed)
    return row | {"nats": nats, "half_width": half_width, "reason": None}


def _two_views(views: Views, size: int, source: ItemSet, sizes: Sizes, seed: int) -> tuple[Tensor, Tensor]:
    """Both views of some pictures, averaged down and flat: ``[N, p]`` and ``[N, q]``."""
    neutral = replace(augmentation("none", size), mean=(0.5,), std=(0.5,))
    order = subset_order(source.labels, min(sizes.pictures, len(source)), seed)
    draws = generator(seed, "views for an estimate")
    crop = None
    if isinstance(views, Offset) and isinstance(source, data.StreamedImages):
        # whole pictures, of which evaluation sees a square
        crop = Crops(neutral, seed=seed, **crop_options(views, size))
    first, second = [], []
    for _, images in batches(source, order, 500, "cpu", drop_last=False, crop=crop):
        if isinstance(views, Offset):
            one, other = views.make(images, neutral, draws)
        else:
            one, other = views.plain(images, neutral)
        first.append(_flat(one, sizes.side))
        second.append(_flat(other, sizes.side))
    return torch.cat(first), torch.cat(second)


def _flat(view: Tensor, side: int) -> Tensor:
    """A view ``[B, C, H, W]`` averaged down to so many pixels along an edge, ``[B, values]``."""
    return F.adaptive_avg_pool2d(view, min(side, view.shape[-1])).flatten(1)
