"""Classes of pixels, and of pictures, from the encoder of one view: a decoder on frozen maps (CMC, section 4.3)."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab.domains.scenes.definitions import OneView, Segmentation
from contrastlab.domains.scenes.views import Channels, labels
from contrastlab.pictures.definitions import Linear
from contrastlab.pictures.fitting import Fitting, fit
from contrastlab.pictures.items import ItemSet
from contrastlab.pictures.linear import correct
from contrastlab.pictures.loading import batches, subset_order
from contrastlab.pictures.representations import bootstrap, encode
from contrastlab.pictures.task import Evaluation, Measured
from contrastlab.settings import SegmentationProbe
from contrastlab.support.errors import NotApplicableError, check, reject
from contrastlab.support.seeds import fixed
from contrastlab.support.tensors import frozen

VOID = -1  # the label of pixels that do not count


def confusion(predicted: Tensor, truth: Tensor, classes: int) -> Tensor:
    """How many pixels of each true class were given each class: int64 ``[N, true class, predicted class]``.

    Both are int64 ``[N, …]`` from 0 to ``classes − 1``; where the truth is −1 (void), nothing is counted.
    """
    _check_classes("predicted", predicted, 0, classes)
    _check_classes("truth", truth, VOID, classes)
    count = len(truth)
    cells = classes * classes + 1  # of a picture; the last one is void
    cell = torch.where(truth == VOID, cells - 1, truth * classes + predicted).flatten(1)
    first_cell = torch.arange(count, device=truth.device)[:, None] * cells
    counts = (first_cell + cell).flatten().bincount(minlength=count * cells)
    without_void = counts.view(count, cells)[:, :-1]
    return without_void.view(count, classes, classes)


def _check_classes(name: str, values: Tensor, least: int, classes: int) -> None:
    if not values.numel():
        return
    low = int(values.min())
    high = int(values.max())
    if low < least or high >= classes:
        raise reject(name, (low, high), f"classes from {least} to {classes - 1}")


def mean_iou(counts: Tensor) -> float:
    """Mean intersection over union, percent, of counts ``[classes, classes]`` (:func:`confusion`, summed over images).

    A class that is neither there nor predicted is left out; one that is only predicted, or always missed, counts 0.
    """
    intersection = counts.diagonal().double()
    union = counts.sum(0) + counts.sum(1) - counts.diagonal()
    check(union.any(), "counts", 0, "at least one pixel that is not void")
    occurs = union > 0
    shares = intersection[occurs] / union[occurs]
    return 100 * float(shares.mean())


def pixel_accuracy(counts: Tensor) -> float:
    """Percent of the pixels that got their class, void not counted; of counts as for :func:`mean_iou`."""
    total = int(counts.sum())
    check(total, "counts", 0, "at least one pixel that is not void")
    right = int(counts.diagonal().sum())
    return 100 * right / total


class Segmenter(nn.Module):
    """One view's encoder, which names its blocks, and a decoder of its maps for so many classes of pixels.

    With ``trains_encoder`` gradients reach a copy of the encoder; else its tensors never change.
    """

    def __init__(self, encoder: nn.Module, classes: int, width: int, trains_encoder: bool = False) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(encoder) if trains_encoder else encoder
        self.decoder = encoder.decoder(classes, width)  # type: ignore[operator]
        self.trains_encoder = trains_encoder

    def forward(self, view: Tensor) -> Tensor:
        """Scores ``[B, classes, H, W]`` of a view ``[B, c, H, W]``."""
        context = nullcontext() if self.trains_encoder else frozen(self.encoder)
        with context:
            maps = self.encoder.stages(view)  # type: ignore[operator]
        return self.decoder(maps, view.shape[2:]).float()


def stream_of(encoders: nn.ModuleList, evaluation: Evaluation, view: str) -> nn.Module:
    """The encoder of a view, if the recipe has that view."""
    if view not in evaluation.views.streams:
        raise NotApplicableError(f"{evaluation.views!r} has no encoder of {view!r}")
    number = evaluation.views.streams.index(view)
    return encoders[number]


def segment(encoder: nn.Module, view: str, evaluation: Evaluation, probe: SegmentationProbe) -> Segmenter:
    """A decoder fitted on patches of labelled scenes, on an encoder that is frozen or, end to end, trained as well."""
    train = evaluation.data.train
    channels = Channels((view,))
    with fixed(evaluation.seed):
        model = Segmenter(encoder, _classes(train), probe.width, probe.end_to_end)
    model.to(evaluation.device).train()

    def losses(index: Tensor, items: Tensor, draws: torch.Generator) -> dict[str, Tensor]:
        patch = evaluation.augmentation.random(items, draws)
        (read,) = channels.read(patch)
        return {"decoder": F.cross_entropy(model(read), labels(patch), ignore_index=VOID)}

    trained: nn.Module = model.decoder
    if probe.end_to_end:
        trained = model
    fits = {"decoder": Fitting.adam(trained, probe)}
    order = subset_order(train.labels, probe.train_scenes, evaluation.seed)
    fit(losses, fits, evaluation, order, probe, f"decoder of {view}")
    return model.eval()


@torch.no_grad()
def predict(model: Segmenter, view: str, evaluation: Evaluation, source: ItemSet) -> tuple[Tensor, Tensor]:
    """Predicted and true classes ``[N, H, W]`` of whole scenes."""
    channels = Channels((view,))
    every = torch.arange(len(source))
    predicted = []
    truth = []
    for _, items in batches(source, every, 25, evaluation.device, drop_last=False):
        scenes = evaluation.augmentation.plain(items)
        (read,) = channels.read(scenes)
        predicted.append(model(read).argmax(1).cpu())
        truth.append(labels(scenes).cpu())
    return torch.cat(predicted), torch.cat(truth)


def _classes(source: Any) -> int:
    classes = getattr(source, "pixel_classes", ())
    if not classes:
        raise NotApplicableError(f"{source.name} has no classes of pixels")
    return len(classes)


def score(task: Segmentation, encoders: nn.ModuleList, evaluation: Evaluation) -> dict[str, Measured]:
    """Mean IoU and pixel accuracy over the test scenes."""
    encoder = stream_of(encoders, evaluation, task.view)
    test = evaluation.data.test.take(task.test_images)
    model = segment(encoder, task.view, evaluation, task.probe)
    predicted, truth = predict(model, task.view, evaluation, test)
    counts = confusion(predicted, truth, _classes(test))

    def both(rows: Tensor) -> tuple[float, float]:
        total = counts[rows].sum(0)
        return mean_iou(total), pixel_accuracy(total)

    values, half_widths = bootstrap(both, len(counts), seed=evaluation.seed)
    measured = {}
    for metric, value, half_width in zip(task.metrics, values, half_widths, strict=True):
        measured[metric.name] = Measured(value, len(counts), half_width)
    return measured


def score_one_view(task: OneView, encoders: nn.ModuleList, evaluation: Evaluation) -> dict[str, Measured]:
    """``linear_L``, percent of test items."""
    encoder = stream_of(encoders, evaluation, task.view)
    channels = Channels((task.view,))
    channels.channels(evaluation.data.test.channels)  # refused where the items lack them
    evaluation = replace(evaluation, views=channels)
    if task.training.end_to_end:
        return {"linear_L": Measured.share(_end_to_end(task, encoder, evaluation))}
    linear = Linear(task.probe, task.test_images).score(nn.ModuleList([encoder]), evaluation)
    return {"linear_L": linear["linear"]}


def _end_to_end(task: OneView, encoder: nn.Module, evaluation: Evaluation) -> Tensor:
    """Which test items are right, boolean ``[N]``, by a copy of the encoder that is trained with the classifier."""
    train = evaluation.data.train
    test = evaluation.data.test.take(task.test_images)
    with fixed(evaluation.seed):
        model: Any = copy.deepcopy(encoder).to(evaluation.device)
        classifier = nn.Linear(model.feature_dim, len(train.classes)).to(evaluation.device)
    train_labels = train.labels.to(evaluation.device)
    model.train()

    def losses(index: Tensor, items: Tensor, draws: torch.Generator) -> dict[str, Tensor]:
        (view,) = evaluation.views.make(items, evaluation.augmentation, draws)
        scores = classifier(model.features(view))
        return {"classifier": F.cross_entropy(scores, train_labels[index])}

    trained = nn.ModuleList([model.backbone, classifier])
    fits = {"classifier": Fitting.adam(trained, task.training)}
    order = subset_order(train.labels, task.probe.train_images, evaluation.seed)
    fit(losses, fits, evaluation, order, task.training, f"classifier of {task.view}")
    rows, truth = encode(
        nn.ModuleList([model]),
        evaluation.views,
        evaluation.augmentation,
        test,
        kind="pooled",
        batch_size=256,
        device=evaluation.device,
    )
    with torch.no_grad():
        scores = torch.cat([classifier(part) for part in rows.split(256)])
    return correct(scores, truth)
