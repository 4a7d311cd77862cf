"""ring Table 5a: how much longer an epoch is with a ring, from the times of Table 1's runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
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
    times = papers.published("ring", "5a").pivot_table(index="row", columns="column", values="value", sort=False)
    rings = times.loc[list(PAIRS)]
    bases = times.loc[list(PAIRS.values())].set_axis(list(PAIRS))
    compared = rings / bases if kind == "ratio" else rings - bases
    return compared.T.rename_axis(columns=None)


def printed_beside() -> pd.DataFrame:
    """The ratios and gains that Tables 5a and 5b print beside their numbers, as transcribed."""
    noted = pd.concat([papers.published("ring", number) for number in ("5a", "5b")])
    return noted.loc[noted["note"].str.contains("printed"), ["table", "row", "column", "note"]]


def pools(plan: TablePlan) -> pd.DataFrame:
    """Candidates of a batch by profile of ring Table 5d, those in a hole of 1 %, and those kept from there to 10 %."""
    rows = {}
    for profile in plan.profiles:
        batch = plan.settings("cifar10", "simclring", profile).batch_size
        first, last = negatives.edges(2 * batch - 2, 1, 10, "keys")
        rows[profile] = {"batch": batch, "candidates": 2 * batch - 2, "hole": first, "kept": last - first}
    return pd.DataFrame(rows).T.rename_axis("profile")


def epoch_cost(plan: TablePlan, results: Iterable[Result], dataset: str, profile: str) -> pd.DataFrame:
    """Time of a training epoch, and its ratio to that of the method built on, published and measured, by method.

    Training steps alone are timed. A busy machine only slows epochs, so the ratio of the two fastest is beside the mean
    ratio over common seeds, of one machine, precision and settings. NaN: no result.
    """
    plan.settings(dataset, next(iter(papers.REFERENCES)), profile)  # checks both names
    timed_results = [r for r in results if r.dataset == dataset and r.profile == profile and r.curve]
    rows = [name for name in plan.rows if plan.label(name) in {*PAIRS, *PAIRS.values()}]
    runs = {name: _timed(_of_table(plan, timed_results, dataset, name, profile)) for name in rows}
    ratios = published()
    records = []
    for name in rows:
        base = plan.pairs.get(name, "")
        record: dict[str, object] = {"method": plan.label(name), **_printed(ratios, plan.label(name))}
        record |= _times(runs[name], f"({profile})")
        record |= _ratios(runs[name], runs.get(base, []), f"({profile})")
        record["machine"] = machine(runs[name][0]) if runs[name] else ""
        records.append(record)
    frame = pd.DataFrame.from_records(records, index="method")
    return frame.astype({name: "float64" for name in frame if not str(name).startswith(("epochs", "seeds", "machine"))})


def _printed(ratios: pd.DataFrame, label: str) -> dict[str, object]:
    """The published ratios of a row, by data set; None where it has none."""
    columns: dict[str, object] = {}
    for column in ratios.index:
        dataset = str(column).split()[0]
        columns[f"published ratio, {dataset}"] = ratios.loc[column, label] if label in ratios else None
    return columns


def _times(runs: Sequence[Result], here: str) -> dict[str, object]:
    """How long the epochs of some runs took."""
    seconds = [each for run in runs for each in _epochs(run)]
    return {
        f"seconds an epoch {here}": float(np.mean(seconds)) if seconds else None,
        f"sd over epochs {here}": float(np.std(seconds, ddof=1)) if len(seconds) > 1 else None,
        f"fastest epoch {here}": min(seconds, default=None),
        f"epochs {here}": len(seconds),
        f"seeds {here}": len(runs),
    }


def _ratios(runs: Sequence[Result], bases: Sequence[Result], here: str) -> dict[str, object]:
    """How long epochs took in epochs of the base: the mean over pairs of runs that are alike, and of the fastest."""
    ratios = []
    fastest, fastest_of_base = math.inf, math.inf
    for run in runs:
        for base in bases:
            if not _alike(run, base):
                continue
            ratios.append(float(np.mean(_epochs(run)) / np.mean(_epochs(base))))
            fastest = min(fastest, *_epochs(run))
            fastest_of_base = min(fastest_of_base, *_epochs(base))
    mean, half_width, of_fastest = None, None, None
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
    of_method = [r for r in results if r.method == method]
    today = {plan.setup_hash(column, method, profile) for column in plan.select(dataset).values()}
    of_today = [r for r in of_method if r.setup_hash in today]
    return of_today or [r for r in of_method if r.table == plan.name]


def _timed(results: Sequence[Result]) -> list[Result]:
    """The runs that are like the newest one, one for each seed.

    Of several tasks on one run each carries the run's curve: the last of a seed stands for all.
    """
    in_order = sorted(results, key=lambda r: r.provenance.finished)
    by_seed = {r.seed: r for r in in_order if _run(r) == _run(in_order[-1])}
    return list(by_seed.values())


def _run(result: Result) -> tuple[object, ...]:
    return result.recipe, result.settings, result.provenance.data_fingerprint, result.precision, machine(result)


def _alike(one: Result, other: Result) -> bool:
    return (one.seed, *_run(one)[1:]) == (other.seed, *_run(other)[1:])


def _epochs(result: Result) -> list[float]:
    """Seconds of each epoch of a run; its curve counts them from the start."""
    ends = [0.0, *(row["seconds"] for row in result.curve)]
    return [float(seconds) for seconds in np.diff(ends)]


def sentences(cost: pd.DataFrame, name: str, profile: str) -> list[str]:
    """What :func:`epoch_cost` found, a sentence for each method with a ring."""
    ratios = published()
    lines = []
    for ring in PAIRS:
        value = float(cost[f"ratio of fastest epochs ({profile})"].to_dict()[ring])
        verdict = f"costs {value:.2f} times its base, fastest epoch by fastest"
        if math.isnan(value):
            verdict = "is not measured"
        printed = ratios[ring].to_dict()["CIFAR10 epoch seconds"]
        lines.append(f"{name}, profile {profile}: {ring} {verdict} (published means, CIFAR-10: {printed:.2f}).")
    return lines
