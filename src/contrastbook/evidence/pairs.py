"""What the runs of two rows say of the difference between them: intervals, spread over seeds, and single test items."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from contrastbook.evidence import inference
from contrastlab.report.rows import Scores
from contrastlab.results import unpack

__all__ = ["measured"]


def measured(high: Scores | None, low: Scores | None, published: float) -> dict[str, Any] | None:
    """The columns of a claim that its runs decide, and under ``decision`` what was seen at which look.

    Returns ``None`` where the two have no seed in common, or were run on different data.
    """
    if high is None or low is None or high.data != low.data:
        return None
    common = sorted(high.by_seed.keys() & low.by_seed.keys())
    if not common:
        return None
    differences = [high.by_seed[seed] - low.by_seed[seed] for seed in common]
    decision = inference.decide(differences, published)
    first = inference.LOOKS[0]
    eight = inference.paired(differences[:first]) if len(common) >= first else None
    welch = inference.unpaired(list(high.by_seed.values()), list(low.by_seed.values()))
    at = decision.difference
    return {
        "decision": decision, "seeds": len(common),
        "differences": " ".join(f"{seed}:{gain:.6g}" for seed, gain in zip(common, differences, strict=True)),
        "used": decision.seeds, "gain": at.mean, "p": decision.p,
        "low": _finite(at.low), "high": _finite(at.high),
        "low_8": eight and eight.low, "high_8": eight and eight.high,
        "low_unpaired": _finite(welch.low), "high_unpaired": _finite(welch.high),
        **_spread(high, low), **_bits(high, low, common),
        "precision": high.precision, "data_fingerprint": high.data,
    }  # fmt: skip


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _spread(high: Scores, low: Scores) -> dict[str, float | None]:
    arms = [list(arm.by_seed.values()) for arm in (high, low)]
    free = sum(len(arm) - 1 for arm in arms)
    squares = sum(float(np.var(arm)) * len(arm) for arm in arms)
    return {"sd": math.sqrt(squares / free) if free else None}


def _bits(high: Scores, low: Scores, common: Sequence[int]) -> dict[str, float | None]:
    """What the test items say that each run has right; nothing where an old result does not keep them."""
    right = [{seed: unpack(text) for seed, text in arm.correct.items()} for arm in (high, low)]
    both = [seed for seed in common if all(seed in arm for arm in right)]
    tests = [inference.mcnemar(right[0][seed], right[1][seed]) for seed in both]
    flips = [inference.wobble(torch.stack(list(arm.values()))) ** 2 for arm in right if len(arm) > 1]
    return {
        "sd_wobble": math.sqrt(sum(flips) / len(flips)) if flips else None,
        "discordant": sum(t.discordant for t in tests) / len(tests) if tests else None,
        "mcnemar": sum(t.p <= inference.LEVEL for t in tests) / len(tests) if tests else None,
    }
