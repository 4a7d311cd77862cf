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
from draws import joints, many, problems, seeds, some
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
        assert swapped.f_information(divergence) == pytest.approx(information, rel=1e-10, abs=1e-12)
        assert independent.f_information(divergence) == pytest.approx(0, abs=1e-10)


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
        assert exact.f_information(joint, scores, divergence) == pytest.approx(information, rel=1e-7, abs=1e-9)
        # f*∘f′ in place of f* after f′ has less rounding.
        conjugates = evaluate(divergence.composition, joint.log_ratio)
        direct = (joint.table * scores - joint.product * conjugates).sum()
        assert direct == pytest.approx(information, rel=1e-10, abs=1e-10)


def test_conjugates_do_not_decrease():
    """Sec. 2 after Eq. 2: f* is monotonically increasing. It may be constant; where it is infinite is left out."""
    for divergence in EVERY:
        values = evaluate(divergence.conjugate, np.linspace(-6, 3, 2001))
        finite = values[np.isfinite(values)]
        assert (np.diff(finite) >= -1e-12).all()


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
    assert_allclose(row.derivative(U), row.f(U + 1j * step).imag / step, **CLOSE)
    assert_allclose(row.conjugate(scores), supremum(row.f, scores), **CLOSE)
    assert_allclose(row.conjugate(row.derivative(U)), right_composition(row), **CLOSE)


def check_composition(row: Row) -> None:
    """The printed f*∘f′ is the right one."""
    assert_allclose(row.composition(U), right_composition(row), **CLOSE)


def check_library(divergence: Divergence, row: Row, scores: np.ndarray, constant: float = 0.0) -> None:
    """The library's divergence is the printed row, with ``constant`` taken off f so that f(1) = 0."""
    assert float(row.f(np.float64(1.0))) == pytest.approx(constant, abs=1e-15)
    assert_allclose(evaluate(divergence.f, U), row.f(U) - constant, **CLOSE)
    assert_allclose(evaluate(divergence.derivative, np.log(U)), row.derivative(U), **CLOSE)
    assert_allclose(evaluate(divergence.conjugate, scores), row.conjugate(scores) + constant, **CLOSE)
    assert_allclose(evaluate(divergence.composition, np.log(U)), right_composition(row) + constant, **CLOSE)


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
        with np.errstate(invalid="ignore"):  # outside the domain the formula has no value, so nothing is wrong there
            assert np.isnan(row.conjugate(np.array([outside])))


def test_other_forms_of_table_6():
    """Table 6: the second forms of f*∘f′ of JS and of f′ of Vincze–Le Cam; Jeffrey's f*∘f′ is u − 1 + log u."""
    assert_allclose(PRINTED["js"].composition(U), -np.log(2) + np.log(1 + U), atol=1e-14)
    assert_allclose(PRINTED["jeffrey"].composition(U), U - 1 + np.log(U), rtol=1e-11, atol=1e-11)
    assert_allclose(PRINTED["vincze_le_cam"].derivative(U), (U - 1) * (U + 3) / (U + 1) ** 2, atol=1e-14)


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
    assert_allclose(right, [-1, -1, -1], atol=1e-12)
    assert_allclose(evaluate(divergences.get(name).conjugate, scores), [-1, -1, -1])
    stated(f"fmicl/table-{name.replace('_', '-')}", printed=float(printed[-1]), right=right[-1])


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
        f_on_grid = printed_tsallis(alpha).f(np.linspace(0.05, 5, 200))
        assert (np.diff(f_on_grid, 2) > 0).all()

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
    assert_allclose(row.conjugate(row.derivative(U)), right, atol=1e-12)
    assert_allclose((U - 1) * (3 * U + 1) / (U + 1) ** 2, right, atol=1e-14)

    assert_allclose(evaluate(divergences.VINCZE_LE_CAM.composition, np.log(U)), right, atol=1e-14)
    assert_allclose(evaluate(divergences.VINCZE_LE_CAM_PRINTED.composition, np.log(U)), row.composition(U))

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
    return float(space.weights @ np.exp(kappa * space.nodes @ space.nodes.T) @ space.weights)


def bessel_form(dimension: int, kappa: float) -> float:
    """The same in closed form."""
    return float(hyp0f1(dimension / 2, kappa**2 / 4))


def mean_kernel(space: Space, kappa: float) -> float:
    """E exp(−κ ‖x − y‖² / 2) for independent uniform x and y: the mean of a kernel of height 1."""
    differences = space.nodes[:, None] - space.nodes[None]
    distance = (differences**2).sum(-1)
    return float(space.weights @ np.exp(-distance * kappa / 2) @ space.weights)


@kappas
def test_the_marginals_of_the_kernel_are_uniform(kappa):
    """Eqs. 6–8: p_g(x, y) = C exp(x·y / σ²) has uniform marginals, that is E_y p_g(x, y) = 1 for every x."""
    assert bessel_form(2, kappa) == pytest.approx(i0(kappa), rel=1e-12)
    assert bessel_form(3, kappa) == pytest.approx(np.sinh(kappa) / kappa, rel=1e-12)
    for space in SPACES:
        x = unit(np.random.default_rng(0).standard_normal((50, space.dimension)))
        marginal = np.exp(kappa * x @ space.nodes.T) @ space.weights / bessel_form(space.dimension, kappa)
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

    scipy's densities are with respect to the length and the area, the paper's to the uniform distribution.
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
    """How far the values are from the straight line through them."""
    line = np.polyfit(distance, values, 1)
    return float(np.abs(values - np.polyval(line, distance)).max())


@pytest.mark.parametrize("kappa", [0.5, 4.0])
def test_log_density_that_is_linear_for_every_pair_is_the_kernel(kappa):
    """Sec. 3.2, Figs. 1 and 7: if log p(x, y) is linear in ‖x − y‖² pair by pair, p is the kernel of Assumption 3."""
    p, distance = tilted_pairs(0.0, kappa)
    of_each_pair = np.broadcast_to(distance, p.shape).ravel()
    assert off_line(np.log(p).ravel(), of_each_pair) < 1e-12
    assert_allclose(p.sum(1), 1 / len(p), rtol=1e-12)
    assert_allclose(p[0] / p[0, 0], np.exp(-distance * kappa / 2), rtol=1e-12)
    tilted, _ = tilted_pairs(0.3, kappa)
    assert off_line(np.log(tilted).ravel(), of_each_pair) > 0.2


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
    power = p**1.5 / (p**1.5).sum()  # another such law, also linear
    assert off_line(mean_log_density(power), distance) < 1e-12
    bent = p * np.exp(0.1 * distance**2)  # what the averages do see
    assert off_line(mean_log_density(bent / bent.sum()), distance) > 0.1
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
        assert float(weighted.f(np.array(1.0))) == pytest.approx(0, abs=1e-12)
        f_on_grid = weighted.f(np.linspace(0.05, 20, 500))
        assert (np.diff(f_on_grid, 2) > 0).all()
        scores = evaluate(divergence.derivative, np.linspace(-2, 2, 41))
        assert_allclose(weighted.conjugate(scores), supremum(weighted.f, scores), rtol=1e-9, atol=1e-9)


@some
@given(problems(), st.sampled_from([0.2, 3.0, 40.0]))
def test_the_weighted_objective_bounds_the_weighted_information(problem, alpha):
    """Proposition 5: Eq. 10 of f_α is the objective with G / α and weight α, less the constant α f(1 / α).

    So it bounds the f_α-information from below, for any kernel G(x, y) > 0.
    """
    joint = problem.joint
    log_kernel = np.clip(problem.critic, -5, 5)
    log_shrunk = log_kernel - math.log(alpha)  # log G / α
    for divergence in EVERY:
        weighted = Weighted(divergence, alpha)
        information = product_mean(joint, weighted.f(joint.table / joint.product))
        assert information >= -1e-9
        scores = evaluate(divergence.derivative, log_shrunk)  # f_α′(G) = f′(G / α)
        positive_term = positive_mean(joint, scores)
        eq_10 = positive_term - product_mean(joint, weighted.conjugate(scores))
        proposition = positive_term - alpha * product_mean(joint, evaluate(divergence.composition, log_shrunk))
        assert eq_10 == pytest.approx(proposition - weighted.constant, rel=1e-8, abs=1e-8)
        assert eq_10 <= with_slack(information, relative=1e-8)


def weighted_objective(
    divergence: Divergence, mu: float, alpha: float, near: np.ndarray, far: np.ndarray
) -> np.ndarray:
    """Algorithm 1 (maximised) where all positive pairs have squared distance ``near`` and all others ``far``."""
    positive = evaluate(divergence.derivative, math.log(mu) - near)
    return positive - alpha * evaluate(divergence.composition, math.log(mu) - far)


def misfit(left: np.ndarray, right: np.ndarray) -> float:
    """How far ``left`` is from a positive multiple of ``right`` plus a constant; 0: they rank everything alike."""
    left = left - left.mean()
    right = right - right.mean()
    factor = max((left @ right) / (right @ right), 0.0)
    return float(np.abs(left - factor * right).max() / np.abs(left).max())


NEAR, FAR = (grid.ravel() for grid in np.meshgrid([0.0, 0.5, 1.0], [1.0, 2.0, 2.5]))
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
        weights = np.exp(np.linspace(-5, 8, 400))
        misfits = [misfit(of_height, weighted_objective(divergence, 1.0, alpha, NEAR, FAR)) for alpha in weights]
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
    negative_term = product_mean(joint, np.exp(scores - 1))  # E× f*(s)
    with_weight = positive_term - math.exp(-v) * negative_term
    assert shifted(joint, scores, v) == pytest.approx(with_weight - v, rel=1e-10, abs=1e-10)
    best_weight = 1 / negative_term
    at_best = positive_term - best_weight * negative_term + math.log(best_weight)
    assert exact.donsker_varadhan(joint, scores) == pytest.approx(at_best, abs=1e-9)


def test_a_shift_is_no_weight_for_pearson(stated):
    """Before Eq. 14: for Pearson no weight has the effect of the shift v = 1.

    What pushes on a negative pair of score s is f*′(s − v) with the shift, and α f*′(s) with the weight. The shift
    pushes twice as much on a score of 1 as on 0; the weight 1.5 times as much, whatever α is.
    """
    scores = np.array([0.0, 1.0])
    with_shift = slope(divergences.PEARSON.conjugate, scores - 1.0)
    with_weight = slope(divergences.PEARSON.conjugate, scores)
    assert with_shift[1] / with_shift[0] == pytest.approx(2)
    assert with_weight[1] / with_weight[0] == pytest.approx(1.5)
    stated(
        "fmicl/shift-is-weight",
        shift=with_shift[1] / with_shift[0],
        weight=with_weight[1] / with_weight[0],
    )


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
    assert exact.leave_one_out(joint, scores, k) >= eq_12 - rounding(scores)
    assert eq_12 >= exact.donsker_varadhan(joint, scores) - rounding(scores)


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


def features(near: float, far: float) -> tuple[np.ndarray, np.ndarray]:
    """Two positive pairs on the sphere of four dimensions: ‖xᵢ − yᵢ‖² = near, ‖x₁ − x₂‖² = ‖y₁ − y₂‖² = far."""
    x = np.zeros((2, 4))
    x[:, 0] = [1, 1 - far / 2]
    x[1, 1] = math.sqrt(max(0.0, 1 - x[1, 0] ** 2))
    turn = np.kron([[0, -1], [1, 0]], np.eye(2))  # a right angle to every vector
    cosine = 1 - near / 2
    return x, cosine * x + math.sqrt(max(0.0, 1 - cosine**2)) * x @ turn.T


def squared_distances(x: np.ndarray) -> np.ndarray:
    """Squared distances of all ordered pairs i ≠ j."""
    return ((x[:, None] - x[None]) ** 2).sum(-1)[~np.eye(len(x), dtype=bool)]


def au(x: np.ndarray, y: np.ndarray, t: float = 2.0, weight: float = 1.0) -> float:
    """Alignment and uniformity of Wang and Isola, negated so that it is maximised; defaults: α = 2, t = 2, weight 1."""
    uniform = (
        math.log(np.exp(-t * squared_distances(x)).mean()) + math.log(np.exp(-t * squared_distances(y)).mean())
    ) / 2
    return float(-((x - y) ** 2).sum(1).mean() - weight * uniform)


def kl_dv(x: np.ndarray, y: np.ndarray, c: float, mu: float = 1.0) -> float:
    """Eq. 14 on a batch with s = 1 + log μ − c ‖·‖², the f-Gaussian similarity of KL."""
    positive = 1 + math.log(mu) - c * ((x - y) ** 2).sum(1)
    negative = [math.log(np.exp(1 + math.log(mu) - c * squared_distances(z)).mean()) for z in (x, y)]
    return float(positive.mean() - np.mean(negative))


def _batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(3)
    for _ in range(300):
        x = rng.standard_normal((rng.integers(2, 7), rng.integers(2, 6)))
        y = x + rng.choice([0.1, 1.0]) * rng.standard_normal(x.shape)
        yield x / np.linalg.norm(x, axis=1, keepdims=True), y / np.linalg.norm(y, axis=1, keepdims=True)


def test_the_similarity_is_minus_the_distance_for_one_bandwidth_and_height_only():
    distance = np.array([0.0, 0.5, 2.0, 4.0])
    assert_allclose(evaluate(divergences.KL.derivative, -1 - distance), -distance, atol=1e-15)
    # The paper's own setting μ = 1, 2σ² = 1, and its language setting 1 / 2σ² = 20:
    assert_allclose(evaluate(divergences.KL.derivative, -distance), 1 - distance, atol=1e-15)
    assert_allclose(evaluate(divergences.KL.derivative, -20 * distance), 1 - 20 * distance, atol=1e-12)


def test_au_is_kl_if_its_weight_is_one_over_t_and_not_by_default(stated):
    for x, y in _batches():
        for t, mu in product((0.5, 1.0, 2.0, 5.0), (1 / math.e, 1.0, 5.0)):  # t = 1: Eq. 17; Eq. 14 does not see μ
            assert au(x, y, t, weight=1 / t) == pytest.approx(kl_dv(x, y, t, mu) / t, abs=1e-12)
    close, wide = features(0.0, 1.0), features(1.0, 2.0)
    for _, y in (close, wide):
        assert_allclose(np.linalg.norm(y, axis=1), 1)
    for c in (0.1, 1.0, 2.0, 20.0):  # c (far − near) is the same for both, whatever the bandwidth, height and factor
        assert kl_dv(*close, c) == pytest.approx(kl_dv(*wide, c), abs=1e-12)
    assert (au(*close), au(*wide)) == (pytest.approx(2), pytest.approx(3))
    stated("fmicl/au-special-case", close=au(*close), wide=au(*wide))


def test_cosine_and_gaussian_similarity_agree_for_kl():
    for x, y in _batches():
        gaussian = -((x[:, None] - y[None]) ** 2).sum(-1)
        assert_allclose(gaussian, 2 * x @ y.T - 2, atol=1e-13)
        n = len(x)
        joint = exact.Joint(0.9 * np.eye(n) / n + 0.1 / n**2)
        for objective in (exact.donsker_varadhan, exact.unnormalised_barber_agakov):
            assert objective(joint, gaussian) == pytest.approx(objective(joint, 2 * x @ y.T), abs=1e-12)


@some
@given(problems())
def test_chi_squared_minus_one(problem):
    joint, kernel = problem.joint, np.exp(np.clip(problem.critic, -4, 4))
    objective = exact.f_information(joint, 2 * (kernel - 1), divergences.PEARSON)
    right = 2 * (joint.table * kernel).sum() - (joint.product * kernel**2).sum() - 1
    assert objective == pytest.approx(right, rel=1e-10, abs=1e-9)


def test_the_printed_constant_of_eq_19_is_wrong(stated):
    # Independent variables and G = 1, their density ratio: the information is 0.
    kernel = np.ones((3, 2))
    objective = exact.f_information(INDEPENDENT, 2 * (kernel - 1), divergences.PEARSON)
    printed = 2 * (INDEPENDENT.table * kernel).sum() - (INDEPENDENT.product * kernel**2).sum() - 3
    assert (objective, printed) == (pytest.approx(0), pytest.approx(-2))
    stated("fmicl/eq-19", printed=printed)


def spectral(joint: exact.Joint, critic: np.ndarray) -> float:
    """The spectral contrastive loss of HaoChen et al.: −2 E z·z⁺ + E (z·z′)²."""
    return float(-2 * (joint.table * critic).sum() + (joint.product * critic**2).sum())


@many
@given(joints(), seeds)
def test_the_spectral_loss_is_chi_squared_on_the_whole_line(joint, seed):
    rng = np.random.default_rng(seed)
    n, m = joint.table.shape
    x, y = rng.standard_normal((n, 3)), rng.standard_normal((m, 3))
    cosine = (x / np.linalg.norm(x, axis=1, keepdims=True)) @ (y / np.linalg.norm(y, axis=1, keepdims=True)).T
    scores = 2 * (cosine - 1)
    printed = (joint.table * scores).sum() - (joint.product * PRINTED["pearson"].conjugate(scores)).sum()
    assert printed == pytest.approx(-spectral(joint, cosine) - 1, abs=1e-10)
    # t²/4 + t is nowhere below the conjugate, so the spectral loss is a bound too; it is f-MICL itself from 0 up.
    objective = exact.f_information(joint, scores, divergences.PEARSON)
    assert printed <= objective + 1e-10
    assert objective <= joint.f_information(divergences.PEARSON) * (1 + 1e-9) + 1e-10
    positive = abs(cosine)
    objective = exact.f_information(joint, 2 * (positive - 1), divergences.PEARSON)
    assert objective == pytest.approx(-spectral(joint, positive) - 1, abs=1e-10)


def test_cosines_are_outside_of_the_kernel_and_of_the_domain_of_some_divergences():
    cosine = np.array([[1.0, -1.0], [-1.0, 1.0]])
    objective = exact.f_information(PAIR, 2 * (cosine - 1), divergences.PEARSON)
    assert -spectral(PAIR, cosine) - 1 == pytest.approx(2 * 0.6 - 1 - 1)
    assert objective == pytest.approx(-0.8 + 0.5)  # f*(−4) = −1 where the spectral loss has (−1)² − 1 = 0
    cosine = np.array([0.5, 0.8, 1.0])
    assert evaluate(divergences.JS.contains, cosine).tolist() == [True, False, False]
    assert evaluate(divergences.HELLINGER.contains, cosine).tolist() == [True, True, False]
    assert evaluate(divergences.VINCZE_LE_CAM.contains, cosine).all()
    assert slope(divergences.VINCZE_LE_CAM.conjugate, np.array([1.0]))[0] == math.inf
    for divergence in EVERY:  # the f-Gaussian similarity is f′ of something and never leaves it
        assert evaluate(divergence.contains, evaluate(divergence.derivative, np.linspace(-20, 3, 200))).all()


def h(divergence: Divergence, distance: np.ndarray, mu: float = 1.0, c: float = 1.0) -> np.ndarray:
    """``h(t) = f*(f′(μ exp(−c t)))``, Eq. 20."""
    return evaluate(divergence.composition, math.log(mu) - c * np.asarray(distance, dtype=np.float64))


def simplex(n: int, d: int) -> np.ndarray:
    """n unit vectors in d ≥ n − 1 dimensions with equal distances."""
    centred = np.eye(n) - 1 / n
    _, _, basis = np.linalg.svd(centred)
    points = centred @ basis[: n - 1].T
    return np.pad(points / np.linalg.norm(points, axis=1, keepdims=True), ((0, 0), (0, d - n + 1)))


def configurations(n: int, d: int, count: int, seed: int = 0) -> np.ndarray:
    """``[count, n(n − 1)]`` squared distances: random points, clusters, and simplices disturbed a little or much."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, n, d))
    x[::4] = rng.standard_normal((len(x[::4]), 1, d)) + 0.3 * x[::4]
    x[1::4] = simplex(n, d) + rng.choice([1e-3, 0.1, 0.5], size=(len(x[1::4]), 1, 1)) * x[1::4]
    x[2::4] = np.sign(x[2::4, :, :1]) * np.eye(d)[0] + 0.2 * x[2::4]
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    squared = ((x[:, :, None] - x[:, None]) ** 2).sum(-1)
    return squared[:, ~np.eye(n, dtype=bool)]


SHAPES = [(2, 2), (3, 2), (4, 3), (4, 6), (7, 6), (9, 20)]


def test_both_terms_fall_with_the_distance():
    distance = np.linspace(0, 4, 401)
    for divergence in EVERY:
        np.testing.assert_array_less(0, slope(divergence.composition, np.linspace(-10, 3, 50)))
        assert (np.diff(evaluate(divergence.derivative, -5 * distance)) < 0).all()
        for mu, c in ((1.0, 1.0), (7.3, 1.0), (1.0, 2.0)):
            assert (np.diff(evaluate(divergence.derivative, math.log(mu) - c * distance)) < 0).all()
            assert (np.diff(h(divergence, distance, mu, c)) < 0).all()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("mu", "c"), [(1.0, 1.0), (0.3, 2.0), (2.0, 0.5)])
def test_a_regular_simplex_is_the_strict_minimum(shape, mu, c):
    n, _ = shape
    distance = configurations(*shape, 400)
    regular = 2 * n / (n - 1)
    assert_allclose(squared_distances(simplex(*shape)), regular, atol=1e-12)
    grid = np.linspace(0, 4, 2001)
    for divergence in (*TABLE_1, divergences.JEFFREY):
        assert divergence.spreads(mu)
        least = h(divergence, regular, mu, c)
        # h″(t) = c² w′(v), w(v) = u² f″(u), v = log u; half its minimum times the spread is what every point pays.
        bend = np.diff(slope(divergence.composition, math.log(mu) - c * grid[::-1])).min() / (grid[1] * c) * c**2
        excess = 0.5 * bend * (1 - 1e-2) * ((distance - regular) ** 2).mean(1)
        assert bend > 0 or (divergence.name, mu) == ("vincze_le_cam", 2.0)
        assert (h(divergence, distance, mu, c).mean(1) >= least + excess - 1e-12).all()


@pytest.mark.parametrize("divergence", [*TABLE_1, divergences.JEFFREY], ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(4, 3), (5, 7)], ids=str)
def test_minimising_the_negative_term_reaches_the_simplex(divergence, shape):
    n, d = shape
    off = ~torch.eye(n, dtype=torch.bool)

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        free = torch.tensor(flat.reshape(n, d), requires_grad=True)
        x = free / free.norm(dim=1, keepdim=True)
        value = divergence.composition(-(2 - 2 * x @ x.T)[off]).mean()
        value.backward()
        return value.item(), free.grad.numpy().ravel()

    for seed in range(3):
        start = np.random.default_rng(seed).standard_normal(n * d)
        found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000, "ftol": 0, "gtol": 1e-10})
        x = found.x.reshape(n, d) / np.linalg.norm(found.x.reshape(n, d), axis=1, keepdims=True)
        assert_allclose(squared_distances(x), 2 * n / (n - 1), atol=1e-5)


def test_jensen_is_attained_over_distinct_pairs_and_not_over_all(stated):
    for (n, d), divergence in product(SHAPES, (*TABLE_1, divergences.JEFFREY)):
        distance = configurations(n, d, 400, seed=1)
        middle, bound = h(divergence, distance.mean(1)), h(divergence, 2 * n / (n - 1))
        assert (h(divergence, distance).mean(1) >= middle - 1e-12).all()
        assert (middle >= bound - 1e-12).all()
        assert h(divergence, squared_distances(simplex(n, d))).mean() == pytest.approx(bound, abs=1e-12)
    for n, d in SHAPES:
        distance = configurations(n, d, 400, seed=2)
        distance = np.concatenate([distance, squared_distances(simplex(n, d))[None]])
        for divergence in TABLE_1:
            everything = (h(divergence, distance).sum(1) + n * h(divergence, 0.0)) / n**2
            assert (everything > h(divergence, 2.0) + 1e-4).all()
    # KL, five points: the simplex itself, the bound of Eq. 26 and the bound that is attained.
    kl = divergences.KL
    at_simplex = (20 * math.exp(-2.5) + 5) / 25
    assert (h(kl, squared_distances(simplex(5, 4))).sum() + 5 * h(kl, 0.0)) / 25 == pytest.approx(at_simplex)
    assert h(kl, 2.0) == pytest.approx(math.exp(-2))
    stated("fmicl/eq-26", simplex=at_simplex, bound=math.exp(-2))


def test_a_regular_simplex_needs_n_minus_one_dimensions():
    for n in range(2, 12):
        points = simplex(n, n - 1)
        gram = points @ points.T
        assert_allclose(gram, np.where(np.eye(n) == 1, 1, -1 / (n - 1)), atol=1e-12)
        assert np.linalg.matrix_rank(gram) == n - 1
        assert_allclose(points.sum(0), 0, atol=1e-12)
        total = ((points[:, None] - points[None]) ** 2).sum()
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
    """Whether h is strictly convex on [0, 4], from the slope of f*∘f′ in log u."""
    v = np.linspace(math.log(mu) - 4 * c, math.log(mu), 4001)
    weight = slope(divergences.get(name).composition, v)
    assert_allclose(weight, CURVATURE[name](np.exp(v)), rtol=1e-9, atol=1e-12)
    return bool((np.diff(weight) > 0).all())


def test_table_1_satisfies_eq_20_for_heights_up_to_two():
    for mu, c in product((0.05, 1.0, 1.9, 2.0), (0.5, 1.0, 2.0)):
        assert all(convex(divergence.name, mu, c) for divergence in (*TABLE_1, divergences.JEFFREY))
    for mu, name in product((7.3, 100.0), ("kl", "js", "pearson", "hellinger", "tsallis", "jeffrey")):
        assert convex(name, mu, 1.0)
        assert divergences.get(name).spreads(mu)


def test_vincze_le_cam_loses_eq_20_above_two_and_can_prefer_two_clusters(stated):
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
    pairs = np.array([[1.0, 0, 0], [1, 0, 0], [-1, 0, 0], [-1, 0, 0]])
    for divergence, mu in ((divergences.VINCZE_LE_CAM_PRINTED, 50.0), (divergences.VINCZE_LE_CAM, 100.0)):
        clusters, regular = (h(divergence, squared_distances(x), mu).mean() for x in (pairs, simplex(4, 3)))
        assert clusters < regular - 0.1
    stated("fmicl/eq-20-table-1", clusters=clusters, simplex=regular)
    assert (
        h(divergences.VINCZE_LE_CAM, squared_distances(pairs), 1.0).mean() > h(divergences.VINCZE_LE_CAM, 8 / 3) + 0.1
    )


def test_every_centred_configuration_minimises_reverse_kl():
    divergence = divergences.REVERSE_KL
    assert not convex("reverse_kl", 1.0, 1.0)
    assert_allclose(np.diff(h(divergence, np.linspace(0, 4, 50)), 2), 0, atol=1e-12)
    rng = np.random.default_rng(0)
    for n, d in ((4, 3), (6, 5), (8, 3)):
        least = h(divergence, 2 * n / (n - 1))
        for _ in range(200):
            x = rng.standard_normal((n, d))
            x /= np.linalg.norm(x, axis=1, keepdims=True)
            middle = float((x.mean(0) ** 2).sum())
            value = h(divergence, squared_distances(x)).mean()
            assert value == pytest.approx(least + 2 * n / (n - 1) * middle, abs=1e-12)
            x[n // 2 :] = -x[: n // 2]  # centred, and no simplex
            assert h(divergence, squared_distances(x)).mean() == pytest.approx(least, abs=1e-12)


def test_two_opposite_clusters_minimise_neyman():
    divergence = divergences.NEYMAN
    assert not convex("neyman", 1.0, 1.0)
    assert (np.diff(h(divergence, np.linspace(0, 4, 50)), 2) < 0).all()
    for n, d in ((4, 3), (6, 5), (8, 9)):
        clusters = np.repeat([[1.0], [-1.0]], n // 2, axis=0) * np.eye(d)[0]
        least = h(divergence, squared_distances(clusters)).mean()
        assert least < h(divergence, squared_distances(simplex(n, n - 1))).mean() - 0.1
        assert (h(divergence, configurations(n, d if d >= n - 1 else n - 1, 600)).mean(1) >= least - 1e-10).all()


def test_equal_features_are_the_worst_for_the_negative_term():
    for divergence in EVERY:
        for n, d in SHAPES:
            assert (h(divergence, configurations(n, d, 200)).mean(1) < h(divergence, 0.0)).all()
        # Eq. 11 with aligned positive pairs: two opposite clusters beat equal features for every α > 0.
        spread = np.array([[1.0, 0], [1, 0], [-1, 0], [-1, 0]])
        for alpha in (1.0, 40.0):
            top = float(evaluate(divergence.derivative, np.array(0.0)))
            assert top - alpha * h(divergence, squared_distances(spread)).mean() > top - alpha * h(divergence, 0.0)


def curvatures(joint: exact.Joint, divergence: Divergence, mu: float, c: float, alpha: float) -> np.ndarray:
    """Second derivatives of the loss at equal features, on the sphere of 3 dimensions, by how far views move."""
    together, apart = torch.from_numpy(joint.table), torch.from_numpy(joint.product)
    views = len(together)

    def loss(moved: torch.Tensor) -> torch.Tensor:
        x = torch.cat([torch.ones(views, 1, dtype=torch.float64), moved.reshape(views, 2)], 1)
        x = x / x.norm(dim=1, keepdim=True)
        log_u = math.log(mu) - c * (2 - 2 * x @ x.T)
        return alpha * (apart * divergence.composition(log_u)).sum() - (together * divergence.derivative(log_u)).sum()

    bent = torch.autograd.functional.hessian(loss, torch.zeros(2 * views, dtype=torch.float64)).numpy()
    scale = np.repeat(joint.x, 2) ** -0.5
    return np.linalg.eigvalsh(scale[:, None] * bent * scale)


def test_the_weight_and_not_the_divergence_decides_whether_equal_features_rest():
    rng = np.random.default_rng(0)
    for mu, c in ((1.0, 1.0), (0.4, 2.0), (1.7, 0.5)):
        law = rng.dirichlet(np.full(5, rng.choice([0.2, 1.0, 5.0])), size=4) + 1e-3  # of a view, given the item
        law /= law.sum(1, keepdims=True)
        joint = exact.Joint.of(law.T @ np.diag(rng.dirichlet(np.full(4, 3.0))) @ law)
        correlations = np.linalg.eigvalsh(joint.table / np.sqrt(joint.product))[:-1]  # the largest, 1, is a constant's
        rho = correlations[-1]
        assert 0 <= rho < 1
        for divergence in EVERY:
            push = 4 * c * float(slope(divergence.composition, np.array(math.log(mu)))) / mu  # 4 c μ f″(μ)
            assert push > 0
            for alpha in (0.5 * (1 - rho) / mu, 0.99 * (1 - rho) / mu, 1.01 * (1 - rho) / mu, 40.0 / mu):
                found = curvatures(joint, divergence, mu, c, alpha)
                right = push * np.repeat([0.0, *(1 - correlations - alpha * mu)], 2)  # 0: all views move alike
                assert_allclose(found, np.sort(right), atol=1e-10 * push * (1 + alpha * mu))
                assert (found.min() < -1e-4 * push * (1 - rho)) == (alpha * mu > 1 - rho)
    settings = papers.published("fmicl", 7).pivot_table(index="row", columns="column", values="value")
    assert (settings["mu"] * settings["alpha"] > 1).all()  # above 1 − ρ for every ρ ≥ 0


def rademacher(values: np.ndarray, weight: np.ndarray, n: int) -> float:
    """E sup over the class of the mean of ε_i v(z_i), by enumeration: values [C, Z], their probabilities [Z]."""
    drawn = np.array(list(product(range(values.shape[1]), repeat=n)))
    means = np.einsum("csn,en->sec", values[:, drawn], np.array(list(product((-1, 1), repeat=n)))) / n
    return float(weight[drawn].prod(1) @ means.max(2).mean(1))


def kernel_class(seed: int, mu: float, c: float) -> tuple[np.ndarray, exact.Joint]:
    """Scores ``[3, 3, 3]`` of three encoders of three symbols on the circle, and the law of a positive pair.

    The scores are the f-Gaussian similarity of KL.
    """
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * np.pi, (3, 3))
    distance = 2 - 2 * np.cos(angle[:, :, None] - angle[:, None])
    table = rng.dirichlet(np.full(9, 0.7)).reshape(3, 3) + 0.02
    return evaluate(divergences.KL.derivative, math.log(mu) - c * distance), exact.Joint.of(table + table.T)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("n", [2, 3, 4])
def test_theorem_6_step_by_step(seed, n):
    # every expectation and every Rademacher complexity by enumeration
    slope = (0.5, 1.0, 4.0)[seed % 3]  # μ: how fast φ = f* may change
    t, p = kernel_class(seed, mu=slope, c=(0.3, 1.0)[seed % 2])
    phi = evaluate(divergences.KL.conjugate, t)
    r_t, r_f = np.ptp(t), np.ptp(phi)
    drawn = np.array(list(product(range(3), repeat=n)))
    one_by_one = p.x[drawn].prod(1)
    steps = (0.3, 1.0, 3.0)

    def moment(weight: np.ndarray, values: np.ndarray, step: float) -> float:
        return float(np.log(weight @ np.exp(step * values)))

    # the positive term: pairs as symbols of their own
    pairs = np.array(list(product(range(9), repeat=n)))
    of_pairs, flat = p.table.ravel()[pairs].prod(1), t.reshape(3, 9)
    complexity = rademacher(flat, p.table.ravel(), n)
    for sign in (1, -1):
        excess = (sign * ((flat @ p.table.ravel())[:, None] - flat[:, pairs].mean(2))).max(0) - 2 * complexity
        assert of_pairs @ excess <= 1e-12
        for step in steps:
            assert moment(of_pairs, excess, step) <= step**2 * r_t**2 / (8 * n) + 1e-12

    # the mean over y of φ(T(x, y)), as a function of x: contraction, and Jensen over y
    of_x = phi @ p.y
    contracted = slope * sum(p.x[y] * rademacher(t[:, :, y], p.x, n) for y in range(3))
    assert rademacher(of_x, p.x, n) <= contracted + 1e-12
    for sign in (1, -1):
        excess = (sign * ((of_x @ p.x)[:, None] - of_x[:, drawn].mean(2))).max(0) - 2 * contracted
        for step in steps:
            assert moment(one_by_one, excess, step) <= step**2 * r_f**2 / (8 * n) + 1e-12

    # the rest: the mean over j of sup D_j, dependent on each other, has the moment of one of them
    later = slope * np.array([rademacher(t[:, :, x], p.x, n - 1) for x in range(3)])
    for sign in (1, -1):
        w = np.zeros(len(drawn))
        for j in range(n):
            mean = phi[:, drawn[:, j][:, None], np.delete(drawn, j, 1)].mean(2)
            w += ((sign * (of_x[:, drawn[:, j]] - mean)).max(0) - 2 * later[drawn[:, j]]) / n
        for step in steps:
            assert moment(one_by_one, w, step) <= step**2 * r_f**2 / (8 * (n - 1)) + 1e-12


@cache
def error_law(n: int, mu: float, c: float, agree: float, first: float = 0.5) -> tuple[np.ndarray, ...]:
    """Exact law of the error of Eq. 11 for KL and opposite features of two symbols: probabilities, errors, ranges.

    ``agree`` is the probability that the two of a positive pair are the same symbol, ``first`` that of the first.
    """
    apart = (1 - agree) / 2
    law = np.array([first - apart, apart, apart, 1 - first - apart])  # aa, ab, ba, bb
    score = evaluate(divergences.KL.derivative, math.log(mu) - 4 * c * np.array([0.0, 1, 1, 0]))
    push = evaluate(divergences.KL.composition, math.log(mu) - 4 * c * np.array([0.0, 1.0]))
    truth = law @ score - (push[0] * (first**2 + (1 - first) ** 2) + push[1] * 2 * first * (1 - first))
    counts = np.array([drawn for drawn in product(range(n + 1), repeat=4) if sum(drawn) == n])
    log_p = gammaln(n + 1) - gammaln(counts + 1).sum(1) + xlogy(counts, law).sum(1)
    a = counts[:, 0] + counts[:, 1]
    same = (a * (a - 1) + (n - a) * (n - a - 1)) / (n * (n - 1))
    estimate = counts @ score / n - (push[0] * same + push[1] * (1 - same))
    return np.exp(log_p), abs(estimate - truth), float(np.ptp(score)), float(np.ptp(push))


SETTINGS = [(1.0, 0.5, 0.5, 0.5), (0.05, 1.0, 0.5, 0.5), (20.0, 0.3, 1.0, 0.7), (1.0, 1.0, 0.8, 0.8)]


def beyond(n: int, setting: tuple[float, float, float, float], delta: float, share: float) -> float:
    """Probability that the error exceeds a share of the bound; one function has complexity 0."""
    probability, error, r_t, r_f = error_law(n, *setting)
    assert probability.sum() == pytest.approx(1, abs=1e-9)
    bound = (r_t + 2 * r_f) * math.sqrt(math.log(6 / delta) / (2 * (n - 1)))
    return float(probability[error > share * bound].sum())


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("n", [4, 12, 24])
def test_theorem_6_for_one_function(setting, n):
    for delta in (0.5, 0.1, 0.001, 1e-6):
        assert beyond(n, setting, delta, 1.0) <= delta


@pytest.mark.parametrize("setting", [SETTINGS[1], SETTINGS[2]], ids=["positive", "negative"])
def test_a_third_of_the_bound_of_theorem_6_is_none(setting):
    # where one of the two terms has nearly all of the range: neither r_T nor 2 r_f may be a third of what it is
    assert max(beyond(24, setting, delta, 1 / 3) / delta for delta in (0.1, 0.001, 1e-6)) > 1


def test_the_conjugate_changes_at_most_mu_times_as_fast_as_the_score():
    for divergence, mu in product(EVERY, (0.5, 1.0, 7.3)):
        v = np.linspace(math.log(mu) - 4, math.log(mu), 200)
        rate = slope(divergence.conjugate, evaluate(divergence.derivative, v))
        assert_allclose(rate, np.exp(v), rtol=1e-8)
        assert rate.max() <= mu * (1 + 1e-8)


def test_what_table_3_prints_of_moco_v3_and_table_7_of_f_micl(stated):
    moco = papers.published("fmicl", 3).set_index("column")["value"]["MoCo v3"]
    settings = papers.published("fmicl", 7).query("row == 'ImageNet'").set_index("column")["value"]
    epochs, batch = int(settings["epoch"]), int(settings["N batch"])
    assert (moco, epochs, batch) == (73.2, 1000, 1024)
    stated("fmicl/moco-v3-base", moco=float(moco), epochs=epochs, batch=batch)


def test_table_4_has_one_other_similarity():
    assert set(papers.published("fmicl", 4)["row"]) == {"Gaussian", "Cosine"}
