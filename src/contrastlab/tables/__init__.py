"""Published tables from runs: a run is trained once, tasks score it, cells are filled on all cores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contrastlab.support import doors

if TYPE_CHECKING:
    from contrastlab.tables.execution import Execution, first_process, parse_devices
    from contrastlab.tables.fill import table
    from contrastlab.tables.job import Job, expand, run
    from contrastlab.tables.pool import Cluster
    from contrastlab.tables.replays import Replay, replay
    from contrastlab.tables.runs import Run, embed

__all__ = [
    "Cluster",
    "Execution",
    "Job",
    "Replay",
    "Run",
    "embed",
    "expand",
    "first_process",
    "parse_devices",
    "replay",
    "run",
    "table",
]

_HOMES = {
    **dict.fromkeys(("Execution", "first_process", "parse_devices"), "contrastlab.tables.execution"),
    **dict.fromkeys(("Job", "expand", "run"), "contrastlab.tables.job"),
    "table": "contrastlab.tables.fill",
    "Cluster": "contrastlab.tables.pool",
    **dict.fromkeys(("Replay", "replay"), "contrastlab.tables.replays"),
    **dict.fromkeys(("Run", "embed"), "contrastlab.tables.runs"),
}


def __getattr__(name: str) -> Any:
    return doors.look_up(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
