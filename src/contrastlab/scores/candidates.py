"""The keys a batch of queries may choose from, and their scores.

:class:`Candidates` has all ``[B, N]`` scores, with a gradient in each. :class:`Stored` has queries and keys without
gradient, and scores what is asked for. Both choose the same keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from contrastlab.scores import one_pass, ranks
from contrastlab.scores.logits import ABSENT, check_scores
from contrastlab.support import host
from contrastlab.support.errors import NotApplicableError, check, reject
from contrastlab.support.tensors import check_same, without_autocast

Own = Literal["excluded", "ranked"]

DENSE_BYTES = 2**28
"""Scores of a global batch that take more than this are never held at once."""

FEW = 8
"""Scoring one gathered key costs about as much as so many keys of a full product."""

_NO_VMAP = "torch.vmap over Stored keys: expected Candidates, whose scores are plain tensors"


@dataclass(frozen=True)
class Chosen:
    """What a part selected."""

    indices: Tensor | None  # [B, K] into the keys; None is every key, in place
    absent: Tensor | None = None  # bool of that shape (of all keys: [B, N]), entries that are not chosen
    size: int | None = None  # keys chosen per query, where absent leaves the same number in every row
    columns: Tensor | None = None  # [B, E] the few keys that are not chosen where all others are (indices is None)
    values: Tensor | None = None  # [B, K] scores of the keys, without gradient, where the selection had them

    def count(self, keys: int) -> int:
        """Keys chosen per query out of ``keys``; those absent in some rows only count, too."""
        if self.size is not None:
            return self.size
        if self.indices is None:
            return keys
        return self.indices.shape[1]

    def gather(self, logits: Tensor) -> Tensor:
        """Logits of the selection, ``[B, K]`` or ``[B, N]``, :data:`~contrastlab.scores.logits.ABSENT` where absent."""
        values = logits
        if self.indices is not None:
            values = logits.gather(1, self.indices)
        if self.columns is not None:
            values = values.clone()
            values.detach().scatter_(1, self.columns, ABSENT)
        if self.absent is not None and values is logits:
            values = values.clone()  # the scores themselves stay as they are
        return self.without_absent(values)

    def without_absent(self, values: Tensor) -> Tensor:
        """``values`` of the selection, changed in place to ``ABSENT`` where absent."""
        if self.absent is not None:
            # Written past autograd: every loss has weight, and so gradient, exactly 0 at ABSENT, and a mask that
            # autograd knows of would cost another pass over [B, N] backward.
            values.detach().masked_fill_(self.absent, ABSENT)
        return values


class Pool:
    """What can be asked of the keys a batch may choose from, however their scores come about."""

    logits: Tensor  # [B, N]
    own: Tensor | None
    labels: Tensor | None
    banned: Tensor | None
    positive: Tensor | None
    dense = True

    @property
    def shape(self) -> tuple[int, int]:
        """Queries B and keys N."""
        return self.logits.shape[0], self.logits.shape[1]

    @property
    def device(self) -> torch.device:
        """Where the scores are."""
        return self.logits.device

    def _check(self) -> None:
        queries, keys = self.shape
        check(queries >= 1, "queries", queries, "a batch of at least 1")
        _check_rows("own", self.own, queries, keys)
        _check_rows("banned", self.banned, queries, keys, columns="E")
        labels = self.labels
        if labels is not None and not (isinstance(labels, Tensor) and labels.dim() == 2 and len(labels) == keys):
            raise reject("labels", getattr(labels, "shape", labels), f"a tensor of shape [{keys}, H], a row a key")
        positive = self.positive
        if positive is not None and not (isinstance(positive, Tensor) and positive.shape[:1] == (queries,)):
            raise reject("positive", getattr(positive, "shape", positive), f"a tensor of shape [{queries}]")

    def excluded(self, own: Own) -> Tensor | None:
        """``[B, E]`` keys that are no candidates of each query, or ``None``."""
        columns = []
        if self.banned is not None:
            columns.append(self.banned)
        if own == "excluded" and self.own is not None:
            columns.append(self.own[:, None])
        if not columns:
            return None
        return torch.cat(columns, 1)

    def left(self, own: Own) -> int:
        """How many keys are candidates of each query, or of the query that has fewest; an ``ArgumentError`` for none.

        A key that is excluded twice, as the own one and as banned, counts once on a CPU.
        """
        keys = self.shape[1]
        excluded = self.excluded(own)
        most = 0 if excluded is None else _most_distinct(excluded)
        if most >= keys:
            accepted = "at least one key to choose from"
            if most:
                accepted = f"more keys than the {most} that are no candidates of a query: its own key and banned ones"
            raise reject("keys", keys, accepted)
        return keys - most

    def region(self, first: int, last: int, own: Own, picks: Tensor | None = None) -> Chosen:
        """The keys at ranks ``first`` to ``last − 1``, from the most similar one, as indices ``[B, last − first]``.

        With ``picks`` ``[B, k]``, positions 0 to ``last − first − 1`` in the region, only these: ``[B, k]``.
        """
        indices: Tensor = _Region.apply(self.logits, self.excluded(own), first, last)
        if picks is not None:
            indices = indices.gather(1, picks)
        return Chosen(indices)

    def whole_region(self, first: int, last: int, own: Own) -> Chosen:
        """All of :meth:`region`, by its indices or, where that is cheaper, as all keys with the others absent."""
        size = last - first
        is_most_of_keys = 3 * size > 2 * self.shape[1]
        if not is_most_of_keys or not host.holds(self.device) or not self.dense:
            return self.region(first, last, own)
        outside: Tensor | None = _Outside.apply(self.logits, self.excluded(own), first, last)
        if outside is None:  # no mask says which keys a row with a score that is no number takes
            return self.region(first, last, own)
        return Chosen(None, outside, size)

    def read(self, chosen: Chosen) -> Tensor:
        """Logits of a selection, with gradient; see :meth:`Chosen.gather`."""
        return chosen.gather(self.logits)


@dataclass(frozen=True)
class Candidates(Pool):
    """The keys a batch of queries may choose from, with all their scores."""

    logits: Tensor  # [B, N] scores against all keys; gradients may flow through them
    own: Tensor | None = None  # [B] index of each query's own row (a queue holds none)
    labels: Tensor | None = None  # [N, H] labels of the keys: clusters of H runs of k-means, or classes with H = 1
    banned: Tensor | None = None  # [B, E] further rows that are never candidates (in a batch: the query itself)
    positive: Tensor | None = None  # [B] scores of the positives, without gradient; [B, M] of M for each query

    def __post_init__(self) -> None:
        check_scores(logits=self.logits)
        check(self.logits.dim() == 2, "logits", tuple(self.logits.shape), "scores of shape [B, N]")
        self._check()
        about = {"own": self.own, "labels": self.labels, "banned": self.banned, "positive": self.positive}
        check_same("device", logits=self.logits, **about)


@dataclass(frozen=True)
class Stored(Pool):
    """As :class:`Candidates`, for keys without gradient: a bank or a queue.

    The gradient of chosen logits is one weighted sum of their keys, not a product with all of them. ``dense`` says
    whether all ``[B, N]`` scores may be held. If not, a CPU finds a region of few of the keys in one pass over all, and
    any other region is selected for a few queries at a time.
    """

    queries: Tensor  # [B, d], divided by the temperature; gradients flow to them
    keys: Tensor  # [N, d] without gradient
    own: Tensor | None = None
    labels: Tensor | None = None
    banned: Tensor | None = None
    dense: bool = True
    positive: Tensor | None = None

    def __post_init__(self) -> None:
        check_scores(queries=self.queries, keys=self.keys)
        q, k = tuple(self.queries.shape), tuple(self.keys.shape)
        check(len(q) == len(k) == 2 and q[1] == k[1], "queries, keys", (q, k), "tensors of shape [B, d] and [N, d]")
        self._check()
        check_same("dtype", queries=self.queries, keys=self.keys)
        about = {"own": self.own, "labels": self.labels, "banned": self.banned, "positive": self.positive}
        check_same("device", queries=self.queries, keys=self.keys, **about)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.queries), len(self.keys)

    @property
    def device(self) -> torch.device:
        return self.queries.device

    @cached_property
    def logits(self) -> Tensor:  # type: ignore[override]
        """``[B, N]`` scores against all keys, kept once they have been asked for."""
        return self._against(self.queries)

    def _against(self, queries: Tensor) -> Tensor:
        # a loop of one's own may call from inside autocast
        with without_autocast(queries.device):
            return queries @ self.keys.T

    @torch.no_grad()
    def _region_in_parts(self, first: int, last: int, own: Own, picks: Tensor | None) -> Chosen:
        """As :meth:`region`, for a few queries at a time; with the scores of the keys."""
        # bytes of a query: scores, the copy that a partition makes, and indices
        step = max(1, ranks.KEPT_BYTES // (8 * self.shape[1] + 16 * last))
        indices = []
        values = []
        for start in range(0, len(self.queries), step):
            rows = slice(start, start + step)
            part = Candidates(
                self._against(self.queries[rows]), own=_rows(self.own, rows), banned=_rows(self.banned, rows)
            )
            indices_of_part = part.region(first, last, own, _rows(picks, rows)).indices
            assert indices_of_part is not None
            indices.append(indices_of_part)
            values.append(part.logits.gather(1, indices_of_part))
        return Chosen(torch.cat(indices), values=torch.cat(values))

    def _region_in_one_pass(self, first: int, last: int, own: Own, picks: Tensor | None) -> Chosen | None:
        """As :meth:`region`, for a few queries at a time that see all keys; None if that finds no region."""
        excluded = self.excluded(own)
        # bytes of a query: index and score of what is kept, a few more than the region and all that is closer
        step = max(1, ranks.KEPT_BYTES // (16 * last))
        indices = []
        values = []
        for start in range(0, len(self.queries), step):
            rows = slice(start, start + step)
            region = _InOnePass.apply(
                self.queries[rows], self.keys, _rows(excluded, rows), first, last, _rows(picks, rows)
            )
            if region is None:
                return None
            indices.append(region[0])
            values.append(region[1])
        return Chosen(torch.cat(indices), values=torch.cat(values))

    def region(self, first: int, last: int, own: Own, picks: Tensor | None = None) -> Chosen:
        if self.dense:
            return super().region(first, last, own, picks)
        if host.holds(self.device) and 4 * last <= self.shape[1]:
            chosen = self._region_in_one_pass(first, last, own, picks)
            if chosen is not None:
                return chosen
        return self._region_in_parts(first, last, own, picks)

    def read(self, chosen: Chosen) -> Tensor:
        scores = self._scores_if_computed()
        if chosen.indices is None:
            if scores is None:
                scores = self._against(self.queries)
            return chosen.gather(scores)
        size = chosen.indices.shape[1]
        keys = self.shape[1]
        full_product_is_cheaper = self.dense and FEW * size >= keys
        if scores is None and full_product_is_cheaper:
            scores = self.logits
        known_values = chosen.values
        if scores is not None:
            known_values = scores.detach().gather(1, chosen.indices)
        is_many = self.dense and 3 * size > keys
        values: Tensor = _Dots.apply(self.queries, self.keys, chosen.indices, known_values, is_many)
        return chosen.without_absent(values)

    def _scores_if_computed(self) -> Tensor | None:
        """:attr:`logits` if a region needed them."""
        return self.__dict__.get("logits")


class _Selection(torch.autograd.Function):
    # A selection has no derivative. As a function of its own it sees plain tensors, whatever torch.func asks for.

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        if output is not None:
            ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[None, ...]:
        return (None,) * len(ctx.needs_input_grad)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> None:
        return None

    @classmethod
    def over(cls, info: Any, in_dims: Any, logits: Tensor, excluded: Tensor | None, first: int, last: int) -> Any:
        """The rows of a whole ``torch.vmap`` at once."""
        size = info.batch_size

        def flat(rows: Tensor, dim: int | None) -> Tensor:
            rows = rows.expand(size, *rows.shape) if dim is None else rows.movedim(dim, 0)
            return rows.flatten(0, 1)

        of_logits, of_excluded = in_dims[:2]
        flat_excluded = None
        if excluded is not None:
            flat_excluded = flat(excluded, of_excluded)
        out = cls.apply(flat(logits, of_logits), flat_excluded, first, last)
        if out is None:
            return None, None
        return out.unflatten(0, (size, -1)), 0


class _Region(_Selection):
    # [B, last − first] indices of a region; a row that holds NaN or +inf has that key alone, so that its loss is none

    @staticmethod
    def forward(logits: Tensor, excluded: Tensor | None, first: int, last: int) -> Tensor:
        finite = ranks.check_ends(logits, excluded)
        with _excluded_at_minus_inf(logits, excluded) as ranking:
            if finite:
                return ranks.ring_indices(ranking, first, last)
            return ranks.not_finite(ranking, first, last)

    @staticmethod
    def vmap(*arguments: Any) -> Any:
        return _Region.over(*arguments)


class _Outside(_Selection):
    # [B, N] what lies outside a region, on a CPU; None if a score is NaN or +inf

    @staticmethod
    def forward(logits: Tensor, excluded: Tensor | None, first: int, last: int) -> Tensor | None:
        if not ranks.check_ends(logits, excluded):
            return None
        with _excluded_at_minus_inf(logits, excluded) as ranking:
            return torch.from_numpy(~ranks.inside(ranking, first, last))

    @staticmethod
    def vmap(*arguments: Any) -> Any:
        return _Outside.over(*arguments)


class _InOnePass(_Selection):
    # [B, K] indices and scores of a region, on a CPU; None if one pass does not find it

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        outputs = () if output is None else output
        ctx.mark_non_differentiable(*outputs)
        ctx.count = len(outputs)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        if ctx.count == 0:
            return None
        return (None,) * ctx.count

    @staticmethod
    def forward(
        queries: Tensor, keys: Tensor, excluded: Tensor | None, first: int, last: int, picks: Tensor | None
    ) -> tuple[Tensor, Tensor] | None:
        # a loop of one's own may call from inside autocast
        with without_autocast(queries.device):
            return one_pass.region(queries.detach(), keys, excluded, first, last, picks)

    @staticmethod
    def vmap(*arguments: Any) -> Any:
        raise NotApplicableError(_NO_VMAP)


@contextmanager
def _excluded_at_minus_inf(logits: Tensor, excluded: Tensor | None) -> Iterator[Tensor]:
    """The scores with excluded entries below all others for a while: a copy of ``[B, N]`` would cost more."""
    ranking = logits.detach()
    if excluded is None:
        yield ranking
        return
    if logits.is_inference() or 0 in logits.stride():  # may not be written to
        yield ranking.clone().scatter_(1, excluded, -math.inf)
        return
    # what is written is put back before anyone reads it, so autograd need not know
    with torch.autograd._unsafe_preserve_version_counter(logits):  # type: ignore[attr-defined]
        before = ranking.gather(1, excluded)
        ranking.scatter_(1, excluded, -math.inf)
        try:
            yield ranking
        finally:
            ranking.scatter_(1, excluded, before)


def _most_distinct(rows: Tensor) -> int:
    """The largest number of distinct entries of a row of ``[B, E]``; on a device, whose host would have to wait, E."""
    if not host.holds(rows.device) or rows.shape[1] < 2:
        return rows.shape[1]
    changes = rows.sort(1).values.diff(dim=1) != 0
    return int(changes.sum(1).max()) + 1


def _rows(tensor: Tensor | None, rows: slice) -> Tensor | None:
    """Some rows of a tensor that need not be there."""
    if tensor is None:
        return None
    return tensor[rows]


def _check_rows(name: str, rows: Any, queries: int, keys: int, *, columns: str = "") -> None:
    """Refuse what are no numbers of keys: one for each query, or with ``columns``, a letter, so many."""
    if rows is None:
        return
    if not isinstance(rows, Tensor) or rows.dtype != torch.int64:
        raise reject(name, getattr(rows, "dtype", type(rows).__name__), "an int64 tensor, rows of the keys")
    shape = f"[{queries}, {columns}]" if columns else f"[{queries}]"
    dimensions = 2 if columns else 1
    if rows.dim() != dimensions or len(rows) != queries:
        raise reject(name, tuple(rows.shape), f"a tensor of shape {shape}, a row for each query")
    # on a device the host would have to wait
    if host.holds(rows.device) and rows.numel() and not (int(rows.min()) >= 0 and int(rows.max()) < keys):
        raise reject(name, rows.flatten().tolist()[:8], f"rows of the keys, from 0 to {keys - 1}")


def checked(part: object, chosen: Any, shape: tuple[int, int]) -> Chosen:
    """What a part selected for :attr:`Candidates.shape`, or an error that names the part and what does not fit."""
    name = f"selection of {part!r}"
    if not isinstance(chosen, Chosen):
        raise reject(name, type(chosen).__name__, "a Chosen")
    queries, keys = shape
    for field in ("indices", "columns"):
        _check_rows(f"{name}: {field}", getattr(chosen, field), queries, keys, columns="K")
    expected = shape if chosen.indices is None else chosen.indices.shape
    for field in ("absent", "values"):
        value = getattr(chosen, field)
        shape_of_value = getattr(value, "shape", value)
        if value is not None and shape_of_value != expected:
            raise reject(f"{name}: {field}", shape_of_value, f"a tensor of shape {list(expected)}")
    return chosen


class _Dots(torch.autograd.Function):
    """``[B, K]`` products of each query with its own K keys; no way of it has ``[B, K, d]`` in memory."""

    @staticmethod
    def forward(queries: Tensor, keys: Tensor, indices: Tensor, known: Tensor | None, many: bool) -> Tensor:
        if known is None:
            return _dots(queries, keys, indices)
        return known.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _, keys, indices, _, ctx.many = inputs
        ctx.save_for_backward(keys, indices)
        ctx.save_for_forward(keys, indices)

    @staticmethod
    def backward(ctx: Any, weights: Tensor) -> tuple[Tensor, None, None, None, None]:
        keys, indices = ctx.saved_tensors
        if ctx.many:
            gradient = weights.new_zeros(len(weights), len(keys)).scatter_add_(1, indices, weights) @ keys
        else:
            gradient = F.embedding_bag(indices, keys, per_sample_weights=weights, mode="sum")
        return gradient, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *others: Any) -> Tensor:
        keys, indices = ctx.saved_tensors
        return _dots(tangent, keys, indices)

    @staticmethod
    def vmap(*arguments: Any) -> Any:
        raise NotApplicableError(_NO_VMAP)


def _dots(queries: Tensor, keys: Tensor, indices: Tensor) -> Tensor:
    # index_select is several times faster than keys[indices]
    if host.holds(keys.device):  # the keys of one query at a time stay in the cache
        products = queries.new_empty(indices.shape)
        rows = keys.new_empty(indices.shape[1], keys.shape[1])
        for query, index, product in zip(queries, indices, products, strict=True):
            torch.mv(torch.index_select(keys, 0, index, out=rows), query, out=product)
        return products
    step = max(1, ranks.KEPT_BYTES // (4 * indices.shape[1] * keys.shape[1]))
    parts = []
    for some_queries, some_indices in zip(queries.split(step), indices.split(step), strict=True):
        rows = keys.index_select(0, some_indices.flatten()).unflatten(0, some_indices.shape)
        parts.append(torch.einsum("bkd,bd->bk", rows, some_queries))
    return torch.cat(parts)
