"""What every objective is: a function of the scores of a batch of queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from contrastlab.choices import Part
from contrastlab.errors import is_integer, is_number, reject

ABSENT = -1e30
"""The logit of an absent entry, of weight 0 in every sum; finite, so that no gradient is ``-inf − -inf``."""


def check_scores(**values: object) -> None:
    """Reject what is no dense tensor of floating point that holds :data:`ABSENT`."""
    for name, given in values.items():
        what = given.dtype if isinstance(given, Tensor) and given.layout == torch.strided else type(given).__name__
        if what not in (torch.float32, torch.float64, torch.bfloat16):
            accepted = f"float32, float64 or bfloat16, a dense tensor: an absent score of {ABSENT:g} is no float16"
            raise reject(name, what, accepted)


def check_logits(own: Tensor, most: int = 1, **others: Tensor | None) -> None:
    """Reject ``own`` of more than ``most`` dimensions, and others that are not one row for each of its queries."""
    check_scores(own=own, **{name: given for name, given in others.items() if name == "negatives" or given is not None})
    # a [B, 1] or [1, K] would broadcast to a loss of other pairs
    if not 1 <= own.dim() <= most:
        accepted = "[B] or [B, M], positive logits" if most == 2 else "[B], a positive logit"
        raise reject("own", tuple(own.shape), f"a tensor of shape {accepted} for each query")
    for name, logits in others.items():
        if logits is not None and (logits.dim() != 2 or len(logits) != len(own) or logits.device != own.device):
            raise reject(name, tuple(logits.shape), f"a tensor of shape [{len(own)}, K] on {own.device}, a row a query")


@dataclass(frozen=True)
class Scores:
    """Logits of a batch of queries against the keys chosen for them."""

    own: Tensor  #: ``[B]``, against the positive key; ``[B, M]`` against M of them, each a positive by itself
    negatives: Tensor  #: ``[B, K]``; :data:`ABSENT` where a row has fewer
    neighbours: Tensor | None = None  #: ``[B, P]`` of further positives, likewise
    count: int | None = None  #: negatives K of one query, where that is less than the number of columns
    lift: Tensor | None = None  #: ``[B]`` added to ``own`` in the denominator only (JCL's variance term)
    highest: float | None = None  #: 1/τ, of a query with itself: similarities are ``logit / highest``

    def __post_init__(self) -> None:
        check_logits(self.own, 2, negatives=self.negatives, neighbours=self.neighbours)
        if self.lift is not None:
            check_scores(lift=self.lift)
            if self.lift.shape != self.own.shape[:1]:
                raise reject("lift", tuple(self.lift.shape), f"a tensor of shape [{len(self.own)}]")
        if self.count is not None and not (is_integer(self.count, 0) and self.count <= self.negatives.shape[1]):
            raise reject("count", self.count, f"None, or an integer up to the {self.negatives.shape[1]} columns")
        if self.highest is not None and not (is_number(self.highest) and self.highest > 0):
            raise reject("highest", self.highest, "None, or a positive number")

    @property
    def size(self) -> int:
        """K, the negatives of one query."""
        return self.negatives.shape[1] if self.count is None else self.count

    @property
    def present(self) -> Tensor:
        """``[B, K]`` whether a negative is there."""
        return self.negatives > ABSENT / 2

    def require_highest(self, objective: str) -> float:
        """``highest``, for an objective that reads distances from logits."""
        if self.highest is None:
            raise reject("highest", None, f"1/τ with {objective}: the logit of a query with itself")
        return self.highest

    def require_one_positive(self, objective: str) -> None:
        """Reject several positive keys or a lift."""
        if self.own.dim() != 1 or self.lift is not None:
            raise reject("own", tuple(self.own.shape), f"one positive key per query, shape [B], with {objective}")

    def require_pairs(self, objective: str) -> None:
        """Reject neighbours, a lift or no negatives at all: the objective averages over pairs."""
        if self.lift is not None:
            self.require_one_positive(objective)
        if self.neighbours is not None:
            raise reject("neighbours", tuple(self.neighbours.shape), f"None with {objective}: a mean over pairs")
        if not self.negatives.shape[1]:
            raise reject("negatives", tuple(self.negatives.shape), "at least one negative: a batch of two or more")


class Objective(Part):
    """Base of the objectives: the loss of a batch is the mean over its queries, and no bound is known."""

    couples_queries: ClassVar[bool] = False
    """Whether :meth:`reduce` must see the queries of all processes together."""

    @property
    def estimates_offset(self) -> bool:
        """Whether an offset of the scores is a state of the run, fixed by :meth:`offset` at the first batch."""
        return False

    def check(self, temperature: float) -> None:
        """Reject a temperature that the objective cannot be computed at."""
        if not (is_number(temperature) and temperature > 0):
            raise reject("temperature", temperature, "a positive number")

    def offset(self, scores: Scores) -> Tensor:
        """The offset that ``scores`` give, a scalar in nats."""
        return scores.own.new_zeros(())

    def __call__(self, scores: Scores, offset: Tensor | None = None) -> Tensor:
        """Losses ``[B]`` in nats, or ``[B, …]`` of what :meth:`reduce` needs; ``offset`` is the one of the run."""
        raise NotImplementedError

    def reduce(self, rows: Tensor) -> Tensor:
        """Scalar loss of the rows that a call gave."""
        return rows.mean()

    def bound(self, loss: float, terms: int) -> float | None:
        """Lower bound on the mutual information in nats, from a loss with so many terms; ``None`` if none is known."""
        return None
