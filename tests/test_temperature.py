"""A temperature of any kind: numbers of NumPy, tensors, parameters with a gradient that is that of the loss."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab import objectives
from contrastlab.negatives import Ring
from contrastlab.objectives import FMICL, AlignUniform, InfoNCE, Objective, Spectral, from_queue, from_views
from contrastlab.papers.debiased.objective import Debiased
from contrastlab.papers.decoupled.objective import DecoupledWeighted
from contrastlab.papers.hard.objective import HardWeighted
from contrastlab.papers.rince.objective import RINCE
from contrastlab.papers.siglip.objective import LearntTemperature, Sigmoid
from contrastlab.papers.sogclr.objective import SogCLR
from contrastlab.support.errors import ArgumentError

OBJECTIVES: list[Objective] = [
    InfoNCE(), InfoNCE(positive_in_denominator=False), FMICL(), AlignUniform(), Spectral(), Debiased(0.1),
    HardWeighted(0.1, 1.0), DecoupledWeighted(0.5), RINCE(), Sigmoid(), SogCLR(), LearntTemperature(),
]  # fmt: skip


def views() -> tuple[Tensor, Tensor]:
    z1, z2 = torch.randn(2, 6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return z1, z2


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_a_temperature_with_a_gradient_has_that_of_the_loss(objective: Objective) -> None:
    loss_at = partial(from_views, *views(), objective)
    temperature = nn.Parameter(torch.tensor(0.4, dtype=torch.float64))
    loss = loss_at(temperature=temperature)
    torch.testing.assert_close(loss.detach(), loss_at(temperature=0.4))
    (slope,) = torch.autograd.grad(loss, temperature, allow_unused=True)
    by_difference = (loss_at(temperature=0.4 + 1e-6) - loss_at(temperature=0.4 - 1e-6)).item() / 2e-6
    got = 0.0 if slope is None else slope.item()
    assert got == pytest.approx(by_difference, rel=1e-4, abs=1e-6)


def test_a_queue_takes_one_too() -> None:
    z1, z2 = views()
    queue = F.normalize(torch.randn(20, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)), dim=1)
    loss_at = partial(from_queue, z1, z2, queue, Ring(inner=10, outer=60, k=None))
    temperature = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    loss = loss_at(temperature=temperature)
    (slope,) = torch.autograd.grad(loss, temperature)
    by_difference = (loss_at(temperature=0.3 + 1e-6) - loss_at(temperature=0.3 - 1e-6)).item() / 2e-6
    assert slope.item() == pytest.approx(by_difference, rel=1e-4)


@pytest.mark.parametrize("given", [np.float32(0.5), np.float64(0.5), torch.tensor(0.5), torch.tensor(0.5).half()])
def test_numbers_of_any_kind_are_numbers(given) -> None:
    expected = from_views(*views(), temperature=0.5)
    torch.testing.assert_close(from_views(*views(), temperature=given), expected)


def test_what_is_no_temperature_is_refused() -> None:
    for given in (torch.tensor([0.1]), torch.tensor(1), torch.tensor(0.1 + 0j)):
        with pytest.raises(ArgumentError, match="^temperature=.*: expected a positive number, or a floating-point"):
            from_views(*views(), temperature=given)
    for given in (torch.tensor(-0.1), torch.tensor(torch.nan), 0, True, "0.1", None):
        with pytest.raises(ArgumentError, match="^temperature="):
            objectives.from_views(*views(), temperature=given)  # type: ignore[arg-type]
