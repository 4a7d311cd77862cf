"""Text of others (names of files, classes, columns, parameters; errors) as a page or a terminal shows it to the letter.

Whatever a name holds, it adds no line, no element, no link, no formula and no colour to what it is printed in.
"""

from __future__ import annotations

import html as _html
import unicodedata
from collections.abc import Iterable

LITERAL = "tex2jax_ignore mathjax_ignore"
"""Classes of an element of HTML in which MathJax leaves dollar signs alone."""

_MARKDOWN = "\\`*_|<>&[]$~#"


def line(text: object) -> str:
    r"""``text`` on one line: what is no printable sign is written out, as Python writes it in a string (``\n``)."""
    return "".join(_visible(c) for c in str(text))


def _visible(character: str) -> str:
    # controls, formats such as a change of direction, and halves of surrogate pairs, which no file can be written with
    kind = unicodedata.category(character)
    if kind.startswith("C") or kind in ("Zl", "Zp"):
        return character.encode("unicode_escape").decode("ascii")
    return character


def html(text: object) -> str:
    """``text`` inside an element of HTML or a quoted attribute; MathJax is told by :data:`LITERAL`."""
    return _html.escape(line(text))


def markdown(text: object) -> str:
    """``text`` inside a paragraph, a list or a table of Markdown."""
    return "".join(f"\\{c}" if c in _MARKDOWN else c for c in line(text))


def markdown_row(cells: Iterable[str]) -> str:
    """A line of a table in Markdown, of cells that are Markdown."""
    return f"| {' | '.join(cells)} |"


def mathtext(text: object) -> str:
    """``text`` as a label of matplotlib, which reads TeX between dollar signs."""
    return line(text).replace("$", r"\$")
