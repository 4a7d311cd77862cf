"""Everything about a run that is not the method: data size, encoder, optimiser, evaluation.

A published protocol is a :class:`Settings`; a profile (``smoke``, ``laptop``, ``paper``) overrides some of its fields.
Settings are read from the TOML files of :mod:`contrastlab.papers` and stored, whole, with each result.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import contrastlab.support.lab  # noqa: F401

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from contrastlab.support import files
from contrastlab.support.errors import ArgumentError, reject, unknown

Precision = Literal["32-true", "bf16-mixed", "auto"]
"""Of encoders; ``auto`` is bf16-mixed where the device has such instructions, else 32-true."""


class FrozenModel(BaseModel):
    """Data that does not change and has no field unasked for, and no number that is infinite or none."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class _Sgd(FrozenModel):
    epochs: int = Field(100, ge=1)
    batch_size: int = Field(256, ge=1)
    lr: float = Field(0.01, gt=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(0.0, ge=0)
    milestones: tuple[int, ...] = ()
    gamma: float = Field(0.1, gt=0, le=1)


class LinearProbe(_Sgd):
    """How a frozen encoder is scored by a linear classifier."""

    solver: Literal["sgd", "lbfgs"] = Field("sgd", description="lbfgs: one fit of standardised, un-augmented features")
    features: Literal["map", "pooled"] = Field("map", description="before (512x7x7) or after pooling")
    l2: float = Field(1e-3, ge=0, description="ridge penalty of the L-BFGS solver, on the mean loss")
    train_images: int | None = Field(None, ge=1, description="at most so many labelled images; None is all")
    augmentation: str = Field("", description="of the SGD solver's training images; empty: that of pre-training")


class TransferView(FrozenModel):
    """How frozen encoders are shown data they were not trained on; the classifier is that of ``linear``."""

    augmentation: str = Field("", description="of the classifier's training images; empty: that of pre-training")
    normalise: Literal["target", "pretraining"] = "target"  # by the target's training images, or as in pre-training


class LayerProbe(FrozenModel):
    """Which layers of frozen encoders are probed, and how (CMC Tables 7, 8); the linear classifier is ``linear``'s."""

    names: tuple[str, ...] = Field((), description="of layers; empty: all that the encoder has")
    values: int = Field(9600, ge=1, description="a map is max-pooled to at most so many values, all streams together")
    hidden: int = Field(0, ge=0, description="units of the hidden layer of a second classifier; 0: there is none")
    mlp_epochs: int = Field(100, ge=1)
    mlp_lr: float = Field(1e-3, gt=0, description="of Adam, with β of 0.5 and 0.999")


class SegmentationProbe(FrozenModel):
    """How classes of pixels are read from the maps of one encoder, by a decoder with skip connections."""

    epochs: int = Field(200, ge=1)
    batch_size: int = Field(32, ge=1)
    lr: float = Field(1e-3, gt=0, description="of Adam; x0.2 at two thirds, 0.8 and 0.93 of the epochs")
    betas: tuple[float, float] = (0.5, 0.999)
    width: int = Field(64, ge=1, description="channels of the decoder's finest map; they double with each coarser one")
    end_to_end: bool = Field(False, description="the encoder is trained, too: a reference with labels, not a probe")
    train_scenes: int | None = Field(None, ge=1, description="at most so many labelled scenes; None is all")


class ActionRecognition(_Sgd):
    """How the encoder of frames is fine-tuned to name the actions of clips; a step shows a frame of each clip."""

    weight_decay: float = Field(5e-4, ge=0)
    dropout: float = Field(0.5, ge=0, lt=1, description="of the fully connected layers")
    frames: int = Field(25, ge=1, description="of a test clip, equally spaced")
    crops: Literal[1, 10] = Field(1, description="of a test frame: the middle; or corners and middle, mirrored too")
    train_clips: int | None = Field(None, ge=1, description="at most so many labelled clips; None is all")


class Optimiser(FrozenModel):
    """Which optimiser takes the steps; learning rate, weight decay and schedule are those of :class:`Settings`.

    ``lars`` is timm's (You et al. 2017), for large batches, with the momentum of the settings.
    """

    name: Literal["sgd", "adam", "adamw", "lars"] = "sgd"
    betas: tuple[float, float] = Field((0.9, 0.999), description="of Adam's two averages")
    eps: float = Field(1e-8, gt=0, description="of Adam and LARS")
    trust: float = Field(1e-3, gt=0, description="of LARS: length of a step as a share of the weights', at a rate of 1")
    decay: Literal["all", "matrices"] = Field("all", description="matrices: no decay, nor LARS, of biases and norms")


class Detector(FrozenModel):
    """A detector on an encoder, how it is trained and scored; the defaults are Detectron2's for 1x schedules.

    Sizes are in pixels, pixel means and deviations in grey levels of RGB.
    """

    # network
    backbone: Literal["fpn", "c4"] = Field("fpn", description="a pyramid on four stages, or the third stage alone")
    c4_head: Literal["published", "new", "layer4"] = "published"  # see domains.detection.network.fifth_stage
    trained: bool = Field(False, description="fine-tune the encoder; otherwise no tensor of it changes")
    batch_norm: bool = Field(False, description="batch-norm that learns, also in the pyramid; otherwise it is frozen")
    channels: int = Field(256, ge=1, description="of the pyramid")
    box_features: int = Field(1024, ge=1, description="of the two layers of the box head")
    mask_layers: tuple[int, ...] = (256, 256, 256, 256)
    keypoint_layers: tuple[int, ...] = (512,) * 8
    # pictures
    shorter: tuple[int, ...] = Field((640, 672, 704, 736, 768, 800), description="shorter sides, one drawn a picture")
    test_shorter: int = Field(800, ge=1)
    longest: int = Field(1333, ge=1, description="bound on the longer side")
    pixel_mean: tuple[float, float, float] | None = Field(None, description="None: as in pre-training")
    pixel_std: tuple[float, float, float] | None = Field(None, description="None: as in pre-training")
    train_pictures: int | None = Field(None, ge=1, description="at most so many; None is all")
    test_pictures: int | None = Field(None, ge=1, description="at most so many; None is all")
    # proposals and regions
    anchors: tuple[int, ...] = Field((32, 64, 128, 256, 512), description="a side for each level; all at once for C4")
    before_nms: tuple[int, int] = Field((2000, 1000), description="proposals a level, training and test")
    proposals: tuple[int, int] = Field((1000, 1000), description="after suppression, training and test")
    anchor_sample: int = Field(256, ge=1, description="anchors a picture that the proposals' loss sees")
    region_sample: int = Field(512, ge=1, description="regions a picture that the box loss sees")
    score_threshold: float = Field(0.05, ge=0, lt=1)
    detections: int = Field(100, ge=1, description="at most so many a picture")
    # schedule
    steps: int = Field(90000, ge=1)
    batch_size: int = Field(16, ge=1, description="pictures a step")
    lr: float = Field(0.02, gt=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(1e-4, ge=0)
    milestones: tuple[int, ...] = Field((60000, 80000), description="steps after which lr is multiplied by gamma")
    gamma: float = Field(0.1, gt=0, le=1)
    warmup_steps: int = Field(1000, ge=0, description="lr grows linearly over so many steps")
    warmup_from: float = Field(1e-3, gt=0, le=1, description="share of lr at the first step")
    repeat_threshold: float = Field(0.0, ge=0, description="classes of a smaller share are shown more often (LVIS)")
    # score
    draws: int = Field(200, ge=2, description="samples of the test pictures behind an interval")


class Speech(FrozenModel):
    """How waveforms become log-mel spectrograms, and how random views of these are made."""

    rate: int = Field(16_000, ge=1000, description="samples a second")
    window: int = Field(2048, ge=16, description="samples of a Fourier window")
    hop: int = Field(2360, ge=1, description="samples between frames")
    mels: int = Field(64, ge=1, description="bands")
    mean: float = Field(-22.924, description="decibels that pre-training's views are centred by")
    std: float = Field(12.587, gt=0, description="decibels that they are divided by")
    frequency_mask: int = Field(39, ge=0, description="bands of the widest mask")
    time_mask: int = Field(39, ge=0, description="frames of the widest mask")
    noise: float = Field(0.25, ge=0, description="Gaussian noise, in deviations of the spectrogram")


class Text(FrozenModel):
    """How sentences are read and embedded; without ``model``, by a small BERT from scratch over hashed words."""

    model: str = Field("", description="folder of weights and tokenizer, by name below <data>/models, or a path")
    layers: int | None = Field(None, ge=1, description="first layers that are kept; None is all, from scratch 2")
    width: int = Field(64, ge=2, description="of the network from scratch")
    heads: int = Field(2, ge=1, description="of the network from scratch")
    vocabulary: int = Field(8192, ge=4, description="hashed words of the network from scratch, special ones included")
    dropout: float = Field(0.1, ge=0, lt=1, description="of hidden states and attention")
    pooling: Literal["cls", "mean"] = Field("cls", description="first token, or mean over tokens")
    length: int = Field(32, ge=3, description="tokens of a training view, special ones included")
    plain_length: int = Field(128, ge=3, description="tokens of the view that evaluation sees")
    deletion: float = Field(0.0, ge=0, lt=1, description="share of words that a random view leaves out")


class Start(FrozenModel):
    """The encoders that training begins with: those of a row with these settings, after so many epochs of its own."""

    method: str
    epochs: int = Field(ge=1)


class Weights(FrozenModel):
    """A file of weights that the backbones of pictures begin with: timm's, torchvision's or another trainer's.

    Its content decides a run, and not where it lies. Its first 16 digits of SHA-256 are taken when they are not given.
    """

    file: str
    sha256: str = ""

    @model_validator(mode="after")
    def _with_content(self) -> Weights:
        if not self.sha256:
            vars(self)["sha256"] = files.content_hash(Path(self.file))
        return self


class Settings(FrozenModel):
    """Protocol of one run."""

    # data
    train_images: int | None = Field(None, ge=2, description="at most so many images for pre-training; None is all")
    test_images: int | None = Field(None, ge=1, description="at most so many test images; None is all")
    image_size: int = Field(224, ge=8, description="side of an augmented view in pixels")
    augmentation: str = Field("instdisc", description="name in contrastlab.pictures.augmentations.AUGMENTATIONS")
    # encoder
    arch: str = Field("resnet18", description="name in contrastlab.encoders.ARCHITECTURES, timm:…, or one of your own")
    arch_options: dict[str, Any] = Field(default_factory=dict, description="of timm:…, torchvision:… and your own")
    stem: Literal["imagenet", "cifar"] = "imagenet"
    head: Literal["linear", "mlp", "mlp3", "moco_v3"] = "linear"
    dim: int = Field(128, ge=2, description="dimension of the unit embedding")
    width: float = Field(1.0, gt=0, description="factor on the channels of the encoder")
    sync_batch_norm: bool = Field(False, description="batch statistics over all processes that train together")
    text: Text = Text()
    speech: Speech = Speech()
    start: Start | None = Field(None, description="another run of the same seed to start from; None: none")
    weights: Weights | None = Field(None, description="a file of weights to start from; None: none")
    # optimiser
    optimiser: Optimiser = Optimiser()
    epochs: int = Field(300, ge=1)
    batch_size: int = Field(256, ge=2)
    accumulate: int = Field(1, ge=1, description="chunks of a batch that is larger than memory; batch-norm sees one")
    lr: float = Field(0.03, gt=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(1e-4, ge=0)
    # linear goes to 0 over all steps, warm-up included step by step; the others change by epochs
    schedule: Literal["constant", "steps", "cosine", "plateau", "linear"] = "steps"
    milestones: tuple[int, ...] = Field((200, 250), description="epochs after which lr is multiplied by gamma")
    gamma: float = Field(0.1, gt=0, le=1)
    patience: int = Field(10, ge=1, description="epochs without a better 1-NN accuracy before a plateau step")
    drops: int = Field(2, ge=0, description="how many plateau steps are taken at most")
    warmup_epochs: int = Field(0, ge=0)
    precision: Precision = "32-true"
    # method: choice.field -> value, applied where the recipe has such a choice and field
    overrides: dict[str, Any] = Field(default_factory=dict)
    # evaluation
    knn_every: int = Field(1, ge=0, description="epochs between 1-NN evaluations, and one after the last; 0: none")
    linear: LinearProbe = LinearProbe()
    transfer: TransferView = TransferView()
    layers: LayerProbe = LayerProbe()
    segmentation: SegmentationProbe = SegmentationProbe()
    action: ActionRecognition = ActionRecognition()
    boxes: Detector = Detector()
    masks: Detector = Detector()
    keypoints: Detector = Detector(before_nms=(2000, 1000), proposals=(1500, 1000))

    def override(self, *layers: Mapping[str, Any], **changes: Any) -> Settings:
        """A validated copy with ``layers`` applied one after the other, then ``changes``; what is nested is merged."""
        data = self.model_dump()
        for layer in (*layers, changes):
            for name, value in layer.items():
                old_value = data.get(name)
                if isinstance(old_value, dict) and isinstance(value, dict):
                    value = {**old_value, **value}
                data[name] = value
        try:
            return Settings.model_validate(data)
        except ValidationError as error:
            raise self._refusal(error) from error

    def _refusal(self, error: ValidationError) -> ArgumentError:
        """The first problem that pydantic found, in the words of this package."""
        first = error.errors()[0]
        location = first["loc"]
        name = ".".join(str(part) for part in location)
        if first["type"] == "extra_forbidden":
            holder: Any = self
            for part in location[:-1]:
                holder = getattr(holder, str(part))
            return ArgumentError(str(unknown("setting", name, type(holder).model_fields)))
        return reject(name, first["input"], first["msg"].removeprefix("Input should be "))

    def identity(self, trained: bool = True) -> dict[str, Any]:
        """What decides the encoders of a run: fields of training (``trained``: if any) that are not at their default.

        Defaults therefore never change, and a new field leaves every stored hash as it is. The recipe carries its own
        changes; how encoders are scored does not decide them.
        """
        changed = self.model_dump(mode="json", exclude_defaults=True)
        if self.weights is not None:
            changed["weights"] = self.weights.sha256
        if not trained:
            return {name: value for name, value in changed.items() if name in _UNTRAINED}
        left_out = _NOT_TRAINING
        if self.schedule == "plateau":  # the rate depends on the accuracy that is watched
            left_out = _NOT_TRAINING - {"knn_every", "test_images"}
        return {name: value for name, value in changed.items() if name not in left_out}


_NOT_TRAINING = {
    "test_images",
    "knn_every",
    "linear",
    "transfer",
    "layers",
    "segmentation",
    "action",
    "boxes",
    "masks",
    "keypoints",
    "overrides",
}
_UNTRAINED = {
    "image_size",
    "augmentation",
    "arch",
    "arch_options",
    "stem",
    "head",
    "dim",
    "width",
    "text",
    "speech",
    "weights",
}
