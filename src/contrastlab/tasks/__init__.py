"""What an encoder is asked to do, and how it is scored: a file for each family of tasks.

A task knows nothing of how an encoder was trained. A new one is a file here, its name in :data:`TASKS`, and rows of
TOML.
"""

from collections.abc import Mapping
from types import MappingProxyType

from contrastlab import errors
from contrastlab.settings import Settings
from contrastlab.tasks.action import Action
from contrastlab.tasks.base import Measured, Metric, Setting, Task, bootstrap
from contrastlab.tasks.linear import Linear, correct, linear_lbfgs, linear_sgd
from contrastlab.tasks.neighbours import Neighbours, knn, nearest_neighbour
from contrastlab.tasks.representations import encode, frozen, represent
from contrastlab.tasks.similarity import Similarity, spearman
from contrastlab.tasks.transfer import Transfer

__all__ = [
    "TASKS",
    "Action",
    "Linear",
    "Measured",
    "Metric",
    "Neighbours",
    "Setting",
    "Similarity",
    "Task",
    "Transfer",
    "bootstrap",
    "correct",
    "encode",
    "frozen",
    "get",
    "knn",
    "linear_lbfgs",
    "linear_sgd",
    "metric",
    "nearest_neighbour",
    "represent",
    "spearman",
    "task_of",
]

TASKS: Mapping[str, type[Task]] = MappingProxyType(
    {task.name: task for task in (Linear, Neighbours, Transfer, Action, Similarity)}
)
"""Name to task."""


def get(name: str, settings: Settings) -> Task:
    """The task ``name`` as ``settings`` has it.

    Raises:
        UnknownNameError: with near matches.
    """
    if name not in TASKS:
        raise errors.unknown("task", name, TASKS)
    return TASKS[name].of(settings)


def _metrics() -> dict[str, tuple[str, Metric]]:
    return {metric.name: (task.name, metric) for task in TASKS.values() for metric in task.metrics}


def metric(name: str) -> Metric:
    """The metric of that name, whichever task has it.

    Raises:
        UnknownNameError: with near matches.
    """
    if name not in _metrics():
        raise errors.unknown("metric", name, _metrics())
    return _metrics()[name][1]


def task_of(metric: str) -> str:
    """Name of the task that gives a metric.

    Raises:
        UnknownNameError: with near matches.
    """
    if metric not in _metrics():
        raise errors.unknown("metric", metric, _metrics())
    return _metrics()[metric][0]
