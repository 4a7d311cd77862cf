"""Pages of the book as JupyterLab shows them.

What the book folds is folded, and every exercise has an empty cell to work in. A solution is a dropdown, which
jupyterlab-myst folds; code that belongs to it gets a title, as the first line of folded code is seen. Citations, of
which jupyterlab-myst shows the keys, become links with names and years. :func:`shown` makes that of a page, and
:func:`stored` gives the page back, so that it is saved as it was written. A page in which nothing was changed is not
saved at all.
"""

from __future__ import annotations

import copy
import re
from functools import cache
from pathlib import Path
from typing import Any

from ipykernel.ipkernel import IPythonKernel
from jupyter_client.kernelspec import KernelSpecManager
from jupytext import AsyncTextFileContentsManager

SPEC = KernelSpecManager().get_kernel_spec("python3")
OPENED = {
    "kernelspec": {"name": "python3", "display_name": SPEC.display_name, "language": SPEC.language},
    "language_info": IPythonKernel.language_info,
}
"""Metadata that JupyterLab would write, so that a page that was just opened has no unsaved changes."""

FOLDED = {"hide-input", "remove-input", "hide-cell", "remove-cell"}
"""Tags of cells whose code the book folds or leaves out."""

MARK = "contrastlab"
"""Metadata of what only JupyterLab has: ``part`` of the text before, ``work`` to write into, or ``titled`` code."""

TITLE = "# Solution\n"
"""First line of code that belongs to a solution, which else would give the answer away."""

CITATION = re.compile(r"\{cite:([tp])\}`(\w+)`")
CITED = re.compile(r"\[(\(?)[^\[\]]*\]\(references\.md#(\w+)\)")
"""A citation as it is written, and as JupyterLab has it."""

SOLUTION = re.compile(r"^(`{3,}|:{3,})\{solution\}.*?^\1[ \t]*$", re.S | re.M)


def shown(page: dict[str, Any]) -> dict[str, Any]:
    """A copy of a page, as a notebook of Jupyter's format, with folded cells and cells to work in."""
    page = copy.deepcopy(page)
    cells: list[dict[str, Any]] = []
    is_solved = False
    for cell in page["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = CITATION.sub(_cited, cell["source"])
            cells += _with_room_to_work(cell)
            is_solved = "{solution}" in cells[-1]["source"]
            continue
        tags = FOLDED.intersection(cell["metadata"].get("tags", ()))
        if tags:
            folded = {"source_hidden": True}
            if "hide-cell" in tags:
                folded["outputs_hidden"] = True
            cell["metadata"]["jupyter"] = folded
        if is_solved and "hide-cell" in tags:
            cell["metadata"][MARK] = "titled"
            cell["source"] = TITLE + cell["source"]
        cells.append(cell)
    page["cells"] = cells
    return page


def _cited(citation: re.Match[str]) -> str:
    """``[Song and Ermon (2020)](references.md#smile)``, or all in brackets; a key that nobody knows stays."""
    style, key = citation.groups()
    if key not in _sources():
        return citation[0]
    authors, year = _sources()[key]
    text = f"{authors} ({year})" if style == "t" else f"({authors} {year})"
    return f"[{text}](references.md#{key})"


def _citation(link: re.Match[str]) -> str:
    """The citation that :func:`_cited` made a link of."""
    style = "p" if link[1] else "t"
    return f"{{cite:{style}}}`{link[2]}`"


@cache
def _sources() -> dict[str, tuple[str, str]]:
    """Key of each entry of the bibliography to the names of its authors, as they are cited, and its year."""
    text = (Path(__file__).parents[1] / "references.bib").read_text(encoding="utf-8")
    sources = {}
    for key, rest in re.findall(r"^@\w+\{(\w+),(.*)$", text, re.M):
        authors = re.search(r"author = \{(.*?)\}, \w+ = ", rest)
        year = re.search(r"year = \{(\d+)\}", rest)
        if authors and year:
            names = [re.sub(r"[{}\\.]", "", each).split(",")[0] for each in authors[1].split(" and ")]
            several = f"{names[0]} et al." if len(names) > 2 else " and ".join(names)
            sources[key] = several, year[1]
    return sources


def _with_room_to_work(cell: dict[str, Any]) -> list[dict[str, Any]]:
    """A text as cells of its own, cut before and after each solution, which stands below an empty cell."""
    text, cells, end = cell["source"], [], 0
    for solution in SOLUTION.finditer(text):
        before = text[end : solution.start()]
        cells += [_part(cell, before), _to_work_in(), _part(cell, solution[0])]
        end = solution.end()
    if not cells:
        return [cell]
    if text[end:].strip():
        cells.append(_part(cell, text[end:]))
    else:
        cells[-1]["source"] += text[end:]
    cells[0]["metadata"] = cell["metadata"]
    for number, each in enumerate(cells):  # ids are unique, and the same whenever a page is opened
        each["id"] = f"{cell.get('id', 'cell')[:40]}-{number}"
    return cells


def _part(cell: dict[str, Any], text: str) -> dict[str, Any]:
    """Part of a text as a cell, which :func:`stored` puts behind the part before."""
    return {**cell, "source": text, "metadata": {MARK: "part"}}


def _to_work_in() -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {MARK: "work"},
        "outputs": [],
        "source": "",
    }


def stored(page: dict[str, Any]) -> dict[str, Any]:
    """A copy of a page without what :func:`shown` has added; what was written into a cell to work in stays."""
    page = copy.deepcopy(page)
    cells: list[dict[str, Any]] = []
    for cell in page["cells"]:
        mark = cell["metadata"].pop(MARK, "")
        if mark or FOLDED.intersection(cell["metadata"].get("tags", ())):
            cell["metadata"].pop("jupyter", None)
        if mark == "work" and not cell["source"].strip():
            continue
        if mark == "titled":
            cell["source"] = cell["source"].removeprefix(TITLE)
        if cell["cell_type"] == "markdown":
            cell["source"] = CITED.sub(_citation, cell["source"])
        if mark == "part" and cells and cells[-1]["cell_type"] == cell["cell_type"] == "markdown":
            cells[-1]["source"] += cell["source"]
        else:
            cells.append(cell)
    page["cells"] = cells
    return page


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two pages have the same cells, whatever their outputs."""
    return [_content(cell) for cell in one["cells"]] == [_content(cell) for cell in other["cells"]]


def _content(cell: dict[str, Any]) -> tuple[str, str, tuple[str, ...]]:
    return cell["cell_type"], cell["source"].strip("\n"), tuple(cell["metadata"].get("tags", ()))


def _is_page(path: str) -> bool:
    return path.endswith(".md")


class Pages(AsyncTextFileContentsManager):
    """Reads and writes as jupytext does; pages are shown and stored as this module says."""

    async def get(self, path, *args, **kwargs):
        """The model of a file or folder."""
        model = await super().get(path, *args, **kwargs)
        if model["type"] == "notebook" and model["content"]:
            model["content"]["metadata"].update(OPENED)
            if _is_page(path):
                model["content"] = _notebook(shown(model["content"]))
        return model

    async def save(self, model, path=""):
        """Write what was changed, and give the model without its content."""
        if model["type"] == "notebook" and _is_page(path) and model.get("content"):
            page = stored(model["content"])
            if await self.file_exists(path):
                before = await super().get(path, type="notebook")
                if same(page, before["content"]):
                    return await super().get(path, content=False, type="notebook")
            model = {**model, "content": page}
        return await super().save(model, path)


def _notebook(page: dict[str, Any]) -> Any:
    """A notebook that jupytext and nbformat take."""
    import nbformat

    return nbformat.from_dict(page)
