"""How well cosines of embeddings order pairs of sentences by their similarity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab.errors import NotApplicableError, reject
from contrastlab.settings import Settings
from contrastlab.tasks.base import Described, Measured, Metric, Setting, bootstrap
from contrastlab.tasks.neighbours import take
from contrastlab.tasks.representations import encode

DRAWS = 300
"""Bootstrap samples of the pairs of a benchmark."""

NAMES = {
    "STS12": "sts12", "STS13": "sts13", "STS14": "sts14", "STS15": "sts15", "STS16": "sts16", "STS-B": "stsb",
    "SICK-R": "sickr",
}  # fmt: skip
"""Benchmark to the metric that is its own."""


def spearman(x: Tensor | NDArray[Any], y: Tensor | NDArray[Any]) -> float:
    """Spearman's rank correlation, 100 times; equal values share their mean rank.

    Args:
        x: ``[N]``.
        y: ``[N]``.

    Returns:
        From −100 to 100; 0 where all values of ``x`` or of ``y`` are equal, which orders nothing.

    Raises:
        ArgumentError: lengths differ, or there are fewer than two pairs.
    """
    if len(x) != len(y) or len(x) < 2:
        raise reject("pairs", (len(x), len(y)), "two or more values of each")
    ranks = [rankdata(np.asarray(values)) - (len(x) + 1) / 2 for values in (x, y)]
    scale = math.sqrt(float(ranks[0] @ ranks[0]) * float(ranks[1] @ ranks[1]))
    return 100 * float(np.clip(ranks[0] @ ranks[1] / scale, -1, 1)) if scale else 0.0


def _bootstrapped(x: NDArray[Any], y: NDArray[Any]) -> Measured:
    value, half = bootstrap(lambda k: spearman(x[k], y[k]), len(x), draws=DRAWS)
    return Measured(value, len(x), half)


def _mean(each: Sequence[Measured]) -> Measured:
    # of numbers taken on different pairs, whose errors are independent
    half = math.sqrt(sum((m.half_width or 0.0) ** 2 for m in each)) / len(each)
    return Measured(float(np.mean([m.value for m in each])), sum(m.items for m in each), half)


def _metric(name: str, label: str) -> Metric:
    return Metric(name, label, "Spearman × 100", -100.0, 100.0, error="bootstrap", items="test pairs")


@dataclass(frozen=True)
class Similarity(Described):
    """Spearman's correlation of cosines with people's scores of similarity (SimCSE §5; fmicl Tables 2, 9 and 10).

    What is compared is before the head, as SimCSE does. The pairs of all parts of a benchmark are ranked together
    ("all"), as the papers have it; the mean over parts is given beside it.

    Args:
        test_pairs: at most so many pairs, shared out among benchmarks; ``None`` is all.
    """

    test_pairs: int | None = None

    name: ClassVar[str] = "similarity"
    modality: ClassVar[str] = "sentence"
    metrics: ClassVar[tuple[Metric, ...]] = (
        _metric("sts", "mean similarity correlation over benchmarks"),
        _metric("sts_parts", "mean similarity correlation over parts of benchmarks"),
        _metric("sts_dev", "similarity correlation on the development pairs"),
        *(_metric(name, f"similarity correlation on {benchmark}") for benchmark, name in NAMES.items()),
    )

    @classmethod
    def of(cls, settings: Settings) -> Similarity:
        """As many pairs as ``settings`` have test items."""
        return cls(settings.test_images)

    def score(self, encoders: nn.ModuleList, setting: Setting) -> dict[str, Measured]:
        """``sts``, ``sts_parts``, ``sts_dev`` and one number for each benchmark at hand.

        Raises:
            NotApplicableError: the data are no scored pairs.
        """
        if not hasattr(setting.data.test, "scores"):
            raise NotApplicableError(f"{setting.data.name} has no scored pairs of sentences; sts and grammar_pairs do")
        test = take(setting.data.test, self.test_pairs)
        cosines, gold = self.cosines(encoders, setting, test), test.scores.numpy()
        measured: dict[str, Measured] = {}
        parts: list[Measured] = []
        for label, benchmark in enumerate(test.classes):
            rows = (test.labels == label).numpy()
            if rows.sum() < 2:
                continue
            x, y = cosines[rows], gold[rows]
            measured[NAMES.get(benchmark, benchmark)] = _bootstrapped(x, y)
            own = test.parts.numpy()[rows]
            inside = [own == part for part in np.unique(own)]
            each = [_bootstrapped(x[part], y[part]) for part in inside if part.sum() > 1]
            parts += [_mean(each)] if each else []
        dev = setting.data.train
        develop = self.cosines(encoders, setting, dev)
        out = {name: m for name, m in measured.items() if name in NAMES.values()}
        if parts:
            out["sts_parts"] = _mean(parts)
        sts = replace(_mean(list(measured.values())), items=len(test))
        return out | {"sts": sts, "sts_dev": _bootstrapped(develop, dev.scores.numpy())}

    def cosines(self, encoders: nn.ModuleList, setting: Setting, pairs: Any) -> NDArray[np.float64]:
        """``[N]`` cosines of the features of the two sentences of each pair."""
        both = pairs.sentences()
        order = torch.tensor(sorted(range(len(both)), key=lambda k: len(both.items[k])))
        rows, _ = encode(
            encoders, setting.views, setting.augmentation, both, kind="pooled", batch_size=128, device=setting.device,
            indices=order,
        )  # fmt: skip
        features = torch.empty_like(rows).index_copy_(0, order.to(rows.device), rows)
        first, second = F.normalize(features.double(), dim=1).chunk(2)
        cosines: NDArray[np.float64] = (first * second).sum(1).cpu().numpy()
        return cosines

    def protocol(self, setting: Setting) -> dict[str, Any]:
        """How the metrics were taken."""
        return {
            "encoder": "frozen, evaluation mode, without its head", "score": "cosine",
            "ranked": "pairs of all parts of a benchmark together; the mean over benchmarks",
            "benchmarks": ", ".join(setting.data.test.classes), "data": setting.data.note,
        }  # fmt: skip
