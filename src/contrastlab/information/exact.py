"""Finite joint distributions on which every estimator's expectation is a finite sum.

Nothing here is sampled: an expectation over K − 1 independent negatives is a sum over the multisets they can form,
weighted by their multinomial probabilities, in float64. That makes a claim such as "InfoNCE ≤ I(X; Y)" a comparison of
two numbers. All values are in nats; a critic is a table of finite numbers of the same shape as the joint distribution.
The counterparts on samples are in :mod:`contrastlab.information.bounds`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, logsumexp, xlogy

from contrastlab.scores.divergences import Divergence
from contrastlab.support.errors import check, check_choice, reject

Table = NDArray[np.float64]
MOST_TERMS = 2_000_000  # multisets that are enumerated at most
SUM_TOLERANCE = 1e-9  # by how much the sum of probabilities may differ from 1


@dataclass(frozen=True, eq=False)
class Joint:
    """A joint distribution p(x, y) of n × m symbols, of which each has positive probability: ``table`` ``[n, m]``."""

    table: Table

    def __post_init__(self) -> None:
        table = np.asarray(self.table, dtype=np.float64)
        is_table = table.ndim == 2 and table.size
        check(is_table, "table", table.shape, "a table of shape [n, m] with at least one cell")
        if not np.isfinite(table).all() or (table < 0).any():
            raise reject("table", float(np.nanmin(table)), "finite probabilities of at least 0")
        total = table.sum()
        if abs(total - 1) > SUM_TOLERANCE:
            raise reject("table", f"sum {total:.12g}", "probabilities of sum 1 (Joint.of normalises weights)")
        _check_marginal("row", table.sum(1))
        _check_marginal("column", table.sum(0))
        object.__setattr__(self, "table", table)

    @classmethod
    def of(cls, weights: ArrayLike) -> Joint:
        """The distribution proportional to ``weights``."""
        table = np.asarray(weights, dtype=np.float64)
        total = table.sum()
        if not 0 < total < math.inf:
            raise reject("weights", float(total), "numbers of at least 0 with a positive, finite sum")
        return cls(table / total)

    @classmethod
    def independent(cls, x: ArrayLike, y: ArrayLike) -> Joint:
        """The product of two marginals, given as weights."""
        x = np.asarray(x, dtype=np.float64)
        y = np.asarray(y, dtype=np.float64)
        return cls.of(np.outer(x, y))

    @property
    def x(self) -> Table:
        """``[n]`` marginal p(x)."""
        return np.asarray(self.table.sum(1))

    @property
    def y(self) -> Table:
        """``[m]`` marginal p(y)."""
        return np.asarray(self.table.sum(0))

    @property
    def product(self) -> Table:
        """``[n, m]`` p(x) p(y)."""
        return np.outer(self.x, self.y)

    @property
    def log_ratio(self) -> Table:
        """``[n, m]`` pointwise mutual information ``log p(x, y) / p(x) p(y)``, −∞ where the pair is impossible."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.table) - np.log(self.product))

    @property
    def mutual_information(self) -> float:
        """I(X; Y)."""
        terms = xlogy(self.table, self.table) - xlogy(self.table, self.product)
        return max(0.0, float(terms.sum()))

    def f_information(self, divergence: Divergence) -> float:
        """``E_{p(x)p(y)} f(p(x, y) / p(x) p(y))``, fmicl Definition 1; may be infinite where a pair is impossible."""
        ratio = torch.from_numpy(self.table / self.product)
        terms = divergence.f(ratio).numpy() * self.product
        return float(terms.sum())

    def critic(self, critic: ArrayLike, name: str = "critic") -> Table:
        """``critic`` as a float64 table: finite, and of the distribution's shape."""
        values = np.asarray(critic, dtype=np.float64)
        shape = self.table.shape
        accepted = f"a table of shape {list(shape)} of finite numbers, like the joint distribution"
        check(values.shape == shape and np.isfinite(values).all(), name, values.shape, accepted)
        return values


def _check_marginal(name: str, probabilities: Table) -> None:
    empty = np.flatnonzero(probabilities == 0)
    if len(empty):
        raise reject("table", f"{name} {empty[0]} of probability 0", "rows and columns of positive probability")


@lru_cache(maxsize=256)
def _multisets(symbols: int, draws: int) -> tuple[Table, Table]:
    """``[S, symbols]`` counts of every multiset of ``draws`` symbols, and ``[S]`` log multinomial coefficients."""
    size = math.comb(symbols + draws - 1, draws)
    if size > MOST_TERMS:
        raise reject("draws", draws, f"few enough for at most {MOST_TERMS} multisets; {symbols} symbols make {size}")
    counts = np.zeros((size, symbols))
    multisets = combinations_with_replacement(range(symbols), draws)
    for row, multiset in enumerate(multisets):
        for symbol in multiset:
            counts[row, symbol] += 1
    log_coefficient = gammaln(draws + 1) - gammaln(counts + 1).sum(1)
    return counts, log_coefficient


def restrict(joint: Joint, region: ArrayLike) -> Table:
    """The conditional distribution of negatives: p(y) restricted, for every x, to a set of y and renormalised.

    ``region`` is ``[n, m]`` booleans, S_B of ring Theorem 3.1 or S_T of vince Theorem 4.1 for every x; or ``[n, m, m]``
    where the set depends on the positive y₁ too (second axis). The result has its shape, and its last axis sums to 1.
    """
    mask = np.asarray(region)
    n, m = joint.table.shape
    has_shape = mask.shape in ((n, m), (n, m, m))
    if mask.dtype != bool or not has_shape:
        raise reject("region", (mask.dtype.name, mask.shape), f"booleans of shape {[n, m]} or {[n, m, m]}")
    mass = mask * joint.y
    total = mass.sum(-1, keepdims=True)
    if (total == 0).any():
        first = np.argwhere(total[..., 0] == 0)[0]
        where = tuple(int(i) for i in first)
        raise reject("region", f"a set of probability 0 at {where}", "sets that hold at least one symbol")
    return np.asarray(mass / total)


def threshold(joint: Joint, critic: ArrayLike) -> Table:
    """``[n]`` log c(x), ``c(x) = E_{p(y)} exp f(x, y)``: what every score of the set must exceed (ring Theorem 3.1)."""
    return np.asarray(logsumexp(joint.critic(critic), axis=1, b=joint.y))


def normalised_similarity(
    joint: Joint,
    critic: ArrayLike,
    draws: int,
    negatives: ArrayLike | None = None,
    *,
    positive_in_denominator: bool = True,
) -> tuple[Table, Table]:
    """Mean and variance over the negatives of ``Z = f(x, y) − log mean of exp f(x, ·)``, each ``[n, m]`` by pair.

    Args:
        joint: gives p(y), the distribution of the negatives unless ``negatives`` is given.
        critic: ``[n, m]`` f.
        draws: number of independent negatives.
        negatives: of one negative given x ``[n, m]``, or x and the positive ``[n, m, m]``; see :func:`restrict`.
        positive_in_denominator: whether the mean is over the positive and the negatives (ring Eq. 1; K = draws + 1)
            or over the negatives only (ring Theorem 3.1).
    """
    values = joint.critic(critic)
    is_count = isinstance(draws, int | np.integer) and draws >= 1
    check(is_count, "draws", draws, "an integer of at least 1: K is the positive and at least one negative")
    symbols = values.shape[1]
    distribution = _distribution_of_negatives(joint, negatives)
    counts, log_coefficient = _multisets(symbols, int(draws))
    # [n, 1, S]: log of the sum over the drawn negatives; a symbol that was not drawn contributes exp(-inf) = 0.
    with np.errstate(divide="ignore"):
        log_counts = np.log(counts)
    log_sum = logsumexp(values[:, None, :] + log_counts, axis=2)[:, None, :]
    # [n, 1 or m, S]: probability of each multiset; xlogy takes 0 log 0 as 0, for an impossible symbol not drawn.
    log_probability = xlogy(counts, distribution[:, :, None, :]).sum(-1)
    weight = np.exp(log_coefficient + log_probability)
    positive = values[:, :, None]
    if positive_in_denominator:
        log_mean = np.logaddexp(positive, log_sum) - math.log(draws + 1)
    else:
        log_mean = log_sum - math.log(draws)
    z = positive - log_mean
    mean = (weight * z).sum(-1)
    squares = (z - mean[:, :, None]) ** 2
    variance = (weight * squares).sum(-1)
    return np.asarray(mean), np.asarray(variance)


def _distribution_of_negatives(joint: Joint, negatives: ArrayLike | None) -> Table:
    """``[n, 1 or m, m]`` p(negative | x, positive); the second axis is 1 where the positive makes no difference."""
    n, m = joint.table.shape
    if negatives is None:
        return np.broadcast_to(joint.y, (n, 1, m))
    q = np.asarray(negatives, dtype=np.float64)
    if q.shape == (n, m):
        q = q[:, None, :]
    accepted = f"distributions of shape {[n, m]} or {[n, m, m]}, each of sum 1"
    check(q.shape in ((n, 1, m), (n, m, m)), "negatives", q.shape, accepted)
    misses_1 = abs(q.sum(-1) - 1) > SUM_TOLERANCE
    if (q < 0).any() or misses_1.any():
        raise reject("negatives", q.shape, accepted)
    return q


def contrastive(
    joint: Joint,
    critic: ArrayLike,
    draws: int,
    negatives: ArrayLike | None = None,
    *,
    positive_in_denominator: bool = True,
) -> float:
    """``E_{p(x,y)}`` of :func:`normalised_similarity`: VINCE and CNCE, for any distribution of the negatives."""
    mean, _ = normalised_similarity(joint, critic, draws, negatives, positive_in_denominator=positive_in_denominator)
    return float((joint.table * mean).sum())


def info_nce(joint: Joint, critic: ArrayLike, k: int) -> float:
    """InfoNCE with the positive and k − 1 negatives from p(y) (vince Eq. 5, ring Eq. 1); ≤ min(I, log k)."""
    return contrastive(joint, critic, k - 1)


def leave_one_out(joint: Joint, critic: ArrayLike, k: int) -> float:
    """As :func:`info_nce` without the positive in the denominator; at the optimal critic an *upper* bound on I."""
    return contrastive(joint, critic, k - 1, positive_in_denominator=False)


def barber_agakov(joint: Joint, decoder: ArrayLike) -> float:
    """``E log q(x|y) / p(x)`` ≤ I (vince Lemma A.1); q ``[n, m]`` is positive where the pair is possible."""
    q = joint.critic(decoder, "decoder")
    is_distribution = (q >= 0).all() and (abs(q.sum(0) - 1) <= SUM_TOLERANCE).all()
    is_possible = joint.table > 0
    if not is_distribution or (q[is_possible] == 0).any():
        raise reject("decoder", "", "columns q(·|y) that sum to 1, positive wherever the pair is possible")
    terms = xlogy(joint.table, q) - xlogy(joint.table, joint.x[:, None])
    return float(terms.sum())


def unnormalised_barber_agakov(joint: Joint, critic: ArrayLike, given: Literal["x", "y"] = "y") -> float:
    """``E[f − log Z]`` ≤ I, with ``Z(y) = E_{p(x)} exp f`` (vince Lemma A.1) or, given x, ``c(x) = E_{p(y)} exp f``."""
    check_choice("given", given, ("x", "y"))
    values = joint.critic(critic)
    if given == "x":
        normalised = values - threshold(joint, values)[:, None]
    else:
        log_z = logsumexp(values, axis=0, b=joint.x[:, None])
        normalised = values - log_z[None]
    return float((joint.table * normalised).sum())


def nwj(joint: Joint, critic: ArrayLike) -> float:
    """Nguyen–Wainwright–Jordan, ``E f − E_{p(x)p(y)} exp(f − 1)`` ≤ I (vince Lemma A.2); tight at 1 + log ratio."""
    values = joint.critic(critic)
    of_pairs = (joint.table * values).sum()
    of_product = (joint.product * np.exp(values - 1)).sum()
    return float(of_pairs - of_product)


def donsker_varadhan(joint: Joint, critic: ArrayLike) -> float:
    """``E f − log E_{p(x)p(y)} exp f`` ≤ I (fmicl Eq. 14); tight at the log ratio plus any constant."""
    values = joint.critic(critic)
    of_pairs = (joint.table * values).sum()
    of_product = logsumexp(values, b=joint.product)
    return float(of_pairs - of_product)


def f_information(joint: Joint, scores: ArrayLike, divergence: Divergence) -> float:
    """``E s − E_{p(x)p(y)} f*(s)`` ≤ I_f for s in the domain of f* (fmicl Eq. 2); tight at f′ of the ratio."""
    values = joint.critic(scores, "scores")
    tensor = torch.from_numpy(values)
    check_scores(tensor, divergence)
    conjugate = divergence.conjugate(tensor).numpy()
    of_pairs = (joint.table * values).sum()
    of_product = (joint.product * conjugate).sum()
    return float(of_pairs - of_product)


def check_scores(scores: torch.Tensor, divergence: Divergence, name: str = "scores") -> None:
    """Reject a score outside the domain of the conjugate of ``divergence``."""
    outside = scores[~divergence.contains(scores)]
    if outside.numel():
        accepted = f"{divergence.domain}, the domain of the conjugate of {divergence.title}"
        raise reject(name, float(outside.flatten()[0]), accepted)
