"""How much a cell's number depends on the processor: the same cells trained with other instructions and precisions.

``contrastlab replay`` reads its tolerance from what this writes, ``results/replays.json``. Each way needs a process of
its own, since PyTorch reads its instruction set when it starts. What is stored is not run again:

    OMP_NUM_THREADS=1 python benchmarks/replay.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from contrastlab import papers
from contrastlab.support import files
from contrastlab.tables.replays import SPREAD

FILE = Path(__file__).parents[1] / "results" / SPREAD
CELLS = [("ring/ir", 0), ("ring/moco", 0)]
"""Of ring Table 1, profile first, on plain_shapes."""
WAYS = {
    "bf16": ("", "bf16-mixed", 1),
    "float32": ("", "32-true", 1),
    "float32, AVX2": ("avx2", "32-true", 1),
    "float32, no vectors": ("default", "32-true", 1),
    "float32, two threads": ("", "32-true", 2),
}
"""Name to instruction set, precision and threads."""


def one(row: str, seed: int, precision: str, threads: int) -> dict[str, Any]:
    """Train and score a cell here."""
    import torch

    from contrastlab import tables

    torch.set_num_threads(threads)
    fixed, torch.set_num_threads = torch.set_num_threads, lambda count: None  # a cell takes one thread
    plan = papers.plan("ring", 1)
    (job,) = tables.expand(plan, "plain_shapes", [row], [seed], "first")
    job = replace(job, settings=job.settings.override(precision=precision))
    began = time.process_time()
    with TemporaryDirectory() as folder:
        execution = tables.Execution(out_dir=folder, read_also=(), accelerator="cpu")
        result = tables.run(job, execution, log=lambda line: None)
    torch.set_num_threads = fixed
    p = result.provenance.model_dump(mode="json")
    kept = ("git_commit", "git_dirty", "cpu", "capability", "threads", "versions")
    measured = {"value": result.metrics["linear"], "loss": result.curve[-1]["loss"]}
    return {**measured, "cpu_s": round(time.process_time() - began), **{field: p[field] for field in kept}}


def main() -> None:
    """Run what is missing, each in a process, and store it as it ends."""
    what = "linear accuracy (percent) of ring Table 1 on plain_shapes, profile first"
    record = files.read_record(FILE) if FILE.exists() else {"what": what, "runs": []}
    for row, seed in CELLS:
        for way, (instructions, precision, threads) in WAYS.items():
            key = {"cell": f"{row} seed {seed}", "way": way}
            if any(key.items() <= run.items() for run in record["runs"]):
                continue
            environment = {**os.environ, **({"ATEN_CPU_CAPABILITY": instructions} if instructions else {})}
            command = [sys.executable, __file__, row, str(seed), precision, str(threads)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            record["runs"].append({**key, **json.loads(done.stdout.splitlines()[-1])})
            files.write_record(FILE, record)
            print(json.dumps(record["runs"][-1])[:160], flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(one(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))))
    else:
        main()
