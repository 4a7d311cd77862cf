"""Tasks on annotated pictures: detectors of boxes, masks and keypoints on encoders."""

# ruff: noqa: RUF009 - from_settings makes a field

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from contrastlab import settings as parts
from contrastlab.pictures.task import Evaluation, Metric, Task, from_settings

Compared = Literal["bbox", "segm", "keypoints"]

_RULES = {
    "coco": "COCO's",
    "lvis": "LVIS's, federated",
    "voc07": "VOC's at eleven recalls",
    "voc12": "VOC's whole area",
}


def _precision(name: str, label: str, absent: str = "") -> Metric:
    return Metric(name, label, "AP", error="bootstrap", items="test pictures", absent=absent)


def _precisions(stem: str, what: str) -> tuple[Metric, ...]:
    return (
        _precision(f"{stem}_ap", f"{what} AP"),
        _precision(f"{stem}_ap50", f"{what} AP at an overlap of 0.5"),
        _precision(f"{stem}_ap75", f"{what} AP at an overlap of 0.75"),
    )


@dataclass(frozen=True)
class Detection(Task):
    """A detector on encoders; what it looks for is the name of its task and of its settings."""

    detector: parts.Detector
    modalities = ("annotated image",)
    scorer = "contrastlab.domains.detection.task:score"
    stems: ClassVar[Mapping[str, Compared]]
    """Start of a metric's name to what is compared."""

    def protocol(self, evaluation: Evaluation) -> dict[str, Any]:
        train = evaluation.data.train
        encoder = "frozen, batch-norm as constants"
        if self.detector.trained:
            encoder = "fine-tuned"
        most = self.detector.train_pictures or len(train)
        return {
            **self.detector.model_dump(mode="json"),
            "detector": f"torchvision's, for {self.name}",
            "encoder": encoder,
            "scored_by": _RULES[train.annotations.rule],
            "train_pictures_used": min(most, len(train)),
        }


@dataclass(frozen=True)
class Boxes(Detection):
    """Faster R-CNN (ring Table 4 and vince Table 2d on VOC, with C4), scored by the rule of the data."""

    detector: parts.Detector = from_settings("boxes")
    name = "boxes"
    stems: ClassVar[Mapping[str, Compared]] = {"detection": "bbox"}
    metrics = (
        *_precisions("detection", "detection"),
        _precision(
            "detection_coco_ap",
            "detection AP by COCO's rule",
            absent="data that are not scored by VOC's rule have one detection AP",
        ),
    )


@dataclass(frozen=True)
class Masks(Detection):
    """Mask R-CNN: boxes and masks of one detector (COCO, LVIS)."""

    detector: parts.Detector = from_settings("masks")
    name = "masks"
    stems: ClassVar[Mapping[str, Compared]] = {"box": "bbox", "mask": "segm"}
    metrics = (*_precisions("box", "box"), *_precisions("mask", "mask"))


@dataclass(frozen=True)
class Keypoints(Detection):
    """Keypoint R-CNN, scored by object keypoint similarity."""

    detector: parts.Detector = from_settings("keypoints")
    name = "keypoints"
    stems: ClassVar[Mapping[str, Compared]] = {"keypoint": "keypoints"}
    metrics = _precisions("keypoint", "keypoint")
