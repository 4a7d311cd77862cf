"""What was measured of the differences that each paper is known for: a sentence each.

Which differences these are, and in which words, stands in ``headlines.toml``. Of several lines that speak of one
(:func:`contrastbook.evidence.claims.frame`), :func:`line_of` chooses by a rule.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

import pandas as pd

from contrastlab.tables.numbers import plural, signed
from contrastlab.tables.report import PROFILES

_TOML = tomllib.loads(resources.files("contrastbook.evidence").joinpath("headlines.toml").read_text("utf-8"))
DATA: Mapping[str, str] = _TOML["data"]
"""Name of a data set to what a reader calls it."""
SIGNS = ("same sign", "opposite sign", "difference where none is claimed")
"""Verdicts of a difference whose interval leaves out 0."""


@dataclass(frozen=True)
class Headline:
    """A difference that a paper is known for; the words fit into *A beats B*."""

    paper: str
    table: str
    method: str
    base: str
    method_words: str
    base_words: str


HEADLINES = tuple(Headline(**entry) for entry in _TOML["headlines"])


def line_of(headline: Headline, lines: pd.DataFrame) -> dict[str, Any] | None:
    """The line of :func:`claims.frame` that speaks for a headline; ``None`` where nothing was run.

    The paper's own data come before data that stand in for them, a verdict before an open line, and then the profile
    whose settings were searched furthest, the last of :data:`contrastlab.tables.report.PROFILES`.
    """
    is_asked = lines["gain"].notna()
    for name in ("paper", "table", "method", "base"):
        is_asked &= lines[name] == getattr(headline, name)
    mine = lines[is_asked]
    if mine.empty:
        return None
    ranked = mine.assign(
        elsewhere=mine["stands_for"] != "",
        undecided=mine["verdict"] == "open",
        rank=-mine["profile"].map(PROFILES.index),
    )
    in_order = ranked.sort_values(["elsewhere", "undecided", "rank"], kind="stable")
    best = in_order.iloc[0]
    return {str(name): value for name, value in best[list(lines.columns)].items()}


def _upper(words: str) -> str:
    """Words with a capital at their beginning."""
    return words[:1].upper() + words[1:]


def _size(line: Mapping[str, Any]) -> str:
    """The size of a difference whose interval leaves out 0, such as ``3.1 points (1.8 to 4.3)``."""
    size = abs(line["gain"])
    least, most = sorted((abs(line["low"]), abs(line["high"])))
    return f"{size:.1f} {line['unit']} ({least:.1f} to {most:.1f})"


def _of_paper(line: Mapping[str, Any]) -> str:
    """What the paper says of the method of a line, as the end of a sentence."""
    if line["claimed_sign"] == 0:
        return "the paper claims no difference"
    if pd.isna(line["published"]):
        place = "ahead" if line["claimed_sign"] > 0 else "behind"
        return f"the paper says that it is {place}"
    return f"the paper prints {signed(line['published'], 1, sign=True)}"


def sentence(headline: Headline, line: Mapping[str, Any] | None) -> str:
    """A headline, what was measured of it, and how that compares with the paper."""
    method = _upper(headline.method_words)
    base = headline.base_words
    if line is None:
        return f"{method} against {base}: not run."
    if line["verdict"] in SIGNS:
        beats = "beats" if line["gain"] > 0 else "loses to"
        measured = f"{method} {beats} {base} by {_size(line)}"
    else:
        measured = f"{method} against {base}: {_gain(line)}"
    if line["verdict"] in ("same sign", "no difference, as claimed"):
        return f"{measured}, as published."
    return f"{measured}; {_of_paper(line)}."


def _gain(line: Mapping[str, Any]) -> str:
    """A difference of either sign with its interval, such as ``−0.4 points (−1.7 to +0.9)``."""
    gain = f"{signed(line['gain'], 1, sign=True)} {line['unit']}"
    ends: list[str] = []
    for name in ("low", "high"):
        if pd.notna(line[name]):
            ends.append(signed(line[name], 1, sign=True))
    if not ends:
        return gain
    return f"{gain} ({' to '.join(ends)})"


def data_title(name: str) -> str:
    """What readers call a data set."""
    return DATA.get(name, name)


def column_title(name: str) -> str:
    """The name of a column with its data as readers call them: ``cifar10 conv1`` is ``CIFAR-10 conv1``."""
    return " ".join(data_title(word) for word in name.split(" "))


def place(line: Mapping[str, Any]) -> str:
    """Data, number of seeds and profile of a line, such as ``CIFAR-10, 8 seeds, profile tuned``."""
    on = data_title(line["dataset"])
    seeds = f"{line['used']} {plural('seed', line['used'])}"
    if line["stands_for"]:
        on = f"{on} in place of the paper’s data"
    return f"{on}, {seeds}, profile {line['profile']}"
