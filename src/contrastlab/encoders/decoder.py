"""From the maps of an encoder to an output of its input's size: the other half of a U-Net."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab.encoders.small import convolution


class Decoder(nn.Module):
    """Upsampling, concatenation with the encoder's next finer map, a convolution; and so on (Ronneberger et al. 2015).

    Args:
        channels: of the encoder's maps, from the finest to the coarsest. Of maps of the same size the coarsest is read.
        outputs: channels of the output.
        width: channels at the finest map; they double with each coarser one, to at most eight times as many.
        skips: read all maps; ``False`` reads the coarsest only, so that everything passes through it.
    """

    def __init__(self, channels: Mapping[str, int], outputs: int, width: int, *, skips: bool = True) -> None:
        super().__init__()
        self.skips = skips
        names = list(channels)
        fine = names[-2::-1]
        self.blocks = nn.ModuleDict()
        inputs = channels[names[-1]]
        for name in fine:
            out = width * min(8, 2 ** names.index(name))
            self.blocks[name] = convolution(inputs + (channels[name] if skips else 0), out)
            inputs = out
        self.head = nn.Conv2d(inputs, outputs, 3, 1, 1)

    def forward(self, maps: Mapping[str, Tensor], size: Sequence[int]) -> Tensor:
        """Output ``[B, outputs, *size]`` from ``maps``, each ``[B, C, h, w]``, which lead to it from coarse to fine."""
        x = list(maps.values())[-1]
        for name, block in self.blocks.items():
            if x.shape[2:] != maps[name].shape[2:]:
                x = F.interpolate(x, size=maps[name].shape[2:], mode="bilinear", align_corners=False)
            x = block(torch.cat([x, maps[name]], 1) if self.skips else x)
        return F.interpolate(self.head(x), size=list(size), mode="bilinear", align_corners=False)
