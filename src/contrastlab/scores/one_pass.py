"""A region of very many keys in one pass over their scores, which are never held at once. On a CPU.

A few keys are scored first. They tell which score the region's keys are sure to reach, but for rare bad luck. Then
every key is scored, a block of keys at a time, and those that reach this floor are kept. They are in the order of their
index, and all keys of the region are among them, so a selection from them is the selection from all keys.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from contrastlab.scores import ranks
from contrastlab.scores.ranks import Array

SAMPLED = 31
"""One key of so many is scored first. A prime, so that no order of the keys has its period."""

BLOCK = 2**22
"""Scores that are computed together; 16 MB of float32 stay in a cache."""


Part = tuple[Array, Array]  # of one query and one block: indices as int32, and scores


def region(
    queries: Tensor, keys: Tensor, excluded: Tensor | None, first: int, last: int, picks: Tensor | None
) -> tuple[Tensor, Tensor] | None:
    """Indices and scores, ``[B, last − first]``, of ranks ``first`` to ``last − 1``; with ``picks`` only these of them.

    ``None`` where the floor was too high for a query, or where a score is NaN or +inf: then all scores must be held.

    Args:
        queries: ``[B, d]``.
        keys: ``[N, d]``.
        excluded: ``[B, E]`` keys that are no candidates of each query.
        first: rank of the first key of the region, from the most similar one.
        last: rank behind its last key, at most the number of candidates.
        picks: ``[B, k]`` positions in the region, which is in the order of the index.
    """
    kept = _keys_above(_floors(queries, keys, last), queries, keys, excluded)
    if kept is None:
        return None
    width = last - first if picks is None else picks.shape[1]
    indices = torch.empty(len(queries), width, dtype=torch.int64)
    values = queries.new_empty(len(queries), width)
    for query, parts in enumerate(kept):
        places, scores = _joined(parts)
        if len(places) < last:
            return None
        positions = ranks.ring_indices(scores[None], first, last)[0]
        if picks is not None:
            positions = positions[picks[query]]
        indices[query] = places[positions]
        values[query] = scores[positions]
    return indices, values


def _floors(queries: Tensor, keys: Tensor, last: int) -> Array:
    """``[B]`` scores that at least ``last`` keys of each query reach, unless the sample is unlucky."""
    sample = ranks.as_array(queries @ keys[::SAMPLED].T)
    size = sample.shape[1]
    expected = size * last / len(keys)
    # five standard errors below the mean of a count, and what a count of few may be off beside
    reached = math.ceil(expected + 5 * math.sqrt(expected) + 5)
    if reached > size:
        return np.full(len(sample), -math.inf, sample.dtype)
    floors: Array = np.partition(sample, size - reached, axis=1)[:, size - reached]
    return floors


def _keys_above(floors: Array, queries: Tensor, keys: Tensor, excluded: Tensor | None) -> list[list[Part]] | None:
    """Of each query and block, the keys that reach the query's floor; None if a score is NaN or +inf."""
    kept: list[list[Part]] = [[] for _ in floors]
    width = max(1, BLOCK // len(queries))
    for start in range(0, len(keys), width):
        scores = queries @ keys[start : start + width].T
        if not ranks.check_ends(scores, excluded):
            return None
        _exclude(scores, excluded, start)
        for row, floor, parts in zip(ranks.as_array(scores), floors, kept, strict=True):
            places = np.flatnonzero(row >= floor)
            parts.append(((places + start).astype(np.int32), row[places]))
    return kept


def _exclude(scores: Tensor, excluded: Tensor | None, start: int) -> None:
    """Put the scores of excluded keys below all others, in a block whose first key is ``start``."""
    if excluded is None:
        return
    columns = excluded - start
    in_block = (columns >= 0) & (columns < scores.shape[1])
    rows, _ = in_block.nonzero(as_tuple=True)
    scores[rows, columns[in_block]] = -math.inf


def _joined(parts: list[Part]) -> tuple[Tensor, Tensor]:
    """Indices, ascending, and scores of the keys that are kept for a query."""
    places = np.concatenate([places for places, _ in parts])
    scores = np.concatenate([scores for _, scores in parts])
    return torch.from_numpy(places), torch.from_numpy(scores)
