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


def expected_loss(m: float, v: float, c: float, tau: float) -> float:
    """The loss of infinitely many keys (Eq. 4) with ``q·k⁺ ~ N(m, v)``, to twelve digits."""
    _check(v, tau)
    mean = c - m / tau
    sd = math.sqrt(v) / tau
    if sd == 0:
        return float(np.logaddexp(mean, 0))
    # softplus(x) = max(x, 0) + log(1 + e^−|x|): the mean of the first is known, the second is smooth beside its kink
    kink = -mean / sd
    root = math.sqrt(2 * math.pi)
    mean_of_first = mean * ndtr(-kink) + sd * math.exp(-(kink**2) / 2) / root
    edges = np.clip([kink - 40 / sd, kink, kink + 40 / sd], -9, 9)
    half = np.diff(edges)[:, None] / 2
    z = edges[:-1, None] + half * (1 + _NODES)
    second = np.log1p(np.exp(-np.abs(mean + sd * z)))
    curve = half * _WEIGHTS * np.exp(-(z**2) / 2) * second
    return float(mean_of_first + curve.sum() / root)


def closed_form(m: ArrayLike, v: ArrayLike, c: ArrayLike, tau: float, strength: float) -> Array:
    """JCL's loss (Eq. 8); ``strength`` λ = 0 is InfoNCE with the mean key.

    From λ = 1 on it is at least :func:`expected_loss`, at λ = 0 at most that.
    """
    _check(v, tau)
    mean = np.asarray(m, dtype=np.float64) / tau
    return np.asarray(np.logaddexp(_lifted(m, v, tau, strength), c) - mean)


def positive_weight(m: ArrayLike, v: ArrayLike, c: ArrayLike, tau: float, strength: float) -> Array:
    """p⁺, the softmax weight of the positive in the denominator of Eq. 8.

    The loss falls with the mean at the rate ``(1 − p⁺)/τ`` and rises with the variance at ``λ p⁺/2τ²``.
    """
    _check(v, tau)
    return np.asarray(expit(_lifted(m, v, tau, strength) - np.asarray(c)))


def _lifted(m: ArrayLike, v: ArrayLike, tau: float, strength: float) -> Array:
    """The log of the positive's term in the denominator of Eq. 8."""
    mean = np.asarray(m, dtype=np.float64) / tau
    return mean + strength * np.asarray(v) / (2 * tau**2)


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
    log_mean = gammaln(order + 1) + order * math.log(2 / kappa) + math.log(ive(order, kappa)) + kappa
    return math.log(negatives) + float(log_mean)


def _check(v: ArrayLike, tau: float) -> None:
    check_range("v", float(np.min(v)), 0)
    check_range("tau", tau, 0, above=True)
