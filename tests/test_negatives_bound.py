"""Which negatives leave log K minus InfoNCE a lower bound on the information, on examples where that is known."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from contrastlab import methods, negatives, schedules
from contrastlab.candidates import Candidates
from contrastlab.negatives import BatchRandom, Negatives
from contrastlab.objectives import info_nce


def bound(part: Negatives, tau: float = 0.07) -> float:
    """log K − InfoNCE in nats, of a query and a positive that are independent: the information is 0."""
    draw = torch.Generator().manual_seed(0)
    q, own, keys = (F.normalize(torch.randn(n, 16, generator=draw), dim=1) for n in (2000, 2000, 400))
    candidates = Candidates(q @ keys.T / tau)
    chosen = candidates.read(part.select(candidates, BatchRandom(draw), 0, 1))
    return math.log(65) - float(info_nce((q * own).sum(1) / tau, chosen).mean())


@pytest.mark.parametrize(
    ("part", "known"),
    [
        (negatives.Uniform(k=64), True),
        (negatives.Ball(50, k=64), True),
        (negatives.Ring(0, 50, k=64), True),
        (negatives.Ring(50, 100, k=64), False),
    ],
)
def test_the_bound_of_independent_pairs_is_at_most_zero_or_is_not_called_one(part: Negatives, known: bool) -> None:
    assert part.bounds_information is known
    assert (bound(part) < 0) is known


def test_a_ring_that_ever_skips_the_closest_keys_and_a_cave_bound_nothing() -> None:
    assert negatives.Ring(schedules.Linear(0, 0), 50).bounds_information
    assert not negatives.Ring(schedules.Linear(0, 1), 50).bounds_information
    assert not negatives.Cave().bounds_information
    for name, known in (("ring/ir", True), ("ring/moco", True), ("vince/ball", True), ("ring/mocoring", False),
                        ("vince/cave", False), ("vince/ir", False)):  # fmt: skip
        assert methods.get(name).bounds_information is known, name
