"""Single pictures: decoded, cut out, resized, as pixels."""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from contrastlab.data import limits
from contrastlab.errors import ContrastLabError, CorruptFileError, TooLargeError, unreadable

STREAMED_SIDE = 256  # what ImageNet protocols resize the shorter side to before a 224-pixel crop


FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""Of Pillow, told by a file's content: an EPS file called ``.jpg`` would be handed to another program."""


@contextmanager
def opened(source: Path | bytes, where: str = "") -> Iterator[Image.Image]:
    """A picture whose header has been read and whose pixels have not.

    Args:
        source: a file, or its content.
        where: what to call it in errors; by default the file, or "an image".

    Raises:
        CorruptFileError: it is not a picture of one of :data:`FORMATS`, here or where its pixels are read inside.
        TooLargeError: it has more pixels than :data:`contrastlab.data.limits.MAX_PIXELS`.
        StorageError: it may not be read.
        FileNotFoundError: it is not there.
    """
    where = where or ("an image" if isinstance(source, bytes) else str(source))
    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS) as image:
            limits.check_pixels(*image.size, where)
            yield image
    except FileNotFoundError:
        raise
    except PermissionError as error:
        raise unreadable(where, error) from error
    except Image.DecompressionBombError as error:
        count = re.search(r"[0-9]+ pixels", str(error))
        raise TooLargeError(
            f"{where} has {count[0] if count else 'too many pixels'}: accepted are at most {limits.MAX_PIXELS}"
        ) from error
    except ContrastLabError:
        raise
    except _UNREADABLE as error:
        raise CorruptFileError(f"{where} cannot be decoded: {error}") from error


# what Pillow's readers raise on damaged files
_UNREADABLE = (OSError, UnidentifiedImageError, ValueError, SyntaxError, EOFError, LookupError, TypeError, struct.error)


def decode(source: Path | bytes, where: str = "") -> Image.Image:
    """An encoded picture as it is stored, as grey (mode ``L``) or as ``RGB``.

    A palette and CMYK become RGB, transparency is left out, of an animation the first frame is taken, and of 16 bits
    the upper eight. The orientation that EXIF notes is not applied: annotations count pixels as they are stored, and
    torchvision's folders are read so, too.

    Raises:
        CorruptFileError: it cannot be decoded, or has 32 bits a channel.
        TooLargeError: see :func:`opened`.
        FileNotFoundError: it is not there.
    """
    with opened(source, where) as image:
        if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
            return Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
        if image.mode in ("I", "F"):
            raise ValueError(f"pixels of 32 bits (mode {image.mode}): accepted are 8 or 16 bits a channel")
        return in_mode(image, "L" if image.mode in ("1", "L") else "RGB")


def in_mode(image: Image.Image, mode: str) -> Image.Image:
    """``image``, decoded, in a mode of Pillow; Pillow would copy one that has it already."""
    image.load()
    return image if image.mode == mode else image.convert(mode)


def square(image: Image.Image, side: int) -> Image.Image:
    """``image`` with its shorter side resized to ``side`` (bilinear, anti-aliased) and its middle square cut out."""
    width, height = image.size
    if min(width, height) != side:
        scale = side / min(width, height)
        width, height = max(round(width * scale), side), max(round(height * scale), side)
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - side) // 2, (height - side) // 2
    return image.crop((left, top, left + side, top + side))


def cropped(image: Image.Image, box: tuple[int, int, int, int], side: int) -> Image.Image:
    """The part ``box`` (top, left, height, width) of ``image``, resized to a square (bilinear, anti-aliased).

    Cut out first, so that no pixel outside the box is seen: what torchvision's ``resized_crop`` does.
    """
    top, left, height, width = box
    part = image.crop((left, top, left + width, top + height))
    return part.resize((side, side), Image.Resampling.BILINEAR)


def chw(image: Image.Image, channels: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Pixels as uint8 ``[channels, H, W]``, contiguous."""
    pixels = np.asarray(in_mode(image, "L" if channels == 1 else "RGB"))
    return np.array(pixels[None] if channels == 1 else pixels.transpose(2, 0, 1), order="C")
