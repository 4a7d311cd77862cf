"""Which keys count as positives, against a sort and a set."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from contrastlab.negatives import Ball, BatchRandom
from contrastlab.objectives import ABSENT
from contrastlab.positives import Neighbours, One, Positives, SameCluster
from contrastlab.scores.candidates import Candidates, Chosen
from contrastlab.scores.schedules import Linear

NONE = Chosen(None)
OWN = torch.tensor([0, 7, 24])
"""The own key of each of three queries."""


def draws(seed: int = 0) -> BatchRandom:
    return BatchRandom(torch.Generator().manual_seed(seed))


def table(seed: int, rows: int = 3, keys: int = 25) -> Tensor:
    """Scores ``[rows, keys]`` with many ties."""
    return torch.randint(-4, 5, (rows, keys), generator=torch.Generator().manual_seed(seed)).float()


def select(part: Positives, logits: Tensor, own: Tensor | None = None, step: int = 0, total: int = 1) -> Chosen | None:
    """Further positives ``[rows, K]`` among all keys; what is chosen as negatives is of no account."""
    return part.select(Candidates(logits.clone(), own), NONE, draws(), step, total)


@given(st.integers(0, 10**6), st.integers(0, 100))
def test_neighbours_are_the_top_of_the_sort_without_the_own_row(seed: int, inner: int) -> None:
    logits = table(seed)
    chosen = select(Neighbours(inner), logits, OWN)
    count = 24 * inner // 100
    if count == 0:
        assert chosen is None
        return
    for scores, own_key, found in zip(logits.tolist(), OWN.tolist(), chosen.indices.tolist(), strict=True):
        others = scores[:own_key] + scores[own_key + 1 :]
        closest = sorted(others, reverse=True)[:count]
        assert own_key not in found
        assert len(set(found)) == count
        assert sorted((scores[key] for key in found), reverse=True) == closest


def test_drawn_neighbours_come_from_the_same_keys() -> None:
    logits = table(1, keys=100)
    neighbours = select(Neighbours(10), logits, OWN).indices
    drawn = select(Neighbours(10, k=50), logits, OWN).indices
    assert drawn.shape == (3, 50)
    for drawn_keys, keys in zip(drawn.tolist(), neighbours.tolist(), strict=True):
        assert set(drawn_keys) <= set(keys)
        assert len(set(drawn_keys)) > 1


def test_annealed_neighbours_start_with_none_and_grow_and_one_adds_nothing() -> None:
    annealed = Neighbours(Linear(0, 8, until=1.0))
    first, *others = [select(annealed, table(2, keys=100), step=step, total=9) for step in range(9)]
    assert first is None
    assert [chosen.indices.shape[1] for chosen in others] == [1, 2, 3, 4, 5, 6, 7, 8]
    close = select(Neighbours(32.3), table(2, keys=1000))
    assert close.indices.shape[1] == 323  # 1000 · 32.3 / 100 is 322.999… in floating point
    assert select(One(), table(0)) is None


@given(st.integers(0, 10**6), st.integers(1, 25))
def test_same_cluster_is_the_union_over_runs_within_the_ball(seed: int, nearest: int) -> None:
    logits = table(seed)
    labels = torch.randint(4, (25, 3), generator=torch.Generator().manual_seed(seed))
    asked = Candidates(logits, OWN, labels)
    ball = Ball(nearest=nearest, k=None, own="ranked").select(asked, draws(), 0, 1)
    chosen = SameCluster(4, 3).select(asked, ball, draws(), 0, 1)
    assert torch.equal(chosen.indices, ball.indices)
    values = chosen.gather(logits)
    for row, own_key in enumerate(OWN):
        in_ball = ball.indices[row]
        in_own_cluster = (labels[in_ball] == labels[own_key]).any(1)  # of any run
        expected = torch.where(in_own_cluster, logits[row, in_ball], ABSENT)
        assert torch.equal(chosen.absent[row], ~in_own_cluster)
        assert torch.equal(values[row], expected)


def test_before_the_first_clustering_everybody_is_alone() -> None:
    labels = torch.arange(25)[:, None].repeat(1, 2)
    asked = Candidates(table(3), OWN, labels)
    ball = Ball(nearest=25, k=None, own="ranked").select(asked, draws(), 0, 1)
    chosen = SameCluster(4, 2).select(asked, ball, draws(), 0, 1)
    clusters = [keys[~absent].tolist() for keys, absent in zip(ball.indices, chosen.absent, strict=True)]
    assert clusters == [[0], [7], [24]]
