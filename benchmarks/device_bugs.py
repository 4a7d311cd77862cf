"""Plants bugs of the ways of a GPU, one at a time and without a GPU, and lists those that no test notices.

``python benchmarks/device_bugs.py`` reads ``device_bugs.toml`` and writes ``results/device_bugs.json``. Every test that
is named beside a bug has to notice it by itself. A bug is tried as ``mutants.py`` tries a mutant; no file is changed.
"""

from __future__ import annotations

import json
import os
import sys
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import mutants

HERE = Path(__file__).parent
TESTS = mutants.ROOT / "tests"
STORED = HERE / "results" / "device_bugs.json"
BUGS: list[dict[str, Any]] = tomllib.loads((HERE / "device_bugs.toml").read_text(encoding="utf-8"))["bug"]


def planted(bug: dict[str, Any]) -> str:
    """Text of the bug's module with the bug."""
    return mutants.source_of(bug["module"]).replace(bug["before"], bug["after"])


def pass_with(module: str, source: str, tests: list[str]) -> bool:
    """Whether tests, named from their folder, pass with this text of a module."""
    return mutants.survives(module, source, [str(TESTS / test) for test in tests])


def check_tests() -> None:
    """End where a test that is to notice a bug fails without it."""
    tests: dict[str, list[str]] = {}
    for bug in BUGS:
        tests.setdefault(bug["module"], []).extend(bug["tests"])
    for module, of_module in tests.items():
        if not pass_with(module, mutants.source_of(module), of_module):
            sys.exit(f"{module}: the tests fail without any bug")


def main() -> None:
    """Plant all bugs, and store which tests noticed each."""
    os.chdir(mutants.ROOT)
    files = {test.partition("::")[0] for bug in BUGS for test in bug["tests"]}
    mutants.import_what_tests_import([str(TESTS / file) for file in sorted(files)])
    check_tests()
    rows = []
    for bug in BUGS:
        noticed_by = [test for test in bug["tests"] if not pass_with(bug["module"], planted(bug), [test])]
        rows.append({"bug": bug["name"], "module": bug["module"], "tests": bug["tests"], "noticed_by": noticed_by})
        print(f"noticed by {len(noticed_by)} of {len(bug['tests'])} tests: {bug['name']}", flush=True)
    record = {"date": date.today().isoformat(), "commit": mutants.commit(), "bugs": rows}
    STORED.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    missed = sum(not row["noticed_by"] for row in rows)
    print(f"{STORED.relative_to(mutants.ROOT)}: {len(rows)} bugs, {missed} of them noticed by no test")


if __name__ == "__main__":
    main()
