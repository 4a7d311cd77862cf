"""An objective without negatives: the positive's score alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from contrastlab import choices
from contrastlab.choices import Choices, Need
from contrastlab.objectives.base import Objective, Scores


@dataclass(frozen=True)
class Likelihood(Objective):
    """Minus the positive's score, a log-likelihood up to a constant: predictive learning (CMC, section 3.1).

    Without negatives the constant embedding is a best one, so keys that an encoder makes cannot be scored this way.
    """

    @property
    def offers(self) -> frozenset[str]:
        """A loss that reads no negatives."""
        return frozenset({choices.POSITIVE_ALONE})

    def needs(self, given: Choices) -> Iterator[Need]:
        """Something to predict that no encoder makes, and one positive."""
        yield Need(
            choices.TARGETS,
            f"{self!r} has no negatives, and keys that an encoder makes would collapse: take Pixels of targets; given:"
            f" keys={given.keys!r}, views={given.views!r}",
        )
        yield Need(choices.ONE_POSITIVE, f"{self!r} knows one positive; given: positives={given.positives!r}")

    def __call__(self, scores: Scores, offset: Tensor | None = None) -> Tensor:
        """``[B]`` losses of ``scores``; negatives and ``offset`` are not used."""
        scores.require_one_positive("Likelihood")
        return -scores.own

    @property
    def latex(self) -> str:
        """The loss of one query."""
        return r"-s^+"
