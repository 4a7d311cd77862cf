"""The losses as pure functions of logits: one loss for each query, in nats."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from contrastlab.divergences import Divergence
from contrastlab.errors import reject
from contrastlab.objectives.base import ABSENT, check_logits


class _LogSumExp(torch.autograd.Function):
    # keeps the exponentials, which torch.logsumexp computes again backward: two passes over [B, K] of a long queue

    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        top = logits.amax(1, keepdim=True)
        top = torch.where(top.isinf(), 0.0, top)
        weights = (logits - top).exp_()
        total = weights.sum(1)
        ctx.save_for_backward(weights, total)
        return total.log() + top[:, 0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        weights, total = ctx.saved_tensors
        # a row of -inf alone has no weight; a total that is NaN must stay so
        result: Tensor = weights * torch.where(total == 0, 0.0, gradient / total)[:, None]
        return result


def row_logsumexp(logits: Tensor) -> Tensor:
    """``[B, K]`` → ``[B]``, once differentiable; ``-inf`` for no columns."""
    if not logits.shape[1]:
        return torch.logsumexp(logits, 1)
    result: Tensor = _LogSumExp.apply(logits)
    return result


def _with_own(own: Tensor, others: Tensor) -> Tensor:
    # concatenating would copy all of `others`
    return torch.logaddexp(own, row_logsumexp(others)) if others.shape[1] else own


def info_nce(
    own: Tensor, negatives: Tensor, neighbours: Tensor | None = None, *, positive_in_denominator: bool = True
) -> Tensor:
    """InfoNCE loss ``logsumexp(denominator) − logsumexp(numerator)``.

    Args:
        own: ``[B]`` positive logits.
        negatives: ``[B, K]`` negative logits.
        neighbours: ``[B, P]`` logits added to the numerator only (vince §4.2, ``s-neigh`` and ``k-neigh``;
            a sum inside the logarithm, not a mean, so the ratio can exceed 1).
        positive_in_denominator: ``True`` is ring Eq. 1–2 and all released code; ``False`` is ring Theorem 3.1 and
            Algorithm 1 as printed, which bounds nothing by ``log K``. A query whose negatives are all absent then has
            loss and gradient 0, as it does with the positive in the denominator.
    """
    check_logits(own, negatives=negatives, neighbours=neighbours)
    if not positive_in_denominator and negatives.shape[1] == 0:
        raise reject("negatives", tuple(negatives.shape), "at least one column when the positive is left out")
    numerator = own if neighbours is None else _with_own(own, neighbours)
    if positive_in_denominator:
        return _with_own(own, negatives) - numerator
    denominator = row_logsumexp(negatives)
    return torch.where(denominator <= ABSENT / 2, 0.0, denominator - numerator)


def multi_key_info_nce(own: Tensor, negatives: Tensor, lift: Tensor | None = None) -> Tensor:
    """InfoNCE for M positive keys of each query: the mean of M losses, or JCL's closed form.

    Args:
        own: ``[B, M]``: the mean over m of ``logsumexp(own_m, negatives) − own_m`` (jcl Eq. 2–3), each key alone in
            its denominator; ``[B]`` the mean logit ``q·μ/τ`` (jcl Eq. 8).
        negatives: ``[B, K]``.
        lift: ``[B]`` with a mean logit, ``λ/2 · Var_m(q·k_m/τ) = λ/(2τ²) qᵀΣq``.
    """
    check_logits(own, 2, negatives=negatives)
    if lift is not None and (own.dim() != 1 or lift.shape != own.shape):
        accepted = f"a tensor of shape [{len(own)}]" if own.dim() == 1 else f"None with own of shape {list(own.shape)}"
        raise reject("lift", tuple(lift.shape), accepted)
    rest = row_logsumexp(negatives)
    if own.dim() == 2:
        return (torch.logaddexp(own, rest[:, None]) - own).mean(1)
    return torch.logaddexp(own if lift is None else own + lift, rest) - own


def f_micl(
    own: Tensor, negatives: Tensor, present: Tensor, divergence: Divergence, weight: float, *, similarity: str = "log u"
) -> Tensor:
    """f-MICL loss ``−mean f′(u⁺) + α · mean f*(f′(u⁻))`` (fmicl Eq. 11 and Algorithm 1).

    ``own`` ``[B]`` or ``[B, M]`` and ``negatives`` ``[B, K]`` are log u, or with ``similarity="score"`` what takes the
    place of f′(u) (the paper's cosine similarity). ``present`` says which negatives are there; a query without any has
    the term of its positives alone. ``weight`` is α.
    """
    check_logits(own, 2, negatives=negatives)
    if present.shape != negatives.shape:
        raise reject("present", tuple(present.shape), f"the shape of negatives, {list(negatives.shape)}")
    first, second = own, torch.where(present, negatives, 0.0)
    if similarity == "log u":
        first, second = divergence.derivative(first), divergence.composition(second)
    else:
        second = divergence.conjugate(second)
    positives = first.mean(1) if first.dim() == 2 else first
    return weight * torch.where(present, second, 0.0).sum(1) / present.sum(1).clamp(min=1) - positives


def binary_nce(own: Tensor, negatives: Tensor, offset: float | Tensor) -> Tensor:
    """Noise-contrastive estimation as ``K + 1`` logistic terms with one offset.

    With partition constant ``Z = κN`` and uniform noise the data-set size N cancels and what is left is
    ``softplus(o − s⁺) + Σ softplus(s⁻ − o)``, ``o = log(κK)`` (original IR); CMC has ``o = log(K·mean exp(s))`` of its
    first batch. The terms are summed, as in the released code.
    """
    check_logits(own, negatives=negatives)
    return F.softplus(offset - own) + F.softplus(negatives - offset).sum(1)


def local_aggregation(members: Tensor, background: Tensor, floor: float = 1e-7) -> Tensor:
    """LA's loss ``−log(Σ_C exp s / Σ_B exp s + floor)``.

    Args:
        members: ``[B, P]`` logits of the close neighbours C (:data:`ABSENT` elsewhere).
        background: ``[B, K]`` logits of the background neighbours B.
        floor: added to the ratio in the released code; a query with an empty C costs ``−log floor`` and has no
            gradient.
    """
    check_logits(members.new_empty(len(members)), members=members, background=background)
    if not background.shape[1]:
        raise reject("background", tuple(background.shape), "at least one background neighbour")
    log_ratio = row_logsumexp(members) - row_logsumexp(background)
    return -torch.logaddexp(log_ratio, log_ratio.new_full((), math.log(floor)))
