"""Which keys count as positives, against a sort and a set."""

from collections import Counter

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from contrastlab.negatives import Ball, BatchRandom
from contrastlab.objectives import ABSENT
from contrastlab.positives import Neighbours, One, SameCluster
from contrastlab.scores.candidates import Candidates, Chosen
from contrastlab.scores.schedules import Linear

NONE = Chosen(None)


def draws(seed: int = 0) -> BatchRandom:
    return BatchRandom(torch.Generator().manual_seed(seed))


def table(seed: int, rows: int = 3, keys: int = 25) -> Tensor:
    return torch.randint(-4, 5, (rows, keys), generator=torch.Generator().manual_seed(seed)).float()


@given(st.integers(0, 10**6), st.integers(0, 100))
def test_neighbours_are_the_top_of_the_sort_without_the_own_row(seed: int, inner: int) -> None:
    logits, own = table(seed), torch.tensor([0, 7, 24])
    chosen = Neighbours(inner).select(Candidates(logits.clone(), own), NONE, draws(), 0, 1)
    count = 24 * inner // 100
    if count == 0:
        assert chosen is None
        return
    for row in range(3):
        others = [v for i, v in enumerate(logits[row].tolist()) if i != own[row]]
        indices = chosen.indices[row].tolist()
        assert int(own[row]) not in indices
        assert len(set(indices)) == count
        assert Counter(logits[row, indices].tolist()) == Counter(sorted(others, reverse=True)[:count])


def test_drawn_neighbours_come_from_the_same_keys() -> None:
    logits, own = table(1, keys=100), torch.tensor([0, 7, 24])
    all_of = Neighbours(10).select(Candidates(logits.clone(), own), NONE, draws(), 0, 1).indices
    some = Neighbours(10, k=50).select(Candidates(logits.clone(), own), NONE, draws(), 0, 1).indices
    assert some.shape == (3, 50)
    for row in range(3):
        assert set(some[row].tolist()) <= set(all_of[row].tolist())
        assert len(set(some[row].tolist())) > 1


def test_annealed_neighbours_start_with_none_and_grow_and_one_adds_nothing() -> None:
    part = Neighbours(Linear(0, 8, until=1.0))
    chosen = [part.select(Candidates(table(2, keys=100)), NONE, draws(), s, 9) for s in range(9)]
    assert chosen[0] is None
    assert [c.indices.shape[1] for c in chosen[1:]] == list(range(1, 9))
    # 1000 · 32.3 / 100 is 322.999… in floating point
    assert Neighbours(32.3).select(Candidates(table(2, keys=1000)), NONE, draws(), 0, 1).indices.shape[1] == 323
    assert One().select(Candidates(table(0)), NONE, draws(), 0, 1) is None


@given(st.integers(0, 10**6), st.integers(1, 25))
def test_same_cluster_is_the_union_over_runs_within_the_ball(seed: int, nearest: int) -> None:
    logits, own = table(seed), torch.tensor([0, 7, 24])
    labels = torch.randint(4, (25, 3), generator=torch.Generator().manual_seed(seed))
    asked = Candidates(logits, own, labels)
    ball = Ball(nearest=nearest, k=None, own="ranked").select(asked, draws(), 0, 1)
    chosen = SameCluster(4, 3).select(asked, ball, draws(), 0, 1)
    assert torch.equal(chosen.indices, ball.indices)
    values = chosen.gather(logits)
    for row in range(3):
        for column, i in enumerate(ball.indices[row].tolist()):
            shared = any(int(labels[i, run]) == int(labels[own[row], run]) for run in range(3))
            assert bool(chosen.absent[row, column]) is not shared
            assert float(values[row, column]) == (float(logits[row, i]) if shared else float(torch.tensor(ABSENT)))


def test_before_the_first_clustering_everybody_is_alone() -> None:
    labels = torch.arange(25)[:, None].repeat(1, 2)
    asked = Candidates(table(3), torch.tensor([0, 7, 24]), labels)
    ball = Ball(nearest=25, k=None, own="ranked").select(asked, draws(), 0, 1)
    chosen = SameCluster(4, 2).select(asked, ball, draws(), 0, 1)
    assert [ball.indices[r][~chosen.absent[r]].tolist() for r in range(3)] == [[0], [7], [24]]
