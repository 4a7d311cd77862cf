"""The debiased loss against a loop in float64, and what its docstring promises."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch.nn import functional as F

from contrastlab import methods, objectives, positives
from contrastlab.objectives import Scores
from contrastlab.papers.debiased.objective import Debiased
from contrastlab.support.errors import ArgumentError, NotApplicableError

TEMPERATURES = [1.0, 0.07, 0.01]


def logits(temperature: float, queries: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    """Positive and negative logits of unit vectors, in float64."""
    generator = torch.Generator().manual_seed(3)
    draws = torch.randn(3, queries, 5, dtype=torch.float64, generator=generator)
    q, k, others = F.normalize(draws, dim=2)
    return (q * k).sum(1) / temperature, q @ others.T / temperature


def twin(own: torch.Tensor, others: torch.Tensor, prior: float, temperature: float) -> torch.Tensor:
    """One query after the other, as Eq. 8 is printed."""
    losses = []
    for s, row in zip(own, others, strict=True):
        mean = row.exp().mean()
        rest = torch.clamp((mean - prior * s.exp()) / (1 - prior), min=math.exp(-1 / temperature))
        losses.append((s.exp() + len(row) * rest).log() - s)
    return torch.stack(losses)


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("prior", [0.0, 0.01, 0.3, 0.9])
def test_the_loss_and_its_gradients_are_those_of_the_printed_equation(prior: float, temperature: float) -> None:
    own, others = (values.requires_grad_() for values in logits(temperature))
    expected = twin(own, others, prior, temperature)
    expected_slopes = torch.autograd.grad(expected.sum(), (own, others))
    loss = Debiased(prior)(Scores(own, others, highest=1 / temperature))
    slopes = torch.autograd.grad(loss.sum(), (own, others))
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(slopes, expected_slopes)
    single = Debiased(prior)(Scores(own.float(), others.float(), highest=1 / temperature))
    torch.testing.assert_close(single.double(), expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_without_a_prior_it_is_info_nce(temperature: float) -> None:
    own, others = logits(temperature)
    loss = Debiased(0.0)(Scores(own, others, highest=1 / temperature))
    torch.testing.assert_close(loss, objectives.info_nce(own, others))
    near = Debiased(1e-12)(Scores(own, others, highest=1 / temperature))
    torch.testing.assert_close(near, loss, rtol=1e-5, atol=1e-5)


def test_a_larger_prior_lowers_the_loss_down_to_the_floor() -> None:
    own, others = logits(0.5)
    losses = [Debiased(prior)(Scores(own, others, highest=2.0)) for prior in (0.0, 0.1, 0.2, 0.999)]
    floor = torch.logaddexp(own, torch.full_like(own, -2.0) + math.log(others.shape[1])) - own
    own_is_closest = own > torch.logsumexp(others, 1) - math.log(others.shape[1])
    assert own_is_closest.any()
    for high, low in pairwise(losses):
        assert bool((low <= high)[own_is_closest].all())
    torch.testing.assert_close(losses[-1][own_is_closest], floor[own_is_closest])


def test_absent_negatives_do_not_count_and_gradients_stay_finite() -> None:
    own = torch.tensor([0.5, 9.0, 100.0], requires_grad=True)
    others = torch.randn(3, 7, generator=torch.Generator().manual_seed(0), requires_grad=True)
    absent = torch.zeros(3, 7, dtype=torch.bool)
    absent[0] = True  # a query without any
    absent[1, 4:] = True
    scores = Scores(own, others.masked_fill(absent, objectives.ABSENT), highest=100.0)
    loss = Debiased(0.1)(scores)
    assert loss[0] == 0
    fewer = Scores(own[1:2], others[1:2, :4], highest=100.0)
    torch.testing.assert_close(loss[1:2], Debiased(0.1)(fewer))
    for gradient in torch.autograd.grad(loss.sum(), (own, others)):
        assert bool(gradient.isfinite().all())
        assert not gradient[0].any()


@pytest.mark.parametrize("prior", [-0.1, 1.0, 2, math.nan, True, "0.1", None])
def test_a_prior_outside_its_range_is_refused(prior: object) -> None:
    with pytest.raises(ArgumentError, match="^prior=.*: expected a number from 0 to below 1"):
        Debiased(prior)  # type: ignore[arg-type]


def test_what_it_needs_is_refused_by_name() -> None:
    debiased = methods.get("debiased/debiased")
    with pytest.raises(NotApplicableError, match=r"Debiased\(prior=0.1\) corrects by one positive key"):
        replace(debiased, name="x/near", positives=positives.Neighbours())
    own, others = logits(0.5)
    with pytest.raises(ArgumentError, match="^highest=None: expected 1/τ with Debiased"):
        Debiased()(Scores(own, others))
