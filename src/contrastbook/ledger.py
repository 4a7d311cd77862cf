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
from collections.abc import Iterable
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any, Literal, get_args

from pydantic import Field, model_validator

from contrastlab.settings import FrozenModel
from contrastlab.support import errors

Verdict = Literal["holds", "conditional", "false", "unchecked"]
VERDICTS: dict[str, str] = {"holds": "holds", "conditional": "holds with an added condition",
                            "false": "false as printed", "unchecked": "not checkable"}  # fmt: skip
"""Verdict to its words. *Conditional*: true once a hypothesis is added; *false*: something printed must change."""

Method = Literal["proved", "exact", "searched", "counted", "quoted", "open"]
METHODS: dict[str, str] = {"proved": "proved", "exact": "exact for a family", "searched": "searched", "open": "open",
                           "counted": "counted from the paper's table", "quoted": "two passages compared"}  # fmt: skip
"""How it is known that a statement, or what is right instead of it, holds. What fails has a counterexample besides."""

Severity = Literal["theorem", "proof step", "formula", "listing", "text against table"]
"""What kind of statement is false, or lacks a condition."""
_WORDS = {"verdict": VERDICTS, "how": METHODS, "severity": {name: name for name in get_args(Severity)}}

_REPAIR = {"conditional": "Needs:", "false": "Instead:"}
_HERE = files("contrastbook") / "statements"
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
        verdict, how, counted = self.verdict, self.how, self.how == "counted"
        shown, fails = bool(self.tests) or counted, verdict in ("conditional", "false")
        refuted = (bool(self.refuted_by) or counted) and bool(self.counterexample)
        wrong = (
            ((verdict == "unchecked") != (how == "open"), f"is {verdict} and {how}: open is what cannot be checked"),
            (how == "proved" and not self.because, "is proved: it needs the argument, as because"),
            (counted and (self.tests or self.refuted_by), "is counted: its decision stands in test_tables.py"),
            (verdict == "holds" and not shown, "holds: it needs tests"),
            (verdict == "holds" and (self.refuted_by or self.repair), "holds: it needs neither repair nor refuted_by"),
            (fails and not refuted, f"is {verdict}: it needs a counterexample and the test that pins it"),
            (fails and not self.repair, f"is {verdict}: it needs what holds instead, as repair"),
            (verdict == "conditional" and not shown, "is conditional: it needs tests under the added condition"),
            (verdict == "unchecked" and not self.because, "is not checkable: it needs the reason, as because"),
            (fails != bool(self.severity), f"is {verdict}: conditional and false entries have a severity, no others"),
        )
        if broken := [words for bad, words in wrong if bad]:
            raise ValueError(f"{self.name} {broken[0]}")
        return self


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
    return dict(json.loads((_HERE / "numbers.json").read_text(encoding="utf-8")))


def numbers(name: str) -> dict[str, float | int | str]:
    """The numbers that the text of a statement, such as ``fmicl/theorem-6``, shows, as its tests computed them."""
    return dict(_numbers().get(name, {}))


def _filled(text: str, name: str) -> str:
    stored = numbers(name)

    def number(place: re.Match[str]) -> str:
        if place[1] not in stored:
            raise errors.unknown(f"number of {name}", place[1], stored)
        return format(stored[place[1]], place[2] or "")

    return _PLACE.sub(number, text)


def _texts(paper: str) -> dict[str, dict[str, Any]]:
    """The entries of a paper as they are written, numbers not filled in."""
    return tomllib.loads((_HERE / f"{paper}.toml").read_text(encoding="utf-8"))


@cache
def _read(paper: str) -> tuple[Statement, ...]:
    read = []
    for key, entry in _texts(paper).items():
        texts = {field: _filled(text, f"{paper}/{key}") for field, text in entry.items() if field in _TEXTS}
        read.append(Statement(paper=paper, id=key, **entry | texts))
    return tuple(read)


def papers() -> tuple[str, ...]:
    """Short names of the papers whose statements were examined, sorted."""
    return tuple(sorted(file.name.removesuffix(".toml") for file in _HERE.iterdir() if file.name.endswith(".toml")))


def statements(paper: str | None = None) -> tuple[Statement, ...]:
    """The statements of ``paper``, or of all that have some, in the order of the paper."""
    if paper is None:
        return tuple(entry for name in papers() for entry in _read(name))
    errors.check_name("paper", paper, papers())
    return _read(paper)


def statement(name: str) -> Statement:
    """The statement of this name, such as ``ring/theorem-3-2-bias``."""
    known = {entry.name: entry for entry in statements()}
    if name not in known:
        raise errors.unknown("statement", name, known)
    return known[name]


@cache
def searches() -> tuple[Search, ...]:
    """The searches for counterexamples that were run, in the order of the ledger."""
    return tuple(Search(**entry) for entry in json.loads((_HERE / "searches.json").read_text(encoding="utf-8")))


def counts(entries: Iterable[Statement], by: Literal["verdict", "how", "severity"] = "verdict") -> dict[str, int]:
    """How many of ``entries`` have each verdict, were decided each way, or are wrong in each kind of statement."""
    tally = Counter(getattr(entry, by) for entry in entries)
    return {key: tally[key] for key in _WORDS[by]}


def summary(by: Literal["verdict", "how", "severity"] = "verdict") -> str:
    """A table for the book: :func:`counts` per paper and of all."""
    entries = statements()
    groups = {f"`{paper}`": statements(paper) for paper in sorted({s.paper for s in entries})} | {"all": entries}
    tallies = {name: list(counts(own, by).values()) for name, own in groups.items()}
    rows = [(name, *map(str, tally), str(sum(tally))) for name, tally in tallies.items()]
    return "\n".join(_table(("paper", *_WORDS[by].values(), "all"), ("---", *["---:"] * (len(_WORDS[by]) + 1)), rows))


def _table(head: Iterable[str], rules: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    every = [head, rules, *([cell.replace("|", r"\|").replace("\n", " ") for cell in row] for row in rows)]
    return [f"| {' | '.join(cells)} |" for cells in every]


def markdown(entries: Iterable[Statement]) -> str:
    """A MyST table of ``entries``: where and verdict, what is said, what holds and why.

    Every row has a place of its own, ``Statement.anchor``, and says in attributes what the page can filter it by.
    """
    rows = []
    for s in entries:
        facets = {"paper": s.paper, "section": s.section, "verdict": VERDICTS[s.verdict], "decided": METHODS[s.how]}
        facets["severity"] = s.severity or "none"
        data = " ".join(f'data-{key}="{escape(value)}"' for key, value in facets.items())
        place = f'<span id="{s.anchor}" {data}></span><a class="place" href="#{s.anchor}" title="this entry">#</a>'
        holds = [
            f"*{_REPAIR[s.verdict]}* {s.repair}" if s.repair else "",
            s.because,
            f"*Counterexample:* {s.counterexample.rstrip('.')}." if s.counterexample else "",
            f'The mistake of <a href="#{s.paper}-{s.repeats}">{s.repeats}</a>, counted again.' if s.repeats else "",
            f"Tried on {s.cases:,} random cases." if s.cases else "",
            " ".join(f"`{name}`" for name in s.all_tests),
        ]
        kind = f"<br>{s.severity} " if s.severity else ""
        where = f"{place} {s.where} <br>**{VERDICTS[s.verdict]}** {kind}<br>{METHODS[s.how]}"
        claimed = s.claim + (f" *Assumes* {s.assumes}" if s.assumes else "")
        rows.append((where, claimed, "<br>".join(filter(None, holds))))
    table = _table(("where", "what is said", "what holds, and why"), ["---"] * 3, rows)
    return "\n".join([":::{table}", ":class: ledger", "", *table, ":::"])


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
    rows = []
    for s in searches():
        link = f'<a href="#{s.statement.replace("/", "-")}">{s.statement}</a>'
        inequality = f"{'as printed' if s.printed else 'as repaired'}: {s.inequality}"
        outcome = f"a counterexample: {s.at}" if s.found else "none"
        rows.append((link, inequality, f"{s.starts:,}", f"{s.evaluations:,}", f"{s.excess:.1e}", outcome))
    head = ("statement", "inequality", "starts", "evaluations", "largest excess", "found")
    return "\n".join(_table(head, ("---", "---", "---:", "---:", "---:", "---"), rows))
