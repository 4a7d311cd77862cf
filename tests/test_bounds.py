"""Bounds on samples against their exact expectations and their twins."""

import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch

from contrastlab.information import bounds, exact
from contrastlab.information.critics import Concatenated, Separable, evaluate, fit, mlp, normal_scores
from contrastlab.information.toys import JointGaussian
from contrastlab.negatives import Ball, Every, OtherLabel, Ring, Uniform
from contrastlab.scores import divergences
from contrastlab.scores.candidates import Candidates
from contrastlab.scores.schedules import Linear
from contrastlab.support.errors import ArgumentError, NonFiniteLossError

JOINT = exact.Joint.of([[0.30, 0.05, 0.02], [0.05, 0.20, 0.03], [0.02, 0.08, 0.25]])
CRITIC = JOINT.log_ratio * 0.7 + np.array([[0.2], [-0.1], [0.4]])
COUNT = 200_000


def draw(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scores of pairs, of seven negatives each, of independent pairs."""
    rng = np.random.default_rng(seed)
    pair = rng.choice(9, size=COUNT, p=JOINT.table.ravel())
    x, y = pair // 3, pair % 3
    others = rng.choice(3, size=(COUNT, 7), p=JOINT.y)
    free = rng.choice(3, size=COUNT, p=JOINT.x), rng.choice(3, size=COUNT, p=JOINT.y)
    as_tensor = torch.from_numpy
    return as_tensor(CRITIC[x, y]), as_tensor(CRITIC[x[:, None], others]), as_tensor(CRITIC[free])


def close(samples: torch.Tensor, value: torch.Tensor | float, truth: float) -> None:
    assert abs(float(value) - truth) < 4 * float(samples.std()) / math.sqrt(COUNT) + 1e-3


def test_every_estimator_meets_its_exact_expectation():
    positives, negatives, free = draw()
    close(positives, bounds.nwj(positives, free), exact.nwj(JOINT, CRITIC))
    close(positives, bounds.donsker_varadhan(positives, free), exact.donsker_varadhan(JOINT, CRITIC))
    close(positives, bounds.info_nce(positives, negatives), exact.info_nce(JOINT, CRITIC, 8))
    close(positives, bounds.leave_one_out(positives, negatives), exact.leave_one_out(JOINT, CRITIC, 8))
    for name in ("kl", "js", "pearson", "vincze_le_cam"):
        divergence = divergences.get(name)
        truth = exact.f_information(JOINT, divergence.derivative(torch.from_numpy(CRITIC)).numpy(), divergence)
        scores = divergence.derivative(positives), divergence.derivative(free)
        close(positives.exp(), bounds.f_information(*scores, divergence), truth)


def test_pairs_splits_a_batch_and_info_nce_never_exceeds_log_k():
    positives, negatives = bounds.pairs(torch.arange(16.0).view(4, 4))
    assert positives.tolist() == [0, 5, 10, 15]
    assert negatives.tolist() == [[1, 2, 3], [4, 6, 7], [8, 9, 11], [12, 13, 14]]
    positives, negatives = torch.full((5,), 1e4), torch.full((5, 7), -1e4)
    assert float(bounds.info_nce(positives, negatives)) == pytest.approx(math.log(8))
    assert float(bounds.leave_one_out(positives, negatives)) == pytest.approx(2e4)


@pytest.mark.parametrize("shape", [(3,), (1, 1), (2, 3), (3, 2), (2, 2, 2)])
def test_pairs_refuses_what_is_no_square_of_scores(shape: tuple[int, ...]) -> None:
    with pytest.raises(ArgumentError, match="expected a square tensor of at least 2 × 2"):
        bounds.pairs(torch.zeros(shape))


@pytest.mark.parametrize(("rate", "before"), [(0.25, 0.7), (1, 3.0), (0.25, None)])  # the batch alone; the first
def test_mine_has_the_value_of_dv_and_the_gradient_of_its_running_mean(rate, before):
    generator = torch.Generator().manual_seed(0)
    positives, free = (torch.randn(n, generator=generator, dtype=torch.float64, requires_grad=True) for n in (6, 9))
    mine = bounds.Mine(rate=rate, log_mean=before)
    value = mine(positives, free)
    assert value.item() == pytest.approx(bounds.donsker_varadhan(positives, free).item(), abs=1e-12)
    newest = free.exp().mean().item()
    running = newest if before is None else (1 - rate) * math.exp(before) + rate * newest
    assert mine.log_mean == pytest.approx(math.log(running), abs=1e-6)
    value.backward()
    assert torch.allclose(positives.grad, torch.full((6,), 1 / 6, dtype=torch.float64))
    assert torch.allclose(free.grad, -(free.detach().exp() / 9) / running, atol=1e-6)


def bank(queries: int = 6, keys: int = 200) -> tuple[torch.Tensor, Candidates]:
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(queries, keys, generator=generator, dtype=torch.float64)
    own = torch.arange(queries)
    return logits[own, own], Candidates(logits, own)


@pytest.mark.parametrize("region", [Ball(outer=10, k=16), Ring(inner=1, outer=10, k=16), Uniform(k=16), Every()])
def test_vince_and_cnce_are_the_two_forms_on_the_same_draws(region):
    positives, candidates = bank()
    vince = bounds.vince(positives, candidates, region, torch.Generator().manual_seed(3))
    cnce = bounds.cnce(positives, candidates, region, torch.Generator().manual_seed(3))
    assert torch.equal(vince.negatives, cnce.negatives)
    k = vince.negatives.shape[1]
    both = torch.cat([positives[:, None], vince.negatives], 1).exp().mean(1)
    assert float(vince.value) == pytest.approx(float((positives - both.log()).mean()), abs=1e-12)
    alone = vince.negatives.exp().mean(1)
    assert float(cnce.value) == pytest.approx(float((positives - alone.log()).mean()), abs=1e-12)
    assert float(vince.value) <= math.log(k + 1)


@pytest.mark.parametrize("region", [Ball(outer=100, k=16), Ring(inner=20, outer=100, k=16), Every()])
def test_scores_are_left_as_they_are_and_positives_may_be_a_view_of_them(region):
    _, candidates = bank(keys=6)
    before = candidates.logits.clone()
    value = bounds.vince(candidates.logits.diagonal(), candidates, region, torch.Generator().manual_seed(3)).value
    assert torch.equal(candidates.logits, before)
    copied = bounds.vince(before.diagonal().clone(), candidates, region, torch.Generator().manual_seed(3)).value
    assert torch.equal(value, copied)
    assert bool(value.isfinite())


def test_the_hypothesis_is_watched_whatever_own_and_banned_keys_score():
    positives, candidates = bank(keys=400)
    others = candidates.logits.clone()
    others[torch.arange(6), torch.arange(6)] = -math.inf
    log_c = others.exp().sum(1).log() - math.log(399)
    ball = bounds.vince(positives, candidates, Ball(outer=5, k=8), torch.Generator().manual_seed(0))
    assert torch.equal(ball.holds, ball.negatives.min(1).values > log_c)
    assert ball.share == 1  # Gaussian scores of unit variance: the closest 5 % lie above the mean of their exponentials
    half = bounds.vince(positives, candidates, Ring(inner=1, outer=90, k=64), torch.Generator().manual_seed(0))
    assert half.share == 0
    raised = candidates.logits.clone()
    raised[torch.arange(6), torch.arange(6)] += 10  # with it the mean of the exponentials is above every other score
    high = Candidates(raised, candidates.own)
    high = bounds.vince(positives + 10, high, Ball(outer=5, k=8), torch.Generator().manual_seed(0))
    assert torch.equal(high.negatives, ball.negatives)
    assert high.share == 1
    logits = candidates.logits.clone()
    logits[:, 399] = 30.0  # would lift the mean of the exponentials above everything
    banned = Candidates(logits, candidates.own, banned=torch.full((6, 1), 399))
    assert bounds.vince(positives, banned, Ball(outer=5, k=8), torch.Generator().manual_seed(0)).share == 1


@pytest.mark.parametrize("kind", ["separable", "shared", "sphere", "joint"])
def test_critics_score_every_pair(kind):
    torch.manual_seed(0)
    g, h = (mlp([2, 16, 8]) for _ in range(2))
    sphere = Separable(g, h, temperature=0.1, normalise=True)
    joint = Concatenated(torch.nn.Linear(2, 16), torch.nn.Linear(2, 16, bias=False), mlp([16, 8, 1]))
    others = {"shared": Separable(g), "sphere": sphere, "joint": joint}
    critic = others.get(kind, Separable(g, h, temperature=0.5))
    x, y = torch.randn(5, 2), torch.randn(7, 2)
    scores = critic(x, y)
    assert scores.shape == (5, 7)
    # each entry depends on its own pair only
    one_by_one = torch.stack([torch.cat([critic(x[i : i + 1], y[j : j + 1])[0] for j in range(7)]) for i in range(5)])
    assert torch.allclose(scores, one_by_one, atol=1e-5)
    if kind == "sphere":
        assert scores.abs().max().item() <= 10 + 1e-4
    if kind == "joint":  # the network of x and y side by side
        first = torch.nn.Linear(4, 16)
        first.weight.data, first.bias.data = torch.cat([joint.g.weight, joint.h.weight], 1).data, joint.g.bias.data
        both = torch.cat([x[:, None].expand(5, 7, 2), y[None].expand(5, 7, 2)], 2)
        assert torch.allclose(scores, torch.nn.Sequential(first, torch.nn.ReLU(), joint.top)(both)[..., 0], atol=1e-5)


def test_normal_scores_are_increasing_and_give_normal_coordinates():
    generator = torch.Generator().manual_seed(0)
    samples = torch.randn(999, 2, generator=generator) / torch.randn(999, 2, generator=generator).abs()  # heavy tails
    ranks = samples.argsort(0).argsort(0)
    assert torch.allclose(normal_scores(samples)(samples), torch.special.ndtri((ranks + 0.5) / 999).double(), atol=1e-5)
    line = torch.sinh(torch.linspace(-25, 25, 20_001, dtype=torch.float64))[:, None].repeat(1, 2)
    assert (normal_scores(samples)(line).diff(dim=0) > 0).all()  # beyond the samples, too
    assert normal_scores(torch.tensor([[0.0], [0.0], [1.0]]))(line[:, :1]).isfinite().all()


def info_nce(scores: torch.Tensor) -> torch.Tensor:
    return bounds.info_nce(*bounds.pairs(scores))


def test_fit_finds_most_of_a_gaussians_information_and_is_decided_by_its_seed():
    torch.manual_seed(1)
    gaussian = JointGaussian.correlated(0.9)
    x, y = gaussian.sample(4000, torch.Generator().manual_seed(0))
    critic = Separable(mlp([1, 32, 8]), mlp([1, 32, 8]))
    found = fit(critic, info_nce, x, y, batch=64, epochs=20, patience=8, learning_rate=3e-3)
    assert 0.75 * gaussian.mutual_information < found.value < gaussian.mutual_information + 0.08
    assert found.held_out[found.best] == max(found.held_out)

    def run(seed: int) -> tuple[float, ...]:
        torch.manual_seed(3)
        x, y = JointGaussian.correlated(0.5).sample(400, torch.Generator().manual_seed(0))
        return fit(Separable(mlp([1, 8, 4])), info_nce, x, y, batch=32, epochs=3, seed=seed).train

    assert run(4) == run(4) != run(5)


def test_fit_stops_and_returns_to_the_best_epoch():
    torch.manual_seed(2)
    x, y = torch.randn(600, 1), torch.randn(600, 1)  # independent: training only memorises
    critic = Separable(mlp([1, 64, 64, 8]), mlp([1, 64, 64, 8]))
    found = fit(critic, info_nce, x, y, batch=32, epochs=200, patience=5, learning_rate=1e-2)
    assert len(found.held_out) == found.best + 6 < 200
    generator = torch.Generator().manual_seed(0)
    stop = torch.randperm(600, generator=generator)[:120]
    assert evaluate(critic, info_nce, x[stop], y[stop], 32) == pytest.approx(found.held_out[found.best], abs=1e-6)
    assert found.value < 0.05


def test_fit_names_what_it_refuses():
    x = torch.randn(100, 1)
    for batch, held_out, message in (
        (64, 0.2, "x='100 rows': expected enough for a batch of 64"),
        (16, 0.5, "enough for a batch of 16 in each of the three parts"),
    ):
        with pytest.raises(ArgumentError, match=message):
            fit(Separable(mlp([1, 4])), info_nce, x, x, batch=batch, held_out=held_out)


def test_a_bound_that_breaks_is_named():
    x = torch.randn(100, 1)
    with pytest.raises(NonFiniteLossError, match="became nan in epoch 0"):
        fit(Separable(mlp([1, 4])), lambda s: s.sum() * math.nan, x, x, batch=16)


def test_held_out_rows_are_scored_in_evaluation_mode_and_leave_no_trace() -> None:
    class Watched(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.still, self.seen = torch.nn.BatchNorm1d(2), torch.nn.Dropout(0.5).eval(), []

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            self.seen.append((self.norm.training, torch.is_grad_enabled()))
            return self.norm(x) @ self.norm(y).T

    critic, mine = Watched(), bounds.Mine()
    x = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    evaluate(critic, lambda scores: mine(*bounds.pairs(scores)), x, x, 16)
    assert critic.seen == [(False, False)] * 4
    assert int(critic.norm.num_batches_tracked) == 0
    assert (critic.training, critic.norm.training, critic.still.training) == (True, True, False)
    assert mine.log_mean is None


def test_a_region_that_moves_is_where_it_ends_and_its_bound_is_a_value() -> None:
    logits = torch.randn(3, 60, generator=torch.Generator().manual_seed(0))
    moving, still = (Ring(inner, outer, k=None) for inner, outer in ((Linear(5, 0), Linear(50, 10)), (0, 10)))
    values = [
        bounds.vince(logits[:, 0], Candidates(logits), region, torch.Generator().manual_seed(1))
        for region in (moving, still)
    ]
    assert values[0].value == values[1].value
    with pytest.raises(FrozenInstanceError):
        values[0].value = torch.zeros(())


@pytest.mark.parametrize("labels", [[0, 1, 0, 1, 1, 1], [0, 0, 0, 0, 0, 0]])
def test_a_bound_needs_as_many_negatives_for_every_query_and_one_at_least(labels: list[int]) -> None:
    logits = torch.randn(2, 6, generator=torch.Generator().manual_seed(0))
    candidates = Candidates(logits, torch.tensor([0, 1]), torch.tensor(labels)[:, None])
    with pytest.raises(ArgumentError, match=r"region=OtherLabel\(\).* the same number of negatives, at least 1"):
        bounds.vince(logits.diagonal(), candidates, OtherLabel(), torch.Generator())
