"""Every task as a dataclass: what decides its numbers, what they mean, how they were taken, and who computes them.

Fields are parts of :class:`contrastlab.settings.Settings`, described there. ``test_images`` is at most so many test
items, with class counts as equal as possible; ``None`` is all.
"""

# ruff: noqa: RUF009 - _from makes a field

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from contrastlab import settings as parts
from contrastlab.pictures.task import Metric, Setting, Task

Compared = Literal["bbox", "segm", "keypoints"]

LAYERS = ("conv1", "conv2", "conv3", "conv4", "conv5", "fc6", "fc7")  # those that have a metric
HIDDEN = "_mlp"  # behind the name of a layer: the classifier with a hidden layer

BENCHMARKS = {
    "STS12": "sts12", "STS13": "sts13", "STS14": "sts14", "STS15": "sts15", "STS16": "sts16", "STS-B": "stsb",
    "SICK-R": "sickr",
}  # fmt: skip
"""Benchmark of sentence pairs to the metric that is its own."""

_FROZEN = {"encoder": "frozen, evaluation mode"}
_LAST = {"which_epoch": "last"}


def _from(name: str) -> Any:  # a field that is a part of the settings
    return field(default_factory=lambda: getattr(parts.Settings(), name), metadata={"settings": name})


@dataclass(frozen=True)
class Linear(Task):
    """A linear classifier on frozen features, fitted as ``probe`` says: percent of test items."""

    probe: parts.LinearProbe = _from("linear")
    test_images: int | None = None
    name = "linear"
    compares_classes = True
    scorer = "contrastlab.pictures.linear:score"
    metrics = (
        Metric("linear", "linear accuracy"),
        Metric("linear5", "linear top-5 accuracy", absent="top-5 accuracy needs more than five classes"),
    )

    def protocol(self, setting: Setting) -> dict[str, Any]:
        return {**self.probe.model_dump(mode="json"), **_FROZEN, **_LAST}


@dataclass(frozen=True)
class Neighbours(Task):
    """Weighted k-NN and 1-NN of unit embeddings of re-encoded training images; no classifier is trained."""

    k: int = 200
    temperature: float = 0.1
    train_images: int | None = None
    test_images: int | None = None
    name = "neighbours"
    compares_classes = True
    scorer = "contrastlab.pictures.representations:score"
    metrics = (Metric("knn200", "200-NN accuracy"), Metric("nn1", "1-NN accuracy"))

    def protocol(self, setting: Setting) -> dict[str, Any]:
        knn = f"k={self.k}, temperature={self.temperature}, embeddings"
        return {**_FROZEN, "knn": knn, "nn1": "embeddings of re-encoded training images"}


@dataclass(frozen=True)
class Transfer(Task):
    """A linear classifier on frozen features of data that the encoders were not trained on (ring §5, Table 3)."""

    probe: parts.LinearProbe = _from("linear")
    view: parts.TransferView = _from("transfer")
    test_images: int | None = None
    name = "transfer"
    modalities = ("image", "waveform")
    compares_classes = True
    scorer = "contrastlab.pictures.linear:score_transfer"
    metrics = (Metric("transfer", "transfer accuracy", items="test items"),)

    def protocol(self, setting: Setting) -> dict[str, Any]:
        own = "mean and variance of the target's training images; a colour split keeps its fixed ranges"
        return {
            **Linear(self.probe).protocol(setting), "train_view": self.view.augmentation or "as in pre-training",
            "normalised_by": own if self.view.normalise == "target" else "the statistics of pre-training",
        }  # fmt: skip


@dataclass(frozen=True)
class Layers(Task):
    """A classifier on each layer of the frozen encoders (CMC, Tables 7 and 8); ``probe.features`` is not read."""

    probe: parts.LinearProbe = _from("linear")
    layers: parts.LayerProbe = _from("layers")
    test_images: int | None = None
    name = "layers"
    modalities = ("image",)
    compares_classes = True
    scorer = "contrastlab.pictures.linear:score_layers"
    metrics = (
        *(Metric(name, f"linear accuracy at {name}") for name in LAYERS),
        *(Metric(name + HIDDEN, f"accuracy with a hidden layer at {name}") for name in LAYERS),
    )

    def protocol(self, setting: Setting) -> dict[str, Any]:
        return {
            **self.probe.model_dump(mode="json", exclude={"features"}), "layers": self.layers.model_dump(mode="json"),
            **_FROZEN, "pooling": f"adaptive max, at most {self.layers.values} values a layer", **_LAST,
        }  # fmt: skip


@dataclass(frozen=True)
class OneView(Task):
    """A linear classifier on the frozen convolutions of the L encoder; end to end, the reference with labels.

    CMC, Table 5. The scenes of pre-training need not have classes: the classifier's data may be colour pictures, whose
    luminance is computed.
    """

    probe: parts.LinearProbe = _from("linear")
    training: parts.SegmentationProbe = _from("segmentation")
    test_images: int | None = None
    view = "L"
    name = "one_view"
    compares_classes = True
    scorer = "contrastlab.domains.scenes.task:score_one_view"
    metrics = (Metric("linear_L", "linear accuracy from L", items="test items"),)

    @classmethod
    def of(cls, settings: parts.Settings) -> OneView:
        """The probe of ``settings``; what decides a decoder alone leaves no trace."""
        own = settings.segmentation if settings.segmentation.end_to_end else parts.SegmentationProbe()
        return cls(settings.linear, own, settings.test_images)

    def protocol(self, setting: Setting) -> dict[str, Any]:
        if not self.training.end_to_end:
            return {**Linear(self.probe).protocol(setting), "view": self.view}
        how = self.training.model_dump(mode="json", include={"epochs", "batch_size", "lr", "betas"})
        return {**how, "encoder": "trained with the classifier, from its start", "view": self.view, **_LAST}


@dataclass(frozen=True)
class Segmentation(Task):
    """Classes of pixels from one view, by a decoder with skip connections on its frozen encoder (CMC, section 4.3).

    Mean IoU and pixel accuracy are those of all test scenes together; their errors come from drawing scenes anew.
    End to end it is the reference with labels.
    """

    probe: parts.SegmentationProbe = _from("segmentation")
    test_images: int | None = None
    view: ClassVar[str]
    modalities = ("scene",)
    scorer = "contrastlab.domains.scenes.task:score"

    def protocol(self, setting: Setting) -> dict[str, Any]:
        how = {"encoder": "trained with the decoder, from its start"} if self.probe.end_to_end else _FROZEN
        counted = "over the classes that occur in the test part, void left out"
        return {**self.probe.model_dump(mode="json"), **how, "view": self.view, "mIoU": counted, **_LAST}


def _of_view(view: str) -> type[Segmentation]:
    metrics = tuple(
        Metric(f"{short}_{view}", f"{words} from {view}", error="bootstrap", items="test scenes")
        for short, words in (("miou", "mean IoU"), ("pixels", "pixel accuracy"))
    )
    body = {"view": view, "name": f"segmentation_{view}", "metrics": metrics, "__doc__": f"Segmentation from {view}."}
    return dataclass(frozen=True)(type(f"Segmentation_{view}", (Segmentation,), body))


SEGMENTATIONS: Mapping[str, type[Segmentation]] = {view: _of_view(view) for view in ("L", "ab", "depth", "normal")}
"""The task for each view: a table scores one encoder at a time."""


@dataclass(frozen=True)
class Action(Task):
    """Action recognition by fine-tuning the encoder of frames (CMC §4.2; Simonyan and Zisserman 2014, spatial network).

    A step shows a random frame of each clip. A test clip has the mean of the class probabilities of its frames. The
    score is the mean of the accuracies of all official splits, each with a network of its own and ``test_images``.
    """

    training: parts.ActionRecognition = _from("action")
    test_images: int | None = None
    name = "action"
    modalities = ("clip",)
    compares_classes = True
    scorer = "contrastlab.domains.clips.task:score"
    metrics = (Metric("action", "action recognition accuracy", error="bootstrap", items="test clips"),)

    def protocol(self, setting: Setting) -> dict[str, Any]:
        how = self.training
        return {
            "encoder": "of frames, fine-tuned from conv5 down, fully connected layers new",
            "solver": f"sgd, {how.epochs} epochs, lr {how.lr:g}, momentum {how.momentum:g}, dropout {how.dropout:g}",
            "score": f"mean probability of {how.frames} frames x {how.crops} crops, mean over splits",
            "splits": len(setting.data.folds()),
        }


def _correlation(name: str, label: str) -> Metric:
    return Metric(name, label, "Spearman × 100", -100.0, 100.0, error="bootstrap", items="test pairs")


@dataclass(frozen=True)
class Similarity(Task):
    """Spearman's correlation of cosines with people's scores of similarity (SimCSE §5; fmicl Tables 2, 9 and 10).

    What is compared is before the head, as SimCSE does. The pairs of all parts of a benchmark are ranked together
    ("all"), as the papers have it; the mean over parts is given beside it. At most ``test_pairs`` pairs are shared out
    among benchmarks.
    """

    test_pairs: int | None = field(default=None, metadata={"settings": "test_images"})
    name = "similarity"
    modalities = ("sentence",)
    scorer = "contrastlab.domains.text.task:score"
    metrics = (
        _correlation("sts", "mean similarity correlation over benchmarks"),
        _correlation("sts_parts", "mean similarity correlation over parts of benchmarks"),
        _correlation("sts_dev", "similarity correlation on the development pairs"),
        *(_correlation(name, f"similarity correlation on {benchmark}") for benchmark, name in BENCHMARKS.items()),
    )

    def protocol(self, setting: Setting) -> dict[str, Any]:
        return {
            "encoder": "frozen, evaluation mode, without its head", "score": "cosine",
            "ranked": "pairs of all parts of a benchmark together; the mean over benchmarks",
            "benchmarks": ", ".join(setting.data.test.classes), "data": setting.data.note,
        }  # fmt: skip


_RULES = {
    "coco": "COCO's", "lvis": "LVIS's, federated", "voc07": "VOC's at eleven recalls", "voc12": "VOC's whole area",
}  # fmt: skip


def _precision(name: str, label: str, absent: str = "") -> Metric:
    return Metric(name, label, "AP", error="bootstrap", items="test pictures", absent=absent)


def _precisions(stem: str, what: str) -> tuple[Metric, ...]:
    levels = {"": "", "50": " at an overlap of 0.5", "75": " at an overlap of 0.75"}
    return tuple(_precision(f"{stem}_ap{key}", f"{what} AP{text}") for key, text in levels.items())


@dataclass(frozen=True)
class Detection(Task):
    """A detector on encoders; what it looks for is the name of its task and of its settings."""

    detector: parts.Detector
    modalities = ("annotated image",)
    scorer = "contrastlab.domains.detection.task:score"
    stems: ClassVar[Mapping[str, Compared]]
    """Start of a metric's name to what is compared."""

    def protocol(self, setting: Setting) -> dict[str, Any]:
        train, most = setting.data.train, self.detector.train_pictures
        return {
            **self.detector.model_dump(mode="json"), "detector": f"torchvision's, for {self.name}",
            "encoder": "fine-tuned" if self.detector.trained else "frozen, batch-norm as constants",
            "scored_by": _RULES[train.annotations.rule], "train_pictures_used": min(most or len(train), len(train)),
        }  # fmt: skip


@dataclass(frozen=True)
class Boxes(Detection):
    """Faster R-CNN (ring Table 4 and vince Table 2d on VOC, with C4), scored by the rule of the data."""

    detector: parts.Detector = _from("boxes")
    name = "boxes"
    stems: ClassVar[Mapping[str, Compared]] = {"detection": "bbox"}
    metrics = (
        *_precisions("detection", "detection"),
        _precision(
            "detection_coco_ap", "detection AP by COCO's rule",
            absent="data that are not scored by VOC's rule have one detection AP",
        ),
    )  # fmt: skip


@dataclass(frozen=True)
class Masks(Detection):
    """Mask R-CNN: boxes and masks of one detector (COCO, LVIS)."""

    detector: parts.Detector = _from("masks")
    name = "masks"
    stems: ClassVar[Mapping[str, Compared]] = {"box": "bbox", "mask": "segm"}
    metrics = (*_precisions("box", "box"), *_precisions("mask", "mask"))


@dataclass(frozen=True)
class Keypoints(Detection):
    """Keypoint R-CNN, scored by object keypoint similarity."""

    detector: parts.Detector = _from("keypoints")
    name = "keypoints"
    stems: ClassVar[Mapping[str, Compared]] = {"keypoint": "keypoints"}
    metrics = _precisions("keypoint", "keypoint")


TASKS: tuple[type[Task], ...] = (
    Linear, Neighbours, Transfer, Layers, Action, OneView, *SEGMENTATIONS.values(), Boxes, Masks, Keypoints, Similarity,
)  # fmt: skip
