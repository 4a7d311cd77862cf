"""Somebody else's torture: ``ckpt-chaos`` kills a command at its file events, resumes it, and compares what it left.

The package knows nothing of ours: it counts every file that the command opens for writing, moves or removes, kills it
before one of these events or leaves the file cut in half, starts the command again, and compares one file byte by byte
with that of an undisturbed run. That file is the SHA-256 of everything the cell leaves but times, which the command
below writes at its end: ``python -m torments.chaos CASE FOLDER``.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import torch

from contrastlab import tables
from contrastlab.pictures import fitting
from contrastlab.tables import runs as runs_module
from contrastlab.train import loop
from torments.cells import content, job, where
from torments.figures import Figures, Log

CASES = ("queue, linear", "bank, boxes", "sentences, similarity")
"""One cell of pictures, one dense one, one of text."""
PLACE = Path(__file__).parents[2] / ".outside" / "chaos"


def compute(name: str, folder: Path) -> None:
    """A cell with a checkpoint after every step, and then the digest of what it left."""
    torch.set_num_threads(1)
    runs_module.pretrain = functools.partial(loop.pretrain, checkpoint_every=-1.0)
    fitting.SAVE_EVERY_S = -1.0
    tables.run(job(name), where(folder), log=print)
    digest = hashlib.sha256()
    for key, value in content(folder).items():
        digest.update(key.encode())
        digest.update(value.numpy().tobytes() if isinstance(value, torch.Tensor) else repr(value).encode())
    (folder.parent / "digest.txt").write_text(digest.hexdigest())


def run(count: int, seed: int, folder: Path, log: Log, names: tuple[str, ...] = CASES) -> Figures:
    """``count`` kills of each cell, half of them before an event and half in the middle of a write.

    Args:
        count: of kills for each cell.
        seed: not used: the events are spread evenly.
        folder: for runs.
        log: takes lines of progress.
        names: of :data:`torments.cells.CASES`.
    """
    figures, program = Figures(), PLACE / "bin" / "ckpt-chaos"
    if not program.exists():
        figures.skipped.append("ckpt-chaos, which is not installed: `make torture` installs it")
        return figures
    for k, name in enumerate(names):
        place = folder / f"cell-{k}"
        options = ["--max-points", str(count), "--work", str(place), "--result-file", "{out}/digest.txt"]
        told = [sys.executable, "-m", "torments.chaos", name, "{out}/run"]
        modules = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, modules))}
        done = subprocess.run(
            [str(program), "run", *options, "--", *told], env=environment, capture_output=True, text=True
        )
        results = sorted(place.glob("pt_*/result.json"))
        if not results:
            raise RuntimeError(f"ckpt-chaos did not run {name}: {(done.stdout + done.stderr)[-500:]}")
        for path in results:
            outcome = json.loads(path.read_text(encoding="utf-8"))
            resumed, kind = outcome["outcome"], outcome.get("point", [0, "control"])[1]
            killed = outcome["crashed"] or kind == "control"
            same = killed and resumed["raised"] is None and resumed["weights_diff"] == 0
            line = f"{name}, {outcome['label']}: {resumed['raised'] or 'other content' if killed else 'not killed'}"
            figures.count("identical" if same else "failed", f"{name}, {kind}", line)
        if not figures.failed:
            shutil.rmtree(place)
        log(f"chaos: {name}, {len(results)} runs, {figures.failed} failed")
    return figures


if __name__ == "__main__":
    compute(sys.argv[1], Path(sys.argv[2]))
