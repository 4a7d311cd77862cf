"""cmc Figure 5: how much information do the two views of a picture share?

The paper estimates it with MINE, and tells neither the network nor its training nor an error. Here the critic is
g(x)·h(y) with two networks of three layers on small views. It is trained on one part of the pictures, stopped on a
second, and the bound is taken on a third: all of its positive pairs against all of its other pairs, with a bootstrap
over pictures. On textures whose information is known, :func:`control`, one sees what the estimate is worth. It is a
lower bound, and from N pictures none of this kind can vouch for much more than log N nats (McAllester and Stratos,
which the paper cites).

Source: cmc section 4.4; MINE (Belghazi et al., ICML 2018).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from contrastbook.studies import Row, Study, measure, of_profile, plain
from contrastlab import data, methods, papers
from contrastlab.data.augmentations import augmentation
from contrastlab.data.loading import Crops, Pictures, batches, subset_order
from contrastlab.errors import NotApplicableError, reject
from contrastlab.seeds import fixed, generator
from contrastlab.tasks import bootstrap
from contrastlab.theory import bounds, critics
from contrastlab.theory.toys import JointGaussian
from contrastlab.views import Offset
from contrastlab.views.base import crop_options

STUDY = "cmc_figure5"

OUTLIER = 4.0
"""Deviations beyond which a value of a view is cut off: one strange picture can ruin a mean of exponentials."""

BATCH = 64
"""Pairs that the critic sees at once."""


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Args:
        pictures: of which the views are made; a fifth is scored, a tenth stops the training.
        side: of the views that the critic sees, in pixels: larger ones are averaged down to it.
        seeds: of the order of the pictures and of the critic.
    """

    pictures: int
    side: int
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
    """MINE's lower bound on I(X; Y) from pairs.

    ``x``: ``[N, p]``. ``y``: ``[N, q]``, row by row the partner of x. ``seed``: of the split, the order and the
    critic's weights. Returns the bound in nats, on a fifth of the pairs, which neither trained nor stopped the critic,
    and the 95 % half-width of its sampling error.
    """
    apart = len(x) // 5
    if len(x) < 10 * BATCH:
        raise reject("x", f"{len(x)} rows", f"at least {10 * BATCH}: a tenth of them is a batch")
    order = torch.randperm(len(x), generator=generator(seed, "pairs for an estimate"))
    fit, scored = order[apart:], order[:apart]
    x, y = (_standardised(part, part[fit]) for part in (x, y))
    with fixed(seed):
        h = sizes.hidden
        critic = critics.Separable(
            *(critics.mlp([part.shape[1], h, h, h]) for part in (x, y)), temperature=math.sqrt(h)
        )
    mine = bounds.Mine()

    def bound(scores: Tensor) -> Tensor:
        positives, negatives = bounds.pairs(scores)
        # the running mean is of the batches that train
        return mine(positives, negatives) if scores.requires_grad else bounds.donsker_varadhan(positives, negatives)

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
    # a function of a view tells no more than the view: what is bounded from below without its outliers is so with them
    mean, std = seen.mean(0), seen.std(0)
    return ((part - mean) / std.clamp(min=1e-3)).clamp(-OUTLIER, OUTLIER)


def texture(distance: int, *, size: int = 4, length: float = 6.0, noise: float = 0.1) -> JointGaussian:
    """Two square patches of a Gaussian texture whose correlation falls off as exp(−r/length).

    ``distance``: pixels from one patch to the other along both axes. ``size``: side of a patch in pixels. ``length``:
    of correlation, in pixels. ``noise``: variance that each pixel has by itself, beside the texture's of 1.
    """
    if distance < size:
        raise reject("distance", distance, f"at least {size}, the side of a patch: no pixel is in both")
    if not length > 0:
        raise reject("length", length, "a positive number of pixels")
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
    sizes = of_profile(PROFILES, profile)

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

    config = {"distances": list(distances), **plain(sizes), "version": 2}
    return measure(f"{STUDY}_control", profile, config, run, out_dir=out_dir, read_also=read_also)


def study(
    profile: str, dataset: str, rows: Sequence[str], *, data_root: Path | str | None = None, out_dir: Path | str,
    read_also: Sequence[Path | str] = (), log: Callable[[str], None] = print,
) -> Study:  # fmt: skip
    """The estimate for the views of some rows of Figure 5, on the pictures they are trained on.

    Colour spaces are split as evaluation sees a picture; patches are cut as training cuts them, without colour changes.

    ``profile``: a name in :data:`PROFILES`; it also says how large patches are and how far apart. ``rows``: full names
    of recipes of two parts or patches, such as ``cmc/split_rgb``. Returns rows with ``row``, ``label``, ``kind``
    (``colours`` or ``patches``), ``distance`` in patches, ``seed``, ``nats`` and ``half_width`` (95 %, of the sampling
    error), the last two None with a ``reason`` where there are no views.

    Raises:
        MissingDataError: the data are not there.
    """
    sizes, splits = of_profile(PROFILES, profile), data.load(dataset, data_root)
    source = splits.pretrain
    count = min(sizes.pictures, len(source))

    def run() -> list[Row]:
        measured: list[Row] = []
        for name in rows:
            for seed in sizes.seeds:
                measured.append(_row(name, source, count, dataset, profile, sizes, seed))
            log(f"{name}: " + ("n/a" if measured[-1]["nats"] is None else f"{measured[-1]['nats']:.2f} nats"))
        return measured

    config = {
        "rows": list(rows), "data": getattr(source, "fingerprint", source.name), **plain(sizes), "version": 2,
        "views": [_shown(name, dataset, profile)[1] for name in rows],
    }  # fmt: skip
    return measure(STUDY, profile, config, run, out_dir=out_dir, read_also=read_also)


def _shown(name: str, dataset: str, profile: str) -> tuple[Any, list[Any], Any]:
    settings = papers.plan("cmc", "figure5").settings(dataset, name, profile)
    recipe = methods.get(name).override(settings.overrides)
    return recipe, [recipe.describe()["views"], settings.image_size], settings


def _row(name: str, source: Any, count: int, dataset: str, profile: str, sizes: Sizes, seed: int) -> Row:
    recipe, _, settings = _shown(name, dataset, profile)
    patches = isinstance(recipe.views, Offset)
    empty: Row = {
        "row": name, "label": recipe.label if patches else " and ".join(recipe.views.streams),
        "kind": "patches" if patches else "colours", "seed": seed,
        "distance": recipe.views.distance / settings.image_size if patches else None,
    }  # fmt: skip
    shown = replace(augmentation("none", settings.image_size), mean=(0.5,), std=(0.5,))
    order, draw = subset_order(source.labels, count, seed), generator(seed, "views for an estimate")
    parts: tuple[list[Tensor], list[Tensor]] = ([], [])
    try:
        crop = None
        if patches and isinstance(source, Pictures):  # whole pictures, of which evaluation sees a small square
            crop = Crops(shown, seed=seed, **crop_options(recipe.views, settings.image_size))
        for _, images in batches(source, order, 500, "cpu", drop_last=False, crop=crop):
            views = recipe.views.make(images, shown, draw) if patches else recipe.views.plain(images, shown)
            for part, view in zip(parts, views, strict=True):
                part.append(F.adaptive_avg_pool2d(view, min(sizes.side, view.shape[-1])).flatten(1))
    except NotApplicableError as reason:
        return empty | {"nats": None, "half_width": None, "reason": str(reason)}
    nats, half = estimate(torch.cat(parts[0]), torch.cat(parts[1]), sizes, seed)
    return empty | {"nats": nats, "half_width": half, "reason": None}
