"""fmicl Tables 2 and 10: who comes first, by how much, and whether two ways to score agree on the order."""

from __future__ import annotations

import math

import pandas as pd

from contrastlab import papers
from contrastlab.report import Report

__all__ = ["agreement", "contradictions", "leads", "published_agreement"]


def leads() -> pd.DataFrame:
    """The best of each row of Table 2, and its lead over the second in points and in printed sd of the two.

    Equal numbers share the first place; their order is that of the columns.
    """
    rows = {}
    for name, part in papers.published("fmicl", "2").groupby("row", sort=False):
        first, second = part.nlargest(2, "value").to_dict("records")
        lead = first["value"] - second["value"]
        rows[name] = {
            "best": first["column"], "second": second["column"], "lead (points)": lead,
            "lead (sd)": lead / math.hypot(first["std"], second["std"]),
        }  # fmt: skip
    return pd.DataFrame.from_dict(rows, orient="index")


def contradictions() -> pd.DataFrame:
    """Linear accuracies that Table 10 repeats from Table 2 with another value."""
    again = papers.published("fmicl", "10").assign(row=lambda t: t["row"].str.removeprefix("Linear "))
    both = papers.published("fmicl", "2").merge(again, on=["row", "column"], suffixes=(" in table 2", " in table 10"))
    differ = both["value in table 2"] != both["value in table 10"]
    return both.loc[differ, ["row", "column", "value in table 2", "value in table 10"]]


def published_agreement() -> pd.Series[float]:
    """Rank correlation of linear and k-NN accuracy over the columns of Table 10, by data set."""
    wide = papers.published("fmicl", "10").pivot_table(index="column", columns="row", values="value")
    order, names = wide.corr("spearman"), ["CIFAR-10", "STL-10", "TinyImageNet"]
    each = [float(order.loc[f"Linear {name}", f"k-NN {name}"]) for name in names]  # type: ignore[arg-type]
    return pd.Series(each, names, name="rank correlation")


def agreement(one: Report, other: Report) -> tuple[float | None, int]:
    """Rank correlation of the measured rows that two reports share (``None`` for less than 3), and their number."""
    columns = [
        {row.method: row.measured.mean for row in made.rows if row.kind == "method" and row.measured}
        for made in (one, other)
    ]
    pair = pd.DataFrame(dict(enumerate(columns))).dropna()
    return (None if len(pair) < 3 else float(pair.corr("spearman").iloc[0, 1])), len(pair)  # type: ignore[arg-type]
