"""ring Table 5a: how much longer an epoch is with a ring, from the times of Table 1's runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal

import numpy as np
import pandas as pd

from contrastlab import negatives, papers
from contrastlab.papers import TablePlan
from contrastlab.support.errors import reject
from contrastlab.tables.report import interval, machine
from contrastlab.tables.results import Result

PAIRS: Mapping[str, str] = {"IRing": "IR", "MoCoRing": "MoCo"}
"""Rows of Table 5a with a ring, and the row each is built on."""


def published(kind: Literal["ratio", "extra"] = "ratio") -> pd.DataFrame:
    """The published time of a ring over that of its base (``ratio``), or their difference (``extra``), by column."""
    if kind not in ("ratio", "extra"):
        raise reject("kind", kind, "ratio or extra")
    table = papers.published("ring", "5a")
    times = table.pivot_table(index="row", columns="column", values="value", sort=False)
    rings = times.loc[list(PAIRS)]
    bases = times.loc[list(PAIRS.values())]
    bases = bases.set_axis(list(PAIRS))  # each named as the ring that it is compared with
    compared = rings / bases if kind == "ratio" else rings - bases
    by_column = compared.T
    return by_column.rename_axis(columns=None)


def printed_beside() -> pd.DataFrame:
    """The ratios and gains that Tables 5a and 5b print beside their numbers, as transcribed."""
    rows = pd.concat([papers.published("ring", number) for number in ("5a", "5b")])
    has_printed = rows["note"].str.contains("printed")
    return rows.loc[has_printed, ["table", "row", "column", "note"]]


def pools(plan: TablePlan) -> pd.DataFrame:
    """Candidates of a batch by profile of ring Table 5d, those in a hole of 1 %, and those kept from there to 10 %."""
    rows: dict[str, dict[str, int]] = {}
    for profile in plan.profiles:
        batch = plan.settings("cifar10", "simclring", profile).batch_size
        candidates = 2 * batch - 2  # both views of all pictures but the query's own
        first, last = negatives.edges(candidates, 1, 10, "keys")
        rows[profile] = {"batch": batch, "candidates": candidates, "hole": first, "kept": last - first}
    by_profile = pd.DataFrame(rows).T
    return by_profile.rename_axis("profile")


def epoch_cost(plan: TablePlan, results: Iterable[Result], dataset: str, profile: str) -> pd.DataFrame:
    """Time of a training epoch, and its ratio to that of the method built on, published and measured, by method.

    Training steps alone are timed. A busy machine only slows epochs, so the ratio of the two fastest is beside the mean
    ratio over common seeds, of one machine, precision and settings. NaN: no result.
    """
    any_row = next(iter(papers.REFERENCES))
    plan.settings(dataset, any_row, profile)  # refuses an unknown data set or profile
    timed_results: list[Result] = []
    for result in results:
        if result.dataset == dataset and result.profile == profile and result.curve:
            timed_results.append(result)
    labels = {*PAIRS, *PAIRS.values()}
    rows = [name for name in plan.rows if plan.label(name) in labels]
    runs: dict[str, list[Result]] = {}
    for name in rows:
        of_row = _of_table(plan, timed_results, dataset, name, profile)
        runs[name] = _timed(of_row)
    ratios = published()
    here = f"({profile})"
    records: list[dict[str, object]] = []
    for name in rows:
        runs_of_base = runs.get(plan.pairs.get(name, ""), [])
        record: dict[str, object] = {"method": plan.label(name)}
        record |= _printed(ratios, plan.label(name))
        record |= _times(runs[name], here)
        record |= _ratios(runs[name], runs_of_base, here)
        record["machine"] = machine(runs[name][0]) if runs[name] else ""
        records.append(record)
    frame = pd.DataFrame.from_records(records, index="method")
    counts_and_names = ("epochs", "seeds", "machine")
    types = {column: "float64" for column in frame if not str(column).startswith(counts_and_names)}
    return frame.astype(types)


def _printed(ratios: pd.DataFrame, label: str) -> dict[str, object]:
    """The published ratios of a row, by data set; None where it has none."""
    columns: dict[str, object] = {}
    for column in ratios.index:
        dataset = str(column).split()[0]
        columns[f"published ratio, {dataset}"] = ratios.loc[column, label] if label in ratios else None
    return columns


def _times(runs: Sequence[Result], here: str) -> dict[str, object]:
    """How long the epochs of some runs took."""
    seconds: list[float] = []
    for run in runs:
        seconds += _epochs(run)
    mean = float(np.mean(seconds)) if seconds else None
    deviation = float(np.std(seconds, ddof=1)) if len(seconds) > 1 else None
    return {
        f"seconds an epoch {here}": mean,
        f"sd over epochs {here}": deviation,
        f"fastest epoch {here}": min(seconds, default=None),
        f"epochs {here}": len(seconds),
        f"seeds {here}": len(runs),
    }


def _ratios(runs: Sequence[Result], bases: Sequence[Result], here: str) -> dict[str, object]:
    """How long epochs took in epochs of the base: the mean over pairs of runs that are alike, and of the fastest."""
    ratios: list[float] = []
    fastest = math.inf
    fastest_of_base = math.inf
    for run in runs:
        for base in bases:
            if not _alike(run, base):
                continue
            seconds = _epochs(run)
            seconds_of_base = _epochs(base)
            ratios.append(float(np.mean(seconds) / np.mean(seconds_of_base)))
            fastest = min(fastest, *seconds)
            fastest_of_base = min(fastest_of_base, *seconds_of_base)
    mean = None
    half_width = None
    of_fastest = None
    if ratios:
        mean, half_width = interval(ratios)
        of_fastest = fastest / fastest_of_base
    return {
        f"ratio {here}": mean,
        f"95 % half-width {here}": half_width,
        f"ratio of fastest epochs {here}": of_fastest,
    }


def _of_table(plan: TablePlan, results: Sequence[Result], dataset: str, method: str, profile: str) -> list[Result]:
    """The results of a method under a table's settings of today, else those that were made for the table.

    A ring and its base are timed on the same work only if both were run as this table says, not as another one does.
    """
    of_method = [result for result in results if result.method == method]
    columns = plan.select(dataset).values()
    hashes_of_today = {plan.setup_hash(column, method, profile) for column in columns}
    of_today = [result for result in of_method if result.setup_hash in hashes_of_today]
    if of_today:
        return of_today
    return [result for result in of_method if result.table == plan.name]


def _timed(results: Sequence[Result]) -> list[Result]:
    """The runs that are like the newest one, one for each seed.

    Of several tasks on one run each carries the run's curve: the last of a seed stands for all.
    """
    in_order = sorted(results, key=_finished)
    by_seed: dict[int, Result] = {}
    for result in in_order:
        if _setup(result) == _setup(in_order[-1]):
            by_seed[result.seed] = result
    return list(by_seed.values())


def _finished(result: Result) -> datetime:
    """When a run was finished."""
    return result.provenance.finished


def _setup(result: Result) -> tuple[object, ...]:
    """What runs share that differ in their seed alone."""
    return result.recipe, *_setup_without_recipe(result)


def _setup_without_recipe(result: Result) -> tuple[object, ...]:
    """Settings, data, precision and machine of a run."""
    return result.settings, result.provenance.data_fingerprint, result.precision, machine(result)


def _alike(one: Result, other: Result) -> bool:
    """Whether two runs share seed, settings, data, precision and machine; their recipes may differ."""
    return one.seed == other.seed and _setup_without_recipe(one) == _setup_without_recipe(other)


def _epochs(result: Result) -> list[float]:
    """Seconds of each epoch of a run; its curve counts them from the start."""
    ends = [0.0, *(row["seconds"] for row in result.curve)]
    return [float(seconds) for seconds in np.diff(ends)]


def sentences(cost: pd.DataFrame, name: str, profile: str) -> list[str]:
    """What :func:`epoch_cost` found, a sentence for each method with a ring."""
    published_ratios = published()
    measured_ratios = cost[f"ratio of fastest epochs ({profile})"].to_dict()
    lines: list[str] = []
    for ring in PAIRS:
        measured = float(measured_ratios[ring])
        verdict = f"costs {measured:.2f} times its base, fastest epoch by fastest"
        if math.isnan(measured):
            verdict = "is not measured"
        printed = published_ratios[ring].to_dict()["CIFAR10 epoch seconds"]
        lines.append(f"{name}, profile {profile}: {ring} {verdict} (published means, CIFAR-10: {printed:.2f}).")
    return lines
