"""Crosses beside their parents: the grid of choices as a table, runs of one protocol, and who is better than whom."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pandas as pd

from contrastbook.studies import crosses
from contrastbook.studies.crosses import CHOICES, CROSSES, Cross
from contrastlab import report, tasks
from contrastlab.errors import NotApplicableError

__all__ = [
    "chosen", "compare", "family", "grid_frame", "label", "mean", "measured", "objections", "states", "verdicts",
]  # fmt: skip

Word = Literal["above", "level with", "below", "not run"]


def grid_frame() -> pd.DataFrame:
    """The grid: a row for each combination with its choices, ``exists``, ``published`` and the ``reason`` why not."""
    cells = crosses.grid()
    frame = pd.DataFrame([cell.choices for cell in cells], columns=list(CHOICES))
    return frame.assign(
        exists=[cell.recipe is not None for cell in cells], published=[bool(cell.tried) for cell in cells],
        reason=[cell.reason for cell in cells],
    )  # fmt: skip


def objections(grid: pd.DataFrame) -> pd.DataFrame:
    """Why combinations cannot exist: the first objection of each, how many have it, and an example.

    ``grid``: of :func:`grid_frame`.
    """
    groups = grid[~grid["exists"]].groupby("reason")
    example = groups.first()[list(CHOICES)].agg(" × ".join, axis=1)
    frame = pd.DataFrame({"combinations": groups.size(), "for example": example})
    return frame.sort_values("combinations", ascending=False).rename_axis("because")


def states(grid: pd.DataFrame) -> pd.DataFrame:
    """The grid as a picture: 0 cannot exist, 1 exists, 2 is published.

    ``grid``: of :func:`grid_frame`. Returns views, keys and negatives down; positives and objectives across.
    """
    frame = pd.DataFrame(
        {
            "row": grid[["views", "keys", "negatives"]].agg(", ".join, axis=1),
            "column": grid[["positives", "objective"]].agg(", ".join, axis=1),
            "state": grid["exists"].astype(int) + grid["published"].astype(int),
        }
    )
    return frame.pivot_table(index="row", columns="column", values="state", sort=False)


def chosen(rows: str) -> dict[str, Cross]:
    """Full name to cross, from ``"all"`` or ``"jcl_ring,cmc_jcl"``."""
    names = list(CROSSES) if rows == "all" else [f"crosses/{name.strip()}" for name in rows.split(",")]
    return {crosses.recipe_of(name).name: CROSSES[crosses.recipe_of(name).name] for name in names}


def label(name: str) -> str:
    """The printed name of a cross or a published method."""
    return crosses.recipe_of(name).label


def measured(
    wanted: Mapping[str, Cross], dataset: str, profile: str, seeds: Sequence[int], **where: Any
) -> tuple[pd.DataFrame, dict[str, str]]:
    """Every cross, its parents and their random encoders, read or run.

    ``wanted``: of :func:`chosen`. ``dataset``: name in :func:`contrastlab.data.names`. ``profile``: ``smoke``,
    ``laptop`` or ``paper``. ``where``: ``out_dir``, ``read_also``, ``data_root``, ``log`` of
    :func:`contrastbook.studies.crosses.study`. Returns rows of :func:`contrastbook.studies.crosses.run` by name and
    seed, and what cannot exist on these data, with the reason.
    """
    names = dict.fromkeys(n for c, cross in wanted.items() for n in map(crosses.floor, (c, *cross.parents)))
    names |= dict.fromkeys(n for c, cross in wanted.items() for n in (*cross.parents, c))
    rows, missing = [], {}
    for seed in seeds:
        for name in names:
            try:
                rows += crosses.study(name, dataset, profile, seed, **where).rows
            except NotApplicableError as reason:
                missing[name] = str(reason)
    return pd.DataFrame(rows).set_index(["name", "seed"]).sort_index(), missing


def mean(runs: pd.DataFrame, name: str, metric: str) -> float:
    """Mean over seeds; NaN where nothing was run."""
    values = list(_by_seed(runs, name, metric).values())
    return math.fsum(values) / len(values) if values else float("nan")


def _by_seed(runs: pd.DataFrame, name: str, metric: str) -> dict[int, float]:
    rows = runs.reset_index()[["name", "seed", metric]].to_numpy().tolist()
    return {int(seed): float(value) for own, seed, value in rows if own == name}


def family(runs: pd.DataFrame, wanted: Mapping[str, Cross]) -> pd.DataFrame:
    """Each cross with its parents and its random encoder: accuracies in percent, and points above random.

    ``runs``: of :func:`measured`. ``wanted``: of :func:`chosen`.
    """
    rows = []
    for c, cross in wanted.items():
        for name, role in ((c, "child"), *((p, "parent") for p in cross.parents), (crosses.floor(c), "random")):
            numbers = {metric: mean(runs, name, metric) for metric in ("linear", "knn200")}
            gains = {f"{m} − random": value - mean(runs, crosses.floor(name), m) for m, value in numbers.items()}
            rows.append({"cross": label(c), "role": role, "method": label(name), **numbers, **gains})
    return pd.DataFrame(rows).set_index(["cross", "role", "method"])


def compare(runs: pd.DataFrame, one: str, other: str, metric: str = "linear") -> tuple[Word, float]:
    """Whether a method is above another by more than chance, and the mean paired difference in points.

    By more than the 95 % interval over common seeds; with one seed, than two test samples of this size may differ by.

    ``runs``: of :func:`measured`. ``metric``: ``linear`` or ``knn200``.
    """
    mine, others = (_by_seed(runs, name, metric) for name in (one, other))
    gaps = [mine[seed] - others[seed] for seed in mine if seed in others]
    if not gaps:
        return "not run", float("nan")
    gap, half = report.interval(gaps)
    if half is None:
        images = int(runs["test_images"].iloc[0])
        widths = [tasks.metric(metric).half_width(mean(runs, name, metric), images) or 0.0 for name in (one, other)]
        half = math.hypot(*widths)
    return "above" if gap > half else "below" if gap < -half else "level with", gap


def verdicts(runs: pd.DataFrame, wanted: Mapping[str, Cross]) -> list[str]:
    """A sentence for each cross, then who is above both parents and who above the random encoder.

    ``runs``: of :func:`measured`. ``wanted``: of :func:`chosen`.
    """
    out = []
    for c, cross in wanted.items():
        against = {label(p): compare(runs, c, p) for p in cross.parents}
        against["random"] = compare(runs, c, crosses.floor(c))
        said = (word if word == "not run" else f"{word} {who} ({gap:+.1f})" for who, (word, gap) in against.items())
        out.append(f"{label(c)}: " + ", ".join(said) + ".")
    better = [label(c) for c, cross in wanted.items() if all(compare(runs, c, p)[0] == "above" for p in cross.parents)]
    learnt = [label(c) for c in wanted if compare(runs, c, crosses.floor(c))[0] == "above"]
    out.append(f"Above both parents: {', '.join(better) or 'none'}.")
    out.append(f"Above the random encoder, so that a comparison says anything: {', '.join(learnt) or 'none'}.")
    return out
