"""``clips``: a silhouette of ``shapes`` that moves over a drifting texture, and the exact flow of every pixel.

A clip of an action shows its silhouette with probability :data:`FAITHFUL`, else one of all eight, so single frames
tell at most :data:`FRAME_CEILING` percent of the clips, while the flow tells the action. Every clip is a function of
``(seed, index)`` alone. A pixel that the silhouette covers by half or more moves with it; the others drift.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from contrastbook.made import shapes
from contrastbook.made.shapes import SIDE, snap
from contrastlab.data import Request, Splits
from contrastlab.domains.clips.data import ClipSet
from contrastlab.domains.clips.flow import quantise

LENGTH = 16  # frames of a clip
BOUND = 5.0  # pixels a frame that fill the eight bits of a stored flow; only corners of a few sprites move faster
FAITHFUL = 0.75  # probability that a clip shows the silhouette of its action; else it is one of the eight, drawn anew

_SILHOUETTES = {
    "translate": "triangle",
    "bounce": "disc",
    "swing": "ell",
    "rotate": "cross",
    "zoom": "star",
    "pulse": "heart",
    "shake": "square",
    "orbit": "ring",
}
ACTIONS: tuple[str, ...] = tuple(_SILHOUETTES)
"""Names of the actions; clip ``i`` has action ``i % 8``."""

FRAME_CEILING = 100 * (FAITHFUL + (1 - FAITHFUL) / len(ACTIONS))
"""Percent of clips whose silhouette is that of their action."""

_CHUNK = 16  # clips rendered at a time

# pixels, radians, pixels a frame, hues as fractions of the circle
_RANGES: shapes.Ranges = {
    "faithful": (0.0, 1.0),
    "other": (0.0, 8.0),
    "x": (-3.0, 3.0),
    "y": (-3.0, 3.0),
    "scale": (6.5, 8.0),
    "rotation": (0.0, 2 * math.pi),
    "rate": (0.8, 1.2),
    "phase": (0.0, 1.0),
    "heading": (0.0, 2 * math.pi),
    "sense": (-1.0, 1.0),
    "foreground_hue": (0.0, 1.0),
    "background_hue": (0.0, 1.0),
    "texture": (0.2, 0.5),
    "texture_angle": (0.0, math.pi),
    "texture_period": (8.0, 13.0),
    "drift_x": (-0.7, 0.7),
    "drift_y": (-0.7, 0.7),
    "noise": (0.0, 0.02),
}


class Pose(NamedTuple):
    """Centre from the middle of the frame, turn and radius of the sprite: each ``[n, T]``."""

    x: Tensor
    y: Tensor
    turn: Tensor
    scale: Tensor


class _Start(NamedTuple):
    """What the motions of n sprites depend on: ``[n, 1]`` each, the times ``[T]``."""

    pose: Pose
    rate: Tensor  # speed, 1 on average
    phase: Tensor  # of periodic motions, fraction of a period
    heading: Tensor  # radians
    sense: Tensor  # 1 or −1: clockwise or not, growing or shrinking
    time: Tensor  # frames from the first
    from_middle: Tensor  # frames from the middle of the clip

    def wave(self, period: float) -> tuple[Tensor, Tensor]:
        """Cosine and sine ``[n, T]`` of an angle that runs through a period of so many frames."""
        angle = 2 * math.pi * (self.time * self.rate / period + self.phase)
        return snap(angle.cos()), snap(angle.sin())

    def shifted(self, way: Tensor) -> Pose:
        """The pose after a way ``[n, T]`` along the heading."""
        x = self.pose.x + snap(self.heading.cos()) * way
        y = self.pose.y + snap(self.heading.sin()) * way
        return self.pose._replace(x=x, y=y)


def _translate(start: _Start) -> Pose:
    return start.shifted(0.9 * start.rate * start.from_middle)


def _shake(start: _Start) -> Pose:
    _, sine = start.wave(4)
    return start.shifted(2 * sine)


def _bounce(start: _Start) -> Pose:
    """A ball that rises six pixels along a parabola and is thrown back by the ground."""
    part = start.time * start.rate / 10 + start.phase
    part = part - part.floor()
    return start.pose._replace(y=start.pose.y + 3 - 6 * 4 * part * (1 - part))


def _swing(start: _Start) -> Pose:
    """A pendulum of ten pixels that hangs from above."""
    _, sine = start.wave(12)
    angle = 0.35 * sine
    x, y, turn, scale = start.pose
    x = x - 10 * snap(angle.sin())
    y = y + 10 * (snap(angle.cos()) - 1)
    return Pose(x, y, turn + angle, scale)


def _rotate(start: _Start) -> Pose:
    angle = 0.2 * start.sense * start.rate * start.time
    return start.pose._replace(turn=start.pose.turn + angle)


def _zoom(start: _Start) -> Pose:
    log_growth = 0.05 * start.sense * start.rate * start.from_middle
    return start.pose._replace(scale=start.pose.scale * snap(log_growth.exp()))


def _pulse(start: _Start) -> Pose:
    _, sine = start.wave(6)
    return start.pose._replace(scale=start.pose.scale * (1 + 0.25 * sine))


def _orbit(start: _Start) -> Pose:
    cosine, sine = start.wave(16)
    x = start.pose.x + 5 * cosine
    y = start.pose.y + 5 * start.sense * sine
    return start.pose._replace(x=x, y=y)


_MOTIONS: Mapping[str, Callable[[_Start], Pose]] = {
    "translate": _translate,
    "bounce": _bounce,
    "swing": _swing,
    "rotate": _rotate,
    "zoom": _zoom,
    "pulse": _pulse,
    "shake": _shake,
    "orbit": _orbit,
}


def _start_of(factors: Mapping[str, Tensor]) -> _Start:
    """What motions depend on, from factors ``[n, 1]``."""
    time = torch.arange(LENGTH, dtype=torch.float64)
    return _Start(
        pose=Pose(factors["x"], factors["y"], factors["rotation"], factors["scale"]),
        rate=factors["rate"],
        phase=factors["phase"],
        heading=factors["heading"],
        sense=torch.where(factors["sense"] < 0, -1.0, 1.0).double(),
        time=time,
        from_middle=time - (LENGTH - 1) / 2,
    )


def _poses(labels: Tensor, factors: Mapping[str, Tensor]) -> Pose:
    """Poses ``[n, T]`` of sprites with actions ``labels`` ``[n]`` and factors ``[n]``."""
    poses = torch.empty(4, len(labels), LENGTH, dtype=torch.float64)
    for number, action in enumerate(ACTIONS):
        rows = labels == number
        start = _start_of({name: values[rows, None] for name, values in factors.items()})
        pose = _MOTIONS[action](start)
        for number_of_part, part in enumerate(pose):
            poses[number_of_part, rows] = part.expand(-1, LENGTH)
    return Pose(*poses)


def exact_flow(pose: Pose, owner: Tensor, drift: Tensor) -> Tensor:
    """Where the pixels of each frame but the last go: ``[n, T − 1, 2, H, W]`` (x, y) in pixels a frame.

    ``owner``: boolean ``[n, T, H, W]``, whether a pixel is the sprite's. ``drift``: ``[n, 2]``, motion (x, y) of the
    ground.
    """
    x, y = shapes.grid()
    now = Pose(*(part[:, :-1, None, None] for part in pose))
    then = Pose(*(part[:, 1:, None, None] for part in pose))
    # a pixel of the sprite keeps its place in the sprite's own frame, which turns and grows
    u, v = shapes.local(x - now.x, y - now.y, now.turn - then.turn, torch.ones(()))
    growth = then.scale / now.scale
    to_right = then.x + growth * u - x
    down = then.y + growth * v - y
    of_sprite = torch.stack([to_right, down], 2)
    of_ground = drift[:, None, :, None, None]
    return torch.where(owner[:, :-1, None], of_sprite, of_ground)


def _texture(x: Tensor, y: Tensor, angle: Tensor, period: Tensor) -> Tensor:
    """Two crossed waves in [−1, 1]: with one alone, motion along its stripes could not be seen."""
    one = shapes.triangle_wave(shapes.along(angle, x, y) / period)
    other = shapes.triangle_wave(shapes.along(angle + math.pi / 2, x, y) / period)
    return (one + other) / 2


def _paint(hue: Tensor, value: float, contrast: Tensor, texture: Tensor) -> Tensor:
    """Colours ``[n, T, 3, H, W]`` of hues and contrasts ``[n]`` with a texture ``[n, T, H, W]``."""
    brightness = 1 + _per_pixel(contrast) * texture
    return shapes.colour(hue, value)[:, None] * brightness[:, :, None]


def _render_chunk(index: Tensor, key: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Clips of these indices ``[n]`` as :func:`render` packs them, and factors ``[n]``."""
    keys = shapes.mix(key + index)
    factors = shapes.draw_factors(keys, _RANGES)
    labels = index % len(ACTIONS)
    is_faithful = factors["faithful"] < FAITHFUL
    silhouettes = torch.where(is_faithful, labels, factors["other"].long())
    pose = _poses(labels, factors)
    front, alpha = _sprites(pose, silhouettes, factors)
    back = _grounds(factors)
    pixels = back + alpha[:, :, None] * (front - back)
    pixels += shapes.draw_noise(keys, factors, LENGTH, SIDE, SIDE)
    drift = torch.stack([factors["drift_x"], factors["drift_y"]], 1)
    flow = exact_flow(pose, alpha >= 0.5, drift)
    no_flow = torch.zeros_like(flow[:, :1])
    flow = torch.cat([flow, no_flow], 1)
    clips = torch.cat([shapes.to_bytes(pixels), quantise(flow, BOUND)], 2)
    shown = {name: factors[name] for name in ("rate", "drift_x", "drift_y")}
    return clips, {"silhouette": silhouettes, **shown}


def _sprites(pose: Pose, silhouettes: Tensor, factors: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Colours ``[n, T, 3, H, W]`` of the sprites, and how much of each pixel they cover ``[n, T, H, W]``.

    The texture moves with the sprite, but does not grow with it.
    """
    x, y = shapes.grid()
    at = Pose(*(part[..., None, None] for part in pose))
    u, v = shapes.local(x - at.x, y - at.y, at.turn, at.scale)
    alpha = shapes.cover(silhouettes, tuple(_SILHOUETTES.values()), u, v, at.scale)
    radius = _per_pixel(factors["scale"])
    angle = _per_pixel(factors["texture_angle"]) + 0.5
    period = _per_pixel(factors["texture_period"]) * 0.75
    texture = _texture(u * radius, v * radius, angle, period)
    return _paint(factors["foreground_hue"], 0.8, factors["texture"], texture), alpha


def _grounds(factors: Mapping[str, Tensor]) -> Tensor:
    """Colours ``[n, T, 3, H, W]`` of the drifting grounds."""
    x, y = shapes.grid()
    time = torch.arange(LENGTH, dtype=torch.float64)[:, None, None]
    x = x - _per_pixel(factors["drift_x"]) * time
    y = y - _per_pixel(factors["drift_y"]) * time
    angle = _per_pixel(factors["texture_angle"])
    period = _per_pixel(factors["texture_period"])
    texture = _texture(x, y, angle, period)
    return _paint(factors["background_hue"], 0.45, factors["texture"], texture)


def _per_pixel(factor: Tensor) -> Tensor:
    """A factor ``[n]`` so that it broadcasts with ``[n, T, H, W]``."""
    return factor[:, None, None, None]


def render(index: Tensor, seed: int = 0) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Clips of indices as for :func:`contrastbook.made.shapes.render`, labels ``[N]``, and some factors by name.

    Clips are uint8 ``[N, 16, 5, 32, 32]``: red, green, blue, and the flow to the next frame, right and down, in eight
    bits (:func:`~contrastlab.domains.clips.flow.quantise` with :data:`BOUND`; of the last frame, none).
    """
    shapes.check(index, seed)
    key = shapes.mix(shapes.seed_key(seed))  # another than that of ``shapes``
    clips, factors = shapes.joined(_render_chunk(rows, key) for rows in index.split(_CHUNK))
    return clips, index % len(ACTIONS), factors


@lru_cache(maxsize=4)
def _part(name: str, start: int, count: int, seed: int) -> ClipSet:
    """The clips from index ``start`` on."""
    clips, labels, factors = render(torch.arange(start, start + count), seed)
    return ClipSet(name, clips, labels, ACTIONS, BOUND, factors)


def load(request: Request) -> Splits:
    """The splits of ``clips``."""
    return shapes.counted(request, _part, 1_000, 400, "generated clips with exact flow")
