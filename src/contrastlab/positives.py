"""Which keys count as positives for a query, beside its own (vince §4.2 and C.2; LA; jcl)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from contrastlab.negatives import BatchRandom, check_k, draw
from contrastlab.scores import choices, schedules
from contrastlab.scores.candidates import Chosen, Pool
from contrastlab.scores.choices import Choices, Need, Part
from contrastlab.scores.clusters import Clustered, same_cluster
from contrastlab.scores.schedules import Percent
from contrastlab.support.errors import check_integer, is_integer, is_number, reject


class Positives(Part):
    """Base of the choices of positives: one key of the query's item, and no other key."""

    @property
    def further_keys(self) -> int:
        """Keys of further views of the item, if they are asked for; 0 is the one key that every query has."""
        return 0

    def select(self, candidates: Pool, negatives: Chosen, draws: BatchRandom, step: int, total: int) -> Chosen | None:
        """Further positives among the stored keys; ``None`` if there are none."""
        return None

    def pair(self, own: Tensor, step: int, total: int) -> tuple[Tensor, Tensor | None]:
        """``[B, M]`` logits of the item's keys → the positive logits, ``[B]`` or ``[B, M]``, and a lift ``[B]``.

        The lift is added to the positive logit in the denominator; ``None`` is 0.
        """
        return own[:, 0], None

    def stored(self, keys: Tensor) -> Tensor:
        """``[B, M, d]`` keys of the items → the ``[B, d]`` that are stored."""
        return keys[:, 0]


@dataclass(frozen=True)
class One(Positives):
    """The query's own key and nothing else."""

    offers = frozenset({choices.ONE_POSITIVE, choices.SINGLE_KEY, choices.OWN_KEYS})
    bounds_information = True
    latex = r"\mathcal P=\{+\}"


@dataclass(frozen=True)
class Neighbours(Positives):
    """The own key and the closest ``inner`` % of all keys (vince ``s-neigh``).

    Args:
        inner: percent or schedule (vince anneals it from 0 to 1).
        k: draws with replacement from them (the paper's L − 1, a number it does not give); ``None`` takes all.
    """

    inner: Percent = 1.0
    k: int | None = None

    offers = frozenset({choices.SINGLE_KEY})

    def __post_init__(self) -> None:
        schedules.check_percent("inner", self.inner)
        check_k(self.k)

    def select(self, candidates: Pool, negatives: Chosen, draws: BatchRandom, step: int, total: int) -> Chosen | None:
        """``[B, k]`` neighbours; ``None`` while the percentage amounts to less than one key."""
        close = schedules.rank(candidates.left("excluded"), schedules.at(self.inner, step, total))
        return draw(candidates, 0, close, "excluded", self.k, draws) if close else None

    @property
    def latex(self) -> str:
        return rf"\mathcal P=\{{+\}}\cup{schedules.latex(self.inner)}\%\text{{ closest}}"


@dataclass(frozen=True)
class SameLabel(Positives):
    """The own key and all keys of the query's class, each once (Khosla et al. 2020); they stay in the denominator."""

    offers = frozenset({choices.SINGLE_KEY})
    reads_labels = True
    latex = r"\mathcal P=\{+\}\cup\{k:\text{same label as }+\}"

    def needs(self, given: Choices) -> Iterator[Need]:
        reason = f"{self!r} reads the classes of the keys, which a batch has"
        yield Need(choices.LABELLED, reason, f"given: keys={given.keys!r}")

    def select(self, candidates: Pool, negatives: Chosen, draws: BatchRandom, step: int, total: int) -> Chosen | None:
        """All keys, those of other classes absent."""
        labels, own = candidates.labels, candidates.own
        if labels is None or own is None:
            raise reject("labels", None, "the classes of the keys, and which key is of the query's own item")
        absent = labels[:, 0] != labels[own]
        excluded = candidates.excluded("excluded")
        assert excluded is not None  # the own key is one
        return Chosen(None, absent.scatter(1, excluded, True))


@dataclass(frozen=True)
class SameCluster(Clustered, Positives):
    """The chosen negatives that share a k-means cluster with the own row (LA; vince ``k-neigh``).

    They stay in the denominator: LA's close neighbours are a part of its background neighbours.
    """

    clusters: int = 300  # of each run of k-means over the bank (vince C.2: 300 on CIFAR-10, 30,000 on ImageNet)
    runs: int = 10  # of k-means; sharing a cluster in any of them counts

    offers = frozenset({choices.SINGLE_KEY, choices.SAME_CLUSTER})
    latex = r"\mathcal P=\{n\in\mathcal N:\text{same cluster as }+\}"

    def needs(self, given: Choices) -> Iterator[Need]:
        yield from super().needs(given)
        why = "SameCluster picks positives from the background neighbours, so negatives must be a whole Ball(k=None)"
        yield Need(choices.WHOLE_BALL, why, f"given: {given.negatives!r}")

    def select(self, candidates: Pool, negatives: Chosen, draws: BatchRandom, step: int, total: int) -> Chosen | None:
        if negatives.indices is None:
            raise reject("negatives", "Every", "a region with indices, such as Ball: SameCluster picks from it")
        return Chosen(negatives.indices, ~same_cluster(candidates, negatives.indices))


class _EveryKey(Positives):
    bounds_information = True  # each key by itself gives a bound, and so does their mean

    def pair(self, own: Tensor, step: int, total: int) -> tuple[Tensor, Tensor | None]:
        return own, None


@dataclass(frozen=True)
class Each(_EveryKey):
    """All keys of the query's item, such as the locations of a map (CMC B.2; DIM): the mean of their losses."""

    offers = frozenset({choices.OWN_KEYS, choices.EACH_KEY})
    latex = r"\mathcal P=\{\text{every key of the item}\}\text{, mean over }+\in\mathcal P"


class _OfFurtherViews(Positives):
    count: int  # keys of each item, each of a view of its own

    @property
    def further_keys(self) -> int:
        return self.count

    def needs(self, given: Choices) -> Iterator[Need]:
        why = f"positives={self!r} are keys of a momentum encoder, so keys must be a Queue"
        yield Need(choices.FURTHER_KEYS, why, f"given: {given.keys!r}")


@dataclass(frozen=True)
class Many(_EveryKey, _OfFurtherViews):
    """Several keys of the query's image, each a positive by itself: the mean of their losses (jcl Eq. 2–3)."""

    count: int = 5  # M, keys of each image

    offers = frozenset({choices.OWN_KEYS})

    def __post_init__(self) -> None:
        check_integer("count", self.count)

    @property
    def latex(self) -> str:
        return rf"\mathcal P=\{{1,\dots,{self.count}\}}\text{{, mean over }}+\in\mathcal P"


@dataclass(frozen=True)
class Joint(_OfFurtherViews):
    """Infinitely many keys of the query's image in closed form, from the mean and covariance of a few (jcl Eq. 8).

    Only ``q·μ`` and ``qᵀΣq`` enter, the mean and the variance of ``q·k_m`` over the keys: the d×d matrix is never
    built. The variance divides by M′, as in jcl Algorithm 1.

    Args:
        count: M′, keys of each image.
        strength: λ, a number or a schedule. The paper has λ = 4 throughout; its released code lets λ grow linearly
            over the run, ``Linear(0, 2, until=1)``. Below 1 the loss is no upper bound of the expected InfoNCE.
    """

    count: int = 5
    strength: Percent = 4.0

    def __post_init__(self) -> None:
        low, high = schedules.bounds(self.strength)
        if not (is_number(low) and is_number(high) and low >= 0):
            raise reject("strength", self.strength, "a number of at least 0, or a schedule of such")
        least = 2 if high > 0 else 1
        if not is_integer(self.count, least):
            raise reject("count", self.count, "at least 2 keys, to have a covariance (1 with strength=0)")

    @property
    def offers(self) -> frozenset[str]:
        if schedules.bounds(self.strength) == (0, 0):
            return frozenset({choices.SINGLE_KEY})
        return frozenset()

    def needs(self, given: Choices) -> Iterator[Need]:
        yield from super().needs(given)
        why = "Joint is the closed form of InfoNCE's expectation over Gaussian keys"
        advice = f"with objective={given.objective!r} take positives=Many({self.count})"
        yield Need(choices.LOG_SUM_EXP, why, advice)

    def pair(self, own: Tensor, step: int, total: int) -> tuple[Tensor, Tensor | None]:
        """``[B, M′]`` logits → their mean ``[B]``, and ``λ/2`` times their variance, to be added in the denominator."""
        strength = schedules.at(self.strength, step, total)
        return own.mean(1), strength / 2 * own.var(1, correction=0) if strength else None

    def stored(self, keys: Tensor) -> Tensor:
        """The mean key, not normalised again, as in the released code."""
        return keys.mean(1)

    @property
    def latex(self) -> str:
        return (
            rf"\mathcal P=\{{k\sim N(\mu,\Sigma)\}},\ s^+=q\cdot\mu/\tau\text{{, in the denominator plus }}"
            rf"\tfrac{{{schedules.latex(self.strength)}}}{{2\tau^2}}q^\top\Sigma q,\ M'={self.count}"
        )
