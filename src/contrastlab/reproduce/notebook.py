"""What every notebook of a table asks for: parameters checked, the claim, the missing cells, the table and its check.

nb = notebook.open("ring", 1, globals())
nb.claim                      # the sentence and the printed numbers of each table
nb.kept()                     # the best that is stored
table = nb.run()              # missing cells, in parallel, resumable
table; table.figure(); table.summary
nb.check()                    # every row asked for has a number or a reason

A notebook of a study that is no table has :func:`study` instead of :func:`open`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from contrastlab import files, papers, report, results, shipped
from contrastlab.errors import ContrastLabError, UnknownNameError, reject, unknown
from contrastlab.papers import REFERENCES, TablePlan
from contrastlab.reproduce.cells import Cell
from contrastlab.reproduce.claim import Claim, Claims
from contrastlab.reproduce.run import Run, on_device
from contrastlab.reproduce.tables import choose_profile, find_results, parse_seeds, table
from contrastlab.reproduce.where import Where
from contrastlab.results import Result

PARAMETERS: Mapping[str, Any] = {
    "dataset": "shapes", "columns": "all", "rows": "all", "profile": "auto", "seeds": "0", "jobs": "auto",
    "data_root": "", "out_dir": "runs",
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


@dataclass
class Study:
    """The parameters of a notebook, resolved.

    Args:
        name: of the study, or ``ring/table1``.
        parameters: by name, whole.
        profiles: that it knows.
        root: the project's folder.
    """

    name: str
    parameters: Mapping[str, Any]
    profiles: Sequence[str]
    root: Path = field(default_factory=project_root)

    @property
    def profile(self) -> str:
        """The profile that is run; ``auto`` means what it means for :func:`contrastlab.reproduce.table`."""
        return choose_profile(str(self.parameters["profile"]), self.profiles)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that are run."""
        return parse_seeds(self.parameters["seeds"])

    @property
    def dataset(self) -> str:
        """Pre-training data."""
        return str(self.parameters["dataset"])

    @property
    def data_root(self) -> str | None:
        """Folder of data sets; ``None`` is the usual one."""
        return str(self.parameters["data_root"]) or None

    @property
    def out_dir(self) -> Path:
        """Where new results and runs go."""
        return self.root / str(self.parameters["out_dir"])

    @property
    def read_also(self) -> tuple[Path, ...]:
        """Where results are kept: by the project, and with the package."""
        return tuple(dict.fromkeys((self.root / "results", shipped.folder("results"))))

    @property
    def folders(self) -> tuple[Path, ...]:
        """Where results are read: new ones, and the project's own."""
        return self.out_dir, *self.read_also

    @property
    def where(self) -> dict[str, Any]:
        """The fields of :class:`contrastlab.reproduce.Where` that parameters decide."""
        return {
            "data_root": self.data_root, "out_dir": self.out_dir, "read_also": self.read_also
        }  # fmt: skip

    def results(self, **wanted: Any) -> list[Result]:
        """Stored results of this notebook's data set and profile; see :func:`contrastlab.results.find`."""
        return results.find(self.folders, **{"dataset": self.dataset, "profile": self.profile, **wanted})


@dataclass
class Notebook(Study):
    """A notebook of one table or of several tables of one paper, with its parameters resolved.

    Args:
        plans: number to table; the first is meant where no number is given.
        shown: the reports of the tables that were run.
    """

    plans: Mapping[str, TablePlan] = field(default_factory=dict)
    shown: list[report.Report | report.Reports] = field(default_factory=list)

    def plan(self, number: int | str | None = None) -> TablePlan:
        """One of the tables.

        Raises:
            UnknownNameError: not a table of this notebook.
        """
        chosen = next(iter(self.plans)) if number is None else str(number)
        if chosen not in self.plans:
            raise unknown(f"table of the notebook {self.name}", chosen, self.plans)
        return self.plans[chosen]

    @property
    def claim(self) -> Claim | Claims:
        """What the table says; of several tables, what each of them says."""
        each = tuple(map(Claim, self.plans.values()))
        return each[0] if len(each) == 1 else Claims(each)

    def rows(self, number: int | str | None = None) -> tuple[str, ...]:
        """Full names of the rows asked for that a table has; may be none where the notebook has several tables."""
        plan, names = self.plan(number), _names(self.parameters["rows"])
        if len(self.plans) == 1 or names == ["all"]:
            return plan.resolve_all(names)
        return tuple(dict.fromkeys(plan.resolve(name) for name in names if _has(plan, name)))

    def run(self, number: int | str | None = None, **changes: Any) -> report.Report | report.Reports:
        """A table with its missing cells run; one of whose rows none is asked for is only read.

        Args:
            number: of the table; by default the first.
            changes: arguments of :func:`contrastlab.reproduce.table` that differ from the parameters.
        """
        plan, rows, p = self.plan(number), self.rows(number), self.parameters
        if not rows:
            found = find_results(self.folders, plan, self.dataset, self.profile)
            return self._read(plan, found, self.dataset, self.profile)
        arguments = {key: p[key] for key in ("columns", "profile", "seeds", "jobs")}
        made = table(plan.paper, plan.table, self.dataset, **{"rows": rows, **arguments, **self.where, **changes})
        self.shown.append(made)
        return made

    def stored(
        self, dataset: str, profile: str, number: int | str | None = None
    ) -> report.Report | report.Reports:  # fmt: skip
        """A table from results that are kept with the project: its columns with a number, or the first without any."""
        plan = self.plan(number)
        return self._read(plan, find_results(self.read_also, plan, dataset, profile), dataset, profile)

    def kept(self, number: int | str | None = None) -> report.BestEvidence:
        """The best evidence that the project keeps for a table; smoke runs are none.

        Args:
            number: of the table; by default the first.
        """
        plan = self.plan(number)
        entry = next(each for each in papers.catalogue() if (each.paper, each.table) == (plan.paper, plan.table))
        ranked = report.best_first(report.evidence(entry, results.find(self.read_also)))
        best = self.stored(ranked[0].dataset, ranked[0].profile, number) if ranked else None
        return report.BestEvidence(entry.name, best, tuple(ranked[1:]))

    def _read(
        self, plan: TablePlan, found: Sequence[Result], dataset: str, profile: str
    ) -> report.Report | report.Reports:  # fmt: skip
        filled = report.columns(plan, found, dataset, profile)
        return filled[0] if len(filled) == 1 else report.Reports(filled)

    def pretrained(self, row: str) -> tuple[Run, nn.ModuleList]:
        """The run behind a row with the first seed, and its encoders: read, trained, or as initialised.

        Args:
            row: of the first table, or a reference row, in full or short.
        """
        plan, where = self.plan(), Where(**self.where)
        name, column = next(iter(plan.select(self.dataset).items()))
        cell = Cell(plan, name, column, plan.resolve(row), self.seeds[0], self.profile)
        fabric = where.fabric(cell.settings.precision)
        run = on_device(Run(cell.recipe, cell.settings, cell.data(where)[0], cell.seed, self.out_dir), fabric.device)
        return run, run.train(fabric).encoders

    def check(self) -> None:
        """Refuse tables with a row that was asked for and has neither a number in the metric's range nor a reason.

        Raises:
            ContrastLabError: naming the rows, or that no table was run.
        """
        if not self.shown:
            raise ContrastLabError(f"{self.name}: no table was run, so nothing is checked")
        for made in self.shown:
            made.check(self.rows(made.plan.table))


def _names(rows: Any) -> list[str]:
    asked = rows if isinstance(rows, list | tuple) else str(rows).split(",")
    return [str(name).strip() for name in asked if str(name).strip()]


def _has(plan: TablePlan, name: str) -> bool:
    try:
        plan.resolve(name)
    except UnknownNameError:
        return False
    return True


def write(target: str, to: Path | None = None) -> Path:
    """Write the notebook of a table, without outputs, to run and change; gives the file.

    Args:
        target: a table such as ``ring/table1``, or a notebook by its name, such as ``crosses``.
        to: a file that ends in ``.ipynb``, or a folder; by default a file of the notebook's name, here.

    Raises:
        UnknownNameError: no table or notebook of that name, or a table without a notebook; with near matches.
        ArgumentError: the file is there already, or is no ``.ipynb``.
        StorageError: it cannot be written.
    """
    of_tables = {entry.name: Path(entry.notebook).stem for entry in papers.catalogue() if entry.notebook}
    known = of_tables | {name: name for name in shipped.notebooks()}
    if target not in known:
        raise unknown("table with a notebook", target, known)
    path = Path(f"{known[target]}.ipynb") if to is None else to / f"{known[target]}.ipynb" if to.is_dir() else to
    if path.suffix != ".ipynb":
        raise reject("to", str(to), "a file that ends in .ipynb, or a folder that is there")
    if path.exists():
        raise reject("to", str(path), "a file that is not there yet; nothing was overwritten")
    document = shipped.notebook(known[target])
    return files.write_whole(path, json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def study(
    name: str, namespace: Mapping[str, Any], *, profiles: Sequence[str] = ("smoke", "laptop", "paper"),
    also: Sequence[str] = (),
) -> Study:  # fmt: skip
    """Check the parameters of a notebook that shows no table of encoders, and resolve them.

    Args:
        name: of the study, such as ``crosses``.
        namespace: ``globals()`` after the cell of parameters and the imports.
        profiles: that the study knows.
        also: parameters of this notebook alone.

    Raises:
        UnknownNameError: a mistyped parameter, or a value that names nothing.
        ArgumentError: a value out of range.
    """
    made = Study(name, _given(namespace, also), profiles)
    _ = made.profile, made.seeds
    return made


def open(
    paper: str, table: int | str | Sequence[int | str], namespace: Mapping[str, Any], *, also: Sequence[str] = ()
) -> Notebook:
    """Check a notebook's parameters and resolve them.

    Args:
        paper: short name.
        table: number of the table, or ``figure2``; several where one notebook shows several tables of a paper.
        namespace: ``globals()`` after the cell of parameters and the imports.
        also: parameters of this notebook alone.

    Raises:
        UnknownNameError: a mistyped parameter, or a value that names nothing.
        ArgumentError: a value out of range.
    """
    numbers = [table] if isinstance(table, int | str) else list(table)
    if not numbers:
        raise reject("table", table, "at least one table")
    plans = {str(number): papers.plan(paper, number) for number in numbers}
    first = next(iter(plans.values()))
    made = Notebook(f"{paper}/{results.slug(first.table)}", _given(namespace, also), first.profiles, plans=plans)
    _ = made.profile, made.seeds
    names = _names(made.parameters["rows"])
    for name in names:
        if name != "all" and not any(_has(plan, name) for plan in plans.values()):
            short = [known.rpartition("/")[2] for plan in plans.values() for known in (*plan.rows, *REFERENCES)]
            raise unknown(f"row of {made.name}", name, dict.fromkeys(short))
    if not names:
        raise reject("rows", made.parameters["rows"], "'all', or names of rows")
    for plan in plans.values():
        plan.select(made.dataset, made.parameters["columns"])
    return made


def _given(namespace: Mapping[str, Any], also: Sequence[str]) -> dict[str, Any]:
    check_parameters(namespace, also)
    return {name: namespace.get(name, PARAMETERS.get(name)) for name in (*PARAMETERS, *also)}
