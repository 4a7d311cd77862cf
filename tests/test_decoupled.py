"""The decoupled losses against loops in float64, and the paper's proposition about the gradient of InfoNCE."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from contrastlab import methods, objectives, positives
from contrastlab.objectives import InfoNCE, Scores
from contrastlab.papers.decoupled.objective import DecoupledWeighted
from contrastlab.support.errors import ArgumentError, NotApplicableError
from made_scores import TEMPERATURES, assert_absent_negatives_do_not_count, assert_is_twin, unit_scores

DCL = InfoNCE(positive_in_denominator=False)


def twin(scores: Scores, sigma: float, temperature: float) -> Tensor:
    """One query after the other, as section 3.2 prints the loss and its weights."""
    closeness = [(own * temperature / sigma).exp() for own in scores.own]
    mean = sum(closeness, torch.zeros(())) / len(closeness)
    losses = []
    for own, row, close in zip(scores.own, scores.negatives, closeness, strict=True):
        weight = 2 - close / mean
        losses.append(-weight * own + row.exp().sum().log())
    return torch.stack(losses).mean()


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("sigma", [0.1, 0.5, 3.0])
def test_the_weighted_loss_and_its_gradients_are_those_of_the_printed_equation(sigma, temperature) -> None:
    scores = unit_scores(temperature)
    assert_is_twin(DecoupledWeighted(sigma), lambda given: twin(given, sigma, temperature), scores)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_without_weights_it_is_info_nce_without_its_positive_below(temperature: float) -> None:
    scores = unit_scores(temperature)

    def unweighted(given: Scores) -> Tensor:
        losses = [row.exp().sum().log() - own for own, row in zip(given.own, given.negatives, strict=True)]
        return torch.stack(losses).mean()

    assert_is_twin(DCL, unweighted, scores)
    flat = DecoupledWeighted(1e9)  # so wide that all weights are 1
    torch.testing.assert_close(flat.reduce(flat(scores)), DCL(scores).mean())


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_proposition_1_the_gradient_of_info_nce_is_that_of_dcl_times_the_coupling(temperature: float) -> None:
    """The multiplier is one minus the positive's share of the denominator, the same for every embedding."""
    scores = unit_scores(temperature)
    own, others = scores.own.requires_grad_(), scores.negatives.requires_grad_()
    coupling = 1 - own.exp() / (own.exp() + others.exp().sum(1))
    coupled = torch.autograd.grad(InfoNCE()(scores).sum(), (own, others))
    decoupled = torch.autograd.grad(DCL(scores).sum(), (own, others))
    torch.testing.assert_close(coupled[0], coupling * decoupled[0])
    torch.testing.assert_close(coupled[1], coupling[:, None] * decoupled[1])


def test_a_sharp_weight_does_not_overflow_and_absent_negatives_do_not_count() -> None:
    scores = unit_scores(1.0)
    single = Scores(scores.own.float(), scores.negatives.float(), highest=1.0)
    sharp = DecoupledWeighted(1e-3)
    assert math.isfinite(sharp.reduce(sharp(single)))
    assert_absent_negatives_do_not_count(DecoupledWeighted(0.5))


def test_the_weights_of_a_batch_have_mean_one() -> None:
    """Queries that agree with their positives alike have the loss of DCL."""
    others = unit_scores(0.1).negatives
    alike = Scores(torch.full((8,), 7.0, dtype=torch.float64), others, highest=10.0)
    weighted = DecoupledWeighted()
    torch.testing.assert_close(weighted.reduce(weighted(alike)), DCL(alike).mean())


def test_two_views_give_the_loss_of_the_recipe() -> None:
    z1, z2 = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    z = torch.nn.functional.normalize(torch.cat([z1, z2]), dim=1)
    logits = z @ z.T / 0.1
    own = torch.stack([logits[k, (k + 6) % 12] for k in range(12)])
    others = torch.stack([torch.stack([logits[k, j] for j in range(12) if (j - k) % 6]) for k in range(12)])
    for objective in (DCL, DecoupledWeighted()):
        expected = objective.reduce(objective(Scores(own, others, highest=10.0)))
        torch.testing.assert_close(objectives.from_views(z1, z2, objective, temperature=0.1), expected)


@pytest.mark.parametrize("sigma", [0.0, -1, math.nan, True, "0.5", None])
def test_a_sigma_outside_its_range_is_refused(sigma: object) -> None:
    with pytest.raises(ArgumentError, match="^sigma=.*: expected a positive number"):
        DecoupledWeighted(sigma)  # type: ignore[arg-type]


def test_what_it_needs_is_refused_by_name() -> None:
    dclw = methods.get("decoupled/dclw")
    with pytest.raises(NotApplicableError, match=r"DecoupledWeighted\(sigma=0.5\) weighs one positive key"):
        replace(dclw, name="x/near", positives=positives.Neighbours())
    scores = unit_scores(0.5)
    with pytest.raises(ArgumentError, match="^highest=None: expected 1/τ with DecoupledWeighted"):
        DecoupledWeighted()(Scores(scores.own, scores.negatives))
