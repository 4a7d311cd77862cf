"""Views of two streams: a channel of a colour space, and the two others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from contrastlab import colour, errors
from contrastlab.views.base import Augmentation, Views, random_views


@dataclass(frozen=True)
class Split(Views):
    """One channel and the two others of one augmented image, each part seen by an encoder of its own (CMC, §4.1, §4.4).

    Crop, flip and jitter happen in RGB; the float image is then converted (the released code rounds to
    8 bits in between) and every channel is scaled to about [-1, 1] by its mid- and half-range.

    Attributes:
        space: a name in :data:`contrastlab.colour.SPACES`: ``"lab"`` gives L and ab, ``"ydbdr"`` Y and DbDr, ``"rgb"``
            R and GB, …
        count: augmentations that are split: 1 compares the parts of one view; more give further keys.
        scaling: ``"range"``, or ``"released"``: by the means that the authors' later code has for YDbDr and YCbCr.

    Raises:
        UnknownNameError: for another space.
        ArgumentError: ``count < 1``, or ``"released"`` for a space without such constants.
    """

    space: str = "lab"
    count: int = 1
    scaling: Literal["range", "released"] = "range"

    def __post_init__(self) -> None:
        if not isinstance(self.space, str) or self.space not in colour.SPACES:
            raise errors.unknown("space", self.space, colour.SPACES)
        if not errors.is_integer(self.count):
            raise errors.reject("count", self.count, "an integer >= 1")
        if self.scaling not in ("range", "released"):
            raise errors.reject("scaling", self.scaling, "'range' or 'released'")
        if self.scaling == "released" and self._space.released is None:
            raise errors.reject("scaling", self.scaling, f"'range' for {self.space!r}: no constants were released")

    @property
    def _space(self) -> colour.Space:
        return colour.SPACES[self.space]

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the encoders."""
        return self._space.first, self._space.others

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Each part against the other's keys."""
        return ((0, 1), (1, 0))

    def single(self) -> Split:
        """The parts of one view, as probes see them."""
        return replace(self, count=1)

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

    def parts(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The two parts of RGB images ``[B, 3, H, W]`` in [0, 1]: ``[B, 1, H, W]`` and ``[B, 2, H, W]``.

        Raises:
            NotApplicableError: for grey images.
        """
        self.channels(images.shape[-3])
        middle, half = self._space.middle, self._space.half
        if self.scaling == "released" and self._space.released is not None:
            middle, half = self._space.released
        values = colour.standardise(self._space.convert(images), middle, half)
        return values[:, :1].contiguous(), values[:, 1:].contiguous()

    def make(self, batch: Any, augmentation: Augmentation, rng: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """The two parts of ``count`` random views.

        Args:
            batch: images as for :meth:`Augmented.make`, with three channels.
            augmentation: of RGB images; its mean and std are not used.
            rng: source of the draws, on the images' device.

        Returns:
            The first channel ``[B, 1, size, size]`` and the others ``[B, 2, size, size]`` of the first view, then those
            of the further views; float32, about [-1, 1].

        Raises:
            NotApplicableError: for grey images.
            ArgumentError: for another dtype or shape.
        """
        made = random_views(batch, augmentation, rng, self.count)
        return tuple(part for view in made for part in self.parts(view))

    def plain(self, batch: Any, augmentation: Augmentation) -> tuple[Tensor, ...]:
        """The evaluation's two parts, without randomness; see :meth:`make`."""
        return self.parts(augmentation.plain(batch))

    @property
    def latex(self) -> str:
        """The part as a formula."""
        first, second = self._space.formula
        several = "" if self.count == 1 else rf"\ \text{{({self.count} times)}}"
        return rf"(v_1, v_2) = ({first}, {second})(t(x)),\quad t \sim \mathcal{{T}}{several}"
