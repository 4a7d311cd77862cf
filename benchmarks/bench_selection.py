"""Cost of choosing negatives: forward and backward of the loss alone, beside what the papers' code computes.

    make bench            # or: pytest benchmarks/bench_selection.py

Each rival is an equivalent of ours, asserted equal in value (1e-5) and gradient (1e-4) before anything is timed.
Compare within one run; the clock is that of the process, so neighbours on the machine count less.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from contrastlab.negatives import Candidates, Chosen, Draws, Every, Negatives, Ring, Uniform
from contrastlab.objectives import binary_nce, info_nce
from contrastlab.schedules import Linear

TAU, BATCH, DIM, QUEUE, BANK, DRAWN = 0.07, 256, 128, 65_536, 50_000, 4096


def unit(rows: int, seed: int) -> Tensor:
    return F.normalize(torch.randn(rows, DIM, generator=torch.Generator().manual_seed(seed)), dim=1)


def run(benchmark: object, loss: Callable[[Tensor], Tensor], query: Tensor) -> None:
    def step() -> None:
        query.grad = None
        loss(query).backward()

    benchmark.pedantic(step, warmup_rounds=1, rounds=5)  # type: ignore[attr-defined]


def agree(a: Callable[[Tensor], Tensor], b: Callable[[Tensor], Tensor], query: Tensor) -> None:
    values = []
    for loss in (a, b):
        query.grad = None
        value = loss(query)
        value.backward()
        values.append((value.detach(), query.grad.clone()))
    torch.testing.assert_close(values[0][0], values[1][0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(values[0][1], values[1][1], rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def queue() -> tuple[Tensor, Tensor, Tensor]:
    return unit(BATCH, 0).requires_grad_(), unit(BATCH, 1), unit(QUEUE, 2)


def moco(part: Negatives, key: Tensor, keys: Tensor) -> Callable[[Tensor], Tensor]:
    def loss(q: Tensor) -> Tensor:
        q = q / TAU
        candidates = Candidates(q @ keys.T)
        chosen = part.select(candidates, Draws(torch.Generator().manual_seed(0)), 0, 1)
        return info_nce((q * key).sum(1), chosen.gather(candidates.logits)).mean()

    return loss


def sorted_ring(inner: float, outer: float, key: Tensor, keys: Tensor) -> Callable[[Tensor], Tensor]:
    first, last = int(len(keys) * inner / 100), int(len(keys) * outer / 100)

    def loss(q: Tensor) -> Tensor:
        ranked = (q @ keys.T / TAU).sort(1, descending=True).values[:, first:last]
        logits = torch.cat([(q * key).sum(1, keepdim=True) / TAU, ranked], 1)
        return F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))

    return loss


@pytest.mark.benchmark(group="queue 65,536", timer=time.process_time)
def test_moco(benchmark: object, queue: tuple[Tensor, Tensor, Tensor]) -> None:
    run(benchmark, moco(Every(), *queue[1:]), queue[0])


@pytest.mark.parametrize("outer", [10.0, 55.0, 100.0])
@pytest.mark.benchmark(group="queue 65,536", timer=time.process_time)
def test_mocoring(benchmark: object, queue: tuple[Tensor, Tensor, Tensor], outer: float) -> None:
    ours = moco(Ring(1, outer, k=None), *queue[1:])
    agree(ours, sorted_ring(1, outer, *queue[1:]), queue[0])
    run(benchmark, ours, queue[0])


@pytest.mark.benchmark(group="queue 65,536", timer=time.process_time)
def test_mocoring_by_full_sort(benchmark: object, queue: tuple[Tensor, Tensor, Tensor]) -> None:
    run(benchmark, sorted_ring(1, 10, *queue[1:]), queue[0])


@pytest.fixture(scope="module")
def bank() -> tuple[Tensor, Tensor, Tensor]:
    return unit(BATCH, 3).requires_grad_(), torch.arange(BATCH), unit(BANK, 4)


def by_scores(own: Tensor, rows: Tensor, part: Negatives) -> Callable[[Tensor], Tensor]:
    def loss(q: Tensor) -> Tensor:
        q = q / TAU
        candidates = Candidates(q @ rows.T, own)
        chosen = part.select(candidates, Draws(torch.Generator().manual_seed(0)), 0, 1)
        return binary_nce((q * rows[own]).sum(1), chosen.gather(candidates.logits), 9.1).mean()

    return loss


def by_embeddings(own: Tensor, rows: Tensor, chosen: Chosen) -> Callable[[Tensor], Tensor]:
    def loss(q: Tensor) -> Tensor:
        scores = torch.einsum("bkd,bd->bk", rows[chosen.indices], q) / TAU
        return binary_nce((q * rows[own]).sum(1) / TAU, scores, 9.1).mean()

    return loss


@pytest.mark.benchmark(group="bank 50,000", timer=time.process_time)
def test_ir_gathers_scores(benchmark: object, bank: tuple[Tensor, Tensor, Tensor]) -> None:
    query, own, rows = bank
    part = Uniform(DRAWN)
    same = part.select(
        Candidates(torch.zeros(BATCH, BANK), own), Draws(torch.Generator().manual_seed(0)), 0, 1
    )  # fmt: skip
    ours = by_scores(own, rows, part)
    agree(ours, by_embeddings(own, rows, same), query)
    run(benchmark, ours, query)


@pytest.mark.benchmark(group="bank 50,000", timer=time.process_time)
def test_ir_gathers_embeddings(benchmark: object, bank: tuple[Tensor, Tensor, Tensor]) -> None:
    query, own, rows = bank
    same = Uniform(DRAWN).select(
        Candidates(torch.zeros(BATCH, BANK), own), Draws(torch.Generator().manual_seed(0)), 0, 1
    )  # fmt: skip
    run(benchmark, by_embeddings(own, rows, same), query)


@pytest.mark.parametrize("outer", [10.0, Linear(100, 10)], ids=["outer=10", "outer=100, annealing begins"])
@pytest.mark.benchmark(group="bank 50,000", timer=time.process_time)
def test_iring(benchmark: object, bank: tuple[Tensor, Tensor, Tensor], outer: float | Linear) -> None:
    query, own, rows = bank
    run(benchmark, by_scores(own, rows, Ring(1, outer, k=DRAWN)), query)
