"""``clips``: a silhouette of ``shapes`` that moves over a drifting texture, and the exact flow of every pixel.

An action is a motion pattern with an appearance. A clip of an action shows its silhouette with probability
:data:`FAITHFUL`, else one of all eight. So a network that sees single frames can be right in
:data:`FRAME_CEILING` percent of the clips and no more by the silhouette, while the flow tells the action: what
flow teaches the encoder of frames is the silhouette. Colours, texture, place and drift are drawn independently.

Every clip is a function of ``(seed, index)`` alone, in the arithmetic of :mod:`contrastbook.made.shapes`. A pixel
belongs to the silhouette where that covers at least half of it, else to the ground. The one moves by the similarity
that takes its pose in a frame to that in the next, the other by the clip's drift: that is the flow, in pixels a frame.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

import torch
from torch import Tensor

from contrastbook.made.shapes import (
    _GOLDEN,
    SIDE,
    TEST_OFFSET,
    _colour,
    _draw,
    _mix,
    _snap,
    _uniform,
    check_counts,
    silhouette,
)
from contrastlab.data import Request
from contrastlab.data.clips.flow import quantise
from contrastlab.data.items import Splits
from contrastlab.data.videos import ClipSet
from contrastlab.errors import reject

__all__ = ["ACTIONS", "BOUND", "FAITHFUL", "FRAME_CEILING", "LENGTH", "SIDE", "TEST_OFFSET", "exact_flow", "render"]

LENGTH = 16
"""Frames of a clip."""

BOUND = 5.0
"""Pixels a frame that fill the eight bits of a stored flow; nothing moves faster but corners of a few sprites."""

FAITHFUL = 0.75
"""Probability that a clip shows the silhouette of its action; else it is one of the eight, drawn anew."""

_CHUNK = 16  # clips rendered at a time

_RANGES: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
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
)  # uniform and independent; pixels, radians, pixels a frame, hues as fractions of the circle


@dataclass(frozen=True)
class _Pose:
    """Centre from the middle of the frame, turn and radius of the sprite: each ``[n, T]``."""

    x: Tensor
    y: Tensor
    turn: Tensor
    scale: Tensor


_Factors = Mapping[str, Tensor]


def _wave(f: _Factors, t: Tensor, period: float) -> tuple[Tensor, Tensor]:
    # cosine and sine of an angle that runs through a period, from the clip's own phase at its own rate
    angle = 2 * math.pi * (t * f["rate"] / period + f["phase"])
    return _snap(angle.cos()), _snap(angle.sin())


def _heading(f: _Factors) -> tuple[Tensor, Tensor]:
    return _snap(f["heading"].cos()), _snap(f["heading"].sin())


def _sense(f: _Factors) -> Tensor:
    return torch.where(f["sense"] < 0, -1.0, 1.0).double()


def _still(f: _Factors, t: Tensor) -> _Pose:
    zero = torch.zeros_like(t * f["x"])
    return _Pose(f["x"] + zero, f["y"] + zero, f["rotation"] + zero, f["scale"] + zero)


def _along(f: _Factors, t: Tensor, way: Tensor) -> _Pose:
    cos, sin = _heading(f)
    at = _still(f, t)
    return _Pose(at.x + cos * way, at.y + sin * way, at.turn, at.scale)


def _translate(f: _Factors, t: Tensor) -> _Pose:
    return _along(f, t, 0.9 * f["rate"] * (t - (LENGTH - 1) / 2))


def _bounce(f: _Factors, t: Tensor) -> _Pose:
    part = t * f["rate"] / 10 + f["phase"]
    part = part - part.floor()
    at = _still(f, t)
    return _Pose(at.x, at.y + 3 - 6 * 4 * part * (1 - part), at.turn, at.scale)


def _swing(f: _Factors, t: Tensor) -> _Pose:
    # a pendulum of ten pixels that hangs from above
    angle = 0.35 * _wave(f, t, 12)[1]
    at = _still(f, t)
    return _Pose(at.x - 10 * _snap(angle.sin()), at.y + 10 * (_snap(angle.cos()) - 1), at.turn + angle, at.scale)


def _rotate(f: _Factors, t: Tensor) -> _Pose:
    at = _still(f, t)
    return _Pose(at.x, at.y, at.turn + 0.2 * _sense(f) * f["rate"] * t, at.scale)


def _zoom(f: _Factors, t: Tensor) -> _Pose:
    at = _still(f, t)
    grown = _snap((0.05 * _sense(f) * f["rate"] * (t - (LENGTH - 1) / 2)).exp())
    return _Pose(at.x, at.y, at.turn, at.scale * grown)


def _pulse(f: _Factors, t: Tensor) -> _Pose:
    at = _still(f, t)
    return _Pose(at.x, at.y, at.turn, at.scale * (1 + 0.25 * _wave(f, t, 6)[1]))


def _shake(f: _Factors, t: Tensor) -> _Pose:
    return _along(f, t, 2 * _wave(f, t, 4)[1])


def _orbit(f: _Factors, t: Tensor) -> _Pose:
    cos, sin = _wave(f, t, 16)
    at = _still(f, t)
    return _Pose(at.x + 5 * cos, at.y + 5 * _sense(f) * sin, at.turn, at.scale)


_PATTERNS: Mapping[str, tuple[Callable[[_Factors, Tensor], _Pose], str]] = MappingProxyType(
    {
        "translate": (_translate, "triangle"),
        "bounce": (_bounce, "disc"),
        "swing": (_swing, "ell"),
        "rotate": (_rotate, "cross"),
        "zoom": (_zoom, "star"),
        "pulse": (_pulse, "heart"),
        "shake": (_shake, "square"),
        "orbit": (_orbit, "ring"),
    }
)
ACTIONS: tuple[str, ...] = tuple(_PATTERNS)
"""Names of the actions; clip ``i`` has action ``i % 8``."""

_SHOWN = tuple(shown for _, shown in _PATTERNS.values())

FRAME_CEILING = 100 * (FAITHFUL + (1 - FAITHFUL) / len(ACTIONS))
"""Percent of clips whose silhouette is that of their action."""


def _poses(labels: Tensor, f: _Factors) -> _Pose:
    t = torch.arange(LENGTH, dtype=torch.float64)
    shape = (len(labels), LENGTH)
    pose = _Pose(*(torch.empty(shape, dtype=torch.float64) for _ in range(4)))
    for k, (move, _) in enumerate(_PATTERNS.values()):
        rows = (labels == k).nonzero().flatten()
        made = move({name: value[rows][:, None] for name, value in f.items()}, t)
        for name in ("x", "y", "turn", "scale"):
            getattr(pose, name)[rows] = getattr(made, name)
    return pose


def _grid() -> tuple[Tensor, Tensor]:
    axis = torch.arange(SIDE, dtype=torch.float64) - (SIDE - 1) / 2
    return axis[None, :], axis[:, None]


def _rotation(turn: Tensor) -> tuple[Tensor, Tensor]:
    return _snap(turn.cos())[..., None, None], _snap(turn.sin())[..., None, None]


def exact_flow(pose: _Pose, owner: Tensor, drift: Tensor) -> Tensor:
    """Where the pixels of each frame but the last go.

    Args:
        pose: of the sprite, ``[n, T]``.
        owner: boolean ``[n, T, H, W]``, whether a pixel is the sprite's.
        drift: ``[n, 2]``, motion (x, y) of the ground.

    Returns:
        ``[n, T − 1, 2, H, W]`` (x, y) in pixels a frame.
    """
    x, y = _grid()
    dx, dy = x - pose.x[:, :-1, None, None], y - pose.y[:, :-1, None, None]
    cos, sin = _rotation(pose.turn[:, 1:] - pose.turn[:, :-1])
    grown = (pose.scale[:, 1:] / pose.scale[:, :-1])[..., None, None]
    to_x = pose.x[:, 1:, None, None] + grown * (cos * dx - sin * dy)
    to_y = pose.y[:, 1:, None, None] + grown * (sin * dx + cos * dy)
    sprite = torch.stack([to_x - x, to_y - y], 2)
    return torch.where(owner[:, :-1, None], sprite, drift[:, None, :, None, None])


def _stripes(x: Tensor, y: Tensor, angle: Tensor, period: Tensor) -> Tensor:
    # two crossed triangle waves in [-1, 1]: with one alone, motion along its stripes could not be seen
    def one(turned: Tensor) -> Tensor:
        along = (_snap(turned.cos())[:, None, None, None] * x + _snap(turned.sin())[:, None, None, None] * y) / period
        return 4 * (along - along.floor() - 0.5).abs() - 1

    return (one(angle) + one(angle + math.pi / 2)) / 2


def _render_chunk(index: Tensor, key: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    clip_key = _mix(key + index)
    draws = _uniform(_draw(clip_key[:, None], torch.arange(len(_RANGES))))
    f = {name: low + (high - low) * draws[:, k] for k, (name, (low, high)) in enumerate(_RANGES.items())}
    labels = index % len(ACTIONS)
    shown = torch.where(f["faithful"] < FAITHFUL, labels, f["other"].long())
    pose = _poses(labels, f)
    wide = {name: value[:, None, None, None] for name, value in f.items()}

    x, y = _grid()
    dx, dy = x - pose.x[..., None, None], y - pose.y[..., None, None]
    cos, sin = _rotation(pose.turn)
    size = pose.scale[..., None, None]
    u, v = (cos * dx + sin * dy) / size, (cos * dy - sin * dx) / size
    alpha = torch.empty_like(u)
    for k, name in enumerate(_SHOWN):
        rows = (shown == k).nonzero().flatten()
        if len(rows):
            alpha[rows] = (0.5 - silhouette(name, u[rows], v[rows]) * size[rows]).clamp(0, 1)

    t = torch.arange(LENGTH, dtype=torch.float64)[:, None, None]
    radius = wide["scale"]
    on_sprite = _stripes(u * radius, v * radius, f["texture_angle"] + 0.5, wide["texture_period"] * 0.75)
    ground = _stripes(
        x - wide["drift_x"] * t, y - wide["drift_y"] * t, f["texture_angle"], wide["texture_period"]
    )  # fmt: skip
    front = _colour(f["foreground_hue"], 0.8)[:, None] * (1 + wide["texture"] * on_sprite)[:, :, None]
    back = _colour(f["background_hue"], 0.45)[:, None] * (1 + wide["texture"] * ground)[:, :, None]
    pixels = back + alpha[:, :, None] * (front - back)
    bits = _draw(clip_key[:, None, None, None], len(_RANGES) + torch.arange(LENGTH * SIDE**2).view(LENGTH, SIDE, SIDE))
    lanes = torch.stack([(bits >> shift) & 0x1FFFFF for shift in (0, 21, 42)], 2)
    pixels += wide["noise"][:, :, None] * ((lanes.double() + 0.5) * 2.0**-20 - 1) * math.sqrt(3)
    frames = (pixels.clamp(0, 1) * 255).round().to(torch.uint8)
    flow = exact_flow(pose, alpha >= 0.5, torch.stack([f["drift_x"], f["drift_y"]], 1))
    return frames, flow, {"silhouette": shown, "rate": f["rate"], "drift_x": f["drift_x"], "drift_y": f["drift_y"]}


def render(index: Tensor, seed: int = 0) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Clips of the given indices; each depends on its own index and the seed, and on nothing else.

    Args:
        index: int64 ``[N]``, each in [0, 2³²). Indices from :data:`TEST_OFFSET` up are the test clips.
        seed: in [0, 2³²); another seed is another data set.

    Returns:
        ``clips`` uint8 ``[N, 16, 5, 32, 32]``: red, green, blue, and the flow to the next frame, right and down, in
        eight bits (:func:`contrastlab.data.clips.flow.quantise` with :data:`BOUND`; of the last frame, none);
        ``labels`` int64 ``[N]``; and ``[N]`` by name: the ``silhouette`` shown (the action it belongs to), the
        ``rate`` of the motion and the drift of the ground.

    Raises:
        ArgumentError: ``index`` or ``seed`` is out of range, or ``index`` is not an int64 vector.
    """
    if not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise reject("seed", seed, "an integer in [0, 2**32)")
    if index.ndim != 1 or index.dtype != torch.int64:
        raise reject("index", f"{index.dtype} tensor of shape {tuple(index.shape)}", "an int64 vector")
    if len(index) and not (int(index.min()) >= 0 and int(index.max()) < 2**32):
        raise reject("index", (int(index.min()), int(index.max())), "integers in [0, 2**32)")
    key = _mix(_mix(torch.tensor(seed) + _GOLDEN))
    clips = torch.empty(len(index), LENGTH, 5, SIDE, SIDE, dtype=torch.uint8)
    parts: list[dict[str, Tensor]] = []
    for start in range(0, len(index), _CHUNK):
        rows = slice(start, start + _CHUNK)
        frames, flow, factors = _render_chunk(index[rows], key)
        clips[rows, :, :3] = frames
        clips[rows, :-1, 3:] = quantise(flow, BOUND)
        parts.append(factors)
    clips[:, -1, 3:] = quantise(torch.zeros(1), BOUND)
    names = parts[0] if parts else {}
    return clips, index % len(ACTIONS), {name: torch.cat([part[name] for part in parts]) for name in names}


@lru_cache(maxsize=4)
def _part(name: str, start: int, count: int, seed: int) -> ClipSet:
    clips, labels, factors = render(torch.arange(start, start + count), seed)
    return ClipSet(name, clips, labels, ACTIONS, BOUND, factors)


def load(request: Request) -> Splits:
    """The splits of ``clips``."""
    name, seed, n_train, n_test = request.name, request.seed, request.n_train or 1_000, request.n_test or 400
    check_counts(n_train, n_test)
    train = _part(f"{name}/train", 0, n_train, seed)
    test = _part(f"{name}/test", TEST_OFFSET, n_test, seed)
    return Splits(name, train, train, test, f"generated clips with exact flow, seed {seed}")
