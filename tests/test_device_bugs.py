"""Each planted bug of the ways of a GPU changes one place of today, and all tests that it names noticed it."""

import ast
import json
from typing import Any

import device_bugs
import mutants
import pytest


@pytest.mark.parametrize("bug", device_bugs.BUGS, ids=lambda bug: bug["name"])
def test_a_bug_changes_one_place_of_today_and_names_tests_of_today(bug: dict[str, Any]) -> None:
    assert mutants.source_of(bug["module"]).count(bug["before"]) == 1
    compile(device_bugs.planted(bug), bug["module"], "exec")
    for test in bug["tests"]:
        file, _, name = test.partition("::")
        body = ast.parse((device_bugs.TESTS / file).read_text(encoding="utf-8")).body
        assert name.partition("[")[0] in {node.name for node in body if isinstance(node, ast.FunctionDef)}


def test_every_bug_was_noticed_by_each_test_that_it_names() -> None:
    # where it fails after a change of the bugs, python benchmarks/device_bugs.py plants them again
    rows = json.loads(device_bugs.STORED.read_text(encoding="utf-8"))["bugs"]
    named = {bug["name"]: bug["tests"] for bug in device_bugs.BUGS}
    assert all(named.values())
    assert {row["bug"]: row["noticed_by"] for row in rows} == named
