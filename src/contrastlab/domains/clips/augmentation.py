"""Random views of clips: one crop and one flip for all frames and flows of a clip, as two-stream networks are trained.

The flow of a view is the motion of its own pixels: scaled with the crop, its horizontal part negated by a flip.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from contrastlab.domains.clips.data import PLANES
from contrastlab.domains.clips.flow import restore
from contrastlab.pictures.augmentations import Augmentation, ViewDraws, apply, augmentation
from contrastlab.pictures.operations import crop_resize, resize_center
from contrastlab.settings import Settings
from contrastlab.support.errors import NotApplicableError


@dataclass(frozen=True)
class ClipAugmentation:
    """A distribution over views of a clip."""

    image: Augmentation  #: how a frame is cropped, flipped and coloured; all frames of one view of a clip alike
    #: subtract each flow field's mean, most of which is the camera's (Simonyan and Zisserman 2014, §3.1)
    centred: bool = True

    @property
    def size(self) -> int:
        """Side of a view in pixels."""
        return self.image.size

    def draw(self, batch: Tensor, rng: torch.Generator | None = None) -> ViewDraws:
        """The parameters of one view of each clip, uint8 ``[B, T, 5, H, W]``."""
        has_planes = batch.ndim == 5 and batch.shape[2] == PLANES
        if not has_planes or batch.dtype != torch.uint8:
            items = f"{batch.dtype} of shape {tuple(batch.shape[1:])}"
            raise NotApplicableError(f"these views are of clips, uint8 [B, T, {PLANES}, H, W]; given: items {items}")
        count, _, _, height, width = batch.shape
        return self.image.sample(count, height, width, rng, batch.device)

    def frame(self, batch: Tensor, at: Tensor, draws: ViewDraws | None) -> Tensor:
        """Frame number ``at`` (int64 ``[B]``) of each clip, float32 in [0, 1]; without draws its middle square."""
        clips = torch.arange(len(batch), device=batch.device)
        rgb = batch[clips, at, :3]
        if draws is None:
            return self.image.plain(rgb)
        return apply(rgb, self.image, draws)

    def flow(self, batch: Tensor, at: Tensor, stack: int, draws: ViewDraws | None) -> Tensor:
        """The flow of L = ``stack`` successive frames around frame ``at``, from ``at − L // 2`` on; see :meth:`frame`.

        Float32 ``[B, 2L, size, size]``: (x, y) of each flow, in pixels of the view as fractions of the set's bound.
        """
        device = batch.device
        clips = torch.arange(len(batch), device=device)[:, None]
        around = torch.arange(stack, device=device) - stack // 2
        numbers = at[:, None] + around
        field = restore(batch[clips, numbers, 3:]).flatten(1, 2)
        if draws is None:
            view = resize_center(field, self.image.resize, self.size)
            growth = self._plain_growth(batch)
        else:
            view = crop_resize(field, draws.boxes, self.size, draws.flip)
            growth = self._growth(draws)
        view = view * growth.repeat(1, stack)[:, :, None, None]
        if self.centred:
            view = view - view.mean((2, 3), keepdim=True)
        return view

    def _growth(self, draws: ViewDraws) -> Tensor:
        """``[B, 2]``: how many times longer motion to the right and down is in a view; a flip makes it negative."""
        _, _, box_height, box_width = draws.boxes.unbind(1)
        sign = torch.where(draws.flip, -1.0, 1.0)
        to_the_right = sign * self.size / box_width
        down = self.size / box_height
        return torch.stack([to_the_right, down], 1)

    def _plain_growth(self, batch: Tensor) -> Tensor:
        """``[B, 2]``: :meth:`_growth` in the middle square."""
        shorter = min(batch.shape[3:])
        resized = self.image.resize or shorter
        return torch.full((len(batch), 2), resized / shorter, device=batch.device)

    def random(self, batch: Tensor, rng: torch.Generator | None = None, *, view: int = 0) -> Tensor:
        """A random view of a random frame of each clip, float32 ``[B, 3, size, size]`` in [0, 1]."""
        draws = self.draw(batch, rng)
        at = torch.randint(batch.shape[1], (len(batch),), generator=rng, device=batch.device)
        return self.frame(batch, at, draws)

    def plain(self, batch: Tensor) -> Tensor:
        """The middle frame of each clip as evaluation sees it, float32 ``[B, 3, size, size]`` in [0, 1]."""
        middle = torch.full((len(batch),), batch.shape[1] // 2, device=batch.device)
        return self.frame(batch, middle, None)

    def normalise(self, view: Tensor) -> Tensor:
        """A frame as an encoder reads it."""
        return self.image.normalise(view)


def clip_augmentation(settings: Settings) -> ClipAugmentation:
    """The augmentation that ``settings`` name, for clips."""
    image = augmentation(settings.augmentation, settings.image_size)
    return ClipAugmentation(image)
