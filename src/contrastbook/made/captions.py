"""``captions``: silhouettes on coloured grounds, each with a sentence that says its shape, colours and place.

Pictures are those of :mod:`contrastbook.made.shapes`, with its own intervals and its own arithmetic. A sentence is a
function of the picture's factors, of the seed and of the index: colours and places have several words, and a meaning
several orders, as in :mod:`contrastbook.made.grammar`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from contrastbook.made import shapes
from contrastlab.data import Request, Splits
from contrastlab.domains.text.captions import Captioned, CaptionedSet
from contrastlab.domains.text.data import Texts

RANGES: shapes.Ranges = {**shapes.RANGES, "x": (-6.0, 6.0), "y": (-6.0, 6.0), "scale": (5.0, 9.0)}
"""The intervals of the pictures' factors; see :data:`contrastbook.made.shapes.RANGES`."""

COLOURS: tuple[tuple[str, ...], ...] = (
    ("red", "scarlet"),
    ("yellow", "golden"),
    ("green", "emerald"),
    ("cyan", "turquoise"),
    ("blue", "azure"),
    ("magenta", "pink"),
)
"""Words for the six hues at equal distances on the circle, red first; a hue has the words of the closest."""

_SIZES = (("small", "little"), ("large", "big"))
_ROWS = (("upper", "top"), ("lower", "bottom"))
_COLUMNS = (("left",), ("right",))
_ORDERS = (
    "A {size} {colour} {shape} in the {row} {column} corner, on {ground}.",
    "On {ground}, at the {row} {column}, a {size} {colour} {shape}.",
    "{Ground} ground with a {size} {colour} {shape} in the {row} {column} part.",
)


def colour_number(hue: float) -> int:
    """Which of :data:`COLOURS` names a hue, a fraction of the circle."""
    return math.floor(hue * len(COLOURS) + 0.5) % len(COLOURS)


def meaning(factors: Mapping[str, float], shape: str) -> dict[str, tuple[str, ...]]:
    """The words that fit each part of a picture's sentence."""
    low, high = RANGES["scale"]
    is_large = factors["scale"] >= (low + high) / 2
    return {
        "size": _SIZES[int(is_large)],
        "colour": COLOURS[colour_number(factors["foreground_hue"])],
        "shape": (shape,),
        "row": _ROWS[int(factors["y"] >= 0)],
        "column": _COLUMNS[int(factors["x"] >= 0)],
        "ground": COLOURS[colour_number(factors["background_hue"])],
    }


def say(words: Mapping[str, tuple[str, ...]], rng: np.random.Generator) -> str:
    """One of the ways to say a meaning."""
    said = {}
    for part, synonyms in words.items():
        said[part] = synonyms[int(rng.integers(len(synonyms)))]
    order = _ORDERS[int(rng.integers(len(_ORDERS)))]
    return order.format(**said, Ground=said["ground"].capitalize())


def captions(index: Tensor, seed: int) -> tuple[Tensor, Tensor, list[str]]:
    """Pictures uint8 ``[N, 3, 32, 32]`` of these indices, their silhouettes ``[N]``, and a sentence about each."""
    pictures, labels, factors = shapes.render(index, seed, RANGES)
    sentences = []
    for row, (number, label) in enumerate(zip(index.tolist(), labels.tolist(), strict=True)):
        own = {name: float(values[row]) for name, values in factors.items()}
        words = meaning(own, shapes.CLASSES[label])
        sentences.append(say(words, np.random.default_rng((seed, number))))
    return pictures, labels, sentences


def _part(name: str, start: int, count: int, seed: int) -> CaptionedSet:
    pictures, labels, sentences = captions(torch.arange(start, start + count), seed)
    return CaptionedSet(name, Captioned(pictures, Texts(sentences)), labels, shapes.CLASSES)


def load(request: Request) -> Splits:
    """The splits of ``captions``; the class of a pair is the silhouette."""
    return shapes.counted(request, _part, 4_000, 1_000, "generated silhouettes with sentences")
