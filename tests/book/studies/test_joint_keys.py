"""What the covariance of an item's keys adds, and how close views of an image are."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from contrastbook.studies import joint_keys
from contrastbook.studies.joint_keys import ViewStatistics
from contrastbook.theory import joint
from contrastlab import methods, papers
from contrastlab.data import Splits
from contrastlab.methods import get
from contrastlab.objectives import multi_key_info_nce
from contrastlab.tables import Run
from contrastlab.train import cpu_fabric


def test_no_matrix_is_needed() -> None:
    matrix, numbers = joint_keys.two_forms()
    assert matrix.shape == numbers.shape == (6,)
    assert torch.allclose(matrix, numbers, rtol=1e-12)
    mean_key, _ = joint_keys.two_forms(keys=1)  # one key has no covariance
    assert not torch.allclose(mean_key, matrix)
    keys, tau = np.array([[0.5, 0.8, 0.9]]), 0.2
    own, lift = get("jcl/jcl").positives.pair(torch.tensor(keys / tau), 0, 1)
    library = multi_key_info_nce(own, torch.zeros(1, 64, dtype=torch.float64), lift)
    expected = joint.closed_form(keys.mean(), keys.var(), math.log(64), tau, 4)
    assert library.item() == pytest.approx(float(expected), rel=1e-12)


def test_averages_settle_at_the_limit_and_not_at_the_closed_form() -> None:
    found = joint_keys.averages(draws=200, most=256)
    assert abs(found.limit - joint.expected_loss(0.8, 0.04, 5.0, 0.2)) < 4 * found.error
    assert found.closed[0] < found.limit - 4 * found.error < found.limit + 4 * found.error < found.closed[1]
    assert list(found.frame.index) == [2**i for i in range(9)]
    width = found.frame["high"] - found.frame["low"]
    assert width.iloc[-1] < width.iloc[0] / 8
    assert found.frame["mean"].iloc[-1] == pytest.approx(found.limit)


def test_the_covariance_enters_with_few_negatives() -> None:
    frame = joint_keys.sweep(math.log(64))
    assert frame.iloc[0].abs().max() < 1e-12
    later = frame.iloc[1:]
    assert (later["λ = 1"] > later["infinitely many keys"]).all()
    assert (later["λ = 0"] < later["infinitely many keys"]).all()
    assert (later["λ = 4"] > later["λ = 1"]).all()
    frame = joint_keys.inertness()
    assert frame.loc[(65536, 4), "p⁺"] < 0.01 < frame.loc[(64, 4), "p⁺"]
    assert frame.loc[(65536, 4), "added (nats)"] < 0.01
    assert (frame.xs(0, level="λ")[["added (nats)", "slope by v / by m"]] == 0).all(axis=None)


def test_both_histograms_of_figure_3_are_one() -> None:
    z = F.normalize(torch.randn(5, 7, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64), dim=2)
    of = ViewStatistics.of(z)
    assert torch.allclose(of.variance, (1 - of.cosine) / 12, atol=1e-12)
    for i in range(5):  # the slow way
        others = torch.stack([torch.stack([z[i, a] @ z[i, b] for b in range(7) if b != a]) for a in range(7)])
        assert float(of.m[i]) == pytest.approx(float(others.mean()))
        assert float(of.v[i]) == pytest.approx(float(others.var(1, correction=0).mean()))


def test_close_to_what_is_told_by_other_images_and_every_method_of_figure_2_is_planned() -> None:
    one_place = torch.ones(4, 3, 2, dtype=torch.float64) / 2**0.5
    apart = torch.eye(4, dtype=torch.float64)[:, None].expand(4, 3, 4)
    numbers = {name: {"embedding": ViewStatistics.of(z)} for name, z in (("one place", one_place), ("apart", apart))}
    frame = joint_keys.closeness(numbers)
    assert frame.loc[("one place", "embedding"), "apart"] == pytest.approx(0)
    assert list(frame.loc[("apart", "embedding")]) == pytest.approx([1, 0, 1])
    weights = joint_keys.weights(numbers, math.log(64))
    assert list(weights["v"]) == pytest.approx([0, 0])
    assert weights.loc["apart", "p⁺, λ = 0"] == pytest.approx(float(joint.positive_weight(1, 0, math.log(64), 0.2, 0)))
    rows = papers.plan("jcl", "figure2").rows
    for values, (low, high) in joint_keys.SAID_GOOD.values():
        assert set(values) <= set(rows)
        assert low < high


def test_views_of_images_by_an_encoder(pictures, tiny, tmp_path) -> None:
    train = pictures(20)
    splits = Splits(name="few", pretrain=train, train=train, test=train, note="")
    run = Run(methods.get("ours/random"), tiny, splits, 0, tmp_path)
    encoders = run.train(cpu_fabric()).encoders
    found, again = (joint_keys.view_statistics(run, encoders, 12, copies=4) for _ in "ab")
    assert set(found) == set(joint_keys.KINDS)
    for kind, of in found.items():
        assert len(of.cosine) == 12
        assert torch.equal(of.cosine, again[kind].cosine)
        assert torch.allclose(of.variance, (1 - of.cosine) / of.centre.shape[1], atol=1e-6)


# a smooth loss, and three that are nearly a kink
@pytest.mark.parametrize(
    "case", [(0.8, 0.04, 5.0, 0.2), (0.5, 0.3, 8.0, 0.02), (0.8, 0.01, 40.0, 0.02), (0.3, 0.5, -2.0, 0.01)]
)
def test_the_expected_loss_is_a_sum_on_a_fine_grid(case) -> None:
    m, v, c, tau = case
    z = np.linspace(-9, 9, 2_000_001)
    a = (m + math.sqrt(v) * z) / tau
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    expected = float(((np.logaddexp(a, c) - a) * density).sum() * (z[1] - z[0]))
    assert joint.expected_loss(*case) == pytest.approx(expected, rel=1e-9)


def test_negatives_on_the_sphere() -> None:
    # in three dimensions the cosine is uniform: E exp(s/τ) = τ sinh(1/τ)
    assert joint.log_sum_on_sphere(7, 3, 0.2) == pytest.approx(math.log(7 * 0.2 * math.sinh(5)))
    # sinh x is eˣ/2 as far as numbers can tell
    assert joint.log_sum_on_sphere(10, 3, 0.001) == pytest.approx(math.log(10 / 2000) + 1000, rel=1e-12)
    angles = torch.linspace(0, 2 * math.pi, 100_001, dtype=torch.float64)[:-1]
    for tau in (0.5, 0.001):  # on the circle, an even grid of angles
        log_mean = float(torch.logsumexp(angles.cos() / tau, 0)) - math.log(len(angles))
        assert joint.log_sum_on_sphere(10, 2, tau) == pytest.approx(math.log(10) + log_mean, rel=1e-12)
