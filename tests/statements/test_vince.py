"""Statements of *On Mutual Information in Contrastive Learning*, one test per claim or counterexample."""

import math
from itertools import permutations, product

import numpy as np
import pandas as pd
import pytest
import torch
from draws import EXACT, SLACK, Problem, above, joints, lively, many, one_by_one, problems, seeds, some, with_set
from hypothesis import given
from hypothesis import strategies as st

from contrastbook.studies import vince_figure6
from contrastlab import encoders, objectives, papers
from contrastlab.domains.detection import network as detectors
from contrastlab.information import exact
from contrastlab.information.toys import JointGaussian
from contrastlab.support import shipped

logsumexp = np.logaddexp.reduce  # of a few numbers; scipy's takes a hundred times as long


def bank_scores(seed: int, items: int, width: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings and bank rows of ``items`` images on the unit sphere."""
    both = np.random.default_rng(seed).standard_normal((2, items, width))
    both /= np.linalg.norm(both, axis=2, keepdims=True)
    return both[0], both[1]


def instance_discrimination(g: np.ndarray, bank: np.ndarray, tau: float = 0.2) -> float:
    scores = g @ bank.T / tau
    return float((scores.diagonal() - logsumexp(scores, axis=1)).sum())


@some
@given(seeds, st.integers(2, 12))
def test_theorem_2_1(seed, items):
    g, bank = bank_scores(seed, items)
    order = np.random.default_rng(seed + 1).permutation(items)
    value = instance_discrimination(g, bank)
    assert instance_discrimination(g[order], bank[order]) == pytest.approx(value, abs=EXACT * items)
    # what the theorem does not say: embeddings may not be exchanged while the bank stays
    if items > 2:
        assert abs(instance_discrimination(np.roll(g, 1, axis=0), bank) - value) > 1e-6


def softmax_mean(scores: np.ndarray, k: int, *, logarithm: bool = True) -> float:
    """Mean over a data set of the (log) softmax of the positive among itself and k − 1 draws, by enumeration."""
    items = range(len(scores))
    asked = product(items, product(items, repeat=k - 1))
    each = [scores[i, i] - logsumexp([scores[i, i], *scores[i, list(drawn)]]) for i, drawn in asked]
    return float(np.mean(each if logarithm else np.exp(each)))


def kappa_loss(scores: np.ndarray, k: int) -> float:
    """With κ times the sum in the denominator."""
    return softmax_mean(scores, k) - math.log(objectives.KAPPA)


@pytest.mark.parametrize(("seed", "k"), [(0, 2), (0, 3), (1, 3), (2, 4)])
def test_lemma_3_1_has_the_other_sign(seed, k, stated):
    g, bank = bank_scores(seed, 4)
    scores = g @ bank.T / 0.5
    estimate, loss = exact.info_nce(exact.Joint.of(np.eye(4)), scores, k), kappa_loss(scores, k)
    log_k, log_kappa = math.log(k), math.log(objectives.KAPPA)
    assert estimate == pytest.approx(loss + log_k + log_kappa, abs=EXACT)
    stated("vince/lemma-3-1", gap=estimate - (loss + log_k - log_kappa))  # from the printed form


@pytest.mark.parametrize("k", [2, 3])
def test_lemma_3_1_of_cmc_has_the_other_sign(k, stated):
    # InfoNCE of L against the bank of ab and of ab against that of L; half of the CMC objective with κ
    (g_l, bank_l), (g_ab, bank_ab) = bank_scores(7, 4), bank_scores(8, 4)
    both = [g_l @ bank_ab.T / 0.5, g_ab @ bank_l.T / 0.5]
    estimates = [exact.info_nce(exact.Joint.of(np.eye(4)), scores, k) for scores in both]
    half = sum(kappa_loss(scores, k) for scores in both) / 2
    assert half + math.log(k) + math.log(objectives.KAPPA) == pytest.approx(sum(estimates) / 2, abs=EXACT)
    assert max(estimates) <= math.log(4) + SLACK  # the information of four images, each its own partner
    if k == 3:
        assert abs(estimates[0] - estimates[1]) > 0.01
        stated("vince/lemma-3-1-cmc", first=estimates[0], second=estimates[1])


def bank_row(alpha: float, views: np.ndarray, start: np.ndarray) -> np.ndarray:
    """The row of the bank after its updates, one view after the other."""
    row = start
    for view in views:
        row = alpha * row + (1 - alpha) * view
    return row


def test_a_bank_row_is_a_weighted_mean_and_not_the_printed_sum(stated):
    rng = np.random.default_rng(0)
    views, start = rng.standard_normal((12, 5)), rng.standard_normal(5)
    for alpha in (0.0, 0.5, 0.9):
        newest_first = (1 - alpha) * sum(alpha**n * view for n, view in enumerate(views[::-1]))
        np.testing.assert_allclose(bank_row(alpha, views, start), newest_first + alpha**12 * start, atol=1e-14)
    view, alpha, epochs = np.array([0.6, 0.8]), 0.5, 60
    row = bank_row(alpha, np.tile(view, (epochs, 1)), view)
    printed = sum(alpha ** (n - 1) * view for n in range(1, epochs + 1))
    np.testing.assert_allclose(row, view, atol=1e-15)
    times = np.linalg.norm(printed) / np.linalg.norm(row)
    assert times == pytest.approx(1 / (1 - alpha))
    stated("vince/memory-bank-weights", times=times)


def test_weighted_views_may_share_more_than_the_views_of_them(stated):
    # two fair bits; each of two views shows one of them, and M[i] adds both up, the second with weight α
    def shared(first, second):
        seen = [(first @ bits, second @ bits) for bits in product((0, 1), repeat=2)]
        counts = [[seen.count((a, b)) for b in sorted({b for _, b in seen})] for a in sorted({a for a, _ in seen})]
        return exact.Joint.of(counts).mutual_information

    for other, ratio in (([1, 0], 1), ([0, 1], 2)):  # both views show the same bit, or each another
        both = np.array([[1, 0], other])
        plain = np.mean([shared(one, two) for one, two in product(both, both)])
        weighted = np.mean([shared(one, both[0] + 0.5 * both[1]) for one in both])
        assert (weighted, weighted / plain) == pytest.approx((math.log(2), ratio))
    stated("vince/weighted-views", weighted=weighted, plain=plain)


@many
@given(problems())
def test_theorem_4_1(problem):
    problem, q = with_set(problem)
    g = np.exp(problem.critic - problem.critic.max(1, keepdims=True))
    assert ((problem.joint.y * g).sum(1) < (q * g).sum(1)).all()


@many
@given(problems(most=4), st.integers(2, 4))
def test_corollary_4_1_1_with_the_querys_own_set(problem, k):
    problem, q = with_set(problem)
    value = exact.contrastive(problem.joint, problem.critic, k - 1, q)
    assert value <= exact.info_nce(problem.joint, problem.critic, k) + SLACK
    assert value <= problem.joint.mutual_information + SLACK


def test_corollary_4_1_1_as_printed(stated):
    # X is constant, so it tells nothing of Y. Scored from x, symbol 1 is far above symbol 2; scored from y₁, every
    # symbol finds symbol 2 above its mean. All hypotheses on S_T hold, and the value is positive.
    joint = exact.Joint.of([[0.3, 0.7]])
    from_x = np.array([[4.0, 0.0]])
    from_y = np.array([[0.0, 2.0], [0.0, 2.0]])  # f(y₁, y)
    region = from_y > np.log((joint.y * np.exp(from_y)).sum(1))[:, None]
    assert (region == [[False, True], [False, True]]).all()
    assert joint.mutual_information == pytest.approx(0, abs=1e-12)
    assert exact.info_nce(joint, from_x, 8) <= 0
    value = exact.contrastive(joint, from_x, 7, exact.restrict(joint, region[None]))
    assert value > joint.mutual_information + 0.5
    stated("vince/corollary-4-1-1", value=value)


@some
@given(problems(most=3), st.integers(1, 3))
def test_corollary_4_1_1_limit(problem, draws):
    # as τ falls the value does not, and below every score it is InfoNCE, here summed draw by draw
    f = problem.critic
    values = []
    for depth in range(f.shape[1]):
        cut = np.sort(f, axis=1)[:, -1 - depth][:, None]
        values.append(exact.contrastive(problem.joint, f, draws, exact.restrict(problem.joint, f >= cut)))
    assert (np.diff(values) >= -SLACK).all()
    everything = np.broadcast_to(problem.joint.y, f.shape)
    assert values[-1] == pytest.approx(one_by_one(problem.joint, f, draws, everything), abs=1e-8)


def expectation(problem: Problem, k: int, q: np.ndarray, h) -> np.ndarray:
    """``[n, m]`` E h(mean of exp f over the positive and k − 1 draws), by enumeration."""
    g, drawn = np.exp(problem.critic), np.array([*product(range(problem.critic.shape[1]), repeat=k - 1)])
    means = (g[:, :, None] + g[:, drawn].sum(2)[:, None]) / k
    return np.einsum("xyd,xd->xy", h(means), q[:, drawn].prod(2))


def test_any_increasing_function(stated):
    # Z in {0, 3, 100}: the mean is 2.5, the set {3} lies above it, and its mean square does not
    p, z, q = np.array([0.49, 0.5, 0.01]), np.array([0.0, 3.0, 100.0]), np.array([0.0, 1.0, 0.0])
    assert z[1] > p @ z == pytest.approx(2.5)
    assert p @ z <= q @ z
    assert p @ z**2 == pytest.approx(104.5)
    assert p @ z**2 > q @ z**2 == pytest.approx(9.0)
    stated("vince/appendix-a-4", mean=p @ z, set=q @ z, square=p @ z**2, set_square=q @ z**2)


@some
@given(problems(most=3), st.integers(2, 3))
def test_increasing_concave_or_upper_tail(problem, k):
    problem = lively(problem)
    scaled = Problem(problem.joint, np.clip(problem.critic, -5, 5), problem.rng)
    p = np.broadcast_to(scaled.joint.y, scaled.critic.shape)
    scaled = lively(scaled)
    concave = exact.restrict(scaled.joint, above(scaled))
    for h in (np.log, np.sqrt, lambda t: -1 / t):
        assert (expectation(scaled, k, p, h) <= expectation(scaled, k, concave, h) + 1e-6).all()
    # an upper tail of f(x, ·) dominates p(y) stochastically: every increasing h, and no threshold condition
    cut = np.quantile(scaled.critic, scaled.rng.random(), axis=1, keepdims=True)
    tail = exact.restrict(scaled.joint, scaled.critic >= np.minimum(cut, scaled.critic.max(1, keepdims=True)))
    for h in (np.log, np.exp, lambda t: t**3):
        low, high = expectation(scaled, k, p, h), expectation(scaled, k, tail, h)
        assert (low <= high * (1 + 1e-9) + 1e-6).all()


@some
@given(problems(most=3), st.integers(2, 4))
def test_lemma_4_2(problem, k):
    problem, q = with_set(problem)
    f, drawn = problem.critic, np.array([*product(range(problem.critic.shape[1]), repeat=k - 1)])
    pairs = np.broadcast_arrays(f[:, :, None, None], f[:, drawn][:, None])  # [n, m, draws, k − 1]
    own, negatives = (torch.tensor(values).flatten(0, 2) for values in (pairs[0][..., 0], pairs[1]))
    weights = problem.joint.table[:, :, None] * q[:, drawn].prod(2)[:, None]
    total = -weights.ravel() @ objectives.info_nce(own, negatives).numpy()
    assert total + math.log(k) == pytest.approx(exact.contrastive(problem.joint, problem.critic, k - 1, q), abs=EXACT)


def la_0(scores: torch.Tensor, own: int, background: list[int]) -> float:
    """Log probability of the own image among the background neighbours, from the library's LA without its floor."""
    return -float(objectives.local_aggregation(scores[None, [own]], scores[None, background], floor=1e-300))


def ball_case() -> tuple[torch.Tensor, int, list[int], exact.Joint, np.ndarray]:
    g, bank = bank_scores(3, 6)
    scores = torch.from_numpy(g[0] @ bank.T / 0.5)
    ball = scores.argsort(descending=True)[:3].tolist()
    region = np.zeros((1, 6), dtype=bool)
    region[0, ball] = True
    joint = exact.Joint.of(np.full((1, 6), 1 / 6))
    return scores, int(scores.argsort()[0]), ball, joint, exact.restrict(joint, region)


@pytest.mark.parametrize("k", [2, 3, 4])
def test_lemma_4_3_with_drawn_and_with_nearest_neighbours(k):
    scores, own, ball, joint, q = ball_case()
    drawn = [la_0(scores, own, [own, *others]) for others in product(ball, repeat=k - 1)]
    mean, _ = exact.normalised_similarity(joint, scores.numpy()[None], k - 1, q)
    assert math.fsum(drawn) / len(drawn) == pytest.approx(mean[0, own] - math.log(k), abs=EXACT)
    nearest = la_0(scores, own, [own, *ball])
    mean, _ = exact.normalised_similarity(joint, scores.numpy()[None], len(ball), q)
    assert abs(nearest - (mean[0, own] - math.log(len(ball) + 1))) > 1e-3


def la(scores: np.ndarray, close: list[int], background: list[int]) -> float:
    return float(logsumexp(scores[close]) - logsumexp(scores[background]))


@many
@given(seeds, st.integers(2, 8))
def test_lemma_4_4_where_the_own_entry_is_nearest(seed, items):
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal(items) * 5
    own = int(scores.argmax())
    close = sorted({own, *rng.integers(0, items, items // 2).tolist()})
    everything = list(range(items))
    value = la(scores, close, everything)
    assert la(scores, [own], everything) >= value - math.log(len(close)) - SLACK
    # always, nearest or not: more close neighbours, more probability
    assert all(value >= la(scores, [i], everything) - SLACK for i in close)


def test_lemma_4_4_as_printed(stated):
    scores = np.array([0.2, 0.9, 0.1]) / 0.07
    short = la(scores, [0, 1], [0, 1, 2]) - math.log(2) - la(scores, [0], [0, 1, 2])
    assert short > 5
    stated("vince/lemma-4-4", short=short)


def jensen(scores: np.ndarray, own: int, close: list[int], denominator: float, draws: int) -> tuple[float, float]:
    """Both sides of the display in §4.2: log of the mean over C; the own log, and ``draws`` times the mean over C."""
    left = float(logsumexp(scores[close])) - math.log(len(close)) - denominator
    return left, float(scores[own]) - denominator + draws * (float(scores[close].mean()) - denominator)


def jensen_case(seed: int, items: int) -> tuple[np.ndarray, list[int], list[int]]:
    """Scores; close neighbours, the own image 0 among them; background neighbours."""
    rng = np.random.default_rng(seed)
    close, background = (rng.integers(0, items, rng.integers(1, items + 1)).tolist() for _ in "ab")
    return rng.standard_normal(items) * 5, sorted({0, *close}), background


@many
@given(seeds, st.integers(2, 8))
def test_jensen_step_with_a_mean(seed, items):
    scores, close, background = jensen_case(seed, items)
    denominator = float(logsumexp(scores[background]))
    left, _ = jensen(scores, 0, close, denominator, 1)
    assert left >= float(scores[close].mean()) - denominator - SLACK


@many
@given(seeds, st.integers(2, 8), st.integers(1, 4))
def test_jensen_step_where_the_denominator_holds_the_neighbours(seed, items, draws):
    scores, close, background = jensen_case(seed, items)
    left, right = jensen(scores, 0, close, float(logsumexp(scores[sorted({*close, *background})])), draws)
    assert left >= right - SLACK


def test_jensen_step_as_printed(stated):
    left, right = jensen(np.array([0.0, 3.0]), 0, [0, 1], math.log(2), 3)
    assert left < right
    # a draw is needed besides the own image, even if the denominator holds everything
    held = np.array([5.0, 0.0])
    left_of_none, right_of_none = jensen(held, 0, [0, 1], float(logsumexp(held)), 0)
    assert left_of_none < right_of_none
    stated("vince/section-4-2-jensen", left=left, right=right)


@many
@given(problems())
def test_lemma_a_1(problem):
    joint = problem.joint
    decoder = problem.rng.dirichlet(np.full(len(joint.x), 0.5), len(joint.y)).T + 1e-9
    decoder /= decoder.sum(0)
    assert exact.barber_agakov(joint, decoder) <= joint.mutual_information + SLACK
    assert exact.barber_agakov(joint, joint.table / joint.y) == pytest.approx(joint.mutual_information, abs=EXACT)
    unnormalised = exact.unnormalised_barber_agakov(joint, problem.critic)
    assert unnormalised <= joint.mutual_information + SLACK
    optimal = joint.log_ratio + problem.rng.standard_normal(len(joint.y))
    assert exact.unnormalised_barber_agakov(joint, optimal) == pytest.approx(joint.mutual_information, abs=EXACT)
    # UBA is BA with q(x|y) = p(x) e^f / Z(y)
    weights = joint.x[:, None] * np.exp(problem.critic - problem.critic.max(0))
    q = np.maximum(weights / weights.sum(0), 1e-300)
    assert exact.barber_agakov(joint, q) == pytest.approx(unnormalised, abs=1e-8)


@many
@given(problems())
def test_lemma_a_2(problem):
    joint = problem.joint
    assert exact.nwj(joint, problem.critic) <= joint.mutual_information + SLACK
    for shift in (-2.0, -1.0, -0.5, 0.0, 0.5, 2.0):
        value = exact.nwj(joint, 1 + shift + joint.log_ratio)
        assert value == pytest.approx(joint.mutual_information + shift + 1 - math.exp(shift), abs=1e-9)
        assert shift == 0 or value < joint.mutual_information - 0.05
    assert exact.nwj(joint, problem.critic) <= exact.unnormalised_barber_agakov(joint, problem.critic) + SLACK


@many
@given(problems(), st.integers(2, 5))
def test_theorem_a_3(problem, k):
    value = exact.info_nce(problem.joint, problem.critic, k)
    assert value <= min(problem.joint.mutual_information, math.log(k)) + SLACK


@some
@given(joints(most=4), st.integers(2, 4))
def test_second_term_of_a_3_is_one(joint, k):
    # E_{p(x) p(y_{1:K})} e^{f(x, y₁)} / mean of e^{f(x, y_j)} = 1 by symmetry: the step that turns NWJ into InfoNCE
    g = np.exp(np.random.default_rng(k).standard_normal(joint.table.shape))
    total = 0.0
    for x, drawn in product(range(len(joint.x)), map(list, product(range(len(joint.y)), repeat=k))):
        total += joint.x[x] * joint.y[drawn].prod() * g[x, drawn[0]] / g[x, drawn].mean()
    assert total == pytest.approx(1, abs=EXACT)


@pytest.mark.parametrize("k", [2, 3])
def test_lemma_b_1(k, stated):
    g, _ = bank_scores(5, 4)
    scores = g @ g.T / 0.5
    estimate = exact.info_nce(exact.Joint.of(np.eye(4)), scores, k)
    assert softmax_mean(scores, k) + math.log(k) == pytest.approx(estimate, abs=EXACT)
    # as printed, without the logarithm: above log K, which no InfoNCE estimate exceeds
    value = softmax_mean(scores, k, logarithm=False) + math.log(k)
    assert value > math.log(k) >= estimate
    if k == 3:
        assert value > estimate + 0.5
        stated("vince/lemma-b-1", value=value, log_k=math.log(3))


@many
@given(problems(most=4), st.integers(2, 4))
def test_lemma_b_2(problem, k):
    problem = lively(problem)
    f, rng = problem.critic, problem.rng
    high = f > exact.threshold(problem.joint, f)[:, None] + 1e-12
    high = np.where(high.any(1, keepdims=True), high, f == f.max(1, keepdims=True))
    lowest = np.where(high, f, np.inf).min(1, keepdims=True)
    ring = high & (f <= lowest + rng.random() * (f.max(1, keepdims=True) - lowest))
    cluster = rng.integers(0, 2, f.shape).astype(bool)
    cave = np.where((high & ~cluster).any(1, keepdims=True), high & ~cluster, high)
    for region in (ring, cave):
        q = exact.restrict(problem.joint, region)
        assert exact.contrastive(problem.joint, f, k - 1, q) <= problem.joint.mutual_information + SLACK


@some
@given(seeds, st.integers(3, 10))
def test_lemma_b_3(seed, items):
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal(items) / rng.choice([1.0, 0.07])
    close, background = rng.permutation(items)[: items // 2 + 1], rng.permutation(items)[: items - 1]
    log_p = scores - logsumexp(scores)
    as_ratio = logsumexp(log_p[close]) - logsumexp(log_p[background])
    near, far = (torch.from_numpy(scores[rows])[None] for rows in (close, background))
    assert la(scores, close.tolist(), background.tolist()) == pytest.approx(as_ratio, abs=EXACT * 10)
    if as_ratio > -600:
        assert -float(objectives.local_aggregation(near, far, floor=1e-300)) == pytest.approx(as_ratio, abs=EXACT * 10)


@many
@given(problems(most=4), st.integers(2, 4))
def test_higher_threshold_is_looser(problem, k):
    # T = [τ, ∞): nested balls. Dominance gives the order for every τ, above log c or not.
    problem = lively(problem)
    low, high = np.sort(problem.rng.random(2))
    values = []
    for share in (0.0, low, high):
        cut = np.quantile(problem.critic, share, axis=1, keepdims=True, method="lower")
        q = exact.restrict(problem.joint, problem.critic >= cut)
        values.append(exact.contrastive(problem.joint, problem.critic, k - 1, q))
    assert (np.diff(values) <= SLACK).all()
    assert values[0] == pytest.approx(exact.info_nce(problem.joint, problem.critic, k), abs=EXACT)


def test_nearest_to_the_positive_is_no_bound(stated):
    # X constant; a tenth of the symbols is scored high; negatives are the 90 % nearest to y₁ in representation space.
    # A high y₁ is compared with itself among 90 %, a low one with low ones only: r log(p / r) nats of nothing.
    r, p, height = 0.1, 0.9, 12.0
    joint = exact.Joint.of([[r, p - r, 1 - p]])
    f = np.array([[height, 0.0, 0.0]])
    near = np.array([[[True, True, False], [False, True, True], [False, True, True]]])
    value = exact.contrastive(joint, f, 60, exact.restrict(joint, near))
    limit = r * math.log(p / r)
    assert joint.mutual_information == pytest.approx(0, abs=1e-12)
    assert 0.8 * limit < value < 1.2 * limit
    assert exact.info_nce(joint, f, 61) <= 0
    stated("vince/appendix-e-rule", share=r, near=p, value=value)


@some
@given(seeds, st.integers(3, 12))
def test_nearest_to_a_query_of_unit_length_is_a_ball(seed, items):
    # ‖g(x) − g(y)‖² = 2 − 2 g(x)·g(y): near is high, for every x
    x, y = np.random.default_rng(seed).standard_normal((2, items, 4))
    x, y = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (x, y))
    assert (((x[:, None] - y[None]) ** 2).sum(-1).argsort(1) == (-x @ y.T).argsort(1)).all()
    longer = np.concatenate([y, 100 * np.sign(x[:1] @ x[:1].T) * x[:1]])  # a long vector scores highest and is farthest
    assert (x[0] @ longer.T).argmax() == items == ((x[0] - longer) ** 2).sum(-1).argmax()


def test_gaussian_information(stated):
    gaussian = JointGaussian(np.array([[1, -0.5], [-0.5, 1]]) + np.array([[1, 0.9], [0.9, 1]]), 1)
    assert gaussian.mutual_information == pytest.approx(-0.5 * math.log(1 - 0.4**2 / 4), abs=1e-14)
    assert round(gaussian.mutual_information, 5) == 0.02041
    stated("vince/appendix-e-information", value=gaussian.mutual_information)
    # and as the definition says: E log p(x, y) / p(x) p(y), by quadrature over the two independent Gaussians behind it
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    root = np.linalg.cholesky(gaussian.covariance)
    u, v = np.meshgrid(nodes, nodes, indexing="ij")
    xy = np.stack([u.ravel(), v.ravel()], 1) @ root.T
    x, y = (torch.from_numpy(xy[:, [i]]) for i in (0, 1))
    ratio = torch.cat([gaussian.log_ratio(a, b).diagonal() for a, b in zip(x.split(600), y.split(600), strict=True)])
    mean = float(np.outer(weights, weights).ravel() @ ratio.numpy())
    assert mean == pytest.approx(gaussian.mutual_information, abs=EXACT)


def test_neighbours_in_the_numerator_are_no_bound(stated):
    # positive and close neighbour over positive and one draw of the ring; the neighbour is scored like the positive,
    # the ring far below
    joint = exact.Joint.of(np.eye(3) * 0.8 + 0.2 / 3)
    positive, close, ring = 2.0, 1.9, -2.0
    value = float(logsumexp([positive, close]) - logsumexp([positive, ring])) + math.log(2)
    assert value > max(math.log(2), joint.mutual_information)
    stated("vince/section-4-3-neighbours", value=value, information=joint.mutual_information)
    for k in (3, 5):  # a constant critic on independent variables: two of the K terms of the denominator are in both
        scores = np.zeros(k)
        assert (float(logsumexp(scores[:2]) - logsumexp(scores)) + math.log(k)) == pytest.approx(math.log(2))
        assert exact.Joint.independent([1.0], np.ones(k)).mutual_information < 1e-12


@some
@given(problems(most=4), st.integers(1, 2))
def test_neighbours_less_log_c_stay_below_the_value_without(problem, draws):
    problem, q = with_set(problem)
    joint, f, rng = problem.joint, problem.critic, problem.rng
    ratio = np.zeros(f.shape)  # log of the mean over C of e^s, over e^s of the own y
    for x, y in product(*map(range, f.shape)):
        close = [y, *(other for other in range(f.shape[1]) if other != y and rng.random() < 0.5)]
        mean = float(logsumexp(f[x, close])) - math.log(len(close))
        while mean > f[x, y]:
            close.remove(max(close, key=lambda other: f[x, other]))
            mean = float(logsumexp(f[x, close])) - math.log(len(close))
        ratio[x, y] = mean - f[x, y]
    value = exact.contrastive(joint, f, draws, q) + float((joint.table * ratio).sum())
    assert value <= joint.mutual_information + SLACK
    assert value <= one_by_one(joint, f, draws, q) + 1e-8


RGB_MEAN, RGB_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet, as torchvision's pre-trained networks have them."""


def test_appendix_c_4_pixel_mean(stated):
    masks = papers.plan("vince", "2b").settings("imagenet", "ir_nce", "paper").masks
    mean, std = masks.pixel_mean, masks.pixel_std
    assert (mean[0], mean[2], mean[1]) == pytest.approx([255 * value for value in RGB_MEAN], abs=0.01)
    assert std == pytest.approx([255 * value for value in RGB_STD], abs=0.01)
    off = [abs(a - 255 * b) for a, b in zip(mean, RGB_MEAN, strict=True)]
    assert off == pytest.approx([0, 12.75, 12.75], abs=0.01)
    stated("vince/appendix-c-4-pixel-mean", levels=off[1], green=off[1] / std[1], blue=off[2] / std[2])


def test_table_4_region_head(stated):
    network = detectors.residual_network(encoders.build("resnet50"))
    assert detectors.fifth_stage(network, "published") is network.layer4
    network = detectors.residual_network(encoders.build("resnet18"))
    head = detectors.fifth_stage(network, "published")
    filled = detectors.filled_by_loader(network.layer4, head)
    tensors = {name: t.numel() for name, t in head.state_dict().items() if not name.endswith("num_batches_tracked")}
    weights = {name: n for name, n in tensors.items() if head.state_dict()[name].ndim == 4}
    share = sum(n for name, n in weights.items() if name in filled) / sum(weights.values())
    assert 0 < share < 1
    assert not [name for name in filled if head.state_dict()[name].shape[-1:] == (1,) and "downsample" not in name]
    stated("vince/table-4-region-head", filled=len(filled), tensors=len(tensors), share=share)


@many
@given(problems(), st.integers(2, 5))
def test_an_additive_critic_has_no_value(problem, k):
    u, v = problem.critic[:, :1], problem.critic[:1]
    value = exact.info_nce(problem.joint, u + v, k)
    assert value <= SLACK
    assert value == pytest.approx(exact.info_nce(problem.joint, np.zeros_like(u) + v, k), abs=1e-8)
    assert exact.info_nce(problem.joint, u + np.zeros_like(v), k) == pytest.approx(0, abs=1e-8)


def test_a_linear_layer_on_the_concatenation_is_additive_and_a_dot_product_is_best(stated):
    joint, k = exact.Joint.of([[0.4, 0.1], [0.1, 0.4]]), 8
    generator = torch.Generator().manual_seed(0)
    one_hot = torch.eye(2, dtype=torch.float64)  # the richest representation of two symbols
    pairs = torch.cat([one_hot.repeat_interleave(2, 0), one_hot.repeat(2, 1)], 1)
    values = []
    for number in range(400):
        layer = torch.nn.Linear(4, 1, dtype=torch.float64)
        with torch.no_grad():
            layer.weight.normal_(0, (0.1, 0.3, 1.0, 3.0)[number % 4], generator=generator)
            critic = layer(pairs).view(2, 2).numpy()
        assert critic[0, 0] + critic[1, 1] == pytest.approx(critic[0, 1] + critic[1, 0], abs=EXACT)
        values.append(exact.info_nce(joint, critic, k))
    # a constant does not change InfoNCE, and makes the log ratio a matrix of dot products g(x)·g(y)
    lengths, directions = np.linalg.eigh(joint.log_ratio + 1)
    g = directions * np.sqrt(lengths)
    dot = exact.info_nce(joint, g @ g.T, k)
    assert dot == pytest.approx(exact.info_nce(joint, joint.log_ratio, k), abs=EXACT)
    assert max(values) < 0 < dot
    stated("vince/witness-expressivity", information=joint.mutual_information, dot=dot, best=max(values))


def best_losses(order: tuple[int, ...], seen_by: list[tuple[int, ...]], tau: float = 0.2) -> float:
    """Loss of IR per image and view on a circle, with the best embedding of every view.

    Image ``i`` has the bank row at the ``order[i]``-th of equal steps; ``seen_by`` has the images of each view.
    """
    grid = np.linspace(0, 2 * np.pi, 1440, endpoint=False)
    rows = 2 * np.pi * np.array(order) / len(order)
    scores = np.cos(grid[:, None] - rows[None]) / tau
    losses = logsumexp(scores, axis=1)[:, None] - scores
    return sum(losses[:, list(images)].sum(1).min() for images in seen_by) / sum(map(len, seen_by))


def test_collisions_break_the_invariance_and_unique_views_do_not(stated):
    orders = list(permutations(range(4)))
    unique = [best_losses(order, [(i,) for i in range(4) for _ in range(2)]) for order in orders]
    assert np.ptp(unique) < EXACT
    shared = [best_losses(order, [(i, (i + 1) % 4) for i in range(4)]) for order in orders]
    ring = [all((order[i] - order[(i + 1) % 4]) % 4 in (1, 3) for i in range(4)) for order in orders]
    near = {round(loss, 9) for loss, inside in zip(shared, ring, strict=True) if inside}
    far = {round(loss, 9) for loss, inside in zip(shared, ring, strict=True) if not inside}
    assert (len(near), len(far), sum(ring)) == (1, 1, 8)
    assert max(near) < min(far) - 0.5
    stated("vince/property-3", disjoint=unique[0], near=max(near), far=min(far))


def test_stored_readings_of_figure_6(stated):
    studies = vince_figure6.stored("paper", [shipped.folder("results")])
    accuracy = []
    for study in studies:
        trained = pd.DataFrame([row for row in study.rows if row["encoder"] == "trained"])
        assert any("no separation" in reason for reason in vince_figure6.peak(study.rows).missing)
        accuracy.append(trained.pivot_table(index="seed", columns="eta", values="accuracy"))
    assert {len(each) for each in accuracy} == {3}
    peaks = [each.mean().idxmax() == 0.4 for each in accuracy]
    unsteady = [each[0.4].min() < each[0.0].max() for each in accuracy]
    best = max(each[0.4].mean() for each in accuracy)
    assert best < 75
    numbers = {"readings": len(accuracy), "peak": sum(map(int, peaks)), "unsteady": sum(map(int, unsteady))}
    stated("vince/figure-6", **numbers, best=best)


def posterior(cosine: float, items: int, negatives: int = 4096, tau: float = 0.07) -> float:
    """That a key is the positive, as the released code of IR has it: Z = κN, noise 1/N."""
    density = math.exp(cosine / tau) / (objectives.KAPPA * items)
    return density / (density + negatives / items)


def test_kappa_moves_no_gradient_of_the_softmax_and_meets_every_size_alike(stated):
    scores = torch.from_numpy(np.random.default_rng(0).standard_normal((6, 40)) / 0.07)
    gradients, losses = [], []
    for kappa in (1.0, objectives.KAPPA):
        leaf = scores.clone().requires_grad_()
        loss = (math.log(kappa) + leaf.logsumexp(1) - leaf[:, 0]).mean()
        gradients.append(torch.autograd.grad(loss, leaf)[0])
        losses.append(loss.item())
    assert losses[1] == pytest.approx(losses[0] + math.log(objectives.KAPPA), abs=EXACT)
    assert (gradients[0] - gradients[1]).abs().max() < 1e-12
    sizes = {"cifar": 50_000, "imagenet": 1_281_167}
    small, large = (posterior(0.5, items) for items in sizes.values())
    assert small == pytest.approx(large, rel=1e-12)
    threshold = math.log(objectives.KAPPA * 4096)
    assert small == pytest.approx(1 / (1 + math.exp(threshold - 0.5 / 0.07)), rel=1e-12)
    one = torch.tensor([0.5 / 0.07], dtype=torch.float64)
    none = torch.full((1, 1), -1e3, dtype=torch.float64)
    assert objectives.binary_nce(one, none, threshold).item() == pytest.approx(-math.log(small), abs=EXACT)
    stated("vince/kappa-unstable", kappa=objectives.KAPPA, small=small, large=large, **sizes)
