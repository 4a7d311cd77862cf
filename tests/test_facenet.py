"""FaceNet's triplet loss against a loop in float64, and its semi-hard negatives against a set."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from contrastlab import methods, objectives, positives
from contrastlab.negatives import BatchRandom, Every
from contrastlab.objectives import ABSENT, Scores
from contrastlab.papers.facenet.parts import SemiHard, Triplet
from contrastlab.scores.candidates import Candidates, Stored, checked
from contrastlab.settings import Settings
from contrastlab.support.errors import ArgumentError, NotApplicableError
from contrastlab.train.learner import Learner
from made_scores import TEMPERATURES, assert_absent_negatives_do_not_count, assert_is_twin, unit_scores

DRAWS = BatchRandom(torch.Generator())


def twin(scores: Scores, margin: float, temperature: float) -> Tensor:
    """One triplet after the other, by squared distances of unit vectors."""
    losses = []
    for own, row in zip(scores.own, scores.negatives, strict=True):
        to_positive = 2 - 2 * own * temperature
        terms = [torch.relu(to_positive - (2 - 2 * s * temperature) + margin) for s in row]
        losses.append(torch.stack(terms).mean())
    return torch.stack(losses).mean()


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("margin", [0.2, 3.0])
def test_the_loss_and_its_gradients_are_those_of_the_printed_equation(margin, temperature) -> None:
    assert_is_twin(Triplet(margin), lambda given: twin(given, margin, temperature), unit_scores(temperature))


def test_the_temperature_has_no_part_in_the_loss_and_absent_negatives_do_not_count() -> None:
    z1, z2 = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    losses = [objectives.from_views(z1, z2, Triplet(), temperature=t) for t in TEMPERATURES]
    torch.testing.assert_close(losses[0], losses[1])
    torch.testing.assert_close(losses[0], losses[2])
    assert_absent_negatives_do_not_count(Triplet(0.5))


def pool(stored: bool) -> Candidates | Stored:
    """Four queries against 30 keys, with own rows, a banned one, and the scores of their positives."""
    rng = torch.Generator().manual_seed(4)
    queries, rows = (F.normalize(torch.randn(n, 5, generator=rng), dim=1) for n in (4, 30))
    own, banned = torch.tensor([3, 0, 29, 7]), torch.tensor([[1], [2], [5], [9]])
    positive = torch.tensor([0.3, -2.0, 2.0, 0.0])
    if stored:
        return Stored(queries, rows, own, None, banned, positive=positive)
    return Candidates(queries @ rows.T, own, None, banned, positive)


@pytest.mark.parametrize("stored", [False, True])
def test_semi_hard_negatives_are_the_other_keys_below_the_positive(stored: bool) -> None:
    candidates = pool(stored)
    assert candidates.positive is not None
    chosen = checked(SemiHard(), SemiHard().select(candidates, DRAWS, 0, 1), candidates.shape)
    values = candidates.read(chosen)
    for query, row in enumerate(values.tolist()):
        scores = candidates.logits[query].tolist()
        out = {int(candidates.own[query]), int(candidates.banned[query, 0])}  # type: ignore[index]
        expected = {k for k, s in enumerate(scores) if k not in out and s < float(candidates.positive[query])}
        assert {k for k, s in enumerate(row) if s > ABSENT / 2} == expected
        assert all(row[k] == pytest.approx(scores[k]) for k in expected)
    assert (values > ABSENT / 2).sum(1).tolist()[1:3] == [0, 28]


def test_the_learner_and_a_queue_hand_over_the_score_of_the_positive() -> None:
    rng = torch.Generator().manual_seed(2)
    z1, z2 = F.normalize(torch.randn(2, 6, 4, generator=rng), dim=2)
    z = torch.cat([z1, z2]).double()
    losses = []
    for i in range(12):
        own = float(z[i] @ z[(i + 6) % 12])
        others = [float(z[i] @ z[j]) for j in range(12) if (j - i) % 6]
        terms = [max(0.0, 2 * (s - own) + 0.2) for s in others if s < own]
        losses.append(sum(terms) / max(len(terms), 1))
    recipe, identity = methods.get("facenet/semi_hard"), torch.nn.ModuleList([torch.nn.Identity()])
    learner = Learner(recipe, Settings(dim=4), images=6, classes=1, seed=0, encoders=identity)
    done = learner.loss((z1.requires_grad_(), z2), torch.arange(6), torch.zeros(6), DRAWS, 0, 1)
    assert done.loss.item() == pytest.approx(sum(losses) / 12, rel=1e-5)

    queue = F.normalize(torch.randn(9, 4, generator=rng), dim=1)
    loss = objectives.from_queue(z1.detach(), z2, queue, SemiHard(), Triplet(), temperature=0.3)
    expected = []
    for q, k in zip(z1.detach().double(), z2.double(), strict=True):
        scores = [float(q @ key) for key in queue.double()]
        terms = [max(0.0, 2 * (s - float(q @ k)) + 0.2) for s in scores if s < float(q @ k)]
        expected.append(sum(terms) / max(len(terms), 1))
    assert loss.item() == pytest.approx(sum(expected) / 6, rel=1e-5)


@pytest.mark.parametrize("margin", [0.0, -1, math.nan, True, "0.2"])
def test_a_margin_outside_its_range_is_refused(margin: object) -> None:
    with pytest.raises(ArgumentError, match="^margin=.*: expected a positive number"):
        Triplet(margin)  # type: ignore[arg-type]


def test_what_they_need_is_refused_by_name() -> None:
    recipe = methods.get("facenet/semi_hard")
    with pytest.raises(NotApplicableError, match=r"Triplet\(margin=0.2\) has one positive key"):
        replace(recipe, name="x/near", negatives=Every(), positives=positives.Neighbours())
    jcl = methods.get("jcl/jcl")
    with pytest.raises(NotApplicableError, match=r"SemiHard\(\) compares keys with one positive key"):
        replace(jcl, name="x/joint", negatives=SemiHard())
    with pytest.raises(ArgumentError, match=r"^positive=None: expected scores \[3\] of one positive each"):
        SemiHard().select(Candidates(torch.zeros(3, 7)), DRAWS, 0, 1)
    with pytest.raises(ArgumentError, match=r"^positive=.*\[2\]\): expected a tensor of shape \[3\]"):
        Candidates(torch.zeros(3, 7), positive=torch.zeros(2))
