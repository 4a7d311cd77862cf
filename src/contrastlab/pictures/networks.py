"""Networks for any number of input channels and any width, published ones as rows; and a decoder.

Where the published tables have local response norms, each layer has batch norm, as CMC's networks do (appendix D.2).
Convolutions that a norm follows have no bias. Vision transformers are those of MoCo v3 (Chen, Xie and He 2021):
timm's, with its names, so that stored ones load there; positions are fixed, the projection of patches is not trained.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet

from contrastlab.support.errors import check, import_extra, reject

Stem = Literal["imagenet", "cifar"]

Network = Callable[[int, Stem, float], nn.Module]
"""Input channels, stem and width to a backbone with its number of features as ``num_features``."""


def scaled(channels: int, width: float) -> int:
    """Channels of a layer at ``width`` times its usual number, at least one."""
    return max(1, round(channels * width))


def convolution(
    inputs: int, outputs: int, kernel: int = 3, stride: int = 1, padding: int | None = None, groups: int = 1
) -> nn.Sequential:
    """A convolution, its batch norm and a ReLU; ``padding`` is half the kernel, unless said otherwise."""
    if padding is None:
        padding = kernel // 2
    layer = nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


class _Residual(nn.Module):
    """``relu(x + f(x))`` with two 3x3 convolutions; the width does not change."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = convolution(channels, channels)
        self.second = nn.Sequential(
            nn.Conv2d(channels, channels, 3, 1, 1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.second(self.first(x)), inplace=True)


class Tiny(nn.Sequential):
    """Four convolutions, for tests and smoke runs."""

    def __init__(self, in_channels: int, stem: Stem, width: float) -> None:
        first, second, third = (scaled(channels, width) for channels in (16, 32, 64))
        kernel, stride = (3, 2) if stem == "cifar" else (5, 4)
        super().__init__(
            convolution(in_channels, first, kernel, stride),
            convolution(first, second, stride=2),
            convolution(second, third, stride=2),
            convolution(third, third),
        )
        self.num_features = third


class Small(nn.Sequential):
    """For minutes on a CPU at 32 px: maps of 16, 8 and 4 px, residual where they are large.

    The best of eleven layouts after 60 s of training with labels on CIFAR-10 on one core, narrowed in its first half.
    """

    def __init__(self, in_channels: int, stem: Stem, width: float) -> None:
        first, second, third = (scaled(channels, width) for channels in (24, 64, 256))
        kernel, stride = (3, 2) if stem == "cifar" else (7, 4)
        super().__init__(
            convolution(in_channels, first, kernel, stride),
            _Residual(first),
            convolution(first, second, stride=2),
            _Residual(second),
            convolution(second, third, stride=2),
        )
        self.num_features = third


class _ResNet(ResNet):  # type: ignore[misc]  # torchvision has no types
    """torchvision's ResNet before its pooling, optionally narrower behind the 64-channel stem."""

    def __init__(self, block: Any, layers: Sequence[int], in_channels: int, stem: Stem, width: float) -> None:
        self._factor = width
        super().__init__(block, list(layers), num_classes=1)
        if stem == "cifar":
            self.conv1 = nn.Conv2d(in_channels, 64, 3, 1, 1, bias=False)
            self.maxpool = nn.Identity()
        elif in_channels != 3:
            self.conv1 = nn.Conv2d(in_channels, 64, 7, 2, 3, bias=False)
        nn.init.kaiming_normal_(self.conv1.weight, mode="fan_out", nonlinearity="relu")
        del self.fc, self.avgpool
        self.num_features = block.expansion * scaled(512, width)

    def _make_layer(self, block: Any, planes: int, *args: Any, **kwargs: Any) -> nn.Sequential:
        return super()._make_layer(block, scaled(planes, self._factor), *args, **kwargs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.maxpool(x)
        x = self.layer1(x)
        x = self.layer2(x)
        x = self.layer3(x)
        return self.layer4(x)


# CMC's networks, published as tables of layers ------------------------------------------------------------------------


class Block(NamedTuple):
    """A convolution with batch norm and ReLU, and max pooling over 3x3 with stride 2 where ``pool`` is set."""

    channels: int
    kernel: int = 3
    stride: int = 1
    padding: int = 1
    pool: bool = False


TABLE_10 = (
    Block(48, pool=True),
    Block(96, pool=True),
    Block(192),
    Block(192),
    Block(96, pool=True),
)
"""CMC, for STL-10: views of 64 px."""
TABLE_11 = (
    Block(48, 11, 4, 2, pool=True),
    Block(128, 5, 1, 2, pool=True),
    Block(192),
    Block(192),
    Block(128, pool=True),
)
"""CMC, for ImageNet: views of 224 px."""
TABLE_12 = {
    "conv1": Block(64, 8, 2, 3),
    "pool1": None,
    "conv2": Block(128, 4, 2, 1),
    "conv3": Block(256, 4, 2, 1),
    "conv4": Block(256, 3, 1, 1),
    "conv5": Block(512, 4, 2, 1),
}
"""CMC, for one channel of a scene: name to convolution, or ``None`` for max pooling over 2x2."""


class Stages(nn.Sequential):
    """Named blocks, one after the other; ``width`` is a factor on all channels.

    Attributes:
        num_features: channels of the last map.
        stage_channels: of the map of each block.
    """

    def __init__(self, in_channels: int, blocks: Mapping[str, Block | None], width: float) -> None:
        super().__init__()
        self.width = width
        self.num_features = in_channels
        self.stage_channels: dict[str, int] = {}
        for name, block in blocks.items():
            self.add_module(name, self._layers(block))
            self.stage_channels[name] = self.num_features

    def _layers(self, block: Block | None) -> nn.Module:
        """The layers of a block, behind those that are there already."""
        if block is None:
            return nn.MaxPool2d(2, 2)
        outputs = scaled(block.channels, self.width)
        layers = convolution(self.num_features, outputs, block.kernel, block.stride, block.padding)
        if block.pool:
            layers.append(nn.MaxPool2d(3, 2))
        self.num_features = outputs
        return layers

    def stages(self, x: Tensor) -> dict[str, Tensor]:
        """The map of each block by name."""
        maps = {}
        for name, block in self.named_children():
            x = block(x)
            maps[name] = x
        return maps


class FullyConnected(nn.Sequential):
    """fc6 and fc7 with batch norm and ReLU, and fc8, on a map of ``side``, which views of ``pixels`` give."""

    def __init__(self, channels: int, side: int, hidden: int, dim: int, pixels: int) -> None:
        layers = OrderedDict(
            fc6=_dense(channels * side * side, hidden),
            fc7=_dense(hidden, hidden),
            fc8=nn.Linear(hidden, dim),
        )
        super().__init__(layers)
        self.side = side
        self.pixels = pixels

    def forward(self, x: Tensor) -> Tensor:
        """``[B, channels, side, side]`` to ``[B, dim]``."""
        height, width = x.shape[2:]
        if height != self.side or width != self.side:
            actual = f"one with a map of {height} by {width} behind conv5"
            raise reject("image_size", actual, f"{self.pixels}, with a map of {self.side} by {self.side} for fc6")
        return super().forward(x.flatten(1))


def _dense(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU(inplace=True))


Half = tuple[Sequence[Block], int, int]
"""Blocks, the side of the map behind conv5, and the pixels of the views that give it."""


class HalfAlexNet(Stages):
    """One of the two halves into which CMC cuts an AlexNet: ``large`` with the stem ``imagenet``, else ``small``."""

    def __init__(self, large: Half, small: Half, in_channels: int, stem: Stem, width: float) -> None:
        blocks, side, pixels = large if stem == "imagenet" else small
        named_blocks = {f"conv{number}": block for number, block in enumerate(blocks, 1)}
        super().__init__(in_channels, named_blocks, width)
        self.side = side
        self.pixels = pixels

    def fully_connected(self, dim: int) -> FullyConnected:
        """New layers fc6, fc7 and fc8 with ``dim`` outputs."""
        hidden = scaled(2048, self.width)
        return FullyConnected(self.num_features, self.side, hidden, dim, self.pixels)


class SceneNet(Stages):
    """Blocks conv1 to conv5 of Table 12, whatever the stem, and :meth:`fully_connected` layers."""

    def __init__(self, in_channels: int, stem: Stem, width: float) -> None:
        super().__init__(in_channels, TABLE_12, width)

    def fully_connected(self, dim: int) -> nn.Module:
        """fc6 and fc7, which read the map of conv5; for other than 128 px it is brought to 4x4 first."""
        hidden = scaled(512, self.width)
        layers = OrderedDict(
            resize=nn.AdaptiveAvgPool2d(4),
            fc6=convolution(self.num_features, hidden, kernel=4, padding=0),
            fc7=nn.Conv2d(hidden, dim, 1),
            flatten=nn.Flatten(),
        )
        return nn.Sequential(layers)


class CaffeNet(nn.Module):
    """Five convolutions, and fc6 as a convolution over all that pool5 leaves: 4,096 features ``[B, F, 1, 1]``.

    For frames and for stacked flow. Layers, kernels, strides, groups and the pooling before the norm are those of
    Caffe's reference network (Jia et al. 2014; CMC, section E.3); it rounds the sizes of its poolings up, and so do
    these, which is why 224 and 227 pixels both end in 6 × 6. A larger picture gives a map of fc6. The stem ``imagenet``
    is CaffeNet's (kernel 11, stride 4); ``cifar`` (kernel 5, stride 1) is for 32 pixels, of which pool5 leaves 4 × 4.
    """

    def __init__(self, in_channels: int, stem: Stem, width: float) -> None:
        super().__init__()
        # two groups need even numbers of channels
        conv1, conv2, conv3, conv4, conv5 = (2 * scaled(half, width) for half in (48, 128, 192, 192, 128))
        kernel, stride, padding = (11, 4, 0) if stem == "imagenet" else (5, 1, 2)
        self.convolutions = nn.Sequential(
            *convolution(in_channels, conv1, kernel, stride, padding),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            *convolution(conv1, conv2, 5, groups=2),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            *convolution(conv2, conv3),
            *convolution(conv3, conv4, groups=2),
            *convolution(conv4, conv5, groups=2),
            nn.MaxPool2d(3, 2, ceil_mode=True),
        )
        self.num_features = scaled(4096, width)
        side = 6 if stem == "imagenet" else 4
        fc6 = convolution(conv5, self.num_features, kernel=side, padding=0)
        self.fc6 = nn.Sequential(*fc6, nn.Dropout(0.5))

    def forward(self, x: Tensor) -> Tensor:
        """``[B, C, H, W]`` to ``[B, F, h, w]``, one position at 224, 227 or (``cifar``) 32 pixels."""
        return self.fc6(self.convolutions(x))


# Vision transformers --------------------------------------------------------------------------------------------------


def positions(dim: int, grid: int) -> Tensor:
    """Float32 ``[1, 1 + grid², dim]``: sines and cosines of each patch's column and row; zeros for the class token.

    For each patch sin and cos of its column, then of its row, over dim/4 frequencies from 1 down to 10⁻⁴.
    """
    check(dim % 4 == 0, "dim", dim, "a multiple of four")
    exponent = torch.arange(dim // 4, dtype=torch.float64) / (dim // 4)
    frequency = 10_000**-exponent
    axis = torch.arange(grid).double()
    rows, columns = torch.cartesian_prod(axis, axis).unbind(1)
    row_angle = rows[:, None] * frequency
    column_angle = columns[:, None] * frequency
    patches = torch.cat([column_angle.sin(), column_angle.cos(), row_angle.sin(), row_angle.cos()], 1)
    class_token = torch.zeros(1, dim)
    return torch.cat([class_token, patches.float()])[None]


def _start_as_moco_v3(vit: Any, dim: int, grid: int) -> None:
    """Give a vision transformer fixed positions, and a projection of patches that is drawn and not trained."""
    projection = vit.patch_embed.proj
    fan_in = projection.weight[0].numel()
    bound = math.sqrt(6 / (fan_in + dim))
    nn.init.uniform_(projection.weight, -bound, bound)
    nn.init.zeros_(projection.bias)
    nn.init.normal_(vit.cls_token, std=1e-6)
    vit.pos_embed = nn.Parameter(positions(dim, grid), requires_grad=False)
    vit.patch_embed.requires_grad_(False)


@lru_cache(maxsize=1)
def _vit_class() -> type[nn.Module]:
    timm = import_extra("timm.models.vision_transformer", "vit")

    class ViT(timm.VisionTransformer):  # type: ignore[misc,name-defined]
        """timm's, with MoCo v3's start; gives a map of patches, or pooled the class token."""

        initialises_itself = True

        def __init__(self, in_channels: int, side: int, patch: int, dim: int, depth: int, heads: int) -> None:
            super().__init__(
                side,
                patch,
                in_channels,
                num_classes=0,
                embed_dim=dim,
                depth=depth,
                num_heads=heads,
                dynamic_img_size=True,
                weight_init="moco",
            )
            self.patch = patch
            grid = side // patch
            if grid**2 < 64:  # for 16 patches a fused kernel's backward took two thirds of a step on a CPU
                for block in self.blocks:
                    block.attn.fused_attn = False
            _start_as_moco_v3(self, dim, grid)

        def _tokens(self, x: Tensor) -> Tensor:
            if x.shape[2] % self.patch or x.shape[3] % self.patch:
                raise reject("image_size", tuple(x.shape[2:]), f"sides that are multiples of {self.patch}")
            return self.forward_features(x)

        def forward(self, x: Tensor) -> Tensor:
            """Images ``[B, C, H, W]`` to the map of patches ``[B, D, H/p, W/p]``."""
            rows = x.shape[2] // self.patch
            columns = x.shape[3] // self.patch
            patches = self._tokens(x)[:, 1:]
            return patches.transpose(1, 2).reshape(len(x), -1, rows, columns)

        def pooled(self, x: Tensor) -> Tensor:
            """Images ``[B, C, H, W]`` to the class token ``[B, D]``."""
            return self._tokens(x)[:, 0]

    return ViT


def _vit(
    side: int, patch: int, dim: int, depth: int, heads: int, in_channels: int, stem: Stem, width: float
) -> nn.Module:
    multiple = 4 * heads
    scaled_dim = multiple * scaled(dim // multiple, width)
    return _vit_class()(in_channels, side, patch, scaled_dim, depth, heads)


# with the stem "cifar" for views of 32 px, and Table 11 then with a 5x5 conv1 of stride 1
_SMALL_TABLE_11 = (Block(48, 5, 1, 2, pool=True), *TABLE_11[1:])

ARCHITECTURES: Mapping[str, Network] = MappingProxyType(
    {
        "tiny": Tiny,
        "small": Small,
        "resnet18": partial(_ResNet, BasicBlock, (2, 2, 2, 2)),
        "resnet50": partial(_ResNet, Bottleneck, (3, 4, 6, 3)),
        "half_alexnet": partial(HalfAlexNet, (TABLE_11, 6, 224), (_SMALL_TABLE_11, 3, 32)),
        "half_alexnet64": partial(HalfAlexNet, (TABLE_10, 7, 64), (TABLE_10, 3, 32)),
        "scene": SceneNet,
        "caffenet": CaffeNet,
        # MoCo v3's ViT-S: 12 blocks, 12 heads, 384 features, patches of 16 pixels; with 6 blocks, as fmicl has it
        "vit_small": partial(_vit, 224, 16, 384, 12, 12),
        "vit_small_6": partial(_vit, 224, 16, 384, 6, 12),
        # 16 tokens at 32 pixels, for minutes on a CPU; smaller, for tests and smoke runs
        "vit_mini": partial(_vit, 32, 8, 192, 6, 6),
        "vit_nano": partial(_vit, 32, 8, 64, 2, 4),
    }
)
"""Name to network."""


class Decoder(nn.Module):
    """The other half of a U-Net: upsampling, joining the encoder's next finer map, a convolution; and so on.

    Source: Ronneberger et al. 2015. ``channels`` are those of the encoder's maps, from the finest to the coarsest;
    ``width`` is at the finest map, and doubles with each coarser one, to at most eight times as many. Without ``skips``
    only the coarsest map is read, so that everything passes through it.
    """

    def __init__(self, channels: Mapping[str, int], outputs: int, width: int, *, skips: bool = True) -> None:
        super().__init__()
        self.skips = skips
        self.blocks = nn.ModuleDict()
        fine_to_coarse = list(channels)
        inputs = channels[fine_to_coarse[-1]]
        for level in reversed(range(len(channels) - 1)):
            name = fine_to_coarse[level]
            if skips:
                inputs += channels[name]
            outputs_here = width * min(8, 2**level)
            self.blocks[name] = convolution(inputs, outputs_here)
            inputs = outputs_here
        self.head = nn.Conv2d(inputs, outputs, 3, 1, 1)

    def forward(self, maps: Mapping[str, Tensor], size: Sequence[int]) -> Tensor:
        """Output ``[B, outputs, *size]`` from ``maps``, each ``[B, C, h, w]``, which lead to it from coarse to fine."""
        x = list(maps.values())[-1]
        for name, block in self.blocks.items():
            finer = maps[name]
            if x.shape[2:] != finer.shape[2:]:
                x = F.interpolate(x, size=finer.shape[2:], mode="bilinear", align_corners=False)
            if self.skips:
                x = torch.cat([x, finer], 1)
            x = block(x)
        return F.interpolate(self.head(x), size=list(size), mode="bilinear", align_corners=False)
