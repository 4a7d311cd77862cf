"""Known false negatives: a mask of pairs, or a label, takes keys out of the denominators and their gradients."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from contrastlab import methods, objectives
from contrastlab.negatives import BatchRandom, Every, OtherLabel
from contrastlab.papers.barlow.objective import BarlowTwins
from contrastlab.scores.candidates import Candidates
from contrastlab.settings import Settings
from contrastlab.support.errors import ArgumentError, NotApplicableError
from contrastlab.train.learner import Learner
from made_scores import TEMPERATURES

LABELS = torch.tensor([0, 1, 0, 2, 1, 0])
SAME = LABELS[:, None] == LABELS


def views() -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(2)
    z1, z2 = torch.randn(2, 6, 4, dtype=torch.float64, generator=draws)
    return z1.requires_grad_(), z2.requires_grad_()


def twin(z1: Tensor, z2: Tensor, spared: Tensor, temperature: float) -> Tensor:
    """InfoNCE of each of both views of an item against both views of all items that are not spared."""
    rows = [row / row.norm() for row in (*z1, *z2)]
    count = len(z1)
    losses = []
    for query in range(2 * count):
        own = (query + count) % (2 * count)
        terms = [rows[query] @ rows[own] / temperature]
        for other in range(2 * count):
            if other % count != query % count and not spared[query % count, other % count]:
                terms.append(rows[query] @ rows[other] / temperature)
        losses.append(torch.logsumexp(torch.stack(terms), 0) - terms[0])
    return torch.stack(losses).mean()


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_spared_pairs_are_no_negatives_and_have_no_gradient(temperature: float) -> None:
    z1, z2 = views()
    loss = objectives.from_views(z1, z2, temperature=temperature, spared=SAME)
    expected = twin(z1, z2, SAME, temperature)
    torch.testing.assert_close(loss, expected)
    slopes = torch.autograd.grad(loss, (z1, z2))
    torch.testing.assert_close(slopes, torch.autograd.grad(expected, (z1, z2)))
    none = torch.zeros(6, 6, dtype=torch.bool)
    plain = objectives.from_views(z1, z2, temperature=temperature)
    assert objectives.from_views(z1, z2, temperature=temperature, spared=none).item() == plain.item()
    assert loss < plain


def test_negatives_of_another_label_are_those_of_a_loop() -> None:
    labels = torch.tensor([0, 1, -1, 0, 2, -1])
    logits = torch.arange(12.0).view(2, 6)
    pool = Candidates(logits, torch.tensor([0, 2]), labels[:, None])
    chosen = OtherLabel().select(pool, BatchRandom(torch.Generator()), 0, 1)
    kept = (chosen.gather(logits.clone()) > objectives.ABSENT / 2).tolist()
    assert kept == [[False, True, True, False, True, True], [True, True, False, True, True, True]]


def test_the_learner_has_the_loss_of_the_mask() -> None:
    recipe = replace(methods.get("decoupled/simclr"), name="x/other", negatives=OtherLabel())
    settings = Settings(image_size=16, arch="tiny", stem="cifar", dim=8, batch_size=6)
    learner = Learner(recipe, settings, images=6, classes=3, seed=0).eval()
    draws = torch.Generator().manual_seed(0)
    pictures = tuple(torch.rand(6, 3, 16, 16, generator=draws) for _ in range(2))
    loss = learner.loss(pictures, torch.arange(6), LABELS, BatchRandom(draws, 0, 6), 0, 1).loss
    with torch.no_grad():
        z1, z2 = (F.normalize(learner.network.encoders[0](view), dim=1) for view in pictures)
    spared = objectives.from_views(z1, z2, temperature=recipe.temperature, spared=SAME)
    torch.testing.assert_close(loss.detach(), spared)


def test_a_query_without_negatives_costs_nothing() -> None:
    z1, z2 = views()
    loss = objectives.from_views(z1, z2, spared=torch.ones(6, 6, dtype=torch.bool))
    assert loss.item() == 0
    assert not any(bool(slope.any()) for slope in torch.autograd.grad(loss, (z1, z2)))


def test_what_cannot_be_is_refused() -> None:
    z1, z2 = views()
    for spared in (torch.zeros(6, 5, dtype=torch.bool), torch.zeros(6, 6), [[True]]):
        with pytest.raises(ArgumentError, match=r"^spared=.*: expected None, or booleans of shape \[6, 6\]"):
            objectives.from_views(z1, z2, spared=spared)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"^spared=.*: expected None with BarlowTwins"):
        objectives.from_views(z1, z2, BarlowTwins(), spared=SAME)
    with pytest.raises(NotApplicableError, match=r"OtherLabel\(\) reads the classes of the keys, which a batch has"):
        replace(methods.get("ring/moco"), name="x/other", negatives=OtherLabel())
    assert not replace(methods.get("decoupled/simclr"), name="x/o", negatives=OtherLabel()).bounds_information
    assert replace(methods.get("decoupled/simclr"), name="x/e", negatives=Every()).bounds_information
    assert math.isfinite(objectives.from_views(z1, z2, spared=SAME, labels=LABELS).item())
