"""Hard negatives by weight against a loop in float64; β = 0 is the debiased loss, β → ∞ the worst case."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from contrastlab import methods, positives
from contrastlab.objectives import InfoNCE, Scores
from contrastlab.papers.debiased.objective import Debiased
from contrastlab.papers.hard.objective import HardWeighted
from contrastlab.support.errors import ArgumentError, NotApplicableError
from made_scores import TEMPERATURES, assert_absent_negatives_do_not_count, assert_is_twin, unit_scores


def twin(scores: Scores, prior: float, beta: float, temperature: float) -> Tensor:
    """One query after the other: weights that sum to K, the correction, its floor."""
    losses = []
    for s, row in zip(scores.own, scores.negatives, strict=True):
        weights = (beta * (row - row.max())).exp()
        mean = (weights * row.exp()).sum() / weights.sum()
        rest = torch.clamp((mean - prior * s.exp()) / (1 - prior), min=math.exp(-1 / temperature))
        losses.append((s.exp() + len(row) * rest).log() - s)
    return torch.stack(losses).mean()


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize(("prior", "beta"), [(0.0, 1.0), (0.1, 0.5), (0.1, 1.0), (0.3, 20.0)])
def test_the_loss_and_its_gradients_are_those_of_the_printed_equation(prior, beta, temperature) -> None:
    objective = HardWeighted(prior, beta)
    assert_is_twin(objective, lambda given: twin(given, prior, beta, temperature), unit_scores(temperature))


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_without_beta_it_is_the_debiased_loss_and_without_a_prior_too_info_nce(temperature: float) -> None:
    scores = unit_scores(temperature)
    for prior in (0.0, 0.1, 0.5):
        torch.testing.assert_close(HardWeighted(prior, 0.0)(scores), Debiased(prior)(scores))
    torch.testing.assert_close(HardWeighted(0.0, 0.0)(scores), InfoNCE()(scores))


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_as_beta_grows_the_loss_tends_to_the_worst_case_over_all_weights(temperature: float) -> None:
    scores = unit_scores(temperature)
    count = scores.negatives.shape[1]
    worst = torch.logaddexp(scores.own, scores.negatives.amax(1) + math.log(count)) - scores.own
    draws = torch.Generator().manual_seed(0)
    for _ in range(50):
        shares = torch.rand(scores.negatives.shape, generator=draws, dtype=torch.float64) ** 8
        shares = shares / shares.sum(1, keepdim=True)
        mean = torch.logsumexp(scores.negatives + shares.log(), 1)
        any_weights = torch.logaddexp(scores.own, mean + math.log(count)) - scores.own
        assert bool((any_weights <= worst).all())
    losses = [HardWeighted(0.0, beta)(scores) for beta in (0.0, 1.0, 10.0, 1e3, 1e6)]
    for less, more in pairwise(losses):
        assert bool((less <= more + 1e-12).all())
    torch.testing.assert_close(losses[-1], worst)
    assert bool((losses[1] < worst - 1e-3).any()) or temperature < 0.1


def test_a_large_beta_loses_no_digits_and_absent_negatives_do_not_count() -> None:
    scores = unit_scores(0.01)
    single = Scores(scores.own.float(), scores.negatives.float(), highest=100.0)
    loss = HardWeighted(0.1, 1e4)(single).double()
    torch.testing.assert_close(loss, HardWeighted(0.1, 1e4)(scores), rtol=1e-5, atol=1e-4)
    for beta in (0.0, 1.0, 100.0):
        assert_absent_negatives_do_not_count(HardWeighted(0.1, beta))


@pytest.mark.parametrize("beta", [-0.1, math.inf, math.nan, True, "1", None])
def test_a_beta_outside_its_range_is_refused(beta: object) -> None:
    with pytest.raises(ArgumentError, match="^beta=.*: expected a number from 0 to 1e6"):
        HardWeighted(0.1, beta)  # type: ignore[arg-type]


def test_what_it_needs_is_refused_by_name() -> None:
    with pytest.raises(NotApplicableError, match=r"HardWeighted\(prior=0.1, beta=1.0\) corrects by one positive key"):
        replace(methods.get("hard/hard"), name="x/near", positives=positives.Neighbours())
