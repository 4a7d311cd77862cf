"""Pictures with a sentence about each: a set in memory, how both are seen, and an encoder for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from contrastlab.domains.text import augmentation as text
from contrastlab.domains.text import network as networks
from contrastlab.domains.text.data import Texts
from contrastlab.pictures import encoder as pictures
from contrastlab.pictures import modality as images
from contrastlab.pictures.domain import Modality
from contrastlab.pictures.items import Items
from contrastlab.settings import Settings
from contrastlab.support.errors import check
from contrastlab.views import Augmentation, Views


@dataclass(frozen=True)
class Captioned:
    """A batch of pictures and the sentence of each, indexed as a tensor is."""

    pictures: Tensor  #: uint8 ``[N, C, H, W]``, grey or RGB
    sentences: Texts  #: N

    def __post_init__(self) -> None:
        shape = tuple(self.pictures.shape)
        fits = self.pictures.dtype == torch.uint8 and len(shape) == 4 and shape[1] in (1, 3)
        check(fits, "pictures", f"{self.pictures.dtype} of shape {shape}", "uint8 of shape [N, C, H, W], C 1 or 3")
        accepted = f"{len(self.pictures)}, one for each picture"
        check(len(self.sentences) == len(self.pictures), "sentences", len(self.sentences), accepted)

    @property
    def device(self) -> torch.device:
        """Where the pictures are, and the token numbers of the sentences belong."""
        return self.pictures.device

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: Any) -> Any:
        """Some pairs, or a picture with its sentence."""
        if isinstance(index, slice):
            return Captioned(self.pictures[index], self.sentences[index])
        return self.pictures[index], self.sentences[index]

    def index_select(self, dim: int, index: Tensor) -> Captioned:
        """The pairs at ``index``; ``dim`` is 0."""
        return Captioned(self.pictures.index_select(dim, index), self.sentences.index_select(dim, index))

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Captioned:
        """The same pairs on ``device``."""
        return Captioned(self.pictures.to(device, non_blocking=non_blocking), self.sentences.to(device))


@dataclass(frozen=True, eq=False, repr=False)
class CaptionedSet(Items):
    """Pictures in memory, grey or RGB, with one sentence about each."""

    domain: ClassVar[str] = "contrastlab.domains.text"
    modality: ClassVar[str] = "captioned image"
    shape: ClassVar[str] = "Captioned, pictures and their sentences"

    items: Captioned  # type: ignore[assignment]

    def _fits(self) -> bool:
        return isinstance(self.items, Captioned)

    def _hashed(self) -> Iterator[str | Tensor]:
        yield repr(tuple(self.items.pictures.shape))
        yield self.items.pictures
        yield repr(tuple(self.items.sentences))
        yield self.labels

    @property
    def channels(self) -> int:
        """Numbers of a pixel; 1 for grey, 3 for RGB."""
        return self.items.pictures.shape[1]


@dataclass(frozen=True)
class CaptionedAugmentation:
    """Random views of a picture and of its sentence, which are drawn apart.

    To views that know no sentences it is the augmentation of the pictures alone.
    """

    pictures: Augmentation
    sentences: text.Tokens

    def random(self, batch: Captioned, rng: torch.Generator | None = None, *, view: int = 0) -> Tensor:
        """One random view of each picture."""
        return self.pictures.random(batch.pictures, rng, view=view)

    def plain(self, batch: Captioned) -> Tensor:
        """The view of each picture that evaluation sees."""
        return self.pictures.plain(batch.pictures)

    def normalise(self, view: Tensor) -> Tensor:
        """The view of a picture as an encoder reads it."""
        return self.pictures.normalise(view)


def augmentation(settings: Settings) -> CaptionedAugmentation:
    """The augmentation of pictures that settings name, and their views of sentences."""
    return CaptionedAugmentation(images.image_views(settings), text.tokens(settings))


def build(in_channels: int, *, picture: Mapping[str, Any], sentence: Mapping[str, Any]) -> nn.Module:
    """A new encoder of pictures with so many channels; of sentences for 0, which is how a sentence is counted."""
    if in_channels:
        return pictures.build(in_channels=in_channels, **picture)
    encoder = networks.build(**sentence)
    encoder.in_channels = 0
    return encoder


def build_arguments(settings: Settings) -> Mapping[str, Any]:
    """The kind of encoder, and arguments of :func:`build` that settings decide."""
    sentence = dict(text.build_arguments(settings))
    del sentence["kind"]
    return {"kind": "captioned image", "picture": images.build_arguments(settings), "sentence": sentence}


def encoders(views: Views, source: Any, settings: Settings) -> nn.ModuleList:
    """One new encoder per stream; of sentences with the weights of the model folder if settings name one."""
    arguments = dict(build_arguments(settings))
    del arguments["kind"]
    arguments["sentence"]["weights"] = text.weights(settings)
    return nn.ModuleList(build(channels, **arguments) for channels in views.channels(source.channels))


CAPTIONED_IMAGE = Modality("captioned image", augmentation, encoders, build_arguments)
