"""What a run survives, as figures: kills, shared folders, full disks, damaged files, more processes, cold losses.

    python benchmarks/torture.py                                   # every part, ``make torture``
    python benchmarks/torture.py kill --count 200 --seed 7          # one part, longer, with other instants
    python benchmarks/torture.py finite processes

Each part counts what it tried and how that ended, and writes its figures to ``benchmarks/results/torture.json`` as soon
as it has ended, with seed, seconds, date and commit; parts that are not run keep theirs. What the parts do is said in
their modules, ``benchmarks/torments/``. The exit code is 1 where anything failed; a failed run's folder is kept and
named.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torments import chaos, corrupt, disk, faults, fields, finite, kill, processes, tables
from torments.figures import Figures, Log

from contrastlab.support import files
from contrastlab.support.provenance import provenance

STORE = Path(__file__).parent / "results" / "torture.json"


@dataclass(frozen=True)
class Part:
    """A part of the torture.

    Args:
        run: takes count, seed, folder and log.
        count: how many tries, in the unit of the part; 0 is everything there is.
        title: what is tried, for a reader.
    """

    run: Callable[[int, int, Path, Log], Figures]
    count: int
    title: str


PARTS = {
    "kill": Part(kill.run, 50, "Cells killed at a random instant, and resumed"),
    "tables": Part(tables.run, 1, "Cells of four tables in one folder, one table killed"),
    "disk": Part(disk.run, 24, "Full disks, read-only folders and jumping clocks"),
    "faults": Part(faults.run, 0, "Calls that change a file, failing one after the other"),
    "chaos": Part(chaos.run, 12, "Commands killed by `ckpt-chaos` at their file events"),
    "corrupt": Part(corrupt.run, 1000, "Stored files damaged at random"),
    "fields": Part(fields.run, 2000, "Fields of files that people have, changed one at a time"),
    "processes": Part(processes.run, 0, "Recipes on two and three processes beside one"),
    "finite": Part(finite.run, 0, "Degenerate batches at τ = 0.01 in bfloat16"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run parts and store their figures; 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="part", help=f"any of {', '.join(PARTS)}; none is all")
    parser.add_argument("--count", type=int, help="tries of each part, instead of its own number")
    parser.add_argument("--seed", type=int, default=0, help="of every draw (default 0)")
    parser.add_argument("--out", type=Path, default=STORE, help="where figures are written")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.parts if name not in PARTS]:
        parser.error(f"unknown part {unknown[0]!r}: expected any of {', '.join(PARTS)}")
    torch.set_num_threads(1)
    code = provenance()  # of what runs, whatever is edited meanwhile; figures are a tracked file, too
    failed = 0
    for name in given.parts or PARTS:
        part = PARTS[name]
        count = part.count if given.count is None else given.count
        folder = Path(tempfile.mkdtemp(prefix=f"torture-{name}-"))
        began = time.monotonic()
        figures = part.run(count, given.seed, folder, lambda line: print(line, flush=True))
        seconds = time.monotonic() - began
        store(given.out, name, figures, code, count=count, seed=given.seed, seconds=seconds)
        failed += figures.failed
        for line in figures.failures:
            print(f"{name}: FAILED {line}")
        if figures.failed:
            print(f"{name}: its runs are kept in {folder}")
        else:
            shutil.rmtree(folder)
    return 1 if failed else 0


def store(
    path: Path, name: str, figures: Figures, code: dict[str, Any], *, count: int, seed: int, seconds: float
) -> None:
    """Write the figures of one part, and the code and machine it ran on, beside those of the others."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    known[name] = {
        "title": PARTS[name].title,
        "count": count,
        "seed": seed,
        **asdict(figures),
        "seconds": round(seconds, 1),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "git_commit": code["git_commit"],
        "git_dirty": code["git_dirty"],
        "cpu": code["cpu"],
        "cores": code["cores"],
    }
    ordered = {part: known[part] for part in PARTS if part in known}
    files.write_whole(path, json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
