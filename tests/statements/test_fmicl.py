"""f-MICL: the printed divergences, the bounds, the kernel, the family of objectives and the uniformity theorem.

The printed formulas of Tables 1 and 6 are typed here from the paper; nothing of
``contrastlab.scores.divergences`` is in them.

Symbols of the paper, and their names here:

* p₊ = p(x, y) is the law of a positive pair, ``joint.table``; p× = p(x) p(y) is ``joint.product``; both are [n, m].
* u = p(x, y) / p(x) p(y) is the density ratio. The library's f′ and f*∘f′ take its logarithm, ``joint.log_ratio``.
* t or s is a score, a value of f′; f* is the conjugate of f, and f*∘f′ is its ``composition`` with f′.
* G_σ = μ exp(−‖x − y‖² / 2σ²) is the kernel: μ is its height ``mu``, 1 / 2σ² is ``c``, and 1 / σ² is ``kappa``.
* α is the weight of the second term of the objective, ``alpha``.
"""

import math
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
import torch
from draws import joints, many, problems, seeds, sequences, some
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import gammaln, hyp0f1, i0, lambertw, xlogy
from scipy.stats import vonmises, vonmises_fisher

from contrastlab import papers
from contrastlab.information import exact
from contrastlab.scores import divergences
from contrastlab.scores.divergences import Divergence

TABLE_1 = [divergences.get(name) for name in ("kl", "js", "pearson", "hellinger", "tsallis", "vincze_le_cam")]
OTHERS = [divergences.REVERSE_KL, divergences.NEYMAN, divergences.JEFFREY]
EVERY = [*TABLE_1, divergences.tsallis(1.5), *OTHERS]
INDEPENDENT = exact.Joint.independent([0.2, 0.3, 0.5], [0.6, 0.4])
PAIR = exact.Joint.of([[0.4, 0.1], [0.1, 0.4]])


def every_fifth(first: int) -> list[Divergence]:
    return EVERY[first::5]


two_divergences = st.integers(0, 4).map(every_fifth)
"""Thousands of examples see all ten."""


def evaluate(function: Callable[[torch.Tensor], torch.Tensor], values: np.ndarray) -> np.ndarray:
    """A divergence's function of tensors at the values of an array."""
    points = torch.from_numpy(np.asarray(values, dtype=np.float64))
    return function(points).numpy()


def slope(function: Callable[[torch.Tensor], torch.Tensor], values: np.ndarray) -> np.ndarray:
    """The derivative of a divergence's function at the values of an array."""
    points = torch.tensor(np.asarray(values, dtype=np.float64), requires_grad=True)
    (gradient,) = torch.autograd.grad(function(points).sum(), points)
    return gradient.numpy()


def positive_mean(joint: exact.Joint, values: np.ndarray) -> float:
    """E over p(x, y), the law of positive pairs, of ``values`` ``[n, m]``."""
    return float((joint.table * values).sum())


def product_mean(joint: exact.Joint, values: np.ndarray) -> float:
    """E over p(x) p(y), the law of negative pairs, of ``values`` ``[n, m]``."""
    return float((joint.product * values).sum())


def with_slack(bound: float, relative: float = 1e-9) -> float:
    """The bound and what rounding may add to it."""
    return bound + relative * (1 + abs(bound))


def unit(vectors: np.ndarray) -> np.ndarray:
    """The vectors along the last axis, scaled to length 1."""
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def squared_length(vectors: np.ndarray) -> np.ndarray:
    """The squared lengths of the vectors along the last axis."""
    return (vectors**2).sum(-1)


def strictly_increasing(values: np.ndarray) -> bool:
    return bool((np.diff(values) > 0).all())


def strictly_decreasing(values: np.ndarray) -> bool:
    return bool((np.diff(values) < 0).all())


def strictly_convex(values: np.ndarray) -> bool:
    """Whether a function is strictly convex, from its values on an even grid."""
    return bool((np.diff(values, 2) > 0).all())


def log_kernel(distance: np.ndarray, mu: float = 1.0, c: float = 1.0) -> np.ndarray:
    """log G_σ = log μ − c ‖x − y‖² of squared distances."""
    return math.log(mu) - c * np.asarray(distance, dtype=np.float64)


def similarity(divergence: Divergence, distance: np.ndarray, mu: float = 1.0, c: float = 1.0) -> np.ndarray:
    """The f-Gaussian similarity s_f = f′(G_σ) of squared distances."""
    return evaluate(divergence.derivative, log_kernel(distance, mu, c))


def h(divergence: Divergence, distance: np.ndarray, mu: float = 1.0, c: float = 1.0) -> np.ndarray:
    """h(t) = f*(f′(μ exp(−c t))) of Eq. 20: what the second term of the objective makes of a squared distance t."""
    return evaluate(divergence.composition, log_kernel(distance, mu, c))


# Section 2: the f-mutual information and its variational bound.


@many
@given(joints(), two_divergences)
def test_f_information_is_symmetric_and_zero_for_independent_variables_only(joint, chosen):
    """Definition 1: I_f is not negative, is the same for (Y, X), and is 0 exactly if X and Y are independent."""
    swapped = exact.Joint(joint.table.T)
    independent = exact.Joint(joint.product)
    dependence = product_mean(joint, np.expm1(joint.log_ratio) ** 2)  # E (u − 1)²
    for divergence in chosen:
        information = joint.f_information(divergence)
        if dependence > 1e-6:
            assert information > 0
        else:
            assert information >= -1e-12
        of_swapped = swapped.f_information(divergence)
        of_independent = independent.f_information(divergence)
        assert of_swapped == pytest.approx(information, rel=1e-10, abs=1e-12)
        assert of_independent == pytest.approx(0, abs=1e-10)


def test_a_function_that_is_not_strictly_convex_does_not_see_dependence():
    """Definition 1: f must be *strictly* convex, or I_f is 0 for some dependent variables too."""
    ratio = PAIR.table / PAIR.product
    linear = ratio - 1
    hinge = np.maximum(ratio - 2, 0)
    for f_of_ratio in (linear, hinge):  # both convex, with f(1) = 0
        assert product_mean(PAIR, f_of_ratio) == pytest.approx(0)
    assert PAIR.mutual_information > 0.19


def merge_last_rows(table: np.ndarray) -> np.ndarray:
    """``[n − 1, m]`` the law ``[n, m]`` of a feature that cannot tell the last two symbols of x apart."""
    return np.vstack([table[:-2], table[-2:].sum(0)])


@many
@given(joints(), two_divergences)
def test_features_have_at_most_the_f_information_of_the_data(joint, chosen):
    """Sec. 3.2 after Lemma 2: I_f of features of X and Y is a lower bound of I_f of X and Y."""
    features = merge_last_rows(joint.table.T).T
    if len(features) > 1:
        features = merge_last_rows(features)
    for divergence in chosen:
        of_data = joint.f_information(divergence)
        of_features = exact.Joint.of(features).f_information(divergence)
        assert of_features <= with_slack(of_data)


@many
@given(problems(), two_divergences)
def test_any_score_bounds_the_f_information_from_below(problem, chosen):
    """Eq. 2: I_f ≥ E₊ s − E× f*(s) for any score s(x, y), be it random or near the best one."""
    joint = problem.joint
    for divergence in chosen:
        information = joint.f_information(divergence)
        disturbed_log_ratio = joint.log_ratio + 0.1 * problem.rng.standard_normal(joint.table.shape)
        near_best = evaluate(divergence.derivative, disturbed_log_ratio)
        for scores in (problem.critic, near_best):
            inside_domain = np.minimum(scores, divergence.highest - 1e-3)
            bound = exact.f_information(joint, inside_domain, divergence)
            assert bound <= with_slack(information)


@some
@given(joints())
def test_the_derivative_at_the_ratio_attains_the_f_information(joint):
    """Lemma 2 (Eqs. 3 and 5): the bound of Eq. 2 is tight at s = f′(u), where u is the density ratio."""
    for divergence in EVERY:
        scores = evaluate(divergence.derivative, joint.log_ratio)
        information = joint.f_information(divergence)
        bound = exact.f_information(joint, scores, divergence)
        assert bound == pytest.approx(information, rel=1e-7, abs=1e-9)
        # f*∘f′ in place of f* after f′ has less rounding.
        conjugates = evaluate(divergence.composition, joint.log_ratio)
        direct = (joint.table * scores - joint.product * conjugates).sum()
        assert direct == pytest.approx(information, rel=1e-10, abs=1e-10)


def test_conjugates_do_not_decrease():
    """Sec. 2 after Eq. 2: f* is monotonically increasing. It may be constant, and infinite from some t on."""
    for divergence in EVERY:
        values = evaluate(divergence.conjugate, np.linspace(-6, 3, 2001))
        assert (values[1:] >= values[:-1] - 1e-12).all()  # false of NaN, and of an infinity with a number behind it


# Tables 1 and 6: each printed row against what follows from its f alone.


class Row(NamedTuple):
    """What Tables 1 and 6 print: f, f*, f′ and f*∘f′."""

    f: Callable
    conjugate: Callable
    derivative: Callable
    composition: Callable


def w_hat(x: np.ndarray) -> np.ndarray:
    """Ŵ = W + 1 / W of Table 6, with W the function of Lambert."""
    w = lambertw(x).real
    return w + 1 / w


def printed_tsallis(a: float) -> Row:
    return Row(
        f=lambda u: u**a / (a - 1),
        conjugate=lambda t: ((a - 1) / a * t) ** (a / (a - 1)),
        derivative=lambda u: a / (a - 1) * u ** (a - 1),
        composition=lambda u: u**a,
    )


PRINTED = {
    "kl": Row(
        f=lambda u: u * np.log(u),
        conjugate=lambda t: np.exp(t - 1),
        derivative=lambda u: np.log(u) + 1,
        composition=lambda u: u,
    ),
    "reverse_kl": Row(
        f=lambda u: -np.log(u),
        conjugate=lambda t: -1 - np.log(-t),
        derivative=lambda u: -1 / u,
        composition=lambda u: np.log(u) - 1,
    ),
    "js": Row(
        f=lambda u: u * np.log(u) - (u + 1) * np.log((1 + u) / 2),
        conjugate=lambda t: -np.log(2 - np.exp(t)),
        derivative=lambda u: np.log(2) + np.log(u / (1 + u)),
        composition=lambda u: -np.log(2 / (1 + u)),
    ),
    "pearson": Row(
        f=lambda u: (u - 1) ** 2,
        conjugate=lambda t: t**2 / 4 + t,
        derivative=lambda u: 2 * (u - 1),
        composition=lambda u: u**2 - 1,
    ),
    "hellinger": Row(
        f=lambda u: (np.sqrt(u) - 1) ** 2,
        conjugate=lambda t: t / (1 - t),
        derivative=lambda u: 1 - u**-0.5,
        composition=lambda u: u**0.5 - 1,
    ),
    "neyman": Row(
        f=lambda u: (1 - u) ** 2 / u,
        conjugate=lambda t: 2 - 2 * np.sqrt(1 - t),
        derivative=lambda u: 1 - u**-2.0,
        composition=lambda u: 2 - 2 / u,
    ),
    "jeffrey": Row(
        f=lambda u: (u - 1) * np.log(u),
        conjugate=lambda t: w_hat(np.exp(1 - t)) + t - 2,
        derivative=lambda u: 1 - 1 / u + np.log(u),
        composition=lambda u: w_hat(np.exp(1 / u) / u) + np.log(u) - (1 + u) / u,
    ),
    "tsallis": printed_tsallis(3.0),
    "vincze_le_cam": Row(
        f=lambda u: (u - 1) ** 2 / (u + 1),
        conjugate=lambda t: 4 - t - 4 * np.sqrt(1 - t),
        derivative=lambda u: 1 - 4 / (u + 1) ** 2,
        composition=lambda u: 3 - 4 / (u + 1),
    ),
}

U = np.exp(np.linspace(-3, 3, 121))
"""Density ratios at which the rows are compared."""
CLOSE = {"rtol": 1e-10, "atol": 1e-10}


def supremum(f: Callable, scores: np.ndarray) -> np.ndarray:
    """The conjugate, numerically: sup over u > 0 of u·t − f(u), for each score t.

    The function is concave in u, so a golden-section search over log u finds its maximum.
    """
    low = np.full(scores.shape, -40.0)
    high = np.full(scores.shape, 12.0)
    golden = (math.sqrt(5) - 1) / 2

    def gain(log_u: np.ndarray) -> np.ndarray:
        return np.exp(log_u) * scores - f(np.exp(log_u))

    for _ in range(120):
        left = high - golden * (high - low)
        right = low + golden * (high - low)
        left_is_better = gain(left) > gain(right)
        low = np.where(left_is_better, low, left)
        high = np.where(left_is_better, right, high)
    return gain((low + high) / 2)


def right_composition(row: Row) -> np.ndarray:
    """f*(f′(u)) at ``U``, from f and f′ alone: Fenchel–Young is an equality at t = f′(u)."""
    return U * row.derivative(U) - row.f(U)


def check_derivative_and_conjugate(row: Row, scores: np.ndarray) -> None:
    """The printed f′ and f* are the derivative and the conjugate of the printed f."""
    step = 1e-20  # complex step: f′(u) = Im f(u + i·step) / step has no rounding error
    right_derivative = row.f(U + 1j * step).imag / step
    assert_allclose(row.derivative(U), right_derivative, **CLOSE)
    assert_allclose(row.conjugate(scores), supremum(row.f, scores), **CLOSE)
    assert_allclose(row.conjugate(row.derivative(U)), right_composition(row), **CLOSE)


def check_composition(row: Row) -> None:
    """The printed f*∘f′ is the right one."""
    assert_allclose(row.composition(U), right_composition(row), **CLOSE)


def check_library(divergence: Divergence, row: Row, scores: np.ndarray, constant: float = 0.0) -> None:
    """The library's divergence is the printed row, with ``constant`` taken off f so that f(1) = 0."""
    assert row.f(np.float64(1.0)) == pytest.approx(constant, abs=1e-15)
    f = evaluate(divergence.f, U)
    derivative = evaluate(divergence.derivative, np.log(U))
    conjugate = evaluate(divergence.conjugate, scores)
    composition = evaluate(divergence.composition, np.log(U))
    assert_allclose(f, row.f(U) - constant, **CLOSE)
    assert_allclose(derivative, row.derivative(U), **CLOSE)
    assert_allclose(conjugate, row.conjugate(scores) + constant, **CLOSE)
    assert_allclose(composition, right_composition(row) + constant, **CLOSE)


def only_names(value: object) -> str:
    return value if isinstance(value, str) else ""


@pytest.mark.parametrize(
    ("name", "scores", "outside"),
    [
        ("kl", np.linspace(-6, 4, 101), None),
        ("reverse_kl", -np.exp(np.linspace(-4, 2, 101)), 0.5),
        ("js", np.linspace(-6, 0.68, 101), 0.7),
        ("pearson", np.linspace(-2, 4, 101), None),
        ("hellinger", np.linspace(-6, 0.95, 101), None),
        ("neyman", np.linspace(-6, 0.99, 101), 1.01),
        ("jeffrey", np.linspace(-6, 4, 101), None),
        ("vincze_le_cam", np.linspace(-3, 0.99, 101), None),
    ],
    ids=only_names,
)
def test_a_row_is_printed_right(name, scores, outside):
    """Tables 1 and 6: f, f*, f′ and f*∘f′ of a row belong together, and the library has the same row.

    ``scores`` lie in the domain of f*; ``outside`` is a score above it.
    """
    row = PRINTED[name]
    check_derivative_and_conjugate(row, scores)
    if name != "vincze_le_cam":  # test_the_composition_of_vincze_le_cam_is_not_the_printed_one
        check_composition(row)
    check_library(divergences.get(name), row, scores)
    if outside:
        with np.errstate(invalid="ignore"):
            printed = row.conjugate(np.array([outside]))
        assert np.isnan(printed)  # outside the domain the formula has no value, so nothing is wrong there


def test_other_forms_of_table_6():
    """Table 6: the second forms of f*∘f′ of JS and of f′ of Vincze–Le Cam; Jeffrey's f*∘f′ is u − 1 + log u."""
    js_composition = -np.log(2) + np.log(1 + U)
    jeffrey_composition = U - 1 + np.log(U)
    vincze_le_cam_derivative = (U - 1) * (U + 3) / (U + 1) ** 2
    assert_allclose(PRINTED["js"].composition(U), js_composition, atol=1e-14)
    assert_allclose(PRINTED["jeffrey"].composition(U), jeffrey_composition, rtol=1e-11, atol=1e-11)
    assert_allclose(PRINTED["vincze_le_cam"].derivative(U), vincze_le_cam_derivative, atol=1e-14)


@pytest.mark.parametrize(
    ("name", "scores", "printed"),
    [
        ("pearson", [-3.0, -4.0, -6.0], [-0.75, 0, 3]),
        ("vincze_le_cam", [-3.5, -8.0, -15.0], [7.5 - 4 * math.sqrt(4.5), 0, 3]),
    ],
)
def test_a_conjugate_of_table_1_is_wrong_below_the_least_slope(name, scores, printed, stated):
    """Table 1, Pearson and Vincze–Le Cam: for t < f′(0) the conjugate is −f(0) = −1, not what is printed."""
    row = PRINTED[name]
    scores = np.array(scores)
    assert_allclose(row.conjugate(scores), printed)
    right = supremum(row.f, scores)
    of_library = evaluate(divergences.get(name).conjugate, scores)
    assert_allclose(right, [-1, -1, -1], atol=1e-12)
    assert_allclose(of_library, [-1, -1, -1])
    entry = {"pearson": "fmicl/table-pearson", "vincze_le_cam": "fmicl/table-vincze-le-cam"}[name]
    stated(entry, printed=float(printed[-1]), right=right[-1])


def test_hellinger_is_wrong_above_one(stated):
    """Tables 1 and 6, squared Hellinger: for t > 1 the conjugate is infinite, but t / (1 − t) is finite."""
    row = PRINTED["hellinger"]
    scores = np.array([1.5, 2.0, 3.0])
    printed = row.conjugate(scores)
    assert_allclose(printed, [-3, -2, -1.5])
    large_u = 1e12
    assert (large_u * scores - row.f(large_u) > 1e11).all()  # the supremum over u is infinite
    assert np.isinf(evaluate(divergences.HELLINGER.conjugate, scores)).all()
    stated("fmicl/table-hellinger", printed=printed[1])


@pytest.mark.parametrize("alpha", [1.5, 2.0, 3.0, 4.5])
def test_tsallis_is_printed_right_from_zero_and_up_to_the_constant(alpha):
    """Tables 1 and 6, Tsallis: the row is right for t ≥ 0; f(1) = 0 needs 1 / (α − 1) taken off f."""
    row = printed_tsallis(alpha)
    scores = np.linspace(0, 4, 101)
    constant = 1 / (alpha - 1)
    check_derivative_and_conjugate(row, scores)
    check_composition(row)
    check_library(divergences.tsallis(alpha), row, scores, constant)


def test_tsallis_is_convex_but_wrong_below_zero_and_not_zero_at_one(stated):
    """Tables 1 and 6, Tsallis: for t < 0 the conjugate is 0, not what is printed, and f(1) is not 0.

    f is convex for α > 1, as the caption of Table 6 has it, and for 0 < α < 1 too.
    """
    for alpha in (0.3, 0.7, 1.01, 1.5, 2.0, 3.0, 7.0):
        u = np.linspace(0.05, 5, 200)
        assert strictly_convex(printed_tsallis(alpha).f(u))

    scores = np.array([-1.0, -3.0])
    for alpha, printed in ((2.0, [0.25, 2.25]), (1.5, [-1 / 27, -1.0])):
        row = printed_tsallis(alpha)
        assert_allclose(row.conjugate(scores), printed)
        assert_allclose(supremum(row.f, scores), [0, 0], atol=1e-12)
    with np.errstate(invalid="ignore"):
        assert np.isnan(printed_tsallis(3.0).conjugate(scores)).all()

    # Independent variables have a printed "information" of f(1) = 1 / (α − 1), not of 0.
    ratio = INDEPENDENT.table / INDEPENDENT.product
    printed_information = product_mean(INDEPENDENT, PRINTED["tsallis"].f(ratio))
    assert printed_information == pytest.approx(0.5)
    assert INDEPENDENT.f_information(divergences.TSALLIS) == pytest.approx(0, abs=1e-15)
    stated(
        "fmicl/table-tsallis",
        printed=printed_tsallis(2.0).conjugate(scores)[1],
        independent=printed_information,
    )


@some
@given(problems())
def test_a_constant_added_to_f_shifts_the_objective_and_nothing_else(problem):
    """Table 6, caption: the constant −1 / (α − 1) of Tsallis (α = 3) shifts the objective by 1/2 for all scores."""
    joint = problem.joint
    scores = np.maximum(problem.critic, 0)
    right = exact.f_information(joint, scores, divergences.TSALLIS)
    printed_conjugates = printed_tsallis(3.0).conjugate(scores)
    printed = positive_mean(joint, scores) - product_mean(joint, printed_conjugates)
    assert printed == pytest.approx(right + 0.5, rel=1e-10, abs=1e-10)


def test_the_composition_of_vincze_le_cam_is_not_the_printed_one():
    """Tables 1 and 6, Vincze–Le Cam: f*∘f′ is 3 − 8/(u + 1) + 4/(u + 1)², and not 3 − 4/(u + 1) as printed."""
    row = PRINTED["vincze_le_cam"]
    right = 3 - 8 / (U + 1) + 4 / (U + 1) ** 2
    as_one_fraction = (U - 1) * (3 * U + 1) / (U + 1) ** 2
    assert_allclose(row.conjugate(row.derivative(U)), right, atol=1e-12)
    assert_allclose(as_one_fraction, right, atol=1e-14)

    of_library = evaluate(divergences.VINCZE_LE_CAM.composition, np.log(U))
    of_printed_variant = evaluate(divergences.VINCZE_LE_CAM_PRINTED.composition, np.log(U))
    assert_allclose(of_library, right, atol=1e-14)
    assert_allclose(of_printed_variant, row.composition(U))

    assert row.composition(1.0) == 1
    assert row.conjugate(row.derivative(1.0)) == 0
    # Of independent variables (u = 1) the best score would then yield −1 instead of 0.
    best_score = row.derivative(1.0)
    assert positive_mean(INDEPENDENT, best_score) - row.composition(1.0) == pytest.approx(-1)


# Section 3.2: the kernel of Assumption 3. All expectations are over the uniform distribution of a sphere.


class Space(NamedTuple):
    """A sphere, and a quadrature rule for its uniform distribution."""

    nodes: np.ndarray  # [points, d] unit vectors
    weights: np.ndarray  # [points] of sum 1
    area: float  # of a circle the length

    @property
    def dimension(self) -> int:
        return self.nodes.shape[1]


def circle(points: int = 256) -> Space:
    angle = np.arange(points) * 2 * np.pi / points
    nodes = np.column_stack([np.cos(angle), np.sin(angle)])
    return Space(nodes, np.full(points, 1 / points), 2 * np.pi)


def sphere(points: int = 40) -> Space:
    """The unit sphere of three dimensions: Gauss–Legendre nodes in height, equal angles around the axis."""
    z, weight = np.polynomial.legendre.leggauss(points)
    angles = 2 * points
    angle = np.arange(angles) * np.pi / points
    radius = np.sqrt(1 - z**2)
    x = radius[:, None] * np.cos(angle)  # [heights, angles]
    y = radius[:, None] * np.sin(angle)
    height = np.broadcast_to(z[:, None], x.shape)
    nodes = np.stack([x, y, height], axis=-1).reshape(-1, 3)
    return Space(nodes, np.repeat(weight / 2, angles) / angles, 4 * np.pi)


SPACES = [circle(), sphere()]
CIRCLE, SPHERE = SPACES
kappas = pytest.mark.parametrize("kappa", [0.1, 2.0, 10.0])


def mean_exponential(space: Space, kappa: float) -> float:
    """E exp(κ x·y) for independent uniform x and y by quadrature: 1 / C of Assumption 3."""
    cosine = space.nodes @ space.nodes.T
    return float(space.weights @ np.exp(kappa * cosine) @ space.weights)


def bessel_form(dimension: int, kappa: float) -> float:
    """The same in closed form."""
    return float(hyp0f1(dimension / 2, kappa**2 / 4))


def mean_kernel(space: Space, kappa: float) -> float:
    """E exp(−κ ‖x − y‖² / 2) for independent uniform x and y: the mean of a kernel of height 1."""
    distance = ((space.nodes[:, None] - space.nodes[None]) ** 2).sum(-1)
    return float(space.weights @ np.exp(-distance * kappa / 2) @ space.weights)


@kappas
def test_the_marginals_of_the_kernel_are_uniform(kappa):
    """Eqs. 6–8: p_g(x, y) = C exp(x·y / σ²) has uniform marginals, that is E_y p_g(x, y) = 1 for every x."""
    assert bessel_form(2, kappa) == pytest.approx(i0(kappa), rel=1e-12)
    assert bessel_form(3, kappa) == pytest.approx(np.sinh(kappa) / kappa, rel=1e-12)
    for space in SPACES:
        rng = np.random.default_rng(0)
        x = unit(rng.standard_normal((50, space.dimension)))
        mean_over_y = np.exp(kappa * x @ space.nodes.T) @ space.weights
        marginal = mean_over_y / bessel_form(space.dimension, kappa)
        assert_allclose(marginal, 1, rtol=1e-12)


@kappas
def test_the_height_of_the_kernel_makes_it_a_density_ratio(kappa):
    """Assumption 3 with c = 1: the height μ = e^{1/σ²} C gives the kernel a mean of 1, as a density ratio has."""
    for space in SPACES:
        inverse_c = mean_exponential(space, kappa)
        height = math.exp(kappa) / inverse_c
        assert height * mean_kernel(space, kappa) == pytest.approx(1, rel=1e-12)
        assert inverse_c == pytest.approx(bessel_form(space.dimension, kappa), rel=1e-12)


def test_the_marginal_density_is_one_and_not_one_over_the_area():
    """After Eq. 7: the constant c = p_g(x) is 1, because all means are over the uniform distribution.

    It is printed as 1 / area. With it, Assumption 3 has a "ratio" whose mean is area², not 1.
    """
    kappa = 2.0
    for space in SPACES:
        inverse_c = mean_exponential(space, kappa)
        x = space.nodes[0]
        density = np.exp(kappa * space.nodes @ x) @ space.weights / inverse_c
        assert density == pytest.approx(1, rel=1e-12)
        assert abs(density - 1 / space.area) > 0.8
        printed_height = math.exp(kappa) / inverse_c * space.area**2
        assert printed_height * mean_kernel(space, kappa) == pytest.approx(space.area**2, rel=1e-12)


@kappas
def test_the_conditionals_are_von_mises_fisher(kappa):
    """After Eq. 8: p_g(y | x) is a von Mises–Fisher law with mean direction x and concentration 1 / σ².

    scipy's densities are with respect to the length and the area, the paper's to the uniform distribution. The kernel
    is symmetric, so p_g(x | y) is the same function of the angle.
    """
    angle = np.arctan2(CIRCLE.nodes[:, 1], CIRCLE.nodes[:, 0])
    on_circle = vonmises(kappa).pdf(angle)
    on_sphere = vonmises_fisher([0.0, 0.0, 1.0], kappa).pdf(SPHERE.nodes)
    cases = [(CIRCLE, [1.0, 0.0], on_circle), (SPHERE, [0.0, 0.0, 1.0], on_sphere)]
    for space, x, density in cases:
        kernel = np.exp(kappa * space.nodes @ np.array(x))
        conditional = kernel / (space.weights @ kernel)
        assert_allclose(conditional, space.area * density, rtol=1e-10)


def tilted_pairs(tilt: float, kappa: float, points: int = 720) -> tuple[np.ndarray, np.ndarray]:
    """Pairs on the circle: x has a density ∝ exp(tilt cos x), y is von Mises around x.

    Returns ``[points, points]`` the probability of x at position i and y d steps on, and ``[points]`` the squared
    distance ‖x − y‖² at d steps.
    """
    angle = 2 * np.pi * np.arange(points) / points
    of_x = np.exp(tilt * np.cos(angle))
    of_step = np.exp(kappa * np.cos(angle))
    pairs = np.outer(of_x, of_step)
    return pairs / pairs.sum(), 2 - 2 * np.cos(angle)


def mean_log_density(p: np.ndarray) -> np.ndarray:
    """``[steps]`` the average of log p over the positive pairs of each distance, as in Figs. 1 and 7."""
    return (p * np.log(p)).sum(0) / p.sum(0)


def off_line(values: np.ndarray, distance: np.ndarray) -> float:
    """How far the values are from the straight line that fits them best."""
    line = np.polyfit(distance, values, 1)
    on_line = np.polyval(line, distance)
    return float(np.abs(values - on_line).max())


@pytest.mark.parametrize("kappa", [0.5, 4.0])
def test_log_density_that_is_linear_for_every_pair_is_the_kernel(kappa):
    """Sec. 3.2, Figs. 1 and 7: if log p(x, y) is linear in ‖x − y‖² pair by pair, p is the kernel of Assumption 3."""
    p, distance = tilted_pairs(0.0, kappa)
    distance_of_pair = np.broadcast_to(distance, p.shape)
    assert off_line(np.log(p).ravel(), distance_of_pair.ravel()) < 1e-12
    assert_allclose(p.sum(1), 1 / len(p), rtol=1e-12)
    kernel = np.exp(-distance * kappa / 2)
    assert_allclose(p[0] / p[0, 0], kernel, rtol=1e-12)

    tilted, _ = tilted_pairs(0.3, kappa)
    assert off_line(np.log(tilted).ravel(), distance_of_pair.ravel()) > 0.2


def test_averages_at_one_distance_do_not_see_the_marginals(stated):
    """Sec. 3.2, Figs. 1 and 7: averages of log p at one distance are linear for laws that are not the kernel.

    Here x is far from uniform, and the density ratio varies at every single distance.
    """
    p, distance = tilted_pairs(1.18, 4.0)
    position = np.arange(len(p))
    y = (position[:, None] + position) % len(p)  # [x, step]: the position of y
    of_x = p.sum(1)
    of_y = np.bincount(y.ravel(), weights=p.ravel())
    density_ratio = p / (of_x[:, None] * of_y[y])
    spread_of_x = of_x.max() / of_x.min()
    spread_of_ratio = density_ratio.max(0) / density_ratio.min(0)  # [step]

    assert off_line(mean_log_density(p), distance) < 1e-13
    assert spread_of_x > 10
    assert spread_of_ratio.min() > 3
    power = p**1.5  # another such law, also linear
    power /= power.sum()
    assert off_line(mean_log_density(power), distance) < 1e-12
    bent = p * np.exp(0.1 * distance**2)  # what the averages do see
    bent /= bent.sum()
    assert off_line(mean_log_density(bent), distance) > 0.1
    stated("fmicl/linear-log-density", marginal=spread_of_x, ratio=spread_of_ratio.min())


# Section 3.3 and Appendix A.2: the weight α of the second term.


class Weighted(NamedTuple):
    """Proposition 5: the function f_α(u) = α f(u / α) − α f(1 / α), and its conjugate as the paper has it."""

    divergence: Divergence
    alpha: float

    @property
    def constant(self) -> float:
        """α f(1 / α)."""
        return self.alpha * float(evaluate(self.divergence.f, np.array(1 / self.alpha)))

    def f(self, u: np.ndarray) -> np.ndarray:
        return self.alpha * evaluate(self.divergence.f, u / self.alpha) - self.constant

    def conjugate(self, scores: np.ndarray) -> np.ndarray:
        """f_α*(t) = α f*(t) + α f(1 / α)."""
        return self.alpha * evaluate(self.divergence.conjugate, scores) + self.constant


@pytest.mark.parametrize("alpha", [0.2, 1.0, 7.0, 40.0])
def test_the_weighted_function_and_its_conjugate(alpha):
    """Proposition 5: f_α is strictly convex with f_α(1) = 0, and f_α* is its conjugate."""
    for divergence in EVERY:
        weighted = Weighted(divergence, alpha)
        assert weighted.f(np.array(1.0)) == pytest.approx(0, abs=1e-12)
        u = np.linspace(0.05, 20, 500)
        assert strictly_convex(weighted.f(u))
        scores = evaluate(divergence.derivative, np.linspace(-2, 2, 41))
        assert_allclose(weighted.conjugate(scores), supremum(weighted.f, scores), rtol=1e-9, atol=1e-9)


@some
@given(problems(), st.sampled_from([0.2, 3.0, 40.0]))
def test_the_weighted_objective_bounds_the_weighted_information(problem, alpha):
    """Proposition 5: Eq. 10 of f_α is the objective with G / α and weight α, less the constant α f(1 / α).

    So it bounds the f_α-information from below, for any kernel G(x, y) > 0.
    """
    joint = problem.joint
    log_shrunk = np.clip(problem.critic, -5, 5) - math.log(alpha)  # log G / α
    for divergence in EVERY:
        weighted = Weighted(divergence, alpha)
        information = product_mean(joint, weighted.f(joint.table / joint.product))
        assert information >= -1e-9
        scores = evaluate(divergence.derivative, log_shrunk)  # f_α′(G) = f′(G / α)
        compositions = evaluate(divergence.composition, log_shrunk)
        positive_term = positive_mean(joint, scores)
        eq_10 = positive_term - product_mean(joint, weighted.conjugate(scores))
        proposition = positive_term - alpha * product_mean(joint, compositions)
        assert eq_10 == pytest.approx(proposition - weighted.constant, rel=1e-8, abs=1e-8)
        assert eq_10 <= with_slack(information, relative=1e-8)


def weighted_objective(
    divergence: Divergence, mu: float, alpha: float, near: np.ndarray, far: np.ndarray
) -> np.ndarray:
    """Algorithm 1 (maximised) where all positive pairs have squared distance ``near`` and all others ``far``."""
    return similarity(divergence, near, mu) - alpha * h(divergence, far, mu)


def misfit(left: np.ndarray, right: np.ndarray) -> float:
    """How far ``left`` is from a positive multiple of ``right`` plus a constant; 0: they rank everything alike."""
    left = left - left.mean()
    right = right - right.mean()
    factor = max((left @ right) / (right @ right), 0.0)
    difference = left - factor * right
    return float(np.abs(difference).max() / np.abs(left).max())


NEAR = np.tile([0.0, 0.5, 1.0], 3)
FAR = np.repeat([1.0, 2.0, 2.5], 3)
"""``[9]`` squared distances of positive and of other pairs: every combination."""


def test_the_weight_absorbs_the_height_of_the_kernel_for_powers_only(stated):
    """Sec. 3.3: "α also absorbs the parameter μ" holds for f whose f′ is a power or the logarithm.

    There μ = 7.3 with α = 1 is, up to a factor and a constant, μ = 1 with α = 7.3. For JS, Vincze–Le Cam and Jeffrey
    no α comes near.
    """
    mu = 7.3
    no_powers = (divergences.JS, divergences.VINCZE_LE_CAM, divergences.JEFFREY)
    for divergence in (*EVERY, divergences.tsallis(2)):
        if divergence not in no_powers:
            of_height = weighted_objective(divergence, mu, 1.0, NEAR, FAR)
            of_weight = weighted_objective(divergence, 1.0, mu, NEAR, FAR)
            assert misfit(of_height, of_weight) < 1e-12

    gap = {}
    for divergence in no_powers:
        of_height = weighted_objective(divergence, mu, 1.0, NEAR, FAR)
        misfits = []
        for alpha in np.exp(np.linspace(-5, 8, 400)):
            of_weight = weighted_objective(divergence, 1.0, alpha, NEAR, FAR)
            misfits.append(misfit(of_height, of_weight))
        gap[divergence.name] = min(misfits)
        assert gap[divergence.name] > 0.02
    stated("fmicl/alpha-absorbs-mu", gap=gap["js"])


# Section 3.4: the shift of Eq. 13, InfoNCE, Alignment and Uniformity, and the spectral loss.


def shifted(joint: exact.Joint, scores: np.ndarray, v: float) -> float:
    """Eq. 13 takes the supremum over v of this: the bound of Eq. 2 for KL at the scores s − v."""
    return exact.f_information(joint, scores - v, divergences.KL)


def log_mean_exp(joint: exact.Joint, scores: np.ndarray) -> float:
    """log E× exp s."""
    top = scores.max()
    return math.log(product_mean(joint, np.exp(scores - top))) + top


def rounding(scores: np.ndarray) -> float:
    """What rounding may do to a mean of such scores."""
    return 1e-10 * (1 + abs(scores).max())


@some
@given(problems())
def test_donsker_varadhan_is_the_best_shift_of_kl(problem):
    """Eqs. 13 and 14: for KL the best shift is v = log E× exp(s) − 1, and it gives E₊ s − log E× exp(s)."""
    joint, scores = problem.joint, problem.critic
    eq_14 = exact.donsker_varadhan(joint, scores)
    best = log_mean_exp(joint, scores) - 1
    assert shifted(joint, scores, best) == pytest.approx(eq_14, abs=rounding(scores))
    for offset in problem.rng.uniform(-5, 5, size=6):
        assert shifted(joint, scores, best + offset) <= eq_14 + rounding(scores)


def test_the_printed_shift_is_not_the_best(stated):
    """After Eq. 13: the printed v = log(E× s) − 1 lacks an exponential, and is not the best shift."""
    scores = np.array([[2.0, 0.5], [0.5, 2.0]])
    printed = math.log(product_mean(PAIR, scores)) - 1
    right = log_mean_exp(PAIR, scores) - 1
    lost = shifted(PAIR, scores, right) - shifted(PAIR, scores, printed)
    assert lost > 1
    stated("fmicl/dv-maximiser", printed=printed, right=right, lost=lost)
    # For the cosines of independent features the mean score is 0 or less, and the printed shift does not exist.
    cosines = np.array([[1.0, -1.0], [-1.0, 1.0]])
    assert product_mean(PAIR, cosines) == 0


@some
@given(problems(), st.floats(-3, 3))
def test_a_shift_is_a_weight_for_kl(problem, v):
    """Before Eq. 14: for KL a shift v acts as the weight α = e^−v, up to the constant v.

    The best shift, which gives Eq. 14, is the weight α = 1 / E× exp(s − 1).
    """
    joint = problem.joint
    scores = np.clip(problem.critic, -30, 30)
    positive_term = positive_mean(joint, scores)
    mean_conjugate = product_mean(joint, np.exp(scores - 1))  # E× f*(s)
    with_weight = positive_term - math.exp(-v) * mean_conjugate
    assert shifted(joint, scores, v) == pytest.approx(with_weight - v, rel=1e-10, abs=1e-10)
    best_weight = 1 / mean_conjugate
    at_best = positive_term - best_weight * mean_conjugate + math.log(best_weight)
    assert exact.donsker_varadhan(joint, scores) == pytest.approx(at_best, abs=1e-9)


def test_a_shift_is_no_weight_for_pearson(stated):
    """Before Eq. 14: for Pearson no weight has the effect of the shift v = 1.

    What pushes on a negative pair of score s is f*′(s − v) with the shift, and α f*′(s) with the weight. The shift
    pushes twice as much on a score of 1 as on 0; the weight 1.5 times as much, whatever α is.
    """
    scores = np.array([0.0, 1.0])
    push_on_0, push_on_1 = slope(divergences.PEARSON.conjugate, scores - 1.0)
    with_shift = push_on_1 / push_on_0
    push_on_0, push_on_1 = slope(divergences.PEARSON.conjugate, scores)
    with_weight = push_on_1 / push_on_0
    assert with_shift == pytest.approx(2)
    assert with_weight == pytest.approx(1.5)
    stated("fmicl/shift-is-weight", shift=with_shift, weight=with_weight)


@many
@given(problems())
def test_kl_is_below_donsker_varadhan_is_below_info_nce(problem):
    """Eqs. 12, 15 and 16: for every score KL-f-MICL ≤ Eq. 14 ≤ Eq. 12 ≤ I(X; Y), all maximised.

    Eq. 12 is InfoNCE with the expectation over all y: E₊ s − E_x log E_y exp s.
    """
    joint, scores = problem.joint, problem.critic
    mean_of_logs = joint.x @ exact.threshold(joint, scores)  # E_x log E_y exp s
    log_of_mean = log_mean_exp(joint, scores)
    assert mean_of_logs <= log_of_mean + rounding(scores)  # Eq. 15

    positive_term = positive_mean(joint, scores)
    kl_micl = exact.nwj(joint, scores)
    eq_14 = exact.donsker_varadhan(joint, scores)
    eq_12 = exact.unnormalised_barber_agakov(joint, scores, given="x")
    assert eq_14 == pytest.approx(positive_term - log_of_mean, abs=rounding(scores))
    assert eq_12 == pytest.approx(positive_term - mean_of_logs, abs=rounding(scores))

    assert kl_micl <= eq_14 + rounding(scores)
    assert positive_term - log_of_mean <= eq_12 + rounding(scores)
    assert eq_12 <= joint.mutual_information + 1e-9


@some
@given(problems(most=4), st.integers(2, 5))
def test_without_the_positive_below_the_line_info_nce_is_above_for_every_k(problem, k):
    """Eq. 16: with K − 1 negatives alone in its denominator, InfoNCE is on average above Eq. 12, so above Eq. 14."""
    joint, scores = problem.joint, problem.critic
    eq_12 = exact.unnormalised_barber_agakov(joint, scores, given="x")
    eq_14 = exact.donsker_varadhan(joint, scores)
    assert exact.leave_one_out(joint, scores, k) >= eq_12 - rounding(scores)
    assert eq_12 >= eq_14 - rounding(scores)


def test_with_the_positive_below_the_line_info_nce_falls_below_f_micl(stated):
    """Sec. 1 and after Eq. 16: InfoNCE with the positive in its denominator is no upper bound of f-MICL.

    It stays below log K, while the KL-f-MICL objective reaches the mutual information.
    """
    joint = exact.Joint.of(np.eye(5) * 0.96 + 0.01)
    scores = joint.log_ratio
    kl_micl = exact.nwj(joint, 1 + scores)  # Eq. 10 at its optimal similarity
    assert kl_micl == pytest.approx(joint.mutual_information, abs=1e-12)
    info_nce = {k: exact.info_nce(joint, scores, k) for k in (2, 3, 8)}
    assert info_nce[2] < math.log(2) < kl_micl
    assert info_nce[3] < math.log(3) < kl_micl
    assert info_nce[8] < kl_micl
    stated(
        "fmicl/simclr-upper-bound",
        diagonal=joint.table[0, 0],
        micl=kl_micl,
        two=info_nce[2],
        eight=info_nce[8],
    )


def sine(cosine: float) -> float:
    return math.sqrt(max(0.0, 1 - cosine**2))


def two_positive_pairs(near: float, far: float) -> tuple[np.ndarray, np.ndarray]:
    """Features x and y ``[2, 4]`` on the unit sphere: ‖xᵢ − yᵢ‖² = near, ‖x₁ − x₂‖² = ‖y₁ − y₂‖² = far."""
    cosine_far = 1 - far / 2
    cosine_near = 1 - near / 2
    x = np.array([[1, 0, 0, 0], [cosine_far, sine(cosine_far), 0, 0]])
    turned = np.roll(x, 2, axis=1)  # each x by a right angle, into the last two dimensions
    return x, cosine_near * x + sine(cosine_near) * turned


def squared_distances(x: np.ndarray) -> np.ndarray:
    """``[..., n(n − 1)]`` the squared distances of all ordered pairs i ≠ j of points ``[..., n, d]``."""
    every_pair = squared_length(x[..., :, None, :] - x[..., None, :, :])  # [..., n, n]
    distinct = ~np.eye(x.shape[-2], dtype=bool)
    return every_pair[..., distinct]


def mean_alignment(x: np.ndarray, y: np.ndarray) -> float:
    """The mean squared distance of the positive pairs."""
    return float(squared_length(x - y).mean())


def log_mean_over_distinct(x: np.ndarray, c: float, top: float = 0.0) -> float:
    """Log of the mean of exp(top − c ‖xᵢ − xⱼ‖²) over i ≠ j: with top = 0 the uniformity of Wang and Isola."""
    exponentials = np.exp(top - c * squared_distances(x))
    return math.log(exponentials.mean())


def alignment_and_uniformity(x: np.ndarray, y: np.ndarray, t: float = 2.0, weight: float = 1.0) -> float:
    """Wang and Isola's loss, negated so that it is maximised; the defaults are theirs, with α = 2."""
    uniformity = (log_mean_over_distinct(x, t) + log_mean_over_distinct(y, t)) / 2
    return -mean_alignment(x, y) - weight * uniformity


def eq_14_of_a_batch(x: np.ndarray, y: np.ndarray, c: float, mu: float = 1.0) -> float:
    """Eq. 14 on a batch with s = 1 + log μ − c ‖·‖², the f-Gaussian similarity of KL."""
    top = 1 + math.log(mu)
    positive = top - c * mean_alignment(x, y)
    negative = (log_mean_over_distinct(x, c, top) + log_mean_over_distinct(y, c, top)) / 2
    return positive - negative


def random_batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """300 batches of 2 to 6 positive pairs of unit features."""
    rng = np.random.default_rng(3)
    for _ in range(300):
        x = rng.standard_normal((rng.integers(2, 7), rng.integers(2, 6)))
        y = x + rng.choice([0.1, 1.0]) * rng.standard_normal(x.shape)
        yield unit(x), unit(y)


def test_the_similarity_is_minus_the_distance_for_one_bandwidth_and_height_only():
    """Eq. 17: for KL s_f = 1 + log μ − ‖x − y‖² / 2σ², which is −‖x − y‖² for μ = 1/e and 2σ² = 1 only."""
    distance = np.array([0.0, 0.5, 2.0, 4.0])
    assert_allclose(similarity(divergences.KL, distance, mu=1 / math.e), -distance, atol=1e-15)
    # The paper's own setting μ = 1, 2σ² = 1, and its language setting 1 / 2σ² = 20:
    assert_allclose(similarity(divergences.KL, distance), 1 - distance, atol=1e-15)
    assert_allclose(similarity(divergences.KL, distance, c=20.0), 1 - 20 * distance, atol=1e-12)


def test_au_is_kl_if_its_weight_is_one_over_t_and_not_by_default(stated):
    """Eq. 17 and Sec. 3.4: Alignment and Uniformity is Eq. 14 divided by t, if the weight of uniformity is 1 / t.

    With the default, t = 2 and weight 1, it is Eq. 14 for no bandwidth, height or factor: of two batches that are
    equal for every Eq. 14 it prefers one.
    """
    for x, y in random_batches():
        for t in (0.5, 1.0, 2.0, 5.0):  # t = 1 is Eq. 17
            au = alignment_and_uniformity(x, y, t, weight=1 / t)
            for mu in (1 / math.e, 1.0, 5.0):  # Eq. 14 does not see μ
                eq_14 = eq_14_of_a_batch(x, y, t, mu)
                assert au == pytest.approx(eq_14 / t, abs=1e-12)

    close = two_positive_pairs(near=0.0, far=1.0)
    wide = two_positive_pairs(near=1.0, far=2.0)
    for _, y in (close, wide):
        assert_allclose(np.linalg.norm(y, axis=1), 1)
    for c in (0.1, 1.0, 2.0, 20.0):  # Eq. 14 is c (far − near), the same for both
        of_close = eq_14_of_a_batch(*close, c)
        of_wide = eq_14_of_a_batch(*wide, c)
        assert of_close == pytest.approx(of_wide, abs=1e-12)
    of_close = alignment_and_uniformity(*close)
    of_wide = alignment_and_uniformity(*wide)
    assert of_close == pytest.approx(2)
    assert of_wide == pytest.approx(3)
    stated("fmicl/au-special-case", close=of_close, wide=of_wide)


def test_cosine_and_gaussian_similarity_agree_for_kl():
    """After Eq. 17: for unit features −‖x − y‖² = 2 x·y − 2, and Eqs. 12 and 14 do not see the constant."""
    for x, y in random_batches():
        gaussian = -squared_length(x[:, None] - y[None])
        cosine = x @ y.T
        assert_allclose(gaussian, 2 * cosine - 2, atol=1e-13)
        n = len(x)
        joint = exact.Joint(0.9 * np.eye(n) / n + 0.1 / n**2)
        for objective in (exact.donsker_varadhan, exact.unnormalised_barber_agakov):
            of_gaussian = objective(joint, gaussian)
            of_cosine = objective(joint, 2 * cosine)
            assert of_gaussian == pytest.approx(of_cosine, abs=1e-12)


@some
@given(problems())
def test_chi_squared_minus_one(problem):
    """Eq. 19, corrected: the χ²-MICL objective is 2 E₊ G − E× G² − 1, for any kernel G(x, y) > 0."""
    joint = problem.joint
    kernel = np.exp(np.clip(problem.critic, -4, 4))
    scores = 2 * (kernel - 1)  # f′(G)
    objective = exact.f_information(joint, scores, divergences.PEARSON)
    right = 2 * positive_mean(joint, kernel) - product_mean(joint, kernel**2) - 1
    assert objective == pytest.approx(right, rel=1e-10, abs=1e-9)


def test_the_printed_constant_of_eq_19_is_wrong(stated):
    """Eq. 19: with the printed constant −3, independent variables with G = 1, their ratio, have −2 and not 0."""
    kernel = np.ones((3, 2))
    scores = 2 * (kernel - 1)  # f′(G)
    objective = exact.f_information(INDEPENDENT, scores, divergences.PEARSON)
    printed = 2 * positive_mean(INDEPENDENT, kernel) - product_mean(INDEPENDENT, kernel**2) - 3
    assert objective == pytest.approx(0)
    assert printed == pytest.approx(-2)
    stated("fmicl/eq-19", printed=printed)


def spectral_loss(joint: exact.Joint, critic: np.ndarray) -> float:
    """The spectral contrastive loss of HaoChen et al.: −2 E z·z⁺ + E (z·z′)²."""
    return -2 * positive_mean(joint, critic) + product_mean(joint, critic**2)


@many
@given(joints(), seeds)
def test_the_spectral_loss_is_chi_squared_on_the_whole_line(joint, seed):
    """After Eq. 19: χ²-MICL with cosines s in place of G is −(spectral loss) − 1, with the f* that Table 1 prints.

    The printed f*(t) = t²/4 + t is nowhere below the right one, so the spectral loss, too, bounds the χ²-information.
    For cosines of at least 0 the two conjugates agree.
    """
    rng = np.random.default_rng(seed)
    n, m = joint.table.shape
    x, y = rng.standard_normal((n, 3)), rng.standard_normal((m, 3))
    cosine = unit(x) @ unit(y).T
    scores = 2 * (cosine - 1)
    printed_conjugates = PRINTED["pearson"].conjugate(scores)
    printed = positive_mean(joint, scores) - product_mean(joint, printed_conjugates)
    assert printed == pytest.approx(-spectral_loss(joint, cosine) - 1, abs=1e-10)

    objective = exact.f_information(joint, scores, divergences.PEARSON)
    information = joint.f_information(divergences.PEARSON)
    assert printed <= objective + 1e-10
    assert objective <= information * (1 + 1e-9) + 1e-10

    not_negative = abs(cosine)
    objective = exact.f_information(joint, 2 * (not_negative - 1), divergences.PEARSON)
    assert objective == pytest.approx(-spectral_loss(joint, not_negative) - 1, abs=1e-10)


def test_cosines_are_outside_of_the_kernel_and_of_the_domain_of_some_divergences():
    """After Eq. 19 and Sec. 4.3: what a cosine may do that the f-Gaussian similarity f′(G) never does.

    A negative cosine is no density ratio, so χ²-MICL differs from the spectral loss there. And a cosine may lie
    outside the domain of f* of JS and SH; that of Vincze–Le Cam holds all, only its slope is infinite at 1.
    """
    cosine = np.array([[1.0, -1.0], [-1.0, 1.0]])
    objective = exact.f_information(PAIR, 2 * (cosine - 1), divergences.PEARSON)
    assert -spectral_loss(PAIR, cosine) - 1 == pytest.approx(2 * 0.6 - 1 - 1)
    assert objective == pytest.approx(-0.8 + 0.5)  # f*(−4) = −1 where the spectral loss has (−1)² − 1 = 0

    cosine = np.array([0.5, 0.8, 1.0])
    assert evaluate(divergences.JS.contains, cosine).tolist() == [True, False, False]
    assert evaluate(divergences.HELLINGER.contains, cosine).tolist() == [True, True, False]
    assert evaluate(divergences.VINCZE_LE_CAM.contains, cosine).all()
    assert slope(divergences.VINCZE_LE_CAM.conjugate, np.array([1.0]))[0] == math.inf

    for divergence in EVERY:
        scores = evaluate(divergence.derivative, np.linspace(-20, 3, 200))
        assert evaluate(divergence.contains, scores).all()


# Theorem 4 and Appendix B: what minimises the negative term.


def negative_term(divergence: Divergence, distances: np.ndarray, mu: float = 1.0, c: float = 1.0) -> np.ndarray:
    """The mean of h over the ordered pairs i ≠ j of each configuration: ``[..., n(n − 1)]`` to ``[...]``."""
    return h(divergence, distances, mu, c).mean(-1)


def simplex_distance(n: int) -> float:
    """The squared distance of two points of a centred regular simplex of n points."""
    return 2 * n / (n - 1)


def simplex(n: int, d: int) -> np.ndarray:
    """``[n, d]`` unit vectors with equal distances, in d ≥ n − 1 dimensions."""
    centred = np.eye(n) - 1 / n
    _, _, basis = np.linalg.svd(centred)
    points = unit(centred @ basis[: n - 1].T)
    return np.pad(points, ((0, 0), (0, d - n + 1)))


def configurations(n: int, d: int, count: int, seed: int = 0) -> np.ndarray:
    """``[count, n(n − 1)]`` squared distances of n points on the sphere of d dimensions.

    By turns one cluster, a simplex disturbed a little or much, two opposite clusters, and random points.
    """
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, n, d))
    one_cluster, near_simplex, two_clusters = x[::4], x[1::4], x[2::4]  # views of x
    centre = rng.standard_normal((len(one_cluster), 1, d))
    one_cluster[:] = centre + 0.3 * one_cluster
    noise = rng.choice([1e-3, 0.1, 0.5], size=(len(near_simplex), 1, 1))
    near_simplex[:] = simplex(n, d) + noise * near_simplex
    side = np.sign(two_clusters[:, :, :1])
    two_clusters[:] = side * np.eye(d)[0] + 0.2 * two_clusters
    return squared_distances(unit(x))


SHAPES = [(2, 2), (3, 2), (4, 3), (4, 6), (7, 6), (9, 20)]
"""Numbers of points N and of dimensions d, with N ≤ d + 1."""
SPREADING = [*TABLE_1, divergences.JEFFREY]
"""The divergences for which h is strictly convex with μ ≤ 2."""


def test_both_terms_fall_with_the_distance():
    """Sec. 3.4, More on AU, and Appendix B: f′(G) and h decrease strictly with the distance.

    So the first term is largest exactly if all positive pairs coincide. h decreases because (f*∘f′)′ > 0.
    """
    distance = np.linspace(0, 4, 401)
    log_u = np.linspace(-10, 3, 50)
    for divergence in EVERY:
        assert (slope(divergence.composition, log_u) > 0).all()
        assert strictly_decreasing(similarity(divergence, distance, c=5.0))
        for mu, c in ((1.0, 1.0), (7.3, 1.0), (1.0, 2.0)):
            assert strictly_decreasing(similarity(divergence, distance, mu, c))
            assert strictly_decreasing(h(divergence, distance, mu, c))


def least_curvature(divergence: Divergence, mu: float, c: float) -> float:
    """The minimum of h″ on [0, 4], by differences.

    With v = log μ − c t, h″(t) = c² w′(v), where w is the slope of f*∘f′ in v.
    """
    grid = np.linspace(0, 4, 2001)
    v = log_kernel(grid[::-1], mu, c)  # ascending
    rise = np.diff(slope(divergence.composition, v))
    step = c * grid[1]
    return c**2 * rise.min() / step


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("mu", "c"), [(1.0, 1.0), (0.3, 2.0), (2.0, 0.5)])
def test_a_regular_simplex_is_the_strict_minimum(shape, mu, c):
    """Theorem 4: if h is strictly convex, exactly the centred regular simplices minimise the sum of h over i ≠ j.

    Any configuration exceeds them by at least half the least h″ times the spread of its distances about 2N / (N − 1).
    """
    n, _ = shape
    distances = configurations(*shape, 400)
    assert_allclose(squared_distances(simplex(*shape)), simplex_distance(n), atol=1e-12)
    spread = ((distances - simplex_distance(n)) ** 2).mean(1)
    for divergence in SPREADING:
        assert divergence.spreads(mu)
        of_simplex = h(divergence, simplex_distance(n), mu, c)
        of_configurations = negative_term(divergence, distances, mu, c)
        curvature = least_curvature(divergence, mu, c)
        assert curvature > 0 or (divergence.name, mu) == ("vincze_le_cam", 2.0)  # there only h″(0) = 0
        excess = 0.5 * curvature * (1 - 1e-2) * spread
        assert (of_configurations >= of_simplex + excess - 1e-12).all()


@pytest.mark.parametrize("divergence", SPREADING, ids=[divergence.name for divergence in SPREADING])
@pytest.mark.parametrize("shape", [(4, 3), (5, 7)], ids=str)
def test_minimising_the_negative_term_reaches_the_simplex(divergence, shape):
    """Theorem 4: descent on the negative term, from random points, ends at a regular simplex."""
    n, d = shape
    distinct = ~torch.eye(n, dtype=torch.bool)

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        free = torch.tensor(flat.reshape(n, d), requires_grad=True)
        x = free / free.norm(dim=1, keepdim=True)
        distance = (2 - 2 * x @ x.T)[distinct]
        value = divergence.composition(-distance).mean()
        value.backward()
        return value.item(), free.grad.numpy().ravel()

    for seed in range(3):
        start = np.random.default_rng(seed).standard_normal(n * d)
        found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000, "ftol": 0, "gtol": 1e-10})
        x = unit(found.x.reshape(n, d))
        assert_allclose(squared_distances(x), simplex_distance(n), atol=1e-5)


def mean_over_all_pairs(divergence: Divergence, distances: np.ndarray, n: int) -> np.ndarray:
    """The left side of Eq. 26: the mean of h over all n² pairs, of the distances ``[..., n(n − 1)]`` of those i ≠ j."""
    of_distinct = h(divergence, distances).sum(-1)
    of_itself = n * h(divergence, 0.0)
    return (of_distinct + of_itself) / n**2


def test_jensen_is_attained_over_distinct_pairs_and_not_over_all(stated):
    """Eqs. 26 and 27: over the pairs i ≠ j Jensen's bound is h(2N / (N − 1)), and the simplex attains it.

    The paper also sums the pairs i = j, of distance 0. Its bound h(2) then holds but nothing attains it.
    """
    for (n, d), divergence in product(SHAPES, SPREADING):
        distances = configurations(n, d, 400, seed=1)
        of_configurations = negative_term(divergence, distances)
        of_simplex = negative_term(divergence, squared_distances(simplex(n, d)))
        of_mean_distance = h(divergence, distances.mean(1))
        bound = h(divergence, simplex_distance(n))
        assert (of_configurations >= of_mean_distance - 1e-12).all()
        assert (of_mean_distance >= bound - 1e-12).all()
        assert of_simplex == pytest.approx(bound, abs=1e-12)

    for n, d in SHAPES:
        random = configurations(n, d, 400, seed=2)
        distances = np.vstack([random, squared_distances(simplex(n, d))])
        for divergence in TABLE_1:
            left_side = mean_over_all_pairs(divergence, distances, n)
            assert (left_side > h(divergence, 2.0) + 1e-4).all()

    # KL, five points: a simplex has 20 pairs of squared distance 2.5 and 5 of 0.
    left_side = (20 * math.exp(-2.5) + 5) / 25
    printed_bound = math.exp(-2)
    distances = squared_distances(simplex(5, 4))
    assert mean_over_all_pairs(divergences.KL, distances, 5) == pytest.approx(left_side)
    assert h(divergences.KL, 2.0) == pytest.approx(printed_bound)
    stated("fmicl/eq-26", simplex=left_side, bound=printed_bound)


def test_a_regular_simplex_needs_n_minus_one_dimensions():
    """Eqs. 28 and 29: a centred regular simplex of N points has xᵢ·xⱼ = −1 / (N − 1) and rank N − 1.

    Its squared distances are 2N / (N − 1) and add up to 2N² over all ordered pairs.
    """
    for n in range(2, 12):
        points = simplex(n, n - 1)
        gram = points @ points.T
        right_gram = np.full((n, n), -1 / (n - 1))
        np.fill_diagonal(right_gram, 1)
        assert_allclose(gram, right_gram, atol=1e-12)
        assert np.linalg.matrix_rank(gram) == n - 1
        assert_allclose(points.sum(0), 0, atol=1e-12)
        total = squared_distances(points).sum()
        assert total == pytest.approx(2 * n**2)
        assert total == pytest.approx(n * (n - 1) * (2 + 2 / (n - 1)))


# u² f″(u): h is strictly convex on [0, 4] if and only if it increases strictly on [μ e^{−4c}, μ].
CURVATURE = {
    "kl": lambda u: u,
    "js": lambda u: u / (1 + u),
    "pearson": lambda u: 2 * u**2,
    "hellinger": lambda u: np.sqrt(u) / 2,
    "tsallis": lambda u: 3 * u**3,
    "vincze_le_cam": lambda u: 8 * u**2 / (1 + u) ** 3,
    "vincze_le_cam_printed": lambda u: 4 * u / (1 + u) ** 2,
    "jeffrey": lambda u: 1 + u,
    "reverse_kl": lambda u: 1 + 0 * u,
    "neyman": lambda u: 2 / u,
}


def convex(name: str, mu: float, c: float) -> bool:
    """Whether h is strictly convex on [0, 4]: whether u² f″(u), the slope of f*∘f′ in log u, increases."""
    least, largest = math.log(mu) - 4 * c, math.log(mu)
    log_u = np.linspace(least, largest, 4001)
    curvature = slope(divergences.get(name).composition, log_u)
    in_closed_form = CURVATURE[name](np.exp(log_u))
    assert_allclose(curvature, in_closed_form, rtol=1e-9, atol=1e-12)
    return strictly_increasing(curvature)


def test_table_1_satisfies_eq_20_for_heights_up_to_two():
    """After Theorem 4: all divergences of Table 1, and Jeffrey, have a strictly convex h if μ ≤ 2.

    All but Vincze–Le Cam have it for every μ. The bandwidth does not matter.
    """
    for mu, c in product((0.05, 1.0, 1.9, 2.0), (0.5, 1.0, 2.0)):
        for divergence in SPREADING:
            assert convex(divergence.name, mu, c)
    for mu, name in product((7.3, 100.0), ("kl", "js", "pearson", "hellinger", "tsallis", "jeffrey")):
        assert convex(name, mu, 1.0)
        assert divergences.get(name).spreads(mu)


def test_vincze_le_cam_loses_eq_20_above_two_and_can_prefer_two_clusters(stated):
    """After Theorem 4 and Appendix B: for Vincze–Le Cam h is not strictly convex if μ > 2; the height does matter.

    With the printed composition the edge is μ = 1. For large μ two opposite clusters beat the simplex.
    """
    for name, edge in (("vincze_le_cam", 2.0), ("vincze_le_cam_printed", 1.0)):
        for c in (0.1, 0.5, 1.0, 3.0):
            assert convex(name, edge, c)
            assert not convex(name, edge + 0.05, c)
        assert divergences.get(name).spreads(edge)
        assert not divergences.get(name).spreads(edge + 1e-9)

    # Assumption 3 at 1/2σ² = 1 has μ = e² / 0F1(; d/2; 1) > 2 in every dimension.
    heights = [math.exp(2) / hyp0f1(d / 2, 1.0) for d in (2, 3, 128, 512, 768)]
    assert_allclose(heights[:3], [3.24, 4.07, 7.27], atol=0.01)
    assert min(heights) > 2

    two_clusters = squared_distances(np.array([[1.0, 0, 0], [1, 0, 0], [-1, 0, 0], [-1, 0, 0]]))
    regular = squared_distances(simplex(4, 3))
    printed, right = divergences.VINCZE_LE_CAM_PRINTED, divergences.VINCZE_LE_CAM
    of_clusters = negative_term(printed, two_clusters, mu=50.0)
    of_simplex = negative_term(printed, regular, mu=50.0)
    assert of_clusters < of_simplex - 0.1
    of_clusters = negative_term(right, two_clusters, mu=100.0)
    of_simplex = negative_term(right, regular, mu=100.0)
    assert of_clusters < of_simplex - 0.1
    assert negative_term(right, two_clusters, mu=1.0) > h(right, 8 / 3) + 0.1  # with μ = 1 the simplex is better
    stated("fmicl/eq-20-table-1", clusters=of_clusters, simplex=of_simplex)


def test_every_centred_configuration_minimises_reverse_kl():
    """Appendix B, proof of Theorem 4: for reverse KL h is linear, so all centred configurations are minima.

    The negative term exceeds its least value by 2N / (N − 1) times the squared length of the mean feature.
    """
    divergence = divergences.REVERSE_KL
    assert not convex("reverse_kl", 1.0, 1.0)
    h_on_grid = h(divergence, np.linspace(0, 4, 50))
    assert_allclose(np.diff(h_on_grid, 2), 0, atol=1e-12)

    rng = np.random.default_rng(0)
    for n, d in ((4, 3), (6, 5), (8, 3)):
        least = h(divergence, simplex_distance(n))
        for _ in range(200):
            x = unit(rng.standard_normal((n, d)))
            excess = simplex_distance(n) * squared_length(x.mean(0))
            value = negative_term(divergence, squared_distances(x))
            assert value == pytest.approx(least + excess, abs=1e-12)
            x[n // 2 :] = -x[: n // 2]  # centred, and no simplex
            value = negative_term(divergence, squared_distances(x))
            assert value == pytest.approx(least, abs=1e-12)


def test_two_opposite_clusters_minimise_neyman():
    """Appendix B, proof of Theorem 4: for Neyman h is concave, and two opposite clusters beat the simplex."""
    divergence = divergences.NEYMAN
    assert not convex("neyman", 1.0, 1.0)
    h_on_grid = h(divergence, np.linspace(0, 4, 50))
    assert (np.diff(h_on_grid, 2) < 0).all()
    for n, d in ((4, 3), (6, 5), (8, 9)):
        sides = np.repeat([1.0, -1.0], n // 2)
        clusters = sides[:, None] * np.eye(d)[0]
        least = negative_term(divergence, squared_distances(clusters))
        of_simplex = negative_term(divergence, squared_distances(simplex(n, n - 1)))
        of_random_points = negative_term(divergence, configurations(n, d, 600))
        assert least < of_simplex - 0.1
        assert (of_random_points >= least - 1e-10).all()


def test_equal_features_are_the_worst_for_the_negative_term():
    """After Theorem 4: the objective does not ask for collapse, for any divergence.

    Equal features have the largest negative term of all. With aligned positive pairs Eq. 11 therefore prefers two
    opposite clusters for every weight α > 0.
    """
    two_clusters = squared_distances(np.array([[1.0, 0], [1, 0], [-1, 0], [-1, 0]]))
    for divergence in EVERY:
        of_equal_features = h(divergence, 0.0)
        for n, d in SHAPES:
            assert (negative_term(divergence, configurations(n, d, 200)) < of_equal_features).all()
        of_clusters = negative_term(divergence, two_clusters)
        aligned = float(similarity(divergence, 0.0))  # the positive term at distance 0
        for alpha in (1.0, 40.0):
            assert aligned - alpha * of_clusters > aligned - alpha * of_equal_features


def curvatures_of_loss(joint: exact.Joint, divergence: Divergence, mu: float, c: float, alpha: float) -> np.ndarray:
    """``[2 views]`` eigenvalues of the second derivative of the loss, all features equal.

    The features lie on the sphere of 3 dimensions, so each view can move in two directions from (1, 0, 0). The length
    of a movement of all views is its root mean square under the law of a view.
    """
    positive_law, product_law = torch.from_numpy(joint.table), torch.from_numpy(joint.product)
    views = len(positive_law)

    def loss(moved: torch.Tensor) -> torch.Tensor:
        ones = torch.ones(views, 1, dtype=torch.float64)
        x = torch.cat([ones, moved.reshape(views, 2)], 1)
        x = x / x.norm(dim=1, keepdim=True)
        distance = 2 - 2 * x @ x.T
        log_g = math.log(mu) - c * distance
        positive = (positive_law * divergence.derivative(log_g)).sum()
        negative = (product_law * divergence.composition(log_g)).sum()
        return alpha * negative - positive

    equal_features = torch.zeros(2 * views, dtype=torch.float64)
    hessian = torch.autograd.functional.hessian(loss, equal_features).numpy()
    scale = np.repeat(joint.x, 2) ** -0.5
    return np.linalg.eigvalsh(scale[:, None] * hessian * scale)


def law_of_two_views(rng: np.random.Generator) -> exact.Joint:
    """The law of two of five views of one of four items: given the item, both are drawn from the same law."""
    concentration = rng.choice([0.2, 1.0, 5.0])
    of_view = rng.dirichlet(np.full(5, concentration), size=4) + 1e-3  # [item, view]
    of_view /= of_view.sum(1, keepdims=True)
    of_item = rng.dirichlet(np.full(4, 3.0))
    return exact.Joint.of(of_view.T @ np.diag(of_item) @ of_view)


def test_the_weight_and_not_the_divergence_decides_whether_equal_features_rest():
    """After Theorem 4: equal features are a local minimum of the exact loss if αμ < 1 − ρ, and none if αμ > 1 − ρ.

    ρ is the largest correlation of one function of two views. The divergence only scales the curvatures, which are
    4 c μ f″(μ) (1 − correlation − αμ) and, where all views move alike, 0. All settings of the paper have αμ > 1.
    """
    rng = np.random.default_rng(0)
    for mu, c in ((1.0, 1.0), (0.4, 2.0), (1.7, 0.5)):
        joint = law_of_two_views(rng)
        all_correlations = np.linalg.eigvalsh(joint.table / np.sqrt(joint.product))
        correlations = all_correlations[:-1]  # the largest, 1, is that of a constant
        rho = correlations[-1]
        assert 0 <= rho < 1
        edge = (1 - rho) / mu
        for divergence in EVERY:
            slope_at_mu = float(slope(divergence.composition, np.array(math.log(mu))))  # μ² f″(μ)
            scale = 4 * c * slope_at_mu / mu
            assert scale > 0
            for alpha in (0.5 * edge, 0.99 * edge, 1.01 * edge, 40.0 / mu):
                found = curvatures_of_loss(joint, divergence, mu, c, alpha)
                each_once = np.array([0.0, *(1 - correlations - alpha * mu)])
                right = scale * np.repeat(each_once, 2)  # the sphere has two directions
                assert_allclose(found, np.sort(right), atol=1e-10 * scale * (1 + alpha * mu))
                unstable = found.min() < -1e-4 * scale * (1 - rho)
                assert unstable == (alpha * mu > 1 - rho)
    settings = papers.published("fmicl", 7).pivot_table(index="row", columns="column", values="value")
    assert (settings["mu"] * settings["alpha"] > 1).all()  # above 1 − ρ for every ρ ≥ 0


# Theorem 6 and Appendix C: the error of the objective of a sample. All expectations are by enumeration.


def rademacher(values: np.ndarray, law: np.ndarray, n: int) -> float:
    """The Rademacher complexity E sup over v of the mean of εᵢ v(zᵢ), for n symbols z from ``law`` and random signs ε.

    ``values`` ``[C, Z]`` are those of each function v of the class at each symbol; ``law`` is ``[Z]``.
    """
    drawn = sequences(len(law), n)
    signs = np.array(list(product((-1, 1), repeat=n)))
    values_at_draws = values[:, drawn]  # [C, sequences, n]
    means = np.einsum("csn,en->sec", values_at_draws, signs) / n
    suprema = means.max(2)  # [sequences, signs]
    probability = law[drawn].prod(1)
    return float(probability @ suprema.mean(1))


def supremum_of_errors(values: np.ndarray, law: np.ndarray, n: int, sign: int) -> np.ndarray:
    """``[Z**n]`` for every sequence of n symbols: the largest of ±(expectation − mean of the sample) in the class.

    ``values`` is ``[C, Z]`` and ``law`` ``[Z]``, as in :func:`rademacher`.
    """
    expectations = values @ law
    means = values[:, sequences(len(law), n)].mean(2)  # [C, sequences]
    errors = expectations[:, None] - means
    return (sign * errors).max(0)


def check_moments(probability: np.ndarray, excess: np.ndarray, squared_range: float, draws: int) -> None:
    """The moment generating function is at most that of a Gaussian: E exp(s·excess) ≤ exp(s² range² / 8 draws).

    Both arrays are ``[sequences]``.
    """
    for s in (0.3, 1.0, 3.0):
        log_moment = np.log(probability @ np.exp(s * excess))
        of_gaussian = s**2 * squared_range / (8 * draws)
        assert log_moment <= of_gaussian + 1e-12


def kernel_class(seed: int, mu: float, c: float) -> tuple[np.ndarray, exact.Joint]:
    """Scores ``[3, 3, 3]`` of three encoders of three symbols on the circle, and the law of a positive pair.

    The scores are the f-Gaussian similarity of KL.
    """
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * np.pi, (3, 3))  # [encoder, symbol]
    distance = 2 - 2 * np.cos(angle[:, :, None] - angle[:, None])
    table = rng.dirichlet(np.full(9, 0.7)).reshape(3, 3) + 0.02
    symmetric = exact.Joint.of(table + table.T)
    return similarity(divergences.KL, distance, mu, c), symmetric


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("n", [2, 3, 4])
def test_theorem_6_step_by_step(seed, n):
    """Theorem 6 (Appendix C): the three terms of the proof, each less its Rademacher complexity, are sub-Gaussian.

    T is a score of the class, φ = f*, and h_T(x) = E_y φ(T(x, y)). The error of Eq. 11 is a sum of three terms:

    1. E T − mean over i of T(xᵢ, yᵢ), for the positive pairs;
    2. E h_T − mean over j of h_T(xⱼ);
    3. the mean over j of Dⱼ = h_T(xⱼ) − mean over i ≠ j of φ(T(xᵢ, xⱼ)).
    """
    mu = (0.5, 1.0, 4.0)[seed % 3]  # the most that φ may change where T changes by 1
    scores, pair = kernel_class(seed, mu, c=(0.3, 1.0)[seed % 2])  # [T, x, y]
    conjugates = evaluate(divergences.KL.conjugate, scores)
    r_t, r_f = np.ptp(scores), np.ptp(conjugates)
    drawn = sequences(3, n)
    probability = pair.x[drawn].prod(1)

    # Term 1: a pair is one of nine symbols.
    law_of_pairs = pair.table.ravel()
    scores_of_pairs = scores.reshape(3, 9)
    probability_of_pairs = law_of_pairs[sequences(9, n)].prod(1)
    complexity = rademacher(scores_of_pairs, law_of_pairs, n)
    for sign in (1, -1):
        excess = supremum_of_errors(scores_of_pairs, law_of_pairs, n, sign) - 2 * complexity
        assert probability_of_pairs @ excess <= 1e-12  # symmetrisation
        check_moments(probability_of_pairs, excess, r_t**2, n)

    # Term 2: μ times the complexity of T(·, y), on average over y, by contraction and by Jensen's inequality.
    h_t = conjugates @ pair.y  # [T, x]
    complexity_given_y = np.array([rademacher(scores[:, :, y], pair.x, n) for y in range(3)])
    contracted = mu * pair.x @ complexity_given_y  # x and y have the same law
    assert rademacher(h_t, pair.x, n) <= contracted + 1e-12
    for sign in (1, -1):
        excess = supremum_of_errors(h_t, pair.x, n, sign) - 2 * contracted
        check_moments(probability, excess, r_f**2, n)

    # Term 3: the suprema of the Dⱼ depend on each other, but their mean has the moments of one of them.
    complexity_given_x = mu * np.array([rademacher(scores[:, :, x], pair.x, n - 1) for x in range(3)])
    for sign in (1, -1):
        excess = np.zeros(len(drawn))
        for j in range(n):
            x_j = drawn[:, j]  # [sequences]
            others = np.delete(drawn, j, axis=1)  # [sequences, n − 1]
            means = conjugates[:, x_j[:, None], others].mean(2)  # [T, sequences]
            d_j = h_t[:, x_j] - means
            excess += ((sign * d_j).max(0) - 2 * complexity_given_x[x_j]) / n
        check_moments(probability, excess, r_f**2, n - 1)


class Setting(NamedTuple):
    """Two symbols with opposite features: height and 1 / 2σ² of the kernel, and the law of a positive pair."""

    mu: float
    c: float
    agree: float  # probability that both of a pair are the same symbol
    first: float  # probability of the first symbol


class ErrorLaw(NamedTuple):
    """The exact law of the error of Eq. 11 for KL, and the ranges r_T and r_f."""

    probability: np.ndarray  # [samples]
    error: np.ndarray  # [samples], estimate minus truth
    r_t: float
    r_f: float


@cache
def error_law(n: int, setting: Setting) -> ErrorLaw:
    """The errors of all samples of n positive pairs, told apart by how often each of the four pairs occurs."""
    mu, c, agree, first = setting
    apart = (1 - agree) / 2
    law = np.array([first - apart, apart, apart, 1 - first - apart])  # of the pairs aa, ab, ba, bb
    score_of_pair = similarity(divergences.KL, np.array([0.0, 4, 4, 0]), mu, c)
    h_same = h(divergences.KL, 0.0, mu, c)
    h_different = h(divergences.KL, 4.0, mu, c)

    same = first**2 + (1 - first) ** 2  # probability that two independent symbols are the same
    true_negative = h_same * same + h_different * (1 - same)
    truth = law @ score_of_pair - true_negative

    counts = sequences(n + 1, 4)
    counts = counts[counts.sum(1) == n]  # [samples, 4]
    log_coefficient = gammaln(n + 1) - gammaln(counts + 1).sum(1)
    probability = np.exp(log_coefficient + xlogy(counts, law).sum(1))

    a = counts[:, 0] + counts[:, 1]  # how many of the xᵢ are the first symbol
    b = n - a
    share_same = (a * (a - 1) + b * (b - 1)) / (n * (n - 1))  # of the pairs i ≠ j
    estimated_negative = h_same * share_same + h_different * (1 - share_same)
    estimate = counts @ score_of_pair / n - estimated_negative
    return ErrorLaw(
        probability=probability,
        error=estimate - truth,
        r_t=float(np.ptp(score_of_pair)),
        r_f=float(h_same - h_different),
    )


SETTINGS = [
    Setting(mu=1.0, c=0.5, agree=0.5, first=0.5),
    Setting(mu=0.05, c=1.0, agree=0.5, first=0.5),
    Setting(mu=20.0, c=0.3, agree=1.0, first=0.7),
    Setting(mu=1.0, c=1.0, agree=0.8, first=0.8),
]


def only_numbers(setting: Setting) -> str:
    return str(tuple(setting))


def probability_beyond(n: int, setting: Setting, delta: float, share: float) -> float:
    """Probability that the error exceeds a share of the bound of Theorem 6; one function has complexity 0."""
    law = error_law(n, setting)
    assert law.probability.sum() == pytest.approx(1, abs=1e-9)
    assert law.probability @ law.error == pytest.approx(0, abs=1e-9)  # Eq. 11 is unbiased
    root = math.sqrt(math.log(6 / delta) / (2 * (n - 1)))
    bound = (law.r_t + 2 * law.r_f) * root
    beyond = abs(law.error) > share * bound
    return float(law.probability[beyond].sum())


@pytest.mark.parametrize("setting", SETTINGS, ids=only_numbers)
@pytest.mark.parametrize("n", [4, 12, 24])
def test_theorem_6_for_one_function(setting, n):
    """Theorem 6: with probability 1 − δ the error is at most (r_T + 2 r_f) √(log(6/δ) / 2(N − 1)), for one score T."""
    for delta in (0.5, 0.1, 0.001, 1e-6):
        assert probability_beyond(n, setting, delta, share=1.0) <= delta


@pytest.mark.parametrize("setting", [SETTINGS[1], SETTINGS[2]], ids=["positive", "negative"])
def test_a_third_of_the_bound_of_theorem_6_is_none(setting):
    """Theorem 6: neither r_T nor 2 r_f may be a third of what it is, where one term has nearly all of the range."""
    times_delta = []
    for delta in (0.1, 0.001, 1e-6):
        beyond = probability_beyond(24, setting, delta, share=1 / 3)
        times_delta.append(beyond / delta)
    assert max(times_delta) > 1


def test_the_conjugate_changes_at_most_mu_times_as_fast_as_the_score():
    """Appendix C, for contraction: f*′(f′(u)) = u, so the slope of f* is at most μ on the scores f′(G), G ≤ μ."""
    for divergence, mu in product(EVERY, (0.5, 1.0, 7.3)):
        log_u = np.linspace(math.log(mu) - 4, math.log(mu), 200)
        scores = evaluate(divergence.derivative, log_u)
        rate = slope(divergence.conjugate, scores)
        assert_allclose(rate, np.exp(log_u), rtol=1e-8)
        assert rate.max() <= mu * (1 + 1e-8)


# What the paper's tables print.


def test_what_table_3_prints_of_moco_v3_and_table_7_of_f_micl(stated):
    """Sec. 4.2: 73.2 for MoCo v3 in Table 3, and the epochs and the batch of f-MICL on ImageNet in Table 7."""
    moco = papers.published("fmicl", 3).set_index("column")["value"]["MoCo v3"]
    settings = papers.published("fmicl", 7).query("row == 'ImageNet'").set_index("column")["value"]
    epochs, batch = int(settings["epoch"]), int(settings["N batch"])
    assert (moco, epochs, batch) == (73.2, 1000, 1024)
    stated("fmicl/moco-v3-base", moco=float(moco), epochs=epochs, batch=batch)


def test_table_4_has_one_other_similarity():
    """Sec. 3.2: of the "popular choices" of a kernel, Table 4 shows the cosine alone beside the Gaussian."""
    assert set(papers.published("fmicl", 4)["row"]) == {"Gaussian", "Cosine"}
