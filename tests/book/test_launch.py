"""Buttons that open a page elsewhere: none without an address, and copies for Colab that differ by one cell."""

import os
import re
import subprocess
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import colab
import jupytext
import launch
import nbformat
import pytest
import yaml

ROOT = Path(__file__).parents[2]
BOOK = ROOT / "book"
HOME = "https://github.com/somebody/contrastlab"
CONFIG: dict[str, Any] = yaml.safe_load((BOOK / "_config.yml").read_text(encoding="utf-8"))


def buttons(page: str) -> list[dict[str, Any]]:
    """What the built configuration puts into the header of a page."""
    options = {"repository_url": CONFIG["repository"]["url"], "repository_branch": CONFIG["repository"]["branch"]}
    source = next(path for path in (ROOT / f"{page}.md", ROOT / f"{page}.ipynb") if path.exists())
    app = SimpleNamespace(
        config=SimpleNamespace(html_theme_options=options), env=SimpleNamespace(doc2path=lambda name: str(source))
    )
    context: dict[str, Any] = {"header_buttons": []}
    launch.add(app, page, "page.html", context, object())
    return context["header_buttons"]


def test_the_extension_is_built_in_and_adds_no_button_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(launch.VARIABLE, raising=False)
    monkeypatch.setitem(CONFIG["repository"], "url", "")
    assert buttons("book/ring") == []
    assert CONFIG["sphinx"]["local_extensions"]["launch"] == "_ext"


@pytest.mark.parametrize("by_variable", [True, False])
def test_with_an_address_chapters_and_notebooks_have_them(monkeypatch: pytest.MonkeyPatch, by_variable: bool) -> None:
    monkeypatch.setitem(CONFIG["repository"], "url", "" if by_variable else f"{HOME}.git")
    monkeypatch.delenv(launch.VARIABLE, raising=False)
    if by_variable:
        monkeypatch.setenv(launch.VARIABLE, HOME + "/")
    branch = CONFIG["repository"]["branch"]
    for page, name in (("book/ring", "book/ring.md"), ("nbs/repro_table1", "nbs/repro_table1.ipynb")):
        (group,) = buttons(page)
        links = {button["text"]: button["url"] for button in group["buttons"]}
        assert links == {
            "Binder": f"https://mybinder.org/v2/gh/somebody/contrastlab/{branch}?urlpath=lab/tree/{name}",
            "Colab": f"https://colab.research.google.com/github/somebody/contrastlab/blob/colab/{page}.ipynb",
        }
        assert all(button["icon"].startswith("_static/") for button in group["buttons"])
    for page in ("book/api", "book/results"):  # these read the repository, or run nothing
        assert buttons(page) == []


def test_an_address_that_is_none_is_refused() -> None:
    for wrong in ("github.com/a/b", "https://gitlab.com/a/b", "https://github.com/a", "https://github.com/a/b/c"):
        with pytest.raises(ValueError, match=r"expected https://github\.com/OWNER/NAME"):
            launch.address("", {launch.VARIABLE: wrong})


def test_every_page_with_a_button_has_a_copy_and_no_other() -> None:
    listed = [f"{page.parent.name}/{page.stem}" for page in colab.pages()]
    notebooks = {f"nbs/{path.stem}" for path in (ROOT / "nbs").glob("*.ipynb")}
    assert {name for name in listed if name.startswith("nbs/")} == notebooks
    assert {name for name in listed if name.startswith("book/")} == {
        f"book/{p.stem}" for p in BOOK.glob("*.md") if re.search(r"^\(ch:", p.read_text(encoding="utf-8"), re.M)
    }


def test_a_copy_is_the_page_without_outputs_and_one_cell_before_it(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv(launch.VARIABLE, HOME)
    assert colab.main(tmp_path) == 0
    assert f"{len(colab.pages())} copies" in capsys.readouterr().out
    for page in colab.pages():
        copy = nbformat.read(tmp_path / page.parent.name / f"{page.stem}.ipynb", as_version=4)
        nbformat.validate(copy)
        first, *others = copy.cells
        assert first.source == f"%pip install --quiet 'contrastlab[lab] @ git+{HOME}'"
        assert first.metadata.tags == ["colab"]
        assert [cell.source for cell in others] == [cell.source for cell in jupytext.read(page).cells]
        assert not any(cell.get("outputs") for cell in others)


@pytest.mark.parametrize("page", [p for p in colab.pages() if p.parent == BOOK], ids=lambda p: p.stem)
def test_a_chapter_reads_nothing_of_the_repository(page: Path) -> None:
    code = "\n".join(cell.source for cell in jupytext.read(page).cells if cell.cell_type == "code")
    assert "../" not in code
    assert "benchmarks" not in code


def test_binder_installs_what_is_locked_on_a_python_that_is_admitted() -> None:
    environment = yaml.safe_load((ROOT / "binder" / "environment.yml").read_text(encoding="utf-8"))
    *conda, last = environment["dependencies"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"python={project['requires-python'].removeprefix('>=')}" in conda
    assert all(re.fullmatch(r"[a-z]+==[0-9.]+", need) for need in last["pip"])
    script = (ROOT / "binder" / "postBuild").read_text(encoding="utf-8")
    assert "uv export --frozen" in script
    for name in ("postBuild", "start"):
        assert os.access(ROOT / "binder" / name, os.X_OK)
        subprocess.run(["bash", "-n", ROOT / "binder" / name], check=True)
    assert 'exec "$@"' in (ROOT / "binder" / "start").read_text(encoding="utf-8")
