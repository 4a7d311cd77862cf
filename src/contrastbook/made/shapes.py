"""``shapes``: ten filled silhouettes under independent nuisance factors, generated from a seed and an index.

Every image is a function of ``(seed, index)`` alone, by a counter-based hash in arithmetic that IEEE 754 rounds the
same way everywhere; sines and cosines, which it does not, are snapped to a grid of 2⁻³⁰. The shape alone gives the
class: silhouettes have the same area and centroid. The texture is weak on purpose: instance discrimination takes the
easiest cue that survives augmentation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from contrastlab.data import ImageSet, Request, Splits
from contrastlab.support.errors import reject, unknown

SIDE = 32  # height and width of an image in pixels
TEST_OFFSET = 2_000_000_000  # index of the first test image; training images are counted from 0

Ranges = Mapping[str, tuple[float, float]]
"""Factors by name, each with the interval that it is drawn from, uniformly and independently."""

RANGES: Ranges = {
    "x": (-5.0, 5.0),
    "y": (-5.0, 5.0),
    "scale": (6.5, 9.0),
    "rotation": (0.0, 2 * math.pi),
    "foreground_hue": (0.0, 1.0),
    "background_hue": (0.0, 1.0),
    "texture": (0.0, 0.06),
    "texture_angle": (0.0, math.pi),
    "texture_period": (3.0, 8.0),
    "texture_phase": (0.0, 1.0),
    "light": (0.0, 0.4),
    "light_angle": (0.0, 2 * math.pi),
    "noise": (0.0, 0.03),
}
"""The nuisance factors of ``shapes``: in pixels, radians from the x axis down, fractions of the circle of hues.

``x``, ``y``: centroid from the middle of the image. ``scale``: radius of the disc of the same area. ``texture``,
``light``: relative amplitude of the background stripes and of the gradient across half the image. ``noise``: standard
deviation, fraction of full scale.
"""

PLAIN: Ranges = {
    **RANGES,
    "x": (-4.0, 4.0),
    "y": (-4.0, 4.0),
    "scale": (8.0, 10.0),
    "foreground_hue": (0.0, 1 / 6),
    "background_hue": (1 / 2, 2 / 3),
    "texture": (0.0, 0.03),
    "light": (0.0, 0.2),
    "noise": (0.0, 0.02),
}
"""The intervals of ``plain_shapes``: large warm shapes on cold grounds, so that minutes on a CPU are enough.

The price: the nearest neighbour in pixels is right more often, too.
"""

_SATURATION = 0.85
_FOREGROUND_VALUE = 0.95
_BACKGROUND_VALUE = 0.45
_CHUNK = 256  # images rendered at a time: the float64 intermediates stay in the processor's cache

_GOLDEN = -0x61C8864680B583EB  # 2⁶⁴/φ as a signed 64-bit number


def mix(z: Tensor) -> Tensor:
    """SplitMix64's finaliser (Steele, Lea & Flood 2014) on int64, whose products wrap modulo 2⁶⁴."""
    # `>>` of a signed integer copies the sign bit; the masks make it the logical shift the hash wants.
    z = (z ^ ((z >> 30) & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47
    z = (z ^ ((z >> 27) & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15
    return z ^ ((z >> 31) & 0x1FFFFFFFF)


def seed_key(seed: int) -> Tensor:
    """The key of a data set; ``mix(seed_key(seed) + index)`` is that of an item."""
    return mix(torch.tensor(seed) + _GOLDEN)


def _draw(key: Tensor, counter: Tensor) -> Tensor:
    """Random 64 bits, int64 of the broadcast shape; counter 0 is never the key itself."""
    return mix(key + (counter + 1) * _GOLDEN)


def draw_factors(keys: Tensor, ranges: Ranges) -> dict[str, Tensor]:
    """The factors of the items with these keys ``[n]``: float64 ``[n]`` by name."""
    bits = _draw(keys[:, None], torch.arange(len(ranges)))
    uniform = ((bits >> 11) & 0x1FFFFFFFFFFFFF).double() * 2.0**-53
    factors: dict[str, Tensor] = {}
    for number, (name, (low, high)) in enumerate(ranges.items()):
        factors[name] = low + (high - low) * uniform[:, number]
    return factors


def draw_noise(keys: Tensor, factors: Mapping[str, Tensor], *size: int) -> Tensor:
    """Uniform noise ``[n, *size[:-2], 3, H, W]`` with the standard deviations ``factors["noise"]``."""
    ones = [1] * len(size)
    # one hash a pixel; its three 21-bit lanes are the noise of the three channels
    counters = len(factors) + torch.arange(math.prod(size)).view(size)
    bits = _draw(keys.view(-1, *ones), counters)
    lanes = torch.stack([(bits >> shift) & 0x1FFFFF for shift in (0, 21, 42)], -3)
    uniform = (lanes.double() + 0.5) * 2.0**-20 - 1  # in (−1, 1), of deviation 1/√3
    return factors["noise"].view(-1, 1, *ones) * uniform * math.sqrt(3)


# Signed distances in units of the shape's own size, negative inside; x and y are pixel coordinates. Half-planes, boxes
# and discs joined by min (union) and max (intersection): exact beside an edge, which is all that anti-aliasing reads.


def _planes(x: Tensor, y: Tensor, sides: int) -> Tensor:
    """Distances to the sides of a regular polygon of inradius 1, one side facing +y, in the first axis."""
    distances = []
    for k in range(sides):
        angle = 2 * math.pi * (0.25 + k / sides)
        cos = round(math.cos(angle) * 2**30) / 2**30
        sin = round(math.sin(angle) * 2**30) / 2**30
        distances.append(cos * x + sin * y - 1.0)
    return torch.stack(distances)


def _box(x: Tensor, y: Tensor, cx: float, cy: float, w: float, h: float) -> Tensor:
    """A box with its centre at (cx, cy), of half width w and half height h."""
    return torch.maximum((x - cx).abs() - w, (y - cy).abs() - h)


def _circle(x: Tensor, y: Tensor, cx: float, cy: float, r: float) -> Tensor:
    """A disc of radius r with its centre at (cx, cy)."""
    return ((x - cx) * (x - cx) + (y - cy) * (y - cy)).sqrt() - r


def _disc(x: Tensor, y: Tensor) -> Tensor:
    return _circle(x, y, 0, 0, 1)


def _square(x: Tensor, y: Tensor) -> Tensor:
    return _box(x, y, 0, 0, 1, 1)


def _triangle(x: Tensor, y: Tensor) -> Tensor:
    return _planes(x, y, 3).amax(0)


def _star(x: Tensor, y: Tensor) -> Tensor:
    """A pentagram: the points inside at least four of five half-planes."""
    return _planes(x, y, 5).sort(0).values[-2]


def _cross(x: Tensor, y: Tensor) -> Tensor:
    across = _box(x, y, 0, 0, 1, 0.32)
    upright = _box(x, y, 0, 0, 0.32, 1)
    return torch.minimum(across, upright)


def _ring(x: Tensor, y: Tensor) -> Tensor:
    return _circle(x, y, 0, 0, 0.78).abs() - 0.22


def _crescent(x: Tensor, y: Tensor) -> Tensor:
    """A disc without a smaller one that lies to its right."""
    return torch.maximum(_disc(x, y), -_circle(x, y, 0.5, 0, 0.8))


def _heart(x: Tensor, y: Tensor) -> Tensor:
    """A square on its corner with a disc on each of its two upper sides."""
    h = math.sqrt(0.5)
    square = torch.maximum((h * (x + y)).abs(), (h * (x - y)).abs()) - 1
    left = _circle(x, y, -h, -h, 1)
    right = _circle(x, y, h, -h, 1)
    return torch.minimum(square, torch.minimum(left, right))


def _hexagon(x: Tensor, y: Tensor) -> Tensor:
    return _planes(x, y, 6).amax(0)


def _ell(x: Tensor, y: Tensor) -> Tensor:
    upright = _box(x, y, -0.65, 0, 0.35, 1)
    foot = _box(x, y, 0, 0.65, 1, 0.35)
    return torch.minimum(upright, foot)


_DISTANCES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "disc": _disc,
    "square": _square,
    "triangle": _triangle,
    "star": _star,
    "cross": _cross,
    "ring": _ring,
    "crescent": _crescent,
    "heart": _heart,
    "hexagon": _hexagon,
    "ell": _ell,
}
CLASSES: tuple[str, ...] = tuple(_DISTANCES)
"""Names of the silhouettes; item ``i`` has class ``i % 10``."""

FRAMES: Mapping[str, tuple[float, float, float]] = {
    "disc": (1.0, 0.0, 0.0),
    "square": (0.886227, 0.0, 0.0),
    "triangle": (0.777561, 0.0, 0.0),
    "star": (0.516953, 0.0, 0.0),
    "cross": (1.208691, 0.0, 0.0),
    "ring": (1.206932, 0.0, 0.0),
    "crescent": (1.433124, -0.386013, 0.0),
    "heart": (0.663144, 0.0, -0.442722),
    "hexagon": (0.952311, 0.0, 0.0),
    "ell": (1.166189, -0.256061, 0.256061),
}
"""Units of a silhouette's own size per radius of the disc of equal area, and its centroid (x, y) in its own units.

A more exact value would change the rendered bytes.
"""


def silhouette(name: str, x: Tensor, y: Tensor) -> Tensor:
    """Signed distance to one of :data:`CLASSES`, negative inside, in radii of the disc of equal area, like x and y."""
    if name not in _DISTANCES:
        raise unknown("silhouette", name, CLASSES)
    size, cx, cy = FRAMES[name]
    return _DISTANCES[name](x / size + cx, y / size + cy) * size


def snap(x: Tensor) -> Tensor:
    """``x`` on a grid of 2⁻³⁰: hides the last bits, in which mathematics libraries differ."""
    return torch.round(x * 2.0**30) * 2.0**-30


def grid() -> tuple[Tensor, Tensor]:
    """Coordinates (x, y) of the pixels from the middle of the image, broadcast to ``[H, W]``."""
    axis = torch.arange(SIDE, dtype=torch.float64) - (SIDE - 1) / 2
    return axis[None, :], axis[:, None]


def local(x: Tensor, y: Tensor, turn: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Coordinates from the centroid of a silhouette in its own frame, as :func:`silhouette` takes them."""
    cos = snap(turn.cos())
    sin = snap(turn.sin())
    u = (cos * x + sin * y) / scale
    v = (cos * y - sin * x) / scale
    return u, v


def cover(kinds: Tensor, names: Sequence[str], u: Tensor, v: Tensor, scale: Tensor) -> Tensor:
    """How much of each pixel silhouettes cover, at coordinates ``[n, …]`` of :func:`silhouette`; ``kinds`` is ``[n]``.

    There is one pixel of ramp across the edge. ``scale``: radius of the disc of equal area in pixels, ``[n, 1, …]``.
    """
    alpha = torch.empty_like(u)
    for kind, name in enumerate(names):
        rows = kinds == kind
        distance = silhouette(name, u[rows], v[rows]) * scale[rows]  # pixels
        alpha[rows] = (0.5 - distance).clamp(0, 1)
    return alpha


def triangle_wave(phase: Tensor) -> Tensor:
    """From −1 to 1 and of period 1, so that no sine touches a pixel."""
    return 4 * (phase - phase.floor() - 0.5).abs() - 1


def colour(hue: Tensor, value: float) -> Tensor:
    """RGB ``[n, 3, 1, 1]`` of hues ``[n]`` at the module's saturation: the piecewise linear HSV formula."""
    thirds = torch.tensor([0.0, 2 / 3, 1 / 3], dtype=torch.float64)
    turn = hue[:, None] + thirds
    turn = turn - turn.floor()
    ramp = ((turn * 6 - 3).abs() - 1).clamp(0, 1)
    rgb = value * (1 - _SATURATION + _SATURATION * ramp)
    return rgb[:, :, None, None]


def along(angle: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """The coordinate along directions ``angle``, which broadcast with ``x`` and ``y``."""
    return snap(angle.cos()) * x + snap(angle.sin()) * y


def to_bytes(pixels: Tensor) -> Tensor:
    """Colours in [0, 1] as uint8."""
    return (pixels.clamp(0, 1) * 255).round().to(torch.uint8)


def _render_chunk(index: Tensor, key: Tensor, ranges: Ranges) -> tuple[Tensor, dict[str, Tensor]]:
    """Images uint8 ``[n, 3, H, W]`` of these indices ``[n]``, and their factors ``[n]``."""
    keys = mix(key + index)
    factors = draw_factors(keys, ranges)
    wide = {name: values[:, None, None] for name, values in factors.items()}
    x, y = grid()
    u, v = local(x - wide["x"], y - wide["y"], wide["rotation"], wide["scale"])
    alpha = cover(index % len(CLASSES), CLASSES, u, v, wide["scale"])
    phase = along(wide["texture_angle"], x, y) / wide["texture_period"] + wide["texture_phase"]
    stripes = 1 + wide["texture"] * triangle_wave(phase)
    light = 1 + wide["light"] * along(wide["light_angle"], x, y) / (SIDE / 2)
    foreground = colour(factors["foreground_hue"], _FOREGROUND_VALUE)
    background = colour(factors["background_hue"], _BACKGROUND_VALUE) * stripes[:, None]
    pixels = background + alpha[:, None] * (foreground - background)
    pixels = pixels * light[:, None]
    pixels += draw_noise(keys, factors, SIDE, SIDE)
    return to_bytes(pixels), factors


def check(index: Tensor, seed: int) -> None:
    """Refuse indices and seeds that the generator cannot count: both are below 2³²."""
    if not 0 <= seed < 2**32:
        raise reject("seed", seed, "an integer in [0, 2**32)")
    accepted = "an int64 vector of integers in [0, 2**32)"
    if index.ndim != 1 or index.dtype != torch.int64:
        raise reject("index", index, accepted)
    is_outside = (index < 0) | (index >= 2**32)
    if bool(is_outside.any()):
        raise reject("index", index, accepted)


def joined(chunks: Iterable[tuple[Tensor, dict[str, Tensor]]]) -> tuple[Tensor, dict[str, Tensor]]:
    """Items and their factors, chunk after chunk."""
    items: list[Tensor] = []
    factors: dict[str, list[Tensor]] = {}
    for chunk, factors_of_chunk in chunks:
        items.append(chunk)
        for name, values in factors_of_chunk.items():
            factors.setdefault(name, []).append(values)
    return torch.cat(items), {name: torch.cat(values) for name, values in factors.items()}


def render(index: Tensor, seed: int = 0, ranges: Ranges = RANGES) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Images of the given indices, int64 ``[N]`` in [0, 2³²); from :data:`TEST_OFFSET` up they are the test images.

    ``ranges``: :data:`RANGES` or :data:`PLAIN`, or other intervals by the same names. Returns uint8 ``[N, 3, 32, 32]``,
    labels ``[N]`` into :data:`CLASSES`, and the nuisance factors, float32 ``[N]`` by name.
    """
    if list(ranges) != list(RANGES):  # a factor's number is its place in RANGES
        raise reject("ranges", list(ranges), f"intervals of {', '.join(RANGES)}")
    check(index, seed)
    key = seed_key(seed)
    chunks = [_render_chunk(rows, key, ranges) for rows in index.cpu().split(_CHUNK)]
    images, exact = joined(chunks)
    factors = {name: values.float() for name, values in exact.items()}
    return images, index % len(CLASSES), factors


def counted(request: Request, part: Callable[..., Any], n_train: int, n_test: int, note: str) -> Splits:
    """Splits of as many items as the request says; ``part`` makes one from name, first index, count and seed."""
    n_train = request.n_train or n_train
    n_test = request.n_test or n_test
    _check_count("n_train", n_train, most=TEST_OFFSET)
    _check_count("n_test", n_test, most=2**32 - TEST_OFFSET)
    train = part(f"{request.name}/train", 0, n_train, request.seed)
    test = part(f"{request.name}/test", TEST_OFFSET, n_test, request.seed)
    return Splits.of(request.name, train, test, f"{note}, seed {request.seed}")


def _check_count(argument: str, value: int, most: int) -> None:
    """Refuse more items than indices allow."""
    if value > most:
        raise reject(argument, value, f"at most {most}: the generator counts no further")


@lru_cache(maxsize=4)
def _part(name: str, start: int, count: int, seed: int) -> ImageSet:
    """The images from index ``start`` on; ``name``: the data set's and the part's, such as ``shapes/train``."""
    ranges = PLAIN if name.startswith("plain_shapes/") else RANGES
    images, labels, factors = render(torch.arange(start, start + count), seed, ranges)
    if name.startswith("shapes_recoloured/"):
        images = 255 - images[:, :, 4:-4, 4:-4]
    return ImageSet(name, images, labels, CLASSES, factors)


def load(request: Request) -> Splits:
    """The splits of ``shapes``, ``plain_shapes`` or ``shapes_recoloured``."""
    if request.name != "shapes_recoloured":
        return counted(request, _part, 10_000, 2_000, "generated silhouettes")
    train = _part("shapes_recoloured/train", 0, 2000, 1)
    test = _part("shapes_recoloured/test", TEST_OFFSET, 1000, 1)
    note = "generated silhouettes of another seed in complementary colours: dark on bright, magnified by a third"
    return Splits.of(request.name, train, test, note)
