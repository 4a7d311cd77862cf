"""Random views of scenes: one crop of all channels, and its mirror image."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from contrastlab.domains.scenes.views import slices
from contrastlab.support.errors import check, check_name

FLIPS = {"cmc": 0.5, "crop": 0.0, "none": 0.0}
"""Name of an augmentation to the probability of its flip; ``none`` keeps whole scenes."""


@dataclass(frozen=True)
class SceneAugmentation:
    """A square patch of each scene, the same for all channels, at its own resolution (CMC, section 4.3).

    A patch is not resized: depth, normals and classes would have to be interpolated. In the mirror image the normals'
    and the flow's component to the right changes its sign. Colours come out in [0, 1].
    """

    name: str  #: ``cmc`` crops and flips, ``crop`` only crops, ``none`` gives whole scenes
    size: int

    def __post_init__(self) -> None:
        check_name("augmentation of scenes", self.name, FLIPS)

    def random(self, batch: Tensor, rng: torch.Generator | None = None, *, view: int = 0) -> Tensor:
        """One random patch, float32 ``[B, C, size, size]``, of each of the packed scenes ``[B, C, H, W]``."""
        if self.name == "none":
            return self.plain(batch)
        count, _, height, width = batch.shape
        shorter = min(height, width)
        check(1 <= self.size <= shorter, "size", self.size, f"1 to the scenes' shorter side, {shorter}")
        draws = torch.rand(3, count, generator=rng, device=batch.device)
        top = (draws[0] * (height - self.size + 1)).long()
        left = (draws[1] * (width - self.size + 1)).long()
        is_flipped = draws[2] < FLIPS[self.name]
        patch = self.plain(self._cut(batch, top, left, is_flipped))
        sign = 1 - 2 * is_flipped.float()
        for name, where in slices(patch.shape[1]).items():
            if name in ("normal", "flow"):
                patch[:, where.start] *= sign[:, None, None]
        return patch

    def _cut(self, batch: Tensor, top: Tensor, left: Tensor, is_flipped: Tensor) -> Tensor:
        """``[B, C, size, size]`` of scenes ``[B, C, H, W]``, each from its corner on, its columns reversed or not."""
        offsets = torch.arange(self.size, device=batch.device)
        reversed_offsets = self.size - 1 - offsets
        offsets_of_columns = torch.where(is_flipped[:, None], reversed_offsets, offsets)
        scenes = torch.arange(len(batch), device=batch.device)[:, None, None]
        rows = (top[:, None] + offsets)[:, :, None]
        columns = (left[:, None] + offsets_of_columns)[:, None]
        channels_last = batch.movedim(1, 3)
        patch = channels_last[scenes, rows, columns]
        return patch.movedim(3, 1)

    def plain(self, batch: Tensor) -> Tensor:
        """Whole scenes, float32 ``[B, C, H, W]``."""
        scenes = batch.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
        colours = slices(scenes.shape[1])["rgb"]
        scenes[:, colours] /= 255
        return scenes

    def normalise(self, view: Tensor) -> Tensor:
        """The view as it is: :class:`contrastlab.domains.scenes.views.Channels` knows the range of each channel."""
        return view
