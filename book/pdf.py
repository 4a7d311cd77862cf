"""Chapters of the built book as PDF, printed by Chromium without a network: ``make pdf``, or

    python book/pdf.py _build/html _build/pdf --page ring --knob ring:2=7

A figure with a slider is printed where the slider stands in the page; ``--knob ring:2=7`` puts that of the second
figure of ``ring`` at its step 7 (figures are counted from 1, steps from 0). What is folded is opened, solutions too;
``--worksheet`` leaves them out.
What is left out on paper is in ``book.css`` under ``@media print``. CHROMIUM names the browser; else it is looked for.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from check import browser_path, foreign
from playwright.sync_api import Browser, Page, sync_playwright

MARGIN_MM = 14
TEXT = {"width": round((210 - 2 * MARGIN_MM) / 25.4 * 96), "height": round((297 - 2 * MARGIN_MM) / 25.4 * 96)}
"""What is left of A4 between the margins, in CSS pixels; figures are laid out at this width."""
FOOTER = """<div style="font: 8px sans-serif; width: 100%; text-align: center; color: #555">
<span class="title"></span> · MIT licence ·
<span class="pageNumber"></span> of <span class="totalPages"></span></div>"""
WORKSHEET = """() => document.querySelectorAll('.solution').forEach(solution => {
  while (solution.nextElementSibling && solution.nextElementSibling.matches('.tag_hide-cell'))
    solution.nextElementSibling.remove();
  const room = document.createElement('div');
  room.className = 'room-to-work';
  room.style.height = '6em';
  solution.replaceWith(room); })"""
"""Puts room for an answer in place of each solution and the cells that belong to it."""
FIT = """async () => {
  document.querySelectorAll('.tag_hide-cell details, .solution details, details.sd-dropdown')
    .forEach(d => { d.open = true; });
  for (const figure of document.querySelectorAll('.js-plotly-plot')) {
    figure.scrollIntoView();
    await Plotly.Plots.resize(figure);
    await new Promise(done => requestAnimationFrame(() => setTimeout(done, 200)));
  } }"""
"""Opens what is folded and lays figures out, each in sight: of others Chromium prints the first line of a legend."""
TURN = """async ([number, step]) => {
  const figure = document.querySelectorAll('.js-plotly-plot')[number - 1];
  const slider = ((figure || {}).layout || {}).sliders && figure.layout.sliders[0];
  if (!slider) return 'no figure with a slider';
  if (step >= slider.steps.length) return `the steps are 0 to ${slider.steps.length - 1}`;
  await Plotly.animate(figure, ...slider.steps[step].args);
  await Plotly.relayout(figure, {'sliders[0].active': step});
  return ''; }"""


@dataclass(frozen=True)
class Knob:
    """Where the slider of a figure is put: page, number of the figure from 1, step from 0."""

    page: str
    figure: int
    step: int

    @classmethod
    def parse(cls, text: str) -> Knob:
        """``ring:2=7``.

        Raises:
            ValueError: it has another form.
        """
        match = re.fullmatch(r"([a-z_]+):([1-9]\d*)=(\d+)", text)
        if not match:
            raise ValueError(f"--knob {text!r}: expected PAGE:FIGURE=STEP, such as ring:2=7")
        return cls(match[1], int(match[2]), int(match[3]))


def chapters(root: Path) -> list[str]:
    """Names of the built pages that are chapters."""
    found = sorted((root / "book").glob("*.html"))
    return [path.stem for path in found if re.search(r'\bid="ch-[a-z-]+"', path.read_text(encoding="utf-8"))]


def prepare(page: Page, path: Path, knobs: Sequence[Knob], *, worksheet: bool = False) -> None:
    """Open a page as it goes to paper; a worksheet has no solutions.

    Raises:
        ValueError: a knob that the page has not.
    """
    page.emulate_media(media="print", color_scheme="light")
    page.goto(path.resolve().as_uri(), wait_until="load")
    if page.query_selector(".math"):
        page.wait_for_function("() => window.MathJax && MathJax.startup && MathJax.startup.promise", timeout=30_000)
        page.evaluate("() => MathJax.startup.promise")
    if worksheet:
        page.evaluate(WORKSHEET)
    page.evaluate(FIT)
    for knob in knobs:
        wrong = page.evaluate(TURN, [knob.figure, knob.step])
        if wrong:
            raise ValueError(f"--knob {knob.page}:{knob.figure}={knob.step}: {wrong}")
    page.wait_for_timeout(500)


def write(browser: Browser, source: Path, target: Path, knobs: Sequence[Knob] = (), *, worksheet: bool = False) -> None:
    """Print one page."""
    context = browser.new_context(offline=True, viewport=TEXT)
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if foreign(request.url) else None)
    prepare(page, source, knobs, worksheet=worksheet)
    if asked:
        raise RuntimeError(f"{source.name} asks {asked[0]}: a page of the book needs no connection")
    target.parent.mkdir(parents=True, exist_ok=True)
    margin = dict.fromkeys(("top", "right", "bottom", "left"), f"{MARGIN_MM}mm")
    page.pdf(
        path=target,
        format="A4",
        margin=margin,
        print_background=True,
        display_header_footer=True,
        header_template="<span></span>",
        footer_template=FOOTER,
        outline=True,
        tagged=True,
    )
    context.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what is asked for; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path, nargs="?", default=Path("_build/html"))
    parser.add_argument("out", type=Path, nargs="?", default=Path("_build/pdf"))
    parser.add_argument("--page", action="append", help="name of a page of book/; default every chapter")
    parser.add_argument("--knob", action="append", type=Knob.parse, default=[], help="PAGE:FIGURE=STEP")
    parser.add_argument("--worksheet", action="store_true", help="leave solutions out; files end in -worksheet.pdf")
    args = parser.parse_args(arguments)
    executable = browser_path()
    names = args.page or chapters(args.root)
    stray = [knob.page for knob in args.knob if knob.page not in names]
    unknown = stray + [name for name in names if not (args.root / "book" / f"{name}.html").exists()]
    if executable is None or not names or unknown:
        print(
            "no Chromium found; install one, or name it in CHROMIUM"
            if executable is None
            else f"no page {', '.join(unknown) or 'at all'} under {args.root}: run make book first"
        )
        return 1
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        for name in names:
            target = args.out / f"{name}{'-worksheet' if args.worksheet else ''}.pdf"
            source, knobs = args.root / "book" / f"{name}.html", [knob for knob in args.knob if knob.page == name]
            try:
                write(browser, source, target, knobs, worksheet=args.worksheet)
            except ValueError as error:
                print(error)
                return 1
            print(target)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
