"""Every claim of a difference in the papers, published beside measured, with a verdict: a line each.

A claim is a row of a table, the row it is set against, and a column: *IRing − IR on CIFAR-10*. The rule by which
verdicts are reached is that of :mod:`contrastbook.evidence.inference`. The lines are a frame, for a page, a figure
(:func:`forest`), a CSV or a parquet file; :data:`COLUMNS` is its data dictionary.
"""

from __future__ import annotations

import base64
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from contrastbook.evidence import inference, pairs
from contrastbook.evidence.claimed import Claim, claimed
from contrastlab import escape, papers
from contrastlab.errors import reject
from contrastlab.files import make_folder, write_whole
from contrastlab.papers import TablePlan
from contrastlab.report.numbers import signed
from contrastlab.report.rows import RANDOM_LAB, Scores, scores
from contrastlab.results import Result

__all__ = [
    "COLUMNS", "PROFILES", "column_of", "dictionary", "forest", "frame", "html", "links", "published", "sentence",
    "table_of", "write",
]  # fmt: skip

PROFILES = ("paper", "laptop", "tuned", "pilot")
"""Profiles whose runs may speak of a claim. Beside ``paper``, those decide whose settings a search chose."""

COLUMNS: Mapping[str, str] = MappingProxyType(
    {
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
        "sd_wobble": "the part of it that independent flips of single test items explain",
        "discordant": "percent of the test items that only one of two runs of the same seed has right, mean over seeds",
        "mcnemar": "share of the seeds in which McNemar's test tells the two networks apart at 0.05",
        "precision": "that the method's encoders were trained in",
        "data_fingerprint": "hash of the data",
        "setup_method": "hash of recipe, settings and task of the method",
        "setup_base": "hash of recipe, settings and task of the base",
    }
)
"""Data dictionary: name of a column of :func:`frame` to what it means."""


def frame(results: Sequence[Result], plans: Iterable[TablePlan] | None = None) -> pd.DataFrame:
    """The claims of all tables and figures that print a number for both rows, or the difference, or say its sign.

    ``results``: stored results of any table, such as ``results.find("results")``. ``plans``: of the tables; all by
    default.

    Returns:
        A line for each claim and profile with results, and for a claim without any one that says so. Other data than
        the paper's have lines where there are results; they stand for a column of it. What two tables of a paper
        print of the same runs is one line. Columns: :data:`COLUMNS`.
    """
    lines = []
    for plan in [papers.plan(*name) for name in papers.plans()] if plans is None else plans:
        by_data: dict[str, list[Claim]] = {}
        for claim in claimed(plan, results):
            by_data.setdefault(claim.column.data, []).append(claim)
        for dataset, made in by_data.items():
            lines += _of_data(made, [r for r in results if r.dataset == dataset])
    every = pd.DataFrame(lines, columns=list(COLUMNS))
    first = every.groupby([*_SAME, "setup_method", "setup_base"], dropna=False)["table"].transform("first")
    return every[every["table"] == first].reset_index(drop=True)


_SAME = ["paper", "dataset", "on", "metric", "method", "base", "published", "profile"]
"""Columns in which lines of two tables agree that print the same difference."""


def _of_data(made: Sequence[Claim], here: Sequence[Result]) -> list[dict[str, Any]]:
    """The lines of one table on one data set; in each profile its claims share the chance of a wrong sign."""
    out: list[list[dict[str, Any]]] = [[] for _ in made]
    for profile in PROFILES:
        mine = [r for r in here if r.profile == profile]
        if not mine:
            continue
        measured = [_measured(claim, mine, profile) for claim in made]
        adjusted = inference.holm([m["p"] if m else 1.0 for m in measured])
        for lines, claim, m, p in zip(out, made, measured, adjusted, strict=True):
            if m is not None:
                verdict, bound = inference.verdict(m.pop("decision"), p, claim.published, claim.sign)
                search = claim.search(profile)
                if (not search and profile != "paper") or m["above_untrained"] is False:
                    verdict, bound = "open", None
                said = {"profile": profile, "search": search, "p_holm": p, "verdict": verdict, "bound": bound}
                lines.append(claim.line() | m | said)
    return [
        line
        for claim, lines in zip(made, out, strict=True)
        for line in lines or ([] if claim.column.stands_for else [claim.line()])
    ]


def _measured(claim: Claim, mine: Sequence[Result], profile: str) -> dict[str, Any] | None:
    plan, column = claim.plan, claim.column
    rows = [scores(plan, column, mine, row, profile) for row in (claim.method, claim.base)]
    measured = pairs.measured(rows[0], rows[1], claim.published)
    return measured and measured | _floor(claim, rows, mine, profile) | {
        "setup_method": plan.setup(column, claim.method, profile),
        "setup_base": plan.setup(column, claim.base, profile),
    }


def _floor(
    claim: Claim, rows: Sequence[Scores | None], mine: Sequence[Result], profile: str
) -> dict[str, float | bool | None]:
    """The untrained encoder that both rows are read against, and whether one of them is better."""
    plan = claim.plan
    two = RANDOM_LAB in plan.references and all(row is not None and row.split for row in rows)
    name = RANDOM_LAB if two else plan.floor
    floor = None if name in (claim.method, claim.base) else scores(plan, claim.column, mine, name, profile)
    if floor is None or any(row is None or row.data != floor.data for row in rows):
        return {"untrained": None, "above_untrained": None}
    way = 1 if floor.metric.higher_is_better else -1
    gaps = [way * (row.estimate.mean - floor.estimate.mean) for row in rows if row is not None]
    return {"untrained": floor.estimate.mean, "above_untrained": max(gaps) > 0}


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


def _side(line: Mapping[Any, Any]) -> str:
    """The marker that points where the claimed difference lies."""
    return ">" if line["claimed_sign"] > 0 else "<"


def forest(lines: pd.DataFrame) -> Figure:
    """Every measured claim: its gain with the interval, a tick for each seed, and the published gain as a diamond.

    Filled dots have a verdict, open dots have none yet; a dot without a bar has one seed. A triangle at 0 points where
    the paper says that the difference lies, without a number.

    ``lines``: of :func:`frame`; those without a measured gain are left out.
    """
    shown = lines[lines["gain"].notna()].to_dict("records")
    figure, axes = plt.subplots(figsize=(10, 1.0 + 0.36 * max(len(shown), 1)), layout="constrained")
    plt.close(figure)  # out of pyplot's hands: shown once, by whoever asked for it
    for y, line in enumerate(shown):
        each = [float(part.partition(":")[2]) for part in line["differences"].split()]
        axes.plot(each, [y] * len(each), "|", color="0.3", markersize=9, zorder=2.5)
        if pd.notna(line["low"]):
            axes.plot([line["low"], line["high"]], [y, y], color="#0072B2", linewidth=2, zorder=2)
        face = "white" if line["verdict"] == "open" else "#0072B2"
        axes.plot(line["gain"], y, "o", color="#0072B2", markerfacecolor=face, markersize=7, zorder=3)
        said, marker = (line["published"], "D") if pd.notna(line["published"]) else (0, _side(line))
        axes.plot(said, y, marker, color="#D55E00", markerfacecolor="none", markersize=7, zorder=4)
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
    """The measured claims as a table for a page; everything escaped.

    ``lines``: of :func:`frame`; those that were not run are counted below it, by table.
    """
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
