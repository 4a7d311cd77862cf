"""Views of a clip: a frame, a later frame, and the optical flow around the first (CMC, section 4.2).

The paper's ventral stream (V) is the pair of frames, its dorsal stream (D) a frame and its flow, V+D the sum of both:
``Frames(k)``, ``Flow(stack)`` and ``Flow(stack, k)``. It has *two* CaffeNets, one of images and one of flows, so both
frames are seen by one network here; the later frame is a stream of its own, whose encoder is that of the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from contrastlab import errors
from contrastlab.views.base import Augmentation, Views

_FRAME, _LATER, _FLOW = "frame", "later frame", "flow"


class ClipAugmentation(Augmentation, Protocol):
    """A distribution over views of a batch of clips; :mod:`contrastlab.data.clips.augment` has it."""

    def draw(self, batch: Any, rng: torch.Generator | None = None) -> Any:
        """The parameters of one view of each clip, for its frames and its flow alike."""

    def frame(self, batch: Any, at: Tensor, draws: Any) -> Tensor:
        """Frame number ``at`` of each clip."""

    def flow(self, batch: Any, at: Tensor, stack: int, draws: Any) -> Tensor:
        """``stack`` flows of each clip around frame number ``at``."""


def _check_k(k: int) -> None:
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise errors.reject("k", k, "a number of frames >= 1")


def _check_channels(part: Frames | Flow, image_channels: int) -> None:
    if image_channels != 3:
        raise errors.NotApplicableError(f"{part!r} is of clips in colour: 3 channels; given: {image_channels}")


def _pairs(streams: int) -> tuple[tuple[int, int], ...]:
    # the frame at t against each other view, and back
    return tuple(pair for other in range(1, streams) for pair in ((0, other), (other, 0)))


def _times(part: Frames | Flow, batch: Tensor, first: int, last: int, rng: torch.Generator | None) -> Tensor:
    if batch.ndim != 5:
        raise errors.NotApplicableError(f"{part!r} is of clips; given: items of shape {tuple(batch.shape[1:])}")
    if last < first:
        missing = first - last
        raise errors.reject(
            "views", part, f"views that clips of {batch.shape[1]} frames hold: {missing} frames more are wanted"
        )
    return torch.randint(first, last + 1, (len(batch),), generator=rng, device=batch.device)


@dataclass(frozen=True)
class Frames(Views):
    """A frame i_t and the frame k later, i_{t+k}, each against the other: the ventral stream (V).

    One crop and one flip serve both.

    Attributes:
        k: frames between the two; the paper does not print it.
        shared: both are seen by one encoder, as the paper's "two CaffeNets [of] images and optical flows" has it.

    Raises:
        ArgumentError: ``k`` is no positive integer.
    """

    k: int = 5
    shared: bool = True

    def __post_init__(self) -> None:
        _check_k(self.k)

    @property
    def count(self) -> int:
        """Views of each stream."""
        return 1

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the encoders."""
        return (_FRAME, _LATER)

    @property
    def same_encoder(self) -> Mapping[int, int]:
        """Streams that another stream's encoder sees, too."""
        return {1: 0} if self.shared else {}

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Each frame against the keys of the other."""
        return _pairs(2)

    def single(self) -> Frames:
        """The views as probes see them."""
        return self

    def channels(self, image_channels: int) -> tuple[int, ...]:
        """Input channels of each stream's encoder.

        Raises:
            NotApplicableError: for other than colour.
        """
        _check_channels(self, image_channels)
        return (3, 3)

    def make(self, batch: Any, augmentation: Any, rng: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """Two frames of each clip, ``[B, 3, size, size]`` each, normalised.

        Args:
            batch: clips uint8 ``[B, T, 5, H, W]``.
            augmentation: of clips, a :class:`ClipAugmentation`.
            rng: source of the draws, on the clips' device.

        Raises:
            NotApplicableError: the items are no clips.
            ArgumentError: clips with fewer than k + 1 frames.
        """
        at = _times(self, batch, 0, batch.shape[1] - 1 - self.k, rng)
        return self._at(batch, augmentation, at, augmentation.draw(batch, rng))

    def plain(self, batch: Any, augmentation: Any) -> tuple[Tensor, ...]:
        """The frames around the middle of each clip, without randomness."""
        first = (batch.shape[1] - 1 - self.k) // 2
        return self._at(batch, augmentation, torch.full((len(batch),), first, device=batch.device), None)

    def _at(self, batch: Tensor, augmentation: ClipAugmentation, at: Tensor, draws: Any) -> tuple[Tensor, ...]:
        return tuple(
            augmentation.normalise(augmentation.frame(batch, number, draws)) for number in (at, at + self.k)
        )  # fmt: skip

    @property
    def latex(self) -> str:
        """The part as a formula."""
        return rf"(v_1, v_2) = t(i_t, i_{{t+{self.k}}}),\quad t \sim \mathcal{{T}}"


@dataclass(frozen=True)
class Flow(Views):
    """A frame i_t and the flow f_t around it, each against the other (D); with ``k``, i_{t+k} too (V+D).

    One crop and one flip serve all. With ``k`` the pairs are those of the core view i_t: (i_t, i_{t+k}) and (i_t, f_t).

    Attributes:
        stack: successive flows, 2 channels each; ten in the paper, of the frames t − 5 to t + 4, so that they lead
            from frame t − 5 to frame t + 5.
        k: ``None``, or frames to a later frame.
        shared: one encoder sees both frames.

    Raises:
        ArgumentError: ``stack`` or ``k`` is no positive integer.
    """

    stack: int = 10
    k: int | None = None
    shared: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.stack, bool) or not isinstance(self.stack, int) or self.stack < 1:
            raise errors.reject("stack", self.stack, "a number of flows >= 1")
        if self.k is not None:
            _check_k(self.k)

    @property
    def count(self) -> int:
        """Views of each stream."""
        return 1

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the encoders."""
        return (_FRAME, _FLOW) if self.k is None else (_FRAME, _LATER, _FLOW)

    @property
    def same_encoder(self) -> Mapping[int, int]:
        """Streams that another stream's encoder sees, too."""
        return {1: 0} if self.shared and self.k is not None else {}

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The frame against each other view, and back."""
        return _pairs(len(self.streams))

    def single(self) -> Flow:
        """The views as probes see them."""
        return self

    def channels(self, image_channels: int) -> tuple[int, ...]:
        """Input channels of each stream's encoder: three a frame, two a flow.

        Raises:
            NotApplicableError: for other than colour.
        """
        _check_channels(self, image_channels)
        return (3,) * (len(self.streams) - 1) + (2 * self.stack,)

    def make(self, batch: Any, augmentation: Any, rng: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """A frame, perhaps a later one, and the flow of each clip, normalised.

        Args:
            batch: clips uint8 ``[B, T, 5, H, W]``; the flow of the last frame is not read.
            augmentation: of clips, a :class:`ClipAugmentation`.
            rng: source of the draws, on the clips' device.

        Returns:
            ``[B, 3, size, size]`` (twice with ``k``) and ``[B, 2·stack, size, size]``.

        Raises:
            NotApplicableError: the items are no clips.
            ArgumentError: clips that are too short.
        """
        at = _times(self, batch, *self._span(batch), rng)
        return self._at(batch, augmentation, at, augmentation.draw(batch, rng))

    def plain(self, batch: Any, augmentation: Any) -> tuple[Tensor, ...]:
        """The views around the middle of each clip, without randomness."""
        first, last = self._span(batch)
        at = torch.full((len(batch),), (first + last) // 2, device=batch.device)
        return self._at(batch, augmentation, at, None)

    def _span(self, batch: Tensor) -> tuple[int, int]:
        before, after = self.stack // 2, self.stack - self.stack // 2
        return before, batch.shape[1] - 1 - max(after, self.k or 0)

    def _at(self, batch: Tensor, augmentation: ClipAugmentation, at: Tensor, draws: Any) -> tuple[Tensor, ...]:
        numbers = (at,) if self.k is None else (at, at + self.k)
        frames = (augmentation.normalise(augmentation.frame(batch, number, draws)) for number in numbers)
        return (*frames, augmentation.flow(batch, at, self.stack, draws))

    @property
    def latex(self) -> str:
        """The part as a formula."""
        frames = "i_t" if self.k is None else rf"i_t, i_{{t+{self.k}}}"
        names = "v_1, v_2" if self.k is None else "v_1, v_2, v_3"
        return rf"({names}) = t({frames}, f_t^{{({self.stack})}}),\quad t \sim \mathcal{{T}}"
