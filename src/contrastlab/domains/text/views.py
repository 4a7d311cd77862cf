"""Two views of a pair that are of two modalities: a picture, and a sentence about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from contrastlab.support import errors
from contrastlab.views.base import Views


@dataclass(frozen=True)
class Captions(Views):
    """A random view of a picture, and its sentence, each seen by an encoder of its own (CLIP).

    Each is contrasted with the other. A sentence has no channels, so its stream has 0 of them.
    """

    streams = ("picture", "sentence")
    pairs = ((0, 1), (1, 0))

    def channels(self, image_channels: int) -> tuple[int, ...]:
        """``(image_channels, 0)``."""
        return (image_channels, 0)

    def make(self, batch: Any, augmentation: Any, rng: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """Pictures ``[B, C, size, size]``, normalised, and token numbers ``[B, T]``, −1 behind the end of a sentence.

        A batch is :class:`contrastlab.domains.text.captions.Captioned`.
        """
        self._check(batch)
        picture = augmentation.normalise(augmentation.random(batch, rng))
        return picture, augmentation.sentences.random(batch.sentences, rng)

    def plain(self, batch: Any, augmentation: Any) -> tuple[Tensor, ...]:
        self._check(batch)
        picture = augmentation.normalise(augmentation.plain(batch))
        return picture, augmentation.sentences.plain(batch.sentences)

    def _check(self, batch: Any) -> None:
        if not hasattr(batch, "sentences"):
            raise errors.NotApplicableError(f"{self!r} needs pictures with sentences; captions has them")

    latex = r"v_1=t(x),\ v_2=\text{the sentence about }x,\quad t\sim\mathcal{T}"
