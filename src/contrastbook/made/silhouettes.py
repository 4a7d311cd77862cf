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
_RADII = (0.11, 0.2)  # of the disc of equal area, relative to the side
_APART = 0.75  # centres are at least so many sums of two radii apart: silhouettes overlap, none is hidden
_VISIBLE = 12  # pixels of a silhouette that must be seen for it to be annotated
_INSET = 0.12  # how far inside the silhouette a corner is looked for, in its radii
_UNANNOTATED = 0.2  # chance that an image's objects of a class are known not to be all annotated

LVIS_CLASSES = tuple((kind, t) for t in ("plain", "stripes", "checks", "dots") for kind in shapes.CLASSES)
"""The 40 classes (silhouette, texture) of ``silhouettes_lvis``, from the most to the least frequent."""

# the six corners of ``ell``: a mirrored one has its two arms exchanged
_ELL_NAMES = ("corner", "inner_corner", "left_tip", "right_tip", "left_heel", "right_heel")
# in the units of shapes.silhouette's own frame before its scale, and the way to the silhouette's inside
_ELL_CORNERS = ((-1.0, 1.0), (-0.3, 0.3), (-1.0, -1.0), (1.0, 1.0), (-0.3, -1.0), (1.0, 0.3))
_ELL_INSIDE = ((1.0, -1.0), (-1.0, 1.0), (1.0, 1.0), (-1.0, -1.0), (-1.0, 1.0), (-1.0, 1.0))


class Scene(NamedTuple):
    """One picture and its truth."""

    pixels: Tensor  # uint8 [3, SIDE, SIDE]
    owner: Tensor  # int64 [SIDE, SIDE], which object owns a pixel, −1 for the ground
    kinds: tuple[str, ...]  # name of the silhouette of each object
    textures: tuple[str, ...]  # of each object
    corners: tuple[Tensor | None, ...]  # [6, 3] x, y and visibility (2 seen, 1 hidden, 0 outside) of each ``ell``
    places: tuple[tuple[float, float, float, float], ...]  # centroid, radius of the disc of equal area, turn in radians


def _uniform(low: float, high: float, rng: torch.Generator) -> float:
    return low + (high - low) * float(torch.rand((), generator=rng, dtype=torch.float64))


def _texture(kind: str, u: Tensor, v: Tensor) -> Tensor:
    """Brightness of an object in its own coordinates, 1 or 0.55."""
    bright = {
        "plain": u == u,
        "stripes": (u * 2).floor() % 2 == 0,
        "checks": ((u * 2).floor() + (v * 2).floor()) % 2 == 0,
        "dots": ((u * 2 - (u * 2).round()).square() + (v * 2 - (v * 2).round()).square()) > 0.09,
    }
    return torch.where(bright[kind], 1.0, 0.55).to(u.dtype)


def _draw_class(rng: torch.Generator, zipf: bool) -> tuple[str, str]:
    if not zipf:
        return shapes.CLASSES[int(torch.randint(len(shapes.CLASSES), (), generator=rng))], "plain"
    weights = 1 / torch.arange(1, len(LVIS_CLASSES) + 1, dtype=torch.float64)
    return LVIS_CLASSES[int(torch.multinomial(weights, 1, generator=rng))]


def _colour(hue: float, value: float) -> Tensor:
    return shapes.colour(torch.tensor([hue], dtype=torch.float64), value)[0]


def render(index: int, *, kinds: tuple[str, ...] | None = None, zipf: bool = False) -> Scene:
    """One picture of ``kinds`` from back to front, by default two to four at random; test pictures have an offset.

    ``zipf``: draw silhouette and texture together, the k-th most frequent of 40 pairs in proportion to 1/k.
    """
    rng = generator(0, "silhouettes", index)
    count = len(kinds) if kinds else int(torch.randint(2, 5, (), generator=rng))
    drawn = [_draw_class(rng, zipf) for _ in range(count)]
    names, textures = kinds or tuple(kind for kind, _ in drawn), tuple(texture for _, texture in drawn)
    placed: list[tuple[float, float, float]] = []
    for _ in range(count):
        for _ in range(200):
            radius = SIDE * _uniform(*_RADII, rng)
            spot = _uniform(0.9 * radius, SIDE - 0.9 * radius, rng), _uniform(0.9 * radius, SIDE - 0.9 * radius, rng)
            if all(math.dist(spot, other[:2]) >= _APART * (radius + other[2]) for other in placed):
                break
        placed.append((*spot, radius))

    axis = torch.arange(SIDE, dtype=torch.float64) + 0.5
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    hue, angle, period = _uniform(0, 1, rng), _uniform(0, math.pi, rng), _uniform(8, 24, rng)
    wave = ((math.cos(angle) * x + math.sin(angle) * y) / period * 2 * math.pi).sin()
    pixels = _colour(hue, 0.45) * (1 + 0.08 * wave)
    owner = torch.full((SIDE, SIDE), -1, dtype=torch.int64)
    places = []
    for k, (name, (cx, cy, radius)) in enumerate(zip(names, placed, strict=True)):
        turn = _uniform(0, 2 * math.pi, rng)
        places.append((cx, cy, radius, turn))
        cos, sin = math.cos(turn), math.sin(turn)
        u, v = (cos * (x - cx) + sin * (y - cy)) / radius, (cos * (y - cy) - sin * (x - cx)) / radius
        distance = shapes.silhouette(name, u, v) * radius
        tint = _colour((hue + _uniform(0.15, 0.85, rng)) % 1, 0.95)
        pixels = pixels + (0.5 - distance).clamp(0, 1) * (tint * _texture(textures[k], u, v) - pixels)
        owner[distance < 0] = k
    noise = torch.randn(3, SIDE, SIDE, generator=rng, dtype=torch.float64)
    corners = tuple(
        _corners(place, owner, k) if name == "ell" else None
        for k, (name, place) in enumerate(zip(names, places, strict=True))
    )
    return Scene(shapes.to_bytes(pixels + 0.015 * noise), owner, names, textures, corners, tuple(places))


def _corners(place: tuple[float, float, float, float], owner: Tensor, me: int) -> Tensor:
    """The corners ``[6, 3]`` of an ``ell``: x, y, and whether the pixel just inside is its own (2) or another's (1)."""
    cx, cy, radius, turn = place
    size, *middle = shapes.FRAMES["ell"]
    cos, sin = math.cos(turn), math.sin(turn)
    turned, centre, own, inwards = (
        torch.tensor(values, dtype=torch.float64)
        for values in ([[cos, sin], [-sin, cos]], [cx, cy], _ELL_CORNERS, _ELL_INSIDE)
    )
    own = (own - torch.tensor(middle, dtype=torch.float64)) * size * radius
    points, probes = (each @ turned + centre for each in (own, own + _INSET * radius * inwards))
    inside = ((points >= 0) & (points < SIDE)).all(1) & ((probes >= 0) & (probes < SIDE)).all(1)
    column, row = probes.floor().long().clamp(0, SIDE - 1).unbind(1)
    seen = torch.where(inside, torch.where(owner[row, column] == me, 2.0, 1.0), 0.0).double()
    return torch.cat([points, seen[:, None]], 1)


def _run_lengths(mask: Tensor) -> dict[str, Any]:
    """COCO's uncompressed run lengths of a boolean ``[H, W]``: column after column, beginning with what is outside."""
    flat = mask.T.reshape(-1).to(torch.int8)
    edges = torch.cat([torch.tensor([0]), flat.diff().nonzero().flatten() + 1, torch.tensor([len(flat)])])
    counts = edges.diff().tolist()
    return {"size": list(mask.shape), "counts": [0, *counts] if int(flat[0]) else counts}


@dataclass(frozen=True)
class SetSpec:
    """Which annotations the pictures get."""

    pictures: tuple[int, int] = (160, 60)  # of the training part and of the test part
    lvis: bool = False  # 40 classes in Zipf's frequencies, and LVIS's lists of what was looked for
    points: bool = False  # of ``ell`` alone, with its corners


SETS: Mapping[str, SetSpec] = {
    "silhouettes": SetSpec(),
    "silhouettes_keypoints": SetSpec(points=True),
    "silhouettes_lvis": SetSpec(lvis=True),
    "silhouettes_1200": SetSpec((1200, 200)),
}
"""Name to what is annotated."""


def make(spec: SetSpec) -> dict[str, tuple[list[Tensor], coco.Annotations]]:
    """Pictures and annotations of the parts ``train`` and ``test``; the annotations went through COCO's JSON."""
    textured = [f"{texture} {kind}" for kind, texture in LVIS_CLASSES]
    points = {"keypoints": list(_ELL_NAMES)} if spec.points else {}
    classes = textured if spec.lvis else ["ell"] if spec.points else shapes.CLASSES
    categories: list[dict[str, Any]] = [{"id": k, "name": name, **points} for k, name in enumerate(classes, 1)]
    parts = {}
    for part, count in zip(("train", "test"), spec.pictures, strict=True):
        drawn = [_picture(spec, part, image, categories) for image in range(count)]
        objects = [each for _, _, mine in drawn for each in mine]
        if spec.lvis and part == "train":
            categories = _frequencies(categories, objects)
        numbered = [{**each, "id": k} for k, each in enumerate(objects, 1)]
        raw = {"images": [about for _, about, _ in drawn], "annotations": numbered, "categories": categories}
        annotations = coco.parse(json.loads(json.dumps(raw)), f"silhouettes/{part}")
        parts[part] = [pixels for pixels, _, _ in drawn], annotations
    return parts


def _picture(
    spec: SetSpec, part: str, image: int, categories: list[dict[str, Any]]
) -> tuple[Tensor, dict[str, Any], list[dict[str, Any]]]:
    """A picture, what COCO's JSON says of it, and its objects."""
    number = {category["name"]: category["id"] for category in categories}
    rng, kinds = generator(0, f"annotations {part}", image), None
    if spec.points:  # every picture shows the annotated one, as pictures without people are not trained on
        others = torch.randint(len(shapes.CLASSES), (2,), generator=rng).tolist()
        mixed = (*(shapes.CLASSES[k] for k in others), "ell")
        kinds = tuple(mixed[k] for k in torch.randperm(3, generator=rng).tolist())
    scene = render(image + (0 if part == "train" else shapes.TEST_OFFSET), kinds=kinds, zipf=spec.lvis)
    about: dict[str, Any] = {"id": image + 1, "file_name": f"{image:06d}.png", "width": SIDE, "height": SIDE}
    objects = []
    for k, kind in enumerate(scene.kinds):
        name = f"{scene.textures[k]} {kind}" if spec.lvis else kind
        mask = scene.owner == k
        if name in number and int(mask.sum()) >= _VISIBLE:
            objects.append(_object(mask, number[name], image + 1, scene.corners[k] if spec.points else None))
    if spec.lvis:
        lists, objects = _federated(objects, len(categories), rng)
        about |= lists
    return scene.pixels, about, objects


def _object(mask: Tensor, category: int, image: int, corners: Tensor | None) -> dict[str, Any]:
    rows, columns = mask.any(1).nonzero().flatten(), mask.any(0).nonzero().flatten()
    left, top = int(columns[0]), int(rows[0])
    annotation = {
        "image_id": image, "category_id": category, "iscrowd": 0, "area": int(mask.sum()),
        "bbox": [left, top, int(columns[-1]) + 1 - left, int(rows[-1]) + 1 - top], "segmentation": _run_lengths(mask),
    }  # fmt: skip
    if corners is not None:
        seen = torch.where(corners[:, 2:] > 0, corners, 0.0)
        annotation["keypoints"] = [round(value, 3) for value in seen.flatten().tolist()]
    return annotation


def _federated(
    objects: list[dict[str, Any]], classes: int, rng: torch.Generator
) -> tuple[dict[str, list[int]], list[dict[str, Any]]]:
    """LVIS's lists: some absent classes were looked for; of some present ones, only the first object is annotated."""
    present = sorted({each["category_id"] for each in objects})
    absent = [k for k in range(1, classes + 1) if k not in present]
    looked = sorted(absent[k] for k in torch.randperm(len(absent), generator=rng)[:8].tolist())
    partly = [k for k in present if float(torch.rand((), generator=rng)) < _UNANNOTATED]
    kept: list[dict[str, Any]] = []
    for each in objects:
        if each["category_id"] not in partly or all(each["category_id"] != other["category_id"] for other in kept):
            kept.append(each)
    return {"neg_category_ids": looked, "not_exhaustive_category_ids": partly}, kept


def _frequencies(categories: list[dict[str, Any]], objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """LVIS's groups: rare is up to 10 pictures, common up to 100, frequent is more."""
    pictures = {c["id"]: len({o["image_id"] for o in objects if o["category_id"] == c["id"]}) for c in categories}
    group = {k: "r" if n <= 10 else "c" if n <= 100 else "f" for k, n in pictures.items()}
    return [{**c, "image_count": pictures[c["id"]], "frequency": group[c["id"]]} for c in categories]


def write(folder: Path, name: str = "silhouettes") -> Path:
    """Write one of :data:`SETS` as a user's own: folders ``train`` and ``test`` with pictures, a JSON file for each."""
    for part, (made, known) in make(SETS[name]).items():
        files.make_folder(folder / part)
        for pixels, image in zip(made, known.images.values(), strict=True):
            rows = np.ascontiguousarray(pixels.permute(1, 2, 0).numpy())
            Image.fromarray(rows).save(folder / part / image["file_name"])
        files.write_whole(folder / f"{part}.json", json.dumps(known.plain()) + "\n")
    return folder


@lru_cache(maxsize=4)
def _splits(name: str) -> Splits:
    train, test = (
        AnnotatedImages(f"{name}/{part}", annotations, None, tuple(pictures))
        for part, (pictures, annotations) in make(SETS[name]).items()
    )
    return Splits.of(name, train, test, "generated silhouettes, painted one over the other")


def load(request: Request) -> Splits:
    """The splits of one of :data:`SETS`."""
    return _splits(request.name)
