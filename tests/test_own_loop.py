"""A queue of keys in a loop of one's own: the loss, its gradient, and a run that learns."""

import copy
import math
import re
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab import keys, negatives, objectives
from contrastlab.scores import schedules
from contrastlab.support.errors import ArgumentError


def queue_case(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Queries and positives ``[6, 5]`` of any length, and a queue ``[40, 5]`` of unit keys."""
    rng = torch.Generator().manual_seed(3)
    queries, positives = torch.randn(2, 6, 5, generator=rng, dtype=torch.float64)
    queue = F.normalize(torch.randn(40, 5, generator=rng, dtype=torch.float64), dim=1)
    return queries.to(dtype), positives.to(dtype), queue.to(dtype)


def queue_twin(queries: Tensor, positives: Tensor, queue: Tensor, ranks: slice, temperature: float) -> float:
    """Mean InfoNCE (nats) against the keys of some ranks, the closest first, one query at a time."""
    losses = []
    for query, positive in zip(queries, positives, strict=True):
        q = (query / query.norm()).tolist()
        k = (positive / positive.norm()).tolist()
        own = sum(a * b for a, b in zip(q, k, strict=True)) / temperature
        scores = [sum(a * b for a, b in zip(q, key, strict=True)) / temperature for key in queue.tolist()]
        terms = [own, *sorted(scores, reverse=True)[ranks]]
        losses.append(math.log(sum(math.exp(term) for term in terms)) - own)
    return sum(losses) / len(losses)


@pytest.mark.parametrize(
    ("part", "ranks"),
    [
        (None, slice(None)),
        (negatives.Every(), slice(None)),
        (negatives.Ring(inner=10, outer=50, k=None), slice(4, 20)),
        (negatives.Ball(outer=25, k=None), slice(0, 10)),
    ],
)
def test_from_queue_is_the_loss_of_each_query_against_the_chosen_keys(
    part: negatives.Negatives | None, ranks: slice
) -> None:
    queries, positives, queue = queue_case()
    loss = objectives.from_queue(queries, positives, queue, part, temperature=0.3)
    assert loss.shape == ()
    assert loss.item() == pytest.approx(queue_twin(queries, positives, queue, ranks, 0.3), rel=1e-12)
    single = objectives.from_queue(queries.float(), positives.float(), queue.float(), part, temperature=0.3)
    assert single.dtype == torch.float32
    assert single.item() == pytest.approx(loss.item(), rel=1e-5)


def test_from_queue_draws_from_its_generator_and_shrinks_a_region_with_the_run() -> None:
    queries, positives, queue = queue_case()
    drawn = [
        objectives.from_queue(
            queries, positives, queue, negatives.Uniform(k=4), generator=torch.Generator().manual_seed(seed)
        ).item()
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    for _ in range(2):
        torch.manual_seed(5)
        drawn.append(objectives.from_queue(queries, positives, queue, negatives.Uniform(k=4)).item())
    drawn.append(objectives.from_queue(queries, positives, queue, negatives.Uniform(k=4)).item())
    assert drawn[3] == drawn[4] != drawn[5]
    shrinking = negatives.Ball(outer=schedules.Linear(100, 25), k=None)
    for step, ranks in ((0, slice(None)), (9, slice(0, 10))):
        loss = objectives.from_queue(queries, positives, queue, shrinking, temperature=0.3, step=step, total=10)
        assert loss.item() == pytest.approx(queue_twin(queries, positives, queue, ranks, 0.3), rel=1e-12)


def test_from_queue_draws_anew_in_each_of_many_steps() -> None:
    queries, positives, queue = queue_case()
    torch.manual_seed(0)
    steps = 300
    losses = {objectives.from_queue(queries, positives, queue, negatives.Uniform(k=4)).item() for _ in range(steps)}
    assert len(losses) == steps


def test_from_queue_has_the_gradient_of_its_queries_and_positives_and_none_of_the_queue() -> None:
    queries, positives, queue = (each.requires_grad_() for each in queue_case())
    objectives.from_queue(queries, positives, queue, negatives.Ring(10, 50, k=None), temperature=0.3).backward()
    assert queue.grad is None
    step = 1e-6
    for leaf in (queries, positives):
        moved = torch.zeros_like(leaf)
        moved[2, 3] = step
        up, down = (
            objectives.from_queue(
                *(each.detach() + sign * moved * (each is leaf) for each in (queries, positives)),
                queue.detach(),
                negatives.Ring(10, 50, k=None),
                temperature=0.3,
            ).item()
            for sign in (1, -1)
        )
        assert leaf.grad is not None
        assert leaf.grad[2, 3].item() == pytest.approx((up - down) / (2 * step), rel=1e-5)


def test_a_run_with_a_queue_of_one_s_own_learns() -> None:
    """The loop that the library's reference shows; what the views do not share is as large as what they do."""
    rng = torch.Generator().manual_seed(0)
    items = torch.randn(64, 4, generator=rng)
    encoder = nn.Linear(8, 4)
    nn.init.normal_(encoder.weight, generator=rng)
    nn.init.zeros_(encoder.bias)
    momentum_encoder = copy.deepcopy(encoder).requires_grad_(False)
    optimiser = torch.optim.SGD(encoder.parameters(), lr=0.5)
    queue = keys.KeyQueue(32, 4, rng)
    losses = []
    for _ in range(200):
        batch = items[torch.randperm(64, generator=rng)[:16]]
        one, other = (torch.cat([batch, torch.randn(16, 4, generator=rng)], 1) for _ in range(2))
        k = F.normalize(momentum_encoder(other), dim=1)
        loss = objectives.from_queue(encoder(one), k, queue.rows, temperature=0.2)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        keys.momentum_update(momentum_encoder, encoder, 0.9)
        queue.enqueue(k)
        losses.append(loss.item())
    assert sum(losses[-20:]) / 20 < sum(losses[:20]) / 20 - 1


def page_of_own_loops() -> list[str]:
    text = (Path(__file__).parents[1] / "book" / "own_loop.md").read_text(encoding="utf-8")
    return re.findall(r"```(?:\{code-cell\} ipython3|python)\n(.*?)```", text, re.S)


def test_the_module_of_lightning_on_the_page_learns_and_is_stored_whole(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning", SimpleNamespace(LightningModule=nn.Module))
    there: dict[str, Any] = {}
    blocks = page_of_own_loops()
    exec(blocks[0], there)
    (moco,) = (block for block in blocks if "LightningModule" in block)
    exec(moco, there)
    encoder = nn.Linear(8, 4)
    nn.init.normal_(encoder.weight, generator=there["rng"])
    module = there["MoCo"](encoder, 4, size=256)
    (optimiser,) = [module.configure_optimizers()]
    losses = []
    for step in range(150):  # in Lightning's order
        items = there["items"][torch.randperm(512, generator=there["rng"])[:64]]
        batch = there["view"](items), there["view"](items)
        loss = module.training_step(batch, step)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        module.on_train_batch_end(None, batch, step)
        losses.append(loss.item())
    assert sum(losses[-20:]) < sum(losses[:20]) - 10
    again = there["MoCo"](nn.Linear(8, 4), 4, size=256)
    again.load_state_dict(module.state_dict())
    assert torch.equal(again.queue.rows, module.queue.rows)
    assert torch.equal(again.slow.weight, module.slow.weight)


def test_the_loop_of_the_page_is_twenty_lines_and_its_loss_falls(capsys: pytest.CaptureFixture[str]) -> None:
    there: dict[str, Any] = {}
    views, begin, loop, _, learnt = page_of_own_loops()
    assert len((begin + loop).splitlines()) <= 20
    for block in (views, begin, loop, learnt):
        exec(block, there)
    lines = capsys.readouterr().out.splitlines()
    first, *_, last = [float(line.split()[2]) for line in lines if line.startswith("step ")]
    assert last < first - 1
    assert there["temperature"].grad is not None
    assert there["scale"].log_factor.grad is not None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"queue": torch.full((40, 5), 9.0)}, "queue='a row of length 20.1.*divided by their length"),
        ({"queue": torch.zeros(40, 4)}, r"queries, positives and queue.*\[B, D\], \[B, D\] and \[N, D\]"),
        ({"queue": torch.zeros(0, 5)}, "queries, positives and queue"),
        ({"positives": torch.zeros(5, 5)}, "queries, positives and queue"),
        ({"positives": torch.zeros(6, 5, dtype=torch.int64)}, "positives=torch.int64"),
        ({"negatives": "ring"}, r"negatives='ring'.*negatives.Ring\(1, 10\)"),
        ({"negatives": negatives.Ring}, "negatives='Ring, a class'"),
        ({"objective": "infonce"}, "objective='infonce'"),
        ({"temperature": 0.0}, "temperature=0"),
        ({"queue": torch.full((40, 5), torch.nan)}, "queue"),
        ({"negatives": negatives.NoKeys()}, r"negatives=NoKeys\(\): expected a choice of at least one key"),
        ({"generator": 0}, "generator=0: expected None, or a torch.Generator"),
        ({"total": 0}, "total=0: expected an integer of at least 1"),
        ({"step": -1}, "step=-1: expected an integer from 0 to 0, below total"),
        ({"step": 3, "total": 3}, "step=3: expected an integer from 0 to 2"),
        ({"module": torch.nn.Identity()}, "module='Identity': expected None with InfoNCE"),
    ],
)
def test_from_queue_names_what_it_does_not_take(change: dict[str, Any], message: str) -> None:
    queries, positives, queue = queue_case(torch.float32)
    given = {"queries": queries, "positives": positives, "queue": queue, **change}
    with pytest.raises(ArgumentError, match=message):
        objectives.from_queue(**given)


def test_every_loss_that_the_reference_lists_is_a_loss_of_two_views() -> None:
    page = (Path(__file__).parents[1] / "book" / "api.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| .* \| (`.*\)`)<br>of `(?:contrastlab\.)?([a-z_.]+)` \|$", page, re.M)
    assert len(rows) >= 10
    z1, z2 = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    seen = set()
    for calls, module in rows:
        for call in re.findall(r"`([^`]+)`", calls):
            objective = eval(call, vars(import_module(f"contrastlab.{module}")))
            loss = objectives.from_views(z1, z2, objective, temperature=0.5)
            (slope,) = torch.autograd.grad(loss, z1)
            assert bool(slope.isfinite().all()), call
            assert bool(slope.any()), call
            seen.add(loss.item())
    assert len(seen) >= len(rows) - 1  # without labels SupCon is CLIP without a module: InfoNCE
