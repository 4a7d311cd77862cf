"""cmc Figure 5: how much information do the two views of a picture share?

The paper estimates it with MINE and describes neither network nor training. Here the critic is g(x)·h(y), two networks
of three layers: trained on one part of the pictures, stopped on a second, scored on a third with a bootstrap. No such
bound can vouch for much more than log N nats from N pictures. :func:`control`: textures whose information is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
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
from contrastlab.views import Offset
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
    apart = len(x) // 5
    if len(x) < 10 * BATCH:
        raise reject("x", f"{len(x)} rows", f"at least {10 * BATCH}: a tenth of them is a batch")
    order = torch.randperm(len(x), generator=generator(seed, "pairs for an estimate"))
    fit, scored = order[apart:], order[:apart]
    x, y = (_standardised(part, part[fit]) for part in (x, y))
    with fixed(seed):
        networks = (critics.mlp([part.shape[1], *[sizes.hidden] * 3]) for part in (x, y))
        critic = critics.Separable(*networks, temperature=math.sqrt(sizes.hidden))
    mine = bounds.Mine()

    def bound(scores: Tensor) -> Tensor:
        # the running mean is of the batches that train
        return (mine if scores.requires_grad else bounds.donsker_varadhan)(*bounds.pairs(scores))

    critics.fit(
        critic, bound, x[fit], y[fit], batch=BATCH, epochs=sizes.epochs, patience=sizes.patience, held_out=0.126,
        seed=seed,
    )  # fmt: skip
    with torch.no_grad():
        scores = critic(x[scored], y[scored]).double()

    def of(rows: Tensor) -> float:
        # a picture drawn twice is no independent pair with itself
        others = rows[:, None] != rows
        chosen = scores[rows][:, rows]
        return float(chosen.diagonal().mean() - (torch.logsumexp(chosen[others], 0) - math.log(int(others.sum()))))

    return bootstrap(of, apart, draws=sizes.draws, seed=seed)


def _standardised(part: Tensor, seen: Tensor) -> Tensor:
    # a function of a view tells no more than the view, so that a lower bound without the outliers is one with them
    mean, std = seen.mean(0), seen.std(0)
    return ((part - mean) / std.clamp(min=1e-3)).clamp(-OUTLIER, OUTLIER)


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
    profile: str, *, out_dir: Path | str, read_also: Sequence[Path | str] = (),
    distances: Sequence[int] = (4, 6, 8, 12, 16, 24),
) -> Study:  # fmt: skip
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
    profile: str, dataset: str, rows: Sequence[str], *, data_root: Path | str | None = None, out_dir: Path | str,
    read_also: Sequence[Path | str] = (), log: Callable[[str], None] = print,
) -> Study:  # fmt: skip
    """The estimate for the views of rows of Figure 5, such as ``cmc/split_rgb``, on the pictures of their training.

    Colour spaces are split as evaluation sees a picture; patches are cut as training cuts them, without colour changes;
    ``distance`` is in patches. Where there are no views, ``nats`` and ``half_width`` are None with a ``reason``.
    """
    sizes, source = lookup(PROFILES, profile), data.load(dataset, data_root).pretrain
    shown = {name: _shown(name, dataset, profile) for name in rows}

    def run() -> list[Row]:
        measured: list[Row] = []
        for name, (recipe, settings) in shown.items():
            measured += [_row(recipe, settings, source, sizes, seed) for seed in sizes.seeds]
            log(f"{name}: " + ("n/a" if measured[-1]["nats"] is None else f"{measured[-1]['nats']:.2f} nats"))
        return measured

    config = {
        "rows": rows, "data": getattr(source, "fingerprint", source.name), **asdict(sizes), "version": 2,
        "views": [[recipe.describe()["views"], settings.image_size] for recipe, settings in shown.values()],
    }  # fmt: skip
    return measure(STUDY, profile, config, run, out_dir=out_dir, read_also=read_also)


def _shown(name: str, dataset: str, profile: str) -> tuple[Recipe, Settings]:
    settings = papers.plan("cmc", "figure5").settings(dataset, name, profile)
    return methods.get(name).override(settings.overrides), settings


def _row(recipe: Recipe, settings: Settings, source: ItemSet, sizes: Sizes, seed: int) -> Row:
    views = recipe.views
    patches = isinstance(views, Offset)
    empty: Row = {
        "row": recipe.name, "label": recipe.label if patches else " and ".join(views.streams),
        "kind": "patches" if patches else "colours", "seed": seed,
        "distance": views.distance / settings.image_size if isinstance(views, Offset) else None,
    }  # fmt: skip
    shown = replace(augmentation("none", settings.image_size), mean=(0.5,), std=(0.5,))
    order = subset_order(source.labels, min(sizes.pictures, len(source)), seed)
    draw, crop = generator(seed, "views for an estimate"), None
    try:
        if patches and isinstance(source, data.StreamedImages):  # whole pictures, of which evaluation sees a square
            crop = Crops(shown, seed=seed, **crop_options(views, settings.image_size))
        seen = [
            [
                F.adaptive_avg_pool2d(view, min(sizes.side, view.shape[-1])).flatten(1)
                for view in (views.make(images, shown, draw) if patches else views.plain(images, shown))
            ]
            for _, images in batches(source, order, 500, "cpu", drop_last=False, crop=crop)
        ]
    except NotApplicableError as reason:
        return empty | {"nats": None, "half_width": None, "reason": str(reason)}
    x, y = (torch.cat(part) for part in zip(*seen, strict=True))
    nats, half = estimate(x, y, sizes, seed)
    return empty | {"nats": nats, "half_width": half, "reason": None}
