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
