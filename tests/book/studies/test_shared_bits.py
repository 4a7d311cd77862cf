"""Digits with shared bits: views agree where they should, exchanged grey levels lose nothing, and bits drown digits."""

import pytest
import torch
from sklearn.linear_model import Ridge

from contrastbook.figures import later
from contrastbook.studies import shared_bits


def test_two_views_share_the_signs_and_nothing_else() -> None:
    pixels = shared_bits.digits()[0][:50]
    first, second = shared_bits.two_views(pixels, 6, torch.Generator().manual_seed(0))
    assert first.shape == second.shape == (50, 70)
    assert first[:, 64:].equal(second[:, 64:])
    assert set(first[:, 64:].unique().tolist()) == {-1.0, 1.0}
    assert not first[:, :64].equal(second[:, :64])
    again, _ = shared_bits.two_views(pixels, 6, torch.Generator().manual_seed(0))
    assert again.equal(first)


def test_a_view_is_a_shifted_digit_where_it_is_seen() -> None:
    pixels = shared_bits.digits()[0][:40]
    views, _ = shared_bits.two_views(pixels, 0, torch.Generator().manual_seed(1))
    padded = torch.nn.functional.pad(pixels.view(-1, 8, 8), (2, 2, 2, 2))
    for view, picture in zip(views.view(-1, 8, 8), padded, strict=True):
        seen = view != 0
        errors = [float((view - picture[y : y + 8, x : x + 8])[seen].std()) for y in range(5) for x in range(5)]
        assert min(errors) < 0.45  # the noise alone has 0.3
        assert 0.45 < float(seen.float().mean()) < 0.95


def test_exchanged_grey_levels_can_be_exchanged_back() -> None:
    pixels = shared_bits.digits()[0]
    exchanged = shared_bits.scrambled(pixels)
    assert not exchanged.equal(pixels)
    for before, after in zip(pixels.T.tolist(), exchanged.T.tolist(), strict=True):
        back = dict(zip(after, before, strict=True))
        assert [back[value] for value in after] == before


def test_linear_accuracy_is_that_of_ridge_regression() -> None:
    draws = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 3
    rows = 0.3 * torch.randn(60, 5, generator=draws) + torch.eye(3, 5)[labels]
    mean, deviation = rows[:40].double().mean(0), rows[:40].double().std(0) + 1e-6
    scaled = (rows.double() - mean) / deviation
    inputs = torch.cat([scaled, torch.ones(60, 1, dtype=torch.float64)], 1).numpy()
    ridge = Ridge(alpha=1.0, fit_intercept=False).fit(inputs[:40], torch.eye(3)[labels[:40]].numpy())
    right = ridge.predict(inputs[40:]).argmax(1) == labels[40:].numpy()
    accuracy = shared_bits.linear_accuracy(rows[:40], labels[:40], rows[40:], labels[40:])
    assert accuracy == pytest.approx(100 * right.mean())


def test_bits_raise_the_bound_and_cost_the_digits() -> None:
    looks = {bits: shared_bits.train(bits, 0, (0, 60)) for bits in (0, 8)}
    assert looks[8][1].bound > looks[0][1].bound + 2
    assert looks[8][1].accuracy < looks[0][1].accuracy - 10
    figure = later.bound_and_accuracy(60, {bits: [looks[min(bits, 8) // 8 * 8]] for bits in (0, 4, 8)})
    assert [trace.name for trace in figure.data if trace.name] == [
        "the picture alone",
        "4 shared bits",
        "8 shared bits",
    ]
    shown = [trace for trace in figure.data if trace.name]
    assert shown[2].x == (looks[8][1].bound,)
    assert shown[2].y == (looks[8][1].accuracy,)
