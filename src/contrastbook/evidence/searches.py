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
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from contrastlab.settings import Settings
from contrastlab.support import checksums
from contrastlab.support.errors import ArgumentError, CorruptFileError, MissingDataError, reject

LONGER = 3
"""Epochs of a run in the profile for each epoch of a run in the search, where the search does not say otherwise."""
_SHARES = ("linear", "action")
"""Metrics that are shares of items, so that their sampling error is that of a binomial."""


class SearchRun(BaseModel):
    """One run of a search: a row trained with the settings of a trial, and scored on held-out items."""

    model_config = ConfigDict(frozen=True)

    trial: str
    method: str
    accuracy: float | None = Field(description="percent, or the unit of the search's metric; None where it diverged")
    settings: dict[str, Any] = Field(description="those that are not at their default")
    train_cpu_s: float = 0.0
    probe_cpu_s: float = 0.0

    @field_validator("settings")
    @classmethod
    def _are_settings(cls, settings: dict[str, Any]) -> dict[str, Any]:
        Settings.model_validate(settings)
        return settings

    @property
    def changed(self) -> set[str]:
        """Names of the settings that the run sets, and of the fields of its recipe."""
        return {*self.settings, *self.settings.get("overrides", {})}

    @property
    def all_settings(self) -> dict[str, Any]:
        """Every setting as a plain value, those at their default included."""
        return Settings.model_validate(self.settings).model_dump(mode="json")


class Search(BaseModel):
    """A stored search. Without ``rows`` its trials have different rows, and none of them can win."""

    model_config = ConfigDict(frozen=True)

    runs: tuple[SearchRun, ...]
    held_out: int = Field(description="items that were scored")
    rows: tuple[str, ...] = ()
    ranges: dict[str, Any] = Field(default={}, description="what every trial draws, and from which values")
    free: dict[str, Any] = Field(default={}, description="what the paper gives, and some trials draw")
    lengths: list[Any] = Field(default=[], description="pairs of training images and epochs that trials draw")
    metric: str = "linear"
    data: str = "cifar10"
    longer: int = LONGER
    by_row: bool = Field(default=False, description="whether each row has a winner of its own")

    @property
    def accuracies(self) -> pd.DataFrame:
        """Accuracy by trial (rows) and method (columns), mean over seeds; NaN where a run is missing or diverged."""
        lines = [(run.trial, run.method, run.accuracy) for run in self.runs]
        frame = pd.DataFrame(lines, columns=["trial", "method", "accuracy"]).astype({"accuracy": float})
        return frame.pivot_table(index="trial", columns="method", values="accuracy", sort=False, dropna=False)


def record(path: Path | str) -> dict[str, Any]:
    """A stored search as plain values, as it was written; errors are those of :func:`read`."""
    stored, _ = _read(Path(path))
    return stored


def read(path: Path | str) -> Search:
    """A stored search.

    Raises:
        MissingDataError: there is no such file.
        CorruptFileError: it is no search, or was altered.
    """
    _, search = _read(Path(path))
    return search


def _read(path: Path) -> tuple[dict[str, Any], Search]:
    """A stored search as plain values, and as a model."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        stored = checksums.verified({**content})  # a list is a TypeError
        return stored, Search.model_validate(stored)
    except FileNotFoundError as error:
        raise MissingDataError(f"{path}: no search of that name is stored") from error
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise CorruptFileError(f"{path} is no stored search: {reason}") from error


def table(path: Path | str) -> pd.DataFrame:
    """By trial: what differs between them (or ``"as printed"``), each row's score, and an accuracy's standard error."""
    search = read(path)
    scores = search.accuracies.round(1)
    scores.columns = [name.partition("/")[2] for name in scores.columns]
    if search.metric in _SHARES:
        scores["± (one run)"] = round(50 / math.sqrt(search.held_out), 1)
    by_trial = {run.trial: _drawn_values(search, run) for run in search.runs}
    drawn = pd.DataFrame(list(by_trial.values()), index=list(by_trial))
    differing = [name for name in drawn if len(set(drawn[name])) > 1]
    return pd.concat([drawn[differing], scores], axis=1)


def _drawn_values(search: Search, run: SearchRun) -> dict[str, Any]:
    """Of one run, the values of all that the search draws."""
    names = [*search.ranges, *search.free]
    if search.lengths:
        names = ["train_images", "epochs", *names]
    settings = run.all_settings
    return {name: _value(settings, name) for name in names}


def _value(settings: dict[str, Any], name: str) -> Any:
    """A setting, one of a task (``masks.lr``), or an override."""
    if name in settings:
        return settings[name]
    task, _, field = name.rpartition(".")
    if task in settings:
        return settings[task][field]
    return settings["overrides"].get(name, "as printed")


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
    search = read(path)
    if not search.rows:
        raise reject("path", str(path), "a random search; the trials of this one have different rows")
    if search.by_row and not row:
        raise reject("row", row, f"one of {', '.join(search.rows)}: each row of this search has its own winner")
    if row and row not in search.rows:
        raise reject("row", row, f"one of {', '.join(search.rows)}")
    compared = [row] if row else list(search.rows)
    run_of_trial = {run.trial: run for run in search.runs if run.method in compared}
    accuracies = search.accuracies.reindex(columns=compared)
    if printed:
        as_printed = [trial for trial, run in run_of_trial.items() if run.changed.isdisjoint(search.free)]
        accuracies = accuracies.loc[as_printed]
    means = accuracies.mean(axis=1, skipna=False).dropna()
    if means.empty:
        raise reject("path", str(path), "a search with a trial that all of its rows have finished")
    best = str(means.idxmax())
    return best, run_of_trial[best].settings


def section(path: Path | str, *, row: str = "", printed: bool = False) -> dict[str, Any]:
    """What the winner changes in a profile, at its length; ``row`` and ``printed``: see :func:`winner`.

    Of a search of a task's settings they are the task's, ``{"masks": {"lr": …}}``, and no encoder is trained.
    """
    search = read(path)
    _, won = winner(path, row=row, printed=printed)
    settings = Settings.model_validate(won).model_dump(mode="json")
    return _section_of_task(search, settings) or _section_of_training(search, settings)


def _section_of_task(search: Search, settings: dict[str, Any]) -> dict[str, Any]:
    """The winner's values of a task's settings that the search draws; empty where it draws none."""
    section: dict[str, Any] = {}
    for name in sorted(search.ranges):
        task, _, field = name.partition(".")
        if field and task in settings:
            section.setdefault(task, {})[field] = settings[task][field]
    return section


def _section_of_training(search: Search, settings: dict[str, Any]) -> dict[str, Any]:
    """The winner's length, settings and overrides that the search draws."""
    section = {"train_images": settings["train_images"], "epochs": search.longer * settings["epochs"]}
    for name in search.ranges:
        if name in settings:
            section[name] = settings[name]
    drawn = {*search.ranges, *search.free}
    section["overrides"] = {name: value for name, value in settings["overrides"].items() if name in drawn}
    return section


def sentence(path: Path | str) -> str:
    """How much a random search ran and what won, in words."""
    search = read(path)
    seconds = math.fsum(run.train_cpu_s + run.probe_cpu_s for run in search.runs)
    minutes = seconds / 60
    cost = f"{len(search.runs)} runs, {minutes:.0f} core-minutes"
    if search.by_row:
        return f"{cost}; each row has its own winner."
    laptop = _winner_in_words(path, printed=True)
    tuned = _winner_in_words(path, printed=False)
    return f"{cost}; highest mean so far, laptop: {laptop}, tuned: {tuned}."


def _winner_in_words(path: Path | str, *, printed: bool) -> str:
    """The trial that won, such as ``trial 7``; see :func:`winner`."""
    try:
        trial, _ = winner(path, printed=printed)
    except ArgumentError:
        return "no trial has finished"
    return f"trial {trial}"
