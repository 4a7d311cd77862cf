"""Published tables from runs: a run is trained once, tasks score it, cells are filled on all cores."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from contrastlab.reproduce.arguments import PROFILE_VARIABLE, choose_profile, parse_seeds, parse_target
from contrastlab.reproduce.records import records

if TYPE_CHECKING:
    from contrastlab.data.items import fingerprint
    from contrastlab.reproduce.cells import Cell, first_process
    from contrastlab.reproduce.execution import Execution, parse_devices
    from contrastlab.reproduce.jobs import Cluster
    from contrastlab.reproduce.replays import Replay, replay
    from contrastlab.reproduce.run import Run, embed
    from contrastlab.reproduce.tables import table

__all__ = [
    "PROFILE_VARIABLE", "Cell", "Cluster", "Execution", "Replay", "Run", "choose_profile", "embed", "fingerprint",
    "first_process", "parse_devices", "parse_seeds", "parse_target", "records", "replay", "table",
]  # fmt: skip

_FILES = {
    "Cell": "cells", "first_process": "cells", "Execution": "execution", "parse_devices": "execution",
    "Cluster": "jobs", "Replay": "replays", "replay": "replays", "Run": "run", "embed": "run", "fingerprint": "cells",
    "table": "tables",
}  # fmt: skip


def __getattr__(name: str) -> Any:  # what trains needs PyTorch; what reads arguments and records does not
    if name in _FILES:
        return getattr(import_module(f"{__name__}.{_FILES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
