"""The keys at given ranks of a similarity, found by selection, never by a sort.

A partition finds the scores at the two edges of a region, and one comparison with them tells who is inside. On a CPU
the keys of a region come in the order of their index, so which key a random draw picks depends on the scores alone, and
ties at an edge go to the lower index. On another device ``topk`` decides both.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from contrastlab.scores.logits import ABSENT
from contrastlab.support import host
from contrastlab.support.errors import check, reject

Array = np.ndarray[Any, Any]

KEPT_BYTES = 2**29
"""What a selection from very many keys may hold at once before the queries are split."""


def ring_indices(ranking: Tensor, first: int, last: int) -> Tensor:
    """Indices ``[B, last − first]`` of ranks ``first`` to ``last − 1``, counted from the largest of ``[B, N]`` scores.

    They ascend on a CPU, and have no particular order elsewhere.
    """
    queries, keys = ranking.shape
    if first == 0 and last == keys:
        return torch.arange(keys, device=ranking.device).expand(queries, keys)
    if host.holds(ranking.device):
        return torch.from_numpy(_members(inside(ranking, first, last), last - first))
    if last == keys:
        return ranking.topk(keys - first, largest=False, sorted=False).indices
    outer = ranking.topk(last, sorted=False)
    if first == 0:
        return outer.indices
    lowest_of_outer = outer.values.topk(last - first, largest=False, sorted=False).indices
    return outer.indices.gather(1, lowest_of_outer)


def not_finite(ranking: Tensor, first: int, last: int) -> Tensor:
    """As :func:`ring_indices` where scores are NaN or +inf: a row with such a score has its index in every place.

    The loss of that row is then no number, and the choices of other rows are what they would be without it.
    """
    is_bad = ranking.isnan() | (ranking == math.inf)
    indices = ring_indices(ranking.masked_fill(is_bad, 0.0), first, last)
    first_bad = is_bad.byte().argmax(1, keepdim=True)
    return torch.where(is_bad.any(1, keepdim=True), first_bad, indices)


def check_ends(logits: Tensor, excluded: Tensor | None) -> bool:
    """Whether no score is NaN or +inf, as far as a host knows that need not wait.

    -inf is refused where keys are excluded: none would rank below it.
    """
    if not host.holds(logits.device) or not logits.numel():
        return True
    lowest, highest = (float(end) for end in logits.detach().aminmax())
    if excluded is not None and lowest == -math.inf:
        raise reject("logits", -math.inf, f"finite scores, {ABSENT:g} for an absent one: no key would rank below it")
    return not math.isnan(highest) and highest < math.inf


def inside(ranking: Tensor, first: int, last: int) -> Array:
    """Bool ``[B, N]``: which scores of each row have ranks ``first`` to ``last − 1``. On a CPU."""
    scores = as_array(ranking)
    keys = scores.shape[1]
    members: Array = np.ones(scores.shape, bool)
    top = scores
    # a partition at one rank is vectorised in numpy, at two it is not
    if last < keys:
        split = np.partition(scores, keys - last, axis=1)
        members = _at_least(scores, split[:, keys - last], last)
        top = split[:, keys - last :]
    if first:
        inner_edge = np.partition(top, last - first, axis=1)[:, last - first]
        members &= ~_at_least(scores, inner_edge, first)
    return members


def as_array(scores: Tensor) -> Array:
    """Scores on a CPU for numpy, which has no bfloat16: these become float32."""
    if scores.dtype == torch.bfloat16:
        scores = scores.float()
    array: Array = scores.numpy()
    return array


def _at_least(scores: Array, edge: Array, count: int) -> Array:
    """Bool ``[B, N]``: the ``count`` scores of each row that reach its edge; of those equal to it, the first."""
    reached: Array = scores >= edge[:, None]
    # row by row: a count along an axis is an order of magnitude slower
    counts = np.array([np.count_nonzero(row) for row in reached])
    for row in np.flatnonzero(counts != count):
        equal = np.flatnonzero(scores[row] == edge[row])
        surplus = counts[row] - count
        reached[row, equal[len(equal) - surplus :]] = False
    return reached


def _members(inside: Array, count: int) -> Array:
    """Numbers ``[B, count]`` of the columns that are true in each row, ascending."""
    rows, keys = inside.shape
    # a flat search is several times faster than one in two dimensions
    flat: Array = np.flatnonzero(inside.ravel())
    check(len(flat) == rows * count, "ranking", "nan", "scores that have an order")
    flat = flat.reshape(rows, count)
    flat -= np.arange(rows)[:, None] * keys
    return flat
