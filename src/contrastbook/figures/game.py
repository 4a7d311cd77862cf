"""The game of the front page: a visitor picks the partner of a view, and sees the nats that the picks reveal.

Rules, counting and drawing are one ES module, ``game.js``. What it plays with are the tiles of
:mod:`contrastbook.studies.photographs`, and the embeddings of their views by a trained encoder.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from contrastbook.figures import playground
from contrastbook.studies import photographs


def _file(kind: str) -> str:
    return files("contrastbook.figures").joinpath(f"game.{kind}").read_text(encoding="utf-8")


def html(**options: Any) -> str:
    """The game as a fragment of a page that asks nobody for anything.

    ``options``: ``kind`` is what the names of the book's pages end in, ``seed`` fixes the rounds, ``pause`` is the
    time (milliseconds) between a pick and the next round.
    """
    mount = f'mount(document.getElementById("game-live"), {photographs.stored_text().strip()}, {json.dumps(options)});'
    module = playground.script("game")
    return (
        f'<style>\n{_file("css")}</style>\n<div id="game-live"></div>\n'
        f'<script type="module">\n{module}\n{mount}\n</script>\n'
    )
