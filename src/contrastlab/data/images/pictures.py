"""Single pictures: decoded, cut out, resized, as pixels."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from contrastlab.errors import CorruptFileError

STREAMED_SIDE = 256  # what ImageNet protocols resize the shorter side to before a 224-pixel crop


def decode(source: str | Path | bytes) -> Image.Image:
    """An encoded image, as grey (mode ``L``) if it is stored so and as ``RGB`` otherwise.

    Raises:
        CorruptFileError: the bytes are not an image that Pillow can read.
    """
    name = "an image" if isinstance(source, bytes) else str(source)
    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
            return in_mode(image, "L" if image.mode in ("1", "L") else "RGB")
    except FileNotFoundError:
        raise
    except (OSError, UnidentifiedImageError, ValueError, SyntaxError) as error:
        raise CorruptFileError(f"{name} cannot be decoded: {error}") from error


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
