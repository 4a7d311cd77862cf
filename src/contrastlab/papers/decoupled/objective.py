"""The decoupled loss with weights, DCLW (Yeh et al. 2021, section 3.2): pairs that are apart count more.

Without weights it is DCL, :class:`contrastlab.objectives.InfoNCE` with the positive left out of the denominator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from contrastlab.objectives import ALONE, Context, Objective, Scores, row_logsumexp
from contrastlab.scores import choices
from contrastlab.scores.choices import Choices, Need
from contrastlab.scores.logits import ABSENT
from contrastlab.support.errors import check_positive


@dataclass(frozen=True)
class DecoupledWeighted(Objective):
    """``−w s⁺ + logsumexp(negatives)``, ``w = 2 − exp(c/σ) / mean exp(c/σ)``, in nats.

    ``c`` is the cosine of a query and its positive; the mean is over the batch, so the weights of a batch have mean 1.
    The weights have a gradient, as the paper prints no stop. Nothing bounds the loss from below, and it bounds no
    mutual information. A query without negatives has loss and gradient 0, and no part in the mean of the weights.
    """

    sigma: float = 0.5

    couples_queries = True

    def __post_init__(self) -> None:
        check_positive(sigma=self.sigma)

    def needs(self, given: Choices) -> Iterator[Need]:
        reason = f"{self!r} weighs one positive key"
        yield Need(choices.ONE_POSITIVE, reason, f"given: positives={given.positives!r}")

    def __call__(self, scores: Scores, context: Context = ALONE) -> Tensor:
        """``[B, 4]`` for :meth:`reduce`: positive logit, its cosine, logsumexp over negatives, 1 if there are any."""
        scores.require_pairs("DecoupledWeighted")
        scores.require_one_positive("DecoupledWeighted")
        cosine = scores.own / scores.require_highest("DecoupledWeighted")
        has_negatives = scores.present.any(1)
        denominator = torch.where(has_negatives, row_logsumexp(scores.negatives), 0.0)
        return torch.stack([scores.own, cosine, denominator, has_negatives.to(cosine.dtype)], 1)

    def reduce(self, rows: Tensor) -> Tensor:
        """Scalar loss of the ``[B, 4]`` rows of a whole batch."""
        own, cosine, denominator, has_negatives = rows.unbind(1)
        counts = has_negatives.detach()
        share = torch.softmax(torch.where(counts > 0, cosine / self.sigma, ABSENT), 0)
        weight = 2 - counts.sum() * share
        return (counts * (denominator - weight * own)).mean()

    @property
    def latex(self) -> str:
        weight = rf"2-\frac{{e^{{c^+/{self.sigma:g}}}}}{{\overline{{e^{{c^+/{self.sigma:g}}}}}}}"
        return rf"-w\,s^++\log\sum_{{n\in\mathcal N}}e^{{s_n}},\quad w={weight},\ c^+=\tau s^+"
