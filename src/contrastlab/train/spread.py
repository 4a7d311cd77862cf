"""Did it work, without labels? How the embeddings of an epoch's last batch lie, and whether they have collapsed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from contrastlab import keys
from contrastlab.support import host

if TYPE_CHECKING:
    from contrastlab.train.loop import _Loop

QUERIES = 1024  # at most so many of a batch, of all processes together, are looked at
COSINE, RANK = 0.995, 1.5  # a higher mean cosine, or a lower effective rank, is a collapse
SPECTRUM_EVERY = 10  # epochs, where singular values in float64 are waited for: on every device but a CPU


def effective_rank(rows: Tensor) -> float:
    """RankMe of ``[N, d]`` (Garrido et al. 2023): exp of the entropy of the singular values, scaled to a sum of one.

    It is 1 where all rows are multiples of one, and at most the smaller of N and d.
    """
    values = torch.linalg.svdvals(rows.double())
    return float(torch.special.entr(values / values.sum().clamp(min=1e-300)).sum().exp())


def spread(query: Tensor, positive: Tensor, *, spectrum: bool = True) -> dict[str, float]:
    """How unit queries ``[N, d]``, N of 2 or more, lie among each other and to their keys ``[N, M, d]``.

    ``alignment`` is the mean of ``‖q − k‖²`` over positive pairs, ``uniformity`` the logarithm of the mean of
    ``exp(−2 ‖q − q′‖²)`` over pairs of queries (Wang and Isola 2020; lower is better for both), ``mean_cosine`` the
    mean of ``q·q′``, and ``effective_rank`` that of the queries; without ``spectrum`` it is taken only where the
    queries have collapsed by their mean cosine.
    """
    q, pairs = query.double(), len(query) * (len(query) - 1)
    cosines = q @ q.T
    total = cosines.sum() - cosines.trace()
    far = torch.logsumexp((4 * cosines - 4).fill_diagonal_(-math.inf).flatten(), 0) - math.log(pairs)
    near = 2 - 2 * (q * positive.mean(1)).sum(1).mean()
    alignment, uniformity, cosine = torch.stack([near, far, total / pairs]).tolist()
    found = {"alignment": alignment, "uniformity": uniformity, "mean_cosine": cosine}
    if spectrum or cosine > COSINE:
        found["effective_rank"] = effective_rank(query)
    return found


class Watch:
    """Listens to a run: adds :func:`spread` to the row of an epoch, and says when the embeddings have collapsed.

    Of several directions (streams, views) the alignment is the mean, and the rest is that of the worst. It is taken
    after the last step of an epoch, before anything is saved, so that a run that stops there goes on with it.
    """

    def __init__(self, loop: _Loop) -> None:
        self.loop = loop

    def after_step(self) -> None:
        """Look at the last batch of an epoch."""
        loop = self.loop
        if loop.step % loop.steps == 0 and loop.pairs:
            loop.check_finite()
            most = -(-QUERIES // loop.world)
            each = []
            for pair in loop.pairs:
                query, positive = (keys.gather(part[:most]) for part in pair)
                each.append(spread(query, positive, spectrum=self.takes_spectrum))
            loop.spread = {"alignment": math.fsum(values["alignment"] for values in each) / len(each)}
            ranks = [values["effective_rank"] for values in each if "effective_rank" in values]
            if ranks:
                loop.spread["effective_rank"] = min(ranks)
            for name in ("uniformity", "mean_cosine"):
                loop.spread[name] = max(values[name] for values in each)

    @property
    def takes_spectrum(self) -> bool:
        """Whether the effective rank is taken in this epoch: on a CPU in each, else in the first, the last and some."""
        epoch, last = self.loop.epoch + 1, self.loop.settings.epochs
        return host.holds(self.loop.device) or epoch in (1, last) or epoch % SPECTRUM_EVERY == 0

    def after_epoch(self) -> None:
        """Complete the newest row."""
        loop, row = self.loop, self.loop.history[-1]
        row.update(loop.spread)
        # two classes that are told apart lie on one line
        flat = row.get("effective_rank", RANK) < RANK and not (loop.recipe.keys and loop.recipe.keys.reads_labels)
        if not (flat or row.get("mean_cosine", 0.0) > COSINE):
            return
        row["collapsed"] = 1.0
        if not any("collapsed" in before for before in loop.history[-2:-1]):
            s = loop.settings
            loop.log(
                f"[{loop.name}] collapsed after epoch {loop.epoch}, {loop.step} steps: the mean cosine of two items is"
                f" {row['mean_cosine']:.3f}, the effective rank {row['effective_rank']:.1f} of {s.dim}. Likely causes:"
                f" a learning rate ({s.lr:g}) or weight decay ({s.weight_decay:g}) that is too high, a temperature"
                f" ({loop.recipe.temperature:g}) that is too high, negatives that are alike or too few"
                f" ({loop.terms - 1}), views that share too little, or fewer steps than the first spread takes"
            )
