"""The runs of the book's tenth chapter: later methods side by side, each with the settings that its search chose.

    OMP_NUM_THREADS=1 python benchmarks/later.py --seeds 0,1,2,3,4,5,6,7          # what is missing, seed by seed
    OMP_NUM_THREADS=1 python benchmarks/later.py --seeds 0 --methods byol/byol    # of one method

Each run is a file below ``results/later``. One that is there is not repeated.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from contrastbook.studies import later
from contrastlab.support.errors import MissingDataError

OUT = Path(__file__).parents[1] / "results"
EVERY = (later.UNTRAINED, *later.METHODS)


def main() -> None:
    """Run what is missing; a method whose search is not stored yet is left out, with a line that says so."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", required=True, help="such as 0,1,2")
    parser.add_argument("--methods", default=",".join(EVERY), help="such as byol/byol,simsiam/simsiam; all by default")
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--profile", default="laptop", choices=("laptop", "smoke"))
    given = parser.parse_args()
    for seed in given.seeds.split(","):
        for method in given.methods.split(","):
            try:
                measured = later.study(method, given.dataset, given.profile, int(seed), out_dir=OUT)
            except MissingDataError as error:
                print(f"{method} seed {seed}: {error}", flush=True)
                continue
            (row,) = measured.rows
            values = " ".join(f"{measure} {float(row[measure]):.2f}" for measure in later.MEASURES)
            print(f"{method} seed {seed}: {values} cpu {measured.provenance['cpu_s']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
