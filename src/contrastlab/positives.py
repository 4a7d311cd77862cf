"""Which keys count as positives for a query, beside its own.

Sources: vince §4.2 and C.2 (``s-neigh``, ``k-neigh``, neighbour annealing), LA.
"""

from __future__ import annotations

from dataclasses import dataclass

from contrastlab import schedules
from contrastlab.errors import reject
from contrastlab.negatives import (
    Candidates,
    Chosen,
    Draws,
    check_clusters,
    check_k,
    draw_from,
    rank,
    ring_indices,
    same_cluster,
)
from contrastlab.schedules import Percent


@dataclass(frozen=True)
class One:
    """The query's own key and nothing else."""

    def select(self, candidates: Candidates, negatives: Chosen, draws: Draws, step: int, total: int) -> Chosen | None:
        """``None``: nothing beside the own key."""
        return None

    @property
    def latex(self) -> str:
        """The set."""
        return r"\mathcal P=\{+\}"


@dataclass(frozen=True)
class Neighbours:
    """The own key and the closest ``inner`` % of all keys (vince ``s-neigh``).

    Args:
        inner: percent or schedule (vince anneals it from 0 to 1).
        k: draws with replacement from them (the paper's L − 1, a number it does not give); ``None`` takes all.
    """

    inner: Percent = 1.0
    k: int | None = None

    def __post_init__(self) -> None:
        schedules.check_percent("inner", self.inner)
        check_k(self.k)

    def select(self, candidates: Candidates, negatives: Chosen, draws: Draws, step: int, total: int) -> Chosen | None:
        """``[B, k]`` neighbours; ``None`` while the percentage amounts to less than one key."""
        own = None if candidates.own is None else candidates.own[:, None]
        before = None if own is None else candidates.logits.detach().gather(1, own)
        ranking, keys = rank(candidates, "excluded")
        close = int(keys * schedules.at(self.inner, step, total) / 100 + 1e-9)
        indices = ring_indices(ranking, 0, close) if close else None
        if own is not None and before is not None:
            ranking.scatter_(1, own, before)  # the own row may be a chosen negative, whose logit is still to be read
        return None if indices is None else Chosen(draw_from(indices, self.k, draws))

    @property
    def latex(self) -> str:
        """The set."""
        return rf"\mathcal P=\{{+\}}\cup\text{{{{}}}}{schedules.latex(self.inner)}\%\text{{ closest}}"


@dataclass(frozen=True)
class SameCluster:
    """The chosen negatives that share a k-means cluster with the own row (LA; vince ``k-neigh``).

    They stay in the denominator: LA's close neighbours are a part of its background neighbours.

    Args:
        clusters: clusters of each run of k-means over the bank (vince C.2: 300 on CIFAR-10, 30,000 on ImageNet).
        runs: runs of k-means; sharing a cluster in any of them counts.
    """

    clusters: int = 300
    runs: int = 10

    def __post_init__(self) -> None:
        check_clusters(self.clusters, self.runs)

    def select(self, candidates: Candidates, negatives: Chosen, draws: Draws, step: int, total: int) -> Chosen | None:
        """The negatives' indices, absent where the cluster differs."""
        if negatives.indices is None:
            raise reject("negatives", "Every", "a region with indices, such as Ball: SameCluster picks from it")
        return Chosen(negatives.indices, ~same_cluster(candidates, negatives.indices))

    @property
    def latex(self) -> str:
        """The set."""
        return r"\mathcal P=\{n\in\mathcal N:\text{same cluster as }+\}"


Positives = One | Neighbours | SameCluster
