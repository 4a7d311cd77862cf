"""Whether the bound of a run tells its accuracy (vince Figure 4): what each stored run says of both.

Bounds of different recipes have different ceilings and looseness; a correlation is of one data set and profile.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from contrastbook.evidence.inference import correlation
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
            key = (r.dataset, r.profile, r.method, r.seed, r.setup_hash)
            lines.setdefault(key, (*key[:3], recipe.label, r.seed, bounds[-1], r.metrics[METRIC]))
    columns = ["dataset", "profile", "method", "label", "seed", "bound", "accuracy"]
    return pd.DataFrame(list(lines.values()), columns=columns)


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
        means = mine.groupby("method")[["bound", "accuracy"]].mean()  # seeds of a method are no further methods
        rho, low, high = correlation(means["bound"].tolist(), means["accuracy"].tolist())
        text = "too few methods for a correlation"
        if not np.isnan(rho):
            ends = f"{signed(low, sign=True)} to {signed(high, sign=True)}"
            text = f"rank correlation over methods {signed(rho, sign=True)} ({ends})"
        bound, accuracy = "bound on the information, last epoch (nats)", "linear accuracy (% of test images)"
        dress(axes, bound, accuracy, f"{dataset}, {profile}\n{text}", fontsize="x-small", ncols=2)
        words.append(f"{dataset}, {profile}: {len(mine)} runs, {text}")
    figure.set_label(f"Scatter plot of accuracy against the bound. {'; '.join(words) or 'No run has a bound'}.")
    return figure
