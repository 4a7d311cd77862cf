"""What every notebook of a table asks for: parameters checked, the claim, the missing cells, the table and its check.

nb = notebook.open("ring", 1, globals())  # or study, for a study that is no table
nb.claim, nb.kept()  # the sentence and the printed numbers of each table; the best that is stored
table = nb.run()  # missing cells, in parallel, resumable
nb.check()  # every row asked for has a number or a reason
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from contrastlab.support import escape, files, shipped
from contrastlab.support.errors import ContrastLabError, check, check_name, unknown
from contrastlab.tables import job, report, results
from contrastlab.tables.execution import Execution
from contrastlab.tables.fill import table
from contrastlab.tables.own import own_settings
from contrastlab.tables.plan import REFERENCES, TablePlan
from contrastlab.tables.plan import plan as read_plan
from contrastlab.tables.profiles import OWN, choose_profile
from contrastlab.tables.published import catalogue, parse_seeds, published, tables
from contrastlab.tables.results import Result
from contrastlab.tables.runs import Run

TableReport = report.Report | report.Reports

PARAMETERS: Mapping[str, Any] = {
    "dataset": "shapes",
    "columns": "all",
    "rows": "all",
    "profile": "auto",
    "settings": "",
    "seeds": "0",
    "jobs": "auto",
    "data_root": "",
    "out_dir": "runs",
}
"""Parameters of a notebook and their defaults; a notebook may leave some out, and has no others.

``settings`` are of one's own, a dictionary or a text, ``"epochs=50 arch=timm:resnet18"``; none by default.
"""


@dataclass(frozen=True)
class ShownClaims:
    """What tables claim, each in a sentence, and their printed numbers; shows itself in a notebook."""

    plans: tuple[TablePlan, ...]

    def _repr_html_(self) -> str:
        parts = []
        for plan in self.plans:
            if len(self.plans) > 1:
                parts.append(f"<h4>{escape.html(plan.heading)}</h4>")
            parts.append(f"<p>{escape.html(plan.claim)}</p>")
            parts.append(published_as(plan, "to_html", border=0))
        return "".join(parts)

    def __repr__(self) -> str:
        parts = []
        for plan in self.plans:
            text = f"{plan.claim}\n\n{published_as(plan, 'to_string')}".rstrip("\n")
            if len(self.plans) > 1:
                text = f"{plan.heading}\n{text}"
            parts.append(text)
        return "\n\n".join(parts)


def published_as(plan: TablePlan, form: str, **options: Any) -> str:
    """The published numbers of a table as the paper lays them out, in a form of pandas; empty where there are none."""
    if plan.table not in tables(plan.paper):
        return ""
    numbers = published(plan.paper, plan.table)
    frame = numbers.pivot_table(index="row", columns="column", values="value", sort=False)
    return str(getattr(frame, form)(na_rep="", **options))


@dataclass
class Study:
    """The parameters of a notebook, resolved."""

    name: str  # of the study, or ring/table1
    parameters: Mapping[str, Any]  # by name, whole
    profile: str
    seeds: tuple[int, ...]
    dataset: str  # pre-training data
    data_root: str | None  # None is the usual one
    root: Path  # folder of the project
    out_dir: Path  # of new results and runs
    read_also: tuple[Path, ...]  # where results are kept: by the project, and with the package

    @property
    def folders(self) -> tuple[Path, ...]:
        """Where results are read: new ones, and those that are kept."""
        return self.out_dir, *self.read_also

    @property
    def execution(self) -> dict[str, Any]:
        """The fields of :class:`contrastlab.tables.Execution` that parameters decide."""
        return {"data_root": self.data_root, "out_dir": self.out_dir, "read_also": self.read_also}

    def results(self, **filters: Any) -> list[Result]:
        """Stored results of this notebook's data set and profile; see :func:`contrastlab.tables.results.find`."""
        filters = {"dataset": self.dataset, "profile": self.profile, **filters}
        return results.find(self.folders, **filters)


@dataclass
class Notebook(Study):
    """A notebook of one table or of several tables of one paper; ``number`` is by default that of the first."""

    plans: Mapping[str, TablePlan]  # by number
    shown: list[TableReport] = field(default_factory=list)  # the tables that were run

    def plan(self, number: int | str | None = None) -> TablePlan:
        """One of the tables."""
        name = next(iter(self.plans)) if number is None else str(number)
        check_name(f"table of the notebook {self.name}", name, self.plans)
        return self.plans[name]

    @property
    def claim(self) -> ShownClaims:
        """What the tables say."""
        return ShownClaims(tuple(self.plans.values()))

    def rows(self, number: int | str | None = None) -> tuple[str, ...]:
        """Full names of the rows asked for that a table has; may be none where the notebook has several tables."""
        plan = self.plan(number)
        names = _names(self.parameters["rows"])
        if len(self.plans) == 1 or names == ["all"]:
            return plan.resolve_all(names)
        full_names = [plan.find(name) for name in names]
        return tuple(dict.fromkeys(name for name in full_names if name is not None))

    def run(self, number: int | str | None = None, **changes: Any) -> TableReport:
        """:func:`contrastlab.tables.table` with the parameters and ``changes``; only read if no row is asked for."""
        plan = self.plan(number)
        rows = self.rows(number)
        if not rows:
            return self._read(self.folders, plan, self.dataset, self.profile)
        arguments = {key: self.parameters[key] for key in ("columns", "profile", "settings", "seeds", "jobs")}
        options = {"rows": rows, **arguments, **self.execution, **changes}
        report = table(plan.paper, plan.table, self.dataset, **options)
        self.shown.append(report)
        return report

    def stored(self, dataset: str, profile: str, number: int | str | None = None) -> TableReport:
        """A table from results that are kept with the project: its columns with a number, or the first without any."""
        return self._read(self.read_also, self.plan(number), dataset, profile)

    def kept(self, number: int | str | None = None) -> report.BestEvidence:
        """The best evidence that the project keeps for a table; smoke runs are none."""
        plan = self.plan(number)
        ranked = report.best_first(report.evidence(plan, results.headings(self.read_also)))
        if not ranked:
            return report.BestEvidence(plan.name, None)
        best, *others = ranked
        return report.BestEvidence(plan.name, self.stored(best.dataset, best.profile, number), tuple(others))

    def _read(self, folders: Sequence[Path], plan: TablePlan, dataset: str, profile: str) -> TableReport:
        stored = results.find(folders, dataset=dataset, profile=profile)
        reports = report.columns(plan, stored, dataset, profile)
        if len(reports) == 1:
            return reports[0]
        return report.Reports(reports)

    def pretrained(self, row: str) -> tuple[Run, nn.ModuleList]:
        """The run behind a row of the first table with the first seed, and its encoders."""
        plan = self.plan()
        first, *_ = job.expand(plan, self.dataset, [plan.resolve(row)], self.seeds[:1], self.profile)
        run, trained = job.pretrained(first, Execution(**self.execution))
        return run, trained.encoders

    def check(self) -> None:
        """Refuse tables with a row that was asked for and has neither a number in the metric's range nor a reason."""
        if not self.shown:
            raise ContrastLabError(f"{self.name}: no table was run, so nothing is checked")
        for each in self.shown:
            each.check(self.rows(each.plan.table))


def _names(rows: Any) -> list[str]:
    """Names of rows from a list, or from a text with commas between them."""
    parts = rows if isinstance(rows, list | tuple) else str(rows).split(",")
    names = [str(part).strip() for part in parts]
    return [name for name in names if name]


def write(target: str, to: Path | None = None) -> Path:
    """Write the notebook of a table (``ring/table1``) or one by name, without outputs, to a new file or a folder."""
    notebooks = {entry.name: Path(entry.notebook).stem for entry in catalogue() if entry.notebook}
    for name in shipped.notebooks():
        notebooks[name] = name
    check_name("table with a notebook", target, notebooks)
    path = Path() if to is None else to
    if path.is_dir():
        path = path / f"{notebooks[target]}.ipynb"
    check(path.suffix == ".ipynb", "to", str(to), "a file that ends in .ipynb, or a folder that is there")
    check(not path.exists(), "to", str(path), "a file that is not there yet; nothing was overwritten")
    document = shipped.notebook(notebooks[target])
    return files.write_whole(path, json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def study(
    name: str,
    namespace: Mapping[str, Any],
    *,
    profiles: Sequence[str] = ("smoke", "laptop", "paper"),
    also: Sequence[str] = (),
) -> Study:
    """Check the parameters of a notebook that shows no table of encoders, and resolve them; see :func:`open`."""
    resolved = _resolved(name, namespace, profiles, also)
    changes = resolved["parameters"]["settings"]
    check(not changes, "settings", changes, f"none in {name}, which runs no table")
    return Study(**resolved)


def open(
    paper: str, table: int | str | Sequence[int | str], namespace: Mapping[str, Any], *, also: Sequence[str] = ()
) -> Notebook:
    """Check a notebook's parameters and resolve them.

    ``table`` is a number, or ``figure2``; several where one notebook shows several tables of a paper. ``namespace`` is
    ``globals()`` after the cell of parameters and the imports. ``also`` names parameters of this notebook alone.
    """
    numbers = [table] if isinstance(table, int | str) else list(table)
    check(numbers, "table", table, "at least one table")
    plans = {str(number): read_plan(paper, number) for number in numbers}
    first = next(iter(plans.values()))
    resolved = _resolved(first.name, namespace, first.profiles, also)
    parameters = resolved["parameters"]
    settings = own_settings(resolved["profile"], parameters["settings"])
    if settings is not None:
        plans = {number: plan.with_settings(settings) for number, plan in plans.items()}
        resolved["profile"] = OWN
    notebook = Notebook(**resolved, plans=plans)
    _check_rows(notebook)
    for plan in plans.values():
        plan.select(notebook.dataset, parameters["columns"])
    return notebook


def _check_rows(notebook: Notebook) -> None:
    """Refuse a row that none of the notebook's tables has."""
    rows = notebook.parameters["rows"]
    plans = notebook.plans.values()
    names = _names(rows)
    check(names, "rows", rows, "'all', or names of rows")
    for name in names:
        if name == "all" or any(plan.find(name) for plan in plans):
            continue
        full_names = [full_name for plan in plans for full_name in (*plan.rows, *REFERENCES)]
        short_names = dict.fromkeys(full_name.rpartition("/")[2] for full_name in full_names)
        raise unknown(f"row of {notebook.name}", name, short_names)


def _resolved(name: str, namespace: Mapping[str, Any], profiles: Sequence[str], also: Sequence[str]) -> dict[str, Any]:
    """The fields of a :class:`Study`."""
    parameters = check_parameters(namespace, also)
    root = _project_root(Path.cwd())
    return {
        "name": name,
        "parameters": parameters,
        "profile": choose_profile(str(parameters["profile"]), profiles),
        "seeds": parse_seeds(parameters["seeds"]),
        "dataset": str(parameters["dataset"]),
        "data_root": str(parameters["data_root"]) or None,
        "root": root,
        "out_dir": root / str(parameters["out_dir"]),
        "read_also": tuple(dict.fromkeys((root / "results", shipped.folder("results")))),
    }


def _project_root(folder: Path) -> Path:
    """The nearest folder upwards that has a ``pyproject.toml``; where none has, the folder itself."""
    for candidate in (folder, *folder.parents):
        if (candidate / "pyproject.toml").exists():
            return candidate
    return folder


def check_parameters(namespace: Mapping[str, Any], also: Sequence[str] = ()) -> dict[str, Any]:
    """The parameters in a namespace; a mistyped one, which papermill lets pass, is refused: ``-p datset cifar10``."""
    names = (*PARAMETERS, *also)
    for name, value in namespace.items():
        is_plain = value is None or isinstance(value, bool | int | float | str | list | tuple)
        if is_plain and not name.startswith("_") and name not in ("In", *names):
            raise unknown("notebook parameter", name, names)
    return {name: namespace.get(name, PARAMETERS.get(name)) for name in names}
