"""Which keys count as negatives for a query (vince §4 and C.2; ring §3–4).

Percentages count from the most similar key: ``Ring(inner=1, outer=10)`` skips the closest 1 % and keeps what follows up
to 10 %. The query's own row is the positive and by default no candidate (``own="excluded"``): left in, its logit of up
to 1/τ alone lifts the mean of exp(s) above nearly every other key. ``own="ranked"`` treats it like any other row, as
the released code of IR, LA and Ring does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from contrastlab.scores import choices, schedules
from contrastlab.scores.candidates import Chosen, Own, Pool
from contrastlab.scores.choices import Choices, Need, Part
from contrastlab.scores.clusters import Clustered, same_cluster
from contrastlab.scores.schedules import Percent
from contrastlab.support import host
from contrastlab.support.errors import check, check_choice, check_integer, is_integer, reject

InnerOf = Literal["keys", "outer"]
_MOST = 2**24  # draws for a query


@dataclass(frozen=True)
class BatchRandom:
    """Random numbers for this process's rows of the global batch.

    Every process draws for the whole batch from the same generator and keeps its own rows, so that N processes choose
    what one process would.
    """

    generator: torch.Generator  # in the same state on every process, on the device of the scores
    first: int = 0  # index of this process's first row in the global batch
    global_batch: int | None = None  # its size; None is one process

    def uniform(self, batch: int, count: int, device: torch.device) -> Tensor:
        """``[batch, count]`` independent numbers in [0, 1), float64 on a CPU, float32 elsewhere."""
        dtype = torch.float64 if host.holds(device) else torch.float32
        shape = (self.global_batch or batch, count)
        draws = torch.rand(shape, generator=self.generator, device=device, dtype=dtype)
        return draws[self.first : self.first + batch]

    def below(self, high: int, batch: int, count: int, device: torch.device) -> Tensor:
        """``[batch, count]`` independent integers from 0 to ``high`` − 1."""
        shape = (self.global_batch or batch, count)
        draws = torch.randint(high, shape, generator=self.generator, device=device)
        return draws[self.first : self.first + batch]


def edges(keys: int, inner: float, outer: float, inner_of: InnerOf = "keys") -> tuple[int, int]:
    """Ranks ``[first, last)`` of a :class:`Ring` over ``keys`` candidates; an ``ArgumentError`` if no rank is left."""
    check_integer("keys", keys)
    schedules.check_percent("inner", inner)
    schedules.check_percent("outer", outer)
    last = schedules.rank(keys, outer)
    whole = keys if inner_of == "keys" else last
    first = schedules.rank(whole, inner)
    if first >= last:
        accepted = f"a ring that holds at least one of the {keys} keys (here ranks {first} to {last})"
        raise reject("ring", f"inner={inner:g} %, outer={outer:g} %", accepted)
    return first, last


def draw(candidates: Pool, first: int, last: int, own: Own, k: int | None, draws: BatchRandom) -> Chosen:
    """``k`` keys of a region, drawn with replacement; all of them by their indices for ``k=None``."""
    if k is None:
        return candidates.region(first, last, own)
    picks = draws.below(last - first, candidates.shape[0], k, candidates.device)
    return candidates.region(first, last, own, picks)


def check_k(k: int | None) -> None:
    """Reject an impossible number of draws."""
    if k is None:
        return
    if not is_integer(k) or k > _MOST:
        raise reject("k", k, f"a number of negatives from 1 to {_MOST}, or None for the whole region")


def _check_region(outer: Percent, k: int | None, own: Own = "excluded") -> None:
    schedules.check_percent("outer", outer)
    check(schedules.bounds(outer)[0] > 0, "outer", outer, "percentages above 0")
    check_k(k)
    check_choice("own", own, ("excluded", "ranked"))


def _set(k: int | None, region: str) -> str:
    """The set of negatives in LaTeX."""
    if k is None:
        return rf"\mathcal N={region}"
    return rf"\mathcal N={k}\text{{ keys drawn from the }}{region}"


class Negatives(Part):
    """Base of the choices of negatives."""

    def select(self, candidates: Pool, draws: BatchRandom, step: int, total: int) -> Chosen:
        """The negatives of each query at gradient step ``step`` (from 0) of ``total``."""
        raise NotImplementedError(f"{type(self).__name__} has no method select")


@dataclass(frozen=True)
class NoKeys(Negatives):
    """No negatives at all (Barlow Twins, VICReg, BYOL)."""

    latex = r"\mathcal N=\varnothing"

    def needs(self, given: Choices) -> Iterator[Need]:
        reason = f"{self!r} leaves the positive alone, and objective={given.objective!r} needs negatives"
        yield Need(choices.POSITIVE_ALONE, reason)

    def select(self, candidates: Pool, draws: BatchRandom, step: int, total: int) -> Chosen:
        return Chosen(torch.empty(candidates.shape[0], 0, dtype=torch.int64, device=candidates.device))


@dataclass(frozen=True)
class Every(Negatives):
    """All keys, each once (MoCo's queue, SimCLR's batch)."""

    bounds_information = True  # they are drawn from all keys
    latex = r"\mathcal N=\text{all other keys}"

    def select(self, candidates: Pool, draws: BatchRandom, step: int, total: int) -> Chosen:
        return Chosen(None, size=candidates.left("excluded"), columns=candidates.excluded("excluded"))


@dataclass(frozen=True)
class OtherLabel(Negatives):
    """All keys but those with the query's label, which are known to be no negatives: doubles, or its class.

    A label below 0 is not known, and spares no key.
    """

    reads_labels = True
    latex = r"\mathcal N=\{k:\text{another label than }+\}"

    def needs(self, given: Choices) -> Iterator[Need]:
        reason = f"{self!r} reads the classes of the keys, which a batch has"
        yield Need(choices.LABELLED, reason, f"given: keys={given.keys!r}")

    def select(self, candidates: Pool, draws: BatchRandom, step: int, total: int) -> Chosen:
        labels, own = candidates.labels, candidates.own
        if labels is None or own is None:
            raise reject("labels", None, "the classes of the keys, and which key is of the query's own item")
        spared = (labels[:, 0] == labels[own]) & (labels[own] >= 0)
        excluded = candidates.excluded("excluded")
        assert excluded is not None  # the own key is one
        return Chosen(None, spared.scatter(1, excluded, True))


@dataclass(frozen=True)
class Uniform(Negatives):
    """``k`` keys drawn uniformly with replacement for each query (IR, CMC); ``own``: see the module."""

    k: int = 4096
    own: Own = "excluded"

    bounds_information = True  # they are drawn from all keys

    def __post_init__(self) -> None:
        if self.k is None:
            raise reject("k", None, "a positive number of negatives; all of them are Every()")
        check_k(self.k)
        check_choice("own", self.own, ("excluded", "ranked"))

    def select(self, candidates: Pool, draws: BatchRandom, step: int, total: int) -> Chosen:
        left = candidates.left(self.own)
        if candidates.banned is not None:
            return draw(candidates, 0, left, self.own, self.k, draws)
        indices = draws.below(left, candidates.shape[0], self.k, candidates.device)
        if candidates.own is None or self.own == "ranked":
            return Chosen(indices)
        return Chosen(indices + (indices >= candidates.own[:, None]))

    @property
    def latex(self) -> str:
        return rf"\mathcal N={self.k}\text{{ keys drawn uniformly}}"


@dataclass(frozen=True)
class Ring(Negatives):
    """Keys between the closest ``inner`` % and the closest ``outer`` % (vince RING; ring §3); percent or schedules.

    Args:
        k: draws with replacement from the ring; ``None`` takes the whole ring (MoCoRing).
        inner_of: ``"keys"``: ``inner`` is a share of all keys (the papers); ``"outer"``: of the outer set,
            so that the inner edge shrinks with annealing (the released Ring code, with ``inner=10``).
        own: see the module.
    """

    inner: Percent = 1.0
    outer: Percent = 10.0
    k: int | None = 4096
    inner_of: InnerOf = "keys"
    own: Own = "excluded"

    def __post_init__(self) -> None:
        schedules.check_percent("inner", self.inner)
        _check_region(self.outer, self.k, self.own)
        check_choice("inner_of", self.inner_of, ("keys", "outer"))
        limit = schedules.bounds(self.outer)[0] if self.inner_of == "keys" else 100.0
        if schedules.bounds(self.inner)[1] >= limit:
            raise reject("inner", self.inner, f"percentages below {limit:g}, the smallest outer edge")

    def select(self, candidates: Pool, draws: BatchRandom, step: int, total: int) -> Chosen:
        inner = schedules.at(self.inner, step, total)
        outer = schedules.at(self.outer, step, total)
        first, last = edges(candidates.left(self.own), inner, outer, self.inner_of)
        if self.k is None:
            return candidates.whole_region(first, last, self.own)
        return draw(candidates, first, last, self.own, self.k, draws)

    @property
    def bounds_information(self) -> bool:
        """Not once the closest keys are skipped: then it depends on the scores that remain (ring Theorem 3.1)."""
        return schedules.bounds(self.inner)[1] == 0

    @property
    def latex(self) -> str:
        unit = r"\%"
        if self.inner_of == "outer":
            unit = r"\%\text{ of the outer set}"
        inner = schedules.latex(self.inner) + unit
        outer = schedules.latex(self.outer) + r"\%"
        return _set(self.k, rf"[{inner},\ {outer}]\text{{ closest}}")


@dataclass(frozen=True)
class Ball(Negatives):
    """The closest keys (vince BALL; LA's background neighbours)."""

    outer: Percent = 10.0  # ignored where nearest is given
    nearest: int | None = None  # a number of keys instead (LA: 4096); all keys if there are fewer
    k: int | None = 4096  # draws with replacement from the ball; None takes all of it
    own: Own = "excluded"

    bounds_information = True  # harder negatives only loosen the bound (vince Theorem 4.1)

    def __post_init__(self) -> None:
        _check_region(self.outer, self.k, self.own)
        if self.nearest is not None:
            check_integer("nearest", self.nearest)

    @property
    def offers(self) -> frozenset[str]:
        if self.k is None:
            return frozenset({choices.WHOLE_BALL})
        return frozenset()

    def select(self, candidates: Pool, draws: BatchRandom, step: int, total: int) -> Chosen:
        keys = candidates.left(self.own)
        if self.nearest is None:
            outer = schedules.at(self.outer, step, total)
            _, size = edges(keys, 0, outer)
        else:
            size = min(self.nearest, keys)
        return draw(candidates, 0, size, self.own, self.k, draws)

    @property
    def latex(self) -> str:
        size = rf"{schedules.latex(self.outer)}\%"
        if self.nearest is not None:
            size = f"{self.nearest}"
        return _set(self.k, rf"{size}\text{{ closest}}")


@dataclass(frozen=True)
class Cave(Clustered, Negatives):
    """The ball without the keys that share a k-means cluster with the query's own row (vince CAVE).

    A query whose whole ball lies in its own clusters has no negatives: its InfoNCE loss and gradient are 0.
    """

    outer: Percent = 10.0  # of the ball
    k: int | None = 4096  # draws with replacement; None takes all that is left
    clusters: int = 300  # of each run of k-means over the bank (vince C.2: 300 on CIFAR-10)
    runs: int = 10  # of k-means; sharing a cluster in any of them counts

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_region(self.outer, self.k)

    def select(self, candidates: Pool, draws: BatchRandom, step: int, total: int) -> Chosen:
        """``[B, k]`` draws outside the own clusters, or all of them with the rest absent."""
        whole = Ball(self.outer, k=None).select(candidates, draws, step, total)
        ball = whole.indices
        assert ball is not None
        in_own_cluster = same_cluster(candidates, ball)
        if self.k is None:
            return replace(whole, absent=in_own_cluster)
        # the d-th of the m keys left in a row, d uniform: found in the running count of those left
        running_count = (~in_own_cluster).cumsum(1)
        m = running_count[:, -1:]
        d = (draws.uniform(len(ball), self.k, ball.device) * m).long() + 1
        column = torch.searchsorted(running_count, d.clamp(max=m)).clamp(max=ball.shape[1] - 1)
        none_left = (m == 0).expand_as(column)
        return Chosen(ball.gather(1, column), none_left)

    @property
    def latex(self) -> str:
        return _set(self.k, rf"{schedules.latex(self.outer)}\%\text{{ closest outside the own cluster}}")
