"""Learning curves of a table: what its runs say of themselves after every epoch, mean and range over the seeds.

Accuracy of the nearest neighbour is taken where both rows of a pair have it, else the loss, whose level says nothing of
the encoder: harder negatives raise it. Losses of two kinds of objective are not set side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from contrastlab import methods as recipes
from contrastlab.papers import Column, TablePlan
from contrastlab.tables.results import Result
from contrastlab.tables.rows import scores

MEASURES = {"nn1": "1-NN accuracy (%)", "loss": "loss (nats)"}
"""What a curve may show, most telling first."""


def frame(plan: TablePlan, column: Column, results: Sequence[Result], profile: str) -> pd.DataFrame:
    """Method, label, seed, epoch (from 1), measure (of :data:`MEASURES`) and value of a table's runs in a column."""
    rows: list[tuple[object, ...]] = []
    for method in plan.rows:
        row = scores(plan, column, results, method, profile)
        if row is None:
            continue
        for seed, curve in row.curves.items():
            for point in curve:
                for measure in MEASURES:
                    if measure in point:
                        epoch = int(point["epoch"])
                        rows.append((method, plan.label(method), seed, epoch, measure, point[measure]))
    return pd.DataFrame(rows, columns=["method", "label", "seed", "epoch", "measure", "value"])


def measures(plan: TablePlan, lines: pd.DataFrame) -> dict[tuple[str, str], str]:
    """The measure in which each pair of the table can be compared: pairs with two seeds a row and one in common.

    ``lines``: of :func:`frame`.
    """
    by_pair: dict[tuple[str, str], str] = {}
    for pair in plan.pairs.items():
        seeds = [lines.loc[lines["method"] == method, "seed"].nunique() for method in pair]
        measure = _measure_in_common(lines, pair)
        if min(seeds) >= 2 and measure:
            by_pair[pair] = measure
    return by_pair


def _measure_in_common(lines: pd.DataFrame, pair: tuple[str, str]) -> str:
    """The most telling measure that both rows have; the loss only of one kind of objective. Empty: none."""
    objectives = {type(recipes.get(method).objective) for method in pair}
    of_pair = lines[lines["method"].isin(pair)]
    for measure in MEASURES:
        methods_with_it = of_pair.loc[of_pair["measure"] == measure, "method"].nunique()
        comparable = measure != "loss" or len(objectives) == 1
        if methods_with_it == len(pair) and comparable:
            return measure
    return ""
