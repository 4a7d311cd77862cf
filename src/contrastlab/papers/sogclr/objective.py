"""The global contrastive loss with a moving average of each item's denominator (Yuan et al. 2022, SogCLR)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from contrastlab.objectives import ALONE, Context, Objective, Scores, row_logsumexp
from contrastlab.scores import choices
from contrastlab.scores.choices import Choices, Need, Setup
from contrastlab.support import collectives, host
from contrastlab.support.errors import check, is_number, reject


class Averages(nn.Module):
    """Of each item and direction, the average of ``exp(s)`` over the keys of other items; NaN before it is seen.

    It is float64, so that ``exp(1/τ)`` is a number at every temperature in use.
    """

    values: Tensor  #: ``[directions, items]``

    def __init__(self, items: int, directions: int = 1) -> None:
        super().__init__()
        self.register_buffer("values", torch.full((directions, items), math.nan, dtype=torch.float64))

    @torch.no_grad()
    def forward(self, items: Tensor, means: Tensor, rate: float, direction: int = 0) -> Tensor:
        """Averages ``[B]`` of the items ``[B]`` after they have moved by ``rate`` towards ``means`` ``[B]`` of a batch.

        An item begins at its first mean. Means of one item are averaged first, those of all processes together. A mean
        of 0 is that of no key, and moves nothing.
        """
        items = self._checked(items)
        numbers, fresh = collectives.gather(items), collectives.gather(means)
        values = self.values[direction]
        total = torch.zeros_like(values).index_add_(0, numbers, fresh)
        count = torch.zeros_like(values).index_add_(0, numbers, (fresh > 0).to(values.dtype))
        mean = (total / count)[numbers]
        before = values[numbers]
        after = torch.where(before.isnan(), mean, before + rate * (mean - before))
        values[numbers] = torch.where(mean.isnan(), before, after)
        return values[items]

    def _checked(self, items: Tensor) -> Tensor:
        """Numbers of items as int64; those out of range are refused where the host can see them without waiting."""
        count = self.values.shape[1]
        if host.holds(items.device):
            lowest, highest = int(items.min()), int(items.max())
            check(lowest >= 0 and highest < count, "items", (lowest, highest), f"numbers from 0 to {count - 1}")
        return items.long()


@dataclass(frozen=True)
class SogCLR(Objective):
    r"""The loss against all other items of the data set, from small batches: ``log u − s⁺``, in nats.

    u is the mean of ``exp(s)`` over the keys of all other items. A batch knows a few of them, and the logarithm of
    their mean is too low on average, by more the fewer they are: so is the loss of SimCLR. Here each item keeps a
    moving average of its u, which takes in a share ``rate`` of the newest batch (the paper's γ). The gradient of
    ``log u`` is that of the batch's mean divided by this average, which depends on the batch size no more.

    With a rate of 1, and without a module, it is InfoNCE without the positive in the denominator, less ``log K``. The
    positive has no place in the mean, so nothing here bounds mutual information.
    """

    rate: float = 0.9

    def __post_init__(self) -> None:
        check(is_number(self.rate) and 0 < self.rate <= 1, "rate", self.rate, "a number above 0, at most 1")

    def needs(self, given: Choices) -> Iterator[Need]:
        reason = f"{self!r} knows one positive key of each item"
        yield Need(choices.ONE_POSITIVE, reason, f"given: positives={given.positives!r}")

    @property
    def needs_whole_batch(self) -> bool:
        """Yes: a chunk that is computed twice would move the averages twice."""
        return True

    def module(self, setup: Setup) -> Averages:
        return Averages(setup.items, setup.directions)

    def __call__(self, scores: Scores, context: Context = ALONE) -> Tensor:
        """Losses ``[B]``; without a module u is the mean of the batch alone."""
        scores.require_one_positive("SogCLR")
        scores.require_pairs("SogCLR")
        count = scores.present.sum(1)
        has_negatives = count > 0
        log_mean = row_logsumexp(scores.negatives) - count.clamp(min=1).to(scores.own.dtype).log()
        mean = log_mean.detach().double().exp()
        average = self._average(mean, context).where(has_negatives, 1.0)
        weight = (mean / average).to(log_mean.dtype)
        gradient = weight * (log_mean - log_mean.detach())  # its value is 0, its slope that of the mean over u
        losses = average.log().to(log_mean.dtype) + gradient - scores.own
        return scores.zero_without_negatives(losses)

    def _average(self, mean: Tensor, context: Context) -> Tensor:
        """The average u of each query, float64 ``[B]``."""
        averages = context.require(Averages, "SogCLR")
        if averages is None:
            return mean
        if context.items is None:
            raise reject("items", None, "the numbers of the queries' items, integers [B], with SogCLR and a module")
        moved: Tensor = averages(context.items, mean, self.rate, context.direction)
        return moved

    @property
    def latex(self) -> str:
        mean = r"\tfrac{1}{|\mathcal N|}\sum_{n\in\mathcal N}e^{s_n}"
        return rf"\log u-s^+,\quad u\leftarrow {1 - self.rate:g}\,u+{self.rate:g}\,{mean}"
