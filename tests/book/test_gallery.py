"""Pictures, sentences and tables that the book shows of what is stored, and the checks that open a built page."""

import re
from pathlib import Path
from typing import Any

import gallery
import openings
import pandas as pd
from PIL import Image

from contrastbook.evidence import claims
from contrastlab import papers
from contrastlab.tables import report
from test_report import FULL, PLAN, entry, result

LAPTOP = [result(r.method, seed, r.metrics["linear"], profile="laptop") for seed in range(8) for r in FULL[::3]]


def test_the_matrix_has_a_line_for_each_table_its_studies_and_its_verdicts() -> None:
    page = gallery.matrix(LAPTOP, claims.frame(LAPTOP, [PLAN]), {"vince/table3": {"paper": "<11> studies"}})
    lines = {re.sub("<[^>]+>", "", name): text for name, text in re.findall(r'"row">(.*?)</th>(.*?)</tr>', page)}
    assert all(page.count(f">{e.name}</a>") + page.count(f"{e.name}, ") >= 1 for e in papers.catalogue())
    assert "&lt;11&gt; studies" in lines["vince/table3"]
    assert 'class="verdict same-sign">1 same sign' in lines["ring/table1"]


def test_a_picture_sets_published_numbers_apart_and_says_what_came_of_it() -> None:
    page = gallery.pictured(entry("ring/table1"), LAPTOP, lines := claims.frame(LAPTOP, [PLAN]))
    text = re.sub("<[^>]+>", " ", page)
    assert re.search(r"We ran one of the claimed differences\.\s+IRing − IR has the published sign\.", text)
    assert gallery.pictured(entry("ring/table1"), FULL[:0], lines) == ""
    measured, apart = gallery.dots([report.table(PLAN, LAPTOP, "cifar10", "laptop")]).axes[::-1]
    assert apart.lines[0].get_xdata().tolist() == [
        PLAN.published_value("cifar10", r) for r in ("ring/ir", "ring/iring")
    ]
    assert not [line for line in measured.lines if line.get_marker() == "D"]


def test_verdicts_are_sentences() -> None:
    said = {
        ("same sign", ("a − b", "c − d")): "a − b and c − d have the published sign.",
        ("opposite sign, on rooms", ("a − b",)): "a − b has the opposite sign on generated rooms.",
        ("difference where none is claimed", ("a − b", "a − b")): (
            "a − b (2 columns) have a clear sign, where the paper claims no difference."
        ),
        ("same sign", ("a", "b", "c", "d")): "Four have the published sign.",
        ("no gain of the published size: at most 0.5 points either way, on camvid", ("a − b",)): (
            "a − b: at most 0.5 points either way on CamVid, so no gain of the published size."
        ),
        ("open", ("a", "b")): "a and b are undecided: their intervals contain 0.",
        ("open", ("a", "b", "c", "d")): "Four are undecided: their intervals contain 0.",
        ("open (4 of 8 seeds)", ("a",)): "a has 4 of the 8 seeds that a verdict needs.",
        (
            "open (clips cannot stand in)",
            ("a",),
        ): "a was run on drawn clips, which cannot stand in for the paper's data.",
        ("open (settings not searched for both rows)", ("a", "b")): (
            "a and b were run with settings that no search chose, which decides nothing."
        ),
    }
    for (verdict, named), sentence in said.items():
        assert gallery.in_words(verdict, named) == sentence


def test_headings_of_pandas_are_one_row_and_published_names_are_raised_in_text_alone() -> None:
    made = f"<thead><tr><th>c</th></tr></thead>{pd.DataFrame({'a': [1]}, pd.Index(['IR^nce'], name='row')).to_html()}"
    page = openings.raise_names(openings.one_row(f'<p title="IR^nce">x^2</p>{made}'), openings.names())
    assert re.findall("<th>(.*?)</th>", page) == ["c", "row", "a", "IR<sup>nce</sup>"]
    assert '<p title="IR^nce">x^2</p>' in page


def test_tables_of_a_page_say_once_how_they_are_read_and_folded_ones_keep_it() -> None:
    def table(*lines: str) -> str:
        items = "".join(f"<li>{line}</li>" for line in lines)
        return f'<figure class="published-measured x"><div></div></figure><ul class="x">{items}</ul>'

    page = f"<ul><li>a</li></ul>{table('a', 'b')}{table('a', 'c')}{table('a')}<details>{table('a')}</details>"
    shown = openings.said_once(page)
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
    folds = "".join(
        FOLD.format(paper=paper, rows="".join(ENTRY.format(paper=paper, name=name, word=word) for name, word in each))
        for paper, each in rows.items()
    )
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

    (tmp_path / "book").mkdir()
    path, picture = tmp_path / "book/tables_x.html", '<img src="a.png" alt="a">'
    Image.new("RGB", (300, 200), "white").save(tmp_path / "book/a.png")
    Image.effect_noise((1600, 1600), 90).save(tmp_path / "book/b.png")
    crowded = f'<pre style="overflow:auto;width:9px">wide</pre><a href="#x">{"long " * 9}</a>'
    for body, wrong in {
        picture: [],
        f'<p style="height:1300px"></p>{picture}': ["no figure in the first 1200 px"],
        f"{picture}{crowded}": ["scroll bar inside", "link text of 44 characters"],
        f'{picture}<img src="b.png" alt="b">': [" MB: expected at most 2 MB"],
    }.items():
        path.write_text(f"<!doctype html><article>{body}</article>", encoding="utf-8")
        page = browser.new_page(viewport={"width": 1300, "height": 900})
        page.goto(path.as_uri())
        assert all(part in line for part, line in zip(wrong, measures(page, path), strict=True))
        assert "figure 0 has white paper: a" in white_papers(page)
    drawn = '<svg width="300" height="200"><rect x="9" y="9" width="280" height="180" fill="white"/></svg>'
    page.set_content(f'<body style="background:black"><article>{drawn}<canvas style="background:white"></article>')
    assert len(list(white_papers(page))) == 2
