"""No verdict without a test, no test without a verdict; and what the page says of itself is so."""

import ast
import json
import re
import tomllib
from html import unescape
from pathlib import Path

import draws
import pytest

from contrastbook import ledger

HERE = Path(__file__).parent


def functions(paper: str) -> dict[str, ast.FunctionDef]:
    body = ast.parse((HERE / f"test_{paper}.py").read_text(encoding="utf-8")).body
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def cases(function: ast.FunctionDef) -> int:
    """Random cases that a test draws in a full run."""
    kinds = {"many": 2000, "some": 400}
    return sum(kinds.get(d.id, 0) for d in function.decorator_list if isinstance(d, ast.Name))


@pytest.mark.parametrize("paper", ledger.papers())
def test_statements_and_tests_name_each_other_and_count_their_random_cases(paper):
    tests = functions(paper)
    assert {name for entry in ledger.statements(paper) for name in (*entry.tests, *entry.refuted_by)} == set(tests)
    for entry in ledger.statements(paper):
        assert entry.cases == sum(cases(tests[name]) for name in (*entry.tests, *entry.refuted_by)), entry.name


def test_a_full_run_draws_the_cases_that_are_counted(monkeypatch):
    if draws._SHARE == 1:
        assert (draws.many.max_examples, draws.some.max_examples) == (2000, 400)
    else:
        assert draws.many.max_examples < 2000


def test_numbers_in_texts_are_those_that_are_stored():
    stored = json.loads((Path(ledger.__file__).parent / "statements/numbers.json").read_text(encoding="utf-8"))
    shown = {}
    for paper in ledger.papers():
        for key, entry in ledger._texts(paper).items():
            text = " ".join(entry.get(field, "") for field in ledger._TEXTS)
            if names := {place[1] for place in ledger._PLACE.finditer(text)}:
                shown[f"{paper}/{key}"] = names
    assert shown == {name: set(values) for name, values in stored.items()}
    assert ledger.numbers("ring/example-3-1") == {}


def test_counts_are_of_all_statements_and_proofs_are_told():
    entries = ledger.statements()
    for by in ("verdict", "how"):
        assert sum(ledger.counts(entries, by).values()) == len(entries)
    assert {entry.paper for entry in entries} == set(ledger.papers())
    assert len({entry.anchor for entry in entries}) == len(entries)
    kinds = {"theorem": r"(Theorem|Lemma|Corollary) [\w.]+", "listing": "Algorithm.*"}
    for entry in entries:
        assert entry.how != "proved" or len(entry.because) > 12, entry.name
        assert not entry.severity or (entry.how == "counted") <= (entry.severity == "text against table"), entry.name
        for kind, place in kinds.items():
            assert not (entry.severity and re.fullmatch(place, entry.where)) or entry.severity == kind, entry.name


def test_a_repeated_mistake_is_that_of_another_entry():
    by_name = {entry.name: entry for entry in ledger.statements()}
    for entry in by_name.values():
        if entry.repeats:
            other = by_name[f"{entry.paper}/{entry.repeats}"]
            assert other.name != entry.name
            assert not other.repeats
            assert {entry.verdict, other.verdict} <= {"false", "conditional"}


def test_the_table_has_a_line_per_statement_and_keeps_its_columns():
    entries = ledger.statements()
    lines = [line for line in ledger.markdown(entries).splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(entries)
    assert {line.replace(r"\|", "").count("|") for line in lines} == {4}
    for line, entry in zip(lines[2:], entries, strict=True):
        facets = dict(re.findall(r'data-(\w+)="([^"]*)"', line))
        assert facets["paper"] == entry.paper
        assert facets["section"] == entry.section
        assert facets["verdict"] == ledger.VERDICTS[entry.verdict]
        assert unescape(facets["decided"]) == ledger.METHODS[entry.how]
        assert facets["severity"] == (entry.severity or "none")
        assert f'id="{entry.anchor}"' in line
        assert f'href="#{entry.anchor}"' in line


@pytest.mark.parametrize("paper", ledger.papers())
def test_a_folded_paper_counts_its_statements_and_names_each_test_once(paper):
    text = ledger.folded(paper, "Title")
    entries = ledger.statements(paper)
    assert f"of {len(entries)} statements {ledger.counts(entries)['holds']} hold" in text.splitlines()[0]
    assert ledger.markdown(entries) in text
    lines = [line for line in text.splitlines() if 'class="place"' in line]
    for line, entry in zip(lines, entries, strict=True):
        named = re.findall(r"`(test_\w+)`", line)
        for name in (*entry.tests, *entry.refuted_by):
            assert named.count(name) == 1, entry.name


def test_a_judgement_never_reads_none():
    judgements = {entry.judgement for entry in ledger.statements()}
    assert {"holds", "false as printed, theorem"} <= judgements
    assert not any("None" in judgement for judgement in judgements)


def test_the_page_opens_with_ten_errors_that_are_entries_of_the_ledger():
    page = (HERE.parents[1] / "book" / "errata.md").read_text(encoding="utf-8")
    opening = page[page.index("## Ten errors") :]
    opening = opening[: opening.index("```")]
    linked = re.findall(r'href="#([\w-]+)"', opening)
    failing = {entry.anchor for entry in ledger.statements() if entry.severity}
    assert len(linked) == len(set(linked)) == len(re.findall(r"^\d+\. ", opening, re.M)) == 10
    assert set(linked) <= failing


@pytest.mark.parametrize("by", ["verdict", "how", "severity"])
def test_the_summary_adds_up(by):
    last = ledger.summary(by=by).splitlines()[-1]
    numbers = [int(cell) for cell in last.strip("| ").split("|")[1:]]
    assert numbers[:-1] == list(ledger.counts(ledger.statements(), by).values())
    assert numbers[-1] == sum(numbers[:-1])


def test_a_search_is_of_a_statement_and_what_it_found_was_not_expected_to_hold():
    by_name = {entry.name: entry for entry in ledger.statements()}
    assert ledger.searches()
    for search in ledger.searches():
        entry = by_name[search.statement]
        assert not search.found or (search.printed and entry.verdict in ("false", "conditional")), search.statement
        assert search.found == bool(search.at)
    lines = ledger.searched().splitlines()
    assert len(lines) == 2 + len(ledger.searches())
    assert {line.replace(r"\|", "").count("|") for line in lines} == {7}


def test_mutants_that_survive_are_few_and_explained():
    run = json.loads((HERE.parents[1] / "benchmarks" / "results" / "mutants.json").read_text(encoding="utf-8"))
    tried, survived = (sum(module[key] for module in run["modules"]) for key in ("tried", "survived"))
    assert len(run["survivors"]) == survived <= 0.05 * tried
    assert all(survivor["because"] for survivor in run["survivors"])


def test_every_mutant_that_is_explained_changes_a_line_of_today():
    root = HERE.parents[1]
    plan = tomllib.loads((root / "benchmarks" / "mutants.toml").read_text(encoding="utf-8"))
    for each in plan["explained"]:
        lines = (root / "src" / each["module"]).read_text(encoding="utf-8").splitlines()
        assert each["before"] in [line.strip() for line in lines], each
