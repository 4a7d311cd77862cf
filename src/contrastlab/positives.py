"""Which keys count as positives for a query, beside its own.

Sources: vince §4.2 and C.2 (``s-neigh``, ``k-neigh``, neighbour annealing), LA.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from contrastlab import schedules
from contrastlab.candidates import Candidates, Chosen, Stored
from contrastlab.errors import reject
from contrastlab.negatives import BatchRandom, check_clusters, check_k, picks, same_cluster
from contrastlab.schedules import Percent


@dataclass(frozen=True)
class One:
    """The query's own key and nothing else."""

    def select(
        self, candidates: Candidates | Stored, negatives: Chosen, draws: BatchRandom, step: int, total: int
    ) -> Chosen | None:
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

    def select(
        self, candidates: Candidates | Stored, negatives: Chosen, draws: BatchRandom, step: int, total: int
    ) -> Chosen | None:
        """``[B, k]`` neighbours; ``None`` while the percentage amounts to less than one key."""
        close = int(candidates.left("excluded") * schedules.at(self.inner, step, total) / 100 + 1e-9)
        if not close:
            return None
        drawn = picks(close, self.k, candidates.shape[0], draws, candidates.device)
        return candidates.region(0, close, "excluded", drawn)

    @property
    def latex(self) -> str:
        """The set."""
        return rf"\mathcal P=\{{+\}}\cup{schedules.latex(self.inner)}\%\text{{ closest}}"


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

    def select(
        self, candidates: Candidates | Stored, negatives: Chosen, draws: BatchRandom, step: int, total: int
    ) -> Chosen | None:
        """The negatives' indices, absent where the cluster differs."""
        if negatives.indices is None:
            raise reject("negatives", "Every", "a region with indices, such as Ball: SameCluster picks from it")
        return Chosen(negatives.indices, ~same_cluster(candidates, negatives.indices))

    @property
    def latex(self) -> str:
        """The set."""
        return r"\mathcal P=\{n\in\mathcal N:\text{same cluster as }+\}"


@dataclass(frozen=True)
class Many:
    """Several keys of the query's image, each a positive by itself: the mean of their losses (jcl Eq. 2–3).

    Args:
        count: M, keys of each image.
    """

    count: int = 5

    def __post_init__(self) -> None:
        if self.count < 1:
            raise reject("count", self.count, "an integer of at least 1")

    def select(
        self, candidates: Candidates | Stored, negatives: Chosen, draws: BatchRandom, step: int, total: int
    ) -> Chosen | None:
        """``None``: no stored key is a positive."""
        return None

    def pair(self, own: Tensor, step: int, total: int) -> tuple[Tensor, Tensor | None]:
        """``[B, M]`` logits as they are, and no lift."""
        return own, None

    @property
    def latex(self) -> str:
        """The set."""
        return rf"\mathcal P=\{{1,\dots,{self.count}\}}\text{{, mean over }}+\in\mathcal P"


@dataclass(frozen=True)
class Joint:
    """Infinitely many keys of the query's image in closed form, from the mean and covariance of a few (jcl Eq. 8).

    Only ``q·μ`` and ``qᵀΣq`` enter, and these are the mean and the variance of ``q·k_m`` over the keys: the d×d
    matrix is never built. The variance divides by M′, as jcl Algorithm 1 prints it, which is (M′ − 1)/M′ of the
    unbiased one.

    Args:
        count: M′, keys of each image.
        strength: λ, a number or a schedule. The paper has λ = 4 throughout; its released code lets λ grow linearly
            over the run, ``Linear(0, 2, until=1)``. Below 1 the loss is no upper bound of the expected InfoNCE.
    """

    count: int = 5
    strength: schedules.Percent = 4.0

    def __post_init__(self) -> None:
        low, high = schedules.bounds(self.strength)
        if not (math.isfinite(low) and math.isfinite(high) and low >= 0):
            raise reject("strength", self.strength, "a number of at least 0, or a schedule of such")
        least = 2 if high > 0 else 1
        if self.count < least:
            raise reject("count", self.count, "at least 2 keys, to have a covariance (1 with strength=0)")

    def select(
        self, candidates: Candidates | Stored, negatives: Chosen, draws: BatchRandom, step: int, total: int
    ) -> Chosen | None:
        """``None``: no stored key is a positive."""
        return None

    def pair(self, own: Tensor, step: int, total: int) -> tuple[Tensor, Tensor | None]:
        """``[B, M′]`` logits → their mean ``[B]``, and ``λ/2`` times their variance, to be added in the denominator."""
        strength = schedules.at(self.strength, step, total)
        return own.mean(1), strength / 2 * own.var(1, correction=0) if strength else None

    @property
    def latex(self) -> str:
        """The set."""
        return (
            rf"\mathcal P=\{{k\sim N(\mu,\Sigma)\}},\ s^+=q\cdot\mu/\tau\text{{, in the denominator plus }}"
            rf"\tfrac{{{schedules.latex(self.strength)}}}{{2\tau^2}}q^\top\Sigma q,\ M'={self.count}"
        )


Positives = One | Neighbours | SameCluster | Many | Joint
