"""Which images of a set: drawn evenly over classes, or held out."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from contrastlab.errors import NotApplicableError, reject


def balanced_subset(labels: Tensor, n: int, seed: int) -> Tensor:
    """Indices of ``n`` images, drawn at random, with class counts as equal as the labels allow.

    The draw for a smaller ``n`` is contained in the draw for a larger one. Where some labels are −1 the classes are
    not known and the draw is uniform over all images.

    Args:
        labels: int64 ``[N]``.
        n: from 1 to ``N``.
        seed: of the draw.

    Returns:
        int64 ``[n]``, ascending.

    Raises:
        ArgumentError: ``n`` is not in [1, N].
    """
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= len(labels):
        raise reject("n", n, f"an integer from 1 to the {len(labels)} images of the set, or None for all")
    shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    known = labels.cpu()[shuffled]
    if int(known.min()) >= 0:
        # Rank of each image within its class, in shuffled order; taking by rank fills the classes evenly.
        by_class = known.argsort(stable=True)
        counts = known.bincount()
        rank = torch.empty_like(known)
        rank[by_class] = torch.arange(len(known)) - (counts.cumsum(0) - counts).repeat_interleave(counts)
        shuffled = shuffled[rank.argsort(stable=True)]
    return shuffled[:n].sort().values


def hold_out(
    labels: Tensor, fraction: float = 0.2, *, name: str = "", classes: Sequence[str] = (), item: str = "image"
) -> tuple[Tensor, Tensor]:
    """A stratified split of the labelled images, always the same for the same labels.

    Args:
        labels: int64 ``[N]``; images with label −1 enter neither part.
        fraction: share of each class that is held out, rounded, but at least one image and never all.
        name: of the data set, for the error.
        classes: names of the classes, for the error.
        item: what a label belongs to, for the error.

    Returns:
        Indices kept and indices held out, both ascending.

    Raises:
        NotApplicableError: a class has fewer than two items.
    """
    generator = torch.Generator().manual_seed(0)
    kept, held = [], []
    for label in sorted(set(labels[labels >= 0].tolist())):
        rows = (labels == label).nonzero().flatten()
        if len(rows) < 2:
            which = f"class {classes[label]!r}" if classes else f"class {label}"
            raise NotApplicableError(
                f"{f'{name}: ' if name else ''}{which} has one {item}: a split into train and test needs at least two"
                " of each class"
            )
        rows = rows[torch.randperm(len(rows), generator=generator)]
        count = min(max(round(fraction * len(rows)), 1), len(rows) - 1)
        held.append(rows[:count])
        kept.append(rows[count:])
    return torch.cat(kept).sort().values, torch.cat(held).sort().values
