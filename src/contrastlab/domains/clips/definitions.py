"""The task on clips: which action is shown."""

# ruff: noqa: RUF009 - from_settings makes a field

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from contrastlab import settings as parts
from contrastlab.pictures.task import Evaluation, Metric, Task, from_settings


@dataclass(frozen=True)
class Action(Task):
    """Action recognition by fine-tuning the encoder of frames (CMC §4.2; Simonyan and Zisserman 2014, spatial network).

    A step shows a random frame of each clip. A test clip has the mean of the class probabilities of its frames. The
    score is the mean of the accuracies of all official splits, each with a network of its own and ``test_images``.
    """

    training: parts.ActionRecognition = from_settings("action")
    test_images: int | None = None
    name = "action"
    modalities = ("clip",)
    compares_classes = True
    scorer = "contrastlab.domains.clips.task:score"
    metrics = (Metric("action", "action recognition accuracy", error="bootstrap", items="test clips"),)

    def protocol(self, evaluation: Evaluation) -> dict[str, Any]:
        how = self.training
        return {
            "encoder": "of frames, fine-tuned from conv5 down, fully connected layers new",
            "solver": f"sgd, {how.epochs} epochs, lr {how.lr:g}, momentum {how.momentum:g}, dropout {how.dropout:g}",
            "score": f"mean probability of {how.frames} frames x {how.crops} crops, mean over splits",
            "splits": len(evaluation.data.folds()),
        }
