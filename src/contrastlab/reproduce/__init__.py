"""Published tables from runs: a run is trained once, tasks score it, cells are filled on all cores."""

from contrastlab.reproduce.cells import Cell, first_process
from contrastlab.reproduce.execution import Execution, parse_devices
from contrastlab.reproduce.jobs import Cluster
from contrastlab.reproduce.run import Run, embed, fingerprint, records
from contrastlab.reproduce.tables import (
    PROFILE_VARIABLE,
    cells,
    choose_profile,
    find_results,
    parse_seeds,
    parse_target,
    references,
    table,
)

__all__ = [
    "PROFILE_VARIABLE", "Cell", "Cluster", "Execution", "Run", "cells", "choose_profile", "embed", "find_results",
    "fingerprint", "first_process", "parse_devices", "parse_seeds", "parse_target", "records", "references", "table",
]  # fmt: skip
