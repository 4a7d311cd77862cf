"""What the book shows of the papers' tables, from ``results/``: pictures, what came of a table, and all that is stored.

:func:`show` is the page of a paper; :func:`opening` stands above the notebook of a table (``_ext/openings.py``), and
:func:`findings` and :func:`matrix` on the page of results. Here is their HTML; pictures are drawn by
:mod:`contrastbook.figures`, and sentences are those of :mod:`contrastbook.evidence.outcomes`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from PIL import Image

from contrastbook.evidence import claims, curves, headlines, outcomes
from contrastbook.evidence.outcomes import OPEN
from contrastbook.figures import answers, dot_plots
from contrastbook.figures.answers import Answer
from contrastbook.figures.results import learning_curves
from contrastbook.studies import Study, crosses, fmicl_tables, read, vince_figure6, vince_table3
from contrastlab import data, papers
from contrastlab.papers import Entry, TablePlan
from contrastlab.support import escape
from contrastlab.tables import report, results
from contrastlab.tables.report import Report
from contrastlab.tables.results import Result

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
NAMES = {"vince": "VINCE", "ring": "Rings", "jcl": "JCL", "cmc": "CMC", "fmicl": "f-MICL"}
"""What the book calls a paper."""


@cache
def kept() -> tuple[Result, ...]:
    """All results that the project keeps."""
    return tuple(results.find(RESULTS))


@cache
def claims_on_kept(paper: str) -> pd.DataFrame:
    """The claims of a paper's tables with what :func:`kept` says of them."""
    return claims_of(paper, kept())


def claims_of(paper: str, stored: Sequence[Result]) -> pd.DataFrame:
    """The claims of a paper's tables with what is stored of them."""
    plans = [papers.plan(*names) for names in papers.plans() if names[0] == paper]
    return claims.frame(stored, plans)


# Pieces of a page -----------------------------------------------------------------------------------------------------


def light(page: str, colours: int = 48) -> str:
    """A page whose charts have few colours, which is a third of their weight."""

    def with_few_colours(found: re.Match[str]) -> str:
        picture = Image.open(BytesIO(base64.b64decode(found[1]))).convert("RGB")
        buffer = BytesIO()
        picture.quantize(colours, dither=Image.Dither.NONE).save(buffer, "png", optimize=True)
        return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"

    return re.sub(r"data:image/png;base64,([A-Za-z0-9+/=]+)", with_few_colours, page)


def list_items(items: Iterable[str]) -> str:
    """The items of a list, which are HTML."""
    return "".join(f"<li>{item}</li>" for item in items)


def list_of_sentences(sentences: Iterable[str]) -> str:
    """Sentences as a list."""
    items = list_items(map(escape.html, sentences))
    return f'<ul class="{escape.LITERAL}">{items}</ul>'


def folded(summary: str, body: str) -> str:
    """HTML behind a line that opens it."""
    return f"<details><summary>{summary}</summary>{body}</details>"


def chip(verdict: str, text: str) -> str:
    """A verdict in its colour."""
    kind = re.sub("[^a-z]+", "-", verdict)
    return f'<b class="verdict {kind}">{escape.html(text)}</b>'


def chips(lines: pd.DataFrame) -> str:
    """How many claims have which verdict, each in its colour; ``lines``: of :func:`claims_of`."""
    counts = outcomes.verdict_counts(lines)
    return " ".join(chip(verdict, f"{count} {verdict}") for verdict, count in counts.items())


def link_to(notebook: str, text: str) -> str:
    """A link to the page of a notebook."""
    page = notebook.removesuffix(".ipynb")
    return f'<a href="../{escape.html(page)}.html">{escape.html(text)}</a>'


# Pictures -------------------------------------------------------------------------------------------------------------


def table_picture(entry: Entry, stored: Sequence[Result], lines: pd.DataFrame) -> str:
    """A table's rows as its best evidence has them, the paper's claim, and what came of it; empty if nothing was run.

    ``lines``: of :func:`claims_of`.
    """
    runs = report.best_first(report.evidence(entry, stored))
    if not runs:
        return ""
    best = runs[0]
    plan = papers.plan(entry.paper, entry.table)
    of_run = [result for result in stored if (result.dataset, result.profile) == (best.dataset, best.profile)]
    reports = report.columns(plan, of_run, best.dataset, best.profile)
    outcome = outcomes.of_table(entry, best, reports, lines)
    picture = light(report.image(dot_plots.of_rows(reports)))
    claim = f"{escape.html(plan.claim)} {escape.html(outcomes.what_was_run(best))}"
    html = (
        f'{picture}<p class="{escape.LITERAL}"><em>The paper’s claim.</em> {claim}</p>'
        f'<p class="{escape.LITERAL}"><strong>{escape.html(outcome.head)}</strong></p>'
    )
    if outcome.verdicts:
        html += list_of_sentences(outcome.verdicts)
    return html


def stored_information() -> list[Study]:
    """What is stored of the information that colour spaces and patches share."""
    return [read(path) for path in (RESULTS / "cmc_figure5").glob("*.json")]


Drawing = Callable[[], Answer]
WITHOUT_A_TABLE: Mapping[str, Drawing] = {
    "nbs/crosses.ipynb": lambda: answers.combinations(crosses.grid()),
    "nbs/repro_cmc_figure5.ipynb": lambda: answers.shared_information(stored_information()),
    "nbs/repro_cmc_architectures.ipynb": answers.scene_network,
    "nbs/repro_fmicl_table7.ipynb": lambda: answers.fmicl_settings(fmicl_tables.table()),
    "nbs/repro_ring_table5.ipynb": lambda: answers.ring_epochs(kept()),
}
"""Pictures of notebooks for which no table of encoders is stored."""
OF_STUDIES: Mapping[str, Drawing] = {
    "nbs/repro_vince_table3.ipynb": lambda: answers.hard_negatives(vince_table3.stored("paper", [RESULTS])),
    "nbs/repro_vince_figure6.ipynb": lambda: answers.noisy_spirals(vince_figure6.stored("paper", [RESULTS])),
}
"""Pictures of notebooks that open with studies of their own, for the page of the paper."""


def other_picture(notebook: str, drawings: Mapping[str, Drawing]) -> str:
    """The picture that ``drawings`` has of a notebook, with its answer and how to read it; empty where it has none."""
    if notebook not in drawings:
        return ""
    answer = drawings[notebook]()
    words = f"<strong>{escape.html(answer.sentence)}</strong> {escape.html(answer.note)}"
    return f'{light(report.image(answer.figure))}<p class="{escape.LITERAL}">{words}</p>'


def opening(notebook: str) -> str:
    """What stands above a notebook: the picture of each of its tables that was measured, or one of its own."""
    pictures = ""
    for entry in papers.catalogue():
        if entry.notebook == notebook:
            pictures += table_picture(entry, kept(), claims_on_kept(entry.paper))
    return pictures or other_picture(notebook, WITHOUT_A_TABLE)


# The page of a paper --------------------------------------------------------------------------------------------------


class StoredTable(NamedTuple):
    """What is stored for a table on one data set in one profile."""

    reports: tuple[Report, ...]  # one for each column
    results: list[Result]
    rows: int  # of the table that have a number


def stored_tables(plan: TablePlan, stored: Sequence[Result]) -> Iterator[StoredTable]:
    """What is stored for a table, whichever table it was first run for, by data set and profile."""
    by_run: dict[tuple[str, str], list[Result]] = {}
    for result in stored:
        by_run.setdefault((result.dataset, result.profile), []).append(result)
    for (dataset, profile), of_run in sorted(by_run.items(), key=lambda run: run[0]):
        if data.modality_of(dataset) not in plan.modalities:
            continue
        tasks = {column.task for column in plan.select(dataset).values()}
        of_tasks = [result for result in of_run if result.task in tasks]
        reports = report.columns(plan, of_tasks, dataset, profile)
        measured = {row.method for each in reports for row in each.rows if row.measured}
        rows = measured.intersection(plan.rows)
        if rows:
            of_rows = [result for result in of_tasks if result.method in measured]
            yield StoredTable(reports, of_rows, len(rows))


def is_worth_showing(entry: Entry, table: StoredTable, rows: int) -> bool:
    """Whether a table was run, or has half of its ``rows``: fewer are a few that another table has, too."""
    was_run = any(result.table == entry.name for result in table.results)
    return was_run or 2 * table.rows >= rows


def whole_table(plan: TablePlan, table: StoredTable) -> str:
    """A table for each column with what it shows, where the numbers come from, and learning curves of the first."""
    first, *others = table.reports
    origin = f"Where it comes from: {report.origin(table.results)}"
    html = first.html() + list_of_sentences([*first.findings, origin])
    for each in others:
        html += each.html() + list_of_sentences(each.findings)
    figure = learning_curves(plan, curves.frame(plan, first.column, table.results, first.profile))
    if figure is not None:
        html += light(report.image(figure))
    return html


def all_stored(entry: Entry, stored: Sequence[Result]) -> str:
    """All that is stored of a table, folded: a table for each data set and profile, curves, and where it comes from."""
    if (entry.paper, entry.table) not in papers.plans():
        return ""
    plan = papers.plan(entry.paper, entry.table)
    tables: list[str] = []
    for table in stored_tables(plan, stored):
        if is_worth_showing(entry, table, len(plan.rows)):
            tables.append(whole_table(plan, table))
    if not tables:
        return ""
    summary = f"All that is stored for {escape.html(plan.heading)}, by data set and profile: {len(tables)}"
    return folded(summary, "".join(tables))


def headline(notebook: str) -> str:
    """The question that a notebook opens with."""
    mark = "# # "
    script = (ROOT / notebook).with_suffix(".py")
    lines = script.read_text(encoding="utf-8").splitlines()
    titles = [line.removeprefix(mark) for line in lines if line.startswith(mark)]
    return titles[0]


def notebooks_of(paper: str) -> dict[str, list[Entry]]:
    """Notebooks of a paper, each with the tables it makes."""
    tables: dict[str, list[Entry]] = {}
    for entry in papers.catalogue():
        if entry.paper == paper and entry.notebook:
            tables.setdefault(entry.notebook, []).append(entry)
    return tables


def first_picture(notebook: str, entries: Sequence[Entry], stored: Sequence[Result], lines: pd.DataFrame) -> str:
    """The picture of a notebook's first table that was measured, or one of its own; empty where there is none."""
    for entry in entries:
        picture = table_picture(entry, stored, lines)
        if picture:
            return picture
    return other_picture(notebook, {**WITHOUT_A_TABLE, **OF_STUDIES})


def show(paper: str, stored: Iterable[Result] | None = None) -> str:
    """All notebooks of a paper's tables, in HTML: first those with something measured, then the rest as a list.

    ``stored``: by default all that the project keeps.
    """
    if stored is None:
        mine: Sequence[Result] = kept()
        lines = claims_on_kept(paper)
    else:
        mine = list(stored)
        lines = claims_of(paper, mine)
    sections = ""
    without_picture: list[str] = []
    for notebook, entries in notebooks_of(paper).items():
        line = f"{link_to(notebook, outcomes.heading(entries))}. {escape.html(headline(notebook))}"
        picture = first_picture(notebook, entries, mine, lines)
        if not picture:
            without_picture.append(line)
            continue
        tables = "".join(all_stored(entry, mine) for entry in entries)
        sections += f"<section><p>{line}</p>{picture}{tables}</section>"
    rest = ""
    if without_picture:
        said = "We have not trained these tables yet; their notebooks only check that the code runs:"
        rest = f"<p>{said}</p><ul>{list_items(without_picture)}</ul>"
    return f'<div class="paper-tables {escape.LITERAL}">{sections}{rest}</div>'


# The page of results --------------------------------------------------------------------------------------------------


def findings(lines: pd.DataFrame) -> str:
    """An entry for each paper: what was measured of the differences that it is known for, with the verdict, in HTML.

    ``lines``: of :func:`contrastbook.evidence.claims.frame`.
    """
    entries = ""
    for paper in dict.fromkeys(known.paper for known in headlines.HEADLINES):
        entries += f"<dt>{NAMES[paper]}</dt><dd>{findings_of(paper, lines)}</dd>"
    return f'<dl class="findings {escape.LITERAL}">{entries}</dl>'


def findings_of(paper: str, lines: pd.DataFrame) -> str:
    """What was measured of the differences that a paper is known for, a line for each."""
    on_own_data = lines[(lines["paper"] == paper) & (lines["stands_for"] == "")]
    parts: list[str] = []
    if on_own_data["verdict"].isin(OPEN).all():
        parts.append("Nothing is decided on the paper’s own data.<br>")
    for known in headlines.HEADLINES:
        if known.paper != paper:
            continue
        line = headlines.line_of(known, lines)
        parts.append(escape.html(headlines.sentence(known, line)))
        if line is not None:
            place = escape.html(headlines.place(line))
            parts.append(f"{chip(line['verdict'], line['verdict'])} <small>{place}</small><br>")
    return " ".join(parts).removesuffix("<br>")


def matrix(stored: Sequence[Result], lines: pd.DataFrame, others: Mapping[str, Mapping[str, str]] | None = None) -> str:
    """Every published table and figure: the best run of it with the verdicts on its claims, and the rest folded.

    ``lines``: of :func:`contrastbook.evidence.claims.frame`. ``others`` maps the name of a table and a profile to a
    line, for what is stored as no result of an encoder.
    """
    body = ""
    without_run: list[str] = []
    for entry in papers.catalogue():
        link = escape.html(entry.name)
        if entry.notebook:
            link = link_to(entry.notebook, entry.name)
        runs = runs_of(entry, stored, lines)
        if others is not None:
            runs += [escape.html(f"{text}, {profile}") for profile, text in others.get(entry.name, {}).items()]
        if runs:
            body += f'<tr><th scope="row">{link}</th><td>{others_folded(runs)}</td></tr>'
        else:
            without_run.append(link)
    head = '<th scope="col">table</th><th scope="col">what was run, and the verdicts on its claims</th>'
    return (
        f'<div class="{escape.LITERAL}"><table class="evidence"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
        f"<p>At smoke size only, or with nothing to train: {', '.join(without_run)}.</p></div>"
    )


def runs_of(entry: Entry, stored: Sequence[Result], lines: pd.DataFrame) -> list[str]:
    """What was run of a table, the best first, each with the verdicts on the claims."""
    runs: list[str] = []
    for run in report.best_first(report.evidence(entry, stored)):
        verdicts = chips(outcomes.lines_of(entry, run, lines))
        runs.append(f"{escape.html(outcomes.run_in_short(run))} {verdicts}")
    return runs


def others_folded(runs: Sequence[str]) -> str:
    """The first of some lines, the others folded behind it."""
    first, *others = runs
    if not others:
        return first
    return first + folded(f"and {len(others)} more", f"<ul>{list_items(others)}</ul>")
