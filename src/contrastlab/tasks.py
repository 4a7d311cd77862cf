"""The public door to tasks: what an encoder is scored on, and the functions that score it.

Tasks and metrics are read without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contrastlab.support import doors

if TYPE_CHECKING:
    from contrastlab.domains.clips.definitions import Action
    from contrastlab.domains.detection.definitions import Boxes, Keypoints, Masks
    from contrastlab.domains.scenes.task import confusion, mean_iou, pixel_accuracy
    from contrastlab.domains.tasks import TASKS, get, metric, task_of
    from contrastlab.domains.text.definitions import Similarity
    from contrastlab.domains.text.task import spearman
    from contrastlab.pictures.definitions import Layers, Linear, Neighbours, Transfer
    from contrastlab.pictures.linear import correct, linear_lbfgs, linear_sgd
    from contrastlab.pictures.representations import bootstrap, encode, knn, nearest_neighbour, represent
    from contrastlab.pictures.task import Evaluation, Measured, Metric, Task
    from contrastlab.support.tensors import frozen
    from contrastlab.tables.foreign import Scored, score

__all__ = [
    "TASKS",
    "Action",
    "Boxes",
    "Evaluation",
    "Keypoints",
    "Layers",
    "Linear",
    "Masks",
    "Measured",
    "Metric",
    "Neighbours",
    "Scored",
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
    "score",
    "spearman",
    "task_of",
]

_HOMES = {
    **dict.fromkeys(("TASKS", "get", "metric", "task_of"), "contrastlab.domains.tasks"),
    **dict.fromkeys(("Layers", "Linear", "Neighbours", "Transfer"), "contrastlab.pictures.definitions"),
    **dict.fromkeys(("Boxes", "Keypoints", "Masks"), "contrastlab.domains.detection.definitions"),
    "Action": "contrastlab.domains.clips.definitions",
    "Similarity": "contrastlab.domains.text.definitions",
    **dict.fromkeys(("Measured", "Metric", "Evaluation", "Task"), "contrastlab.pictures.task"),
    **dict.fromkeys(("correct", "linear_lbfgs", "linear_sgd"), "contrastlab.pictures.linear"),
    **dict.fromkeys(
        ("bootstrap", "encode", "knn", "nearest_neighbour", "represent"),
        "contrastlab.pictures.representations",
    ),
    "frozen": "contrastlab.support.tensors",
    **dict.fromkeys(("confusion", "mean_iou", "pixel_accuracy"), "contrastlab.domains.scenes.task"),
    "spearman": "contrastlab.domains.text.task",
    **dict.fromkeys(("Scored", "score"), "contrastlab.tables.foreign"),
}


def __getattr__(name: str) -> Any:
    return doors.look_up(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
