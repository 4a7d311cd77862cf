"""What an encoder is scored on: tasks and metrics as data, and a file for the computation of each family of tasks.

A task knows nothing of how an encoder was trained. A new one is a dataclass in :mod:`contrastlab.tasks.definitions`, a
function that scores it, its name in :data:`TASKS`, and rows of TOML. Tasks and metrics are imported without torch;
the functions below are imported when they are first used.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from contrastlab import errors
from contrastlab.settings import Settings
from contrastlab.tasks import definitions
from contrastlab.tasks.base import Measured, Metric, Setting, Task
from contrastlab.tasks.definitions import (
    Action,
    Boxes,
    Keypoints,
    Layers,
    Linear,
    Masks,
    Neighbours,
    Similarity,
    Transfer,
)

if TYPE_CHECKING:
    from contrastlab.tasks.foreign import Scored, score
    from contrastlab.tasks.linear import correct, linear_lbfgs, linear_sgd
    from contrastlab.tasks.representations import bootstrap, encode, frozen, knn, nearest_neighbour, represent
    from contrastlab.tasks.segmentation import confusion, mean_iou, pixel_accuracy
    from contrastlab.tasks.similarity import spearman

__all__ = [
    "TASKS", "Action", "Boxes", "Keypoints", "Layers", "Linear", "Masks", "Measured", "Metric", "Neighbours", "Scored",
    "Setting", "Similarity", "Task", "Transfer", "bootstrap", "confusion", "correct", "encode", "frozen", "get", "knn",
    "linear_lbfgs", "linear_sgd", "mean_iou", "metric", "nearest_neighbour", "pixel_accuracy", "represent", "score",
    "spearman", "task_of",
]  # fmt: skip

_LAZY = {
    **dict.fromkeys(("correct", "linear_lbfgs", "linear_sgd"), "linear"),
    **dict.fromkeys(("bootstrap", "encode", "frozen", "knn", "nearest_neighbour", "represent"), "representations"),
    **dict.fromkeys(("confusion", "mean_iou", "pixel_accuracy"), "segmentation"),
    "spearman": "similarity",
    **dict.fromkeys(("Scored", "score"), "foreign"),
}

TASKS: Mapping[str, type[Task]] = MappingProxyType({task.name: task for task in definitions.TASKS})
"""Name to task."""

_TASK_OF = {metric.name: task for task in TASKS.values() for metric in task.metrics}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})


def get(name: str, settings: Settings) -> Task:
    """The task ``name`` as ``settings`` has it; an ``UnknownNameError`` lists near matches."""
    errors.check_name("task", name, TASKS)
    return TASKS[name].of(settings)


def task_of(metric: str) -> str:
    """Name of the task that gives a metric; an ``UnknownNameError`` lists near matches."""
    errors.check_name("metric", metric, _TASK_OF)
    return _TASK_OF[metric].name


def metric(name: str) -> Metric:
    """The metric of that name, whichever task has it."""
    return next(each for each in TASKS[task_of(name)].metrics if each.name == name)
