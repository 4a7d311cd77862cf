"""Opens every built page in Chromium, without a network, and looks for what a reader would stumble over.

Fails if a page asks another host for anything, raises a JavaScript error, shows TeX or markup that was not set,
Python's ``None`` as text, a table without the book's style, an image that is not there or has no words for those who do
not see it, a link that leads nowhere or is longer than 40 characters, or is wider than the window; if a chapter, the
results, the tasks or a paper's tables show no figure on the first screen; if a page weighs more than 2 MB, is taller
than 14,000 px or has a scroll bar inside at 1300 px, or keeps a figure on white paper in the dark; or if a slider is
moved, by mouse or by key, and its figure stays as it was. Every page is opened in light
and in dark; each knob of a playground is turned in both, and the game of the front page is played. Run after
``make book``: ``make check-book``, or
``python book/check.py _build/html`` and the names of pages, if not all. CHROMIUM names the browser; else it is looked
for.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from html import unescape
from io import BytesIO
from itertools import product
from pathlib import Path
from urllib.parse import unquote, urlsplit

from PIL import Image
from playwright.sync_api import Page, sync_playwright
from playwright.sync_api import TimeoutError as BrowserTimeout

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
UNSET = r"""() => [...document.querySelectorAll('.math')].filter(
  e => !e.querySelector('mjx-container') && e.textContent.trim()).map(e => e.textContent.slice(0, 60))"""
MARKUP = r"\$\$|\\[(\[]|\\begin\{|\$\\[a-z]|:::|\{(ref|math|eq|cite)[:}]|\|\s*(—|-{3})"
NONE = r"[a-z0-9,(] *None\b|(?<!=)\bNone\b(?! [a-z])"
"""Python's ``None``, not the English word that begins a sentence, and not an argument in a quoted line of Python."""
STYLES = ("table", "dataframe", "published-measured", "ledger", "atlas", "evidence")
"""Classes of tables that book.css or the theme has a style for."""
TEXTS = r"""marks => { const found = [], wanted = new RegExp(marks);
  const walk = document.createTreeWalker(document.querySelector('article'), NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode, parent = node.parentElement;
    const quoted = parent.closest('pre, code, script, style, svg, .math, dt.sig');
    if (!quoted && wanted.test(node.data)) found.push(node.data.trim().slice(0, 60));
  }
  return found; }"""
PLAIN_TABLES = r"""styles => [...document.querySelectorAll('article table')].filter(
  table => !styles.some(style => table.classList.contains(style))).map(
  table => table.textContent.trim().replace(/\s+/g, ' ').slice(0, 60))"""
WORDLESS = "() => [...document.images].filter(i => !i.alt.trim()).map(i => i.src.slice(0, 80))"
LINKS = "() => [...document.querySelectorAll('article a[href]')].map(a => a.href)"
BROKEN = "() => [...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"
SLIDERS = "() => [...document.querySelectorAll('.js-plotly-plot')].map(e => (e.layout.sliders || []).length)"
FIRST_SCREEN = 1200
TALLEST = 14_000
HEIGHT = "() => document.documentElement.scrollHeight"
HEAVIEST = 2_000_000
LONGEST_LINK = 40
# pictures that a reader can see, with the place of the upper edge on the page; stamps and icons are too small to count
FIGURES = """() => [...document.querySelectorAll('article :is(img, canvas, .js-plotly-plot, svg)')].map(
  e => e.getBoundingClientRect()).filter(b => b.width > 200 && b.height > 100).map(b => b.top + scrollY)"""
LONG_LINKS = """longest => [...document.querySelectorAll('article a[href]:not(.chapter-card, .headerlink)')].map(
  a => a.textContent.trim().replace(/\\s+/g, ' ')).filter(text => text.length > longest)"""
SCROLLED = """() => [...document.querySelectorAll('article, article *')].filter(e => {
  const { overflowX, overflowY } = getComputedStyle(e), bars = /auto|scroll/;
  return (bars.test(overflowX) && e.scrollWidth > e.clientWidth + 1)
    || (bars.test(overflowY) && e.scrollHeight > e.clientHeight + 1); }).map(e => [e.tagName.toLowerCase(),
  ...e.classList].join('.') + ' ' + e.textContent.trim().replace(/\\s+/g, ' ').slice(0, 40))"""
PAPER = (
    "article :is(img, canvas, svg:not(.js-plotly-plot *, mjx-container *), .js-plotly-plot)"
    ":not(details:not([open]) *):visible"
)
# left, top, width and height on the page, and the words of each figure
BOXES = """figures => figures.map(e => { const b = e.getBoundingClientRect();
  return [b.left + scrollX, b.top + scrollY, b.width, b.height, e.alt || e.getAttribute('aria-label')]; })"""
STATE = "e => JSON.stringify([e.layout.title, e._fullData.map(t => [...(t.y || [])].slice(0, 400))])"

PLAYGROUND = "document.getElementById('playground-live').playground"
COMPACT = "#playground-live .clp-small"
KNOBS = f"() => Object.values({PLAYGROUND}.data.groups).flat()"
# makes a knob appear: M keys of an item need a queue
SHOW = f"""name => {{
  const play = {PLAYGROUND}, needs = play.data.needs[name] || {{}}, changes = {{}};
  if (document.querySelector("{COMPACT}")) return true;
  play.load(play.data.presets[2].slug);
  for (const [other, accepted] of Object.entries(needs)) changes[other] = accepted[0];
  if (["many", "joint"].includes(changes.positives)) changes.keys = "queue";
  return play.change(changes); }}"""
NARROW = """() => [...document.querySelectorAll(
  '.clp-equation, .clp-equation > div, .clp pre, .clp-cap, .clp small')].some(e => e.scrollWidth > e.clientWidth + 2)"""
DRAWN = "() => [...document.querySelectorAll('.clp-sphere, .clp-map, .clp-bars')].map(e => e.toDataURL()).join()"


def browser_path() -> str | None:
    """The browser that CHROMIUM names, or one that is installed."""
    return os.environ.get("CHROMIUM") or next((p for name in BROWSERS if (p := shutil.which(name))), None)


def foreign(url: str) -> bool:
    """Whether a request leaves the built folder."""
    return not url.startswith(("file:", "data:", "blob:"))


@cache
def places(page: Path) -> frozenset[str]:
    """The names that a link may lead to on a page."""
    return frozenset(unescape(name) for name in re.findall(r'\bid="([^"]+)"', page.read_text(encoding="utf-8")))


def dead(link: str) -> bool:
    """Whether a link within the built folder leads to no page, or to no place on it."""
    url = urlsplit(link)
    if url.scheme != "file":
        return False
    target = Path(unquote(url.path))
    if not target.is_file():
        return True
    return bool(url.fragment) and target.suffix == ".html" and unquote(url.fragment) not in places(target)


def opens_with_a_figure(path: Path) -> bool:
    """Whether a page is of those that must: chapters, results, tasks, and the tables of a paper."""
    chapter = any(name.startswith("ch-") for name in places(path))
    return path.parent.name == "book" and (chapter or path.stem in ("results", "tasks") or "tables_" in path.stem)


def weight(path: Path) -> int:
    """Bytes of a page and of the pictures it shows; scripts and styles are of the whole book."""
    text = path.read_text(encoding="utf-8")
    pictures = {path.parent / unquote(name) for name in re.findall(r'<img[^>]* src="([^":]+)"', text)}
    return path.stat().st_size + sum(picture.stat().st_size for picture in pictures if picture.is_file())


def measures(page: Page, path: Path) -> Iterator[str]:
    """What is wrong with the first screen, height, weight, scroll bars and links of a page on a desk."""
    if opens_with_a_figure(path) and not any(top < FIRST_SCREEN for top in page.evaluate(FIGURES)):
        yield f"no figure in the first {FIRST_SCREEN} px"
    if (size := weight(path)) > HEAVIEST:
        yield f"{size / 1e6:.1f} MB: expected at most {HEAVIEST / 1e6:g} MB"
    height = page.evaluate(HEIGHT)
    if height > TALLEST:
        yield f"{height:,} px tall: expected at most {TALLEST:,} px"
    yield from (f"scroll bar inside the page: {place}" for place in page.evaluate(SCROLLED))
    yield from (f"link text of {len(text)} characters: {text}" for text in page.evaluate(LONG_LINKS, LONGEST_LINK))


def white_papers(page: Page) -> Iterator[str]:
    """Figures of a dark page whose corner is light, or that are nearly white for the most part."""
    boxes = page.locator(PAPER).evaluate_all(BOXES)
    shown = Image.open(BytesIO(page.screenshot(full_page=True))).convert("L")
    for number, (left, top, width, height, name) in enumerate(boxes):
        if min(width, height) < 60:
            continue
        figure = shown.crop((round(left), round(top), round(left + width), round(top + height)))
        corner = figure.crop((3, 3, 7, 7)).tobytes()
        is_light = sum(corner) > 128 * len(corner)
        light_points = sum(figure.histogram()[235:])
        if is_light or 2 * light_points > figure.width * figure.height:
            yield f"figure {number} has white paper: {name}"


def keys(page: Page, number: int) -> bool:
    """Whether the slider of figure ``number`` goes from end to end by the keyboard, and says where it is."""
    figure = page.query_selector_all(".js-plotly-plot")[number]
    figure.focus()
    states = []
    for key in ("Home", "End"):
        page.keyboard.press(key)
        page.wait_for_timeout(300)
        states.append((figure.evaluate(STATE), figure.get_attribute("aria-valuetext")))
    return states[0][0] != states[1][0] and states[0][1] != states[1][1]


def turn(page: Page, name: str) -> str | None:
    """What is wrong with one knob of a playground, turned by the mouse."""
    if not page.evaluate(SHOW, name):
        return f"knob {name}: its needs are refused"
    places = ("one",) if page.locator(COMPACT).count() else ("knobs", "buttons")
    knob = page.locator(", ".join(f".clp-{place} [data-knob={name}]" for place in places)).first
    if not knob.count():
        return f"knob {name}: not there"
    control = knob.locator("input, select").first
    control.scroll_into_view_if_needed()
    before = page.evaluate(f"() => {PLAYGROUND}.state")[name]
    if control.evaluate("e => e.tagName") == "SELECT":
        for option in control.locator("option:not([disabled])").all():
            value = option.get_attribute("value")
            control.select_option(value)
            if page.evaluate(f"() => {PLAYGROUND}.state")[name] != value:
                return f"knob {name}: {value} is not taken"
        return None
    kind = control.get_attribute("type")
    if kind == "checkbox":
        control.click()
    elif kind == "number":
        control.fill("7")
        control.press("Enter")
    else:
        box = control.bounding_box()
        share = control.evaluate("e => e.value / e.max")
        y = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + 8 + share * (box["width"] - 16), y)
        page.mouse.down()
        page.mouse.move(box["x"] + (0.02 if share > 0.5 else 0.98) * box["width"], y, steps=6)
        page.mouse.up()
    refused = page.locator(".clp-why").text_content()
    if page.evaluate(f"() => {PLAYGROUND}.state")[name] == before and not refused:
        return f"knob {name}: turned, and the state is as it was"
    return None


def playground(page: Page) -> list[str]:
    """What is wrong with the playground of a page: of a compact one its knob and its preset, of another all."""
    found = []
    compact = page.locator(COMPACT).count() > 0
    if page.evaluate(f"() => {PLAYGROUND}.world.step_"):
        found.append("the playground moves before Play is pressed")
    closed = page.locator("#playground-live > div > details:not([open]) > summary")
    while closed.count():
        closed.first.click()
    knobs = page.locator(".clp-one [data-knob]").evaluate_all("all => all.map(e => e.dataset.knob)")
    for name in knobs if compact else page.evaluate(KNOBS):
        wrong = turn(page, name)
        if wrong:
            found.append(wrong)
        if page.evaluate("() => document.documentElement.scrollWidth > window.innerWidth + 2"):
            found.append(f"knob {name}: the page grows wider than the window")
        if page.evaluate(NARROW):
            found.append(f"knob {name}: something is wider than its place")
    for preset in [None] if compact else page.evaluate(f"() => {PLAYGROUND}.data.presets"):
        if preset:
            page.evaluate(f"slug => {PLAYGROUND}.load(slug)", preset["slug"])
        found += moving(page, preset["title"] if preset else "")
    return found


def game(page: Page) -> list[str]:
    """What is wrong with the game of a page: for each number of candidates, a pick shows what it reveals."""
    found = []
    for size in (4, 16, 64):
        page.locator(f".clg input[name=clg-size][value='{size}']").check()
        hand = page.locator(".clg-hand button")
        if hand.count() != size:
            found.append(f"game of {size}: {hand.count()} candidates")
        hand.first.click()
        if page.locator(".clg-you output").text_content() == "–":
            found.append(f"game of {size}: a pick reveals no number")
        if page.evaluate("() => document.documentElement.scrollWidth > window.innerWidth + 2"):
            found.append(f"game of {size}: the page grows wider than the window")
    return found


def begins_to_move(page: Page) -> bool:
    """Press Play, again after a minute: on a busy machine a press can meet a sphere that is just beginning."""
    for _ in range(3):
        if not page.evaluate(f"() => {PLAYGROUND}.playing"):
            page.locator(".clp-play").click()
        with suppress(BrowserTimeout):
            page.wait_for_function(f"() => {PLAYGROUND}.world.step_ > 3", timeout=60_000)
            return True
    return False


def moving(page: Page, title: str) -> list[str]:
    """What is wrong with the sphere in view: it moves, says what it shows, and no point of it is NaN."""
    page.locator(".clp-sphere").scroll_into_view_if_needed()
    if not begins_to_move(page):
        return [f"preset {title}: Play was pressed three times, and the sphere does not move"]
    before, drawn = page.evaluate(f"() => {PLAYGROUND}.world.step_"), page.evaluate(DRAWN)
    page.wait_for_function(
        f"([step, drawn]) => {PLAYGROUND}.world.step_ > step + 12 && ({DRAWN})() !== drawn", arg=[before, drawn]
    )
    found = []
    label = page.locator(".clp-sphere").get_attribute("aria-label") or ""
    if title not in label or not re.search(r"loss -?\d", label):
        found.append(f"preset {title}: the sphere does not say what it shows")
    if not page.evaluate(f"() => [...{PLAYGROUND}.world.z].every(Number.isFinite)"):
        found.append(f"preset {title}: a point is nowhere")
    return found


def problems(page: Page, path: Path, width: int, scheme: str = "light") -> list[str]:  # noqa: C901
    """What is wrong with one page at one width, by day or in the dark."""
    found: list[str] = []
    page.on("pageerror", lambda error: found.append(f"JavaScript: {error}"))
    page.on("request", lambda request: found.append(f"asks {request.url}") if foreign(request.url) else None)
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(path.resolve().as_uri(), wait_until="load")
    page.wait_for_timeout(300)
    if page.query_selector(".math"):
        page.wait_for_function("() => window.MathJax && MathJax.startup && MathJax.startup.promise", timeout=30_000)
        page.evaluate("() => MathJax.startup.promise")
    found += [f"TeX not set: {text}" for text in page.evaluate(UNSET)]
    found += [f"markup not set: {text}" for text in page.evaluate(TEXTS, MARKUP)]
    found += [f"None as text: {text}" for text in page.evaluate(TEXTS, NONE)]
    found += [f"table without style: {text}" for text in page.evaluate(PLAIN_TABLES, STYLES)]
    found += [f"image missing: {source}" for source in page.evaluate(BROKEN)]
    found += [f"image without words: {source}" for source in page.evaluate(WORDLESS)]
    found += [f"leads nowhere: {link}" for link in sorted(set(page.evaluate(LINKS))) if dead(link)]
    if not page.title().strip():
        found.append("no title")
    if width == 1300:
        found += measures(page, path) if scheme == "light" else white_papers(page)
    if scheme == "dark" and not page.query_selector("#playground-live, #game-live"):
        return found
    for number, sliders in enumerate(page.evaluate(SLIDERS)):
        if sliders:
            figure = page.query_selector_all(".js-plotly-plot")[number]
            figure.scroll_into_view_if_needed()
            before = figure.evaluate(STATE)
            rail = figure.query_selector(".slider-rail-touch-rect")
            box = rail.bounding_box() if rail else None
            if box is None:
                found.append(f"figure {number}: no slider to drag")
                continue
            start = figure.query_selector(".slider-grip-rect").bounding_box()
            target = box["x"] + (0.02 if start["x"] > box["x"] + box["width"] / 2 else 0.98) * box["width"]
            page.mouse.move(start["x"] + start["width"] / 2, start["y"] + start["height"] / 2)
            page.mouse.down()
            page.mouse.move(target, box["y"] + box["height"] / 2, steps=8)
            page.mouse.up()
            page.wait_for_timeout(600)
            if figure.evaluate(STATE) == before:
                found.append(f"figure {number}: the slider moves and the figure does not")
            if not keys(page, number):
                found.append(f"figure {number}: the keys do not move the slider")
    if page.evaluate("() => document.documentElement.scrollWidth > window.innerWidth + 2"):
        found.append(f"wider than {width} px")
    if page.query_selector("#playground-live"):
        found += playground(page)
    if page.query_selector("#game-live"):
        found += game(page)
    return found


def main(root: Path, *names: str) -> int:
    """Number of pages with a problem, of all or of those named."""
    executable = browser_path()
    if executable is None:
        print("no Chromium found; install one, or name it in CHROMIUM")
        return 1
    pages = sorted(p for folder in ("book", "nbs") for p in (root / folder).glob("*.html"))
    moved = {p.name for p in Path(__file__).parent.glob("_moved/book/*.html")}  # they lead to another page at once
    pages = [page for page in pages if page.name not in moved and (not names or page.stem in names)]
    if not pages:
        print(f"no pages under {root}: run make book first")
        return 1
    bad = 0
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        for path in pages:
            found = []
            text = path.read_text(encoding="utf-8")
            played = any(f'id="{name}-live"' in text for name in ("playground", "game"))
            for width, scheme in product((1300, 390), ("light", "dark")):
                if (width, scheme) == (390, "dark") and not played:
                    continue
                context = browser.new_context(offline=True, color_scheme=scheme)
                context.set_default_timeout(300_000)  # a busy machine is slow, not wrong
                page = context.new_page()
                found += [f"{width} px, {scheme}: {text}" for text in problems(page, path, width, scheme)]
                context.close()
            bad += bool(found)
            print(
                f"{'bad ' if found else 'good'} {path.relative_to(root)}",
                *sorted(set(found)),
                sep="\n       ",
                flush=True,
            )
        browser.close()
    return bad


if __name__ == "__main__":
    sys.exit(min(1, main(Path(sys.argv[1] if len(sys.argv) > 1 else "_build/html"), *sys.argv[2:])))
