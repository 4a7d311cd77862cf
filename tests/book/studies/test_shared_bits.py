"""Digits with shared bits: views agree where they should, exchanged grey levels lose nothing, and bits drown digits."""

from itertools import product

import pytest
import torch
from sklearn.linear_model import Ridge
from torch import Tensor
from torch.nn import functional as F

from contrastbook.figures import later
from contrastbook.studies import shared_bits


def some_digits(count: int) -> Tensor:
    """Pixels ``[count, 64]`` of the first digits to train on."""
    pixels, *_ = shared_bits.digits()
    return pixels[:count]


def test_two_views_share_the_signs_and_nothing_else() -> None:
    pixels = some_digits(50)
    first, second = shared_bits.two_views(pixels, 6, torch.Generator().manual_seed(0))
    assert first.shape == second.shape == (50, 64 + 6)
    picture, signs = first.split([64, 6], dim=1)
    other_picture, other_signs = second.split([64, 6], dim=1)
    assert signs.equal(other_signs)
    assert set(signs.unique().tolist()) == {-1.0, 1.0}
    assert not picture.equal(other_picture)
    again, _ = shared_bits.two_views(pixels, 6, torch.Generator().manual_seed(0))
    assert again.equal(first)


def windows(picture: Tensor) -> list[Tensor]:
    """The 25 squares ``[8, 8]`` of a picture ``[8, 8]`` that is shifted by up to two pixels, with 0 around it."""
    padded = F.pad(picture, (2, 2, 2, 2))
    return [padded[top : top + 8, left : left + 8] for top, left in product(range(5), range(5))]


def test_a_view_is_a_shifted_digit_where_it_is_seen() -> None:
    """Where it is not blank, a view differs from one of the shifted pictures by no more than noise of 0.3."""
    pixels = some_digits(40)
    views, _ = shared_bits.two_views(pixels, 0, torch.Generator().manual_seed(1))
    for view, picture in zip(views.view(-1, 8, 8), pixels.view(-1, 8, 8), strict=True):
        is_seen = view != 0
        assert 0.45 < float(is_seen.float().mean()) < 0.95
        errors = [float((view - window)[is_seen].std()) for window in windows(picture)]
        assert min(errors) < 0.45


def test_views_are_shifted_by_every_step_and_have_the_noise_and_blanks_that_are_said() -> None:
    """A bright pixel comes to lie in 25 places; noise has standard deviation 0.3, and 30 % of the pixels are blank."""
    dark = torch.zeros(2000, 8, 8)
    bright = dark.clone()
    bright[:, 4, 4] = 100
    views, _ = shared_bits.two_views(bright.flatten(1), 0, torch.Generator().manual_seed(0))
    seen = views[(views > 50).any(1)]
    places = {divmod(int(place), 8) for place in seen.argmax(1)}
    assert places == set(product(range(2, 7), range(2, 7)))
    views, _ = shared_bits.two_views(dark.flatten(1), 0, torch.Generator().manual_seed(0))
    noise = views[views != 0]
    assert float(noise.std()) == pytest.approx(0.3, abs=0.005)
    assert len(noise) / views.numel() == pytest.approx(0.7, abs=0.01)


def test_exchanged_grey_levels_can_be_exchanged_back() -> None:
    pixels, *_ = shared_bits.digits()
    exchanged = shared_bits.scrambled(pixels)
    assert not exchanged.equal(pixels)
    for before, after in zip(pixels.T.tolist(), exchanged.T.tolist(), strict=True):
        original = dict(zip(after, before, strict=True))
        assert [original[level] for level in after] == before


def test_linear_accuracy_is_that_of_ridge_regression() -> None:
    """Features are standardised on the rows to train on, and an offset is penalised as they are."""
    draws = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 3
    rows = 0.3 * torch.randn(60, 5, generator=draws) + torch.eye(3, 5)[labels]
    train, held_out = rows.split([40, 20])
    train_labels, held_out_labels = labels.split([40, 20])
    accuracy = shared_bits.linear_accuracy(train, train_labels, held_out, held_out_labels)

    mean = train.double().mean(0)
    deviation = train.double().std(0) + 1e-6

    def inputs(features: Tensor) -> Tensor:
        return F.pad((features.double() - mean) / deviation, (0, 1), value=1.0)

    ridge = Ridge(alpha=1.0, fit_intercept=False)
    ridge.fit(inputs(train).numpy(), F.one_hot(train_labels).numpy())
    predicted = ridge.predict(inputs(held_out).numpy()).argmax(1)
    is_right = predicted == held_out_labels.numpy()
    assert accuracy == pytest.approx(100 * is_right.mean())


def test_bits_raise_the_bound_and_cost_the_digits() -> None:
    of_picture = shared_bits.train(0, 0, (0, 60))
    of_bits = shared_bits.train(8, 0, (0, 60))
    *_, picture = of_picture
    *_, bits = of_bits
    assert bits.bound > picture.bound + 2
    assert bits.accuracy < picture.accuracy - 10

    figure = later.bound_and_accuracy(60, {0: [of_picture], 4: [of_picture], 8: [of_bits]})
    dots = {trace.name: trace for trace in figure.data if trace.name}
    assert list(dots) == ["the picture alone", "4 shared bits", "8 shared bits"]
    assert dots["8 shared bits"].x == (bits.bound,)
    assert dots["8 shared bits"].y == (bits.accuracy,)
