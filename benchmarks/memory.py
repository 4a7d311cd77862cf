"""Peak memory of training against the batch, whole and in chunks (``Settings.accumulate``).

    python benchmarks/memory.py             # all points, or those that are not in the file yet
    python benchmarks/memory.py --largest 2048

A point is a process of its own, on one thread: one step of SimCLR with the encoder ``small`` through
:func:`contrastlab.train.pretrain`, views, scores and optimiser included. Memory is the largest resident set that the
operating system saw; ``held`` is what the process had before it began to train, its pictures included. The pictures are
random numbers, since no value of theirs decides the memory.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

OUT, CHUNK, METHOD = Path(__file__).parent / "results" / "memory.json", 1024, "ring/simclr"
POINTS = [(batch, chunks) for batch in (1024, 2048, 4096, 8192) for chunks in dict.fromkeys((1, batch // CHUNK))]


def child(batch: int, chunks: int) -> dict[str, Any]:
    """The row of a point, with the code and machine it comes from."""
    import torch
    from scale import peak

    from contrastlab import methods
    from contrastlab.data import ImageSet
    from contrastlab.settings import Settings
    from contrastlab.tables.results import provenance
    from contrastlab.train import pretrain

    torch.set_num_threads(1)
    pixels = torch.randint(0, 256, (batch, 3, 32, 32), dtype=torch.uint8)
    pictures = ImageSet("made up", pixels, torch.full((batch,), -1), ())
    settings = Settings(
        image_size=32, arch="small", stem="cifar", epochs=1, batch_size=batch, accumulate=chunks, knn_every=0
    )
    held, began = peak(), time.monotonic()
    (row,) = pretrain(methods.get(METHOD), settings, pictures, log=lambda line: None).history
    return {
        "batch": batch,
        "accumulate": chunks,
        "method": METHOD,
        "arch": "small",
        "held_bytes": held,
        "peak_bytes": peak(),
        "wall_s": time.monotonic() - began,
        "loss": row["loss"],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "provenance": provenance(),
    }


def main() -> int:
    """Measure what is missing and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--largest", type=int, default=POINTS[-1][0], help="batch")
    parser.add_argument("--again", action="store_true", help="measure anew")
    parser.add_argument("--point", nargs=2, type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.point:
        print(json.dumps(child(*args.point)))
        return 0
    stored = json.loads(args.out.read_text()) if args.out.exists() and not args.again else []
    known = {(row["batch"], row["accumulate"]) for row in stored}
    for point in (each for each in POINTS if each[0] <= args.largest and each not in known):
        run = subprocess.run(
            [sys.executable, __file__, "--point", *map(str, point)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        row = json.loads(run.stdout.splitlines()[-1])
        stored = sorted([*stored, row], key=lambda each: (each["batch"], each["accumulate"]))
        args.out.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
        print(f"batch {point[0]:5d} in {point[1]} chunks {row['peak_bytes'] / 2**20:8.0f} MiB {row['wall_s']:6.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
