"""A region out of a stream is the region out of all scores, draw for draw, and so is the learner that uses it."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from contrastlab import methods
from contrastlab.negatives import Ball, BatchRandom, Cave, Every, Ring, Uniform
from contrastlab.objectives import ABSENT
from contrastlab.positives import Neighbours
from contrastlab.scores import ranks
from contrastlab.scores.candidates import Candidates, Chosen, Pool, Stored
from contrastlab.settings import Settings
from contrastlab.train import learner
from contrastlab.train.learner import Learner

pytestmark = pytest.mark.usefixtures("branch")


def slowly(scores: Tensor, forbidden: set[int], first: int, last: int) -> list[int]:
    """The candidates of ranks ``first`` to ``last`` − 1, in order of the index.

    Ranks are by descending score, the lower index first among equals.
    """

    def rank(key: int) -> tuple[float, int]:
        return -float(scores[key]), key

    candidates = set(range(len(scores))) - forbidden
    ranked = sorted(candidates, key=rank)
    return sorted(ranked[first:last])


class Problem(NamedTuple):
    queries: Tensor  # [B, 3]
    keys: Tensor  # [N, 3]
    own: Tensor  # [B] key of each query
    banned: Tensor  # [B, 1] another key of each
    first: int
    last: int


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Queries and keys of small integers, so that scores are exact and tie; ranks of a region."""
    rows = draw(st.integers(1, 5))
    count = draw(st.integers(8, 90))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    high = draw(st.sampled_from([2, 4, 30]))
    queries = torch.randint(-high, high, (rows, 3), generator=generator).float()
    keys = torch.randint(-high, high, (count, 3), generator=generator).float()
    own = torch.randint(count, (rows,), generator=generator)
    distance = torch.randint(1, count, (rows,), generator=generator)
    banned = (own + distance) % count
    last = draw(st.integers(1, count - 2))
    first = draw(st.integers(0, last - 1))
    return Problem(queries, keys, own, banned[:, None], first, last)


@given(problems(), st.sampled_from(["excluded", "ranked"]), st.booleans(), st.sampled_from([64, 2000, 2**29]))
def test_both_ways_give_the_ranks_of_a_sort(branch, problem, own_is, ban, kept) -> None:
    """The keys of a region are those of a sort, whether all scores are there or stored keys are scored in a stream.

    Picks are places in the region. What is read of the whole region are its scores. All scores stay as they are.
    """
    queries, keys, own, banned, first, last = problem
    size = last - first
    picks = torch.randint(size, (len(queries), 7), generator=torch.Generator().manual_seed(1))
    banned_keys = banned if ban else None
    logits = queries @ keys.T
    whole = Candidates(logits.clone(), own, banned=banned_keys)
    stream = Stored(queries, keys, own, banned=banned_keys, dense=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks, "KEPT_BYTES", kept)
        left = whole.left(own_is), stream.left(own_is)
        of_whole = whole.region(first, last, own_is).indices
        of_stream = stream.region(first, last, own_is).indices
        picked_of_whole = whole.region(first, last, own_is, picks)
        picked_of_stream = stream.region(first, last, own_is, picks)
        read_of_whole = whole.read(whole.whole_region(first, last, own_is))
        read_of_stream = stream.read(stream.whole_region(first, last, own_is))

    count = len(keys) - (own_is == "excluded") - ban
    assert left == (count, count)
    assert torch.equal(picked_of_whole.indices, of_whole.gather(1, picks))
    assert torch.equal(picked_of_stream.indices, of_stream.gather(1, picks))
    assert torch.equal(picked_of_stream.values, logits.gather(1, picked_of_stream.indices))
    assert torch.equal(whole.logits, logits)
    for row, scores in enumerate(logits):
        forbidden = set()
        if own_is == "excluded":
            forbidden.add(int(own[row]))
        if ban:
            forbidden.add(int(banned[row]))
        expected = slowly(scores, forbidden, first, last)
        expected_scores = scores[expected].sort().values
        for region in (of_whole, of_stream):
            found = region[row].tolist()
            if branch == "host":  # elsewhere any of the keys that tie at an edge may be inside
                assert sorted(found) == expected
            assert len(set(found)) == size
            assert not forbidden & set(found)
            assert torch.equal(scores[found].sort().values, expected_scores)
        for read in (read_of_whole, read_of_stream):
            is_present = read[row] > ABSENT
            assert torch.equal(read[row, is_present].sort().values, expected_scores)


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("bad", [[3], list(range(40))], ids=["one", "all"])
def test_scores_that_are_not_numbers_reach_the_loss_and_break_nothing_before(dense: bool, bad: list[int]) -> None:
    keys = torch.randn(400, 5, generator=torch.Generator().manual_seed(0))
    keys[bad] = torch.nan
    asked = Stored(torch.ones(2, 5), keys, torch.tensor([0, 1]), dense=dense)
    assert asked.region(0, 90, "excluded").indices.shape == (2, 90)
    assert asked.region(5, 350, "excluded", torch.full((2, 3), 7)).indices.shape == (2, 3)


def test_a_bank_of_many_keys_is_never_scored_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A region of half the keys is selected for at most as many queries at once as there is memory for.

    A smaller one would be found in one pass.
    """
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(12, 4, generator=generator)
    keys = torch.randn(6000, 4, generator=generator)
    ring_indices = ranks.ring_indices
    at_once = []

    def counted(scores: Tensor, first: int, last: int) -> Tensor:
        at_once.append(len(scores))
        return ring_indices(scores, first, last)

    monkeypatch.setattr(ranks, "KEPT_BYTES", 4 * 8 * 6000)  # scores of 4 queries and a copy; indices need more
    monkeypatch.setattr(ranks, "ring_indices", counted)
    found = Stored(queries, keys, dense=False).region(60, 3000, "ranked")
    assert torch.equal(found.indices, ring_indices(queries @ keys.T, 60, 3000))
    assert max(at_once) <= 4
    assert sum(at_once) == 12


def read_with_gradient(
    make: Callable[[Tensor], Pool], queries: Tensor, choose: Callable[[Pool], Chosen]
) -> tuple[Tensor, Tensor]:
    """The chosen scores of ``make(queries)``, and the gradient of their log sum by the queries."""
    leaf = queries.clone().requires_grad_()
    asked = make(leaf)
    values = asked.read(choose(asked))
    torch.logsumexp(values, 1).sum().backward()
    return values.detach(), leaf.grad


WAYS = {"all scores": {"dense": True}, "a stream": {"dense": False}}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("count", [3, 11, 30])  # few are scored one by one; the gradient of many is a product
@pytest.mark.parametrize("absent", [False, True])
def test_logits_of_stored_keys_and_their_gradient_are_those_of_autograd(absent: bool, count: int, way: str) -> None:
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(6, 5, generator=generator, dtype=torch.float64)
    keys = torch.randn(40, 5, generator=generator, dtype=torch.float64)
    indices = torch.randint(40, (6, count), generator=generator)  # with repetitions
    is_absent = torch.zeros(6, count, dtype=torch.bool)
    chosen = Chosen(indices)
    if absent:
        is_absent = torch.rand(6, count, generator=generator) < 0.3
        chosen = Chosen(indices, is_absent)

    def all_scores(queries: Tensor) -> Candidates:
        return Candidates(queries @ keys.T)

    def stored(queries: Tensor) -> Stored:
        return Stored(queries, keys, **WAYS[way])

    def choose(asked: Pool) -> Chosen:
        return chosen

    expected, expected_gradient = read_with_gradient(all_scores, queries, choose)
    found, gradient = read_with_gradient(stored, queries, choose)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-12, atol=1e-12)
    assert torch.equal(found == ABSENT, is_absent)


@pytest.mark.parametrize("queries_at_once", [1, 2, 5])
def test_single_keys_are_scored_for_a_few_queries_at_a_time(queries_at_once, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(5, 4, generator=generator)
    keys = torch.randn(40, 4, generator=generator)
    indices = torch.randint(40, (5, 3), generator=generator)
    bytes_of_query = 4 * indices.shape[1] * keys.shape[1]
    monkeypatch.setattr(ranks, "KEPT_BYTES", queries_at_once * bytes_of_query)
    found = Stored(queries, keys, dense=False).read(Chosen(indices))
    torch.testing.assert_close(found, (queries @ keys.T).gather(1, indices))


@pytest.mark.parametrize("part", [Every(), Ring(10, 90, k=None)], ids=["every", "most"])
def test_most_keys_are_read_with_the_gradient_of_autograd_and_on_a_cpu_in_place(branch, part) -> None:
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(2, 3, generator=generator)
    keys = torch.randn(30, 3, generator=generator)
    own = torch.tensor([4, 0])

    def all_scores(queries: Tensor) -> Candidates:
        return Candidates(queries @ keys.T, own)

    def stored(queries: Tensor) -> Stored:
        return Stored(queries, keys, own)

    def choose(asked: Pool) -> Chosen:
        chosen = part.select(asked, BatchRandom(torch.Generator()), 0, 1)
        in_place = branch == "host" or part == Every()
        assert (chosen.indices is None) == in_place
        return chosen

    expected = read_with_gradient(all_scores, queries, choose)
    torch.testing.assert_close(read_with_gradient(stored, queries, choose), expected)


PARTS = {
    "uniform": Uniform(9),
    "uniform, ranked": Uniform(9, own="ranked"),
    "ring": Ring(1, 10, k=9),
    "whole ring": Ring(1, 10, k=None),
    "wide ring": Ring(1, 90, k=9),
    "ball": Ball(5, k=9),
    "nearest": Ball(nearest=30, k=None),
    "cave": Cave(20, k=9, clusters=3, runs=2),
}


@pytest.mark.parametrize("name", PARTS)
def test_every_part_draws_the_same_keys_from_a_stream(name: str) -> None:
    """Negatives and further positives are the same keys out of all scores, and out of stored keys in both ways."""
    generator = torch.Generator().manual_seed(3)
    queries = torch.randn(4, 6, generator=generator)
    keys = torch.randn(600, 6, generator=generator)
    own = torch.randperm(600, generator=generator)[:4]
    labels = torch.randint(3, (600, 2), generator=generator)

    def draws() -> BatchRandom:
        return BatchRandom(torch.Generator().manual_seed(1))

    def negatives(asked: Pool) -> Chosen:
        return PARTS[name].select(asked, draws(), 0, 1)

    expected = negatives(Candidates(queries @ keys.T, own, labels))
    for way in WAYS.values():
        found = negatives(Stored(queries, keys, own, labels, **way))
        assert torch.equal(found.indices, expected.indices)

    def positives(asked: Pool) -> Chosen:
        return Neighbours(2, k=5).select(asked, expected, draws(), 0, 1)

    near = positives(Candidates(queries @ keys.T, own, labels))
    for way in WAYS.values():
        found = positives(Stored(queries, keys, own, labels, **way))
        assert torch.equal(found.indices, near.indices)


def steps(method: str, changes: dict[str, object]) -> tuple[list[float], Tensor]:
    """The losses of three steps of SGD, and all parameters after them, in one row."""
    recipe = methods.get(method).override(changes)
    settings = Settings(arch="tiny", stem="cifar", dim=8, image_size=8)
    learned = Learner(recipe, settings, image_channels=3, images=40, classes=2, seed=0)
    views_needed = learned.recipe.views.count
    learned.keys.cluster(1234)
    optimiser = torch.optim.SGD(learned.network.parameters(), lr=0.1)
    losses = []
    for step in range(3):
        generator = torch.Generator().manual_seed(step)
        views = tuple(torch.randn(4, 3, 8, 8, generator=generator) for _ in range(views_needed))
        items = torch.randperm(40, generator=generator)[:4]
        classes = torch.zeros(4, dtype=torch.int64)
        out = learned.loss(views, items, classes, BatchRandom(generator), step, 3)
        optimiser.zero_grad()
        out.loss.backward()
        optimiser.step()
        learned.commit(items, out)
        losses.append(float(out.loss.detach()))
    parameters = [parameter.detach().flatten() for parameter in learned.network.parameters()]
    return losses, torch.cat(parameters)


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("ring/iring", {"negatives.k": 16, "negatives.inner": 5.0}),
        ("ring/ir", {"negatives.k": 16}),
        ("vince/cave", {"negatives.k": 16, "negatives.clusters": 5, "negatives.runs": 2}),
        ("ring/la", {"negatives.nearest": 12, "positives.clusters": 5, "positives.runs": 2}),
        ("ring/mocoring", {"keys.size": 64, "negatives.inner": 5.0}),
    ],
)
def test_a_learner_trains_alike_by_all_three_ways(method, changes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored keys, with all scores held or in a stream, train as :class:`Candidates` with the gradient of autograd."""

    def all_scores(queries: Tensor, keys: Tensor, dense: bool, **about: Tensor | None) -> Candidates:
        return Candidates(queries @ keys.T, **about)

    dense = steps(method, changes)
    with monkeypatch.context() as patch:
        patch.setattr(learner, "DENSE_BYTES", 0)
        streamed = steps(method, changes)
    with monkeypatch.context() as patch:
        patch.setattr(learner, "Stored", all_scores)
        expected_losses, expected_parameters = steps(method, changes)
    for losses, parameters in (dense, streamed):
        assert losses == pytest.approx(expected_losses, rel=1e-5)
        torch.testing.assert_close(parameters, expected_parameters, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("saved", [torch.tanh, torch.exp, torch.sigmoid])
@pytest.mark.parametrize("region", [Ring(10, 60, k=None), Ball(50, k=3), Every()])
def test_choosing_from_scores_leaves_the_backward_pass_of_what_made_them(saved, region) -> None:
    """Choosing from the scores gives the gradient that a copy of them gives. The one of ``saved`` reads its output."""
    queries = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    weights = torch.randn(4, 20, generator=torch.Generator().manual_seed(1))
    own = torch.arange(6)

    def direct(queries: Tensor) -> Candidates:
        return Candidates(saved(queries @ weights), own)

    def copied(queries: Tensor) -> Candidates:
        return Candidates(saved(queries @ weights).clone(), own)

    def choose(asked: Pool) -> Chosen:
        return region.select(asked, BatchRandom(torch.Generator().manual_seed(2)), step=0, total=1)

    expected = read_with_gradient(copied, queries, choose)
    torch.testing.assert_close(read_with_gradient(direct, queries, choose), expected)
