"""What the papers print: every number as data, and which table is made by which notebook."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import contrastlab.support.lab  # noqa: F401

from pydantic import Field

from contrastlab.settings import FrozenModel
from contrastlab.support import discovery, errors

if TYPE_CHECKING:
    import pandas as pd

PAPERS: Mapping[str, Mapping[str, Any]] = discovery.papers()
"""Short name to title, authors, year, venue and notebooks, as each folder's ``paper.toml`` says."""


def plans() -> tuple[tuple[str, str], ...]:
    """The (paper, table) pairs whose protocol is at hand."""
    return tuple(discovery.tables("toml"))


def tables(paper: str) -> tuple[str, ...]:
    """Names of the tables of ``paper`` that are at hand: ``("1", "2", …, "5a")``."""
    errors.check_name("paper", paper, PAPERS)
    return tuple(table for name, table in discovery.tables("csv") if name == paper)


@cache
def _lines(paper: str, table: str) -> tuple[Mapping[str, Any], ...]:
    """The rows of a table's CSV file, with numbers as numbers."""
    text = discovery.read_text(paper, discovery.tables("csv")[paper, table])
    lines = []
    for row in csv.DictReader(io.StringIO(text, newline="")):
        value = float(row["value"])
        std = float(row["std"] or "nan")
        lines.append({**row, "value": value, "std": std})
    return tuple(lines)


@cache
def cells_of(paper: str, table: str) -> Mapping[tuple[str, str], Mapping[str, Any]]:
    """(row, column) as printed to ``value``, ``std`` and ``note`` of a table; empty for a figure, which prints none."""
    if (paper, table) not in discovery.tables("csv"):
        return {}
    return {(line["row"], line["column"]): line for line in reversed(_lines(paper, table))}


def published(paper: str, table: int | str) -> pd.DataFrame:
    """The numbers of a table, ``1`` or ``"5a"``: paper, table, row, column, value (accuracies: percent), std, note."""
    import pandas as pd

    errors.check_name(f"table of {paper}", str(table), tables(paper))
    return pd.DataFrame(_lines(paper, str(table)))


class Table(FrozenModel):
    """A published table or figure."""

    paper: str
    table: str

    @property
    def name(self) -> str:
        """``ring/table5b``; a figure is called by its kind, ``vince/figure6``."""
        if self.table.startswith("figure"):
            return f"{self.paper}/{self.table}"
        return f"{self.paper}/table{self.table}"


class Entry(Table):
    """A published table or figure, and the notebook that makes it."""

    notebook: str = Field("", description="path from the project's root; empty where there is none yet")


def catalogue() -> tuple[Entry, ...]:
    """Every published table that has been transcribed, and the figures that are made again, paper by paper."""
    notebooks = {}
    for paper, description in PAPERS.items():
        for table, name in description.get("notebooks", {}).items():
            notebooks[paper, table] = f"nbs/{name}.ipynb"
    order = list(PAPERS)

    def place(key: tuple[str, str]) -> tuple[int, bool]:
        paper, table = key
        return order.index(paper), table.startswith("figure")

    entries = []
    tables_and_figures = dict.fromkeys((*discovery.tables("csv"), *plans(), *notebooks))
    for paper, table in sorted(tables_and_figures, key=place):
        notebook = notebooks.get((paper, table), "")
        entries.append(Entry(paper=paper, table=table, notebook=notebook))
    return tuple(entries)


def parse_target(target: str) -> tuple[str, str]:
    """``("ring", "1")`` from ``ring/table1``; an error names the notebook of what has no cells."""
    entries = {entry.name: entry for entry in catalogue()}
    with_cells = {name for name, entry in entries.items() if (entry.paper, entry.table) in plans()}
    entry = entries.get(target)
    if entry is not None and target in with_cells:
        return entry.paper, entry.table
    if entry is not None and entry.notebook:
        problem = f"{target} is made by {entry.notebook} and has no cells to run or show"
        raise errors.ArgumentError(f"{problem}; contrastlab notebook {target} writes the notebook here")
    raise errors.unknown("table", target, with_cells)


def parse_seeds(seeds: int | str | Iterable[int]) -> tuple[int, ...]:
    """Seeds from ``3``, ``"0,1,2"`` or a list, as papermill may pass them."""
    parts: Iterable[Any] = [seeds]
    if isinstance(seeds, str):
        parts = seeds.split(",")
    elif isinstance(seeds, Iterable):
        parts = seeds
    try:
        texts = [str(part).strip() for part in parts]
        numbers = tuple(dict.fromkeys(int(text) for text in texts if text))
    except (TypeError, ValueError):
        numbers = ()
    valid = numbers and min(numbers) >= 0 and max(numbers) < 2**32
    errors.check(valid, "seeds", seeds, "non-negative integers below 2**32: 3, '0,1,2' or [0, 1, 2]")
    return numbers
