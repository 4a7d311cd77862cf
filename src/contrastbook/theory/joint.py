"""jcl Eq. 4 and Eq. 8 where the scores of an item's keys are normal: the exact loss, and the closed form for it.

A query sees of a key only ``a = q·k⁺``. Here ``a ~ N(m, v)``; ``c`` is the log of the sum over the negatives' terms.
All losses are in nats.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, gammaln, hyp0f1, ive, ndtr

from contrastlab.support.errors import check_integer, check_range

Array = NDArray[np.float64]
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(100)
_SQRT_2_PI = math.sqrt(2 * math.pi)
_FARTHEST = 9
"""Beyond so many standard deviations the normal density is too small to matter in float64."""


def expected_loss(m: float, v: float, c: float, tau: float) -> float:
    """The loss of infinitely many keys (Eq. 4) with ``q·k⁺ ~ N(m, v)``, to twelve digits.

    It is the mean of softplus(x), where ``x = c − a/τ`` is normal. As softplus(x) = max(x, 0) + log(1 + e^−|x|), the
    mean of the first term has a closed form. The second is smooth on each side of x = 0, and is integrated there.
    """
    _check(v, tau)
    mean = c - m / tau
    sd = math.sqrt(v) / tau
    if sd == 0:
        return float(np.logaddexp(mean, 0))
    kink = -mean / sd  # x = mean + sd * z is zero at this z
    share_above = ndtr(-kink)
    rectified_mean = mean * share_above + sd * math.exp(-(kink**2) / 2) / _SQRT_2_PI
    reach = 40 / sd  # where |x| is 40, the second term is below float64's last digit
    edges = np.clip([kink - reach, kink, kink + reach], -_FARTHEST, _FARTHEST)
    half_lengths = np.diff(edges)[:, None] / 2
    z = edges[:-1, None] + half_lengths * (1 + _NODES)
    second_term = np.log1p(np.exp(-np.abs(mean + sd * z)))
    weighted = half_lengths * _WEIGHTS * np.exp(-(z**2) / 2) * second_term
    return float(rectified_mean + weighted.sum() / _SQRT_2_PI)


def closed_form(m: ArrayLike, v: ArrayLike, c: ArrayLike, tau: float, strength: float) -> Array:
    """JCL's loss (Eq. 8); ``strength`` λ = 0 is InfoNCE with the mean key.

    From λ = 1 on it is at least :func:`expected_loss`, at λ = 0 at most that.
    """
    _check(v, tau)
    log_positive = _log_positive_term(m, v, tau, strength)
    log_denominator = np.logaddexp(log_positive, c)
    log_numerator = np.asarray(m, dtype=np.float64) / tau
    return np.asarray(log_denominator - log_numerator)


def positive_weight(m: ArrayLike, v: ArrayLike, c: ArrayLike, tau: float, strength: float) -> Array:
    """p⁺, the softmax weight of the positive in the denominator of Eq. 8.

    The loss falls with the mean at the rate ``(1 − p⁺)/τ`` and rises with the variance at ``λ p⁺/2τ²``.
    """
    _check(v, tau)
    log_positive = _log_positive_term(m, v, tau, strength)
    return np.asarray(expit(log_positive - np.asarray(c)))


def _log_positive_term(m: ArrayLike, v: ArrayLike, tau: float, strength: float) -> Array:
    """The log of the positive's term in the denominator of Eq. 8."""
    logit = np.asarray(m, dtype=np.float64) / tau
    return logit + strength * np.asarray(v) / (2 * tau**2)


def log_sum_on_sphere(negatives: int, dimension: int, tau: float) -> float:
    """The ``c`` of many negatives spread evenly over the unit sphere, at τ > 0: ``log K + log E exp(q·k/τ)``."""
    _check(0.0, tau)
    check_integer("negatives", negatives, 1)
    check_integer("dimension", dimension, 1)
    kappa = 1 / tau
    if kappa < 700:  # the mean is at most e^κ, which float64 holds
        mean = float(hyp0f1(dimension / 2, kappa**2 / 4))
        return math.log(negatives) + math.log(mean)
    order = dimension / 2 - 1
    log_scaled_bessel = math.log(ive(order, kappa))  # without the factor e^κ
    log_mean = gammaln(order + 1) + order * math.log(2 / kappa) + log_scaled_bessel + kappa
    return math.log(negatives) + float(log_mean)


def _check(v: ArrayLike, tau: float) -> None:
    check_range("v", float(np.min(v)), 0)
    check_range("tau", tau, 0, above=True)
