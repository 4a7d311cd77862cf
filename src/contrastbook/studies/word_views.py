"""Word vectors that learn from two views of a sentence: words left out of it, or another wording of its meaning.

A sentence is the sum of the vectors of its words. The sentences are those of :mod:`contrastbook.made.grammar`, whose
pairs have exact scores of similarity, so what a view teaches can be counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from contrastbook.made import grammar
from contrastlab import data, objectives, tasks
from contrastlab.support.errors import check_choice

View = Literal["words left out", "another wording"]
VIEWS: tuple[View, ...] = ("words left out", "another wording")
LEFT_OUT = 0.1
"""How likely a view leaves out a word."""
BATCH = 128
_ARTICLES = {"a", "an", "the"}


def _split(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return re.findall(r"\w+", text.lower())


@cache
def vocabulary() -> tuple[str, ...]:
    """All words of the grammar, in alphabetical order."""
    words: set[str] = set()
    for _, fillers in grammar.SLOTS.values():
        for first, second in fillers:
            words.update(_split(first))
            words.update(_split(second))
    return tuple(sorted(words))


@cache
def synonyms() -> tuple[tuple[str, str], ...]:
    """Pairs of words that say the same in the grammar, such as ``("boy", "lad")``."""
    pairs: list[tuple[str, str]] = []
    for _, fillers in grammar.SLOTS.values():
        for first, second in fillers:
            words = set(_split(first)) - _ARTICLES
            others = set(_split(second)) - _ARTICLES
            only_in_first = words - others
            only_in_second = others - words
            if len(only_in_first) == 1 and len(only_in_second) == 1:  # not "slowly" and "without haste"
                pairs.append((only_in_first.pop(), only_in_second.pop()))
    return tuple(pairs)


def bags(sentences: Sequence[str]) -> Tensor:
    """1 where a sentence has a word of :func:`vocabulary`: ``[S, W]``."""
    numbers = _numbers_of_words()
    has_word = torch.zeros(len(sentences), len(numbers))
    for row, sentence in enumerate(sentences):
        columns = [numbers[word] for word in _split(sentence)]
        has_word[row, columns] = 1
    return has_word


def _numbers_of_words() -> dict[str, int]:
    """Word of :func:`vocabulary` to its place there."""
    return {word: number for number, word in enumerate(vocabulary())}


@dataclass(frozen=True)
class Trained:
    """``vectors``: step to the vectors of all words after so many steps, ``[W, d]``."""

    view: View
    vectors: Mapping[int, Tensor]

    def similarity(self, step: int) -> float:
        """Spearman × 100 of cosines of sentences and their true scores, on the grammar's test pairs."""
        pairs = data.load("grammar_pairs").test
        first = bags(list(pairs.first)) @ self.vectors[step]
        second = bags(list(pairs.second)) @ self.vectors[step]
        return tasks.spearman(F.cosine_similarity(first, second), pairs.scores.numpy())

    def cosines(self, step: int) -> tuple[Tensor, Tensor]:
        """Cosines of the pairs of :func:`synonyms`, and of all other pairs of their words."""
        numbers = _numbers_of_words()
        vectors = F.normalize(self.vectors[step], dim=1)
        first = [numbers[word] for word, _ in synonyms()]
        second = [numbers[word] for _, word in synonyms()]
        cosines = vectors[first] @ vectors[second].T
        is_pair = torch.eye(len(cosines), dtype=torch.bool)
        return cosines[is_pair], cosines[~is_pair]


def train(view: View, seed: int, *, steps: Sequence[int] = (0, 200), sentences: int = 2000) -> Trained:
    """Train word vectors by InfoNCE: 128 sentences of a step are each other's negatives, at temperature 0.1.

    ``steps``: after how many steps the vectors are kept, ascending.
    """
    check_choice("view", view, VIEWS)
    draws = torch.Generator().manual_seed(seed)
    wordings = grammar.wordings(sentences, seed)
    one_wording = bags([first for first, _ in wordings])
    other_wording = bags([second for _, second in wordings])
    vectors = torch.randn(len(vocabulary()), 64, generator=draws).requires_grad_()
    optimiser = torch.optim.Adam([vectors], lr=0.02)
    at_steps: dict[int, Tensor] = {}
    for step in range(max(steps) + 1):
        if step in steps:
            at_steps[step] = vectors.detach().clone()
        batch = torch.randperm(sentences, generator=draws)[:BATCH]
        first = one_wording[batch]
        second = other_wording[batch]
        if view == "words left out":
            stays = torch.rand(2, BATCH, len(vocabulary()), generator=draws) >= LEFT_OUT
            first, second = one_wording[batch] * stays
        loss = _loss(first @ vectors, second @ vectors)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return Trained(view, at_steps)


def _loss(first: Tensor, second: Tensor) -> Tensor:
    """InfoNCE of two views ``[B, d]`` of each sentence, in nats."""
    queries = F.normalize(first, dim=1)
    keys = F.normalize(second, dim=1)
    logits = queries @ keys.T / 0.1
    is_own = torch.eye(len(logits), dtype=torch.bool)
    others = logits.masked_fill(is_own, -1e30)
    scores = objectives.Scores(logits.diagonal(), others)
    losses = objectives.InfoNCE()(scores)
    return losses.mean()
