"""The sweep of a ring's edges on the features of a frozen network, for the book's fourth chapter.

    OMP_NUM_THREADS=1 python benchmarks/ring_edges.py --seeds 0,1,2,3    # what is missing, seed by seed

Each run is a file below ``results/ring_edges``. One that is there is not repeated.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from contrastbook.studies import ring_edges

OUT = Path(__file__).parents[1] / "results"


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", required=True, help="such as 0,1,2,3")
    given = parser.parse_args()
    for seed in given.seeds.split(","):
        for inner, outer in ring_edges.EDGES:
            measured = ring_edges.study(inner, outer, "cifar10_lite0", "features", int(seed), out_dir=OUT)
            (row,) = measured.rows
            seconds = measured.provenance["cpu_s"]
            print(f"{inner} to {outer} %, seed {seed}: linear {row['linear']:.2f}, cpu {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
