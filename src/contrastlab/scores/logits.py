"""What a score may be: a logit ``s = q·k/τ``, or the number that stands for an absent one."""

from __future__ import annotations

import torch

from contrastlab.support.errors import check
from contrastlab.support.tensors import describe, is_floating

ABSENT = -1e30
"""The logit of an absent entry, of weight 0 in every sum; finite, so that no gradient is ``-inf − -inf``."""

_SCORES = (torch.float32, torch.float64, torch.bfloat16)


def check_scores(**values: object) -> None:
    """Reject what is no dense tensor of floating point that holds :data:`ABSENT`."""
    for name, given in values.items():
        accepted = f"float32, float64 or bfloat16, a dense tensor: an absent score of {ABSENT:g} is no float16"
        check(is_floating(given, _SCORES), name, describe(given), accepted)
