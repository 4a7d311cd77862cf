"""Adam and AdamW against the formulas, the linear schedule against transformers' rule, and dropout that is counted."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from contrastlab import methods
from contrastlab.pictures.modality import IMAGE
from contrastlab.settings import Settings
from contrastlab.train import loop, pretrain
from contrastlab.train.schedule import learning_rate, optimiser
from made_runs import equal, resumed


def by_hand(kind: str, start: float, gradients: list[float], lr: float, decay: float, b1: float, b2: float) -> float:
    weight, first, second = start, 0.0, 0.0
    for step, gradient in enumerate(gradients, 1):
        if kind == "adam":
            gradient += decay * weight
        else:
            weight -= lr * decay * weight
        first, second = b1 * first + (1 - b1) * gradient, b2 * second + (1 - b2) * gradient**2
        weight -= lr * (first / (1 - b1**step)) / (math.sqrt(second / (1 - b2**step)) + 1e-8)
    return weight


@pytest.mark.parametrize("kind", ["adam", "adamw"])
@pytest.mark.parametrize("fused", [False, True])
def test_adam_is_the_published_rule(kind, fused) -> None:
    settings = Settings(lr=0.1, weight_decay=0.3, optimiser={"name": kind, "betas": (0.5, 0.9)})
    weight, still = nn.Parameter(torch.tensor([2.0])), nn.Parameter(torch.tensor([1.0]), requires_grad=False)
    steps = optimiser(settings, [weight, still], fused=fused)
    gradients = [1.0, -0.2, 0.7]
    for gradient in gradients:
        weight.grad = torch.tensor([gradient])
        steps.step()
    assert weight.item() == pytest.approx(by_hand(kind, 2.0, gradients, 0.1, 0.3, 0.5, 0.9), rel=1e-5)
    assert still.item() == 1.0
    assert sum(len(group["params"]) for group in steps.param_groups) == 1


def test_sgd_stays_what_it_was_and_no_new_field_shows_in_a_hash() -> None:
    made = optimiser(Settings(), [nn.Parameter(torch.zeros(1))])
    assert isinstance(made, torch.optim.SGD)
    assert made.defaults["momentum"] == 0.9
    assert Settings().identity() == {}
    assert Settings(optimiser={"name": "sgd"}).identity() == {}
    assert Settings(optimiser={"name": "adamw"}).identity() == {"optimiser": {"name": "adamw"}}


def lars_by_hand(start: float, gradients: list[float], lr: float, decay: float, trust: float, mass: float) -> float:
    """One weight (You et al. 2017): the decayed gradient, scaled to a share of the weight, then momentum."""
    weight, speed = start, 0.0
    for gradient in gradients:
        local = trust * abs(weight) / (abs(gradient) + decay * abs(weight) + 1e-8)
        speed = mass * speed + local * (gradient + decay * weight)
        weight -= lr * speed
    return weight


def test_lars_is_the_published_rule_and_takes_plain_steps_where_nothing_is_decayed() -> None:
    pytest.importorskip("timm")
    about = {"name": "lars", "trust": 0.05, "decay": "matrices"}
    settings = Settings(lr=0.5, momentum=0.8, weight_decay=0.3, optimiser=about)
    matrix, bias = nn.Parameter(torch.tensor([[2.0]])), nn.Parameter(torch.tensor([2.0]))
    steps = optimiser(settings, [matrix, bias], fused=True)
    gradients = [1.0, -0.2, 0.7]
    plain, speed = 2.0, 0.0
    for gradient in gradients:
        matrix.grad, bias.grad = torch.tensor([[gradient]]), torch.tensor([gradient])
        steps.step()
        speed = 0.8 * speed + gradient
        plain -= 0.5 * speed
    assert matrix.item() == pytest.approx(lars_by_hand(2.0, gradients, 0.5, 0.3, 0.05, 0.8), rel=1e-5)
    assert bias.item() == pytest.approx(plain, rel=1e-5)


def test_matrices_alone_are_decayed_where_that_is_asked_for() -> None:
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(2, 2))
    made = optimiser(Settings(weight_decay=0.3, optimiser={"decay": "matrices"}), network.parameters())
    decayed, others = made.param_groups
    assert [each.dim() for each in decayed["params"]] == [4, 2]
    assert [each.dim() for each in others["params"]] == [1, 1, 1, 1]
    assert (decayed["weight_decay"], others["weight_decay"]) == (0.3, 0)
    (alone,) = optimiser(Settings(weight_decay=0.3), network.parameters()).param_groups
    assert len(alone["params"]) == 6


def test_a_run_with_lars_resumes_to_the_same_bits(pictures, tiny, tmp_path) -> None:
    pytest.importorskip("timm")
    settings = tiny.override(optimiser={"name": "lars", "decay": "matrices"}, lr=1.0, epochs=2)
    recipe, images = methods.get("fmicl/simclr"), pictures(48)
    quiet = {"seed": 3, "log": lambda line: None}
    whole = pretrain(recipe, settings, images, **quiet)
    pieces, _ = resumed(lambda: pretrain(recipe, settings, images, folder=tmp_path, max_minutes=0, **quiet))
    assert equal(whole.encoders, pieces.encoders)
    plain = pretrain(recipe, settings.override(optimiser={"name": "sgd"}), images, **quiet)
    assert not equal(whole.encoders, plain.encoders)


@pytest.mark.parametrize("warm", [0, 2])
def test_the_linear_schedule_is_that_of_transformers(warm) -> None:
    settings = Settings(schedule="linear", epochs=6, warmup_epochs=warm, lr=0.5)
    steps, total = 4, 24
    for step in range(total):
        rising, falling = step / max(warm * steps, 1), (total - step) / (total - warm * steps)
        expected = rising if step < warm * steps else falling
        assert learning_rate(settings, step // steps, step / steps - step // steps) == pytest.approx(0.5 * expected)


def test_a_run_follows_the_linear_schedule_step_by_step(pictures, tiny, monkeypatch) -> None:
    rates = []
    whole = loop._Loop.train_step

    def watched(self, *batch):
        whole(self, *batch)
        rates.append(self.optimiser.param_groups[0]["lr"])

    monkeypatch.setattr(loop._Loop, "train_step", watched)
    settings = tiny.override(schedule="linear", lr=0.6, optimiser={"name": "adamw"})
    pretrain(methods.get("fmicl/simclr"), settings, pictures(48), log=lambda line: None)
    assert rates == pytest.approx([0.6, 0.5, 0.4, 0.3, 0.2, 0.1])


class Dropping(nn.Module):
    """An encoder of pictures with dropout."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(3 * 16 * 16, dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.normalize(self.layers(x), dim=1)


def test_a_run_with_adam_and_dropout_resumes_to_the_same_bits(pictures, tiny, tmp_path, monkeypatch) -> None:
    made = replace(IMAGE, encoders=lambda views, source, settings: nn.ModuleList([Dropping(settings.dim)]))
    monkeypatch.setattr(loop, "modality", lambda source: made)
    recipe, images = methods.get("fmicl/simclr"), pictures(48)
    settings = tiny.override(schedule="linear", optimiser={"name": "adamw"}, lr=0.01)
    quiet = {"seed": 3, "log": lambda line: None}
    whole = pretrain(recipe, settings, images, **quiet)
    state = torch.random.get_rng_state()
    pieces, stops = resumed(
        lambda: pretrain(recipe, settings, images, folder=tmp_path, max_minutes=0, **quiet),
        between=lambda: torch.rand(7),  # what happens elsewhere in the process draws no mask
    )
    assert stops == 6
    assert equal(whole.encoders, pieces.encoders)
    torch.random.set_rng_state(state)
    another = pretrain(recipe, settings, images, seed=4, log=lambda line: None)
    assert not torch.equal(next(another.encoders.parameters()), next(whole.encoders.parameters()))
