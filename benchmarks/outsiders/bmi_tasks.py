"""Tasks of ``benchmark-mi`` and its own estimators, in an environment of its own: see ``benchmarks/outside.py``.

``sample FOLDER SEED COUNT`` writes ``FOLDER/<task>.npz`` for every task, with its true information;
``estimate FOLDER TASK…`` prints one line of JSON for each task.
"""

import json
import sys
import time
from pathlib import Path

import bmi
import numpy as np

ESTIMATORS = {"KSG": bmi.estimators.KSGEnsembleFirstEstimator, "CCA": bmi.estimators.CCAMutualInformationEstimator}


def sample(folder: Path, seed: int, count: int) -> None:
    """Write samples of every task that is not there yet."""
    for name, task in bmi.benchmark.BENCHMARK_TASKS.items():
        path = folder / f"{name}.npz"
        if not path.exists():
            x, y = (np.asarray(part, dtype=np.float64) for part in task.sample(count, seed))
            part = path.with_suffix(".part.npz")
            np.savez(part, x=x, y=y, information=task.mutual_information, title=task.name)
            part.replace(path)


def estimate(folder: Path, names: list[str]) -> None:
    """Print what the benchmark's estimators make of the samples, with their default settings."""
    for name in names:
        stored, found = np.load(folder / f"{name}.npz"), {}
        for label, estimator in ESTIMATORS.items():
            began = time.process_time()
            value = float(estimator().estimate(stored["x"], stored["y"]))
            found[label] = {"value": value, "seconds": round(time.process_time() - began, 1)}
        print(json.dumps({"task": name, "estimates": found}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "sample":
        sample(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    else:
        estimate(Path(sys.argv[2]), sys.argv[3:])
