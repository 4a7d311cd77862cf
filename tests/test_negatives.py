"""Regions against a sort, draws against their distribution, and which of them leave a bound on the information."""

import math
from collections import Counter
from dataclasses import FrozenInstanceError

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor
from torch.nn import functional as F

from contrastlab import methods
from contrastlab.negatives import Ball, BatchRandom, Cave, Every, Negatives, NoKeys, OtherLabel, Ring, Uniform, edges
from contrastlab.objectives import ABSENT, InfoNCE, Scores, info_nce
from contrastlab.scores.candidates import Candidates, Chosen
from contrastlab.scores.ranks import ring_indices
from contrastlab.scores.schedules import Linear
from contrastlab.support.errors import ArgumentError

pytestmark = pytest.mark.usefixtures("branch")

Table = list[list[int]]
"""Scores of the keys, a row for each query."""

OWN = st.sampled_from(["excluded", "ranked"])


def draws(seed: int = 0, first: int = 0, rows: int | None = None) -> BatchRandom:
    return BatchRandom(torch.Generator().manual_seed(seed), first, rows)


@st.composite
def problems(draw: st.DrawFn, least: int = 3) -> tuple[Table, list[int], list[int]]:
    """Scores with many ties, the own key of each query, and one more key of each that is no candidate."""
    keys = draw(st.integers(least, 40))
    queries = draw(st.integers(1, 4))
    scores = st.lists(st.integers(-3, 3), min_size=keys, max_size=keys)
    table = draw(st.lists(scores, min_size=queries, max_size=queries))
    own = draw(st.lists(st.integers(0, keys - 1), min_size=queries, max_size=queries))
    distances = draw(st.lists(st.integers(1, keys - 1), min_size=queries, max_size=queries))
    banned = [(key + distance) % keys for key, distance in zip(own, distances, strict=True)]
    return table, own, banned


def candidates(
    table: Table, own: list[int] | None, banned: list[int] | None, labels: Tensor | None = None
) -> Candidates:
    """The keys to choose from: own and banned ones have a number a query, labels have shape ``[keys, runs]``."""
    scores = torch.tensor(table, dtype=torch.float32)
    own_keys = None if own is None else torch.tensor(own)
    banned_keys = None if banned is None else torch.tensor(banned)[:, None]
    return Candidates(scores, own_keys, labels, banned_keys)


def no_candidates(own: list[int], banned: list[int], excluded: bool, ban: bool) -> list[set[int]]:
    """What each query may not choose: its own key if that is excluded, and its banned one if there is a ban."""
    forbidden: list[set[int]] = [set() for _ in own]
    for keys, own_key, banned_key in zip(forbidden, own, banned, strict=True):
        if excluded:
            keys.add(own_key)
        if ban:
            keys.add(banned_key)
    return forbidden


def members(chosen: Chosen) -> list[list[int]]:
    """The chosen keys of each query, whether the selection has their numbers or says which are absent."""
    if chosen.indices is not None:
        assert chosen.absent is None
        return chosen.indices.tolist()
    assert chosen.absent is not None
    return [present.nonzero().flatten().tolist() for present in ~chosen.absent]


def same_region(chosen: Chosen, table: Table, forbidden: list[set[int]], first: int, last: int) -> None:
    """Each query has the candidates of ranks ``first`` to ``last`` − 1, each once; which of equal ones is left open."""
    size = last - first
    assert chosen.count(len(table[0])) == size
    for scores, found, others in zip(table, members(chosen), forbidden, strict=True):
        assert len(found) == len(set(found)) == size
        assert not others & set(found)
        ranked = sorted((score for key, score in enumerate(scores) if key not in others), reverse=True)
        assert sorted((scores[key] for key in found), reverse=True) == ranked[first:last]


@given(problems(), st.integers(0, 99), st.integers(1, 100), st.sampled_from(["keys", "outer"]), st.booleans(), OWN)
def test_ring_is_the_slice_of_the_sorted_candidates(problem, inner, outer, inner_of, ban, own_is) -> None:
    table, own, banned = problem
    assume(inner_of == "outer" or inner < outer)
    banned_keys = banned if ban else None
    asked = candidates(table, own, banned_keys)
    forbidden = no_candidates(own, banned, own_is == "excluded", ban)
    count = len(table[0]) - len(forbidden[0])
    last = count * outer // 100  # integer percentages, so that the edges are exact
    whole = count if inner_of == "keys" else last
    first = whole * inner // 100
    ring = Ring(inner, outer, k=None, inner_of=inner_of, own=own_is)
    if first >= last:
        with pytest.raises(ArgumentError, match="holds at least one"):
            ring.select(asked, draws(), 0, 1)
        return
    chosen = ring.select(asked, draws(), 0, 1)
    same_region(chosen, table, forbidden, first, last)


@given(problems(), st.integers(1, 50), st.booleans(), OWN)
def test_ball_of_a_number_of_keys_is_the_top_of_the_sort(problem, nearest, ban, own_is) -> None:
    table, own, banned = problem
    forbidden = no_candidates(own, banned, own_is == "excluded", ban)
    count = len(table[0]) - len(forbidden[0])
    banned_keys = banned if ban else None
    asked = candidates(table, own, banned_keys)
    chosen = Ball(nearest=nearest, k=None, own=own_is).select(asked, draws(), 0, 1)
    same_region(chosen, table, forbidden, 0, min(nearest, count))


@given(problems(least=12), st.integers(10, 100))
def test_ball_of_a_percentage_is_the_top_of_the_sort(problem, outer) -> None:
    table, own, banned = problem
    forbidden = no_candidates(own, banned, excluded=True, ban=False)
    size = (len(table[0]) - 1) * outer // 100
    chosen = Ball(outer, k=None).select(candidates(table, own, None), draws(), 0, 1)
    same_region(chosen, table, forbidden, 0, size)


@given(problems(least=12), st.integers(10, 100), st.integers(0, 2**31), st.booleans())
def test_cave_is_the_ball_without_the_keys_of_the_own_clusters(problem, outer, seed, sampled) -> None:
    """A key leaves the ball if it shares a cluster with the own key in either run of k-means."""
    table, own, _ = problem
    labels = torch.randint(3, (len(table[0]), 2), generator=torch.Generator().manual_seed(seed))
    ball = Ball(outer, k=None).select(candidates(table, own, None), draws(), 0, 1)
    k = 30 if sampled else None
    cave = Cave(outer, k=k, clusters=3, runs=2)
    chosen = cave.select(candidates(table, own, None, labels), draws(seed), 0, 1)
    for row, own_key in enumerate(own):
        in_ball = ball.indices[row]
        shared = (labels[in_ball] == labels[own_key]).any(1)
        left = set(in_ball[~shared].tolist())
        found = chosen.indices[row][~chosen.absent[row]].tolist()
        if not sampled:
            assert sorted(found) == sorted(left)
        elif left:
            assert set(found) <= left
            assert len(found) == 30
        else:
            assert found == []


@given(problems(), st.booleans(), st.booleans())
def test_every_candidate_is_there_once_and_no_other(problem, ban, has_own) -> None:
    table, own, banned = problem
    own_keys = own if has_own else None
    banned_keys = banned if ban else None
    asked = candidates(table, own_keys, banned_keys)
    expected = asked.logits.clone()
    for row, others in enumerate(no_candidates(own, banned, has_own, ban)):
        expected[row, list(others)] = ABSENT
    chosen = Every().select(asked, draws(), 0, 1)
    assert torch.equal(chosen.gather(asked.logits), expected)


@given(problems(), st.booleans(), OWN, st.booleans())
def test_uniform_draws_candidates_only(problem, ban, own_is, has_own) -> None:
    table, own, banned = problem
    own_keys = own if has_own else None
    banned_keys = banned if ban else None
    asked = candidates(table, own_keys, banned_keys)
    chosen = Uniform(64, own=own_is).select(asked, draws(3), 0, 1)
    assert chosen.indices.shape == (len(table), 64)
    forbidden = no_candidates(own, banned, has_own and own_is == "excluded", ban)
    for others, found in zip(forbidden, chosen.indices.tolist(), strict=True):
        assert set(found) <= set(range(len(table[0]))) - others


@pytest.mark.parametrize(("keys", "inner", "outer", "of", "expected"), [
    (50_000, 1, 10, "keys", (500, 5000)),
    (50_000, 10, 100, "outer", (5000, 50_000)),  # facts of the released code: u = 1, ranks 5000 … 49999
    (50_000, 10, 10, "outer", (500, 5000)),  # and u = 0.1, ranks 500 … 4999
    (65_536, 0, 100, "keys", (0, 65_536)),
    (4095, 1, 10, "keys", (40, 409)),
    (1000, 32.3, 64.1, "keys", (323, 641)),  # 1000 · 32.3 / 100 is 322.999… in floating point
    (10, 0, 10, "keys", (0, 1)),
])  # fmt: skip
def test_edges_are_ranks_rounded_down(keys, inner, outer, of, expected) -> None:
    assert edges(keys, inner, outer, of) == expected


def test_schedules_move_the_edges_with_the_step_up_to_the_ends() -> None:
    """The outer edge comes in by 10 keys of 100 a step. The closest key, of the highest score, is skipped throughout.

    A region may begin with the closest key, end with the last one, or both.
    """
    logits = torch.arange(100.0).repeat(2, 1)
    ring = Ring(1, Linear(100, 10, until=1.0), k=None)
    rings = [ring.select(Candidates(logits.clone()), draws(), step, 10) for step in range(10)]
    assert [chosen.count(100) for chosen in rings] == [99, 89, 79, 69, 59, 49, 39, 29, 19, 9]
    assert sorted(members(rings[-1])[0]) == list(range(90, 99))

    row = torch.tensor([[3.0, 1.0, 2.0, 0.0]])
    assert ring_indices(row, 0, 4).tolist() == [[0, 1, 2, 3]]
    assert sorted(ring_indices(row, 2, 4).tolist()[0]) == [1, 3]
    assert sorted(ring_indices(row, 0, 2).tolist()[0]) == [0, 2]
    assert ring_indices(row, 1, 2).tolist() == [[2]]


# 50 keys of scores 0 … 49; the own key is 7
UNIFORMITY = {
    "uniform, own row excluded": (Uniform(40_000), set(range(50)) - {7}),
    "uniform, own row ranked": (Uniform(40_000, own="ranked"), set(range(50))),
    "ring": (Ring(10, 60, k=40_000, own="ranked"), set(range(20, 45))),
    "ball": (Ball(nearest=20, k=40_000), set(range(30, 50))),
    "cave": (Cave(60, k=40_000, clusters=2, runs=1), set(range(22, 50, 2))),  # the own cluster has the odd keys
}


@pytest.mark.parametrize("name", UNIFORMITY)
def test_draws_with_replacement_are_uniform_over_the_region(name: str) -> None:
    part, region = UNIFORMITY[name]
    labels = torch.arange(50)[:, None] % 2
    asked = Candidates(torch.arange(50.0)[None], torch.tensor([7]), labels)
    counts = Counter(part.select(asked, draws(11), 0, 1).indices[0].tolist())
    assert set(counts) == region
    assert chisquare(list(counts.values())).pvalue > 1e-3


def test_uniform_draws_reach_the_closest_key_beside_banned_ones() -> None:
    asked = Candidates(torch.arange(50.0)[None], torch.tensor([7]), None, torch.tensor([[3, 8]]))
    counts = Counter(Uniform(40_000).select(asked, draws(11), 0, 1).indices[0].tolist())
    assert set(counts) == set(range(50)) - {3, 7, 8}
    assert chisquare(list(counts.values())).pvalue > 1e-3


def test_rows_are_drawn_independently() -> None:
    """Keys drawn at once for two queries fall into each pair of remainders, divided by 5, as often."""
    asked = Candidates(torch.zeros(2, 50))
    first, second = Uniform(20_000).select(asked, draws(5), 0, 1).indices % 5
    pairs = torch.bincount(5 * first + second, minlength=25)
    assert chisquare(pairs.numpy()).pvalue > 1e-3


@pytest.mark.parametrize(
    "part",
    [Uniform(9), Ring(1, 60, k=9), Ball(50, k=9), Cave(90, k=9, clusters=2, runs=1)],
    ids=["Uniform", "Ring", "Ball", "Cave"],
)
def test_two_half_batches_draw_what_one_batch_does(part) -> None:
    """Here they have 3 and 5 queries. Another seed draws other keys, and so does a second selection of one step."""
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(8, 30, generator=generator)
    own = torch.randperm(30, generator=generator)[:8]
    labels = torch.arange(30)[:, None] % 3

    def drawn(rows: slice, random: BatchRandom) -> Tensor:
        """Scores of the keys that these rows of the batch draw, ``[rows, 9]``."""
        scores = logits[rows]
        asked = Candidates(scores.clone(), own[rows], labels)
        return scores.gather(1, part.select(asked, random, 0, 1).indices)

    batch = slice(0, 8)
    whole = drawn(batch, draws(4))
    head = drawn(slice(0, 3), draws(4, first=0, rows=8))
    tail = drawn(slice(3, 8), draws(4, first=3, rows=8))
    assert torch.equal(torch.cat([head, tail]), whole)
    assert not torch.equal(drawn(batch, draws(5)), whole)
    of_one_step = draws(1)
    assert not torch.equal(drawn(batch, of_one_step), drawn(batch, of_one_step))


@pytest.mark.parametrize("k", [6, None])
def test_cave_with_nothing_left_costs_nothing_and_moves_nothing(k: int | None) -> None:
    """The closest 11 keys of the first query share its cluster, and its ball has 9. The second query keeps some."""
    queries = torch.randn(2, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    keys = torch.randn(20, 4, generator=torch.Generator().manual_seed(1))
    logits = queries @ keys.T
    closest = logits[0].argsort(descending=True)
    cluster = torch.arange(20) % 2
    cluster[:10] = 0
    cluster[closest[:11]] = 0
    of_another_cluster = cluster.argmax()
    own = torch.stack([closest[0], of_another_cluster])
    cave = Cave(50, k=k, clusters=2, runs=1)
    chosen = cave.select(Candidates(logits, own, cluster[:, None]), draws(), 0, 1)
    assert chosen.absent.all(1).tolist() == [True, False]
    positive = (queries * keys[own]).sum(1)
    loss = InfoNCE()(Scores(positive, chosen.gather(logits)))
    assert loss[0] == 0
    assert loss[1] > 0
    loss.sum().backward()
    assert queries.grad.any(1).tolist() == [False, True]
    assert bool(queries.grad.isfinite().all())


def test_gradients_reach_chosen_entries_only() -> None:
    table = torch.arange(20.0).repeat(3, 1).requires_grad_()
    logits = table * 1.0
    own = torch.tensor([19, 0, 15])  # 15 is where the ring is
    chosen = Ring(10, 50, k=None).select(Candidates(logits, own), draws(), 0, 1)
    values = chosen.gather(logits)
    InfoNCE()(Scores(values.new_zeros(3), values)).sum().backward()
    for gradient, own_key, found in zip(table.grad, own.tolist(), members(chosen), strict=True):
        assert own_key not in found
        assert gradient.nonzero().flatten().tolist() == sorted(found)


def test_possible_extremes_are_accepted() -> None:
    everything = Ring(0, 100, k=None).select(Candidates(torch.zeros(1, 4)), draws(), 0, 1)
    assert sorted(members(everything)[0]) == [0, 1, 2, 3]
    assert Ring(inner=10, outer=1, inner_of="outer").inner == 10
    assert Ring(inner=Linear(0, 1), outer=Linear(100, 10)).outer == Linear(100, 10)
    for one in (Ring(k=1), Ball(nearest=1, k=1), Cave(k=1, clusters=2, runs=1), Uniform(1)):
        assert one.k == 1
    assert Uniform(2**24).k == 2**24  # the most that are drawn
    assert NoKeys().select(Candidates(torch.zeros(2, 4)), draws(), 0, 1).indices.shape == (2, 0)


def test_parts_are_values_with_the_defaults_of_the_papers_and_equations_of_their_own() -> None:
    # vince, appendix C.2: 4096 negatives from the closest 10 %, less the closest 1 %; 10 runs of 300 clusters
    assert {part.k for part in (Uniform(), Ring(), Ball(), Cave())} == {4096}
    assert {part.outer for part in (Ring(), Ball(), Cave())} == {10}
    assert (Ring().inner, Ring().inner_of, Ball().nearest) == (1, "keys", None)
    assert (Cave().clusters, Cave().runs) == (300, 10)
    for make in (Every, NoKeys, OtherLabel, Uniform, Ring, Ball, Cave):
        assert {make(): 1}[make()] == 1  # a method is looked up by its parts
        with pytest.raises(FrozenInstanceError):
            make().k = 8
    parts = [
        Every(),
        Uniform(8),
        Ring(1, 10, 8),
        Ring(1, 10, None),
        Ring(10, 10, 8, "outer"),
        Ball(10, k=8),
        Ball(nearest=8, k=None),
        Cave(10, 8),
    ]
    equations = {part.latex for part in parts}
    assert len(equations) == len(parts)


def bound(part: Negatives, tau: float = 0.07) -> float:
    """log K − InfoNCE in nats, of a query and a positive that are independent: the information is 0."""
    generator = torch.Generator().manual_seed(0)
    queries = F.normalize(torch.randn(2000, 16, generator=generator), dim=1)
    own = F.normalize(torch.randn(2000, 16, generator=generator), dim=1)
    keys = F.normalize(torch.randn(400, 16, generator=generator), dim=1)
    positive = (queries * own).sum(1) / tau
    asked = Candidates(queries @ keys.T / tau)
    negatives = asked.read(part.select(asked, BatchRandom(generator), 0, 1))
    loss = info_nce(positive, negatives).mean()
    return math.log(65) - float(loss)  # 64 negatives beside the positive


@pytest.mark.parametrize(
    ("part", "known"),
    [
        (Uniform(k=64), True),
        (Ball(50, k=64), True),
        (Ring(0, 50, k=64), True),
        (Ring(50, 100, k=64), False),
    ],
)
def test_the_bound_of_independent_pairs_is_at_most_zero_or_is_not_called_one(part, known) -> None:
    assert part.bounds_information is known
    assert (bound(part) < 0) is known


def test_a_ring_that_ever_skips_the_closest_keys_and_a_cave_bound_nothing() -> None:
    assert Ring(Linear(0, 0), 50).bounds_information
    assert not Ring(Linear(0, 1), 50).bounds_information
    assert not Cave().bounds_information
    for name in ("ring/ir", "ring/moco", "vince/ball"):
        assert methods.get(name).bounds_information is True, name
    for name in ("ring/mocoring", "vince/cave", "vince/ir"):
        assert methods.get(name).bounds_information is False, name
