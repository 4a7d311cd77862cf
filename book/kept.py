"""Shows in the notebooks of tables what ``results/`` keeps today and what the tables claim, and runs nothing else.

``make kept`` after results were added or a claim was changed. The cells that ask for ``nb.kept`` or ``nb.claim`` are
run behind parameters and imports; all other outputs stay as they are.
"""

from __future__ import annotations

import sys
from copy import deepcopy
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]


def shows(cell: nbformat.NotebookNode) -> bool:
    """Whether a cell shows what is kept, or what is claimed."""
    return cell.cell_type == "code" and ("nb.kept" in cell.source or "nb.claim" in cell.source)


def needed(cell: nbformat.NotebookNode) -> bool:
    """Whether a cell shows that, or is run before one that does."""
    if cell.cell_type != "code":
        return False
    return shows(cell) or "notebook.open(" in cell.source or "parameters" in cell.metadata.get("tags", [])


def refresh(path: Path) -> bool:
    """Runs the cells that show what is kept or claimed; whether there are any."""
    notebook = nbformat.read(path, as_version=4)
    part = deepcopy(notebook)
    part.cells = [cell for cell in part.cells if needed(cell)]
    if not any(map(shows, part.cells)):
        return False
    NotebookClient(part, timeout=300, record_timing=False, resources={"metadata": {"path": str(path.parent)}}).execute()
    made = {cell.id: cell.outputs for cell in part.cells if shows(cell)}
    for cell in notebook.cells:
        if cell.id in made:
            cell.outputs = made[cell.id]
    number(notebook)
    nbformat.write(notebook, path)
    return True


def number(notebook: nbformat.NotebookNode) -> None:
    """Counts the cells of code, as a run from the first to the last does."""
    for count, cell in enumerate((cell for cell in notebook.cells if cell.cell_type == "code"), start=1):
        cell.execution_count = count
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = count


def main(*names: str) -> None:
    """All notebooks, or those named."""
    for script in sorted((ROOT / "nbs").glob("*.py")):
        path = script.with_suffix(".ipynb")
        if names and script.stem not in names:
            continue
        print(path.stem, "refreshed" if refresh(path) else "shows nothing that is kept or claimed", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
