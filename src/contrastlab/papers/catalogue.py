"""Every published table and figure, and the notebook that makes it."""

from __future__ import annotations

import tomllib

from pydantic import Field

from contrastlab.papers.plans import plans
from contrastlab.papers.published import HERE, PAPERS, FrozenModel, stems
from contrastlab.results import slug


class Entry(FrozenModel):
    """A published table or figure, and the notebook that makes it."""

    paper: str
    table: str
    notebook: str = Field("", description="path from the project's root; empty where there is none yet")

    @property
    def name(self) -> str:
        """``ring/table1``."""
        return f"{self.paper}/{slug(self.table)}"


def catalogue() -> tuple[Entry, ...]:
    """Every published table that has been transcribed, and the figures that are made again, paper by paper."""
    raw = tomllib.loads((HERE / "notebooks.toml").read_text(encoding="utf-8"))
    notebooks = {(paper, table): name for paper, entries in raw.items() for table, name in entries.items()}
    known = {**dict.fromkeys(stems("tables", "csv")), **dict.fromkeys(plans()), **dict.fromkeys(notebooks)}
    order = {name: k for k, name in enumerate(PAPERS)}
    keys = sorted(known, key=lambda key: (order[key[0]], key[1].startswith("figure")))
    return tuple(
        Entry(
            paper=paper,
            table=table,
            notebook=f"nbs/{notebooks[paper, table]}.ipynb" if (paper, table) in notebooks else "",
        )
        for paper, table in keys
    )
