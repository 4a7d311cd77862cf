"""The keys at given ranks of a similarity, found by selection, never by a sort.

A partition finds the scores at the two edges of a region, and one comparison with them tells who is inside. The keys of
a region come in the order of their index on a CPU, so which key a random draw picks depends on the scores alone; ties
at an edge go to the lower index.

:func:`ring_indices` has all scores. :func:`from_pass` never holds them: for a big bank on a CPU it scores the keys
piece by piece and keeps what lies above a floor that a sample tells. Both find the same keys.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray[Any, Any]

MANY = 32_768
"""Keys from which on, on a CPU, a pass is faster than all scores at once."""

PIECE = 8192
"""Keys scored at a time: their scores stay in the cache."""

SAMPLE = 8192
"""Keys whose scores tell where the edge of a region may lie."""

KEPT_BYTES = 2**29
"""What may be kept of a pass before the queries are split."""

SIGMAS = 4
"""Of the sampled edge; a row in which it fails is selected from all of its scores."""


def ring_indices(ranking: Tensor, first: int, last: int) -> Tensor:
    """Indices of ranks ``first`` to ``last − 1``, counted from the largest score.

    Args:
        ranking: ``[B, N]`` scores without gradient.
        first: ranks skipped.
        last: end of the ring, exclusive.

    Returns:
        ``[B, last − first]`` int64; ascending on a CPU, in no particular order elsewhere.
    """
    keys = ranking.shape[1]
    if first == 0 and last == keys:
        return torch.arange(keys, device=ranking.device).expand(ranking.shape[0], keys)
    if ranking.device.type == "cpu":
        return torch.from_numpy(_members(as_numpy(ranking), first, last))
    if last == keys:
        return ranking.topk(keys - first, largest=False, sorted=False).indices
    outer = ranking.topk(last, sorted=False).indices
    if first == 0:
        return outer
    return outer.gather(1, ranking.gather(1, outer).topk(last - first, largest=False, sorted=False).indices)


def inside(scores: Array, first: int, last: int) -> Array:
    """Bool ``[B, N]``: which of each row's scores have ranks ``first`` to ``last − 1``."""
    # A partition at one rank is vectorised in numpy, at two it is not.
    keys = scores.shape[1]
    found: Array = np.ones(scores.shape, bool)
    top = scores
    if last < keys:
        split = np.partition(scores, keys - last, axis=1)
        _at_least(scores, split[:, keys - last], last, found)
        top = split[:, keys - last :]
    if first:
        skipped: Array = np.empty(scores.shape, bool)
        _at_least(scores, np.partition(top, last - first, axis=1)[:, last - first], first, skipped)
        found &= ~skipped
    return found


def _at_least(scores: Array, edge: Array, count: int, out: Array) -> None:
    # the `count` scores of each row that reach its edge; of those equal to it, the first
    np.greater_equal(scores, edge[:, None], out=out)
    for row in np.flatnonzero(_counts(out) != count):
        equal = np.flatnonzero(scores[row] == edge[row])
        out[row, equal[count - np.count_nonzero(out[row]) :]] = False


def _counts(members: Array) -> Array:
    # row by row: a count along an axis is an order of magnitude slower
    return np.array([np.count_nonzero(row) for row in members])


def _members(scores: Array, first: int, last: int) -> Array:
    # [B, last − first] ascending. A flat search is several times faster than one in two dimensions.
    rows, keys = scores.shape
    flat: Array = np.flatnonzero(inside(scores, first, last).ravel())
    if len(flat) != rows * (last - first):  # NaN has no rank; the loss will be NaN whatever is chosen
        return np.arange(last - first)[None].repeat(rows, 0)
    flat = flat.reshape(rows, last - first)
    flat -= np.arange(rows)[:, None] * keys
    return flat


def as_numpy(scores: Tensor) -> Array:
    """Scores on a CPU as numpy has them, bfloat16 as float32."""
    array: Array = (scores.float() if scores.dtype == torch.bfloat16 else scores).numpy()
    return array


def from_scores(
    queries: Tensor, keys: Tensor, first: int, last: int, excluded: Tensor | None, picks: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The region from all scores of a few queries, and its scores."""
    scores = queries @ keys.T
    if excluded is not None:
        scores.scatter_(1, excluded, -math.inf)
    # on a CPU row by row, or the partition would hold a copy of the scores
    parts = scores.split(1 if scores.device.type == "cpu" else len(scores))
    indices = [ring_indices(part, first, last) for part in parts]
    if picks is not None:
        indices = [part.gather(1, wanted) for part, wanted in zip(indices, picks.split(len(parts[0])), strict=True)]
    chosen = torch.cat(indices)
    return chosen, scores.gather(1, chosen)


class _Kept(threading.local):
    """Room for what a pass keeps, used again by the next one: new pages every step would cost a fifth of it."""

    def __init__(self) -> None:
        self.values, self.places = np.empty(0, np.float32), np.empty(0, np.int32)

    def grow(self, used: int, by: int) -> None:
        for name in ("values", "places"):
            old = getattr(self, name)
            setattr(self, name, np.empty(used + by, old.dtype))
            getattr(self, name)[:used] = old[:used]


_KEPT = _Kept()


def from_pass(
    queries: Tensor, keys: Tensor, first: int, last: int, excluded: Tensor | None, picks: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The region from one pass that keeps the scores above a floor told by a sample, and its scores."""
    rows, count = len(queries), len(keys)
    floor = _floor(queries, keys, last)
    starts = np.arange(0, count, PIECE)
    order = np.arange(len(starts), dtype=np.int32)
    widths = np.minimum(PIECE, count - starts)
    # what is kept lies piece by piece, in each row by row; row r of piece p ends where row r + 1 begins
    begin = np.zeros((len(starts), rows + 1), np.int64)
    kept, used = _KEPT, 0
    buffer, above = queries.new_empty(rows * PIECE), np.empty(rows * PIECE, bool)
    for p, (start, width) in enumerate(zip(starts.tolist(), widths.tolist(), strict=True)):
        scores = buffer[: rows * width].view(rows, width)
        torch.mm(queries, keys[start : start + width].T, out=scores)
        if excluded is not None:
            row, column = ((excluded >= start) & (excluded < start + width)).nonzero(as_tuple=True)
            scores[row, excluded[row, column] - start] = -math.inf
        np.greater_equal(as_numpy(scores), floor, out=above[: rows * width].reshape(rows, width))
        found = np.flatnonzero(above[: rows * width])
        if used + len(found) > len(kept.values):
            kept.grow(used, max(2 * used, int(1.1 * len(found) * len(starts))))
        np.take(as_numpy(buffer), found, out=kept.values[used : used + len(found)], mode="clip")
        kept.places[used : used + len(found)] = found
        begin[p] = used + np.searchsorted(found, np.arange(rows + 1) * width)
        used += len(found)
    chosen = np.empty((rows, last - first if picks is None else picks.shape[1]), np.int64)
    scored = np.empty(chosen.shape, np.float32)
    for row in range(rows):
        sizes = begin[:, row + 1] - begin[:, row]
        ends = sizes.cumsum()
        wanted = None if picks is None else picks[row]
        if ends[-1] < last:  # the sample misled
            one = slice(row, row + 1)
            place, score = from_scores(
                queries[one], keys, first, last, None if excluded is None else excluded[one],
                None if wanted is None else wanted[None],
            )  # fmt: skip
            chosen[row], scored[row] = place[0].numpy(), score[0].numpy()
            continue
        above_floor = np.concatenate([kept.values[a : a + n] for a, n in zip(begin[:, row], sizes, strict=True)])
        within = _members(above_floor[None], first, last)[0]
        within = within if wanted is None else within[wanted.numpy()]
        p = np.repeat(order, sizes)[within]
        chosen[row] = kept.places[begin[p, row] + within - (ends - sizes)[p]] - row * widths[p] + starts[p]
        scored[row] = above_floor[within]
    return torch.from_numpy(chosen), torch.from_numpy(scored)


def _floor(queries: Tensor, keys: Tensor, last: int) -> Array:
    # [B, 1] a score that at least `last` keys reach in almost every row, and few more
    count = len(keys)
    share, size = last / count, min(SAMPLE, count)
    sample = torch.randint(count, (size,), generator=torch.Generator().manual_seed(0))
    rank = min(size, int(size * share + SIGMAS * math.sqrt(size * share * (1 - share))) + 1)
    floor: Array = np.partition(as_numpy(queries @ keys[sample].T), size - rank, axis=1)[:, size - rank, None]
    return floor
