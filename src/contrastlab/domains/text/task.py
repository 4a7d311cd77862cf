"""How well cosines of embeddings order pairs of sentences by their similarity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab.domains.text.definitions import BENCHMARKS, Similarity
from contrastlab.pictures.representations import bootstrap, encode, take
from contrastlab.pictures.task import Measured, Setting
from contrastlab.support.errors import NotApplicableError, check

DRAWS = 300  # bootstrap samples of the pairs of a benchmark


def spearman(x: Tensor | NDArray[Any], y: Tensor | NDArray[Any]) -> float:
    """Spearman's rank correlation of two ``[N]``, 100 times; equal values share their mean rank.

    It is 0 where all values of ``x`` or of ``y`` are equal, which orders nothing.
    """
    check(len(x) == len(y) >= 2, "pairs", (len(x), len(y)), "two or more values of each")
    ranks = [rankdata(np.asarray(values)) - (len(x) + 1) / 2 for values in (x, y)]
    scale = math.sqrt(float(ranks[0] @ ranks[0]) * float(ranks[1] @ ranks[1]))
    return 100 * float(np.clip(ranks[0] @ ranks[1] / scale, -1, 1)) if scale else 0.0


def cosines(encoders: nn.ModuleList, setting: Setting, pairs: Any) -> NDArray[np.float64]:
    """``[N]`` cosines of the features of the two sentences of each pair."""
    both = pairs.sentences()
    order = torch.tensor(sorted(range(len(both)), key=lambda k: len(both.items[k])))
    rows, _ = encode(
        encoders, setting.views, setting.augmentation, both, kind="pooled", batch_size=128, device=setting.device,
        indices=order,
    )  # fmt: skip
    features = torch.empty_like(rows).index_copy_(0, order.to(rows.device), rows)
    first, second = F.normalize(features.double(), dim=1).chunk(2)
    return (first * second).sum(1).cpu().numpy()


def score(task: Similarity, encoders: nn.ModuleList, setting: Setting) -> dict[str, Measured]:
    """``sts``, ``sts_parts``, ``sts_dev`` and one number for each benchmark at hand."""
    if not hasattr(setting.data.test, "scores"):
        raise NotApplicableError(f"{setting.data.name} has no scored pairs of sentences; sts and grammar_pairs do")
    test, develop = take(setting.data.test, task.test_pairs), setting.data.train
    compared, gold = cosines(encoders, setting, test), test.scores.numpy()
    measured: dict[str, Measured] = {}
    parts: list[Measured] = []
    for label, benchmark in enumerate(test.classes):
        rows = (test.labels == label).numpy()
        if rows.sum() < 2:
            continue
        x, y, own = compared[rows], gold[rows], test.parts.numpy()[rows]
        measured[BENCHMARKS.get(benchmark, benchmark)] = _bootstrapped(x, y)
        inside = [own == part for part in np.unique(own)]
        each = [_bootstrapped(x[part], y[part]) for part in inside if part.sum() > 1]
        parts += [_mean(each)] if each else []
    out = {name: m for name, m in measured.items() if name in BENCHMARKS.values()}
    if parts:
        out["sts_parts"] = _mean(parts)
    sts = replace(_mean(list(measured.values())), items=len(test))
    return out | {"sts": sts, "sts_dev": _bootstrapped(cosines(encoders, setting, develop), develop.scores.numpy())}


def _bootstrapped(x: NDArray[Any], y: NDArray[Any]) -> Measured:
    value, half = bootstrap(lambda k: spearman(x[k], y[k]), len(x), draws=DRAWS)
    return Measured(value, len(x), half)


def _mean(each: Sequence[Measured]) -> Measured:
    # of numbers taken on different pairs, whose errors are independent
    half = math.sqrt(sum((m.half_width or 0.0) ** 2 for m in each)) / len(each)
    return Measured(float(np.mean([m.value for m in each])), sum(m.items for m in each), half)
