"""Vision transformers of MoCo v3 (Chen, Xie and He 2021): timm's, with its names, so that stored ones load there.

Positions are fixed, and the projection of patches is not trained.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

import torch
from torch import Tensor, nn

from contrastlab import errors
from contrastlab.encoders.networks import Network, Stem, scaled

_FUSED_FROM = 64
"""Patches from which attention is one fused kernel: for 16 its backward took two thirds of a step on a CPU."""


def positions(dim: int, grid: int) -> Tensor:
    """Float32 ``[1, 1 + grid², dim]``: sines and cosines of each patch's column and row; zeros for the class token.

    For each patch sin and cos of its column, then of its row, over dim/4 frequencies from 1 down to 10⁻⁴.
    """
    if dim % 4:
        raise errors.reject("dim", dim, "a multiple of four")
    frequency = 10_000 ** -(torch.arange(dim // 4, dtype=torch.float64) / (dim // 4))
    line = torch.arange(grid).double()
    row, column = (axis[:, None] * frequency for axis in torch.cartesian_prod(line, line).unbind(1))
    patches = torch.cat([column.sin(), column.cos(), row.sin(), row.cos()], 1)
    return torch.cat([torch.zeros(1, dim), patches.float()])[None]


@lru_cache(maxsize=1)
def _class() -> type[nn.Module]:
    timm = errors.import_extra("timm.models.vision_transformer", "vit")

    class ViT(timm.VisionTransformer):  # type: ignore[misc,name-defined]
        """timm's, with MoCo v3's start; gives a map of patches, or pooled the class token."""

        initialises_itself = True

        def __init__(self, in_channels: int, side: int, patch: int, dim: int, depth: int, heads: int) -> None:
            super().__init__(
                side, patch, in_channels, num_classes=0, embed_dim=dim, depth=depth, num_heads=heads,
                dynamic_img_size=True, weight_init="moco",
            )  # fmt: skip
            self.patch = patch
            if (side // patch) ** 2 < _FUSED_FROM:
                for block in self.blocks:
                    block.attn.fused_attn = False
            bound = math.sqrt(6 / (in_channels * patch * patch + dim))
            nn.init.uniform_(self.patch_embed.proj.weight, -bound, bound)
            nn.init.zeros_(self.patch_embed.proj.bias)
            nn.init.normal_(self.cls_token, std=1e-6)
            self.pos_embed = nn.Parameter(positions(dim, side // patch), requires_grad=False)
            self.patch_embed.requires_grad_(False)

        def _tokens(self, x: Tensor) -> Tensor:
            if x.shape[2] % self.patch or x.shape[3] % self.patch:
                raise errors.reject("image_size", tuple(x.shape[2:]), f"sides that are multiples of {self.patch}")
            tokens: Tensor = self.forward_features(x)
            return tokens

        def forward(self, x: Tensor) -> Tensor:
            """Images ``[B, C, H, W]`` to the map of patches ``[B, D, H/p, W/p]``."""
            tokens = self._tokens(x)[:, 1:].transpose(1, 2)
            return tokens.reshape(len(x), -1, x.shape[2] // self.patch, x.shape[3] // self.patch)

        def pooled(self, x: Tensor) -> Tensor:
            """Images ``[B, C, H, W]`` to the class token ``[B, D]``."""
            return self._tokens(x)[:, 0]

    return ViT


def _vit(side: int, patch: int, dim: int, depth: int, heads: int) -> Network:
    def build(in_channels: int, stem: Stem, width: float) -> tuple[nn.Module, int]:
        wide = 4 * heads * scaled(dim // (4 * heads), width)
        return _class()(in_channels, side, patch, wide, depth, heads), wide

    return build


NETWORKS: Mapping[str, Network] = MappingProxyType(
    {
        # MoCo v3's ViT-S: 12 blocks, 12 heads, 384 features, patches of 16 pixels; with 6 blocks, as fmicl has it
        "vit_small": _vit(224, 16, 384, 12, 12),
        "vit_small_6": _vit(224, 16, 384, 6, 12),
        # 16 tokens at 32 pixels, for minutes on a CPU; smaller, for tests and smoke runs
        "vit_mini": _vit(32, 8, 192, 6, 6),
        "vit_nano": _vit(32, 8, 64, 2, 4),
    }
)
"""Name to transformer."""
