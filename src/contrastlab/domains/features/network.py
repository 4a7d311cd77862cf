"""The network that learns on features: two linear layers."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from contrastlab.pictures.encoder import Encoder
from contrastlab.support import errors

HIDDEN = 512
"""Units of the hidden layer at width 1."""


def build(*, in_channels: int, hidden: int = HIDDEN, dim: int = 128) -> Encoder:
    """A new encoder of features ``[B, F, 1, 1]``: F to ``hidden``, ReLU, ``hidden`` to ``dim``, and a unit norm.

    Probes read the ``dim`` numbers before the norm: the frozen network's own features would tell nothing of training.
    """
    errors.check_positive(in_channels=in_channels, hidden=hidden, dim=dim)
    layers = OrderedDict(
        flatten=nn.Flatten(),
        hidden=nn.Linear(in_channels, hidden),
        relu=nn.ReLU(inplace=True),
        output=nn.Linear(hidden, dim),
    )
    return Encoder(nn.Sequential(layers), dim, "none", dim, in_channels)
