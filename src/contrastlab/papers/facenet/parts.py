"""FaceNet's triplet loss and its semi-hard negatives (Schroff et al. 2015, Eq. 2 to 4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from contrastlab.negatives import BatchRandom, Negatives
from contrastlab.objectives import ALONE, Context, Objective, Scores
from contrastlab.scores import choices
from contrastlab.scores.candidates import Chosen, Pool
from contrastlab.scores.choices import Choices, Need
from contrastlab.support.errors import check_positive, reject


@dataclass(frozen=True)
class SemiHard(Negatives):
    """All keys that are less similar to the query than its positive is, each once (Eq. 4).

    The harder ones are left out. A query whose positive is its least similar key has none. Unlike a ring's inner edge,
    what is left out depends on the query's own positive.
    """

    latex = r"\mathcal N=\{k:s_k<s^+\}"

    def needs(self, given: Choices) -> Iterator[Need]:
        reason = f"{self!r} compares keys with one positive key"
        yield Need(choices.SINGLE_KEY, reason, f"given: positives={given.positives!r}")

    def select(self, candidates: Pool, draws: BatchRandom, step: int, total: int) -> Chosen:
        """All keys, those at least as similar as the positive absent."""
        positive = candidates.positive
        if positive is None or positive.dim() != 1:
            shape = None if positive is None else tuple(positive.shape)
            raise reject("positive", shape, f"scores [{candidates.shape[0]}] of one positive each with SemiHard")
        absent = candidates.logits.detach() >= positive[:, None]
        return Chosen(None, absent, columns=candidates.excluded("excluded"))


@dataclass(frozen=True)
class Triplet(Objective):
    """Mean over the negatives of ``max(0, ‖q − k⁺‖² − ‖q − k‖² + margin)`` (Eq. 3); losses ``[B]``, squared distances.

    On the unit sphere ``‖q − k‖² = 2 − 2 τ s``. A query without negatives has loss and gradient 0. The loss bounds no
    mutual information.
    """

    margin: float = 0.2

    def __post_init__(self) -> None:
        check_positive(margin=self.margin)

    def needs(self, given: Choices) -> Iterator[Need]:
        yield Need(choices.ONE_POSITIVE, f"{self!r} has one positive key", f"given: positives={given.positives!r}")

    def __call__(self, scores: Scores, context: Context = ALONE) -> Tensor:
        scores.require_pairs("Triplet")
        scores.require_one_positive("Triplet")
        closer = torch.where(scores.present, scores.negatives, 0.0) - scores.own[:, None]
        terms = (2 * closer / scores.require_highest("Triplet") + self.margin).clamp(min=0)
        present = torch.where(scores.present, terms, 0.0)
        return scores.zero_without_negatives(present.sum(1) / scores.present.sum(1).clamp(min=1))

    @property
    def latex(self) -> str:
        mean = r"\tfrac{1}{|\mathcal N|}\sum_{n\in\mathcal N}"
        return rf"{mean}\max\big(0,\lVert q-k^+\rVert^2-\lVert q-k_n\rVert^2+{self.margin:g}\big)"
