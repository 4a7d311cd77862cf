"""Linear classifiers on frozen features."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics.functional.classification import multiclass_accuracy

from contrastlab.data.images.augment import Augmentation
from contrastlab.data.loading import Crops, Pictures, Source, batches, subset_order
from contrastlab.errors import NotApplicableError
from contrastlab.settings import LinearProbe
from contrastlab.tasks.representations import Kind, check_labels, encode, frozen, represent
from contrastlab.views import Views


def accuracy(scores: Tensor, labels: Tensor, top: int = 1) -> float:
    """Percent of rows whose label is among the ``top`` largest scores; ``[N, C]`` and ``[N]``."""
    hits = multiclass_accuracy(scores, labels, num_classes=scores.shape[1], top_k=top, average="micro")
    return 100 * float(hits)


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
    check_labels(train, labels)
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
    encoders: nn.ModuleList, part: Views, augmentation: Augmentation, train: Source, test: Source,
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
    single = part.single()
    generator = torch.Generator(device=device).manual_seed(seed)
    order = torch.Generator().manual_seed(seed)
    chosen = subset_order(train.labels, probe.train_images, seed)
    check_labels(chosen, train.labels[chosen])
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


def linear_probe(
    encoders: nn.ModuleList, part: Views, augmentation: Augmentation, train: Source, test: Source,
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
