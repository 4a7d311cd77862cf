"""The task on sentences: how alike two of them are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from contrastlab.pictures.task import Metric, Setting, Task

BENCHMARKS = {
    "STS12": "sts12",
    "STS13": "sts13",
    "STS14": "sts14",
    "STS15": "sts15",
    "STS16": "sts16",
    "STS-B": "stsb",
    "SICK-R": "sickr",
}
"""Benchmark of sentence pairs to the metric that is its own."""


def _correlation(name: str, label: str) -> Metric:
    return Metric(name, label, "Spearman × 100", -100.0, 100.0, error="bootstrap", items="test pairs")


@dataclass(frozen=True)
class Similarity(Task):
    """Spearman's correlation of cosines with people's scores of similarity (SimCSE §5; fmicl Tables 2, 9 and 10).

    What is compared is before the head, as SimCSE does. The pairs of all parts of a benchmark are ranked together
    ("all"), as the papers have it; the mean over parts is given beside it. At most ``test_pairs`` pairs are shared out
    among benchmarks.
    """

    test_pairs: int | None = field(default=None, metadata={"settings": "test_images"})
    name = "similarity"
    modalities = ("sentence",)
    scorer = "contrastlab.domains.text.task:score"
    metrics = (
        _correlation("sts", "mean similarity correlation over benchmarks"),
        _correlation("sts_parts", "mean similarity correlation over parts of benchmarks"),
        _correlation("sts_dev", "similarity correlation on the development pairs"),
        *(_correlation(name, f"similarity correlation on {benchmark}") for benchmark, name in BENCHMARKS.items()),
    )

    def protocol(self, setting: Setting) -> dict[str, Any]:
        return {
            "encoder": "frozen, evaluation mode, without its head",
            "score": "cosine",
            "ranked": "pairs of all parts of a benchmark together; the mean over benchmarks",
            "benchmarks": ", ".join(setting.data.test.classes),
            "data": setting.data.note,
        }
