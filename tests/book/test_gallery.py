"""Pictures, sentences and tables that the book shows of what is stored, and the checks that open a built page."""

import re
from pathlib import Path
from typing import Any

import gallery
import openings
import pandas as pd
import pytest
from PIL import Image

from contrastbook.evidence import claims
from contrastlab import papers
from contrastlab.tables import results
from test_report import FULL, PLAN, entry, result

FIRST_SEEDS = FULL[::3]
LAPTOP = [
    result(first.method, seed, first.metrics["linear"], profile="laptop") for seed in range(8) for first in FIRST_SEEDS
]
"""A random encoder, IR and IRing, with eight seeds each that differ in nothing."""


def without_tags(html: str, between: str = "") -> str:
    return re.sub("<[^>]+>", between, html)


def lines_of_matrix(page: str) -> dict[str, str]:
    """The HTML of each line of a matrix, by the name of its table."""
    lines = re.findall(r'"row">(.*?)</th>(.*?)</tr>', page)
    return {without_tags(name): html for name, html in lines}


def test_the_matrix_has_a_line_for_each_table_its_studies_and_its_verdicts() -> None:
    lines = claims.frame(LAPTOP, [PLAN])
    page = gallery.matrix(LAPTOP, lines, {"vince/table3": {"paper": "<11> studies"}})
    by_table = lines_of_matrix(page)
    (without_run,) = re.findall("or with nothing to train: (.*?)</p>", page)
    others = without_tags(without_run).rstrip(".").split(", ")
    assert sorted([*by_table, *others]) == sorted(each.name for each in papers.catalogue())
    assert "&lt;11&gt; studies" in by_table["vince/table3"]
    assert 'class="verdict same-sign">1 same sign' in by_table["ring/table1"]


def test_a_picture_of_a_table_says_what_was_run_and_what_came_of_it() -> None:
    lines = claims.frame(LAPTOP, [PLAN])
    page = gallery.table_picture(entry("ring/table1"), LAPTOP, lines)
    text = without_tags(page, " ")
    assert page.startswith("<img alt=")
    assert "with profile laptop, with up to 8 seeds." in text
    assert re.search(r"We ran one of the claimed differences\.\s+IRing − IR has the published sign\.", text)
    assert gallery.table_picture(entry("ring/table1"), [], lines) == ""


def test_a_paper_shows_what_was_measured_first_then_the_notebooks_without_a_picture() -> None:
    page = gallery.show("ring", LAPTOP)
    measured, _, rest = page.partition("We have not trained these tables yet")
    assert [link for link in linked(measured) if "table1" in link]
    assert not [link for link in linked(rest) if "table1" in link]
    assert sorted(linked(measured) + linked(rest)) == sorted(gallery.notebooks_of("ring"))
    assert "All that is stored for Table 1, by data set and profile: 1" in measured


def linked(html: str) -> list[str]:
    """The notebooks that a page links to."""
    return [f"{page}.ipynb" for page in re.findall(r'href="\.\./(.*?)\.html"', html)]


def test_a_few_rows_that_were_run_for_another_table_are_not_shown_as_a_table() -> None:
    def shown(table: str, rows: int) -> bool:
        stored = gallery.StoredTable(reports=(), results=LAPTOP, rows=rows)
        return gallery.is_worth_showing(entry(table), stored, rows=8)

    assert LAPTOP[0].table == "ring/table1"
    assert shown("ring/table1", rows=1)
    assert shown("ring/table2", rows=4)
    assert not shown("ring/table2", rows=3)


def test_what_is_stored_for_a_table_is_told_apart_by_data_and_profile() -> None:
    sentences = FULL[0].model_copy(update={"dataset": "wikipedia"})
    tables = list(gallery.stored_tables(PLAN, [*LAPTOP, *FULL, sentences]))
    assert [(table.reports[0].dataset, table.reports[0].profile) for table in tables] == [
        ("cifar10", "laptop"),
        ("cifar10", "paper"),
    ]
    assert [table.rows for table in tables] == [2, 2]
    assert [len(table.results) for table in tables] == [len(LAPTOP), len(FULL)]


def test_a_whole_table_ends_with_its_learning_curves() -> None:
    stored = results.find(gallery.RESULTS, table="ring/table1", dataset="cifar10", profile="laptop")
    (table,) = gallery.stored_tables(PLAN, stored)
    page = gallery.whole_table(PLAN, table)
    assert "Where it comes from: " in page
    assert page.count("<img") == 1
    assert 'alt="Learning curves' in page


def test_a_notebook_opens_with_all_its_tables_or_else_with_a_picture_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gallery, "kept", lambda: ())
    monkeypatch.setattr(gallery, "claims_on_kept", lambda paper: pd.DataFrame())
    monkeypatch.setattr(gallery, "table_picture", lambda entry, stored, lines: f"<{entry.name}>")
    tables = gallery.notebooks_of("ring")["nbs/repro_ring_table5.ipynb"]
    assert len(tables) > 1
    assert gallery.opening("nbs/repro_ring_table5.ipynb") == "".join(f"<{each.name}>" for each in tables)

    monkeypatch.setattr(gallery, "table_picture", lambda entry, stored, lines: "")
    assert gallery.opening("nbs/repro_table1.ipynb") == ""
    assert "of 40 published numbers differ" in gallery.opening("nbs/repro_cmc_architectures.ipynb")


def test_the_best_run_is_shown_and_the_others_are_folded_behind_it() -> None:
    assert gallery.others_folded(["best"]) == "best"
    two_more = gallery.others_folded(["best", "second", "third"])
    assert two_more.startswith("best<details><summary>and 2 more</summary>")
    assert re.findall("<li>(.*?)</li>", two_more) == ["second", "third"]


def test_findings_say_of_a_paper_whether_anything_is_decided_on_its_own_data() -> None:
    page = gallery.findings(claims.frame(LAPTOP))
    by_paper = dict(re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", page))
    undecided = [name for name, text in by_paper.items() if "Nothing is decided" in text]
    assert undecided == [name for name in gallery.NAMES.values() if name != "Rings"]
    assert 'class="verdict same-sign">same sign</b>' in by_paper["Rings"]


def test_headings_of_pandas_are_one_row_and_published_names_are_raised_in_text_alone() -> None:
    one_heading = "<thead><tr><th>c</th></tr></thead>"
    frame = pd.DataFrame({"a": [1]}, index=pd.Index(["IR^nce"], name="row"))
    prose = '<p title="IR^nce">x^2</p>'
    page = openings.one_row(prose + one_heading + frame.to_html())
    page = openings.raise_names(page, openings.names())
    assert re.findall("<th>(.*?)</th>", page) == ["c", "row", "a", "IR<sup>nce</sup>"]
    assert prose in page


def test_tables_of_a_page_say_once_how_they_are_read_and_folded_ones_keep_it() -> None:
    def table(*lines: str) -> str:
        items = "".join(f"<li>{line}</li>" for line in lines)
        return f'<figure class="published-measured x"><div></div></figure><ul class="x">{items}</ul>'

    of_no_table = "<ul><li>a</li></ul>"
    tables = table("a", "b") + table("a", "c") + table("a")
    in_a_fold = f"<details>{table('a')}</details>"
    shown = openings.said_once(of_no_table + tables + in_a_fold)
    assert re.findall("<li>(.*?)</li>", shown) == ["a", "a", "b", "c", "a"]
    assert shown.count("<ul") == 4
    assert shown.count("<figure") == 4


def test_an_appendix_has_no_number_and_a_chapter_keeps_its_own() -> None:
    number = '<h1><span class="section-number">{} </span>Appendix</h1><h2><span class="section-number">1.2. </span>'
    assert openings.without_deep_number(number.format("1.18.")).startswith("<h1>Appendix</h1><h2><span")
    assert openings.without_deep_number(number.format("3.")) == number.format("3.")
    assert openings.without_deep_number("1.18. Appendix") == "Appendix"
    assert openings.without_deep_number("3. VINCE") == "3. VINCE"


def test_a_table_of_a_styler_has_the_style_of_the_book_and_a_type_is_code() -> None:
    assert '<table id="T_1a2b" class="dataframe">' in openings.styled('<p>a</p><table id="T_1a2b"><thead>')
    assert openings.styled('<table class="table">') == '<table class="table">'
    field = 'Type<span class="colon">:</span></dt>\n<dd class="field-odd"><p>{}</p>'
    assert openings.types_as_code(field.format("int | None")) == field.format("<code>int | None</code>")


def test_a_page_is_checked_for_python_in_its_prose_plain_tables_and_height(browser: Any) -> None:
    from check import MARKUP, NONE, PLAIN_TABLES, STYLES, TEXTS

    page = browser.new_page(viewport={"width": 1300, "height": 900})

    def found(body: str, script: str, argument: Any) -> list[str]:
        page.set_content(f"<article>{body}</article>")
        return list(page.evaluate(script, argument))

    for wrong in ("holds, None", "None", "a seed (None)", "the margin is None here"):
        assert found(f"<p>{wrong}</p>", TEXTS, NONE) == [wrong]
    for right in (
        "<p>None of them holds.</p>",
        "<p>So. None holds.</p>",
        "<code>None</code>",
        "<p>Bank(k=None, m=1)</p>",
    ):
        assert found(right, TEXTS, NONE) == []
    assert found("<p>function | bounds | — | — |</p>", TEXTS, MARKUP)
    assert found("<p>p(x|y) and |S|</p>", TEXTS, MARKUP) == []
    assert found("<table><tr><td>-10.6</td></tr></table>", PLAIN_TABLES, STYLES) == ["-10.6"]
    assert found('<table class="dataframe"><tr><td>1</td></tr></table>', PLAIN_TABLES, STYLES) == []


ENTRIES = """<!doctype html><article><a href="#ring-b">to b</a>{folds}</article>"""
FOLD = """<details id="{paper}"><summary>{paper}</summary><table class="ledger"><thead><tr><th>said</th></tr></thead>
  <tbody>{rows}</tbody></table></details>"""
ENTRY = """<tr><td><span id="{paper}-{name}" data-paper="{paper}" data-section="1" data-verdict="holds"
  data-severity="none" data-decided="proved"></span>{word}</td></tr>"""


def test_a_link_opens_the_fold_of_its_entry_and_a_word_opens_the_folds_that_have_it(
    browser: Any, tmp_path: Path
) -> None:
    rows = {"vince": [("a", "apple")], "ring": [("a", "apple"), ("b", "berry")]}
    folds = ""
    for paper, entries in rows.items():
        lines = [ENTRY.format(paper=paper, name=name, word=word) for name, word in entries]
        folds += FOLD.format(paper=paper, rows="".join(lines))
    path = tmp_path / "errata.html"
    path.write_text(ENTRIES.format(folds=folds), encoding="utf-8")
    page = browser.new_page()
    page.add_init_script(path=str(Path(gallery.__file__).parent / "_static" / "tables.js"))
    opened = "() => [...document.querySelectorAll('details')].filter(e => e.open && !e.hidden).map(e => e.id)"

    page.goto(path.as_uri())
    assert page.evaluate(opened) == []
    page.get_by_text("to b").click()
    page.wait_for_function("() => document.getElementById('ring').open")
    page.evaluate("() => { document.getElementById('ring').open = false; }")
    page.get_by_text("to b").click()  # the address does not change
    page.wait_for_function("() => document.getElementById('ring').open")
    page.get_by_label("only with this word").fill("apple")
    assert page.evaluate(opened) == ["vince", "ring"]
    page.get_by_label("only with this word").fill("berry")
    assert page.evaluate(opened) == ["ring"]
    assert page.get_by_role("status").text_content() == "1 of 3 statements"
    page.get_by_label("only with this word").fill("apple")
    page.get_by_text("to b").click()  # an entry is shown whatever was chosen
    page.wait_for_function("() => !document.getElementById('ring-b').closest('tr').hidden")
    page.goto("about:blank")
    page.goto(f"{path.as_uri()}#vince-a")
    assert page.evaluate(opened) == ["vince"]


def test_a_page_may_be_so_tall_and_what_is_folded_does_not_count(tmp_path: Path, browser: Any) -> None:
    from check import measures

    path = tmp_path / "page.html"
    tall = '<p style="height:15000px">tall</p>'
    for body, wrong in {tall: 1, f"<details><summary>more</summary>{tall}</details>": 0}.items():
        path.write_text(f"<!doctype html><article>{body}</article>", encoding="utf-8")
        page = browser.new_page(viewport={"width": 1300, "height": 900})
        page.goto(path.as_uri())
        lines = list(measures(page, path))
        assert len(lines) == wrong
        assert all("px tall: expected at most 14,000 px" in line for line in lines)


def test_a_folded_check_says_how_many_assertions_it_holds() -> None:
    said = "Checked when the book is built: "
    assert openings.checked("x = 1\nassert x\nfor y in [x]:\n    assert y") == f"{said}2 assertions"
    assert openings.checked("assert x  # to assert more is not needed") == f"{said}1 assertion"


def test_a_page_is_checked_for_its_first_figure_weight_scroll_bars_and_links(tmp_path: Path, browser: Any) -> None:
    from check import measures, white_papers

    folder = tmp_path / "book"
    folder.mkdir()
    path = folder / "tables_x.html"
    Image.new("RGB", (300, 200), "white").save(folder / "a.png")
    Image.effect_noise((1600, 1600), 90).save(folder / "b.png")
    picture = '<img src="a.png" alt="a">'
    far_down = f'<p style="height:1300px"></p>{picture}'
    scrolled = '<pre style="overflow:auto;width:9px">wide</pre>'
    long_link = f'<a href="#x">{"long " * 9}</a>'
    heavy = '<img src="b.png" alt="b">'
    expected = {
        picture: [],
        far_down: ["no figure in the first 1200 px"],
        picture + scrolled + long_link: ["scroll bar inside", "link text of 44 characters"],
        picture + heavy: [" MB: expected at most 2 MB"],
    }
    for body, wrong in expected.items():
        path.write_text(f"<!doctype html><article>{body}</article>", encoding="utf-8")
        page = browser.new_page(viewport={"width": 1300, "height": 900})
        page.goto(path.as_uri())
        for part, line in zip(wrong, measures(page, path), strict=True):
            assert part in line
        assert "figure 0 has white paper: a" in white_papers(page)

    white_box = '<svg width="300" height="200"><rect x="9" y="9" width="280" height="180" fill="white"/></svg>'
    white_canvas = '<canvas style="background:white">'
    page.set_content(f'<body style="background:black"><article>{white_box}{white_canvas}</article>')
    assert len(list(white_papers(page))) == 2
