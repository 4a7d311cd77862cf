"""Tasks on labelled items of any kind: what decides their numbers, what these mean, and how they were taken.

Fields are parts of :class:`contrastlab.settings.Settings`, described there. ``test_images`` is at most so many test
items, with class counts as equal as possible; ``None`` is all.
"""

# ruff: noqa: RUF009 - from_settings makes a field

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from contrastlab import settings as parts
from contrastlab.pictures.task import FROZEN, LAST, Evaluation, Metric, Task, from_settings

LAYERS = ("conv1", "conv2", "conv3", "conv4", "conv5", "fc6", "fc7")  # those that have a metric
HIDDEN = "_mlp"  # behind the name of a layer: the classifier with a hidden layer


@dataclass(frozen=True)
class Linear(Task):
    """A linear classifier on frozen features, fitted as ``probe`` says: percent of test items."""

    probe: parts.LinearProbe = from_settings("linear")
    test_images: int | None = None
    name = "linear"
    compares_classes = True
    scorer = "contrastlab.pictures.linear:score"
    metrics = (
        Metric("linear", "linear accuracy"),
        Metric("linear5", "linear top-5 accuracy", absent="top-5 accuracy needs more than five classes"),
    )

    def protocol(self, evaluation: Evaluation) -> dict[str, Any]:
        return {**self.probe.model_dump(mode="json"), **FROZEN, **LAST}


@dataclass(frozen=True)
class Neighbours(Task):
    """Weighted k-NN and 1-NN of unit embeddings of re-encoded training images; no classifier is trained."""

    k: int = 200
    temperature: float = 0.1
    train_images: int | None = None
    test_images: int | None = None
    name = "neighbours"
    compares_classes = True
    scorer = "contrastlab.pictures.representations:score"
    metrics = (Metric("knn200", "200-NN accuracy"), Metric("nn1", "1-NN accuracy"))

    def protocol(self, evaluation: Evaluation) -> dict[str, Any]:
        knn = f"k={self.k}, temperature={self.temperature}, embeddings"
        return {**FROZEN, "knn": knn, "nn1": "embeddings of re-encoded training images"}


@dataclass(frozen=True)
class Transfer(Task):
    """A linear classifier on frozen features of data that the encoders were not trained on (ring §5, Table 3)."""

    probe: parts.LinearProbe = from_settings("linear")
    view: parts.TransferView = from_settings("transfer")
    test_images: int | None = None
    name = "transfer"
    modalities = ("image", "waveform")
    compares_classes = True
    scorer = "contrastlab.pictures.linear:score_transfer"
    metrics = (Metric("transfer", "transfer accuracy", items="test items"),)

    def protocol(self, evaluation: Evaluation) -> dict[str, Any]:
        normalised_by = "the statistics of pre-training"
        if self.view.normalise == "target":
            normalised_by = "mean and variance of the target's training images; a colour split keeps its fixed ranges"
        return {
            **Linear(self.probe).protocol(evaluation),
            "train_view": self.view.augmentation or "as in pre-training",
            "normalised_by": normalised_by,
        }


@dataclass(frozen=True)
class Layers(Task):
    """A classifier on each layer of the frozen encoders (CMC, Tables 7 and 8); ``probe.features`` is not read."""

    probe: parts.LinearProbe = from_settings("linear")
    layers: parts.LayerProbe = from_settings("layers")
    test_images: int | None = None
    name = "layers"
    modalities = ("image",)
    compares_classes = True
    scorer = "contrastlab.pictures.linear:score_layers"
    metrics = (
        *(Metric(name, f"linear accuracy at {name}") for name in LAYERS),
        *(Metric(name + HIDDEN, f"accuracy with a hidden layer at {name}") for name in LAYERS),
    )

    def protocol(self, evaluation: Evaluation) -> dict[str, Any]:
        return {
            **self.probe.model_dump(mode="json", exclude={"features"}),
            "layers": self.layers.model_dump(mode="json"),
            **FROZEN,
            "pooling": f"adaptive max, at most {self.layers.values} values a layer",
            **LAST,
        }
