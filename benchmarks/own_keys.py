"""MoCo and MoCoRing with and without older keys of the query's own picture, for the book's fourth chapter.

    OMP_NUM_THREADS=1 python benchmarks/own_keys.py --seeds 0,1,2,3,4,5,6,7    # what is missing, seed by seed

Each run is a file below ``results/own_keys``. One that is there is not repeated.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path

from contrastbook.studies import own_keys

OUT = Path(__file__).parents[1] / "results"


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", required=True, help="such as 0,1,2,3")
    given = parser.parse_args()
    for seed, method, has_own in product(given.seeds.split(","), own_keys.METHODS, (True, False)):
        measured = own_keys.study(method, has_own, "cifar10_lite0", "features", int(seed), out_dir=OUT)
        (row,) = measured.rows
        words = "with" if has_own else "without"
        print(f"{method} {words} own keys, seed {seed}: linear {row['linear']:.2f}", flush=True)


if __name__ == "__main__":
    main()
