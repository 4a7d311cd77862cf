"""Says at the end, per paper, how many statements hold, hold with a condition, are false."""

from __future__ import annotations

from pathlib import Path

import pytest

from contrastlab.papers import ledger


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    outcomes: dict[str, dict[str, bool]] = {}
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            path, _, rest = report.nodeid.partition("::")
            if Path(path).parent.name == "statements":
                tests = outcomes.setdefault(Path(path).stem.removeprefix("test_"), {})
                name = rest.partition("[")[0]
                tests[name] = tests.get(name, True) and outcome == "passed"
    lines = []
    for paper in sorted({entry.paper for entry in ledger.statements()} & set(outcomes)):
        entries = ledger.statements(paper)
        passed = {name for name, good in outcomes[paper].items() if good}
        decided = [e for e in entries if set(e.tests) | set(e.refuted_by) <= passed]
        words = ", ".join(f"{ledger.VERDICTS[verdict]} {n}" for verdict, n in ledger.counts(decided).items())
        left = len(entries) - len(decided)
        missing = f"; {left} not decided by passing tests" if left else ""
        lines.append(f"{paper:6} {len(entries):3} statements: {words}{missing}")
    if lines:
        terminalreporter.section("statements of the papers")
        for line in lines:
            terminalreporter.write_line(line)
