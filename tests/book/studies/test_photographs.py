"""Pairs of photographs that look alike and neighbours of their embeddings, against loops."""

import base64
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import Tensor

from contrastbook.studies import photographs

Array = NDArray[np.float64]


def fields(length: int) -> list[slice]:
    """The 12 fields of an edge, which may overlap by a pixel, as adaptive pooling has them."""
    count = photographs.SMALL
    starts = [k * length // count for k in range(count)]
    ends = [-(-(k + 1) * length // count) for k in range(count)]  # rounded up
    return [slice(start, end) for start, end in zip(starts, ends, strict=True)]


def small(view: Tensor) -> Array:
    """Means ``[3, 12, 12]`` of the fields of a view."""
    pixels = view.double().numpy()
    _, height, width = pixels.shape
    means = [[pixels[:, rows, columns].mean((1, 2)) for columns in fields(width)] for rows in fields(height)]
    return np.array(means).transpose(2, 0, 1)


def distance(first: Array, second: Array) -> float:
    """Root mean square of the differences."""
    return float(np.sqrt(((first - second) ** 2).mean()))


@pytest.mark.parametrize("kind", ["crop", "flip"])
def test_pairs_are_of_different_photographs_and_their_distance_is_that_of_loops(kind) -> None:
    _, owners = photographs.tiles()
    pairs = photographs.nearest_pairs(kind)
    assert len(pairs) == 6
    used = [tile for pair in pairs for tile in pair.of]
    assert len(set(used)) == len(used)
    distances = [pair.distance for pair in pairs]
    assert distances == sorted(distances)
    for pair in pairs:
        one, other = pair.of
        assert owners[one] != owners[other]
        assert pair.distance == pytest.approx(distance(small(pair.first), small(pair.second)), abs=0.02)


class Shown(NamedTuple):
    """A view that shows something, made small, and the number of its photograph."""

    small: Array
    owner: int


def test_no_pair_of_whole_tiles_is_nearer_than_the_first() -> None:
    shown = []
    for tile, owner in zip(*photographs.tiles(), strict=True):
        if float(tile.float().std()) > photographs.PLAINEST:
            mirrored = tile.flip(2)
            shown.append(Shown(small(tile), int(owner)))
            shown.append(Shown(small(mirrored), int(owner)))
    least = min(distance(a.small, b.small) for a, b in combinations(shown, 2) if a.owner != b.owner)
    nearest, *_ = photographs.nearest_pairs("flip")
    assert nearest.distance == pytest.approx(least, abs=0.02)


def test_a_stored_embedding_is_that_of_the_whole_tile() -> None:
    """Of each tile's stored views the first is the whole tile, and its signed bytes point where the embedding does."""
    stored = photographs.stored()
    values = np.frombuffer(base64.b64decode(stored["embeddings"]), np.int8).astype(float)
    of_tiles = np.split(values, len(stored["owners"]))
    embeddings = photographs.embeddings()["after"].double().numpy()
    for squares, of_views, embedding in zip(stored["squares"], of_tiles, embeddings, strict=True):
        assert squares[0] == [0, 0, stored["tile"]]
        whole = of_views[: stored["dim"]]
        assert embedding == pytest.approx(whole / np.linalg.norm(whole), abs=1e-6)


def share_of_own_photograph(neighbours: Tensor) -> float:
    """How many of the neighbours ``[N, 4]`` of all tiles are of the tile's photograph."""
    _, owners = photographs.tiles()
    return float((owners[neighbours] == owners[:, None]).double().mean())


def test_neighbours_are_those_of_loops_and_training_gathers_a_photograph() -> None:
    before = photographs.neighbours("before")
    after = photographs.neighbours("after")
    for when, found in (("before", before), ("after", after)):
        rows = photographs.embeddings()[when].double().numpy()
        for query in (0, 47, 70):
            cosines = [float(row @ rows[query]) for row in rows]
            of_others = [cosine for tile, cosine in enumerate(cosines) if tile != query]
            nearest = sorted(of_others, reverse=True)[:4]
            neighbours = found[query].tolist()
            assert query not in neighbours
            assert [cosines[tile] for tile in neighbours] == pytest.approx(nearest, abs=1e-5)
    assert share_of_own_photograph(after) > share_of_own_photograph(before) + 0.05
