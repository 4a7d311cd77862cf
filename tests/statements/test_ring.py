"""Statements of *Conditional Negative Sampling*, one test per claim or counterexample.

Each test opens with the statement that it checks, and the verdict where that is not "holds". A problem is finite: a
joint distribution p(x, y) of n × m symbols and a critic f(x, y), both ``[n, m]``, so that every expectation is a sum.
For a pair and k negatives, Z is f less the log of the mean of exp f. NCE is E[Z] with negatives from p(y), and its mean
is over the positive and the negatives (Eq. 1). CNCE draws them from ``q`` ``[n, m]``, which is p(y) restricted, for
every x, to a set S_B on which exp f exceeds c(x), its mean over p(y); and Theorem 3.1 has no positive in the mean.
Keys and a query have scores q·k / τ. A ring has the keys from the closest ℓ % to the closest u %. All values are in
nats.
"""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from draws import EXACT, SLACK, lively, many, one_by_one, problems, seeds, sequences, some, with_set
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
    """Equation 1: NCE, with the positive among k + 1 terms, is at most the information, and at most log(k + 1)."""
    nce = exact.info_nce(problem.joint, problem.critic, k + 1)
    assert nce <= problem.joint.mutual_information + SLACK
    assert nce <= math.log(k + 1) + SLACK


@many
@given(problems(), st.integers(1, 4))
def test_theorem_3_1_below_information(problem, k):
    """Theorem 3.1: CNCE ≤ I. Between them lies E[f − log c(x)]."""
    problem, q = with_set(problem)
    joint, f = problem.joint, problem.critic
    cnce = exact.contrastive(joint, f, k, q, positive_in_denominator=False)
    middle = exact.unnormalised_barber_agakov(joint, f, given="x")
    assert cnce <= middle + SLACK
    assert middle <= joint.mutual_information + SLACK


@many
@given(problems(), st.integers(1, 4))
def test_theorem_3_1_in_one_form(problem, k):
    """Theorems 3.1 and 3.2, repaired: CNCE ≤ NCE if both have the positive in the denominator, or if neither has.

    It holds for every pair, so in the mean, too. Hence the deficit I − E[Z] of CNCE is no smaller. With the positive
    NCE has a deficit as well, by Eq. 1, and the magnitude of the bias grows.
    """
    problem, q = with_set(problem)
    joint, f = problem.joint, problem.critic
    for with_positive in (True, False):
        nce, _ = exact.normalised_similarity(joint, f, k, positive_in_denominator=with_positive)
        cnce, _ = exact.normalised_similarity(joint, f, k, q, positive_in_denominator=with_positive)
        assert (cnce <= nce + SLACK).all()  # [n, m], every pair


def test_with_the_positive_the_middle_step_fails():
    """Theorem 3.1: CNCE ≤ E[f − log c(x)]. With the positive in the denominator it can be above, and yet below NCE.

    There is one negative, a hard one. In the first row the positive is scored so low that it pulls the denominator
    below c.
    """
    joint = exact.Joint([[0.09, 0.01], [0.01, 0.89]])
    f = np.array([[-10.0, 0.0], [0.0, 0.001]])
    region = np.array([[False, True], [False, True]])
    log_c = exact.threshold(joint, f)
    assert (f[region] > log_c).all()
    denominator = (math.exp(f[0, 0]) + math.exp(f[0, 1])) / 2
    assert denominator < 0.6 < math.exp(log_c[0])
    q = exact.restrict(joint, region)
    middle = exact.unnormalised_barber_agakov(joint, f, given="x")
    without = exact.contrastive(joint, f, 1, q, positive_in_denominator=False)
    within = exact.contrastive(joint, f, 1, q, positive_in_denominator=True)
    assert without <= middle < within - 0.04
    assert within <= exact.info_nce(joint, f, 2)


def eight_symbols() -> tuple[exact.Joint, np.ndarray]:
    """Eight symbols x and y, and the optimal critic, the log of the density ratio, for which c(x) = 1.

    For every x the ratio is 5 for the partner, 1.05 for two symbols, just above c, and less for the other five.
    """
    rest = (8 - 5.0 - 2 * 1.05) / 5
    first = np.array([5.0, 1.05, 1.05, rest, rest, rest, rest, rest])
    ratio = np.stack([np.roll(first, x) for x in range(8)])
    joint = exact.Joint.of(ratio)
    return joint, np.log(ratio)


def test_what_is_printed_of_nce_and_its_bias_fails_at_the_optimal_critic(stated):
    """Theorem 3.1: CNCE ≤ NCE of Eq. 1. Section 4: all keys (u = 100) recover NCE. Theorem 3.2: CNCE is more biased.

    All three fail for eight symbols, the optimal critic, one negative, and a set of ratio 1.05, where c is 1. CNCE is
    as near the information as log 1.05. NCE of Eq. 1 cannot exceed log 2. With all keys, and without the positive, the
    value lies above the information, and farther from it than CNCE.
    """
    joint, critic = eight_symbols()
    information = joint.mutual_information
    assert exact.threshold(joint, critic) == pytest.approx(0, abs=EXACT)
    region = np.isclose(critic, math.log(1.05))
    assert (critic[region] > 0).all()
    q = exact.restrict(joint, region)
    cnce = exact.contrastive(joint, critic, 1, q, positive_in_denominator=False)
    nce = exact.info_nce(joint, critic, 2)
    assert cnce == pytest.approx(information - math.log(1.05), abs=EXACT)
    assert cnce > nce + 0.2
    stated("ring/theorem-3-1-nce", cnce=cnce, nce=nce)
    assert cnce <= information
    all_keys = exact.leave_one_out(joint, critic, 2)
    assert all_keys > information + 0.1
    stated("ring/section-4-u-100", value=all_keys, information=information)
    bias_under_p = all_keys - information
    bias_under_q = cnce - information
    assert bias_under_p > 0 > bias_under_q
    assert abs(bias_under_p) > abs(bias_under_q)
    stated("ring/theorem-3-2-bias", under_p=bias_under_p, under_q=bias_under_q)


@many
@given(problems(), st.integers(2, 5))
def test_nce_without_the_positive_is_above_at_the_optimal_critic(problem, k):
    """Section 4, u = 100: without the positive in the denominator NCE ≥ I at the optimal critic, plus any a(x)."""
    joint = problem.joint
    a = problem.rng.standard_normal((len(joint.x), 1))
    value = exact.leave_one_out(joint, joint.log_ratio + a, k)
    assert value >= joint.mutual_information - SLACK


def ring_of(scores: torch.Tensor, inner: int, outer: int) -> torch.Tensor:
    """``[queries, kept]`` scores in the library's ring from ``inner`` to ``outer`` percent, of ``[queries, keys]``."""
    ring = negatives.Ring(inner=inner, outer=outer, k=None)
    draws = negatives.BatchRandom(torch.Generator().manual_seed(0))
    selection = ring.select(candidates.Candidates(scores), draws, 0, 1)
    return selection.gather(scores)


@some
@given(problems(most=4), st.integers(1, 3), st.integers(2, 40))
def test_u_100_with_the_positive(problem, k, queue):
    """Section 4, repaired: u = 100 with ℓ = 0 recovers NCE if the positive is kept in the denominator.

    In the library this ring is the whole queue, and the loss that of a softmax over all of it. In expectation it is
    InfoNCE, which is summed here draw by draw.
    """
    joint, f, rng = problem.joint, problem.critic, problem.rng
    scores = torch.from_numpy(rng.standard_normal((3, queue)))
    own = torch.from_numpy(rng.standard_normal(3))
    ring = ring_of(scores, inner=0, outer=100)
    loss = objectives.info_nce(own, ring)
    softmax = torch.cat([own[:, None], scores], 1).softmax(1)
    assert torch.allclose(loss, -softmax[:, 0].log(), rtol=0, atol=EXACT)
    everything = np.broadcast_to(joint.y, f.shape)
    by_draws = one_by_one(joint, f, k, everything)
    assert exact.info_nce(joint, f, k + 1) == pytest.approx(by_draws, abs=1e-8)


@some
@given(seeds, st.integers(5, 200), st.sampled_from([0.1, 1.0, 5.0]))
def test_small_u_without_an_inner_edge(seed, items, scale):
    """Section 4, repaired: with ℓ = 0 some u > 0 leaves only keys above c, and CNCE is a bound.

    X is constant, so there is no information, and CNCE is at most 0.
    """
    f = scale * np.random.default_rng(seed).standard_normal((1, items))
    joint = exact.Joint.independent([1.0], np.ones(items))
    closest_first = np.sort(f[0])[::-1]
    (log_c,) = exact.threshold(joint, f)
    above_c = int((closest_first > log_c).sum())
    assert above_c >= 1
    region = f >= closest_first[above_c - 1]
    q = exact.restrict(joint, region)
    cnce = exact.contrastive(joint, f, 1, q, positive_in_denominator=False)
    assert cnce <= SLACK


def test_small_u_below_c(stated):
    """Section 4: for a small enough u the threshold of similarity exceeds c. Not if the closest ℓ % are skipped.

    X is one of a hundred classes. Y is the same class, or a random one a tenth of the time; the critic is the optimal
    one. A ring that skips the closest 1 % skips the class, which is just what makes c high. No other key is above c.
    """
    joint = exact.Joint.of(0.1 / 100 + 0.9 * np.eye(100))
    critic = joint.log_ratio
    ranks = (-critic).argsort(axis=1, kind="stable").argsort(axis=1)  # of every key, 0 for the closest
    log_c = exact.threshold(joint, critic)
    closest = critic[ranks == 0]
    assert (closest > log_c).all()  # u = 1 would do, if ℓ were 0
    for u in range(2, 101):
        ring = (ranks >= 1) & (ranks < u)
        highest = np.where(ring, critic, -np.inf).max(1)
        assert (highest < log_c).all()
    ring = (ranks >= 1) & (ranks < 10)
    q = exact.restrict(joint, ring)
    cnce = exact.contrastive(joint, critic, 1, q, positive_in_denominator=False)
    assert cnce > joint.mutual_information + 1
    # with the positive, too: harder negatives would lower the value, these raise it
    assert exact.contrastive(joint, critic, 1, q) > exact.info_nce(joint, critic, 2)
    stated("ring/section-4-small-u", over=cnce - joint.mutual_information)


def test_keys_below_an_upper_threshold_break_the_bound(stated):
    """Section 4 has B = [0, ω_u), and says that keys above ω_u, the u-th percentile, are ignored. Neither is a bound.

    X is constant, so there is no information. There are 1,000 keys with q·k evenly on [−1, 1], and τ is 0.07. What is
    meant are the keys of the closest tenth, which lie above their threshold.
    """
    f = np.linspace(-1, 1, 1000)[None] / 0.07
    joint = exact.Joint.independent([1.0], np.ones(1000))
    tenth, nine_tenths = np.quantile(f, [0.1, 0.9])

    def cnce(region: np.ndarray) -> float:
        q = exact.restrict(joint, region)
        return exact.contrastive(joint, f, 1, q, positive_in_denominator=False)

    ball = cnce(f < nine_tenths)
    ignored = cnce(f < tenth)
    meant = cnce(f > nine_tenths)
    assert meant < 0 < ball < ignored
    stated("ring/section-4-lower-threshold", value=ball)
    stated("ring/section-4-ignored", value=ignored, meant=meant)


@many
@given(problems(), st.floats(0, 1), st.floats(0, 1), st.integers(1, 3))
def test_example_3_1(problem, low, high, k):
    """Example 3.1: B = [ω_ℓ, ω_u] with c < ω_ℓ < ω_u satisfies the hypothesis of Theorem 3.1, so CNCE ≤ I.

    The thresholds lie anywhere between c and the largest exp f. If no key is between them, the highest ones are taken,
    as S_B must not be empty.
    """
    problem = lively(problem)
    joint, f = problem.joint, problem.critic
    top = f.max(1, keepdims=True)
    log_c = exact.threshold(joint, f)[:, None]
    log_lower = log_c + (0.999 * low + 1e-6) * (top - log_c)
    log_upper = log_lower + (high + 1e-9) * (top - log_lower)
    region = (f >= log_lower) & (f <= log_upper)
    region = np.where(region.any(1, keepdims=True), region, f == top)
    q = exact.restrict(joint, region)
    cnce = exact.contrastive(joint, f, k, q, positive_in_denominator=False)
    assert cnce <= joint.mutual_information + SLACK


def test_arbitrary_negatives_break_the_bound(stated):
    """Footnote 1: not every conditional law q(y|x) of the negatives preserves a bound.

    X tells nothing of Y, and negatives are always the symbol that is scored lowest.
    """
    joint = exact.Joint.independent([0.5, 0.5], [0.5, 0.5])
    critic = np.array([[3.0, -3.0], [3.0, -3.0]])
    lowest = np.array([[0.0, 1.0], [0.0, 1.0]])
    assert joint.mutual_information == pytest.approx(0, abs=1e-12)
    with_positive = exact.contrastive(joint, critic, 4, lowest, positive_in_denominator=True)
    without = exact.contrastive(joint, critic, 4, lowest, positive_in_denominator=False)
    assert with_positive > 0.5
    assert without > 0.5
    stated("ring/footnote-1", value=with_positive)


def variance(z: np.ndarray, weight: np.ndarray) -> float:
    """Of ``z`` ``[sequences]`` under the law proportional to ``weight``."""
    law = weight / weight.sum()
    return float(law @ (z - law @ z) ** 2)


def variance_of_draws(p: np.ndarray, g: np.ndarray, k: int) -> float:
    """Var(Z) under p but for the score of the positive: of −log of the mean of ``g`` over k draws from ``p``."""
    drawn = sequences(len(g), k)
    z = -np.log(g[drawn].mean(1))
    probability = p[drawn].prod(1)
    return variance(z, probability)


@many
@given(seeds, st.integers(2, 5), st.sampled_from([0.5, 2.0, 5.0]))
def test_theorem_3_2_variance_of_one_draw(seed, symbols, spread):
    """Theorem 3.2, for k = 1: Var_p(Z) ≥ Var_q(Z) if Var_q(Z) is at most the variance outside the set S_B.

    ``p`` is the law of a symbol, ``g`` its exp f, and S_B the symbols of g above its mean.
    """
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(symbols))
    g = np.exp(spread * rng.standard_normal(symbols))
    region = g > p @ g
    if region.all() or not region.any():
        return
    z = -np.log(g)
    inside, outside = variance(z, p * region), variance(z, p * ~region)
    if inside <= outside:
        assert variance(z, p) >= inside - SLACK


@some
@given(seeds, st.integers(2, 4), st.integers(2, 3))
def test_theorem_3_2_variance_against_the_other_event(seed, symbols, k):
    """Theorem 3.2, repaired for k > 1: Var_p(Z) ≥ Var_q(Z) if Var_q(Z) ≤ Var(Z given that not all draws are in S_B).

    This is the law of total variance, for two events that exhaust all cases.
    """
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(symbols))
    g = np.exp(2 * rng.standard_normal(symbols))
    region = g > p @ g
    drawn = sequences(symbols, k)
    z = -np.log(g[drawn].mean(1))
    probability = p[drawn].prod(1)
    all_inside = region[drawn].all(1)
    if not all_inside.any():
        return
    under_q = variance(z, probability * all_inside)
    if under_q <= variance(z, probability * ~all_inside):
        assert variance(z, probability) >= under_q - SLACK


def test_theorem_3_2_variance_as_printed(stated):
    """Theorem 3.2: Var_p(Z) ≥ Var_q(Z) if Var_q(Z) is at most the variance with all draws outside S_B. Not for k = 2.

    Both hypotheses hold: the set {1.1, 10} lies above c = 1.06, and its variance below that of its complement. They say
    nothing of mixed draws, in which a symbol near 1 dilutes the rare 10.
    """
    p = np.array([0.02, 0.625, 0.35, 0.005])
    g = np.array([0.001, 1.0, 1.1, 10.0])
    region = g > p @ g
    assert region.tolist() == [False, False, True, True]
    under_p = variance_of_draws(p, g, 2)
    under_q = variance_of_draws(p * region, g, 2)
    outside = variance_of_draws(p * ~region, g, 2)
    assert under_q <= outside
    assert under_p < 0.95 * under_q
    stated("ring/theorem-3-2-variance", less=1 - under_p / under_q)


def algorithm_1(tx1, tx2, emb1, queue, t, u, l):  # noqa: E741
    """The lines of the listing between the encoders and ``loss.backward()``, as printed; and the kept logits."""
    dps = (tx1 * tx2).sum(1) / t
    all_dps = (emb1 @ queue.T / t).sort().values
    ix_l = int(l * len(queue))
    ix_u = int(u * len(queue))
    ring_dps = all_dps[:, :ix_l:ix_u]
    return -dps + ring_dps.logsumexp(1), ring_dps


def test_algorithm_1_as_printed(stated):
    """Algorithm 1: the listed code computes the MoCoRing loss. False.

    It sorts from the least similar key, its slice reads stop:step for start:stop, so that this key alone is left, and
    its first product is of images. Without the positive in the denominator its loss is no minus log of a probability.
    """
    generator = torch.Generator().manual_seed(0)
    queue, emb1, emb2 = (torch.randn(n, 16, generator=generator, dtype=torch.float64) for n in (1000, 4, 4))
    emb2 = emb1 + 0.3 * emb2
    queue, emb1, emb2 = (torch.nn.functional.normalize(x, dim=1) for x in (queue, emb1, emb2))
    tx1, tx2 = torch.rand(2, 4, 48, generator=generator, dtype=torch.float64)
    loss, kept = algorithm_1(tx1, tx2, emb1, queue, t=0.07, u=0.10, l=0.01)
    scores = emb1 @ queue.T / 0.07
    assert kept.shape == (4, 1)
    assert torch.equal(kept[:, 0], scores.amin(1))
    assert (loss < -50).all()
    meant = ring_of(scores, inner=1, outer=10)
    right = objectives.info_nce((emb1 * emb2).sum(1) / 0.07, meant)
    assert (right >= 0).all()
    sizes = {"kept": kept.shape[1], "meant": meant.shape[1]}
    stated("ring/algorithm-1", **sizes, listed=loss.mean(), right=right.mean())


@some
@given(seeds, st.sampled_from([200, 1000]))
def test_algorithm_1_by_ranks(seed, queue):
    """Algorithm 1, repaired: the ring has the ranks from ℓK to uK of the K keys, counted from the most similar.

    The loss has the positive in the denominator. The library's is compared with one that sorts.
    """
    of_keys = torch.Generator().manual_seed(seed)
    of_positives = torch.Generator().manual_seed(seed + 1)
    scores = torch.randn(2, queue, generator=of_keys, dtype=torch.float64)
    own = torch.randn(2, generator=of_positives, dtype=torch.float64)
    ring = ring_of(scores, inner=1, outer=10)
    by_rank = scores.sort(1, descending=True).values[:, queue // 100 : queue // 10]
    assert torch.equal(ring.sort(1, descending=True).values, by_rank)
    loss = objectives.info_nce(own, ring)
    denominator = torch.cat([own[:, None], by_rank], 1)
    by_hand = denominator.logsumexp(1) - own
    assert torch.allclose(loss, by_hand, rtol=0, atol=EXACT)
    assert (loss >= 0).all()


def test_traffic_signs_are_copied_at_random_and_not_by_track(stated):
    """Table 3, TrafficSign: the column shows how well features transfer to unseen data. It depends on the split.

    Percent of test frames whose nearest training frame, by pixels, has their label, as measured and stored: high where
    frames are split at random, and low where the frames of one track stay together.
    """
    (path,) = (Path(__file__).parents[2] / "results" / "trafficsign_leak").glob("*.json")
    right = {row["data"]: float(row["1-NN, euclidean"]) for row in studies.read(path).rows}
    at_random = right["trafficsign"]
    by_track = right["trafficsign_tracks"]
    official = right["gtsrb32"]
    table = papers.published("ring", 3)
    of_a_method = ~table["row"].str.contains("minus")
    printed = table[(table["column"] == "TrafficSign") & of_a_method]["value"]
    least, most = float(printed.min()), float(printed.max())
    assert at_random > max(90, least - 1)
    assert max(by_track, official) < 50
    stated("ring/traffic-signs", at_random=at_random, by_track=by_track, official=official, least=least, most=most)


def multiplications(work: Callable[[], torch.Tensor]) -> tuple[int, torch.Tensor]:
    """How many multiplications ``work`` runs, and what it returns."""
    with FlopCounterMode(display=False) as counter:
        out = work()
    return counter.get_total_flops() // 2, out  # a multiplication and an addition


def test_multiplications_of_a_ring_are_counted(stated):
    """Section 7: the additional compute of Ring is one matrix multiplication. So it is for IR, and not for MoCo.

    IR multiplies a query with drawn rows of the bank, a ring with all of them. MoCo multiplies it with its whole queue
    anyhow; what MoCoRing adds is to find the ranks.
    """
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
    assert counted["ir"] == 32 * 512 * 128
    assert counted["iring"] == 32 * 5000 * 128
    assert counted["mocoring"] == counted["moco"] == 32 * 8192 * 128
    assert scores["iring"].shape == scores["ir"].shape
    least, most = scores["mocoring"].aminmax(dim=1, keepdim=True)
    closer = (scores["moco"] > most).sum(1)
    farther = (scores["moco"] < least).sum(1)
    assert set(closer.tolist()) == {82}
    assert set(farther.tolist()) == {8192 - 819}
    # in Table 5a, too, the ratio of costs is largest for MoCo, which multiplies no more than before
    cost = papers.published("ring", "5a").pivot_table(index="row", columns="column", values="value")
    ratio_of_ir = cost.loc["IRing"] / cost.loc["IR"]
    ratio_of_moco = cost.loc["MoCoRing"] / cost.loc["MoCo"]
    assert ratio_of_moco.max() > ratio_of_ir.max()
    assert ratio_of_moco.idxmax().startswith("CIFAR10")
    stated("ring/one-multiplication", **counted, ratio=ratio_of_moco.max())
