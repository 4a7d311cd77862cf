"""Classes of pixels from the maps of one view's encoder: a U-Net whose encoder is frozen (CMC, section 4.3)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab.data.loading import Source, batches, subset_order
from contrastlab.errors import NotApplicableError, reject
from contrastlab.seeds import fixed
from contrastlab.settings import SegmentationProbe, Settings
from contrastlab.tasks.base import Described, Measured, Metric, Setting, bootstrap
from contrastlab.tasks.fitting import fit
from contrastlab.tasks.neighbours import take
from contrastlab.tasks.representations import frozen
from contrastlab.views import Channels
from contrastlab.views.channels import labels

VOID = -1
"""The label of pixels that nobody asks about."""


def confusion(predicted: Tensor, truth: Tensor, classes: int) -> Tensor:
    """How many pixels of each true class were given each class.

    Args:
        predicted: int64 ``[N, …]``, 0 to ``classes − 1``.
        truth: the same shape; :data:`VOID` is left out.
        classes: how many there are.

    Returns:
        int64 ``[N, classes, classes]``: true class, predicted class.

    Raises:
        ArgumentError: a class that does not exist.
    """
    for name, values, low in (("predicted", predicted, 0), ("truth", truth, VOID)):
        if values.numel() and not low <= int(values.min()) <= int(values.max()) < classes:
            raise reject(name, (int(values.min()), int(values.max())), f"classes from {low} to {classes - 1}")
    count = len(truth)
    cell = truth.flatten(1) * classes + predicted.flatten(1)
    cell = torch.where(truth.flatten(1) == VOID, classes * classes, cell)
    row = torch.arange(count, device=truth.device)[:, None] * (classes * classes + 1)
    counts = (row + cell).flatten().bincount(minlength=count * (classes * classes + 1))
    return counts.view(count, -1)[:, :-1].view(count, classes, classes)


def mean_iou(counts: Tensor) -> float:
    """Mean intersection over union in percent, over the classes that occur.

    A class that is neither there nor predicted has no union and is left out; one that is predicted only, or missed
    altogether, counts 0.

    Args:
        counts: ``[classes, classes]`` of :func:`confusion`, summed over images.

    Raises:
        ArgumentError: no pixel at all.
    """
    hit = counts.diagonal().double()
    union = counts.sum(0) + counts.sum(1) - counts.diagonal()
    if not bool(union.any()):
        raise reject("counts", 0, "at least one pixel that is not void")
    return 100 * float((hit[union > 0] / union[union > 0]).mean())


def pixel_accuracy(counts: Tensor) -> float:
    """Percent of the pixels that got their class, void not counted.

    Raises:
        ArgumentError: no pixel at all.
    """
    total = int(counts.sum())
    if not total:
        raise reject("counts", 0, "at least one pixel that is not void")
    return 100 * int(counts.diagonal().sum()) / total


class Segmenter(nn.Module):
    """One view's encoder and a decoder of its maps.

    Args:
        encoder: names its blocks.
        classes: of pixels.
        width: of the decoder.
        trains_encoder: whether gradients reach the encoder; else its tensors never change.
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
        scores: Tensor = self.decoder(maps, view.shape[2:])
        return scores.float()


def stream_of(encoders: nn.ModuleList, setting: Setting, view: str) -> nn.Module:
    """The encoder of a view.

    Raises:
        NotApplicableError: the recipe has no such view.
    """
    if view not in setting.views.streams:
        raise NotApplicableError(f"{setting.views!r} has no encoder of {view!r}")
    return encoders[setting.views.streams.index(view)]


def segment(
    encoder: nn.Module, view: str, setting: Setting, probe: SegmentationProbe
) -> Segmenter:  # fmt: skip
    """A decoder fitted on patches of the labelled scenes, on an encoder that is frozen or, end to end, trained as well.

    Args:
        encoder: of the view.
        view: name of the channel.
        setting: its ``data.train`` has classes of pixels.
        probe: how long, how wide and so on.

    Raises:
        NotApplicableError: pictures without classes of pixels, or an encoder that names no blocks.
    """
    train, part = setting.data.train, Channels((view,))
    with fixed(setting.seed):
        model = Segmenter(encoder, _classes(train), probe.width, probe.end_to_end).to(setting.device)
    model.train()

    def loss(index: Tensor, items: Tensor, draws: torch.Generator) -> Tensor:
        patch = setting.augmentation.random(items, draws)
        return F.cross_entropy(model(part.read(patch)[0]), labels(patch), ignore_index=VOID)

    fit(
        loss, model.parameters() if probe.end_to_end else model.decoder.parameters(), train,
        subset_order(train.labels, probe.train_scenes, setting.seed), epochs=probe.epochs, batch_size=probe.batch_size,
        lr=probe.lr, betas=probe.betas, seed=setting.seed, device=setting.device,
    )  # fmt: skip
    return model.eval()


@torch.no_grad()
def predict(model: Segmenter, view: str, setting: Setting, source: Source) -> tuple[Tensor, Tensor]:
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


@dataclass(frozen=True)
class Segmentation(Described):
    """Classes of pixels from one view, by a decoder with skip connections on its frozen encoder.

    Args:
        probe: how the decoder is fitted; end to end, it is the reference with labels.
        test_images: at most so many test scenes; ``None`` is all.
    """

    probe: SegmentationProbe = field(default_factory=SegmentationProbe)
    test_images: int | None = None

    view: ClassVar[str] = "L"
    name: ClassVar[str] = "segmentation_L"
    modality: ClassVar[str] = "scene"
    metrics: ClassVar[tuple[Metric, ...]] = ()

    @classmethod
    def of(cls, settings: Settings) -> Segmentation:
        """The probe of ``settings``."""
        return cls(settings.segmentation, settings.test_images)

    def score(self, encoders: nn.ModuleList, setting: Setting) -> dict[str, Measured]:
        """Mean IoU and pixel accuracy over the test scenes, whose errors come from drawing scenes anew.

        Raises:
            NotApplicableError: no encoder of the view, or no classes of pixels.
        """
        encoder = stream_of(encoders, setting, self.view)
        test = take(setting.data.test, self.test_images)
        model = segment(encoder, self.view, setting, self.probe)
        counts = confusion(*predict(model, self.view, setting, test), _classes(test))
        out = {}
        for metric, statistic in zip(self.metrics, (mean_iou, pixel_accuracy), strict=True):

            def of(chosen: Tensor, statistic: Any = statistic) -> float:
                return float(statistic(counts[chosen].sum(0)))

            value, half = bootstrap(of, len(counts), seed=setting.seed)
            out[metric.name] = Measured(value, len(counts), half)
        return out

    def protocol(self, setting: Setting) -> dict[str, Any]:
        """How the metrics were taken."""
        how = "trained with the decoder, from its start" if self.probe.end_to_end else "frozen, evaluation mode"
        return {
            **self.probe.model_dump(mode="json"), "encoder": how, "view": self.view,
            "mIoU": "over the classes that occur in the test part, void left out", "which_epoch": "last",
        }  # fmt: skip


def _of_view(view: str) -> type[Segmentation]:
    metrics = tuple(
        Metric(f"{short}_{view}", f"{words} from {view}", error="bootstrap", items="test scenes")
        for short, words in (("miou", "mean IoU"), ("pixels", "pixel accuracy"))
    )
    body = {"view": view, "name": f"segmentation_{view}", "metrics": metrics, "__doc__": f"Segmentation from {view}."}
    made: type[Segmentation] = dataclass(frozen=True)(type(f"Segmentation_{view}", (Segmentation,), body))
    return made


SEGMENTATIONS: Mapping[str, type[Segmentation]] = {view: _of_view(view) for view in ("L", "ab", "depth", "normal")}
"""The task for each view: a table asks one encoder at a time."""
