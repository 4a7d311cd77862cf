"""The network of CMC's Table 12: five convolutions and two fully connected layers, for one channel of a scene."""

from __future__ import annotations

from torch import Tensor, nn

from contrastlab.encoders.base import Stem, scaled

CHANNELS = {"conv1": 64, "pool1": 64, "conv2": 128, "conv3": 256, "conv4": 256, "conv5": 512}
"""Channels that each block gives at width 1."""


def _block(inputs: int, outputs: int, kernel: int, stride: int, padding: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


class SceneNet(nn.Module):
    """Blocks conv1 to conv5 of Table 12; the table has no normalisation, here each has batch norm (released AlexNet).

    Args:
        in_channels: 1 for L, depth and labels, 2 for ab, 3 for normals.
        width: factor on the channels, those of fc6, too.
    """

    def __init__(self, in_channels: int, width: float) -> None:
        super().__init__()
        self.width = width
        self.stage_channels = {name: scaled(c, width) for name, c in CHANNELS.items()}
        c = self.stage_channels
        self.conv1 = _block(in_channels, c["conv1"], 8, 2, 3)
        self.pool1 = nn.MaxPool2d(2, 2)
        self.conv2 = _block(c["pool1"], c["conv2"], 4, 2, 1)
        self.conv3 = _block(c["conv2"], c["conv3"], 4, 2, 1)
        self.conv4 = _block(c["conv3"], c["conv4"], 3, 1, 1)
        self.conv5 = _block(c["conv4"], c["conv5"], 4, 2, 1)

    def stages(self, x: Tensor) -> dict[str, Tensor]:
        """The map of each block by name."""
        out = {}
        for name in CHANNELS:
            x = out[name] = self.get_submodule(name)(x)
        return out

    def forward(self, x: Tensor) -> Tensor:
        """The map of conv5."""
        last: Tensor = self.stages(x)["conv5"]
        return last

    def fully_connected(self, dim: int) -> nn.Module:
        """fc6 and fc7, which read the map of conv5; for other than 128 px it is brought to 4x4 first."""
        inputs, hidden = self.stage_channels["conv5"], scaled(512, self.width)
        layers = {
            "resize": nn.AdaptiveAvgPool2d(4), "fc6": _block(inputs, hidden, 4, 1, 0), "fc7": nn.Conv2d(hidden, dim, 1),
            "flatten": nn.Flatten(),
        }  # fmt: skip
        out = nn.Sequential()
        for name, layer in layers.items():
            out.add_module(name, layer)
        return out


def scene(in_channels: int, stem: Stem, width: float) -> tuple[nn.Module, int]:
    """Table 12 before its fully connected layers, and 512 features at width 1; there is one stem only."""
    net = SceneNet(in_channels, width)
    return net, net.stage_channels["conv5"]
