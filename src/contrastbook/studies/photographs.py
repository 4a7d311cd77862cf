"""What real photographs have in common: crops of different ones that look alike, and neighbours of an encoder.

The tiles are squares of seven free photographs, with the embeddings of an encoder that was trained on such squares.
``book/game_data.py`` makes them and stores them in ``photographs.json``; the game on the front page plays with them.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from contrastlab import data, methods, tasks
from contrastlab.pictures.augmentations import augmentation
from contrastlab.pictures.domain import modality
from contrastlab.pictures.sets import decode
from contrastlab.settings import Settings
from contrastlab.support.errors import check_choice
from contrastlab.support.seeds import fixed

SMALL = 12
"""Pixels along an edge at which two views are compared."""
PLAINEST = 30.0
"""A crop of a smaller standard deviation, in steps of 255, shows next to nothing."""


def stored_text() -> str:
    """The file that holds the tiles, as JSON."""
    return files("contrastbook.studies").joinpath("photographs.json").read_text(encoding="utf-8")


def stored() -> dict[str, Any]:
    """Tiles, squares, embeddings and where they come from, as plain values."""
    return dict(json.loads(stored_text()))


@cache
def tiles() -> tuple[Tensor, Tensor]:
    """All tiles, uint8 ``[N, 3, 80, 80]``, and the number of the photograph of each, int64 ``[N]``."""
    values = stored()
    sheet = np.asarray(decode(base64.b64decode(values["sheet"]), "the photographs of the game"))
    columns = values["columns"]
    owners = torch.tensor(values["owners"])
    side = sheet.shape[1] // columns
    grid = sheet.reshape(-1, side, columns, side, 3)  # row of tiles, row of pixels, tile, pixel, channel
    in_order = grid.swapaxes(1, 2).reshape(-1, side, side, 3)
    filled = in_order[: len(owners)].copy()  # the last row of the sheet may end in blanks
    return torch.from_numpy(filled).permute(0, 3, 1, 2), owners


@dataclass(frozen=True)
class Pair:
    """Two views, uint8 ``[3, h, w]``, of the tiles ``of``, and their distance: root mean square, in steps of 255."""

    first: Tensor
    second: Tensor
    of: tuple[int, int]
    distance: float


def _views(kind: Literal["crop", "flip"], draws: torch.Generator) -> tuple[list[Tensor], list[int]]:
    """Views that show something, and the tile of each: sixteen crops of a tile, or the tile and its mirror image."""
    views: list[Tensor] = []
    of: list[int] = []
    pictures, _ = tiles()
    for number, tile in enumerate(pictures):
        candidates = [tile, tile.flip(2)] if kind == "flip" else _crops(tile, draws)
        for view in candidates:
            if float(view.float().std()) > PLAINEST:
                views.append(view)
                of.append(number)
    return views, of


def _crops(tile: Tensor, draws: torch.Generator) -> list[Tensor]:
    """Sixteen squares of a tile, each a fifth to a half of its area."""
    size = tile.shape[1]
    drawn = torch.rand(16, 3, generator=draws)
    share_of_area = 0.2 + 0.3 * drawn[:, 0]
    sides = (size * share_of_area.sqrt()).round().long()
    room = size - sides[:, None]
    places = (room * drawn[:, 1:]).round().long()
    crops: list[Tensor] = []
    for side, (top, left) in zip(sides.tolist(), places.tolist(), strict=True):
        crops.append(tile[:, top : top + side, left : left + side])
    return crops


def nearest_pairs(kind: Literal["crop", "flip"], count: int = 6, seed: int = 0) -> list[Pair]:
    """The pairs of views of *different* photographs with the smallest distance, each tile in one pair at most."""
    check_choice("kind", kind, ("crop", "flip"))
    views, of = _views(kind, torch.Generator().manual_seed(seed))
    small = torch.stack([F.adaptive_avg_pool2d(view.float(), SMALL).flatten() for view in views])
    numbers = 3 * SMALL**2  # in a view
    distances = torch.cdist(small, small) / numbers**0.5
    _, owners = tiles()
    owner = owners[of]
    distances[owner[:, None] <= owner] = torch.inf  # the same photograph, and each pair once
    nearest = distances.flatten().topk(20_000, largest=False).indices.tolist()
    pairs: list[Pair] = []
    used: set[int] = set()
    for place in nearest:
        i, j = divmod(place, len(views))
        tiles_of_pair = (of[i], of[j])
        if used.isdisjoint(tiles_of_pair):
            pairs.append(Pair(views[i], views[j], tiles_of_pair, float(distances[i, j])))
            used.update(tiles_of_pair)
        if len(pairs) == count:
            break
    return pairs


@cache
def embeddings() -> dict[str, Tensor]:
    """Embeddings of the whole tiles, unit length ``[N, d]``: ``before`` training, and ``after`` as stored."""
    values = stored()
    items, owners = tiles()
    of_views = np.frombuffer(base64.b64decode(values["embeddings"]), np.int8)
    by_tile = of_views.reshape(len(owners), -1, values["dim"])
    after = torch.from_numpy(by_tile[:, 0].astype(np.float32))  # the first view of a tile is the tile
    settings = Settings(**values["made"]["settings"])
    recipe = methods.get(values["made"]["recipe"])
    names = tuple(name for name, _ in values["photographs"])
    small = F.interpolate(items.float(), 32, mode="area").byte()
    pictures = data.ImageSet("tiles", small, owners, names)
    with fixed(0):
        untrained = modality(pictures).encoders(recipe.views, pictures, settings)
    views = augmentation(settings.augmentation, settings.image_size)
    before, _ = tasks.encode(untrained, recipe.views, views, pictures)
    return {"before": F.normalize(before, dim=1), "after": F.normalize(after, dim=1)}


def neighbours(when: Literal["before", "after"], count: int = 4) -> Tensor:
    """The other tiles whose embeddings are nearest to each tile's, the nearest first: ``[N, count]``."""
    check_choice("when", when, ("before", "after"))
    rows = embeddings()[when]
    cosines = rows @ rows.T
    cosines.fill_diagonal_(-2)
    return cosines.topk(count, dim=1).indices
