"""The keys a batch of queries may choose from, and their scores.

A region of ranks is found by selection, never by a sort: a partition finds the scores at its two edges, and one
comparison with them tells who is inside. The keys of a region come in the order of their index on a CPU, so which key
a random draw picks depends on the scores alone; ties at an edge go to the lower index.

:class:`Candidates` has all ``[B, N]`` scores, with a gradient in each. :class:`Stored` has queries and keys without
gradient: it scores what is asked for, and a big bank in one pass that keeps only what may lie inside the region. Both
choose the same keys.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from contrastlab.objectives import ABSENT

Own = Literal["excluded", "ranked"]
Array = np.ndarray[Any, Any]

DENSE_BYTES = 2**28
"""Scores of a global batch that take more than this are never held at once."""

FEW = 8
"""Scoring one gathered key costs about as much as so many keys of a full product."""

_MANY = 32_768  # keys from which on, on a CPU, a pass is faster than all scores at once
_PIECE = 8192  # keys scored at a time: their scores stay in the cache
_SAMPLE = 8192  # keys whose scores tell where the edge of a region may lie
_KEPT_BYTES = 2**29  # what may be kept of a pass before the queries are split
_SIGMAS = 4  # of the sampled edge; a row in which it fails is selected from all of its scores


@dataclass(frozen=True)
class Chosen:
    """What a part selected.

    Args:
        indices: ``[B, K]`` into the keys; ``None`` is every key, in place.
        absent: bool of the same shape (``[B, N]`` where ``indices`` is ``None``), entries that are not chosen.
        size: keys chosen per query, where ``absent`` leaves the same number in every row.
        columns: ``[B, E]`` the few keys that are not chosen where all others are (``indices`` is ``None``).
        values: ``[B, K]`` scores of the keys, without gradient, where the selection had them and nobody keeps them.
    """

    indices: Tensor | None
    absent: Tensor | None = None
    size: int | None = None
    columns: Tensor | None = None
    values: Tensor | None = None

    def count(self, keys: int) -> int:
        """Keys chosen per query out of ``keys``; those absent in some rows only count, too."""
        if self.size is not None:
            return self.size
        return keys if self.indices is None else self.indices.shape[1]

    def gather(self, logits: Tensor) -> Tensor:
        """Logits of the selection, ``[B, K]`` or ``[B, N]``, :data:`~contrastlab.objectives.ABSENT` where absent."""
        values = logits if self.indices is None else logits.gather(1, self.indices)
        if self.columns is not None:
            values = values.clone()
            values.detach().scatter_(1, self.columns, ABSENT)
        return self.without_absent(values.clone() if values is logits and self.absent is not None else values)

    def without_absent(self, values: Tensor) -> Tensor:
        """``values`` of the selection, changed in place to ``ABSENT`` where absent."""
        if self.absent is not None:
            # Written past autograd: every loss has weight, and so gradient, exactly 0 at ABSENT, and a mask that
            # autograd knows of would cost another pass over [B, N] backward.
            values.detach().masked_fill_(self.absent, ABSENT)
        return values


@dataclass(frozen=True)
class Candidates:
    """The keys a batch of queries may choose from, with all their scores.

    Args:
        logits: ``[B, N]`` scores against all keys; gradients may flow through them.
        own: ``[B]`` index of each query's own row, or ``None`` (a queue holds no own row).
        labels: ``[N, H]`` cluster labels of the keys from H runs of k-means, or ``None``.
        banned: ``[B, E]`` further rows that are never candidates, or ``None`` (in a batch: the query itself).
    """

    dense: ClassVar[bool] = True

    logits: Tensor
    own: Tensor | None = None
    labels: Tensor | None = None
    banned: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Queries B and keys N."""
        return self.logits.shape[0], self.logits.shape[1]

    @property
    def device(self) -> torch.device:
        """Where the scores are."""
        return self.logits.device

    def left(self, own: Own) -> int:
        """How many keys are candidates of each query."""
        return self.shape[1] - _width(_out(self, own))

    def region(self, first: int, last: int, own: Own, picks: Tensor | None = None) -> Chosen:
        """The keys at ranks ``first`` to ``last − 1`` among the candidates.

        Args:
            first: ranks skipped, from the most similar key.
            last: end of the region, exclusive; at most :meth:`left`.
            own: whether the own row is a candidate.
            picks: ``[B, k]`` positions 0 to ``last − first − 1`` in the region, or ``None`` for all of it.

        Returns:
            Indices ``[B, k]`` or ``[B, last − first]``.
        """
        with _ExcludedAtMinusInf(self.logits, _out(self, own)) as ranking:
            indices = ring_indices(ranking, first, last)
        return Chosen(indices if picks is None else indices.gather(1, picks))

    def outside(self, first: int, last: int, own: Own) -> Tensor:
        """Bool ``[B, N]``: all but the keys at ranks ``first`` to ``last − 1``. On a CPU.

        What :meth:`region` says, without ever listing the keys; cheaper where most keys are inside.
        """
        with _ExcludedAtMinusInf(self.logits, _out(self, own)) as ranking:
            return torch.from_numpy(~_inside(_numpy(ranking), first, last))

    def read(self, chosen: Chosen) -> Tensor:
        """Logits of a selection, with gradient; see :meth:`Chosen.gather`."""
        return chosen.gather(self.logits)


@dataclass(frozen=True)
class Stored:
    """As :class:`Candidates`, for keys without gradient: a bank or a queue.

    The gradient of chosen logits is one weighted sum of their keys, not a product with all of them. With ``dense`` all
    scores may be computed at once. Without, and wherever it is faster, a region costs one pass over the keys, and
    memory is linear in what is selected; the queries are split so that what a pass keeps stays within ``_KEPT_BYTES``.

    Args:
        queries: ``[B, d]``, divided by the temperature; gradients flow to them.
        keys: ``[N, d]`` without gradient.
        own: as for :class:`Candidates`.
        labels: as for :class:`Candidates`.
        banned: as for :class:`Candidates`.
        dense: whether all ``[B, N]`` scores may be held; see :data:`DENSE_BYTES`.
    """

    queries: Tensor
    keys: Tensor
    own: Tensor | None = None
    labels: Tensor | None = None
    banned: Tensor | None = None
    dense: bool = True

    @property
    def shape(self) -> tuple[int, int]:
        """Queries B and keys N."""
        return len(self.queries), len(self.keys)

    @property
    def device(self) -> torch.device:
        """Where the queries are."""
        return self.queries.device

    @cached_property
    def _scores(self) -> Tensor:
        with torch.no_grad():
            return self.queries @ self.keys.T

    @property
    def _whole(self) -> Candidates:
        return Candidates(self._scores, self.own, self.labels, self.banned)

    def left(self, own: Own) -> int:
        """How many keys are candidates of each query."""
        return self.shape[1] - _width(_out(self, own))

    @torch.no_grad()
    def region(self, first: int, last: int, own: Own, picks: Tensor | None = None) -> Chosen:
        """As :meth:`Candidates.region`."""
        rows, count = self.shape
        sparse = self.device.type == "cpu" and self.queries.dtype == torch.float32 and last < count / 4
        if self.dense and not (sparse and count >= _MANY):
            return self._whole.region(first, last, own, picks)
        width = last - first if picks is None else picks.shape[1]
        indices, values = self.keys.new_empty(rows, width, dtype=torch.int64), self.keys.new_empty(rows, width)
        out = _out(self, own)
        # score and place of what may lie inside; or all scores and, on a device, the indices chosen
        bytes_per_row = 8 * 1.2 * last if sparse else 4 * count if self.device.type == "cpu" else 4 * count + 16 * last
        step = max(1, int(_KEPT_BYTES // bytes_per_row))
        for start in range(0, rows, step):
            part = slice(start, start + step)
            gone = None if out is None else out[part]
            wanted = None if picks is None else picks[part]
            pick = _from_pass if sparse else _from_scores
            indices[part], values[part] = pick(self.queries[part], self.keys, first, last, gone, wanted)
        return Chosen(indices, values=values)

    def outside(self, first: int, last: int, own: Own) -> Tensor:
        """As :meth:`Candidates.outside`; all scores are computed."""
        return self._whole.outside(first, last, own)

    def read(self, chosen: Chosen) -> Tensor:
        """Logits of a selection, with gradient; see :meth:`Chosen.gather`."""
        scores = self.__dict__.get("_scores")  # if a region needed them
        if chosen.indices is None:
            every: Tensor = (
                self.queries @ self.keys.T if scores is None else _All.apply(self.queries, self.keys, scores)
            )
            return chosen.gather(every)
        size, count = chosen.indices.shape[1], self.shape[1]
        if scores is None and self.dense and FEW * size >= count:
            scores = self._scores
        known = chosen.values if scores is None else scores.gather(1, chosen.indices)
        values: Tensor = _Dots.apply(self.queries, self.keys, chosen.indices, known, self.dense and 3 * size > count)
        return chosen.without_absent(values)


class _ExcludedAtMinusInf:
    """The scores with excluded entries below all others for a while: a copy of ``[B, N]`` would cost more."""

    def __init__(self, logits: Tensor, out: Tensor | None) -> None:
        self.ranking, self.out = logits.detach(), out

    def __enter__(self) -> Tensor:
        if self.out is not None:
            self.before = self.ranking.gather(1, self.out)
            self.ranking.scatter_(1, self.out, -math.inf)
        return self.ranking

    def __exit__(self, *_: object) -> None:
        if self.out is not None:
            self.ranking.scatter_(1, self.out, self.before)


class _All(torch.autograd.Function):
    """``[B, N]`` products that are known already, with their gradient."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, known: Tensor) -> Tensor:
        ctx.save_for_backward(keys)
        return known.view_as(known)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weights: Tensor) -> tuple[Tensor, None, None]:
        return weights @ ctx.saved_tensors[0], None, None


class _Dots(torch.autograd.Function):
    """``[B, K]`` products of each query with its own K keys; no way of it has ``[B, K, d]`` in memory."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, indices: Tensor, known: Tensor | None, many: bool) -> Tensor:
        ctx.save_for_backward(keys, indices)
        ctx.many = many
        return _dots(queries, keys, indices) if known is None else known.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weights: Tensor) -> tuple[Tensor, None, None, None, None]:
        keys, indices = ctx.saved_tensors
        if ctx.many:
            gradient = weights.new_zeros(len(weights), len(keys)).scatter_add_(1, indices, weights) @ keys
        else:
            gradient = F.embedding_bag(indices, keys, per_sample_weights=weights, mode="sum")
        return gradient, None, None, None, None


def _dots(queries: Tensor, keys: Tensor, indices: Tensor) -> Tensor:
    # index_select is several times faster than keys[indices]
    if keys.device.type == "cpu":  # the keys of one query at a time stay in the cache
        products, rows = queries.new_empty(indices.shape), keys.new_empty(indices.shape[1], keys.shape[1])
        for q, i, product in zip(queries, indices, products, strict=True):
            torch.mv(torch.index_select(keys, 0, i, out=rows), q, out=product)
        return products
    step = max(1, _KEPT_BYTES // (4 * indices.shape[1] * keys.shape[1]))
    parts = zip(queries.split(step), indices.split(step), strict=True)
    return torch.cat(
        [torch.einsum("bkd,bd->bk", keys.index_select(0, i.flatten()).unflatten(0, i.shape), q) for q, i in parts]
    )


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
        return torch.from_numpy(_members(_numpy(ranking), first, last))
    if last == keys:
        return ranking.topk(keys - first, largest=False, sorted=False).indices
    outer = ranking.topk(last, sorted=False).indices
    if first == 0:
        return outer
    return outer.gather(1, ranking.gather(1, outer).topk(last - first, largest=False, sorted=False).indices)


def _inside(scores: Array, first: int, last: int) -> Array:
    # bool [B, N], last − first in each row. A partition at one rank is vectorised in numpy, at two it is not.
    keys = scores.shape[1]
    inside: Array = np.ones(scores.shape, bool)
    top = scores
    if last < keys:
        split = np.partition(scores, keys - last, axis=1)
        _at_least(scores, split[:, keys - last], last, inside)
        top = split[:, keys - last :]
    if first:
        skipped: Array = np.empty(scores.shape, bool)
        _at_least(scores, np.partition(top, last - first, axis=1)[:, last - first], first, skipped)
        inside &= ~skipped
    return inside


def _at_least(scores: Array, edge: Array, count: int, out: Array) -> None:
    # the `count` scores of each row that reach its edge; of those equal to it, the first
    np.greater_equal(scores, edge[:, None], out=out)
    for row in np.flatnonzero(_counts(out) != count):
        equal = np.flatnonzero(scores[row] == edge[row])
        out[row, equal[count - np.count_nonzero(out[row]) :]] = False


def _counts(inside: Array) -> Array:
    # row by row: a count along an axis is an order of magnitude slower
    return np.array([np.count_nonzero(row) for row in inside])


def _members(scores: Array, first: int, last: int) -> Array:
    # [B, last − first] ascending. A flat search is several times faster than one in two dimensions.
    rows, keys = scores.shape
    flat: Array = np.flatnonzero(_inside(scores, first, last).ravel())
    if len(flat) != rows * (last - first):  # NaN has no rank; the loss will be NaN whatever is chosen
        return np.arange(last - first)[None].repeat(rows, 0)
    flat = flat.reshape(rows, last - first)
    flat -= np.arange(rows)[:, None] * keys
    return flat


def _numpy(scores: Tensor) -> Array:
    array: Array = (scores.float() if scores.dtype == torch.bfloat16 else scores).numpy()
    return array


def _out(candidates: Candidates | Stored, own: Own) -> Tensor | None:
    # [B, E] rows that are no candidates
    out = [] if candidates.banned is None else [candidates.banned]
    if own == "excluded" and candidates.own is not None:
        out.append(candidates.own[:, None])
    return torch.cat(out, 1) if out else None


def _width(out: Tensor | None) -> int:
    return 0 if out is None else out.shape[1]


def _from_scores(
    queries: Tensor, keys: Tensor, first: int, last: int, out: Tensor | None, picks: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The region from all scores of a few queries, and its scores."""
    scores = queries @ keys.T
    if out is not None:
        scores.scatter_(1, out, -math.inf)
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


def _from_pass(
    queries: Tensor, keys: Tensor, first: int, last: int, out: Tensor | None, picks: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The region from one pass that keeps the scores above a floor told by a sample, and its scores."""
    rows, count = len(queries), len(keys)
    floor = _floor(queries, keys, last)
    starts = np.arange(0, count, _PIECE)
    order = np.arange(len(starts), dtype=np.int32)
    widths = np.minimum(_PIECE, count - starts)
    # what is kept lies piece by piece, in each row by row; row r of piece p ends where row r + 1 begins
    begin = np.zeros((len(starts), rows + 1), np.int64)
    kept, used = _KEPT, 0
    buffer, above = queries.new_empty(rows * _PIECE), np.empty(rows * _PIECE, bool)
    for p, (start, width) in enumerate(zip(starts.tolist(), widths.tolist(), strict=True)):
        scores = buffer[: rows * width].view(rows, width)
        torch.mm(queries, keys[start : start + width].T, out=scores)
        if out is not None:
            row, column = ((out >= start) & (out < start + width)).nonzero(as_tuple=True)
            scores[row, out[row, column] - start] = -math.inf
        np.greater_equal(_numpy(scores), floor, out=above[: rows * width].reshape(rows, width))
        found = np.flatnonzero(above[: rows * width])
        if used + len(found) > len(kept.values):
            kept.grow(used, max(2 * used, int(1.1 * len(found) * len(starts))))
        np.take(_numpy(buffer), found, out=kept.values[used : used + len(found)], mode="clip")
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
            gone = None if out is None else out[row : row + 1]
            again = None if wanted is None else wanted[None]
            place, score = _from_scores(queries[row : row + 1], keys, first, last, gone, again)
            chosen[row], scored[row] = place[0].numpy(), score[0].numpy()
            continue
        above_floor = np.concatenate([kept.values[a : a + n] for a, n in zip(begin[:, row], sizes, strict=True)])
        inside = _members(above_floor[None], first, last)[0]
        inside = inside if wanted is None else inside[wanted.numpy()]
        p = np.repeat(order, sizes)[inside]
        chosen[row] = kept.places[begin[p, row] + inside - (ends - sizes)[p]] - row * widths[p] + starts[p]
        scored[row] = above_floor[inside]
    return torch.from_numpy(chosen), torch.from_numpy(scored)


def _floor(queries: Tensor, keys: Tensor, last: int) -> Array:
    # [B, 1] a score that at least `last` keys reach in almost every row, and few more
    count = len(keys)
    share, size = last / count, min(_SAMPLE, count)
    sample = torch.randint(count, (size,), generator=torch.Generator().manual_seed(0))
    rank = min(size, int(size * share + _SIGMAS * math.sqrt(size * share * (1 - share))) + 1)
    floor: Array = np.partition(_numpy(queries @ keys[sample].T), size - rank, axis=1)[:, size - rank, None]
    return floor
