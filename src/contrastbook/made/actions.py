"""``clips``: a silhouette of ``shapes`` that moves over a drifting texture, and the exact flow of every pixel.

A clip of an action shows its silhouette with probability :data:`FAITHFUL`, else one of all eight, so single frames
tell at most :data:`FRAME_CEILING` percent of the clips, while the flow tells the action. Every clip is a function of
``(seed, index)`` alone. A pixel that the silhouette covers by half or more moves with it; the others drift.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
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

_SHOWN = {
    "translate": "triangle", "bounce": "disc", "swing": "ell", "rotate": "cross",
    "zoom": "star", "pulse": "heart", "shake": "square", "orbit": "ring",
}  # fmt: skip
ACTIONS: tuple[str, ...] = tuple(_SHOWN)
"""Names of the actions; clip ``i`` has action ``i % 8``."""

FRAME_CEILING = 100 * (FAITHFUL + (1 - FAITHFUL) / len(ACTIONS))
"""Percent of clips whose silhouette is that of their action."""

_CHUNK = 16  # clips rendered at a time

# pixels, radians, pixels a frame, hues as fractions of the circle
_RANGES: shapes.Ranges = {
    "faithful": (0.0, 1.0), "other": (0.0, 8.0),
    "x": (-3.0, 3.0), "y": (-3.0, 3.0), "scale": (6.5, 8.0), "rotation": (0.0, 2 * math.pi),
    "rate": (0.8, 1.2), "phase": (0.0, 1.0), "heading": (0.0, 2 * math.pi), "sense": (-1.0, 1.0),
    "foreground_hue": (0.0, 1.0), "background_hue": (0.0, 1.0),
    "texture": (0.2, 0.5), "texture_angle": (0.0, math.pi), "texture_period": (8.0, 13.0),
    "drift_x": (-0.7, 0.7), "drift_y": (-0.7, 0.7), "noise": (0.0, 0.02),
}  # fmt: skip


class Pose(NamedTuple):
    """Centre from the middle of the frame, turn and radius of the sprite: each ``[n, T]``."""

    x: Tensor
    y: Tensor
    turn: Tensor
    scale: Tensor


def _move(action: str, f: Mapping[str, Tensor]) -> Tensor:
    """The poses ``[4, n, T]`` of sprites with factors ``[n, 1]``."""
    t = torch.arange(LENGTH, dtype=torch.float64)
    x, y, turn, scale, rate = (f[name] for name in ("x", "y", "rotation", "scale", "rate"))
    sense = torch.where(f["sense"] < 0, -1.0, 1.0).double()
    ahead = t - (LENGTH - 1) / 2

    def wave(period: float) -> tuple[Tensor, Tensor]:
        # cosine and sine of an angle that runs through a period, from the clip's own phase at its own rate
        angle = 2 * math.pi * (t * rate / period + f["phase"])
        return snap(angle.cos()), snap(angle.sin())

    match action:
        case "translate" | "shake":
            way = 0.9 * rate * ahead if action == "translate" else 2 * wave(4)[1]
            x, y = x + snap(f["heading"].cos()) * way, y + snap(f["heading"].sin()) * way
        case "bounce":
            part = t * rate / 10 + f["phase"]
            part = part - part.floor()
            y = y + 3 - 6 * 4 * part * (1 - part)
        case "swing":  # a pendulum of ten pixels that hangs from above
            angle = 0.35 * wave(12)[1]
            x, y, turn = x - 10 * snap(angle.sin()), y + 10 * (snap(angle.cos()) - 1), turn + angle
        case "rotate":
            turn = turn + 0.2 * sense * rate * t
        case "zoom":
            scale = scale * snap((0.05 * sense * rate * ahead).exp())
        case "pulse":
            scale = scale * (1 + 0.25 * wave(6)[1])
        case "orbit":
            cos, sin = wave(16)
            x, y = x + 5 * cos, y + 5 * sense * sin
    return torch.stack(torch.broadcast_tensors(x, y, turn, scale, t)[:4])


def _poses(labels: Tensor, f: Mapping[str, Tensor]) -> Pose:
    poses = torch.empty(4, len(labels), LENGTH, dtype=torch.float64)
    for k, action in enumerate(ACTIONS):
        rows = labels == k
        poses[:, rows] = _move(action, {name: value[rows, None] for name, value in f.items()})
    return Pose(*poses)


def exact_flow(pose: Pose, owner: Tensor, drift: Tensor) -> Tensor:
    """Where the pixels of each frame but the last go: ``[n, T − 1, 2, H, W]`` (x, y) in pixels a frame.

    ``owner``: boolean ``[n, T, H, W]``, whether a pixel is the sprite's. ``drift``: ``[n, 2]``, motion (x, y) of the
    ground.
    """
    now, then = (Pose(*(part[:, frames, None, None] for part in pose)) for frames in (slice(-1), slice(1, None)))
    x, y = shapes.grid()
    u, v = shapes.local(x - now.x, y - now.y, now.turn - then.turn, torch.ones(()))
    grown = then.scale / now.scale
    sprite = torch.stack([then.x + grown * u - x, then.y + grown * v - y], 2)
    return torch.where(owner[:, :-1, None], sprite, drift[:, None, :, None, None])


def _stripes(x: Tensor, y: Tensor, angle: Tensor, period: Tensor) -> Tensor:
    # two crossed waves in [-1, 1]: with one alone, motion along its stripes could not be seen
    one, other = (shapes.triangle_wave(shapes.along(a, x, y) / period) for a in (angle, angle + math.pi / 2))
    return (one + other) / 2


def _render_chunk(index: Tensor, key: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    keys = shapes.mix(key + index)
    f = shapes.draw_factors(keys, _RANGES)
    labels = index % len(ACTIONS)
    shown = torch.where(f["faithful"] < FAITHFUL, labels, f["other"].long())
    pose = _poses(labels, f)
    wide = {name: value[:, None, None, None] for name, value in f.items()}

    x, y = shapes.grid()
    at = Pose(*(part[..., None, None] for part in pose))
    u, v = shapes.local(x - at.x, y - at.y, at.turn, at.scale)
    alpha = shapes.cover(shown, tuple(_SHOWN.values()), u, v, at.scale)

    t = torch.arange(LENGTH, dtype=torch.float64)[:, None, None]
    angle, period, radius = wide["texture_angle"], wide["texture_period"], wide["scale"]
    on_sprite = _stripes(u * radius, v * radius, angle + 0.5, period * 0.75)
    on_ground = _stripes(x - wide["drift_x"] * t, y - wide["drift_y"] * t, angle, period)
    front = shapes.colour(f["foreground_hue"], 0.8)[:, None] * (1 + wide["texture"] * on_sprite)[:, :, None]
    back = shapes.colour(f["background_hue"], 0.45)[:, None] * (1 + wide["texture"] * on_ground)[:, :, None]
    pixels = back + alpha[:, :, None] * (front - back)
    pixels += shapes.draw_noise(keys, f, LENGTH, SIDE, SIDE)
    flow = exact_flow(pose, alpha >= 0.5, torch.stack([f["drift_x"], f["drift_y"]], 1))
    flow = torch.cat([flow, torch.zeros_like(flow[:, :1])], 1)
    clips = torch.cat([shapes.to_bytes(pixels), quantise(flow, BOUND)], 2)
    return clips, {"silhouette": shown, **{name: f[name] for name in ("rate", "drift_x", "drift_y")}}


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
    clips, labels, factors = render(torch.arange(start, start + count), seed)
    return ClipSet(name, clips, labels, ACTIONS, BOUND, factors)


def load(request: Request) -> Splits:
    """The splits of ``clips``."""
    return shapes.counted(request, _part, 1_000, 400, "generated clips with exact flow")
