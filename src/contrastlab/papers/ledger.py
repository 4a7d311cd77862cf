"""The ledger: every theorem, lemma, corollary and numbered claim of the five papers, with a verdict.

One TOML file per paper in ``statements/``. A statement names the tests that decide it; those are functions in
``tests/statements/test_<paper>.py`` and nothing else may stand there, so that no verdict is without a test and no test
without a verdict. The book's errata page is drawn from these entries.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from contrastlab import errors

__all__ = ["VERDICTS", "Statement", "counts", "markdown", "statements", "summary"]

Verdict = Literal["holds", "conditional", "false", "unchecked"]
VERDICTS: dict[str, str] = {
    "holds": "holds",
    "conditional": "holds with an added condition",
    "false": "false as printed",
    "unchecked": "not checkable",
}
"""Verdict to its words. *Conditional*: true once a hypothesis is added; *false*: something printed must change."""


_REPAIR = {"conditional": "Needs:", "false": "Instead:"}


class Statement(BaseModel):
    """One claim of one paper. Texts are MyST with dollar mathematics."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paper: str
    id: str = Field(description="unique within the paper, such as theorem-4-1")
    where: str = Field(description="where the paper states it, such as 'Theorem 4.1'")
    claim: str = Field(description="the statement in one line")
    assumes: str = Field("", description="its hypotheses, as printed")
    verdict: Verdict
    repair: str = Field("", description="conditional: the added condition; false: what holds instead")
    because: str = Field("", description="the argument, or why it cannot be checked")
    counterexample: str = Field("", description="in one line; the test has the numbers")
    tests: tuple[str, ...] = Field((), description="tests that show the claim or its repair")
    refuted_by: tuple[str, ...] = Field((), description="tests that pin a counterexample to the claim as printed")

    @model_validator(mode="after")
    def _decided(self) -> Statement:
        name = f"{self.paper}/{self.id}"
        if self.verdict == "holds" and (not self.tests or self.refuted_by or self.repair):
            raise ValueError(f"{name} holds: it needs tests, and neither repair nor refuted_by")
        if self.verdict in ("conditional", "false"):
            if not self.refuted_by or not self.counterexample:
                raise ValueError(f"{name} is {self.verdict}: it needs a counterexample and the test that pins it")
            if not self.repair:
                raise ValueError(f"{name} is {self.verdict}: it needs what holds instead, as repair")
        if self.verdict == "conditional" and not self.tests:
            raise ValueError(f"{name} is conditional: it needs tests that show it under the added condition")
        if self.verdict == "unchecked" and not self.because:
            raise ValueError(f"{name} is not checkable: it needs the reason, as because")
        return self


@cache
def _read(paper: str) -> tuple[Statement, ...]:
    text = (files(__package__) / "statements" / f"{paper}.toml").read_text(encoding="utf-8")
    return tuple(Statement(paper=paper, id=key, **entry) for key, entry in tomllib.loads(text).items())


def statements(paper: str | None = None) -> tuple[Statement, ...]:
    """The statements of ``paper``, or of all five, in the order of the paper.

    Raises:
        UnknownNameError: no such paper.
    """
    known = sorted(p.name.removesuffix(".toml") for p in (files(__package__) / "statements").iterdir())
    if paper is not None and paper not in known:
        raise errors.unknown("paper", paper, known)
    return tuple(s for name in (known if paper is None else [paper]) for s in _read(name))


def counts(entries: Iterable[Statement]) -> dict[str, int]:
    """How many of ``entries`` have each verdict, in the order of :data:`VERDICTS`."""
    found = Counter(entry.verdict for entry in entries)
    return {verdict: found[verdict] for verdict in VERDICTS}  # type: ignore[index]


def summary(entries: Iterable[Statement] | None = None) -> str:
    """A table for the book: per paper, how many statements have each verdict."""
    entries = statements() if entries is None else tuple(entries)
    lines = [f"| paper | {' | '.join(VERDICTS.values())} | all |", "| --- |" + " ---: |" * (len(VERDICTS) + 1)]
    rows = [(f"`{paper}`", [e for e in entries if e.paper == paper]) for paper in sorted({e.paper for e in entries})]
    for name, own in [*rows, ("all", list(entries))]:
        lines.append(f"| {name} | {' | '.join(map(str, counts(own).values()))} | {len(own)} |")
    return "\n".join(lines)


def markdown(entries: Iterable[Statement]) -> str:
    """A MyST table of ``entries``: where and verdict, what is said, what holds and why."""
    lines = [
        ":::{table}", ":class: ledger", "",
        "| where | what is said | what holds, and why |", "| --- | --- | --- |",
    ]  # fmt: skip
    for s in entries:
        said = s.claim + (f" *Assumes* {s.assumes}" if s.assumes else "")
        holds = [
            f"*{_REPAIR[s.verdict]}* {s.repair}" if s.repair else "",
            s.because,
            f"*Counterexample:* {s.counterexample.rstrip('.')}." if s.counterexample else "",
            " ".join(f"`{name}`" for name in (*s.tests, *s.refuted_by)),
        ]
        cells = (f"{s.where} <br>**{VERDICTS[s.verdict]}**", said, "<br>".join(part for part in holds if part))
        lines.append("| " + " | ".join(cell.replace("|", r"\|").replace("\n", " ") for cell in cells) + " |")
    return "\n".join([*lines, ":::"])
