"""What the pages need, put beside them at build time, so that the built book asks no other host for anything.

MathJax comes from npm and plotly from its Python package, into ``book/_static/vendor``, which is not committed. Without
npm the pages fall back to MathJax's public server, and the build says so. Plotly figures become HTML with their data
inside: sliders work without Python.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import plotly.io
from alternative_text import alternative
from docutils import nodes
from myst_nb.core import render
from PIL import Image
from plotly.offline import get_plotlyjs
from sphinx.application import Sphinx
from sphinx.util import logging

MATHJAX = "mathjax@3.2.2"
UNUSED = (
    "tex-svg*",
    "tex-mml-svg*",
    "mml-*",
    "tex-chtml*",
    "node-main.js",
    "svg",
    *(f"{language}.json" for language in ("ca", "da", "de", "es", "fr", "hi", "it", "nb", "nn", "sv")),
)
"""Of MathJax: other ways to draw formulas, and speech in other languages than English."""

logger = logging.getLogger(__name__)


class Plotly(render.MimeRenderPlugin):
    """``application/vnd.plotly.v1+json`` as a ``div`` and a script; plotly itself is loaded once per page."""

    mime_priority_overrides = (("html", "application/vnd.plotly.v1+json", 1),)

    @staticmethod
    def handle_mime(
        renderer: render.NbElementRenderer, data: render.MimeData, inline: int
    ) -> list[nodes.Element] | None:
        """One raw HTML node, or ``None`` for other types."""
        if inline or data.mime_type != "application/vnd.plotly.v1+json":
            return None
        text = data.content if isinstance(data.content, str) else json.dumps(data.content)
        content = json.loads(text)
        content.pop("config", None)
        html = plotly.io.to_html(
            content,
            full_html=False,
            include_plotlyjs=False,
            include_mathjax=False,
            auto_play=False,
            div_id="figure-" + hashlib.sha256(text.encode()).hexdigest()[:12],
            config={"displayModeBar": False, "responsive": True},
            default_width="100%",
            validate=False,
        )
        return [nodes.raw("", html, format="html", classes=["output"])]


def fetch(package: str, folder: str, target: Path) -> None:
    """Put ``folder`` of the npm ``package`` at ``target``, whole or not at all."""
    with tempfile.TemporaryDirectory() as work:
        done = subprocess.run(
            ["npm", "pack", "--silent", package], cwd=work, capture_output=True, text=True, timeout=120, check=True
        )
        with tarfile.open(Path(work) / done.stdout.split()[-1]) as tar:
            tar.extractall(work, filter="data")
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(target.name + ".new")
        ignored = shutil.ignore_patterns(*UNUSED)
        shutil.copytree(Path(work) / "package" / folder, fresh, dirs_exist_ok=True, ignore=ignored)
        fresh.rename(target)


def vendor(app: Sphinx, config: Any) -> None:
    """Fetch what is missing and point the configuration at it."""
    place = Path(app.confdir) / "book" / "_static" / "vendor"
    place.mkdir(parents=True, exist_ok=True)
    (place / "plotly.min.js").write_text(get_plotlyjs(), encoding="utf-8")
    try:
        if not (place / "mathjax").exists():
            fetch(MATHJAX, "es5", place / "mathjax")
        config.mathjax_path = "vendor/mathjax/tex-mml-chtml.js"
    except (OSError, subprocess.SubprocessError) as error:
        logger.info(f"{MATHJAX} could not be fetched ({error}): formulas will need a connection")


MOST_COLOURS = 8_000
"""Of a chart; a picture with photographs in it has more."""


WIDEST = 700
"""Pixels of a chart that a telephone can shrink and its words still be read; a wider one is pushed sideways there."""


def describe(app: Sphinx, doctree: nodes.document) -> None:
    """Alternative text for figures that a cell drew, and the classes ``photo`` and ``wide``.

    The text is the caption below the figure, or else the titles and axes that the cell names, in whole sentences.
    ``photo`` is for figures that hold photographs.
    """
    for cell in doctree.findall(lambda node: isinstance(node, nodes.container) and "cell" in node.get("classes", [])):
        source = "\n".join(block.astext() for block in cell.findall(nodes.literal_block))
        for image in cell.findall(nodes.image):
            if not image.get("alt") or "/" in image["alt"]:
                section = next(_sections(image), "this page")
                image["alt"] = alternative(source, _caption(cell), section)
            path = Path(app.srcdir) / image["uri"]
            with Image.open(
                path if path.is_file() else Path(app.outdir).parent / "jupyter_execute" / path.name
            ) as drawn:
                if drawn.width > WIDEST:
                    image["classes"].append("wide")
                if drawn.convert("RGB").getcolors(MOST_COLOURS) is None:
                    image["classes"].append("photo")


def _caption(cell: nodes.Element) -> str:
    """The paragraph below a cell if all of it is a caption, in italics; else nothing."""
    follows = cell.next_node(descend=False, siblings=True)
    if not isinstance(follows, nodes.paragraph):
        return ""
    in_italics = len(follows.children) == 1 and isinstance(follows[0], nodes.emphasis)
    return " ".join(follows.astext().split()) if in_italics else ""


def _sections(node: nodes.Node) -> Iterator[str]:
    while node.parent is not None:
        node = node.parent
        if isinstance(node, nodes.section):
            yield node.next_node(nodes.title).astext()


def drop_thebe(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Leave out the scripts of a service these pages do not use: they are declared twice, and ask another host."""
    kept = [s for s in context["script_files"] if "thebe" not in (str(s) + s.attributes.get("body", "")).lower()]
    context["script_files"] = kept


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    # its plugins come from installed packages only, and this one is for these pages
    installed = render.load_mime_renders
    render.load_mime_renders = lambda: [*installed(), Plotly]
    app.connect("config-inited", vendor, priority=100)
    app.connect("doctree-read", describe)
    app.connect("html-page-context", drop_thebe, priority=900)
    app.add_js_file("vendor/plotly.min.js", priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
