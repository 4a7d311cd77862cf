"""Robust InfoNCE against a loop in float64, its two ends, and what its robustness rests on."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from contrastlab import methods, objectives, positives
from contrastlab.objectives import InfoNCE, Scores
from contrastlab.papers.rince.objective import RINCE
from contrastlab.support.errors import ArgumentError, NotApplicableError
from made_scores import TEMPERATURES, assert_absent_negatives_do_not_count, assert_is_twin, unit_scores


def twin(scores: Scores, q: float, density: float) -> Tensor:
    """One query after the other, as the equation is printed."""
    losses = []
    for s, row in zip(scores.own, scores.negatives, strict=True):
        together = density * (s.exp() + row.exp().sum())
        losses.append(-(s.exp() ** q) / q + together**q / q)
    return torch.stack(losses).mean()


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize(("q", "density"), [(0.01, 0.5), (0.1, 0.01), (0.5, 0.025), (1.0, 0.01)])
def test_the_loss_and_its_gradients_are_those_of_the_printed_equation(q, density, temperature) -> None:
    objective = RINCE(q, density)
    if q / temperature > 60:
        with pytest.raises(ArgumentError, match="^temperature=0.01: expected at least 0.01667 with RINCE"):
            objective.check(temperature)
        return
    objective.check(temperature)
    assert_is_twin(objective, lambda given: twin(given, q, density), unit_scores(temperature))


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_as_q_goes_to_0_it_is_info_nce_up_to_a_constant(temperature: float) -> None:
    scores = unit_scores(temperature)
    expected = InfoNCE()(scores) + math.log(0.1)
    differences = [float((RINCE(q, 0.1)(scores) - expected).abs().max()) for q in (1e-3, 1e-4, 1e-5)]
    assert differences[0] > differences[1] > differences[2]
    assert differences[2] < 1e-3 / temperature


def test_at_q_1_it_is_a_symmetric_loss_of_each_pair() -> None:
    """A pair costs ``−y e^s`` with label y: the costs of both labels sum to 0, so wrong labels scale the risk alone."""
    scores, density = unit_scores(0.5), 0.2

    def cost(s: Tensor, label: float) -> Tensor:
        return -label * s.exp()

    expected = (1 - density) * cost(scores.own, 1) + density * cost(scores.negatives, -1).sum(1)
    torch.testing.assert_close(RINCE(1.0, density)(scores), expected)
    assert not (cost(scores.own, 1) + cost(scores.own, -1)).any()


def test_pairs_that_agree_less_have_less_gradient_and_in_info_nce_more() -> None:
    """This is what makes it robust: at q = 1/2 the positive of a noisy pair pulls less than that of a clean one."""
    own = torch.tensor([-2.0, 0.0, 2.0], dtype=torch.float64, requires_grad=True)
    scores = Scores(own, torch.zeros(3, 6, dtype=torch.float64), highest=2.0)
    (robust,) = torch.autograd.grad(RINCE(0.5, 0.01)(scores).sum(), own)
    (plain,) = torch.autograd.grad(InfoNCE()(scores).sum(), own)
    assert bool((-robust).diff().gt(0).all())
    assert bool((-plain).diff().lt(0).all())


def test_absent_negatives_do_not_count_and_two_views_give_the_loss() -> None:
    assert_absent_negatives_do_not_count(RINCE(0.5, 0.2))
    z = torch.eye(4, dtype=torch.float64)
    expected = ((0.1 * (math.e + 6)) ** 0.5 - math.e**0.5) / 0.5
    assert objectives.from_views(z, z, RINCE(0.5, 0.1), temperature=1.0).item() == pytest.approx(expected)


@pytest.mark.parametrize("field", ["q", "density"])
@pytest.mark.parametrize("value", [0.0, 1e-300, 1.1, math.nan, True, "0.5", None])
def test_fields_outside_their_range_are_refused(field: str, value: object) -> None:
    with pytest.raises(ArgumentError, match=f"^{field}=.*: expected a number from 1e-30 to 1"):
        RINCE(**{field: value})  # type: ignore[arg-type]


def test_what_it_needs_is_refused_by_name() -> None:
    rince = methods.get("rince/rince")
    with pytest.raises(NotApplicableError, match=r"RINCE\(q=0.5, density=0.01\) has one positive key"):
        replace(rince, name="x/near", positives=positives.Neighbours())
    with pytest.raises(ArgumentError, match="^temperature=0.001: expected at least"):
        replace(rince, name="x/cold", temperature=0.001)
