"""Classes that form: an untrained encoder satisfies the hypothesis of a ring, and a trained one breaks it."""

import numpy as np
import pytest
import torch

from contrastbook.studies import forming
from contrastlab import data

PICTURES = forming.SmallPictures(data.load("digits", n_train=1400).pretrain.images)


@pytest.fixture(scope="module")
def found() -> dict[str, np.ndarray]:
    """Shares of the queries that satisfy the hypothesis, by ring, over training with seed 0."""
    return forming.curves(PICTURES, [0])


def test_as_classes_form_fewer_queries_satisfy_the_hypothesis(found) -> None:
    before, *_, after = found["u = 10 %"]
    assert (before > 0.8).all()
    assert (after < 0.5).all()
    np.testing.assert_array_equal(found["u = 10 %"], forming.curves(PICTURES, [0])["u = 10 %"])


def test_a_shrinking_ring_begins_with_all_keys_and_ends_as_the_narrow_one(found) -> None:
    assert found["u from 100 to 10 %"][0] == 0
    assert found["u from 100 to 10 %"][-1] == found["u = 10 %"][-1]


def test_a_view_is_a_shifted_noisy_picture() -> None:
    g = torch.Generator().manual_seed(0)
    views = PICTURES.view(torch.tensor([3] * 400), g)
    assert views.shape == (400, PICTURES.side**2)
    still = PICTURES.pixels[3, 1:-1, 1:-1].flatten()
    residue = (views - still).std(1)
    unmoved = (residue < 0.25).double().mean()  # one shift of nine, and noise of 0.2
    assert abs(unmoved - 1 / 9) < 4 * (1 / 9 * 8 / 9 / 400) ** 0.5
