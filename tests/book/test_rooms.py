"""The ray-caster against analytic surfaces and a slow twin; the same scene every time."""

import itertools
import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from contrastbook.made import rooms
from contrastlab import data
from contrastlab.domains.scenes.views import slices

H, W = 24, 36


def empty(low=(-2.0, -1.5, -1.0), high=(2.0, 1.0, 5.0)) -> rooms.Rooms:
    """A room around a camera at the origin that looks along z, with nothing in it."""
    corner = [np.array([c], np.float32) for c in (low, high)]
    return rooms.draw(0, np.array([0]))._replace(
        low=corner[0], high=corner[1], position=np.zeros((1, 3), np.float32), turn=np.eye(3, dtype=np.float32)[None],
        spheres=np.zeros((1, rooms.SLOTS, 4), np.float32), boxes=np.zeros((1, rooms.SLOTS, 7), np.float32),
    )  # fmt: skip


def test_walls_are_planes() -> None:
    directions = rooms.rays(H, W)
    hits = rooms.cast(empty(), directions)
    x, y, _ = directions.astype(np.float64)
    # the smallest of the five exits in front of the camera, by hand
    with np.errstate(divide="ignore"):
        floor = np.where(y > 0, 1.0 / y, np.inf)
        ceiling = np.where(y < 0, -1.5 / y, np.inf)
        left = np.where(x < 0, -2.0 / x, np.inf)
        right = np.where(x > 0, 2.0 / x, np.inf)
    far = np.full_like(x, 5.0)
    exits = np.stack([floor, ceiling, left, right, far])
    numbers = np.array([0, 1, 2, 3, 5])
    np.testing.assert_allclose(hits.depth[0], exits.min(0), rtol=1e-5)
    assert (hits.surface[0] == numbers[exits.argmin(0)]).all()
    normals = np.array([[0, -1, 0], [0, 1, 0], [1, 0, 0], [-1, 0, 0], [0, 0, 0], [0, 0, -1]])
    np.testing.assert_array_equal(hits.normal[0].T, normals[hits.surface[0]])
    assert len(set(hits.surface[0])) == 5


def test_a_sphere_is_a_sphere() -> None:
    room = empty()
    room.spheres[0, 1] = (0.2, -0.1, 3.0, 0.6)
    directions = rooms.rays(H, W)
    hits = rooms.cast(room, directions)
    met = hits.surface[0] == 7
    centre = np.array([0.2, -0.1, 3.0])
    for ray, depth, normal, hit in zip(directions.T, hits.depth[0], hits.normal[0].T, met, strict=True):
        roots = np.roots([ray @ ray, -2 * ray @ centre, centre @ centre - 0.36])
        assert hit == (abs(roots[0].imag) < 1e-9)
        if hit:
            assert depth == pytest.approx(min(roots.real), abs=1e-3)
            np.testing.assert_allclose(normal, (depth * ray - centre) / 0.6, atol=1e-3)
    assert 20 < met.sum() < 200


class Hit(NamedTuple):
    """Where a ray meets a surface; the least is the nearest."""

    depth: float
    surface: int
    normal: list[float]


Vector = NDArray[np.float64]


def hits_of_walls(room: rooms.Rooms, ray: Vector, start: Vector) -> list[Hit]:
    """Each of the six faces of the room as a plane with a border."""
    low, high = room.low[0].astype(float), room.high[0].astype(float)
    # floor, ceiling, left, right, near, far: the axis, the corner that the face goes through, where it faces
    faces = [(1, high, -1), (1, low, 1), (0, low, 1), (0, high, -1), (2, low, 1), (2, high, -1)]
    hits = []
    for number, (axis, corner, sign) in enumerate(faces):
        depth = (corner[axis] - start[axis]) / ray[axis]
        point = start + depth * ray
        other_axes = [k for k in range(3) if k != axis]
        is_inside = all(low[k] - 1e-9 <= point[k] <= high[k] + 1e-9 for k in other_axes)
        if depth > 0 and is_inside:
            normal = [0.0, 0.0, 0.0]
            normal[axis] = float(sign)
            hits.append(Hit(depth, number, normal))
    return hits


def hits_of_sphere(sphere: Vector, number: int, ray: Vector, start: Vector) -> list[Hit]:
    """The nearer root of a quadratic equation."""
    centre, radius = sphere[:3], sphere[3]
    if not radius:
        return []
    offset = start - centre
    a = ray @ ray
    b = 2 * ray @ offset
    c = offset @ offset - radius**2
    discriminant = b * b - 4 * a * c
    if discriminant <= 0:
        return []
    depth = (-b - math.sqrt(discriminant)) / (2 * a)
    if depth <= 0:
        return []
    normal = (offset + depth * ray) / radius
    return [Hit(depth, number, list(normal))]


def hits_of_box(box: Vector, number: int, ray: Vector, start: Vector) -> list[Hit]:
    """Each of the six faces of a box, turned about the vertical axis, as a plane with a border."""
    centre, half_sides, angle = box[:3], box[3:6], box[6]
    if not half_sides[0]:
        return []
    cosine, sine = math.cos(angle), math.sin(angle)
    axes = np.array([[cosine, 0, -sine], [0, 1, 0], [sine, 0, cosine]])
    hits = []
    for k, sign in itertools.product(range(3), (-1, 1)):
        normal = sign * axes[k]
        depth = float((normal @ (centre - start) + half_sides[k]) / (normal @ ray))
        point = axes @ (start + depth * ray - centre)
        is_inside = np.abs(point) <= half_sides + 1e-9
        is_on_face = all(is_inside[j] for j in range(3) if j != k)
        faces_camera = normal @ ray < 0
        if depth > 0 and faces_camera and is_on_face:
            hits.append(Hit(depth, number, list(normal)))
    return hits


def nearest_hit(room: rooms.Rooms, ray: Vector, start: Vector) -> Hit:
    """Of one ray, in float64, surface by surface."""
    hits = hits_of_walls(room, ray, start)
    for slot in range(rooms.SLOTS):
        sphere, box = room.spheres[0, slot].astype(float), room.boxes[0, slot].astype(float)
        hits += hits_of_sphere(sphere, 6 + slot, ray, start)
        hits += hits_of_box(box, 6 + rooms.SLOTS + slot, ray, start)
    return min(hits)


@pytest.mark.parametrize("index", [1, 4, 7, 12])
def test_a_room_is_what_its_loop_says(index: int) -> None:
    room = rooms.draw(3, np.array([index]))
    directions = rooms.rays(H, W)
    hits = rooms.cast(room, directions)
    start, turn = room.position[0].astype(float), room.turn[0].astype(float)
    edges = 0
    for pixel in range(0, H * W, 5):
        ray = turn @ directions[:, pixel].astype(float)
        expected = nearest_hit(room, ray, start)
        if hits.surface[0, pixel] != expected.surface:  # float32 may decide otherwise within a hair of an edge
            edges += 1
            continue
        assert hits.depth[0, pixel] == pytest.approx(expected.depth, rel=1e-3)
        np.testing.assert_allclose(hits.normal[0, :, pixel], expected.normal, atol=5e-3)
    assert edges <= 1


def test_normals_have_length_one_and_face_the_camera() -> None:
    room = rooms.draw(0, np.arange(40))
    directions = rooms.rays(H, W)
    hits = rooms.cast(room, directions)
    np.testing.assert_allclose(np.linalg.norm(hits.normal, axis=1), 1, atol=2e-3)
    assert ((hits.normal * (room.turn @ directions)).sum(1) < 1e-3).all()
    scenes, _ = rooms.render(torch.arange(40))
    normal = scenes[:, slices(8)["normal"]].float()
    torch.testing.assert_close(normal.norm(dim=1), torch.ones(40, 64, 96), atol=3e-3, rtol=0)
    # stored in the camera's axes: against the pixel's own ray
    assert float((normal.flatten(2) * torch.from_numpy(rooms.rays(64, 96))).sum(1).max()) < 5e-3


def test_a_scene_is_the_same_whatever_is_rendered_beside_it() -> None:
    some, kinds = rooms.render(torch.tensor([9, 2, 40]), seed=1)
    alone, kind = rooms.render(torch.tensor([2]), seed=1)
    assert torch.equal(some[1], alone[0])
    assert kinds[1] == kind[0]
    assert not torch.equal(rooms.render(torch.tensor([2]), seed=2)[0][0], alone[0])
    assert (rooms.render(torch.arange(0))[0].shape, rooms.HEIGHT, rooms.WIDTH) == ((0, 8, 64, 96), 64, 96)


def test_this_version_looks_like_this_and_every_class_of_pixels_occurs() -> None:
    """Whoever changes what a scene looks like raises VERSION: stored results name it."""
    scenes, kinds = rooms.render(torch.arange(64))
    assert rooms.VERSION == 1
    assert kinds.bincount().tolist() == [22, 15, 27]
    means = [96.88, 93.88, 98.28, 1.23, 3.96, 0.02, -0.07, -0.55]
    assert scenes.float().mean((0, 2, 3)).tolist() == pytest.approx(means, abs=2e-2)
    scenes, kinds = rooms.render(torch.arange(200))
    label = scenes[:, 3].long()
    assert label.unique().tolist() == [0, 1, 2, 3, 4]
    assert not bool((label[kinds == 0] == 3).any())
    assert not bool((label[kinds == 1] == 4).any())
    room = rooms.draw(0, np.arange(200))
    assert ((room.spheres[:, :, 3] > 0).any(1) == (kinds.numpy() != 0)).all()
    assert ((room.boxes[:, :, 3] > 0).any(1) == (kinds.numpy() != 1)).all()
    assert scenes[:, 4].min() > 0
    assert (scenes[:, :3].float() % 1 == 0).all()


def test_splits_have_no_scene_in_common() -> None:
    splits = data.load("rooms", n_train=30, n_test=20)
    held = data.load("rooms_validation", n_train=30, n_test=20)
    parts = {"pretrain": splits.pretrain, "train": splits.train, "test": splits.test, "validation": held.test}
    seen = {name: {bytes(item.numpy().tobytes()) for item in part.items} for name, part in parts.items()}
    assert sum(map(len, seen.values())) == len(set().union(*seen.values())) == 30 + 30 + 20 + 20
    assert torch.equal(splits.pretrain.items, held.pretrain.items)
    assert splits.pretrain.fingerprint == held.pretrain.fingerprint != splits.test.fingerprint
    assert len({part.fingerprint for part in parts.values()}) == 4
    assert splits.train.take(5).fingerprint not in {part.fingerprint for part in parts.values()}
    assert data.load("rooms", n_train=30, n_test=20, seed=1).pretrain.fingerprint != splits.pretrain.fingerprint
