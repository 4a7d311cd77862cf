"""Statements of *Contrastive Multiview Coding*, one test per claim or counterexample.

A joint distribution of two views has a table ``[n, m]``, and so has a critic, the logarithm of the paper's score h. The
first view is the anchor; k is the number of negatives beside the positive.
"""

import math
from collections.abc import Iterator
from itertools import chain, combinations, product

import numpy as np
import pytest
import torch
from draws import EXACT, SLACK, joints, many, problems, seeds, some
from hypothesis import given
from hypothesis import strategies as st

from contrastlab import encoders, papers
from contrastlab.information import exact
from contrastlab.views import Split

PAIR = exact.Joint.of([[0.4, 0.1], [0.1, 0.4]])


def contrastive_loss(joint: exact.Joint, critic: np.ndarray, k: int) -> float:
    """L_contrast, Eq. 2."""
    return math.log(k + 1) - exact.info_nce(joint, critic, k + 1)


@many
@given(problems(), st.integers(1, 4))
def test_equation_5_is_the_best_critic(problem, k):
    """Eq. 5: no critic has a smaller loss (Eq. 2) than the log ratio p(x, y) / p(x) p(y).

    A number for each anchor may be added to it.
    """
    joint = problem.joint
    of_anchor = problem.rng.standard_normal((len(joint.x), 1))
    least = contrastive_loss(joint, joint.log_ratio, k)
    assert contrastive_loss(joint, joint.log_ratio + of_anchor, k) == pytest.approx(least, abs=EXACT)
    assert contrastive_loss(joint, problem.critic, k) >= least - SLACK


@some
@given(joints(), st.integers(1, 3))
def test_equation_5_is_the_posterior(joint, k):
    """Eq. 5, appendix C.1: the ratio, normalised over k + 1 candidates, is the posterior that each is the partner.

    The partner is from p(y | x), the others from p(y). Each place is as likely: Bayes.
    """
    ratio = joint.table / joint.product
    rng = np.random.default_rng(k)
    for x in range(len(joint.x)):
        candidates = rng.integers(0, len(joint.y), k + 1)
        conditional = joint.table[x, candidates] / joint.x[x]
        marginal = joint.y[candidates]
        likelihood = []
        for place in range(k + 1):
            of_others = np.delete(marginal, place).prod()
            likelihood.append(conditional[place] * of_others)
        posterior = likelihood / np.sum(likelihood)
        ratios = ratio[x, candidates]
        assert posterior == pytest.approx(ratios / ratios.sum(), abs=EXACT)


def loss_of_pairs(joint: exact.Joint, critic: np.ndarray) -> float:
    """Eq. 1 with one negative: a pair from p(x, y) against a pair from p(x) p(y), each scored by the critic."""
    scores = critic.ravel()
    losses = np.logaddexp(0, scores[None] - scores[:, None])  # [nm, nm]: pairs from p(x, y), pairs from p(x) p(y)
    return float(joint.table.ravel() @ losses @ joint.product.ravel())


def curvature_of_pairs(joint: exact.Joint, critic: np.ndarray, direction: np.ndarray) -> float:
    """Second derivative of :func:`loss_of_pairs` as the critic moves along ``direction`` ``[n, m]``."""
    scores = critic.ravel()
    moves = direction.ravel()
    odds = np.exp(scores[None] - scores[:, None])
    difference = moves[None] - moves[:, None]
    second = odds / (1 + odds) ** 2 * difference**2  # [nm, nm] as the losses above
    return float(joint.table.ravel() @ second @ joint.product.ravel())


@many
@given(problems())
def test_equation_1_wants_one_constant(problem):
    """Eq. 1, on which appendix C.1 rests: the log ratio is the best critic of it, up to one constant only.

    Its pairs have different anchors, so a number for each anchor, which Eq. 2 does not see, raises the loss.
    """
    joint = problem.joint
    least = loss_of_pairs(joint, joint.log_ratio)
    assert loss_of_pairs(joint, joint.log_ratio + 1.7) == pytest.approx(least, abs=EXACT)
    assert loss_of_pairs(joint, problem.critic) >= least - SLACK
    if len(joint.x) > 1:
        of_anchor = np.linspace(0, 3, len(joint.x))[:, None]
        direction = np.broadcast_to(of_anchor, joint.table.shape)
        lost = loss_of_pairs(joint, joint.log_ratio + direction) - least
        # At the share t of the way no difference of scores has moved by more than 3t, so the second derivative is at
        # least h e^(−3t), with h its value at the minimum. Integrated twice, that is h (e^(−3) + 3 − 1) / 9.
        h = curvature_of_pairs(joint, joint.log_ratio, direction)
        assert h > 0
        assert lost >= h * (np.exp(-3) + 3 - 1) / 9 - EXACT


def entropy_of(p: np.ndarray) -> float:
    """Entropy of probabilities of any shape."""
    positive = p[p > 0]
    return float(-(positive * np.log(positive)).sum())


@some
@given(joints())
def test_the_mean_log_ratio_is_the_information(joint):
    """After Eq. 5: the logarithm of the ratio is the pointwise mutual information.

    Its mean is the mutual information H(X) + H(Y) − H(X, Y).
    """
    by_entropies = entropy_of(joint.x) + entropy_of(joint.y) - entropy_of(joint.table)
    assert (joint.table * joint.log_ratio).sum() == pytest.approx(by_entropies, abs=EXACT)


def test_the_mean_ratio_is_not_the_information(stated):
    """After Eq. 5: the mean of the ratio itself is no information but 1 + χ²."""
    ratio = np.exp(PAIR.log_ratio)
    mean = float((PAIR.table * ratio).sum())
    chi_squared = float((PAIR.product * (ratio - 1) ** 2).sum())
    assert mean == pytest.approx(1 + chi_squared)
    assert mean > 1 > PAIR.mutual_information
    stated("cmc/equation-5-pmi", ratio=mean, information=PAIR.mutual_information)


@many
@given(problems(), st.integers(1, 4))
def test_equation_6(problem, k):
    """Eq. 6: for every critic log k − L is a lower bound of the information. log(k + 1) − L is a larger one."""
    loss = contrastive_loss(problem.joint, problem.critic, k)
    with_positive = math.log(k + 1) - loss
    assert with_positive <= problem.joint.mutual_information + SLACK


def test_equation_6_is_tight_with_many_negatives():
    """Eq. 6, at the best critic with 200 negatives: of the information less than one percent is missing."""
    bound = math.log(201) - contrastive_loss(PAIR, PAIR.log_ratio, 200)
    assert 0.99 * PAIR.mutual_information < bound < PAIR.mutual_information


def bounds_by_negatives(joint: exact.Joint, critic: np.ndarray, most: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """log(k + 1) − L and the printed log k − L, ``[most]`` each, for k = 1 … ``most``."""
    k = np.arange(1, most + 1)
    loss = np.array([contrastive_loss(joint, critic, negatives) for negatives in k])
    return np.log(k + 1) - loss, np.log(k) - loss


def test_more_negatives_tighten_at_the_optimal_critic_and_can_lower_a_fixed_one(stated):
    """Appendix C.2, end: with more negatives both bounds rise at the optimal critic, and can fall at another one.

    A critic that is too bold makes log(k + 1) − L fall and rise, or rise and fall.
    """
    for seed in range(60):
        rng = np.random.default_rng(seed)
        evenness = rng.choice([0.1, 1.0])
        shape = rng.integers(2, 5, 2)
        joint = exact.Joint.of(rng.gamma(evenness, size=shape) + 1e-9)
        of_anchor = rng.standard_normal((len(joint.x), 1))
        for optimal in (joint.log_ratio, joint.log_ratio + of_anchor):
            with_positive, printed = bounds_by_negatives(joint, optimal, 6)
            assert (np.diff(with_positive) >= -SLACK).all()
            assert (np.diff(printed) > 0).all()
    _, printed = bounds_by_negatives(PAIR, PAIR.log_ratio)
    stated("cmc/appendix-c-2-more-negatives", first=printed[0], last=printed[-1])

    bold, printed = bounds_by_negatives(PAIR, 3 * PAIR.log_ratio, 40)
    lowest = int(bold.argmin())
    assert 0 < lowest < 39  # it falls and rises again
    assert (np.diff(bold[: lowest + 1]) < 0).all()
    assert (np.diff(printed) > 0).all()

    uneven = exact.Joint.of([[0.15, 0.05], [0.05, 0.75]])
    hump, _ = bounds_by_negatives(uneven, 2.5 * uneven.log_ratio)
    one, two, four, eight = hump[[0, 1, 3, 7]]  # negatives
    assert one < two
    assert two > four > eight > 0

    # The printed form falls too, where the critic points the wrong way.
    _, wrong = bounds_by_negatives(PAIR, np.array([[-6.0, 0.0], [0.0, -6.0]]))
    assert (np.diff(wrong) < 0).all()
    stated(
        "cmc/appendix-c-2-more-negatives",
        bold_first=bold[0],
        bold_least=bold[lowest],
        bold_at=lowest + 1,
        hump=f"{one:.4f}, {two:.4f}, {four:.4f}, {eight:.4f}",
    )


@many
@given(joints(most=6), seeds)
def test_data_processing(joint, seed):
    """After Eq. 6: representations share at most the information of the views, I(z₁; z₂) ≤ I(v₁; v₂).

    A representation merges symbols: random codes, about half as many as there are symbols.
    """
    rng = np.random.default_rng(seed)
    n, m = joint.table.shape
    codes_x = rng.integers(0, (n + 1) // 2, n)
    codes_y = rng.integers(0, (m + 1) // 2, m)
    coded = np.zeros((n, m))
    np.add.at(coded, (codes_x[:, None], codes_y[None]), joint.table)
    used_x = coded.sum(1) > 0
    used_y = coded.sum(0) > 0
    merged = exact.Joint.of(coded[used_x][:, used_y])
    assert merged.mutual_information <= joint.mutual_information + SLACK


# Several views: p ``[2, …, 2]`` has an axis for each view, and a view is the number of its axis. The paper's core view
# V₁ is view 0.


def entropy(p: np.ndarray, views: tuple[int, ...]) -> float:
    """Joint entropy of some of the views."""
    others = tuple(view for view in range(p.ndim) if view not in views)
    return entropy_of(np.atleast_1d(p.sum(others)))


def information(p: np.ndarray, i: int, j: int) -> float:
    """Mutual information of two views."""
    return entropy(p, (i,)) + entropy(p, (j,)) - entropy(p, (i, j))


def subsets(views: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """All sets of these views, the empty one first."""
    return chain.from_iterable(combinations(views, size) for size in range(len(views) + 1))


def region(p: np.ndarray, inside: tuple[int, ...]) -> float:
    """The measure of a region of the diagram of Figure 3: what all of the views ``inside`` hold and no other view.

    By inclusion and exclusion of entropies, since what any of some views hold has their joint entropy as its measure.
    """
    outside = tuple(view for view in range(p.ndim) if view not in inside)
    measure = 0.0
    for part in subsets(inside):
        sign = (-1) ** (len(part) + 1)
        measure += sign * entropy(p, part + outside)
    return measure


def regions(p: np.ndarray) -> dict[tuple[int, ...], float]:
    """The measure of every region, by the views that hold it."""
    return {inside: region(p, inside) for inside in subsets(tuple(range(p.ndim))) if inside}


def random_views(seed: int, count: int = 4) -> np.ndarray:
    """A joint distribution of ``count`` binary views; a third are near the exclusive or, which has negative regions."""
    p = np.random.default_rng(seed).gamma(0.4, size=(2,) * count)
    if seed % 3 == 0:
        parity = np.indices(p.shape).sum(0) % 2
        p = p * (parity + 1e-3)
    return p / p.sum()


@some
@given(seeds)
def test_figure_3_full_graph(seed):
    """Figure 3, Eq. 8: in the full graph, what exactly the views S share is counted |S| choose 2 times.

    These are the printed 1, 3 and 6.
    """
    p = random_views(seed)
    of_pairs = sum(information(p, i, j) for i, j in combinations(range(4), 2))
    weighted = sum(math.comb(len(inside), 2) * value for inside, value in regions(p).items())
    assert of_pairs == pytest.approx(weighted, abs=EXACT)
    assert [math.comb(size, 2) for size in (1, 2, 3, 4)] == [0, 1, 3, 6]


@some
@given(seeds)
def test_figure_3_core_view(seed):
    """Figure 3, Eq. 7: with a core view, what exactly the views S share is counted |S| − 1 times.

    That is if the core view is one of S; else it is not counted at all.
    """
    p = random_views(seed)
    of_pairs = sum(information(p, 0, j) for j in (1, 2, 3))
    weighted = sum((len(inside) - 1) * value for inside, value in regions(p).items() if 0 in inside)
    assert of_pairs == pytest.approx(weighted, abs=EXACT)


def core_pairs(count: int) -> list[tuple[int, int]]:
    """The pairs of views whose information Eq. 7 adds up."""
    return [(0, view) for view in range(1, count)]


def all_pairs(count: int) -> list[tuple[int, int]]:
    """The pairs of views whose information Eq. 8 adds up."""
    return list(combinations(range(count), 2))


def times_counted(shared: tuple[int, ...], count: int, pairs: list[tuple[int, int]]) -> int:
    """In how many of these pairs' informations a bit that the views ``shared`` hold is counted.

    Each of the other views of all ``count`` holds a bit of its own.
    """
    bits = np.indices((2,) * count)  # [count, 2, …, 2]: of each view, in each cell of p
    are_equal = (bits[list(shared)] == bits[shared[0]]).all(0)
    p = are_equal / are_equal.sum()
    return round(sum(information(p, i, j) for i, j in pairs) / math.log(2))


def test_scores_of_the_full_graph_are_quadratic_in_the_views(stated):
    """Section 3.3, end: M views have M − 1 scores with a core view, and in the full graph a quadratic number.

    A bit that all views share is counted in every score, so it counts them.
    """
    counts = range(2, 9)
    full, core = {}, {}
    for count in counts:
        everyone = tuple(range(count))
        full[count] = times_counted(everyone, count, all_pairs(count))
        core[count] = times_counted(everyone, count, core_pairs(count))
    assert list(core.values()) == [count - 1 for count in counts]
    second_difference = np.diff(list(full.values()), 2)  # constant for a quadratic
    assert set(second_difference.tolist()) == {1}
    stated("cmc/section-3-3-combinatorial", four=full[4], eight=full[8], few=2**4, many=2**8)


def test_what_views_share_counts_more_the_more_share_it_but_not_in_proportion(stated):
    """Section 3.3, Figure 3: a bit that 2, 3 or 4 views share counts 1, 3, 6 times, and 1, 2, 3 with a core view.

    Neither is in proportion to the number of views. A large factor of two views can outweigh a bit of all.
    """
    shared = [(0, 1), (0, 1, 2), (0, 1, 2, 3)]
    sizes = np.array([2, 3, 4])
    full = [times_counted(views, 4, all_pairs(4)) for views in shared]
    core = [times_counted(views, 4, core_pairs(4)) for views in shared]
    assert full == [1, 3, 6]
    assert core == [1, 2, 3]
    for counted in (full, core):
        assert len(set(counted / sizes)) == 3
    stated("cmc/figure-3-objectives", full=full[-1], core=core[-1])
    stated("cmc/section-3-3-proportion", full=" : ".join(map(str, full)), core=" : ".join(map(str, core)))
    stated("cmc/section-3-3-ignored", times=core[1])  # a bit of the core view and two others

    without_core = (1, 2)
    assert times_counted(without_core, 4, core_pairs(4)) == 0
    bits = 8
    of_two_views = bits * times_counted(without_core, 4, all_pairs(4))
    assert of_two_views > full[-1]
    stated("cmc/section-3-3-shared", bits=bits, pair=of_two_views, everyone=full[-1])


@some
@given(seeds)
def test_what_a_core_view_ignores(seed):
    """Section 3.3, end: a core view V₁ ignores what V₂ and V₃ share beyond it, I(V₂; V₃ | V₁), and no more.

    The regions that lie in V₂ and V₃ but not in V₁ have the weight 0, and they add up to that.
    """
    p = random_views(seed)
    ignored = 0.0
    for inside, value in regions(p).items():
        is_in_both = 1 in inside and 2 in inside
        if is_in_both and 0 not in inside:
            ignored += value
    conditional = entropy(p, (0, 1)) + entropy(p, (0, 2)) - entropy(p, (0, 1, 2)) - entropy(p, (0,))
    assert ignored == pytest.approx(conditional, abs=EXACT)


def equation_9(joint: exact.Joint) -> np.ndarray:
    """``[n, m]`` Eq. 9 with the optimal h, the ratio p(x, y) / p(x) p(y)."""
    h = np.exp(joint.log_ratio)
    return h / h.sum(1, keepdims=True)


@some
@given(seeds, st.integers(2, 6))
def test_equation_9_with_equal_atoms(seed, atoms_of_each):
    """Eq. 9: h, normalised over the atoms, is p(v₂ | v₁) if the atoms are equally likely."""
    table = np.random.default_rng(seed).gamma(0.5, size=(3, atoms_of_each)) + 1e-6
    joint = exact.Joint.of(table / table.sum(0))  # p(y) is uniform
    conditional = joint.table / joint.x[:, None]
    assert equation_9(joint) == pytest.approx(conditional, abs=EXACT)


def test_equation_9_with_unequal_atoms(stated):
    """Eq. 9: it is not p(v₂ | v₁) if the atoms are not equally likely, here of independent views."""
    joint = exact.Joint.independent([0.5, 0.5], [0.2, 0.8])
    printed = equation_9(joint)
    conditional = joint.table / joint.x[:, None]
    assert abs(printed - conditional).max() > 0.2
    stated("cmc/equation-9", printed=printed[0, 0])


@some
@given(joints(most=4), st.integers(1, 4))
def test_equation_10_is_bayes(joint, m):
    """Eq. 10: an atom among one sample of p_d and m of p_n comes from the data with probability p_d / (p_d + m p_n).

    The samples stand in a row, that of the data at a random place. Atoms seen are counted over all places.
    """
    noise = np.full(len(joint.y), 1 / len(joint.y))
    data = joint.table[0] / joint.x[0]
    of_data = np.zeros(len(noise))
    of_noise = np.zeros(len(noise))
    for place_of_data, place in product(range(m + 1), repeat=2):
        if place == place_of_data:
            of_data += data / (m + 1)
        else:
            of_noise += noise / (m + 1)
    assert of_data / (of_data + of_noise) == pytest.approx(data / (data + m * noise), abs=EXACT)


@some
@given(joints(most=4), seeds, st.integers(1, 8))
def test_equation_11_is_least_at_the_conditional(joint, seed, m):
    """Eq. 11: L_NCE with a constant Z₀ is least where h / Z₀ is p_d(v₂ | v₁)."""
    rng = np.random.default_rng(seed)
    conditional = joint.table / joint.x[:, None]
    z = rng.uniform(0.1, 10)
    noise = 1 / len(joint.y)

    def loss(h: np.ndarray) -> float:
        posterior = (h / z) / (h / z + m * noise)  # Eq. 10
        of_data = conditional * np.log(posterior)
        of_noise = m * noise * np.log1p(-posterior)
        return float(-(joint.x @ (of_data + of_noise).sum(1)))

    least = loss(z * conditional)
    for step in (1e-3, 0.1, 1.0):
        factor = np.exp(step * rng.standard_normal(conditional.shape))
        assert loss(z * conditional * factor) > least


def weights_by_layer(encoder) -> dict[str, int]:
    """Number of weights of each layer, without tensors of one value a channel."""
    layers = {**encoders.named_layers(encoder), "fc8": encoder.head.fc8}
    counts = {}
    for name, layer in layers.items():
        counts[name] = sum(p.numel() for p in layer.parameters() if p.dim() > 1)
    return counts


def test_weights_but_for_the_last_layer_halve(stated):
    """Appendix D.2: two encoders of half an AlexNet have half the weights of the whole in conv1 to fc7.

    In fc8 they have as many together as the whole, so that all weights are more than half. The three channels of the
    picture are shared out, too, 1 and 2.
    """
    first, second = (weights_by_layer(encoder) for encoder in encoders.build_for(Split(), 3, arch="half_alexnet"))
    whole = weights_by_layer(encoders.build("half_alexnet", width=2.0))
    both = {name: first[name] + second[name] for name in whole}
    for name in whole:
        if name != "fc8":
            assert 2 * both[name] == whole[name]
    assert both["fc8"] == whole["fc8"]
    assert 2 * sum(both.values()) > sum(whole.values())
    stated("cmc/half-parameters", last=both["fc8"])


def layers_that_follow(table: str) -> int:
    """Number of layers of a printed network, each of which has the side that the one before it leaves."""
    printed = papers.published("cmc", table)
    in_order = printed["row"].unique()
    layers = printed.pivot_table(index="row", columns="column", values="value").loc[in_order]
    side = layers["X (spatial)"]
    before = side.shift()
    room = before + 2 * layers["P (padding)"] - layers["K (kernel)"]
    expected = room // layers["S (stride)"] + 1
    assert expected.drop("data").tolist() == side.drop("data").tolist()
    return len(layers) - 1


def test_sides_of_tables_10_to_12_follow(stated):
    """Tables 10 to 12: every side X follows from kernel, stride and padding and the side before.

    It is ⌊(X + 2P − K) / S⌋ + 1.
    """
    stated("cmc/tables-10-11", rows=layers_that_follow("10") + layers_that_follow("11"))
    stated("cmc/table-12", rows=layers_that_follow("12"))


def millions_of_parameters(width: float, channels: tuple[int, ...]) -> float:
    """Of a ResNet-50 of this width for each number of channels, all together."""
    count = 0
    for channel_count in channels:
        with torch.device("meta"):
            network = encoders.ARCHITECTURES["resnet50"](channel_count, "imagenet", width)
        count += sum(p.numel() for p in network.parameters())
    return count / 1e6


def test_two_half_widths_are_half_of_one(stated):
    """Appendix D.4, Table 9: two encoders of half the width have half the parameters of one, 12 M against 24 M."""
    pair = millions_of_parameters(0.5, (1, 2))
    one = millions_of_parameters(1.0, (3,))
    printed = papers.published("cmc", "9").query("column == 'params (M)'").set_index("row")["value"]
    assert round(pair) == printed["CMC"]
    assert round(one) == printed["MoCo"]
    assert pair / one == pytest.approx(0.5, abs=0.01)
    stated("cmc/parameters-12-24", pair=pair, one=one)


def test_elementwise_losses_do_not_see_what_elements_share(stated):
    """Sections 3.1 and 4.3.3: losses such as ℓ₁ and ℓ₂, sums over the elements of v₂, ignore what elements share.

    v₂ has two elements of ±1, equal where the bit v₁ is 0 and opposite where it is 1. Any prediction of v₂ has the
    same loss for both bits, though a contrastive critic finds information.
    """
    values = np.array([[[1, 1], [-1, -1]], [[1, -1], [-1, 1]]])  # [2, 2, 2]: bit, its two equally likely v₂, element
    table = np.array([[1, 1, 0, 0], [0, 0, 1, 1]])  # bit by the four v₂
    joint = exact.Joint.of(table + 1e-12)
    assert joint.mutual_information == pytest.approx(math.log(2), abs=1e-9)
    assert exact.info_nce(joint, joint.log_ratio, 4) > 0.5

    grid = np.linspace(-1.5, 1.5, 61)
    predictions = np.stack(np.meshgrid(grid, grid), 2).reshape(-1, 2)
    errors = np.abs(predictions[:, None, None] - values)  # [3721, 2, 2, 2]: prediction, bit, v₂, element
    for power in (1, 2):
        of_bit_0, of_bit_1 = (errors**power).sum(3).mean(2).T
        np.testing.assert_allclose(of_bit_0, of_bit_1, atol=1e-14)

    # A loss of both elements at once tells the bits apart.
    hits = np.isclose(errors, 0).all(3)
    of_bit_0, of_bit_1 = -2.0 * hits.mean(2).T
    assert np.abs(of_bit_0 - of_bit_1).max() >= 1
    stated("cmc/section-3-1-independence", information=joint.mutual_information)


def test_own_noise_costs_the_objective_nothing(stated):
    """Section 4.4: the objective does not ask that noise of one view alone is discarded.

    Two views share a bit up to a tenth of errors; each has a fair bit of its own as well. Representations of unit
    length that keep the own bits reach the same value as the shared bit alone, its maximum.
    """
    bits = np.array([-1, 1])
    k = 8
    tau = 2 / math.log(9)  # the optimal critic of a bit with a tenth of errors
    shared = exact.Joint.of([[0.45, 0.05], [0.05, 0.45]])
    alone = exact.info_nce(shared, np.outer(bits, bits) / tau, k)
    assert alone == pytest.approx(exact.info_nce(shared, shared.log_ratio, k), abs=EXACT)

    # The four symbols of a view are its shared and its own bit; own bits are independent.
    bit, own = np.array(list(product(bits, bits))).T
    views = exact.Joint.of(np.kron(shared.table, np.full((2, 2), 1 / 4)))
    nothing = np.zeros(4)
    first = np.stack([bit, own, nothing], 1) / math.sqrt(2)
    second = np.stack([bit, nothing, own], 1) / math.sqrt(2)
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1)
    np.testing.assert_allclose(np.linalg.norm(second, axis=1), 1)
    kept = exact.info_nce(views, first @ second.T / (tau / 2), k)
    assert views.mutual_information == pytest.approx(shared.mutual_information, abs=EXACT)
    assert kept == pytest.approx(exact.info_nce(views, views.log_ratio, k), abs=EXACT)
    assert kept == pytest.approx(alone, abs=EXACT)
    np.testing.assert_allclose(first[:, 1] * math.sqrt(2), own)

    # With both own bits in one coordinate the cosines depend on them, and that costs something.
    same_coordinate = np.stack([bit, own, nothing], 1) / math.sqrt(2)
    spoilt = exact.info_nce(views, first @ same_coordinate.T / (tau / 2), k)
    assert spoilt < alone - 0.05
    stated("cmc/section-4-4-nuisance", kept=kept, alone=alone)
