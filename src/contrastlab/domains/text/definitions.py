"""Tasks with sentences: how alike two of them are, and which picture one is about."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from contrastlab.pictures.task import FROZEN, LAST, Evaluation, Metric, Task

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

    def protocol(self, evaluation: Evaluation) -> dict[str, Any]:
        return {
            "encoder": "frozen, evaluation mode, without its head",
            "score": "cosine",
            "ranked": "pairs of all parts of a benchmark together; the mean over benchmarks",
            "benchmarks": ", ".join(evaluation.data.test.classes),
            "data": evaluation.data.note,
        }


def _recall(name: str, asks: str, found: str, at: int) -> Metric:
    among = "the closest" if at == 1 else f"among the {at} closest"
    return Metric(name, f"{asks} whose {found} is {among}", items="test pairs")


@dataclass(frozen=True)
class Retrieval(Task):
    """Whether the other half of a pair is found among all test pairs, without training (CLIP's zero-shot retrieval).

    Both halves are compared by the cosine of their embeddings, behind the heads. What is as close as the right one
    counts as closer, so encoders that tell nothing apart find nothing. Of N test pairs chance finds 100/N percent.
    """

    test_pairs: int | None = field(default=None, metadata={"settings": "test_images"})
    name = "retrieval"
    modalities = ("captioned image",)
    scorer = "contrastlab.domains.text.retrieval:score"
    metrics = (
        _recall("picture_r1", "sentences", "picture", 1),
        _recall("picture_r5", "sentences", "picture", 5),
        _recall("sentence_r1", "pictures", "sentence", 1),
        _recall("sentence_r5", "pictures", "sentence", 5),
    )

    def protocol(self, evaluation: Evaluation) -> dict[str, Any]:
        return {
            **FROZEN,
            "score": "cosine of the embeddings, behind the heads",
            "searched": "all test pairs; what is as close as the right one counts as closer",
            "data": evaluation.data.note,
            **LAST,
        }
