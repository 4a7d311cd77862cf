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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import pandas as pd

from contrastbook.evidence import inference, searches
from contrastlab import papers, tasks
from contrastlab.papers import Column, TablePlan
from contrastlab.support import escape, shipped
from contrastlab.support.errors import NotApplicableError, UnknownNameError
from contrastlab.tables.numbers import signed
from contrastlab.tables.results import Result
from contrastlab.tables.rows import RANDOM_LAB, Scores, scores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Read = Callable[[str, str], Scores | None]  # column and recipe to what is stored of it in one profile
PROFILES = ("paper", "laptop", "tuned", "regime", "fair")
"""Profiles whose runs may speak of a claim. Beside ``paper``, those decide whose settings a search chose."""

_TOML = tomllib.loads(resources.files("contrastbook.evidence").joinpath("claims.toml").read_text("utf-8"))
COLUMNS: Mapping[str, str] = _TOML["columns"]
"""Data dictionary: name of a column of :func:`frame` to what it means."""
STAND_INS: Mapping[str, str] = _TOML["stand_ins"]
"""Data that may stand in for a paper's, and why."""


def frame(results: Sequence[Result], plans: Iterable[TablePlan] | None = None) -> pd.DataFrame:
    """The claims of all tables, or of ``plans``, for which a number or a sign is published; columns: :data:`COLUMNS`.

    A line for each claim and profile with results, and for a claim without any one that says so. Other data than the
    paper's have lines where there are results. What two tables of a paper publish of the same runs is one line.
    """
    lines = []
    for plan in [papers.plan(*name) for name in papers.plans()] if plans is None else plans:
        by_data: dict[str, list[ClaimedDifference]] = {}
        for claim in _claimed(plan, results):
            by_data.setdefault(claim.column.data, []).append(claim)
        for dataset, claims in by_data.items():
            lines += _of_data(claims, [r for r in results if r.dataset == dataset])
    every = pd.DataFrame(lines, columns=list(COLUMNS))
    same = ["paper", "dataset", "on", "metric", "method", "base", "published", "profile", "setup_method", "setup_base"]
    first = every.groupby(same, dropna=False)["table"].transform("first")
    return _priced(every[every["table"] == first].reset_index(drop=True))


def _priced(lines: pd.DataFrame) -> pd.DataFrame:
    """With seeds and core-hours that would decide what is open, if the difference has the published size.

    The spread is the line's from four seeds on, else the median of its table, as is the cost; ``inf``: no look suffices
    (:func:`inference.detectable`), or nothing was run on its data or in its table.
    """
    spread = lines["sd"].where(lines["seeds"] >= 4)
    table = [lines["paper"], lines["table"]]
    sd, cost = (column.fillna(column.groupby(table).transform("median")) for column in (spread, lines["core_hours"]))
    at_hand = lines["dataset"].isin(lines.loc[lines["gain"].notna(), "dataset"]) & sd.notna() & cost.notna()
    at_hand &= lines["dataset"].isin(STAND_INS) | (lines["stands_for"] == "")
    limit = lines["published"].abs().where(lines["claimed_sign"] != 0).fillna(inference.MARGIN)
    needed = [
        next((float(n) for n in inference.LOOKS if has and inference.detectable(one, n) <= least), math.inf)
        for has, one, least in zip(at_hand, sd, limit, strict=True)
    ]
    have = lines["seeds"].where(lines["search"] != "", 0)  # where the settings were not searched, all seeds anew
    left = (pd.Series(needed) - have).clip(lower=4).mask(have >= inference.LOOKS[-1], math.inf)
    undecided = lines["verdict"].isin(("open", "not run"))
    return lines.assign(
        seeds_needed=(have + left).where(undecided), core_hours=(left * cost.fillna(1)).where(undecided)
    )


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
        plan, metric = self.plan, tasks.metric(self.column.metric)
        return {
            "paper": plan.paper, "table": plan.table, "column": self.name, "stands_for": self.column.stands_for,
            "dataset": self.column.data, "on": self.column.on, "metric": metric.name, "unit": metric.gap,
            "claim": f"{plan.label(self.method)} − {plan.label(self.base)}", "method": self.method, "base": self.base,
            "published": self.published, "published_from": self.published_from, "claimed_sign": self.sign,
            "profile": "", "search": "", "verdict": "not run", "seeds": 0, "used": 0, "differences": "",
        }  # fmt: skip

    def search(self, profile: str) -> str:
        """The search that both rows were in and that chose their settings; of two searches, both names."""
        rows = [row for row in (self.method, self.base) if row not in (self.plan.floor, RANDOM_LAB)]
        names = {row: self.plan.search(self.column.data, row, profile) for row in rows}
        took_part = all(name and row in _rows_of(name) for row, name in names.items())
        return " and ".join(dict.fromkeys(names.values())) if took_part else ""

    @property
    def stands_in(self) -> bool:
        """Whether its data are the paper's, or may stand in for them."""
        return not self.column.stands_for or {self.column.data, self.column.on or self.column.data} <= STAND_INS.keys()


@cache
def _rows_of(search: str) -> tuple[str, ...]:
    return tuple(searches.read(shipped.folder("results") / f"searches/{search}.json").get("rows", ()))


def _claimed(plan: TablePlan, results: Sequence[Result]) -> Iterator[ClaimedDifference]:
    """The claims of a table: those that its own data can decide, then those that stored results on other data can."""
    columns = list(plan.columns.items())
    for dataset in sorted({r.dataset for r in results} - set(plan.datasets)) if columns else ():
        # results on a folder that only another machine has are of no registered kind
        with suppress(NotApplicableError, UnknownNameError):
            for name, column in plan.select(dataset).items():
                to = "" if name.startswith(dataset) else f"{dataset} to " if column.on else f"{dataset} "
                columns.append((to + name, column))
    for name, column in columns:
        printed = column.stands_for or name
        for method, base in plan.comparisons:
            published, source = plan.published_difference(printed, method, base)
            sign = plan.claimed_sign(method, base)
            if published is None and sign is None:
                continue
            if published is None:
                published, source = math.nan, "words"
            if sign is None:
                sign = _sign(plan, printed, method, base, published)
            yield ClaimedDifference(plan, name, column, method, base, published, source, sign)


def _sign(plan: TablePlan, column: str, method: str, base: str, published: float) -> int:
    """Of a published difference; 0 where the numbers printed beside it say that it is none."""
    apart = plan.rows_apart(column, method, base)
    if apart is not None:
        spreads = [plan.published_sd(column, row) for row in (method, base)]
        within = all(spreads) and abs(published) < math.hypot(*(spread or 0.0 for spread in spreads))
        if published * apart < 0 or within:
            return 0
    return (published > 0) - (published < 0)


def _of_data(claims: Sequence[ClaimedDifference], here: Sequence[Result]) -> list[dict[str, Any]]:
    """The lines of one table on one data set."""
    profiles = [_in_profile(claims, [r for r in here if r.profile == profile], profile) for profile in PROFILES]
    lines = []
    for claim, *each in zip(claims, *profiles, strict=True):
        known = [line for line in each if line is not None]
        lines += known or ([] if claim.column.stands_for else [claim.line()])
    return lines


def _in_profile(
    claims: Sequence[ClaimedDifference], results: Sequence[Result], profile: str
) -> list[dict[str, Any] | None]:
    """A line of each claim, if it was measured; they share the chance of a wrong sign."""
    plan = claims[0].plan
    if not results or profile not in plan.profiles:
        return [None] * len(claims)
    columns = {claim.name: claim.column for claim in claims}

    @cache
    def read(column: str, row: str) -> Scores | None:
        return scores(plan, columns[column], results, row, profile)

    measured = [_measured(claim, read, profile) for claim in claims]
    looks = [m.pop("looks") if m else [inference.NOT_RUN] for m in measured]
    decisions = inference.decide([(each, claim.sign) for each, claim in zip(looks, claims, strict=True)])
    lines: list[dict[str, Any] | None] = []
    for claim, m, end in zip(claims, measured, decisions, strict=True):
        if m is not None:
            search, at = claim.search(profile), end.at
            counts = (search or profile == "paper") and m["above_untrained"] is not False and claim.stands_in
            m |= {
                "profile": profile, "search": search, "p_holm": end.p_holm, "used": at.seeds, "p": at.p,
                "gain": at.difference.mean, "low": _finite(at.difference.low), "high": _finite(at.difference.high),
                "verdict": end.verdict if counts else "open", "bound": end.bound if counts else None,
            }  # fmt: skip
        lines.append(m and claim.line() | m)
    return lines


def _measured(claim: ClaimedDifference, read: Read, profile: str) -> dict[str, Any] | None:
    """Values of :data:`COLUMNS` that runs decide, and the ``looks``; ``None`` without a common seed and data."""
    high, low = (read(claim.name, row) for row in (claim.method, claim.base))
    if high is None or low is None or high.data != low.data:
        return None
    common = sorted(high.by_seed.keys() & low.by_seed.keys())
    if not common:
        return None
    differences = [high.by_seed[seed] - low.by_seed[seed] for seed in common]
    return {
        "looks": inference.look(differences, claim.published, claim.sign), "seeds": len(common),
        "differences": " ".join(f"{seed}:{gain:.6g}" for seed, gain in zip(common, differences, strict=True)),
        "sd": statistics.stdev(differences) if len(common) > 1 else None,
        "core_hours": (high.core_seconds + low.core_seconds) / 3600,
        "precision": high.precision, "data_fingerprint": high.data,
        **_above_untrained(claim, high, low, read),
        "setup_method": claim.plan.setup(claim.column, claim.method, profile),
        "setup_base": claim.plan.setup(claim.column, claim.base, profile),
    }  # fmt: skip


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _above_untrained(claim: ClaimedDifference, high: Scores, low: Scores, read: Read) -> dict[str, float | None]:
    """The untrained encoder that both rows are read against, and whether both are better by more than the intervals."""
    two_streams = RANDOM_LAB in claim.plan.references and high.split and low.split
    name = RANDOM_LAB if two_streams else claim.plan.floor
    floor = None if name in (claim.method, claim.base) else read(claim.name, name)
    if floor is None or high.data != floor.data:
        return {"untrained": None, "above_untrained": None}
    level, sign = floor.estimate, 1 if floor.metric.higher_is_better else -1
    above = [sign * (row.estimate.mean - level.mean) > math.hypot(_half(row), _half(floor)) for row in (high, low)]
    return {"untrained": level.mean, "above_untrained": all(above)}


def _half(row: Scores) -> float:
    """95 % half-width over seeds; of one seed, that of the test items."""
    return row.sampling or 0.0 if row.estimate.half_width is None else row.estimate.half_width


def column_of(line: Mapping[Any, Any]) -> str:
    """The column, and for other data the printed column whose gain is beside it."""
    if not line["stands_for"]:
        return str(line["column"])
    # a column that differs in settings alone has the name of that of the paper
    name = str(line["column"]).removesuffix(f" {line['stands_for']}")
    return f"{name} for {line['stands_for']}"


def table_of(line: Mapping[Any, Any]) -> str:
    """``ring 1``, ``cmc Figure 4``."""
    return f"{line['paper']} {str(line['table']).replace('figure', 'Figure ')}"


def sentence(line: Mapping[Any, Any]) -> str:
    """The verdict of one line in words, such as ``open (2 of 8 seeds)`` or ``same sign, on rooms``."""
    verdict = str(line["verdict"])
    on = f", on {line['on'] or line['dataset']}" if line["stands_for"] else ""
    if pd.notna(line["bound"]):
        most = f"at most {math.ceil(10 * line['bound']) / 10:.1f} {line['unit']} either way{on}"
        if line["claimed_sign"] == 0:
            return f"{verdict}: {most}"
        kind = "gain" if line["claimed_sign"] > 0 else "loss"
        scale = "" if line["profile"] == "paper" else " at this scale"
        return f"no {kind} of the published size{scale}: {most}"
    if verdict != "open":
        return verdict + on
    data = {line["dataset"], line["on"] or line["dataset"]} - STAND_INS.keys() if line["stands_for"] else ()
    reasons = {
        f"{' and '.join(sorted(data))} cannot stand in": bool(data),
        "settings not searched for both rows": line["profile"] != "paper" and not line["search"],
        "a row is not above an untrained encoder": line["above_untrained"] is False,
        f"{line['seeds']} of {inference.LOOKS[0]} seeds": line["seeds"] < inference.LOOKS[0],
    }
    return next((f"open ({reason})" for reason, holds in reasons.items() if holds), verdict)


def published(line: Mapping[Any, Any]) -> str:
    """The paper's difference as printed, or in words which side of 0 it is on."""
    if pd.isna(line["published"]):
        return {1: "above 0, in words", -1: "below 0, in words", 0: "equal, in words"}[line["claimed_sign"]]
    return signed(line["published"], 1 if round(line["published"], 1) == line["published"] else 2, sign=True)


def measured(line: Mapping[Any, Any]) -> str:
    """The gain and its interval, such as ``−0.41 (−1.71 to +0.89)``; of one seed the gain."""
    gain, *ends = (signed(line[name], sign=True) for name in ("gain", "low", "high") if pd.notna(line[name]))
    return f"{gain} ({' to '.join(ends)})" if ends else gain


def forest(lines: pd.DataFrame) -> Figure:
    """The measured claims of :func:`frame`, sorted, explained by a key.

    The axis holds all that is drawn of nine tenths of the lines, and as much again. A number at an edge is the farthest
    value of a line that reaches beyond it.
    """
    from contrastbook.figures.base import BLUE, ORANGE, dress, subplots

    shown = lines[lines["gain"].notna()].sort_values("gain", kind="stable", ascending=False).to_dict("records")
    figure, axes = subplots(size=(8, 1.2 + 0.38 * max(len(shown), 1)))
    seeds = [[float(part.partition(":")[2]) for part in line["differences"].split()] for line in shown]
    drawn = [
        [*each, *(line[name] for name in ("gain", "low", "high", "published") if pd.notna(line[name]))]
        for each, line in zip(seeds, shown, strict=True)
    ]
    far = sorted(max(map(abs, values)) for values in drawn)
    edge = 2 * far[int(0.9 * (len(far) - 1))] if far else 1.0
    for y, (line, each, values) in enumerate(zip(shown, seeds, drawn, strict=True)):
        axes.plot(each, [y] * len(each), "|", color="0.3", markersize=9, zorder=2.5)
        axes.plot([line["low"], line["high"]], [y, y], color=BLUE, linewidth=2, zorder=2)
        filled = "none" if line["verdict"] == "open" else "full"
        axes.plot(line["gain"], y, "o", color=BLUE, fillstyle=filled, markersize=7, zorder=3)
        place, marker = (line["published"], "D") if pd.notna(line["published"]) else (0, "<>"[line["claimed_sign"] > 0])
        axes.plot(place, y, marker, color=ORANGE, markerfacecolor="none", markersize=7, zorder=4)
        for beyond in (end for end in (min(values), max(values)) if abs(end) > edge):
            axes.annotate(f"{beyond:+.0f}", (math.copysign(edge, beyond), y), ha="left" if beyond < 0 else "right")
    axes.set_xlim(*(max(-edge, min(edge, end)) for end in axes.get_xlim()))
    axes.axvline(0, color="0.4", ls="--", lw=1, zorder=1)
    labels = [(f"{table_of(x)}: {x['claim']}", f"{column_of(x)}, {x['profile']} [{x['used']}]") for x in shown]
    axes.set_yticks(range(len(shown)), ["\n".join(map(escape.mathtext, each)) for each in labels], fontsize="small")
    axes.set_ylim(max(len(shown), 1) - 0.5, -0.5)
    dress(axes, f"difference ({', '.join(sorted({line['unit'] for line in shown})) or 'nothing has been run'})", "")
    key = "dot: measured, filled with a verdict   tick: a seed   diamond: published, triangle: its sign   [seeds]"
    figure.suptitle(f"{key}\nOutside profile paper, sizes may not be compared.", x=0.01, ha="left", fontsize="small")
    axes.grid(axis="x", color="0.9")
    axes.tick_params(axis="y", length=0)
    counts = "; ".join(f"{verdict}: {count}" for verdict, count in lines["verdict"].value_counts().items())
    figure.set_label(f"Forest plot of measured beside published differences. Verdicts: {counts}.")
    return figure


def html(lines: pd.DataFrame) -> str:
    """The measured claims of :func:`frame` as a table for a page, all escaped; those not run are counted below."""
    shown = lines[lines["gain"].notna()].to_dict("records")
    texts = pd.DataFrame(
        {
            "verdict": sentence(line),
            "claim": escape.line(f"{table_of(line)}: {line['claim']}, {column_of(line)}"),
            "published": published(line),
            "measured (95 % interval)": measured(line),
            "seeds": f"{line['used']}" if line["used"] == line["seeds"] else f"{line['used']} of {line['seeds']}",
            "profile": line["profile"],
        }
        for line in shown
    )
    body = texts.to_html(classes="published-measured", border=0, index=False)
    return (
        f'<figure class="published-measured {escape.LITERAL}">'
        f"<figcaption>Claims with a run: {len(shown)} of {len(lines)} lines.</figcaption>"
        f'<div tabindex="0" role="region" aria-label="Claims with a run">{body}</div></figure>'
    )


def links(lines: pd.DataFrame) -> str:
    """The lines as files inside the page, and what the columns mean."""
    files = {"claims.csv": lines, "claims-columns.csv": dictionary()}
    texts = {name: base64.b64encode(each.to_csv(index=False).encode()).decode() for name, each in files.items()}
    return " · ".join(f'<a download="{n}" href="data:text/csv;base64,{text}">{n}</a>' for n, text in texts.items())


def dictionary() -> pd.DataFrame:
    """:data:`COLUMNS` as a frame."""
    return pd.DataFrame({"column": list(COLUMNS), "meaning": list(COLUMNS.values())})
