"""What every objective is: a function of the scores of a batch of queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from contrastlab.choices import Part
from contrastlab.errors import reject

ABSENT = -1e30
"""The logit of an absent entry, of weight 0 in every sum; finite, so that no gradient is ``-inf − -inf``."""


@dataclass(frozen=True)
class Scores:
    """Logits of a batch of queries against the keys chosen for them.

    Args:
        own: ``[B]``, query against its positive key; ``[B, M]`` against M of them, each a positive by itself.
        negatives: ``[B, K]``; :data:`ABSENT` where a row has fewer.
        neighbours: ``[B, P]`` of further positives, likewise; ``None`` if the positive is the only one.
        count: negatives K of one query, where that is less than the number of columns.
        lift: ``[B]`` added to ``own`` in the denominator only (JCL's variance term); ``None`` is 0.
        highest: logit of a query with itself, 1/τ: similarities on the unit sphere are ``logit / highest``; ``None``
            is unknown, for objectives that need none.
    """

    own: Tensor
    negatives: Tensor
    neighbours: Tensor | None = None
    count: int | None = None
    lift: Tensor | None = None
    highest: float | None = None

    def __post_init__(self) -> None:
        if self.own.dim() not in (1, 2):
            raise reject("own", tuple(self.own.shape), "a tensor of shape [B] or [B, M]")
        if self.lift is not None and self.lift.shape != self.own.shape[:1]:
            raise reject("lift", tuple(self.lift.shape), f"a tensor of shape [{self.own.shape[0]}]")
        for name, value in (("negatives", self.negatives), ("neighbours", self.neighbours)):
            if value is not None and (value.dim() != 2 or value.shape[0] != self.own.shape[0]):
                raise reject(name, tuple(value.shape), f"a tensor of shape [{self.own.shape[0]}, any]")

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
