"""fmicl Table 4: which scores the conjugate of a divergence takes, and where real scores lie."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import torch
from torch import Tensor

from contrastlab import data, divergences, objectives, papers
from contrastlab.data.augmentations import augmentation
from contrastlab.divergences import Divergence
from contrastlab.errors import ArgumentError
from contrastlab.methods import get
from contrastlab.pretrain import pretrain
from contrastlab.tasks import encode

__all__ = ["SIX", "conjugates", "outside", "refusals", "slope", "untrained_cosines"]

SIX: tuple[Divergence, ...] = tuple(
    divergences.get(name) for name in ("kl", "js", "pearson", "hellinger", "tsallis", "vincze_le_cam")
)
"""The divergences of Table 4."""


def slope(f: Divergence, score: Tensor) -> float:
    """Slope of f* at a score, how hard the negatives' term pushes there; NaN outside of the domain.

    Args:
        f: the divergence.
        score: ``[1]``.
    """
    if not bool(f.contains(score).all()):
        return float("nan")
    at = score.clone().requires_grad_()
    return float(torch.autograd.grad(f.conjugate(at).sum(), at)[0])


def conjugates() -> pd.DataFrame:
    """For each divergence: its domain, f* at cosine 1, and the slope just below."""
    almost, one = torch.tensor([1 - 1e-6], dtype=torch.float64), torch.ones(1)
    return pd.DataFrame(
        {
            "f* is finite for": [f.domain for f in SIX],
            "f* at cosine 1": [float(f.conjugate(one)) for f in SIX],
            "slope of f* just below 1": [slope(f, almost) for f in SIX],
        },
        index=[f.title for f in SIX],
    )


def untrained_cosines(images: int = 300) -> Tensor:
    """Cosines of all pairs of different test images of the bundled shapes, by an encoder as it is initialised.

    Args:
        images: how many.
    """
    settings, shapes = papers.plan("fmicl", "4").settings("shapes", "kl", "smoke"), data.load("shapes")
    fresh = pretrain(get("ours/random"), settings, shapes.pretrain, log=lambda line: None).encoders
    view = augmentation(settings.augmentation, settings.image_size)
    x, _ = encode(fresh, get("fmicl/kl").views, view, shapes.test.take(images))
    return (x @ x.T)[tuple(torch.triu_indices(len(x), len(x), 1))].double()


def outside(pairs: Tensor) -> pd.DataFrame:
    """For each divergence: percent of scores outside of the conjugate's domain, and the largest slope inside.

    Args:
        pairs: scores, float64 ``[N]``.
    """
    rows = {}
    for f in SIX:
        inside = pairs[f.contains(pairs)]
        rows[f.title] = {
            "pairs outside of the domain (%)": 100 * (1 - len(inside) / len(pairs)),
            "largest slope of f* inside": slope(f, inside.max()[None]) if len(inside) else float("nan"),
        }
    return pd.DataFrame(rows).T


def refusals(
    names: Sequence[str] = ("kl", "vincze_le_cam"), temperatures: Sequence[float] = (1.0, 2.0)
) -> dict[tuple[str, float], str]:
    """What training says of a cosine in the conjugate: empty, or the reason it is refused for.

    Args:
        names: divergences.
        temperatures: τ, that the cosine is divided by.
    """
    out = {}
    for name in names:
        for temperature in temperatures:
            try:
                objectives.FMICL(name, similarity="cosine").check(temperature)
                out[name, temperature] = ""
            except ArgumentError as reason:
                out[name, temperature] = str(reason)
    return out
