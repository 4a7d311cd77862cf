"""Mutual information from samples and a critic.

Every function returns a *bound* in nats, to be maximised; its negative is the loss. A critic f scores pairs:
``positives`` are the scores ``[B]`` of pairs from p(x, y); ``negatives`` are scores ``[B, K − 1]`` of each x against
values of y that do not belong to it; ``independents`` are scores, of any shape, of pairs from p(x) p(y).
:func:`pairs` splits the ``[B, B]`` scores of a batch into the first two.

========================  ==================================  ====================  =========================
function                  bounds                              tight at              with samples
========================  ==================================  ====================  =========================
:func:`nwj`               I from below                        1 + log ratio         unbiased, high variance
:func:`donsker_varadhan`  I from below                        log ratio + constant  overshoots on few samples
:class:`Mine`             I from below                        log ratio + constant  overshoots on few samples
:func:`info_nce`          min(I, log K) from below            log ratio + b(x)      low variance
:func:`leave_one_out`     I from *above*, at the best critic  log ratio + b(x)      high variance
:func:`vince`             InfoNCE from below, conditionally   –                     as InfoNCE
:func:`cnce`              I from below, conditionally         –                     lower variance
:func:`f_information`     I_f from below                      f′(ratio)             unbiased
========================  ==================================  ====================  =========================

:func:`info_nce` is unbiased for its own expectation, which never exceeds log K. :func:`vince` and :func:`cnce` are
bounds only where their hypotheses hold, and :func:`leave_one_out` bounds I only if the critic is log ratio + b(x).

"Log ratio" is ``log p(x, y) / p(x) p(y)``. Exact expectations of all of them on finite distributions, and the
Barber–Agakov bounds, which need a density, are in :mod:`contrastlab.information.exact`.

Sources: vince §3, §4.1, appendix A.8; ring §3; fmicl §2; Poole et al., *On Variational Bounds of Mutual Information*
(ICML 2019); Belghazi et al., *MINE* (ICML 2018).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from contrastlab import objectives
from contrastlab.information.exact import check_scores
from contrastlab.negatives import BatchRandom, Negatives
from contrastlab.scores.candidates import Candidates
from contrastlab.scores.divergences import Divergence
from contrastlab.scores.logits import ABSENT
from contrastlab.support.errors import check, is_number, reject
from contrastlab.support.tensors import check_floating


def pairs(scores: Tensor) -> tuple[Tensor, Tensor]:
    """``[B, B]`` scores of x against y of a batch of at least 2 → ``[B]`` positives, ``[B, B − 1]`` negatives."""
    check_floating(scores=scores)
    if scores.dim() != 2 or scores.shape[0] != scores.shape[1] or len(scores) < 2:
        raise reject("scores", tuple(scores.shape), "a square tensor of at least 2 × 2")
    size = len(scores)
    positives = scores.diagonal()
    # without the first number, a row of size + 1 numbers ends with the next number of the diagonal
    rows = scores.flatten()[1:].view(size - 1, size + 1)
    negatives = rows[:, :-1].reshape(size, size - 1)
    return positives, negatives


def _check_positives(positives: Tensor) -> None:
    check_floating(positives=positives)
    if positives.dim() != 1 or not len(positives):
        raise reject("positives", tuple(positives.shape), "a tensor of shape [B] with B of at least 1")


def _check_independents(independents: Tensor) -> None:
    check_floating(independents=independents)
    check(independents.numel(), "independents", tuple(independents.shape), "scores of at least one pair")


def _check(positives: Tensor, negatives: Tensor) -> None:
    _check_positives(positives)
    check_floating(negatives=negatives)
    is_matrix = negatives.dim() == 2
    if not is_matrix or len(negatives) != len(positives) or not negatives.shape[1]:
        accepted = f"a tensor of shape [{len(positives)}, K - 1] with K of at least 2"
        raise reject("negatives", tuple(negatives.shape), accepted)
    if bool((negatives <= ABSENT / 2).any()):
        raise reject("negatives", ABSENT, "scores of K - 1 keys: with absent ones K would differ by query")


def nwj(positives: Tensor, independents: Tensor) -> Tensor:
    """Nguyen–Wainwright–Jordan: ``mean f − mean exp(f − 1)`` (vince Lemma A.2)."""
    _check_positives(positives)
    _check_independents(independents)
    return positives.mean() - (independents - 1).exp().mean()


def _log_mean_exp(values: Tensor) -> Tensor:
    return torch.logsumexp(values.flatten(), 0) - math.log(values.numel())


def donsker_varadhan(positives: Tensor, independents: Tensor) -> Tensor:
    """``mean f − log mean exp f`` (fmicl Eq. 14). A bound in the population; on few samples it overshoots."""
    _check_positives(positives)
    _check_independents(independents)
    return positives.mean() - _log_mean_exp(independents)


@dataclass
class Mine:
    """Donsker–Varadhan whose gradient divides by a running mean, so that small batches do not bias it (MINE Eq. 12)."""

    rate: float = 0.01  #: weight of the newest batch in the running mean of ``exp f``, above 0 and up to 1
    log_mean: float | None = None  #: logarithm of that mean, the estimator's only state

    def __post_init__(self) -> None:
        check(is_number(self.rate) and 0 < self.rate <= 1, "rate", self.rate, "a number above 0 and up to 1")

    def __call__(self, positives: Tensor, independents: Tensor) -> Tensor:
        """The value of :func:`donsker_varadhan` on this batch, with the corrected gradient.

        Updates ``log_mean``, except under ``torch.no_grad``: what is only evaluated is no part of the training.
        """
        value = donsker_varadhan(positives, independents).detach()
        if not torch.is_grad_enabled():
            return value
        newest = _log_mean_exp(independents)
        if self.log_mean is None or self.rate == 1:
            self.log_mean = float(newest.detach())
        else:
            old = self.log_mean + math.log1p(-self.rate)
            new = float(newest.detach()) + math.log(self.rate)
            self.log_mean = float(torch.logaddexp(torch.tensor(old), torch.tensor(new)))
        # d log m / d f with the running mean as m: exp(newest − log_mean) is 1 up to the drift of the mean
        surrogate = positives.mean() - (newest - self.log_mean).exp()
        return value + surrogate - surrogate.detach()


def info_nce(positives: Tensor, negatives: Tensor) -> Tensor:
    """``log K − loss`` ≤ log K, with the positive and K − 1 negatives in the denominator (vince Eq. 5, ring Eq. 1).

    No negative may be :data:`~contrastlab.scores.logits.ABSENT`: K would differ by query.
    """
    _check(positives, negatives)
    log_k = math.log(negatives.shape[1] + 1)
    loss = objectives.info_nce(positives, negatives).mean()
    return log_k - loss


def leave_one_out(positives: Tensor, negatives: Tensor) -> Tensor:
    """``mean f − log mean exp f`` over the negatives only: the positive left out of the denominator.

    At the critic ``log p(x, y) / p(x) p(y)``, or with any b(x) added, this is an upper bound on I. With any other
    critic it bounds nothing, and it must not be maximised.
    """
    _check(positives, negatives)
    log_k = math.log(negatives.shape[1])
    loss = objectives.info_nce(positives, negatives, positive_in_denominator=False).mean()
    return log_k - loss


@dataclass(frozen=True)
class Conditional:
    """A bound in nats whose negatives, with scores ``[B, K]``, were drawn from a set that depends on the query.

    ``holds`` ``[B]`` is whether every negative of the query scored above ``log c(x)``, the mean of ``exp f`` over all
    candidates: the hypothesis under which the theorem says that ``value`` is a bound.
    """

    value: Tensor
    holds: Tensor
    negatives: Tensor

    @property
    def share(self) -> float:
        """Share of the queries for which the hypothesis holds."""
        return float(self.holds.double().mean())


def _conditional(
    bound: Callable[[Tensor, Tensor], Tensor],
    positives: Tensor,
    candidates: Candidates,
    region: Negatives,
    generator: torch.Generator,
) -> Conditional:
    _check(positives, candidates.logits)
    selection = region.select(candidates, BatchRandom(generator), 0, 1)
    scores = candidates.read(selection)
    is_present = ~(scores <= ABSENT / 2)
    sizes = is_present.sum(1)
    if bool((sizes != sizes[0]).any()) or not int(sizes[0]):
        raise reject("region", region, "a region with the same number of negatives, at least 1, for every query")
    negatives = scores[is_present].view(len(scores), -1)
    value = bound(positives, negatives)
    holds = negatives.amin(1) > _log_c(candidates)
    return Conditional(value, holds, negatives)


def _log_c(candidates: Candidates) -> Tensor:
    """``[B]`` logarithm of the mean of ``exp f`` over the candidates of each query."""
    logits = candidates.logits
    excluded = candidates.excluded("excluded")
    if excluded is not None:
        logits = logits.scatter(1, excluded, -math.inf)
    counts = (logits > -math.inf).sum(1)
    return torch.logsumexp(logits, 1) - counts.to(logits.dtype).log()


def vince(positives: Tensor, candidates: Candidates, region: Negatives, generator: torch.Generator) -> Conditional:
    """InfoNCE with negatives drawn from a region around the query, the positive kept in the denominator.

    VINCE(T) of vince Corollary 4.1.1, with the set ranked by the query's own scores f(x, ·): as printed, by
    f(y₁, ·), it is not a lower bound of InfoNCE. At most log K whatever the region. ``candidates`` have the logits
    ``[B, N]`` of each query against all keys, and which key is its own.
    """
    return _conditional(info_nce, positives, candidates, region, generator)


def cnce(positives: Tensor, candidates: Candidates, region: Negatives, generator: torch.Generator) -> Conditional:
    """CNCE as ring Theorem 3.1 prints it: as :func:`vince`, without the positive in the denominator.

    A lower bound on I where :attr:`Conditional.holds`; where it does not it can exceed I, and log K.
    """
    return _conditional(leave_one_out, positives, candidates, region, generator)


def f_information(positives: Tensor, independents: Tensor, divergence: Divergence) -> Tensor:
    """``mean s − mean f*(s)``, a lower bound on the f-mutual information (fmicl Eq. 2).

    The scores s lie in the domain of f*; a critic v of the log ratio gives ``s = divergence.derivative(v)``.
    """
    _check_positives(positives)
    _check_independents(independents)
    check_scores(positives, divergence, "positives")
    check_scores(independents, divergence, "independents")
    return positives.mean() - divergence.conjugate(independents).mean()
