"""``rooms``: ray-cast rooms with spheres and turned boxes, whose depth, normals and classes are exact.

Every scene is a function of ``(seed, index)`` alone, by a counter-based generator (Philox). What a pixel's ray meets
first gives depth along the camera's axis, unit normal and class. Colours, textures and light do not depend on the
class, but objects are more saturated than walls. World axes are right, down, forward (metres); the floor is y = 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from contrastlab.data import Request, Splits
from contrastlab.domains.scenes.data import SceneSet
from contrastlab.support.errors import reject

VERSION = 1  # raised whenever the same (seed, index) would look different: stored results name it

HEIGHT, WIDTH = 64, 96
CLASSES = ("floor", "wall", "ceiling", "sphere", "box")  # of pixels
KINDS = ("boxes", "spheres", "both")  # classes of rooms: what lies in them
SLOTS = 3  # spheres, and boxes, that a room has at most
PART = 1_000_000_000  # pre-training counts scenes from 0; labelled training, validation and test from its multiples
SIZES = {"pretrain": 1000, "train": 200, "validation": 200, "test": 300}  # scenes, in the order of their numbers

_SURFACES = 6 + 2 * SLOTS
_CLASS_OF = np.array([0, 2, 1, 1, 1, 1] + [3] * SLOTS + [4] * SLOTS)
_CHUNK = 16
_FOCAL = 0.9  # of the width: 58 degrees across

Array = NDArray[np.float32]


class Hits(NamedTuple):
    """What the rays of some scenes meet first."""

    depth: Array  # [n, P] along the camera's axis, metres
    surface: NDArray[np.int64]  # [n, P]: 0 floor, 1 ceiling, 2 to 5 walls, then spheres, then boxes
    normal: Array  # [n, 3, P] unit, world axes, towards the camera
    point: Array  # [n, 3, P] in the world


class Rooms(NamedTuple):
    """Geometry, paint and camera of n rooms, float32."""

    kind: NDArray[np.int64]  # [n] index into KINDS
    low: Array  # [n, 3] corner of the room; its y is that of the ceiling
    high: Array  # [n, 3] opposite corner
    spheres: Array  # [n, SLOTS, 4] centre and radius; radius 0 is none
    boxes: Array  # [n, SLOTS, 7] centre, half sides, angle about the vertical; sides 0 are none
    paint: Array  # [n, surfaces, 9] red, green, blue, and a wave's three frequencies, phase, amplitude, sharpness
    light: Array  # [n, 5] position, share of ambient light, strength
    position: Array  # [n, 3] of the camera
    turn: Array  # [n, 3, 3] camera to world


def _turn(axis: int, angle: NDArray[Any]) -> NDArray[Any]:
    """``[n, 3, 3]``, by angles ``[n]`` about right (0), down (1) or forward (2)."""
    c, s = np.cos(angle), np.sin(angle)
    turned = np.zeros((len(angle), 3, 3), angle.dtype)
    a, b = (axis + 1) % 3, (axis + 2) % 3
    turned[:, axis, axis] = 1
    turned[:, a, a], turned[:, a, b], turned[:, b, a], turned[:, b, b] = c, -s, s, c
    return turned


def _rotation(yaw: NDArray[np.float64], pitch: NDArray[np.float64], roll: NDArray[np.float64]) -> Array:
    """``[n, 3, 3]``, camera to world: first roll, then pitch (down is positive), then yaw (right is positive)."""
    turned: Array = (_turn(1, yaw) @ _turn(0, -pitch) @ _turn(2, roll)).astype(np.float32)
    return turned


def _hue(hue: NDArray[np.float64], saturation: NDArray[np.float64], value: NDArray[np.float64]) -> NDArray[np.float64]:
    """HSV to RGB, in the last axis."""
    k = (np.array([5.0, 3.0, 1.0]) + 6 * hue[..., None]) % 6
    rgb: NDArray[np.float64] = value[..., None] * (1 - saturation[..., None] * np.clip(np.minimum(k, 4 - k), 0, 1))
    return rgb


def draw(seed: int, indices: NDArray[np.int64]) -> Rooms:
    """The rooms of a data set with the numbers ``indices`` ``[n]``, from 0."""
    count = 48 + 10 * _SURFACES + 8 * SLOTS * 2
    raw = np.stack([np.random.Philox(key=seed, counter=[0, 0, 0, int(i)]).random_raw(count) for i in indices])
    stream: Iterator[NDArray[np.float64]] = iter(((raw >> np.uint64(11)) * 2.0**-53).T)

    def u(low: float = 0.0, high: float = 1.0, *shape: int) -> NDArray[np.float64]:
        values = np.stack([next(stream) for _ in range(math.prod(shape))], -1) if shape else next(stream)
        values = values.reshape(len(raw), *shape)
        return low + (high - low) * values

    kind = np.minimum(u(0, 3), 2.999).astype(np.int64)
    wide, tall, deep = u(3.0, 6.0), u(2.3, 3.4), u(3.5, 8.0)
    low = np.stack([-wide / 2, -tall, np.zeros_like(wide)], -1)
    high = np.stack([wide / 2, np.zeros_like(wide), deep], -1)
    position = np.stack([u(-0.25, 0.25) * wide, -u(1.0, 1.8), u(0.2, 0.8)], -1)
    yaw, pitch, roll = u(-0.4, 0.4), u(-0.1, 0.25), u(-0.05, 0.05)
    u(0, 1, 6)  # once drew the motion of the camera; the numbers after them are to stay the same

    def ground(slots: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        # places in front of the camera, in the camera's heading
        ahead, aside = u(1.3, 4.5, slots), u(-0.42, 0.42, slots)
        x = position[:, :1] + ahead * (np.sin(yaw)[:, None] + aside * np.cos(yaw)[:, None])
        z = position[:, 2:] + ahead * (np.cos(yaw)[:, None] - aside * np.sin(yaw)[:, None])
        return np.clip(x, low[:, :1] + 0.3, high[:, :1] - 0.3), np.clip(z, low[:, 2:] + 0.3, high[:, 2:] - 0.3)

    many = (u(0, 1, 2) * np.where(kind[:, None] == 2, 2, 3)).astype(np.int64) + 1  # 1 to 3 of a kind, 1 or 2 of both
    slot = np.arange(SLOTS)
    (x, z), radius = ground(SLOTS), u(0.2, 0.55, SLOTS)
    hang = np.where(u(0, 1, SLOTS) < 0.3, u(0.0, 1.2, SLOTS), 0.0)
    radius = radius * ((kind[:, None] != 0) & (slot < many[:, :1]))
    spheres = np.stack([x, -radius - hang, z, radius], -1)
    (x, z), sides, angle = ground(SLOTS), u(0.15, 0.5, SLOTS, 3), u(0, math.pi / 2, SLOTS)
    sides = sides * ((kind[:, None] != 1) & (slot < many[:, 1:]))[..., None]
    boxes = np.concatenate([np.stack([x, -sides[..., 1], z], -1), sides, angle[..., None]], -1)

    thing = (np.arange(_SURFACES) >= 6)[None]
    saturation = u(0, 1, _SURFACES)
    saturation = np.where(thing, 0.35 + 0.55 * saturation, 0.05 + 0.35 * saturation)
    rgb = _hue(u(0, 1, _SURFACES), saturation, u(0.3, 0.95, _SURFACES))
    rgb[:, 3:6] = rgb[:, 2:3]  # the four walls share their paint
    waves = u(-4.0, 4.0, _SURFACES, 3)
    waves[:, 3:6] = waves[:, 2:3]
    phase, amplitude, sharp = u(0, 1, _SURFACES), u(0, 0.35, _SURFACES), u(1, 6, _SURFACES)
    paint = np.concatenate([rgb, waves, phase[..., None], amplitude[..., None], sharp[..., None]], -1)
    where = low + (high - low) * np.stack([u(0.1, 0.9), u(0.02, 0.2), u(0.1, 0.9)], -1)
    light = np.concatenate([where, u(0.25, 0.5)[:, None], u(0.8, 1.1)[:, None]], -1)
    turn = _rotation(yaw, pitch, roll)
    return Rooms(kind, *(part.astype(np.float32) for part in (low, high, spheres, boxes, paint, light, position, turn)))


def rays(height: int, width: int) -> Array:
    """``[3, P]`` directions through the pixels' centres in the camera's axes, forward component 1."""
    focal = _FOCAL * width
    x = (np.arange(width) + 0.5 - width / 2) / focal
    y = (np.arange(height) + 0.5 - height / 2) / focal
    out = np.stack([*np.meshgrid(x, y), np.ones((height, width))]).reshape(3, -1)
    return out.astype(np.float32)


def cast(rooms: Rooms, directions: Array) -> Hits:
    """What rays from the camera of each room meet first; ``directions`` ``[3, P]`` as from :func:`rays`."""
    start, d = rooms.position, rooms.turn @ directions  # a forward component of 1: the parameter of a hit is its depth
    with np.errstate(divide="ignore", invalid="ignore"):
        exits = np.where(d > 0, (rooms.high - start)[..., None] / d, (rooms.low - start)[..., None] / d)
    axis = exits.argmin(1)
    depth = np.take_along_axis(exits, axis[:, None], 1)[:, 0]
    ahead = np.take_along_axis(d, axis[:, None], 1)[:, 0] > 0
    surface = np.choose(axis, [np.where(ahead, 3, 2), np.where(ahead, 0, 1), np.where(ahead, 5, 4)])
    normal = (-np.sign(d) * (np.arange(3)[:, None] == axis[:, None])).astype(np.float32)
    for slot in range(SLOTS):
        for number, things, meet in ((6, rooms.spheres, _sphere), (6 + SLOTS, rooms.boxes, _box)):
            rows = np.flatnonzero(things[:, slot, 3] > 0)
            t, n = meet(things[rows, slot], start[rows], d[rows])
            closer = t < depth[rows]
            depth[rows] = np.where(closer, t, depth[rows])
            surface[rows] = np.where(closer, number + slot, surface[rows])
            normal[rows] = np.where(closer[:, None], n, normal[rows])
    return Hits(depth, surface, normal, start[..., None] + depth[:, None] * d)


def _sphere(sphere: Array, start: Array, d: Array) -> tuple[Array, Array]:
    """Depth ``[m, P]``, infinite where the ray misses, and normal ``[m, 3, P]`` of a sphere a room."""
    centre, radius = sphere[:, :3] - start, sphere[:, 3:]
    along, square = np.einsum("nk,nkp->np", centre, d), (d * d).sum(1)
    inside = along**2 - square * ((centre**2).sum(1, keepdims=True) - radius**2)
    t = (along - np.sqrt(np.maximum(inside, 0))) / square
    normal = (t[:, None] * d - centre[..., None]) / radius[..., None]
    return np.where((inside > 0) & (t > 0), t, np.inf), normal


def _box(box: Array, start: Array, d: Array) -> tuple[Array, Array]:
    """The same of a box, turned about the vertical, by its slabs."""
    turned = _turn(1, box[:, 6])
    o = np.einsum("nji,nj->ni", turned, start - box[:, :3])[..., None]
    ray = np.swapaxes(turned, 1, 2) @ d
    ray = np.where(np.abs(ray) < 1e-9, np.float32(1e-9), ray)
    middle, half = -o / ray, box[:, 3:6, None] / np.abs(ray)
    near = middle - half
    t = near.max(1)
    local = -np.sign(ray) * (np.arange(3)[:, None] == near.argmax(1)[:, None])
    met = (t < (middle + half).min(1)) & (t > 0)
    return np.where(met, t, np.inf), turned @ local.astype(np.float32)


def _colours(rooms: Rooms, hits: Hits) -> Array:
    """``[n, 3, P]`` in [0, 1], without noise."""
    paint = np.take_along_axis(rooms.paint, hits.surface[..., None], 1)  # [n, P, 9]
    wave = np.sin(2 * math.pi * (np.einsum("nkp,npk->np", hits.point, paint[..., 3:6]) + paint[..., 6]))
    pattern = 1 + paint[..., 7] * np.tanh(paint[..., 8] * wave)
    to_light = rooms.light[:, :3, None] - hits.point
    lambert = (hits.normal * to_light).sum(1) / np.sqrt((to_light**2).sum(1))
    ambient, strength = rooms.light[:, 3:4], rooms.light[:, 4:5]
    shade = strength * (ambient + (1 - ambient) * np.maximum(lambert, 0))
    colours: Array = np.clip(np.moveaxis(paint[..., :3], 2, 1) * (pattern * shade)[:, None], 0, 1)
    return colours


def render(indices: Tensor, seed: int = 0, *, height: int = HEIGHT, width: int = WIDTH) -> tuple[Tensor, Tensor]:
    """Scenes as :data:`contrastlab.domains.scenes.views.LAYOUT` packs them, and the kind of each room.

    ``indices``: int64 ``[N]`` numbers of scenes, from 0. Returns float16 ``[N, 8, height, width]``, the colours as
    whole numbers from 0 to 255, and int64 ``[N]`` into :data:`KINDS`.
    """
    if len(indices) and int(indices.min()) < 0:
        raise reject("indices", int(indices.min()), "numbers of scenes from 0")
    directions = rays(height, width)
    scenes = np.empty((len(indices), 8, height, width), np.float16)
    kinds = np.empty(len(indices), np.int64)
    for first in range(0, len(indices), _CHUNK):
        rows = slice(first, first + _CHUNK)
        numbers = indices[rows].numpy()
        rooms = draw(seed, numbers)
        hits = cast(rooms, directions)
        counters = (np.random.Philox(key=seed, counter=[0, 0, 1, int(number)]) for number in numbers)
        size = (3, height * width)
        noise = np.stack([np.random.Generator(c).standard_normal(size, np.float32) for c in counters])
        rgb = np.round(255 * np.clip(_colours(rooms, hits) + 0.02 * noise, 0, 1))
        normal = np.swapaxes(rooms.turn, 1, 2) @ hits.normal
        parts = [rgb, _CLASS_OF[hits.surface][:, None], hits.depth[:, None], normal]
        scenes[rows] = np.concatenate(parts, 1).reshape(len(numbers), -1, height, width)
        kinds[rows] = rooms.kind
    return torch.from_numpy(scenes), torch.from_numpy(kinds)


def load(request: Request) -> Splits:
    """Rooms for pre-training, labelled ones for decoders, and others to score on; no scene is in two of them."""
    seed, test = request.seed, "validation" if request.name == "rooms_validation" else "test"
    pretrain = _part("pretrain", request.n_train or SIZES["pretrain"], seed)
    train = _part("train", min(request.n_train or SIZES["train"], SIZES["train"]), seed)
    held = _part(test, request.n_test or SIZES[test], seed)
    return Splits(request.name, pretrain, train, held, f"generated rooms, version {VERSION}, seed {seed}")


@lru_cache(maxsize=8)
def _part(split: str, count: int, seed: int) -> SceneSet:
    first = list(SIZES).index(split) * PART
    scenes, kinds = render(torch.arange(first, first + count), seed)
    origin = f"rooms version {VERSION}, seed {seed}, from {first}"
    return SceneSet(f"rooms/{split}", scenes, kinds, KINDS, CLASSES, origin)
