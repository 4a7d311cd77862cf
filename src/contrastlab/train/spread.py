"""Did it work, without labels? How the embeddings of an epoch's last batch lie, and whether they have collapsed."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from contrastlab.pictures.task import Log
from contrastlab.support import collectives, host
from contrastlab.train.progress import Course, Progress, check_finite

QUERIES = 1024
"""Queries of a batch, of all processes together, that are looked at, at most."""
COSINE = 0.995
"""A higher mean cosine is a collapse."""
RANK = 1.5
"""A lower effective rank is a collapse."""
SPECTRUM_EVERY = 10
"""Epochs between looks at the singular values where they have to be waited for: on every device but a CPU."""


def effective_rank(rows: Tensor, *, squared: bool = False) -> float:
    """RankMe of ``[N, d]`` (Garrido et al. 2023): exp of the entropy of the singular values, scaled to a sum of one.

    It is 1 where all rows are multiples of one, and at most the smaller of N and d. ``squared``: of their squares, the
    eigenvalues of the rows' second moments, so that weak directions count for less.
    """
    values = torch.linalg.svdvals(rows.double())
    if squared:
        values = values.square()
    shares = values / values.sum().clamp(min=1e-300)
    return float(torch.special.entr(shares).sum().exp())


def spread(query: Tensor, positive: Tensor, *, spectrum: bool = True) -> dict[str, float]:
    """How unit queries ``[N, d]``, N of 2 or more, lie among each other and to their keys ``[N, M, d]``.

    ``alignment`` is the mean of ``‖q − k‖²`` over positive pairs, ``uniformity`` the logarithm of the mean of
    ``exp(−2 ‖q − q′‖²)`` over pairs of queries (Wang and Isola 2020; lower is better for both), ``mean_cosine`` the
    mean of ``q·q′``, and ``effective_rank`` that of the queries; without ``spectrum`` it is taken only where the
    queries have collapsed by their mean cosine.
    """
    q = query.double()
    pairs = len(q) * (len(q) - 1)
    cosines = q @ q.T
    mean_cosine = (cosines.sum() - cosines.trace()) / pairs
    log_potentials = (4 * cosines - 4).fill_diagonal_(-math.inf)  # −2 ‖q − q′‖²
    uniformity = torch.logsumexp(log_potentials.flatten(), 0) - math.log(pairs)
    alignment = 2 - 2 * (q * positive.mean(1)).sum(1).mean()
    measured = torch.stack([alignment, uniformity, mean_cosine]).tolist()  # one wait for the device
    values = dict(zip(("alignment", "uniformity", "mean_cosine"), measured, strict=True))
    if spectrum or values["mean_cosine"] > COSINE:
        values["effective_rank"] = effective_rank(query)
    return values


def _over_directions(directions: list[dict[str, float]]) -> dict[str, float]:
    """The mean alignment of several directions, and of every other value the worst."""
    values = {"alignment": math.fsum(each["alignment"] for each in directions) / len(directions)}
    ranks = [each["effective_rank"] for each in directions if "effective_rank" in each]
    if ranks:
        values["effective_rank"] = min(ranks)
    for name in ("uniformity", "mean_cosine"):
        values[name] = max(each[name] for each in directions)
    return values


class SpreadListener:
    """Listens to a run: adds :func:`spread` to the row of an epoch, and says when the embeddings have collapsed.

    Of several directions (streams, views) the alignment is the mean, and every other value that of the worst direction.
    The spread is taken after the last step of an epoch, before anything is saved, so that a run that stops there goes
    on with it.
    """

    def __init__(self, course: Course, progress: Progress, log: Log) -> None:
        self.course, self.progress, self.log = course, progress, log

    def after_step(self) -> None:
        """Look at the last batch of an epoch."""
        course, progress = self.course, self.progress
        if progress.step % course.steps != 0 or not progress.pairs:
            return
        check_finite(course, progress)
        most = math.ceil(QUERIES / course.world)
        directions = []
        for query, positive in progress.pairs:
            queries = collectives.gather(query[:most])
            positives = collectives.gather(positive[:most])
            directions.append(spread(queries, positives, spectrum=self.takes_spectrum))
        progress.spread = _over_directions(directions)

    @property
    def takes_spectrum(self) -> bool:
        """Whether the effective rank is taken in this epoch: on a CPU in each, else in the first, the last and some."""
        epoch, last = self.progress.epoch + 1, self.course.settings.epochs
        return host.holds(self.course.device) or epoch in (1, last) or epoch % SPECTRUM_EVERY == 0

    def after_epoch(self) -> None:
        """Complete the newest row, and say so where the embeddings have collapsed in this epoch."""
        history = self.progress.history
        row = history[-1]
        row.update(self.progress.spread)
        if not self._collapsed(row):
            return
        row["collapsed"] = 1.0
        was_collapsed = len(history) > 1 and "collapsed" in history[-2]
        if not was_collapsed:
            self.log(self._warning(row))

    def _collapsed(self, row: dict[str, float]) -> bool:
        """Whether the spread of an epoch is that of embeddings that have collapsed."""
        if row.get("mean_cosine", 0.0) > COSINE:
            return True
        if self.course.recipe.reads_labels:
            return False  # two classes that are told apart lie on one line
        return row.get("effective_rank", RANK) < RANK

    def _warning(self, row: dict[str, float]) -> str:
        course, progress, s = self.course, self.progress, self.course.settings
        return (
            f"[{course.name}] collapsed after epoch {progress.epoch}, {progress.step} steps: the mean cosine of two"
            f" items is {row['mean_cosine']:.3f}, the effective rank {row['effective_rank']:.1f} of {s.dim}. Likely"
            f" causes: a learning rate ({s.lr:g}) or weight decay ({s.weight_decay:g}) that is too high, a temperature"
            f" ({course.recipe.temperature:g}) that is too high, negatives that are alike or too few"
            f" ({progress.terms - 1}), views that share too little, or fewer steps than the first spread takes"
        )
