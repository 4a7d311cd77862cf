"""What the papers print: every number, as data."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

import pandas as pd
from pydantic import BaseModel, ConfigDict

from contrastlab import errors

HERE = files("contrastlab.papers")


class FrozenModel(BaseModel):
    """Data that does not change and has no field unasked for."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Paper(FrozenModel):
    """One of the five papers, as far as the texts at hand tell."""

    title: str
    authors: tuple[str, ...]
    year: int | None = None
    venue: str = ""

    def __str__(self) -> str:
        origin = ", ".join(str(part) for part in (self.venue, self.year) if part)
        return f"{', '.join(self.authors)}. {self.title}{f'. {origin}' if origin else ''}"


def _papers() -> Mapping[str, Paper]:
    raw = tomllib.loads((HERE / "papers.toml").read_text(encoding="utf-8"))
    return MappingProxyType({name: Paper.model_validate(entry) for name, entry in raw.items()})


PAPERS: Mapping[str, Paper] = _papers()
"""Short name to title, authors, year and venue."""


def stems(folder: str, suffix: str) -> dict[tuple[str, str], str]:
    """(paper, table) to file name, in the order paper, tables before figures, number, letter."""
    found = []
    for entry in (HERE / folder).iterdir():
        match = re.fullmatch(rf"([a-z]+)_(table|figure)(\d+)([a-z]?)\.{suffix}", entry.name)
        if match:
            found.append((match[1], match[2] == "figure", int(match[3]), match[4], entry.name))
    return {
        (paper, f"{'figure' if figure else ''}{number}{letter}"): name
        for paper, figure, number, letter, name in sorted(found)
    }


def tables(paper: str) -> tuple[str, ...]:
    """Names of the tables of ``paper`` that are at hand: ``("1", "2", …, "5a")``.

    Raises:
        UnknownNameError: no such paper.
    """
    if paper not in PAPERS:
        raise errors.unknown("paper", paper, PAPERS)
    return tuple(table for name, table in stems("tables", "csv") if name == paper)


@cache
def numbers_of(paper: str, table: str) -> pd.DataFrame:
    """The one frame of a table, not to be changed; see :func:`published`."""
    name = stems("tables", "csv")[paper, table]
    with (HERE / "tables" / name).open(encoding="utf-8") as file:
        frame = pd.read_csv(file, dtype=str, keep_default_na=False)
    frame["value"] = frame["value"].map(float)
    frame["std"] = frame["std"].map(lambda text: float(text) if text else float("nan"))
    return frame


@cache
def cells_of(paper: str, table: str) -> Mapping[tuple[str, str], Mapping[str, Any]]:
    """(row, column) as printed to ``value``, ``std`` and ``note`` of a table; empty for a figure, which prints none."""
    if (paper, table) not in stems("tables", "csv"):
        return MappingProxyType({})
    cells = numbers_of(paper, table).to_dict("records")
    return MappingProxyType({(cell["row"], cell["column"]): cell for cell in reversed(cells)})


def published(paper: str, table: int | str) -> pd.DataFrame:
    """The numbers a paper prints in one table.

    Args:
        paper: short name in :data:`PAPERS`.
        table: ``1`` or ``"5a"``.

    Returns:
        One row per printed number: ``paper, table, row, column, value, std, note``. ``value`` is in the unit of the
        column (accuracies: percent); ``std`` is NaN where none is printed; a printed sign (``+2.7``) is read as one.

    Raises:
        UnknownNameError: no such paper or table.
    """
    known = tables(paper)
    if str(table) not in known:
        raise errors.unknown(f"table of {paper}", str(table), known)
    return numbers_of(paper, str(table)).copy()
