"""Whether the bound of a run tells its accuracy (vince Figure 4): what each stored run says of both.

Bounds of different recipes have different ceilings and looseness; a correlation is of one data set and profile.
"""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from contrastlab import methods
from contrastlab.tables.results import Result

METRIC = "linear"
TELLING = 6
"""Methods from which on a page shows a correlation: with fewer its interval reaches from one end to the other."""


def frame(results: Iterable[Result]) -> pd.DataFrame:
    """Each run with a bound (nats, of the last epoch) and a linear probe (percent) on the data it was trained on."""
    columns = ["dataset", "profile", "method", "label", "seed", "bound", "accuracy"]
    lines: list[tuple[object, ...]] = []
    shown: set[tuple[object, ...]] = set()
    for result in results:
        bounds = [row["mi_bound"] for row in result.curve if "mi_bound" in row]
        scored_where_trained = METRIC in result.metrics and not result.on
        if not bounds or not scored_where_trained or not _bounds_information(result.method):
            continue
        run = (result.dataset, result.profile, result.method, result.seed, result.setup_hash)
        if run in shown:
            continue
        shown.add(run)
        label = methods.get(result.method).label
        of_run = (result.dataset, result.profile, result.method, label, result.seed)
        lines.append((*of_run, bounds[-1], result.metrics[METRIC]))
    return pd.DataFrame(lines, columns=columns)


def _bounds_information(method: str) -> bool:
    """Whether the loss of a recipe bounds information. Older runs of rings and caves store a number that is no bound.

    A recipe of one's own is known in its own process only.
    """
    return method in methods.names() and methods.get(method).bounds_information


def telling(lines: pd.DataFrame) -> pd.DataFrame:
    """Those lines of :func:`frame` whose data set and profile have at least :data:`TELLING` methods."""
    count = lines.groupby(["dataset", "profile"])["method"].transform("nunique")
    return lines[count >= TELLING]
