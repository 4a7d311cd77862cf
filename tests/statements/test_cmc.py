"""Statements of *Contrastive Multiview Coding*, one test per claim or counterexample."""

from __future__ import annotations

import math
from itertools import combinations, pairwise, product

import numpy as np
import pytest
from draws import joints, many, problems, some
from hypothesis import given
from hypothesis import strategies as st

from contrastlab.theory import exact

EXACT = 1e-10
SLACK = 1e-9


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


@many
@given(problems(), st.integers(1, 4))
def test_equation_6(problem, k):
    loss = contrast(problem.joint, problem.critic, k)
    assert math.log(k) - loss <= math.log(k + 1) - loss
    assert math.log(k + 1) - loss <= problem.joint.mutual_information + SLACK


@some
@given(joints(most=4))
def test_more_negatives_tighten(joint):
    values = [exact.info_nce(joint, joint.log_ratio, k) for k in range(2, 8)]
    assert all(after >= before - SLACK for before, after in pairwise(values))


@many
@given(joints(most=6), st.integers(0, 2**32 - 1))
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
    rng = np.random.default_rng(seed)
    p = rng.gamma(0.4, size=(2,) * count)
    if seed % 3 == 0:
        parity = np.indices(p.shape).sum(0) % 2
        p = p * (parity + 1e-3)
    return p / p.sum()


@some
@given(st.integers(0, 2**32 - 1))
def test_figure_3_full_graph(seed):
    p = views(seed)
    pairs = sum(information(p, i, j) for i, j in combinations(range(4), 2))
    weighted = sum(math.comb(len(inside), 2) * value for inside, value in atoms(p).items())
    assert pairs == pytest.approx(weighted, abs=EXACT)
    assert [math.comb(size, 2) for size in (1, 2, 3, 4)] == [0, 1, 3, 6]


@some
@given(st.integers(0, 2**32 - 1))
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


def test_common_factors_weigh_more():
    for core in (False, True):
        weights = [weight(tuple(range(size)), 4, core) for size in (2, 3, 4)]
        assert weights == ([1, 2, 3] if core else [1, 3, 6])


def test_a_large_factor_of_two_views_weighs_more():
    assert 8 * weight((1, 2), 4, core=False) > weight((0, 1, 2, 3), 4, core=False)
    assert weight((1, 2), 4, core=True) == 0
