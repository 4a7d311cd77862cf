"""Three and five streams of made vectors: the loss is the sum over the views' pairs, in one process and in two."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
from made_runs import generator
from made_views import Jitter, Sensors

ITEMS = 20
BATCH = 6
WIDTH = 4
DIM = 5
TAU = 0.2


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


# The slow twins: one pair of streams, one query after the other, in float64 -------------------------------------------


@dataclass(frozen=True)
class Seen:
    """What one step is computed from, before it is made."""

    keys: keys.KeyState
    encoders: nn.ModuleList  #: in float64
    views: list[Tensor]  #: in float64, the views of all streams, then further views of all of them
    items: list[int]

    def embed(self, stream: int) -> Tensor:
        return self.encoders[stream](self.views[stream])

    def further_views(self, stream: int) -> list[Tensor]:
        return self.views[len(self.encoders) + stream :: len(self.encoders)]


def softmax_loss(query: Tensor, positive: Tensor, others: list[Tensor]) -> Tensor:
    scores = torch.stack([query @ positive, *(query @ other for other in others)]) / TAU
    return torch.logsumexp(scores, 0) - scores[0]


def all_but(rows: list[Tensor], own: int) -> list[Tensor]:
    return [row for number, row in enumerate(rows) if number != own]


def against_bank(seen: Seen, query: int, key: int) -> Tensor:
    """The positive is the row of the query's own item, the negatives are all other rows."""
    rows = list(seen.keys.stored(key).double())
    losses = []
    for q, item in zip(seen.embed(query), seen.items, strict=True):
        losses.append(softmax_loss(q, rows[item], all_but(rows, item)))
    return torch.stack(losses).mean()


def against_queue(seen: Seen, query: int, key: int) -> Tensor:
    """The positive is another view by the momentum encoder, which moves first; the negatives are all rows."""
    rows = list(seen.keys.stored(key).double())
    momentum_encoder = copy.deepcopy(seen.keys.slow[key]).double()
    for slow, fast in zip(momentum_encoder.parameters(), seen.encoders[key].parameters(), strict=True):
        slow.data = 0.5 * slow.data + 0.5 * fast.data
    losses = []
    for view in seen.further_views(key) or [seen.views[key]]:
        positives_of_view = momentum_encoder(view).detach()
        for q, positive in zip(seen.embed(query), positives_of_view, strict=True):
            losses.append(softmax_loss(q, positive, rows))
    return torch.stack(losses).mean()


def in_the_batch(seen: Seen, query: int, key: int) -> Tensor:
    """The positive is the other stream's embedding of the same item, the negatives are those of the other items."""
    embedded = list(seen.embed(key))
    losses = []
    for number, q in enumerate(seen.embed(query)):
        losses.append(softmax_loss(q, embedded[number], all_but(embedded, number)))
    return torch.stack(losses).mean()


@dataclass(frozen=True)
class Kind:
    keys: keys.Keys
    twin: Callable[[Seen, int, int], Tensor]
    views: int = 1  #: of each stream
    parts: Mapping[str, Any] = field(default_factory=dict)


KINDS = {
    "bank": Kind(keys.Bank(0.5), against_bank),
    "queue": Kind(keys.Queue(9, 0.5), against_queue),
    "queue, further views": Kind(keys.Queue(9, 0.5), against_queue, 3, {"positives": positives.Many(2)}),
    "batch": Kind(keys.InBatch(), in_the_batch),
}


def assert_gradients_are(encoder: nn.Module, twin: nn.Module) -> None:
    for parameter, expected in zip(encoder.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad.double(), expected.grad, rtol=1e-4, atol=1e-6)
        assert bool(parameter.grad.any())


def assert_no_gradients(encoder: nn.Module) -> None:
    for parameter in encoder.parameters():
        assert parameter.grad is None or not bool(parameter.grad.any())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("graph", ["core", "full", "pair"])
@pytest.mark.parametrize("streams", [3, 5])
def test_the_loss_is_the_sum_over_pairs_and_each_stream_hears_of_its_own(streams: int, graph: Any, kind: str) -> None:
    choice = KINDS[kind]
    part = Sensors(streams, graph, choice.views)
    learner = learner_of(recipe_of(part, choice.keys, **choice.parts))
    optimiser = torch.optim.SGD(learner.network.parameters(), lr=0.1)
    in_a_pair = {stream for pair in part.pairs for stream in pair}
    rng = generator(2)
    data = torch.randn(ITEMS, streams * WIDTH, generator=rng)
    for step in range(3):
        items = torch.randperm(ITEMS, generator=rng)[:BATCH]
        views = part.make(data[items], Jitter(), rng)
        twins = copy.deepcopy(learner.network.encoders).double().requires_grad_()
        seen = Seen(copy.deepcopy(learner.keys), twins, [view.double() for view in views], items.tolist())
        expected = sum(choice.twin(seen, query, key) for query, key in part.pairs)
        expected.backward()

        done = learner.loss(views, items, items, BatchRandom(generator(step)), step, 3)
        optimiser.zero_grad()
        done.loss.backward()

        assert done.loss.item() == pytest.approx(expected.item(), rel=1e-5)
        for stream, encoder in enumerate(learner.network.encoders):
            if stream in in_a_pair:
                assert_gradients_are(encoder, twins[stream])
            else:
                assert_no_gradients(encoder)
        optimiser.step()
        learner.commit(items, done)


def commit_a_batch(learner: Learner, views: tuple[Tensor, ...], items: Tensor) -> None:
    learner.commit(items, learner.loss(views, items, items, BatchRandom(torch.Generator()), 0, 1))


def test_each_stream_stores_its_own_keys_in_a_bank() -> None:
    learner = learner_of(recipe_of(Sensors(3, "core"), keys.Bank(0.0)))
    items = torch.arange(BATCH) + 4
    views = learner.recipe.views.make(torch.randn(BATCH, 3 * WIDTH, generator=generator()), Jitter())
    commit_a_batch(learner, views, items)
    for stream, (encoder, view) in enumerate(zip(learner.network.encoders, views, strict=True)):
        torch.testing.assert_close(learner.keys.stored(stream)[items], encoder(view).detach())


def test_each_stream_stores_its_own_keys_in_a_queue() -> None:
    learner = learner_of(recipe_of(Sensors(3, "core"), keys.Queue(9, 1.0)))
    items = torch.arange(BATCH) + 4
    views = learner.recipe.views.make(torch.randn(BATCH, 3 * WIDTH, generator=generator()), Jitter())
    commit_a_batch(learner, views, items)
    for stream, (encoder, view) in enumerate(zip(learner.keys.slow, views, strict=True)):
        torch.testing.assert_close(learner.keys.stored(stream)[:BATCH], encoder(view).detach())


# Directions -----------------------------------------------------------------------------------------------------------


def test_both_streams_of_a_pair_ask_unless_one_direction_is_wanted() -> None:
    part = Sensors(3, "full")
    both = learner_of(recipe_of(part, keys.InBatch(symmetric=True)))
    one = learner_of(recipe_of(part, keys.InBatch(symmetric=False)))
    assert both.keys.directions == part.pairs
    assert one.keys.directions == ((0, 1), (0, 2), (1, 2))


BINARY = objectives.BinaryNCE(kappa=None)


def test_each_direction_has_an_offset() -> None:
    learner = learner_of(recipe_of(Sensors(3, "full"), keys.Bank(), objective=BINARY))
    assert learner.network.objective_module.values.shape == (6,)


def test_each_view_of_one_stream_asks_and_has_an_offset() -> None:
    views_of_simclr = methods.get("ring/simclr").views
    recipe = Recipe("x/simclr", "x", views_of_simclr, keys.InBatch(), negatives.Every(), objective=BINARY)
    learner = learner_of(recipe)
    views = tuple(torch.randn(2, BATCH, WIDTH, generator=generator()))
    learner.loss(views, torch.arange(BATCH), torch.arange(BATCH), BatchRandom(torch.Generator()), 0, 1)
    offsets = learner.network.objective_module.values
    assert offsets.shape == (2,)
    assert bool(offsets.isfinite().all())


# Refusals -------------------------------------------------------------------------------------------------------------


def test_a_further_view_that_nothing_reads_is_refused() -> None:
    with pytest.raises(NotApplicableError, match="needs one view of each"):
        recipe_of(Sensors(3, "core", 2), keys.Queue(9))


def test_too_few_views_for_several_positives_are_refused() -> None:
    with pytest.raises(NotApplicableError, match="needs three views"):
        recipe_of(Sensors(3, "core", 1), keys.Queue(9), positives=positives.Many(2))


def test_encoders_are_as_many_as_streams() -> None:
    two = nn.ModuleList([Small(), Small()])
    with pytest.raises(ArgumentError, match="encoders=2: .*sensor 0"):
        Learner(recipe_of(Sensors(3), keys.Bank()), Settings(dim=DIM), images=ITEMS, classes=2, seed=0, encoders=two)
