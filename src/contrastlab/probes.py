"""What a frozen encoder is worth: nearest neighbours and linear classifiers, in percent of test images.

Frozen means evaluation mode, batch-norm included, and no gradient: nothing here changes an encoder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics.functional.classification import multiclass_accuracy

from contrastlab import encoders as enc
from contrastlab.data import Crops, Pictures, Source, batches, subset_order
from contrastlab.errors import NotApplicableError, reject
from contrastlab.settings import LinearProbe
from contrastlab.views import Augmentation, Augmented, Split

Kind = Literal["embedding", "pooled", "map"]


@contextmanager
def frozen(encoders: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; the mode of every submodule is put back afterwards."""
    modes = [(module, module.training) for module in encoders.modules()]
    encoders.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


def represent(encoders: nn.ModuleList, views: tuple[Tensor, ...], kind: Kind) -> Tensor:
    """``[B, F]`` representation of a batch of views, one view per encoder.

    ``embedding`` is the unit output of the head, concatenated over streams and normalised again;
    ``pooled`` and ``map`` are the features after and (flattened) before pooling.
    """
    if kind == "embedding":
        return F.normalize(torch.cat([e(v) for e, v in zip(encoders, views, strict=True)], 1), dim=1)
    return enc.features(encoders, views, pooled=kind == "pooled").flatten(1)


def encode(
    encoders: nn.ModuleList, part: Augmented | Split, augmentation: Augmentation, source: Source,
    *, kind: Kind = "embedding", batch_size: int = 512, device: torch.device | str = "cpu",
    indices: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Representations of the centre views of images.

    Args:
        encoders: one per stream.
        part: the recipe's views.
        augmentation: gives size and normalisation of the test view.
        source: images.
        kind: see :func:`represent`.
        batch_size: images at a time.
        device: where the encoders are.
        indices: images wanted; all by default.

    Returns:
        ``[N, F]`` float32 and ``[N]`` labels, on ``device``.
    """
    order = torch.arange(len(source)) if indices is None else indices
    rows = []
    with frozen(encoders):
        for _, images in batches(source, order, batch_size, device, drop_last=False):
            rows.append(represent(encoders, part.plain(images, augmentation), kind).float())
    return torch.cat(rows), source.labels[order].to(device)


def accuracy(scores: Tensor, labels: Tensor, top: int = 1) -> float:
    """Percent of rows whose label is among the ``top`` largest scores; ``[N, C]`` and ``[N]``."""
    hits = multiclass_accuracy(scores, labels, num_classes=scores.shape[1], top_k=top, average="micro")
    return 100 * float(hits)


def _check(train: Tensor, labels: Tensor) -> None:
    if len(train) != len(labels):
        raise reject("labels", tuple(labels.shape), f"one label for each of the {len(train)} rows")
    if len(labels) and int(labels.min()) < 0:
        raise reject("labels", int(labels.min()), "labels from 0: an unlabelled image cannot vote")


def nearest_neighbour(train: Tensor, labels: Tensor, test: Tensor, test_labels: Tensor, *, chunk: int = 2048) -> float:
    """1-NN accuracy in percent: the label of the training row with the largest dot product (vince, ring, LA).

    Args:
        train: ``[N, d]`` unit rows; the papers use the memory bank itself.
        labels: ``[N]``.
        test: ``[M, d]`` unit rows.
        test_labels: ``[M]``.
        chunk: test rows at a time.
    """
    _check(train, labels)
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
    _check(train, labels)
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


def linear_lbfgs(
    train: Tensor, labels: Tensor, test: Tensor, test_labels: Tensor, *, l2: float = 1e-3, iterations: int = 200
) -> float:
    """Accuracy in percent of softmax regression on standardised features, fitted by L-BFGS.

    Args:
        train: ``[N, F]``.
        labels: ``[N]``.
        test: ``[M, F]``.
        test_labels: ``[M]``.
        l2: ridge penalty ``l2/2·‖W‖²`` on the mean loss.
        iterations: at most.
    """
    _check(train, labels)
    mean, std = train.mean(0), train.std(0).clamp(min=1e-6)
    x, y = (train - mean) / std, labels
    classes = int(labels.max()) + 1
    weight = torch.zeros(classes, x.shape[1] + 1, device=x.device, requires_grad=True)
    solver = torch.optim.LBFGS([weight], max_iter=iterations, history_size=10, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        solver.zero_grad()
        loss = F.cross_entropy(F.linear(x, weight[:, :-1], weight[:, -1]), y) + l2 / 2 * weight[:, :-1].square().sum()
        loss.backward()
        return loss

    with torch.enable_grad():
        solver.step(closure)
    with torch.no_grad():
        return accuracy(F.linear((test - mean) / std, weight[:, :-1], weight[:, -1]), test_labels)


def linear_sgd(
    encoders: nn.ModuleList, part: Augmented | Split, augmentation: Augmentation, train: Source, test: Source,
    probe: LinearProbe, *, seed: int, device: torch.device | str = "cpu", log: Callable[[str], None] | None = None,
) -> float:  # fmt: skip
    """Accuracy in percent of a linear classifier trained by SGD on augmented images (ring §5, vince C.3).

    The encoder is frozen in evaluation mode; test accuracy is that of the last epoch, not the best one.

    Args:
        encoders: one per stream.
        part: the recipe's views; a two-view recipe is probed on single views.
        augmentation: of the training images; its centre view is tested.
        train: labelled images.
        test: labelled images.
        probe: epochs, batch size, learning rate and so on.
        seed: of order, augmentation and initial weights.
        device: where the encoders are.
        log: called with one line per epoch.
    """
    kind: Kind = "map" if probe.features == "map" else "pooled"
    single = Augmented(1) if isinstance(part, Augmented) else part
    generator = torch.Generator(device=device).manual_seed(seed)
    order = torch.Generator().manual_seed(seed)
    chosen = subset_order(train.labels, probe.train_images, seed)
    _check(chosen, train.labels[chosen])
    classes = len(train.classes)
    classifier: nn.Linear | None = None
    known, size = train.labels.to(device), min(probe.batch_size, len(chosen))
    for epoch in range(probe.epochs):
        shuffled = chosen[torch.randperm(len(chosen), generator=order)]
        crop = None
        if isinstance(train, Pictures):
            crop = Crops(augmentation, single.count, seed, epoch * len(chosen))
        for index, images in batches(train, shuffled, size, device, drop_last=True, crop=crop):
            with frozen(encoders):
                x = represent(encoders, single.make(images, augmentation, generator), kind).float()
            if classifier is None:
                with torch.random.fork_rng(devices=[]):
                    torch.manual_seed(seed)
                    classifier = nn.Linear(x.shape[1], classes).to(device)
                optimiser = torch.optim.SGD(
                    classifier.parameters(), lr=probe.lr, momentum=probe.momentum, weight_decay=probe.weight_decay
                )
                schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, list(probe.milestones), probe.gamma)
            loss = F.cross_entropy(classifier(x), known[index])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        schedule.step()
        if log is not None:
            log(f"linear probe, epoch {epoch + 1}/{probe.epochs}, loss {loss.item():.3f}")
    if classifier is None:
        raise NotApplicableError("linear probe: the training set is empty")
    scores, labels = [], test.labels.to(device)
    with frozen(encoders):
        for _, images in batches(test, torch.arange(len(test)), 512, device, drop_last=False):
            scores.append(classifier(represent(encoders, single.plain(images, augmentation), kind).float()))
    return accuracy(torch.cat(scores), labels)


def linear(
    encoders: nn.ModuleList, part: Augmented | Split, augmentation: Augmentation, train: Source, test: Source,
    probe: LinearProbe, *, seed: int, device: torch.device | str = "cpu", log: Callable[[str], None] | None = None,
) -> float:  # fmt: skip
    """Linear accuracy in percent by the solver that ``probe`` names; arguments as :func:`linear_sgd`."""
    if probe.solver == "sgd":
        return linear_sgd(encoders, part, augmentation, train, test, probe, seed=seed, device=device, log=log)
    kind: Kind = "map" if probe.features == "map" else "pooled"
    chosen = subset_order(train.labels, probe.train_images, seed)
    x, y = encode(encoders, part, augmentation, train, kind=kind, device=device, indices=chosen)
    test_x, test_y = encode(encoders, part, augmentation, test, kind=kind, device=device)
    return linear_lbfgs(x, y, test_x, test_y, l2=probe.l2)
