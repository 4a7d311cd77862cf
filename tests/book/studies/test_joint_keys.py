"""What the covariance of an item's keys adds, and how close views of an image are."""

import math
from statistics import fmean, pvariance

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from contrastbook.studies import joint_keys
from contrastbook.studies.joint_keys import ViewStatistics
from contrastbook.theory import joint
from contrastlab import methods, papers
from contrastlab.data import Splits
from contrastlab.objectives import multi_key_info_nce
from contrastlab.tables import Run
from contrastlab.train import cpu_fabric


def test_no_matrix_is_needed() -> None:
    """Eq. 8 with the covariance matrix, with the variance of the scores, and in closed form are one."""
    with_matrix, with_variance = joint_keys.two_forms()
    assert with_matrix.shape == with_variance.shape == (6,)
    assert torch.allclose(with_matrix, with_variance, rtol=1e-12)
    of_mean_key, _ = joint_keys.two_forms(keys=1)  # one key has no covariance
    assert not torch.allclose(of_mean_key, with_matrix)

    cosines = np.array([[0.5, 0.8, 0.9]])
    tau = 0.2
    own, lift = methods.get("jcl/jcl").positives.pair(torch.tensor(cosines / tau), 0, 1)
    negatives = torch.zeros(1, 64, dtype=torch.float64)
    loss = multi_key_info_nce(own, negatives, lift)
    expected = joint.closed_form(cosines.mean(), cosines.var(), math.log(64), tau, 4)
    assert loss.item() == pytest.approx(float(expected), rel=1e-12)


def test_averages_settle_at_the_limit_and_not_at_the_closed_form() -> None:
    """The limit is the loss of infinitely many keys, between the closed forms of λ = 0 and λ = 1."""
    found = joint_keys.averages(draws=200, most=256)
    exact = joint.expected_loss(0.8, 0.04, 5.0, 0.2)
    assert abs(found.limit - exact) < 4 * found.error
    assert found.closed[0] < found.limit - 4 * found.error
    assert found.closed[1] > found.limit + 4 * found.error
    frame = found.frame
    assert frame.index.tolist() == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert frame["mean"].iloc[-1] == pytest.approx(found.limit)
    width = frame["high"] - frame["low"]
    assert width.iloc[-1] < width.iloc[0] / 8


def test_the_covariance_enters_with_few_negatives() -> None:
    """With 64 it raises the loss with λ; with 65,536 p⁺ is near 0, and next to nothing is added."""
    losses = joint_keys.sweep(math.log(64))
    without_variance = losses.iloc[0]
    with_variance = losses.iloc[1:]
    assert without_variance.abs().max() < 1e-12
    limit = with_variance["infinitely many keys"]
    assert (with_variance["λ = 0"] < limit).all()
    assert (with_variance["λ = 1"] > limit).all()
    assert (with_variance["λ = 4"] > with_variance["λ = 1"]).all()

    effect = joint_keys.inertness()
    few = effect.loc[(64, 4)]
    many = effect.loc[(65536, 4)]
    assert few["p⁺"] > 0.01
    assert many["p⁺"] < 0.01
    assert many["added (nats)"] < 0.01
    without_covariance = effect.xs(0, level="λ")
    assert (without_covariance["added (nats)"] == 0).all()
    assert (without_covariance["slope by v / by m"] == 0).all()


def test_slopes_by_variance_and_by_mean_are_those_of_differences() -> None:
    m = 0.8
    v = 0.02
    tau = joint_keys.TAU
    step = 1e-6
    for (count, strength), row in joint_keys.inertness().iterrows():
        c = joint.log_sum_on_sphere(count, 128, tau)
        by_v = joint.closed_form(m, v + step, c, tau, strength) - joint.closed_form(m, v - step, c, tau, strength)
        by_m = joint.closed_form(m - step, v, c, tau, strength) - joint.closed_form(m + step, v, c, tau, strength)
        added = joint.closed_form(m, v, c, tau, strength) - joint.closed_form(m, v, c, tau, 0)
        assert row["slope by v / by m"] == pytest.approx(float(by_v / by_m), rel=1e-5, abs=1e-12)
        assert row["added (nats)"] == pytest.approx(float(added))


def test_both_histograms_of_figure_3_are_one() -> None:
    """Variances of coordinates follow from mean cosines; and moments of q·k⁺ are those of loops over pairs of views."""
    images, copies, dim = 5, 7, 12
    draws = torch.randn(images, copies, dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    z = F.normalize(draws, dim=2)
    statistics = ViewStatistics.of(z)
    assert torch.allclose(statistics.variance, (1 - statistics.cosine) / dim, atol=1e-12)
    for image, views in enumerate(z):
        means = []
        variances = []
        for query in range(copies):
            cosines = [float(views[query] @ views[key]) for key in range(copies) if key != query]
            means.append(fmean(cosines))
            variances.append(pvariance(cosines))
        assert float(statistics.m[image]) == pytest.approx(fmean(means))
        assert float(statistics.v[image]) == pytest.approx(fmean(variances))


def test_close_to_what_is_told_by_other_images_and_every_method_of_figure_2_is_planned() -> None:
    """An encoder that sends four images to one place, and one that sends them to four axes, have views that agree."""
    of_one_place = torch.ones(4, 3, 2, dtype=torch.float64) / math.sqrt(2)
    of_four_axes = torch.eye(4, dtype=torch.float64)[:, None].expand(4, 3, 4)
    statistics = {
        "one place": {"embedding": ViewStatistics.of(of_one_place)},
        "apart": {"embedding": ViewStatistics.of(of_four_axes)},
    }
    closeness = joint_keys.closeness(statistics)
    one_place = closeness.loc[("one place", "embedding")]
    apart = closeness.loc[("apart", "embedding")]
    assert one_place.to_dict() == pytest.approx({"same image": 1, "other images": 1, "apart": 0})
    assert apart.to_dict() == pytest.approx({"same image": 1, "other images": 0, "apart": 1})

    weights = joint_keys.weights(statistics, math.log(64))
    assert weights["m"].tolist() == pytest.approx([1, 1])
    assert weights["v"].tolist() == pytest.approx([0, 0])
    p = 1 / (1 + 64 * math.exp(-1 / 0.2))  # a positive of cosine 1 against 64 negatives of cosine 0
    assert weights["p⁺, λ = 0"].tolist() == pytest.approx([p, p])

    planned = papers.plan("jcl", "figure2").rows
    for places, (low, high) in joint_keys.SAID_GOOD.values():
        assert set(places) <= set(planned)
        assert low < high


def test_views_of_images_by_an_encoder(pictures, tiny, tmp_path) -> None:
    train = pictures(20)
    splits = Splits(name="few", pretrain=train, train=train, test=train, note="")
    run = Run(methods.get("ours/random"), tiny, splits, 0, tmp_path)
    encoders = run.train(cpu_fabric()).encoders
    found = joint_keys.view_statistics(run, encoders, 12, copies=4)
    again = joint_keys.view_statistics(run, encoders, 12, copies=4)
    assert set(found) == set(joint_keys.KINDS)
    for kind, statistics in found.items():
        _, dim = statistics.centre.shape
        assert len(statistics.cosine) == 12
        assert torch.equal(statistics.cosine, again[kind].cosine)
        assert torch.allclose(statistics.variance, (1 - statistics.cosine) / dim, atol=1e-6)


# a smooth loss, and three that are nearly a kink
@pytest.mark.parametrize(
    "case", [(0.8, 0.04, 5.0, 0.2), (0.5, 0.3, 8.0, 0.02), (0.8, 0.01, 40.0, 0.02), (0.3, 0.5, -2.0, 0.01)]
)
def test_the_expected_loss_is_a_sum_on_a_fine_grid(case) -> None:
    m, v, c, tau = case
    z = np.linspace(-9, 9, 2_000_001)
    step = z[1] - z[0]
    score = (m + math.sqrt(v) * z) / tau
    loss = np.logaddexp(score, c) - score
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    expected = float((loss * density).sum() * step)
    assert joint.expected_loss(*case) == pytest.approx(expected, rel=1e-9)


def test_negatives_on_the_sphere() -> None:
    """In three dimensions the cosine is uniform, so E exp(s/τ) = τ sinh(1/τ); on the circle an even grid is exact."""
    assert joint.log_sum_on_sphere(7, 3, 0.2) == pytest.approx(math.log(7 * 0.2 * math.sinh(5)))
    # sinh x is eˣ/2 as far as numbers can tell
    log_of_sinh = 1000 - math.log(2)
    expected = math.log(10 * 0.001) + log_of_sinh
    assert joint.log_sum_on_sphere(10, 3, 0.001) == pytest.approx(expected, rel=1e-12)
    count = 100_000
    angles = torch.linspace(0, 2 * math.pi, count + 1, dtype=torch.float64)[:-1]
    for tau in (0.5, 0.001):
        log_sum = float(torch.logsumexp(angles.cos() / tau, 0))
        log_mean = log_sum - math.log(count)
        assert joint.log_sum_on_sphere(10, 2, tau) == pytest.approx(math.log(10) + log_mean, rel=1e-12)
