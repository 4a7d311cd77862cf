"""The recipe part "views": which pictures of one image are compared, and how many encoders see them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from contrastlab import errors
from contrastlab.views import colour
from contrastlab.views.pipeline import augment, center, normalise, standardise
from contrastlab.views.recipes import Augmentation


def _augmented(images: Tensor, a: Augmentation, generator: torch.Generator | None, count: int) -> Iterator[Tensor]:
    """``count`` random views of whole images, or of crops ``[B, count, C, size, size]``, one for each view."""
    cropped = images.dim() == 5
    if cropped and images.shape[1] != count:
        raise errors.reject("images.shape", tuple(images.shape), f"[B, {count}, C, size, size]: a crop for each view")
    for k in range(count):
        yield augment(images[:, k] if cropped else images, a, generator, cropped=cropped)


@dataclass(frozen=True)
class Augmented:
    """Independent augmentations of an image, all seen by one encoder.

    Attributes:
        count: views per image: 1 where the other view is in a memory bank (IR, LA), 2 or more where
            views are compared with each other (SimCLR, MoCo) or averaged (JCL).

    Raises:
        ArgumentError: for ``count < 1``.
    """

    count: int = 1

    def __post_init__(self) -> None:
        if self.count < 1:
            raise errors.reject("count", self.count, "an integer >= 1")

    @property
    def streams(self) -> int:
        """Number of distinct encoders."""
        return 1

    def channels(self, image_channels: int) -> tuple[int, ...]:
        """Input channels of each stream's encoder, for images with ``image_channels`` of them."""
        return (image_channels,)

    def make(
        self, images: Tensor, augmentation: Augmentation, generator: torch.Generator | None = None
    ) -> tuple[Tensor, ...]:
        """Random views.

        Args:
            images: uint8 ``[B, C, H, W]``, ``C`` 1 or 3; or crops made where they were decoded,
                ``[B, count, C, size, size]``, which are flipped, coloured and blurred only.
            augmentation: the recipe.
            generator: source of the draws, on the images' device.

        Returns:
            ``count`` normalised float32 tensors ``[B, C, size, size]``.

        Raises:
            ArgumentError: for another dtype or shape.
        """
        return tuple(normalise(v, augmentation) for v in _augmented(images, augmentation, generator, self.count))

    def plain(self, images: Tensor, augmentation: Augmentation) -> tuple[Tensor, ...]:
        """The test-time view, ``(tensor [B, C, size, size],)``: one per stream, without randomness."""
        return (normalise(center(images, augmentation), augmentation),)

    @property
    def latex(self) -> str:
        """The part as a formula."""
        if self.count == 1:
            return r"v = t(x),\quad t \sim \mathcal{T}"
        return rf"v_m = t_m(x),\quad t_1, \dots, t_{{{self.count}}} \overset{{\text{{iid}}}}{{\sim}} \mathcal{{T}}"


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
    count: int = field(default=1, metadata={"quiet": True})

    def __post_init__(self) -> None:
        if self.space not in ("lab", "ydbdr"):
            raise errors.reject("space", self.space, "'lab' or 'ydbdr'")
        if self.count < 1:
            raise errors.reject("count", self.count, "an integer >= 1")

    @property
    def streams(self) -> int:
        """Number of distinct encoders."""
        return 2

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
        if self.space == "lab":
            values = standardise(colour.rgb_to_lab(images), *colour.LAB_STATISTICS)
        else:
            values = standardise(colour.rgb_to_ydbdr(images), *colour.YDBDR_STATISTICS)
        return values[:, :1].contiguous(), values[:, 1:].contiguous()

    def make(
        self, images: Tensor, augmentation: Augmentation, generator: torch.Generator | None = None
    ) -> tuple[Tensor, ...]:
        """The two halves of ``count`` random views.

        Args:
            images: uint8 ``[B, 3, H, W]``, or crops ``[B, count, 3, size, size]`` as for :class:`Augmented`.
            augmentation: the recipe; its mean and std are not used.
            generator: source of the draws, on the images' device.

        Returns:
            Luminance ``[B, 1, size, size]`` and chrominance ``[B, 2, size, size]`` of the first view, then of the
            others; float32, about [-1, 1].

        Raises:
            NotApplicableError: for grey images.
            ArgumentError: for another dtype or shape.
        """
        self.channels(images.shape[-3])
        made = _augmented(images, augmentation, generator, self.count)
        return tuple(half for view in made for half in self._split(view))

    def plain(self, images: Tensor, augmentation: Augmentation) -> tuple[Tensor, ...]:
        """The test-time luminance and chrominance, without randomness; see :meth:`make`."""
        self.channels(images.shape[1])
        return self._split(center(images, augmentation))

    @property
    def latex(self) -> str:
        """The part as a formula."""
        first, second = ("L", "ab") if self.space == "lab" else ("Y", "D_bD_r")
        several = "" if self.count == 1 else rf"\ \text{{({self.count} times)}}"
        return rf"(v_1, v_2) = ({first}, {second})(t(x)),\quad t \sim \mathcal{{T}}{several}"
