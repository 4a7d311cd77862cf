"""Statements of *Contrastive Multiview Coding*, one test per claim or counterexample."""

import math
from itertools import combinations, product

import numpy as np
import pytest
import torch
from draws import EXACT, SLACK, joints, many, problems, seeds, some
from hypothesis import given
from hypothesis import strategies as st

from contrastlab import encoders, papers
from contrastlab.information import exact
from contrastlab.views import Split


def contrast(joint: exact.Joint, critic: np.ndarray, k: int) -> float:
    """L_contrast with k negatives and the positive (CMC Eq. 2)."""
    return math.log(k + 1) - exact.info_nce(joint, critic, k + 1)


@many
@given(problems(), st.integers(1, 4))
def test_equation_5_is_the_best_critic(problem, k):
    joint = problem.joint
    offset = problem.rng.standard_normal((len(joint.x), 1))
    best = contrast(joint, joint.log_ratio, k)
    assert contrast(joint, joint.log_ratio + offset, k) == pytest.approx(best, abs=EXACT)
    assert contrast(joint, problem.critic, k) >= best - SLACK


@some
@given(joints(), st.integers(1, 3))
def test_equation_5_is_the_posterior(joint, k):
    # one candidate is from p(·|x), the others from p(y), each place as likely: Bayes
    ratio = joint.table / joint.product
    rng = np.random.default_rng(k)
    for x in range(len(joint.x)):
        y = rng.integers(0, len(joint.y), k + 1)
        conditional = joint.table[x] / joint.x[x]
        likelihood = np.array([conditional[y[i]] * np.delete(joint.y[y], i).prod() for i in range(k + 1)])
        assert likelihood / likelihood.sum() == pytest.approx(ratio[x, y] / ratio[x, y].sum(), abs=EXACT)


def contrast_of_pairs(joint: exact.Joint, critic: np.ndarray) -> float:
    """Eq. 1 with one negative: a pair from p(x, y) against a pair from p(x) p(y), each scored by the critic."""
    f = critic.ravel()
    return float(joint.table.ravel() @ np.logaddexp(0, f[None] - f[:, None]) @ joint.product.ravel())


@many
@given(problems())
def test_equation_1_wants_one_constant(problem):
    joint = problem.joint
    best = contrast_of_pairs(joint, joint.log_ratio)
    assert contrast_of_pairs(joint, joint.log_ratio + 1.7) == pytest.approx(best, abs=EXACT)
    assert contrast_of_pairs(joint, problem.critic) >= best - SLACK
    if len(joint.x) > 1:  # a factor of the anchor, which Eq. 2 does not see
        by_anchor = np.linspace(0, 3, len(joint.x))[:, None] + np.zeros_like(joint.log_ratio)
        lost = contrast_of_pairs(joint, joint.log_ratio + by_anchor) - best
        # no difference of scores moves by more than 3, so a loss that bends by h at its minimum bends by at least
        # h e^(-3t) on the way
        f, step = joint.log_ratio.ravel(), by_anchor.ravel()
        odds, apart = np.exp(f[None] - f[:, None]), step[None] - step[:, None]
        h = joint.table.ravel() @ (odds / (1 + odds) ** 2 * apart**2) @ joint.product.ravel()
        assert h > 0
        assert lost >= h * (np.exp(-3) + 3 - 1) / 9 - EXACT


PAIR = exact.Joint.of([[0.4, 0.1], [0.1, 0.4]])


@some
@given(joints())
def test_the_mean_log_ratio_is_the_information(joint):
    # of entropies: I = H(X) + H(Y) − H(X, Y)
    def entropy_of(p: np.ndarray) -> float:
        return float(-(p * np.log(p)).sum())

    by_entropies = entropy_of(joint.x) + entropy_of(joint.y) - entropy_of(joint.table)
    assert (joint.table * joint.log_ratio).sum() == pytest.approx(by_entropies, abs=EXACT)


def test_the_mean_ratio_is_not_the_information(stated):
    ratio = float((PAIR.table * np.exp(PAIR.log_ratio)).sum())
    assert ratio == pytest.approx(1 + float((PAIR.product * np.expm1(PAIR.log_ratio) ** 2).sum()))
    assert ratio > 1 > PAIR.mutual_information
    stated("cmc/equation-5-pmi", ratio=ratio, information=PAIR.mutual_information)


@many
@given(problems(), st.integers(1, 4))
def test_equation_6(problem, k):
    loss = contrast(problem.joint, problem.critic, k)
    assert math.log(k) - loss <= math.log(k + 1) - loss
    assert math.log(k + 1) - loss <= problem.joint.mutual_information + SLACK


def printed_bounds(joint: exact.Joint, critic: np.ndarray, most: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """log(k + 1) − L and log k − L for k = 1 … ``most``."""
    loss = np.array([contrast(joint, critic, k) for k in range(1, most + 1)])
    k = np.arange(1, most + 1)
    return np.log(k + 1) - loss, np.log(k) - loss


def test_more_negatives_tighten_at_the_optimal_critic_and_can_lower_a_fixed_one(stated):
    for seed in range(60):
        rng = np.random.default_rng(seed)
        joint = exact.Joint.of(rng.gamma(rng.choice([0.1, 1.0]), size=rng.integers(2, 5, 2)) + 1e-9)
        for scale in (1.0, None):
            critic = joint.log_ratio if scale else joint.log_ratio + rng.standard_normal((len(joint.x), 1))
            with_positive, printed = printed_bounds(joint, critic, 6)
            assert (np.diff(with_positive) >= -SLACK).all()
            assert (np.diff(printed) > 0).all()
    _, printed = printed_bounds(PAIR, PAIR.log_ratio)
    stated("cmc/appendix-c-2-more-negatives", first=printed[0], last=printed[-1])
    bold, rising = printed_bounds(PAIR, 3 * PAIR.log_ratio, 40)
    lowest = int(bold.argmin())
    assert 0 < lowest < 39  # and rises again
    assert (np.diff(bold[: lowest + 1]) < 0).all()
    assert (np.diff(rising) > 0).all()
    uneven = exact.Joint.of([[0.15, 0.05], [0.05, 0.75]])
    hump, _ = printed_bounds(uneven, 2.5 * uneven.log_ratio)
    shown = hump[[0, 1, 3, 7]]
    assert shown[0] < shown[1] > shown[2] > shown[3] > 0
    # the printed form falls too, where the critic points the wrong way
    _, wrong = printed_bounds(PAIR, np.array([[-6.0, 0.0], [0.0, -6.0]]))
    assert (np.diff(wrong) < 0).all()
    stated(
        "cmc/appendix-c-2-more-negatives", bold_first=bold[0], bold_least=bold[lowest], bold_at=lowest + 1,
        hump=", ".join(f"{value:.4f}" for value in shown),
    )  # fmt: skip


@many
@given(joints(most=6), seeds)
def test_data_processing(joint, seed):
    rng = np.random.default_rng(seed)
    n, m = joint.table.shape
    codes = (rng.integers(0, (n + 1) // 2, n), rng.integers(0, (m + 1) // 2, m))
    coded = np.zeros((n, m))
    for (x, y), mass in np.ndenumerate(joint.table):
        coded[codes[0][x], codes[1][y]] += mass
    coded = coded[coded.sum(1) > 0][:, coded.sum(0) > 0]
    assert exact.Joint.of(coded).mutual_information <= joint.mutual_information + SLACK


def entropy(p: np.ndarray, views: tuple[int, ...]) -> float:
    rest = tuple(v for v in range(p.ndim) if v not in views)
    mass = p.sum(rest).ravel() if rest else p.ravel()
    return float(-(mass[mass > 0] * np.log(mass[mass > 0])).sum())


def information(p: np.ndarray, i: int, j: int) -> float:
    return entropy(p, (i,)) + entropy(p, (j,)) - entropy(p, (i, j))


def atoms(p: np.ndarray) -> dict[tuple[int, ...], float]:
    """Information in exactly the views S: the region of the diagram, by inclusion and exclusion of entropies.

    The union of the regions of the views T has measure H(T); a region belongs to all of S and to nothing outside it.
    """
    everything = tuple(range(p.ndim))
    out = {}
    for size in range(1, p.ndim + 1):
        for inside in combinations(everything, size):
            outside = tuple(v for v in everything if v not in inside)
            out[inside] = sum(
                (-1) ** (len(part) + 1) * (entropy(p, tuple(sorted(part + outside))) if part + outside else 0.0)
                for length in range(len(inside) + 1)
                for part in combinations(inside, length)
            )
    return out


def views(seed: int, count: int = 4) -> np.ndarray:
    """A joint distribution of ``count`` binary views; a third are near the exclusive or, which has negative atoms."""
    p = np.random.default_rng(seed).gamma(0.4, size=(2,) * count)
    if seed % 3 == 0:
        p = p * ((np.indices(p.shape).sum(0) % 2) + 1e-3)
    return p / p.sum()


@some
@given(seeds)
def test_figure_3_full_graph(seed):
    p = views(seed)
    pairs = sum(information(p, i, j) for i, j in combinations(range(4), 2))
    weighted = sum(math.comb(len(inside), 2) * value for inside, value in atoms(p).items())
    assert pairs == pytest.approx(weighted, abs=EXACT)
    assert [math.comb(size, 2) for size in (1, 2, 3, 4)] == [0, 1, 3, 6]


@some
@given(seeds)
def test_figure_3_core_view(seed):
    p = views(seed)
    pairs = sum(information(p, 0, j) for j in (1, 2, 3))
    weighted = sum((len(inside) - 1) * value for inside, value in atoms(p).items() if 0 in inside)
    assert pairs == pytest.approx(weighted, abs=EXACT)


def weight(shared: tuple[int, ...], count: int, core: bool) -> int:
    """In how many of the objectives a bit shared by these views is counted, by computing each pair's information."""
    p = np.zeros((2,) * count)
    own = [v for v in range(count) if v not in shared]
    for bit, *rest in product((0, 1), repeat=1 + len(own)):
        place = np.zeros(count, dtype=int)
        place[list(shared)] = bit
        place[own] = rest
        p[tuple(place)] += 0.5 ** (1 + len(own))
    pairs = [(0, j) for j in range(1, count)] if core else list(combinations(range(count), 2))
    return round(sum(information(p, i, j) for i, j in pairs) / math.log(2))


def test_scores_of_the_full_graph_are_quadratic_in_the_views(stated):
    full = {count: weight(tuple(range(count)), count, core=False) for count in range(2, 9)}
    core = {count: weight(tuple(range(count)), count, core=True) for count in range(2, 9)}
    assert list(core.values()) == [count - 1 for count in core]
    assert set(np.diff(list(full.values()), 2).tolist()) == {1}  # of a quadratic, the second difference is constant
    stated("cmc/section-3-3-combinatorial", four=full[4], eight=full[8], few=2**4, many=2**8)


def test_what_views_share_counts_more_the_more_share_it_but_not_in_proportion(stated):
    full, core = ([weight(tuple(range(size)), 4, core) for size in (2, 3, 4)] for core in (False, True))
    assert (full, core) == ([1, 3, 6], [1, 2, 3])
    for weights in (full, core):
        assert len({w / size for w, size in zip(weights, (2, 3, 4), strict=True)}) == 3
    stated("cmc/figure-3-objectives", full=full[-1], core=core[-1])
    stated("cmc/section-3-3-proportion", full=" : ".join(map(str, full)), core=" : ".join(map(str, core)))
    stated("cmc/section-3-3-ignored", times=core[1])  # a bit of the core view and two others
    bits = 8  # shared by two views only, and not by the core view
    assert weight((1, 2), 4, core=True) == 0
    assert bits * full[0] > full[-1]
    stated("cmc/section-3-3-shared", bits=bits, pair=bits * weight((1, 2), 4, core=False), everyone=full[-1])


@some
@given(seeds)
def test_what_a_core_view_ignores(seed):
    p = views(seed)
    beyond = sum(value for inside, value in atoms(p).items() if {1, 2} <= set(inside) and 0 not in inside)
    conditional = entropy(p, (0, 1)) + entropy(p, (0, 2)) - entropy(p, (0, 1, 2)) - entropy(p, (0,))
    assert beyond == pytest.approx(conditional, abs=EXACT)


def equation_9(joint: exact.Joint) -> np.ndarray:
    h = np.exp(joint.log_ratio)
    return h / h.sum(1, keepdims=True)


@some
@given(seeds, st.integers(2, 6))
def test_equation_9_with_equal_atoms(seed, atoms_of_each):
    table = np.random.default_rng(seed).gamma(0.5, size=(3, atoms_of_each)) + 1e-6
    joint = exact.Joint.of(table / table.sum(0))  # p(y) uniform
    assert equation_9(joint) == pytest.approx(joint.table / joint.x[:, None], abs=EXACT)


def test_equation_9_with_unequal_atoms(stated):
    joint = exact.Joint.independent([0.5, 0.5], [0.2, 0.8])
    printed = equation_9(joint)
    assert abs(printed - joint.table / joint.x[:, None]).max() > 0.2
    stated("cmc/equation-9", printed=printed[0, 0])


@some
@given(joints(most=4), st.integers(1, 4))
def test_equation_10_is_bayes(joint, m):
    # m + 1 candidates in a row, one of them, at a random place, from the data: what share of each atom is the data's?
    noise = np.full(len(joint.y), 1 / len(joint.y))
    data = joint.table[0] / joint.x[0]
    true, seen = np.zeros(len(noise)), np.zeros(len(noise))
    for place, slot in product(range(m + 1), repeat=2):
        law = (data if slot == place else noise) / (m + 1)
        seen += law
        true += law * (slot == place)
    assert true / seen == pytest.approx(data / (data + m * noise), abs=EXACT)


@some
@given(joints(most=4), seeds, st.integers(1, 8))
def test_equation_11_is_least_at_the_conditional(joint, seed, m):
    rng = np.random.default_rng(seed)
    conditional, z = joint.table / joint.x[:, None], rng.uniform(0.1, 10)
    noise = 1 / len(joint.y)

    def loss(h: np.ndarray) -> float:
        share = (h / z) / (h / z + m * noise)
        return float(-(joint.x @ (conditional * np.log(share) + m * noise * np.log1p(-share)).sum(1)))

    least = loss(z * conditional)
    for step in (1e-3, 0.1, 1.0):
        assert loss(z * conditional * np.exp(step * rng.standard_normal(conditional.shape))) > least


def layers_of(encoder) -> dict[str, int]:
    """Weights of each layer, without those of one value a channel."""
    named = {**encoders.named_layers(encoder), "fc8": encoder.head.fc8}
    return {name: sum(p.numel() for p in layer.parameters() if p.dim() > 1) for name, layer in named.items()}


def test_weights_but_for_the_last_layer_halve(stated):
    pair = [layers_of(encoder) for encoder in encoders.build_for(Split(), 3, arch="half_alexnet")]
    whole = layers_of(encoders.build("half_alexnet", width=2.0))
    both = {name: sum(one[name] for one in pair) for name in whole}
    # the three channels of the picture are shared out, too, 1 and 2
    assert all(2 * both[name] == count for name, count in whole.items() if name != "fc8")
    assert both["fc8"] == whole["fc8"]
    assert 2 * sum(both.values()) > sum(whole.values())
    stated("cmc/half-parameters", last=both["fc8"])


def layers_that_follow(table: str, side: str, kernel: str, stride: str, padding: str) -> int:
    """Layers of a printed network, each of which has the side that the one before it leaves."""
    frame = papers.published("cmc", table)
    wide = frame.pivot_table(index="row", columns="column", values="value").loc[frame["row"].unique()]
    before, inside = wide[side].shift(), wide.drop(index="data")
    sides = (before[inside.index] + 2 * inside[padding] - inside[kernel]) // inside[stride] + 1
    assert sides.tolist() == inside[side].tolist()
    return len(inside)


def test_sides_of_tables_10_to_12_follow(stated):
    rows = 0
    for table in ("10", "11"):
        names = papers.published("cmc", table)["column"].unique()
        rows += layers_that_follow(table, *(next(name for name in names if name[0] == letter) for letter in "XKSP"))
    stated("cmc/tables-10-11", rows=rows)
    stated("cmc/table-12", rows=layers_that_follow("12", "X (spatial)", "K (kernel)", "S (stride)", "P (padding)"))


def test_two_half_widths_are_half_of_one(stated):
    def millions(width, channels):
        with torch.device("meta"):
            networks = [encoders.ARCHITECTURES["resnet50"](c, "imagenet", width) for c in channels]
        return sum(p.numel() for network in networks for p in network.parameters()) / 1e6

    pair, one = millions(0.5, (1, 2)), millions(1.0, (3,))
    printed = papers.published("cmc", "9").query("column == 'params (M)'").set_index("row")["value"]
    assert (round(pair), round(one)) == (printed["CMC"], printed["MoCo"])
    assert pair / one == pytest.approx(0.5, abs=0.01)
    stated("cmc/parameters-12-24", pair=pair, one=one)


def test_elementwise_losses_do_not_see_what_elements_share(stated):
    # two elements of ±1: alike where the bit v1 is 0, opposite where it is 1
    law = {0: [(1, 1), (-1, -1)], 1: [(1, -1), (-1, 1)]}
    columns = [*law[0], *law[1]]
    joint = exact.Joint.of([[float(pair in law[bit]) + 1e-12 for pair in columns] for bit in (0, 1)])
    assert joint.mutual_information == pytest.approx(math.log(2), abs=1e-9)
    assert exact.info_nce(joint, joint.log_ratio, 4) > 0.5
    grid = np.linspace(-1.5, 1.5, 61)
    predictions = np.stack(np.meshgrid(grid, grid), 2).reshape(-1, 2)
    for power in (1, 2):
        losses = [
            np.mean([(np.abs(predictions - np.array(pair)) ** power).sum(1) for pair in law[bit]], 0) for bit in (0, 1)
        ]
        np.testing.assert_allclose(losses[0], losses[1], atol=1e-14)
    together = [np.mean([-2.0 * (predictions == np.array(pair)).all(1) for pair in law[bit]], 0) for bit in (0, 1)]
    assert np.abs(together[0] - together[1]).max() >= 1  # a loss of both elements at once tells the bits apart
    stated("cmc/section-3-1-independence", information=joint.mutual_information)


def test_own_noise_costs_the_objective_nothing(stated):
    bits, k = (-1, 1), 8
    tau = 2 / math.log(9)  # the optimal critic of a bit with a tenth of errors
    shared = exact.Joint.of([[0.45, 0.05], [0.05, 0.45]])
    alone = exact.info_nce(shared, np.outer(bits, bits) / tau, k)
    assert alone == pytest.approx(exact.info_nce(shared, shared.log_ratio, k), abs=EXACT)
    symbols = list(product(bits, bits))  # the shared bit and an own one
    table = [[shared.table[bits.index(s), bits.index(t)] / 4 for t, _ in symbols] for s, _ in symbols]
    views = exact.Joint.of(table)
    first = np.array([(s, own, 0) for s, own in symbols]) / math.sqrt(2)
    second = np.array([(s, 0, own) for s, own in symbols]) / math.sqrt(2)
    np.testing.assert_allclose(np.linalg.norm([*first, *second], axis=1), 1)
    kept = exact.info_nce(views, first @ second.T / (tau / 2), k)
    assert views.mutual_information == pytest.approx(shared.mutual_information, abs=EXACT)
    assert kept == pytest.approx(exact.info_nce(views, views.log_ratio, k), abs=EXACT)
    assert kept == pytest.approx(alone, abs=EXACT)
    np.testing.assert_allclose(first[:, 1] * math.sqrt(2), [own for _, own in symbols])
    spoilt = np.array([(s, own, 0) for s, own in symbols]) / math.sqrt(2)  # the own bits where cosines see them
    assert exact.info_nce(views, first @ spoilt.T / (tau / 2), k) < alone - 0.05
    stated("cmc/section-4-4-nuisance", kept=kept, alone=alone)
