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
from contrastlab.tasks.dense import Boxes, Keypoints, Masks
from contrastlab.tasks.layers import Layers
from contrastlab.tasks.linear import Linear, correct, linear_lbfgs, linear_sgd
from contrastlab.tasks.neighbours import Neighbours, knn, nearest_neighbour
from contrastlab.tasks.one_view import OneView
from contrastlab.tasks.representations import encode, frozen, represent
from contrastlab.tasks.segmentation import SEGMENTATIONS, Segmentation, confusion, mean_iou, pixel_accuracy
from contrastlab.tasks.similarity import Similarity, spearman
from contrastlab.tasks.transfer import Transfer

__all__ = [
    "TASKS",
    "Action",
    "Boxes",
    "Keypoints",
    "Layers",
    "Linear",
    "Masks",
    "Measured",
    "Metric",
    "Neighbours",
    "OneView",
    "Segmentation",
    "Setting",
    "Similarity",
    "Task",
    "Transfer",
    "bootstrap",
    "confusion",
    "correct",
    "encode",
    "frozen",
    "get",
    "knn",
    "linear_lbfgs",
    "linear_sgd",
    "mean_iou",
    "metric",
    "nearest_neighbour",
    "pixel_accuracy",
    "represent",
    "spearman",
    "task_of",
]

_KINDS: tuple[type[Task], ...] = (
    Linear,
    Neighbours,
    Transfer,
    Layers,
    Action,
    OneView,
    *SEGMENTATIONS.values(),
    Boxes,
    Masks,
    Keypoints,
    Similarity,
)

TASKS: Mapping[str, type[Task]] = MappingProxyType({task.name: task for task in _KINDS})
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
