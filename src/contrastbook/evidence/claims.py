"""Every claim of a difference in the papers, published beside measured, with a verdict: a line each.

A claim is a row of a table, the row it is set against, and a column: *IRing − IR on CIFAR-10*. The rule by which
verdicts are reached is that of :mod:`contrastbook.evidence.inference`. The lines are a frame, for a page, a figure
(:func:`forest`), a CSV or a parquet file; :data:`COLUMNS` is its data dictionary.
"""

from __future__ import annotations

import base64
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from contrastbook.evidence import inference
from contrastlab import escape, papers, tasks
from contrastlab.errors import NotApplicableError, UnknownNameError, reject
from contrastlab.files import make_folder, write_whole
from contrastlab.papers import Column, TablePlan
from contrastlab.report.numbers import signed
from contrastlab.report.rows import RANDOM_LAB, Scores, rows_apart, scores
from contrastlab.results import Result, bits

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROFILES = ("paper", "laptop", "tuned", "pilot")
"""Profiles whose runs may speak of a claim. Beside ``paper``, those decide whose settings a search chose."""

COLUMNS = {
    "paper": "short name of the paper",
    "table": "its table, such as 1 or 5b",
    "column": "column of the table",
    "stands_for": "column of the paper that other data stand for here; empty: the paper's own data",
    "dataset": "data the encoders are trained on",
    "on": "data they are scored on; empty: the same",
    "metric": "name of the metric",
    "unit": "of all differences",
    "claim": "the two rows as the paper calls them, method − base",
    "method": "recipe of the method",
    "base": "recipe of the base",
    "published": "the paper's difference; NaN where it says which row is better and prints no number",
    "published_from": "printed: the paper prints the difference; derived: from two printed rows; words: its sign",
    "claimed_sign": "of the difference in the paper: 1, -1, or 0 where it claims none",
    "profile": "size and settings of the runs; empty: none is stored",
    "search": "recorded search on held-out training images that chose the settings; empty: none did",
    "verdict": "what may be said (evidence.inference.Verdict), or not run",
    "bound": "no difference larger than this; NaN for other verdicts",
    "seeds": "seeds that both rows have",
    "differences": "difference of each seed, as seed:difference with blanks between",
    "used": "seeds in the interval: those up to the look that ended the claim",
    "gain": "mean difference over these, seed by seed",
    "low": "lower end of the interval, which pays for three looks once eight seeds are there; 95 %",
    "high": "upper end",
    "p": "two-sided, of no difference, for all looks together; 1 before eight seeds",
    "p_holm": "the same for all claims of the table on this data set in this profile together, run or not",
    "low_8": "lower end of the plain 95 % t interval of the first eight seeds",
    "high_8": "upper end",
    "low_unpaired": "lower end of Welch's 95 % interval over all seeds of either row, which ignores the pairing",
    "high_unpaired": "upper end",
    "untrained": "mean of the table's untrained encoder; NaN where it was not run or is a row of the claim",
    "above_untrained": "whether a row of the claim is better than that; NaN where it is not known",
    "sd": "standard deviation over seeds of a run, both rows pooled",
    "item_flip_sd": "the part of it that independent flips of single test items explain",
    "discordant": "percent of the test items that only one of two runs of the same seed has right, mean over seeds",
    "mcnemar": "share of the seeds in which McNemar's test tells the two networks apart at 0.05",
    "precision": "that the method's encoders were trained in",
    "data_fingerprint": "hash of the data",
    "setup_method": "hash of recipe, settings and task of the method",
    "setup_base": "hash of recipe, settings and task of the base",
}
"""Data dictionary: name of a column of :func:`frame` to what it means."""


def frame(results: Sequence[Result], plans: Iterable[TablePlan] | None = None) -> pd.DataFrame:
    """The claims of all tables and figures that print a number for both rows, or the difference, or say its sign.

    Args:
        results: stored results of any table, such as ``results.find("results")``.
        plans: of the tables; all by default.

    Returns:
        A line for each claim and profile with results, and for a claim without any one that says so. Other data than
        the paper's have lines where there are results; they stand for a column of it. What two tables of a paper
        print of the same runs is one line. Columns: :data:`COLUMNS`.
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
    return every[every["table"] == first].reset_index(drop=True)


@dataclass(frozen=True)
class ClaimedDifference:
    """A row of a table set against another one in a column.

    Args:
        method: recipe of the row.
        base: recipe of the row it is set against.
        published: the paper's difference; NaN where it says which is better and prints no number.
        published_from: printed, derived or words.
        sign: of the difference in the paper; 0 where it claims none.
    """

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
        """The search that chose the settings of both rows; of two searches, both names."""
        names = [self.plan.search(self.column.data, row, profile) for row in (self.method, self.base)]
        return " and ".join(dict.fromkeys(names)) if all(names) else ""


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
            words = plan.claimed_sign(method, base)
            if published is not None:
                sign = _sign(plan, printed, method, base, published) if words is None else words
                yield ClaimedDifference(plan, name, column, method, base, published, source, sign)
            elif words is not None:
                yield ClaimedDifference(plan, name, column, method, base, math.nan, "words", words)


def _sign(plan: TablePlan, column: str, method: str, base: str, published: float) -> int:
    """Of a published difference; 0 where the numbers printed beside it say that it is none."""
    apart = rows_apart(plan, column, method, base)
    if apart is not None:
        spreads = [plan.published_sd(column, row) for row in (method, base)]
        within = all(spreads) and abs(published) < math.hypot(*(spread or 0.0 for spread in spreads))
        if published * apart < 0 or within:
            return 0
    return (published > 0) - (published < 0)


def _of_data(claims: Sequence[ClaimedDifference], here: Sequence[Result]) -> list[dict[str, Any]]:
    """The lines of one table on one data set; in each profile its claims share the chance of a wrong sign."""
    out: list[list[dict[str, Any]]] = [[] for _ in claims]
    for profile in PROFILES:
        rows = _Rows(profile, [r for r in here if r.profile == profile])
        if not rows.results:
            continue
        measured = [_measured(claim, rows) for claim in claims]
        adjusted = inference.holm([m["p"] if m else 1.0 for m in measured])
        for lines, claim, m, p in zip(out, claims, measured, adjusted, strict=True):
            if m is not None:
                verdict, bound = inference.verdict(m.pop("decision"), p, claim.published, claim.sign)
                search = claim.search(profile)
                if (not search and profile != "paper") or m["above_untrained"] is False:
                    verdict, bound = "open", None
                decided = {"profile": profile, "search": search, "p_holm": p, "verdict": verdict, "bound": bound}
                lines.append(claim.line() | m | decided)
    return [
        line
        for claim, lines in zip(claims, out, strict=True)
        for line in lines or ([] if claim.column.stands_for else [claim.line()])
    ]


class _Rows:
    """The rows of one table in one profile, each read once."""

    def __init__(self, profile: str, results: Sequence[Result]) -> None:
        self.profile, self.results = profile, results
        self._known: dict[tuple[str, str], Scores | None] = {}

    def __call__(self, claim: ClaimedDifference, row: str) -> Scores | None:
        key = (claim.name, row)
        if key not in self._known:
            self._known[key] = scores(claim.plan, claim.column, self.results, row, self.profile)
        return self._known[key]


def _measured(claim: ClaimedDifference, rows: _Rows) -> dict[str, Any] | None:
    """The values of :data:`COLUMNS` that runs decide, and under ``decision`` what was seen at which look.

    ``None`` where the two rows have no seed in common, or were run on different data.
    """
    high, low = (rows(claim, row) for row in (claim.method, claim.base))
    if high is None or low is None or high.data != low.data:
        return None
    common = sorted(high.by_seed.keys() & low.by_seed.keys())
    if not common:
        return None
    differences = [high.by_seed[seed] - low.by_seed[seed] for seed in common]
    decision = inference.decide(differences, claim.published)
    first = inference.LOOKS[0]
    eight = inference.paired(differences[:first]) if len(common) >= first else None
    arms = [list(row.by_seed.values()) for row in (high, low)]
    welch, at = inference.unpaired(arms[0], arms[1]), decision.difference
    free = sum(len(arm) - 1 for arm in arms)
    squares = sum(float(np.var(arm)) * len(arm) for arm in arms)
    return {
        "decision": decision, "seeds": len(common),
        "differences": " ".join(f"{seed}:{gain:.6g}" for seed, gain in zip(common, differences, strict=True)),
        "used": decision.seeds, "gain": at.mean, "p": decision.p,
        "low": _finite(at.low), "high": _finite(at.high),
        "low_8": eight and eight.low, "high_8": eight and eight.high,
        "low_unpaired": _finite(welch.low), "high_unpaired": _finite(welch.high),
        "sd": math.sqrt(squares / free) if free else None,
        **_item_statistics(high, low, common), "precision": high.precision, "data_fingerprint": high.data,
        **_above_untrained(claim, high, low, rows),
        "setup_method": claim.plan.setup(claim.column, claim.method, rows.profile),
        "setup_base": claim.plan.setup(claim.column, claim.base, rows.profile),
    }  # fmt: skip


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _item_statistics(high: Scores, low: Scores, common: Sequence[int]) -> dict[str, float | None]:
    """What the test items say that each run has right; nothing where an old result does not keep them."""
    right = [{seed: bits(text) for seed, text in arm.correct.items()} for arm in (high, low)]
    both = [seed for seed in common if all(seed in arm for arm in right)]
    tests = [inference.mcnemar(right[0][seed], right[1][seed]) for seed in both]
    flips = [inference.item_flip_sd(np.stack(list(arm.values()))) ** 2 for arm in right if len(arm) > 1]
    return {
        "item_flip_sd": math.sqrt(sum(flips) / len(flips)) if flips else None,
        "discordant": sum(t.discordant for t in tests) / len(tests) if tests else None,
        "mcnemar": sum(t.p <= inference.LEVEL for t in tests) / len(tests) if tests else None,
    }


def _above_untrained(
    claim: ClaimedDifference, high: Scores, low: Scores, rows: _Rows
) -> dict[str, float | bool | None]:
    """The untrained encoder that both rows are read against, and whether one of them is better."""
    two_streams = RANDOM_LAB in claim.plan.references and high.split and low.split
    name = RANDOM_LAB if two_streams else claim.plan.floor
    floor = None if name in (claim.method, claim.base) else rows(claim, name)
    if floor is None or high.data != floor.data:
        return {"untrained": None, "above_untrained": None}
    mean, sign = floor.estimate.mean, 1 if floor.metric.higher_is_better else -1
    return {"untrained": mean, "above_untrained": max(sign * (row.estimate.mean - mean) for row in (high, low)) > 0}


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
    """The verdict of one line in words, such as ``open (2 of 8 seeds)``."""
    verdict, unit = str(line["verdict"]), line["unit"]
    if verdict == "no difference larger than":
        return f"{verdict} {math.ceil(10 * line['bound']) / 10:.1f} {unit}"
    if verdict == "open" and line["profile"] == "pilot":
        return "open (settings picked on test accuracy)"
    if verdict == "open" and line["profile"] != "paper" and not line["search"]:
        return "open (settings not searched)"
    if verdict == "open" and line["above_untrained"] is False:
        return "open (neither row above an untrained encoder)"
    if verdict == "open" and line["seeds"] < inference.LOOKS[0]:
        return f"open ({line['seeds']} of {inference.LOOKS[0]} seeds)"
    return verdict


def published(line: Mapping[Any, Any]) -> str:
    """The paper's difference as printed, or in words which side of 0 it is on."""
    if pd.isna(line["published"]):
        return {1: "above 0, in words", -1: "below 0, in words", 0: "equal, in words"}[line["claimed_sign"]]
    return signed(line["published"], 1 if round(line["published"], 1) == line["published"] else 2, sign=True)


def forest(lines: pd.DataFrame) -> Figure:
    """Every measured claim: its gain with the interval, a tick for each seed, and the published gain as a diamond.

    Filled dots have a verdict, open dots have none yet; a dot without a bar has one seed. A triangle at 0 points where
    the paper says that the difference lies, without a number.

    ``lines``: of :func:`frame`; those without a measured gain are left out.
    """
    from contrastbook.figures.base import BLUE, ORANGE, subplots

    shown = lines[lines["gain"].notna()].to_dict("records")
    figure, axes = subplots(size=(10, 1.0 + 0.36 * max(len(shown), 1)))
    for y, line in enumerate(shown):
        each = [float(part.partition(":")[2]) for part in line["differences"].split()]
        axes.plot(each, [y] * len(each), "|", color="0.3", markersize=9, zorder=2.5)
        if pd.notna(line["low"]):
            axes.plot([line["low"], line["high"]], [y, y], color=BLUE, linewidth=2, zorder=2)
        face = "white" if line["verdict"] == "open" else BLUE
        axes.plot(line["gain"], y, "o", color=BLUE, markerfacecolor=face, markersize=7, zorder=3)
        side = ">" if line["claimed_sign"] > 0 else "<"
        place, marker = (line["published"], "D") if pd.notna(line["published"]) else (0, side)
        axes.plot(place, y, marker, color=ORANGE, markerfacecolor="none", markersize=7, zorder=4)
    axes.axvline(0, color="0.4", linestyle="--", linewidth=1, zorder=1)
    labels = [f"{table_of(x)}  {x['claim']}, {column_of(x)}, {x['profile']} [{x['used']}]" for x in shown]
    axes.set_yticks(range(len(shown)), map(escape.mathtext, labels), fontsize="small")
    axes.set_ylim(max(len(shown), 1) - 0.5, -0.5)
    units = ", ".join(sorted({line["unit"] for line in shown}))
    axes.set_xlabel(f"difference ({units})" if shown else "nothing has been run")
    key = "dot: measured, filled with a verdict   tick: a seed   diamond: published, triangle: its sign   [seeds]"
    figure.suptitle(key, x=0.01, ha="left", fontsize="small")
    axes.grid(axis="x", color="0.9")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    words = [f"{label}: {signed(line['gain'], sign=True)}" for label, line in zip(labels, shown, strict=True)]
    figure.set_label(f"Forest plot of measured beside published differences. {'; '.join(words) or 'Nothing run'}.")
    return figure


def html(lines: pd.DataFrame) -> str:
    """The measured claims of :func:`frame` as a table for a page, all escaped; those not run are counted below."""
    shown = lines[lines["gain"].notna()].to_dict("records")
    texts = pd.DataFrame(
        {
            "claim": escape.line(f"{table_of(line)}: {line['claim']}, {column_of(line)}"),
            "published": published(line),
            "measured": signed(line["gain"], sign=True),
            "95 % interval": _ends(line["low"], line["high"]),
            "after eight seeds": _ends(line["low_8"], line["high_8"]),
            "unpaired": _ends(line["low_unpaired"], line["high_unpaired"]),
            "seeds": f"{line['used']}" if line["used"] == line["seeds"] else f"{line['used']} of {line['seeds']}",
            "profile": line["profile"],
            "verdict": sentence(line),
        }
        for line in shown
    )
    body = texts.to_html(classes="published-measured", border=0, index=False)
    left = Counter(table_of(line) for line in lines[lines["verdict"] == "not run"].to_dict("records"))
    missing = "; ".join(f"{name}: {count}" for name, count in left.items())
    return (
        f'<figure class="published-measured {escape.LITERAL}">'
        f"<figcaption>Claims with a run: {len(shown)} lines.</figcaption>"
        f'<div tabindex="0" role="region" aria-label="Claims with a run">{body}</div></figure>'
        + (f"<p>Not run, by table: {escape.html(missing)}.</p>" if missing else "")
    )


def _ends(low: float | None, high: float | None) -> str:
    return "–" if low is None or pd.isna(low) else f"{signed(low, sign=True)} to {signed(float(high or 0), sign=True)}"


def links(lines: pd.DataFrame) -> str:
    """The lines as files inside the page, for others to load: CSV, parquet, and what the columns mean."""
    meanings = dictionary().to_csv(index=False).encode()
    files = {
        "claims.csv": ("text/csv", lines.to_csv(index=False).encode()),
        "claims.parquet": ("application/vnd.apache.parquet", lines.to_parquet(index=False)),
        "claims-columns.csv": ("text/csv", meanings),
    }
    return " · ".join(
        f'<a download="{name}" href="data:{kind};base64,{base64.b64encode(content).decode()}">{name}</a>'
        for name, (kind, content) in files.items()
    )


def dictionary() -> pd.DataFrame:
    """:data:`COLUMNS` as a frame."""
    return pd.DataFrame({"column": list(COLUMNS), "meaning": list(COLUMNS.values())})


def check_path(path: Path | str) -> Path:
    """Where lines can be stored: its folder is made, before they are computed.

    Raises:
        StorageError: the folder cannot be made.
    """
    path = Path(path)
    if path.suffix not in (".csv", ".parquet"):
        raise reject("path", str(path), "a file that ends in .csv or .parquet")
    make_folder(path.parent)
    return path


def write(lines: pd.DataFrame, path: Path | str) -> tuple[Path, Path]:
    """Store lines for others to load, and the data dictionary beside them.

    ``lines``: of :func:`frame`. ``path``: ends in ``.csv`` or ``.parquet``. Returns the file, and
    ``<name>-columns.csv`` with the meaning of every column.

    Raises:
        StorageError: a file cannot be written.
    """
    path = check_path(path)
    text = lines.to_csv(index=False)
    write_whole(path, text if path.suffix == ".csv" else lines.to_parquet(index=False))
    return path, write_whole(path.with_name(f"{path.stem}-columns.csv"), dictionary().to_csv(index=False))
