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
from contrastlab.domains.scenes.data import SceneSet
from contrastlab.domains.scenes.views import slices

H, W = 24, 36


LOW = (-2.0, -1.5, -1.0)
HIGH = (2.0, 1.0, 5.0)


def empty() -> rooms.Rooms:
    """A room between the corners LOW and HIGH around a camera at the origin that looks along z, with nothing in it."""
    return rooms.draw(0, np.array([0]))._replace(
        low=np.array([LOW], np.float32),
        high=np.array([HIGH], np.float32),
        position=np.zeros((1, 3), np.float32),
        turn=np.eye(3, dtype=np.float32)[None],
        spheres=np.zeros((1, rooms.SLOTS, 4), np.float32),
        boxes=np.zeros((1, rooms.SLOTS, 7), np.float32),
    )


FLOOR, CEILING, LEFT, RIGHT, _, FAR = range(6)


def test_walls_are_planes() -> None:
    directions = rooms.rays(H, W)
    hits = rooms.cast(empty(), directions)
    x, y, _ = directions.astype(np.float64)
    # how far each of the five surfaces in front of the camera is along a ray, whose z is 1
    with np.errstate(divide="ignore"):
        exits = {
            FLOOR: np.where(y > 0, 1.0 / y, np.inf),
            CEILING: np.where(y < 0, -1.5 / y, np.inf),
            LEFT: np.where(x < 0, -2.0 / x, np.inf),
            RIGHT: np.where(x > 0, 2.0 / x, np.inf),
            FAR: np.full_like(x, 5.0),
        }
    distances = np.stack([*exits.values()])
    nearest = np.array([*exits])[distances.argmin(0)]
    np.testing.assert_allclose(hits.depth[0], distances.min(0), rtol=1e-5)
    np.testing.assert_array_equal(hits.surface[0], nearest)
    assert set(nearest) == set(exits)


@pytest.mark.parametrize(
    ("surface", "normal"),
    [(FLOOR, (0, -1, 0)), (CEILING, (0, 1, 0)), (LEFT, (1, 0, 0)), (RIGHT, (-1, 0, 0)), (FAR, (0, 0, -1))],
)
def test_walls_face_into_the_room(surface: int, normal: tuple[int, int, int]) -> None:
    hits = rooms.cast(empty(), rooms.rays(H, W))
    normals = hits.normal[0].T[hits.surface[0] == surface]
    assert np.unique(normals, axis=0).tolist() == [list(normal)]


def test_a_sphere_is_a_sphere() -> None:
    centre = np.array([0.2, -0.1, 3.0])
    radius = 0.6
    room = empty()
    room.spheres[0, 1] = (*centre, radius)
    directions = rooms.rays(H, W)
    hits = rooms.cast(room, directions)
    is_hit = hits.surface[0] == 6 + 1
    for pixel, ray in enumerate(directions.T):
        # the points of the ray at the distance of a radius from the centre
        roots = np.roots([ray @ ray, -2 * ray @ centre, centre @ centre - radius**2])
        assert is_hit[pixel] == (abs(roots[0].imag) < 1e-9)
        if is_hit[pixel]:
            depth = min(roots.real)
            assert hits.depth[0, pixel] == pytest.approx(depth, abs=1e-3)
            np.testing.assert_allclose(hits.normal[0, :, pixel], (depth * ray - centre) / radius, atol=1e-3)
    assert 20 < is_hit.sum() < 200


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
    along_the_ray = (hits.normal * (room.turn @ directions)).sum(1)
    assert along_the_ray.max() < 1e-3


def test_stored_normals_are_in_the_axes_of_the_camera() -> None:
    scenes, _ = rooms.render(torch.arange(40))
    normal = scenes[:, slices(8)["normal"]].float()
    torch.testing.assert_close(normal.norm(dim=1), torch.ones(40, 64, 96), atol=3e-3, rtol=0)
    ray_of_pixel = torch.from_numpy(rooms.rays(64, 96))
    along_the_ray = (normal.flatten(2) * ray_of_pixel).sum(1)
    assert along_the_ray.max() < 5e-3


def test_a_scene_is_the_same_whatever_is_rendered_beside_it() -> None:
    scenes, kinds = rooms.render(torch.tensor([9, 2, 40]), seed=1)
    (alone,), (kind,) = rooms.render(torch.tensor([2]), seed=1)
    assert torch.equal(scenes[1], alone)
    assert kinds[1] == kind


def test_a_scene_of_another_seed_is_another() -> None:
    (scene,), _ = rooms.render(torch.tensor([2]), seed=1)
    (other,), _ = rooms.render(torch.tensor([2]), seed=2)
    assert not torch.equal(scene, other)


def test_no_scenes_have_the_shape_of_scenes() -> None:
    scenes, kinds = rooms.render(torch.arange(0))
    assert scenes.shape == (0, 8, rooms.HEIGHT, rooms.WIDTH) == (0, 8, 64, 96)
    assert kinds.shape == (0,)


def test_this_version_looks_like_this() -> None:
    """Whoever changes what a scene looks like raises VERSION: stored results name it."""
    scenes, kinds = rooms.render(torch.arange(64))
    assert rooms.VERSION == 1
    assert kinds.bincount().tolist() == [22, 15, 27]
    means = [96.88, 93.88, 98.28, 1.23, 3.96, 0.02, -0.07, -0.55]
    assert scenes.float().mean((0, 2, 3)).tolist() == pytest.approx(means, abs=2e-2)


@pytest.fixture(scope="module")
def many() -> tuple[torch.Tensor, torch.Tensor]:
    """Scenes and their kinds."""
    return rooms.render(torch.arange(200))


BOXES_ALONE, SPHERES_ALONE = 0, 1  # kinds of rooms; the third has both
SPHERE, BOX = 3, 4  # classes of pixels


def test_every_class_of_pixels_occurs_where_its_kind_of_room_has_it(many) -> None:
    scenes, kinds = many
    label = scenes[:, 3].long()
    assert label.unique().tolist() == [0, 1, 2, 3, 4]
    assert not bool((label[kinds == BOXES_ALONE] == SPHERE).any())
    assert not bool((label[kinds == SPHERES_ALONE] == BOX).any())


def test_the_kind_of_a_room_says_what_is_in_it(many) -> None:
    _, kinds = many
    room = rooms.draw(0, np.arange(200))
    has_spheres = (room.spheres[:, :, 3] > 0).any(1)
    has_boxes = (room.boxes[:, :, 3] > 0).any(1)
    np.testing.assert_array_equal(has_spheres, kinds.numpy() != BOXES_ALONE)
    np.testing.assert_array_equal(has_boxes, kinds.numpy() != SPHERES_ALONE)


def test_depth_is_positive_and_colours_are_whole_levels(many) -> None:
    scenes, _ = many
    colours = scenes[:, :3].float()
    assert scenes[:, 4].min() > 0
    assert torch.equal(colours, colours.round())
    assert colours.min() >= 0
    assert colours.max() <= 255


def scene_bytes(part: SceneSet) -> set[bytes]:
    return {item.numpy().tobytes() for item in part.items}


@pytest.fixture(scope="module")
def splits() -> data.Splits:
    return data.load("rooms", n_train=30, n_test=20)


@pytest.fixture(scope="module")
def with_validation() -> data.Splits:
    return data.load("rooms_validation", n_train=30, n_test=20)


def test_splits_have_no_scene_in_common(splits, with_validation) -> None:
    parts = [splits.pretrain, splits.train, splits.test, with_validation.test]
    scenes = [scene_bytes(part) for part in parts]
    assert [len(each) for each in scenes] == [30, 30, 20, 20]
    for one, other in itertools.combinations(scenes, 2):
        assert one.isdisjoint(other)


def test_splits_are_told_apart_by_their_fingerprints(splits, with_validation) -> None:
    parts = [splits.pretrain, splits.train, splits.test, with_validation.test, splits.train.take(5)]
    assert len({part.fingerprint for part in parts}) == 5


def test_a_validation_set_comes_with_the_scenes_that_are_trained_on(splits, with_validation) -> None:
    assert torch.equal(splits.pretrain.items, with_validation.pretrain.items)
    assert splits.pretrain.fingerprint == with_validation.pretrain.fingerprint


def test_another_seed_has_other_scenes(splits) -> None:
    other = data.load("rooms", n_train=30, n_test=20, seed=1)
    assert other.pretrain.fingerprint != splits.pretrain.fingerprint
    assert scene_bytes(other.pretrain).isdisjoint(scene_bytes(splits.pretrain))
