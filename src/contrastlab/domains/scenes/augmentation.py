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
        side = min(height, width)
        check(1 <= self.size <= side, "size", self.size, f"1 to the scenes' shorter side, {side}")
        draws = torch.rand(3, count, generator=rng, device=batch.device)
        offsets = torch.arange(self.size, device=batch.device)
        top, left = ((draws[i] * (side - self.size + 1)).long() for i, side in ((0, height), (1, width)))
        flipped = draws[2] < FLIPS[self.name]
        columns = torch.where(flipped[:, None], self.size - 1 - offsets, offsets) + left[:, None]
        rows = top[:, None] + offsets
        b = torch.arange(count, device=batch.device)[:, None, None]
        patch = self.plain(batch.movedim(1, 3)[b, rows[:, :, None], columns[:, None]].movedim(3, 1))
        for name, where in slices(patch.shape[1]).items():
            if name in ("normal", "flow"):
                patch[:, where.start] *= 1 - 2 * flipped.float()[:, None, None]
        return patch

    def plain(self, batch: Tensor) -> Tensor:
        """Whole scenes, float32 ``[B, C, H, W]``."""
        out = batch.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
        out[:, slices(out.shape[1])["rgb"]] /= 255
        return out

    def normalise(self, view: Tensor) -> Tensor:
        """The view as it is: :class:`contrastlab.domains.scenes.views.Channels` knows the range of each channel."""
        return view
