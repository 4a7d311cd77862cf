"""Convolutional networks for minutes on a CPU."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab.encoders.base import Stem, scaled


def convolution(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    """A convolution, its batch norm and a ReLU."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class _Residual(nn.Module):
    """``relu(x + f(x))`` with two 3x3 convolutions; the width does not change."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = convolution(channels, channels)
        self.second = nn.Sequential(nn.Conv2d(channels, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.second(self.first(x)), inplace=True)


def tiny(in_channels: int, stem: Stem, width: float) -> tuple[nn.Module, int]:
    """Four convolutions, for tests and smoke runs."""
    c = [scaled(k, width) for k in (16, 32, 64, 64)]
    first = convolution(in_channels, c[0], 3, 2) if stem == "cifar" else convolution(in_channels, c[0], 5, 4)
    layers = [convolution(c[k], c[k + 1], 3, 2 if k < 2 else 1) for k in range(3)]
    return nn.Sequential(first, *layers), c[3]


def small(in_channels: int, stem: Stem, width: float) -> tuple[nn.Module, int]:
    """For minutes on a CPU at 32 px: maps of 16, 8 and 4 px, residual where they are large.

    Chosen by training with labels on CIFAR-10 for equal processor time on one core: the best of eleven
    layouts after 60 s, then narrowed in its first half, which is faster and scored no worse (one seed).
    """
    c = [scaled(k, width) for k in (24, 64, 256)]
    first = convolution(in_channels, c[0], 3, 2) if stem == "cifar" else convolution(in_channels, c[0], 7, 4)
    layers = (first, _Residual(c[0]), convolution(c[0], c[1], 3, 2), _Residual(c[1]), convolution(c[1], c[2], 3, 2))
    return nn.Sequential(*layers), c[2]
