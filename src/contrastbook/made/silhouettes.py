"""Generated pictures with two to four silhouettes of ``shapes``, and everything that is true of them.

They are painted one over the other; which one owns a pixel gives exact masks, boxes and whether a corner is seen. Each
picture is a function of its part and number alone. What is known goes through the reader of COCO's JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from contrastbook.made import shapes
from contrastlab.data import Request, Splits
from contrastlab.domains.detection import coco
from contrastlab.domains.detection.data import AnnotatedImages
from contrastlab.support import files
from contrastlab.support.seeds import generator

SIDE = 96  # height and width of a picture in pixels
_RADII = (0.11, 0.2)  # least and largest radius of the disc of equal area, relative to the side
_APART = 0.75  # least distance of two centres, in sums of their radii: silhouettes may overlap, none is hidden
_TRIES = 200  # places that are drawn until one is far enough from the others; the last one is taken as it is
_VISIBLE = 12  # pixels of a silhouette that must be seen for it to be annotated
_INSET = 0.12  # how far inside the silhouette a corner is looked for, in its radii
_LOOKED_FOR = 8  # absent classes of an image that are known to be absent
_UNANNOTATED = 0.2  # chance that an image's objects of a class are known not to be all annotated

_TEXTURES = ("plain", "stripes", "checks", "dots")
LVIS_CLASSES = tuple((kind, texture) for texture in _TEXTURES for kind in shapes.CLASSES)
"""The 40 classes (silhouette, texture) of ``silhouettes_lvis``, from the most to the least frequent."""

# the six corners of ``ell``: a mirrored one has its two arms exchanged
_ELL_NAMES = ("corner", "inner_corner", "left_tip", "right_tip", "left_heel", "right_heel")
# in the units of shapes.silhouette's own frame before its scale, and the way to the silhouette's inside
_ELL_CORNERS = ((-1.0, 1.0), (-0.3, 0.3), (-1.0, -1.0), (1.0, 1.0), (-0.3, -1.0), (1.0, 0.3))
_ELL_INSIDE = ((1.0, -1.0), (-1.0, 1.0), (1.0, 1.0), (-1.0, -1.0), (-1.0, 1.0), (-1.0, 1.0))

Entry = dict[str, Any]
"""An image, an object or a category as COCO's JSON has it."""


class Place(NamedTuple):
    """Where a silhouette lies, in pixels from the upper left corner."""

    x: float  # of the centroid
    y: float
    radius: float  # of the disc of equal area
    turn: float  # radians


class Scene(NamedTuple):
    """One picture and its truth."""

    pixels: Tensor  # uint8 [3, SIDE, SIDE]
    owner: Tensor  # int64 [SIDE, SIDE], which object owns a pixel, −1 for the ground
    kinds: tuple[str, ...]  # name of the silhouette of each object
    textures: tuple[str, ...]  # of each object
    corners: tuple[Tensor | None, ...]  # [6, 3] x, y and visibility (2 seen, 1 hidden, 0 outside) of each ``ell``
    places: tuple[Place, ...]  # of each object


def _uniform(low: float, high: float, rng: torch.Generator) -> float:
    """A random number between two ends, all equally likely."""
    fraction = torch.rand((), generator=rng, dtype=torch.float64)
    return low + (high - low) * float(fraction)


def _is_bright(texture: str, u: Tensor, v: Tensor) -> Tensor:
    """Where an object is bright, in its own coordinates, whose unit is its radius."""
    column = (u * 2).floor()
    row = (v * 2).floor()
    if texture == "stripes":
        return column % 2 == 0
    if texture == "checks":
        return (column + row) % 2 == 0
    if texture == "dots":
        from_column = u * 2 - (u * 2).round()
        from_row = v * 2 - (v * 2).round()
        return from_column.square() + from_row.square() > 0.09
    return torch.ones_like(u, dtype=torch.bool)


def _draw_class(rng: torch.Generator, zipf: bool) -> tuple[str, str]:
    """A silhouette and its texture: a plain one, all equally likely, or one of :data:`LVIS_CLASSES`."""
    if not zipf:
        number = int(torch.randint(len(shapes.CLASSES), (), generator=rng))
        return shapes.CLASSES[number], "plain"
    ranks = torch.arange(1, len(LVIS_CLASSES) + 1, dtype=torch.float64)
    number = int(torch.multinomial(1 / ranks, 1, generator=rng))
    return LVIS_CLASSES[number]


def _draw_classes(
    kinds: tuple[str, ...] | None,
    zipf: bool,
    rng: torch.Generator,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Silhouettes and textures of ``kinds``, by default of two to four objects at random."""
    count = len(kinds) if kinds else int(torch.randint(2, 5, (), generator=rng))
    classes = [_draw_class(rng, zipf) for _ in range(count)]
    drawn_kinds = tuple(kind for kind, _ in classes)
    textures = tuple(texture for _, texture in classes)
    return kinds or drawn_kinds, textures


def _colour(hue: float, value: float) -> Tensor:
    """Red, green and blue, ``[3, 1, 1]``."""
    hues = torch.tensor([hue], dtype=torch.float64)
    return shapes.colour(hues, value)[0]


def _draw_discs(count: int, rng: torch.Generator) -> list[tuple[float, float, float]]:
    """Centre and radius of discs that overlap little; the silhouettes have their areas."""
    discs: list[tuple[float, float, float]] = []
    least, largest = _RADII
    for _ in range(count):
        for _ in range(_TRIES):
            radius = SIDE * _uniform(least, largest, rng)
            margin = 0.9 * radius  # so that a tenth may lie outside of the picture
            x = _uniform(margin, SIDE - margin, rng)
            y = _uniform(margin, SIDE - margin, rng)
            if _is_apart((x, y, radius), discs):
                break
        discs.append((x, y, radius))
    return discs


def _is_apart(disc: tuple[float, float, float], others: list[tuple[float, float, float]]) -> bool:
    """Whether a disc overlaps all others by little; a disc is x, y and radius."""
    x, y, radius = disc
    for other_x, other_y, other_radius in others:
        distance = math.dist((x, y), (other_x, other_y))
        if distance < _APART * (radius + other_radius):
            return False
    return True


def _pixel_centres() -> tuple[Tensor, Tensor]:
    """Coordinates x and y of every pixel, ``[SIDE, SIDE]`` each."""
    axis = torch.arange(SIDE, dtype=torch.float64) + 0.5
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    return x, y


def _draw_ground(hue: float, rng: torch.Generator) -> Tensor:
    """Pixels ``[3, SIDE, SIDE]`` of a dark colour with a faint wave."""
    angle = _uniform(0, math.pi, rng)
    period = _uniform(8, 24, rng)
    x, y = _pixel_centres()
    along = math.cos(angle) * x + math.sin(angle) * y
    wave = (along / period * 2 * math.pi).sin()
    return _colour(hue, 0.45) * (1 + 0.08 * wave)


def _own_frame(place: Place) -> tuple[Tensor, Tensor]:
    """Coordinates of every pixel from a silhouette's centroid, turned with it, in its radii."""
    x, y = _pixel_centres()
    right = x - place.x
    down = y - place.y
    cos = math.cos(place.turn)
    sin = math.sin(place.turn)
    u = (cos * right + sin * down) / place.radius
    v = (cos * down - sin * right) / place.radius
    return u, v


def render(index: int, *, kinds: tuple[str, ...] | None = None, zipf: bool = False) -> Scene:
    """One picture of ``kinds`` from back to front, by default two to four at random; test pictures have an offset.

    ``zipf``: draw silhouette and texture together, the k-th most frequent of 40 pairs in proportion to 1/k.
    """
    rng = generator(0, "silhouettes", index)
    names, textures = _draw_classes(kinds, zipf, rng)
    discs = _draw_discs(len(names), rng)
    ground_hue = _uniform(0, 1, rng)
    pixels = _draw_ground(ground_hue, rng)
    owner = torch.full((SIDE, SIDE), -1, dtype=torch.int64)
    places: list[Place] = []
    for number, disc in enumerate(discs):
        place = Place(*disc, turn=_uniform(0, 2 * math.pi, rng))
        hue = (ground_hue + _uniform(0.15, 0.85, rng)) % 1
        colour, distance = _silhouette(names[number], textures[number], place, hue)
        cover = (0.5 - distance).clamp(0, 1)
        pixels = pixels + cover * (colour - pixels)
        owner[distance < 0] = number
        places.append(place)
    noise = torch.randn(3, SIDE, SIDE, generator=rng, dtype=torch.float64)
    corners = [_corners(number, names, places, owner) for number in range(len(names))]
    image = shapes.to_bytes(pixels + 0.015 * noise)
    return Scene(image, owner, names, textures, tuple(corners), tuple(places))


def _silhouette(kind: str, texture: str, place: Place, hue: float) -> tuple[Tensor, Tensor]:
    """Colours ``[3, SIDE, SIDE]``, and each pixel's signed distance to the edge, negative inside."""
    u, v = _own_frame(place)
    distance = shapes.silhouette(kind, u, v) * place.radius
    brightness = torch.where(_is_bright(texture, u, v), 1.0, 0.55).to(u.dtype)
    return _colour(hue, 0.95) * brightness, distance


def _corners(number: int, names: tuple[str, ...], places: list[Place], owner: Tensor) -> Tensor | None:
    """The corners ``[6, 3]`` of an object that is an ``ell``, else none.

    x, y, and whether the pixel just inside of the corner is the object's own (2), another's (1) or outside (0).
    """
    if names[number] != "ell":
        return None
    place = places[number]
    size, *centroid_of_frame = shapes.FRAMES["ell"]
    cos = math.cos(place.turn)
    sin = math.sin(place.turn)
    turn = torch.tensor([[cos, sin], [-sin, cos]], dtype=torch.float64)
    centre = torch.tensor([place.x, place.y], dtype=torch.float64)
    corners = torch.tensor(_ELL_CORNERS, dtype=torch.float64)
    inwards = torch.tensor(_ELL_INSIDE, dtype=torch.float64)
    centroid = torch.tensor(centroid_of_frame, dtype=torch.float64)
    from_centroid = (corners - centroid) * size * place.radius  # pixels, before the turn
    inset = from_centroid + _INSET * place.radius * inwards
    points = from_centroid @ turn + centre
    probes = inset @ turn + centre
    inside = _in_picture(points) & _in_picture(probes)
    column, row = probes.floor().long().clamp(0, SIDE - 1).unbind(1)
    shown = torch.where(owner[row, column] == number, 2.0, 1.0)
    visibility = torch.where(inside, shown, 0.0).double()
    return torch.cat([points, visibility[:, None]], 1)


def _in_picture(points: Tensor) -> Tensor:
    """Whether points ``[n, 2]`` lie in the picture, ``[n]``."""
    return ((points >= 0) & (points < SIDE)).all(1)


def _run_lengths(mask: Tensor) -> Entry:
    """COCO's uncompressed run lengths of a boolean ``[H, W]``: column after column, beginning with what is outside."""
    flat = mask.T.reshape(-1).to(torch.int8)
    changes = flat.diff().nonzero().flatten() + 1
    edges = torch.cat([torch.tensor([0]), changes, torch.tensor([len(flat)])])
    counts = edges.diff().tolist()
    if int(flat[0]):
        counts = [0, *counts]
    return {"size": list(mask.shape), "counts": counts}


@dataclass(frozen=True)
class SetSpec:
    """Which annotations the pictures get."""

    pictures: tuple[int, int] = (160, 60)  # of the training part and of the test part
    lvis: bool = False  # 40 classes in Zipf's frequencies, and LVIS's lists of what was looked for
    points: bool = False  # of ``ell`` alone, with its corners

    @property
    def classes(self) -> list[str]:
        """Names of the annotated classes, in the order of their numbers."""
        if self.lvis:
            return [f"{texture} {kind}" for kind, texture in LVIS_CLASSES]
        if self.points:
            return ["ell"]
        return list(shapes.CLASSES)

    @property
    def categories(self) -> list[Entry]:
        """The classes as COCO's JSON has them."""
        categories: list[Entry] = []
        for number, name in enumerate(self.classes, 1):
            category: Entry = {"id": number, "name": name}
            if self.points:
                category["keypoints"] = list(_ELL_NAMES)
            categories.append(category)
        return categories


SETS: Mapping[str, SetSpec] = {
    "silhouettes": SetSpec(),
    "silhouettes_keypoints": SetSpec(points=True),
    "silhouettes_lvis": SetSpec(lvis=True),
    "silhouettes_1200": SetSpec((1200, 200)),
}
"""Name to what is annotated."""


class _Picture(NamedTuple):
    """A picture, what COCO's JSON says of it, and its objects."""

    pixels: Tensor
    about: Entry
    objects: list[Entry]


def make(spec: SetSpec) -> dict[str, tuple[list[Tensor], coco.Annotations]]:
    """Pictures and annotations of the parts ``train`` and ``test``; the annotations went through COCO's JSON."""
    categories = spec.categories
    parts: dict[str, tuple[list[Tensor], coco.Annotations]] = {}
    for part, count in zip(("train", "test"), spec.pictures, strict=True):
        pictures = [_picture(spec, part, number) for number in range(count)]
        objects: list[Entry] = []
        for picture in pictures:
            for each in picture.objects:
                objects.append({**each, "id": len(objects) + 1})
        if spec.lvis and part == "train":
            categories = _with_frequencies(categories, objects)
        raw = {
            "images": [picture.about for picture in pictures],
            "annotations": objects,
            "categories": categories,
        }
        annotations = coco.parse(json.loads(json.dumps(raw)), f"silhouettes/{part}")
        parts[part] = [picture.pixels for picture in pictures], annotations
    return parts


def _picture(spec: SetSpec, part: str, number: int) -> _Picture:
    """The picture of a part with this number, from 0."""
    rng = generator(0, f"annotations {part}", number)
    kinds = _kinds_with_ell(rng) if spec.points else None
    index = number if part == "train" else number + shapes.TEST_OFFSET
    scene = render(index, kinds=kinds, zipf=spec.lvis)
    objects: list[Entry] = []
    for order, kind in enumerate(scene.kinds):
        name = f"{scene.textures[order]} {kind}" if spec.lvis else kind
        mask = scene.owner == order
        visible = int(mask.sum())
        if name in spec.classes and visible >= _VISIBLE:
            category = spec.classes.index(name) + 1
            corners = scene.corners[order] if spec.points else None
            objects.append(_object(mask, category, number + 1, corners))
    about: Entry = {
        "id": number + 1,
        "file_name": f"{number:06d}.png",
        "width": SIDE,
        "height": SIDE,
    }
    if spec.lvis:
        lists, objects = _federated(objects, len(spec.classes), rng)
        about |= lists
    return _Picture(scene.pixels, about, objects)


def _kinds_with_ell(rng: torch.Generator) -> tuple[str, ...]:
    """An ``ell`` and two other silhouettes in random order: pictures without a person are not trained on."""
    others = torch.randint(len(shapes.CLASSES), (2,), generator=rng).tolist()
    kinds = [shapes.CLASSES[number] for number in others]
    kinds.append("ell")
    order = torch.randperm(3, generator=rng).tolist()
    return tuple(kinds[number] for number in order)


def _object(mask: Tensor, category: int, image: int, corners: Tensor | None) -> Entry:
    """An annotation, but for its number; ``mask`` is boolean ``[H, W]`` and not empty."""
    rows = mask.any(1).nonzero().flatten()
    columns = mask.any(0).nonzero().flatten()
    left = int(columns[0])
    top = int(rows[0])
    width = int(columns[-1]) + 1 - left
    height = int(rows[-1]) + 1 - top
    annotation: Entry = {
        "image_id": image,
        "category_id": category,
        "iscrowd": 0,
        "area": int(mask.sum()),
        "bbox": [left, top, width, height],
        "segmentation": _run_lengths(mask),
    }
    if corners is not None:
        in_picture = corners[:, 2:] > 0
        keypoints = torch.where(in_picture, corners, 0.0).flatten().tolist()
        annotation["keypoints"] = [round(value, 3) for value in keypoints]
    return annotation


def _federated(objects: list[Entry], classes: int, rng: torch.Generator) -> tuple[dict[str, list[int]], list[Entry]]:
    """LVIS's lists, and the objects that stay annotated.

    Some absent classes were looked for. Of some present ones only the first object is annotated.
    """
    present = sorted({each["category_id"] for each in objects})
    absent = [category for category in range(1, classes + 1) if category not in present]
    order = torch.randperm(len(absent), generator=rng)
    looked_for = sorted(absent[place] for place in order[:_LOOKED_FOR].tolist())
    partly: list[int] = []
    for category in present:
        if float(torch.rand((), generator=rng)) < _UNANNOTATED:
            partly.append(category)
    kept: list[Entry] = []
    for each in objects:
        is_first = all(each["category_id"] != other["category_id"] for other in kept)
        if each["category_id"] not in partly or is_first:
            kept.append(each)
    lists = {"neg_category_ids": looked_for, "not_exhaustive_category_ids": partly}
    return lists, kept


def _with_frequencies(categories: list[Entry], objects: list[Entry]) -> list[Entry]:
    """Categories with LVIS's groups: rare is up to 10 pictures, common up to 100, frequent is more."""
    counted: list[Entry] = []
    for category in categories:
        images = {each["image_id"] for each in objects if each["category_id"] == category["id"]}
        if len(images) <= 10:
            frequency = "r"
        elif len(images) <= 100:
            frequency = "c"
        else:
            frequency = "f"
        counted.append({**category, "image_count": len(images), "frequency": frequency})
    return counted


def write(folder: Path, name: str = "silhouettes") -> Path:
    """Write one of :data:`SETS` as a user's own: folders ``train`` and ``test`` with pictures, a JSON file for each."""
    for part, (pictures, truth) in make(SETS[name]).items():
        files.make_folder(folder / part)
        for pixels, image in zip(pictures, truth.images.values(), strict=True):
            rows = np.ascontiguousarray(pixels.permute(1, 2, 0).numpy())
            Image.fromarray(rows).save(folder / part / image["file_name"])
        files.write_whole(folder / f"{part}.json", json.dumps(truth.plain()) + "\n")
    return folder


@lru_cache(maxsize=4)
def _splits(name: str) -> Splits:
    """Both parts of one of :data:`SETS`."""
    sets: list[AnnotatedImages] = []
    for part, (pictures, truth) in make(SETS[name]).items():
        sets.append(AnnotatedImages(f"{name}/{part}", truth, None, tuple(pictures)))
    train, test = sets
    return Splits.of(name, train, test, "generated silhouettes, painted one over the other")


def load(request: Request) -> Splits:
    """The splits of one of :data:`SETS`."""
    return _splits(request.name)
