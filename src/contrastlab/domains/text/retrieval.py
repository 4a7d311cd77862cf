"""Zero-shot retrieval: the picture of a sentence, and the sentence of a picture, among those of all pairs."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab.domains.text.definitions import Retrieval
from contrastlab.pictures.representations import encode
from contrastlab.pictures.task import Evaluation, Measured
from contrastlab.support.errors import NotApplicableError

STREAMS = ("picture", "sentence")
EQUAL = 1e-6
"""Cosines of float32 embeddings that differ by less are equal."""


def closer(queries: Tensor, keys: Tensor) -> Tensor:
    """How many other keys are at least as close to a query as its own, int64 ``[N]``; both are unit rows ``[N, d]``."""
    cosines = queries @ keys.T
    own = cosines.diagonal()[:, None]
    return (cosines >= own - EQUAL).sum(1) - 1


def score(task: Retrieval, encoders: nn.ModuleList, evaluation: Evaluation) -> dict[str, Measured]:
    """``picture_r1``, ``picture_r5``, ``sentence_r1`` and ``sentence_r5``, percent of test pairs."""
    streams = tuple(evaluation.views.streams)
    if streams != STREAMS:
        raise NotApplicableError(f"retrieval compares the streams {STREAMS}; the views have {streams}")
    test = evaluation.data.test.take(task.test_pairs)
    both, _ = encode(encoders, evaluation.views, evaluation.augmentation, test, device=evaluation.device)
    pictures, sentences = (F.normalize(half.double(), dim=1) for half in both.chunk(2, dim=1))
    before_picture, before_sentence = closer(sentences, pictures), closer(pictures, sentences)
    return {
        "picture_r1": Measured.share(before_picture < 1),
        "picture_r5": Measured.share(before_picture < 5),
        "sentence_r1": Measured.share(before_sentence < 1),
        "sentence_r5": Measured.share(before_sentence < 5),
    }
