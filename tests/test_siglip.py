"""Losses with a learnt temperature against loops in float64; what is learnt is trained, stored and not decayed."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from contrastlab import methods, positives
from contrastlab.negatives import BatchRandom
from contrastlab.objectives import BinaryNCE, Context, InfoNCE, Scores, binary_nce, from_views
from contrastlab.papers.siglip.objective import LearntTemperature, Scale, Sigmoid
from contrastlab.settings import Settings
from contrastlab.support.errors import ArgumentError, NotApplicableError
from contrastlab.train import pretrain
from contrastlab.train.learner import Learner
from contrastlab.train.schedule import optimiser
from made_scores import TEMPERATURES, assert_absent_negatives_do_not_count, assert_is_twin, unit_scores

NAMES = ["siglip/softmax", "siglip/sigmoid"]


def scale(factor: float, bias: float | None = None) -> Scale:
    """A scale in float64 that has been trained."""
    module = Scale(bias).double()
    nn.init.constant_(module.log_factor, math.log(factor))
    return module


def sigmoid_twin(scores: Scores, factor: float, bias: float) -> Tensor:
    """One pair after the other (section 3.2): −log of the sigmoid of the label times the logit."""
    losses = []
    for s, row in zip(scores.own, scores.negatives, strict=True):
        total = -torch.sigmoid(factor * s + bias).log()
        for other in row:
            total = total - torch.sigmoid(-(factor * other + bias)).log()
        losses.append(total)
    return torch.stack(losses).mean()


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_the_sigmoid_loss_is_that_of_the_printed_equation(temperature: float) -> None:
    assert_is_twin(Sigmoid(-3.0), lambda given: sigmoid_twin(given, 1.0, -3.0), unit_scores(temperature))
    scores = unit_scores(temperature)
    loss = Sigmoid(-3.0)(scores, Context(module=scale(0.3, -1.0))).mean()
    torch.testing.assert_close(loss, sigmoid_twin(scores, 0.3, -1.0))


def test_absent_negatives_have_no_part_in_either_loss() -> None:
    assert_absent_negatives_do_not_count(LearntTemperature())
    scores = unit_scores(0.1)
    absent = torch.zeros_like(scores.negatives, dtype=torch.bool)
    absent[:, 3:] = True
    fewer = replace(scores, negatives=scores.negatives[:, :3])
    masked = replace(scores, negatives=scores.negatives.masked_fill(absent, -1e30))
    for objective, module in ((Sigmoid(), scale(0.01, -1.0)), (LearntTemperature(), scale(0.01))):
        context = Context(module=module)
        torch.testing.assert_close(objective(masked, context), objective(fewer, context))


def test_the_sigmoid_loss_is_noise_contrastive_estimation_with_a_learnt_offset() -> None:
    scores = unit_scores(0.1)
    torch.testing.assert_close(Sigmoid(-2.0)(scores), binary_nce(scores.own, scores.negatives, 2.0))
    given = BinaryNCE(math.exp(2.0) / scores.size)
    torch.testing.assert_close(Sigmoid(-2.0)(scores), given(scores))


@pytest.mark.parametrize("factor", [0.2, 1.0, 3.0])
def test_a_learnt_temperature_is_info_nce_at_another_temperature(factor: float) -> None:
    scores, expected = unit_scores(0.5), unit_scores(0.5 / factor)
    torch.testing.assert_close(LearntTemperature()(scores), InfoNCE()(scores))
    scaled = LearntTemperature()(scores, Context(module=scale(factor)))
    torch.testing.assert_close(scaled, InfoNCE()(expected))
    spread = torch.linspace(0, 1, len(scores.own), dtype=torch.float64)  # JCL's variance of logits
    lifted = LearntTemperature()(replace(scores, lift=spread), Context(module=scale(factor)))
    torch.testing.assert_close(lifted, InfoNCE()(replace(expected, lift=spread * factor**2)))


@pytest.mark.parametrize(("objective", "module"), [(Sigmoid(), scale(1.5, -1.0)), (LearntTemperature(), scale(1.5))])
def test_the_gradient_reaches_what_is_learnt(objective, module: Scale) -> None:
    scores = unit_scores(0.3)
    slopes = torch.autograd.grad(objective(scores, Context(module=module)).mean(), list(module.parameters()))
    for parameter, slope in zip(module.parameters(), slopes, strict=True):
        losses = []
        for step in (-1e-6, 1e-6):
            with torch.no_grad():
                parameter.add_(step)
                losses.append(objective(scores, Context(module=module)).mean())
                parameter.sub_(step)
        assert slope.item() == pytest.approx(float(losses[1] - losses[0]) / 2e-6, rel=1e-5)
        assert slope.abs() > 1e-3


def test_the_scale_of_the_softmax_stays_below_100_and_comes_back_from_there() -> None:
    scores, module = unit_scores(0.5), scale(1000.0)
    loss = LearntTemperature()(scores, Context(module=module)).mean()
    torch.testing.assert_close(loss, InfoNCE()(unit_scores(0.01)).mean())
    loss.backward()
    assert module.log_factor.item() == pytest.approx(math.log(50))
    assert module.log_factor.grad is not None
    assert module.log_factor.grad.abs() > 0


def test_the_loss_of_two_views_takes_a_module() -> None:
    z1, z2 = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0))
    module = Scale().requires_grad_()
    nn.init.constant_(module.log_factor, math.log(2))
    loss = from_views(z1, z2, LearntTemperature(), temperature=0.4, module=module)
    torch.testing.assert_close(loss, from_views(z1, z2, temperature=0.2))
    loss.backward()
    assert module.log_factor.grad is not None


def state_of(name: str, chunks: int = 1) -> tuple[Learner, Tensor, list[Tensor]]:
    """A learner after one backward pass: its loss and the gradients of what the objective learns."""
    settings = Settings(image_size=16, arch="tiny", stem="cifar", dim=8, batch_size=8, accumulate=chunks)
    learner = Learner(methods.get(name), settings, images=8, classes=2, seed=0).eval()
    draws = torch.Generator().manual_seed(0)
    views = tuple(torch.rand(8, 3, 16, 16, generator=draws) for _ in range(2))
    numbers = torch.arange(8)
    loss = learner.loss(views, numbers, numbers, BatchRandom(draws, 0, 8), 0, 1).loss
    loss.backward()
    return learner, loss, [each.grad for each in learner.network.objective_module.parameters()]


@pytest.mark.parametrize("name", NAMES)
def test_chunks_give_the_gradient_of_the_whole_batch(name: str) -> None:
    _, whole, of_whole = state_of(name)
    _, chunked, of_chunks = state_of(name, 2)
    torch.testing.assert_close(chunked, whole)
    torch.testing.assert_close(of_chunks, of_whole)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_learnt_is_trained_and_goes_on_from_a_checkpoint(name: str, tmp_path: Path, pictures, tiny) -> None:
    recipe = methods.get(name)
    settings = tiny.override(epochs=2, batch_size=16)
    learners: list[Learner] = []
    make = Learner.__init__

    def kept(self: Learner, *arguments, **options) -> None:
        make(self, *arguments, **options)
        learners.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learner, "__init__", kept)
        pretrain(recipe, settings, pictures(32), log=lambda line: None)
        with pytest.raises(KeyboardInterrupt):
            pretrain(recipe, settings, pictures(32), folder=tmp_path, max_minutes=0, log=lambda line: None)
        pretrain(recipe, settings, pictures(32), folder=tmp_path, log=lambda line: None)
    whole, stopped, resumed = (learner.network.objective_module.state_dict() for learner in learners)
    assert whole["log_factor"] != 0
    assert whole["log_factor"] != stopped["log_factor"]
    for key, value in whole.items():
        assert torch.equal(resumed[key], value)


def test_what_has_no_dimensions_is_not_decayed(tiny) -> None:
    learner, _, _ = state_of("siglip/sigmoid")
    made = optimiser(tiny.override(weight_decay=0.1), learner.network.parameters())
    weights, scalars = made.param_groups
    assert weights["weight_decay"] == 0.1
    assert scalars["weight_decay"] == 0
    assert {id(each) for each in scalars["params"]} == {
        id(each) for each in learner.network.objective_module.parameters()
    }
    (alone,) = optimiser(tiny, learner.network.encoders.parameters()).param_groups
    assert alone["weight_decay"] == tiny.weight_decay


def test_only_the_softmax_bounds_information() -> None:
    assert methods.get("siglip/softmax").bounds_information
    assert LearntTemperature().bound(1.0, 8) == pytest.approx(math.log(8) - 1)
    assert not methods.get("siglip/sigmoid").bounds_information


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ArgumentError, match="^bias=nan: expected a finite number"):
        Sigmoid(math.nan)
    with pytest.raises(NotApplicableError, match=r"Sigmoid\(bias=-10.0\) decides about one positive key"):
        replace(methods.get("siglip/sigmoid"), name="x/near", positives=positives.Neighbours())
