"""Bounds on samples against their exact expectations and their twins."""

import math
from dataclasses import FrozenInstanceError
from itertools import product

import numpy as np
import pytest
import torch

from contrastlab.information import bounds, exact
from contrastlab.information.critics import Concatenated, Separable, evaluate, fit, mlp, normal_scores
from contrastlab.information.toys import JointGaussian
from contrastlab.negatives import Ball, Every, Negatives, OtherLabel, Ring, Uniform
from contrastlab.scores import divergences
from contrastlab.scores.candidates import Candidates
from contrastlab.scores.schedules import Linear
from contrastlab.support.errors import ArgumentError, NonFiniteLossError

PERCENT = np.array([[30, 5, 2], [5, 20, 3], [2, 8, 25]])
"""A joint distribution of two variables of three values each."""
JOINT = exact.Joint.of(PERCENT / 100)
CRITIC = JOINT.log_ratio * 0.7 + np.array([[0.2], [-0.1], [0.4]])


def scores(*values: np.ndarray, percent: np.ndarray) -> list[torch.Tensor]:
    """Each of some values ``[...]``, as often as the products of percents ``[...]`` say: the means are expectations."""
    times = percent.ravel()
    return [torch.from_numpy(np.repeat(np.broadcast_to(value, percent.shape).ravel(), times)) for value in values]


def of_pairs() -> torch.Tensor:
    """Scores of a hundred pairs, which occur as often as in JOINT."""
    return scores(CRITIC, percent=PERCENT)[0]


def of_independents() -> torch.Tensor:
    """Scores of ten thousand independent pairs, which occur as often as under the product of the marginals."""
    return scores(CRITIC, percent=PERCENT.sum(1)[:, None] * PERCENT.sum(0))[0]


def test_bounds_of_independent_pairs_have_their_exact_expectation() -> None:
    pairs, independents = of_pairs(), of_independents()
    nwj = bounds.nwj(pairs, independents)
    assert float(nwj) == pytest.approx(exact.nwj(JOINT, CRITIC), abs=1e-12)
    donsker_varadhan = bounds.donsker_varadhan(pairs, independents)
    assert float(donsker_varadhan) == pytest.approx(exact.donsker_varadhan(JOINT, CRITIC), abs=1e-12)


def test_contrastive_bounds_have_their_exact_expectation() -> None:
    """Of K = 3: a pair and two further values of Y, which make a million draws."""
    y = PERCENT.sum(0)
    often = PERCENT[:, :, None, None] * y[:, None] * y
    of_positive, first, second = scores(
        CRITIC[:, :, None, None], CRITIC[:, None, :, None], CRITIC[:, None, None, :], percent=often
    )
    negatives = torch.stack([first, second], 1)
    assert len(of_positive) == 1_000_000
    info_nce = bounds.info_nce(of_positive, negatives)
    assert float(info_nce) == pytest.approx(exact.info_nce(JOINT, CRITIC, 3), abs=1e-10)
    leave_one_out = bounds.leave_one_out(of_positive, negatives)
    assert float(leave_one_out) == pytest.approx(exact.leave_one_out(JOINT, CRITIC, 3), abs=1e-10)


@pytest.mark.parametrize("name", ["kl", "js", "pearson", "vincze_le_cam"])
def test_f_information_has_its_exact_expectation(name: str) -> None:
    divergence = divergences.get(name)
    table = divergence.derivative(torch.from_numpy(CRITIC)).numpy()
    critic_of_pairs = divergence.derivative(of_pairs())
    critic_of_independents = divergence.derivative(of_independents())
    estimate = bounds.f_information(critic_of_pairs, critic_of_independents, divergence)
    assert float(estimate) == pytest.approx(exact.f_information(JOINT, table, divergence), abs=1e-12)


def test_pairs_splits_a_batch_and_info_nce_never_exceeds_log_k():
    positives, negatives = bounds.pairs(torch.arange(16.0).view(4, 4))
    assert positives.tolist() == [0, 5, 10, 15]
    assert negatives.tolist() == [[1, 2, 3], [4, 6, 7], [8, 9, 11], [12, 13, 14]]

    positives = torch.full((5,), 1e4)
    negatives = torch.full((5, 7), -1e4)
    assert float(bounds.info_nce(positives, negatives)) == pytest.approx(math.log(8))
    assert float(bounds.leave_one_out(positives, negatives)) == pytest.approx(2e4)


@pytest.mark.parametrize("shape", [(3,), (1, 1), (2, 3), (3, 2), (2, 2, 2)])
def test_pairs_refuses_what_is_no_square_of_scores(shape: tuple[int, ...]) -> None:
    with pytest.raises(ArgumentError, match="expected a square tensor of at least 2 × 2"):
        bounds.pairs(torch.zeros(shape))


@pytest.mark.parametrize(("rate", "before"), [(0.25, 0.7), (1, 3.0), (0.25, None)])
def test_mine_has_the_value_of_dv_and_the_gradient_of_its_running_mean(rate, before):
    """MINE Eq. 12: the exponentials of independent pairs are divided by the running mean, not by that of the batch.

    At the rate 1, and where there is no mean before, it is that of the batch.
    """
    generator = torch.Generator().manual_seed(0)
    positives = torch.randn(6, generator=generator, dtype=torch.float64, requires_grad=True)
    independents = torch.randn(9, generator=generator, dtype=torch.float64, requires_grad=True)
    mine = bounds.Mine(rate=rate, log_mean=before)
    value = mine(positives, independents)
    donsker_varadhan = bounds.donsker_varadhan(positives, independents)
    assert value.item() == pytest.approx(donsker_varadhan.item(), abs=1e-12)

    exponentials = independents.detach().exp()
    newest = exponentials.mean().item()
    running_mean = newest
    if before is not None:
        running_mean = (1 - rate) * math.exp(before) + rate * newest
    assert mine.log_mean == pytest.approx(math.log(running_mean), abs=1e-6)
    value.backward()
    assert torch.allclose(positives.grad, torch.full((6,), 1 / 6, dtype=torch.float64))
    assert torch.allclose(independents.grad, -exponentials / 9 / running_mean, atol=1e-6)


def bank(queries: int = 6, keys: int = 200) -> tuple[torch.Tensor, Candidates]:
    """Gaussian scores of queries against a bank ``[queries, keys]``; query i owns key i, its positive."""
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(queries, keys, generator=generator, dtype=torch.float64)
    own = torch.arange(queries)
    return logits[own, own], Candidates(logits, own)


def vince(positives: torch.Tensor, candidates: Candidates, region: Negatives, seed: int) -> bounds.Conditional:
    """VINCE with the draws of this seed."""
    return bounds.vince(positives, candidates, region, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("region", [Ball(outer=10, k=16), Ring(inner=1, outer=10, k=16), Uniform(k=16), Every()])
def test_vince_and_cnce_are_the_two_forms_on_the_same_draws(region):
    """VINCE has the positive in the denominator and CNCE has not; the mean is over what is there."""
    positives, candidates = bank()
    with_positive = vince(positives, candidates, region, seed=3)
    without = bounds.cnce(positives, candidates, region, torch.Generator().manual_seed(3))
    negatives = with_positive.negatives
    assert torch.equal(negatives, without.negatives)

    terms = torch.cat([positives[:, None], negatives], 1)
    expected = (positives - terms.exp().mean(1).log()).mean()
    assert float(with_positive.value) == pytest.approx(float(expected), abs=1e-12)
    expected = (positives - negatives.exp().mean(1).log()).mean()
    assert float(without.value) == pytest.approx(float(expected), abs=1e-12)
    assert float(with_positive.value) <= math.log(terms.shape[1])


@pytest.mark.parametrize("region", [Ball(outer=100, k=16), Ring(inner=20, outer=100, k=16), Every()])
def test_scores_are_left_as_they_are_and_positives_may_be_a_view_of_them(region):
    _, candidates = bank(keys=6)
    before = candidates.logits.clone()
    value = vince(candidates.logits.diagonal(), candidates, region, seed=3).value
    assert torch.equal(candidates.logits, before)
    copied = vince(before.diagonal().clone(), candidates, region, seed=3).value
    assert torch.equal(value, copied)
    assert bool(value.isfinite())


def test_the_hypothesis_is_watched_whatever_own_and_banned_keys_score():
    """The hypothesis: every negative scores above log c, c the mean exponential of all keys that may be negatives."""
    positives, candidates = bank(keys=400)
    closest = Ball(outer=5, k=8)
    own = candidates.own
    queries = torch.arange(6)
    without_own = candidates.logits.clone()
    without_own[queries, own] = -math.inf
    log_c = without_own.exp().sum(1).log() - math.log(399)
    near = vince(positives, candidates, closest, seed=0)
    assert torch.equal(near.holds, near.negatives.min(1).values > log_c)
    assert near.share == 1  # Gaussian scores of unit variance: the closest 5 % lie above the mean of their exponentials
    wide = vince(positives, candidates, Ring(inner=1, outer=90, k=64), seed=0)
    assert wide.share == 0

    # With the own key counted, the mean of the exponentials would be above every other score.
    raised = candidates.logits.clone()
    raised[queries, own] += 10
    high = vince(positives + 10, Candidates(raised, own), closest, seed=0)
    assert torch.equal(high.negatives, near.negatives)
    assert high.share == 1

    # With a banned key counted, it would be, too.
    lifted = candidates.logits.clone()
    lifted[:, 399] = 30.0
    banned = torch.full((6, 1), 399)
    assert vince(positives, Candidates(lifted, own, banned=banned), closest, seed=0).share == 1


@pytest.mark.parametrize("kind", ["separable", "shared", "sphere", "joint"])
def test_critics_score_every_pair(kind):
    """Each entry of the scores is that of its own pair, scored alone."""
    torch.manual_seed(0)
    g = mlp([2, 16, 8])
    h = mlp([2, 16, 8])
    joint = Concatenated(torch.nn.Linear(2, 16), torch.nn.Linear(2, 16, bias=False), mlp([16, 8, 1]))
    critics = {
        "separable": Separable(g, h, temperature=0.5),
        "shared": Separable(g),
        "sphere": Separable(g, h, temperature=0.1, normalise=True),
        "joint": joint,
    }
    critic = critics[kind]
    x = torch.randn(5, 2)
    y = torch.randn(7, 2)
    scores = critic(x, y)
    assert scores.shape == (5, 7)
    alone = torch.empty(5, 7)
    for i, j in product(range(5), range(7)):
        alone[i, j] = critic(x[[i]], y[[j]]).item()
    assert torch.allclose(scores, alone, atol=1e-5)
    if kind == "sphere":
        assert scores.abs().max().item() <= 10 + 1e-4
    if kind == "joint":
        expected = side_by_side(joint)(all_pairs(x, y)).squeeze(2)
        assert torch.allclose(scores, expected, atol=1e-5)


def side_by_side(critic: Concatenated) -> torch.nn.Module:
    """The network of x and y side by side that a critic with linear layers g and h is."""
    first = torch.nn.Linear(4, 16)
    first.weight.data = torch.cat([critic.g.weight, critic.h.weight], 1).data
    first.bias.data = critic.g.bias.data
    return torch.nn.Sequential(first, torch.nn.ReLU(), critic.top)


def all_pairs(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Each row of x ``[n, p]`` beside each row of y ``[m, q]``: ``[n, m, p + q]``."""
    n, m = len(x), len(y)
    of_x = x[:, None].expand(n, m, -1)
    of_y = y[None].expand(n, m, -1)
    return torch.cat([of_x, of_y], 2)


def test_normal_scores_are_increasing_and_give_normal_coordinates():
    """The samples become normal quantiles of their ranks; the map increases beyond them, too, and takes ties."""
    generator = torch.Generator().manual_seed(0)
    numerators = torch.randn(999, 2, generator=generator)
    denominators = torch.randn(999, 2, generator=generator).abs()
    samples = numerators / denominators  # Cauchy: heavy tails
    ranks = samples.argsort(0).argsort(0)
    quantiles = torch.special.ndtri((ranks + 0.5) / 999).double()
    assert torch.allclose(normal_scores(samples)(samples), quantiles, atol=1e-5)

    far = torch.sinh(torch.linspace(-25, 25, 20_001, dtype=torch.float64))
    scores = normal_scores(samples)(torch.stack([far, far], 1))
    assert (scores.diff(dim=0) > 0).all()
    ties = torch.tensor([[0.0], [0.0], [1.0]])
    assert normal_scores(ties)(far[:, None]).isfinite().all()


def info_nce(scores: torch.Tensor) -> torch.Tensor:
    """Of the ``[B, B]`` scores of a batch."""
    return bounds.info_nce(*bounds.pairs(scores))


def train_values(seed: int) -> tuple[float, ...]:
    """InfoNCE of three epochs of a fit of this seed; data and first weights are always the same."""
    torch.manual_seed(3)
    x, y = JointGaussian.correlated(0.5).sample(400, torch.Generator().manual_seed(0))
    critic = Separable(mlp([1, 8, 4]))
    return fit(critic, info_nce, x, y, batch=32, epochs=3, seed=seed).train


def test_fit_finds_most_of_a_gaussians_information_and_is_decided_by_its_seed():
    torch.manual_seed(1)
    gaussian = JointGaussian.correlated(0.9)
    x, y = gaussian.sample(4000, torch.Generator().manual_seed(0))
    critic = Separable(mlp([1, 32, 8]), mlp([1, 32, 8]))
    found = fit(critic, info_nce, x, y, batch=64, epochs=20, patience=8, learning_rate=3e-3)
    assert 0.75 * gaussian.mutual_information < found.value < gaussian.mutual_information + 0.08
    assert found.held_out[found.best] == max(found.held_out)

    of_seed_4 = train_values(4)
    assert train_values(4) == of_seed_4
    assert train_values(5) != of_seed_4


def test_fit_stops_and_returns_to_the_best_epoch():
    """Of independent x and y nothing can be learnt: training only memorises, and held-out pairs show it."""
    torch.manual_seed(2)
    x = torch.randn(600, 1)
    y = torch.randn(600, 1)
    critic = Separable(mlp([1, 64, 64, 8]), mlp([1, 64, 64, 8]))
    patience = 5
    found = fit(critic, info_nce, x, y, batch=32, epochs=200, patience=patience, learning_rate=1e-2)
    epochs = len(found.held_out)
    assert epochs == found.best + 1 + patience
    assert epochs < 200
    stop_rows = torch.randperm(600, generator=torch.Generator().manual_seed(0))[:120]  # the first of fit's three parts
    again = evaluate(critic, info_nce, x[stop_rows], y[stop_rows], 32)
    assert again == pytest.approx(found.held_out[found.best], abs=1e-6)
    assert found.value < 0.05


def test_fit_names_what_it_refuses():
    x = torch.randn(100, 1)
    for batch, held_out, message in (
        (64, 0.2, "x='100 rows': expected enough for a batch of 64"),
        (16, 0.5, "enough for a batch of 16 in each of the three parts"),
    ):
        with pytest.raises(ArgumentError, match=message):
            fit(Separable(mlp([1, 4])), info_nce, x, x, batch=batch, held_out=held_out)


def not_a_number(scores: torch.Tensor) -> torch.Tensor:
    """A bound that breaks."""
    return scores.sum() * math.nan


def test_a_bound_that_breaks_is_named():
    x = torch.randn(100, 1)
    with pytest.raises(NonFiniteLossError, match="became nan in epoch 0"):
        fit(Separable(mlp([1, 4])), not_a_number, x, x, batch=16)


class Watched(torch.nn.Module):
    """A critic that notes of each call whether it trains and whether gradients are recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(2)
        self.still = torch.nn.Dropout(0.5).eval()
        self.seen = []

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.seen.append((self.norm.training, torch.is_grad_enabled()))
        return self.norm(x) @ self.norm(y).T


def test_held_out_rows_are_scored_in_evaluation_mode_and_leave_no_trace() -> None:
    """Neither on statistics, nor on which parts train, nor on the running mean of the bound."""
    critic = Watched()
    mine = bounds.Mine()

    def bound(scores: torch.Tensor) -> torch.Tensor:
        return mine(*bounds.pairs(scores))

    x = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    evaluate(critic, bound, x, x, 16)
    assert critic.seen == [(False, False)] * 4
    assert int(critic.norm.num_batches_tracked) == 0
    assert (critic.training, critic.norm.training, critic.still.training) == (True, True, False)
    assert mine.log_mean is None


def test_a_region_that_moves_is_where_it_ends_and_its_bound_is_a_value() -> None:
    logits = torch.randn(3, 60, generator=torch.Generator().manual_seed(0))
    moving = Ring(Linear(5, 0), Linear(50, 10), k=None)
    still = Ring(0, 10, k=None)
    of_moving = vince(logits[:, 0], Candidates(logits), moving, seed=1)
    of_still = vince(logits[:, 0], Candidates(logits), still, seed=1)
    assert of_moving.value == of_still.value
    with pytest.raises(FrozenInstanceError):
        of_moving.value = torch.zeros(())


@pytest.mark.parametrize("labels", [[0, 1, 0, 1, 1, 1], [0, 0, 0, 0, 0, 0]])
def test_a_bound_needs_as_many_negatives_for_every_query_and_one_at_least(labels: list[int]) -> None:
    logits = torch.randn(2, 6, generator=torch.Generator().manual_seed(0))
    candidates = Candidates(logits, torch.tensor([0, 1]), torch.tensor(labels)[:, None])
    with pytest.raises(ArgumentError, match=r"region=OtherLabel\(\).* the same number of negatives, at least 1"):
        bounds.vince(logits.diagonal(), candidates, OtherLabel(), torch.Generator())
