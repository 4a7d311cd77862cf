"""Whether the bound of a run tells its accuracy (vince Figure 4): what each stored run says of both.

Bounds of different recipes have different ceilings and looseness; a correlation is of one data set and profile.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

from contrastbook.figures.base import MARKERS, dress, subplots_each
from contrastlab import methods
from contrastlab.tables.numbers import signed
from contrastlab.tables.results import Result

METRIC = "linear"
TELLING = 6
"""Methods from which on a page shows a correlation: with fewer its interval reaches from one end to the other."""


def frame(results: Iterable[Result]) -> pd.DataFrame:
    """Each run with a bound (nats, of the last epoch) and a linear probe (percent) on the data it was trained on."""
    lines: dict[tuple[str, str, str, int, str], tuple[object, ...]] = {}
    for r in results:
        bounds = [row["mi_bound"] for row in r.curve if "mi_bound" in row]
        if METRIC not in r.metrics or not bounds or r.on or r.method not in methods.names():
            continue  # a recipe of one's own is known in its own process only
        recipe = methods.get(r.method)
        if recipe.bounds_information:  # older runs have it for rings and caves, too, where it depends on the scores
            key = (r.dataset, r.profile, r.method, r.seed, r.setup)
            lines.setdefault(key, (*key[:3], recipe.label, r.seed, bounds[-1], r.metrics[METRIC]))
    columns = ["dataset", "profile", "method", "label", "seed", "bound", "accuracy"]
    return pd.DataFrame(list(lines.values()), columns=columns)


def correlation(lines: pd.DataFrame, draws: int = 2000) -> tuple[float, float, float]:
    """Spearman's rank correlation of bound and accuracy over methods, with a 95 % bootstrap interval over methods.

    ``lines``: of :func:`frame`, one data set and profile. Seeds of a method are averaged first: they are no further
    methods. NaN for fewer than four methods.
    """
    means = lines.groupby("method")[["bound", "accuracy"]].mean().to_numpy()
    if len(means) < 4:
        return (np.nan, np.nan, np.nan)
    picks = means[np.random.default_rng(0).integers(len(means), size=(draws, len(means)))]
    ranks = stats.rankdata(picks, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        each = [np.corrcoef(one.T)[0, 1] for one in ranks]
    low, high = np.nanquantile(each, [0.025, 0.975])
    return float(stats.spearmanr(means[:, 0], means[:, 1]).statistic), float(low), float(high)


def telling(lines: pd.DataFrame) -> pd.DataFrame:
    """Those lines of :func:`frame` whose data set and profile have at least :data:`TELLING` methods."""
    count = lines.groupby(["dataset", "profile"])["method"].transform("nunique")
    return lines[count >= TELLING]


def scatter(lines: pd.DataFrame) -> Figure:
    """Accuracy against the bound, a panel for each data set and profile, a dot for each run; lines of :func:`frame`."""
    groups = list(lines.groupby(["dataset", "profile"], sort=True))
    figure, panels = subplots_each(len(groups), 2, (4.6, 4.0))
    words = []
    for axes, ((dataset, profile), mine) in zip(panels, groups, strict=False):
        for k, (label, runs) in enumerate(mine.groupby("label", sort=True)):
            axes.plot(runs["bound"], runs["accuracy"], MARKERS[k % 14], color=f"C{k % 10}", alpha=0.8, label=label)
        rho, low, high = correlation(mine)
        text = "too few methods for a correlation"
        if not np.isnan(rho):
            ends = f"{signed(low, sign=True)} to {signed(high, sign=True)}"
            text = f"rank correlation over methods {signed(rho, sign=True)} ({ends})"
        bound, accuracy = "bound on the information, last epoch (nats)", "linear accuracy (% of test images)"
        dress(axes, bound, accuracy, f"{dataset}, {profile}\n{text}", fontsize="x-small", ncols=2)
        words.append(f"{dataset}, {profile}: {len(mine)} runs, {text}")
    figure.set_label(f"Scatter plot of accuracy against the bound. {'; '.join(words) or 'No run has a bound'}.")
    return figure
