"""Nearest neighbours of test items among training items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from contrastlab import ranks
from contrastlab.data.loading import subset_order
from contrastlab.errors import reject
from contrastlab.settings import Settings
from contrastlab.tasks.base import Described, Measured, Metric, Setting
from contrastlab.tasks.representations import check_labels, encode


def nearest_neighbour(train: Tensor, labels: Tensor, test: Tensor, test_labels: Tensor, *, chunk: int = 2048) -> Tensor:
    """Whether the training row with the largest dot product has a test row's label (vince, ring, LA).

    Args:
        train: ``[N, d]`` unit rows; the papers use the memory bank itself.
        labels: ``[N]``.
        test: ``[M, d]`` unit rows.
        test_labels: ``[M]``.
        chunk: test rows at a time, fewer before a bank so long that their similarities take more than half a GB.

    Returns:
        Boolean ``[M]``; its mean is the 1-NN accuracy.
    """
    check_labels(train, labels)
    nearest = torch.cat([(part @ train.T).argmax(1) for part in test.split(_rows(train, chunk))])
    return labels[nearest] == test_labels


def knn(
    train: Tensor, labels: Tensor, test: Tensor, test_labels: Tensor, *, k: int = 200, temperature: float = 0.1,
    chunk: int = 2048,
) -> Tensor:  # fmt: skip
    """Whether the ``k`` closest training rows vote for a test row's label, by ``exp(cosine/temperature)``.

    Source: Wu et al. 2018.

    Args:
        train: ``[N, d]`` unit rows.
        labels: ``[N]``.
        test: ``[M, d]`` unit rows.
        test_labels: ``[M]``.
        k: neighbours that vote; all rows if there are fewer.
        temperature: of the weights, above 0.
        chunk: as in :func:`nearest_neighbour`.

    Returns:
        Boolean ``[M]``; its mean is the accuracy.

    Raises:
        ArgumentError: a row without a label, no neighbour, or a temperature that is not positive.
    """
    check_labels(train, labels)
    if k < 1:
        raise reject("k", k, "at least 1")
    if not temperature > 0:
        raise reject("temperature", temperature, "a number above 0")
    classes = int(labels.max()) + 1
    right = []
    size = _rows(train, chunk)
    for rows, truth in zip(test.split(size), test_labels.split(size), strict=True):
        similarity, nearest = (rows @ train.T).topk(min(k, len(train)), sorted=False)
        votes = rows.new_zeros(len(rows), classes)
        # relative to the closest row, whose weight of 1 no temperature takes away
        weights = ((similarity - similarity.amax(1, keepdim=True)) / temperature).exp()
        votes.scatter_add_(1, labels[nearest], weights)
        right.append(votes.argmax(1) == truth)
    return torch.cat(right)


def _rows(train: Tensor, chunk: int) -> int:
    """Test rows at a time whose similarities fit beside the training rows of a GPU."""
    return max(1, min(chunk, ranks.KEPT_BYTES // (4 * len(train))))


@dataclass(frozen=True)
class Neighbours(Described):
    """Weighted k-NN and 1-NN of unit embeddings of re-encoded training images; no classifier is trained.

    Args:
        k: neighbours that vote.
        temperature: of their weights.
        train_images: at most so many training images; ``None`` is all.
        test_images: at most so many test images; ``None`` is all.
    """

    k: int = 200
    temperature: float = 0.1
    train_images: int | None = None
    test_images: int | None = None

    name: ClassVar[str] = "neighbours"
    modality: ClassVar[str] = "any"
    tells_classes_apart: ClassVar[bool] = True
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("knn200", "200-NN accuracy"),
        Metric("nn1", "1-NN accuracy"),
    )

    @classmethod
    def of(cls, settings: Settings) -> Neighbours:
        """Training images as many as the encoder was trained on."""
        return cls(train_images=settings.train_images, test_images=settings.test_images)

    def score(self, encoders: nn.ModuleList, setting: Setting) -> dict[str, Measured]:
        """``knn200`` and ``nn1``, percent of test images."""
        train, test = setting.data.train, take(setting.data.test, self.test_images)
        chosen = subset_order(train.labels, self.train_images, seed=0)
        rows, labels = encode(
            encoders, setting.views, setting.augmentation, train, device=setting.device, indices=chosen
        )
        queries, truth = encode(encoders, setting.views, setting.augmentation, test, device=setting.device)
        return {
            "knn200": Measured.share(knn(rows, labels, queries, truth, k=self.k, temperature=self.temperature)),
            "nn1": Measured.share(nearest_neighbour(rows, labels, queries, truth)),
        }

    def protocol(self, setting: Setting) -> dict[str, Any]:
        """How the metrics were taken."""
        return {
            "encoder": "frozen, evaluation mode", "knn": f"k={self.k}, temperature={self.temperature}, embeddings",
            "nn1": "embeddings of re-encoded training images",
        }  # fmt: skip


def take(source: Any, count: int | None) -> Any:
    """At most ``count`` items of a set, with class counts as equal as possible."""
    return source.take(min(count or len(source), len(source)))
