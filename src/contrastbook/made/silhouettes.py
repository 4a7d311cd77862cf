"""Generated pictures with two to four silhouettes of ``shapes``, and everything that is true of them.

The silhouettes are painted one over the other. A map of which silhouette owns a pixel gives exact visible masks, boxes
as their extents, and whether a named corner is seen. Each picture is a function of seed, part and number alone. What is
known of them is written as COCO's JSON and read back by the one reader of :mod:`contrastlab.data.coco`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from contrastbook.made import shapes
from contrastlab import files
from contrastlab.data import Request, coco
from contrastlab.data.annotated import AnnotatedImages, AnnotatedSplits
from contrastlab.errors import reject
from contrastlab.seeds import generator

SIDE = 96
"""Height and width of a picture in pixels, unless said otherwise."""

_RADII = (0.11, 0.2)  # of the disc of equal area, relative to the side
_APART = 0.75  # centres are at least so many sums of two radii apart: silhouettes overlap, none is hidden
_VISIBLE = 12  # pixels of a silhouette that must be seen for it to be annotated
_INSET = 0.12  # how far inside the silhouette a corner is looked for, in its radii
_TEXTURES = ("plain", "stripes", "checks", "dots")
_UNANNOTATED = 0.2  # chance that an image's objects of a class are known not to be all annotated

ELL = coco.KeypointKind(
    ("corner", "inner_corner", "left_tip", "right_tip", "left_heel", "right_heel"),
    ((2, 3), (4, 5)),
    (0.05,) * 6,
)
"""The six corners of ``ell``: a mirrored one has its two arms exchanged."""

# In the units of shapes.silhouette's own frame before its scale: corner, inner corner, tips, heels of the two arms.
_ELL_CORNERS = ((-1.0, 1.0), (-0.3, 0.3), (-1.0, -1.0), (1.0, 1.0), (-0.3, -1.0), (1.0, 0.3))


@dataclass(frozen=True)
class Scene:
    """One picture and its truth.

    Attributes:
        pixels: uint8 ``[3, side, side]``.
        owner: int64 ``[side, side]``, which object owns a pixel, −1 for the ground.
        kinds: name of the silhouette of each object.
        textures: of each object.
        corners: ``[6, 3]`` x, y and visibility (2 seen, 1 hidden, 0 outside) of each ``ell``, else ``None``.
        places: x and y of each centroid, radius of the disc of equal area, and turn in radians.
    """

    pixels: Tensor
    owner: Tensor
    kinds: tuple[str, ...]
    textures: tuple[str, ...]
    corners: tuple[Tensor | None, ...]
    places: tuple[tuple[float, float, float, float], ...]


def _uniform(low: float, high: float, rng: torch.Generator) -> float:
    return low + (high - low) * float(torch.rand((), generator=rng, dtype=torch.float64))


def _texture(kind: str, u: Tensor, v: Tensor) -> Tensor:
    """Brightness of an object in its own coordinates, 1 or 0.55."""
    bright = torch.ones_like(u, dtype=torch.bool)
    if kind == "stripes":
        bright = (u * 2).floor() % 2 == 0
    elif kind == "checks":
        bright = ((u * 2).floor() + (v * 2).floor()) % 2 == 0
    elif kind == "dots":
        bright = ((u * 2 - (u * 2).round()).square() + (v * 2 - (v * 2).round()).square()) > 0.09
    return torch.where(bright, 1.0, 0.55).to(u.dtype)


def render(
    index: int, seed: int = 0, *, side: int = SIDE, kinds: tuple[str, ...] | None = None, zipf: bool = False
) -> Scene:
    """One picture.

    Args:
        index: of the picture; test pictures are counted from :data:`contrastbook.made.shapes.TEST_OFFSET`.
        seed: another seed is another data set.
        side: height and width in pixels.
        kinds: silhouettes of the objects from back to front; by default two to four at random.
        zipf: draw silhouette and texture together, the k-th most frequent of 40 pairs in proportion to 1/k.
    """
    if side < 32:
        raise reject("side", side, "at least 32 pixels")
    rng = generator(seed, "silhouettes", index)
    count = len(kinds) if kinds else int(torch.randint(2, 5, (), generator=rng))
    drawn = [_draw_class(rng, zipf) for _ in range(count)]
    names = kinds or tuple(kind for kind, _ in drawn)
    axis = torch.arange(side, dtype=torch.float64) + 0.5
    y, x = axis[:, None].expand(side, side), axis[None, :].expand(side, side)
    placed: list[tuple[float, float, float]] = []
    for _ in range(count):
        for _ in range(200):
            radius = side * _uniform(*_RADII, rng)
            spot = _uniform(0.9 * radius, side - 0.9 * radius, rng), _uniform(0.9 * radius, side - 0.9 * radius, rng)
            if all(math.dist(spot, other[:2]) >= _APART * (radius + other[2]) for other in placed):
                break
        placed.append((*spot, radius))

    hue = _uniform(0, 1, rng)
    ground = shapes._colour(torch.tensor([hue], dtype=torch.float64), 0.45)[0]
    angle, period = _uniform(0, math.pi, rng), _uniform(8, 24, rng)
    wave = ((math.cos(angle) * x + math.sin(angle) * y) / period * 2 * math.pi).sin()
    pixels = ground * (1 + 0.08 * wave)
    owner = torch.full((side, side), -1, dtype=torch.int64)
    corners: list[Tensor | None] = []
    probes: list[Tensor] = []
    places = []
    for k, (name, (cx, cy, radius)) in enumerate(zip(names, placed, strict=True)):
        turn = _uniform(0, 2 * math.pi, rng)
        places.append((cx, cy, radius, turn))
        cos, sin = math.cos(turn), math.sin(turn)
        u, v = (cos * (x - cx) + sin * (y - cy)) / radius, (cos * (y - cy) - sin * (x - cx)) / radius
        distance = shapes.silhouette(name, u, v) * radius
        tint = shapes._colour(torch.tensor([(hue + _uniform(0.15, 0.85, rng)) % 1], dtype=torch.float64), 0.95)[0]
        alpha = (0.5 - distance).clamp(0, 1)
        pixels = pixels + alpha * (tint * _texture(drawn[k][1], u, v) - pixels)
        owner[distance < 0] = k
        if name == "ell":
            frame = shapes._FRAMES["ell"]
            own = torch.tensor(_ELL_CORNERS, dtype=torch.float64) - torch.tensor(frame[1:], dtype=torch.float64)
            own = own * frame[0] * radius
            turned = torch.tensor([[cos, sin], [-sin, cos]], dtype=torch.float64)
            centre = torch.tensor([cx, cy], dtype=torch.float64)
            corners.append(own @ turned + centre)
            probes.append(_inset(own, radius) @ turned + centre)
        else:
            corners.append(None)
            probes.append(torch.empty(0))
    noise = torch.randn(3, side, side, generator=rng, dtype=torch.float64)
    image = ((pixels + 0.015 * noise).clamp(0, 1) * 255).round().to(torch.uint8)
    seen = tuple(
        None if points is None else torch.cat([points, _visibility(owner, points, probes[k], k)[:, None]], 1)
        for k, points in enumerate(corners)
    )
    return Scene(image, owner, tuple(names), tuple(texture for _, texture in drawn), seen, tuple(places))


def _inset(corners: Tensor, radius: float) -> Tensor:
    """Points a little inside the ``ell``, one for each of its corners, in its own frame."""
    across = torch.tensor([[1, -1], [-1, 1], [1, 1], [-1, -1], [-1, 1], [-1, 1]], dtype=torch.float64)
    return corners + _INSET * radius * across


def _visibility(owner: Tensor, points: Tensor, probes: Tensor, me: int) -> Tensor:
    """2 where the pixel just inside a corner is the object's, 1 where another covers it, 0 outside the picture."""
    side = len(owner)
    inside = ((points >= 0) & (points < side)).all(1) & ((probes >= 0) & (probes < side)).all(1)
    column, row = probes.floor().long().clamp(0, side - 1).unbind(1)
    return torch.where(inside, torch.where(owner[row, column] == me, 2.0, 1.0), 0.0).double()


def _draw_class(rng: torch.Generator, zipf: bool) -> tuple[str, str]:
    if not zipf:
        return shapes.CLASSES[int(torch.randint(len(shapes.CLASSES), (), generator=rng))], "plain"
    weights = 1 / torch.arange(1, len(LVIS_CLASSES) + 1, dtype=torch.float64)
    return LVIS_CLASSES[int(torch.multinomial(weights, 1, generator=rng))]


LVIS_CLASSES = tuple((kind, texture) for texture in _TEXTURES for kind in shapes.CLASSES)
"""The 40 classes of the LVIS twin, from the most to the least frequent."""


def run_lengths(mask: Tensor) -> dict[str, Any]:
    """COCO's uncompressed run lengths of a boolean ``[H, W]``: column after column, beginning with what is outside."""
    flat = mask.T.reshape(-1).to(torch.int8)
    edges = torch.cat([torch.tensor([0]), flat.diff().nonzero().flatten() + 1, torch.tensor([len(flat)])])
    counts = edges.diff().tolist()
    return {"size": list(mask.shape), "counts": [0, *counts] if int(flat[0]) else counts}


@dataclass(frozen=True)
class Twin:
    """Which annotations the pictures get.

    Args:
        pictures: of the training part and of the test part.
        rule: ``coco``, or ``lvis`` with 40 classes in Zipf's frequencies and lists of what was looked for.
        only: names of silhouettes that are annotated; ``None`` is all.
        points: annotate the corners of ``ell``.
    """

    pictures: tuple[int, int] = (160, 60)
    rule: coco.Rule = "coco"
    only: tuple[str, ...] | None = None
    points: bool = False


TWINS: Mapping[str, Twin] = MappingProxyType(
    {
        "silhouettes": Twin(),
        "silhouettes_keypoints": Twin(only=("ell",), points=True),
        "silhouettes_lvis": Twin(rule="lvis"),
        "silhouettes_1200": Twin((1200, 200)),
    }
)
"""Name to what is annotated."""


def make(twin: Twin, *, seed: int = 0, side: int = SIDE) -> dict[str, tuple[list[Tensor], coco.Annotations]]:
    """Pictures and annotations of the parts ``train`` and ``test``; the annotations went through COCO's JSON."""
    lvis = twin.rule == "lvis"
    classes = [f"{texture} {kind}" for kind, texture in LVIS_CLASSES] if lvis else list(twin.only or shapes.CLASSES)
    points = {"keypoints": list(ELL.names)} if twin.points else {}
    categories: list[dict[str, Any]] = [{"id": k, "name": name, **points} for k, name in enumerate(classes, 1)]
    parts = {}
    for part, count in zip(("train", "test"), twin.pictures, strict=True):
        pictures, images, objects = _part(twin, part, count, categories, seed, side)
        if lvis and part == "train":
            categories = _frequencies(categories, objects)
        raw = {
            "images": images, "annotations": [{**each, "id": k} for k, each in enumerate(objects, 1)],
            "categories": categories,
        }  # fmt: skip
        text = json.loads(json.dumps(raw))
        kind = ELL if twin.points else None
        parts[part] = pictures, coco.parse(text, f"silhouettes/{part}", keypoints=kind, rule=twin.rule)
    return parts


def _part(
    twin: Twin, part: str, count: int, categories: list[dict[str, Any]], seed: int, side: int
) -> tuple[list[Tensor], list[dict[str, Any]], list[dict[str, Any]]]:
    start, lvis = 0 if part == "train" else shapes.TEST_OFFSET, twin.rule == "lvis"
    number = {category["name"]: category["id"] for category in categories}
    pictures, images, objects = [], [], []
    for image in range(count):
        rng = generator(seed, f"annotations {part}", image)
        kinds = None
        if twin.points:  # every picture shows the annotated one, as pictures without people are not trained on
            others = torch.randint(len(shapes.CLASSES), (2,), generator=rng).tolist()
            mixed = (*(shapes.CLASSES[k] for k in others), "ell")
            kinds = tuple(mixed[k] for k in torch.randperm(3, generator=rng).tolist())
        scene = render(start + image, seed, side=side, kinds=kinds, zipf=lvis)
        pictures.append(scene.pixels)
        about: dict[str, Any] = {"id": image + 1, "file_name": f"{image:06d}.png", "width": side, "height": side}
        mine = []
        for k, kind in enumerate(scene.kinds):
            name = f"{scene.textures[k]} {kind}" if lvis else kind
            mask = scene.owner == k
            if name in number and int(mask.sum()) >= _VISIBLE:
                mine.append(_object(mask, number[name], image + 1, scene.corners[k] if twin.points else None))
        if lvis:
            about, mine = _federated(about, mine, len(categories), rng)
        images.append(about)
        objects += mine
    return pictures, images, objects


def _object(mask: Tensor, category: int, image: int, corners: Tensor | None) -> dict[str, Any]:
    rows, columns = mask.any(1).nonzero().flatten(), mask.any(0).nonzero().flatten()
    left, top = int(columns[0]), int(rows[0])
    found = {
        "image_id": image, "category_id": category, "iscrowd": 0, "area": int(mask.sum()),
        "bbox": [left, top, int(columns[-1]) + 1 - left, int(rows[-1]) + 1 - top], "segmentation": run_lengths(mask),
    }  # fmt: skip
    if corners is not None:
        seen = torch.where(corners[:, 2:] > 0, corners, 0.0)
        found |= {"keypoints": [round(value, 3) for value in seen.flatten().tolist()]}
    return found


def _federated(
    about: dict[str, Any], objects: list[dict[str, Any]], classes: int, rng: torch.Generator
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """LVIS's lists: some absent classes were looked for; of some present ones, not all objects are annotated."""
    present = sorted({each["category_id"] for each in objects})
    absent = [k for k in range(1, classes + 1) if k not in present]
    looked = sorted(absent[k] for k in torch.randperm(len(absent), generator=rng)[:8].tolist())
    partly = [k for k in present if float(torch.rand((), generator=rng)) < _UNANNOTATED]
    kept = []
    for each in objects:
        mates = [other for other in objects if other["category_id"] == each["category_id"]]
        if each["category_id"] not in partly or each is mates[0]:
            kept.append(each)
    return {**about, "neg_category_ids": looked, "not_exhaustive_category_ids": partly}, kept


def _frequencies(categories: list[dict[str, Any]], objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """LVIS's groups: rare is up to 10 pictures, common up to 100, frequent is more."""
    pictures = {c["id"]: len({o["image_id"] for o in objects if o["category_id"] == c["id"]}) for c in categories}
    group = {k: "r" if n <= 10 else "c" if n <= 100 else "f" for k, n in pictures.items()}
    return [{**c, "image_count": pictures[c["id"]], "frequency": group[c["id"]]} for c in categories]


def write(folder: Path, name: str = "silhouettes", *, pictures: tuple[int, int] | None = None, seed: int = 0) -> Path:
    """Write a set as a user's own would lie there: ``train/`` and ``test/`` with pictures, and a JSON file for each.

    Args:
        folder: to write into.
        name: a key of :data:`TWINS`.
        pictures: of the two parts; by default the set's own.
        seed: another seed is another data set.
    """
    twin = TWINS[name] if pictures is None else replace(TWINS[name], pictures=pictures)
    for part, (made, known) in make(twin, seed=seed).items():
        files.make_folder(folder / part)
        for pixels, image in zip(made, known.images.values(), strict=True):
            rows = np.ascontiguousarray(pixels.permute(1, 2, 0).numpy())
            Image.fromarray(rows).save(folder / part / image["file_name"])
        coco.write(known, folder / f"{part}.json")
    return folder


@lru_cache(maxsize=4)
def _splits(name: str) -> AnnotatedSplits:
    train, test = (
        AnnotatedImages(f"{name}/{part}", annotations, None, tuple(pictures))
        for part, (pictures, annotations) in make(TWINS[name]).items()
    )
    return AnnotatedSplits(name, train, test, "generated silhouettes, painted one over the other")


def load(request: Request) -> AnnotatedSplits:
    """The splits of one of :data:`TWINS`."""
    return _splits(request.name).limited(request.n_train, request.n_test, request.seed)
