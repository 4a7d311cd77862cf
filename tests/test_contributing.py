"""The exercises of CONTRIBUTING.md, run as they stand there: parts that exist nowhere else, and no other change."""

import copy
import math
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab import data, methods, negatives, objectives, positives, tables
from contrastlab.methods import Recipe
from contrastlab.negatives import BatchRandom
from contrastlab.objectives import Scores
from contrastlab.scores import candidates
from contrastlab.settings import Settings
from contrastlab.support.errors import ArgumentError, NotApplicableError
from contrastlab.train import pretrain
from contrastlab.train.learner import Learner
from made_runs import quiet
from made_scores import assert_absent_negatives_do_not_count, assert_is_twin, unit_scores

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"


@pytest.fixture(scope="module")
def page() -> Any:
    """A module made of the page's Python."""
    module = ModuleType("exercises")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "exercises", module)
        for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S):
            exec(compile(block, str(PAGE), "exec"), vars(module))
        yield module


def ring(page: Any) -> Recipe:
    return replace(methods.get("ring/iring"), name="x/momentum_bank", keys=page.MomentumBank(0.0, momentum=0.5))


def margin(page: Any) -> Recipe:
    return replace(methods.get("ring/simclr"), name="x/margin", objective=page.Margin(0.2))


def mixed(page: Any) -> Recipe:
    return replace(methods.get("ring/ir"), name="x/mixed", negatives=page.Mixed(50.0, k=16))


@pytest.mark.parametrize("make", [ring, margin, mixed])
def test_the_exercises_train_in_the_loop(make, page, pictures, tiny, tmp_path) -> None:
    recipe = make(page).override({"negatives.k": 16, "negatives.inner": 5})
    done, again = (
        pretrain(recipe, tiny, pictures(48), pictures(48), seed=1, folder=tmp_path, log=quiet) for _ in range(2)
    )
    assert [row["step"] for row in done.history] == [3, 6]
    assert all(math.isfinite(row["loss"]) for row in done.history)
    assert "mi_bound" not in done.history[-1]  # of no ring, no loss with a margin, and no part that does not say so
    assert again.history == done.history  # read back from its checkpoint
    assert type(recipe.keys).__name__ in recipe._repr_markdown_()


def test_a_backbone_of_ones_own_trains_by_its_name_and_is_hashed_by_its_options(page, pictures, tmp_path) -> None:
    own = page.settings.override(epochs=1, batch_size=16, image_size=16)
    recipe, images = methods.get("ring/iring").override(own.overrides), pictures(48)
    splits = data.Splits("own", images, images, images, "")
    runs = [tables.Run(recipe, own.override(arch_options={"width": w}), splits, 0, tmp_path) for w in (8, 48)]
    assert (
        len({run.hash for run in (*runs, replace(runs[0], settings=own.override(arch="tiny", arch_options={})))}) == 3
    )
    runs[0].train(log=quiet)
    (network,) = runs[0].encoders()
    assert (network.feature_dim, type(network.backbone)) == (8, page.Wide)
    assert tables.embed(runs[0].folder, images.items[:4], kind="pooled").shape == (4, 8)


class Layer(nn.Linear):
    """One linear layer, onto the sphere."""

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(super().forward(x), dim=1)


def test_the_bank_is_what_its_loop_says(page) -> None:
    torch.manual_seed(0)
    recipe = replace(ring(page), negatives=negatives.Every(), temperature=0.2)
    state = Learner(recipe, Settings(dim=4), images=9, classes=2, seed=0, encoders=nn.ModuleList([Layer(6, 4)]))
    rows = state.keys.stored(0).double()
    fast = copy.deepcopy(state.network.encoders[0]).double()
    slow = copy.deepcopy(fast)
    optimiser = torch.optim.SGD(state.network.parameters(), lr=0.3)
    for step in range(3):
        views, indices = torch.randn(4, 6), torch.randperm(9)[:4]
        # the twin: one query after the other
        for old, new in zip(slow.parameters(), fast.parameters(), strict=True):
            old.data = 0.5 * old.data + 0.5 * new.data
        loss = torch.zeros((), dtype=torch.float64)
        for q, own in zip(fast(views.double()), indices.tolist(), strict=True):
            scores = torch.stack([q @ row for row in rows]) / 0.2
            loss = loss - (scores[own] - torch.logsumexp(scores, 0)) / 4
        gradients = torch.autograd.grad(loss, list(fast.parameters()))
        for parameter, gradient in zip(fast.parameters(), gradients, strict=True):
            parameter.data -= 0.3 * gradient
        rows = rows.clone()
        for key, own in zip(slow(views.double()).detach(), indices.tolist(), strict=True):
            rows[own] = key
        # the same with the part
        done = state.loss((views,), indices, indices, BatchRandom(torch.Generator()), step, 3)
        optimiser.zero_grad()
        done.loss.backward()
        optimiser.step()
        state.commit(indices, done)
        assert done.loss.item() == pytest.approx(loss.item(), rel=1e-5)
        torch.testing.assert_close(state.keys.stored(0).double(), rows, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(slow.weight, fast.weight)
    assert any(name.startswith("keys.slow.") for name in state.state_dict())


@pytest.mark.parametrize("temperature", [1.0, 0.07, 0.01])
@pytest.mark.parametrize("wanted", [0.01, 0.5])
def test_the_objective_is_its_equation(wanted: float, temperature: float, page) -> None:
    scores = unit_scores(temperature)

    def twin(given: Scores) -> Tensor:
        losses = []
        for own, row in zip(given.own, given.negatives, strict=True):
            lowered = (own - wanted / temperature).exp()
            losses.append(-(lowered / (lowered + row.exp().sum())).log())
        return torch.stack(losses).mean()

    assert_is_twin(page.Margin(wanted), twin, scores)


def test_the_objective_at_its_edges(page) -> None:
    scores = unit_scores(0.1)
    torch.testing.assert_close(page.Margin(1e-12)(scores), objectives.info_nce(scores.own, scores.negatives))
    assert_absent_negatives_do_not_count(page.Margin(0.2))
    views = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
    assert objectives.from_views(*views, page.Margin(0.2)) > objectives.from_views(*views)
    with pytest.raises(ArgumentError, match="^margin=0: expected a positive number"):
        page.Margin(0)


def test_mixed_negatives_are_half_of_the_closest_and_never_the_own_key(page) -> None:
    scores, own = torch.randn(6, 40, generator=torch.Generator().manual_seed(0)), torch.arange(6)
    pool = candidates.Candidates(scores, own)
    chosen = page.Mixed(10.0, k=900).select(pool, BatchRandom(torch.Generator().manual_seed(1)), 0, 1)
    assert candidates.checked(page.Mixed(), chosen, pool.shape) is chosen
    for query, row in enumerate(chosen.indices.tolist()):
        others = sorted(set(range(40)) - {query}, key=lambda key: -float(scores[query, key]))
        assert set(row[:900]) == set(others[:3])  # 10 % of 39 keys, whole ones
        assert set(row[900:]) == set(others)
    with pytest.raises(ArgumentError, match="^k=0: expected"):
        page.Mixed(k=0)


def test_what_the_parts_need_is_refused_by_the_recipe(page) -> None:
    with pytest.raises(NotApplicableError, match=r"Margin\(margin=0.2\) lowers the score of one positive key"):
        replace(margin(page), positives=positives.Neighbours())
    with pytest.raises(NotApplicableError, match=r"MomentumBank.* needs one view"):
        replace(ring(page), views=methods.get("ring/moco").views)
    cave = replace(ring(page), negatives=negatives.Cave())  # it offers what a bank offers
    assert cave.k_means == (300, 10)
