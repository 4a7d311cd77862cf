"""Random finite problems for hypothesis: joint distributions, critics and sets, extremes included."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import product

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from contrastlab.theory import exact

_SHARE = float(os.environ.get("CONTRASTLAB_CASES", "1"))
"""Share of the cases that are drawn; a mutation run, which repeats the tests thousands of times, draws fewer."""
many = settings(max_examples=max(1, round(2000 * _SHARE)))
"""For inequalities."""
some = settings(max_examples=max(1, round(400 * _SHARE)))
"""For identities, and where one example is a whole enumeration."""


@dataclass(frozen=True)
class Problem:
    """A joint distribution, a critic on it, and a generator for whatever else a test draws."""

    joint: exact.Joint
    critic: np.ndarray
    rng: np.random.Generator

    def __repr__(self) -> str:
        return f"Problem(table={self.joint.table.tolist()}, critic={self.critic.tolist()})"


@st.composite
def joints(draw: st.DrawFn, most: int = 5, square: bool = False) -> exact.Joint:
    """From nearly deterministic to nearly independent; every cell is positive."""
    n, m = draw(st.integers(1, most)), draw(st.integers(2, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    concentration = draw(st.sampled_from([0.05, 0.3, 1.0, 10.0]))
    return exact.Joint.of(rng.gamma(concentration, size=(m if square else n, m)) + 1e-9)


@st.composite
def problems(draw: st.DrawFn, most: int = 5, square: bool = False) -> Problem:
    """A critic is random, or the optimal one scaled, shifted per x and disturbed."""
    joint = draw(joints(most, square))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = draw(st.sampled_from([0.0, 0.01, 0.5, 1.0, 3.0, 20.0]))
    noise = draw(st.sampled_from([0.0, 0.1, 1.0])) * rng.standard_normal(joint.table.shape)
    if draw(st.booleans()):
        critic = scale * rng.standard_normal(joint.table.shape)
    else:
        critic = scale * joint.log_ratio + rng.standard_normal((len(joint.x), 1)) + noise
    return Problem(joint, critic, rng)


def above(problem: Problem) -> np.ndarray:
    """``[n, m]`` a random set for every x on which exp f exceeds c(x), never empty: the hypothesis of the theorems.

    A row whose critic is constant has no such set (its largest score equals log c); it is disturbed first by
    :func:`lively`.
    """
    high = problem.critic > exact.threshold(problem.joint, problem.critic)[:, None] + 1e-12
    chosen = high & (problem.rng.random(high.shape) < 0.6)
    top = np.eye(high.shape[1], dtype=bool)[problem.critic.argmax(1)]
    return np.where(chosen.any(1, keepdims=True), chosen, top)


def lively(problem: Problem) -> Problem:
    """The same problem with a critic that is constant in no row."""
    tilt = np.linspace(0, 0.1, problem.critic.shape[1])
    flat = np.ptp(problem.critic, axis=1, keepdims=True) < 1e-3
    return Problem(problem.joint, problem.critic + np.where(flat, tilt, 0.0), problem.rng)


def one_by_one(joint: exact.Joint, critic: np.ndarray, draws: int, q: np.ndarray, *, positive: bool = True) -> float:
    """``exact.contrastive``, slowly: every pair and every sequence of negatives, one after the other."""
    total = 0.0
    for x, y in product(*map(range, critic.shape)):
        for drawn in product(range(critic.shape[1]), repeat=draws):
            scores = [critic[x, y]] * positive + [critic[x, j] for j in drawn]
            top = max(scores)
            log_mean = top + np.log(np.mean(np.exp(np.array(scores) - top)))
            total += joint.table[x, y] * np.prod(q[x, list(drawn)]) * (critic[x, y] - log_mean)
    return float(total)
