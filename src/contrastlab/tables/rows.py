"""The rows of a table from stored results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from contrastlab import tasks
from contrastlab.pictures.task import Metric
from contrastlab.support.errors import check
from contrastlab.tables.numbers import Estimate, interval, signed
from contrastlab.tables.plan import REFERENCES, Column, TablePlan
from contrastlab.tables.results import FOREIGN, UNTRAINED, Result, digest

RANDOM, RANDOM_LAB, _ = REFERENCES
PRETRAINED = "pretrained network as loaded"
TRAINING = {
    "loss": "loss", "mi_bound": "bound", "alignment": "alignment", "uniformity": "uniformity",
    "effective_rank": "effective rank", "mean_cosine": "mean cosine", "collapsed": "collapsed",
}  # fmt: skip
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
    training: Mapping[str, float] = field(default_factory=dict)  # TRAINING at the last epoch, the mean over seeds

    @property
    def difference(self) -> float | None:
        """Measured minus published."""
        return None if self.measured is None or self.published is None else self.measured.mean - self.published


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
        last = [{"collapsed": 0.0, **curve[-1]} for curve in self.curves.values() if "effective_rank" in curve[-1]]
        said = [name for name in TRAINING if last and all(name in row for row in last)]
        return {name: math.fsum(row[name] for row in last) / len(last) for name in said}

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
    settings, only today's protocol counts, since an older result could be of any of them.
    """
    metric = tasks.metric(column.metric)
    where = (column.data, column.on, profile, column.task)
    here = [r for r in results if (r.dataset, r.on, r.profile, r.task) == where and metric.name in r.metrics]
    if not here:
        return None
    here.sort(key=lambda r: r.provenance.finished)
    expected = plan.setup(column, method, profile)
    apart = any(each.settings for each in plan.columns.values())
    own = [r for r in here if r.method == method and r.table == plan.name and not apart]
    mine, notes = [r for r in here if r.setup == expected], []
    if not mine and own:
        mine = [r for r in own if r.setup == own[-1].setup]
        now = plan.settings(column.data, method, profile, column).model_dump(mode="json")
        changed = sorted(key for key in now if now[key] != own[-1].settings.get(key))
        notes.append(": ".join(filter(None, (OTHER_SETTINGS, ", ".join(changed)))))
    if not mine:
        return None
    newest = mine[-1]
    same = [r for r in mine if r.config_hash == newest.config_hash]
    left = len({id(r) for r in (*own, *mine)}) - len(same)
    if left > 0:
        notes.append(f"{left} result(s) of an earlier configuration left out")
    return _together(metric, same, join(*notes))


def _together(metric: Metric, same: Sequence[Result], note: str) -> Scores:
    """Results of one configuration as one row's, the newest last."""
    newest, sizes = same[-1], {result.items for result in same}
    check(len(sizes) == 1, "items", sorted(sizes), f"one number for all seeds of {newest.method}")
    widths = [r.half_widths[metric.name] for r in same if metric.name in r.half_widths]
    half_width = math.sqrt(math.fsum(w * w for w in widths) / len(widths)) if widths else None
    made, views = newest.provenance, newest.recipe.get("views") or {}
    split = views.get("type") == "Split" or "space" in views  # a jigsaw has a space where it splits colours
    cost = [max(r.provenance.cpu_s or 0.0, *(row.get("seconds", 0.0) for row in r.curve[-1:]), 0.0) for r in same]
    return Scores(
        metric, {r.seed: r.metrics[metric.name] for r in same}, made.data_fingerprint, newest.items, note,
        made.data_note, split, half_width, newest.precision,
        {r.seed: r.curve for r in same if r.curve}, math.fsum(cost) / len(cost),
    )  # fmt: skip


def _with_numbers(row: Row, cell: Scores, floor: Scores | None) -> Row:
    note = join(row.note, cell.note)
    row = replace(row, measured=cell.estimate, note=note, precision=cell.precision, training=cell.training)
    if floor is None:
        return row
    if floor.data != cell.data:
        return replace(row, note=join(row.note, "random encoder was scored on other data"))
    gap = cell.estimate.mean - floor.estimate.mean
    # The two share their test items, which makes the real error smaller than this: a cautious mark.
    error = math.hypot(cell.sampling or 0.0, floor.sampling or 0.0)
    above = (gap if cell.metric.higher_is_better else -gap) > error
    return replace(row, versus_random=gap, above_random=above)


def make(
    plan: TablePlan, printed: str, column: Column, results: Sequence[Result], profile: str, missing: Mapping[str, str]
) -> tuple[list[Row], list[Scores]]:
    """All published rows, the reference rows, then the gains of rows over their bases; and the scores behind them.

    ``printed`` names the column of the published numbers; ``missing`` says of a row why it cannot be computed.
    """
    cells = {row: scores(plan, column, results, row, profile) for row in (*plan.rows, *plan.references)}
    # data without colours have one untrained encoder, whichever row asks for it
    alike = RANDOM_LAB in cells and len({plan.setup(column, row, profile) for row in (RANDOM, RANDOM_LAB)}) == 1
    shared, rows = shared_note(plan, printed), []
    for method, cell in cells.items():
        if method == RANDOM_LAB and (cell is None or alike):
            continue  # of interest to two-stream rows only
        note = "" if shared else plan.published_note(printed, method).replace("bold", "in bold in the paper")
        row = Row(
            method, plan.label(method), "method" if method in plan.rows else "reference", note=note,
            published=plan.published_value(printed, method), published_sd=plan.published_sd(printed, method),
        )  # fmt: skip
        if method == RANDOM and plan.settings(column.data, method, profile, column).text.model:
            row = replace(row, label=PRETRAINED, note=join(row.note, "all rows start from it; it is the floor here"))
        if method in missing or cell is None:
            row = replace(row, status=f"n/a: {missing[method]}" if method in missing else "not run")
        else:
            floor = (cells.get(RANDOM_LAB) if cell.split else None) or cells[plan.floor]
            row = _with_numbers(row, cell, None if floor is cell or method == RANDOM_LAB else floor)
        rows.append(row)
    rows += foreign_rows(plan, column, results, profile)
    rows += [_gain(plan, printed, row, base, cells, missing) for row, base in plan.pairs.items()]
    return rows, [cell for cell in cells.values() if cell is not None]


def foreign_rows(plan: TablePlan, column: Column, results: Sequence[Result], profile: str) -> list[Row]:
    """Encoders from elsewhere that the task scored as it does here, each against its own architecture untrained."""
    settings = plan.settings(column.data, plan.floor, profile, column)
    asked = digest(tasks.get(column.task, settings).identity())
    where, metric = (column.on or column.data, profile, column.task, asked), tasks.metric(column.metric)
    foreign = (r for r in results if r.method.startswith(FOREIGN) and metric.name in r.metrics)
    here = [r for r in foreign if (r.dataset, r.profile, r.task, digest(r.task_config)) == where]
    newest = {r.config_hash: r for r in sorted(here, key=lambda r: r.provenance.finished)}.values()
    floors = {_network(r): r for r in newest if r.recipe["foreign"]["weights"].startswith(UNTRAINED)}
    rows = []
    for r in newest:
        floor, size, label = floors.get(_network(r), r), r.settings["image_size"], r.method.removeprefix(FOREIGN)
        sees = "" if size == settings.image_size else f"sees images of {size} pixels"
        against = "" if floor is r else f"read against {floor.method.removeprefix(FOREIGN)}"
        cell, low = (_together(metric, [each], "") for each in (r, floor))
        row = Row(r.method, label, "reference", note=join(sees, against))
        rows.append(_with_numbers(row, cell, None if floor is r else low))
    return rows


def _network(result: Result) -> tuple[str, str]:
    """What a foreign encoder and its floor share."""
    return str(result.recipe["foreign"].get("network")), digest(result.settings)


def _gain(
    plan: TablePlan, printed: str, method: str, base: str, cells: Mapping[str, Scores | None],
    missing: Mapping[str, str],
) -> Row:  # fmt: skip
    published, derived = plan.published_difference(printed, method)
    note = "published difference derived from the two rows" if derived == "derived" else ""
    apart = plan.rows_apart(printed, method, base)
    if published is not None and apart is not None and published * apart < 0:
        note = f"the two printed rows differ by {signed(apart, 1, sign=True)}"
    label = f"{plan.label(method)} − {plan.label(base)}"
    row = Row(f"{method} − {base}", label, "difference", published=published, note=note)
    high, low, reason = cells[method], cells[base], missing.get(method) or missing.get(base)
    if high is None or low is None or reason:
        return replace(row, status=f"n/a: {reason}" if reason else "not run")
    common = sorted(high.by_seed.keys() & low.by_seed.keys())
    if not common or high.data != low.data:
        why = "the two rows were run on different data" if common else "no seed in common"
        return replace(row, status=f"n/a: {why}")
    mean, half = interval([high.by_seed[seed] - low.by_seed[seed] for seed in common])
    precision = "" if high.precision == low.precision else f"{high.precision} against {low.precision}"
    return replace(row, measured=Estimate(mean, half, len(common)), note=join(row.note, precision))


def shared_note(plan: TablePlan, name: str) -> str:
    """What is noted of every printed number of a column alike."""
    printed = [method for method in plan.rows if plan.published_value(name, method) is not None]
    notes = [plan.published_note(name, method) for method in printed]
    return notes[0] if len(notes) > 1 and len(set(notes)) == 1 else ""
