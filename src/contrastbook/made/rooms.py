"""``rooms``: ray-cast rooms with spheres and turned boxes, whose depth, normals and classes are exact.

Every scene is a function of ``(seed, index)`` alone, by a counter-based generator (Philox). What a pixel's ray meets
first gives depth along the camera's axis, unit normal and class. Colours, textures and light do not depend on the
class, but objects are more saturated than walls. World axes are right, down, forward (metres); the floor is y = 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
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
PART = 1_000_000_000  # pre-training counts scenes from 0; the other parts from multiples of this
SIZES = {"pretrain": 1000, "train": 200, "validation": 200, "test": 300}  # scenes of each part

_FLOOR, _CEILING = 0, 1  # numbers of surfaces; the walls are those along the x axis, then along z
_LEFT, _RIGHT, _BACK, _FRONT = 2, 3, 4, 5
_FIRST_SPHERE = 6
_FIRST_BOX = _FIRST_SPHERE + SLOTS
_SURFACES = _FIRST_BOX + SLOTS
_CLASS_OF = np.array([0, 2, 1, 1, 1, 1] + [3] * SLOTS + [4] * SLOTS)  # surface -> index into CLASSES
_CHUNK = 16  # scenes rendered at a time
_FOCAL = 0.9  # of the width: 58 degrees across
_NUMBERS = 48 + 10 * _SURFACES + 16 * SLOTS  # random numbers kept for each room; not all are used

Array = NDArray[np.float32]
Float64 = NDArray[np.float64]


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


class _Stream:
    """Uniform random numbers of n rooms, handed out in order: a room's depend on seed and number alone."""

    def __init__(self, seed: int, indices: NDArray[np.int64]) -> None:
        raw = np.stack([self._raw_numbers(seed, int(index)) for index in indices])
        upper_53_bits = raw >> np.uint64(11)  # as many as a float64 holds
        self._values: Float64 = upper_53_bits * np.float64(2.0**-53)  # [n, _NUMBERS] in [0, 1)
        self._used = 0

    @staticmethod
    def _raw_numbers(seed: int, index: int) -> NDArray[np.uint64]:
        """``[_NUMBERS]`` random integers of one room."""
        generator = np.random.Philox(key=seed, counter=[0, 0, 0, index])
        return generator.random_raw(_NUMBERS)

    def uniform(self, low: float, high: float, *shape: int) -> Float64:
        """The next numbers of each room, ``[n, *shape]`` in [low, high)."""
        count = math.prod(shape)
        values = self._values[:, self._used : self._used + count]
        self._used += count
        return low + (high - low) * values.reshape(-1, *shape)

    def skip(self, count: int) -> None:
        """Leave out numbers that an older version drew, so that later ones stay the same."""
        self._used += count


class _View(NamedTuple):
    """Where the cameras of n rooms stand, and where they look."""

    position: Float64  # [n, 3]
    yaw: Float64  # [n] radians, to the right
    pitch: Float64  # [n] radians, down
    roll: Float64  # [n] radians


def _turn(axis: int, angle: NDArray[Any]) -> NDArray[Any]:
    """Matrices ``[n, 3, 3]`` that turn by angles ``[n]`` about right (0), down (1) or forward (2)."""
    cos = np.cos(angle)
    sin = np.sin(angle)
    first = (axis + 1) % 3
    second = (axis + 2) % 3
    matrices = np.zeros((len(angle), 3, 3), angle.dtype)
    matrices[:, axis, axis] = 1
    matrices[:, first, first] = cos
    matrices[:, first, second] = -sin
    matrices[:, second, first] = sin
    matrices[:, second, second] = cos
    return matrices


def _camera_to_world(view: _View) -> Float64:
    """Matrices ``[n, 3, 3]``: first roll, then pitch, then yaw."""
    roll = _turn(2, view.roll)
    pitch = _turn(0, -view.pitch)
    yaw = _turn(1, view.yaw)
    return yaw @ pitch @ roll


def _rgb(hue: Float64, saturation: Float64, value: Float64) -> Float64:
    """Red, green and blue (0 to 1), in a new last axis, of hues, saturations and values of HSV (0 to 1 each)."""
    sector = (np.array([5.0, 3.0, 1.0]) + 6 * hue[..., None]) % 6
    ramp = np.clip(np.minimum(sector, 4 - sector), 0, 1)
    remaining: Float64 = 1 - saturation[..., None] * ramp
    return value[..., None] * remaining


def _draw_walls(stream: _Stream) -> tuple[Float64, Float64]:
    """Two opposite corners ``[n, 3]`` of each room, in metres."""
    width = stream.uniform(3.0, 6.0)
    height = stream.uniform(2.3, 3.4)
    depth = stream.uniform(3.5, 8.0)
    zero = np.zeros_like(width)
    low = np.stack([-width / 2, -height, zero], -1)
    high = np.stack([width / 2, zero, depth], -1)
    return low, high


def _draw_view(stream: _Stream, width: Float64) -> _View:
    """A camera near the back wall, at the height of eyes, in rooms of this width ``[n]``."""
    x = stream.uniform(-0.25, 0.25) * width
    height = stream.uniform(1.0, 1.8)
    z = stream.uniform(0.2, 0.8)
    yaw = stream.uniform(-0.4, 0.4)
    pitch = stream.uniform(-0.1, 0.25)
    roll = stream.uniform(-0.05, 0.05)
    return _View(np.stack([x, -height, z], -1), yaw, pitch, roll)


def _draw_places(stream: _Stream, view: _View, low: Float64, high: Float64) -> tuple[Float64, Float64]:
    """Places x and z ``[n, SLOTS]`` in metres, drawn in front of the camera and moved 0.3 m away from every wall.

    ``low`` and ``high``: opposite corners of each room ``[n, 3]``.
    """
    ahead = stream.uniform(1.3, 4.5, SLOTS)
    aside = stream.uniform(-0.42, 0.42, SLOTS)  # of the distance ahead
    cos = np.cos(view.yaw)[:, None]
    sin = np.sin(view.yaw)[:, None]
    x = view.position[:, :1] + ahead * (sin + aside * cos)
    z = view.position[:, 2:] + ahead * (cos - aside * sin)
    x = np.clip(x, low[:, :1] + 0.3, high[:, :1] - 0.3)
    z = np.clip(z, low[:, 2:] + 0.3, high[:, 2:] - 0.3)
    return x, z


def _draw_present(stream: _Stream, kind: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which of the slots ``[n, SLOTS]`` hold a sphere, and which a box.

    A room of one kind of things has one to three of them; a room of both has one or two of each.
    """
    most = np.where(kind == KINDS.index("both"), 2, 3)
    counts = (stream.uniform(0, 1, 2) * most[:, None]).astype(np.int64) + 1
    spheres = np.where(kind == KINDS.index("boxes"), 0, counts[:, 0])
    boxes = np.where(kind == KINDS.index("spheres"), 0, counts[:, 1])
    slots = np.arange(SLOTS)
    return slots < spheres[:, None], slots < boxes[:, None]


def _draw_spheres(stream: _Stream, x: Float64, z: Float64, present: NDArray[np.bool_]) -> Float64:
    """Centre and radius ``[n, SLOTS, 4]``; three of ten hang above the floor."""
    radius = stream.uniform(0.2, 0.55, SLOTS)
    hangs = stream.uniform(0, 1, SLOTS) < 0.3
    above_floor = np.where(hangs, stream.uniform(0.0, 1.2, SLOTS), 0.0)
    radius = radius * present
    return np.stack([x, -radius - above_floor, z, radius], -1)


def _draw_boxes(stream: _Stream, x: Float64, z: Float64, present: NDArray[np.bool_]) -> Float64:
    """Centre, half sides and angle about the vertical ``[n, SLOTS, 7]``; boxes stand on the floor."""
    half_sides = stream.uniform(0.15, 0.5, SLOTS, 3)
    angle = stream.uniform(0, math.pi / 2, SLOTS)
    half_sides = half_sides * present[..., None]
    centre = np.stack([x, -half_sides[..., 1], z], -1)
    return np.concatenate([centre, half_sides, angle[..., None]], -1)


def _draw_paint(stream: _Stream) -> Float64:
    """Colour and wave of every surface ``[n, surfaces, 9]``, as :class:`Rooms` has them.

    The four walls share one paint. Objects are more saturated than the room.
    """
    saturation = stream.uniform(0, 1, _SURFACES)
    of_objects = 0.35 + 0.55 * saturation
    of_room = 0.05 + 0.35 * saturation
    is_object = np.arange(_SURFACES) >= _FIRST_SPHERE
    saturation = np.where(is_object, of_objects, of_room)
    hue = stream.uniform(0, 1, _SURFACES)
    value = stream.uniform(0.3, 0.95, _SURFACES)
    colour = _rgb(hue, saturation, value)
    frequencies = stream.uniform(-4.0, 4.0, _SURFACES, 3)
    for shared in (colour, frequencies):
        shared[:, _RIGHT : _FRONT + 1] = shared[:, _LEFT : _LEFT + 1]
    phase = stream.uniform(0, 1, _SURFACES)
    amplitude = stream.uniform(0, 0.35, _SURFACES)
    sharpness = stream.uniform(1, 6, _SURFACES)
    wave_shape = np.stack([phase, amplitude, sharpness], -1)
    return np.concatenate([colour, frequencies, wave_shape], -1)


def _draw_light(stream: _Stream, low: Float64, high: Float64) -> Float64:
    """Position under the ceiling, share of ambient light, and strength ``[n, 5]`` of one lamp."""
    x = stream.uniform(0.1, 0.9)
    y = stream.uniform(0.02, 0.2)
    z = stream.uniform(0.1, 0.9)
    position = low + (high - low) * np.stack([x, y, z], -1)
    ambient = stream.uniform(0.25, 0.5)
    strength = stream.uniform(0.8, 1.1)
    return np.concatenate([position, ambient[:, None], strength[:, None]], -1)


def draw(seed: int, indices: NDArray[np.int64]) -> Rooms:
    """The rooms of a data set with the numbers ``indices`` ``[n]``, from 0.

    The order of the draws is part of a room's identity: another order gives other rooms.
    """
    stream = _Stream(seed, indices)
    kind = np.minimum(stream.uniform(0, 3), 2.999).astype(np.int64)
    low, high = _draw_walls(stream)
    view = _draw_view(stream, width=high[:, 0] - low[:, 0])
    stream.skip(6)  # the motion of the camera, in an older version
    has_sphere, has_box = _draw_present(stream, kind)
    x, z = _draw_places(stream, view, low, high)
    spheres = _draw_spheres(stream, x, z, has_sphere)
    x, z = _draw_places(stream, view, low, high)
    boxes = _draw_boxes(stream, x, z, has_box)
    paint = _draw_paint(stream)
    light = _draw_light(stream, low, high)
    return Rooms(
        kind=kind,
        low=low.astype(np.float32),
        high=high.astype(np.float32),
        spheres=spheres.astype(np.float32),
        boxes=boxes.astype(np.float32),
        paint=paint.astype(np.float32),
        light=light.astype(np.float32),
        position=view.position.astype(np.float32),
        turn=_camera_to_world(view).astype(np.float32),
    )


def rays(height: int, width: int) -> Array:
    """``[3, P]`` directions through the pixels' centres in the camera's axes, forward component 1."""
    focal = _FOCAL * width
    x = (np.arange(width) + 0.5 - width / 2) / focal
    y = (np.arange(height) + 0.5 - height / 2) / focal
    right, down = np.meshgrid(x, y)
    forward = np.ones((height, width))
    directions = np.stack([right, down, forward]).reshape(3, -1)
    return directions.astype(np.float32)


def cast(rooms: Rooms, directions: Array) -> Hits:
    """What rays from the camera of each room meet first; ``directions`` ``[3, P]`` from :func:`rays`.

    Directions have a forward component of 1, so a hit at ``start + t * direction`` has depth t.
    """
    start = rooms.position
    ways = rooms.turn @ directions  # [n, 3, P] in the world
    depth, surface, normal = _meet_walls(rooms, ways)
    nearest = _Nearest(depth, surface, normal)
    for slot in range(SLOTS):
        spheres = rooms.spheres[:, slot]
        rows = np.flatnonzero(spheres[:, 3] > 0)  # rooms whose slot is filled
        depth, normal = _meet_sphere(spheres[rows], start[rows], ways[rows])
        nearest.update(rows, depth, _FIRST_SPHERE + slot, normal)
        boxes = rooms.boxes[:, slot]
        rows = np.flatnonzero(boxes[:, 3] > 0)
        depth, normal = _meet_box(boxes[rows], start[rows], ways[rows])
        nearest.update(rows, depth, _FIRST_BOX + slot, normal)
    point = start[..., None] + nearest.depth[:, None] * ways
    return Hits(nearest.depth, nearest.surface, nearest.normal, point)


@dataclass
class _Nearest:
    """What rays met first of what was looked at so far, as :class:`Hits` has it."""

    depth: Array
    surface: NDArray[np.int64]
    normal: Array

    def update(self, rows: NDArray[np.intp], depth: Array, surface: int, normal: Array) -> None:
        """Look at a surface of the rooms ``rows`` ``[m]``, which their rays meet at ``depth`` ``[m, P]``."""
        is_closer = depth < self.depth[rows]
        self.depth[rows] = np.where(is_closer, depth, self.depth[rows])
        self.surface[rows] = np.where(is_closer, surface, self.surface[rows])
        self.normal[rows] = np.where(is_closer[:, None], normal, self.normal[rows])


def _meet_walls(rooms: Rooms, ways: Array) -> tuple[Array, NDArray[np.int64], Array]:
    """Depth, surface and normal where rays ``[n, 3, P]`` leave the empty rooms."""
    start = rooms.position
    to_high = (rooms.high - start)[..., None]
    to_low = (rooms.low - start)[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        exits = np.where(ways > 0, to_high / ways, to_low / ways)  # [n, 3, P], for each axis
    axis = exits.argmin(1)
    depth = np.take_along_axis(exits, axis[:, None], 1)[:, 0]
    way_along_axis = np.take_along_axis(ways, axis[:, None], 1)[:, 0]
    is_to_high = way_along_axis > 0
    across_x = np.where(is_to_high, _RIGHT, _LEFT)
    across_y = np.where(is_to_high, _FLOOR, _CEILING)
    across_z = np.where(is_to_high, _FRONT, _BACK)
    surface = np.choose(axis, [across_x, across_y, across_z])
    is_axis = np.arange(3)[:, None] == axis[:, None]
    normal = (-np.sign(ways) * is_axis).astype(np.float32)
    return depth, surface, normal


def _meet_sphere(spheres: Array, start: Array, ways: Array) -> tuple[Array, Array]:
    """Where rays ``[m, 3, P]`` meet one sphere of each room, ``[m, 4]``.

    Returns the depth ``[m, P]``, infinite where a ray misses, and the normal ``[m, 3, P]``. The depth
    t solves ``|t * way - centre|² = radius²``.
    """
    centre = spheres[:, :3] - start
    radius = spheres[:, 3:]
    along = np.einsum("nk,nkp->np", centre, ways)
    square = (ways * ways).sum(1)
    outside = (centre**2).sum(1, keepdims=True) - radius**2
    discriminant = along**2 - square * outside
    depth = (along - np.sqrt(np.maximum(discriminant, 0))) / square
    normal = (depth[:, None] * ways - centre[..., None]) / radius[..., None]
    meets = (discriminant > 0) & (depth > 0)
    return np.where(meets, depth, np.inf), normal


def _meet_box(boxes: Array, start: Array, ways: Array) -> tuple[Array, Array]:
    """Where rays meet one box of each room, ``[m, 7]``; returns what :func:`_meet_sphere` does.

    In the box's own axes a ray is within three slabs, one for each axis, between two depths each. It
    is in the box between the last entry and the first exit.
    """
    box_to_world = _turn(1, boxes[:, 6])
    from_centre = start - boxes[:, :3]
    origin = np.einsum("nji,nj->ni", box_to_world, from_centre)[..., None]
    world_to_box = np.swapaxes(box_to_world, 1, 2)
    way = world_to_box @ ways
    way = np.where(np.abs(way) < 1e-9, np.float32(1e-9), way)  # never a division by zero
    middle = -origin / way
    half_width = boxes[:, 3:6, None] / np.abs(way)
    entries = middle - half_width
    exits = middle + half_width
    depth = entries.max(1)
    is_last = np.arange(3)[:, None] == entries.argmax(1)[:, None]
    normal = (-np.sign(way) * is_last).astype(np.float32)
    meets = (depth < exits.min(1)) & (depth > 0)
    return np.where(meets, depth, np.inf), box_to_world @ normal


def _colours(rooms: Rooms, hits: Hits) -> Array:
    """Colours ``[n, 3, P]`` in [0, 1], without noise: paint, its wave, and Lambert's shading."""
    paint = np.take_along_axis(rooms.paint, hits.surface[..., None], 1)  # [n, P, 9]
    colour = np.moveaxis(paint[..., :3], 2, 1)
    frequencies = paint[..., 3:6]
    phase = paint[..., 6]
    amplitude = paint[..., 7]
    sharpness = paint[..., 8]
    turns = np.einsum("nkp,npk->np", hits.point, frequencies) + phase
    wave = np.sin(2 * math.pi * turns)
    pattern = 1 + amplitude * np.tanh(sharpness * wave)
    to_light = rooms.light[:, :3, None] - hits.point
    distance = np.sqrt((to_light**2).sum(1))
    lambert = (hits.normal * to_light).sum(1) / distance
    ambient = rooms.light[:, 3:4]
    strength = rooms.light[:, 4:5]
    shade = strength * (ambient + (1 - ambient) * np.maximum(lambert, 0))
    brightness = (pattern * shade)[:, None]
    colours: Array = np.clip(colour * brightness, 0, 1)
    return colours


def _noise(seed: int, numbers: NDArray[np.int64], pixels: int) -> Array:
    """Standard normal noise ``[n, 3, pixels]`` of the scenes with these numbers."""
    noise: list[Array] = []
    for number in numbers:
        counter = np.random.Philox(key=seed, counter=[0, 0, 1, int(number)])
        generator = np.random.Generator(counter)
        noise.append(generator.standard_normal((3, pixels), np.float32))
    return np.stack(noise)


def _render_chunk(seed: int, numbers: NDArray[np.int64], directions: Array) -> tuple[Array, NDArray[np.int64]]:
    """Scenes ``[n, 8, P]``, as :func:`render` packs them, and kinds ``[n]``."""
    rooms = draw(seed, numbers)
    hits = cast(rooms, directions)
    noise = _noise(seed, numbers, directions.shape[1])
    colours = np.clip(_colours(rooms, hits) + 0.02 * noise, 0, 1)
    classes = _CLASS_OF[hits.surface]
    world_to_camera = np.swapaxes(rooms.turn, 1, 2)
    normal = world_to_camera @ hits.normal
    layers = [np.round(255 * colours), classes[:, None], hits.depth[:, None], normal]
    return np.concatenate(layers, 1), rooms.kind


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
        chunk, kinds[rows] = _render_chunk(seed, numbers, directions)
        scenes[rows] = chunk.reshape(len(numbers), -1, height, width)
    return torch.from_numpy(scenes), torch.from_numpy(kinds)


def load(request: Request) -> Splits:
    """Rooms for pre-training, labelled ones for decoders, and others to score on; no scene is in two of them."""
    seed = request.seed
    scored = "validation" if request.name == "rooms_validation" else "test"
    for_pretraining = request.n_train or SIZES["pretrain"]
    labelled = min(request.n_train or SIZES["train"], SIZES["train"])
    for_scores = request.n_test or SIZES[scored]
    return Splits(
        request.name,
        _part("pretrain", for_pretraining, seed),
        _part("train", labelled, seed),
        _part(scored, for_scores, seed),
        f"generated rooms, version {VERSION}, seed {seed}",
    )


@lru_cache(maxsize=8)
def _part(split: str, count: int, seed: int) -> SceneSet:
    """The first ``count`` scenes of a part of :data:`SIZES`."""
    first = list(SIZES).index(split) * PART
    scenes, kinds = render(torch.arange(first, first + count), seed)
    origin = f"rooms version {VERSION}, seed {seed}, from {first}"
    return SceneSet(f"rooms/{split}", scenes, kinds, KINDS, CLASSES, origin)
