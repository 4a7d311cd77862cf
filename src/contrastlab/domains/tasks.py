"""Name to task and to metric: what an encoder may be scored on, read without torch.

A task knows nothing of how an encoder was trained. A new one is a dataclass in the ``definitions`` of its domain, a
function that scores it, its name in the domain's row, and rows of TOML.
"""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name
from types import MappingProxyType

from contrastlab import domains
from contrastlab.pictures.task import Metric, Task
from contrastlab.settings import Settings


def _all_tasks() -> dict[str, type[Task]]:
    tasks: dict[str, type[Task]] = {}
    for domain in domains.rows():
        for name, where in domain.tasks.items():
            tasks[name] = resolve_name(where)
    return tasks


TASKS: Mapping[str, type[Task]] = MappingProxyType(_all_tasks())
"""Name to task."""


def _tasks_by_metric() -> dict[str, type[Task]]:
    tasks = {}
    for task in TASKS.values():
        for metric in task.metrics:
            tasks[metric.name] = task
    return tasks


_TASK_OF = _tasks_by_metric()


def get(name: str, settings: Settings) -> Task:
    """The task ``name`` as ``settings`` has it; an ``UnknownNameError`` lists near matches."""
    if name not in TASKS:
        raise domains.unknown("task", name, TASKS)
    return TASKS[name].of(settings)


def task_of(metric: str) -> str:
    """Name of the task that gives a metric; an ``UnknownNameError`` lists near matches."""
    if metric not in _TASK_OF:
        raise domains.unknown("metric", metric, _TASK_OF)
    return _TASK_OF[metric].name


def metric(name: str) -> Metric:
    """The metric of that name, whichever task has it."""
    metrics = {metric.name: metric for metric in TASKS[task_of(name)].metrics}
    return metrics[name]
