"""No verdict without a test, no test without a verdict."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from pydantic import ValidationError

from contrastlab import papers
from contrastlab.errors import UnknownNameError
from contrastlab.papers import ledger

HERE = Path(__file__).parent


def functions(paper: str) -> set[str]:
    tree = ast.parse((HERE / f"test_{paper}.py").read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


@pytest.mark.parametrize("paper", papers.PAPERS)
def test_statements_and_tests_name_each_other(paper):
    named = {name for entry in ledger.statements(paper) for name in (*entry.tests, *entry.refuted_by)}
    assert named == functions(paper)


def test_the_counts_are_of_all_statements():
    entries = ledger.statements()
    assert sum(ledger.counts(entries).values()) == len(entries)
    assert {entry.paper for entry in entries} == set(papers.PAPERS)
    assert len({(entry.paper, entry.id) for entry in entries}) == len(entries)


def test_an_entry_must_be_decided():
    common = {"paper": "vince", "id": "x", "where": "Lemma 0", "claim": "1 = 1"}
    with pytest.raises(ValidationError, match="vince/x holds: it needs tests"):
        ledger.Statement(**common, verdict="holds")
    with pytest.raises(ValidationError, match="needs a counterexample"):
        ledger.Statement(**common, verdict="false", repair="1 = 1", tests=("test_a",))
    with pytest.raises(ValidationError, match="needs what holds instead"):
        ledger.Statement(**common, verdict="false", counterexample="0", refuted_by=("test_a",))
    with pytest.raises(ValidationError, match="under the added condition"):
        ledger.Statement(**common, verdict="conditional", counterexample="0", refuted_by=("test_a",), repair="if 1")
    with pytest.raises(ValidationError, match="needs the reason"):
        ledger.Statement(**common, verdict="unchecked")


def test_an_unknown_paper_is_named():
    with pytest.raises(UnknownNameError, match="did you mean vince"):
        ledger.statements("vinse")


def test_the_table_has_a_line_per_statement_and_keeps_its_columns():
    entries = ledger.statements()
    lines = [line for line in ledger.markdown(entries).splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(entries)
    assert {line.replace(r"\|", "").count("|") for line in lines} == {4}


def test_the_summary_adds_up():
    last = ledger.summary().splitlines()[-1]
    numbers = [int(cell) for cell in last.strip("| ").split("|")[1:]]
    assert numbers[:-1] == list(ledger.counts(ledger.statements()).values())
    assert numbers[-1] == sum(numbers[:-1])
