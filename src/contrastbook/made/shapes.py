"""``shapes``: ten filled silhouettes under independent nuisance factors, generated from a seed and an index.

Every image is a function of ``(seed, index)`` alone: the random numbers come from a counter-based hash, so item
``i`` has the same bytes whatever is rendered beside it. The arithmetic is ``+ - * /``, ``sqrt``, ``abs``, ``min``,
``max`` and ``floor`` in float64, which IEEE 754 rounds the same way everywhere; sines and cosines, which it does
not, are snapped to a grid of 2⁻³⁰ before use. Bytes can differ between two machines only where a cosine falls
within one unit in the last place of a grid boundary, or on hardware without float64.

The shape alone tells the class. All silhouettes have the same area and are centred on their centroid, so size and
mean colour tell nothing; colours, texture and light are drawn independently of the class. The background
texture is weak on purpose: instance discrimination takes the easiest cue that survives augmentation, and a strong
texture teaches texture and nothing of the shape.

``plain_shapes`` is the same with little else than the shape to tell pictures apart (:data:`PLAIN`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType

import torch
from torch import Tensor

from contrastlab.data import ImageSet, Request, Splits
from contrastlab.errors import reject, unknown

SIDE = 32
"""Height and width of an image in pixels."""

TEST_OFFSET = 2_000_000_000
"""Index of the first test image; training images are counted from 0, so the two never meet."""

_CHUNK = 256  # images rendered at a time: the float64 intermediates stay in the processor's cache

RANGES: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
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
)
"""Each nuisance factor and the interval it is drawn from, uniformly and independently.

``x``, ``y``: centroid from the middle of the image, pixels. ``scale``: radius of the disc of the same area, pixels.
``rotation``, ``*_angle``: radians, from the x axis towards +y (down). ``*_hue``: fraction of the colour circle.
``texture``, ``light``: relative amplitude of the background stripes and of the light gradient across half the
image. ``texture_period``: pixels. ``noise``: standard deviation of the pixel noise, fraction of full scale.
"""

PLAIN: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
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
)
"""The intervals of ``plain_shapes``: large warm shapes on cold grounds. Any two pictures have nearly the same colours.

All crops of a picture of ``shapes`` share its pair of colours, which tells it from most others before anything of
the shape is learnt. Here the pair tells little: crops and flips leave the shape as what views share, and minutes on a
CPU are enough. The price: the nearest neighbour in pixels is right more often, too.
"""

_SATURATION = 0.85
_FOREGROUND_VALUE, _BACKGROUND_VALUE = 0.95, 0.45

_GOLDEN = -0x61C8864680B583EB  # 2⁶⁴/φ as a signed 64-bit number


def _snap(x: Tensor) -> Tensor:
    """``x`` on a grid of 2⁻³⁰: hides the last bits, in which mathematics libraries differ."""
    return torch.round(x * 2.0**30) * 2.0**-30


def _mix(z: Tensor) -> Tensor:
    """SplitMix64's finaliser (Steele, Lea & Flood 2014) on int64, whose products wrap modulo 2⁶⁴."""
    # `>>` of a signed integer copies the sign bit; the masks make it the logical shift the hash wants.
    z = (z ^ ((z >> 30) & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47
    z = (z ^ ((z >> 27) & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15
    return z ^ ((z >> 31) & 0x1FFFFFFFF)


def _draw(key: Tensor, counter: Tensor) -> Tensor:
    """Random int64 of the broadcast shape of ``key`` and ``counter``; counter 0 is never the key itself."""
    return _mix(key + (counter + 1) * _GOLDEN)


# Signed distances in units of the shape's own size, negative inside; p is the pair (x, y) of pixel coordinates.
# Half-planes, boxes and discs joined by min (union) and max (intersection): exact beside an edge, which is all that
# anti-aliasing reads. _SIZES below brings every silhouette to the area of the unit disc, _CENTROIDS to its centroid.


def _plane(x: Tensor, y: Tensor, turns: float, offset: float) -> Tensor:
    angle = 2 * math.pi * turns
    c, s = (round(f(angle) * 2**30) / 2**30 for f in (math.cos, math.sin))
    return c * x + s * y - offset


def _polygon(x: Tensor, y: Tensor, sides: int) -> Tensor:
    """Regular polygon of inradius 1, one side facing +y."""
    d = _plane(x, y, 0.25, 1.0)
    for k in range(1, sides):
        d = torch.maximum(d, _plane(x, y, 0.25 + k / sides, 1.0))
    return d


def _box(x: Tensor, y: Tensor, cx: float, cy: float, w: float, h: float) -> Tensor:
    return torch.maximum((x - cx).abs() - w, (y - cy).abs() - h)


def _circle(x: Tensor, y: Tensor, cx: float, cy: float, r: float) -> Tensor:
    return ((x - cx) * (x - cx) + (y - cy) * (y - cy)).sqrt() - r


def _disc(x: Tensor, y: Tensor) -> Tensor:
    return _circle(x, y, 0, 0, 1)


def _square(x: Tensor, y: Tensor) -> Tensor:
    return _box(x, y, 0, 0, 1, 1)


def _triangle(x: Tensor, y: Tensor) -> Tensor:
    return _polygon(x, y, 3)


def _hexagon(x: Tensor, y: Tensor) -> Tensor:
    return _polygon(x, y, 6)


def _star(x: Tensor, y: Tensor) -> Tensor:
    """Pentagram: the points inside at least four of five half-planes, so the second largest distance."""
    first = second = torch.full_like(x, -math.inf)
    for k in range(5):
        d = _plane(x, y, 0.25 + k / 5, 1.0)
        second = torch.maximum(second, torch.minimum(first, d))
        first = torch.maximum(first, d)
    return second


def _cross(x: Tensor, y: Tensor) -> Tensor:
    return torch.minimum(_box(x, y, 0, 0, 1, 0.32), _box(x, y, 0, 0, 0.32, 1))


def _ring(x: Tensor, y: Tensor) -> Tensor:
    return _circle(x, y, 0, 0, 0.78).abs() - 0.22


def _crescent(x: Tensor, y: Tensor) -> Tensor:
    return torch.maximum(_circle(x, y, 0, 0, 1), -_circle(x, y, 0.5, 0, 0.8))


def _heart(x: Tensor, y: Tensor) -> Tensor:
    """A square on its corner with a disc on each of its two upper sides."""
    h = math.sqrt(0.5)
    square = torch.maximum((h * (x + y)).abs(), (h * (x - y)).abs()) - 1
    lobes = torch.minimum(_circle(x, y, -h, -h, 1), _circle(x, y, h, -h, 1))
    return torch.minimum(square, lobes)


def _ell(x: Tensor, y: Tensor) -> Tensor:
    return torch.minimum(_box(x, y, -0.65, 0, 0.35, 1), _box(x, y, 0, 0.65, 1, 0.35))


_DISTANCES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = MappingProxyType(
    {
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
)
CLASSES: tuple[str, ...] = tuple(_DISTANCES)
"""Names of the silhouettes; item ``i`` has class ``i % 10``."""

# (units per radius of the disc of equal area, centroid x, centroid y), measured on a grid of 0.002 units and
# within 0.003 pixels of exact. A more exact value would change the bytes that are rendered.
_FRAMES: Mapping[str, tuple[float, float, float]] = MappingProxyType(
    {
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
)


def silhouette(name: str, x: Tensor, y: Tensor) -> Tensor:
    """Signed distance to a silhouette, negative inside.

    Args:
        name: one of :data:`CLASSES`.
        x: horizontal coordinates, to the right, in radii of the disc of equal area; the centroid is at 0.
        y: vertical coordinates, downwards, of the same shape as ``x``.

    Returns:
        Distances in the same unit and of the same shape, exact beside an edge and only a lower bound away from it.

    Raises:
        UnknownNameError: no silhouette has that name.
    """
    if name not in _DISTANCES:
        raise unknown("silhouette", name, CLASSES)
    size, cx, cy = _FRAMES[name]
    return _DISTANCES[name](x / size + cx, y / size + cy) * size


def _uniform(bits: Tensor) -> Tensor:
    """Float64 in [0, 1) from the upper 53 bits."""
    return ((bits >> 11) & 0x1FFFFFFFFFFFFF).double() * 2.0**-53


def _colour(hue: Tensor, value: float) -> Tensor:
    """RGB ``[n, 3, 1, 1]`` of hues ``[n]`` at the module's saturation: the piecewise linear HSV formula."""
    thirds = torch.tensor([0.0, 2 / 3, 1 / 3], dtype=torch.float64)
    turn = hue[:, None] + thirds
    ramp = (((turn - turn.floor()) * 6 - 3).abs() - 1).clamp(0, 1)
    return (value * (1 - _SATURATION + _SATURATION * ramp))[:, :, None, None]


def _direction(angle: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Coordinate ``[n, H, W]`` along each of the ``angle`` ``[n]``."""
    return _snap(angle.cos())[:, None, None] * x + _snap(angle.sin())[:, None, None] * y


def _render_chunk(
    index: Tensor, key: Tensor, ranges: Mapping[str, tuple[float, float]]
) -> tuple[Tensor, dict[str, Tensor]]:
    image_key = _mix(key + index)
    draws = _uniform(_draw(image_key[:, None], torch.arange(len(RANGES))))
    intervals = [(name, *ranges[name]) for name in RANGES]  # a factor's number is its place in RANGES
    factors = {name: low + (high - low) * draws[:, k] for k, (name, low, high) in enumerate(intervals)}
    f = {name: value[:, None, None] for name, value in factors.items()}

    axis = torch.arange(SIDE, dtype=torch.float64) - (SIDE - 1) / 2
    y, x = axis[:, None], axis[None, :]

    # Alpha: the shape's own frame is the image's, moved, turned and scaled; one pixel of ramp across the edge.
    dx, dy = x - f["x"], y - f["y"]
    cos, sin = (_snap(factors["rotation"].cos())[:, None, None], _snap(factors["rotation"].sin())[:, None, None])
    u, v = (cos * dx + sin * dy) / f["scale"], (cos * dy - sin * dx) / f["scale"]
    alpha = torch.empty_like(u)
    labels = index % len(CLASSES)
    for k, name in enumerate(CLASSES):
        rows = (labels == k).nonzero().flatten()
        if len(rows):
            alpha[rows] = (0.5 - silhouette(name, u[rows], v[rows]) * f["scale"][rows]).clamp(0, 1)

    # Stripes as a triangle wave in [-1, 1], so that no sine touches a pixel.
    phase = _direction(factors["texture_angle"], x, y) / f["texture_period"] + f["texture_phase"]
    stripes = 1 + f["texture"] * (4 * (phase - phase.floor() - 0.5).abs() - 1)
    light = 1 + f["light"] * _direction(factors["light_angle"], x, y) / (SIDE / 2)

    foreground = _colour(factors["foreground_hue"], _FOREGROUND_VALUE)
    background = _colour(factors["background_hue"], _BACKGROUND_VALUE) * stripes[:, None]
    pixels = (background + alpha[:, None] * (foreground - background)) * light[:, None]

    # One hash a pixel; its three 21-bit lanes are the noise of the three channels, uniform with unit variance.
    bits = _draw(image_key[:, None, None], len(RANGES) + torch.arange(SIDE * SIDE).view(SIDE, SIDE))
    lanes = torch.stack([(bits >> shift) & 0x1FFFFF for shift in (0, 21, 42)], 1)
    pixels += f["noise"][:, None] * ((lanes.double() + 0.5) * 2.0**-20 - 1) * math.sqrt(3)
    return (pixels.clamp(0, 1) * 255).round().to(torch.uint8), factors


def render(
    index: Tensor, seed: int = 0, ranges: Mapping[str, tuple[float, float]] = RANGES
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Images of the given indices; each depends on its own index and the seed, and on nothing else.

    Args:
        index: int64 ``[N]``, each in [0, 2³²). Indices from :data:`TEST_OFFSET` up are the test images.
        seed: in [0, 2³²); another seed is another data set.
        ranges: :data:`RANGES` or :data:`PLAIN`, or other intervals by the same names.

    Returns:
        ``images`` uint8 ``[N, 3, 32, 32]``, ``labels`` int64 ``[N]`` (``index % 10``, see :data:`CLASSES`), and the
        nuisance factors: float32 ``[N]`` by name, in the units of :data:`RANGES`.

    Raises:
        ArgumentError: ``index`` or ``seed`` is out of range, ``index`` is not an int64 vector, or ``ranges`` has
            other names than :data:`RANGES`.
    """
    if set(ranges) != set(RANGES):
        raise reject("ranges", sorted(ranges), f"intervals of {', '.join(RANGES)}")
    if not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise reject("seed", seed, "an integer in [0, 2**32)")
    if index.ndim != 1 or index.dtype != torch.int64:
        raise reject("index", f"{index.dtype} tensor of shape {tuple(index.shape)}", "an int64 vector")
    if len(index) and not (int(index.min()) >= 0 and int(index.max()) < 2**32):
        raise reject("index", (int(index.min()), int(index.max())), "integers in [0, 2**32)")
    index = index.cpu()
    key = _mix(torch.tensor(seed) + _GOLDEN)
    images = torch.empty(len(index), 3, SIDE, SIDE, dtype=torch.uint8)
    factors = {name: torch.empty(len(index)) for name in RANGES}
    for start in range(0, len(index), _CHUNK):
        rows = slice(start, start + _CHUNK)
        images[rows], drawn = _render_chunk(index[rows], key, ranges)
        for name, value in drawn.items():
            factors[name][rows] = value.float()
    return images, index % len(CLASSES), factors


def check_counts(n_train: int, n_test: int) -> None:
    """Refuse more items than an index below or above :data:`TEST_OFFSET` can count."""
    for argument, value, most in (("n_train", n_train, TEST_OFFSET), ("n_test", n_test, 2**32 - TEST_OFFSET)):
        if value > most:
            raise reject(argument, value, f"at most {most}: the generator counts no further")


@lru_cache(maxsize=4)
def _part(name: str, start: int, count: int, seed: int) -> ImageSet:
    ranges = PLAIN if name.startswith("plain_shapes/") else RANGES
    images, labels, factors = render(torch.arange(start, start + count), seed, ranges)
    return ImageSet(name, images, labels, CLASSES, factors)


@lru_cache(maxsize=1)
def _recoloured(name: str) -> Splits:
    parts = []
    for split, start, count in (("train", 0, 2000), ("test", TEST_OFFSET, 1000)):
        images, labels, factors = render(torch.arange(start, start + count), 1)
        parts.append(ImageSet(f"{name}/{split}", 255 - images[:, :, 4:-4, 4:-4], labels, CLASSES, factors))
    train, test = parts
    note = "generated silhouettes of another seed in complementary colours: dark on bright, magnified by a third"
    return Splits(name, train, train, test, note)


def load(request: Request) -> Splits:
    """The splits of ``shapes``, ``plain_shapes`` or ``shapes_recoloured``."""
    if request.name == "shapes_recoloured":
        return request.limit(_recoloured(request.name))
    n_train, n_test = request.n_train or 10_000, request.n_test or 2_000
    check_counts(n_train, n_test)
    train = _part(f"{request.name}/train", 0, n_train, request.seed)
    test = _part(f"{request.name}/test", TEST_OFFSET, n_test, request.seed)
    return Splits(request.name, train, train, test, f"generated silhouettes, seed {request.seed}")
