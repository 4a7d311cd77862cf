"""Nearest neighbours of test items among training items."""

from __future__ import annotations

import torch
from torch import Tensor

from contrastlab.errors import reject
from contrastlab.tasks.representations import check_labels


def nearest_neighbour(train: Tensor, labels: Tensor, test: Tensor, test_labels: Tensor, *, chunk: int = 2048) -> float:
    """1-NN accuracy in percent: the label of the training row with the largest dot product (vince, ring, LA).

    Args:
        train: ``[N, d]`` unit rows; the papers use the memory bank itself.
        labels: ``[N]``.
        test: ``[M, d]`` unit rows.
        test_labels: ``[M]``.
        chunk: test rows at a time.
    """
    check_labels(train, labels)
    nearest = torch.cat([(part @ train.T).argmax(1) for part in test.split(chunk)])
    return 100 * float((labels[nearest] == test_labels).float().mean())


def knn(
    train: Tensor, labels: Tensor, test: Tensor, test_labels: Tensor, *, k: int = 200, temperature: float = 0.1,
    chunk: int = 2048,
) -> float:  # fmt: skip
    """Weighted k-NN accuracy in percent: votes ``exp(cosine/temperature)`` of the ``k`` closest (Wu et al. 2018).

    Args:
        train: ``[N, d]`` unit rows.
        labels: ``[N]``.
        test: ``[M, d]`` unit rows.
        test_labels: ``[M]``.
        k: neighbours that vote; all rows if there are fewer.
        temperature: of the weights.
        chunk: test rows at a time.
    """
    check_labels(train, labels)
    if k < 1:
        raise reject("k", k, "at least 1")
    classes = int(labels.max()) + 1
    hits = 0.0
    for rows, truth in zip(test.split(chunk), test_labels.split(chunk), strict=True):
        similarity, nearest = (rows @ train.T).topk(min(k, len(train)), sorted=False)
        votes = rows.new_zeros(len(rows), classes)
        votes.scatter_add_(1, labels[nearest], ((similarity - 1) / temperature).exp())
        hits += float((votes.argmax(1) == truth).float().sum())
    return 100 * hits / len(test)
