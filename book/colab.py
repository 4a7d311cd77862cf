"""Copies of the chapters and of the notebooks that run on Colab: ``python book/colab.py _build/colab``.

Colab has no package of ours and opens notebooks only. Each copy is the page as a notebook without outputs, with one
cell before it, tagged ``colab``, that installs the package and nothing else. The pages themselves stay as they are. The
workflow ``book.yml`` puts the copies on the branch ``colab``, to which the launch buttons lead.
"""

from __future__ import annotations

import sys
from pathlib import Path

import jupytext
import nbformat
import yaml

from contrastlab.support import shipped

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

from launch import address, runs_alone  # noqa: E402


def copy(page: Path, repository: str) -> nbformat.NotebookNode:
    """A page as a notebook whose first cell installs the package from ``repository``."""
    notebook = jupytext.read(page)
    bare = nbformat.from_dict(shipped.without_outputs(notebook))
    needed = f"%pip install --quiet 'contrastlab[lab] @ git+{repository}'"
    install = nbformat.v4.new_code_cell(needed, metadata={"tags": ["colab"]})
    install["id"] = "colab"
    bare.cells.insert(0, install)
    bare.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    bare.nbformat, bare.nbformat_minor = 4, 5
    return bare


def pages() -> list[Path]:
    """Every chapter and notebook."""
    found = sorted(HERE.glob("*.md")) + sorted((HERE.parent / "nbs").glob("*.ipynb"))
    return [p for p in found if runs_alone(f"{p.parent.name}/{p.stem}", p.read_text(encoding="utf-8"))]


def main(out: Path) -> int:
    """Write all copies below ``out``; returns the exit status."""
    configured = yaml.safe_load((HERE / "_config.yml").read_text(encoding="utf-8"))["repository"]["url"]
    repository = address(configured)
    if not repository:
        print("no repository is named: set CONTRASTLAB_REPOSITORY, or repository: url in book/_config.yml")
        return 1
    for page in pages():
        target = out / page.parent.name / f"{page.stem}.ipynb"
        target.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(copy(page, repository), target)
    print(f"{len(pages())} copies in {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "_build/colab")))
