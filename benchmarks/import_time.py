"""What one waits for before anything is computed, as multiples of `import torch`: `python benchmarks/import_time.py`.

Imports and commands run in fresh processes, commands once before they are timed, so that what they keep is there. The
processor time of the process counts, so that a busy machine matters less, and of several rounds the least.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROUNDS = 3
BASE = "import torch"
ALLOWED = {
    BASE: 1.0,
    "import torch, torchvision": 9.9,
    "import contrastlab": 0.1,
    **{f"import contrastlab.{choice}": 1.3 for choice in ("views", "keys", "negatives", "positives", "objectives")},
    "import contrastlab.methods": 1.4,
    "import contrastlab.tables.plan, contrastlab.tables.results, contrastlab.tables.report": 0.3,
    "--help": 0.15,
    "list": 0.5,
    "encoders": 0.75,
    "show ring/table1": 0.75,
    "run ring/table1 --columns nope": 0.5,
    "claims": 2.0,
}
"""Code or command line to the multiple that it may take; where the base is 2 s, a list is 1 s."""


def command(what: str) -> list[str]:
    """A fresh interpreter that runs code, or a command of the package."""
    return (
        [sys.executable, "-c", what]
        if what.startswith("import ")
        else [sys.executable, "-m", "contrastlab", *what.split()]
    )


def seconds(what: str) -> float:
    """Processor time of a process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command(what), capture_output=True, cwd=ROOT, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Print the times; the exit status is 1 if one is above its multiple."""
    taken = {what: [seconds(what)] for what in ALLOWED}
    for what in taken:
        taken[what].clear()  # they have been asked once
    for _ in range(ROUNDS):
        for what, times in taken.items():
            times.append(seconds(what))
    least = {what: min(times) for what, times in taken.items()}
    late = [what for what, most in ALLOWED.items() if least[what] > most * least[BASE]]
    for what, value in least.items():
        mark = f"  more than {ALLOWED[what]} ×" if what in late else ""
        print(f"{what:68s}{value:6.2f} s {value / least[BASE]:6.2f} ×{mark}")
    return min(1, len(late))


if __name__ == "__main__":
    sys.exit(main())
