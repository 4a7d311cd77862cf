"""The rows of a table from stored results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from contrastlab import tasks
from contrastlab.pictures.task import Metric
from contrastlab.settings import Settings
from contrastlab.support.errors import check
from contrastlab.tables.numbers import Estimate, interval, signed
from contrastlab.tables.plan import RANDOM, RANDOM_LAB, Column, TablePlan
from contrastlab.tables.profiles import OWN
from contrastlab.tables.results import FOREIGN, UNTRAINED, Result, digest

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
    gain_of: str = ""  # of a difference: the row that gains over its base

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
    in_column = _of_column(column, metric, results, profile)
    if not in_column:
        return None
    setup_today = plan.setup_hash(column, method, profile)
    of_today = _oldest_first(result for result in in_column if result.setup_hash == setup_today)
    of_this_table: list[Result] = []
    if profile != OWN and not any(each.settings for each in plan.columns.values()):
        of_this_table = _oldest_first(_of_table(in_column, plan.name, method))
    notes = []
    candidates = of_today
    if not of_today and of_this_table:
        newest = of_this_table[-1]
        candidates = [result for result in of_this_table if result.setup_hash == newest.setup_hash]
        notes.append(_other_settings(plan, column, method, profile, newest))
    if not candidates:
        return None
    newest_hash = candidates[-1].config_hash
    of_newest = [result for result in candidates if result.config_hash == newest_hash]
    distinct = {id(result) for result in (*of_this_table, *candidates)}
    left_out = len(distinct) - len(of_newest)
    if left_out > 0:
        notes.append(f"{left_out} result(s) of an earlier configuration left out")
    return _together(metric, of_newest, join(*notes))


def _of_table(results: Iterable[Result], table: str, method: str) -> list[Result]:
    """The results of a method that were first computed for a table."""
    return [result for result in results if result.table == table and result.method == method]


def _of_column(column: Column, metric: Metric, results: Sequence[Result], profile: str) -> list[Result]:
    """The results that have a column's number, of any row and protocol."""
    place = (column.data, column.on, profile, column.task)
    of_column = []
    for result in results:
        place_of_result = (result.dataset, result.on, result.profile, result.task)
        if place_of_result == place and metric.name in result.metrics:
            of_column.append(result)
    return of_column


def _oldest_first(results: Iterable[Result]) -> list[Result]:
    return sorted(results, key=lambda result: result.provenance.finished)


def _other_settings(plan: TablePlan, column: Column, method: str, profile: str, stored: Result) -> str:
    """Which settings a stored result does not share with the protocol of today."""
    today = plan.settings(column.data, method, profile, column).model_dump(mode="json")
    changed = sorted(name for name, value in today.items() if value != stored.settings.get(name))
    if not changed:
        return OTHER_SETTINGS
    return f"{OTHER_SETTINGS}: {', '.join(changed)}"


def _together(metric: Metric, same: Sequence[Result], note: str) -> Scores:
    """Results of one configuration as one row's, the newest last."""
    newest = same[-1]
    sizes = {result.items for result in same}
    check(len(sizes) == 1, "items", sorted(sizes), f"one number for all seeds of {newest.method}")
    return Scores(
        metric,
        by_seed={result.seed: result.metrics[metric.name] for result in same},
        data=newest.provenance.data_fingerprint,
        items=newest.items,
        note=note,
        data_note=newest.provenance.data_note,
        split=_splits_colours(newest),
        half_width=_mean_half_width(metric.name, same),
        precision=newest.precision,
        curves={result.seed: result.curve for result in same if result.curve},
        core_seconds=math.fsum(_core_seconds(result) for result in same) / len(same),
    )


def _splits_colours(result: Result) -> bool:
    """Whether two streams see the parts of a colour space; a jigsaw has a space where it splits colours."""
    views = result.recipe.get("views") or {}
    return views.get("type") == "Split" or "space" in views


def _mean_half_width(metric: str, results: Iterable[Result]) -> float | None:
    """Root mean square of the half-widths that the task stored; ``None`` where it stored none."""
    squares = [result.half_widths[metric] ** 2 for result in results if metric in result.half_widths]
    if not squares:
        return None
    return math.sqrt(math.fsum(squares) / len(squares))


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
    plan: TablePlan,
    paper_column: str,
    column: Column,
    results: Sequence[Result],
    profile: str,
    missing: Mapping[str, str],
) -> tuple[list[Row], list[Scores]]:
    """All published rows, the reference rows, then the gains of rows over their bases; and the scores behind them.

    ``paper_column`` names the column of the published numbers, and is empty for data that the paper has no numbers of.
    ``missing`` says of a row why it cannot be computed.
    """
    cells = {row: scores(plan, column, results, row, profile) for row in (*plan.rows, *plan.references)}
    with_note = not shared_note(plan, paper_column)
    rows = []
    for method, cell in cells.items():
        if method == RANDOM_LAB and (cell is None or _one_floor(plan, column, profile)):
            continue  # of interest to two-stream rows only
        row = _published_row(plan, paper_column, method, with_note=with_note)
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
        rows.append(_gain(plan, paper_column, method, base, cells, missing))
    scores_of_cells = [cell for cell in cells.values() if cell is not None]
    return rows, scores_of_cells


def _one_floor(plan: TablePlan, column: Column, profile: str) -> bool:
    """Whether both untrained rows are one encoder, as on data without colours."""
    return plan.setup_hash(column, RANDOM, profile) == plan.setup_hash(column, RANDOM_LAB, profile)


def _published_row(plan: TablePlan, paper_column: str, method: str, *, with_note: bool) -> Row:
    """A row with what the paper prints of it, and no number of ours."""
    note = ""
    if with_note:
        note = plan.published_note(paper_column, method).replace("bold", "in bold in the paper")
    kind: Literal["method", "reference"] = "method" if method in plan.rows else "reference"
    return Row(
        method,
        plan.label(method),
        kind,
        note=note,
        published=plan.published_value(paper_column, method),
        published_sd=plan.published_sd(paper_column, method),
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
    metric = tasks.metric(column.metric)
    scored = _foreign_results(column, metric, settings, results, profile)
    floors: dict[tuple[str, str], Result] = {}
    for result in scored:
        if result.recipe["foreign"]["weights"].startswith(UNTRAINED):
            floors[_network(result)] = result
    rows = []
    for result in scored:
        floor = floors.get(_network(result), result)
        notes = []
        if result.settings["image_size"] != settings.image_size:
            notes.append(f"sees images of {result.settings['image_size']} pixels")
        scores_of_floor = None
        if floor is not result:
            notes.append(f"read against {floor.method.removeprefix(FOREIGN)}")
            scores_of_floor = _together(metric, [floor], "")
        row = Row(result.method, result.method.removeprefix(FOREIGN), "reference", note=join(*notes))
        rows.append(_with_numbers(row, _together(metric, [result], ""), scores_of_floor))
    return rows


def _foreign_results(
    column: Column, metric: Metric, settings: Settings, results: Sequence[Result], profile: str
) -> list[Result]:
    """The newest result of each configuration of an encoder from elsewhere that has a column's number."""
    task_config = digest(tasks.get(column.task, settings).identity())
    place = (column.on or column.data, profile, column.task, task_config)
    newest: dict[str, Result] = {}
    for result in _oldest_first(results):
        if not result.method.startswith(FOREIGN) or metric.name not in result.metrics:
            continue
        place_of_result = (result.dataset, result.profile, result.task, digest(result.task_config))
        if place_of_result == place:
            newest[result.config_hash] = result
    return list(newest.values())


def _network(result: Result) -> tuple[str, str]:
    """What a foreign encoder and its floor share."""
    return str(result.recipe["foreign"].get("network")), digest(result.settings)


def _gain(
    plan: TablePlan,
    paper_column: str,
    method: str,
    base: str,
    cells: Mapping[str, Scores | None],
    missing: Mapping[str, str],
) -> Row:
    """The gain of a row over its base, seed by seed."""
    row = _published_gain(plan, paper_column, method, base)
    reason = missing.get(method) or missing.get(base)
    if reason:
        return replace(row, status=f"n/a: {reason}")
    of_method = cells[method]
    of_base = cells[base]
    if of_method is None or of_base is None:
        return replace(row, status="not run")
    common_seeds = sorted(of_method.by_seed.keys() & of_base.by_seed.keys())
    if not common_seeds:
        return replace(row, status="n/a: no seed in common")
    if of_method.data != of_base.data:
        return replace(row, status="n/a: the two rows were run on different data")
    gains = {seed: of_method.by_seed[seed] - of_base.by_seed[seed] for seed in common_seeds}
    mean, half_width = interval(list(gains.values()))
    if of_method.precision != of_base.precision:
        row = replace(row, note=join(row.note, f"{of_method.precision} against {of_base.precision}"))
    return replace(row, measured=Estimate(mean, half_width, len(gains)), by_seed=gains)


def _published_gain(plan: TablePlan, paper_column: str, method: str, base: str) -> Row:
    """The gain of a row over its base as the paper prints it, and no number of ours."""
    published, source = plan.published_difference(paper_column, method)
    note = ""
    if source == "derived":
        note = "published difference derived from the two rows"
    of_the_rows = plan.rows_apart(paper_column, method, base)
    if published is not None and of_the_rows is not None and published * of_the_rows < 0:
        note = f"the two printed rows differ by {signed(of_the_rows, 1, sign=True)}"
    label = f"{plan.label(method)} − {plan.label(base)}"
    return Row(f"{method} − {base}", label, "difference", published=published, note=note, gain_of=method)


def shared_note(plan: TablePlan, paper_column: str) -> str:
    """What is noted of every published number of a column alike; empty where notes differ or there is one number."""
    notes = []
    for method in plan.rows:
        if plan.published_value(paper_column, method) is not None:
            notes.append(plan.published_note(paper_column, method))
    if len(notes) > 1 and len(set(notes)) == 1:
        return notes[0]
    return ""
