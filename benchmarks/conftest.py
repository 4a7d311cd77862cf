"""The ``contest`` fixture, the printed table, and the stored results.

    make bench                  # quick: minutes; stores benchmarks/results/cpu.json
    make bench MODE=full        # more rounds
    pytest benchmarks/bench_queue.py -k moco    # one task, nothing stored

    pytest benchmarks/bench_queue.py -k from_queue --add benchmarks/results/cpu.json    # these rows anew, others kept

Unequal values fail. A missed bar is printed, and the run ends with an error.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest
import report
import torch
from harness import Found, Missing, Way, peak_memory, same, summary, take_turns

from contrastlab.tables import results

# seconds of a task's rounds, fewest and most rounds
MODES = {"quick": (4.0, 3, 40), "full": (30.0, 9, 200)}
ROWS = pytest.StashKey[list[dict[str, Any]]]()
BEGUN = pytest.StashKey[float]()
PACKAGES = ("lightly", "pytorch-metric-learning", "pytest-benchmark", "pillow")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("contest")
    group.addoption("--mode", choices=MODES, default="quick", help="how many rounds")
    group.addoption("--store", metavar="FILE", help="write the results here, if every task ran and none failed")
    group.addoption(
        "--add", metavar="FILE", help="write the results of tasks that ran into this file of an earlier run"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # pytest-benchmark's own table would be of whole rounds
    config.option.benchmark_quiet = True
    config.option.benchmark_disable_gc = True
    config.stash[ROWS] = []
    config.stash[BEGUN] = time.monotonic()
    torch.set_num_threads(1)


@pytest.fixture
def contest(benchmark: Any, request: pytest.FixtureRequest) -> Callable[..., None]:
    """``contest(title, ours, *others, truth=…)``: assert that the ways agree, then time them in turn.

    ``truth`` gives value and gradients in float64. ``note`` is kept with the row.
    """

    def run(title: str, ours: Way, *others: Way | Missing, truth: Found, note: str = "") -> None:
        ways = [ours, *(way for way in others if isinstance(way, Way))]
        true = truth()
        for way in ways:
            if way.found is not None:
                same(way.name, way.found(), true)
        assert ours.found is not None, "ours must be compared with the truth"
        budget, least, most = MODES[request.config.getoption("mode")]
        begun = time.process_time()
        for way in ways:  # warm
            way.step()
        rounds = min(most, max(least, math.floor(budget / (time.process_time() - begun))))
        spent = take_turns(ways, rounds, benchmark)
        measured = {way.name: summary(spent[way.name], peak_memory(way.step)) for way in ways}
        row = {
            "id": request.node.name.removeprefix("test_"),
            "group": benchmark.group,
            "title": title,
            "note": note,
            "ways": [
                {"name": way.name}
                if isinstance(way, Missing)
                else {"name": way.name, "peer": way.peer, "equal": way.found is not None, **measured[way.name]}
                for way in (ours, *others)
            ],
        }
        request.config.stash[ROWS].append(row)
        benchmark.extra_info.update(row)

    return run


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    rows = session.config.stash[ROWS]
    if report.missed([report.verdict(bar, rows) for bar in report.bars()]):
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    rows = config.stash[ROWS]
    if not rows:
        return
    verdicts = [report.verdict(bar, rows) for bar in report.bars()]
    terminalreporter.write_sep("-", "milliseconds of one core, median of interleaved rounds")
    for line in report.table(rows, verdicts):
        terminalreporter.write_line(line)
    failed = terminalreporter.stats.get("failed") or terminalreporter.stats.get("error")
    file = config.getoption("add")
    if file and not failed:
        earlier = json.loads(Path(file).read_text(encoding="utf-8"))
        _write(Path(file), {**earlier, **report.added(earlier, rows, _origin(config))})
    file = config.getoption("store")
    if not file:
        return
    if failed or any(v["holds"] is None and v["row"] not in {r["id"] for r in rows} for v in verdicts):
        terminalreporter.write_line(f"{file} is left as it was: a task failed or did not run")
        return
    stored = {**_origin(config), "rows": rows, "bars": verdicts}
    _write(Path(file), stored)
    terminalreporter.write_line(f"{file} written after {stored['seconds']} s")


def _origin(config: pytest.Config) -> dict[str, Any]:
    """How, when and on what this run measured."""
    origin = results.provenance()
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            origin["versions"][name] = version(name)
    return {
        "mode": config.getoption("mode"),
        "taken": datetime.now(UTC).isoformat(timespec="minutes"),
        "seconds": round(time.monotonic() - config.stash[BEGUN]),
        "provenance": origin,
    }


def _write(file: Path, stored: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
