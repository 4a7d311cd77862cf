"""Does an accuracy curve have the shape that vince appendix G describes?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import pandas as pd

from contrastbook.studies import Row, Study
from contrastlab.errors import reject, unknown

__all__ = ["NEAR_CHANCE", "PEAK_ETAS", "SEPARATED", "Peak", "closest", "peak", "sentence", "table"]


@dataclass(frozen=True)
class Peak:
    """Whether an accuracy curve has the published shape; see :func:`peak`.

    Args:
        eta: η of the highest mean accuracy.
        accuracy: percent, mean over seeds at that η.
        ends: percent, mean over seeds at the smallest and at the largest η.
        raw: percent, mean over seeds, logistic regression on the coordinates.
        missing: what the published curve has and this one has not; empty where the peak is there.
    """

    reading: str
    eta: float
    accuracy: float
    ends: tuple[float, float]
    raw: float
    missing: tuple[str, ...] = ()


PEAK_ETAS = (0.2, 0.8)
"""Where the best η counts as the published 0.4."""

NEAR_CHANCE = 60.0
"""Percent below which an end of the curve counts as "near chance" for two labels."""

SEPARATED = 75.0
"""Percent from which "a (mostly) linear separation" is granted: half-way from chance to certainty."""


def peak(rows: Sequence[Row], *, accuracy: str = "accuracy") -> Peak:
    """Judge the rows of one reading by the words of appendix G.

    The published curve (1) is highest at an η in :data:`PEAK_ETAS`; there (2) it separates the labels to at least
    :data:`SEPARATED` percent, (3) its worst seed is above the best seed of both ends and of the raw coordinates; and
    (4) at the smallest and the largest η its mean is below :data:`NEAR_CHANCE`.

    ``rows``: of :func:`contrastbook.studies.vince_figure6.accuracy_curve`; diverged models are left out. ``accuracy``:
    the column, ``accuracy`` or ``accuracy_views``.
    """
    names = {str(row["reading"]) for row in rows}
    if len(names) != 1:
        raise reject("rows", sorted(names), "rows of one reading")
    if accuracy not in ("accuracy", "accuracy_views"):
        raise unknown("column", accuracy, ("accuracy", "accuracy_views"))
    curve: dict[float, list[float]] = {}
    for row in rows:
        value, eta = row[accuracy], row["eta"]
        if row["encoder"] == "trained" and value is not None and eta is not None:
            curve.setdefault(float(eta), []).append(float(value))
    raw = [float(row["accuracy"]) for row in rows if row["encoder"] == "raw" and row["accuracy"] is not None]
    if len(curve) < 2 or not raw:
        raise reject("rows", f"{len(curve)} values of η, {len(raw)} raw", "two values of η and the raw reference")
    first, last = min(curve), max(curve)
    best = max(curve, key=lambda eta: fmean(curve[eta]))
    top, ends = fmean(curve[best]), (fmean(curve[first]), fmean(curve[last]))
    missing = []
    if not PEAK_ETAS[0] <= best <= PEAK_ETAS[1]:
        missing.append(f"highest at η = {best:g}, not between {PEAK_ETAS[0]:g} and {PEAK_ETAS[1]:g}")
    if top < SEPARATED:
        missing.append(f"at most {top:.0f} % there, no separation")
    if best in (first, last) or min(curve[best]) <= max(*curve[first], *curve[last], *raw):
        missing.append("not above both ends and the raw coordinates for every seed")
    if max(ends) >= NEAR_CHANCE:
        missing.append(f"{max(ends):.0f} % at one end, not near chance")
    return Peak(names.pop(), best, top, ends, fmean(raw), tuple(missing))


def closest(peaks: Sequence[Peak]) -> Peak:
    """The one that lacks least of the published shape; of equals the highest."""
    return min(peaks, key=lambda found: (len(found.missing), -found.accuracy))


def table(peaks: Sequence[Peak]) -> pd.DataFrame:
    """A line for each reading: best η, percentages there, at both ends and of the raw coordinates, what is missing."""
    return pd.DataFrame(
        {
            "reading": found.reading,
            "best η": found.eta,
            "accuracy there [%]": found.accuracy,
            "η smallest [%]": found.ends[0],
            "η largest [%]": found.ends[1],
            "raw coordinates [%]": found.raw,
            "what is missing": "; ".join(found.missing) or "nothing",
        }
        for found in peaks
    ).set_index("reading")


def sentence(curves: Sequence[Study]) -> str:
    """Which readings of a profile show the published peak, and on how many of their seeds taken alone; Markdown."""
    judged = [peak(found.rows) for found in curves]
    best, there = closest(judged), [found for found in judged if not found.missing]
    shown = "; ".join(f"*{p.reading}* ({p.accuracy:.0f} % at η = {p.eta:g})" for p in there) or (
        f"none. Closest is *{best.reading}*, highest at η = {best.eta:g} with {best.accuracy:.0f} %: "
        + "; ".join(best.missing)
    )
    alone = [
        peak([row for row in found.rows if row["seed"] == seed])
        for found in curves for seed in dict.fromkeys(row["seed"] for row in found.rows)
    ]  # fmt: skip
    views = [peak(found.rows, accuracy="accuracy_views") for found in curves]
    on_views = ", ".join(f"*{p.reading}*" for p in views if not p.missing) or "none"
    return (
        f"The published peak is shown by {shown}. Curves of one seed with the published shape: "
        f"{sum(not p.missing for p in alone)} of {len(alone)}. Probed on views in place of the points: {on_views}."
    )
