"""SogCLR against loops in float64: batches of any size give the gradient of the whole set; averages are kept."""

import math
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from contrastlab import methods, positives
from contrastlab.negatives import BatchRandom
from contrastlab.objectives import Context, InfoNCE, Objective, Scores, from_views
from contrastlab.papers.sogclr.objective import Averages, SogCLR
from contrastlab.settings import Settings
from contrastlab.support.errors import ArgumentError, NotApplicableError
from contrastlab.train import pretrain
from contrastlab.train.learner import Learner
from made_runs import quiet
from made_scores import TEMPERATURES, assert_absent_negatives_do_not_count, assert_is_twin, unit_scores

RECIPE = methods.get("sogclr/sogclr")


def global_twin(scores: Scores) -> Tensor:
    """One query after the other: the logarithm of the mean of the exponentials, less the positive."""
    losses = []
    for own, row in zip(scores.own, scores.negatives, strict=True):
        total = torch.zeros((), dtype=row.dtype)
        for score in row:
            total = total + score.exp()
        losses.append((total / len(row)).log() - own)
    return torch.stack(losses).mean()


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_a_batch_alone_has_the_loss_of_the_definition(temperature: float) -> None:
    scores = unit_scores(temperature)
    assert_is_twin(SogCLR(), global_twin, scores)
    without = InfoNCE(positive_in_denominator=False)(scores)
    torch.testing.assert_close(SogCLR()(scores), without - math.log(scores.size))
    with_averages = SogCLR(1.0)(scores, Context(module=Averages(8), items=torch.arange(8)))
    torch.testing.assert_close(with_averages, SogCLR()(scores))


def test_absent_negatives_have_no_part_in_the_loss() -> None:
    assert_absent_negatives_do_not_count(SogCLR())
    averages = Averages(3)
    scores = Scores(torch.ones(3), torch.tensor([[-1e30, -1e30], [0.0, -1e30], [0.0, 0.0]]))
    losses = SogCLR(0.5)(scores, Context(module=averages, items=torch.arange(3)))
    assert losses.tolist() == [0.0, -1.0, -1.0]
    assert averages.values[0].isnan().tolist() == [True, False, False]


# what the averages hold


def test_averages_are_those_of_a_loop_with_doubles_and_directions() -> None:
    averages = Averages(5, 2)
    draws = torch.Generator().manual_seed(0)
    expected: dict[tuple[int, int], float] = {}
    for step in range(12):
        direction = step % 2
        items = torch.randint(5, (6,), generator=draws)
        means = torch.rand(6, generator=draws, dtype=torch.float64) + 0.1
        got = averages(items, means, 0.3, direction)
        for item in set(items.tolist()):
            own = [mean for number, mean in zip(items.tolist(), means.tolist(), strict=True) if number == item]
            fresh = sum(own) / len(own)
            old = expected.get((direction, item))
            expected[direction, item] = fresh if old is None else 0.7 * old + 0.3 * fresh
        assert got.tolist() == pytest.approx([expected[direction, item] for item in items.tolist()], rel=1e-12)
    for (direction, item), value in expected.items():
        assert float(averages.values[direction, item]) == pytest.approx(value, rel=1e-12)


def unit_rows(count: int, seed: int) -> Tensor:
    draws = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(count, 4, dtype=torch.float64, generator=draws), dim=1)


def gradient(objective: Objective, z: Tensor, keys: Tensor, batch: Tensor, context: Context) -> Tensor:
    """Of the mean loss of the items of a batch against each other, in the queries ``[N, d]`` of all items."""
    q = z.clone().requires_grad_()
    logits = q[batch] @ keys[batch].T / 0.2
    others = ~torch.eye(len(batch), dtype=torch.bool)
    negatives = logits[others].view(len(batch), -1)
    loss = objective(Scores(logits.diagonal(), negatives), replace(context, items=batch)).mean()
    (slope,) = torch.autograd.grad(loss, q)
    return slope


WHOLE_SET = InfoNCE(positive_in_denominator=False)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_with_the_averages_of_the_whole_set_small_batches_have_its_gradient_and_alone_they_do_not(size: int) -> None:
    """Exactly: the mean over all batches of a size, in which each item meets each other one equally often."""
    count = 6
    z, keys = unit_rows(count, 0), unit_rows(count, 1)
    whole = gradient(WHOLE_SET, z, keys, torch.arange(count), Context())
    scores = (z @ keys.T / 0.2).exp()
    averages = Averages(count)
    averages.values[0] = (scores.sum(1) - scores.diagonal()) / (count - 1)
    batches = [torch.tensor(each) for each in combinations(range(count), size)]
    with_averages, alone = torch.zeros_like(z), torch.zeros_like(z)
    for batch in batches:
        with_averages += gradient(SogCLR(1e-12), z, keys, batch, Context(module=averages)) / len(batches)
        alone += gradient(SogCLR(), z, keys, batch, Context()) / len(batches)
    torch.testing.assert_close(with_averages, whole, rtol=1e-8, atol=1e-10)
    if size == 2:  # one negative: its weight is 1 whatever it is
        assert (alone - whole).norm() > 0.3 * whole.norm()
    assert (alone - whole).norm() > 1e-3 * whole.norm()


def test_the_averages_of_small_batches_come_to_those_of_the_whole_set() -> None:
    count, size = 24, 4
    z, keys = unit_rows(count, 2), unit_rows(count, 3)
    whole = gradient(WHOLE_SET, z, keys, torch.arange(count), Context())
    scores = (z @ keys.T / 0.2).exp()
    exact = (scores.sum(1) - scores.diagonal()) / (count - 1)
    averages = Averages(count)
    draws = torch.Generator().manual_seed(4)
    kept, alone = torch.zeros_like(z), torch.zeros_like(z)
    steps, early = 1600, 400
    for step in range(steps):
        batch = torch.randperm(count, generator=draws)[:size]
        slope = gradient(SogCLR(0.02), z, keys, batch, Context(module=averages))
        if step >= early:
            kept += slope / (steps - early)
            alone += gradient(SogCLR(), z, keys, batch, Context()) / (steps - early)
    torch.testing.assert_close(averages.values[0], exact, rtol=0.5, atol=0)
    assert float((averages.values[0] / exact).log().mean().abs()) < 0.1
    biased = float((alone - whole).norm() / whole.norm())
    assert float((kept - whole).norm() / whole.norm()) < 0.5 * biased
    assert biased > 0.2


# in a loop of one's own, and in a run


def test_the_loss_of_two_views_takes_the_numbers_of_the_items() -> None:
    z1, z2 = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    averages = Averages(10)
    items = torch.tensor([7, 2, 9, 0])
    first = from_views(z1, z2, SogCLR(0.5), temperature=0.5, module=averages, items=items)
    assert first.isfinite()
    assert averages.values[0].isfinite().nonzero().flatten().tolist() == [0, 2, 7, 9]
    before = averages.values.clone()
    with torch.no_grad():
        from_views(z2.flip(0), z1, SogCLR(0.5), temperature=0.5, module=averages, items=items)
    assert not torch.equal(averages.values[0, items], before[0, items])
    with pytest.raises(ArgumentError, match="^items=None: expected the numbers of the queries' items"):
        from_views(z1, z2, SogCLR(), module=averages)
    with pytest.raises(ArgumentError, match=r"^items=\(3,\): expected None, or integers of shape \[4\], the number"):
        from_views(z1, z2, SogCLR(), module=averages, items=items[:3])
    with pytest.raises(ArgumentError, match=r"^items=\(0, 10\): expected numbers from 0 to 9"):
        from_views(z1, z2, SogCLR(), module=averages, items=torch.tensor([0, 1, 2, 10]))
    with pytest.raises(ArgumentError, match="^module=.*: expected None, or a Averages with SogCLR"):
        from_views(z1, z2, SogCLR(), module=torch.nn.Linear(2, 2), items=items)


def test_the_learner_hands_over_the_items_of_each_direction() -> None:
    settings = Settings(image_size=16, arch="tiny", stem="cifar", dim=8, batch_size=8)
    learner = Learner(RECIPE, settings, images=12, classes=2, seed=0).eval()
    draws = torch.Generator().manual_seed(0)
    views = tuple(torch.rand(4, 3, 16, 16, generator=draws) for _ in range(2))
    items = torch.tensor([11, 3, 0, 6])
    learner.loss(views, items, items, BatchRandom(draws, 0, 4), 0, 1)
    values = learner.network.objective_module.values
    assert values.shape == (2, 12)
    for direction in range(2):
        assert values[direction].isfinite().nonzero().flatten().tolist() == [0, 3, 6, 11]
    with torch.no_grad():
        q, k = (learner.network.encoders[0](view).double() for view in views)
    for row, item in enumerate(items.tolist()):
        others = [float(q[row] @ other / 0.1) for n in range(4) if n != row for other in (q[n], k[n])]
        expected = sum(math.exp(score) for score in others) / len(others)
        assert float(values[0, item]) == pytest.approx(expected, rel=1e-4)


def test_a_run_goes_on_with_its_averages(tmp_path: Path, pictures, tiny, monkeypatch) -> None:
    settings = tiny.override(epochs=2, batch_size=16)
    learners: list[Learner] = []
    make = Learner.__init__

    def kept(self: Learner, *arguments, **options) -> None:
        make(self, *arguments, **options)
        learners.append(self)

    monkeypatch.setattr(Learner, "__init__", kept)
    pretrain(RECIPE, settings, pictures(32), log=quiet)
    with pytest.raises(KeyboardInterrupt):
        pretrain(RECIPE, settings, pictures(32), folder=tmp_path, max_minutes=0, log=quiet)
    pretrain(RECIPE, settings, pictures(32), folder=tmp_path, log=quiet)
    whole, stopped, resumed = (learner.network.objective_module.values for learner in learners)
    assert int(stopped.isnan().sum()) == 32
    assert bool(whole.isfinite().all())
    assert torch.equal(whole, resumed)


def test_what_cannot_be_is_refused() -> None:
    for rate in (0.0, 1.5, math.nan):
        with pytest.raises(ArgumentError, match="^rate=.*: expected a number above 0, at most 1"):
            SogCLR(rate)
    with pytest.raises(NotApplicableError, match=r"SogCLR\(rate=0.9\) knows one positive key of each item"):
        replace(RECIPE, name="x/near", positives=positives.Neighbours())
    assert not RECIPE.bounds_information
