"""fmicl Table 8: what the weight α of the negatives' term means, and which one theory would choose."""

from __future__ import annotations

import math
from typing import cast

import pandas as pd
import torch
from scipy.special import hyp0f1
from torch import Tensor

from contrastlab import papers
from contrastlab.errors import reject
from contrastlab.methods import get
from contrastlab.objectives import FMICL, Scores
from contrastlab.report import Report

__all__ = ["accuracy", "knob_gap", "natural", "table7"]


def knob_gap(divergence: str, mu: float, alpha: float, *, queries: int = 64, keys: int = 31, seed: int = 0) -> Tensor:
    """Loss with kernel height μ and weight α, plus log μ, minus the loss with height 1 and weight αμ, ``[queries]``.

    Zero for KL, whatever the scores: α and μ are one knob there (fmicl Proposition 5).

    ``seed``: of their cosines, uniform from −1 to 1.
    """
    draw = torch.Generator().manual_seed(seed)
    tau = get("fmicl/kl").temperature
    cosines = torch.rand(queries, keys + 1, generator=draw, dtype=torch.float64) * 2 - 1
    scores = Scores(cosines[:, 0] / tau, cosines[:, 1:] / tau, highest=1 / tau)
    one = FMICL(divergence, weight=alpha, mu=mu)(scores)
    return one + math.log(mu) - FMICL(divergence, weight=alpha * mu)(scores)


def natural(dimension: float, c: float) -> float:
    """``1 / E exp(−c‖x − y‖²)`` for two points uniform on the unit sphere: the α that makes αu a density ratio.

    ``dimension``: d, at least 2. ``c``: ``1 / 2σ²``, above 0.
    """
    if dimension < 2:
        raise reject("dimension", dimension, "a number of at least 2")
    if not c > 0:
        raise reject("c", c, "a number above 0")
    return math.exp(2 * c) / float(hyp0f1(dimension / 2, c**2))


def table7() -> pd.DataFrame:
    """The paper's d, ``1/2σ²`` and α beside the natural α."""
    wide = papers.published("fmicl", "7").pivot_table(index="row", columns="column", values="value")
    chosen = wide.loc[["CIFAR-10", "Wikipedia"], ["d", "1/(2 sigma^2)", "alpha"]]
    return chosen.assign(natural=[natural(float(d), float(c)) for d, c, _ in chosen.to_numpy()])


def accuracy(table: Report) -> pd.DataFrame:
    """A line for each row of a report of Table 8: divergence, α, published and measured accuracy in percent.

    Returns ``divergence``, ``alpha``, ``published``, ``measured``, ``half width`` (95 %: over seeds, or of the test
    set's sampling error where there is one seed); NaN where there is nothing. Sorted by α.
    """
    rows = []
    for row in table.rows:
        if row.kind == "method":
            recipe, e = get(row.method), row.measured
            half = None if e is None else e.sampling if e.half_width is None else e.half_width
            weight = cast("FMICL", recipe.objective).weight
            rows.append((recipe.label[:2], weight, row.published, e and e.mean, half))
    columns = ["divergence", "alpha", "published", "measured", "half width"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.astype(dict.fromkeys(columns[1:], "float64")).sort_values("alpha", ignore_index=True)
