"""Views of a clip: a frame, a later frame, and the optical flow around the first (CMC, section 4.2).

The paper's ventral stream (V) is the pair of frames, its dorsal stream (D) a frame and its flow, V+D the sum of both:
``Frames(k)``, ``Flow(stack)`` and ``Flow(stack, k)``. Since it has *two* CaffeNets, one of images and one of flows, the
later frame is a stream of its own that the encoder of the first frame sees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from contrastlab.support import errors
from contrastlab.views.base import Views


class ClipViews(Views):
    """A frame i_t, perhaps the frame i_{t+k}, perhaps the flow around the first; one crop and one flip serve all.

    The frame at t is compared with each other view, and back.
    """

    k: int | None
    shared: bool
    stack: int = 0

    @property
    def streams(self) -> tuple[str, ...]:
        streams = ["frame"]
        if self.k:
            streams.append("later frame")
        if self.stack:
            streams.append("flow")
        return tuple(streams)

    @property
    def same_encoder(self) -> Mapping[int, int]:
        if self.shared and self.k:
            return {1: 0}
        return {}

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        pairs = []
        for other in range(1, len(self.streams)):
            pairs += [(0, other), (other, 0)]
        return tuple(pairs)

    def channels(self, image_channels: int) -> tuple[int, ...]:
        """Input channels of each stream's encoder: three a frame, two a flow; clips without colour are refused."""
        if image_channels != 3:
            raise errors.NotApplicableError(f"{self!r} is of clips in colour: 3 channels; given: {image_channels}")
        numbers = {"frame": 3, "later frame": 3, "flow": 2 * self.stack}
        return tuple(numbers[name] for name in self.streams)

    def make(self, batch: Any, augmentation: Any, rng: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """Normalised views of clips uint8 ``[B, T, 5, H, W]``, whose last frame has no flow that is read.

        They are ``[B, 3, size, size]`` for each frame and ``[B, 2·stack, size, size]`` for the flow; ``augmentation``
        is a :class:`contrastlab.domains.clips.augmentation.ClipAugmentation`.
        """
        first, last = self._span(batch)
        if batch.ndim != 5:
            raise errors.NotApplicableError(f"{self!r} is of clips; given: items of shape {tuple(batch.shape[1:])}")
        accepted = f"views that clips of {batch.shape[1]} frames hold: {first - last} frames more are wanted"
        errors.check(last >= first, "views", self, accepted)
        at = torch.randint(first, last + 1, (len(batch),), generator=rng, device=batch.device)
        return self._at(batch, augmentation, at, augmentation.draw(batch, rng))

    def plain(self, batch: Any, augmentation: Any) -> tuple[Tensor, ...]:
        """The views around the middle of each clip, without randomness."""
        first, last = self._span(batch)
        at = torch.full((len(batch),), (first + last) // 2, device=batch.device)
        return self._at(batch, augmentation, at, None)

    def _span(self, batch: Tensor) -> tuple[int, int]:
        """The first and the last frame around which a clip holds the views; the first may be behind the last."""
        frames_before = self.stack // 2
        frames_after = max(self.stack - frames_before, self.k or 0)
        return frames_before, batch.shape[1] - 1 - frames_after

    def _at(self, batch: Tensor, augmentation: Any, at: Tensor, draws: Any) -> tuple[Tensor, ...]:
        """The views around frame number ``at`` (int64 ``[B]``) of each clip."""
        frame = augmentation.frame(batch, at, draws)
        views = [augmentation.normalise(frame)]
        if self.k:
            later_frame = augmentation.frame(batch, at + self.k, draws)
            views.append(augmentation.normalise(later_frame))
        if self.stack:
            views.append(augmentation.flow(batch, at, self.stack, draws))
        return tuple(views)

    @property
    def latex(self) -> str:
        names = ", ".join(f"v_{k + 1}" for k in range(len(self.streams)))
        seen = "i_t"
        if self.k:
            seen += f", i_{{t+{self.k}}}"
        if self.stack:
            seen += f", f_t^{{({self.stack})}}"
        return rf"({names}) = t({seen}),\quad t \sim \mathcal{{T}}"


@dataclass(frozen=True)
class Frames(ClipViews):
    """A frame i_t and the frame k later, i_{t+k}, each against the other: the ventral stream (V).

    Attributes:
        k: frames between the two; the paper does not print it.
        shared: both are seen by one encoder, as the paper's "two CaffeNets [of] images and optical flows" has it.
    """

    k: int = 5
    shared: bool = True

    def __post_init__(self) -> None:
        errors.check_integer("k", self.k)


@dataclass(frozen=True)
class Flow(ClipViews):
    """A frame i_t and the flow f_t around it, each against the other (D); with ``k``, i_t and i_{t+k} too (V+D).

    Attributes:
        stack: successive flows, 2 channels each; ten in the paper, from frame t − 5 to frame t + 5.
        k: ``None``, or frames to a later frame.
        shared: one encoder sees both frames.
    """

    stack: int = 10
    k: int | None = None
    shared: bool = True

    def __post_init__(self) -> None:
        errors.check_integer("stack", self.stack)
        if self.k is not None:
            errors.check_integer("k", self.k)
