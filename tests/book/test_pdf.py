"""Pages on paper: sliders stand where they are asked to, nothing is wider than the sheet, sidebars stay away."""

import re
import zlib
from pathlib import Path
from typing import Any

import pytest
from plotly import graph_objects as go
from plotly import io, offline

from contrastbook.figures import sliding

pytest.importorskip("playwright.sync_api", reason="playwright is in the group book: make check-book installs it")
BOOK = Path(__file__).parents[2] / "book"

import pdf  # noqa: E402
from check import browser_path  # noqa: E402

STEPS = (1, 2, 3, 5)
LONG = "a_name_that_is_very_long = " * 12


NAMES = ("one of four long names", "another of four", "yet another of four long names", "the last")


def line(slope: int) -> go.Figure:
    traces = [go.Scatter(y=[0, slope + k], name=name) for k, name in enumerate(NAMES)]
    return go.Figure(traces, go.Layout(title=f"slope {slope}"))


def printed(path: Path) -> str:
    """The text of a PDF that Chromium wrote, without blanks: glyphs of each font by its own table of characters."""
    objects = dict(re.findall(rb"(\d+) 0 obj\n(.*?)endobj", path.read_bytes(), re.S))

    def stream(number: bytes) -> str:
        content = objects[number].partition(b"stream\n")[2].rpartition(b"\nendstream")[0]
        return zlib.decompress(content).decode("latin1")

    tables = {}
    for number, body in objects.items():
        for table in re.findall(rb"/ToUnicode (\d+) 0 R", body):
            tables[number.decode()] = characters(stream(table))
    words, font = [], ""
    for number, body in objects.items():
        if b"FlateDecode" not in body:
            continue
        for name, glyphs in re.findall(r"/F(\d+) [\d.]+ Tf|((?:<[0-9A-F]+>)[^\n]*) T[jJ]", stream(number)):
            font = name or font
            if not name and font in tables:
                codes = re.findall("....", "".join(re.findall("<([0-9A-F]+)>", glyphs)))
                words += [tables[font].get(code, "") for code in codes]
    return re.sub(r"\s", "", "".join(words))


def characters(table: str) -> dict[str, str]:
    """Code of a glyph to its character, from a PDF's table."""
    by_code = {}
    for first, last, to in re.findall(r"<(\w{4})> <(\w{4})> <(\w{4})>", table):
        for k in range(int(last, 16) - int(first, 16) + 1):
            by_code[f"{int(first, 16) + k:04X}"] = chr(int(to, 16) + k)
    for code, to in re.findall(r"^<(\w{4})> <(\w{4})>$", table, re.M):
        by_code[code] = chr(int(to, 16))
    return by_code


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A folder like the built book, with one chapter and one page that is none."""
    figure = sliding(line, "slope", STEPS, start=2)
    plot = io.to_html(figure, full_html=False, include_plotlyjs=False, auto_play=False, config={"responsive": True})
    (tmp_path / "plotly.js").write_text(offline.get_plotlyjs(), encoding="utf-8")
    (tmp_path / "book.css").write_text((BOOK / "_static" / "book.css").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "line.html").write_text(
        f"""<!doctype html><title>Line</title><link rel="stylesheet" href="../book.css">
        <script src="../plotly.js"></script>
        <div class="bd-sidebar-primary">contents of the book</div>
        <article class="bd-article"><span id="ch-line"></span><h1>Line</h1><p>{"word " * 300}</p>
        <div style="height: 3000px"></div><div class="output">{plot}</div>
        <div class="cell"><div class="cell_input"><div class="highlight"><pre>{LONG}</pre></div></div></div>
        <details class="hide above-input"><summary>Show code cell source</summary><pre>hidden = 1</pre></details>
        <div class="cell tag_hide-cell"><details class="hide"><summary>Show</summary><pre>solved = 1</pre></details>
        </div>
        <div class="exercise admonition"><p>How steep is it?</p></div>
        <div class="solution dropdown admonition"><details><summary>Solution</summary><p>As steep as two.</p></details>
        </div>
        <div class="cell tag_hide-cell"><details class="hide"><summary>Show</summary><pre>worked_out = 2</pre></details>
        </div>
        <details class="sd-dropdown"><summary>All tasks</summary><p>the fortieth task</p></details>
        </article>""",
        encoding="utf-8",
    )
    (tmp_path / "book" / "index.html").write_text("<title>Index</title>", encoding="utf-8")
    return tmp_path


def test_a_knob_is_a_page_a_figure_and_a_step() -> None:
    assert pdf.Knob.parse("many_views:2=17") == pdf.Knob("many_views", 2, 17)
    for wrong in ("ring", "ring:0=1", "ring:1", "ring:1=-1", "ring:1=2 "):
        with pytest.raises(ValueError, match="expected PAGE:FIGURE=STEP"):
            pdf.Knob.parse(wrong)


@pytest.mark.parametrize(("knobs", "step"), [([], 1), ([pdf.Knob("line", 1, 3)], 3)])
def test_a_figure_is_printed_where_its_slider_stands_or_is_put(
    built: Path, browser: Any, knobs: list[pdf.Knob], step: int
) -> None:
    page = browser.new_page(viewport=pdf.TEXT)
    pdf.prepare(page, built / "book" / "line.html", knobs)
    state = "f => [f.layout.sliders[0].active, f.data[0].y[1]]"
    assert page.locator(".js-plotly-plot").evaluate(state) == [step, STEPS[step]]
    page.close()


def test_paper_has_no_sidebar_and_nothing_wider_than_itself(built: Path, browser: Any) -> None:
    page = browser.new_page(viewport=pdf.TEXT)
    pdf.prepare(page, built / "book" / "line.html", [])
    assert page.evaluate("() => document.documentElement.scrollWidth") <= pdf.TEXT["width"]
    seen = page.locator("body").inner_text()
    assert "solved = 1" in seen
    for left_out in ("contents of the book", "Show", "hidden = 1"):
        assert left_out not in seen
    page.close()


@pytest.mark.parametrize("wrong", [pdf.Knob("line", 1, 4), pdf.Knob("line", 2, 0)])
def test_a_knob_that_is_not_there_is_refused(built: Path, browser: Any, wrong: pdf.Knob) -> None:
    page = browser.new_page(viewport=pdf.TEXT)
    with pytest.raises(ValueError, match=re.escape(f"--knob line:{wrong.figure}={wrong.step}: ")):
        pdf.prepare(page, built / "book" / "line.html", [wrong])
    page.close()


def test_a_figure_is_brought_into_sight_before_it_is_printed(built: Path, browser: Any) -> None:
    """Of figures on a long page that were never in sight Chromium leaves the legend out."""
    watch = """addEventListener('DOMContentLoaded', () => {
      const watch = new IntersectionObserver(seen => { window.inSight ||= seen.some(each => each.isIntersecting); });
      watch.observe(document.querySelector('.js-plotly-plot')); });"""
    page = browser.new_page(viewport=pdf.TEXT)
    page.add_init_script(watch)
    page.goto((built / "book" / "line.html").as_uri())
    page.wait_for_timeout(300)
    assert not page.evaluate("() => window.inSight")  # it stands far below
    pdf.prepare(page, built / "book" / "line.html", [])
    assert page.evaluate("() => window.inSight")
    page.close()


def test_paper_has_whole_legends_what_is_folded_and_the_licence(built: Path, browser: Any) -> None:
    pdf.write(browser, built / "book" / "line.html", built / "line.pdf")
    text = printed(built / "line.pdf")
    for words in (*NAMES, "As steep as two.", "worked_out = 2", "the fortieth task", "MIT licence"):
        assert words.replace(" ", "") in text


def test_a_worksheet_has_exercises_and_no_solution(built: Path, browser: Any) -> None:
    pdf.write(browser, built / "book" / "line.html", built / "line.pdf", worksheet=True)
    text = printed(built / "line.pdf")
    for words, is_there in (
        ("How steep is it?", True),
        ("As steep as two.", False),
        ("worked_out = 2", False),
        ("solved = 1", True),  # of no exercise
    ):
        assert (words.replace(" ", "") in text) == is_there


def test_every_chapter_becomes_a_file_and_other_pages_only_by_name(built: Path, browser: Any) -> None:
    assert pdf.chapters(built) == ["line"]
    pdf.write(browser, built / "book" / "line.html", built / "pdf" / "line.pdf")
    assert (built / "pdf" / "line.pdf").read_bytes().startswith(b"%PDF-")


def test_a_page_that_is_not_there_or_asks_another_host_is_not_printed(built, browser, capsys) -> None:
    page = built / "book" / "line.html"
    page.write_text('<title>x</title><img src="https://example.org/x.png">', encoding="utf-8")
    with pytest.raises(RuntimeError, match=r"asks https://example\.org/x\.png"):
        pdf.write(browser, page, built / "x.pdf")
    assert not (built / "x.pdf").exists()
    assert pdf.main([str(built), str(built / "out"), "--page", "ring"]) == 1
    assert "no page ring" in capsys.readouterr().out or browser_path() is None
