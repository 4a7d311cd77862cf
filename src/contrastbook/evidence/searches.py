"""The recorded validation searches: what was tried, what won.

A file ``results/searches/<name>.json`` holds runs on held-out training images. A trial gives all rows the same
settings; the winner has the highest mean accuracy. A trial that leaves alone what the paper gives (``free``) is *as
printed*: profile ``laptop`` has the winners among these, ``tuned`` those of all, both :data:`LONGER` times as long.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd

from contrastlab.settings import Settings
from contrastlab.support import checksums
from contrastlab.support.errors import ArgumentError, CorruptFileError, MissingDataError, reject

LONGER = 3
"""Epochs of a run in the profile for each epoch of a run in the search, where the search does not say otherwise."""


def read(path: Path | str) -> dict[str, Any]:
    """A stored search; raises ``MissingDataError`` where there is none, ``CorruptFileError`` where it was altered."""
    path = Path(path)
    try:
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        stored = checksums.verified({**stored})  # a list is a TypeError
        for run in stored["runs"]:
            Settings.model_validate(run["settings"])
            run["trial"], run["method"], run["accuracy"]
        int(stored["held_out"])
    except FileNotFoundError as error:
        raise MissingDataError(f"{path}: no search of that name is stored") from error
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise CorruptFileError(f"{path} is no stored search: {error}") from error
    return stored


def _accuracies(stored: dict[str, Any]) -> pd.DataFrame:
    """Accuracy by trial (rows) and method (columns), mean over seeds; NaN where a run is missing or diverged."""
    runs = pd.DataFrame(stored["runs"])[["trial", "method", "accuracy"]].astype({"accuracy": float})
    return runs.pivot_table(index="trial", columns="method", values="accuracy", sort=False, dropna=False)


def table(path: Path | str) -> pd.DataFrame:
    """By trial: what differs between them (or ``"as printed"``), each row's score, and an accuracy's standard error."""
    stored = read(path)
    wide = _accuracies(stored).round(1)
    wide.columns = [name.partition("/")[2] for name in wide.columns]
    if stored.get("metric", "linear") in ("linear", "action"):  # shares of items; means of classes are none
        wide["± (one run)"] = round(50 / math.sqrt(stored["held_out"]), 1)
    trials = {run["trial"]: _drawn(stored, run["settings"]) for run in stored["runs"]}
    drawn = pd.DataFrame(list(trials.values()), index=list(trials))
    return pd.concat([drawn.loc[:, [len(set(drawn[name])) > 1 for name in drawn]], wide], axis=1)


def _drawn(stored: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """Of one trial, the values of all that the search draws."""
    names = [*stored.get("ranges", ()), *stored.get("free", ())]
    if stored.get("lengths"):
        names = ["train_images", "epochs", *names]
    whole = Settings.model_validate(settings).model_dump(mode="json")
    return {name: _value(whole, name) for name in names}


def _value(whole: dict[str, Any], name: str) -> Any:
    """A setting, one of a task (``masks.lr``), or an override."""
    task, _, field = name.rpartition(".")
    if name in whole:
        return whole[name]
    return whole[task][field] if task in whole else whole["overrides"].get(name, "as printed")


def winner(path: Path | str, *, row: str = "", printed: bool = False) -> tuple[str, dict[str, Any]]:
    """Name of the trial that won, and its settings, as stored: those that are not at their default.

    Args:
        path: of the stored search.
        row: the trial with this row's highest accuracy wins, whatever the others did; by default the trial with the
            highest mean over all rows that has them all.
        printed: among the trials that leave alone what the paper prints.

    Raises:
        ArgumentError: no trial can win, or each row has its own winner and none is named.
    """
    stored = read(path)
    if "rows" not in stored:
        raise reject("path", str(path), "a random search; the trials of this one have different rows")
    if stored.get("by_row") and not row:
        raise reject("row", row, f"one of {', '.join(stored['rows'])}: each row of this search has its own winner")
    if row and row not in stored["rows"]:
        raise reject("row", row, f"one of {', '.join(stored['rows'])}")
    compared = [row] if row else stored["rows"]
    accuracies = _accuracies(stored).reindex(columns=compared)
    by_trial = {run["trial"]: run["settings"] for run in stored["runs"] if run["method"] in compared}
    if printed:
        changes = {trial: {*own, *own.get("overrides", {})} for trial, own in by_trial.items()}
        accuracies = accuracies.loc[[trial for trial in changes if changes[trial].isdisjoint(stored["free"])]]
    means = accuracies.mean(axis=1, skipna=False).dropna()
    if means.empty:
        raise reject("path", str(path), "a search with a trial that all of its rows have finished")
    best = str(means.idxmax())
    return best, by_trial[best]


def section(path: Path | str, *, row: str = "", printed: bool = False) -> dict[str, Any]:
    """What the winner changes in a profile, at its length; ``row`` and ``printed``: see :func:`winner`."""
    stored = read(path)
    _, won = winner(path, row=row, printed=printed)
    drawn = {*stored["ranges"], *stored["free"]}
    whole = Settings.model_validate(won).model_dump(mode="json")
    nested = [name.split(".") for name in sorted(stored["ranges"]) if name.partition(".")[0] in whole and "." in name]
    out: dict[str, Any] = {}
    for task, field in nested:  # of a task, which trains no encoder
        out.setdefault(task, {})[field] = whole[task][field]
    if out:
        return out
    out = {"train_images": whole["train_images"], "epochs": stored.get("longer", LONGER) * whole["epochs"]}
    out |= {name: whole[name] for name in stored["ranges"] if name in whole}
    return out | {"overrides": {name: value for name, value in whole["overrides"].items() if name in drawn}}


def sentence(path: Path | str) -> str:
    """How much a random search ran and what won, in words."""
    stored = read(path)
    runs = stored["runs"]
    minutes = math.fsum(run.get("train_cpu_s", 0.0) + run.get("probe_cpu_s", 0.0) for run in runs) / 60
    cost = f"{len(runs)} runs, {minutes:.0f} core-minutes"
    if stored.get("by_row"):
        return f"{cost}; each row has its own winner."
    won = []
    for profile in ("laptop", "tuned"):
        try:
            won.append(f"{profile}: trial {winner(path, printed=profile == 'laptop')[0]}")
        except ArgumentError:
            won.append(f"{profile}: no trial has finished")
    return f"{cost}; highest mean so far, {', '.join(won)}."
