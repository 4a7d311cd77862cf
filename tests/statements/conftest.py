"""Numbers of the ledger's texts, and at the end a line per paper: how many statements hold, in part, or not."""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contrastbook import ledger

NUMBERS = Path(ledger.__file__).parent / "statements/numbers.json"
Stated = Callable[..., None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--store-numbers", action="store_true", help="write the numbers that the ledger's texts show")


@pytest.fixture(scope="session")
def _computed(request: pytest.FixtureRequest) -> Iterator[dict[str, dict[str, float | int | str]]]:
    """Numbers by statement, written at the end if that is asked for; other statements keep theirs."""
    computed: dict[str, dict[str, float | int | str]] = {}
    yield computed
    if request.config.getoption("--store-numbers", default=False):
        kept = {f"{paper}/{key}" for paper in ledger.papers() for key in ledger._texts(paper)}
        stored = {**json.loads(NUMBERS.read_text(encoding="utf-8")), **computed}
        text = {name: stored[name] for name in sorted(stored) if name in kept}
        NUMBERS.write_text(json.dumps(text, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        for cached in (ledger._numbers, ledger._read):
            cached.cache_clear()


@pytest.fixture
def stated(_computed: dict[str, dict[str, float | int | str]], request: pytest.FixtureRequest) -> Stated:
    """``stated("ring/example-3-1", gain=0.2)``: this is what the entry's text shows as ``{{gain}}``.

    Compared with what is stored, to six digits; with ``--store-numbers`` stored instead.
    """

    def state(name: str, /, **values: float | int | str) -> None:
        plain = {k: v if isinstance(v, str | int) and not isinstance(v, bool) else float(v) for k, v in values.items()}
        _computed.setdefault(name, {}).update(plain)
        if request.config.getoption("--store-numbers", default=False):
            return
        stored = ledger.numbers(name)
        for key, value in plain.items():
            assert key in stored, f"{name} has no stored number {key}: pytest tests/statements --store-numbers"
            if isinstance(value, float):
                assert math.isclose(value, float(stored[key]), rel_tol=1e-6, abs_tol=1e-9), (name, key)
            else:
                assert value == stored[key], (name, key)

    return state


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    passed: dict[str, dict[str, bool]] = {}
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            path, _, rest = report.nodeid.partition("::")
            if Path(path).parent.name == "statements":
                tests = passed.setdefault(Path(path).stem.removeprefix("test_"), {})
                name, _, parameter = rest.partition("[")
                name = parameter.removesuffix("]") if name == "test_counted" else name
                tests[name] = tests.get(name, True) and outcome == "passed"
    papers = [paper for paper in ledger.papers() if paper in passed]
    if papers:
        terminalreporter.section("statements of the papers")
    for paper in sorted(papers):
        good = {name for each in (paper, "tables") for name, good in passed.get(each, {}).items() if good}
        entries = ledger.statements(paper)
        asked = [{entry.name} if entry.how == "counted" else {*entry.tests, *entry.refuted_by} for entry in entries]
        decided = [entry for entry, names in zip(entries, asked, strict=True) if names <= good]
        words = ", ".join(f"{ledger.VERDICTS[verdict]} {n}" for verdict, n in ledger.counts(decided).items())
        left = len(entries) - len(decided)
        missing = f"; {left} not decided by passing tests" if left else ""
        terminalreporter.write_line(f"{paper:6} {len(entries):3} statements: {words}{missing}")
