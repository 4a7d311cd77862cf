"""Objectives against a bank of one row per image: IR, IRing, the update of the bank, and a bank of ImageNet's size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import floor, sqrt

import pytest
import torch
from harness import Way, loss_way, truth_of
from subjects import DIM, Ours, rows, unit
from torch import Tensor
from torch.nn import functional as F

from contrastlab.keys import MemoryBank
from contrastlab.methods import Recipe, get
from contrastlab.negatives import BatchRandom, Ring, Uniform
from contrastlab.scores.candidates import Candidates

BATCH, BANK, IMAGENET, DRAWN, TAU = 256, 50_000, 1_281_167, 4096, 0.07
pytestmark = pytest.mark.benchmark(group="bank")
Contest = Callable[..., None]


def batch(images: int) -> Tensor:
    return torch.randperm(images, generator=torch.Generator().manual_seed(1))[:BATCH]


def info_nce(own: Tensor, others: Tensor) -> Tensor:
    return (torch.logaddexp(own, torch.logsumexp(others, 1)) - own).mean()


def test_ir(contest: Contest) -> None:
    query, numbers = rows(BATCH, 3).requires_grad_(), batch(BANK)
    part = Uniform(DRAWN)
    mine = Ours(replace(get("ring/ir"), negatives=part), TAU, images=BANK, indices=numbers)
    bank = mine.bank
    # the same negatives; drawing them is not in the rival's time
    scores = torch.empty(1).expand(BATCH, BANK)
    chosen = part.select(Candidates(scores, numbers), BatchRandom(torch.Generator().manual_seed(0)), 1, 1).indices

    def embeddings(q: Tensor) -> Tensor:
        q = F.normalize(q, dim=1)
        keys = bank[chosen]
        others = (keys.to(q.dtype) @ q[:, :, None]).squeeze(2) / TAU
        return info_nce((q * bank[numbers]).sum(1) / TAU, others)

    def scored(q: Tensor) -> Tensor:
        q = F.normalize(q, dim=1) / TAU
        every = bank.to(q.dtype)
        return info_nce((q * every[numbers]).sum(1), (q @ every.T).gather(1, chosen))

    contest(
        "IR, 256 × 4,096 of 50,000",
        loss_way("ours", mine.loss, [query]),
        loss_way("gather of embeddings", embeddings, [query]),
        truth=partial(truth_of, scored, query),
    )


@dataclass(frozen=True)
class Sorted:
    """A ring by ranking, as the released code computes it, own row left out."""

    bank: Tensor
    numbers: Tensor
    k: int | None

    def __call__(self, q: Tensor) -> Tensor:
        """The loss of queries whose own rows are the first of ``numbers``."""
        q, own_rows = F.normalize(q, dim=1) / TAU, self.numbers[: len(q), None]
        logits = q @ self.bank.to(q.dtype).T
        own, ring = logits.gather(1, own_rows), self.ranked(logits.scatter(1, own_rows, -torch.inf))
        if self.k is not None:
            draws = torch.randint(ring.shape[1], (len(q), self.k), generator=torch.Generator().manual_seed(0))
            ring = ring.gather(1, draws)
        return info_nce(own[:, 0], ring)

    def ranked(self, logits: Tensor) -> Tensor:
        """``[B, n]`` scores of the ring, 1–10 %."""
        first, last = (floor((logits.shape[1] - 1) * share + 1e-9) for share in (0.01, 0.1))
        return logits.topk(last, 1).values[:, first:]


class FullySorted(Sorted):
    """The same ring by a sort of everything."""

    def ranked(self, logits: Tensor) -> Tensor:  # noqa: D102
        first, last = (floor((logits.shape[1] - 1) * share + 1e-9) for share in (0.01, 0.1))
        return logits.sort(1, descending=True).values[:, first:last]


def iring(k: int | None) -> Recipe:
    return replace(get("ring/iring"), negatives=Ring(1, 10, k=k))


def drawn_is_of_the_ring(mine: Ours, query: Tensor, whole: Sorted) -> None:
    """Assert that the loss of 4,096 draws is the one expected of the ring, to four standard errors."""
    with torch.no_grad():
        q, own_rows = F.normalize(query, dim=1) / TAU, whole.numbers[: len(query), None]
        logits = q @ whole.bank.T
        own, ring = logits.gather(1, own_rows)[:, 0], whole.ranked(logits.scatter(1, own_rows, -torch.inf))
        weight, alone = ring.double().exp(), own.double().exp()
        total = alone + DRAWN * weight.mean(1)
        error = sqrt(DRAWN) * weight.std(1) / total
        expected, allowed = (total.log() - own).mean(), 4 * error.norm() / len(q)
        found = mine.loss(query)
    assert abs(float(found) - float(expected)) <= float(allowed), f"{float(found)} instead of {float(expected)}"


def test_iring(contest: Contest) -> None:
    query, numbers = rows(BATCH, 3).requires_grad_(), batch(BANK)
    mine, all_of_it = (Ours(iring(k), TAU, images=BANK, indices=numbers) for k in (DRAWN, None))
    plain = Ours(get("ring/ir"), TAU, images=BANK, indices=numbers)
    bank = mine.bank
    drawn_is_of_the_ring(mine, query, Sorted(bank, numbers, None))

    def way(name: str, drawing: Callable[[Tensor], Tensor], whole: Callable[[Tensor], Tensor]) -> Way:
        # draws differ from way to way: timed are 4,096 of them, compared is the ring they are drawn from
        return Way(name, loss_way(name, drawing, [query]).step, loss_way(name, whole, [query]).found)

    contest(
        "IRing 1–10 %, 256 × 4,096 of 50,000",
        way("ours", mine.loss, all_of_it.loss),
        way("full sort", FullySorted(bank, numbers, DRAWN), FullySorted(bank, numbers, None)),
        way("sorted top-k, as released", Sorted(bank, numbers, DRAWN), Sorted(bank, numbers, None)),
        loss_way("plain IR, ours", plain.loss, [query], equal=False),
        truth=partial(truth_of, Sorted(bank, numbers, None), query),
    )


def test_bank_update(contest: Contest) -> None:
    numbers, embeddings, start = batch(BANK), unit(BATCH, 8), unit(BANK, 9)

    def made() -> MemoryBank:
        bank = MemoryBank(BANK, DIM, torch.Generator().manual_seed(0))
        bank.rows.copy_(start)
        return bank

    mine, theirs = made(), [start.clone()]

    def scatter() -> None:
        moved = F.normalize(theirs[0][numbers] * 0.5 + embeddings * 0.5, dim=1)
        theirs[0] = theirs[0].scatter(0, numbers[:, None].expand(-1, DIM), moved)

    def ours_found() -> list[Tensor]:
        bank = made()
        bank.update(numbers, embeddings, 0.5)
        return [bank.rows]

    def theirs_found() -> list[Tensor]:
        scatter()
        return [theirs[0]]

    def truth() -> list[Tensor]:
        rows = start.double()
        for number, embedding in zip(numbers.tolist(), embeddings.double(), strict=True):
            rows[number] = F.normalize(rows[number] * 0.5 + embedding * 0.5, dim=0)
        return [rows]

    contest(
        "Bank update, 256 rows of 50,000",
        Way("ours", lambda: mine.update(numbers, embeddings, 0.5), ours_found),
        Way("scatter into a copy, as released", scatter, theirs_found),
        truth=truth,
    )


def test_ring_imagenet(contest: Contest) -> None:
    """A bank of ImageNet's size: each score computed and used once is the least that any way can do that ranks them.

    Used in a log-sum-exp, as the loss against every key does (forward only), or merely compared with the largest.
    """
    query, numbers, few = rows(BATCH, 3).requires_grad_(), batch(IMAGENET), 8
    mine = Ours(iring(DRAWN), TAU, images=IMAGENET, indices=numbers)
    bank = mine.bank
    # the whole ring is asked of a few queries, on the same bank
    whole = Ours(iring(None), TAU, images=DRAWN, indices=numbers[:few])
    whole.learner.keys = mine.learner.keys
    subset = query.detach()[:few].clone().requires_grad_()
    mine.indices = numbers[:few]
    drawn_is_of_the_ring(mine, subset, Sorted(bank, numbers, None))
    mine.indices = numbers

    def one_pass(reduce: Callable[[Tensor, int], Tensor]) -> Callable[[], Tensor]:
        parts = bank.split(1 << 13)
        scores = torch.empty(BATCH * len(parts[0]))  # its pages are touched once

        def run() -> Tensor:
            with torch.no_grad():
                q, found = F.normalize(query, dim=1) / TAU, []
                for part in parts:
                    out = scores[: BATCH * len(part)].view(BATCH, -1)
                    found.append(reduce(torch.mm(q, part.T, out=out), 1))
                return reduce(torch.stack(found), 0)

        return run

    contest(
        "IRing 1–10 %, 256 × 4,096 of 1,281,167",
        Way("ours", loss_way("ours", mine.loss, [query]).step, loss_way("ours", whole.loss, [subset]).found),
        Way("one pass, log-sum-exp", one_pass(torch.logsumexp)),
        Way("one pass, largest score", one_pass(torch.amax)),
        truth=partial(truth_of, Sorted(bank, numbers, None), subset),
    )
