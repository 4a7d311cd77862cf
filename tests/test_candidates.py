"""A region out of a stream is the region out of all scores, draw for draw, and so is the learner that uses it."""

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
from contrastlab.scores.candidates import Candidates, Chosen, Stored
from contrastlab.settings import Settings
from contrastlab.train import learner
from contrastlab.train.learner import Learner

pytestmark = pytest.mark.usefixtures("branch")


def slowly(row: Tensor, gone: set[int], first: int, last: int) -> list[int]:
    """Ranks by descending score, the lower index first among equals; in order of the index."""
    ranked = sorted((i for i in range(len(row)) if i not in gone), key=lambda i: (-float(row[i]), i))
    return sorted(ranked[first:last])


@st.composite
def problems(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor, Tensor, int, int]:
    """Queries and keys of small integers, so that scores are exact and tie; own rows, banned rows, ranks."""
    rows, count = draw(st.integers(1, 5)), draw(st.integers(8, 90))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    high = draw(st.sampled_from([2, 4, 30]))
    queries = torch.randint(-high, high, (rows, 3), generator=generator).float()
    keys = torch.randint(-high, high, (count, 3), generator=generator).float()
    own = torch.randint(count, (rows,), generator=generator)
    banned = (own + torch.randint(1, count, (rows,), generator=generator)) % count
    last = draw(st.integers(1, count - 2))
    return queries, keys, own, banned[:, None], draw(st.integers(0, last - 1)), last


@given(problems(), st.sampled_from(["excluded", "ranked"]), st.booleans(), st.sampled_from([64, 2000, 2**29]))
def test_both_ways_give_the_ranks_of_a_sort(branch, problem, own_is, ban, kept) -> None:
    queries, keys, own, banned, first, last = problem
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks, "KEPT_BYTES", kept)
        extra = (own, None, banned if ban else None)
        logits = queries @ keys.T
        whole, stream = Candidates(logits.clone(), *extra), Stored(queries, keys, *extra, dense=False)
        assert whole.left(own_is) == stream.left(own_is) == len(keys) - (own_is == "excluded") - ban
        found, streamed = (c.region(first, last, own_is).indices for c in (whole, stream))
        picks = torch.randint(last - first, (len(queries), 7), generator=torch.Generator().manual_seed(1))
        drawn = stream.region(first, last, own_is, picks)
        assert torch.equal(drawn.indices, streamed.gather(1, picks))
        assert torch.equal(drawn.values, logits.gather(1, drawn.indices))
        assert torch.equal(whole.region(first, last, own_is, picks).indices, found.gather(1, picks))
        all_of_it = [c.read(c.whole_region(first, last, own_is)) for c in (whole, stream)]
    assert torch.equal(whole.logits, logits)
    for r in range(len(queries)):
        gone = ({int(own[r])} if own_is == "excluded" else set()) | ({int(banned[r])} if ban else set())
        expected = slowly(logits[r], gone, first, last)
        for indices in (found[r].tolist(), streamed[r].tolist()):
            if branch == "host":  # elsewhere any of the keys that tie at an edge may be inside
                assert sorted(indices) == expected
            assert len(set(indices)) == last - first
            assert not gone & set(indices)
            assert torch.equal(logits[r, indices].sort().values, logits[r, expected].sort().values)
        for read in all_of_it:
            values = read[r][read[r] > ABSENT].sort().values
            assert torch.equal(values, logits[r, expected].sort().values)


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("bad", [[3], list(range(40))], ids=["one", "all"])
def test_scores_that_are_not_numbers_reach_the_loss_and_break_nothing_before(dense: bool, bad: list[int]) -> None:
    keys = torch.randn(400, 5, generator=torch.Generator().manual_seed(0))
    keys[bad] = torch.nan
    asked = Stored(torch.ones(2, 5), keys, torch.tensor([0, 1]), dense=dense)
    assert asked.region(0, 90, "excluded").indices.shape == (2, 90)
    assert asked.region(5, 350, "excluded", torch.full((2, 3), 7)).indices.shape == (2, 3)


def test_a_bank_of_many_keys_is_never_scored_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    queries, keys = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)), torch.randn(6000, 4)
    sizes, original = [], ranks.ring_indices
    monkeypatch.setattr(ranks, "KEPT_BYTES", 4 * 8 * 6000)
    monkeypatch.setattr(ranks, "ring_indices", lambda scores, *at: sizes.append(len(scores)) or original(scores, *at))
    found = Stored(queries, keys, dense=False).region(60, 3000, "ranked")  # a smaller one is found in one pass
    assert torch.equal(found.indices, original(queries @ keys.T, 60, 3000))
    assert max(sizes) <= 4
    assert sum(sizes) == 12


def read_with_gradient(make, queries: Tensor, choose) -> tuple[Tensor, Tensor]:
    """The chosen scores of ``make(queries)``, and the gradient of their log sum by the queries."""
    q = queries.clone().requires_grad_()
    asked = make(q)
    values = asked.read(choose(asked))
    torch.logsumexp(values, 1).sum().backward()
    return values.detach(), q.grad


WAYS = {"all scores": {"dense": True}, "a stream": {"dense": False}}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("count", [3, 11, 30])  # few are scored one by one; the gradient of many is a product
@pytest.mark.parametrize("absent", [False, True])
def test_logits_of_stored_keys_and_their_gradient_are_those_of_autograd(absent: bool, count: int, way: str) -> None:
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(6, 5, generator=generator, dtype=torch.float64)
    keys = torch.randn(40, 5, generator=generator, dtype=torch.float64)
    indices = torch.randint(40, (6, count), generator=generator)  # with repetitions
    mask = torch.rand(6, count, generator=generator) < 0.3 if absent else None
    found = [
        read_with_gradient(make, queries, lambda _: Chosen(indices, mask))
        for make in (lambda q: Candidates(q @ keys.T), lambda q: Stored(q, keys, **WAYS[way]))
    ]
    torch.testing.assert_close(found[0], found[1], rtol=1e-12, atol=1e-12)
    assert ((found[1][0] == ABSENT) == (mask if absent else torch.zeros(6, count, dtype=torch.bool))).all()


@pytest.mark.parametrize("queries_at_once", [1, 2, 5])
def test_single_keys_are_scored_for_a_few_queries_at_a_time(queries_at_once, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    queries, keys = torch.randn(5, 4, generator=generator), torch.randn(40, 4, generator=generator)
    indices = torch.randint(40, (5, 3), generator=generator)
    monkeypatch.setattr(ranks, "KEPT_BYTES", queries_at_once * 4 * indices.shape[1] * keys.shape[1])
    found = Stored(queries, keys, dense=False).read(Chosen(indices))
    torch.testing.assert_close(found, (queries @ keys.T).gather(1, indices))


@pytest.mark.parametrize("part", [Every(), Ring(10, 90, k=None)], ids=["every", "most"])
def test_most_keys_are_read_with_the_gradient_of_autograd_and_on_a_cpu_in_place(branch, part) -> None:
    generator = torch.Generator().manual_seed(0)
    queries, keys = torch.randn(2, 3, generator=generator), torch.randn(30, 3, generator=generator)
    own = torch.tensor([4, 0])

    def choose(asked) -> Chosen:
        chosen = part.select(asked, BatchRandom(torch.Generator()), 0, 1)
        assert (chosen.indices is None) == (branch == "host" or part == Every())
        return chosen

    whole, stored = (lambda q: Candidates(q @ keys.T, own)), (lambda q: Stored(q, keys, own))
    torch.testing.assert_close(*(read_with_gradient(make, queries, choose) for make in (whole, stored)))


PARTS = {
    "uniform": Uniform(9), "uniform, ranked": Uniform(9, own="ranked"), "ring": Ring(1, 10, k=9),
    "whole ring": Ring(1, 10, k=None), "wide ring": Ring(1, 90, k=9), "ball": Ball(5, k=9),
    "nearest": Ball(nearest=30, k=None), "cave": Cave(20, k=9, clusters=3, runs=2),
}  # fmt: skip


def made(queries: Tensor, keys: Tensor, own: Tensor, labels: Tensor) -> list[Candidates | Stored]:
    stored = [Stored(queries, keys, own, labels, **way) for way in WAYS.values()]
    return [Candidates(queries @ keys.T, own, labels), *stored]


@pytest.mark.parametrize("name", PARTS)
def test_every_part_draws_the_same_keys_from_a_stream(name: str) -> None:
    generator = torch.Generator().manual_seed(3)
    queries, keys = torch.randn(4, 6, generator=generator), torch.randn(600, 6, generator=generator)
    own, labels = torch.randperm(600, generator=generator)[:4], torch.randint(3, (600, 2), generator=generator)
    chosen = [
        PARTS[name].select(c, BatchRandom(torch.Generator().manual_seed(1)), 0, 1)
        for c in made(queries, keys, own, labels)
    ]
    near = [
        Neighbours(2, k=5).select(c, chosen[0], BatchRandom(torch.Generator().manual_seed(1)), 0, 1)
        for c in made(queries, keys, own, labels)
    ]
    for first, *others in (chosen, near):
        assert all(torch.equal(first.indices, other.indices) for other in others)


def steps(method: str, changes: dict[str, object]) -> tuple[list[float], Tensor]:
    recipe = methods.get(method).override(changes)
    settings = Settings(arch="tiny", stem="cifar", dim=8, image_size=8)
    learned = Learner(recipe, settings, image_channels=3, images=40, classes=2, seed=0)
    learned.keys.cluster(1234)
    optimiser = torch.optim.SGD(learned.network.parameters(), lr=0.1)
    losses = []
    for step in range(3):
        generator = torch.Generator().manual_seed(step)
        views = tuple(torch.randn(4, 3, 8, 8, generator=generator) for _ in range(learned.recipe.views.count))
        rows = torch.randperm(40, generator=generator)[:4]
        out = learned.loss(views, rows, torch.zeros(4, dtype=torch.int64), BatchRandom(generator), step, 3)
        optimiser.zero_grad()
        out.loss.backward()
        optimiser.step()
        learned.commit(rows, out)
        losses.append(float(out.loss.detach()))
    return losses, torch.cat([p.detach().flatten() for p in learned.network.parameters()])


@pytest.mark.parametrize(("method", "changes"), [
    ("ring/iring", {"negatives.k": 16, "negatives.inner": 5.0}),
    ("ring/ir", {"negatives.k": 16}),
    ("vince/cave", {"negatives.k": 16, "negatives.clusters": 5, "negatives.runs": 2}),
    ("ring/la", {"negatives.nearest": 12, "positives.clusters": 5, "positives.runs": 2}),
    ("ring/mocoring", {"keys.size": 64, "negatives.inner": 5.0}),
])  # fmt: skip
def test_a_learner_trains_alike_by_all_three_ways(method, changes, monkeypatch: pytest.MonkeyPatch) -> None:
    dense = steps(method, changes)
    with monkeypatch.context() as patch:
        patch.setattr(learner, "DENSE_BYTES", 0)
        streamed = steps(method, changes)
    monkeypatch.setattr(learner, "Stored", lambda q, keys, dense, **rest: Candidates(q @ keys.T, **rest))
    plain = steps(method, changes)
    for found in (dense, streamed):
        assert found[0] == pytest.approx(plain[0], rel=1e-5)
        torch.testing.assert_close(found[1], plain[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("saved", [torch.tanh, torch.exp, torch.sigmoid])
@pytest.mark.parametrize("region", [Ring(10, 60, k=None), Ball(50, k=3), Every()])
def test_choosing_from_scores_leaves_the_backward_pass_of_what_made_them(saved, region) -> None:
    queries = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    weights = torch.randn(4, 20, generator=torch.Generator().manual_seed(1))
    direct, copied = (
        read_with_gradient(
            lambda q, copy=copy: Candidates(copy(saved(q @ weights)), own=torch.arange(6)), queries,
            lambda asked: region.select(asked, BatchRandom(torch.Generator().manual_seed(2)), step=0, total=1),
        )
        for copy in (lambda scores: scores, torch.clone)
    )  # fmt: skip
    torch.testing.assert_close(direct, copied)
