"""The page of a paper's tables: a line for each notebook, and a picture of what was measured, from ``results/``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from contrastlab import escape, papers, report, results
from contrastlab.papers import Entry
from contrastlab.results import Result

ROOT = Path(__file__).parents[1]


def name(entries: Iterable[Entry]) -> str:
    """``Tables 2b, 2c and 4`` or ``Figure 6``, as the paper counts them."""
    said = []
    for kind in ("Table", "Figure"):
        figures = kind == "Figure"
        numbers = [e.table.removeprefix("figure") for e in entries if e.table.startswith("figure") == figures]
        *first, last = numbers or [""]
        said += [f"{kind}{'s' * bool(first)} {' and '.join(filter(None, (', '.join(first), last)))}"] if numbers else []
    return " and ".join(said)


def headline(notebook: str) -> str:
    """The question that a notebook opens with."""
    script = (ROOT / notebook).with_suffix(".py").read_text(encoding="utf-8")
    return next(line.removeprefix("# # ") for line in script.splitlines() if line.startswith("# # "))


def pictured(entry: Entry, stored: list[Result]) -> str:
    """The figure of the best evidence that is kept for a table, with the paper's claim; empty where there is none."""
    best = report.best_first(report.evidence(entry, stored))
    if not best:
        return ""
    plan = papers.plan(entry.paper, entry.table)
    here = [r for r in stored if (r.dataset, r.profile) == (best[0].dataset, best[0].profile)]
    claim = f"The paper's claim: {plan.claim} Measured here ({best[0].profile}): {best[0]}."
    drawn = report.columns(plan, here, best[0].dataset, best[0].profile)[0].figure_html()
    return f"<p>{escape.html(claim)}</p>{drawn}"


def show(paper: str, stored: Iterable[Result] | None = None) -> str:
    """All notebooks of a paper's tables, in HTML: first those with something measured, then the rest as a list.

    ``stored``: by default all that the project keeps.
    """
    kept = list(results.find(ROOT / "results") if stored is None else stored)
    notebooks: dict[str, list[Entry]] = {}
    for entry in papers.catalogue():
        if entry.paper == paper and entry.notebook:
            notebooks.setdefault(entry.notebook, []).append(entry)
    with_picture, without = [], []
    for notebook, entries in notebooks.items():
        link = f'<a href="../{escape.html(notebook[:-6])}.html">{escape.html(name(entries))}</a>'
        line = f"{link}. {escape.html(headline(notebook))}"
        picture = next(filter(None, (pictured(entry, kept) for entry in entries)), "")
        (with_picture if picture else without).append(f"<p>{line}</p>{picture}" if picture else f"<li>{line}</li>")
    rest = "Nothing of these is measured as a table of encoders yet; the notebooks show that every part runs:"
    shown = "".join(f"<section>{part}</section>" for part in with_picture)
    more = f"<p>{rest}</p><ul>{''.join(without)}</ul>" if without else ""
    return f'<div class="paper-tables {escape.LITERAL}">{shown}{more}</div>'
