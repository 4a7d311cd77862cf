"""How a sentence of a paper is counted from its own tables: the registry of all counts, and what they share."""

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import pandas as pd

from contrastlab import papers

Numbers = dict[str, float | int | str]
Table = Callable[[int | str], pd.DataFrame]


class Count(NamedTuple):
    """What a paper's tables say of one of its sentences."""

    as_printed: bool
    """The sentence is true as it is printed."""
    as_corrected: bool
    """What the ledger says instead is true. True where the sentence holds."""
    numbers: Numbers
    """What the ledger's entry shows."""


COUNTS: dict[str, Callable[[], Count]] = {}
"""Names of statements, such as ``vince/up-to-15``, with the function that counts."""


def sentences_of(paper: str) -> Callable[[Callable[[], Count]], Callable[[], Count]]:
    """A decorator: the function ``up_to_15`` counts for the statement ``up-to-15`` of this paper."""

    def register(count: Callable[[], Count]) -> Callable[[], Count]:
        name = f"{paper}/{count.__name__.replace('_', '-')}"
        assert name not in COUNTS
        COUNTS[name] = count
        return count

    return register


def tables_of(paper: str, values: str = "value") -> Table:
    """The paper's tables by name, rows and columns in its order; ``values``: ``value`` or ``std``."""

    @cache
    def table(name: int | str) -> pd.DataFrame:
        frame = papers.published(paper, name)
        wide = frame.pivot_table(index="row", columns="column", values=values)
        return wide.reindex(index=frame["row"].unique(), columns=frame["column"].unique())

    return table


def difference(first: float, second: float) -> float:
    """First minus second, rounded: both have few decimals, and so has their difference."""
    return round(first - second, 6)


def gains(table: pd.DataFrame, pairs: str) -> pd.Series:
    """``"IRing-IR"``: first row minus second, for every column that has both; labelled row and column.

    An underscore stands for a space. The second row is named, too, where the first one has several.
    """
    differences = {}
    for pair in pairs.split():
        ours, base = (name.replace("_", " ") for name in pair.split("-"))
        several = pairs.count(f"{ours}-") > 1
        for column, value in (table.loc[ours] - table.loc[base]).dropna().items():
            label = f"{ours} on {column}"
            if several:
                label += f" over {base}"
            differences[label] = round(value, 6)
    return pd.Series(differences)


def words(values: pd.Series, digits: int = 1) -> str:
    """Names with signed values."""
    return ", ".join(f"{name} {value:+.{digits}f}" for name, value in values.items())


def by_method(gain: pd.Series) -> str:
    """Differences named by the first row alone, without what follows a space or a circumflex."""
    return words(gain.rename(lambda label: label.split()[0].split("^")[0]))


def by_column(gain: pd.Series) -> str:
    """Differences named by the column alone."""
    return words(gain.rename(lambda label: label.split(" on ")[1]))


STATISTICS: dict[str, Callable[[pd.Series], float | int | str]] = {
    "all": len,
    "better": lambda gain: int((gain > 0).sum()),
    "least": pd.Series.min,
    "most": pd.Series.max,
    "least_at": pd.Series.idxmin,
    "most_at": pd.Series.idxmax,
}


def statistics(gain: pd.Series, names: str) -> Numbers:
    """Some of ``STATISTICS`` by name."""
    return {name: STATISTICS[name](gain) for name in names.split()}


def above(gain: pd.Series) -> bool:
    """Whether all differences are positive."""
    return bool((gain > 0).all())


def clear(values: pd.Series, deviations: pd.Series, ours: str, *bases: str) -> bool:
    """Whether the first is above all others by no less than the deviations of both, as claims have it."""
    return all(values[ours] - values[base] >= math.hypot(deviations[ours], deviations[base]) for base in bases)
