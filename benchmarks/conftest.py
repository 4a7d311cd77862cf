"""The ``contest`` fixture, the printed table, and the stored results.

    make bench                  # quick: minutes; stores benchmarks/results/cpu.json
    make bench MODE=full        # more rounds
    pytest benchmarks/bench_queue.py -k moco    # one task, nothing stored

Unequal values fail; a missed bar is printed.
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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    rows = config.stash[ROWS]
    if not rows:
        return
    verdicts = [report.verdict(bar, rows) for bar in report.bars()]
    terminalreporter.write_sep("-", "milliseconds of one core, median of interleaved rounds")
    for line in report.table(rows, verdicts):
        terminalreporter.write_line(line)
    file = config.getoption("store")
    if not file:
        return
    if exitstatus or any(v["holds"] is None and v["row"] not in {r["id"] for r in rows} for v in verdicts):
        terminalreporter.write_line(f"{file} is left as it was: a task failed or did not run")
        return
    origin = results.provenance()
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            origin["versions"][name] = version(name)
    stored = {
        "mode": config.getoption("mode"),
        "taken": datetime.now(UTC).isoformat(timespec="minutes"),
        "seconds": round(time.monotonic() - config.stash[BEGUN]),
        "provenance": origin,
        "rows": rows,
        "bars": verdicts,
    }
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(file).write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    terminalreporter.write_line(f"{file} written after {stored['seconds']} s")
