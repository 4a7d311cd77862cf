"""JupyterLab shows pages folded as the book does, and saves nothing that nobody has changed."""

import asyncio
import copy
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

BOOK = Path(__file__).parents[2] / "book"
PAGES = sorted(path for path in BOOK.glob("*.md") if "{code-cell}" in path.read_text(encoding="utf-8"))

jupytext = pytest.importorskip("jupytext", reason="jupytext is in the group lab")
sys.path.insert(0, str(BOOK / "_lab"))
import pages  # noqa: E402 - found by the line above


def read(path: Path) -> Any:
    return jupytext.read(path)


def content(page: Any) -> list[tuple[str, str]]:
    return [(cell["cell_type"], cell["source"]) for cell in page["cells"]]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_comes_back_as_it_was_and_every_solution_is_a_dropdown_below_a_cell_to_work_in(path) -> None:
    page = read(path)
    shown = pages.shown(page)
    assert content(pages.stored(shown)) == content(page)
    assert not any("jupyter" in cell["metadata"] for cell in pages.stored(shown)["cells"])
    shown_text = "".join(cell["source"] for cell in shown["cells"] if cell["cell_type"] == "markdown")
    assert "{cite" not in shown_text
    solutions = 0
    for before, cell in zip(shown["cells"], shown["cells"][1:], strict=False):
        if cell["cell_type"] == "markdown" and "{solution}" in cell["source"]:
            solutions += 1
            assert "jupyter" not in cell["metadata"]  # what is hidden is no dropdown that can be opened
            first, second, *_ = cell["source"].lstrip("`:").splitlines()
            assert (first.split()[0], second) == ("{solution}", ":class: dropdown")
            assert (before["cell_type"], before["source"]) == ("code", "")
        if cell["cell_type"] == "code" and pages.FOLDED.intersection(cell["metadata"].get("tags", ())):
            assert cell["metadata"]["jupyter"]["source_hidden"]
        if cell["cell_type"] == "code" and before["cell_type"] == "markdown" and "{solution}" in before["source"]:
            assert cell["source"].startswith("# Solution\n")  # all that is seen of it
    assert solutions == path.read_text(encoding="utf-8").count("{solution}")
    ids = [cell["id"] for cell in shown["cells"] if "id" in cell]
    assert len(set(ids)) == len(ids)


def test_a_citation_is_a_link_with_names_and_year() -> None:
    text = "See {cite:t}`smile`, {cite:t}`vince`, {cite:p}`holm` and {cite:t}`czyz`, not {cite:t}`nobody`."
    page = {"cells": [{"cell_type": "markdown", "metadata": {}, "source": text}]}
    shown = pages.shown(page)
    assert shown["cells"][0]["source"] == (
        "See [Song and Ermon (2020)](references.md#smile), [Wu et al. (2020)](references.md#vince),"
        " [(Holm 1979)](references.md#holm) and [Czyz et al. (2023)](references.md#czyz), not {cite:t}`nobody`."
    )
    assert pages.stored(shown)["cells"][0]["source"] == text


@pytest.fixture
def lab(tmp_path) -> Any:
    shutil.copy(BOOK / "infonce.md", tmp_path)
    manager = pages.Pages(root_dir=str(tmp_path))
    before = (tmp_path / "infonce.md").read_bytes()

    def save(change: Any = lambda cells: None) -> tuple[bool, str]:
        """Open the page, change its cells, save it: whether the file is as before, and what it says."""

        async def opened_and_saved() -> None:
            model = copy.deepcopy(await manager.get("infonce.md", type="notebook"))
            change(model["content"]["cells"])
            await manager.save(model, "infonce.md")

        asyncio.run(opened_and_saved())
        after = (tmp_path / "infonce.md").read_bytes()
        return after == before, after.decode()

    return save


def run_all(cells: list[Any]) -> None:
    for cell in cells:
        if cell["cell_type"] == "code":
            cell["execution_count"] = 3
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "3\n"}]


def test_a_page_that_was_only_read_or_run_is_not_written(lab) -> None:
    for change in (lambda cells: None, run_all):
        is_as_before, _ = lab(change)
        assert is_as_before


def test_what_was_changed_or_worked_out_is_written_without_what_only_lab_has(lab) -> None:
    def work(cells: list[Any]) -> None:
        first = next(cell for cell in cells if cell["metadata"].get(pages.MARK) == "work")
        first["source"] = "my_answer = 3"

    is_as_before, text = lab(work)
    assert not is_as_before
    assert text.count("my_answer = 3") == 1
    assert text.index("ex-nwj") < text.index("my_answer") < text.index("{solution} ex-nwj")
    assert "source_hidden" not in text
    assert pages.MARK + ":" not in text
    original = (BOOK / "infonce.md").read_text(encoding="utf-8")
    assert text.count("{code-cell}") == original.count("{code-cell}") + 1
    assert text.count("{solution}") == original.count("{solution}")


def test_root_may_open_the_pages_and_is_told(monkeypatch, capsys) -> None:
    from traitlets.config.loader import PyFileConfigLoader

    for user, allowed in ((0, True), (1000, False)):
        monkeypatch.setattr("os.getuid", lambda user=user: user)
        configuration = PyFileConfigLoader("jupyter_server_config.py", path=str(BOOK / "_lab")).load_config()
        assert configuration.ServerApp.get("allow_root", False) == allowed
        assert ("as root" in capsys.readouterr().out) == allowed
