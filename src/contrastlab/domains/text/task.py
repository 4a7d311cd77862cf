"""How well cosines of embeddings order pairs of sentences by their similarity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab.domains.text.definitions import BENCHMARKS, Similarity
from contrastlab.pictures.representations import bootstrap, encode
from contrastlab.pictures.task import Evaluation, Measured
from contrastlab.support.errors import NotApplicableError, check

DRAWS = 300  # bootstrap samples of the pairs of a benchmark


def spearman(x: Tensor | NDArray[Any], y: Tensor | NDArray[Any]) -> float:
    """Spearman's rank correlation of two ``[N]``, 100 times; equal values share their mean rank.

    It is 0 where all values of ``x`` or of ``y`` are equal, which orders nothing.
    """
    check(len(x) == len(y) >= 2, "pairs", (len(x), len(y)), "two or more values of each")
    x_ranks = _centred_ranks(x)
    y_ranks = _centred_ranks(y)
    scale = math.sqrt(float(x_ranks @ x_ranks) * float(y_ranks @ y_ranks))
    if not scale:
        return 0.0
    return 100 * float(np.clip(x_ranks @ y_ranks / scale, -1, 1))


def _centred_ranks(values: Tensor | NDArray[Any]) -> NDArray[np.float64]:
    mean_rank = (len(values) + 1) / 2
    return np.asarray(rankdata(np.asarray(values)) - mean_rank)


def cosines(encoders: nn.ModuleList, evaluation: Evaluation, pairs: Any) -> NDArray[np.float64]:
    """``[N]`` cosines of the features of the two sentences of each pair."""
    sentences = pairs.sentences()
    shortest_first = sorted(range(len(sentences)), key=lambda index: len(sentences.items[index]))
    order = torch.tensor(shortest_first)
    rows, _ = encode(
        encoders,
        evaluation.views,
        evaluation.augmentation,
        sentences,
        kind="pooled",
        batch_size=128,
        device=evaluation.device,
        indices=order,
    )
    features = torch.empty_like(rows).index_copy_(0, order.to(rows.device), rows)
    first, second = F.normalize(features.double(), dim=1).chunk(2)
    return (first * second).sum(1).cpu().numpy()


def score(task: Similarity, encoders: nn.ModuleList, evaluation: Evaluation) -> dict[str, Measured]:
    """``sts``, ``sts_parts``, ``sts_dev`` and one number for each benchmark at hand."""
    if not hasattr(evaluation.data.test, "scores"):
        raise NotApplicableError(f"{evaluation.data.name} has no scored pairs of sentences; sts and grammar_pairs do")
    test = evaluation.data.test.take(task.test_pairs)
    compared = _Compared.of(test, cosines(encoders, evaluation, test))
    benchmarks: dict[str, Measured] = {}
    means_over_parts: list[Measured] = []
    for label, benchmark in enumerate(test.classes):
        own = compared.at((test.labels == label).numpy())
        if len(own.cosines) < 2:
            continue
        benchmarks[BENCHMARKS.get(benchmark, benchmark)] = own.correlation()
        parts = [part for part in own.by_part() if len(part.cosines) > 1]
        if parts:
            means_over_parts.append(_mean([part.correlation() for part in parts]))
    results = {name: measured for name, measured in benchmarks.items() if name in BENCHMARKS.values()}
    if means_over_parts:
        results["sts_parts"] = _mean(means_over_parts)
    results["sts"] = replace(_mean(list(benchmarks.values())), items=len(test))
    development = evaluation.data.train
    compared = _Compared.of(development, cosines(encoders, evaluation, development))
    results["sts_dev"] = compared.correlation()
    return results


@dataclass(frozen=True)
class _Compared:
    """Pairs of sentences, ``[N]`` each."""

    cosines: NDArray[Any]
    scores: NDArray[Any]  #: people's
    parts: NDArray[Any]  #: of the benchmark

    @classmethod
    def of(cls, pairs: Any, cosines: NDArray[Any]) -> _Compared:
        """The pairs of a set, with their cosines."""
        return cls(cosines, pairs.scores.numpy(), pairs.parts.numpy())

    def at(self, rows: NDArray[Any]) -> _Compared:
        """The pairs of some rows."""
        return _Compared(self.cosines[rows], self.scores[rows], self.parts[rows])

    def by_part(self) -> list[_Compared]:
        """The pairs of each part."""
        return [self.at(self.parts == part) for part in np.unique(self.parts)]

    def correlation(self) -> Measured:
        """Spearman's correlation, and its error from drawing pairs anew."""

        def statistic(rows: Tensor) -> float:
            return spearman(self.cosines[rows], self.scores[rows])

        count = len(self.cosines)
        value, half_width = bootstrap(statistic, count, draws=DRAWS)
        return Measured(value, count, half_width)


def _mean(each: Sequence[Measured]) -> Measured:
    """The mean of numbers taken on different pairs, whose errors are independent."""
    squares = sum((measured.half_width or 0.0) ** 2 for measured in each)
    half_width = math.sqrt(squares) / len(each)
    value = float(np.mean([measured.value for measured in each]))
    items = sum(measured.items for measured in each)
    return Measured(value, items, half_width)
