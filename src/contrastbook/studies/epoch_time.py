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
    rings, bases = times.loc[list(PAIRS)], times.loc[list(PAIRS.values())].set_axis(list(PAIRS))
    return (rings / bases if kind == "ratio" else rings - bases).T.rename_axis(columns=None)


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
    chosen = [r for r in results if r.dataset == dataset and r.profile == profile and r.curve]
    rows = [name for name in plan.rows if plan.label(name) in {*PAIRS, *PAIRS.values()}]
    timed = {name: _timed(_of_table(plan, chosen, dataset, name, profile)) for name in rows}
    ratios = published()
    records = [_record(plan, name, timed, ratios, f"({profile})") for name in timed]
    frame = pd.DataFrame.from_records(records, index="method")
    return frame.astype({name: "float64" for name in frame if not str(name).startswith(("epochs", "seeds", "machine"))})


def _record(
    plan: TablePlan, name: str, timed: Mapping[str, Sequence[Result]], ratios: pd.DataFrame, here: str
) -> dict[str, object]:
    runs, label = timed[name], plan.label(name)
    every = [s for run in runs for s in _epochs(run)]
    pairs = [(_epochs(a), _epochs(b)) for a in runs for b in timed.get(plan.pairs.get(name, ""), []) if _alike(a, b)]
    mean, half = interval([float(np.mean(a) / np.mean(b)) for a, b in pairs]) if pairs else (None, None)
    fastest = [min(s for pair in pairs for s in pair[side]) for side in (0, 1)] if pairs else []
    return {
        "method": label,
        **{
            f"published ratio, {str(column).split()[0]}": ratios.loc[column, label] if label in ratios else None
            for column in ratios.index
        },
        f"seconds an epoch {here}": float(np.mean(every)) if every else None,
        f"sd over epochs {here}": float(np.std(every, ddof=1)) if len(every) > 1 else None,
        f"fastest epoch {here}": min(every, default=None),
        f"epochs {here}": len(every),
        f"seeds {here}": len(runs),
        f"ratio {here}": mean,
        f"95 % half-width {here}": half,
        f"ratio of fastest epochs {here}": fastest[0] / fastest[1] if fastest else None,
        "machine": machine(runs[0]) if runs else "",
    }


def _of_table(plan: TablePlan, results: Sequence[Result], dataset: str, method: str, profile: str) -> list[Result]:
    # a ring and its base are timed on the same work only if both were run as this table says, not as another one does
    mine = [r for r in results if r.method == method]
    today = {plan.setup(column, method, profile) for column in plan.select(dataset).values()}
    return [r for r in mine if r.setup in today] or [r for r in mine if r.table == plan.name]


def _timed(results: Sequence[Result]) -> list[Result]:
    mine = sorted(results, key=lambda r: r.provenance.finished)
    # of several tasks on one run each carries the run's curve: the last of a seed stands for all
    return list({r.seed: r for r in mine if _run(r) == _run(mine[-1])}.values())


def _run(result: Result) -> tuple[object, ...]:
    return result.recipe, result.settings, result.provenance.data_fingerprint, result.precision, machine(result)


def _alike(one: Result, other: Result) -> bool:
    return (one.seed, *_run(one)[1:]) == (other.seed, *_run(other)[1:])


def _epochs(result: Result) -> list[float]:
    # the curve counts seconds from the start of the run
    return [float(s) for s in np.diff([0.0, *(row["seconds"] for row in result.curve)])]


def sentences(cost: pd.DataFrame, name: str, profile: str) -> list[str]:
    """What :func:`epoch_cost` found, a sentence for each method with a ring."""
    ratios, out = published(), []
    for ring in PAIRS:
        value = float(cost[f"ratio of fastest epochs ({profile})"].to_dict()[ring])
        text = "is not measured" if math.isnan(value) else f"costs {value:.2f} times its base, fastest epoch by fastest"
        means = f"published means, CIFAR-10: {ratios[ring].to_dict()['CIFAR10 epoch seconds']:.2f}"
        out.append(f"{name}, profile {profile}: {ring} {text} ({means}).")
    return out
