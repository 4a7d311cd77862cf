"""Representations of items by frozen encoders, and their nearest neighbours.

Frozen means evaluation mode, batch-norm included, and no gradient: nothing here changes an encoder.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab.pictures import encoder as enc
from contrastlab.pictures.definitions import Neighbours
from contrastlab.pictures.items import ItemSet
from contrastlab.pictures.loading import batches, subset_order
from contrastlab.pictures.task import Evaluation, Measured
from contrastlab.scores import ranks
from contrastlab.support.errors import check, check_integer, is_number, reject
from contrastlab.support.tensors import check_finite, check_rows, check_same, frozen
from contrastlab.views import Augmentation, Views

Kind = Literal["embedding", "pooled", "map"]
_LARGEST = 1e18  # of features: the squares of larger ones are no float32 numbers


def represent(encoders: nn.ModuleList, views: tuple[Tensor, ...], kind: Kind) -> Tensor:
    """``[B, F]`` representation of a batch of views, one view per encoder.

    ``embedding`` is the unit output of the head, concatenated over streams and normalised again;
    ``pooled`` and ``map`` are the features after and (flattened) before pooling.
    """
    if kind == "embedding":
        embeddings = [encoder(view) for encoder, view in zip(encoders, views, strict=True)]
        return F.normalize(torch.cat(embeddings, 1), dim=1)
    features = enc.features(encoders, views, pooled=kind == "pooled")
    return features.flatten(1)


def encode(
    encoders: nn.ModuleList,
    views: Views,
    augmentation: Augmentation,
    source: ItemSet,
    *,
    kind: Kind = "embedding",
    batch_size: int = 512,
    device: torch.device | str = "cpu",
    indices: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Representations of the plain views of items, ``[N, F]`` float32, and their labels ``[N]``, on ``device``.

    ``views`` are those of the recipe. ``indices`` ``[N]`` are the numbers of the items, by default all. ``kind`` is
    that of :func:`represent`.
    """
    if indices is None:
        indices = torch.arange(len(source))
    rows = []
    with frozen(encoders):
        for _, images in batches(source, indices, batch_size, device, drop_last=False):
            plain = views.plain(images, augmentation)
            rows.append(represent(encoders, plain, kind).float())
    features = torch.cat(rows)
    check_features(features)
    return features, source.labels[indices].to(device)


def check_features(features: Tensor) -> None:
    """Reject what an encoder gives that is not finite: a score of it would be a number that says nothing."""
    finite = features.isfinite().all(1)
    if not bool(finite.all()):
        count = int((~finite).sum())
        actual = f"nan or inf for {count} of {len(features)} items"
        raise reject("features", actual, "finite numbers: the weights of the encoder, or its inputs, are at fault")


def standardised(train: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
    """Both ``[N, F]`` and ``[M, F]`` less the means of ``train`` and over its standard deviations."""
    check(len(train) >= 2, "train", tuple(train.shape), "at least two rows: one has no standard deviation")
    largest = float(train.abs().max())
    check(largest <= _LARGEST, "train", f"values up to {largest:.3g}", f"features of at most {_LARGEST:g}")
    mean = train.mean(0)
    std = train.std(0).clamp(min=1e-6)
    return (train - mean) / std, (test - mean) / std


def check_labels(train: Tensor, labels: Tensor) -> None:
    """Refuse rows without one label each, or with a label below 0."""
    check(len(train) == len(labels), "labels", tuple(labels.shape), f"one label for each of the {len(train)} rows")
    check(labels.dtype == torch.int64, "labels", labels.dtype, "int64, numbers of classes")
    if len(labels) and int(labels.min()) < 0:
        raise reject("labels", int(labels.min()), "labels from 0: an unlabelled image cannot vote")


def check_classified(train: Tensor, labels: Tensor, test: Tensor) -> None:
    """Refuse features ``[N, F]`` with labels, and ``[M, F]`` to be classified, that are not finite or do not fit."""
    check_rows("train", train)
    check_rows("test", test)
    columns = train.shape[1]
    check(test.shape[1] == columns, "test", tuple(test.shape), f"rows of {columns} columns, like train")
    check(isinstance(labels, Tensor), "labels", type(labels).__name__, "an int64 tensor, numbers of classes")
    check_labels(train, labels)
    check_same("device", train=train, labels=labels, test=test)


def _check_truth(test: Tensor, test_labels: Tensor) -> None:
    shape = tuple(getattr(test_labels, "shape", ()))
    check(shape == (len(test),), "test_labels", shape, f"one label for each of the {len(test)} rows of test")


def bootstrap(statistic: Callable[[Tensor], Any], items: int, *, draws: int = 1000, seed: int = 0) -> tuple[Any, Any]:
    """A statistic of test items, one number or several, and the 95 % half-width of its sampling error.

    The width is half the distance of the 2.5 % and 97.5 % quantiles over the draws, which are with replacement:
    ``statistic`` is given item numbers ``[items]``, which may repeat.
    """
    generator = torch.Generator().manual_seed(seed)
    values = []
    for _ in range(draws):
        sample = torch.randint(items, (items,), generator=generator)
        values.append(statistic(sample))
    ends = torch.tensor([0.025, 0.975], dtype=torch.float64)
    low, high = torch.tensor(values, dtype=torch.float64).quantile(ends, 0)
    half_width = (high - low) / 2
    return statistic(torch.arange(items)), half_width.tolist()


def nearest_neighbour(train: Tensor, labels: Tensor, test: Tensor, test_labels: Tensor) -> Tensor:
    """Whether the training row with the largest dot product has a test row's label, boolean ``[M]`` (vince, ring, LA).

    Both are unit rows, ``[N, d]`` (the papers take the memory bank itself) and ``[M, d]``, with labels from 0.
    """
    check_classified(train, labels, test)
    _check_truth(test, test_labels)
    predicted = []
    for rows in test.split(_rows_at_once(train)):
        products = rows @ train.T
        nearest = products.argmax(1)
        check_finite(products=products.gather(1, nearest[:, None]))
        predicted.append(labels[nearest])
    return torch.cat(predicted) == test_labels


def own_class_share(rows: Tensor, labels: Tensor, *, percent: float = 1.0, queries: int = 1024) -> float:
    """Percent of the closest ``percent`` of the rows, ``[N, d]``, N of 2 or more, that share a row's label.

    The mean over the first ``queries`` rows, none of which counts among its own neighbours.
    """
    check_rows("rows", rows)
    check(len(rows) >= 2, "rows", tuple(rows.shape), "at least two rows, each other's neighbours")
    count = max(1, round(len(rows) * percent / 100))
    similarity = rows[:queries] @ rows.T
    similarity.fill_diagonal_(-torch.inf)
    nearest = similarity.topk(count, sorted=False).indices
    shares_label = labels[nearest] == labels[: len(nearest), None]
    return 100 * float(shares_label.double().mean())


def knn(
    train: Tensor, labels: Tensor, test: Tensor, test_labels: Tensor, *, k: int = 200, temperature: float = 0.1
) -> Tensor:
    """Whether the ``k`` closest training rows, or all, vote for a test row's label, by ``exp(cosine/temperature)``.

    Source: Wu et al. 2018. Shapes are those of :func:`nearest_neighbour`.
    """
    check_classified(train, labels, test)
    _check_truth(test, test_labels)
    check_integer("k", k)
    check(is_number(temperature) and temperature > 0, "temperature", temperature, "a number above 0")
    classes = int(labels.max()) + 1
    count = min(k, len(train))
    predicted = []
    for rows in test.split(_rows_at_once(train)):
        similarity, nearest = (rows @ train.T).topk(count, sorted=False)
        check_finite(products=similarity)
        # relative to the closest row, whose weight of 1 no temperature takes away
        closest = similarity.amax(1, keepdim=True)
        weights = ((similarity - closest) / temperature).exp()
        votes = rows.new_zeros(len(rows), classes)
        votes.scatter_add_(1, labels[nearest], weights)
        predicted.append(votes.argmax(1))
    return torch.cat(predicted) == test_labels


def _rows_at_once(train: Tensor) -> int:
    """Test rows whose similarities fit beside the training rows of a GPU."""
    return max(1, min(2048, ranks.KEPT_BYTES // (4 * len(train))))


def score(task: Neighbours, encoders: nn.ModuleList, evaluation: Evaluation) -> dict[str, Measured]:
    """``knn200`` and ``nn1``, percent of test items."""
    train = evaluation.data.train
    test = evaluation.data.test.take(task.test_images)
    indices = subset_order(train.labels, task.train_images, seed=0)
    encode_plain = partial(encode, encoders, evaluation.views, evaluation.augmentation, device=evaluation.device)
    rows, labels = encode_plain(train, indices=indices)
    queries, truth = encode_plain(test)
    right_by_vote = knn(rows, labels, queries, truth, k=task.k, temperature=task.temperature)
    right_by_nearest = nearest_neighbour(rows, labels, queries, truth)
    return {"knn200": Measured.share(right_by_vote), "nn1": Measured.share(right_by_nearest)}
