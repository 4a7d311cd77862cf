"""Tries to break the inequalities of the ledger, and stores what came of it.

``python tests/statements/search.py`` gives each inequality a minute of processor time: Powell's method from random
starts on the distribution, the critic and the set, up to four symbols and a few negatives. It maximises the excess, the
side that should be smaller minus the other. Above ``ROUNDING`` it has found a counterexample; otherwise it has found
none, which is no proof. ``--seconds`` and ``--only`` change the time and the inequalities; results of others are kept.

Each inequality is a function that makes a problem of free numbers and returns the excess.
"""

import argparse
import json
import math
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from test_jcl import excess as von_mises_fisher_excess

from contrastbook import ledger
from contrastlab.information import exact
from contrastlab.scores import divergences

ROUNDING = 1e-7
STORED = Path(ledger.__file__).parent / "statements/searches.json"
DIVERGENCES = [divergences.get(name) for name in ("kl", "js", "pearson", "hellinger", "tsallis", "vincze_le_cam")]
SIZE = 80
"""Free numbers of a start; most inequalities use fewer."""


class Numbers:
    """The free numbers of one start, handed out in turn.

    The optimiser varies ``values``. What ``shape`` draws, such as how many symbols there are, stays for the start.
    """

    def __init__(self, values: np.ndarray, shape: np.random.Generator) -> None:
        self.values = values
        self.shape = shape
        self.at = 0

    def take(self, *size: int) -> np.ndarray:
        """The next numbers, any real ones, as an array of this size."""
        count = math.prod(size)
        part = self.values[self.at : self.at + count]
        self.at += count
        return part.reshape(size)

    def inside(self, low: float, high: float) -> float:
        """The next number, mapped to between ``low`` and ``high``."""
        return low + (high - low) / (1 + math.exp(-float(self.take(1)[0])))

    def choose(self, *options: int) -> int:
        return int(self.shape.choice(options))


@dataclass(frozen=True)
class Case:
    """A distribution p(x, y), a critic, a set of y above c for every x, and a number of negatives."""

    joint: exact.Joint
    critic: np.ndarray
    draws: int
    inside: np.ndarray

    @property
    def information(self) -> float:
        return self.joint.mutual_information

    @property
    def q(self) -> np.ndarray:
        """``[n, m]`` law of a negative from the set."""
        return exact.restrict(self.joint, self.inside)

    def nce(self, *, positive: bool = True) -> float:
        """With negatives from p(y); ``positive``: whether the positive is in the denominator."""
        return exact.contrastive(self.joint, self.critic, self.draws, positive_in_denominator=positive)

    def cnce(self, *, positive: bool = True) -> float:
        """The same with negatives from the set; with the positive it is VINCE, without it CNCE."""
        return exact.contrastive(self.joint, self.critic, self.draws, self.q, positive_in_denominator=positive)


def critic_of(z: Numbers, n: int, m: int) -> np.ndarray:
    """``[n, m]`` scores, none of them so large that its exponential is all that counts."""
    return np.clip(2 * z.take(n, m), -8, 8)


def joint_of(z: Numbers, n: int, m: int) -> exact.Joint:
    """A distribution of n × m symbols, all of which are possible."""
    return exact.Joint.of(softmax(2 * z.take(n, m)) + 1e-9)


def case(z: Numbers) -> Case:
    """Up to three symbols x, four symbols y and three negatives."""
    n, m, draws = z.choose(1, 2, 3), z.choose(2, 3, 4), z.choose(1, 2, 3)
    joint = joint_of(z, n, m)
    f = critic_of(z, n, m)
    above_c = f > exact.threshold(joint, f)[:, None] + 1e-9
    chosen = (z.take(n, m) > 0) & above_c
    highest = np.eye(m, dtype=bool)[f.argmax(1)]
    inside = np.where(chosen.any(1, keepdims=True), chosen, highest)  # never empty
    return Case(joint, f, draws, inside)


Excess = Callable[[Numbers], float]


class Inequality(NamedTuple):
    """The side that should be smaller minus the other, and whether that is the statement as printed."""

    printed: bool
    excess: Excess


INEQUALITIES: dict[tuple[str, str], Inequality] = {}
"""By name of the statement and text of the inequality."""


def inequality(statement: str, text: str, *, printed: bool = True) -> Callable[[Excess], Excess]:
    """A decorator: the function is the excess of this inequality; ``printed=False`` where it is a repaired one."""

    def register(excess: Excess) -> Excess:
        assert (statement, text) not in INEQUALITIES
        INEQUALITIES[statement, text] = Inequality(printed, excess)
        return excess

    return register


ExcessOfCase = Callable[[Case], float]


def of_case(statement: str, text: str, *, printed: bool = True) -> Callable[[ExcessOfCase], ExcessOfCase]:
    """As :func:`inequality`, for a function of a :class:`Case`."""

    def register(excess: ExcessOfCase) -> ExcessOfCase:
        @inequality(statement, text, printed=printed)
        def of_numbers(z: Numbers) -> float:
            return excess(case(z))

        return excess

    return register


@of_case("vince/theorem-4-1", r"$E_P[g]\le E_{Q_T}[g]$")
def mean_of_p_above_that_of_the_set(c: Case) -> float:
    g = np.exp(c.critic)
    under_p, under_q = (c.joint.y * g).sum(1), (c.q * g).sum(1)
    return float((under_p - under_q).max())


@inequality("vince/corollary-4-1-1", r"$I^{VINCE}\le I^{NCE}$, set by $y_1$")
def vince_above_nce_with_a_set_by_the_positive(z: Numbers) -> float:
    n, m, draws = z.choose(1, 2), z.choose(2, 3), z.choose(1, 3, 6)
    joint = joint_of(z, n, m)
    f = critic_of(z, n, m)
    by_y = critic_of(z, m, m)  # f(y₁, y), a row for each y₁
    mean = (joint.y * np.exp(by_y)).sum(1, keepdims=True)
    high = by_y > np.log(mean) + 1e-9
    highest = by_y == by_y.max(1, keepdims=True)
    region = np.where(high.any(1, keepdims=True), high, highest)
    q = exact.restrict(joint, np.broadcast_to(region, (n, m, m)))
    return exact.contrastive(joint, f, draws, q) - exact.contrastive(joint, f, draws)


@of_case("vince/corollary-4-1-1", r"$I^{VINCE}\le I^{NCE}$, set by $x$", printed=False)
def vince_above_nce(c: Case) -> float:
    return c.cnce() - c.nce()


@inequality("vince/appendix-a-4", r"$E_ph\le E_qh$, $h$ increasing and concave", printed=False)
def mean_of_a_concave_function_above_that_of_the_set(z: Numbers) -> float:
    c = case(z)
    g = np.exp(c.critic)
    power = z.inside(-3, 0.99)
    own = np.exp(z.inside(-3, 3))
    # of the positive and two negatives, [x, first, second]
    mean = (own + g[:, :, None] + g[:, None]) / 3
    h = np.log(mean)
    if abs(power) > 1e-3:
        h = mean**power / power

    def expected(law: np.ndarray) -> np.ndarray:
        return (law[:, :, None] * law[:, None] * h).sum((1, 2))

    under_p, under_q = expected(np.broadcast_to(c.joint.y, g.shape)), expected(c.q)
    return float(((under_p - under_q) / (1 + abs(under_p) + abs(under_q))).max())


@inequality("vince/lemma-4-4", r"$L^{LA_0}\ge L^{LA}-\log|C|$")
def la_above_la_0(z: Numbers) -> float:
    scores, size = 3 * z.take(5), z.choose(2, 3, 4)
    return float(logsumexp(scores[:size]) - math.log(size) - scores[0])


def jensen_excess(z: Numbers, *, held: bool) -> float:
    """``held``: whether the denominator holds the close neighbours, the first of which is the own image."""
    scores, close, draws = 3 * z.take(7), z.choose(1, 2, 3), z.choose(1, 2, 4)
    denominator = logsumexp(scores[4:])
    if held:
        denominator = np.logaddexp(logsumexp(scores[:close]), denominator)
    log_of_mean = logsumexp(scores[:close]) - math.log(close) - denominator
    sum_of_logs = scores[0] - denominator + draws * (scores[:close].mean() - denominator)
    return float(sum_of_logs - log_of_mean)


@inequality("vince/section-4-2-jensen", "log of a mean against a sum of logs")
def sum_of_logs_above_log_of_mean(z: Numbers) -> float:
    return jensen_excess(z, held=False)


@inequality("vince/section-4-2-jensen", "the same, $C$ in the denominator", printed=False)
def sum_of_logs_above_log_of_mean_with_the_neighbours(z: Numbers) -> float:
    return jensen_excess(z, held=True)


def own_and_nearest(c: Case) -> np.ndarray:
    """``[n, m]`` log of the sum of exp f of the own y and the other one that is scored highest."""
    is_own = np.eye(c.critic.shape[1], dtype=bool)
    others = np.where(is_own, -np.inf, c.critic[:, None, :])  # [n, own, other]
    return np.logaddexp(c.critic, others.max(2))


def with_numerator(c: Case, numerator: np.ndarray) -> float:
    """VINCE with ``numerator`` ``[n, m]`` in place of the own score, minus the information."""
    more = c.joint.table * (numerator - c.critic)
    return c.cnce() + float(more.sum()) - c.information


@of_case("vince/section-4-3-neighbours", "RING with neighbours is at most $I$")
def ring_with_neighbours_above_information(c: Case) -> float:
    return with_numerator(c, own_and_nearest(c))


@of_case("vince/section-4-3-neighbours", r"less $\log|C|$, if that is no more than the own score", printed=False)
def ring_with_mean_of_neighbours_above_information(c: Case) -> float:
    mean = own_and_nearest(c) - math.log(2)
    return with_numerator(c, np.minimum(mean, c.critic))


@of_case("vince/lemma-a-1", r"$I^{UBA}\le I$")
def uba_above_information(c: Case) -> float:
    return exact.unnormalised_barber_agakov(c.joint, c.critic) - c.information


@of_case("vince/lemma-a-2", r"$I^{NWJ}\le I$")
def nwj_above_information(c: Case) -> float:
    return exact.nwj(c.joint, c.critic) - c.information


@of_case("vince/theorem-a-3", r"$I^{NCE}\le\min(I,\log K)$")
def nce_above_information_or_log_k(c: Case) -> float:
    return c.nce() - min(c.information, math.log(c.draws + 1))


@inequality("vince/appendix-e-order", "a smaller ball is looser")
def small_ball_above_large_ball(z: Numbers) -> float:
    c = case(z)
    highest_first = np.sort(c.critic, axis=1)[:, ::-1]
    symbols = c.critic.shape[1]
    less = z.choose(*range(1, symbols + 1))
    more = z.choose(*range(less, symbols + 1))

    def ball(size: int) -> float:
        q = exact.restrict(c.joint, c.critic >= highest_first[:, [size - 1]])
        return exact.contrastive(c.joint, c.critic, c.draws, q)

    return ball(less) - ball(more)


@inequality("vince/appendix-e-rule", "nearest to $y_1$: at most $I$")
def vince_with_the_nearest_to_the_positive_above_information(z: Numbers) -> float:
    m, draws = z.choose(3, 4), z.choose(3, 6)
    joint = joint_of(z, 1, m)
    f = critic_of(z, 1, m)
    distance = abs(f[0][:, None] - f[0][None])
    nearest = distance.argsort(1)[:, : m - 1]
    region = np.zeros((1, m, m), dtype=bool)
    np.put_along_axis(region[0], nearest, values=True, axis=1)
    return exact.contrastive(joint, f, draws, exact.restrict(joint, region)) - joint.mutual_information


@of_case("ring/theorem-3-1-information", r"$I_{CNCE}\le I$")
def cnce_above_information(c: Case) -> float:
    return c.cnce(positive=False) - c.information


@of_case("ring/theorem-3-1-nce", r"$I_{CNCE}\le I_{NCE}$ of Eq. 1")
def cnce_above_nce_of_eq_1(c: Case) -> float:
    return c.cnce(positive=False) - c.nce(positive=True)


@of_case("ring/theorem-3-1-nce", "both with the positive, or both without", printed=False)
def cnce_above_nce_in_one_form(c: Case) -> float:
    without = c.cnce(positive=False) - c.nce(positive=False)
    within = c.cnce(positive=True) - c.nce(positive=True)
    return max(without, within)


def bias_excess(c: Case, *, positive: bool) -> float:
    under_p, under_q = c.nce(positive=positive) - c.information, c.cnce(positive=positive) - c.information
    return abs(under_p) - abs(under_q)


@of_case("ring/theorem-3-2-bias", r"$|\mathrm{Bias}_p|\le|\mathrm{Bias}_q|$, no positive")
def bias_of_nce_above_that_of_cnce(c: Case) -> float:
    return bias_excess(c, positive=False)


@of_case("ring/theorem-3-2-bias", "the same with the positive", printed=False)
def bias_of_nce_above_that_of_cnce_with_the_positive(c: Case) -> float:
    return bias_excess(c, positive=True)


class Variances(NamedTuple):
    """Of −log of the mean of k draws of g."""

    under_p: float
    all_inside: float
    """Under q: given that all draws are in the set of g above its mean."""
    none_inside: float
    """Under q̃ of the paper; not a number if such draws have no mass."""
    not_all_inside: float


def variance_of(z: np.ndarray, weight: np.ndarray) -> float:
    """Of ``z`` under the law proportional to ``weight``; not a number if that has almost no mass."""
    mass = weight.sum()
    if mass < 1e-12:
        return math.nan
    law = weight / mass
    return float(law @ (z - law @ z) ** 2)


def variances(z: Numbers, k: int) -> Variances:
    symbols = z.choose(2, 3, 4)
    p = softmax(2 * z.take(symbols)) + 1e-6
    p /= p.sum()
    g = np.exp(critic_of(z, 1, symbols)[0])
    region = g > p @ g * (1 + 1e-9)
    drawn = np.indices((symbols,) * k).reshape(k, -1).T  # [sequences, k]
    weight = p[drawn].prod(1)
    value = -np.log(g[drawn].mean(1))
    all_inside, none_inside = region[drawn].all(1), ~region[drawn].any(1)
    return Variances(
        under_p=variance_of(value, weight),
        all_inside=variance_of(value, weight * all_inside),
        none_inside=variance_of(value, weight * none_inside),
        not_all_inside=variance_of(value, weight * ~all_inside),
    )


def variance_excess(under_p: float, under_q: float, hypothesis: float) -> float:
    """Relative to Var_q, and positive only if that is above Var_p and below ``hypothesis``, a variance too."""
    if math.isnan(under_q + hypothesis):
        return -1.0
    return min(under_q - under_p, 10 * (hypothesis - under_q)) / max(under_q, 1e-12)


@inequality("ring/theorem-3-2-variance", r"$\mathrm{Var}_q\le\mathrm{Var}_p$, $k=2$")
def variance_above_that_of_p(z: Numbers) -> float:
    of = variances(z, 2)
    return variance_excess(of.under_p, of.all_inside, of.none_inside)


@inequality("ring/theorem-3-2-variance", "$k=3$, against *not all* in the set", printed=False)
def variance_above_that_of_p_against_the_other_event(z: Numbers) -> float:
    of = variances(z, 3)
    return variance_excess(of.under_p, of.all_inside, of.not_all_inside)


@inequality("ring/theorem-3-2-variance", "$k=1$", printed=False)
def variance_above_that_of_p_for_one_draw(z: Numbers) -> float:
    of = variances(z, 1)
    return variance_excess(of.under_p, of.all_inside, of.none_inside)


@of_case("cmc/equation-5", r"no critic has a smaller $\mathcal L$ than the ratio")
def nce_above_that_of_the_ratio(c: Case) -> float:
    return c.nce() - exact.contrastive(c.joint, c.joint.log_ratio, c.draws)


@of_case("cmc/equation-6", r"$\log(k+1)-\mathcal L\le I$")
def nce_above_information(c: Case) -> float:
    return c.nce() - c.information


@of_case("cmc/appendix-c-2-more-negatives", "at the optimal critic the bound rises with $k$", printed=False)
def bound_with_fewer_negatives_above(c: Case) -> float:
    few = exact.contrastive(c.joint, c.joint.log_ratio, c.draws)
    more = exact.contrastive(c.joint, c.joint.log_ratio, c.draws + 1)
    return few - more


@inequality("cmc/data-processing", r"$I(z_i;z_j)\le I(v_i;v_j)$")
def information_of_codes_above(z: Numbers) -> float:
    table = softmax(2 * z.take(4, 4)) + 1e-9
    # the last of four symbols gets the code of one of the others: one-hot rows, [symbol, code]
    rows = np.eye(3)[[0, 1, 2, z.choose(0, 1, 2)]]
    columns = np.eye(3)[[0, 1, 2, z.choose(0, 1, 2)]]
    coded = exact.Joint.of(rows.T @ table @ columns)
    return coded.mutual_information - exact.Joint.of(table).mutual_information


ExcessOfKeys = Callable[[np.ndarray, np.ndarray, float], float]


def keys(z: Numbers) -> tuple[np.ndarray, np.ndarray, float]:
    """Probabilities p and similarities a = q·k/τ of unit keys, and the log sum c of the negatives."""
    count, tau = z.choose(2, 3, 4), z.inside(0.05, 1.0)
    p = softmax(2 * z.take(count))
    a = np.tanh(z.take(count)) / tau
    return p, a, 5 * float(z.take(1)[0])


def of_keys(statement: str, text: str, *, printed: bool = True) -> Callable[[ExcessOfKeys], ExcessOfKeys]:
    """As :func:`inequality`, for a function of p, a and c of :func:`keys`."""

    def register(excess: ExcessOfKeys) -> ExcessOfKeys:
        @inequality(statement, text, printed=printed)
        def of_numbers(z: Numbers) -> float:
            return excess(*keys(z))

        return excess

    return register


def limit(p: np.ndarray, a: np.ndarray, c: float) -> float:
    """The loss with infinitely many positive keys, JCL's Eq. 4."""
    return float(p @ (np.logaddexp(a, c) - a))


def eq_8(p: np.ndarray, a: np.ndarray, c: float, scale: float) -> float:
    """JCL's Eq. 8 with λ = ``scale``: a Gaussian of the same mean and variance in place of the keys."""
    mean = p @ a
    variance = p @ (a - mean) ** 2
    return float(np.logaddexp(mean + scale * variance / 2, c) - mean)


@of_keys("jcl/eq-7", r"$\mathcal L^\infty\le$ Eq. 7")
def limit_above_eq_7(p: np.ndarray, a: np.ndarray, c: float) -> float:
    eq_7 = float(np.logaddexp(logsumexp(a, b=p), c) - p @ a)
    return limit(p, a, c) - eq_7


@of_keys("jcl/gaussian-keys", r"$\mathcal L^\infty\le$ Eq. 8, $\lambda=1$, any keys")
def limit_above_eq_8(p: np.ndarray, a: np.ndarray, c: float) -> float:
    return limit(p, a, c) - eq_8(p, a, c, 1.0)


@inequality(
    "jcl/gaussian-legitimate",
    r"von Mises–Fisher keys, $q^\top\mu\ge0$: moment at most the Gaussian one",
    printed=False,
)
def moment_above_the_gaussian_one(z: Numbers) -> float:
    d, length = z.choose(2, 3, 5, 16, 64, 128), z.inside(0.05, 0.97)
    tau, cosine = z.inside(0.05, 1.0), z.inside(0, 1)
    gaussian_above = von_mises_fisher_excess(d, tau, length, cosine)
    if math.isnan(gaussian_above):
        return -1.0
    return -gaussian_above


GRID = np.linspace(-20, 20, 4001)
NORMAL = np.exp(-(GRID**2) / 2) / np.exp(-(GRID**2) / 2).sum()


def gaussian_excess(z: Numbers, low: float, high: float) -> float:
    """Of :func:`limit` over Eq. 8 for Gaussian keys, with λ between ``low`` and ``high``."""
    tau, mean, deviation = z.inside(0.05, 1), z.inside(-1, 1), z.inside(0.001, 0.5)
    c = 5 * float(z.take(1)[0])
    scale = z.inside(low, high)
    a = (mean + deviation * GRID) / tau
    exponent = mean / tau + scale * (deviation / tau) ** 2 / 2
    return limit(NORMAL, a, c) - float(np.logaddexp(exponent, c) - mean / tau)


@inequality("jcl/eq-8-bound", r"$\mathcal L^\infty\le$ Eq. 8, Gaussian keys, $0\le\lambda\le4$")
def limit_above_eq_8_of_gaussian_keys(z: Numbers) -> float:
    return gaussian_excess(z, 0.0, 4.0)


@inequality("jcl/eq-8-bound", r"the same, $1\le\lambda\le4$", printed=False)
def limit_above_eq_8_of_gaussian_keys_from_lambda_one_on(z: Numbers) -> float:
    return gaussian_excess(z, 1.0, 4.0)


@of_keys("jcl/lambda-small", r"$\lambda=0$ is at most $\mathcal L^\infty$, any keys")
def eq_8_of_lambda_zero_above_limit(p: np.ndarray, a: np.ndarray, c: float) -> float:
    return eq_8(p, a, c, 0.0) - limit(p, a, c)


@inequality("jcl/conventional-loss", "a wider spread of the same mean costs no less", printed=False)
def limit_above_that_of_a_wider_spread(z: Numbers) -> float:
    p, a, c = keys(z)
    mean = p @ a
    wider = mean + z.inside(1, 4) * (a - mean)
    return limit(p, a, c) - limit(p, wider, c)


def any_divergence(z: Numbers) -> divergences.Divergence:
    return DIVERGENCES[z.choose(*range(6))]


@inequality("fmicl/eq-2", "no score exceeds the f-information, six divergences")
def score_above_f_information(z: Numbers) -> float:
    c, divergence = case(z), any_divergence(z)
    scores = np.minimum(c.critic, divergence.highest - 1e-6)
    whole = c.joint.f_information(divergence)
    return (exact.f_information(c.joint, scores, divergence) - whole) / (1 + abs(whole))


@inequality("fmicl/data-processing", "features have no more f-information, six divergences")
def f_information_of_features_above(z: Numbers) -> float:
    divergence = any_divergence(z)
    table = softmax(2 * z.take(3, 4)) + 1e-6
    merged = np.column_stack([table[:, :2], table[:, 2:].sum(1)])
    whole = exact.Joint.of(table).f_information(divergence)
    return (exact.Joint.of(merged).f_information(divergence) - whole) / (1 + whole)


@of_case("fmicl/eq-16", r"NWJ $\le$ Eq. 14 $\le$ Eq. 12 $\le I$")
def largest_fall_in_the_chain(c: Case) -> float:
    nwj = exact.nwj(c.joint, c.critic)
    eq_14 = exact.donsker_varadhan(c.joint, c.critic)
    eq_12 = exact.unnormalised_barber_agakov(c.joint, c.critic, given="x")
    return max(nwj - eq_14, eq_14 - eq_12, eq_12 - c.information)


@of_case("fmicl/simclr-upper-bound", r"KL-f-MICL $\le$ InfoNCE with the positive")
def f_micl_above_nce(c: Case) -> float:
    near_best = c.joint.log_ratio + 0.1 * c.critic
    return exact.nwj(c.joint, 1 + near_best) - exact.contrastive(c.joint, near_best, c.draws)


@of_case("fmicl/simclr-upper-bound", r"KL-f-MICL $\le$ InfoNCE without it", printed=False)
def f_micl_above_nce_without_the_positive(c: Case) -> float:
    return exact.nwj(c.joint, 1 + c.critic) - c.nce(positive=False)


def simplex_excess(z: Numbers, most: float, first: int = 0) -> float:
    """By how much any n unit vectors have a lower mean of h over their distances than the regular simplex.

    h is f*∘f′ at the Gaussian kernel of height μ, up to ``most``, for one of ``DIVERGENCES`` from ``first`` on.
    """
    divergence, n = DIVERGENCES[z.choose(*range(first, 6))], z.choose(3, 4, 5)
    mu, width = z.inside(0.05, most), z.inside(0.1, 2.0)
    x = z.take(n, n)
    x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9)
    of_pairs = ~np.eye(n, dtype=bool)
    squared_distance = (2 - 2 * x @ x.T)[of_pairs]
    in_simplex = np.array([2 * n / (n - 1)])

    def mean_h(squared: np.ndarray) -> float:
        log_kernel = torch.from_numpy(math.log(mu) - width * squared)
        return float(divergence.composition(log_kernel).numpy().mean())

    return (mean_h(in_simplex) - mean_h(squared_distance)) / (1 + mu**2)


@inequality("fmicl/theorem-4", r"nothing beats the simplex, $\mu\le2$")
def simplex_above_other_vectors(z: Numbers) -> float:
    return simplex_excess(z, 2.0)


@inequality("fmicl/eq-20-table-1", r"nothing beats the simplex, Vincze–Le Cam, $\mu\le100$")
def simplex_above_other_vectors_for_vincze_le_cam(z: Numbers) -> float:
    return simplex_excess(z, 100.0, first=5)


def climb(excess: Excess, seed: int) -> tuple[float, int]:
    """The largest excess that Powell's method finds from one start, and how often it computed one."""
    start = np.random.default_rng(seed + 2**32).standard_normal(SIZE)
    numbers = Numbers(start, np.random.default_rng(seed))
    excess(numbers)
    used = numbers.at
    evaluations = 0

    def loss(values: np.ndarray) -> float:
        nonlocal evaluations
        evaluations += 1
        padded = np.concatenate([values, start[used:]])
        found = excess(Numbers(padded, np.random.default_rng(seed)))
        if not math.isfinite(found):
            return 1e9
        return -found

    options = {"maxfev": 1000, "xtol": 1e-3, "ftol": 1e-9}
    result = minimize(loss, start[:used], method="Powell", bounds=[(-12, 12)] * used, options=options)
    return -float(result.fun), evaluations


def search(name: tuple[str, str], seconds: float) -> ledger.Search:
    """Climb from one start after the other until the time is over."""
    statement, text = name
    printed, excess = INEQUALITIES[name]
    first_seed = zlib.crc32("/".join(name).encode())
    starts, evaluations = 0, 0
    best, best_start = -math.inf, 0
    begin = time.process_time()
    while time.process_time() - begin < seconds:
        largest, computed = climb(excess, first_seed + starts)
        evaluations += computed
        if largest > best:
            best, best_start = largest, starts
        starts += 1
    found = best > ROUNDING
    at = ""
    if found:
        at = f"start {best_start}"
    return ledger.Search(
        statement=statement,
        inequality=text,
        printed=printed,
        starts=starts,
        evaluations=evaluations,
        excess=best,
        found=found,
        at=at,
        date=date.today().isoformat(),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each inequality")
    parser.add_argument("--only", default="", help="part of a statement's name")
    chosen = parser.parse_args()
    stored = {(s["statement"], s["inequality"]): s for s in json.loads(STORED.read_text(encoding="utf-8"))}
    for name in INEQUALITIES:
        statement, _ = name
        if chosen.only not in statement:
            continue
        found = search(name, chosen.seconds)
        word = "found" if found.found else ""
        print(f"{found.statement:36} {found.starts:5} starts {found.excess:+.2e} {word}")
        stored[name] = found.model_dump()
        # stored after each search; those of inequalities that are no longer here are dropped
        ordered = [stored[name] for name in INEQUALITIES if name in stored]
        STORED.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
