"""Published tables from runs: a run is trained once, tasks score it, cells are filled on all cores."""

from contrastlab.reproduce.cells import Cell, first_process
from contrastlab.reproduce.execution import Execution, parse_devices
from contrastlab.reproduce.jobs import Cluster
from contrastlab.reproduce.replays import Replay, replay
from contrastlab.reproduce.run import Run, embed
from contrastlab.reproduce.tables import table

__all__ = [
    "Cell", "Cluster", "Execution", "Replay", "Run", "embed", "first_process", "parse_devices", "replay", "table",
]  # fmt: skip
