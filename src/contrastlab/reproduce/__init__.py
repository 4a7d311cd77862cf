"""Published tables from runs: a run is trained once, tasks score it, cells are filled on all cores."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from contrastlab.reproduce.arguments import PROFILE_VARIABLE, choose_profile, parse_seeds, parse_target

if TYPE_CHECKING:
    from contrastlab.reproduce.cells import Cell, first_process
    from contrastlab.reproduce.jobs import Cluster
    from contrastlab.reproduce.run import Run, embed, fingerprint, records
    from contrastlab.reproduce.tables import find_results, references, resolve_profile, table
    from contrastlab.reproduce.where import Where, parse_devices

__all__ = [
    "PROFILE_VARIABLE", "Cell", "Cluster", "Run", "Where", "choose_profile", "embed", "find_results",
    "fingerprint", "first_process", "parse_devices", "parse_seeds", "parse_target", "records", "references",
    "resolve_profile", "table",
]  # fmt: skip

_ROOMS = {
    "cells": ("Cell", "first_process"),
    "jobs": ("Cluster",),
    "run": ("Run", "embed", "fingerprint", "records"),
    "tables": ("find_results", "references", "resolve_profile", "table"),
    "where": ("Where", "parse_devices"),
}


def __getattr__(name: str) -> Any:  # what trains needs PyTorch, what reads arguments does not
    for room, names in _ROOMS.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{room}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
