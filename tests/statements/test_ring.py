"""Statements of *Conditional Negative Sampling*, one test per claim or counterexample."""

import math
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from draws import EXACT, SLACK, lively, many, one_by_one, problems, seeds, some, with_set
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from contrastbook import studies
from contrastlab import negatives, objectives, papers
from contrastlab.information import exact
from contrastlab.scores import candidates


@many
@given(problems(), st.integers(1, 4))
def test_equation_1(problem, k):
    value = exact.info_nce(problem.joint, problem.critic, k + 1)
    assert value <= min(problem.joint.mutual_information, math.log(k + 1)) + SLACK


@many
@given(problems(), st.integers(1, 4))
def test_theorem_3_1_below_information(problem, k):
    problem, q = with_set(problem)
    cnce = exact.contrastive(problem.joint, problem.critic, k, q, positive_in_denominator=False)
    middle = exact.unnormalised_barber_agakov(problem.joint, problem.critic, given="x")
    assert cnce <= middle + SLACK
    assert middle <= problem.joint.mutual_information + SLACK


@many
@given(problems(), st.integers(1, 4))
def test_theorem_3_1_in_one_form(problem, k):
    # for every pair, so in the mean, too; I − E[Z] grows, which is what "more biased" can mean where E_p[Z] is below I
    # (with the positive it is, by Eq. 1, so there the magnitude of the bias grows)
    problem, q = with_set(problem)
    for with_positive in (True, False):
        (nce, _), (cnce, _) = (
            exact.normalised_similarity(problem.joint, problem.critic, k, n, positive_in_denominator=with_positive)
            for n in (None, q)
        )
        assert (cnce <= nce + SLACK).all()


def two_step() -> tuple[exact.Joint, np.ndarray]:
    """Eight symbols and the optimal critic, so c(x) = 1: a partner, two symbols just above c, the rest below."""
    rest = (8 - 5.0 - 2 * 1.05) / 5
    first = np.array([5.0, 1.05, 1.05, rest, rest, rest, rest, rest])
    ratio = np.stack([np.roll(first, i) for i in range(8)])
    return exact.Joint.of(ratio / 8**2), np.log(ratio)


def test_with_the_positive_the_middle_step_fails():
    # p and f with one hard negative: the positive of the rare pair pulls the denominator below c
    joint, f = exact.Joint([[0.09, 0.01], [0.01, 0.89]]), np.array([[-10.0, 0.0], [0.0, 0.001]])
    log_c = exact.threshold(joint, f)
    region = np.array([[False, True], [False, True]])
    assert (f[region] > log_c).all()
    assert (math.exp(f[0, 0]) + math.exp(f[0, 1])) / 2 < 0.6 < math.exp(log_c[0])
    q = exact.restrict(joint, region)
    middle = exact.unnormalised_barber_agakov(joint, f, given="x")
    without, within = (exact.contrastive(joint, f, 1, q, positive_in_denominator=p) for p in (False, True))
    assert without <= middle < within - 0.04  # the printed form is below it, the form with the positive is not …
    assert within <= exact.info_nce(joint, f, 2)  # … and a bound all the same


def test_what_is_printed_of_nce_and_its_bias_fails_at_the_optimal_critic(stated):
    # optimal critic, c = 1, k = 1, the set is {1.05}: CNCE loses almost nothing, Eq. 1 is capped at log 2
    joint, critic = two_step()
    assert exact.threshold(joint, critic) == pytest.approx(0, abs=EXACT)
    region = np.isclose(critic, math.log(1.05))
    cnce = exact.contrastive(joint, critic, 1, exact.restrict(joint, region), positive_in_denominator=False)
    nce = exact.info_nce(joint, critic, 2)
    assert (critic[region] > 0).all()
    assert cnce == pytest.approx(joint.mutual_information - math.log(1.05), abs=EXACT)
    assert cnce > nce + 0.2
    stated("ring/theorem-3-1-nce", cnce=cnce, nce=nce)
    assert cnce <= joint.mutual_information
    value = exact.leave_one_out(joint, critic, 2)  # without the positive NCE is no bound …
    assert value > joint.mutual_information + 0.1
    stated("ring/section-4-u-100", value=value, information=joint.mutual_information)
    under_p, under_q = value - joint.mutual_information, cnce - joint.mutual_information  # … and more biased
    assert under_p > 0 > under_q
    assert abs(under_p) > abs(under_q)
    stated("ring/theorem-3-2-bias", under_p=under_p, under_q=under_q)


@many
@given(problems(), st.integers(2, 5))
def test_nce_without_the_positive_is_above_at_the_optimal_critic(problem, k):
    offset = problem.rng.standard_normal((len(problem.joint.x), 1))
    value = exact.leave_one_out(problem.joint, problem.joint.log_ratio + offset, k)
    assert value >= problem.joint.mutual_information - SLACK


@some
@given(problems(most=4), st.integers(1, 3), st.integers(2, 40))
def test_u_100_with_the_positive(problem, k, queue):
    # in the library the ring of 0–100 % is the whole queue, and the loss is that of a softmax over all of it …
    scores = torch.from_numpy(problem.rng.standard_normal((3, queue)))
    own = torch.from_numpy(problem.rng.standard_normal(3))
    draws = negatives.BatchRandom(torch.Generator().manual_seed(0))
    ring = negatives.Ring(inner=0, outer=100, k=None).select(candidates.Candidates(scores), draws, 0, 1)
    by_hand = torch.cat([own[:, None], scores], 1).softmax(1)[:, 0].log()
    assert torch.allclose(objectives.info_nce(own, ring.gather(scores)), -by_hand, rtol=0, atol=EXACT)
    # … and in expectation InfoNCE, summed here draw by draw
    everything = np.broadcast_to(problem.joint.y, problem.critic.shape)
    by_draws = one_by_one(problem.joint, problem.critic, k, everything)
    assert exact.info_nce(problem.joint, problem.critic, k + 1) == pytest.approx(by_draws, abs=1e-8)


@some
@given(seeds, st.integers(5, 200), st.sampled_from([0.1, 1.0, 5.0]))
def test_small_u_without_an_inner_edge(seed, items, scale):
    # ℓ = 0: some u > 0 leaves keys above c only, and the value is then a bound
    f = scale * np.random.default_rng(seed).standard_normal((1, items))
    joint = exact.Joint.independent([1.0], np.ones(items))
    ranked = np.sort(f[0])[::-1]
    hard = int((ranked > exact.threshold(joint, f)[0]).sum())
    assert hard >= 1
    region = f >= ranked[hard - 1]
    value = exact.contrastive(joint, f, 1, exact.restrict(joint, region), positive_in_denominator=False)
    assert value <= SLACK  # x is constant: there is no information


def test_small_u_below_c(stated):
    # one class in a hundred: a ring that skips the closest 1 % skips exactly what lifts c
    # (a view shows its class, or a random one a tenth of the time; the critic is the optimal one)
    joint = exact.Joint.of(0.1 / 100 + 0.9 * np.eye(100))
    critic = joint.log_ratio
    ranks = (-critic).argsort(axis=1, kind="stable").argsort(axis=1)
    log_c = exact.threshold(joint, critic)[:, None]
    assert (np.where(ranks < 1, critic, np.inf).min(1, keepdims=True) > log_c).all()  # u = 1 would do, if ℓ were 0
    for u in range(2, 101):
        ring = (ranks >= 1) & (ranks < u)
        assert (np.where(ring, critic, -np.inf).max(1, keepdims=True) < log_c).all()  # no negative is above c
    ring = (ranks >= 1) & (ranks < 10)
    q = exact.restrict(joint, ring)
    cnce = exact.contrastive(joint, critic, 1, q, positive_in_denominator=False)
    assert cnce > joint.mutual_information + 1
    # with the positive too: harder negatives would lower the value, these raise it
    assert exact.contrastive(joint, critic, 1, q) > exact.info_nce(joint, critic, 2)
    stated("ring/section-4-small-u", over=cnce - joint.mutual_information)


def test_keys_below_an_upper_threshold_break_the_bound(stated):
    # X is constant; 1,000 keys with q·k evenly on [−1, 1], τ = 0.07
    f = np.linspace(-1, 1, 1000)[None] / 0.07
    joint, far, near = exact.Joint.independent([1.0], np.ones(1000)), *np.quantile(f, [0.1, 0.9])
    regions = (
        f < near,
        f < far,
        f > near,
    )  # B = [0, ω_u); below the tenth percentile; the closest tenth, which is meant
    laws = (exact.restrict(joint, region) for region in regions)
    ball, ignored, meant = (exact.contrastive(joint, f, 1, law, positive_in_denominator=False) for law in laws)
    assert meant < 0 < ball < ignored
    stated("ring/section-4-lower-threshold", value=ball)
    stated("ring/section-4-ignored", value=ignored, meant=meant)


@many
@given(problems(), st.floats(0, 1), st.floats(0, 1), st.integers(1, 3))
def test_example_3_1(problem, low, high, k):
    # two thresholds anywhere between c and the largest e^f, whatever keys there are between them
    problem = lively(problem)
    log_c = exact.threshold(problem.joint, problem.critic)
    top = problem.critic.max(1)
    omega_l = log_c + (0.999 * low + 1e-6) * (top - log_c)
    omega_u = omega_l + (high + 1e-9) * (top - omega_l)
    region = (problem.critic >= omega_l[:, None]) & (problem.critic <= omega_u[:, None])
    region = np.where(region.any(1, keepdims=True), region, problem.critic == top[:, None])  # p(S_B) > 0
    q = exact.restrict(problem.joint, region)
    value = exact.contrastive(problem.joint, problem.critic, k, q, positive_in_denominator=False)
    assert value <= problem.joint.mutual_information + SLACK


def test_arbitrary_negatives_break_the_bound(stated):
    # X tells nothing of Y; negatives are always the symbol scored lowest
    joint = exact.Joint.independent([0.5, 0.5], [0.5, 0.5])
    critic = np.array([[3.0, -3.0], [3.0, -3.0]])
    worst = np.array([[0.0, 1.0], [0.0, 1.0]])
    assert joint.mutual_information == pytest.approx(0, abs=1e-12)
    for with_positive in (True, False):
        value = exact.contrastive(joint, critic, 4, worst, positive_in_denominator=with_positive)
        assert value > 0.5
        if with_positive:
            stated("ring/footnote-1", value=value)


def moments(p: np.ndarray, g: np.ndarray, k: int) -> tuple[float, float]:
    """Mean and variance of −log of the mean of k draws of g under p, by enumeration."""
    drawn = np.array(list(product(range(len(g)), repeat=k)))
    weight, z = p[drawn].prod(1), -np.log(g[drawn].mean(1))
    mean = float(weight @ z)
    return mean, float(weight @ (z - mean) ** 2)


@many
@given(seeds, st.integers(2, 5), st.sampled_from([0.5, 2.0, 5.0]))
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
@given(seeds, st.integers(2, 4), st.integers(2, 3))
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


def test_theorem_3_2_variance_as_printed(stated):
    # k = 2. Both hypotheses hold: the set {1.1, 10} lies above c = 1.06, and its variance below its complement's.
    # The hypothesis says nothing of mixed draws, in which a symbol near 1 dilutes the rare 10.
    p, g = np.array([0.02, 0.625, 0.35, 0.005]), np.array([0.001, 1.0, 1.1, 10.0])
    region = g > p @ g
    assert region.tolist() == [False, False, True, True]
    inside, outside = (p * part / (p @ part) for part in (region, ~region))
    variances = [moments(law, g, 2)[1] for law in (inside, outside, p)]
    assert variances[0] <= variances[1]
    assert variances[2] < 0.95 * variances[0]
    stated("ring/theorem-3-2-variance", less=1 - variances[2] / variances[0])


def algorithm_1(tx1, tx2, emb1, queue, t, u, l):  # noqa: E741
    """The lines of the listing between the encoders and ``loss.backward()``, as printed; and the kept logits."""
    dps = (tx1 * tx2).sum(1) / t
    all_dps = (emb1 @ queue.T / t).sort().values
    ix_l = int(l * len(queue))
    ix_u = int(u * len(queue))
    ring_dps = all_dps[:, :ix_l:ix_u]
    return -dps + ring_dps.logsumexp(1), ring_dps


def test_algorithm_1_as_printed(stated):
    generator = torch.Generator().manual_seed(0)
    queue, emb1, emb2 = (torch.randn(n, 16, generator=generator, dtype=torch.float64) for n in (1000, 4, 4))
    queue, emb1, emb2 = (torch.nn.functional.normalize(x, dim=1) for x in (queue, emb1, emb1 + 0.3 * emb2))
    images = torch.rand(2, 4, 48, generator=generator, dtype=torch.float64)
    loss, kept = algorithm_1(*images, emb1, queue, 0.07, 0.10, 0.01)
    scores = emb1 @ queue.T / 0.07
    assert kept.shape == (4, 1)
    assert torch.equal(kept[:, 0], scores.amin(1))  # the least similar key of all
    ring = negatives.Ring(inner=1, outer=10, k=None)
    draws = negatives.BatchRandom(torch.Generator().manual_seed(0))
    meant = ring.select(candidates.Candidates(scores), draws, 0, 1).gather(scores)
    right = objectives.info_nce((emb1 * emb2).sum(1) / 0.07, meant)
    assert (right >= 0).all()
    assert (loss < -50).all()  # no minus logarithm of a probability
    sizes = {"kept": kept.shape[1], "meant": meant.shape[1]}
    stated("ring/algorithm-1", **sizes, listed=loss.mean(), right=right.mean())


@some
@given(seeds, st.sampled_from([200, 1000]))
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


def test_traffic_signs_are_copied_at_random_and_not_by_track(stated):
    # percent of test frames of each split whose nearest training pixels have their label, as measured and stored
    (path,) = (Path(__file__).parents[2] / "results" / "trafficsign_leak").glob("*.json")
    right = {row["data"]: float(row["1-NN, euclidean"]) for row in studies.read(path).rows}
    at_random, by_track, official = (right[name] for name in ("trafficsign", "trafficsign_tracks", "gtsrb32"))
    frame = papers.published("ring", 3)
    printed = frame[(frame["column"] == "TrafficSign") & ~frame["row"].str.contains("minus")]["value"]
    least, most = float(printed.min()), float(printed.max())
    assert at_random > max(90, least - 1)
    assert max(by_track, official) < 50
    stated("ring/traffic-signs", at_random=at_random, by_track=by_track, official=official, least=least, most=most)


def multiplications(work: Callable[[], torch.Tensor]) -> tuple[int, torch.Tensor]:
    with FlopCounterMode(display=False) as counter:
        out = work()
    return counter.get_total_flops() // 2, out  # a multiplication and an addition


def test_multiplications_of_a_ring_are_counted(stated):
    generator = torch.Generator().manual_seed(0)
    q, bank, queue = (torch.randn(n, 128, generator=generator, dtype=torch.float64) for n in (32, 5000, 8192))
    drawn = torch.randint(5000, (32, 512), generator=generator)

    def ir():
        return torch.bmm(bank[drawn], q[:, :, None]).squeeze(2)

    def iring():  # ranks from 1 to 10 %, and as many draws of them
        ranked = (q @ bank.T).sort(1, descending=True).values[:, 50:500]
        return ranked.gather(1, drawn % 450)

    def moco():
        return q @ queue.T

    def mocoring():  # Algorithm 1 as meant
        return (q @ queue.T).sort(1, descending=True).values[:, 82:819]

    counted, scores = {}, {}
    for work in (ir, iring, moco, mocoring):
        counted[work.__name__], scores[work.__name__] = multiplications(work)
    assert counted["mocoring"] == counted["moco"] == 32 * 8192 * 128
    assert counted["iring"] == 32 * 5000 * 128 > counted["ir"] == 32 * 512 * 128
    assert scores["iring"].shape == scores["ir"].shape
    least, most = scores["mocoring"].min(1).values, scores["mocoring"].max(1).values
    closer = (scores["moco"] > most[:, None]).sum(1)
    farther = (scores["moco"] < least[:, None]).sum(1)
    assert set(closer.tolist()) == {82}  # finding these ranks is what Ring adds
    assert set(farther.tolist()) == {8192 - 819}
    cost = papers.published("ring", "5a").pivot_table(index="row", columns="column", values="value")
    more = {ours: cost.loc[ours] / cost.loc[base] for ours, base in (("IRing", "IR"), ("MoCoRing", "MoCo"))}
    largest = max(more, key=lambda ours: more[ours].max())
    assert largest == "MoCoRing"
    assert more[largest].idxmax().startswith("CIFAR10")
    stated("ring/one-multiplication", **counted, ratio=more[largest].max())
