"""What every chapter has: short cells, a check, solved exercises, a slider, seeded draws, no typed result."""

import importlib
import re
from functools import cache
from pathlib import Path

import jupytext
import pytest
import yaml
from alternative_text import alternative

BOOK = Path(__file__).parents[2] / "book"
CHAPTERS = sorted(p for p in BOOK.glob("*.md") if "(ch:" in p.read_text(encoding="utf-8"))
PAGES = sorted(BOOK.glob("*.md"))
ARC = ("divergences", "infonce", "joint", "later", "looseness", "many_views", "point", "ring", "senses", "views")
"""Chapters in the order of the fourth edition: a bet, a figure to play with, the answer, and only then the proof."""
TEMPLATE = r"^#+ (The claim|The equation|Look|Check|Try it|The smallest code|Use it for real|Summary|The question)$"
HIDDEN = {"hide-input", "hide-cell", "remove-input", "remove-cell"}
chapters = pytest.mark.parametrize("page", CHAPTERS, ids=lambda p: p.stem)
pages = pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)


@cache
def parsed(page: Path) -> list:
    """All cells of a page."""
    return jupytext.reads(page.read_text(encoding="utf-8"), fmt="md:myst").cells


def cells(page: Path, kind: str) -> list:
    return [cell for cell in parsed(page) if cell.cell_type == kind]


@cache
def prose(page: Path) -> str:
    """Text without formulas, code, links and front matter."""
    text = "\n".join(cell.source for cell in cells(page, "markdown"))
    for pattern in (r"```\{math\}.*?```", r"```.*?```", r"\$\$.*?\$\$", r"\$[^$\n]*\$", r"\{math\}`[^`]*`", r"`[^`]*`"):
        text = re.sub(pattern, " ", text, flags=re.S)
    return text


def test_the_reference_lists_what_is_there() -> None:
    blocks = re.findall(r"automodule:: (\S+)\n((?:   :.*\n)*)", (BOOK / "api.md").read_text(encoding="utf-8"))
    assert len(blocks) > 40
    for module, options in blocks:
        members = [name.strip() for line in re.findall(r":members: (.+)", options) for name in line.split(", ")]
        assert set(members) <= set(dir(importlib.import_module(module))), module


def test_a_folded_module_says_what_it_is_for_and_when_to_use_it() -> None:
    text = (BOOK / "api.md").read_text(encoding="utf-8")
    modules = re.findall(r"automodule:: (\S+)", text)
    folds = re.findall(r"\{dropdown\} `(\S+)`: (.+)\n```\{eval-rst\}\n\.\. automodule:: (\S+)", text)
    assert [named for _, _, named in folds] == modules
    for title, line, module in folds:
        assert title == module
        assert re.fullmatch(r".+; (use|read) it .+", line), module


@chapters
def test_cells_are_short_and_a_larger_build_is_one_switch_away(page: Path) -> None:
    code = [[line for line in cell.source.splitlines() if line.strip()] for cell in cells(page, "code")]
    assert max(map(len, code)) <= 30
    for cell in cells(page, "code"):
        hidden = HIDDEN & set(cell.metadata.get("tags", []))
        assert max(map(len, cell.source.splitlines())) <= (140 if hidden else 80)


@pytest.mark.parametrize("page", [p for p in CHAPTERS if p.stem in ARC], ids=lambda p: p.stem)
def test_a_chapter_bets_plays_and_answers_before_it_proves(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    moments = (
        "{admonition} Place your bet",
        "sliding(",
        "## The answer: ",
        "{prf:theorem}",
        "{exercise}",
        "## In one minute",
    )
    at = [text.index(moment) for moment in moments]
    assert at == sorted(at), moments
    assert text.count("In one minute") == 1
    assert not re.search(TEMPLATE, text, re.M)
    for cell in cells(page, "code"):
        lines = [line for line in cell.source.splitlines() if line.strip()]
        if not HIDDEN & set(cell.metadata.get("tags", [])):
            assert len(lines) <= 12, lines[0]
            assert not all(line.lstrip().startswith("assert ") for line in lines), lines[0]


@pytest.mark.parametrize("page", CHAPTERS, ids=lambda p: p.stem)
def test_sizes_are_chosen_once_and_out_of_sight(page: Path) -> None:
    code = cells(page, "code")
    (first,) = [i for i, cell in enumerate(code) if "build_size(" in cell.source]
    assert first <= 1
    assert {"remove-cell", "remove-input"} & set(code[first].metadata["tags"])
    assert not any("CONTRASTLAB_PROFILE" in cell.source for cell in code)


@chapters
def test_a_check_asserts_and_says_how(page: Path) -> None:
    checks = [c.source for c in cells(page, "code") if "check" in c.metadata.get("tags", [])]
    assert any("assert" in source for source in checks)
    assert re.search(r"exact|analytic|Monte Carlo|trained|four standard errors", page.read_text(encoding="utf-8"), re.I)


@chapters
def test_exercises_are_solved_and_there_is_a_slider_with_its_live_twin(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    asked = set(re.findall(r"\{exercise\}.*?\n:label: (\S+)", text))
    assert len(asked) >= 3
    assert asked == set(re.findall(r"\{solution\} (\S+)", text))
    sources = [(c.source, c.metadata.get("tags", [])) for c in cells(page, "code")]
    assert any("sliding(" in source for source, _ in sources)
    assert any("widgets." in source and "skip-execution" in tags for source, tags in sources)


@pages
def test_draws_have_generators_and_no_result_is_typed_into_prose(page: Path) -> None:
    code = "\n".join(cell.source for cell in cells(page, "code"))
    assert not re.search(r"np\.random\.(?!default_rng|Generator)", code)
    assert "manual_seed(" not in code.replace("Generator().manual_seed(", "")
    for call in re.finditer(r"torch\.(?:rand|randn|randint|randperm)\(", code):
        assert "generator=" in code[call.start() : call.start() + 200], code[call.start() : call.start() + 80]
    for line in prose(page).splitlines():
        if "{cite" not in line:
            settings = re.sub(r"[=≈] *\d+\.\d+", " ", line)
            assert not re.search(r"\d\.\d{2,}|±\s*\d|\d\.\d+\s*(?:nats|points|%)", settings), line
    assert not re.search(r"/(?:home|root|work|tmp|Users)/", page.read_text(encoding="utf-8"))


def labels(page: Path) -> list[str]:
    return re.findall(r"^\((.+)\)=$", page.read_text(encoding="utf-8"), re.M)


def test_a_published_anchor_stays_on_its_page() -> None:
    published = [tuple(line.split()) for line in (BOOK / "anchors.txt").read_text().splitlines() if line[0] != "#"]
    assert published == sorted(set(published))
    there = [(page.stem, label) for page in PAGES for label in labels(page)]
    moved = {p.stem: re.findall(r"(\w+)\.html#", p.read_text()) for p in BOOK.glob("_moved/book/*.html")}
    kept = {(new, label) for page, label in published for new in moved.get(page, [page])}
    assert sorted(kept - set(there)) == [], "a link from outside leads nowhere now: keep the label"
    assert sorted(set(there) - kept) == [], "add these to book/anchors.txt"
    assert len({label for _, label in there}) == len(there)


@pages
def test_a_link_to_another_page_works_in_jupyterlab_too(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"\{(?:ref|doc)\}`(?:[^`<]*<)?([^`>]*)", text)) <= set(labels(page))
    for path in re.findall(r"\]\((?!https?:|#)([^)#]+)", "\n".join(cell.source for cell in cells(page, "markdown"))):
        assert (BOOK / path).is_file(), path


def slugs(page: Path) -> set[str]:
    """The names that headings of a page have in a link."""
    text = "\n".join(cell.source for cell in cells(page, "markdown"))
    titles = re.findall(r"^#{1,3} (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pages
def test_a_link_to_a_heading_leads_to_one(page: Path) -> None:
    text = "\n".join(cell.source for cell in cells(page, "markdown"))
    for path, slug in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", text):
        target = BOOK / path if path else page
        assert slug in slugs(target), (path, slug)


def test_the_introduction_lists_the_chapters_in_the_order_of_the_contents() -> None:
    parts = yaml.safe_load((BOOK.parent / "_toc.yml").read_text(encoding="utf-8"))["parts"]
    (listed,) = (part["chapters"] for part in parts if part["caption"] == "Chapters")
    links = ", ".join(
        f"[{number} {each['title']}]({each['file'].removeprefix('book/')}.md)" for number, each in enumerate(listed, 1)
    )
    assert links in (BOOK / "intro.md").read_text(encoding="utf-8")


@chapters
def test_every_section_of_a_chapter_has_an_anchor_of_its_own(page: Path) -> None:
    text = "\n".join(cell.source for cell in cells(page, "markdown"))
    sections = re.findall(r"(?:^|\n)(.*)\n## (.+)", text)
    assert len(sections) >= 5
    for before, title in sections:
        assert re.fullmatch(rf"\({page.stem.replace('_', '-')}:[a-z0-9-]+\)=", before), title


def test_the_words_for_a_figure_are_whole_sentences_of_its_own_and_none_of_its_neighbours() -> None:
    source = 'panel.set_title("Two\\nparts"); panel.set(xlabel="steps", ylabel="loss (nats)"); panel.legend(title="no")'
    words = alternative(source, "", "A section")
    assert words == "Chart titled “Two parts”. Its axes show steps and loss (nats)."
    assert alternative(source, "Left: a ball.", "A section") == "Left: a ball."
    assert alternative("", "", "A section") == "Chart of the section “A section”."
