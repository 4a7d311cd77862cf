"""The three tasks: boxes (Faster R-CNN), boxes and masks (Mask R-CNN), keypoints (Keypoint R-CNN)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, cast

from torch import nn

from contrastlab.data.annotated import AnnotatedImages
from contrastlab.errors import NotApplicableError
from contrastlab.seeds import derive, fixed
from contrastlab.settings import Detector, Settings
from contrastlab.tasks.base import Described, Measured, Metric, Setting
from contrastlab.tasks.dense import detectors, scores, training
from contrastlab.tasks.dense.detectors import Kind


def _metrics(stem: str, what: str) -> tuple[Metric, ...]:
    levels = {"": "", "50": " at an overlap of 0.5", "75": " at an overlap of 0.75"}
    return tuple(
        Metric(f"{stem}_ap{key}", f"{what} AP{text}", "AP", error="bootstrap", items="test pictures")
        for key, text in levels.items()
    )


def trained_detector(
    kind: Kind, encoders: nn.ModuleList, setting: Setting, settings: Detector
) -> tuple[nn.Module, AnnotatedImages]:
    """A detector on copies of encoders, read from ``setting.folder`` or trained there, and its test pictures.

    Raises:
        NotApplicableError: encoders without four stages or of grey pictures, or data without what is looked for.
    """
    if not isinstance(setting.data.train, AnnotatedImages):
        raise NotApplicableError(f"{setting.data.name} has no annotated objects")
    train = setting.data.train.take(settings.train_pictures, setting.seed)
    test = setting.data.test.take(settings.test_pictures)
    points = train.annotations.keypoints
    training.usable_pictures(train, kind)
    with fixed(derive(setting.seed, "detector")):
        model = detectors.build(
            kind, encoders, setting.views, setting.augmentation, settings, classes=len(train.classes),
            keypoints=len(points.names) if points else 0,
        )  # fmt: skip
    training.fit(
        model, train, kind, settings, seed=setting.seed, device=setting.device, folder=setting.folder, log=setting.log
    )
    return model, test


@dataclass(frozen=True)
class _Detection(Described):
    """A detector on encoders; what it looks for is the name of its task and of its settings.

    Args:
        detector: network, schedule and so on.
    """

    detector: Detector

    name: ClassVar[str]
    modality: ClassVar[str] = "annotated image"

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The detector of ``settings``."""
        return cls(getattr(settings, cls.name))

    def found(self, encoders: nn.ModuleList, setting: Setting) -> tuple[AnnotatedImages, list[dict[str, Any]]]:
        """The test pictures, and what a trained detector sees in them, in COCO's form.

        Raises:
            NotApplicableError: see :func:`trained_detector`.
        """
        kind = cast("Kind", self.name)
        model, test = trained_detector(kind, encoders, setting, self.detector)
        return test, training.predict(model, test, kind, device=setting.device, log=setting.log)

    def protocol(self, setting: Setting) -> dict[str, Any]:
        """How the metrics were taken."""
        rule = {
            "coco": "COCO's", "lvis": "LVIS's, federated", "voc07": "VOC's at eleven recalls",
            "voc12": "VOC's whole area",
        }  # fmt: skip
        train, most = setting.data.train, self.detector.train_pictures
        return {
            **self.detector.model_dump(mode="json"), "detector": f"torchvision's, for {self.name}",
            "encoder": "fine-tuned" if self.detector.trained else "frozen, batch-norm as constants",
            "scored_by": rule[train.annotations.rule], "train_pictures_used": min(most or len(train), len(train)),
        }  # fmt: skip


@dataclass(frozen=True)
class Boxes(_Detection):
    """Faster R-CNN (ring Table 4 and vince Table 2d on VOC, with C4).

    Args:
        detector: network, schedule and so on.
    """

    detector: Detector = field(default_factory=lambda: Settings().boxes)

    name: ClassVar[str] = "boxes"
    metrics: ClassVar[tuple[Metric, ...]] = (
        *_metrics("detection", "detection"),
        Metric(
            "detection_coco_ap",
            "detection AP by COCO's rule",
            "AP",
            error="bootstrap",
            items="test pictures",
            absent="data that are not scored by VOC's rule have one detection AP",
        ),
    )

    def score(self, encoders: nn.ModuleList, setting: Setting) -> dict[str, Measured]:
        """``detection_ap`` and so on by the rule of the data; for VOC's also AP by COCO's rule.

        Raises:
            NotApplicableError: see :func:`trained_detector`.
        """
        test, found = self.found(encoders, setting)
        rule, draws = test.annotations.rule, self.detector.draws
        by_coco = scores.coco(test.annotations, found, "bbox", draws=draws)
        if rule not in ("voc07", "voc12"):
            return {f"detection_ap{key}": value for key, value in by_coco.items()}
        by_voc = scores.voc(test.annotations, found, eleven=rule == "voc07", draws=draws)
        measured = {f"detection_ap{key}": value for key, value in by_voc.items()}
        return {**measured, "detection_coco_ap": by_coco[""]}


@dataclass(frozen=True)
class Masks(_Detection):
    """Mask R-CNN: boxes and masks of one detector (COCO, LVIS).

    Args:
        detector: network, schedule and so on.
    """

    detector: Detector = field(default_factory=lambda: Settings().masks)

    name: ClassVar[str] = "masks"
    metrics: ClassVar[tuple[Metric, ...]] = (*_metrics("box", "box"), *_metrics("mask", "mask"))

    def score(self, encoders: nn.ModuleList, setting: Setting) -> dict[str, Measured]:
        """``box_ap``, ``mask_ap`` and so on.

        Raises:
            NotApplicableError: see :func:`trained_detector`.
        """
        test, found = self.found(encoders, setting)
        out: dict[str, Measured] = {}
        for stem, what in (("box", "bbox"), ("mask", "segm")):
            own = [{k: v for k, v in each.items() if k != ("segmentation", "bbox")[stem == "mask"]} for each in found]
            measured = scores.coco(test.annotations, own, what, draws=self.detector.draws)  # type: ignore[arg-type]
            out |= {f"{stem}_ap{key}": value for key, value in measured.items()}
        return out


@dataclass(frozen=True)
class Keypoints(_Detection):
    """Keypoint R-CNN, scored by object keypoint similarity.

    Args:
        detector: network, schedule and so on.
    """

    detector: Detector = field(default_factory=lambda: Settings().keypoints)

    name: ClassVar[str] = "keypoints"
    metrics: ClassVar[tuple[Metric, ...]] = _metrics("keypoint", "keypoint")

    def score(self, encoders: nn.ModuleList, setting: Setting) -> dict[str, Measured]:
        """``keypoint_ap`` and so on.

        Raises:
            NotApplicableError: see :func:`trained_detector`.
        """
        test, found = self.found(encoders, setting)
        measured = scores.coco(test.annotations, found, "keypoints", draws=self.detector.draws)
        return {f"keypoint_ap{key}": value for key, value in measured.items()}
