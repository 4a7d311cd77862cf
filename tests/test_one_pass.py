"""A region found in one pass over very many keys is that of a sort of all scores, draw for draw."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from contrastlab.negatives import Ball, BatchRandom, Cave, Ring
from contrastlab.scores import one_pass, ranks
from contrastlab.scores.candidates import Candidates, Stored
from contrastlab.support.errors import ArgumentError


@pytest.fixture(scope="module", autouse=True)
def small_pass():
    """Floors that are more than minus infinity, and many blocks, with as few keys as these tests have."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one_pass, "SAMPLED", 3)
        patch.setattr(one_pass, "BLOCK", 120)
        yield


def integers(shape: tuple[int, int], high: int, generator: torch.Generator) -> Tensor:
    return torch.randint(-high, high, shape, generator=generator).float()


def sorted_region(scores: Tensor, excluded: list[int], first: int, last: int) -> list[int]:
    """Ranks in float64 by a full sort, the lower index first among equals; in the order of the index."""
    row = scores.double().tolist()
    candidates = [i for i in range(len(row)) if i not in excluded]
    candidates.sort(key=lambda i: (-row[i], i))
    return sorted(candidates[first:last])


@st.composite
def problems(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor, int, int]:
    """Queries and keys of small integers, so that scores are exact and many tie; excluded keys; ranks."""
    count = draw(st.integers(100, 400))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    high = draw(st.sampled_from([2, 30]))
    queries, keys = integers((4, 3), high, generator), integers((count, 3), high, generator)
    excluded = torch.randint(count, (4, draw(st.integers(1, 2))), generator=generator)
    last = draw(st.integers(1, count // 4))
    return queries, keys, excluded, draw(st.integers(0, last - 1)), last


@given(problems())
def test_a_pass_gives_the_ranks_of_a_sort_or_says_that_it_does_not(problem) -> None:
    queries, keys, excluded, first, last = problem
    found = one_pass.region(queries, keys, excluded, first, last, None)
    picks = torch.randint(last - first, (4, 2 * last), generator=torch.Generator().manual_seed(1))
    drawn = one_pass.region(queries, keys, excluded, first, last, picks)
    if found is None:
        assert drawn is None
        return
    scores = queries @ keys.T
    for row in range(4):
        assert found[0][row].tolist() == sorted_region(scores[row], excluded[row].tolist(), first, last)
    assert torch.equal(found[1], scores.gather(1, found[0]))
    assert torch.equal(drawn[0], found[0].gather(1, picks))
    assert torch.equal(drawn[1], found[1].gather(1, picks))


def normal_keys(count: int = 3000) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and own rows; a query's own key is its closest."""
    generator = torch.Generator().manual_seed(0)
    queries, keys = torch.randn(6, 8, generator=generator), torch.randn(count, 8, generator=generator)
    own = torch.randperm(count, generator=generator)[:6]
    keys[own] = 9 * queries
    return queries, keys, own


def test_a_pass_keeps_little_more_than_the_region_and_all_that_is_closer(monkeypatch) -> None:
    queries, keys, own = normal_keys()
    sizes, kept = [], []
    exclude, joined = one_pass._exclude, one_pass._joined
    monkeypatch.setattr(one_pass, "_exclude", lambda block, *rest: sizes.append(block.numel()) or exclude(block, *rest))
    monkeypatch.setattr(one_pass, "_joined", lambda parts: kept.append(sum(len(p) for p, _ in parts)) or joined(parts))
    assert one_pass.region(queries, keys, own[:, None], 30, 300, None) is not None
    assert max(sizes) <= one_pass.BLOCK
    assert sum(sizes) == 6 * 3000
    assert len(kept) == 6
    assert all(300 <= number <= 600 for number in kept)


PARTS = {
    "ring": Ring(1, 10, k=50), "more draws than keys": Ring(1, 2, k=500), "from the closest": Ring(0, 10, k=50),
    "whole": Ring(1, 10, k=None), "one key": Ring(1, 1.04, k=5), "ball": Ball(5, k=50), "nearest": Ball(nearest=7, k=9),
    "up to the farthest": Ring(1, 100, k=50), "own key ranked": Ring(0, 10, k=900, own="ranked"),
    "cave": Cave(20, k=9, clusters=3, runs=2),
}  # fmt: skip


@pytest.mark.parametrize("name", PARTS)
def test_draws_are_those_from_all_scores_in_one_process_and_in_two(name: str) -> None:
    queries, keys, own = normal_keys()
    labels = torch.randint(3, (3000, 2), generator=torch.Generator().manual_seed(2))
    part = PARTS[name]

    def chosen(rows: slice, dense: bool) -> Tensor:
        draws = BatchRandom(torch.Generator().manual_seed(1), rows.start, 6)
        pool = Stored(queries[rows], keys, own[rows], labels, dense=dense)
        return part.select(pool, draws, 0, 1).indices

    whole, half, rest = slice(0, 6), slice(0, 2), slice(2, 6)
    expected = chosen(whole, dense=True)
    assert torch.equal(chosen(whole, dense=False), expected)
    assert torch.equal(torch.cat([chosen(half, dense=False), chosen(rest, dense=False)]), expected)
    closest = (expected == own[:, None]).any()
    assert bool(closest) == (name == "own key ranked")


def test_the_draws_of_a_pass_are_uniform_over_the_ring() -> None:
    queries, keys, own = normal_keys(count=800)
    ring = Ring(1, 10, k=20_000)
    pool = Stored(queries, keys, own, dense=False)
    indices = ring.select(pool, BatchRandom(torch.Generator().manual_seed(11)), 0, 1).indices
    scores = queries @ keys.T
    for row in range(6):
        region = sorted_region(scores[row], [int(own[row])], 7, 79)
        counts = Counter(indices[row].tolist())
        assert sorted(counts) == region
        assert chisquare([counts[i] for i in region]).pvalue > 1e-3


@pytest.fixture
def ways(monkeypatch) -> list[str]:
    """The ways in which regions were found."""
    used = []
    one, parts = Stored._region_in_one_pass, Stored._region_in_parts

    def in_one_pass(*arguments):
        found = one(*arguments)
        used.append("unlucky" if found is None else "pass")
        return found

    def in_parts(*arguments):
        used.append("parts")
        return parts(*arguments)

    monkeypatch.setattr(Stored, "_region_in_one_pass", in_one_pass)
    monkeypatch.setattr(Stored, "_region_in_parts", in_parts)
    return used


@pytest.mark.parametrize(("sampled", "way"), [(1.0, ["unlucky", "parts"]), (-1.0, ["pass"])], ids=["highest", "lowest"])
def test_a_sample_that_misleads_costs_time_and_changes_nothing(ways, sampled: float, way: list[str]) -> None:
    queries, keys = torch.ones(2, 1), torch.rand(600, 1, generator=torch.Generator().manual_seed(0))
    keys[:: one_pass.SAMPLED] += sampled
    found = Stored(queries, keys, dense=False).region(5, 140, "ranked")
    assert torch.equal(found.indices, Candidates(queries @ keys.T).region(5, 140, "ranked").indices)
    assert ways == way


def test_a_pass_that_finds_nothing_leaves_gradients_of_both_modes(ways) -> None:
    queries, keys = torch.ones(1, 1), torch.rand(600, 1, generator=torch.Generator().manual_seed(0))
    keys[:: one_pass.SAMPLED] += 1
    pool = Ball(20, k=None)

    def total(q: Tensor) -> Tensor:
        asked = Stored(q, keys, dense=False)
        return asked.read(pool.select(asked, BatchRandom(torch.Generator()), 0, 1)).sum()

    value, tangent = torch.func.jvp(total, (queries,), (queries,))
    torch.testing.assert_close(tangent, value)
    torch.testing.assert_close(torch.func.grad(total)(queries), value[None, None])
    assert ways == ["unlucky", "parts"] * 2


@pytest.mark.parametrize(("last", "way"), [(150, ["pass"]), (151, ["parts"])])
def test_a_pass_is_for_a_quarter_of_the_keys_at_most(ways, last: int, way: list[str]) -> None:
    queries, keys, _ = normal_keys(count=600)
    Stored(queries, keys, dense=False).region(0, last, "ranked")
    assert ways == way


def test_a_pass_over_a_few_queries_at_a_time_is_that_over_all(monkeypatch, ways) -> None:
    queries, keys, own = normal_keys()
    pool = Stored(queries, keys, own, dense=False)
    picks = torch.randint(270, (6, 9), generator=torch.Generator().manual_seed(1))
    whole = pool.region(30, 300, "excluded", picks)
    region, sizes = one_pass.region, []
    monkeypatch.setattr(one_pass, "region", lambda q, *rest: sizes.append(len(q)) or region(q, *rest))
    monkeypatch.setattr(ranks, "KEPT_BYTES", 4 * 16 * 300)
    some = pool.region(30, 300, "excluded", picks)
    assert torch.equal(some.indices, whole.indices)
    torch.testing.assert_close(some.values, whole.values)
    assert sizes == [4, 2]
    assert ways == ["pass", "pass"]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_score_that_is_no_number_makes_its_own_row_no_number_and_no_other(bad: float) -> None:
    queries, keys, own = normal_keys()
    queries[2, 0] = bad
    keys[:, 0] = keys[:, 0].abs() + 1
    picks = torch.randint(270, (6, 9), generator=torch.Generator().manual_seed(1))
    found, expected = (Stored(queries, keys, own, dense=d).region(30, 300, "excluded", picks) for d in (False, True))
    assert torch.equal(found.indices, expected.indices)
    assert not found.values[2].isfinite().any()
    assert found.values[torch.arange(6) != 2].isfinite().all()


def test_a_score_below_all_numbers_is_refused_where_keys_are_excluded() -> None:
    queries, keys, own = normal_keys()
    keys[7] = 0
    keys[7, 0] = -math.inf
    with pytest.raises(ArgumentError, match="logits=-inf"):
        Stored(queries.abs(), keys, own, dense=False).region(30, 300, "excluded")


def test_scores_of_half_precision_are_ranked_as_they_are() -> None:
    queries, keys, own = normal_keys()
    halves = queries.bfloat16(), keys.bfloat16(), own
    found, expected = (Stored(*halves, dense=d).region(30, 300, "excluded") for d in (False, True))
    assert torch.equal(found.indices, expected.indices)
    assert found.values.dtype == torch.bfloat16
