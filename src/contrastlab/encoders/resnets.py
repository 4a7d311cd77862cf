"""torchvision's ResNets for any number of input channels, small pictures and other widths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet

from contrastlab.encoders.base import Stem, scaled


class _ResNet(ResNet):  # type: ignore[misc]  # torchvision has no types
    """torchvision's ResNet without its classifier, optionally narrower behind the 64-channel stem."""

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

    def _make_layer(self, block: Any, planes: int, *args: Any, **kwargs: Any) -> nn.Sequential:
        layer: nn.Sequential = super()._make_layer(block, scaled(planes, self._factor), *args, **kwargs)
        return layer

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        result: Tensor = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return result


def resnet18(in_channels: int, stem: Stem, width: float) -> tuple[nn.Module, int]:
    """ResNet-18 before its pooling, and 512 features at width 1."""
    return _ResNet(BasicBlock, (2, 2, 2, 2), in_channels, stem, width), scaled(512, width)


def resnet50(in_channels: int, stem: Stem, width: float) -> tuple[nn.Module, int]:
    """ResNet-50 before its pooling, and 2,048 features at width 1."""
    return _ResNet(Bottleneck, (3, 4, 6, 3), in_channels, stem, width), 4 * scaled(512, width)
