"""Every claim of a difference in the papers, published beside measured, with a verdict: a line each.

A claim is a row of a table, the row it is set against, and a column: *IRing − IR on CIFAR-10*. The rule by which
verdicts are reached is that of :mod:`contrastbook.evidence.inference`. The lines are a frame, for a page, a figure
(:func:`forest`) or a CSV; :data:`COLUMNS` is its data dictionary.
"""

from __future__ import annotations

import base64
import math
import statistics
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from contrastbook.evidence import inference, searches
from contrastlab import papers, tasks
from contrastlab.papers import Column, TablePlan
from contrastlab.support import escape, shipped
from contrastlab.support.errors import NotApplicableError, UnknownNameError
from contrastlab.tables.numbers import signed
from contrastlab.tables.plan import RANDOM_LAB
from contrastlab.tables.results import Result
from contrastlab.tables.rows import Scores, scores

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Read = Callable[[str, str], Scores | None]  # column and recipe to what is stored of it in one profile
Line = Mapping[Any, Any]
"""A row of :func:`frame`."""
PROFILES = ("paper", "laptop", "tuned", "regime", "fair", "features")
"""Profiles whose runs may speak of a claim. Beside ``paper``, those decide whose settings a search chose."""

_TOML = tomllib.loads(resources.files("contrastbook.evidence").joinpath("claims.toml").read_text("utf-8"))
COLUMNS: Mapping[str, str] = _TOML["columns"]
"""Data dictionary: name of a column of :func:`frame` to what it means."""
STAND_INS: Mapping[str, str] = _TOML["stand_ins"]
"""Data that may stand in for a paper's, and why."""
_SAME_CLAIM = [
    "paper",
    "dataset",
    "on",
    "metric",
    "method",
    "base",
    "published",
    "profile",
    "setup_method",
    "setup_base",
]
"""Columns in which two lines agree if two tables of a paper publish one difference of the same runs."""


def frame(results: Sequence[Result], plans: Iterable[TablePlan] | None = None) -> pd.DataFrame:
    """The claims of all tables, or of ``plans``, for which a number or a sign is published; columns: :data:`COLUMNS`.

    A line for each claim and profile with results, and for a claim without any one that says so. Other data than the
    paper's have lines where there are results. What two tables of a paper publish of the same runs is one line.
    """
    if plans is None:
        plans = [papers.plan(*name) for name in papers.plans()]
    by_dataset: defaultdict[str, list[Result]] = defaultdict(list)
    for result in results:
        by_dataset[result.dataset].append(result)
    measured = sorted(by_dataset)
    lines: list[dict[str, Any]] = []
    for plan in plans:
        by_data: dict[str, list[ClaimedDifference]] = {}
        for claim in _claimed(plan, measured):
            by_data.setdefault(claim.column.data, []).append(claim)
        for dataset, claims in by_data.items():
            lines += _of_data(claims, by_dataset.get(dataset, []))
    every = pd.DataFrame(lines, columns=list(COLUMNS))
    first_table = every.groupby(_SAME_CLAIM, dropna=False)["table"].transform("first")
    once = every[every["table"] == first_table].reset_index(drop=True)
    return _priced(once)


def _priced(lines: pd.DataFrame) -> pd.DataFrame:
    """With seeds and core-hours that would decide what is open, if the difference has the published size.

    The spread is the line's from four seeds on, else the median of its table, as is the cost; ``inf``: no look suffices
    (:func:`inference.detectable`), or nothing was run on its data or in its table.
    """
    sd = _or_median_of_table(lines, lines["sd"].where(lines["seeds"] >= 4))
    cost = _or_median_of_table(lines, lines["core_hours"])
    measured_data = lines.loc[lines["gain"].notna(), "dataset"]
    can_be_run = lines["dataset"].isin(measured_data) & sd.notna() & cost.notna()
    counts = lines["dataset"].isin(STAND_INS) | (lines["stands_for"] == "")
    claims_a_sign = lines["claimed_sign"] != 0
    size = lines["published"].abs().where(claims_a_sign).fillna(inference.MARGIN)
    needed: list[float] = []
    for possible, spread, least in zip(can_be_run & counts, sd, size, strict=True):
        needed.append(_seeds_that_find(spread, least) if possible else math.inf)
    # where the settings were not searched, all seeds are run anew
    have = lines["seeds"].where(lines["search"] != "", 0)
    missing = (pd.Series(needed) - have).clip(lower=4)
    missing = missing.mask(have >= inference.LOOKS[-1], math.inf)
    undecided = lines["verdict"].isin(("open", "not run"))
    return lines.assign(
        seeds_needed=(have + missing).where(undecided),
        core_hours=(missing * cost.fillna(1)).where(undecided),
    )


def _or_median_of_table(lines: pd.DataFrame, values: pd.Series) -> pd.Series:
    """The value of each claim, or the median of its table if it has none."""
    medians = values.groupby([lines["paper"], lines["table"]]).transform("median")
    return values.fillna(medians)


def _seeds_that_find(sd: float, difference: float) -> float:
    """The first look that finds a difference of this size with 80 %; ``inf`` if none does."""
    for seeds in inference.LOOKS:
        if inference.detectable(sd, seeds) <= difference:
            return float(seeds)
    return math.inf


@dataclass(frozen=True)
class ClaimedDifference:
    """A row of a table set against another one in a column; the names of its fields are those of columns."""

    plan: TablePlan
    name: str
    column: Column
    method: str
    base: str
    published: float
    published_from: str
    sign: int

    def line(self) -> dict[str, Any]:
        """The values of :data:`COLUMNS` that no run decides."""
        metric = tasks.metric(self.column.metric)
        method = self.plan.label(self.method)
        base = self.plan.label(self.base)
        return {
            "paper": self.plan.paper,
            "table": self.plan.table,
            "column": self.name,
            "stands_for": self.column.stands_for,
            "dataset": self.column.data,
            "on": self.column.on,
            "metric": metric.name,
            "unit": metric.gap,
            "claim": f"{method} − {base}",
            "method": self.method,
            "base": self.base,
            "published": self.published,
            "published_from": self.published_from,
            "claimed_sign": self.sign,
            "profile": "",
            "search": "",
            "verdict": "not run",
            "seeds": 0,
            "used": 0,
            "differences": "",
        }

    def search(self, profile: str) -> str:
        """The search that both rows were in and that chose their settings; of two searches, both names."""
        untrained = (self.plan.floor, RANDOM_LAB)
        names: list[str] = []
        for row in (self.method, self.base):
            if row in untrained:
                continue
            name = self.plan.search(self.column.data, row, profile)
            if not name or row not in _rows_of(name):
                return ""
            names.append(name)
        return " and ".join(dict.fromkeys(names))

    @property
    def stands_in(self) -> bool:
        """Whether its data are the paper's, or may stand in for them."""
        if not self.column.stands_for:
            return True
        trained_on = self.column.data
        scored_on = self.column.on or trained_on
        return trained_on in STAND_INS and scored_on in STAND_INS


@cache
def _rows_of(search: str) -> tuple[str, ...]:
    stored = searches.read(shipped.folder("results") / f"searches/{search}.json")
    return tuple(stored.get("rows", ()))


def _claimed(plan: TablePlan, measured: Sequence[str]) -> Iterator[ClaimedDifference]:
    """The claims of a table: those that its own data can decide, then those that other ``measured`` data can."""
    columns = list(plan.columns.items())
    if columns:
        columns += _columns_on_other_data(plan, measured)
    for name, column in columns:
        for method, base in plan.comparisons:
            claim = _claim(plan, name, column, method, base)
            if claim is not None:
                yield claim


def _columns_on_other_data(plan: TablePlan, measured: Sequence[str]) -> list[tuple[str, Column]]:
    """Names and columns of a table on ``measured`` data that are not its own."""
    columns: list[tuple[str, Column]] = []
    for dataset in measured:
        if dataset in plan.datasets:
            continue
        # results on a folder that only another machine has are of no registered kind
        with suppress(NotApplicableError, UnknownNameError):
            for name, column in plan.select(dataset).items():
                if name.startswith(dataset):
                    columns.append((name, column))
                elif column.on:
                    columns.append((f"{dataset} to {name}", column))
                else:
                    columns.append((f"{dataset} {name}", column))
    return columns


def _claim(plan: TablePlan, name: str, column: Column, method: str, base: str) -> ClaimedDifference | None:
    """What a paper says of two rows in a column; ``None`` where it gives neither a number nor a sign."""
    printed = column.stands_for or name
    published, source = plan.published_difference(printed, method, base)
    sign = plan.claimed_sign(method, base)
    if published is None and sign is None:
        return None
    if published is None:
        published = math.nan
        source = "words"
    if sign is None:
        sign = _sign(plan, printed, method, base, published)
    return ClaimedDifference(plan, name, column, method, base, published, source, sign)


def _sign(plan: TablePlan, column: str, method: str, base: str, published: float) -> int:
    """Of a published difference; 0 where the numbers printed beside it say that it is none."""
    apart = plan.rows_apart(column, method, base)
    if apart is not None:
        contradicted = published * apart < 0
        if contradicted or _within_spread(plan, column, method, base, published):
            return 0
    return (published > 0) - (published < 0)


def _within_spread(plan: TablePlan, column: str, method: str, base: str, published: float) -> bool:
    """Whether a difference is below the standard deviations that are published of both rows."""
    sd_method = plan.published_sd(column, method)
    sd_base = plan.published_sd(column, base)
    if not sd_method or not sd_base:
        return False
    return abs(published) < math.hypot(sd_method, sd_base)


def _of_data(claims: Sequence[ClaimedDifference], results: Sequence[Result]) -> list[dict[str, Any]]:
    """The lines of one table on one data set, given the results on it."""
    of_profile: defaultdict[str, list[Result]] = defaultdict(list)
    for result in results:
        of_profile[result.profile].append(result)
    by_profile = [_in_profile(claims, of_profile[profile], profile) for profile in PROFILES]
    lines: list[dict[str, Any]] = []
    for claim, *candidates in zip(claims, *by_profile, strict=True):
        measured_lines = [line for line in candidates if line is not None]
        lines += measured_lines
        if not measured_lines and not claim.column.stands_for:
            lines.append(claim.line())
    return lines


class _Measurement(NamedTuple):
    """What runs say of a claim."""

    looks: list[inference.Look]
    entries: dict[str, Any]  # values of COLUMNS


def _in_profile(
    claims: Sequence[ClaimedDifference], results: Sequence[Result], profile: str
) -> list[dict[str, Any] | None]:
    """A line of each claim, if it was measured; they share the chance of a wrong sign."""
    plan = claims[0].plan
    if not results or profile not in plan.profiles:
        return [None] * len(claims)
    columns = {claim.name: claim.column for claim in claims}
    of_task: defaultdict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in results:
        of_task[result.on, result.task].append(result)

    @cache
    def read(name: str, row: str) -> Scores | None:
        column = columns[name]
        return scores(plan, column, of_task[column.on, column.task], row, profile)

    measurements = [_measured(claim, read, profile) for claim in claims]
    family: list[tuple[list[inference.Look], float]] = []
    for claim, measurement in zip(claims, measurements, strict=True):
        looks = [inference.NOT_RUN] if measurement is None else measurement.looks
        family.append((looks, claim.sign))
    decisions = inference.decide(family)
    lines: list[dict[str, Any] | None] = []
    for claim, measurement, decision in zip(claims, measurements, decisions, strict=True):
        if measurement is None:
            lines.append(None)
        else:
            entries = measurement.entries
            decided = _decided(claim, entries, decision, profile)
            lines.append(claim.line() | entries | decided)
    return lines


def _decided(
    claim: ClaimedDifference, entries: Mapping[str, Any], decision: inference.Decision, profile: str
) -> dict[str, Any]:
    """Values of :data:`COLUMNS` that follow from a decision; the claim stays open where its runs may not speak."""
    search = claim.search(profile)
    settings_count = bool(search) or profile == "paper"
    counts = settings_count and entries["above_untrained"] is not False and claim.stands_in
    difference = decision.at.difference
    return {
        "profile": profile,
        "search": search,
        "p_holm": decision.p_holm,
        "used": decision.at.seeds,
        "p": decision.at.p,
        "gain": difference.mean,
        "low": _finite(difference.low),
        "high": _finite(difference.high),
        "verdict": decision.verdict if counts else "open",
        "bound": decision.bound if counts else None,
    }


def _measured(claim: ClaimedDifference, read: Read, profile: str) -> _Measurement | None:
    """Differences seed by seed; ``None`` without a common seed and data."""
    method = read(claim.name, claim.method)
    base = read(claim.name, claim.base)
    if method is None or base is None or method.data != base.data:
        return None
    seeds = sorted(method.by_seed.keys() & base.by_seed.keys())
    if not seeds:
        return None
    differences = [method.by_seed[seed] - base.by_seed[seed] for seed in seeds]
    by_seed = [f"{seed}:{gain:.6g}" for seed, gain in zip(seeds, differences, strict=True)]
    entries = {
        "seeds": len(seeds),
        "differences": " ".join(by_seed),
        "sd": statistics.stdev(differences) if len(seeds) > 1 else None,
        "core_hours": (method.core_seconds + base.core_seconds) / 3600,
        "precision": method.precision,
        "data_fingerprint": method.data,
        "setup_method": claim.plan.setup_hash(claim.column, claim.method, profile),
        "setup_base": claim.plan.setup_hash(claim.column, claim.base, profile),
    }
    entries |= _above_untrained(claim, method, base, read)
    return _Measurement(inference.look(differences, claim.published, claim.sign), entries)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _above_untrained(claim: ClaimedDifference, method: Scores, base: Scores, read: Read) -> dict[str, float | None]:
    """The untrained encoder that both rows are read against, and whether both are better by more than the intervals."""
    two_streams = RANDOM_LAB in claim.plan.references and method.split and base.split
    name = RANDOM_LAB if two_streams else claim.plan.floor
    untrained = None
    if name not in (claim.method, claim.base):
        untrained = read(claim.name, name)
    if untrained is None or method.data != untrained.data:
        return {"untrained": None, "above_untrained": None}
    both = _is_above(method, untrained) and _is_above(base, untrained)
    return {"untrained": untrained.estimate.mean, "above_untrained": both}


def _is_above(row: Scores, untrained: Scores) -> bool:
    """Whether a row is better by more than both intervals together."""
    gain = row.estimate.mean - untrained.estimate.mean
    if not untrained.metric.higher_is_better:
        gain = -gain
    return gain > math.hypot(row.estimate.error or 0.0, untrained.estimate.error or 0.0)


def column_of(line: Line) -> str:
    """The column, and for other data the printed column whose gain is beside it."""
    if not line["stands_for"]:
        return str(line["column"])
    # a column that differs in settings alone has the name of that of the paper
    name = str(line["column"]).removesuffix(f" {line['stands_for']}")
    return f"{name} for {line['stands_for']}"


def table_of(line: Line) -> str:
    """``ring 1``, ``cmc Figure 4``."""
    table = str(line["table"]).replace("figure", "Figure ")
    return f"{line['paper']} {table}"


def _is_number(value: Any) -> bool:
    """Whether a line has a value, which is NaN or ``None`` where it has none."""
    return bool(pd.notna(value))


def sentence(line: Line) -> str:
    """The verdict of one line in words, such as ``open (2 of 8 seeds)`` or ``same sign, on rooms``."""
    on = f", on {line['on'] or line['dataset']}" if line["stands_for"] else ""
    if _is_number(line["bound"]):
        return f"{_what_is_bounded(line)}: at most {_rounded_up(line['bound'])} {line['unit']} either way{on}"
    if line["verdict"] != "open":
        return f"{line['verdict']}{on}"
    reason = _why_open(line)
    return f"open ({reason})" if reason else "open"


def _what_is_bounded(line: Line) -> str:
    if line["claimed_sign"] == 0:
        return str(line["verdict"])
    kind = "gain" if line["claimed_sign"] > 0 else "loss"
    scale = "" if line["profile"] == "paper" else " at this scale"
    return f"no {kind} of the published size{scale}"


def _rounded_up(bound: float) -> str:
    """To one decimal, so that the bound still holds."""
    return f"{math.ceil(10 * bound) / 10:.1f}"


def _why_open(line: Line) -> str:
    """The first reason why a claim has no verdict yet; empty if the differences are too noisy."""
    if line["stands_for"]:
        other_data = {line["dataset"], line["on"] or line["dataset"]} - STAND_INS.keys()
        if other_data:
            return f"{' and '.join(sorted(other_data))} cannot stand in"
    if line["profile"] != "paper" and not line["search"]:
        return "settings not searched for both rows"
    if line["above_untrained"] is False:
        return "a row is not above an untrained encoder"
    if line["seeds"] < inference.LOOKS[0]:
        return f"{line['seeds']} of {inference.LOOKS[0]} seeds"
    return ""


_SIGNS_IN_WORDS = {1: "above 0, in words", -1: "below 0, in words", 0: "equal, in words"}


def published(line: Line) -> str:
    """The paper's difference as printed, or in words which side of 0 it is on."""
    if not _is_number(line["published"]):
        return _SIGNS_IN_WORDS[line["claimed_sign"]]
    has_one_decimal = round(line["published"], 1) == line["published"]
    return signed(line["published"], 1 if has_one_decimal else 2, sign=True)


def measured(line: Line) -> str:
    """The gain and its interval, such as ``−0.41 (−1.71 to +0.89)``; of one seed the gain."""
    ends = [signed(line[name], sign=True) for name in ("low", "high") if _is_number(line[name])]
    gain = signed(line["gain"], sign=True)
    return f"{gain} ({' to '.join(ends)})" if ends else gain


_KEY = (
    "dot: measured, filled with a verdict   tick: a seed   diamond: published, triangle: its sign   [seeds]\n"
    "Outside profile paper, sizes may not be compared."
)


def forest(lines: pd.DataFrame) -> Figure:
    """The measured claims of :func:`frame`, sorted, explained by a key.

    The axis holds all that is drawn of nine tenths of the lines, and as much again. A number at an edge is the farthest
    value of a line that reaches beyond it.
    """
    from contrastbook.figures.base import dress, subplots

    by_gain = lines[lines["gain"].notna()].sort_values("gain", kind="stable", ascending=False)
    shown: Sequence[Line] = by_gain.to_dict("records")
    count = max(len(shown), 1)
    figure, axes = subplots(size=(8, 1.2 + 0.38 * count))
    edge = _edge(shown)
    for y, line in enumerate(shown):
        _draw(axes, y, line)
        _number_beyond(axes, y, line, edge)
    left, right = axes.get_xlim()
    axes.set_xlim(max(-edge, min(edge, left)), max(-edge, min(edge, right)))
    axes.axvline(0, color="0.4", ls="--", lw=1, zorder=1)
    axes.set_yticks(range(len(shown)), [_tick(line) for line in shown], fontsize="small")
    axes.set_ylim(count - 0.5, -0.5)
    units = sorted({line["unit"] for line in shown})
    dress(axes, f"difference ({', '.join(units) or 'nothing has been run'})", "")
    figure.suptitle(_KEY, x=0.01, ha="left", fontsize="small")
    axes.grid(axis="x", color="0.9")
    axes.tick_params(axis="y", length=0)
    counts = [f"{verdict}: {lines_of_it}" for verdict, lines_of_it in lines["verdict"].value_counts().items()]
    figure.set_label(f"Forest plot of measured beside published differences. Verdicts: {'; '.join(counts)}.")
    return figure


def _by_seed(line: Line) -> list[float]:
    """The differences of a line, seed by seed."""
    differences: list[float] = []
    for entry in line["differences"].split():
        _, _, difference = entry.partition(":")
        differences.append(float(difference))
    return differences


def _drawn_values(line: Line) -> list[float]:
    """All that is drawn of a line."""
    others = [line[name] for name in ("gain", "low", "high", "published")]
    return _by_seed(line) + [value for value in others if _is_number(value)]


def _edge(lines: Sequence[Line]) -> float:
    """How far the axis may reach: twice what holds nine tenths of the lines."""
    if not lines:
        return 1.0
    farthest = sorted(max(abs(value) for value in _drawn_values(line)) for line in lines)
    return 2 * farthest[int(0.9 * (len(farthest) - 1))]


def _draw(axes: Axes, y: int, line: Line) -> None:
    """Seeds, interval and mean of a line, and what is published."""
    from contrastbook.figures.base import BLUE, ORANGE

    seeds = _by_seed(line)
    axes.plot(seeds, [y] * len(seeds), "|", color="0.3", markersize=9, zorder=2.5)
    axes.plot([line["low"], line["high"]], [y, y], color=BLUE, linewidth=2, zorder=2)
    filled = "none" if line["verdict"] == "open" else "full"
    axes.plot(line["gain"], y, "o", color=BLUE, fillstyle=filled, markersize=7, zorder=3)
    place = line["published"]
    marker = "D"
    if not _is_number(place):
        place = 0
        marker = ">" if line["claimed_sign"] > 0 else "<"
    axes.plot(place, y, marker, color=ORANGE, markerfacecolor="none", markersize=7, zorder=4)


def _number_beyond(axes: Axes, y: int, line: Line, edge: float) -> None:
    """Write the farthest values of a line that lie beyond the axis at its ends."""
    values = _drawn_values(line)
    for value in (min(values), max(values)):
        if abs(value) > edge:
            side = "left" if value < 0 else "right"
            axes.annotate(f"{value:+.0f}", (math.copysign(edge, value), y), ha=side)


def _tick(line: Line) -> str:
    from contrastbook.figures.base import raised

    claim = f"{table_of(line)}: {line['claim']}"
    where = f"{column_of(line)}, {line['profile']} [{line['used']}]"
    return f"{raised(escape.mathtext(claim))}\n{escape.mathtext(where)}"


def html(lines: pd.DataFrame) -> str:
    """The measured claims of :func:`frame` as a table for a page, all escaped; those not run are counted below."""
    shown = lines[lines["gain"].notna()].to_dict("records")
    texts = pd.DataFrame([_table_row(line) for line in shown])
    body = texts.to_html(classes="published-measured", border=0, index=False)
    return (
        f'<figure class="published-measured {escape.LITERAL}">'
        f"<figcaption>Claims with a run: {len(shown)} of {len(lines)} lines.</figcaption>"
        f'<div tabindex="0" role="region" aria-label="Claims with a run">{body}</div></figure>'
    )


def _table_row(line: Line) -> dict[str, str]:
    seeds = str(line["used"])
    if line["used"] != line["seeds"]:
        seeds = f"{line['used']} of {line['seeds']}"
    return {
        "verdict": sentence(line),
        "claim": escape.line(f"{table_of(line)}: {line['claim']}, {column_of(line)}"),
        "published": published(line),
        "measured (95 % interval)": measured(line),
        "seeds": seeds,
        "profile": line["profile"],
    }


def links(lines: pd.DataFrame) -> str:
    """The lines as files inside the page, and what the columns mean."""
    return f"{_link('claims.csv', lines)} · {_link('claims-columns.csv', dictionary())}"


def _link(name: str, content: pd.DataFrame) -> str:
    """A link that holds a frame as a CSV file."""
    text = base64.b64encode(content.to_csv(index=False).encode()).decode()
    return f'<a download="{name}" href="data:text/csv;base64,{text}">{name}</a>'


def dictionary() -> pd.DataFrame:
    """:data:`COLUMNS` as a frame."""
    return pd.DataFrame({"column": list(COLUMNS), "meaning": list(COLUMNS.values())})
