"""What tests of losses share: logits of unit vectors, and the comparison of a loss with its slow twin."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from contrastlab.objectives import Objective, Scores
from contrastlab.scores.logits import ABSENT

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
    own = highest * torch.rand(3, generator=draws, dtype=torch.float64)
    others = highest * torch.rand(3, 7, generator=draws, dtype=torch.float64)
    absent = torch.zeros(3, 7, dtype=torch.bool)
    absent[0] = True
    absent[1, 4:] = True
    others[absent] = ABSENT
    # slopes of what the loss reads: behind a masked_fill that of an absent score would be 0 whatever the loss did
    own.requires_grad_()
    others.requires_grad_()
    loss = objective.reduce(objective(Scores(own, others, highest=highest)))
    alone = objective.reduce(objective(Scores(own[1:], others[1:], highest=highest)))
    torch.testing.assert_close(3 * loss, 2 * alone)
    of_own, of_others = torch.autograd.grad(loss, (own, others))
    assert bool(of_own.isfinite().all())
    assert bool(of_others.isfinite().all())
    assert of_own[0] == 0
    assert not of_others[absent].any()
