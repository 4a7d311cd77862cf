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
from contrastlab.pictures.representations import bootstrap, encode, frozen, take
from contrastlab.pictures.task import Measured, Setting
from contrastlab.settings import SegmentationProbe
from contrastlab.support.errors import NotApplicableError, check, reject
from contrastlab.support.seeds import fixed

VOID = -1  # the label of pixels that do not count


def confusion(predicted: Tensor, truth: Tensor, classes: int) -> Tensor:
    """How many pixels of each true class were given each class: int64 ``[N, true class, predicted class]``.

    Both are int64 ``[N, …]`` from 0 to ``classes − 1``; where the truth is −1 (void), nothing is counted.
    """
    for name, values, low in (("predicted", predicted, 0), ("truth", truth, VOID)):
        if values.numel() and not low <= int(values.min()) <= int(values.max()) < classes:
            raise reject(name, (int(values.min()), int(values.max())), f"classes from {low} to {classes - 1}")
    count, cells = len(truth), classes * classes + 1  # the last cell is void
    cell = torch.where(truth == VOID, cells - 1, truth * classes + predicted).flatten(1)
    row = torch.arange(count, device=truth.device)[:, None] * cells
    counts = (row + cell).flatten().bincount(minlength=count * cells)
    return counts.view(count, cells)[:, :-1].view(count, classes, classes)


def mean_iou(counts: Tensor) -> float:
    """Mean intersection over union, percent, of counts ``[classes, classes]`` (:func:`confusion`, summed over images).

    A class that is neither there nor predicted is left out; one that is only predicted, or always missed, counts 0.
    """
    hit = counts.diagonal().double()
    union = counts.sum(0) + counts.sum(1) - counts.diagonal()
    check(union.any(), "counts", 0, "at least one pixel that is not void")
    return 100 * float((hit[union > 0] / union[union > 0]).mean())


def pixel_accuracy(counts: Tensor) -> float:
    """Percent of the pixels that got their class, void not counted; of counts as for :func:`mean_iou`."""
    total = int(counts.sum())
    check(total, "counts", 0, "at least one pixel that is not void")
    return 100 * int(counts.diagonal().sum()) / total


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
        with nullcontext() if self.trains_encoder else frozen(self.encoder):
            maps = self.encoder.stages(view)  # type: ignore[operator]
        return self.decoder(maps, view.shape[2:]).float()


def stream_of(encoders: nn.ModuleList, setting: Setting, view: str) -> nn.Module:
    """The encoder of a view, if the recipe has that view."""
    if view not in setting.views.streams:
        raise NotApplicableError(f"{setting.views!r} has no encoder of {view!r}")
    return encoders[setting.views.streams.index(view)]


def segment(encoder: nn.Module, view: str, setting: Setting, probe: SegmentationProbe) -> Segmenter:
    """A decoder fitted on patches of labelled scenes, on an encoder that is frozen or, end to end, trained as well."""
    train, part = setting.data.train, Channels((view,))
    with fixed(setting.seed):
        model = Segmenter(encoder, _classes(train), probe.width, probe.end_to_end).to(setting.device)
    model.train()

    def losses(index: Tensor, items: Tensor, draws: torch.Generator) -> dict[str, Tensor]:
        patch = setting.augmentation.random(items, draws)
        return {"decoder": F.cross_entropy(model(part.read(patch)[0]), labels(patch), ignore_index=VOID)}

    fits = {"decoder": Fitting.adam(model if probe.end_to_end else model.decoder, probe)}
    chosen = subset_order(train.labels, probe.train_scenes, setting.seed)
    fit(losses, fits, setting, chosen, probe, f"decoder of {view}")
    return model.eval()


@torch.no_grad()
def predict(model: Segmenter, view: str, setting: Setting, source: ItemSet) -> tuple[Tensor, Tensor]:
    """Predicted and true classes ``[N, H, W]`` of whole scenes."""
    part, predicted, truth = Channels((view,)), [], []
    for _, items in batches(source, torch.arange(len(source)), 25, setting.device, drop_last=False):
        whole = setting.augmentation.plain(items)
        predicted.append(model(part.read(whole)[0]).argmax(1).cpu())
        truth.append(labels(whole).cpu())
    return torch.cat(predicted), torch.cat(truth)


def _classes(source: Any) -> int:
    classes = getattr(source, "pixel_classes", ())
    if not classes:
        raise NotApplicableError(f"{source.name} has no classes of pixels")
    return len(classes)


def score(task: Segmentation, encoders: nn.ModuleList, setting: Setting) -> dict[str, Measured]:
    """Mean IoU and pixel accuracy over the test scenes."""
    encoder = stream_of(encoders, setting, task.view)
    test = take(setting.data.test, task.test_images)
    model = segment(encoder, task.view, setting, task.probe)
    counts = confusion(*predict(model, task.view, setting, test), _classes(test))

    def both(rows: Tensor) -> tuple[float, float]:
        total = counts[rows].sum(0)
        return mean_iou(total), pixel_accuracy(total)

    found = zip(task.metrics, *bootstrap(both, len(counts), seed=setting.seed), strict=True)
    return {metric.name: Measured(value, len(counts), half) for metric, value, half in found}


def score_one_view(task: OneView, encoders: nn.ModuleList, setting: Setting) -> dict[str, Measured]:
    """``linear_L``, percent of test items."""
    encoder, setting = stream_of(encoders, setting, task.view), replace(setting, views=Channels((task.view,)))
    setting.views.channels(setting.data.test.channels)
    if task.training.end_to_end:
        return {"linear_L": Measured.share(_end_to_end(task, encoder, setting))}
    return {"linear_L": Linear(task.probe, task.test_images).score(nn.ModuleList([encoder]), setting)["linear"]}


def _end_to_end(task: OneView, encoder: nn.Module, setting: Setting) -> Tensor:
    """Which test items are right, boolean ``[N]``, by a copy of the encoder that is trained with the classifier."""
    train, test, how = setting.data.train, take(setting.data.test, task.test_images), task.training
    with fixed(setting.seed):
        model: Any = copy.deepcopy(encoder).to(setting.device)
        classifier = nn.Linear(model.feature_dim, len(train.classes)).to(setting.device)
    known = train.labels.to(setting.device)
    model.train()

    def losses(index: Tensor, items: Tensor, draws: torch.Generator) -> dict[str, Tensor]:
        (view,) = setting.views.make(items, setting.augmentation, draws)
        return {"classifier": F.cross_entropy(classifier(model.features(view)), known[index])}

    fits = {"classifier": Fitting.adam(nn.ModuleList([model.backbone, classifier]), how)}
    chosen = subset_order(train.labels, task.probe.train_images, setting.seed)
    fit(losses, fits, setting, chosen, how, f"classifier of {task.view}")
    rows, truth = encode(
        nn.ModuleList([model]), setting.views, setting.augmentation, test, kind="pooled", batch_size=256,
        device=setting.device,
    )  # fmt: skip
    with torch.no_grad():
        return correct(torch.cat([classifier(part) for part in rows.split(256)]), truth)
