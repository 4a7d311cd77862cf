"""Whole pieces of a run: twenty training steps of SimCLR, and weighted k-NN over the embeddings of a training set."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from bench_views import pictures
from harness import Way, peer
from PIL import Image
from subjects import rows, unit
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab import tasks
from contrastlab.methods import get
from contrastlab.negatives import BatchRandom
from contrastlab.pictures.augmentations import augmentation
from contrastlab.settings import Settings
from contrastlab.train.learner import Learner
from contrastlab.views import Augmented

STEPS, IMAGES = 20, 64
pytestmark = pytest.mark.benchmark(group="training")
Contest = Callable[..., None]
Batches = Callable[[int], tuple[Tensor, Tensor]]


def sgd(network: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(network.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4, fused=True)


class Ours:
    """SimCLR as the loop of this package takes its steps."""

    def __init__(self) -> None:
        self.recipe = get("ring/simclr")
        settings = Settings(arch="small", stem="cifar")
        self.learner = Learner(self.recipe, settings, image_channels=3, images=IMAGES, classes=2, seed=0)
        self.start = copy.deepcopy(self.learner.network.state_dict())

    def train(self, batches: Batches, steps: int = STEPS) -> list[Tensor]:
        """The losses of ``steps`` steps from the same start, then the gradients of the last one."""
        self.learner.network.load_state_dict(self.start)
        optimiser, losses, indices = sgd(self.learner.network), [], torch.arange(IMAGES)
        draws = BatchRandom(torch.Generator().manual_seed(0))
        for number in range(steps):
            step = self.learner.loss(batches(number), indices, indices[:0], draws, number, steps)
            optimiser.zero_grad()
            step.loss.backward()
            optimiser.step()
            self.learner.commit(indices, step)
            losses.append(step.loss.detach())
        return [torch.stack(losses), *(p.grad.clone() for p in self.learner.network.parameters() if p.grad is not None)]


class Theirs:
    """The same backbone and head under a loss of two embeddings, both views in one batch."""

    def __init__(self, start: Ours, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.loss, self.encoder = loss, copy.deepcopy(start.learner.network.encoders[0])
        self.start = copy.deepcopy(self.encoder.state_dict())

    def train(self, batches: Batches, steps: int = STEPS) -> list[Tensor]:  # noqa: D102
        self.encoder.load_state_dict(self.start)
        optimiser, losses = sgd(self.encoder), []
        for number in range(steps):
            first, second = self.encoder(torch.cat(batches(number))).chunk(2)
            loss = self.loss(first, second)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.detach())
        return [torch.stack(losses), *(p.grad.clone() for p in self.encoder.parameters() if p.grad is not None)]


def nt_xent(temperature: float) -> Callable[[Tensor, Tensor], Tensor]:
    def loss(a: Tensor, b: Tensor) -> Tensor:
        z = torch.cat([a, b])
        logits = (z @ z.T / temperature).fill_diagonal_(-torch.inf)
        return F.cross_entropy(logits, torch.arange(len(z)).roll(len(a)))

    return loss


def once(views: list[tuple[Tensor, Tensor]]) -> Batches:
    return lambda number: views[number]


def test_twenty_steps(contest: Contest) -> None:
    images, a, generator = pictures(IMAGES), augmentation("mocov2", 32), torch.Generator().manual_seed(0)
    made = [Augmented(2).make(images, a, generator) for _ in range(STEPS)]
    views = once([(first, second) for first, second in made])
    mine = Ours()
    temperature = mine.recipe.temperature
    four = Theirs(mine, nt_xent(temperature))

    def lightly() -> Way:
        from lightly.loss import NTXentLoss

        theirs = Theirs(mine, NTXentLoss(temperature))
        return Way("lightly NTXentLoss", lambda: theirs.train(views), lambda: theirs.train(views, 1), peer=True)

    def double(a: Tensor, b: Tensor) -> Tensor:
        return nt_xent(temperature)(a.double(), b.double())

    contest(
        "Twenty steps of SimCLR, 64 images, given views",
        Way("ours", lambda: mine.train(views), lambda: mine.train(views, 1)),
        Way("four lines", lambda: four.train(views), lambda: four.train(views, 1)),
        peer("lightly NTXentLoss", lightly),
        # one step, the loss in float64: the network is the same, and its rounding grows from step to step
        truth=lambda: Theirs(mine, double).train(views, 1),
    )


def test_twenty_steps_with_views(contest: Contest) -> None:
    """The same steps with the views made in them, each by its own library; the views differ, the steps do not."""
    images, a, generator = pictures(IMAGES), augmentation("mocov2", 32), torch.Generator().manual_seed(0)
    mine, part = Ours(), Augmented(2)

    def ours(number: int) -> tuple[Tensor, Tensor]:
        first, second = part.make(images, a, generator)
        return first, second

    first = once([ours(0)])

    def lightly() -> Way:
        from lightly.loss import NTXentLoss
        from lightly.transforms import MoCoV2Transform

        opened = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in images]
        transform, theirs = MoCoV2Transform(input_size=32), Theirs(mine, NTXentLoss(mine.recipe.temperature))

        def batch(number: int) -> tuple[Tensor, Tensor]:
            made = [transform(image) for image in opened]
            return torch.stack([one for one, _ in made]), torch.stack([other for _, other in made])

        return Way("lightly", lambda: theirs.train(batch), lambda: theirs.train(first, 1), peer=True)

    four = Theirs(mine, nt_xent(mine.recipe.temperature))
    contest(
        "Twenty steps of SimCLR, 64 images, views made in them",
        Way("ours", lambda: mine.train(ours), lambda: mine.train(first, 1)),
        peer("lightly", lightly),
        truth=lambda: four.train(first, 1),
    )


def test_knn(contest: Contest) -> None:
    dim, train, test, classes = 512, 50_000, 1000, 10
    generator = torch.Generator().manual_seed(0)
    labels, asked = (torch.randint(classes, (count,), generator=generator) for count in (train, test))
    centres = unit(classes, 1, dim)
    bank = F.normalize(1.4 * centres[labels] + rows(train, 2, dim) / dim**0.5 * 4, dim=1)
    query = F.normalize(1.4 * centres[asked] + rows(test, 3, dim) / dim**0.5 * 12, dim=1)
    transposed = bank.T.contiguous()

    def slowly() -> list[Tensor]:
        # one test row at a time, in float64
        double, right = bank.double(), 0
        for row, label in zip(query.double(), asked.tolist(), strict=True):
            similarity, nearest = (double @ row).topk(200)
            votes = torch.bincount(labels[nearest], (similarity / 0.1).exp(), classes)
            right += int(votes.argmax()) == label
        return [torch.tensor(100 * right / test)]

    def ours() -> list[Tensor]:
        right = tasks.knn(bank, labels, query, asked, k=200, temperature=0.1)
        return [100 * right.float().mean()]

    def lightly() -> Way:
        from lightly.utils.benchmarking import knn_predict

        def predicted() -> list[Tensor]:
            hits = 0
            for part, truth in zip(query.split(512), asked.split(512), strict=True):
                guess = knn_predict(part, transposed, labels, classes, knn_k=200, knn_t=0.1)[:, 0]
                hits += int((guess == truth).sum())
            return [torch.tensor(100 * hits / test)]

        return Way("lightly knn_predict", predicted, predicted, peer=True)

    contest(
        "Weighted k-NN, 1,000 × 50,000 × 512",
        Way("ours", ours, ours),
        peer("lightly knn_predict", lightly),
        truth=slowly,
    )
