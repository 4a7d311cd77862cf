"""Random finite problems for hypothesis: joint distributions, critics and sets, extremes included."""

import os
from dataclasses import dataclass
from itertools import product

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from contrastlab.information import exact

EXACT, SLACK = 1e-10, 1e-9
"""Of an equation, and of an inequality between two float64 sums."""
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


seeds = st.integers(0, 2**32 - 1)
"""A whole case comes from one seed: what is drawn number by number costs more than the test of it."""


def _joint(rng: np.random.Generator, most: int) -> exact.Joint:
    shape = rng.integers(1, most + 1), rng.integers(2, most + 1)
    return exact.Joint.of(rng.gamma(rng.choice([0.05, 0.3, 1.0, 10.0]), size=shape) + 1e-9)


def _problem(rng: np.random.Generator, most: int) -> Problem:
    joint = _joint(rng, most)
    scale, noise = rng.choice([0.0, 0.01, 0.5, 1.0, 3.0, 20.0]), rng.choice([0.0, 0.1, 1.0])
    critic = scale * rng.standard_normal(joint.table.shape)
    if rng.random() < 0.5:
        critic = scale * joint.log_ratio + rng.standard_normal((len(joint.x), 1))
        critic += noise * rng.standard_normal(joint.table.shape)
    return Problem(joint, critic, rng)


def joints(most: int = 5) -> st.SearchStrategy[exact.Joint]:
    """From nearly deterministic to nearly independent; every cell is positive."""
    return seeds.map(lambda seed: _joint(np.random.default_rng(seed), most))


def problems(most: int = 5) -> st.SearchStrategy[Problem]:
    """A critic is random, or the optimal one scaled, shifted per x and disturbed."""
    return seeds.map(lambda seed: _problem(np.random.default_rng(seed), most))


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


def with_set(problem: Problem) -> tuple[Problem, np.ndarray]:
    """The :func:`lively` problem, and negatives of a random set :func:`above` c."""
    problem = lively(problem)
    return problem, exact.restrict(problem.joint, above(problem))


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


def sequences(symbols: int, draws: int) -> np.ndarray:
    """``[symbols ** draws, draws]`` every sequence of draws from 0 to ``symbols`` − 1."""
    return np.array(list(product(range(symbols), repeat=draws)))
