"""Views of two streams: luminance and chrominance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from contrastlab import colour, errors
from contrastlab.views.base import Augmentation, random_views


@dataclass(frozen=True)
class Split:
    """Luminance and chrominance of one augmented image, each seen by an encoder of its own (CMC, section 4.1).

    Crop, flip and jitter happen in RGB; the float image is then converted (the released code rounds to
    8 bits in between) and every channel is scaled to about [-1, 1] by its mid- and half-range.

    Attributes:
        space: ``"lab"`` gives L and ab, ``"ydbdr"`` gives Y and DbDr.
        count: augmentations that are split: 1 compares the halves of one view; more give further keys.

    Raises:
        ArgumentError: for another space, or ``count < 1``.
    """

    space: Literal["lab", "ydbdr"] = "lab"
    count: int = 1

    def __post_init__(self) -> None:
        if self.space not in ("lab", "ydbdr"):
            raise errors.reject("space", self.space, "'lab' or 'ydbdr'")
        if self.count < 1:
            raise errors.reject("count", self.count, "an integer >= 1")

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the encoders."""
        return ("L", "ab") if self.space == "lab" else ("Y", "DbDr")

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Each half against the other's keys."""
        return ((0, 1), (1, 0))

    def single(self) -> Split:
        """The halves of one view, as probes see them."""
        return Split(self.space)

    def channels(self, image_channels: int) -> tuple[int, ...]:
        """Input channels of each stream's encoder: ``(1, 2)``.

        Args:
            image_channels: channels of the data set's images.

        Raises:
            NotApplicableError: for grey images, which have no chrominance.
            ArgumentError: for other than 1 or 3 channels.
        """
        if image_channels == 1:
            raise errors.NotApplicableError(
                f"Split({self.space!r}) needs colour: grey images (1 channel) have no chrominance to compare with. "
                "Use Augmented views, or a data set with 3 channels."
            )
        if image_channels != 3:
            raise errors.reject("image_channels", image_channels, "3")
        return (1, 2)

    def _split(self, images: Tensor) -> tuple[Tensor, ...]:
        self.channels(images.shape[-3])
        if self.space == "lab":
            values = colour.standardise(colour.rgb_to_lab(images), *colour.LAB_STATISTICS)
        else:
            values = colour.standardise(colour.rgb_to_ydbdr(images), *colour.YDBDR_STATISTICS)
        return values[:, :1].contiguous(), values[:, 1:].contiguous()

    def make(self, batch: Any, augmentation: Augmentation, rng: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """The two halves of ``count`` random views.

        Args:
            batch: images as for :meth:`Augmented.make`, with three channels.
            augmentation: of RGB images; its mean and std are not used.
            rng: source of the draws, on the images' device.

        Returns:
            Luminance ``[B, 1, size, size]`` and chrominance ``[B, 2, size, size]`` of the first view, then of the
            others; float32, about [-1, 1].

        Raises:
            NotApplicableError: for grey images.
            ArgumentError: for another dtype or shape.
        """
        made = random_views(batch, augmentation, rng, self.count)
        return tuple(half for view in made for half in self._split(view))

    def plain(self, batch: Any, augmentation: Augmentation) -> tuple[Tensor, ...]:
        """The evaluation's luminance and chrominance, without randomness; see :meth:`make`."""
        return self._split(augmentation.plain(batch))

    @property
    def latex(self) -> str:
        """The part as a formula."""
        first, second = ("L", "ab") if self.space == "lab" else ("Y", "D_bD_r")
        several = "" if self.count == 1 else rf"\ \text{{({self.count} times)}}"
        return rf"(v_1, v_2) = ({first}, {second})(t(x)),\quad t \sim \mathcal{{T}}{several}"
