"""The ledger: theorems, numbered claims and comparisons of the five papers, each with a verdict and how it was reached.

``statements/`` has one TOML file per paper. A statement names the tests that decide it, functions in
``tests/statements/test_<paper>.py``. ``{{name:.3f}}`` in a text is a number of ``numbers.json``, which ``pytest
tests/statements --store-numbers`` writes; ``tests/statements/search.py`` writes ``searches.json``.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any, Literal, get_args

from pydantic import Field, model_validator

from contrastlab.settings import FrozenModel
from contrastlab.support import errors
from contrastlab.support.escape import markdown_row

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
    "open": "open",
    "counted": "counted from the paper's table",
    "quoted": "two passages compared",
}
"""How it is known that a statement, or what is right instead of it, holds. What fails has a counterexample besides."""

Severity = Literal["theorem", "proof step", "formula", "listing", "text against table"]
"""What kind of statement is false, or lacks a condition."""
_WORDS = {
    "verdict": VERDICTS,
    "how": METHODS,
    "severity": {name: name for name in get_args(Severity)},
}

_REPAIR = {"conditional": "Needs:", "false": "Instead:"}
_FOLDER = files("contrastbook") / "statements"
_PLACE = re.compile(r"\{\{(\w+)(?::([^{}]*))?\}\}")
_TEXTS = ("claim", "assumes", "repair", "because", "counterexample")


class Statement(FrozenModel):
    """One claim of one paper. Texts are MyST with dollar mathematics."""

    paper: str
    id: str = Field(description="unique within the paper, such as theorem-4-1")
    section: str = Field(description="section of the paper, such as '4.1' or 'A.8'")
    where: str = Field(description="where the paper states it, such as 'Theorem 4.1'")
    claim: str = Field(description="the statement in one line")
    assumes: str = Field("", description="its hypotheses, as printed")
    verdict: Verdict
    severity: Severity | None = Field(None, description="conditional or false: what kind of statement that is")
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

    @property
    def all_tests(self) -> tuple[str, ...]:
        """The tests of the claim, of its repair and of the counterexample, each once."""
        return tuple(dict.fromkeys((*self.tests, *self.refuted_by)))

    @property
    def judgement(self) -> str:
        """The verdict in words, and the severity where the statement has one."""
        words = VERDICTS[self.verdict]
        return f"{words}, {self.severity}" if self.severity else words

    @model_validator(mode="after")
    def _decided(self) -> Statement:
        mistakes = [*self._mistakes_of_method(), *self._mistakes_of_verdict()]
        if mistakes:
            raise ValueError(f"{self.name} {mistakes[0]}")
        return self

    def _mistakes_of_method(self) -> Iterator[str]:
        """What is wrong with how the entry says it is known."""
        if (self.verdict == "unchecked") != (self.how == "open"):
            yield f"is {self.verdict} and {self.how}: open is what cannot be checked"
        if self.how == "proved" and not self.because:
            yield "is proved: it needs the argument, as because"
        if self.how == "counted" and self.all_tests:
            yield "is counted: its decision stands in test_tables.py"

    def _mistakes_of_verdict(self) -> Iterator[str]:
        """What an entry of this verdict lacks, or has although it should not."""
        counted = self.how == "counted"
        shown = bool(self.tests) or counted
        refuted = bool(self.counterexample) and (bool(self.refuted_by) or counted)
        fails = self.verdict in ("conditional", "false")
        if self.verdict == "holds" and not shown:
            yield "holds: it needs tests"
        if self.verdict == "holds" and (self.refuted_by or self.repair):
            yield "holds: it needs neither repair nor refuted_by"
        if fails and not refuted:
            yield f"is {self.verdict}: it needs a counterexample and the test that pins it"
        if fails and not self.repair:
            yield f"is {self.verdict}: it needs what holds instead, as repair"
        if self.verdict == "conditional" and not shown:
            yield "is conditional: it needs tests under the added condition"
        if self.verdict == "unchecked" and not self.because:
            yield "is not checkable: it needs the reason, as because"
        if fails != bool(self.severity):
            yield f"is {self.verdict}: conditional and false entries have a severity, no others"


class Search(FrozenModel):
    """What a search for a counterexample to one inequality found.

    It maximises an excess, the side that should be smaller minus the other: above zero is a counterexample.
    """

    statement: str = Field(description="name of the statement, such as ring/theorem-3-1-information")
    inequality: str = Field(description="what was to be violated, in MyST")
    printed: bool = Field(description="whether it is the statement as printed, or with its repair")
    starts: int = Field(description="random starts of the optimiser")
    evaluations: int = Field(description="values of the excess that were computed")
    excess: float = Field(description="the largest excess, in the unit of the inequality")
    found: bool = Field(description="whether that is above what rounding explains")
    at: str = Field("", description="where, if a counterexample was found")
    date: str


@cache
def _numbers() -> dict[str, dict[str, float | int | str]]:
    content = (_FOLDER / "numbers.json").read_text(encoding="utf-8")
    return dict(json.loads(content))


def numbers(name: str) -> dict[str, float | int | str]:
    """The numbers that the text of a statement, such as ``fmicl/theorem-6``, shows, as its tests computed them."""
    return dict(_numbers().get(name, {}))


def _filled(text: str, name: str) -> str:
    """A text of the statement ``name`` with its numbers."""
    stored = numbers(name)

    def number(place: re.Match[str]) -> str:
        if place[1] not in stored:
            raise errors.unknown(f"number of {name}", place[1], stored)
        return format(stored[place[1]], place[2] or "")

    return _PLACE.sub(number, text)


def _texts(paper: str) -> dict[str, dict[str, Any]]:
    """The entries of a paper as they are written, numbers not filled in."""
    return tomllib.loads((_FOLDER / f"{paper}.toml").read_text(encoding="utf-8"))


@cache
def _read(paper: str) -> tuple[Statement, ...]:
    entries: list[Statement] = []
    for key, entry in _texts(paper).items():
        texts: dict[str, str] = {}
        for field in _TEXTS:
            if field in entry:
                texts[field] = _filled(entry[field], f"{paper}/{key}")
        entries.append(Statement(paper=paper, id=key, **entry | texts))
    return tuple(entries)


def papers() -> tuple[str, ...]:
    """Short names of the papers whose statements were examined, sorted."""
    names = [file.name for file in _FOLDER.iterdir()]
    return tuple(sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml")))


def statements(paper: str | None = None) -> tuple[Statement, ...]:
    """The statements of ``paper``, or of all that have some, in the order of the paper."""
    if paper is None:
        return tuple(entry for name in papers() for entry in _read(name))
    errors.check_name("paper", paper, papers())
    return _read(paper)


def statement(name: str) -> Statement:
    """The statement of this name, such as ``ring/theorem-3-2-bias``."""
    by_name = {entry.name: entry for entry in statements()}
    if name not in by_name:
        raise errors.unknown("statement", name, by_name)
    return by_name[name]


@cache
def searches() -> tuple[Search, ...]:
    """The searches for counterexamples that were run, in the order of the ledger."""
    content = (_FOLDER / "searches.json").read_text(encoding="utf-8")
    return tuple(Search(**entry) for entry in json.loads(content))


def counts(entries: Iterable[Statement], by: Literal["verdict", "how", "severity"] = "verdict") -> dict[str, int]:
    """How many of ``entries`` have each verdict, were decided each way, or are wrong in each kind of statement."""
    tally = Counter(getattr(entry, by) for entry in entries)
    return {key: tally[key] for key in _WORDS[by]}


def summary(by: Literal["verdict", "how", "severity"] = "verdict") -> str:
    """A table for the book: :func:`counts` per paper and of all."""
    groups = {f"`{paper}`": statements(paper) for paper in papers()}
    groups["all"] = statements()
    rows: list[list[str]] = []
    for name, entries in groups.items():
        tally = counts(entries, by)
        rows.append([name, *(str(count) for count in tally.values()), str(sum(tally.values()))])
    head = ["paper", *_WORDS[by].values(), "all"]
    rules = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join(_table(head, rules, rows))


def _table(head: Iterable[str], rules: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """The lines of a Markdown table."""
    lines = [markdown_row(head), markdown_row(rules)]
    for row in rows:
        lines.append(markdown_row(cell.replace("|", r"\|").replace("\n", " ") for cell in row))
    return lines


def markdown(entries: Iterable[Statement]) -> str:
    """A MyST table of ``entries``: where and verdict, what is said, what holds and why.

    Every row has a place of its own, ``Statement.anchor``, and says in attributes what the page can filter it by.
    """
    rows = [(_where(entry), _what_is_said(entry), _what_holds(entry)) for entry in entries]
    table = _table(("where", "what is said", "what holds, and why"), ["---"] * 3, rows)
    return "\n".join([":::{table}", ":class: ledger", "", *table, ":::"])


def _where(entry: Statement) -> str:
    """A link to the entry itself, where the paper says it, and the verdict."""
    facets = {
        "paper": entry.paper,
        "section": entry.section,
        "verdict": VERDICTS[entry.verdict],
        "decided": METHODS[entry.how],
        "severity": entry.severity or "none",
    }
    data = " ".join(f'data-{name}="{escape(value)}"' for name, value in facets.items())
    place = f'<span id="{entry.anchor}" {data}></span>'
    link = f'<a class="place" href="#{entry.anchor}" title="this entry">#</a>'
    severity = f"<br>{entry.severity} " if entry.severity else ""
    verdict = f"**{VERDICTS[entry.verdict]}** {severity}"
    return f"{place}{link} {entry.where} <br>{verdict}<br>{METHODS[entry.how]}"


def _what_is_said(entry: Statement) -> str:
    if entry.assumes:
        return f"{entry.claim} *Assumes* {entry.assumes}"
    return entry.claim


def _what_holds(entry: Statement) -> str:
    """What holds instead, why, what was tried, and the tests."""
    parts: list[str] = []
    if entry.repair:
        parts.append(f"*{_REPAIR[entry.verdict]}* {entry.repair}")
    if entry.because:
        parts.append(entry.because)
    if entry.counterexample:
        parts.append(f"*Counterexample:* {entry.counterexample.rstrip('.')}.")
    if entry.repeats:
        link = f'<a href="#{entry.paper}-{entry.repeats}">{entry.repeats}</a>'
        parts.append(f"The mistake of {link}, counted again.")
    if entry.cases:
        parts.append(f"Tried on {entry.cases:,} random cases.")
    if entry.all_tests:
        parts.append(" ".join(f"`{name}`" for name in entry.all_tests))
    return "<br>".join(parts)


def folded(paper: str, title: str) -> str:
    """The table of one paper in a MyST dropdown whose line says how many of its statements hold."""
    entries = statements(paper)
    count = counts(entries)
    line = (
        f"{title} (`{paper}`): of {len(entries)} statements {count['holds']} hold, {count['conditional']} need a "
        f"further condition, {count['false']} are false as printed, {count['unchecked']} cannot be checked"
    )
    return "\n".join([f"::::{{dropdown}} {line}", f":name: errata-{paper}", "", markdown(entries), "::::"])


def searched() -> str:
    """A MyST table of the searches: what was to be violated, how hard it was tried, what was found."""
    rows: list[tuple[str, ...]] = []
    for search in searches():
        anchor = search.statement.replace("/", "-")
        version = "as printed" if search.printed else "as repaired"
        outcome = f"a counterexample: {search.at}" if search.found else "none"
        rows.append(
            (
                f'<a href="#{anchor}">{search.statement}</a>',
                f"{version}: {search.inequality}",
                f"{search.starts:,}",
                f"{search.evaluations:,}",
                f"{search.excess:.1e}",
                outcome,
            )
        )
    head = ("statement", "inequality", "starts", "evaluations", "largest excess", "found")
    return "\n".join(_table(head, ("---", "---", "---:", "---:", "---:", "---"), rows))
