"""From scores to a number to minimise.

A score is a logit ``s = q·k/τ``; every function takes logits and returns one loss per query, in nats. Absent entries
hold :data:`~contrastlab.scores.logits.ABSENT`, so that a selection whose size differs from query to query is one
rectangular tensor. These are losses, not bounds: :meth:`InfoNCE.bound` exists only where the positive is one of the
terms of the denominator (ring Theorem 3.1 as printed leaves it out, and its value can then exceed the mutual
information).
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab.negatives import BatchRandom, Every, Negatives
from contrastlab.positives import SameLabel
from contrastlab.scores import choices, divergences
from contrastlab.scores.candidates import DENSE_BYTES, Stored, checked
from contrastlab.scores.choices import Choices, Need, Part, Setup
from contrastlab.scores.divergences import Divergence
from contrastlab.scores.logits import ABSENT, check_scores
from contrastlab.support import collectives
from contrastlab.support.errors import (
    NotApplicableError,
    check,
    check_choice,
    check_flag,
    check_integer,
    check_positive,
    is_integer,
    is_number,
    reject,
)
from contrastlab.support.tensors import (
    check_floating,
    check_same,
    check_unit,
    describe,
    is_floating,
    is_whole,
    unit_rows,
    without_autocast,
)

Trained = TypeVar("Trained", bound=nn.Module)

COLDEST = 1e-28
"""The lowest temperature: below, logits of unit vectors come near to that of an absent entry."""

KAPPA = 2876934.2 / 1281167
"""κ of the released IR and LA code, about the mean of exp(s) over random unit vectors (d = 128, τ = 0.07)."""


def check_logits(own: Tensor, most: int = 1, **others: Tensor | None) -> None:
    """Reject ``own`` of more than ``most`` dimensions, and others that are not one row for each of its queries."""
    logits_to_check = {"own": own}
    for name, logits in others.items():
        if name == "negatives" or logits is not None:  # negatives are never left out
            logits_to_check[name] = logits  # type: ignore[assignment]
    check_scores(**logits_to_check)
    # a [B, 1] or [1, K] would broadcast to a loss of other pairs
    if not 1 <= own.dim() <= most or not own.numel():
        accepted = "[B] or [B, M], positive logits" if most == 2 else "[B], a positive logit"
        raise reject("own", tuple(own.shape), f"a tensor of shape {accepted} for each query")
    for name, logits in others.items():
        if logits is not None and (logits.dim() != 2 or len(logits) != len(own) or logits.device != own.device):
            raise reject(name, tuple(logits.shape), f"a tensor of shape [{len(own)}, K] on {own.device}, a row a query")


# The losses as pure functions of logits -------------------------------------------------------------------------------


class _LogSumExp(torch.autograd.Function):
    # Keeps the exponentials, which torch.logsumexp computes again backward: two passes over [B, K] of a long queue.
    # They are an output, too, with a derivative of their own, so that a gradient of the gradient needs nothing else.
    generate_vmap_rule = True

    @staticmethod
    def forward(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        top = logits.amax(1, keepdim=True)
        top = torch.where(top.isinf(), 0.0, top)
        weights = (logits - top).exp_()
        total = weights.sum(1)
        return total.log() + top[:, 0], weights, total

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _, weights, total = output
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(weights, total)
        ctx.save_for_forward(weights, total)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, of_weights: Tensor | None, of_total: Tensor | None) -> Tensor:
        weights, total = ctx.saved_tensors
        slope = weights.new_zeros(len(weights)) if of_total is None else of_total
        if gradient is not None:
            # a row of -inf alone has no weight; a total that is NaN must stay so
            share = torch.where(total == 0, 0.0, gradient / total)
            slope = share if of_total is None else slope + share
        if of_weights is None:
            return weights * slope[:, None]
        return weights * (slope[:, None] + of_weights)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        weights, total = ctx.saved_tensors
        moved = weights * tangent
        moved_total = moved.sum(1)
        return torch.where(total == 0, 0.0, moved_total / total), moved, moved_total


def row_logsumexp(logits: Tensor) -> Tensor:
    """``[B, K]`` → ``[B]``; ``-inf`` for no columns."""
    # a compiler fuses what the function of our own spares, and does not take one with forward-mode derivatives
    if not logits.shape[1] or torch.compiler.is_compiling():
        return torch.logsumexp(logits, 1)
    return _LogSumExp.apply(logits)[0]


def _with_own(own: Tensor, others: Tensor) -> Tensor:
    """``logsumexp`` over an own logit ``[B]`` and others ``[B, K]``, which a concatenation would copy."""
    if not others.shape[1]:
        return own
    return torch.logaddexp(own, row_logsumexp(others))


def info_nce(
    own: Tensor, negatives: Tensor, neighbours: Tensor | None = None, *, positive_in_denominator: bool = True
) -> Tensor:
    """InfoNCE loss ``logsumexp(denominator) − logsumexp(numerator)``.

    Args:
        own: ``[B]`` positive logits.
        negatives: ``[B, K]`` negative logits.
        neighbours: ``[B, P]`` logits added to the numerator only (vince §4.2, ``s-neigh`` and ``k-neigh``;
            a sum inside the logarithm, not a mean, so the ratio can exceed 1).
        positive_in_denominator: ``True`` is ring Eq. 1–2 and all released code; ``False`` is ring Theorem 3.1 and
            Algorithm 1 as printed, which bounds nothing by ``log K``. A query whose negatives are all absent then has
            loss and gradient 0, as it does with the positive in the denominator.
    """
    check_logits(own, negatives=negatives, neighbours=neighbours)
    if not positive_in_denominator and negatives.shape[1] == 0:
        raise reject("negatives", tuple(negatives.shape), "at least one column when the positive is left out")
    numerator = own
    if neighbours is not None:
        numerator = _with_own(own, neighbours)
    if positive_in_denominator:
        return _with_own(own, negatives) - numerator
    denominator = row_logsumexp(negatives)
    without_negatives = (denominator <= ABSENT / 2) & numerator.isfinite()
    return torch.where(without_negatives, 0.0, denominator - numerator)


def multi_key_info_nce(own: Tensor, negatives: Tensor, lift: Tensor | None = None) -> Tensor:
    """InfoNCE for M positive keys of each query: the mean of M losses, or JCL's closed form.

    Args:
        own: ``[B, M]``: the mean over m of ``logsumexp(own_m, negatives) − own_m`` (jcl Eq. 2–3), each key alone in
            its denominator; ``[B]`` the mean logit ``q·μ/τ`` (jcl Eq. 8).
        negatives: ``[B, K]``.
        lift: ``[B]`` with a mean logit, ``λ/2 · Var_m(q·k_m/τ) = λ/(2τ²) qᵀΣq``.
    """
    check_logits(own, 2, negatives=negatives)
    if lift is not None and (own.dim() != 1 or lift.shape != own.shape):
        accepted = f"a tensor of shape [{len(own)}]" if own.dim() == 1 else f"None with own of shape {list(own.shape)}"
        raise reject("lift", tuple(lift.shape), accepted)
    rest = row_logsumexp(negatives)
    if own.dim() == 2:
        return (torch.logaddexp(own, rest[:, None]) - own).mean(1)
    own_in_denominator = own
    if lift is not None:
        own_in_denominator = own + lift
    return torch.logaddexp(own_in_denominator, rest) - own


def f_micl(
    own: Tensor, negatives: Tensor, present: Tensor, divergence: Divergence, weight: float, *, similarity: str = "log u"
) -> Tensor:
    """f-MICL loss ``−mean f′(u⁺) + α · mean f*(f′(u⁻))`` (fmicl Eq. 11 and Algorithm 1).

    ``own`` ``[B]`` or ``[B, M]`` and ``negatives`` ``[B, K]`` are log u, or with ``similarity="score"`` what takes the
    place of f′(u) (the paper's cosine similarity). ``present`` says which negatives are there; a query without any has
    the term of its positives alone. ``weight`` is α.
    """
    check_logits(own, 2, negatives=negatives)
    if present.shape != negatives.shape:
        raise reject("present", tuple(present.shape), f"the shape of negatives, {list(negatives.shape)}")
    negatives = torch.where(present, negatives, 0.0)
    if similarity == "log u":
        of_positives = divergence.derivative(own)
        of_negatives = divergence.composition(negatives)
    else:
        of_positives = own
        of_negatives = divergence.conjugate(negatives)
    if of_positives.dim() == 2:
        of_positives = of_positives.mean(1)
    sums = torch.where(present, of_negatives, 0.0).sum(1)
    return weight * sums / present.sum(1).clamp(min=1) - of_positives


def binary_nce(own: Tensor, negatives: Tensor, offset: float | Tensor) -> Tensor:
    """Noise-contrastive estimation as ``K + 1`` logistic terms with one offset.

    With partition constant ``Z = κN`` and uniform noise the data-set size N cancels and what is left is
    ``softplus(o − s⁺) + Σ softplus(s⁻ − o)``, ``o = log(κK)`` (original IR); CMC has ``o = log(K·mean exp(s))`` of its
    first batch. The terms are summed, as in the released code.
    """
    check_logits(own, negatives=negatives)
    # softplus of -inf is 0: an infinite score would look like a perfect one
    certain = torch.where(own.isposinf(), math.nan, own)
    return F.softplus(offset - certain) + F.softplus(negatives - offset).sum(1)


def local_aggregation(members: Tensor, background: Tensor, floor: float = 1e-7) -> Tensor:
    """LA's loss ``−log(Σ_C exp s / Σ_B exp s + floor)``.

    Args:
        members: ``[B, P]`` logits of the close neighbours C (:data:`~contrastlab.scores.logits.ABSENT` elsewhere).
        background: ``[B, K]`` logits of the background neighbours B.
        floor: added to the ratio in the released code; a query with an empty C costs ``−log floor`` and has no
            gradient.
    """
    check_logits(members.new_empty(len(members)), members=members, background=background)
    if not background.shape[1]:
        raise reject("background", tuple(background.shape), "at least one background neighbour")
    whole = row_logsumexp(background)
    # an infinite sum would leave the floor alone, which is a number
    log_ratio = row_logsumexp(members) - torch.where(whole.isposinf(), math.nan, whole)
    return -torch.logaddexp(log_ratio, log_ratio.new_full((), math.log(floor)))


# Objectives -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scores:
    """Logits of a batch of queries against the keys chosen for them."""

    own: Tensor  #: ``[B]``, against the positive key; ``[B, M]`` against M of them, each a positive by itself
    negatives: Tensor  #: ``[B, K]``; :data:`~contrastlab.scores.logits.ABSENT` where a row has fewer
    neighbours: Tensor | None = None  #: ``[B, P]`` of further positives, likewise
    count: int | None = None  #: negatives K of one query, where that is less than the number of columns
    lift: Tensor | None = None  #: ``[B]`` added to ``own`` in the denominator only (JCL's variance term)
    highest: float | Tensor | None = None  #: 1/τ, of a query with itself: similarities are ``logit / highest``
    embeddings: Tensor | None = None  #: ``[B, 2, d]`` queries and positives, for an objective that reads them

    def __post_init__(self) -> None:
        check_logits(self.own, 2, negatives=self.negatives, neighbours=self.neighbours)
        if self.lift is not None:
            check_scores(lift=self.lift)
            if self.lift.shape != self.own.shape[:1]:
                raise reject("lift", tuple(self.lift.shape), f"a tensor of shape [{len(self.own)}]")
        if self.count is not None and not (is_integer(self.count, 0) and self.count <= self.negatives.shape[1]):
            raise reject("count", self.count, f"None, or an integer up to the {self.negatives.shape[1]} columns")
        if self.highest is not None and not isinstance(self.highest, Tensor):
            check_positive(highest=self.highest)
        shape = None if self.embeddings is None else tuple(self.embeddings.shape)
        if shape is not None and not (len(shape) == 3 and shape[:2] == (len(self.own), 2) and shape[2] > 0):
            raise reject("embeddings", shape, f"a tensor of shape [{len(self.own)}, 2, d]")

    @property
    def size(self) -> int:
        """K, the negatives of one query."""
        if self.count is not None:
            return self.count
        return self.negatives.shape[1]

    def zero_without_negatives(self, losses: Tensor) -> Tensor:
        """Losses ``[B]``, 0 for a query without negatives; NaN where the positive logit ``[B]`` is not finite."""
        losses = torch.where(self.present.any(1), losses, 0.0)
        return torch.where(self.own.isfinite(), losses, math.nan)

    @property
    def present(self) -> Tensor:
        """``[B, K]`` whether a negative is there."""
        # NaN counts as there: a loss of what is not a number must not be one
        return ~(self.negatives <= ABSENT / 2)

    def require_highest(self, objective: str) -> Any:
        """``highest``, for an objective that reads distances from logits."""
        if self.highest is None:
            raise reject("highest", None, f"1/τ with {objective}: the logit of a query with itself")
        return self.highest

    def require_embeddings(self, objective: str) -> Tensor:
        """``embeddings``, for an objective that reads them in place of scores."""
        if self.embeddings is None:
            raise reject("embeddings", None, f"queries and positives, a tensor [B, 2, d], with {objective}")
        return self.embeddings

    def require_one_positive(self, objective: str) -> None:
        """Reject several positive keys or a lift."""
        if self.own.dim() != 1 or self.lift is not None:
            raise reject("own", tuple(self.own.shape), f"one positive key per query, shape [B], with {objective}")

    def require_pairs(self, objective: str) -> None:
        """Reject neighbours, a lift or no negatives at all: the objective averages over pairs."""
        if self.lift is not None:
            self.require_one_positive(objective)
        if self.neighbours is not None:
            raise reject("neighbours", tuple(self.neighbours.shape), f"None with {objective}: a mean over pairs")
        if not self.negatives.shape[1]:
            raise reject("negatives", tuple(self.negatives.shape), "at least one negative: a batch of two or more")


@dataclass(frozen=True)
class Context:
    """What an objective may read besides scores: how far the run is, and what the objective keeps or trains in it."""

    step: int = 0  #: from 0, of a run of ``total`` steps
    total: int = 1
    direction: int = 0  #: which of the losses of a step it is
    module: nn.Module | None = None  #: that :meth:`Objective.module` made; ``None`` for what it would begin with
    items: Tensor | None = None  #: ``[B]`` numbers of the queries' items, for what is kept of each

    def require(self, kind: type[Trained], objective: str) -> Trained | None:
        """The module; one of another kind is refused."""
        if self.module is None or isinstance(self.module, kind):
            return self.module
        raise reject("module", describe(self.module), f"None, or a {kind.__name__} with {objective}")


ALONE = Context()
"""The context of a loss outside a run."""


class Objective(Part):
    """Base of the objectives: the loss of a batch is the mean over its queries, and no bound is known."""

    couples_queries: ClassVar[bool] = False
    """Whether :meth:`reduce` must see the queries of all processes together."""
    reads_embeddings: ClassVar[bool] = False
    """Whether a call reads ``Scores.embeddings``: queries and positives as the keys give them, of no set length."""

    @property
    def needs_whole_batch(self) -> bool:
        """Whether one call must see all queries of a process, also where a batch is computed in chunks."""
        return False

    def module(self, setup: Setup) -> nn.Module | None:
        """What the objective trains, or keeps from step to step; ``None`` for nothing. Calls get it in their context.

        Its parameters are trained with the encoders and stored in checkpoints. Those without dimensions, such as a
        learnt temperature, get no weight decay.
        """
        return None

    def check(self, temperature: float) -> None:
        """Reject a temperature that the objective cannot be computed at."""
        check_positive(temperature=temperature)
        check(temperature >= COLDEST, "temperature", temperature, f"a number of at least {COLDEST:g}")

    def __call__(self, scores: Scores, context: Context = ALONE) -> Tensor:
        """Losses ``[B]`` in nats, or ``[B, …]`` of what :meth:`reduce` needs."""
        raise NotImplementedError

    def reduce(self, rows: Tensor) -> Tensor:
        """Scalar loss of the rows that a call gave."""
        return rows.mean()

    def bound(self, loss: float, terms: int) -> float | None:
        """Lower bound on the mutual information in nats, from a loss with so many terms; ``None`` if none is known."""
        return None


@dataclass(frozen=True)
class InfoNCE(Objective):
    """Softmax classification of the positive among the keys (vince Eq. 2; ring Eq. 1)."""

    positive_in_denominator: bool = True

    offers = frozenset({choices.LOG_SUM_EXP})

    def __post_init__(self) -> None:
        check_flag("positive_in_denominator", self.positive_in_denominator)

    def needs(self, given: Choices) -> Iterator[Need]:
        if not self.positive_in_denominator:
            why = "InfoNCE with the positive left out of the denominator knows one key per image"
            yield Need(choices.SINGLE_KEY, why, f"given: positives={given.positives!r}")

    @property
    def bounds_information(self) -> bool:
        """Whether the positive is in the denominator: ring Eq. 1, not Theorem 3.1 as printed."""
        return self.positive_in_denominator

    def __call__(self, scores: Scores, context: Context = ALONE) -> Tensor:
        if scores.own.dim() == 2 or scores.lift is not None:
            if scores.neighbours is not None or not self.positive_in_denominator:
                scores.require_one_positive("neighbours, or with the positive left out of the denominator")
            return multi_key_info_nce(scores.own, scores.negatives, scores.lift)
        return info_nce(
            scores.own, scores.negatives, scores.neighbours, positive_in_denominator=self.positive_in_denominator
        )

    def bound(self, loss: float, terms: int) -> float | None:
        """``log(terms) − loss`` with the positive in the denominator; ``None`` where it bounds nothing."""
        if not self.positive_in_denominator:
            return None
        return math.log(terms) - loss

    @property
    def latex(self) -> str:
        own = "e^{s^+}+" if self.positive_in_denominator else ""
        return rf"-\log\frac{{\sum_{{p\in\mathcal P}}e^{{s_p}}}}{{{own}\sum_{{n\in\mathcal N}}e^{{s_n}}}}"


@dataclass(frozen=True)
class BinaryNCE(Objective):
    """Logistic form of NCE: the original IR and the default of CMC. ``log K`` minus it is no bound.

    ``kappa`` is the mean of ``exp(s)`` that stands for the partition function; ``None`` estimates it on the first batch
    and keeps it, as CMC does (its Z₀).
    """

    kappa: float | None = KAPPA

    def __post_init__(self) -> None:
        if self.kappa is not None:
            check_positive(kappa=self.kappa)

    def needs(self, given: Choices) -> Iterator[Need]:
        what = f"{self!r} decides about one positive key per image"
        yield Need(choices.ONE_POSITIVE, what, f"given: positives={given.positives!r}")

    @property
    def needs_whole_batch(self) -> bool:
        """Whether an offset is estimated, from all scores of the first batch."""
        return self.kappa is None

    def module(self, setup: Setup) -> FirstOffset | None:
        return FirstOffset(setup.directions) if self.kappa is None else None

    def offset(self, scores: Scores) -> Tensor:
        """``log(κK)``, with κ from ``scores`` (positives included) where it is not given."""
        count = scores.own.new_full((), float(scores.size))
        if self.kappa is not None:
            return count.log() + math.log(self.kappa)
        every = torch.cat([scores.own[:, None], scores.negatives], 1).detach()
        return count.log() + torch.logsumexp(every.flatten(), 0) - (~(every <= ABSENT / 2)).sum().to(every.dtype).log()

    def __call__(self, scores: Scores, context: Context = ALONE) -> Tensor:
        scores.require_one_positive("BinaryNCE")
        offset = self.offset(scores)
        first = context.require(FirstOffset, "BinaryNCE")
        if first is not None:
            offset = first(offset, context.direction)
        return binary_nce(scores.own, scores.negatives, offset)

    @property
    def latex(self) -> str:
        o = r"\log K\kappa" if self.kappa is not None else r"\log K Z_0"
        return rf"\operatorname{{softplus}}(o-s^+)+\sum_{{n\in\mathcal N}}\operatorname{{softplus}}(s_n-o),\quad o={o}"


class FirstOffset(nn.Module):
    """The offset of the first batch, one for each direction, which is kept from then on (CMC's Z₀)."""

    values: Tensor

    def __init__(self, directions: int) -> None:
        super().__init__()
        self.register_buffer("values", torch.full((directions,), math.nan))

    @torch.no_grad()
    def forward(self, offset: Tensor, direction: int) -> Tensor:
        """The offset to use, where ``offset`` is this batch's, both scalars in nats.

        It is decided on the device, and the host waits for nothing.
        """
        every = collectives.gather(offset[None])
        mean = torch.logsumexp(every, 0) - math.log(len(every))
        kept = self.values[direction]
        self.values[direction] = torch.where(kept.isnan(), mean, kept)
        return self.values[direction].clone()


@dataclass(frozen=True)
class LocalAggregation(Objective):
    """LA's probability of a close neighbour within the background neighbours (vince §3.2, released code).

    It exceeds the loss whose bound is known (vince Lemma 4.4 as printed is false).
    """

    floor: float = 1e-7

    def __post_init__(self) -> None:
        if not (is_number(self.floor) and 0 < self.floor < 1):
            raise reject("floor", self.floor, "a number between 0 and 1")

    def needs(self, given: Choices) -> Iterator[Need]:
        yield Need(choices.SAME_CLUSTER, "LocalAggregation needs positives=SameCluster()")

    def __call__(self, scores: Scores, context: Context = ALONE) -> Tensor:
        """``[B]`` losses; ``scores.neighbours`` are C and ``scores.negatives`` are B, own row ranked like any other."""
        scores.require_one_positive("LocalAggregation")
        if scores.neighbours is None:
            raise reject("neighbours", None, "the logits of the close neighbours: LA needs SameCluster positives")
        return local_aggregation(scores.neighbours, scores.negatives, self.floor)

    latex = r"-\log\Big(\frac{\sum_{p\in\mathcal P}e^{s_p}}{\sum_{n\in\mathcal N}e^{s_n}}+10^{-7}\Big)"


class _Pairwise(Objective):
    def needs(self, given: Choices) -> Iterator[Need]:
        yield Need(choices.OWN_KEYS, f"{self!r} averages over pairs; neighbours in a numerator have no place in it")


class OfEmbeddings(Objective):
    """Base of objectives that read the embeddings of both views of a whole batch in place of scores."""

    couples_queries = True
    reads_embeddings = True
    offers = frozenset({choices.POSITIVE_ALONE, choices.READS_EMBEDDINGS})

    def needs(self, given: Choices) -> Iterator[Need]:
        why = f"{self!r} reads embeddings of no set length, so keys must be Pairs()"
        yield Need(choices.PROJECTIONS, why, f"given: {given.keys!r}")
        yield Need(choices.ONE_POSITIVE, f"{self!r} has one positive", f"given: positives={given.positives!r}")

    def __call__(self, scores: Scores, context: Context = ALONE) -> Tensor:
        """``[B, 2, d]`` for :meth:`reduce`: the embeddings of both views."""
        return scores.require_embeddings(type(self).__name__)


@dataclass(frozen=True)
class FMICL(_Pairwise):
    """The f-mutual information of the embeddings, with fixed similarity (fmicl Algorithm 1).

    With the Gaussian similarity ``u = μ exp(−‖x − y‖² / 2σ²)``, and on the unit sphere
    ``log u = log μ + (q·k − 1) / σ²``: the recipe's temperature is σ². The paper has σ² = 1/2 (images).
    With α ≠ 1, or a similarity that is not the density ratio, the value bounds nothing known.
    """

    divergence: str = "kl"  #: name in :mod:`contrastlab.scores.divergences`
    order: float | None = None  #: of the Tsallis divergence; of no other
    weight: float = 40.0  #: α, of the negatives' term
    mu: float = 1.0
    similarity: Literal["gaussian", "cosine"] = "gaussian"  #: cosine is ``q·k/τ`` itself in place of f′(u)

    def __post_init__(self) -> None:
        _ = self.f
        check_positive(weight=self.weight, mu=self.mu)
        check_choice("similarity", self.similarity, ("gaussian", "cosine"))

    @property
    def f(self) -> Divergence:
        return divergences.get(self.divergence, alpha=self.order)

    def check(self, temperature: float) -> None:
        """Reject cosine similarities outside the domain of f*: they reach ``1/τ``, where it or its slope is infinite.

        That may be behind the 10.00 % of fmicl Table 4 (Vincze–Le Cam with cosine similarity); the paper does not say.
        """
        super().check(temperature)
        reached, end = 1 / temperature, self.f.highest
        if self.similarity == "cosine" and reached >= end:
            cure = f", or a temperature above {1 / end:.4g}" if end > 0 else ""
            accepted = (
                f"'gaussian' for {self.f.title} at τ = {temperature:g}{cure}: equal embeddings score {reached:g}, and"
                f" f* or its slope is infinite from {end:.6g} on"
            )
            raise reject("similarity", self.similarity, accepted)
        # a compiler cannot take a gradient within a graph; a recipe is checked before it is compiled
        if not torch.compiler.is_compiling() and _overflows(self, reached):
            accepted = f"a higher one with {self!r}: the loss of equal or orthogonal embeddings is no float32 number"
            raise reject("temperature", temperature, accepted)

    def __call__(self, scores: Scores, context: Context = ALONE) -> Tensor:
        scores.require_pairs("FMICL")
        if self.similarity == "cosine":
            similarity, shift = "score", 0.0
        else:
            similarity, shift = "log u", math.log(self.mu) - scores.require_highest("FMICL")
        own, others = scores.own + shift, scores.negatives + shift
        return f_micl(own, others, scores.present, self.f, self.weight, similarity=similarity)

    @property
    def latex(self) -> str:
        if self.similarity == "cosine":
            pair, other, where = "s^+", "f^*(s_n)", ""
        else:
            pair, other = "f'(u^+)", "f^*(f'(u_n))"
            where = rf",\quad \log u=\log {self.mu:g}+s-\tfrac1\tau"
        mean = r"\tfrac{1}{|\mathcal N|}\sum_{n\in\mathcal N}"
        return rf"-{pair}+{self.weight:g}\,{mean}{other},\quad f(u)={self.f.latex}{where}"


@lru_cache(maxsize=256)
def _overflows(objective: FMICL, reached: float) -> bool:
    # whether float32 cannot hold the loss of equal or of orthogonal embeddings, or its slope in an embedding
    weighed: tuple[tuple[float, Callable[[Tensor], Tensor]], ...]
    # a recipe is the same wherever it is made: under no_grad, in inference mode, on a device without numbers
    with torch.inference_mode(False), torch.enable_grad():
        place: dict[str, Any] = {"dtype": torch.float32, "device": "cpu", "requires_grad": True}
        if objective.similarity == "cosine":
            shift, start = 0.0, torch.tensor([0.0, reached], **place)
            weighed = ((objective.weight, objective.f.conjugate),)
        else:
            shift, start = math.log(objective.mu), torch.tensor([-reached, 0.0], **place)
            weighed = ((1.0, objective.f.derivative), (objective.weight, objective.f.composition))
        for weight, function in weighed:
            values = function(shift + start)
            (slopes,) = torch.autograd.grad(values.sum(), start)
            at_ends = weight * torch.stack([values, slopes * reached])
            if not bool(at_ends.isfinite().all()):
                return True
    return False


@dataclass(frozen=True)
class AlignUniform(_Pairwise):
    """Alignment and uniformity: ``a·E‖x − y‖² + b·log E exp(−t‖x − x′‖²)`` (fmicl Eq. 17; Wang and Isola).

    The mean in the logarithm is over all pairs of the batch, so the losses of its queries are coupled. ``align`` is a,
    ``uniform`` is b; the defaults are the released ones. It bounds nothing known: see the ledger, fmicl Eq. 17.
    """

    align: float = 1.0
    uniform: float = 1.0
    t: float = 2.0

    couples_queries = True

    def __post_init__(self) -> None:
        check_positive(align=self.align, uniform=self.uniform, t=self.t)

    def __call__(self, scores: Scores, context: Context = ALONE) -> Tensor:
        """``[B, 3]`` for :meth:`reduce`: squared distance to the positive, log of the sum over negatives, their number.

        The second is :data:`~contrastlab.scores.logits.ABSENT` for a query without negatives.
        """
        scores.require_pairs("AlignUniform")
        highest = scores.require_highest("AlignUniform")
        apart = 2 - 2 * scores.own / highest
        others = -self.t * (2 - 2 * scores.negatives / highest)
        count = scores.present.sum(1)
        log_sum = torch.where(count > 0, row_logsumexp(others), ABSENT)
        return torch.stack([apart if apart.dim() == 1 else apart.mean(1), log_sum, count.to(log_sum.dtype)], 1)

    def reduce(self, rows: Tensor) -> Tensor:
        """Scalar loss of the ``[B, 3]`` rows of a whole batch; queries without negatives are aligned, not spread."""
        # in float64, so that the logarithm is rounded once
        count = rows[:, 2].detach().double().sum()
        log_mean = torch.logsumexp(rows[:, 1], 0) - count.clamp(min=1).log().to(rows.dtype)
        log_mean = torch.where(count > 0, log_mean, 0.0)
        return self.align * rows[:, 0].mean() + self.uniform * log_mean

    @property
    def latex(self) -> str:
        return (
            rf"{self.align:g}\,E\lVert q-k^+\rVert^2+{self.uniform:g}\,\log E\,"
            rf"e^{{-{self.t:g}\lVert q-k_n\rVert^2}},\ n\in\mathcal N"
        )


@dataclass(frozen=True)
class Spectral(_Pairwise):
    """Spectral contrastive loss ``−2 s⁺ + mean s⁻²`` (fmicl Eq. 19, HaoChen et al.), s = ``q·k/τ``.

    Pearson's χ² with the score in place of the density ratio u, up to the constant −1. It bounds the χ² information,
    not the mutual information.
    """

    def __call__(self, scores: Scores, context: Context = ALONE) -> Tensor:
        scores.require_pairs("Spectral")
        squares = torch.where(scores.present, scores.negatives, 0.0) ** 2
        own = scores.own if scores.own.dim() == 1 else scores.own.mean(1)
        return squares.sum(1) / scores.present.sum(1).clamp(min=1) - 2 * own

    latex = r"-2s^++\tfrac{1}{|\mathcal N|}\sum_{n\in\mathcal N}s_n^2"


@dataclass(frozen=True)
class Likelihood(Objective):
    """Minus the positive's score, a log-likelihood up to a constant: predictive learning (CMC, section 3.1).

    Without negatives the constant embedding is a best one, so keys that an encoder makes cannot be scored this way.
    """

    offers = frozenset({choices.POSITIVE_ALONE})

    def needs(self, given: Choices) -> Iterator[Need]:
        why = f"{self!r} has no negatives, and keys that an encoder makes would collapse: take Pixels of targets"
        yield Need(choices.TARGETS, why, f"given: keys={given.keys!r}, views={given.views!r}")
        yield Need(choices.ONE_POSITIVE, f"{self!r} knows one positive", f"given: positives={given.positives!r}")

    def __call__(self, scores: Scores, context: Context = ALONE) -> Tensor:
        scores.require_one_positive("Likelihood")
        return -scores.own

    latex = r"-s^+"


def from_views(
    z1: Tensor,
    z2: Tensor,
    objective: Objective | None = None,
    *,
    temperature: float | Tensor = 0.1,
    module: nn.Module | None = None,
    labels: Tensor | None = None,
    items: Tensor | None = None,
    spared: Tensor | None = None,
    gather: bool = False,
) -> Tensor:
    """The loss of two views of the same items, as in SimCLR: a scalar, in nats with the default, :class:`InfoNCE`.

    Both views ask. The positive of an embedding is the other view of its item, its negatives are both views of all
    other items. Embeddings are ``[B, D]``, one process's, and are divided by their length. The loss is float64 for
    float64 and float32 for any other precision, also inside ``torch.autocast``. ``module`` is what the objective
    trains, where it trains something: give its parameters to your optimiser. A temperature that is a tensor without
    dimensions gets a gradient, too; its value is looked at, which waits for a GPU.

    With ``gather`` the keys are those of all processes of ``torch.distributed``, with their gradients. Each process has
    the loss of its own queries, and data-parallel training takes the mean.

    ``labels`` are integers ``[B]``, the classes of the items. Both views of all other items of the class then are
    further positives, and stay among the negatives, as in ``contrastlab.papers.supcon.objective.SupCon``. A negative
    label is no class: such an item has no further positives. An objective that has no place for them is refused.

    ``items`` are integers ``[B]``, the numbers of the items in your data set, for an objective whose module keeps
    something of each, such as ``contrastlab.papers.sogclr.objective.SogCLR``.

    ``spared`` are booleans ``[B, B]``, true where two items are no negatives of each other, such as doubles.

    An objective that reads embeddings in place of scores, such as Barlow Twins, gets them as they come, of any length,
    and once: ``z1`` are the queries. The temperature then has no part in the loss.

    >>> round(from_views(torch.eye(4), torch.eye(4), temperature=1.0).item(), 6) == round(math.log1p(6 / math.e), 6)
    True
    """
    check_floating(z1=z1, z2=z2)
    shapes = [tuple(z1.shape), tuple(z2.shape)]
    if z1.dim() != 2 or shapes[0] != shapes[1] or len(z1) < 2 or not z1.shape[1]:
        raise reject("z1 and z2", shapes, "two tensors of one shape [B, D] with B > 1 and D > 0")
    check_same("device", z1=z1, z2=z2)
    temperature = _checked_temperature(temperature)
    objective = _checked_objective(objective, temperature)
    _check_module(module, objective, z1)
    _check_gather(gather, spared)
    if labels is not None:
        _check_labels(labels, z1, objective)
    if items is not None:
        _check_integers("items", items, z1, "the number of each item")
    if spared is not None:
        _check_spared(spared, z1, objective)
    with without_autocast(z1.device):
        if objective.reads_embeddings:
            scores = _pairs_of_views(z1, z2)
        else:
            scores = _scores_of_views(z1, z2, temperature, labels, spared, gather)
        if items is not None:
            items = items.repeat(len(scores.own) // len(items))
        rows = objective(scores, Context(module=module, items=items))
        if gather and objective.couples_queries:
            rows = collectives.gather_with_gradient(rows)
        return objective.reduce(rows)


def from_queue(
    queries: Tensor,
    positives: Tensor,
    queue: Tensor,
    negatives: Negatives | None = None,
    objective: Objective | None = None,
    *,
    temperature: float | Tensor = 0.07,
    generator: torch.Generator | None = None,
    step: int = 0,
    total: int = 1,
    module: nn.Module | None = None,
) -> Tensor:
    """The loss of queries against their positives and keys of earlier steps, as in MoCo: a scalar, in nats by default.

    Args:
        queries: ``[B, D]`` embeddings of one view, divided by their length here.
        positives: ``[B, D]`` embeddings of the other view of the same items, likewise.
        queue: ``[N, D]`` unit keys without gradient, such as :class:`~contrastlab.keys.KeyQueue` has in ``rows``.
        negatives: which keys of the queue count, such as ``negatives.Ring(1, 10)``; by default all of them.
        objective: by default :class:`InfoNCE`.
        temperature: τ, a number, or a tensor without dimensions, which gets a gradient, too.
        generator: of draws, where ``negatives`` draws, on the device of the queue; else ``torch.manual_seed`` decides.
        step: of a run of ``total`` steps, for regions that shrink.
        total: steps of the run.
        module: what the objective trains, where it trains something.

    The loss is float64 for queries of float64 and float32 for any other precision, also inside ``torch.autocast``.
    Call ``backward`` before the queue is written: the gradient reads its rows.
    """
    _check_queue(queries, positives, queue)
    temperature = _checked_temperature(temperature)
    objective = _checked_objective(objective, temperature)
    _check_module(module, objective, queries)
    part = _checked_negatives(negatives)
    draws = BatchRandom(_checked_generator(generator, queries.device))
    check_integer("total", total)
    check(is_integer(step, 0) and step < total, "step", step, f"an integer from 0 to {total - 1}, below total")
    with without_autocast(queries.device):
        scaled_queries = _unit(queries) / temperature
        keys = queue.detach().to(scaled_queries.dtype)
        dense = 4 * len(queries) * len(keys) <= DENSE_BYTES
        own = (scaled_queries * _unit(positives)).sum(1)
        pool = Stored(scaled_queries, keys, dense=dense, positive=own.detach())
        selection = checked(part, part.select(pool, draws, step, total), pool.shape)
        count = selection.count(len(keys))
        check(count, "negatives", part, "a choice of at least one key of the queue")
        scores = Scores(own, pool.read(selection), count=count, highest=1 / temperature)
        losses = objective(scores, Context(step, total, module=module))
        return objective.reduce(losses)


def _check_queue(queries: Tensor, positives: Tensor, queue: Tensor) -> None:
    """Refuse what are no embeddings ``[B, D]``, ``[B, D]`` and keys ``[N, D]`` of unit length on one device."""
    check_floating(queries=queries, positives=positives, queue=queue)
    shapes = [tuple(queries.shape), tuple(positives.shape), tuple(queue.shape)]
    are_pairs = queries.dim() == 2 and queries.shape == positives.shape and queries.numel() > 0
    fits = are_pairs and queue.dim() == 2 and queue.shape[1] == queries.shape[1] and len(queue) > 0
    check(fits, "queries, positives and queue", shapes, "tensors of shape [B, D], [B, D] and [N, D]")
    check_same("device", queries=queries, positives=positives, queue=queue)
    check_unit("queue", queue)


def _checked_generator(generator: object, device: torch.device) -> torch.Generator:
    """The generator that a user gives, or one on the device, seeded by PyTorch's own on the CPU."""
    if generator is None:
        seed = int(torch.randint(2**62, ()))
        return torch.Generator(device).manual_seed(seed)
    if not isinstance(generator, torch.Generator):
        raise reject("generator", generator, "None, or a torch.Generator")
    return generator


def _check_module(module: object, objective: Objective, embeddings: Tensor) -> None:
    if module is None:
        return
    if type(objective).module is Objective.module:
        raise reject("module", describe(module), f"None with {objective!r}, which trains nothing")
    if not isinstance(module, nn.Module):
        raise reject("module", describe(module), "None, or the torch.nn.Module that the objective trains")
    for parameter in module.parameters():
        check_same("device", module=parameter, embeddings=embeddings)


def _checked_negatives(negatives: object) -> Negatives:
    """The choice that a user gives, or all keys."""
    if negatives is None:
        return Every()
    if not isinstance(negatives, Negatives):
        value = describe(negatives) if isinstance(negatives, type) else negatives
        raise reject("negatives", value, "None, or an object such as negatives.Ring(1, 10)")
    return negatives


def _checked_temperature(temperature: Any) -> float | Tensor:
    """A number of any kind as Python's; a tensor has to be one number."""
    if isinstance(temperature, Tensor):
        is_one_number = is_floating(temperature) and temperature.dim() == 0
        accepted = "a positive number, or a floating-point tensor without dimensions"
        check(is_one_number, "temperature", describe(temperature), accepted)
        return temperature
    is_real = isinstance(temperature, numbers.Real) and not isinstance(temperature, bool)
    number: float = float(temperature) if is_real else temperature  # what is no number is refused by the objective
    return number


def _check_gather(gather: bool, spared: Tensor | None) -> None:
    check_flag("gather", gather)
    if gather:
        accepted = "False where torch.distributed has no process group, which a launcher or init_process_group makes"
        check(collectives.initialised(), "gather", True, accepted)
        check(spared is None, "gather", True, "False with spared, which knows the pairs of one process")


def _checked_objective(objective: object, temperature: float | Tensor) -> Objective:
    """The objective that a user gives, or InfoNCE; refused where it cannot be at this temperature."""
    if objective is None:
        objective = InfoNCE()
    if not isinstance(objective, Objective):
        value = describe(objective) if isinstance(objective, type) else objective
        raise reject("objective", value, "None, or an object such as objectives.InfoNCE()")
    if not isinstance(temperature, Tensor):
        objective.check(temperature)
    elif not torch.compiler.is_compiling():  # the value is no part of a graph
        try:
            number = float(temperature.detach())
        except RuntimeError as error:
            raise NotApplicableError("temperature has no value: expected a tensor off meta and vmap") from error
        objective.check(number)
    return objective


def _check_integers(argument: str, value: object, views: Tensor, meaning: str) -> None:
    """Refuse what are no integers, one for each item, on the device of the views."""
    accepted = f"None, or integers of shape [{len(views)}], {meaning}"
    if not is_whole(value):
        raise reject(argument, describe(value), accepted)
    assert isinstance(value, Tensor)
    if value.shape != views.shape[:1]:
        raise reject(argument, tuple(value.shape), accepted)
    check_same("device", **{argument: value, "views": views})


def _check_labels(labels: Tensor, views: Tensor, objective: Objective) -> None:
    """Refuse labels that are no classes of the items, and an objective that has no use of further positives."""
    _check_integers("labels", labels, views, "the class of each item")
    if torch.compiler.is_compiling():  # the words of a refusal are no part of a graph
        return
    choices_with_labels = Choices()
    choices_with_labels.positives = SameLabel()
    choices_with_labels.keys = None
    choices_with_labels.views = None
    for need in objective.needs(choices_with_labels):
        if need.offer not in choices_with_labels.positives.offers:
            raise reject("labels", describe(labels), f"None here: {need.message}")


def _check_spared(spared: object, views: Tensor, objective: Objective) -> None:
    accepted = f"None, or booleans of shape [{len(views)}, {len(views)}]"
    if not isinstance(spared, Tensor) or spared.dtype != torch.bool:
        raise reject("spared", describe(spared), accepted)
    if spared.shape != (len(views), len(views)):
        raise reject("spared", tuple(spared.shape), accepted)
    check_same("device", spared=spared, views=views)
    check(not objective.reads_embeddings, "spared", describe(spared), f"None with {objective!r}, without negatives")


def _unit(rows: Tensor) -> Tensor:
    """Rows divided by their length, float64 as they come or else float32."""
    return unit_rows(_full(rows))


def _full(rows: Tensor) -> Tensor:
    """Rows in float64 as they come, or else in float32."""
    if rows.dtype == torch.float64:
        return rows
    return rows.float()


def _pairs_of_views(z1: Tensor, z2: Tensor) -> Scores:
    """The embeddings of both views as they come, without negatives."""
    embeddings = torch.stack([_full(z1), _full(z2)], 1)
    own = (embeddings[:, 0] * embeddings[:, 1]).sum(1)
    return Scores(own, own.new_empty(len(own), 0), embeddings=embeddings)


def _scores_of_views(
    z1: Tensor, z2: Tensor, temperature: float | Tensor, labels: Tensor | None, spared: Tensor | None, gather: bool
) -> Scores:
    """All scores ``[2B, 2N]`` against the N items of all processes, or of this one; masked are query and positive.

    With labels, those of the same class once more, as further positives.
    """
    queries = _unit(torch.cat([z1, z2]))
    keys = queries
    item = torch.arange(len(z1), device=queries.device)
    if gather:
        keys = torch.cat([collectives.gather_with_gradient(view) for view in queries.chunk(2)])
        item = collectives.rows_of_this_process(len(z1), queries.device)
    items = len(keys) // 2
    row = torch.cat([item, item + items])[:, None]  # of each query among the keys
    row_of_positive = torch.cat([item + items, item])[:, None]
    logits = (queries / temperature) @ keys.T
    positives = logits.gather(1, row_of_positive)[:, 0]
    column = torch.arange(len(keys), device=queries.device)
    no_negative = (column == row) | (column == row_of_positive)
    if spared is not None:
        no_negative = no_negative | spared.repeat(2, 2)
    negatives = logits.masked_fill(no_negative, ABSENT)
    neighbours = None
    if labels is not None:
        neighbours = negatives.masked_fill(_of_other_classes(labels.long(), gather), ABSENT)
    return Scores(positives, negatives, neighbours, count=len(keys) - 2, highest=1 / temperature)


def _of_other_classes(classes: Tensor, gather: bool) -> Tensor:
    """Which keys ``[2B, 2N]`` are not of the query's class, ``[B]``; without a class (below 0), all of them."""
    classes_of_keys = collectives.gather(classes) if gather else classes
    of_query = classes.repeat(2)[:, None]
    return (of_query != classes_of_keys.repeat(2)) | (of_query < 0)
