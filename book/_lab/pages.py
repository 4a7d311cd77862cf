"""Pages of the book as JupyterLab shows them.

What the book folds is folded, solutions too, and every exercise has an empty cell to work in. :func:`shown` makes that
of a page, and :func:`stored` gives the page back, so that it is saved as it was written. A page in which nothing was
changed is not saved at all.
"""

from __future__ import annotations

import copy
import re
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
"""Metadata of cells that only JupyterLab has: ``part`` of the text before, or ``work``, to write into."""

SOLUTION = re.compile(r"^(`{3,}|:{3,})\{solution\}.*?^\1[ \t]*$", re.S | re.M)


def shown(page: dict[str, Any]) -> dict[str, Any]:
    """A copy of a page, as a notebook of Jupyter's format, with folded cells and cells to work in."""
    page = copy.deepcopy(page)
    cells: list[dict[str, Any]] = []
    for cell in page["cells"]:
        if cell["cell_type"] == "markdown":
            cells += _with_room_to_work(cell)
            continue
        tags = FOLDED.intersection(cell["metadata"].get("tags", ()))
        if tags:
            folded = {"source_hidden": True}
            if "hide-cell" in tags:
                folded["outputs_hidden"] = True
            cell["metadata"]["jupyter"] = folded
        cells.append(cell)
    page["cells"] = cells
    return page


def _with_room_to_work(cell: dict[str, Any]) -> list[dict[str, Any]]:
    """A text as cells of its own, cut before and after each solution, which is folded below an empty cell."""
    text, cells, end = cell["source"], [], 0
    for solution in SOLUTION.finditer(text):
        before = text[end : solution.start()]
        cells += [_part(cell, before), _to_work_in(), _part(cell, solution[0], folded=True)]
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


def _part(cell: dict[str, Any], text: str, *, folded: bool = False) -> dict[str, Any]:
    """Part of a text as a cell, which :func:`stored` puts behind the part before."""
    metadata: dict[str, Any] = {MARK: "part"}
    if folded:
        metadata["jupyter"] = {"source_hidden": True}
    return {**cell, "source": text, "metadata": metadata}


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
