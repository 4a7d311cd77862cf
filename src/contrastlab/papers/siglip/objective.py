"""Losses with a learnt temperature: CLIP's softmax (Radford et al. 2021) and the sigmoid of Zhai et al. 2023."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from contrastlab.objectives import ALONE, Context, InfoNCE, Objective, Scores, binary_nce
from contrastlab.scores import choices
from contrastlab.scores.choices import Choices, Need, Setup
from contrastlab.scores.logits import ABSENT
from contrastlab.support.errors import check, is_number, reject

HIGHEST_SCALE = 100.0
"""CLIP keeps 1/τ below it (section 2.5)."""


class Scale(nn.Module):
    """What a temperature is learnt as: the logarithm of a factor of the logits, 0 at first; and a bias, if asked for.

    So the recipe's temperature is the one that training begins with.
    """

    def __init__(self, bias: float | None = None) -> None:
        super().__init__()
        self.log_factor = nn.Parameter(torch.zeros(()))
        self.bias = None
        if bias is not None:
            check(is_number(bias), "bias", bias, "None, or a finite number")
            self.bias = nn.Parameter(torch.tensor(float(bias)))

    def forward(self, most: float = math.inf) -> tuple[Tensor, Tensor | None]:
        """Factor and bias; a factor that the last step took above ``most`` is set back, as in CLIP's released code."""
        with torch.no_grad():
            self.log_factor.clamp_(max=math.log(most))
        return self.log_factor.exp(), self.bias


@dataclass(frozen=True)
class LearntTemperature(InfoNCE):
    """InfoNCE whose temperature is trained with the encoders, in nats (CLIP, section 2.5).

    1/τ stays below 100. ``log K`` minus the loss is InfoNCE's bound at any temperature.
    """

    def module(self, setup: Setup) -> Scale:
        return Scale()

    def __call__(self, scores: Scores, context: Context = ALONE) -> Tensor:
        """Losses ``[B]``, at the temperature of the scores without a module."""
        scale = context.require(Scale, "LearntTemperature")
        if scale is None:
            return super().__call__(scores, context)
        highest = scores.require_highest("LearntTemperature")
        factor, _ = scale(HIGHEST_SCALE / highest)
        return super().__call__(scaled(scores, factor), context)

    @property
    def latex(self) -> str:
        return super().latex + r",\quad \tau\text{ learnt}"


def scaled(scores: Scores, factor: Tensor) -> Scores:
    """All logits times a positive number; what is absent stays so."""
    lift = scores.lift
    neighbours = scores.neighbours
    if lift is not None:
        lift = lift * factor.square()  # a variance of logits
    if neighbours is not None:
        neighbours = torch.where(neighbours > ABSENT / 2, neighbours * factor, ABSENT)
    negatives = torch.where(scores.present, scores.negatives * factor, ABSENT)
    return replace(scores, own=scores.own * factor, negatives=negatives, neighbours=neighbours, lift=lift)


@dataclass(frozen=True)
class Sigmoid(Objective):
    """Every pair classified by itself: ``softplus(−ℓ⁺) + Σ softplus(ℓ⁻)``, ``ℓ = t·cosine + b`` (section 3.2).

    Scale t and bias b are trained with the encoders. t begins at 1/τ of the recipe (the paper: 10) and b at ``bias``,
    low, because nearly all pairs are negative. Losses ``[B]`` are in nats; the sum over the keys grows with their
    number. It is :class:`~contrastlab.objectives.BinaryNCE` with a learnt offset, and bounds no mutual information.
    """

    bias: float = -10.0

    def __post_init__(self) -> None:
        check(is_number(self.bias), "bias", self.bias, "a finite number")

    def needs(self, given: Choices) -> Iterator[Need]:
        reason = f"{self!r} decides about one positive key"
        yield Need(choices.ONE_POSITIVE, reason, f"given: positives={given.positives!r}")

    def module(self, setup: Setup) -> Scale:
        return Scale(self.bias)

    def __call__(self, scores: Scores, context: Context = ALONE) -> Tensor:
        """Losses ``[B]``, with the first scale and bias without a module."""
        scores.require_one_positive("Sigmoid")
        scale = context.require(Scale, "Sigmoid")
        if scale is None:
            return binary_nce(scores.own, scores.negatives, -self.bias)
        factor, bias = scale()
        if bias is None:
            raise reject("module", "Scale()", "a Scale with a bias, such as Scale(-10.0), with Sigmoid")
        logits = scaled(scores, factor)
        return binary_nce(logits.own, logits.negatives, -bias)

    @property
    def latex(self) -> str:
        each = r"\operatorname{softplus}(-\ell^+)+\sum_{n\in\mathcal N}\operatorname{softplus}(\ell_n)"
        return rf"{each},\quad \ell=e^{{t'}}s+b,\ t',b\text{{ learnt, }}b_0={self.bias:g}"
