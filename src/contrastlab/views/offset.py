"""Two patches of one picture at a fixed distance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from contrastlab import errors
from contrastlab.views.augmented import Augmented
from contrastlab.views.base import Augmentation, Views


@dataclass(frozen=True)
class Offset(Views):
    """Patches at (x, y) and (x + d, y + d) of a picture, both seen by one encoder (CMC, §4.4, Figure 5).

    (x, y) is uniform. The patches are as large as a view. They are cut from the picture as it is: neither resized,
    flipped nor coloured.
    CMC does not say whether the two are seen by one encoder; both are patches of RGB, so here they are.

    Attributes:
        distance: d in pixels, along both axes; from the side of a patch on the two do not overlap (CMC: 64 … 384).

    Raises:
        ArgumentError: a negative distance.
    """

    distance: int = 64

    def __post_init__(self) -> None:
        if not errors.is_integer(self.distance, least=0):
            raise errors.reject("distance", self.distance, "a number of pixels, at least 0")

    @property
    def count(self) -> int:
        """Two patches of each item."""
        return 2

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the encoders."""
        return ("patch",)

    def single(self) -> Augmented:
        """One augmented view of each item, as probes see it."""
        return Augmented(1)

    def window(self, size: int) -> int:
        """Side of the square that holds both patches of ``size`` pixels."""
        return size + self.distance

    def make(self, batch: Any, augmentation: Augmentation, rng: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """The two patches of each item, normalised.

        Args:
            batch: images, uint8 ``[B, C, H, W]``; or ready windows ``[B, 1, C, side, side]`` with ``side`` that of
                :meth:`window`.
            augmentation: of images; its size is that of a patch.
            rng: source of the draws, on the images' device.

        Returns:
            Two tensors ``[B, C, size, size]``.

        Raises:
            NotApplicableError: pictures too small for two patches so far apart.
        """
        size: int = augmentation.size  # type: ignore[attr-defined]
        images = batch[:, 0] if batch.dim() == 5 else batch
        height, width = images.shape[2:]
        room = torch.tensor((height, width)) - self.window(size) + 1
        if int(room.min()) < 1:
            raise errors.NotApplicableError(
                f"{self!r} cuts two patches of {size} px from each picture, which needs {self.window(size)} px along"
                f" both sides; these have {height} by {width}"
            )
        room = room.to(images.device)
        corner = (torch.rand(len(images), 2, generator=rng, device=images.device) * room).long()
        corner = torch.minimum(corner, room - 1)
        made = (_patches(images, corner + shift, size) for shift in (0, self.distance))
        return tuple(augmentation.normalise(patch.float() / 255) for patch in made)

    def plain(self, batch: Any, augmentation: Augmentation) -> tuple[Tensor, ...]:
        """The evaluation's view of each item: one tensor, without randomness."""
        return self.single().plain(batch, augmentation)

    @property
    def latex(self) -> str:
        """The part as a formula."""
        d = self.distance
        return rf"(v_1, v_2) = \text{{patches of }}x\text{{ at }}(i, j)\text{{ and }}(i+{d}, j+{d})"


def _patches(images: Tensor, corner: Tensor, size: int) -> Tensor:
    line = torch.arange(size, device=images.device)
    rows, columns = corner[:, :1] + line, corner[:, 1:] + line
    item = torch.arange(len(images), device=images.device)[:, None, None]
    return images[item, :, rows[:, :, None], columns[:, None, :]].movedim(-1, 1).contiguous()
