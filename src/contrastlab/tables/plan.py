"""How published tables are made: rows, columns and the protocol behind each, read from TOML."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import PurePath
from typing import Any, Literal, get_args

import contrastlab.support.lab  # noqa: F401

from pydantic import Field, ValidationError, model_validator

from contrastlab import tasks
from contrastlab.settings import FrozenModel, Precision, Settings
from contrastlab.support import discovery, errors
from contrastlab.tables import recipes
from contrastlab.tables.own import OwnSettings
from contrastlab.tables.profiles import (
    NOTHING,
    OWN,
    PAPER,
    UNSEARCHED,
    Changes,
    Scope,
    check_known,
    is_paper,
    shared_profiles,
)
from contrastlab.tables.published import PAPERS, Table, cells_of, plans
from contrastlab.tables.results import setup_hash

RANDOM = "ours/random"
RANDOM_LAB = "ours/random_lab"  # the floor of two-stream methods
SUPERVISED = "ours/supervised"
REFERENCES: Mapping[str, str] = {
    RANDOM: "random encoder",
    RANDOM_LAB: "random encoders of L and ab",
    SUPERVISED: "supervised, same encoder",
}
"""The reference rows of ours: method name to the name that tables show."""

_SCOPES = ("modality", "dataset", "method")


class Column(FrozenModel):
    """What one column of a table asks of the encoders of its rows.

    In TOML ``cifar10 = "CIFAR10"`` is short for ``cifar10 = { data = "cifar10", published = "CIFAR10" }``.
    """

    data: str = Field(description="pre-training data")
    metric: str = Field("", description="name of a metric; empty: the table's")
    on: str = Field("", description="data the task scores on; empty: those of pre-training")
    published: str = Field("", description="the printed column; empty where a cell names its own, or none is printed")
    suffix: str = Field("", description="what the print adds to the name of a row, where one row here is several there")
    settings: Changes = Field(default_factory=dict, description="win over all others in this column's cells")
    in_paper: bool = Field(True, description="whether the paper has such a column, where cells name their own")
    stands_for: str = Field("", description="a printed column whose claims other data here may speak of, too")

    @property
    def task(self) -> str:
        """Name of the task that gives the metric."""
        return tasks.task_of(self.metric)


class TablePlan(Table):
    """How one published table is made: its rows, columns and protocol.

    The settings of a cell are merged in this order, later ones winning field by field: ``settings`` < kinds of parts <
    ``modality`` < ``dataset`` < ``method`` < ``modality.method`` < ``dataset.method`` < the profile shared by all
    tables (``profiles.toml``) < ``profile``, each with the same order inside. Profile ``paper`` is the protocol itself.
    """

    title: str
    claim: str
    metric: str = Field("linear", description="of the columns that name none")
    columns: dict[str, Column] = Field(description="name to column; the name of a short one is its data set")
    rows: dict[str, str]  # method to published row, or to 'row / column' where the column is empty; '' if not printed
    transposed: bool = Field(False, description="methods are printed as columns, data sets as rows")
    others: tuple[str, ...] = Field((), description="printed rows of other people's methods that have no recipe here")
    pairs: dict[str, str] = Field(default_factory=dict, description="method to the base it is compared with")
    # method to further rows that the paper sets it against
    claims: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    # method to the sign of its pair's difference in the paper's words; 0: equally good
    signs: dict[str, Literal["+", "-", "0"]] = Field(default_factory=dict)
    sweep: str = Field("", description="path of the field of the recipes that the rows vary; no profile changes it")
    protocol: Scope = Field(description="the paper's: settings, and modality, dataset and method inside")
    profile: dict[str, Scope] = Field(default_factory=dict)
    precision: Precision | None = Field(None, description="of the encoders, in place of that of the settings")
    own: OwnSettings | None = Field(None, description="what the profile 'own' is, where there is one")

    @model_validator(mode="before")
    @classmethod
    def _whole(cls, raw: dict[str, Any]) -> dict[str, Any]:
        """The fields of a plan from what its file says."""
        _check_raw(raw)
        protocol = dict(raw["settings"])
        fields: dict[str, Any] = {}
        for name, value in raw.items():
            if name in _SCOPES:
                protocol[name] = value
            elif name not in ("settings", "columns"):
                fields[name] = value
        columns = {}
        for name, column in raw["columns"].items():
            if isinstance(column, str):
                column = {"data": name, "published": column}
            columns[name] = {"metric": raw.get("metric", "linear"), **column}
        return {"protocol": protocol, "columns": columns, **fields}

    @model_validator(mode="after")
    def _consistent(self) -> TablePlan:
        for column in self.columns.values():
            tasks.metric(column.metric)
            if column.stands_for:
                check_known("column, for stands_for", column.stands_for, self.columns)
        self._check_published_names()
        methods = [*self.pairs, *self.pairs.values()]
        for scope in (self.protocol, *self.profile.values()):
            methods += scope.methods
        for method, bases in self.claims.items():
            methods += [method, *bases]
        for name in methods:
            check_known("method", name, (*self.rows, *REFERENCES))
        for name in self.signs:
            check_known("method of signs, which has a pair", name, self.pairs)
        self._check_sweep()
        return self

    def _check_sweep(self) -> None:
        """Refuse a path that names no field in which the rows differ."""
        if not self.sweep:
            return
        part, _, field = self.sweep.partition(".")
        values = set()
        for row in self.rows:
            description = recipes.facts(row).describe({})
            values.add(str((description.get(part) or {}).get(field)))
        errors.check(
            len(values) > 1, "sweep", self.sweep, "the path of a field in which the recipes of the rows differ"
        )

    def _check_published_names(self) -> None:
        """Refuse a row or a column that is not among the transcribed ones."""
        cells = cells_of(self.paper, self.table)
        rows = list(self.rows.values())
        headings = [column.published for column in self.columns.values()]
        if "" in headings:  # cells name their own columns
            rows = [name.partition(" / ")[0] for name in rows]
            headings = [name.partition(" / ")[0] for name in headings]
        if self.transposed:
            rows, headings = headings, rows
        suffixes = {column.suffix for column in self.columns.values()} or {""}
        _check_published("row", rows, {row for row, _ in cells}, suffixes)
        _check_published("column", headings, {column for _, column in cells}, {""})

    @property
    def heading(self) -> str:
        """``Table 1``, as the paper calls it."""
        if self.table.startswith("figure"):
            return f"Figure {self.table.removeprefix('figure')}"
        return f"Table {self.table}"

    @property
    def floor(self) -> str:
        """The row that others are read against: the table's own untrained row, or the random encoder of ours."""
        for name in self.rows:
            if not recipes.facts(name).trained:
                return name
        return RANDOM

    @property
    def references(self) -> Mapping[str, str]:
        """The reference rows of ours beside the table's: none where the table prints an untrained row itself."""
        if self.floor not in REFERENCES:
            return {}
        return REFERENCES

    @property
    def datasets(self) -> tuple[str, ...]:
        """Pre-training data of the published columns. Any other may be run too; it has no published number."""
        return tuple(dict.fromkeys(column.data for column in self.columns.values()))

    @property
    def modalities(self) -> tuple[str, ...]:
        """The kinds of data that it pre-trains on: those of its columns, images where it has none."""
        modalities = dict.fromkeys(recipes.modality(column.data) for column in self.columns.values())
        return tuple(modalities) or ("image",)

    def select(self, dataset: str, columns: str | Iterable[str] = "all") -> dict[str, Column]:
        """The columns, ``"all"`` or some by name, that a run on ``dataset`` can fill.

        Data without a published column fill each kind of column, without published numbers; a modality has to fit, that
        of the data or that of what they were made of.
        """
        self.check_dataset(dataset)
        fillable = self._columns_for(dataset)
        names = _names(columns)
        if names == ["all"]:
            return fillable
        for name in names:
            errors.check_name(f"column of {self.paper} table {self.table} for {dataset}", name, fillable)
        return {name: fillable[name] for name in names}

    def _columns_for(self, dataset: str) -> dict[str, Column]:
        """All columns that a run on ``dataset`` can fill, published or not."""
        modality = recipes.modality(dataset)
        if modality not in self.modalities and recipes.original_modality(dataset) in self.modalities:
            modality = recipes.original_modality(dataset)
        if modality not in self.modalities:
            problem = f"{self.paper} {self.heading.lower()} has no column for data of {modality}s, such as {dataset}"
            trained_on = " or ".join(f"{each}s" for each in self.modalities)
            raise errors.NotApplicableError(f"{problem}; it pre-trains on {trained_on}")
        if not self.columns:  # a figure that prints no numbers
            return {dataset: Column(data=dataset, metric=self.metric)}
        published = {name: column for name, column in self.columns.items() if column.data == dataset}
        return published or self._unpublished_columns(dataset, modality)

    def _unpublished_columns(self, dataset: str, modality: str) -> dict[str, Column]:
        """A column for each kind of published column of a modality, for data that none is published for."""
        models: dict[tuple[str, str, str], tuple[str, Column]] = {}  # the first published column of each kind
        for name, column in self.columns.items():
            if recipes.modality(column.data) == modality:
                kind = (column.metric, column.on, str(column.settings))
                models.setdefault(kind, (name, column))
        columns = {}
        for name, column in models.values():
            if column.on or column.settings:
                new_name = name
            elif column.metric == self.metric:
                new_name = dataset
            else:
                new_name = f"{dataset} {column.metric}"
            changes = {"data": dataset, "published": "", "stands_for": column.stands_for or name}
            columns[new_name] = column.model_copy(update=changes)
        return columns

    @property
    def profiles(self) -> tuple[str, ...]:
        """Names of the profiles, ``paper`` included."""
        names = dict.fromkeys((*shared_profiles(), *self.profile))
        names.pop(PAPER, None)
        names[PAPER] = None  # behind the small ones
        if self.own is not None:
            names[OWN] = None
        return tuple(names)

    def with_rows(self, methods: Iterable[str]) -> TablePlan:
        """The plan with further rows, which the paper does not print."""
        new = {name: "" for name in methods if name not in self.rows and name not in REFERENCES}
        if not new:
            return self
        return self.model_copy(update={"rows": {**self.rows, **new}})

    def with_precision(self, precision: str | None) -> TablePlan:
        """The plan with encoders in a precision of :class:`contrastlab.settings.Settings`; ``None`` changes nothing."""
        errors.check_choice("precision", precision, (None, *get_args(Precision)))
        if not precision:
            return self
        return self.model_copy(update={"precision": precision})

    def with_settings(self, own: OwnSettings | None) -> TablePlan:
        """The plan with a profile ``own``, which is another profile with settings of one's own."""
        return self.model_copy(update={"own": own})

    def find(self, method: str) -> str | None:
        """The full name of a row: ``"iring"`` is ``"ring/iring"``, ``"random"`` is ``"ours/random"``."""
        for full_name in (method, f"{self.paper}/{method}", f"ours/{method}"):
            if full_name in self.rows or full_name in REFERENCES:
                return full_name
        return None

    def resolve(self, method: str) -> str:
        """:meth:`find`, which must find one."""
        full_name = self.find(method)
        if full_name is not None:
            return full_name
        # short names: a slip in "irng" is nearer to "iring" than to "ring/iring"
        short_names = [name.rpartition("/")[2] for name in (*self.rows, *REFERENCES)]
        raise errors.unknown(f"method of {self.paper} table {self.table}", method.rpartition("/")[2], short_names)

    def resolve_all(self, methods: str | Iterable[str]) -> tuple[str, ...]:
        """Rows from ``"all"``, ``"ir, iring"`` or a list of names, without repetition."""
        names = [name for name in _names(methods) if name]
        if not names:
            raise errors.reject("methods", methods, f"'all' or some of {', '.join(self.rows)}")
        if names == ["all"]:
            return tuple(self.rows)
        return tuple(dict.fromkeys(self.resolve(name) for name in names))

    def label(self, method: str) -> str:
        """The row's name as printed, else as its recipe has it; its full name where another row is labelled so."""
        full_name = self.resolve(method)
        published_row = self.rows.get(full_name, REFERENCES.get(full_name, ""))
        if published_row and " / " not in published_row:
            return published_row
        label = recipes.facts(full_name).label
        if not published_row and label in self.rows.values():
            return full_name
        return label

    def settings(self, dataset: str, method: str, profile: str = PAPER, column: Column | None = None) -> Settings:
        """The protocol of one cell; ``dataset`` may have no published column; ``column``'s settings win over profiles'.

        In the profile ``own`` one's own settings win over all.
        """
        method = self.resolve(method)
        errors.check_name("profile", profile, self.profiles)
        self.check_dataset(dataset)
        own_settings = self.own if profile == OWN else None
        if own_settings is not None:
            profile = own_settings.profile
        profile_of_table = PAPER if is_paper(profile) else profile
        layers: list[dict[str, Any]] = []
        for scope in (
            self.protocol,
            shared_profiles().get(profile, NOTHING),
            self.profile.get(profile_of_table, NOTHING),
        ):
            layers += scope.layers(recipes.facts(method), dataset, recipes.modality(dataset))
        if self.sweep and method in self.rows:
            layers = [_without_override(layer, self.sweep) for layer in layers]
        if column is not None:
            layers.append(column.settings)
        if self.precision is not None:
            layers.append({"precision": self.precision})
        if own_settings is not None:
            layers.append(own_settings.changes)
            return Settings().override(*layers)
        return _combined(layers)

    def setup_hash(self, column: Column, method: str, profile: str = PAPER) -> str:
        """Hash of what decides a cell's number beside data and seed: :func:`contrastlab.tables.results.setup_hash`."""
        settings = self.settings(column.data, method, profile, column)
        recipe = recipes.facts(self.resolve(method)).describe(settings.overrides)
        return _setup_hash(column.task, settings, recipe)

    def search(self, dataset: str, method: str, profile: str) -> str:
        """The recorded search that chose a row's settings, if any.

        It is that of the table's profile, which may name one for a kind of part, a modality, a data set and a row, else
        that of the shared profile.
        """
        recipe = recipes.facts(self.resolve(method))
        modality = recipes.modality(dataset)
        search = self.profile.get(profile, NOTHING).search_for(recipe, dataset, modality)
        if search == UNSEARCHED:
            return ""
        if search or profile not in shared_profiles() or modality != "image":
            return search
        return shared_profiles()[profile].chosen_by(recipe)

    def check_dataset(self, dataset: str) -> None:
        """Refuse what is neither a registered data set nor ``<kind>:<path>`` of :data:`contrastlab.data.OWN`."""
        kind, colon, _ = str(dataset).partition(":")
        if kind + colon not in recipes.datasets():
            registered = [name for name in recipes.datasets() if not name.endswith(":")]
            raise errors.unknown("dataset", dataset, registered)

    def published_value(self, column: str, method: str) -> float | None:
        """The printed number of a row in a column, in the metric's unit; ``None`` where the paper has none."""
        return self._published_cell(column, method).get("value")

    def published_sd(self, column: str, method: str) -> float | None:
        """The standard deviation printed beside it; ``None`` where there is none."""
        sd: float = self._published_cell(column, method).get("std", math.nan)
        if math.isnan(sd):
            return None
        return sd

    def published_note(self, column: str, method: str) -> str:
        """What was noted beside the printed number when it was transcribed."""
        return self._published_cell(column, method).get("note", "")

    @property
    def comparisons(self) -> tuple[tuple[str, str], ...]:
        """Every (method, base) whose difference is a claim: the pairs, then the further claims."""
        comparisons = list(self.pairs.items())
        for method, bases in self.claims.items():
            comparisons += [(method, base) for base in bases]
        return tuple(comparisons)

    def published_difference(self, column: str, method: str, base: str | None = None) -> tuple[float | None, str]:
        """The paper's gain of ``method`` over ``base``, by default its pair's, and whether it is printed or derived."""
        method = self.resolve(method)
        base = self.pairs[method] if base is None else self.resolve(base)
        if base == self.pairs.get(method):
            for name in ("base", self.rows.get(base, "")):
                difference = self._published(column, f"{self.rows.get(method, '')} minus {name} (printed)")
                if difference:
                    return difference["value"], "printed"
        apart = self.rows_apart(column, method, base)
        if apart is None:
            return None, ""
        return round(apart, 6), "derived"

    def rows_apart(self, column: str, method: str, base: str) -> float | None:
        """The difference of two printed rows, whatever is printed as such; ``None`` where a row is not printed."""
        of_method = self.published_value(column, method)
        of_base = self.published_value(column, base)
        if of_method is None or of_base is None:
            return None
        return of_method - of_base

    def claimed_sign(self, method: str, base: str) -> int | None:
        """What the paper says in words of a pair, in full: +1 or -1, or 0 for equally good; ``None``: nothing."""
        if self.pairs.get(method) != base:
            return None
        return {"+": 1, "-": -1, "0": 0}.get(self.signs.get(method, ""))

    def _published_cell(self, column: str, method: str) -> Mapping[str, Any]:
        """What is transcribed of a method's row in a column; empty where the paper prints nothing."""
        return self._published(column, self.rows.get(self.resolve(method), ""))

    def _published(self, name: str, published_row: str) -> Mapping[str, Any]:
        """What is transcribed of a row of the paper in the column ``name``; empty where the paper prints nothing."""
        if not published_row or name not in self.columns:
            return {}
        column = self.columns[name]
        if not column.in_paper:
            return {}
        row = published_row + column.suffix
        heading = column.published
        if not heading:
            row, _, heading = row.partition(" / ")  # a cell that names its own; or the column is printed nowhere
        if self.transposed:
            row, heading = heading, row
        return cells_of(self.paper, self.table).get((row, heading), {})


def _check_raw(raw: Mapping[str, Any]) -> None:
    """Refuse a file whose columns or settings are no tables."""
    columns = raw.get("columns")
    if not isinstance(columns, dict) or not all(isinstance(column, str | dict) for column in columns.values()):
        raise ValueError(f"columns={columns!r}: expected a table of columns, each a text or a table")
    settings = raw.get("settings")
    if not isinstance(settings, dict):
        raise ValueError(f"settings={settings!r}: expected a table of the paper's settings")


def _check_published(kind: str, names: Iterable[str], published: set[str], suffixes: set[str]) -> None:
    """Refuse a name that is not published, with any of the suffixes behind it; an empty name stands for nothing."""
    for name in names:
        is_published = any(name + suffix in published for suffix in suffixes)
        if name and not is_published:
            raise ValueError(str(errors.unknown(f"published {kind}", name, published)))


def _names(names: str | Iterable[str]) -> list[str]:
    """Names from a list, or from a text with commas between them."""
    if isinstance(names, str):
        names = names.split(",")
    return [name.strip() for name in names]


def parse_plan(text: str, name: str) -> TablePlan:
    """A plan from the text of a TOML file called ``<paper>/table<k>.toml``; an error names the file and the field.

    ``protocol_of = "2"`` takes the protocol of this table's rows from that table; what this file says wins.
    """
    file = PurePath(name)
    paper = file.parent.name
    table = file.stem.removeprefix("table")
    if paper not in PAPERS:
        raise errors.reject("name", name, f"<paper>/table<k>.toml, where paper is one of {', '.join(PAPERS)}")
    try:
        raw = _with_protocol(paper, table, tomllib.loads(text))
        return TablePlan.model_validate({"paper": paper, "table": table, **raw})
    except tomllib.TOMLDecodeError as error:
        raise errors.ArgumentError(f"{name} is not TOML: {error}") from error
    except errors.ContrastLabError as error:
        raise errors.ArgumentError(f"{name}: {error}") from error
    except ValidationError as error:
        problems = []
        for problem in error.errors():
            field = ".".join(str(part) for part in problem["loc"]) or "file"
            problems.append(f"{field}: {problem['msg']}")
        raise errors.ArgumentError(f"{name}: {'; '.join(problems)}") from error


def _with_protocol(paper: str, table: str, raw: dict[str, Any]) -> dict[str, Any]:
    """A plan's raw data with the protocol of the table that ``protocol_of`` names, if any."""
    other = raw.pop("protocol_of", None)
    if other is None:
        return raw
    other_tables = [number for name, number in plans() if name == paper and number != table]
    errors.check_name(f"protocol_of: table of {paper} with a protocol", other, other_tables)
    source = discovery.read_toml(paper, discovery.tables("toml")[paper, other])
    if "protocol_of" in source:
        raise errors.reject("protocol_of", other, "a table that has a protocol of its own")
    rows = {*raw.get("rows", {}), *REFERENCES}
    protocol: dict[str, Any] = {}
    for name in ("settings", *_SCOPES, "profile"):
        if name in source:
            protocol[name] = source[name]
    _keep_rows(protocol, rows)
    for profile in protocol.get("profile", {}).values():
        _keep_rows(profile, rows)
    return _merged(protocol, raw)


def _keep_rows(scope: dict[str, Any], rows: set[str]) -> None:
    """Leave what is said of other methods than ``rows`` out of a scope and of those inside it, in place."""
    _keep_methods(scope, rows)
    for name in ("modality", "dataset"):
        for inner in scope.get(name, {}).values():
            _keep_methods(inner, rows)


def _keep_methods(scope: dict[str, Any], rows: set[str]) -> None:
    """Leave the scopes of other methods than ``rows`` out, in place."""
    methods = scope.get("method", {})
    scope["method"] = {name: changes for name, changes in methods.items() if name in rows}


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            merged[key] = _merged(base[key], value)
        else:
            merged[key] = value
    return merged


def _without_override(layer: dict[str, Any], path: str) -> dict[str, Any]:
    """A layer of settings without what it says of one field of the recipes."""
    overrides = {name: value for name, value in layer.get("overrides", {}).items() if name != path}
    return {**layer, "overrides": overrides}


def _combined(layers: Iterable[Mapping[str, Any]]) -> Settings:
    """The default settings with the changes of a plan, put together once for all cells that share them."""
    changes = [layer for layer in layers if layer]
    key = repr(changes)
    if key not in _COMBINED:
        _COMBINED[key] = Settings().override(*changes)
    return _COMBINED[key]


_COMBINED: dict[str, Settings] = {}
"""What :func:`_combined` has put together, by its layers."""


def _setup_hash(task_name: str, settings: Settings, recipe: Mapping[str, Any]) -> str:
    """The hash of a setup, computed once for the same settings and the same description of a recipe."""
    key = (task_name, id(settings), id(recipe))
    if key not in _HASHES:
        task = tasks.get(task_name, settings)
        hash_ = setup_hash(recipe, settings, task.name, task.identity())
        _HASHES[key] = (settings, recipe, hash_)
    return _HASHES[key][2]


_HASHES: dict[tuple[str, int, int], tuple[Settings, Mapping[str, Any], str]] = {}
"""What :func:`_setup_hash` has computed; settings and recipe are held, so that no other object gets their number."""


@cache
def _plan(paper: str, table: str) -> TablePlan:
    name = discovery.tables("toml")[paper, table]
    return parse_plan(discovery.read_text(paper, name), f"{paper}/{name}")


def plan(paper: str, table: int | str) -> TablePlan:
    """The rows, columns and protocol of a published table: ``1``, ``"5a"``, ``"figure2"``; ``"table1"`` is ``1``."""
    errors.check_name("paper", paper, PAPERS)
    number = str(table).removeprefix("table")
    numbers = [each for name, each in plans() if name == paper]
    if number not in numbers:
        raise errors.unknown(f"table of {paper} with a protocol", str(table), numbers)
    return _plan(paper, number)
