"""What is measured: a recipe in a learner whose encoder hands embeddings through, and the tensors of all ways."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab.methods import Recipe
from contrastlab.negatives import BatchRandom
from contrastlab.settings import Settings
from contrastlab.train.learner import Learner, Step

DIM = 128


def rows(count: int, seed: int, dim: int = DIM) -> Tensor:
    """``[count, dim]`` normal draws: what comes out of a head before it is normalised."""
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed))


def unit(count: int, seed: int, dim: int = DIM) -> Tensor:
    """``[count, dim]`` uniform on the sphere."""
    return F.normalize(rows(count, seed, dim), dim=1)


def views_of(images: int, count: int, asked: int) -> list[Tensor]:
    """``count`` raw embeddings of each image, alike as those of a half-trained network; ``asked`` carry gradients."""
    first = rows(images, 0)
    views = [first, *(first + 0.7 * rows(images, 1 + m) for m in range(count - 1))]
    return [view.requires_grad_() if i < asked else view for i, view in enumerate(views)]


class Normalise(nn.Module):
    """An encoder of raw embeddings: all that is left of one is its last line, which is in the time of every way."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))  # the momentum update wants one

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return F.normalize(x, dim=1)


class Ours:
    """A recipe as training runs it, with all its bookkeeping.

    Args:
        recipe: the method.
        temperature: τ.
        images: of the pre-training set: rows of a bank.
        queue: ``[K, d]`` unit keys of a queue.
        indices: ``[B]`` numbers of the images of the batch; 0 to B − 1 by default.
    """

    def __init__(
        self,
        recipe: Recipe,
        temperature: float,
        *,
        images: int = 512,
        queue: Tensor | None = None,
        indices: Tensor | None = None,
    ) -> None:
        size = 1 if queue is None else len(queue)
        recipe = recipe.override({"keys.size": size, "keys.shuffle_groups": 1, "temperature": temperature})
        settings = Settings(arch="tiny", stem="cifar", dim=DIM)
        encoder = nn.ModuleList([Normalise()])
        self.learner = Learner(recipe, settings, images=images, classes=2, seed=0, encoders=encoder)
        if queue is not None:
            self.learner.keys.stored(0).copy_(queue)
        self.learner.bind(lambda *views: [encoder[0](view) for view in views])
        self.indices = indices
        self.last: Step | None = None

    def loss(self, *views: Tensor) -> Tensor:
        """The loss of a batch; the draws are the same at every call."""
        batch = torch.arange(len(views[0])) if self.indices is None else self.indices
        draws = BatchRandom(torch.Generator().manual_seed(0))
        self.last = self.learner.loss(tuple(views), batch, batch[:0], draws, 1, 1)
        return self.last.loss

    def commit(self) -> None:
        """Store the keys of the last batch."""
        assert self.last is not None
        self.learner.commit(torch.arange(0) if self.indices is None else self.indices, self.last)

    @property
    def bank(self) -> Tensor:
        """The stored keys."""
        return self.learner.keys.stored(0)


def normalised(views: Sequence[Tensor]) -> list[Tensor]:
    """Each view on the sphere."""
    return [F.normalize(view, dim=1) for view in views]
