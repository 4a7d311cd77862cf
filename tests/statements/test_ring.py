"""Statements of *Conditional Negative Sampling*, one test per claim or counterexample."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch
from draws import above, lively, many, problems, some
from hypothesis import given
from hypothesis import strategies as st

from contrastlab import candidates, negatives, objectives, papers
from contrastlab.theory import exact

EXACT = 1e-10
SLACK = 1e-9


@many
@given(problems(), st.integers(1, 4))
def test_equation_1(problem, k):
    value = exact.info_nce(problem.joint, problem.critic, k + 1)
    assert value <= min(problem.joint.mutual_information, math.log(k + 1)) + SLACK


@many
@given(problems(), st.integers(1, 4))
def test_theorem_3_1_below_information(problem, k):
    problem = lively(problem)
    q = exact.restrict(problem.joint, above(problem))
    cnce = exact.contrastive(problem.joint, problem.critic, k, q, positive_in_denominator=False)
    middle = exact.unnormalised_barber_agakov(problem.joint, problem.critic, given="x")
    assert cnce <= middle + SLACK
    assert middle <= problem.joint.mutual_information + SLACK


@many
@given(problems(), st.integers(1, 4))
def test_theorem_3_1_in_one_form(problem, k):
    problem = lively(problem)
    q = exact.restrict(problem.joint, above(problem))
    for with_positive in (True, False):
        nce, cnce = (
            exact.contrastive(problem.joint, problem.critic, k, negatives, positive_in_denominator=with_positive)
            for negatives in (None, q)
        )
        assert cnce <= nce + SLACK


def two_step() -> tuple[exact.Joint, np.ndarray]:
    """Eight symbols and the optimal critic, so c(x) = 1: a partner, two symbols just above c, the rest below."""
    n = 8
    ratio = np.full((n, n), 0.0)
    for i in range(n):
        ratio[i, i] = 5.0  # the partner
        ratio[i, (i + 1) % n] = ratio[i, (i + 2) % n] = 1.05  # the set
    rest = (n - ratio.sum(1)[0]) / (n - 3)
    ratio[ratio == 0] = rest
    return exact.Joint.of(ratio / n**2), np.log(ratio)


def test_theorem_3_1_as_printed():
    # optimal critic, c = 1, k = 1, the set is {1.05}: CNCE loses almost nothing, Eq. 1 is capped at log 2
    joint, critic = two_step()
    assert exact.threshold(joint, critic) == pytest.approx(0, abs=EXACT)
    region = np.isclose(critic, math.log(1.05))
    q = exact.restrict(joint, region)
    cnce = exact.contrastive(joint, critic, 1, q, positive_in_denominator=False)
    nce = exact.info_nce(joint, critic, 2)
    assert (critic[region] > 0).all()
    assert cnce == pytest.approx(joint.mutual_information - math.log(1.05), abs=EXACT)
    assert cnce > nce + 0.2
    assert cnce <= joint.mutual_information


def test_nce_without_the_positive_is_no_bound():
    joint, critic = two_step()
    value = exact.leave_one_out(joint, critic, 2)
    assert value > joint.mutual_information + 0.1


@many
@given(problems(), st.integers(2, 5))
def test_nce_without_the_positive_is_above_at_the_optimal_critic(problem, k):
    offset = problem.rng.standard_normal((len(problem.joint.x), 1))
    value = exact.leave_one_out(problem.joint, problem.joint.log_ratio + offset, k)
    assert value >= problem.joint.mutual_information - SLACK


@some
@given(problems(), st.integers(1, 4))
def test_u_100_with_the_positive(problem, k):
    everything = exact.restrict(problem.joint, np.ones(problem.critic.shape, dtype=bool))
    value = exact.contrastive(problem.joint, problem.critic, k, everything)
    assert value == pytest.approx(exact.info_nce(problem.joint, problem.critic, k + 1), abs=EXACT)


def test_small_u_below_c():
    # one class in a hundred: a ring that skips the closest 1 % skips exactly what lifts c
    # (a view shows its class, or a random one a tenth of the time; the critic is the optimal one)
    joint = exact.Joint.of(0.1 / 100 + 0.9 * np.eye(100))
    critic = joint.log_ratio
    ranks = (-critic).argsort(axis=1, kind="stable").argsort(axis=1)
    ring = (ranks >= 1) & (ranks < 10)
    log_c = exact.threshold(joint, critic)[:, None]
    assert (critic.max(1, keepdims=True) > log_c).all()  # the upper similarity threshold is above c …
    assert (critic[ring] < 0).all()  # … and no negative is: the ring is easier than a random draw
    q = exact.restrict(joint, ring)
    cnce = exact.contrastive(joint, critic, 1, q, positive_in_denominator=False)
    assert cnce > joint.mutual_information + 1
    # with the positive too: harder negatives would lower the value, these raise it
    assert exact.contrastive(joint, critic, 1, q) > exact.info_nce(joint, critic, 2)


@many
@given(problems(), st.floats(0, 1), st.integers(1, 3))
def test_example_3_1(problem, share, k):
    problem = lively(problem)
    f = problem.critic
    region = above(problem)
    lowest = np.where(region, f, np.inf).min(1, keepdims=True)
    ring = (f >= lowest) & (f <= lowest + share * (f.max(1, keepdims=True) - lowest))
    assert (np.where(ring, f, np.inf).min(1) > exact.threshold(problem.joint, f)).all()
    q = exact.restrict(problem.joint, ring)
    value = exact.contrastive(problem.joint, f, k, q, positive_in_denominator=False)
    assert value <= problem.joint.mutual_information + SLACK


def test_arbitrary_negatives_break_the_bound():
    # X tells nothing of Y; negatives are always the symbol scored lowest
    joint = exact.Joint.independent([0.5, 0.5], [0.5, 0.5])
    critic = np.array([[3.0, -3.0], [3.0, -3.0]])
    worst = np.array([[0.0, 1.0], [0.0, 1.0]])
    assert joint.mutual_information == pytest.approx(0, abs=1e-12)
    for with_positive in (True, False):
        value = exact.contrastive(joint, critic, 4, worst, positive_in_denominator=with_positive)
        assert value > 0.5


def moments(p: np.ndarray, g: np.ndarray, k: int) -> tuple[float, float]:
    """Mean and variance of −log of the mean of k draws of g under p, by enumeration."""
    drawn = np.array(list(product(range(len(g)), repeat=k)))
    weight, z = p[drawn].prod(1), -np.log(g[drawn].mean(1))
    mean = float(weight @ z)
    return mean, float(weight @ (z - mean) ** 2)


@many
@given(problems(), st.integers(1, 4))
def test_theorem_3_2_bias_as_a_deficit(problem, k):
    # I − E[Z] grows; which is what "more biased" can mean where E_p[Z] is itself below I
    problem = lively(problem)
    q = exact.restrict(problem.joint, above(problem))
    without, _ = exact.normalised_similarity(problem.joint, problem.critic, k, positive_in_denominator=False)
    within, _ = exact.normalised_similarity(problem.joint, problem.critic, k, q, positive_in_denominator=False)
    assert (within <= without + SLACK).all()


def test_theorem_3_2_bias_as_printed():
    joint, critic = two_step()
    q = exact.restrict(joint, np.isclose(critic, math.log(1.05)))
    under_p, under_q = (
        exact.contrastive(joint, critic, 1, n, positive_in_denominator=False) - joint.mutual_information
        for n in (None, q)
    )
    assert under_p > 0 > under_q
    assert abs(under_p) > abs(under_q)


@many
@given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.sampled_from([0.5, 2.0, 5.0]))
def test_theorem_3_2_variance_of_one_draw(seed, symbols, spread):
    rng = np.random.default_rng(seed)
    p, g = rng.dirichlet(np.ones(symbols)), np.exp(spread * rng.standard_normal(symbols))
    region = g > p @ g
    if region.all() or not region.any():
        return
    inside, outside = (p * part / (p @ part) for part in (region, ~region))
    if moments(inside, g, 1)[1] <= moments(outside, g, 1)[1]:
        assert moments(p, g, 1)[1] >= moments(inside, g, 1)[1] - SLACK


@some
@given(st.integers(0, 2**32 - 1), st.integers(2, 4), st.integers(2, 3))
def test_theorem_3_2_variance_against_the_other_event(seed, symbols, k):
    # q̃ as the law of the k draws given that not all of them lie in the set: total variance over two events
    rng = np.random.default_rng(seed)
    p, g = rng.dirichlet(np.ones(symbols)), np.exp(2 * rng.standard_normal(symbols))
    region = g > p @ g
    drawn = np.array(list(product(range(symbols), repeat=k)))
    weight, z = p[drawn].prod(1), -np.log(g[drawn].mean(1))
    event = region[drawn].all(1)

    def variance(w: np.ndarray) -> float:
        w = w / w.sum()
        return float(w @ (z - w @ z) ** 2)

    if event.any() and variance(weight * event) <= variance(weight * ~event):
        assert variance(weight) >= variance(weight * event) - SLACK


def test_theorem_3_2_variance_as_printed():
    # k = 2. Both hypotheses hold: the set {1.1, 10} lies above c = 1.06, and its variance below its complement's.
    # The hypothesis says nothing of mixed draws, in which a symbol near 1 dilutes the rare 10.
    p, g = np.array([0.02, 0.625, 0.35, 0.005]), np.array([0.001, 1.0, 1.1, 10.0])
    region = g > p @ g
    assert region.tolist() == [False, False, True, True]
    inside, outside = (p * part / (p @ part) for part in (region, ~region))
    variances = [moments(law, g, 2)[1] for law in (inside, outside, p)]
    assert variances[0] <= variances[1]
    assert variances[2] < 0.95 * variances[0]


def algorithm_1(queue: int, inner: float, outer: float) -> list[int]:
    """Ranks that the printed slice ``all_dps[:ix_l:ix_u]`` takes of a sorted queue."""
    return list(range(queue))[: int(inner * queue) : int(outer * queue)]


def test_algorithm_1_as_printed():
    # start:stop:step reads as stop:step: of the ranks 10 … 99 of a queue of 1,000 only the closest key is left
    assert algorithm_1(1000, 0.01, 0.10) == [0]
    # torch sorts ascending, so "closest to farthest" has the farthest first
    scores = torch.tensor([0.1, 0.9, 0.5])
    assert scores.sort().values[0] == scores.min()
    # and without the positive in the denominator the loss is negative for a good query: no minus log of a probability
    own, others = torch.tensor([5.0]), torch.tensor([[0.0, 0.0]])
    assert float(objectives.info_nce(own, others, positive_in_denominator=False)) < 0


@some
@given(st.integers(0, 2**32 - 1), st.sampled_from([200, 1000]))
def test_algorithm_1_by_ranks(seed, queue):
    scores = torch.randn(2, queue, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    own = torch.randn(2, generator=torch.Generator().manual_seed(seed + 1), dtype=torch.float64)
    ring = negatives.Ring(inner=1, outer=10, k=None)
    draws = negatives.BatchRandom(torch.Generator().manual_seed(0))
    chosen = ring.select(candidates.Candidates(scores), draws, 0, 1).gather(scores)
    ranked = scores.sort(1, descending=True).values[:, queue // 100 : queue // 10]
    assert torch.equal(chosen.sort(1, descending=True).values, ranked)
    loss = objectives.info_nce(own, chosen)
    by_hand = torch.logsumexp(torch.cat([own[:, None], ranked], 1), 1) - own
    assert torch.allclose(loss, by_hand, rtol=0, atol=EXACT)
    assert (loss >= 0).all()


def differences(table: str, pairs: list[tuple[str, str]]) -> dict[tuple[str, str], float]:
    """(column or row, base) → published ring row minus its base."""
    frame = papers.published("ring", table)
    out = {}
    for ring, base in pairs:
        for dataset in frame["column"].unique():
            cell = {r: frame[(frame["row"] == r) & (frame["column"] == dataset)]["value"] for r in (ring, base)}
            if all(len(v) for v in cell.values()):
                out[ring, dataset] = round(cell[ring].item() - cell[base].item(), 6)
    return out


PAIRS = [("IRing", "IR"), ("CMCRing", "CMC"), ("MoCoRing", "MoCo")]


def test_every_model_and_dataset_but_one():
    gains = differences("1", PAIRS)
    assert len(gains) == 12
    assert sum(gain > 0 for gain in gains.values()) == 11


def test_every_model_and_every_dataset_as_printed():
    assert differences("1", PAIRS)["CMCRing", "CIFAR100"] == 0
