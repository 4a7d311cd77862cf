"""Objectives against a queue of 65,536 keys: MoCo, its ring, JCL; and the queue itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import floor

import pytest
import torch
from harness import Missing, Way, loss_way, peer, truth_of
from subjects import DIM, Ours, normalised, unit, views_of
from torch import Tensor
from torch.nn import functional as F

from contrastlab.keys import KeyQueue
from contrastlab.methods import get
from contrastlab.negatives import Ring
from contrastlab.objectives import from_queue
from contrastlab.positives import Joint

ASKING, QUEUE, TAU, KEYS, STRENGTH = 256, 65_536, 0.2, 5, 4.0
pytestmark = pytest.mark.benchmark(group="queue")
Contest = Callable[..., None]


@pytest.fixture(scope="module")
def queue() -> Tensor:
    return unit(QUEUE, 99)


def moco(queue: Tensor, query: Tensor, key: Tensor) -> Tensor:
    query, key = normalised([query, key])
    own = (query * key).sum(1) / TAU
    rest = torch.logsumexp(query @ queue.to(query.dtype).T / TAU, 1)
    return (torch.logaddexp(own, rest) - own).mean()


class Rolling:
    """A queue by index arithmetic: the reference's way to enqueue."""

    def __init__(self, rows: Tensor) -> None:
        self.rows, self.at = rows.clone(), 0

    def put(self, keys: Tensor) -> None:  # noqa: D102
        self.rows[(self.at + torch.arange(len(keys))) % len(self.rows)] = keys
        self.at = (self.at + len(keys)) % len(self.rows)


def others(queue: Tensor, views: list[Tensor]) -> list[Way | Missing]:
    """Ways of others to a loss against a queue; those of peers enqueue, but for PML's, which has no queue."""
    plain = Rolling(queue)

    def lightly() -> Way:
        from lightly.loss import NTXentLoss

        loss = NTXentLoss(TAU, memory_bank_size=(QUEUE, DIM))
        loss.memory_bank.bank.copy_(queue)
        return loss_way("lightly NTXentLoss", loss, views, peer=True)  # enqueues as it computes

    def pml() -> Way:
        from pytorch_metric_learning.losses import SupConLoss

        loss, numbers = SupConLoss(TAU), torch.arange(len(views[0]))
        # which pairs: the own key, and every key of the queue; given, so that they are not searched at each step
        anchors = numbers.repeat_interleave(QUEUE)
        pairs = numbers, numbers, anchors, torch.arange(QUEUE).repeat(len(numbers)) + len(numbers)

        def whole(query: Tensor, key: Tensor) -> Tensor:
            return loss(query, ref_emb=torch.cat([key, queue]), indices_tuple=pairs)

        return loss_way("PML SupConLoss", whole, views, peer=True)

    def put() -> None:
        plain.put(F.normalize(views[1], dim=1))

    lines = loss_way("four lines", lambda q, k: moco(plain.rows, q, k), views, after=put)
    return [lines, peer("lightly NTXentLoss", lightly), peer("PML SupConLoss", pml)]


def test_moco(contest: Contest, queue: Tensor) -> None:
    views = views_of(ASKING, 2, asked=1)
    mine = Ours(get("ring/moco"), TAU, queue=queue)
    contest(
        "MoCo with enqueue, 256 × 65,536",
        loss_way("ours", mine.loss, views, after=mine.commit),
        *others(queue, views),
        truth=partial(truth_of, partial(moco, queue), *views),
    )


@pytest.mark.parametrize("asking", [256, 512, 1024])
def test_from_queue(contest: Contest, queue: Tensor, asking: int) -> None:
    views = views_of(asking, 2, asked=1)
    mine = KeyQueue(QUEUE, DIM, torch.Generator().manual_seed(0))
    mine.rows.copy_(queue)

    def loss(query: Tensor, key: Tensor) -> Tensor:
        return from_queue(query, key, mine.rows, temperature=TAU)

    contest(
        f"from_queue with enqueue, {asking} × 65,536",
        loss_way("ours", loss, views, after=lambda: mine.enqueue(F.normalize(views[1], dim=1))),
        *others(queue, views),
        truth=partial(truth_of, partial(moco, queue), *views),
    )


def edges(keys: int, outer: float) -> tuple[int, int]:
    return floor(keys * 0.01 + 1e-9), floor(keys * outer / 100 + 1e-9)


def ring_loss(
    values: Callable[[Tensor, int], Tensor], queue: Tensor, outer: float, query: Tensor, key: Tensor
) -> Tensor:
    query, key = normalised([query, key])
    first, last = edges(len(queue), outer)
    own, ranked = (query * key).sum(1, keepdim=True) / TAU, values(query @ queue.to(query.dtype).T / TAU, last)
    logits = torch.cat([own, ranked[:, first:last]], 1)
    return F.cross_entropy(logits, torch.zeros(len(query), dtype=torch.long))


def by_sort(logits: Tensor, last: int) -> Tensor:
    return logits.sort(1, descending=True).values


def by_topk(logits: Tensor, last: int) -> Tensor:
    return logits.topk(last, 1).values


@pytest.mark.parametrize("outer", [10, 55])
def test_mocoring(contest: Contest, queue: Tensor, outer: int) -> None:
    views = views_of(ASKING, 2, asked=1)
    mine = Ours(replace(get("ring/mocoring"), negatives=Ring(1, outer, k=None)), TAU, queue=queue)
    sort = partial(ring_loss, by_sort, queue, outer)
    contest(
        f"MoCoRing 1–{outer} %, 256 × 65,536",
        loss_way("ours", mine.loss, views),
        loss_way("full sort, as released", sort, views),
        loss_way("torch.topk", partial(ring_loss, by_topk, queue, outer), views),
        loss_way("plain MoCo, ours", Ours(get("ring/moco"), TAU, queue=queue).loss, views, equal=False),
        truth=partial(truth_of, partial(ring_loss, by_topk, queue, outer), *views),
    )


def covariance(query: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    # q·μ/τ, and λ/2τ² qᵀΣq with Σ built, of queries that are divided by τ already
    mean = keys.mean(1)
    apart = keys - mean[:, None]
    sigma = apart.transpose(1, 2) @ apart / keys.shape[1]
    return (query * mean).sum(1), (query[:, None] @ sigma @ query[:, :, None]).flatten() * STRENGTH / 2


def jcl(queue: Tensor, query: Tensor, *keys: Tensor) -> Tensor:
    query, *keys = normalised([query, *keys])  # type: ignore[assignment]
    query = query / TAU
    own, spread = covariance(query, torch.stack(keys, 1))
    rest = torch.logsumexp(query @ queue.to(query.dtype).T, 1)
    return (torch.logaddexp(own + spread, rest) - own).mean()


def test_jcl(contest: Contest, queue: Tensor) -> None:
    views = views_of(ASKING, 1 + KEYS, asked=1)
    plain = Ours(get("jcl/moco_v2"), TAU, queue=queue)
    contest(
        "JCL, 5 keys, 256 × 65,536",
        loss_way("ours", Ours(get("jcl/jcl"), TAU, queue=queue).loss, views),
        loss_way("d × d covariance, as released", partial(jcl, queue), views),
        loss_way("MoCo, ours", lambda q, k, *_: plain.loss(q, k), views, equal=False),
        truth=partial(truth_of, partial(jcl, queue), *views),
    )


def test_jcl_part(contest: Contest) -> None:
    query, *keys = normalised(views_of(ASKING, 1 + KEYS, asked=0))
    stacked, part = torch.stack(keys, 1), Joint(KEYS, STRENGTH)

    def explicit(query: Tensor, keys: Tensor) -> Tensor:
        own, spread = covariance(query, keys)
        return (own + spread).mean()

    def closed(query: Tensor, keys: Tensor) -> Tensor:
        own, lift = part.pair((keys * query[:, None]).sum(2), 0, 1)
        assert lift is not None
        return (own + lift).mean()

    inputs = [(query / TAU).requires_grad_(), stacked]
    contest(
        "JCL beyond MoCo: mean and variance of 5 keys",
        loss_way("ours", closed, inputs),
        loss_way("d × d covariance", explicit, inputs),
        truth=partial(truth_of, explicit, *inputs),
    )


def test_enqueue(contest: Contest) -> None:
    whole = unit(QUEUE + 3 * 256, 5).split(256)
    odd = unit(QUEUE + 200, 6).split(200)  # 200 does not divide 65,536

    def by_index() -> Callable[[Tensor], None]:
        return Rolling(torch.zeros(QUEUE, DIM)).put

    def lightly_bank() -> tuple[Tensor, Callable[[Tensor], None]]:
        from lightly.models.modules.memory_bank import MemoryBankModule

        bank = MemoryBankModule((QUEUE, DIM))
        # its writing alone: called as a module it also hands out a copy of the bank
        return bank.bank, bank._dequeue_and_enqueue

    def way(name: str, made: tuple[Tensor, Callable[[Tensor], None]], peer: bool = False) -> Way:
        kept, put = made

        def found() -> list[Tensor]:
            for keys in whole:
                put(keys)
            return [kept.clone()]

        return Way(name, lambda: [put(keys) for keys in odd], found, peer)

    def lightly() -> Way:
        return way("lightly MemoryBankModule", lightly_bank(), peer=True)

    def note() -> str:
        try:
            kept, put = lightly_bank()
        except ModuleNotFoundError:
            return ""
        for number, keys in enumerate(odd):
            put(torch.full_like(keys, number) + torch.arange(len(keys))[:, None] / 256)
        newest = torch.cat([torch.arange(len(keys)) / 256 + number for number, keys in enumerate(odd)])[-QUEUE:]
        lost = int((~torch.isin(newest, kept[:, 0])).sum())
        return f"With a batch of 200, lightly's bank lacks {lost} of the newest {QUEUE:,} keys after one wrap."

    mine, plain = KeyQueue(QUEUE, DIM, torch.Generator().manual_seed(0)), Rolling(torch.zeros(QUEUE, DIM))
    every = torch.cat(whole)
    contest(
        "Enqueue 65,736 keys, 200 at a time, with wrap-around",
        way("ours", (mine.rows, mine.enqueue)),
        way("indices modulo size", (plain.rows, plain.put)),
        peer("lightly MemoryBankModule", lightly),
        truth=lambda: [torch.cat([every[QUEUE:], every[len(every) - QUEUE : QUEUE]])],
        note=note(),
    )
