"""``torch-mist``, in an environment of its own: see ``benchmarks/outside.py``.

``FOLDER TRAINED STOPPED TASK…`` prints one line of JSON for each task: SMILE, the estimator that ``estimate_mi`` takes
by default, with all other defaults, on standardised samples. The first TRAINED pairs train it, the next STOPPED stop
it, the rest are what it is read from.
"""

import contextlib
import io
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch_mist import estimate_mi


def main(folder: Path, trained: int, stopped: int, names: list[str]) -> None:
    """Print an estimate for each task."""
    torch.set_num_threads(1)
    for name in names:
        torch.manual_seed(0)
        stored, parts = np.load(folder / f"{name}.npz"), ({}, {}, {})
        for key in ("x", "y"):
            values = (stored[key] - stored[key][:trained].mean(0)) / stored[key][:trained].std(0)
            pieces = torch.from_numpy(values).float().split([trained, stopped, len(values) - trained - stopped])
            for part, piece in zip(parts, pieces, strict=True):
                part[key] = piece
        began = time.process_time()
        with contextlib.redirect_stdout(io.StringIO()):
            value, _ = estimate_mi(parts[0], valid_data=parts[1], test_data=parts[2], verbose=False)
        found = {"value": float(value), "seconds": round(time.process_time() - began, 1)}
        print(json.dumps({"task": name, "estimates": {"SMILE": found}}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
