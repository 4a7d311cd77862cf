"""Pictures: decoded, cut out, resized, as pixels; sets of them in memory or in files."""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError, features
from torch import Tensor

from contrastlab.pictures import limits
from contrastlab.pictures.items import Files, Items
from contrastlab.support.errors import ContrastLabError, CorruptFileError, TooLargeError, check, is_integer, unreadable
from contrastlab.support.files import check_regular
from contrastlab.views.colour import LEVELS

if TYPE_CHECKING:
    from contrastlab.pictures.loading import Crops

STREAMED_SIDE = 256  # what ImageNet protocols resize the shorter side to before a 224-pixel crop

AVIF = (".avif",) if features.check("avif") else ()
FORMATS: tuple[str, ...] = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
if AVIF:
    FORMATS = (*FORMATS, "AVIF")
"""Of Pillow, decided by a file's content: an EPS file called ``.jpg`` would be handed to another program."""

_UNREADABLE = (OSError, ValueError, SyntaxError, EOFError, LookupError, TypeError, struct.error)  # of Pillow's readers


_OF_MANY_BANDS = (
    "it is a TIFF of a kind that Pillow does not know, such as one of many bands; write the pixels of all pictures into"
    " one array of NumPy [N, C, H, W], and read it by arrays:<path>"
)


@contextmanager
def opened(source: Path | bytes | Image.Image, where: str = "") -> Iterator[Image.Image]:
    """A picture, from a file or its content, whose header has been read and whose pixels have not.

    What is no picture of one of :data:`FORMATS`, here or where its pixels are read inside, is a ``CorruptFileError``
    that calls it ``where``; more pixels than :data:`contrastlab.pictures.limits.MAX_PIXELS` are a ``TooLargeError``.
    """
    where = where or _name_of(source)
    if isinstance(source, Path):
        check_regular(source)
    try:
        if isinstance(source, Image.Image):
            limits.check_pixels(*source.size, where)
            yield source
            return
        file = io.BytesIO(source) if isinstance(source, bytes) else source
        with Image.open(file, formats=FORMATS) as image:
            limits.check_pixels(*image.size, where)
            yield image
    except (FileNotFoundError, ContrastLabError):
        raise
    except PermissionError as error:
        raise unreadable(where, error) from error
    except Image.DecompressionBombError as error:
        raise TooLargeError(f"{where}: {error} Accepted are at most {limits.MAX_PIXELS} pixels") from error
    except _UNREADABLE as error:
        reason = _OF_MANY_BANDS if isinstance(error, UnidentifiedImageError) and _is_tiff(source) else error
        raise CorruptFileError(f"{where} cannot be decoded: {reason}") from error


def _is_tiff(source: Path | bytes | Image.Image) -> bool:
    """Whether a file, or its content, begins as TIFF does."""
    if isinstance(source, Path):
        with source.open("rb") as file:
            source = file.read(4)
    return isinstance(source, bytes) and source[:4] in (b"II*\0", b"MM\0*")


def _name_of(source: Path | bytes | Image.Image) -> str:
    if isinstance(source, Path):
        return str(source)
    return "an image"


def decode(source: Path | bytes | Image.Image, where: str = "") -> Image.Image:
    """An encoded picture as it is stored, as grey (mode ``L``) or as ``RGB``; errors are those of :func:`opened`.

    A palette and CMYK become RGB, transparency is left out, of an animation the first frame is taken, and of 16 bits
    the upper eight; 32 bits a channel are refused. The orientation that EXIF notes is not applied: annotations count
    pixels as they are stored, and torchvision's folders are read so, too.
    """
    with opened(source, where) as image:
        if _has_16_bits(image):
            upper_bits = np.asarray(image).astype(np.uint16) >> 8
            return Image.fromarray(upper_bits.astype(np.uint8))
        if image.mode in ("I", "F"):
            raise ValueError(f"pixels of 32 bits (mode {image.mode}): accepted are 8 or 16 bits a channel")
        mode = "L" if image.mode in ("1", "L") else "RGB"
        return _in_mode(image, mode)


def _has_16_bits(image: Image.Image) -> bool:
    """Whether a picture is stored with 16 bits, which Pillow may call 32."""
    if image.mode.startswith("I;16"):
        return True
    return image.mode == "I" and image.format in ("PNG", "PPM")


def _in_mode(image: Image.Image, mode: str) -> Image.Image:
    image.load()
    if image.mode == mode:
        return image  # convert would copy it
    return image.convert(mode)


def square(image: Image.Image, side: int, where: object = "a picture") -> Image.Image:
    """``image`` with its shorter side resized to ``side`` (bilinear, anti-aliased) and its middle square cut out."""
    width, height = image.size
    shorter = min(width, height)
    if shorter != side:
        scale = side / shorter
        width = max(round(width * scale), side)
        height = max(round(height * scale), side)
        limits.check_pixels(width, height, f"{where}, its shorter side resized to {side},")
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    left = (width - side) // 2
    top = (height - side) // 2
    return image.crop((left, top, left + side, top + side))


def chw(image: Image.Image, channels: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Pixels as uint8 ``[channels, H, W]``, contiguous."""
    if channels == 1:
        pixels = np.asarray(_in_mode(image, "L"))[None]
    else:
        pixels = np.asarray(_in_mode(image, "RGB")).transpose(2, 0, 1)
    return np.array(pixels, order="C")


@dataclass(frozen=True, eq=False, repr=False)
class ImageSet(Items):
    """Images in memory, uint8 or uint16 ``[N, C, H, W]``: C is 1 (grey), 3 (RGB), or any other number of channels."""

    modality: ClassVar[str] = "image"
    by_item: ClassVar[tuple[str, ...]] = (*Items.by_item, "factors")
    shape: ClassVar[str] = "uint8 or uint16 of shape [N, C, H, W] with C at least 1"

    #: what else is known of each image, ``[N]`` by name: what a generated one was made from, or a video frame's track
    factors: Mapping[str, Tensor] = field(default_factory=dict)

    def _fits(self) -> bool:
        return self.items.dtype in LEVELS and self.items.ndim == 4 and self.channels > 0

    @property
    def images(self) -> Tensor:
        """The items."""
        return self.items

    def coloured(self) -> ImageSet:
        """Grey images with three equal channels, which share their memory; others as they are."""
        if self.channels != 1:
            return self
        return replace(self, items=self.items.expand(-1, 3, -1, -1))


@dataclass(frozen=True, eq=False, repr=False)
class StreamedImages(Files):
    """Image files that are decoded one at a time.

    ``images[index]`` is what evaluation sees: the middle square of the picture with its shorter side at ``resize``.
    Training takes its random crops from the whole picture, :meth:`crops`, as the papers' protocols do.
    ``boxes`` int64 ``[N, 4]`` of (top, left, height, width) are the parts of the files that are the pictures, such as
    one object each; a file may occur several times. None is whole files.
    """

    modality: ClassVar[str] = "image"
    by_item: ClassVar[tuple[str, ...]] = (*Files.by_item, "boxes")
    whole: ClassVar[bool] = False

    channels: int = 3  #: 1 (grey) or 3 (RGB): what every file is converted to
    resize: int = STREAMED_SIDE
    boxes: Tensor | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.channels in (1, 3), "channels", self.channels, "1 or 3")
        check(is_integer(self.resize), "resize", self.resize, "a side of at least 1 pixel")
        if self.boxes is not None:
            self._check_boxes(self.boxes)

    def _check_boxes(self, boxes: Tensor) -> None:
        actual = f"{boxes.dtype} of shape {tuple(boxes.shape)}"
        accepted = f"int64 of shape ({len(self)}, 4): top and left >= 0, height and width >= 1, for each path"
        check(boxes.dtype == torch.int64 and boxes.shape == (len(self), 4), "boxes", actual, accepted)
        least = torch.tensor([0, 0, 1, 1])
        check(bool((boxes >= least).all()), "boxes", actual, accepted)

    def _form(self) -> str:
        return f"{self.channels} {self.resize}, crops of whole pictures"

    def _hashed(self) -> Iterator[str | Tensor]:
        yield from super()._hashed()
        if self.boxes is not None:
            yield self.boxes

    def picture(self, index: int) -> Image.Image:
        """The picture at its full size; a ``CorruptFileError`` if it cannot be decoded or its box reaches beyond it."""
        image = decode(self.path(index))
        if self.boxes is None:
            return image
        top, left, height, width = self.boxes[index].tolist()
        if left + width > image.width or top + height > image.height:
            box = (top, left, height, width)
            size = f"{image.width}x{image.height} pixels"
            reaches = f"the box (top, left, height, width) = {box} reaches beyond them"
            raise CorruptFileError(f"{self.path(index)} has {size}: {reaches}")
        return image.crop((left, top, left + width, top + height))

    def __getitem__(self, index: int) -> Tensor:
        middle = square(self.picture(index), self.resize, self.path(index))
        return torch.from_numpy(chw(middle, self.channels))

    def crops(self, index: int, boxes: Callable[[int, int], Tensor], size: int) -> Tensor:
        """Resized crops of one picture, uint8 ``[V, channels, size, size]``; it is decoded once, at its full size.

        ``boxes`` takes its height and width in pixels and gives ``[V, 4]`` of (top, left, height, width), inside it.
        The crops are those of torchvision's ``resized_crop`` of Pillow images, to the bit.
        """
        # JPEG's own reduced decoding would give other pixels, and helps only where a crop shrinks to a half or less.
        image = self.picture(index)
        crops = []
        for top, left, height, width in boxes(image.height, image.width).tolist():
            box = image.crop((left, top, left + width, top + height))  # first, so that no pixel outside is seen
            crop = box.resize((size, size), Image.Resampling.BILINEAR)
            crops.append(chw(crop, self.channels))
        return torch.from_numpy(np.stack(crops))

    def part(self, index: int, crops: Crops, number: int) -> Tensor:
        """Random crops of one picture, uint8 ``[V, channels, size, size]``."""
        boxes = partial(crops.boxes, number)
        return self.crops(index, boxes, crops.size)

    def coloured(self) -> StreamedImages:
        """The same pictures, decoded as RGB."""
        return replace(self, channels=3)


def why_unreadable(source: Path | bytes, where: str = "") -> str:
    """Why a picture cannot be decoded; an empty text where it can. Rights are no reason, they are refused."""
    try:
        decode(source, where)
    except (CorruptFileError, TooLargeError) as reason:
        return str(reason)
    return ""


def threaded(function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
    """``map`` in threads (Pillow decodes without the interpreter lock), in blocks, which cost less to hand over."""
    with ThreadPool(os.cpu_count() or 1) as pool:
        yield from pool.imap(function, items, chunksize=256)


def stack(sources: Sequence[tuple[Path | bytes | Image.Image, str]]) -> Tensor:
    """What :func:`decode` makes of each, in one uint8 ``[N, C, H, W]``: grey if all are, cropped if sizes differ."""
    _check_total_pixels(sources)
    pictures = list(threaded(lambda source: decode(*source), sources))
    if not pictures:
        return torch.empty((0, 3, 1, 1), dtype=torch.uint8)
    sizes = {picture.size for picture in pictures}
    if len(sizes) > 1:
        shortest = min(min(size) for size in sizes)
        side = min(STREAMED_SIDE, shortest)
        pictures = list(threaded(lambda picture: square(picture, side), pictures))
    all_grey = all(picture.mode == "L" for picture in pictures)
    channels = 1 if all_grey else 3
    width, height = pictures[0].size
    pixels = np.empty((len(pictures), channels, height, width), np.uint8)
    for k, picture in enumerate(pictures):
        pixels[k] = chw(picture, channels)
    return torch.from_numpy(pixels)


def _check_total_pixels(sources: Sequence[tuple[Path | bytes | Image.Image, str]]) -> None:
    """Refuse more pixels than a set in memory may have, by the headers of its pictures."""
    total = 0
    for source, where in sources:
        with opened(source, where) as image:
            total += image.width * image.height
        limits.check_count(total, limits.MAX_SET_PIXELS, "pixels", f"{where or str(source)}, with all before it,")
