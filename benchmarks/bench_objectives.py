"""Cost of the objectives: forward and backward of the loss part of a step, beside references of a few lines.

    make bench            # or: pytest benchmarks/bench_objectives.py

Ours is :meth:`Learner.loss` itself with encoders that pass embeddings through, so that all its bookkeeping is in the
time. Value (1e-5) and gradient (1e-4, relative) are asserted equal to the reference before anything is timed.
Compare within one group of one run; the clock is that of the process, so neighbours on the machine count less.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab.keys import InBatch
from contrastlab.learner import Learner
from contrastlab.methods import Recipe, get
from contrastlab.negatives import Draws, Ring
from contrastlab.settings import Settings

DIM, QUEUE, KEYS, STRENGTH, TAU = 128, 65_536, 5, 4.0, 0.2
ASKING, IMAGES = 512, 512  # queries of a queue; images of a batch

Loss = Callable[..., Tensor]


def unit(rows: int, seed: int) -> Tensor:
    return F.normalize(torch.randn(rows, DIM, generator=torch.Generator().manual_seed(seed)), dim=1)


class Through(nn.Module):
    """An encoder of embeddings; the momentum update wants a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return x


def ours(recipe: Recipe, queue: Tensor | None = None) -> Loss:
    recipe = recipe.override({"keys.size": 1 if queue is None else len(queue), "keys.parts": 1, "temperature": TAU})
    learner = Learner(
        recipe, Settings(arch="tiny", stem="cifar", dim=DIM), image_channels=3, images=ASKING, classes=2, seed=0
    )
    learner.network.encoders = nn.ModuleList([Through()])
    learner.slow = None if queue is None else nn.ModuleList([Through()])
    if queue is not None:
        learner.stores[0].rows.copy_(queue)  # type: ignore[operator,union-attr]
    learner.bind(lambda *views: list(views))
    rows, labels = torch.arange(ASKING), torch.zeros(0, dtype=torch.int64)
    draws = Draws(torch.Generator().manual_seed(0))
    return lambda *views: learner.loss(views, rows, labels, draws, 1, 1).loss


def run(benchmark: object, loss: Loss, views: list[Tensor], rounds: int) -> None:
    def step() -> None:
        for view in views:
            view.grad = None
        loss(*views).backward()

    benchmark.pedantic(step, warmup_rounds=2, rounds=rounds)  # type: ignore[attr-defined]


def agree(a: Loss, b: Loss, views: list[Tensor], gradient: float = 1e-4) -> None:
    found = []
    for loss in (a, b):
        value = loss(*views)
        asked = [view for view in views if view.requires_grad]
        grads = torch.autograd.grad(value, asked)
        # embeddings are unit vectors: only what is tangential reaches an encoder
        found.append(
            (value.detach(), [g - (g * v).sum(1, keepdim=True) * v for g, v in zip(grads, asked, strict=True)])
        )
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-5, atol=1e-5)
    for one, other in zip(found[0][1], found[1][1], strict=True):
        assert float((one - other).norm()) <= gradient * float(other.norm())


# -- a queue of 65,536: JCL beside MoCo ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def keys() -> tuple[list[Tensor], Tensor]:
    query = unit(ASKING, 0)
    # keys of one image resemble each other and the query
    views = [F.normalize(query + 0.7 * unit(ASKING, 1 + m), dim=1) for m in range(KEYS)]
    return [query.requires_grad_(), *views], unit(QUEUE, 99)


def moco(query: Tensor, key: Tensor, queue: Tensor) -> Tensor:
    logits = torch.cat([(query * key).sum(1, keepdim=True), query @ queue.T], 1) / TAU
    return F.cross_entropy(logits, torch.zeros(len(query), dtype=torch.long))


def jcl(query: Tensor, keys: Tensor, queue: Tensor) -> Tensor:
    mean = keys.mean(1)
    apart = keys - mean[:, None]
    covariance = torch.einsum("bmd,bme->bde", apart, apart) / keys.shape[1]
    spread = torch.einsum("bd,bde,be->b", query, covariance, query) * STRENGTH / (2 * TAU**2)
    own = (query * mean).sum(1) / TAU
    logits = torch.cat([(own + spread)[:, None], query @ queue.T / TAU], 1)
    return (torch.logsumexp(logits, 1) - own).mean()


@pytest.mark.parametrize("way", ["ours", "reference"])
@pytest.mark.benchmark(group="queue 65,536", timer=time.process_time)
def test_moco(benchmark: object, keys: tuple[list[Tensor], Tensor], way: str) -> None:
    views, queue = keys[0][:2], keys[1]
    mine = ours(get("jcl/moco_v2"), queue)
    agree(mine, lambda q, k: moco(q, k, queue), views)
    run(benchmark, mine if way == "ours" else lambda q, k: moco(q, k, queue), views, 7)


@pytest.mark.parametrize("way", ["ours", "reference, d x d"])
@pytest.mark.benchmark(group="queue 65,536", timer=time.process_time)
def test_jcl(benchmark: object, keys: tuple[list[Tensor], Tensor], way: str) -> None:
    views, queue = keys
    mine = ours(get("jcl/jcl"), queue)

    def explicit(q: Tensor, *k: Tensor) -> Tensor:
        return jcl(q, torch.stack(k, 1), queue)

    agree(mine, explicit, views)
    run(benchmark, mine if way == "ours" else explicit, views, 7)


# -- a batch of 512 images: SimCLR, its ring, alignment and uniformity, f-MICL -----------------------------------


@pytest.fixture(scope="module")
def batch() -> list[Tensor]:
    a = unit(IMAGES, 7)
    return [a.requires_grad_(), F.normalize(a.detach() + 0.7 * unit(IMAGES, 8), dim=1).requires_grad_()]


def simclr(a: Tensor, b: Tensor) -> Tensor:
    z = torch.cat([a, b])
    logits = (z @ z.T / TAU).fill_diagonal_(-torch.inf)
    return F.cross_entropy(logits, torch.arange(len(z)).roll(len(a)))


def simclring(a: Tensor, b: Tensor) -> Tensor:
    z, n = torch.cat([a, b]), len(a)
    logits, own = z @ z.T / TAU, torch.arange(2 * n).roll(n)[:, None]
    others = logits.scatter(1, torch.cat([own, torch.arange(2 * n)[:, None]], 1), -torch.inf)
    ring = others.sort(1, descending=True).values[:, int(0.01 * (2 * n - 2)) : int(0.1 * (2 * n - 2))]
    return (torch.logsumexp(torch.cat([logits.gather(1, own), ring], 1), 1) - logits.gather(1, own)[:, 0]).mean()


def align_uniform(a: Tensor, b: Tensor) -> Tensor:
    spread = [torch.pdist(z).square().mul(-2).exp().mean().log() for z in (a, b)]
    return (a - b).square().sum(1).mean() + (spread[0] + spread[1]) / 2


def f_micl_kl(a: Tensor, b: Tensor) -> Tensor:
    # 1/2σ² = 1/2τ: f' = 1 + log G, f*(f') = G
    apart = torch.pdist(a).square() / (2 * TAU)
    return 40 * (-apart).exp().mean() - (1 - (a - b).square().sum(1) / (2 * TAU)).mean()


BATCH: dict[str, tuple[Recipe, Loss]] = {
    "SimCLR": (get("ring/simclr"), simclr),
    "SimCLRing": (replace(get("ring/simclring"), negatives=Ring(1, 10, k=None)), simclring),
    "align, uniform": (get("fmicl/au"), align_uniform),
    "f-MICL (KL)": (replace(get("fmicl/kl"), keys=InBatch("within", symmetric=False)), f_micl_kl),
}


@pytest.mark.parametrize("way", ["ours", "reference"])
@pytest.mark.parametrize("name", BATCH)
@pytest.mark.benchmark(group="batch of 512", timer=time.process_time)
def test_batch(benchmark: object, batch: list[Tensor], name: str, way: str) -> None:
    recipe, reference = BATCH[name]
    mine = ours(recipe)
    # scores that agree to the last bit but one may swap places at an edge of the ring
    agree(mine, reference, batch, 1e-3 if name == "SimCLRing" else 1e-4)
    run(benchmark, mine if way == "ours" else reference, batch, 30)


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)
