"""Three and five streams of made vectors: the loss is the sum over the views' pairs, in one process and in two."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab import keys, methods, negatives, objectives, positives
from contrastlab.methods import Recipe
from contrastlab.negatives import BatchRandom
from contrastlab.settings import Settings
from contrastlab.support.errors import ArgumentError, NotApplicableError
from contrastlab.train.learner import Learner
from made_runs import generator, refused
from made_views import Jitter, Sensors

ITEMS, BATCH, WIDTH, DIM, TAU = 20, 6, 4, 5, 0.2


class Small(nn.Module):
    """A network of two layers, onto the sphere."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, 7), nn.Tanh(), nn.Linear(7, DIM))

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(self.layers(x), dim=1)


def recipe_of(views: Sensors, kind: keys.Keys, **parts: Any) -> Recipe:
    return Recipe("x/sensors", "sensors", views, kind, negatives.Every(), temperature=TAU, **parts)  # type: ignore[arg-type]


def learner_of(recipe: Recipe) -> Learner:
    torch.manual_seed(1)
    encoders = nn.ModuleList(Small() for _ in recipe.views.streams)
    return Learner(recipe, Settings(dim=DIM), images=ITEMS, classes=2, seed=0, encoders=encoders)


# the slow twin: one pair, one query after the other, in float64
def softmax_loss(query: Tensor, positive: Tensor, others: list[Tensor]) -> Tensor:
    scores = torch.stack([query @ positive, *(query @ other for other in others)]) / TAU
    return torch.logsumexp(scores, 0) - scores[0]


def against_bank(state: Learner, encoders: nn.ModuleList, views: list[Tensor], indices: Tensor, pair: Any) -> Tensor:
    query, key = pair
    rows = state.keys.stored(key).double()
    total = torch.zeros((), dtype=torch.float64)
    for q, own in zip(encoders[query](views[query]), indices.tolist(), strict=True):
        total = total + softmax_loss(q, rows[own], [row for i, row in enumerate(rows) if i != own])
    return total / len(indices)


def against_queue(state: Learner, encoders: nn.ModuleList, views: list[Tensor], indices: Tensor, pair: Any) -> Tensor:
    query, key = pair
    rows, streams = list(state.keys.stored(key).double()), len(encoders)
    slow = copy.deepcopy(state.keys.slow[key]).double()
    for old, new in zip(slow.parameters(), encoders[key].parameters(), strict=True):
        old.data = 0.5 * old.data + 0.5 * new.data
    seen = views[streams + key :: streams] or [views[key]]
    total = torch.zeros((), dtype=torch.float64)
    for view in seen:
        for q, k in zip(encoders[query](views[query]), slow(view).detach(), strict=True):
            total = total + softmax_loss(q, k, rows)
    return total / len(indices) / len(seen)


def in_the_batch(state: Learner, encoders: nn.ModuleList, views: list[Tensor], indices: Tensor, pair: Any) -> Tensor:
    query, key = pair
    asked, others = encoders[query](views[query]), encoders[key](views[key])
    total = torch.zeros((), dtype=torch.float64)
    for b, q in enumerate(asked):
        total = total + softmax_loss(q, others[b], [k for i, k in enumerate(others) if i != b])
    return total / len(asked)


Twin = Callable[[Learner, nn.ModuleList, list[Tensor], Tensor, Any], Tensor]
KINDS: dict[str, tuple[keys.Keys, Twin, dict[str, Any]]] = {
    "bank": (keys.Bank(0.5), against_bank, {}),
    "queue": (keys.Queue(9, 0.5), against_queue, {}),
    "queue, further views": (keys.Queue(9, 0.5), against_queue, {"positives": positives.Many(2)}),
    "batch": (keys.InBatch(), in_the_batch, {}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("graph", ["core", "full", "pair"])
@pytest.mark.parametrize("streams", [3, 5])
def test_the_loss_is_the_sum_over_pairs(streams: int, graph: Any, kind: str) -> None:
    choice, twin, parts = KINDS[kind]
    views_part = Sensors(streams, graph, 3 if parts else 1)
    state = learner_of(recipe_of(views_part, choice, **parts))
    pairs = views_part.pairs
    assert len(pairs) == {"core": 2 * (streams - 1), "full": streams * (streams - 1), "pair": 2}[graph]
    optimiser = torch.optim.SGD(state.network.parameters(), lr=0.1)
    rng = generator(2)
    items = torch.randn(ITEMS, streams * WIDTH, generator=rng)
    for step in range(3):
        indices = torch.randperm(ITEMS, generator=rng)[:BATCH]
        views = views_part.make(items[indices], Jitter(), rng)
        assert len(views) == streams * views_part.count
        encoders = copy.deepcopy(state.network.encoders).double().requires_grad_()
        before = copy.deepcopy(state)
        expected = sum(twin(before, encoders, [v.double() for v in views], indices, pair) for pair in pairs)
        expected.backward()
        done = state.loss(views, indices, indices, BatchRandom(generator(step)), step, 3)
        assert done.loss.item() == pytest.approx(expected.item(), rel=1e-5)
        optimiser.zero_grad()
        done.loss.backward()
        touched = {stream for pair in pairs for stream in pair}
        for stream, (mine, slow) in enumerate(zip(state.network.encoders, encoders, strict=True)):
            for got, wanted in zip(mine.parameters(), slow.parameters(), strict=True):
                if stream in touched:
                    torch.testing.assert_close(got.grad.double(), wanted.grad, rtol=1e-4, atol=1e-6)
                    assert bool(got.grad.any())
                else:
                    assert got.grad is None or not bool(got.grad.any())
        optimiser.step()
        state.commit(indices, done)


def test_each_stream_stores_its_own_keys() -> None:
    part = Sensors(3, "core")
    bank, queue = (learner_of(recipe_of(part, kind)) for kind in (keys.Bank(0.0), keys.Queue(9, 1.0)))
    indices = torch.arange(BATCH) + 4
    views = part.make(torch.randn(BATCH, 3 * WIDTH), Jitter())
    for state in (bank, queue):
        slow = state.network.encoders if state.keys.slow is None else state.keys.slow
        embedded = [encoder(view).detach() for encoder, view in zip(slow, views, strict=True)]
        state.commit(indices, state.loss(views, indices, indices, BatchRandom(torch.Generator()), 0, 1))
        for stream in range(3):
            rows = state.keys.stored(stream)
            torch.testing.assert_close(rows[indices] if state is bank else rows[:BATCH], embedded[stream])


def test_offsets_are_one_for_each_direction_and_one_direction_asks_each_pair_once() -> None:
    binary = objectives.BinaryNCE(kappa=None)
    recipe = recipe_of(Sensors(3, "full"), keys.Bank(), objective=binary)
    assert learner_of(recipe).network.objective_module.values.shape == (6,)
    # both views of one stream ask, too
    simclr = methods.get("ring/simclr")
    symmetric = Recipe("x/simclr", "x", simclr.views, keys.InBatch(), negatives.Every(), objective=binary)
    state = Learner(symmetric, Settings(dim=DIM), images=ITEMS, classes=2, seed=0, encoders=nn.ModuleList([Small()]))
    views = tuple(torch.randn(2, BATCH, WIDTH))
    state.loss(views, torch.arange(BATCH), torch.arange(BATCH), BatchRandom(torch.Generator()), 0, 1)
    assert state.network.objective_module.values.shape == (2,)
    assert bool(state.network.objective_module.values.isfinite().all())
    part = Sensors(3, "full")
    both, one = (learner_of(recipe_of(part, keys.InBatch(symmetric=s))) for s in (True, False))
    assert both.keys.directions == part.pairs
    assert one.keys.directions == ((0, 1), (0, 2), (1, 2))


def test_views_and_encoders_are_as_many_as_streams_need() -> None:
    queue, bank, few = keys.Queue(9), recipe_of(Sensors(3), keys.Bank()), nn.ModuleList(Small() for _ in range(2))

    def learner() -> None:
        Learner(bank, Settings(dim=DIM), images=ITEMS, classes=2, seed=0, encoders=few)

    many = {"positives": positives.Many(2)}
    refused(
        (lambda: recipe_of(Sensors(3, "core", 2), queue), NotApplicableError, "needs one view of each"),
        (lambda: recipe_of(Sensors(3, "core", 1), queue, **many), NotApplicableError, "needs three views"),
        (learner, ArgumentError, "encoders=2: .*sensor 0"),
    )
