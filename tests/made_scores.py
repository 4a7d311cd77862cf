"""What tests of losses share: logits of unit vectors, and the comparison of a loss with its slow twin."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from contrastlab.objectives import Objective, Scores

TEMPERATURES = [1.0, 0.07, 0.01]


def unit_scores(temperature: float, queries: int = 8, dim: int = 5) -> Scores:
    """Logits of unit vectors in float64: a positive and as many negatives as queries."""
    draws = torch.Generator().manual_seed(3)
    q, k, others = F.normalize(torch.randn(3, queries, dim, dtype=torch.float64, generator=draws), dim=2)
    return Scores((q * k).sum(1) / temperature, q @ others.T / temperature, highest=1 / temperature)


def assert_is_twin(objective: Objective, twin: Callable[[Scores], Tensor], scores: Scores) -> None:
    """The mean loss and its gradients are those of ``twin`` in float64; the loss in float32 is near."""
    own, others = scores.own.clone().requires_grad_(), scores.negatives.clone().requires_grad_()
    watched = replace(scores, own=own, negatives=others)
    expected = twin(watched)
    loss = objective.reduce(objective(watched))
    torch.testing.assert_close(loss, expected)
    of_twin = torch.autograd.grad(expected, (own, others))
    of_loss = torch.autograd.grad(loss, (own, others))
    torch.testing.assert_close(of_loss, of_twin)
    near = None if scores.neighbours is None else scores.neighbours.float()
    single = replace(scores, own=scores.own.float(), negatives=scores.negatives.float(), neighbours=near)
    rounded = objective.reduce(objective(single))
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded.double(), expected.detach(), rtol=2e-4, atol=2e-4)


def assert_absent_negatives_do_not_count(objective: Objective, *, highest: float = 1.0) -> None:
    """A query without negatives has loss and gradient 0; absent ones have no gradient, and others a finite one."""
    draws = torch.Generator().manual_seed(0)
    own = torch.rand(3, generator=draws, dtype=torch.float64).requires_grad_()
    others = torch.rand(3, 7, generator=draws, dtype=torch.float64).requires_grad_()
    absent = torch.zeros(3, 7, dtype=torch.bool)
    absent[0] = True
    absent[1, 4:] = True
    scores = Scores(own * highest, (others * highest).masked_fill(absent, -1e30), highest=highest)
    loss = objective.reduce(objective(scores))
    alone = Scores(own[1:] * highest, (others[1:] * highest).masked_fill(absent[1:], -1e30), highest=highest)
    torch.testing.assert_close(3 * loss, 2 * objective.reduce(objective(alone)))
    of_own, of_others = torch.autograd.grad(loss, (own, others))
    assert bool(of_own.isfinite().all())
    assert bool(of_others.isfinite().all())
    assert of_own[0] == 0
    assert not of_others[absent].any()
