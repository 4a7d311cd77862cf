"""What the built book adds to tables: above a notebook, the picture of what was measured; and headings without gaps.

A folded cell with the tag ``check`` says how many assertions it holds. Tables that follow each other say once how they
are read, and an appendix has no number among the sections of its chapter.

``gallery`` draws the pictures. A table of pandas has a second row of headings for the name of its index alone; here
both are one. ``IR^nce`` is shown with what follows the caret raised.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

ROW = r"\s*<tr[^>]*>((?:(?!</tr>).)*)</tr>\s*"
HEAD = re.compile(rf"<thead>{ROW}{ROW}</thead>", re.S)
CELL = re.compile(r"<th[^>]*>(.*?)</th>", re.S)


@cache
def names() -> tuple[str, ...]:
    """Published names with a caret, the longest first."""
    from contrastlab import papers

    rows = {label for known in papers.plans() for label in papers.plan(*known).rows.values()}
    for paper in papers.PAPERS:
        for table in papers.tables(paper):
            rows |= set(papers.published(paper, table)[["row", "column"]].to_numpy().ravel())
    return tuple(sorted((label for label in rows if "^" in label), key=len, reverse=True))


def one_row(page: str) -> str:
    """A page whose tables have one row of headings where the second names the index alone."""

    def joined(found: re.Match[str]) -> str:
        first, second = (CELL.findall(part) for part in found.groups())
        index = [cell.strip() for cell in second]
        while index and not index[-1]:
            index.pop()
        if "colspan" in found[1] or len(first) != len(second) or len(index) == len(second):
            return found[0]
        cells = "".join(f"<th>{text}</th>" for text in [*index, *first[len(index) :]])
        return f"<thead><tr>{cells}</tr></thead>"

    return HEAD.sub(joined, page)


def raise_names(page: str, known: Iterable[str]) -> str:
    """A page with the names that are ``known`` to have a caret raised, in its text and in no attribute."""
    shown = {name: re.sub(r"\^([A-Za-z0-9+-]+)", r"<sup>\1</sup>", name).replace("sigma", "σ") for name in known}
    if not shown:
        return page
    found = re.compile("|".join(re.escape(name) for name in sorted(shown, key=len, reverse=True)))
    return re.sub(r">[^<>]*\^[^<>]*<", lambda text: found.sub(lambda name: shown[name[0]], text[0]), page)


def tidy(app: Any, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Tables of one page."""
    if "body" in context:
        body = types_as_code(styled(one_row(context["body"])))
        context["body"] = said_once(without_deep_number(raise_names(body, names())))
    for way in ("prev", "next"):
        if context.get(way):
            context[way]["title"] = without_deep_number(context[way]["title"])


def without_deep_number(page: str) -> str:
    """A title without the number that Sphinx gives an appendix: its place among the sections of a chapter, ``1.18``."""
    return re.sub(r'(^|<h1[^>]*>)(?:<span class="section-number">)?\d+\.\d+\.\s*(?:</span>)?', r"\1", page)


REMARKS = re.compile(r'(<figure class="published-measured.*?</figure>)(<ul class="[^"]*">)(.*?)</ul>', re.S)


def said_once(page: str) -> str:
    """A page whose tables say once how they are read: later ones leave out the lines that an earlier one has.

    Tables that are folded keep theirs, for they may be opened alone.
    """
    seen: set[str] = set()

    def shorter(found: re.Match[str]) -> str:
        lines = [line for line in re.findall(r"<li>.*?</li>", found[3], re.S) if line not in seen]
        seen.update(lines)
        return found[1] + (f"{found[2]}{''.join(lines)}</ul>" if lines else "")

    parts = re.split(r"(<details.*?</details>)", page, flags=re.S)
    return "".join(part if part.startswith("<details") else REMARKS.sub(shorter, part) for part in parts)


def styled(page: str) -> str:
    """A page whose tables by a Styler of pandas have the class of its other tables, and so the style of the book."""
    return re.sub(r'<table id="(T_\w+)">', r'<table id="\1" class="dataframe">', page)


def types_as_code(page: str) -> str:
    """A page of the reference whose types of attributes, such as ``int | None``, are set as code."""
    field = r'(Type<span class="colon">:</span></dt>\s*<dd class="field-odd"><p>)([^<]+)</p>'
    return re.sub(field, r"\1<code>\2</code></p>", page)


PROOF = "A run at smoke size: it proves that every part runs, and nothing else"
KNOBS = "What you can set when you run this notebook yourself"
SHOWN = ("nb.claim", "nb.kept()", "nb.check()")
"""Cells of which a reader needs the output alone."""


def checked(source: str) -> str:
    """What a reader is told of a folded cell of assertions."""
    count = len(re.findall(r"^\s*(?:if .*: )?assert\b", source, re.M))
    return f"Checked when the book is built: {count} assertion{'s' * (count != 1)}"


def count_checks(app: Any, doctree: Any) -> None:
    """Say above each folded check how many assertions it holds."""
    from docutils import nodes

    for cell in doctree.findall(lambda node: isinstance(node, nodes.container) and "cell" in node["classes"]):
        if "check" in cell.get("cell_metadata", {}).get("tags", []) and cell.get("hide_mode") == "input":
            cell["prompt_show"] = checked(cell[0].astext())
            cell["prompt_hide"] = "Fold"


def open_with_picture(app: Any, doctree: Any) -> None:
    """Put the picture of a table above its notebook, below the question; say what the folded runs are."""
    from docutils import nodes

    page = app.env.docname
    if not page.startswith("nbs/"):
        return
    for cell in list(doctree.findall(lambda node: isinstance(node, nodes.container) and "cell" in node["classes"])):
        if "parameters" in cell.get("cell_metadata", {}).get("tags", []):
            cell["hide_mode"], cell["prompt_show"], cell["prompt_hide"] = "input", KNOBS, "Fold"
        elif cell.get("hide_mode") == "output":
            cell["prompt_show"] = PROOF
        elif cell.children and cell[0].astext().strip() in SHOWN:
            cell.remove(cell[0])
    sys.path.insert(0, str(Path(app.confdir) / "book"))
    import gallery

    shown = gallery.opening(f"{page}.ipynb")
    title = next(doctree.findall(nodes.title), None)
    if shown and title is not None:
        place = title.parent
        place.insert(place.index(title) + 1, nodes.raw("", f'<div class="table-opening">{shown}</div>', format="html"))


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("doctree-read", count_checks)
    app.connect("doctree-read", open_with_picture)
    app.connect("html-page-context", tidy)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
