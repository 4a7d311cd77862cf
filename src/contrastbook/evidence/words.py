"""The claims of :func:`contrastbook.evidence.claims.frame` in words, line by line and as a table of a page.

:func:`profiles` says what numbers of each profile are worth.
"""

from __future__ import annotations

import base64
import math
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any

import pandas as pd

from contrastbook.evidence import claims, inference
from contrastbook.evidence.differences import STAND_INS
from contrastlab.support import escape
from contrastlab.tables.numbers import signed

Line = Mapping[Any, Any]
"""A row of :func:`contrastbook.evidence.claims.frame`."""


def column_of(line: Line) -> str:
    """The column, and for other data the printed column whose gain is beside it."""
    if not line["stands_for"]:
        return str(line["column"])
    # a column that differs in settings alone has the name of that of the paper
    name = str(line["column"]).removesuffix(f" {line['stands_for']}")
    return f"{name} for {line['stands_for']}"


def table_of(line: Line) -> str:
    """``ring 1``, ``cmc Figure 4``."""
    table = str(line["table"]).replace("figure", "Figure ")
    return f"{line['paper']} {table}"


def is_number(value: Any) -> bool:
    """Whether a line has a value, which is NaN or ``None`` where it has none."""
    return bool(pd.notna(value))


def sentence(line: Line) -> str:
    """The verdict of one line in words, such as ``open (2 of 8 seeds)`` or ``same sign, on rooms``."""
    on = f", on {line['on'] or line['dataset']}" if line["stands_for"] else ""
    if is_number(line["bound"]):
        return f"{_what_is_bounded(line)}: at most {_rounded_up(line['bound'])} {line['unit']} either way{on}"
    if line["verdict"] != "open":
        return f"{line['verdict']}{on}"
    reason = _why_open(line)
    return f"open ({reason})" if reason else "open"


def _what_is_bounded(line: Line) -> str:
    if line["claimed_sign"] == 0:
        return str(line["verdict"])
    kind = "gain" if line["claimed_sign"] > 0 else "loss"
    scale = "" if line["profile"] == "paper" else " at this scale"
    return f"no {kind} of the published size{scale}"


def _rounded_up(bound: float) -> str:
    """To one decimal, so that the bound still holds."""
    return f"{math.ceil(10 * bound) / 10:.1f}"


def _why_open(line: Line) -> str:
    """The first reason why a claim has no verdict yet; empty if the differences are too noisy."""
    if line["stands_for"]:
        other_data = {line["dataset"], line["on"] or line["dataset"]} - STAND_INS.keys()
        if other_data:
            return f"{' and '.join(sorted(other_data))} cannot stand in"
    if line["profile"] != "paper" and not line["search"]:
        return "settings not searched for both rows"
    if line["above_untrained"] is False:
        return "a row is not above an untrained encoder"
    if line["seeds"] < inference.LOOKS[0]:
        return f"{line['seeds']} of {inference.LOOKS[0]} seeds"
    return ""


_SIGNS_IN_WORDS = {1: "above 0, in words", -1: "below 0, in words", 0: "equal, in words"}


def published(line: Line) -> str:
    """The paper's difference as printed, or in words which side of 0 it is on."""
    if not is_number(line["published"]):
        return _SIGNS_IN_WORDS[line["claimed_sign"]]
    value = line["published"]
    digits = 1 if round(value, 1) == value else 2
    return signed(value, digits, sign=True)


def measured(line: Line) -> str:
    """The gain and its interval, such as ``−0.41 (−1.71 to +0.89)``; of one seed the gain."""
    ends = [signed(line[name], sign=True) for name in ("low", "high") if is_number(line[name])]
    gain = signed(line["gain"], sign=True)
    return f"{gain} ({' to '.join(ends)})" if ends else gain


def seeds(line: Line) -> str:
    """How many seeds the interval is of, such as ``8``, or ``8 of 16`` where more are stored."""
    if line["used"] == line["seeds"]:
        return str(line["used"])
    return f"{line['used']} of {line['seeds']}"


def html(lines: pd.DataFrame) -> str:
    """The measured claims as a table for a page, all escaped; those not run are counted.

    ``lines``: of :func:`contrastbook.evidence.claims.frame`.
    """
    shown = lines[lines["gain"].notna()].to_dict("records")
    texts = pd.DataFrame([_table_row(line) for line in shown])
    body = texts.to_html(classes="published-measured", border=0, index=False)
    return (
        f'<figure class="published-measured {escape.LITERAL}">'
        f"<figcaption>Claims with a run: {len(shown)} of {len(lines)} lines.</figcaption>"
        f'<div tabindex="0" role="region" aria-label="Claims with a run">{body}</div></figure>'
    )


def _table_row(line: Line) -> dict[str, str]:
    return {
        "verdict": sentence(line),
        "claim": escape.line(f"{table_of(line)}: {line['claim']}, {column_of(line)}"),
        "published": published(line),
        "measured (95 % interval)": measured(line),
        "seeds": seeds(line),
        "profile": line["profile"],
    }


def links(lines: pd.DataFrame) -> str:
    """The lines as files inside the page, and what the columns mean."""
    return f"{_link('claims.csv', lines)} · {_link('claims-columns.csv', claims.dictionary())}"


def _link(name: str, content: pd.DataFrame) -> str:
    """A link that holds a frame as a CSV file."""
    text = base64.b64encode(content.to_csv(index=False).encode()).decode()
    return f'<a download="{name}" href="data:text/csv;base64,{text}">{name}</a>'


def profiles() -> str:
    """A table in Markdown: each profile, the machine that it needs, and what its numbers say."""
    text = resources.files("contrastbook.evidence").joinpath("profiles.toml").read_text("utf-8")
    lines = ["| profile | needs | what its numbers say |", "| --- | --- | --- |"]
    for name, profile in tomllib.loads(text).items():
        lines.append(f"| `{name}` | {profile['needs']} | {profile['says']} |")
    return "\n".join(lines)
