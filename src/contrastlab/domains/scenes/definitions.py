"""Tasks on scenes: classes of their pixels, and of pictures, from the encoder of one view."""

# ruff: noqa: RUF009 - from_settings makes a field

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from contrastlab import settings as parts
from contrastlab.pictures.definitions import Linear
from contrastlab.pictures.task import FROZEN, LAST, Evaluation, Metric, Task, from_settings


@dataclass(frozen=True)
class OneView(Task):
    """A linear classifier on the frozen convolutions of the L encoder; end to end, the reference with labels.

    CMC, Table 5. The scenes of pre-training need not have classes: the classifier's data may be colour pictures, whose
    luminance is computed.
    """

    probe: parts.LinearProbe = from_settings("linear")
    training: parts.SegmentationProbe = from_settings("segmentation")
    test_images: int | None = None
    view = "L"
    name = "one_view"
    compares_classes = True
    scorer = "contrastlab.domains.scenes.task:score_one_view"
    metrics = (Metric("linear_L", "linear accuracy from L", items="test items"),)

    @classmethod
    def of(cls, settings: parts.Settings) -> OneView:
        """The probe of ``settings``; what decides a decoder alone leaves no trace."""
        training = parts.SegmentationProbe()
        if settings.segmentation.end_to_end:
            training = settings.segmentation
        return cls(settings.linear, training, settings.test_images)

    def protocol(self, evaluation: Evaluation) -> dict[str, Any]:
        if not self.training.end_to_end:
            return {**Linear(self.probe).protocol(evaluation), "view": self.view}
        how = self.training.model_dump(mode="json", include={"epochs", "batch_size", "lr", "betas"})
        return {**how, "encoder": "trained with the classifier, from its start", "view": self.view, **LAST}


@dataclass(frozen=True)
class Segmentation(Task):
    """Classes of pixels from one view, by a decoder with skip connections on its frozen encoder (CMC, section 4.3).

    Mean IoU and pixel accuracy are those of all test scenes together; their errors come from drawing scenes anew.
    End to end it is the reference with labels.
    """

    probe: parts.SegmentationProbe = from_settings("segmentation")
    test_images: int | None = None
    view: ClassVar[str]
    modalities = ("scene",)
    scorer = "contrastlab.domains.scenes.task:score"

    def protocol(self, evaluation: Evaluation) -> dict[str, Any]:
        encoder = FROZEN
        if self.probe.end_to_end:
            encoder = {"encoder": "trained with the decoder, from its start"}
        return {
            **self.probe.model_dump(mode="json"),
            **encoder,
            "view": self.view,
            "mIoU": "over the classes that occur in the test part, void left out",
            **LAST,
        }


def _metrics(view: str) -> tuple[Metric, Metric]:
    return (
        Metric(f"miou_{view}", f"mean IoU from {view}", error="bootstrap", items="test scenes"),
        Metric(f"pixels_{view}", f"pixel accuracy from {view}", error="bootstrap", items="test scenes"),
    )


@dataclass(frozen=True)
class LuminanceSegmentation(Segmentation):
    """Segmentation from the luminance."""

    view = "L"
    name = "segmentation_L"
    metrics = _metrics("L")


@dataclass(frozen=True)
class ChrominanceSegmentation(Segmentation):
    """Segmentation from the two channels of colour."""

    view = "ab"
    name = "segmentation_ab"
    metrics = _metrics("ab")


@dataclass(frozen=True)
class DepthSegmentation(Segmentation):
    """Segmentation from the depth."""

    view = "depth"
    name = "segmentation_depth"
    metrics = _metrics("depth")


@dataclass(frozen=True)
class NormalSegmentation(Segmentation):
    """Segmentation from the surface normals."""

    view = "normal"
    name = "segmentation_normal"
    metrics = _metrics("normal")
