"""Tables whose columns turn one knob (vince Figures 4, 7 and 10): accuracy and bound of every run, by column."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import pandas as pd

from contrastlab.papers import TablePlan
from contrastlab.tables import report
from contrastlab.tables.results import Result


def value(column: str) -> float:
    """The number at the end of a column's name: 0.25 for ``alpha0.25``; NaN where there is none."""
    match = re.search(r"[0-9.]+$", column)
    return float(match[0]) if match else float("nan")


def frame(
    plan: TablePlan, results: Sequence[Result], dataset: str, profile: str, columns: str | Iterable[str] = "all"
) -> pd.DataFrame:
    """Accuracy in percent, and bound on the information after the last epoch in nats, of each run and the untrained."""
    lines = []
    for name, column in plan.select(dataset, columns).items():
        for method in (*plan.rows, plan.floor):
            row = report.scores(plan, column, results, method, profile)
            if row is None:
                continue
            for seed, accuracy in row.by_seed.items():
                bound = row.curves.get(seed, [{}])[-1].get("mi_bound", float("nan"))
                lines.append((name, method, plan.label(method), seed, accuracy, bound))
    return pd.DataFrame(lines, columns=["column", "method", "label", "seed", "accuracy", "bound"])
