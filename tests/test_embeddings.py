"""Barlow Twins and VICReg against loops in float64, what they promise, and the embeddings they are given."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab import keys, methods, negatives, objectives
from contrastlab.negatives import BatchRandom
from contrastlab.objectives import InfoNCE, Objective, Scores
from contrastlab.papers.barlow.objective import BarlowTwins
from contrastlab.papers.vicreg.objective import VICReg
from contrastlab.settings import Settings
from contrastlab.support.errors import ArgumentError, NotApplicableError
from contrastlab.train import pretrain
from contrastlab.train.learner import Learner
from made_runs import quiet

SCALES = [1.0, 0.07, 0.01]
"""Of the embeddings: these losses have no temperature."""


def views(scale: float = 1.0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(6)
    z1 = torch.randn(7, 4, generator=draws, dtype=torch.float64) + 0.5
    z2 = z1 + 0.8 * torch.randn(7, 4, generator=draws, dtype=torch.float64)
    return (scale * z1).to(dtype), (scale * z2).to(dtype)


def mean(values: list[Tensor]) -> Tensor:
    return torch.stack(values).mean()


def twin_of_barlow(z1: Tensor, z2: Tensor, redundancy: float) -> Tensor:
    """One pair of dimensions after the other, as Eq. 1 and 2 are printed."""
    loss = torch.zeros((), dtype=z1.dtype)
    for i in range(z1.shape[1]):
        for j in range(z2.shape[1]):
            a, b = z1[:, i] - mean(list(z1[:, i])), z2[:, j] - mean(list(z2[:, j]))
            correlation = (a * b).sum() / ((a * a).sum().sqrt() * (b * b).sum().sqrt())
            loss = loss + ((1 - correlation) ** 2 if i == j else redundancy * correlation**2)
    return loss


def twin_of_vicreg(z1: Tensor, z2: Tensor, weights: tuple[float, float, float]) -> Tensor:
    """One term after the other, as the listing has them."""
    count, dim = z1.shape
    invariance = mean([(a - b) ** 2 for a, b in zip(z1.flatten(), z2.flatten(), strict=True)])
    variance = covariance = torch.zeros((), dtype=z1.dtype)
    for z in (z1, z2):
        centred = [z[:, i] - mean(list(z[:, i])) for i in range(dim)]
        for i in range(dim):
            own = (centred[i] ** 2).sum() / (count - 1)
            variance = variance + torch.relu(1 - (own + 1e-4).sqrt()) / dim
            for j in range(dim):
                if j != i:
                    covariance = covariance + ((centred[i] * centred[j]).sum() / (count - 1)) ** 2 / dim
    return weights[0] * invariance + weights[1] * variance + weights[2] * covariance


def twin(objective: Objective, z1: Tensor, z2: Tensor) -> Tensor:
    if isinstance(objective, BarlowTwins):
        return twin_of_barlow(z1, z2, objective.redundancy)
    assert isinstance(objective, VICReg)
    return twin_of_vicreg(z1, z2, (objective.invariance, objective.variance, objective.covariance))


OBJECTIVES = [BarlowTwins(), BarlowTwins(0.7), VICReg(), VICReg(3, 5, 7)]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_the_loss_of_two_views_and_its_gradients_are_those_of_the_printed_equation(objective, scale) -> None:
    z1, z2 = (z.requires_grad_() for z in views(scale))
    loss = objectives.from_views(z1, z2, objective)
    expected = twin(objective, z1, z2)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(torch.autograd.grad(loss, (z1, z2)), torch.autograd.grad(expected, (z1, z2)))
    single = objectives.from_views(*views(scale, torch.float32), objective)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), expected.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(objectives.from_views(z2, z1, objective), loss)  # both views alike


def test_barlow_twins_reads_neither_scale_nor_mean_and_is_0_for_views_without_redundancy() -> None:
    z1, z2 = views()
    moved = objectives.from_views(z1 * torch.tensor([1.0, 2, 3, 4]) - 5, 7 * z2 + torch.arange(4.0), BarlowTwins())
    expected = objectives.from_views(z1, z2, BarlowTwins())
    torch.testing.assert_close(moved, expected)
    for scale, dtype in ((1e200, z1.dtype), (1e-200, z1.dtype), (1e30, torch.float32), (1e-30, torch.float32)):
        far = objectives.from_views((z1 * scale).to(dtype), (z2 / scale).to(dtype), BarlowTwins())
        torch.testing.assert_close(far, expected.to(dtype))
    orthogonal = torch.tensor([[1.0, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]], dtype=torch.float64)
    assert objectives.from_views(orthogonal, 3 * orthogonal, BarlowTwins()).item() == pytest.approx(0, abs=1e-20)
    same = torch.ones(4, 3, dtype=torch.float64, requires_grad=True)  # collapsed
    loss = objectives.from_views(same, same, BarlowTwins())
    assert loss.item() == 3
    (slope,) = torch.autograd.grad(loss, same)
    assert not slope.any()


def test_vicreg_is_0_for_equal_views_of_variance_one_without_covariance_and_large_where_they_collapse() -> None:
    orthogonal = torch.tensor([[1.0, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]], dtype=torch.float64)
    assert objectives.from_views(orthogonal, orthogonal, VICReg()).item() == pytest.approx(0, abs=1e-20)
    same = torch.ones(4, 3, dtype=torch.float64, requires_grad=True)
    loss = objectives.from_views(same, same, VICReg())
    assert loss.item() == pytest.approx(2 * 25 * (1 - 0.01))
    (slope,) = torch.autograd.grad(loss, same)
    assert bool(slope.isfinite().all())


class Head(nn.Module):
    """One linear layer as a head, and its unit rows as the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 4, dtype=torch.float32)

    def project(self, x: Tensor) -> Tensor:
        return self.linear(x)

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(self.project(x), dim=1)


@pytest.mark.parametrize("name", ["barlow/barlow", "vicreg/vicreg"])
@pytest.mark.parametrize("chunks", [1, 3])
def test_the_learner_has_the_loss_of_the_heads_outputs(name: str, chunks: int) -> None:
    torch.manual_seed(0)
    recipe, head = methods.get(name), Head()
    settings = Settings(dim=4, accumulate=chunks)
    learner = Learner(recipe, settings, images=6, classes=2, seed=0, encoders=nn.ModuleList([head]))
    one, other = torch.randn(2, 6, 5)
    done = learner.loss((one, other), torch.arange(6), torch.zeros(6), BatchRandom(torch.Generator()), 0, 1)
    expected = twin(recipe.objective, head.project(one).double(), head.project(other).double())
    assert done.loss.item() == pytest.approx(expected.item(), rel=1e-5)
    ((queries, positives),) = done.pairs
    for unit, view in ((queries, one), (positives[:, 0], other)):
        projected = head.project(view).detach()
        torch.testing.assert_close(unit, F.normalize(projected - projected.mean(0), dim=1))


def test_a_run_without_negatives_records_how_its_embeddings_lie(pictures, tiny) -> None:
    done = pretrain(methods.get("vicreg/vicreg"), tiny, pictures(48), seed=1, log=quiet)
    last = done.history[-1]
    assert "mi_bound" not in last
    assert {"alignment", "uniformity", "effective_rank"} <= last.keys()
    assert math.isfinite(last["uniformity"])


@pytest.mark.parametrize("field", ["redundancy", "invariance", "variance", "covariance"])
@pytest.mark.parametrize("value", [0.0, -1, math.nan, True, "1", None])
def test_weights_outside_their_range_are_refused(field: str, value: object) -> None:
    kind = BarlowTwins if field == "redundancy" else VICReg
    with pytest.raises(ArgumentError, match=f"^{field}=.*: expected a positive number"):
        kind(**{field: value})


def test_what_does_not_fit_is_refused_by_name() -> None:
    barlow = methods.get("barlow/barlow")
    with pytest.raises(
        NotApplicableError, match=r"BarlowTwins.* reads embeddings of no set length, so keys must be Pairs"
    ):
        replace(barlow, name="x/batch", keys=keys.InBatch())
    with pytest.raises(NotApplicableError, match=r"Pairs\(\) has embeddings of no set length, which only an objective"):
        replace(barlow, name="x/infonce", objective=InfoNCE(), negatives=negatives.Every())
    with pytest.raises(NotApplicableError, match=r"NoKeys\(\) leaves the positive alone, and objective=InfoNCE"):
        replace(methods.get("ring/simclr"), name="x/none", negatives=negatives.NoKeys())
    z1, z2 = views()
    with pytest.raises(ArgumentError, match=r"^embeddings=None: expected queries and positives.* with BarlowTwins"):
        objectives.from_queue(z1, z2, F.normalize(z1, dim=1), objective=BarlowTwins())
    with pytest.raises(ArgumentError, match=r"^embeddings=\(3, 4\): expected a tensor of shape \[3, 2, d\]"):
        Scores(torch.zeros(3), torch.zeros(3, 2), embeddings=torch.zeros(3, 4))
    with pytest.raises(ArgumentError, match="^labels=.*: expected None here: VICReg"):
        objectives.from_views(z1, z2, VICReg(), labels=torch.zeros(7, dtype=torch.int64))
    for objective in (BarlowTwins(), VICReg()):
        with pytest.raises(ArgumentError, match="^batch=1: expected at least two items"):
            objective.reduce(torch.zeros(1, 2, 3))
