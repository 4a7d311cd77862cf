"""How long importing takes, in fresh processes: ``python benchmarks/import_time.py``.

A bare ``import contrastlab`` may take 1.2 times what torch and torchvision take; its parts are shown beside it. Rounds
take turns, so that a busy machine is busy for all, and the fastest counts.
"""

from __future__ import annotations

import subprocess
import sys
import time

ROUNDS = 3
ALLOWED = 1.2
"""Times the import of torch and torchvision that a bare import of the package may take."""
BASE, PACKAGE = "torch, torchvision", "contrastlab"
PARTS = ("contrastlab.methods", "contrastlab.reproduce")


def seconds(modules: str) -> float:
    """Wall time of a fresh interpreter that imports ``modules``."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", f"import {modules}"], check=True)
    return time.perf_counter() - start


def main() -> int:
    """Print the times; the exit status is 1 if the bare import takes too long."""
    taken: dict[str, list[float]] = {name: [] for name in (BASE, PACKAGE, *PARTS)}
    for _ in range(ROUNDS):
        for name, times in taken.items():
            times.append(seconds(name))
    fastest = {name: min(times) for name, times in taken.items()}
    for name, value in fastest.items():
        print(f"{name:24s}{value:6.2f} s {value / fastest[BASE]:6.2f} ×")
    return int(fastest[PACKAGE] > ALLOWED * fastest[BASE])


if __name__ == "__main__":
    sys.exit(main())
