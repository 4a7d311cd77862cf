"""Linear classifiers on frozen features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab.data.images.augmentations import augmentation as named
from contrastlab.data.loading import Crops, Pictures, Source, batches, subset_order
from contrastlab.errors import NotApplicableError, reject
from contrastlab.settings import LinearProbe, Settings
from contrastlab.tasks.base import Described, Measured, Metric, Setting
from contrastlab.tasks.neighbours import take
from contrastlab.tasks.representations import Kind, check_labels, encode, frozen, represent, standardised
from contrastlab.views import Augmentation, Views


def correct(scores: Tensor, labels: Tensor, top: int = 1) -> Tensor:
    """Whether a row's label is among its ``top`` largest scores: ``[N, C]`` and ``[N]`` to boolean ``[N]``.

    Raises:
        ArgumentError: there is one class, or ``top`` leaves none out, so that nothing could be wrong.
    """
    if scores.shape[1] < 2:
        raise reject("scores", tuple(scores.shape), "a tensor of shape [N, C] with at least two classes C")
    if not 1 <= top < scores.shape[1]:
        raise reject("top", top, f"an integer from 1 to {scores.shape[1] - 1}, below the {scores.shape[1]} classes")
    return (scores.topk(top, 1).indices == labels[:, None]).any(1)


def linear_lbfgs(train: Tensor, labels: Tensor, test: Tensor, *, l2: float = 1e-3, iterations: int = 200) -> Tensor:
    """Scores of softmax regression on standardised features, fitted by L-BFGS.

    Args:
        train: ``[N, F]``.
        labels: ``[N]``.
        test: ``[M, F]``.
        l2: ridge penalty ``l2/2·‖W‖²`` on the mean loss.
        iterations: at most.

    Returns:
        ``[M, C]``, a score for each class that occurs in ``labels``, or lies below one that does.

    Raises:
        ArgumentError: fewer than two training rows, or rows without one label each.
    """
    check_labels(train, labels)
    (x, unseen), y = standardised(train, test), labels
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
        return F.linear(unseen, weight[:, :-1], weight[:, -1])


def probed(probe: LinearProbe, shown: Augmentation) -> Augmentation:
    """The augmentation of a classifier's training images, in the size and statistics of that of pre-training."""
    if not probe.augmentation:
        return shown
    known: Any = shown
    return replace(named(probe.augmentation, known.size), mean=known.mean, std=known.std)


def linear_sgd(
    encoders: nn.ModuleList, part: Views, augmentation: Augmentation, train: Source, test: Source,
    probe: LinearProbe, *, seed: int, device: torch.device | str = "cpu", log: Callable[[str], None] | None = None,
) -> Tensor:  # fmt: skip
    """Scores ``[M, C]`` of test images by a linear classifier trained with SGD on augmented images (ring §5).

    The encoder is frozen in evaluation mode; the classifier is that of the last epoch, not of the best one.

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
    augmentation = probed(probe, augmentation)
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
    scores = []
    with frozen(encoders):
        for _, images in batches(test, torch.arange(len(test)), 512, device, drop_last=False):
            scores.append(classifier(represent(encoders, single.plain(images, augmentation), kind).float()))
    return torch.cat(scores)


@dataclass(frozen=True)
class Linear(Described):
    """A linear classifier on frozen features, fitted as ``probe`` says.

    Args:
        probe: solver, features, length and so on.
        test_images: at most so many test images; ``None`` is all.
    """

    probe: LinearProbe = field(default_factory=LinearProbe)
    test_images: int | None = None

    name: ClassVar[str] = "linear"
    modality: ClassVar[str] = "any"
    tells_classes_apart: ClassVar[bool] = True
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("linear", "linear accuracy"),
        Metric("linear5", "linear top-5 accuracy", absent="top-5 accuracy needs more than five classes"),
    )

    @classmethod
    def of(cls, settings: Settings) -> Linear:
        """The probe of ``settings``."""
        return cls(settings.linear, settings.test_images)

    def score(self, encoders: nn.ModuleList, setting: Setting) -> dict[str, Measured]:
        """``linear``, percent of test images, and with more than five classes ``linear5``."""
        train, test = setting.data.train, take(setting.data.test, self.test_images)
        truth = test.labels.to(setting.device)
        if self.probe.solver == "sgd":
            scores = linear_sgd(
                encoders, setting.views, setting.augmentation, train, test, self.probe, seed=setting.seed,
                device=setting.device, log=setting.log,
            )  # fmt: skip
        else:
            how = {"kind": self.probe.features, "device": setting.device}
            chosen = subset_order(train.labels, self.probe.train_images, setting.seed)
            x, y = encode(encoders, setting.views, setting.augmentation, train, indices=chosen, **how)  # type: ignore[arg-type]
            z, _ = encode(encoders, setting.views, setting.augmentation, test, **how)  # type: ignore[arg-type]
            scores = linear_lbfgs(x, y, z, l2=self.probe.l2)
        measured = {"linear": Measured.share(correct(scores, truth))}
        if scores.shape[1] > 5:
            measured["linear5"] = Measured.share(correct(scores, truth, 5))
        return measured

    def protocol(self, setting: Setting) -> dict[str, Any]:
        """How the metrics were taken."""
        return {**self.probe.model_dump(mode="json"), "encoder": "frozen, evaluation mode", "which_epoch": "last"}
