"""The rows of a table from stored results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from contrastlab import tasks
from contrastlab.pictures.task import Metric
from contrastlab.support.errors import check
from contrastlab.tables.numbers import Estimate, interval, signed
from contrastlab.tables.plan import REFERENCES, Column, TablePlan
from contrastlab.tables.profiles import OWN
from contrastlab.tables.results import FOREIGN, UNTRAINED, Result, digest

RANDOM, RANDOM_LAB, _ = REFERENCES
PRETRAINED = "pretrained network as loaded"
TRAINING = {
    "loss": "loss",
    "mi_bound": "bound",
    "alignment": "alignment",
    "uniformity": "uniformity",
    "effective_rank": "effective rank",
    "mean_cosine": "mean cosine",
    "collapsed": "collapsed",
}
"""What a run says of itself without labels, by its name in a curve."""
OTHER_SETTINGS = "stored under other settings than the protocol has now"


@dataclass(frozen=True)
class Unavailable:
    """A row that cannot exist, such as CMC on grey images, with the reason."""

    method: str
    reason: str


@dataclass(frozen=True)
class Row:
    """A published row, a reference row of ours, or the gain of a row over its base; numbers in the metric's unit."""

    method: str
    label: str
    kind: Literal["method", "reference", "difference"]
    published: float | None = None
    measured: Estimate | None = None
    versus_random: float | None = None  # measured minus random encoder (two for a two-stream method)
    above_random: bool | None = None  # better by more than the sampling error of the test items
    status: str = ""  # empty where there is a number, else "not run", or "n/a" with the reason
    note: str = ""
    published_sd: float | None = None
    precision: str = ""  # that the encoders were trained in
    by_seed: Mapping[int, float] = field(default_factory=dict)  # what the mean is of
    training: Mapping[str, float] = field(default_factory=dict)  # TRAINING at the last epoch, the mean over seeds

    @property
    def difference(self) -> float | None:
        """Measured minus published."""
        if self.measured is None or self.published is None:
            return None
        return self.measured.mean - self.published


@dataclass(frozen=True)
class Scores:
    """The results of one row that belong together: of one configuration, on the same data."""

    metric: Metric
    by_seed: dict[int, float]
    data: str  # fingerprint
    items: int  # of the test
    note: str
    data_note: str
    split: bool  # two streams, read against two random encoders
    half_width: float | None  # 95 %, of the sampling error, as the task stored it
    precision: str
    curves: dict[int, list[dict[str, float]]]  # what training said of itself, a row an epoch
    core_seconds: float  # of one seed, in the mean: training or the task, whichever took longer

    @property
    def training(self) -> dict[str, float]:
        """What every seed says of its last epoch, the mean; share of the seeds for ``collapsed``."""
        last_rows = []
        for curve in self.curves.values():
            if "effective_rank" in curve[-1]:
                last_rows.append({"collapsed": 0.0, **curve[-1]})
        means = {}
        for name in TRAINING:
            if last_rows and all(name in row for row in last_rows):
                means[name] = math.fsum(row[name] for row in last_rows) / len(last_rows)
        return means

    @property
    def estimate(self) -> Estimate:
        """Mean over seeds with both kinds of error."""
        mean, half = interval([self.by_seed[seed] for seed in sorted(self.by_seed)])
        return Estimate(mean, half, len(self.by_seed), self.sampling)

    @property
    def sampling(self) -> float | None:
        """95 % half-width of the sampling error of the mean."""
        mean = math.fsum(self.by_seed.values()) / len(self.by_seed)
        return self.metric.half_width(mean, self.items, self.half_width)


def join(*parts: str) -> str:
    """What is not empty, with semicolons."""
    return "; ".join(part for part in parts if part)


def scores(plan: TablePlan, column: Column, results: Sequence[Result], method: str, profile: str) -> Scores | None:
    """One row's results: those of today's protocol, for whichever table, else the newest made for this one.

    Never two configurations together: the mean of two protocols is the number of neither. Where columns differ in their
    settings, only today's protocol counts, since an older result could be of any of them; so in the profile ``own``.
    """
    metric = tasks.metric(column.metric)
    here = _of_column(column, metric, results, profile)
    if not here:
        return None
    expected = plan.setup(column, method, profile)
    of_today = _oldest_first(result for result in here if result.setup == expected)
    of_this_table: list[Result] = []
    if profile != OWN and not any(each.settings for each in plan.columns.values()):
        of_this_table = _oldest_first(
            result for result in here if result.method == method and result.table == plan.name
        )
    notes = []
    candidates = of_today
    if not of_today and of_this_table:
        newest = of_this_table[-1]
        candidates = [result for result in of_this_table if result.setup == newest.setup]
        notes.append(_other_settings(plan, column, method, profile, newest))
    if not candidates:
        return None
    of_newest = [result for result in candidates if result.config_hash == candidates[-1].config_hash]
    different = {id(result) for result in (*of_this_table, *candidates)}
    left_out = len(different) - len(of_newest)
    if left_out > 0:
        notes.append(f"{left_out} result(s) of an earlier configuration left out")
    return _together(metric, of_newest, join(*notes))


def _of_column(column: Column, metric: Metric, results: Sequence[Result], profile: str) -> list[Result]:
    """The results that have a column's number, of any row and protocol."""
    where = (column.data, column.on, profile, column.task)
    of_column = []
    for result in results:
        if (result.dataset, result.on, result.profile, result.task) == where and metric.name in result.metrics:
            of_column.append(result)
    return of_column


def _oldest_first(results: Iterable[Result]) -> list[Result]:
    return sorted(results, key=lambda result: result.provenance.finished)


def _other_settings(plan: TablePlan, column: Column, method: str, profile: str, stored: Result) -> str:
    """Which settings a stored result does not share with the protocol of today."""
    today = plan.settings(column.data, method, profile, column).model_dump(mode="json")
    changed = sorted(name for name in today if today[name] != stored.settings.get(name))
    return f"{OTHER_SETTINGS}: {', '.join(changed)}" if changed else OTHER_SETTINGS


def _together(metric: Metric, same: Sequence[Result], note: str) -> Scores:
    """Results of one configuration as one row's, the newest last."""
    newest = same[-1]
    sizes = {result.items for result in same}
    check(len(sizes) == 1, "items", sorted(sizes), f"one number for all seeds of {newest.method}")
    squares = [result.half_widths[metric.name] ** 2 for result in same if metric.name in result.half_widths]
    half_width = math.sqrt(math.fsum(squares) / len(squares)) if squares else None
    views = newest.recipe.get("views") or {}
    return Scores(
        metric,
        by_seed={result.seed: result.metrics[metric.name] for result in same},
        data=newest.provenance.data_fingerprint,
        items=newest.items,
        note=note,
        data_note=newest.provenance.data_note,
        split=views.get("type") == "Split" or "space" in views,  # a jigsaw has a space where it splits colours
        half_width=half_width,
        precision=newest.precision,
        curves={result.seed: result.curve for result in same if result.curve},
        core_seconds=math.fsum(_core_seconds(result) for result in same) / len(same),
    )


def _core_seconds(result: Result) -> float:
    """Of training or of the task, whichever took longer; 0 where neither is known."""
    training = result.curve[-1].get("seconds", 0.0) if result.curve else 0.0
    return max(result.provenance.cpu_s or 0.0, training, 0.0)


def _with_numbers(row: Row, cell: Scores, floor: Scores | None) -> Row:
    note = join(row.note, cell.note)
    row = replace(row, measured=cell.estimate, by_seed=cell.by_seed, note=note)
    row = replace(row, precision=cell.precision, training=cell.training)
    if floor is None:
        return row
    if floor.data != cell.data:
        return replace(row, note=join(row.note, "random encoder was scored on other data"))
    gap = cell.estimate.mean - floor.estimate.mean
    gain = gap if cell.metric.higher_is_better else -gap
    # The two share their test items, which makes the real error smaller than this: a cautious mark.
    error = math.hypot(cell.sampling or 0.0, floor.sampling or 0.0)
    return replace(row, versus_random=gap, above_random=gain > error)


def make(
    plan: TablePlan, printed: str, column: Column, results: Sequence[Result], profile: str, missing: Mapping[str, str]
) -> tuple[list[Row], list[Scores]]:
    """All published rows, the reference rows, then the gains of rows over their bases; and the scores behind them.

    ``printed`` names the column of the published numbers; ``missing`` says of a row why it cannot be computed.
    """
    cells = {row: scores(plan, column, results, row, profile) for row in (*plan.rows, *plan.references)}
    shared = shared_note(plan, printed)
    rows = []
    for method, cell in cells.items():
        if method == RANDOM_LAB and (cell is None or _one_floor(plan, column, profile)):
            continue  # of interest to two-stream rows only
        row = _printed_row(plan, printed, method, with_note=not shared)
        if method == RANDOM and plan.settings(column.data, method, profile, column).text.model:
            row = replace(row, label=PRETRAINED, note=join(row.note, "all rows start from it; it is the floor here"))
        if method in missing:
            row = replace(row, status=f"n/a: {missing[method]}")
        elif cell is None:
            row = replace(row, status="not run")
        else:
            row = _with_numbers(row, cell, _floor_of(plan, method, cells))
        rows.append(row)
    rows += foreign_rows(plan, column, results, profile)
    for method, base in plan.pairs.items():
        rows.append(_gain(plan, printed, method, base, cells, missing))
    return rows, [cell for cell in cells.values() if cell is not None]


def _one_floor(plan: TablePlan, column: Column, profile: str) -> bool:
    """Whether both untrained rows are one encoder, as on data without colours."""
    return plan.setup(column, RANDOM, profile) == plan.setup(column, RANDOM_LAB, profile)


def _printed_row(plan: TablePlan, printed: str, method: str, *, with_note: bool) -> Row:
    """A row with what the paper prints of it, and no number of ours."""
    note = ""
    if with_note:
        note = plan.published_note(printed, method).replace("bold", "in bold in the paper")
    return Row(
        method,
        plan.label(method),
        kind="method" if method in plan.rows else "reference",
        note=note,
        published=plan.published_value(printed, method),
        published_sd=plan.published_sd(printed, method),
    )


def _floor_of(plan: TablePlan, method: str, cells: Mapping[str, Scores | None]) -> Scores | None:
    """The scores that a row is read against; ``None`` for a floor itself."""
    cell = cells[method]
    floor = cells[plan.floor]
    if cell is not None and cell.split:
        floor = cells.get(RANDOM_LAB) or floor
    if floor is cell or method == RANDOM_LAB:
        return None
    return floor


def foreign_rows(plan: TablePlan, column: Column, results: Sequence[Result], profile: str) -> list[Row]:
    """Encoders from elsewhere that the task scored as it does here, each against its own architecture untrained."""
    settings = plan.settings(column.data, plan.floor, profile, column)
    task_config = digest(tasks.get(column.task, settings).identity())
    where = (column.on or column.data, profile, column.task, task_config)
    metric = tasks.metric(column.metric)
    newest: dict[str, Result] = {}
    for result in sorted(results, key=lambda result: result.provenance.finished):
        if not result.method.startswith(FOREIGN) or metric.name not in result.metrics:
            continue
        if (result.dataset, result.profile, result.task, digest(result.task_config)) == where:
            newest[result.config_hash] = result
    floors = {}
    for result in newest.values():
        if result.recipe["foreign"]["weights"].startswith(UNTRAINED):
            floors[_network(result)] = result
    rows = []
    for result in newest.values():
        floor = floors.get(_network(result), result)
        notes = []
        if result.settings["image_size"] != settings.image_size:
            notes.append(f"sees images of {result.settings['image_size']} pixels")
        if floor is not result:
            notes.append(f"read against {floor.method.removeprefix(FOREIGN)}")
        row = Row(result.method, result.method.removeprefix(FOREIGN), "reference", note=join(*notes))
        of_floor = None if floor is result else _together(metric, [floor], "")
        rows.append(_with_numbers(row, _together(metric, [result], ""), of_floor))
    return rows


def _network(result: Result) -> tuple[str, str]:
    """What a foreign encoder and its floor share."""
    return str(result.recipe["foreign"].get("network")), digest(result.settings)


def _gain(
    plan: TablePlan,
    printed: str,
    method: str,
    base: str,
    cells: Mapping[str, Scores | None],
    missing: Mapping[str, str],
) -> Row:
    """The gain of a row over its base, seed by seed."""
    row = _printed_gain(plan, printed, method, base)
    reason = missing.get(method) or missing.get(base)
    if reason:
        return replace(row, status=f"n/a: {reason}")
    high, low = cells[method], cells[base]
    if high is None or low is None:
        return replace(row, status="not run")
    common = sorted(high.by_seed.keys() & low.by_seed.keys())
    if not common:
        return replace(row, status="n/a: no seed in common")
    if high.data != low.data:
        return replace(row, status="n/a: the two rows were run on different data")
    by_seed = {seed: high.by_seed[seed] - low.by_seed[seed] for seed in common}
    mean, half = interval(list(by_seed.values()))
    if high.precision != low.precision:
        row = replace(row, note=join(row.note, f"{high.precision} against {low.precision}"))
    return replace(row, measured=Estimate(mean, half, len(common)), by_seed=by_seed)


def _printed_gain(plan: TablePlan, printed: str, method: str, base: str) -> Row:
    """The gain of a row over its base as the paper prints it, and no number of ours."""
    published, source = plan.published_difference(printed, method)
    note = ""
    if source == "derived":
        note = "published difference derived from the two rows"
    of_the_rows = plan.rows_apart(printed, method, base)
    if published is not None and of_the_rows is not None and published * of_the_rows < 0:
        note = f"the two printed rows differ by {signed(of_the_rows, 1, sign=True)}"
    label = f"{plan.label(method)} − {plan.label(base)}"
    return Row(f"{method} − {base}", label, "difference", published=published, note=note)


def shared_note(plan: TablePlan, name: str) -> str:
    """What is noted of every printed number of a column alike."""
    printed = [method for method in plan.rows if plan.published_value(name, method) is not None]
    notes = [plan.published_note(name, method) for method in printed]
    if len(notes) > 1 and len(set(notes)) == 1:
        return notes[0]
    return ""
