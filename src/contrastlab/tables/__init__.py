"""Published tables from runs: a run is trained once, tasks score it, cells are filled on all cores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contrastlab.support import doors

if TYPE_CHECKING:
    from contrastlab.tables.cells import Cell, first_process
    from contrastlab.tables.execution import Execution, parse_devices
    from contrastlab.tables.fill import table
    from contrastlab.tables.pool import Cluster
    from contrastlab.tables.replays import Replay, replay
    from contrastlab.tables.run import Run, embed

__all__ = [
    "Cell",
    "Cluster",
    "Execution",
    "Replay",
    "Run",
    "embed",
    "first_process",
    "parse_devices",
    "replay",
    "table",
]

_HOMES = {
    **dict.fromkeys(("Cell", "first_process"), "contrastlab.tables.cells"),
    **dict.fromkeys(("Execution", "parse_devices"), "contrastlab.tables.execution"),
    "table": "contrastlab.tables.fill",
    "Cluster": "contrastlab.tables.pool",
    **dict.fromkeys(("Replay", "replay"), "contrastlab.tables.replays"),
    **dict.fromkeys(("Run", "embed"), "contrastlab.tables.run"),
}


def __getattr__(name: str) -> Any:
    return doors.look_up(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
