"""The ledger: theorems, numbered claims and comparisons of the five papers, each with a verdict and how it was reached.

One TOML file per paper in ``statements/``. A statement names the tests that decide it; those are functions in
``tests/statements/test_<paper>.py`` and nothing else may stand there, so that no verdict is without a test and no test
without a verdict. What a paper says of its own tables is decided in ``tests/statements/test_tables.py``.

A number in a text stands as ``{{name}}`` or ``{{name:.3f}}`` and is taken from ``numbers.json``, which the tests write
(``pytest tests/statements --store-numbers``) and otherwise compare with. ``searches.json`` holds what a search for
counterexamples found, with its date; ``tests/statements/search.py`` writes it. The book's errata page is drawn from
these three.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from contrastlab import errors

Verdict = Literal["holds", "conditional", "false", "unchecked"]
VERDICTS: dict[str, str] = {
    "holds": "holds",
    "conditional": "holds with an added condition",
    "false": "false as printed",
    "unchecked": "not checkable",
}
"""Verdict to its words. *Conditional*: true once a hypothesis is added; *false*: something printed must change."""

Method = Literal["proved", "exact", "searched", "counted", "quoted", "open"]
METHODS: dict[str, str] = {
    "proved": "proved",
    "exact": "exact for a family",
    "searched": "searched",
    "counted": "counted from the paper's table",
    "quoted": "two passages compared",
    "open": "open",
}
"""How it is known that a statement, or what is right instead of it, holds. What fails has a counterexample besides."""


_REPAIR = {"conditional": "Needs:", "false": "Instead:"}
_HERE = files("contrastbook") / "statements"
_PLACE = re.compile(r"\{\{(\w+)(?::([^{}]*))?\}\}")
_TEXTS = ("claim", "assumes", "repair", "because", "counterexample")


class Statement(BaseModel):
    """One claim of one paper. Texts are MyST with dollar mathematics."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paper: str
    id: str = Field(description="unique within the paper, such as theorem-4-1")
    section: str = Field(description="section of the paper, such as '4.1' or 'A.8'")
    where: str = Field(description="where the paper states it, such as 'Theorem 4.1'")
    claim: str = Field(description="the statement in one line")
    assumes: str = Field("", description="its hypotheses, as printed")
    verdict: Verdict
    how: Method = Field(description="how the claim, or its repair, is known to hold")
    repair: str = Field("", description="conditional: the added condition; false: what holds instead")
    because: str = Field("", description="the argument, or why it cannot be checked")
    counterexample: str = Field("", description="in one line; the test has the numbers")
    tests: tuple[str, ...] = Field((), description="tests that show the claim or its repair")
    refuted_by: tuple[str, ...] = Field((), description="tests that pin a counterexample to the claim as printed")
    cases: int = Field(0, description="random cases that these tests draw")
    repeats: str = Field("", description="id of the entry of the same paper whose mistake this one repeats")

    @property
    def name(self) -> str:
        """Paper and id, such as ``ring/theorem-3-2-bias``."""
        return f"{self.paper}/{self.id}"

    @property
    def anchor(self) -> str:
        """The name of its place on the errata page."""
        return f"{self.paper}-{self.id}"

    @model_validator(mode="after")
    def _decided(self) -> Statement:
        name = self.name
        counted = self.how == "counted"
        if (self.verdict == "unchecked") != (self.how == "open"):
            raise ValueError(f"{name} is {self.verdict} and {self.how}: open is what cannot be checked, and only that")
        if self.how == "proved" and not self.because:
            raise ValueError(f"{name} is proved: it needs the argument, as because")
        if counted and (self.tests or self.refuted_by):
            raise ValueError(f"{name} is counted: its decision stands in test_tables.py under its own name")
        if self.verdict == "holds" and (not (self.tests or counted) or self.refuted_by or self.repair):
            raise ValueError(f"{name} holds: it needs tests, and neither repair nor refuted_by")
        if self.verdict in ("conditional", "false"):
            if not (self.refuted_by or counted) or not self.counterexample:
                raise ValueError(f"{name} is {self.verdict}: it needs a counterexample and the test that pins it")
            if not self.repair:
                raise ValueError(f"{name} is {self.verdict}: it needs what holds instead, as repair")
        if self.verdict == "conditional" and not (self.tests or counted):
            raise ValueError(f"{name} is conditional: it needs tests that show it under the added condition")
        if self.verdict == "unchecked" and not self.because:
            raise ValueError(f"{name} is not checkable: it needs the reason, as because")
        return self


class Search(BaseModel):
    """What a search for a counterexample to one inequality found.

    The search maximises an excess, the side that should be smaller minus the other, over distributions, critics and
    sets: above zero it has found a counterexample.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    statement: str = Field(description="name of the statement, such as ring/theorem-3-1-information")
    inequality: str = Field(description="what was to be violated, in MyST")
    printed: bool = Field(description="whether it is the statement as printed, or with its repair")
    starts: int = Field(description="random starts of the optimiser")
    evaluations: int = Field(description="values of the excess that were computed")
    excess: float = Field(description="the largest excess, in the unit of the inequality")
    found: bool = Field(description="whether that is above what rounding explains")
    at: str = Field("", description="where, if a counterexample was found")
    date: str


def _json(name: str) -> Any:
    return json.loads((_HERE / name).read_text(encoding="utf-8"))


@cache
def _numbers() -> Mapping[str, Mapping[str, float | int | str]]:
    stored: dict[str, dict[str, float | int | str]] = _json("numbers.json")
    return stored


def numbers(name: str) -> dict[str, float | int | str]:
    """The numbers that the text of a statement, such as ``fmicl/theorem-6``, shows, as its tests computed them."""
    return dict(_numbers().get(name, {}))


def _filled(text: str, name: str) -> str:
    def number(place: re.Match[str]) -> str:
        stored = _numbers().get(name, {})
        if place[1] not in stored:
            raise errors.unknown(f"number of {name}", place[1], stored)
        return format(stored[place[1]], place[2] or "")

    return _PLACE.sub(number, text)


def _texts(paper: str) -> dict[str, dict[str, Any]]:
    """The entries of a paper as they are written, numbers not filled in."""
    return tomllib.loads((_HERE / f"{paper}.toml").read_text(encoding="utf-8"))


@cache
def _read(paper: str) -> tuple[Statement, ...]:
    filled = []
    for key, entry in _texts(paper).items():
        texts = {field: _filled(entry[field], f"{paper}/{key}") for field in _TEXTS if field in entry}
        filled.append(Statement(paper=paper, id=key, **{**entry, **texts}))
    return tuple(filled)


def statements(paper: str | None = None) -> tuple[Statement, ...]:
    """The statements of ``paper``, or of all five, in the order of the paper."""
    known = sorted(p.name.removesuffix(".toml") for p in _HERE.iterdir() if p.name.endswith(".toml"))
    if paper is not None and paper not in known:
        raise errors.unknown("paper", paper, known)
    return tuple(s for name in (known if paper is None else [paper]) for s in _read(name))


def statement(name: str) -> Statement:
    """The statement of this name, such as ``ring/theorem-3-2-bias``."""
    known = {entry.name: entry for entry in statements()}
    if name not in known:
        raise errors.unknown("statement", name, known)
    return known[name]


@cache
def searches() -> tuple[Search, ...]:
    """The searches for counterexamples that were run, in the order of the ledger."""
    return tuple(Search(**entry) for entry in _json("searches.json"))


def counts(entries: Iterable[Statement], by: Literal["verdict", "how"] = "verdict") -> dict[str, int]:
    """How many of ``entries`` have each verdict, or were decided each way, in the order of the two tables above."""
    tally = Counter(getattr(entry, by) for entry in entries)
    return {key: tally[key] for key in (VERDICTS if by == "verdict" else METHODS)}


def summary(entries: Iterable[Statement] | None = None, by: Literal["verdict", "how"] = "verdict") -> str:
    """A table for the book: per paper, how many statements have each verdict, or were decided each way."""
    entries = statements() if entries is None else tuple(entries)
    words = VERDICTS if by == "verdict" else METHODS
    lines = [f"| paper | {' | '.join(words.values())} | all |", "| --- |" + " ---: |" * (len(words) + 1)]
    rows = [(f"`{paper}`", [e for e in entries if e.paper == paper]) for paper in sorted({e.paper for e in entries})]
    for name, own in [*rows, ("all", list(entries))]:
        lines.append(f"| {name} | {' | '.join(map(str, counts(own, by).values()))} | {len(own)} |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")


def markdown(entries: Iterable[Statement]) -> str:
    """A MyST table of ``entries``: where and verdict, what is said, what holds and why.

    Every row has a place of its own, ``Statement.anchor``, and says in attributes what the page can filter it by.
    """
    lines = [
        ":::{table}", ":class: ledger", "",
        "| where | what is said | what holds, and why |", "| --- | --- | --- |",
    ]  # fmt: skip
    for s in entries:
        facets = {"paper": s.paper, "section": s.section, "verdict": VERDICTS[s.verdict], "decided": METHODS[s.how]}
        data = " ".join(f'data-{key}="{escape(value)}"' for key, value in facets.items())
        link = f'<a class="place" href="#{s.anchor}" title="link to this entry">#</a>'
        place = f'<span id="{s.anchor}" {data}></span>{link}'
        claimed = s.claim + (f" *Assumes* {s.assumes}" if s.assumes else "")
        holds = [
            f"*{_REPAIR[s.verdict]}* {s.repair}" if s.repair else "",
            s.because,
            f"*Counterexample:* {s.counterexample.rstrip('.')}." if s.counterexample else "",
            f'The mistake of <a href="#{s.paper}-{s.repeats}">{s.repeats}</a>, counted again.' if s.repeats else "",
            f"Tried on {s.cases:,} random cases." if s.cases else "",
            " ".join(f"`{name}`" for name in (*s.tests, *s.refuted_by)),
        ]
        cells = (
            f"{place} {s.where} <br>**{VERDICTS[s.verdict]}** <br>{METHODS[s.how]}",
            claimed,
            "<br>".join(part for part in holds if part),
        )
        lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    return "\n".join([*lines, ":::"])


def searched() -> str:
    """A MyST table of the searches: what was to be violated, how hard it was tried, what was found."""
    lines = [
        "| statement | inequality | starts | evaluations | largest excess | found |",
        "| --- | --- | ---: | ---: | ---: | --- |",
    ]
    for s in searches():
        link = f'<a href="#{s.statement.replace("/", "-")}">{s.statement}</a>'
        inequality = ("as printed: " if s.printed else "as repaired: ") + s.inequality
        outcome = f"a counterexample: {s.at}" if s.found else "none"
        cells = (link, inequality, f"{s.starts:,}", f"{s.evaluations:,}", f"{s.excess:.1e}", outcome)
        lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    return "\n".join(lines)
