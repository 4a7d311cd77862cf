"""What every notebook of a table asks for: parameters checked, the claim, the missing cells, the table and its check.

nb = notebook.open("ring", 1, globals())
nb.claim                      # the sentence and the printed table
table = nb.run()              # missing cells, in parallel, resumable
table; table.figure(); table.summary
nb.check()                    # every row asked for has a number or a reason
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from contrastlab import papers, report, results
from contrastlab.errors import unknown
from contrastlab.papers import TablePlan
from contrastlab.reproduce.table import find_results, parse_seeds, resolve_profile, table
from contrastlab.results import Result

PARAMETERS: Mapping[str, Any] = {
    "dataset": "shapes", "columns": "all", "rows": "all", "profile": "auto", "seeds": "0", "jobs": "auto",
    "devices": "1", "data_root": "", "out_dir": "runs",
}  # fmt: skip
"""Parameters of a notebook and their defaults; a notebook may leave some out, and has no others."""


def check_parameters(namespace: Mapping[str, Any], also: Sequence[str] = ()) -> None:
    """Reject a mistyped notebook parameter, which papermill lets pass: ``-p datset cifar10``.

    Args:
        namespace: ``globals()`` of a notebook that has run its parameters and imports only.
        also: parameters of this notebook alone.

    Raises:
        UnknownNameError: with near matches.
    """
    for name, value in namespace.items():
        plain = value is None or isinstance(value, bool | int | float | str | list | tuple)
        if plain and not name.startswith("_") and name not in ("In", *PARAMETERS, *also):
            raise unknown("notebook parameter", name, (*PARAMETERS, *also))


def project_root() -> Path:
    """The folder that holds ``pyproject.toml``, from here upwards; here, where there is none."""
    return next((p for p in [Path.cwd(), *Path.cwd().parents] if (p / "pyproject.toml").exists()), Path.cwd())


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
        return f"<p>{self.plan.claim}</p>{body}"

    @property
    def _has_numbers(self) -> bool:
        return self.plan.table in papers.tables(self.plan.paper)

    def __repr__(self) -> str:
        return f"{self.plan.claim}\n\n{self.printed.to_string(na_rep='')}" if self._has_numbers else self.plan.claim


@dataclass
class Notebook:
    """A notebook of one table, with its parameters resolved."""

    plan: TablePlan
    parameters: Mapping[str, Any]
    root: Path = field(default_factory=project_root)

    @property
    def profile(self) -> str:
        """The profile that is run."""
        return resolve_profile(self.plan, self.parameters["profile"])

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that are run."""
        return parse_seeds(self.parameters["seeds"])

    @property
    def dataset(self) -> str:
        """Pre-training data."""
        return str(self.parameters["dataset"])

    @property
    def out_dir(self) -> Path:
        """Where new results and runs go."""
        return self.root / str(self.parameters["out_dir"])

    @property
    def folders(self) -> tuple[Path, Path]:
        """Where results are read: new ones, and the project's own."""
        return self.out_dir, self.root / "results"

    @property
    def claim(self) -> Claim:
        """What the table says."""
        return Claim(self.plan)

    def run(self, number: int | str | None = None, **changes: Any) -> report.Report | report.Several:
        """The table with its missing cells run.

        Args:
            number: of another table of the paper that this notebook shows, too.
            changes: arguments of :func:`contrastlab.reproduce.table` that differ from the parameters.
        """
        p = self.parameters
        devices = int(p["devices"]) if str(p["devices"]).lstrip("-").isdigit() else p["devices"]
        arguments = {
            "dataset": p["dataset"], "rows": p["rows"], "columns": p["columns"], "profile": p["profile"],
            "seeds": p["seeds"], "jobs": p["jobs"], "devices": devices, "data_root": p["data_root"] or None,
            "out_dir": self.out_dir, "read_also": (self.root / "results",), **changes,
        }  # fmt: skip
        return table(self.plan.paper, self.plan.table if number is None else number, **arguments)

    def stored(self, dataset: str, profile: str, number: int | str | None = None) -> report.Report:
        """The table from results that are kept with the project."""
        plan = self.plan if number is None else papers.plan(self.plan.paper, number)
        return report.table(plan, find_results([self.root / "results"], plan, dataset, profile), dataset, profile)

    def results(self, **wanted: Any) -> list[Result]:
        """Stored results of this notebook's data set and profile; see :func:`contrastlab.results.find`."""
        return results.find(self.folders, **{"dataset": self.dataset, "profile": self.profile, **wanted})


def open(paper: str, table: int | str, namespace: Mapping[str, Any], *, also: Sequence[str] = ()) -> Notebook:
    """Check a notebook's parameters and resolve them.

    Args:
        paper: short name.
        table: number of the table, or ``figure2``.
        namespace: ``globals()`` after the cell of parameters and the imports.
        also: parameters of this notebook alone.

    Raises:
        UnknownNameError: a mistyped parameter, or a value that names nothing.
        ArgumentError: a value out of range.
    """
    check_parameters(namespace, also)
    given = {name: namespace.get(name, default) for name, default in PARAMETERS.items()}
    made = Notebook(papers.plan(paper, table), given)
    _ = made.profile, made.seeds, made.plan.resolve_all(given["rows"])
    made.plan.select(made.dataset, given["columns"])
    return made
