"""The recipe part "views": what is compared with what, and how many encoders see it.

Views are made by an :class:`Augmentation` of the modality at hand; this module knows no pixels but the colour split.
``streams`` names the encoders, ``pairs`` says whose embeddings are told apart from whose keys, in order (query, key).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from contrastlab import colour, errors


class Augmentation(Protocol):
    """A distribution over views of a batch of items; :mod:`contrastlab.data.images.augment` has that of images."""

    def random(self, batch: Any, rng: torch.Generator | None = None, *, view: int = 0) -> Tensor:
        """One random view of each item; ``view`` is its number among the views of one step."""

    def plain(self, batch: Any) -> Tensor:
        """The view of each item that evaluation sees, without randomness."""

    def normalise(self, view: Tensor) -> Tensor:
        """The view as an encoder reads it."""


def _random(batch: Any, augmentation: Augmentation, rng: torch.Generator | None, count: int) -> Iterator[Tensor]:
    """``count`` random views of each item."""
    if isinstance(batch, Tensor) and batch.dim() == 5 and batch.shape[1] != count:
        raise errors.reject("images.shape", tuple(batch.shape), f"[B, {count}, C, size, size]: a crop for each view")
    return (augmentation.random(batch, rng, view=k) for k in range(count))


@dataclass(frozen=True)
class Augmented:
    """Independent views of an item, all seen by one encoder.

    Attributes:
        count: views per item: 1 where the other view is in a memory bank (IR, LA), 2 or more where
            views are compared with each other (SimCLR, MoCo) or averaged (JCL).

    Raises:
        ArgumentError: for ``count < 1``.
    """

    count: int = 1

    def __post_init__(self) -> None:
        if self.count < 1:
            raise errors.reject("count", self.count, "an integer >= 1")

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the encoders."""
        return ("view",)

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The one stream against its own keys."""
        return ((0, 0),)

    def single(self) -> Augmented:
        """One view of each item, as probes see it."""
        return Augmented(1)

    def channels(self, image_channels: int) -> tuple[int, ...]:
        """Input channels of each stream's encoder, for images with ``image_channels`` of them."""
        return (image_channels,)

    def make(self, batch: Any, augmentation: Augmentation, rng: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """``count`` random views of each item, normalised.

        Args:
            batch: items of the modality of ``augmentation``; for images uint8 ``[B, C, H, W]``, ``C`` 1 or 3, or ready
                crops ``[B, count, C, size, size]``.
            augmentation: makes and normalises a view.
            rng: source of the draws, on the batch's device.

        Raises:
            ArgumentError: the batch does not fit the augmentation.
        """
        return tuple(augmentation.normalise(view) for view in _random(batch, augmentation, rng, self.count))

    def plain(self, batch: Any, augmentation: Augmentation) -> tuple[Tensor, ...]:
        """The evaluation's view of each item: one tensor, without randomness."""
        return (augmentation.normalise(augmentation.plain(batch)),)

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
        made = _random(batch, augmentation, rng, self.count)
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


Views = Augmented | Split
