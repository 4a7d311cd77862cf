"""Pairs of photographs that look alike and neighbours of their embeddings, against loops."""

import numpy as np
import pytest

from contrastbook.studies import photographs


def small(view: np.ndarray) -> np.ndarray:
    """Means of 12 by 12 fields, which may overlap by a pixel, as adaptive pooling has them."""
    size, height = photographs.SMALL, view.shape[1]
    edges = [(k * height // size, -(-(k + 1) * height // size)) for k in range(size)]
    return np.array([[view[:, a:b, c:d].mean((1, 2)) for c, d in edges] for a, b in edges]).transpose(2, 0, 1)


@pytest.mark.parametrize("kind", ["crop", "flip"])
def test_pairs_are_of_different_photographs_and_their_distance_is_that_of_loops(kind) -> None:
    tiles, owners = photographs.tiles()
    pairs = photographs.nearest_pairs(kind)
    used = [number for pair in pairs for number in pair.of]
    assert len(set(used)) == len(used) == 12
    assert [pair.distance for pair in pairs] == sorted(pair.distance for pair in pairs)
    for pair in pairs:
        assert owners[pair.of[0]] != owners[pair.of[1]]
        first, second = (small(view.double().numpy()) for view in (pair.first, pair.second))
        assert pair.distance == pytest.approx(float(np.sqrt(((first - second) ** 2).mean())), abs=0.02)
    if kind == "flip":  # no pair is nearer than the first
        rows = [small(view.double().numpy()) for tile in tiles for view in (tile, tile.flip(2))]
        shown = [k for k in range(len(rows)) if float(tiles[k // 2].float().std()) > photographs.PLAINEST]
        apart = [(i, j) for i in shown for j in shown if owners[i // 2] < owners[j // 2]]
        least = min(float(((rows[i] - rows[j]) ** 2).mean()) for i, j in apart)
        assert pairs[0].distance == pytest.approx(least**0.5, abs=0.02)


def test_neighbours_are_those_of_loops_and_training_gathers_a_photograph() -> None:
    owners = photographs.tiles()[1]
    same = {}
    for when in ("before", "after"):
        rows, found = photographs.embeddings()[when].double().numpy(), photographs.neighbours(when)
        for query in (0, 47, 70):
            cosines = [-2 if k == query else float(rows[k] @ rows[query]) for k in range(len(rows))]
            best = sorted(cosines, reverse=True)[:4]
            assert [cosines[k] for k in found[query].tolist()] == pytest.approx(best, abs=1e-5)
        same[when] = float((owners[found] == owners[:, None]).double().mean())
    assert same["after"] > same["before"] + 0.05
