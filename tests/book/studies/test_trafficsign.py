"""Copying the label of the nearest pixels, and what the stored study says of it."""

import math
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from contrastbook.studies import Study, trafficsign
from contrastlab.data import ImageSet
from contrastlab.support.errors import MissingDataError, UnknownNameError

ROOT = Path(__file__).parents[3]


def signs(count: int, seed: int) -> ImageSet:
    """Noisy pictures of four signs, under every light."""
    draws = torch.Generator().manual_seed(seed)
    of_class = torch.randint(0, 80, (4, 3, 8, 8), generator=torch.Generator().manual_seed(9))
    labels = torch.randint(4, (count,), generator=draws)
    light = 0.3 + torch.rand(count, 1, 1, 1, generator=draws)
    noise = torch.randint(0, 150, (count, 3, 8, 8), generator=draws)
    pictures = of_class[labels] * light + noise
    return ImageSet("signs", pictures.to(torch.uint8), labels, ("a", "b", "c", "d"))


Pixels = list[float]


def euclidean(a: Pixels, b: Pixels) -> float:
    return math.dist(a, b)


def correlation(a: Pixels, b: Pixels) -> float:
    """The closer, the smaller."""
    return -statistics.correlation(a, b)


@pytest.mark.parametrize("distance", [euclidean, correlation])
def test_nearest_pixels_equal_their_loop(distance) -> None:
    train = signs(40, 0)
    test = signs(25, 1)
    rows = train.images.flatten(1).double().tolist()
    queries = test.images.flatten(1).double().tolist()
    expected = []
    for query, truth in zip(queries, test.labels.tolist(), strict=True):
        distances = [distance(query, row) for row in rows]
        nearest = distances.index(min(distances))
        expected.append(int(train.labels[nearest]) == truth)
    right = trafficsign.nearest_pixels(train, test, distance=distance.__name__, side=8)
    assert right.tolist() == expected
    assert 0 < sum(expected) < len(expected)


def test_another_distance_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="cosine"):
        trafficsign.nearest_pixels(signs(4, 0), signs(4, 1), distance="cosine")


@pytest.mark.parametrize("brightness", [0.5, 0.25])
def test_correlation_does_not_see_how_bright_a_picture_is(brightness: float) -> None:
    train = signs(40, 0)
    even = replace(train, items=train.images // 4 * 4)  # so that a darker picture has whole levels
    darker = replace(even, items=(even.images * brightness).to(torch.uint8))
    assert bool(trafficsign.nearest_pixels(even, darker, distance="correlation", side=8).all())
    assert not bool(trafficsign.nearest_pixels(even, darker, distance="euclidean", side=8).all())


@pytest.fixture
def known(tmp_path) -> Study:
    """The stored study, found without any data."""
    study = trafficsign.study(data_root=tmp_path, out_dir=tmp_path, read_also=[ROOT / "results"])
    assert list(tmp_path.iterdir()) == []
    return study


@pytest.mark.parametrize("distance", trafficsign.DISTANCES)
def test_the_stored_study_shows_the_leak_whatever_the_distance(known, distance: str) -> None:
    percent = {row["data"]: row[f"1-NN, {distance}"] for row in known.rows}
    assert percent["trafficsign"] > 90
    assert percent["trafficsign_tracks"] < 60
    # the split by track is as hard as the benchmark's own
    assert abs(percent["trafficsign_tracks"] - percent["gtsrb32"]) < 5


def test_the_stored_study_is_of_all_splits_and_of_committed_code(known) -> None:
    assert [row["data"] for row in known.rows] == list(trafficsign.SPLITS)
    assert known.provenance["git_dirty"] is False


def test_what_is_missing_is_named_and_nothing_is_stored(tmp_path) -> None:
    with pytest.raises(MissingDataError, match="gtsrb32"):
        trafficsign.study(data_root=tmp_path, out_dir=tmp_path / "runs", read_also=())
    assert not (tmp_path / "runs").exists()
