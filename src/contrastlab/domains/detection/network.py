"""torchvision's R-CNNs on encoders of this package: a pyramid on four stages, or the third stage alone (C4).

What differs from Detectron2, whose defaults the settings are, and cannot be set in torchvision: box losses are smooth
L1 with β = 1/9 (there L1), regions are sampled at half-pixel shifted positions with two points a bin (there aligned,
with as many points as the region has pixels).
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torchvision.models._utils import IntermediateLayerGetter
from torchvision.models.detection import FasterRCNN, KeypointRCNN, MaskRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.models.detection.keypoint_rcnn import KeypointRCNNHeads, KeypointRCNNPredictor
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
from torchvision.models.detection.transform import GeneralizedRCNNTransform
from torchvision.models.resnet import Bottleneck, ResNet
from torchvision.ops import FeaturePyramidNetwork, FrozenBatchNorm2d, MultiScaleRoIAlign
from torchvision.ops.feature_pyramid_network import LastLevelMaxPool

from contrastlab.pictures.encoder import Encoder
from contrastlab.pictures.fitting import Pooled
from contrastlab.settings import Detector
from contrastlab.support.errors import NotApplicableError
from contrastlab.views import Augmentation, Split, Views

Kind = Literal["boxes", "masks", "keypoints"]
C4Head = Literal["published", "new", "layer4"]
STAGES = ("layer1", "layer2", "layer3", "layer4")
_MEAN = (0.485, 0.456, 0.406)
_STD = (0.229, 0.224, 0.225)


def freeze_batch_norm(module: nn.Module) -> nn.Module:
    """The module with every batch-norm replaced by constants: its weight, bias, running mean and variance."""
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):
            fixed = FrozenBatchNorm2d(child.num_features, eps=child.eps)
            for key in ("weight", "bias", "running_mean", "running_var"):
                getattr(fixed, key).copy_(getattr(child, key).detach())
            setattr(module, name, fixed)
        else:
            freeze_batch_norm(child)
    return module


def residual_network(encoder: nn.Module) -> ResNet:
    """A copy of an encoder's backbone, which must have four stages."""
    backbone = encoder.backbone if isinstance(encoder, Encoder) else encoder
    parts = ("conv1", "bn1", "relu", "maxpool", *STAGES)
    if not all(hasattr(backbone, part) for part in parts):
        kind = type(backbone).__name__
        raise NotApplicableError(f"a detector needs an encoder of four stages (a ResNet); this one is a {kind}")
    return copy.deepcopy(backbone)


def stage_channels(network: ResNet, stage: str) -> int:
    """Channels of a stage's map."""
    modules = getattr(network, stage).modules()
    convolutions = [module for module in modules if isinstance(module, nn.Conv2d)]
    return int(convolutions[-1].out_channels)


def all_channels(networks: Sequence[ResNet], stage: str) -> int:
    """Channels of a stage's maps of all networks, side by side."""
    return sum(stage_channels(network, stage) for network in networks)


class Stages(nn.Module):
    """Maps of some ``stages`` of one or two encoders, side by side; without ``trained`` no tensor changes."""

    def __init__(
        self,
        networks: Sequence[ResNet],
        channels: Sequence[int],
        stages: Sequence[str],
        *,
        trained: bool,
        batch_norm: bool,
    ) -> None:
        super().__init__()
        self.channels = list(channels)
        self.frozen = not trained
        names = {stage: str(k) for k, stage in enumerate(stages)}
        parts: list[nn.Module] = [IntermediateLayerGetter(network, names) for network in networks]
        if not batch_norm:
            parts = [freeze_batch_norm(part) for part in parts]
        self.networks = nn.ModuleList(parts)
        self.networks.requires_grad_(trained)

    def train(self, mode: bool = True) -> Stages:
        return super().train(mode and not self.frozen)

    def forward(self, x: Tensor) -> OrderedDict[str, Tensor]:
        """Maps by number from 0, as torchvision names them: ``[B, sum of C, h, w]``."""
        shares = x.split(self.channels, 1)
        by_network = [network(share) for network, share in zip(self.networks, shares, strict=True)]
        if len(by_network) == 1:
            return by_network[0]
        side_by_side = OrderedDict()
        for stage in by_network[0]:
            maps = [stages[stage] for stages in by_network]
            side_by_side[stage] = torch.cat(maps, 1)
        return side_by_side


class _Fifth(Bottleneck):  # type: ignore[misc]  # torchvision has no types
    expansion = 1  # as wide in its middle as at its ends


def fifth_stage(network: ResNet, how: C4Head = "published") -> nn.Module:
    """The region head of C4: what Detectron2's ``Res5ROIHeads`` makes of a checkpoint.

    Detectron2 always builds bottlenecks, for ``DEPTH: 18`` three with 512 channels at their ends and in their middle.
    ResNet-18's own last stage is two basic blocks. The loader of converted checkpoints compares endings of names and
    copies every tensor whose shape agrees, with a warning for the others: the 3x3 middles of the first two blocks, the
    shortcut, and batch-norms that belong to other convolutions. The other 1x1 convolutions and the third block stay
    new, under batch-norms frozen at mean 0 and variance 1. For networks of bottlenecks all tensors agree.

    That is ``published``; ``new`` copies nothing, and ``layer4`` is the network's own stage.
    """
    last_stage: Any = network.layer4
    if how == "layer4":
        return last_stage
    if how == "published" and isinstance(last_stage[0], Bottleneck):
        return last_stage
    head = _new_fifth_stage(network)
    if how == "published":
        weights = last_stage.state_dict()
        agreeing = {name: weights[name] for name in filled_by_loader(last_stage, head)}
        head.load_state_dict(agreeing, strict=False)
    return head


def _new_fifth_stage(network: ResNet) -> nn.Module:
    """Three bottlenecks with new weights, from the channels of the third stage to those of the last."""
    inputs = stage_channels(network, "layer3")
    outputs = stage_channels(network, "layer4")
    shortcut = nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel_size=1, stride=2, bias=False),
        nn.BatchNorm2d(outputs),
    )
    head = nn.Sequential(
        _Fifth(inputs, outputs, stride=2, downsample=shortcut),
        _Fifth(outputs, outputs),
        _Fifth(outputs, outputs),
    )
    for module in head.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return head


def filled_by_loader(own: nn.Module, head: nn.Module) -> tuple[str, ...]:
    """Names of a region head's tensors that agree in name and shape with those of a network's last stage."""
    weights = own.state_dict()
    names = []
    for name, tensor in head.state_dict().items():
        if name.endswith("num_batches_tracked") or name not in weights:
            continue
        if weights[name].shape == tensor.shape:
            names.append(name)
    return tuple(names)


class _SideBySide(nn.Module):
    """The last stages of several encoders, each on its share of the channels."""

    def __init__(self, stages: Sequence[nn.Module], channels: Sequence[int]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(stages)
        self.channels = list(channels)

    def forward(self, x: Tensor) -> Tensor:
        shares = x.split(self.channels, 1)
        maps = [part(share) for part, share in zip(self.parts, shares, strict=True)]
        return torch.cat(maps, 1)


AS_THEY_ARE: Any = SimpleNamespace(plain=lambda batch: batch, normalise=lambda view: view)
"""The augmentation that changes nothing: pictures are floats from 0 to 1 already."""


class _Pictures(GeneralizedRCNNTransform):  # type: ignore[misc]  # torchvision has no types
    """Resizing and batching: sides drawn in training are others than the side of the test.

    With a colour split a picture becomes what the streams' encoders read, in place of being normalised.
    """

    def __init__(self, shorter: Sequence[int], split: Split | None, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.shorter = list(shorter)
        self.split = split

    def torch_choice(self, k: list[int]) -> int:
        return int(super().torch_choice(self.shorter))

    def normalize(self, image: Tensor) -> Tensor:
        if self.split is None:
            return super().normalize(image)
        streams = self.split.plain(image[None], AS_THEY_ARE)
        return torch.cat(streams, 1)[0]


@dataclass(frozen=True)
class _Layout:
    """What of a detector depends on its backbone."""

    body: nn.Module
    pyramid: nn.Module
    channels: int
    arguments: dict[str, Any]  #: of torchvision's detector


def _layout(encoders: nn.ModuleList, settings: Detector, kind: Kind, classes: int, keypoints: int) -> _Layout:
    networks = [residual_network(encoder) for encoder in encoders]
    inputs = [int(encoder.in_channels) for encoder in encoders]  # type: ignore[arg-type]
    if sum(inputs) != 3:
        raise NotApplicableError(f"a detector sees colours; the encoders read {sum(inputs)} channel")
    stages = partial(Stages, networks, inputs, trained=settings.trained, batch_norm=settings.batch_norm)
    if settings.backbone == "fpn":
        pyramid = _pyramid(networks, settings)
        arguments = _pyramid_arguments(settings, kind, classes, keypoints)
        return _Layout(stages(STAGES), pyramid, settings.channels, arguments)
    if kind == "keypoints":
        raise NotApplicableError("Detectron2 has no keypoint detector on the third stage alone (C4): use the pyramid")
    arguments = _c4_arguments(networks, settings, kind, classes)  # before Stages lets go of the last stage
    channels = all_channels(networks, "layer3")
    return _Layout(stages(("layer3",)), nn.Identity(), channels, arguments)


_RATIOS = (0.5, 1.0, 2.0)
"""Of an anchor's height to its width."""


def _pyramid(networks: Sequence[Any], settings: Detector) -> FeaturePyramidNetwork:
    """The pyramid on four stages, whose channels are those of all networks side by side."""
    widths = [all_channels(networks, stage) for stage in STAGES]
    norm = nn.BatchNorm2d if settings.batch_norm else None
    return FeaturePyramidNetwork(widths, settings.channels, LastLevelMaxPool(), norm_layer=norm)


def _pyramid_arguments(settings: Detector, kind: Kind, classes: int, keypoints: int) -> dict[str, Any]:
    roi = partial(MultiScaleRoIAlign, ["0", "1", "2", "3"], sampling_ratio=2)
    anchor_sizes = tuple((size,) for size in settings.anchors)
    ratios = (_RATIOS,) * 5
    arguments = {
        "rpn_anchor_generator": AnchorGenerator(anchor_sizes, ratios),
        "box_roi_pool": roi(output_size=7),
        "box_head": TwoMLPHead(settings.channels * 49, settings.box_features),
        "box_predictor": FastRCNNPredictor(settings.box_features, classes),
    }
    if kind == "masks":
        last = settings.mask_layers[-1]
        arguments |= {
            "mask_roi_pool": roi(output_size=14),
            "mask_head": MaskRCNNHeads(settings.channels, settings.mask_layers, 1),
            "mask_predictor": MaskRCNNPredictor(last, last, classes),
        }
    if kind == "keypoints":
        layers = settings.keypoint_layers
        arguments |= {
            "keypoint_roi_pool": roi(output_size=14),
            "keypoint_head": KeypointRCNNHeads(settings.channels, layers),
            "keypoint_predictor": KeypointRCNNPredictor(layers[-1], keypoints),
        }
    return arguments


def _c4_arguments(networks: Sequence[Any], settings: Detector, kind: Kind, classes: int) -> dict[str, Any]:
    """The fifth stage is the head of boxes and of masks."""
    parts = [fifth_stage(network, settings.c4_head) for network in networks]
    if not settings.batch_norm:
        parts = [freeze_batch_norm(part) for part in parts]
    inputs = [stage_channels(network, "layer3") for network in networks]
    fifth = _SideBySide(parts, inputs)
    width = all_channels(networks, "layer4")
    roi = partial(MultiScaleRoIAlign, ["0"], output_size=14, sampling_ratio=2)
    arguments = {
        "rpn_anchor_generator": AnchorGenerator((settings.anchors,), (_RATIOS,)),
        "box_roi_pool": roi(),
        "box_head": nn.Sequential(OrderedDict(stage=fifth, pooled=Pooled())),
        "box_predictor": FastRCNNPredictor(width, classes),
    }
    if kind == "masks":  # the same stage, and no further convolution: Detectron2's masks of C4
        arguments |= {
            "mask_roi_pool": roi(),
            "mask_head": fifth,
            "mask_predictor": MaskRCNNPredictor(width, settings.mask_layers[-1], classes),
        }
    return arguments


def build(
    kind: Kind,
    encoders: nn.ModuleList,
    views: Views,
    augmentation: Augmentation,
    settings: Detector,
    *,
    classes: int,
    keypoints: int = 0,
) -> nn.Module:
    """Torchvision's Faster, Mask or Keypoint R-CNN on copies of encoders; new weights from torch's own generator.

    Two encoders (luminance and chrominance) give their maps side by side, as in the linear task. Mean and deviation are
    those of the ``augmentation`` of pre-training unless ``settings`` have others. ``classes`` are without the
    background, ``keypoints`` those of an object.
    """
    layout = _layout(encoders, settings, kind, classes + 1, keypoints)
    backbone: Any = nn.Sequential(OrderedDict(body=layout.body, fpn=layout.pyramid))
    backbone.out_channels = layout.channels
    mean = _from_zero_to_one(settings.pixel_mean, getattr(augmentation, "mean", _MEAN))
    std = _from_zero_to_one(settings.pixel_std, getattr(augmentation, "std", _STD))
    detector: nn.Module = _DETECTORS[kind](
        backbone,
        min_size=settings.test_shorter,
        max_size=settings.longest,
        image_mean=mean,
        image_std=std,
        rpn_pre_nms_top_n_train=settings.before_nms[0],
        rpn_pre_nms_top_n_test=settings.before_nms[1],
        rpn_post_nms_top_n_train=settings.proposals[0],
        rpn_post_nms_top_n_test=settings.proposals[1],
        rpn_batch_size_per_image=settings.anchor_sample,
        box_batch_size_per_image=settings.region_sample,
        box_score_thresh=settings.score_threshold,
        box_detections_per_img=settings.detections,
        **layout.arguments,
    )
    split = views if isinstance(views, Split) else None
    detector.transform = _Pictures(settings.shorter, split, settings.test_shorter, settings.longest, mean, std)
    return detector


_DETECTORS = {"boxes": FasterRCNN, "masks": MaskRCNN, "keypoints": KeypointRCNN}


def _from_zero_to_one(pixel_values: Sequence[float] | None, otherwise: Sequence[float]) -> list[float]:
    """Values of each channel: those of pixels from 0 to 255, divided by 255, or else others as they are."""
    if pixel_values is None:
        return list(otherwise)
    return [value / 255 for value in pixel_values]
