"""The recorded validation searches: what was tried, what won.

A file ``results/searches/<name>.json`` holds what was measured on held-out training images: ``{"what", "command",
"held_out", "rows", "ranges", "free", …, "runs": […]}``. A trial gives all rows of a search the same settings. The
winner is the trial with the highest accuracy, averaged over the rows, so that no row decides for another. ``free``
names what the paper prints: a trial that leaves these alone is *as printed*.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd

from contrastlab.errors import CorruptFileError, MissingDataError, reject
from contrastlab.settings import Settings

__all__ = ["read", "table", "winner"]


def read(path: Path | str) -> dict[str, Any]:
    """A stored search.

    Raises:
        MissingDataError: there is no such file.
        CorruptFileError: it is not a search.
    """
    path = Path(path)
    try:
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for run in stored["runs"]:
            Settings.model_validate(run["settings"])
            run["trial"], run["method"], run["accuracy"]
        int(stored["held_out"])
    except FileNotFoundError as error:
        raise MissingDataError(f"{path}: no search of that name is stored") from error
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFileError(f"{path} is no stored search: {error}") from error
    return stored


def _frame(stored: dict[str, Any]) -> pd.DataFrame:
    """Accuracy by trial (rows) and method (columns), mean over seeds; NaN where a run is missing or diverged."""
    runs = pd.DataFrame(
        [{"trial": r["trial"], "method": r["method"], "accuracy": r["accuracy"]} for r in stored["runs"]]
    )
    runs["accuracy"] = runs["accuracy"].astype(float)
    return runs.pivot_table(index="trial", columns="method", values="accuracy", sort=False, dropna=False)


def table(path: Path | str) -> pd.DataFrame:
    """Validation accuracy (percent) by trial and row, and the standard error of one of these numbers.

    Args:
        path: of the stored search.

    Raises:
        MissingDataError: there is no such file.
        CorruptFileError: it is not a search.
    """
    stored = read(path)
    wide = _frame(stored).round(1)
    wide.columns = [name.partition("/")[2] for name in wide.columns]
    wide["± (one run)"] = round(50 / math.sqrt(stored["held_out"]), 1)
    return wide


def winner(path: Path | str, *, printed: bool = False) -> tuple[str, dict[str, Any]]:
    """Trial that won and its settings, as stored: those that are not at their default.

    Args:
        path: of a stored random search.
        printed: among the trials that leave alone what the paper prints.

    Returns:
        Name of the trial, and ``Settings.model_dump(exclude_defaults=True)`` of it.

    Raises:
        MissingDataError: there is no such file.
        CorruptFileError: it is not a search.
        ArgumentError: no trial has all its rows, or the search is a list by hand.
    """
    stored = read(path)
    if "rows" not in stored:
        raise reject("path", str(path), "a random search; the trials of this one have different rows")
    frame = _frame(stored).reindex(columns=stored["rows"])
    by_trial = {run["trial"]: run["settings"] for run in stored["runs"]}
    if printed:
        kept = [t for t in frame.index if not set(stored["free"]) & set(_changes(by_trial[t]))]
        frame = frame.loc[kept]
    means = frame.mean(axis=1, skipna=False).dropna()
    if means.empty:
        raise reject("path", str(path), "a search with a trial that all of its rows have finished")
    best = str(means.idxmax())
    return best, by_trial[best]


def _changes(settings: dict[str, Any]) -> set[str]:
    return set(settings) | set(settings.get("overrides", {}))
