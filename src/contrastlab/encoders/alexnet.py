"""Half AlexNets: one of the two networks into which CMC cuts an AlexNet (CMC, Tables 10 and 11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from contrastlab.encoders.base import Stem, scaled
from contrastlab.errors import reject

HIDDEN = 2048
"""Units of fc6 and of fc7."""


@dataclass(frozen=True)
class Block:
    """A convolution with batch norm and ReLU, and max pooling over 3x3 with stride 2 where ``pool`` is set."""

    channels: int
    kernel: int
    stride: int
    padding: int
    pool: bool


TABLE_10 = (
    Block(48, 3, 1, 1, True), Block(96, 3, 1, 1, True), Block(192, 3, 1, 1, False), Block(192, 3, 1, 1, False),
    Block(96, 3, 1, 1, True),
)  # fmt: skip
TABLE_11 = (
    Block(48, 11, 4, 2, True), Block(128, 5, 1, 2, True), Block(192, 3, 1, 1, False), Block(192, 3, 1, 1, False),
    Block(128, 3, 1, 1, True),
)  # fmt: skip


class FullyConnected(nn.Sequential):
    """fc6 and fc7 with batch norm and ReLU, and fc8, on a map of one size.

    Args:
        channels: of the map.
        side: of the map.
        hidden: units of fc6 and fc7.
        dim: units of fc8.
        pixels: side of the views that give such a map.
    """

    def __init__(self, channels: int, side: int, hidden: int, dim: int, pixels: int) -> None:
        super().__init__()
        self.side, self.pixels = side, pixels
        self.add_module("fc6", _dense(channels * side * side, hidden))
        self.add_module("fc7", _dense(hidden, hidden))
        self.add_module("fc8", nn.Linear(hidden, dim))

    def forward(self, x: Tensor) -> Tensor:
        """``[B, channels, side, side]`` to ``[B, dim]``.

        Raises:
            ArgumentError: a map of another size.
        """
        if tuple(x.shape[2:]) != (self.side, self.side):
            raise reject(
                "image_size", f"one with a map of {' by '.join(map(str, x.shape[2:]))} behind conv5",
                f"{self.pixels}, with a map of {self.side} by {self.side}, for which fc6 is made",
            )  # fmt: skip
        result: Tensor = super().forward(x.flatten(1))
        return result


def _dense(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU(inplace=True))


class HalfAlexNet(nn.Sequential):
    """The five blocks ``conv1`` … ``conv5``; :meth:`fully_connected` is what comes behind them.

    Local response normalisation is gone and batch norm is in every layer, as CMC has it (appendix D.2).

    Args:
        in_channels: of the view.
        blocks: the layers.
        width: factor on all channels and units.
        side: of the map behind conv5.
        pixels: side of the views that give such a map.
    """

    def __init__(self, in_channels: int, blocks: Sequence[Block], width: float, side: int, pixels: int) -> None:
        super().__init__()
        self.side, self.pixels, self.hidden = side, pixels, scaled(HIDDEN, width)
        inputs = in_channels
        for number, block in enumerate(blocks, 1):
            outputs = scaled(block.channels, width)
            parts: list[nn.Module] = [
                nn.Conv2d(inputs, outputs, block.kernel, block.stride, block.padding, bias=False),
                nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
            ]  # fmt: skip
            self.add_module(f"conv{number}", nn.Sequential(*parts, *[nn.MaxPool2d(3, 2)] * block.pool))
            inputs = outputs
        self.channels = inputs

    def stages(self, x: Tensor) -> dict[str, Tensor]:
        """The map of each block by name."""
        out = {}
        for name, block in self.named_children():
            x = out[name] = block(x)
        return out

    def fully_connected(self, dim: int) -> FullyConnected:
        """New layers fc6, fc7 and fc8 with ``dim`` outputs."""
        return FullyConnected(self.channels, self.side, self.hidden, dim, self.pixels)


def half_alexnet64(in_channels: int, stem: Stem, width: float) -> tuple[nn.Module, int]:
    """CMC Table 10, for STL-10: views of 64 px, or of 32 px with the stem ``cifar``."""
    side, pixels = (7, 64) if stem == "imagenet" else (3, 32)
    network = HalfAlexNet(in_channels, TABLE_10, width, side, pixels)
    return network, network.channels


def half_alexnet(in_channels: int, stem: Stem, width: float) -> tuple[nn.Module, int]:
    """CMC Table 11, for ImageNet: views of 224 px; with the stem ``cifar`` of 32 px, with a 5x5 conv1 of stride 1."""
    small = (Block(48, 5, 1, 2, True), *TABLE_11[1:])
    blocks, side, pixels = (TABLE_11, 6, 224) if stem == "imagenet" else (small, 3, 32)
    network = HalfAlexNet(in_channels, blocks, width, side, pixels)
    return network, network.channels
