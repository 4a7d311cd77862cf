"""BYOL and SimSiam against loops in float64: what is followed, what has no gradient, and what their parts refuse."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab import keys, methods, negatives, objectives, positives
from contrastlab.methods import Recipe
from contrastlab.negatives import BatchRandom
from contrastlab.objectives import Scores
from contrastlab.papers.byol.parts import Follow, Predicted
from contrastlab.settings import Settings
from contrastlab.support.errors import ArgumentError, NotApplicableError
from contrastlab.train import pretrain
from contrastlab.train.learner import Learner
from made_runs import quiet
from made_scores import TEMPERATURES

DRAWS = BatchRandom(torch.Generator())


class Head(nn.Module):
    """One linear layer as encoder and head."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 4)

    def project(self, x: Tensor) -> Tensor:
        projected: Tensor = self.linear(x)
        return projected

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(self.project(x), dim=1)


def learner(recipe: Recipe, chunks: int = 1) -> Learner:
    torch.manual_seed(0)
    encoders = nn.ModuleList([Head()])
    return Learner(recipe, Settings(dim=4, accumulate=chunks), images=6, classes=2, seed=0, encoders=encoders)


def distance(query: Tensor, key: Tensor) -> Tensor:
    return (query / query.norm() - key / key.norm()).square().sum()


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_the_loss_and_its_gradient_are_those_of_squared_distances_at_any_temperature(temperature: float) -> None:
    draws = torch.Generator().manual_seed(0)
    q, k = (F.normalize(z, dim=1) for z in torch.randn(2, 3, 4, generator=draws, dtype=torch.float64))
    q.requires_grad_()
    expected = torch.stack([(a - b).square().sum() for a, b in zip(q, k, strict=True)])
    loss = Follow()(Scores((q * k).sum(1) / temperature, torch.empty(3, 0), highest=1 / temperature))
    torch.testing.assert_close(loss, expected)
    (got,), (wanted,) = (torch.autograd.grad(each.sum(), q) for each in (loss, expected))
    along = 2 * q.detach()  # the squared length of a query, which is 1, has a gradient in the twin alone
    torch.testing.assert_close(got, wanted - along)


@pytest.mark.parametrize("chunks", [1, 3])
def test_byol_is_what_its_loop_says_for_three_steps(chunks: int) -> None:
    recipe = replace(methods.get("byol/byol"), keys=Predicted(0.7, 8))
    state = learner(recipe, chunks)
    predictor = state.network.keys_module
    assert isinstance(predictor, nn.Sequential)
    predictor[1].eval()  # so that chunks have the statistics of the whole batch
    fast, ahead = (copy.deepcopy(net).double() for net in (state.network.encoders[0], predictor))
    slow = copy.deepcopy(fast)
    optimiser = torch.optim.SGD(state.network.parameters(), lr=0.3)
    rng = torch.Generator().manual_seed(3)
    for step in range(3):
        views = torch.randn(2, 6, 5, generator=rng)
        if step:
            rate = 1 - 0.3 * (math.cos(math.pi * (step - 1) / 3) + 1) / 2
            for old, new in zip(slow.parameters(), fast.parameters(), strict=True):
                old.data = rate * old.data + (1 - rate) * new.data
        losses = []
        for one, other in ((0, 1), (1, 0)):
            for x, y in zip(views[one].double(), views[other].double(), strict=True):
                query = ahead(fast.project(x[None]))[0]
                losses.append(distance(query, slow.project(y[None])[0].detach()))
        loss = torch.stack(losses).mean()
        parameters = [*fast.parameters(), *ahead.parameters()]
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.data -= 0.3 * gradient
        # the same with the parts
        done = state.loss(tuple(views), torch.arange(6), torch.zeros(6), DRAWS, step, 3)
        optimiser.zero_grad()
        done.loss.backward()
        optimiser.step()
        assert done.loss.item() == pytest.approx(loss.item(), rel=1e-5)
        torch.testing.assert_close(state.network.encoders[0].linear.weight.double(), fast.linear.weight)
    assert any(name.startswith("keys.slow.") for name in state.state_dict())
    assert not torch.equal(slow.linear.weight, fast.linear.weight)


def test_simsiam_has_the_gradient_of_its_queries_alone() -> None:
    state = learner(replace(methods.get("simsiam/simsiam"), keys=Predicted(None, 8)))
    assert state.keys.slow is None
    views = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(4))
    encoder, predictor = state.network.encoders[0], state.network.keys_module
    assert predictor is not None
    loss = state.loss(tuple(views), torch.arange(6), torch.zeros(6), DRAWS, 0, 1).loss
    projections = [encoder.project(view) for view in views]  # type: ignore[operator]
    queries = [predictor(projection) for projection in projections]
    pairs = [*zip(queries[0], projections[1], strict=True), *zip(queries[1], projections[0], strict=True)]
    stopped = torch.stack([distance(query, key.detach()) for query, key in pairs]).mean()
    through = torch.stack([distance(query, key) for query, key in pairs]).mean()
    torch.testing.assert_close(loss, stopped)
    parameters = list(encoder.parameters())
    got = torch.autograd.grad(loss, parameters)
    torch.testing.assert_close(got, torch.autograd.grad(stopped, parameters, retain_graph=True))
    other = torch.autograd.grad(through, parameters)
    assert not torch.allclose(got[0], other[0], rtol=1e-2)  # the stop is what makes the difference


def test_runs_record_how_embeddings_lie_and_end_as_they_did_before(pictures, tiny, tmp_path) -> None:
    for name in ("byol/byol", "simsiam/simsiam"):
        recipe = methods.get(name).override({"keys.predictor": 16})
        done, again = (pretrain(recipe, tiny, pictures(48), seed=1, folder=tmp_path / name, log=quiet) for _ in "ab")
        assert again.history == done.history
        assert {"alignment", "uniformity", "effective_rank"} <= done.history[-1].keys()
        assert "mi_bound" not in done.history[-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"momentum": 1.5}, "^momentum=1.5: expected None, or a number from 0 to 1"),
        ({"momentum": "0.9"}, "^momentum='0.9': expected None, or a number"),
        ({"predictor": 0}, "^predictor=0: expected None, or a width of at least 1"),
        ({"predictor": 2.5}, "^predictor=2.5: expected None, or a width"),
    ],
)
def test_fields_outside_their_range_are_refused(arguments, message) -> None:
    with pytest.raises(ArgumentError, match=message):
        Predicted(**arguments)


def test_what_does_not_fit_is_refused_by_name() -> None:
    byol = methods.get("byol/byol")
    with pytest.raises(NotApplicableError, match=r"Follow\(\) has no negatives, so a predictor must follow keys"):
        replace(byol, name="x/batch", keys=keys.InBatch())
    with pytest.raises(NotApplicableError, match=r"Predicted.* has no negatives, so objective must be Follow"):
        replace(byol, name="x/infonce", objective=objectives.InfoNCE(), negatives=negatives.Every())
    with pytest.raises(NotApplicableError, match=r"Follow\(\) has one positive"):
        replace(byol, name="x/near", positives=positives.Neighbours())
