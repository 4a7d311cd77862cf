"""CaffeNet, for frames and for stacked flow (Jia et al. 2014; CMC, section E.3)."""

from __future__ import annotations

from torch import Tensor, nn

from contrastlab.encoders.base import Stem, scaled


def _block(
    inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int = 0, groups: int = 1
) -> list[nn.Module]:  # fmt: skip
    return [
        nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False), nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    ]  # fmt: skip


class CaffeNet(nn.Module):
    """Five convolutions, and fc6 as a convolution over all that pool5 leaves: features ``[B, F, 1, 1]``.

    Layers, kernels, strides, groups and the pooling before the norm are those of Caffe's reference network; it rounds
    the sizes of its poolings up, and so do these, which is why 224 and 227 pixels both end in 6 × 6. In place of local
    response norms each layer has a batch norm, as CMC's AlexNets have. A larger picture gives a map of fc6.

    Args:
        in_channels: 3 of a frame, 2L of L flows.
        stem: ``"imagenet"`` is CaffeNet's (kernel 11, stride 4); ``"cifar"`` (kernel 5, stride 1) is for 32 pixels,
            of which pool5 leaves 4 × 4.
        width: factor on all channels.
        dropout: of fc6.

    Attributes:
        convolutions: conv1 to pool5.
        fc6: with its norm, ReLU and dropout.
    """

    def __init__(self, in_channels: int, stem: Stem, width: float, dropout: float = 0.5) -> None:
        super().__init__()
        # two groups need even numbers of channels
        c = [2 * scaled(k, width) for k in (48, 128, 192, 192, 128)]
        first = _block(in_channels, c[0], 11, 4) if stem == "imagenet" else _block(in_channels, c[0], 5, 1, 2)
        self.convolutions = nn.Sequential(
            *first, nn.MaxPool2d(3, 2, ceil_mode=True),
            *_block(c[0], c[1], 5, 1, 2, groups=2), nn.MaxPool2d(3, 2, ceil_mode=True),
            *_block(c[1], c[2], 3, 1, 1), *_block(c[2], c[3], 3, 1, 1, groups=2),
            *_block(c[3], c[4], 3, 1, 1, groups=2), nn.MaxPool2d(3, 2, ceil_mode=True),
        )  # fmt: skip
        self.features = scaled(4096, width)
        self.fc6 = nn.Sequential(*_block(c[4], self.features, 6 if stem == "imagenet" else 4), nn.Dropout(dropout))

    def forward(self, x: Tensor) -> Tensor:
        """``[B, C, H, W]`` to ``[B, F, h, w]``, one position at 224, 227 or (``cifar``) 32 pixels."""
        out: Tensor = self.fc6(self.convolutions(x))
        return out


def caffenet(in_channels: int, stem: Stem, width: float) -> tuple[nn.Module, int]:
    """CaffeNet up to fc6: 4,096 features at width 1, and 1,024 at a quarter of it, which is for minutes on a CPU."""
    network = CaffeNet(in_channels, stem, width)
    return network, network.features
