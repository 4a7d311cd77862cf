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

Table = list[list[int]]

pytestmark = pytest.mark.usefixtures("branch")


def draws(seed: int = 0, first: int = 0, rows: int | None = None) -> BatchRandom:
    return BatchRandom(torch.Generator().manual_seed(seed), first, rows)


@st.composite
def problems(draw: st.DrawFn, least: int = 3) -> tuple[Table, list[int], list[int]]:
    """Scores with many ties, the own row of each query, and one more row of each that is no candidate."""
    keys, rows = draw(st.integers(least, 40)), draw(st.integers(1, 4))
    score = st.integers(-3, 3)
    table = draw(st.lists(st.lists(score, min_size=keys, max_size=keys), min_size=rows, max_size=rows))
    own = draw(st.lists(st.integers(0, keys - 1), min_size=rows, max_size=rows))
    shift = draw(st.lists(st.integers(1, keys - 1), min_size=rows, max_size=rows))
    return table, own, [(o + s) % keys for o, s in zip(own, shift, strict=True)]


def candidates(table: Table, own: list[int] | None, banned: list[int] | None, labels: Tensor | None = None):
    return Candidates(
        torch.tensor(table, dtype=torch.float32),
        None if own is None else torch.tensor(own),
        labels,
        None if banned is None else torch.tensor(banned)[:, None],
    )


def left_out(own: list[int], banned: list[int], excluded: bool, ban: bool) -> list[set[int]]:
    return [{o for o in (o,) if excluded} | {b for b in (b,) if ban} for o, b in zip(own, banned, strict=True)]


def members(chosen: Chosen, keys: int = 0) -> list[list[int]]:
    """Indices chosen in each row, however the selection holds them."""
    if chosen.indices is not None:
        assert chosen.absent is None
        return chosen.indices.tolist()
    if chosen.absent is not None:
        return [[i for i, out in enumerate(row) if not out] for row in chosen.absent.tolist()]
    assert chosen.columns is not None
    return [[i for i in range(keys) if i not in gone] for gone in chosen.columns.tolist()]


def same_region(chosen: Chosen, table: Table, gone: list[set[int]], first: int, last: int) -> None:
    assert chosen.count(len(table[0])) == last - first
    for row, indices, out in zip(table, members(chosen), gone, strict=True):
        assert len(indices) == len(set(indices)) == last - first
        assert not out & set(indices)
        ranked = sorted((value for i, value in enumerate(row) if i not in out), reverse=True)
        assert Counter(row[i] for i in indices) == Counter(ranked[first:last])


@given(problems(), st.integers(0, 99), st.integers(1, 100), st.sampled_from(["keys", "outer"]), st.booleans(),
       st.sampled_from(["excluded", "ranked"]))  # fmt: skip
def test_ring_is_the_slice_of_the_sorted_candidates(problem, inner, outer, inner_of, ban, own_is) -> None:
    table, own, banned = problem
    assume(inner_of == "outer" or inner < outer)
    gone = left_out(own, banned, own_is == "excluded", ban)
    count = len(table[0]) - len(gone[0])
    last = count * outer // 100  # integer percentages, so that the edges are exact
    first = (count if inner_of == "keys" else last) * inner // 100
    part = Ring(inner, outer, k=None, inner_of=inner_of, own=own_is)
    asked = candidates(table, own, banned if ban else None)
    if first >= last:
        with pytest.raises(ArgumentError, match="holds at least one"):
            part.select(asked, draws(), 0, 1)
        return
    chosen = part.select(asked, draws(), 0, 1)
    same_region(chosen, table, gone, first, last)


@given(problems(), st.integers(1, 50), st.booleans(), st.sampled_from(["excluded", "ranked"]))
def test_ball_of_a_number_of_keys_is_the_top_of_the_sort(problem, nearest, ban, own_is) -> None:
    table, own, banned = problem
    gone = left_out(own, banned, own_is == "excluded", ban)
    asked = candidates(table, own, banned if ban else None)
    chosen = Ball(nearest=nearest, k=None, own=own_is).select(asked, draws(), 0, 1)
    same_region(chosen, table, gone, 0, min(nearest, len(table[0]) - len(gone[0])))


@given(problems(least=12), st.integers(10, 100))
def test_ball_of_a_percentage_is_the_top_of_the_sort(problem, outer) -> None:
    table, own, _ = problem
    chosen = Ball(outer, k=None).select(candidates(table, own, None), draws(), 0, 1)
    same_region(chosen, table, [{o} for o in own], 0, (len(table[0]) - 1) * outer // 100)


@given(problems(least=12), st.integers(10, 100), st.integers(0, 2**31), st.booleans())
def test_cave_is_the_ball_without_the_keys_of_the_own_clusters(problem, outer, seed, sampled) -> None:
    table, own, _ = problem
    keys = len(table[0])
    labels = torch.randint(3, (keys, 2), generator=torch.Generator().manual_seed(seed))
    asked = candidates(table, own, None, labels)
    ball = Ball(outer, k=None).select(candidates(table, own, None), draws(), 0, 1).indices.tolist()
    chosen = Cave(outer, k=30 if sampled else None, clusters=3, runs=2).select(asked, draws(seed), 0, 1)
    for row in range(len(table)):
        mine = labels[own[row]]
        left = {i for i in ball[row] if not bool((labels[i] == mine).any())}
        got = [i for i, out in zip(chosen.indices[row].tolist(), chosen.absent[row].tolist(), strict=True) if not out]
        if sampled:
            assert set(got) <= left
            assert len(got) == (30 if left else 0)
        else:
            assert Counter(got) == Counter(left)


@given(problems(), st.booleans(), st.sampled_from([True, False]))
def test_every_candidate_is_there_once_and_no_other(problem, ban, has_own) -> None:
    table, own, banned = problem
    asked = candidates(table, own if has_own else None, banned if ban else None)
    before = asked.logits.clone()
    values = Every().select(asked, draws(), 0, 1).gather(asked.logits)
    for row, out in enumerate(left_out(own, banned, has_own, ban)):
        for i, value in enumerate(values[row].tolist()):
            assert value == (float(torch.tensor(ABSENT)) if i in out else float(before[row, i]))


@given(problems(), st.booleans(), st.sampled_from(["excluded", "ranked"]), st.booleans())
def test_uniform_draws_candidates_only(problem, ban, own_is, has_own) -> None:
    table, own, banned = problem
    asked = candidates(table, own if has_own else None, banned if ban else None)
    chosen = Uniform(64, own=own_is).select(asked, draws(3), 0, 1)
    assert chosen.indices.shape == (len(table), 64)
    gone = left_out(own, banned, has_own and own_is == "excluded", ban)
    for out, indices in zip(gone, chosen.indices.tolist(), strict=True):
        assert not out & set(indices)
        assert set(indices) <= set(range(len(table[0])))


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
    logits = torch.arange(100.0).repeat(2, 1)
    part = Ring(1, Linear(100, 10, until=1.0), k=None)
    sizes = [part.select(Candidates(logits.clone()), draws(), s, 10).count(100) for s in range(10)]
    assert sizes == [100 - 10 * s - 1 for s in range(10)]
    chosen = part.select(Candidates(logits.clone()), draws(), 9, 10)
    assert sorted(members(chosen)[0]) == list(range(90, 99))
    row = torch.tensor([[3.0, 1.0, 2.0, 0.0]])
    assert ring_indices(row, 0, 4).tolist() == [[0, 1, 2, 3]]
    assert sorted(ring_indices(row, 2, 4).tolist()[0]) == [1, 3]
    assert sorted(ring_indices(row, 0, 2).tolist()[0]) == [0, 2]
    assert ring_indices(row, 1, 2).tolist() == [[2]]


UNIFORMITY = {
    "uniform, own row excluded": (Uniform(40_000), set(range(50)) - {7}),
    "uniform, own row ranked": (Uniform(40_000, own="ranked"), set(range(50))),
    "ring": (Ring(10, 60, k=40_000, own="ranked"), set(range(20, 45))),
    "ball": (Ball(nearest=20, k=40_000), set(range(30, 50))),
    "cave": (Cave(60, k=40_000, clusters=2, runs=1), set(range(22, 50, 2))),
}


@pytest.mark.parametrize("name", UNIFORMITY)
def test_draws_with_replacement_are_uniform_over_the_region(name: str) -> None:
    part, region = UNIFORMITY[name]
    labels = torch.arange(50)[:, None] % 2  # the own row, 7, is odd
    asked = Candidates(torch.arange(50.0)[None], torch.tensor([7]), labels)
    counts = Counter(part.select(asked, draws(11), 0, 1).indices[0].tolist())
    assert set(counts) == region
    assert chisquare([counts[i] for i in sorted(region)]).pvalue > 1e-3


def test_uniform_draws_reach_the_closest_key_beside_banned_ones() -> None:
    asked = Candidates(torch.arange(50.0)[None], torch.tensor([7]), None, torch.tensor([[3, 8]]))
    counts = Counter(Uniform(40_000).select(asked, draws(11), 0, 1).indices[0].tolist())
    assert set(counts) == set(range(50)) - {3, 7, 8}
    assert chisquare(list(counts.values())).pvalue > 1e-3


def test_rows_are_drawn_independently() -> None:
    asked = Candidates(torch.zeros(2, 50))
    first, second = Uniform(20_000).select(asked, draws(5), 0, 1).indices
    pairs = torch.bincount(first % 5 * 5 + second % 5, minlength=25)
    assert chisquare(pairs.numpy()).pvalue > 1e-3


@pytest.mark.parametrize("part", [Uniform(9), Ring(1, 60, k=9), Ball(50, k=9), Cave(90, k=9, clusters=2, runs=1)],
                         ids=lambda p: type(p).__name__)  # fmt: skip
def test_two_half_batches_draw_what_one_batch_does(part) -> None:
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(8, 30, generator=generator)
    own, labels = torch.randperm(30, generator=generator)[:8], torch.arange(30)[:, None] % 3

    def chosen(rows: slice, d: BatchRandom) -> Tensor:
        indices = part.select(Candidates(logits[rows].clone(), own[rows], labels), d, 0, 1).indices
        return logits[rows].gather(1, indices)

    whole = chosen(slice(0, 8), draws(4))
    halves = [chosen(slice(0, 3), draws(4, 0, 8)), chosen(slice(3, 8), draws(4, 3, 8))]
    assert torch.equal(torch.cat(halves), whole)
    assert not torch.equal(chosen(slice(0, 8), draws(5)), whole)
    shared = draws(1)  # a second selection of the same step draws anew
    assert not torch.equal(chosen(slice(0, 8), shared), chosen(slice(0, 8), shared))


@pytest.mark.parametrize("k", [6, None])
def test_cave_with_nothing_left_costs_nothing_and_moves_nothing(k: int | None) -> None:
    q = torch.randn(2, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    pool = torch.randn(20, 4, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(20)[:, None] % 2
    labels[:, 0] = torch.where(torch.arange(20) < 10, 0, labels[:, 0])
    logits = q @ pool.T
    # everything near the first query shares its cluster; the second keeps some
    labels[logits[0].argsort(descending=True)[:11], 0] = 0
    own = torch.stack([logits[0].argmax(), (labels[:, 0] == 1).nonzero()[0, 0]])
    chosen = Cave(50, k=k, clusters=2, runs=1).select(Candidates(logits, own, labels), draws(), 0, 1)
    assert bool(chosen.absent[0].all())
    assert not bool(chosen.absent[1].all())
    loss = InfoNCE()(Scores((q * pool[own]).sum(1), chosen.gather(logits)))
    assert loss[0] == 0
    assert loss[1] > 0
    loss.sum().backward()
    assert not q.grad[0].any()
    assert bool(q.grad[1].any())
    assert bool(q.grad.isfinite().all())


def test_gradients_reach_chosen_entries_only() -> None:
    table = torch.arange(20.0).repeat(3, 1).requires_grad_()
    logits = table * 1.0
    own = torch.tensor([19, 0, 5])
    chosen = Ring(10, 50, k=None).select(Candidates(logits, own), draws(), 0, 1)
    values = chosen.gather(logits)
    InfoNCE()(Scores(values.new_zeros(3), values)).sum().backward()
    for row, indices in enumerate(members(chosen)):
        assert int(own[row]) not in indices
        assert table.grad[row].nonzero().flatten().tolist() == sorted(indices)


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
    parts = [Every(), Uniform(8), Ring(1, 10, 8), Ring(1, 10, None), Ring(10, 10, 8, "outer"), Ball(10, k=8),
             Ball(nearest=8, k=None), Cave(10, 8)]  # fmt: skip
    assert len({p.latex for p in parts}) == len(parts)


def bound(part: Negatives, tau: float = 0.07) -> float:
    """log K − InfoNCE in nats, of a query and a positive that are independent: the information is 0."""
    draw = torch.Generator().manual_seed(0)
    q, own, keys = (F.normalize(torch.randn(n, 16, generator=draw), dim=1) for n in (2000, 2000, 400))
    asked = Candidates(q @ keys.T / tau)
    chosen = asked.read(part.select(asked, BatchRandom(draw), 0, 1))
    return math.log(65) - float(info_nce((q * own).sum(1) / tau, chosen).mean())


@pytest.mark.parametrize(("part", "known"), [
    (Uniform(k=64), True), (Ball(50, k=64), True), (Ring(0, 50, k=64), True), (Ring(50, 100, k=64), False),
])  # fmt: skip
def test_the_bound_of_independent_pairs_is_at_most_zero_or_is_not_called_one(part, known) -> None:
    assert part.bounds_information is known
    assert (bound(part) < 0) is known


def test_a_ring_that_ever_skips_the_closest_keys_and_a_cave_bound_nothing() -> None:
    assert Ring(Linear(0, 0), 50).bounds_information
    assert not Ring(Linear(0, 1), 50).bounds_information
    assert not Cave().bounds_information
    for name, known in (("ring/ir", True), ("ring/moco", True), ("vince/ball", True), ("ring/mocoring", False),
                        ("vince/cave", False), ("vince/ir", False)):  # fmt: skip
        assert methods.get(name).bounds_information is known, name
