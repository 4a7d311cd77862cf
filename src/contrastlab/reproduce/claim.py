"""What a table claims, as a notebook shows it: a sentence and the printed numbers."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from contrastlab import escape, papers
from contrastlab.papers import TablePlan

__all__ = ["Claim", "Claims"]


@dataclass(frozen=True)
class Claim:
    """What a table says: a sentence and the printed numbers; shows itself in a notebook."""

    plan: TablePlan

    @property
    def printed(self) -> pd.DataFrame:
        """The printed numbers, as the paper lays them out."""
        numbers = papers.published(self.plan.paper, self.plan.table)
        return numbers.pivot_table(index="row", columns="column", values="value", sort=False)

    def _repr_html_(self) -> str:
        body = self.printed.to_html(border=0, na_rep="") if self._has_numbers else ""
        return f"<p>{escape.html(self.plan.claim)}</p>{body}"

    @property
    def _has_numbers(self) -> bool:
        return self.plan.table in papers.tables(self.plan.paper)

    def __repr__(self) -> str:
        return f"{self.plan.claim}\n\n{self.printed.to_string(na_rep='')}" if self._has_numbers else self.plan.claim


@dataclass(frozen=True)
class Claims:
    """What several tables say, each under its number."""

    of: tuple[Claim, ...]

    def _repr_html_(self) -> str:
        parts = (f"<h4>{escape.html(each.plan.heading)}</h4>{each._repr_html_()}" for each in self.of)
        return "".join(parts)

    def __repr__(self) -> str:
        return "\n\n".join(f"{each.plan.heading}\n{each!r}" for each in self.of)
