"""Four tables side by side in one folder, one of them killed: every cell is computed once, and none is torn.

Four ``contrastlab run`` share a folder. A random one of them, a random time after the first line of training, is killed
together with its workers, as an exhausted memory or a switched-off machine would do; the three others go on. Then each
result is compared with that of a table which ran alone, and the lines of all processes say how often each run was
trained to its end: once at most by those that lived.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import IO

from contrastlab.tables import results
from torments.figures import Figures, Log

TABLES = (("ring/table1", "ir,moco"), ("ring/table1", "moco,ir"), ("ring/table3", "ir"), ("ring/table1", "ir,moco"))
"""Table and rows; the third asks the encoders of the others about other data."""
PATIENCE_S = 3600
"""For one table; on a machine that computes other things, too, minutes become many."""


def start(out: Path, table: str, rows: str, said: IO[str]) -> subprocess.Popen[str]:
    """A table on generated digits, in a session of its own."""
    arguments = [
        "run",
        table,
        "--dataset",
        "digits",
        "--profile",
        "smoke",
        "--rows",
        rows,
        "--jobs",
        "2",
        "--out",
        str(out),
    ]
    return subprocess.Popen(
        [sys.executable, "-m", "contrastlab", *arguments],
        stdout=said,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=out.parent,
        start_new_session=True,
    )


def stored(out: Path) -> dict[str, tuple[object, ...]]:
    """Metrics and items that were right, by file; reading refuses what is torn."""
    return {f"{r.method} {r.task} {r.seed}": (r.metrics, r.correct) for r in results.find(out)}


def run(count: int, seed: int, folder: Path, log: Log) -> Figures:
    """``count`` rounds of four tables, a different one killed in each.

    Args:
        count: of rounds.
        seed: of which is killed when.
        folder: for results.
        log: takes lines of progress.
    """
    figures, draw = Figures(), random.Random(seed)
    alone = folder / "alone"
    alone.mkdir(parents=True)
    for table in TABLES[2:]:
        with tempfile.TemporaryFile("w+") as said:
            if start(alone / "out", *table, said).wait(PATIENCE_S):
                said.seek(0)
                raise RuntimeError(f"the table alone does not run: {said.read()[-500:]}")
    expected = stored(alone / "out")
    for number in range(count):
        wrong = _round(folder / f"round-{number}", expected, draw)
        for name in expected:
            mine = [line for line in wrong if line.startswith(name) or line.startswith("all")]
            figures.count("failed" if mine else "identical", "cell", f"{name}: {'; '.join(mine)}")
        log(f"tables: round {number + 1}/{count}, {len(expected)} cells, {'; '.join(wrong) or 'identical'}")
    return figures


def _round(place: Path, expected: dict[str, tuple[object, ...]], draw: random.Random) -> list[str]:
    """What is wrong after four tables of which one was killed."""
    place.mkdir(parents=True)
    outputs = [(place / f"said-{k}.txt").open("w+") for k in range(len(TABLES))]
    running = [start(place / "out", *table, said) for table, said in zip(TABLES, outputs, strict=True)]
    victim = draw.randrange(len(running))
    _wait_for_training(place)
    time.sleep(draw.uniform(0, 4))
    ended = running[victim].poll() is not None
    if not ended:
        os.killpg(running[victim].pid, signal.SIGKILL)
    codes = [process.wait(PATIENCE_S) for process in running]
    texts = []
    for said in outputs:
        said.seek(0)
        texts.append(said.read())
        said.close()
    wrong = [
        f"all: table {k} ended with {code}: {texts[k][-300:]}"
        for k, code in enumerate(codes)
        if code and (k != victim or ended)
    ]
    found = stored(place / "out")
    if found.keys() != expected.keys():
        wrong.append(f"all: other cells: {sorted(found.keys() ^ expected.keys())}")
    wrong += [f"{name}: other numbers" for name in expected if name in found and found[name] != expected[name]]
    wrong += [
        f"{name.split(' seed')[0].strip('[')} trained {times} times"
        for name, times in _trainings(texts, victim).items()
        if times > 1
    ]
    left = [path.name for path in (place / "out").rglob("*.tmp")]
    return wrong + ([f"all: left behind: {left}"] if left else [])


def _wait_for_training(place: Path) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        if any(" epoch " in path.read_text() for path in place.glob("said-*.txt")):
            return
        time.sleep(0.05)


def _trainings(texts: list[str], victim: int) -> Counter[str]:
    """How often each run was trained to its end by a process that lived."""
    return Counter(
        line.split(" epoch ")[0]
        for k, text in enumerate(texts)
        if k != victim
        for line in text.splitlines()
        if "epoch 10/10" in line
    )
