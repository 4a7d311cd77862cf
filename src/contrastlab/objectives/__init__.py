"""From scores to a number to minimise.

A score is a logit ``s = q·k/τ``; every function takes logits and returns one loss per query, in nats. Absent entries
hold :data:`ABSENT`, so that a selection whose size differs from query to query is one rectangular tensor. These are
losses, not bounds: :meth:`InfoNCE.bound` exists only where the positive is one of the terms of the denominator (ring
Theorem 3.1 as printed leaves it out, and its value can then exceed the mutual information).
"""

from contrastlab.objectives.base import ABSENT, Objective, Scores
from contrastlab.objectives.losses import binary_nce, f_micl, info_nce, local_aggregation, multi_key_info_nce
from contrastlab.objectives.parts import (
    FMICL,
    KAPPA,
    AlignUniform,
    BinaryNCE,
    InfoNCE,
    Likelihood,
    LocalAggregation,
    Spectral,
    from_views,
)

__all__ = [
    "ABSENT", "FMICL", "KAPPA", "AlignUniform", "BinaryNCE", "InfoNCE", "Likelihood", "LocalAggregation", "Objective",
    "Scores", "Spectral", "binary_nce", "f_micl", "from_views", "info_nce", "local_aggregation", "multi_key_info_nce",
]  # fmt: skip
