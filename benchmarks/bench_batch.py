"""Objectives within a batch: SimCLR, its ring, alignment and uniformity, f-MICL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from harness import Way, loss_way, peer, truth_of
from subjects import Ours, normalised, views_of
from torch import Tensor
from torch.nn import functional as F

from contrastlab.keys import InBatch
from contrastlab.methods import get
from contrastlab.negatives import Ring
from contrastlab.objectives import from_views

TAU = 0.2
pytestmark = pytest.mark.benchmark(group="batch")
Contest = Callable[..., None]


def nt_xent(a: Tensor, b: Tensor) -> Tensor:
    z = F.normalize(torch.cat([a, b]), dim=1)
    logits = (z @ z.T / TAU).fill_diagonal_(-torch.inf)
    return F.cross_entropy(logits, torch.arange(len(z)).roll(len(a)))


@pytest.mark.parametrize("images", [256, 512])
def test_nt_xent(contest: Contest, images: int) -> None:
    views = views_of(images, 2, asked=2)
    two_views(contest, f"NT-Xent, {images} images", Ours(get("ring/simclr"), TAU).loss, views)


@pytest.mark.parametrize("images", [256, 512, 1024])
def test_from_views(contest: Contest, images: int) -> None:
    views = views_of(images, 2, asked=2)
    two_views(contest, f"from_views, {images} images", partial(from_views, temperature=TAU), views)


def two_views(contest: Contest, title: str, ours: Callable[..., Tensor], views: list[Tensor]) -> None:
    """A loss of ours beside those of others."""

    def lightly() -> Way:
        from lightly.loss import NTXentLoss

        return loss_way("lightly NTXentLoss", NTXentLoss(TAU), views, peer=True)

    def pml() -> Way:
        from pytorch_metric_learning.losses import SelfSupervisedLoss, SupConLoss

        # with one positive per anchor the same value as its NTXentLoss, which forms every pair of pairs
        return loss_way("PML SupConLoss", SelfSupervisedLoss(SupConLoss(TAU)), views, peer=True)

    contest(
        title,
        loss_way("ours", ours, views),
        loss_way("four lines", nt_xent, views),
        peer("lightly NTXentLoss", lightly),
        peer("PML SupConLoss", pml),
        truth=partial(truth_of, nt_xent, *views),
    )


def sorted_ring(a: Tensor, b: Tensor) -> Tensor:
    z, n = F.normalize(torch.cat([a, b]), dim=1), len(a)
    logits, own = z @ z.T / TAU, torch.arange(2 * n).roll(n)[:, None]
    others = logits.scatter(1, torch.cat([own, torch.arange(2 * n)[:, None]], 1), -torch.inf)
    ring = others.sort(1, descending=True).values[:, int(0.01 * (2 * n - 2)) : int(0.1 * (2 * n - 2))]
    return (torch.logsumexp(torch.cat([logits.gather(1, own), ring], 1), 1) - logits.gather(1, own)[:, 0]).mean()


def align_uniform(a: Tensor, b: Tensor) -> Tensor:
    a, b = normalised([a, b])
    spread = [torch.pdist(z).square().mul(-2).exp().mean().log() for z in (a, b)]
    return (a - b).square().sum(1).mean() + (spread[0] + spread[1]) / 2


def f_micl_kl(a: Tensor, b: Tensor) -> Tensor:
    a, b = normalised([a, b])
    # 1/2σ² = 1/2τ: f' = 1 + log G, f*(f') = G
    apart = torch.pdist(a).square() / (2 * TAU)
    return 40 * (-apart).exp().mean() - (1 - (a - b).square().sum(1) / (2 * TAU)).mean()


def test_simclring(contest: Contest) -> None:
    views = views_of(512, 2, asked=2)
    recipe = replace(get("ring/simclring"), negatives=Ring(1, 10, k=None))
    contest(
        "SimCLRing, 512 images",
        loss_way("ours", Ours(recipe, TAU).loss, views),
        loss_way("full sort", sorted_ring, views),
        loss_way("plain SimCLR, ours", Ours(get("ring/simclr"), TAU).loss, views, equal=False),
        truth=partial(truth_of, sorted_ring, *views),
    )


def test_align_uniform(contest: Contest) -> None:
    views = views_of(512, 2, asked=2)

    def lightly() -> Way:
        from lightly.loss.hypersphere_loss import HypersphereLoss

        return loss_way("lightly HypersphereLoss", HypersphereLoss(t=2.0), views, peer=True)

    contest(
        "Alignment and uniformity, 512 images",
        loss_way("ours", Ours(get("fmicl/au"), 1.0).loss, views),
        loss_way("pairwise distances", align_uniform, views),
        peer("lightly HypersphereLoss", lightly),
        truth=partial(truth_of, align_uniform, *views),
    )


def test_f_micl(contest: Contest) -> None:
    views = views_of(512, 2, asked=2)
    recipe = replace(get("fmicl/kl"), keys=InBatch("within", symmetric=False))
    contest(
        "f-MICL (KL), 512 images",
        loss_way("ours", Ours(recipe, TAU).loss, views),
        loss_way("pairwise distances", f_micl_kl, views),
        truth=partial(truth_of, f_micl_kl, *views),
    )
