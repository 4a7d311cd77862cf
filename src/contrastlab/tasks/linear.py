"""Linear classifiers on frozen features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab.data.augmentations import augmentation as named
from contrastlab.data.loading import Crops, Pictures, Source, batches, subset_order
from contrastlab.errors import NotApplicableError, reject
from contrastlab.seeds import fixed
from contrastlab.settings import LinearProbe, Settings
from contrastlab.tasks.base import Described, Log, Measured, Metric, Setting
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


@dataclass
class Fitting:
    """A classifier on some features, while it is trained."""

    network: nn.Module
    optimiser: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler

    @classmethod
    def linear(cls, inputs: int, classes: int, probe: LinearProbe, seed: int, device: torch.device | str) -> Fitting:
        """A new linear classifier, with SGD as ``probe`` says."""
        with fixed(seed):
            network = nn.Linear(inputs, classes).to(device)
        sgd = torch.optim.SGD(network.parameters(), probe.lr, probe.momentum, weight_decay=probe.weight_decay)
        return cls(network, sgd, torch.optim.lr_scheduler.MultiStepLR(sgd, list(probe.milestones), probe.gamma))


def side_by_side(
    read: Callable[[tuple[Tensor, ...]], dict[str, Tensor]], begin: Callable[[dict[str, Tensor]], dict[str, Fitting]],
    part: Views, augmentation: Augmentation, train: Source, probe: LinearProbe, *, seed: int,
    device: torch.device | str, log: Log | None, name: str,
) -> dict[str, nn.Module]:  # fmt: skip
    """Classifiers on features of the same augmented images, each trained with an optimiser of its own.

    Args:
        read: views of a batch to frozen features ``[B, F]``, by the name of their classifier.
        begin: the first features to new classifiers, by name.
        part: the views of one image.
        augmentation: of the training images.
        train: labelled images.
        probe: images, epochs and batch size.
        seed: of order and augmentation.
        device: where the encoders are.
        log: called with one line per epoch.
        name: of what is fitted, in these lines.

    Raises:
        NotApplicableError: the training set is empty.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    order = torch.Generator().manual_seed(seed)
    chosen = subset_order(train.labels, probe.train_images, seed)
    check_labels(chosen, train.labels[chosen])
    if not len(chosen):
        raise NotApplicableError(f"{name}: the training set is empty")
    known, size = train.labels.to(device), min(probe.batch_size, len(chosen))
    fits: dict[str, Fitting] = {}
    for epoch in range(probe.epochs):
        shuffled = chosen[torch.randperm(len(chosen), generator=order)]
        crop = Crops(augmentation, part.count, seed, epoch * len(chosen)) if isinstance(train, Pictures) else None
        for index, images in batches(train, shuffled, size, device, drop_last=True, crop=crop):
            features = read(part.make(images, augmentation, generator))
            fits = fits or begin(features)
            losses = {key: F.cross_entropy(fit.network(features[key]), known[index]) for key, fit in fits.items()}
            for key, fit in fits.items():
                fit.optimiser.zero_grad()
                losses[key].backward()
                fit.optimiser.step()
        for fit in fits.values():
            fit.schedule.step()
        if log is not None:
            mean = sum(loss.item() for loss in losses.values()) / len(losses)
            log(f"{name}, epoch {epoch + 1}/{probe.epochs}, loss {mean:.3f}")
    return {key: fit.network for key, fit in fits.items()}


def linear_sgd(
    encoders: nn.ModuleList, part: Views, augmentation: Augmentation, train: Source, test: Source,
    probe: LinearProbe, *, seed: int, device: torch.device | str = "cpu", log: Log | None = None,
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

    Raises:
        NotApplicableError: the training set is empty.
    """
    kind: Kind = "map" if probe.features == "map" else "pooled"
    augmentation, single, name = probed(probe, augmentation), part.single(), "linear probe"

    def read(views: tuple[Tensor, ...]) -> dict[str, Tensor]:
        with frozen(encoders):
            return {name: represent(encoders, views, kind).float()}

    def begin(features: dict[str, Tensor]) -> dict[str, Fitting]:
        return {name: Fitting.linear(features[name].shape[1], len(train.classes), probe, seed, device)}

    fitted = side_by_side(
        read, begin, single, augmentation, train, probe, seed=seed, device=device, log=log, name=name
    )  # fmt: skip
    scores = []
    with frozen(encoders):
        for _, images in batches(test, torch.arange(len(test)), 512, device, drop_last=False):
            scores.append(fitted[name](represent(encoders, single.plain(images, augmentation), kind).float()))
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
