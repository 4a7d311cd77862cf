"""Published tables from runs: a run is trained once, tasks score it, cells are filled on all cores."""

from contrastlab.reproduce.cells import Cell, first_process
from contrastlab.reproduce.jobs import Cluster
from contrastlab.reproduce.run import Run, embed, fingerprint, records
from contrastlab.reproduce.tables import (
    PROFILE_VARIABLE,
    cells,
    find_results,
    parse_seeds,
    parse_target,
    references,
    resolve_profile,
    table,
)
from contrastlab.reproduce.where import Where, parse_devices

__all__ = [
    "PROFILE_VARIABLE",
    "Cell",
    "Cluster",
    "Run",
    "Where",
    "cells",
    "embed",
    "find_results",
    "fingerprint",
    "first_process",
    "parse_devices",
    "parse_seeds",
    "parse_target",
    "records",
    "references",
    "resolve_profile",
    "table",
]
