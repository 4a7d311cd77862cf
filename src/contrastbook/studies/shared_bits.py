"""Digits whose two views share some bits beside the picture: an encoder that learns the bits has the larger bound.

A view is a shifted, noisy, partly blank 8 × 8 digit, followed by ``bits`` random signs that both views of a pair share.
The signs say nothing about the digit, and of one picture they are drawn anew for each pair.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contrastlab import data, objectives
from contrastlab.information import bounds, critics
from contrastlab.support.seeds import fixed

BATCH = 256
"""K of InfoNCE, in training and in the bound."""
TEMPERATURE = 0.2
SIDE = 8
SHIFT = 2
"""Pixels by which a view is shifted, at most."""


@dataclass(frozen=True)
class Snapshot:
    """An encoder after ``step`` steps.

    ``bound`` is InfoNCE in nats on held-out pairs, ``accuracy`` that of a linear classifier of the features, in percent
    of held-out digits.
    """

    step: int
    bound: float
    accuracy: float


class Encoder(nn.Module):
    """Features ``[B, 128]`` of views ``[B, 64 + bits]``, and unit embeddings ``[B, 64]`` of the features."""

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.backbone = critics.mlp([SIDE * SIDE + bits, 256, 128])
        self.head = critics.mlp([128, 64])

    def features(self, views: Tensor) -> Tensor:
        """What a classifier reads, ``[B, 128]``."""
        return F.relu(self.backbone(views))

    def forward(self, views: Tensor) -> Tensor:
        """Unit embeddings ``[B, 64]``."""
        return F.normalize(self.head(self.features(views)), dim=1)


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Pixels ``[N, 64]`` from 0 to 1 and classes ``[N]``, to train on and held out."""
    splits = data.load("digits")
    train, test = splits.train, splits.test
    return _pixels(train.items), train.labels, _pixels(test.items), test.labels


def _pixels(items: Tensor) -> Tensor:
    """Pictures, bytes ``[N, 1, 8, 8]``, as ``[N, 64]`` from 0 to 1."""
    return items.flatten(1).float() / 255


def two_views(pixels: Tensor, bits: int, draws: torch.Generator) -> tuple[Tensor, Tensor]:
    """Two views ``[B, 64 + bits]`` of each digit ``[B, 64]``, with the same signs."""
    signs = _draw_signs(len(pixels), bits, draws)
    first = torch.cat([_view(pixels, draws), signs], dim=1)
    second = torch.cat([_view(pixels, draws), signs], dim=1)
    return first, second


def _draw_signs(count: int, bits: int, draws: torch.Generator) -> Tensor:
    """Random signs, ±1 ``[count, bits]``."""
    zeros_and_ones = torch.randint(0, 2, (count, bits), generator=draws)
    return zeros_and_ones.float() * 2 - 1


def _view(pixels: Tensor, draws: torch.Generator) -> Tensor:
    """Digits ``[B, 64]``, each shifted by a random step, with noise, and blank in three pixels of ten."""
    count = len(pixels)
    padded = F.pad(pixels.view(count, SIDE, SIDE), (SHIFT, SHIFT, SHIFT, SHIFT))
    corners = torch.randint(0, 2 * SHIFT + 1, (2, count, 1), generator=draws)
    rows, columns = corners + torch.arange(SIDE)
    number = torch.arange(count)[:, None, None]
    shifted = padded[number, rows[:, :, None], columns[:, None, :]]
    shifted = shifted.reshape(count, SIDE * SIDE)
    noisy = shifted + 0.3 * torch.randn(shifted.shape, generator=draws)
    is_seen = torch.rand(shifted.shape, generator=draws) > 0.3
    return noisy * is_seen


def train(bits: int, seed: int, looks: tuple[int, ...]) -> list[Snapshot]:
    """Train an encoder by InfoNCE on digits with shared bits, and look at it after each of so many steps."""
    pixels, labels, held_out, held_out_labels = digits()
    draws = torch.Generator().manual_seed(seed)
    with fixed(seed):
        encoder = Encoder(bits)
    optimiser = torch.optim.Adam(encoder.parameters(), lr=1e-3)
    measured: list[Snapshot] = []
    for step in range(max(looks) + 1):
        if step in looks:
            bound = _bound(encoder, bits, held_out)
            accuracy = _accuracy(encoder, bits, pixels, labels, held_out, held_out_labels)
            measured.append(Snapshot(step, bound, accuracy))
        batch = torch.randint(len(pixels), (BATCH,), generator=draws)
        first, second = two_views(pixels[batch], bits, draws)
        loss = objectives.from_views(encoder(first), encoder(second), temperature=TEMPERATURE)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return measured


@torch.no_grad()
def _bound(encoder: Encoder, bits: int, pixels: Tensor) -> float:
    """InfoNCE in nats, of pairs of views of the first digits."""
    draws = torch.Generator().manual_seed(0)
    first, second = two_views(pixels[:BATCH], bits, draws)
    cosines = encoder(first) @ encoder(second).T
    positives, negatives = bounds.pairs(cosines / TEMPERATURE)
    return float(bounds.info_nce(positives, negatives))


@torch.no_grad()
def _accuracy(
    encoder: Encoder,
    bits: int,
    pixels: Tensor,
    labels: Tensor,
    held_out: Tensor,
    held_out_labels: Tensor,
) -> float:
    """Percent right of a linear classifier of the features; each digit is whole and has signs of its own."""
    draws = torch.Generator().manual_seed(0)
    signs = _draw_signs(len(pixels), bits, draws)
    features = encoder.features(torch.cat([pixels, signs], dim=1))
    held_out_signs = _draw_signs(len(held_out), bits, draws)
    held_out_features = encoder.features(torch.cat([held_out, held_out_signs], dim=1))
    return linear_accuracy(features, labels, held_out_features, held_out_labels)


def linear_accuracy(rows: Tensor, labels: Tensor, held_out: Tensor, held_out_labels: Tensor) -> float:
    """Percent of held-out rows ``[M, d]`` whose class is predicted by ridge regression on ``rows`` ``[N, d]``."""
    mean = rows.double().mean(0)
    deviation = rows.double().std(0) + 1e-6
    inputs = _with_one((rows.double() - mean) / deviation)
    held_out_inputs = _with_one((held_out.double() - mean) / deviation)
    penalty = torch.eye(inputs.shape[1], dtype=torch.float64)
    classes = F.one_hot(labels).double()
    weights = torch.linalg.solve(inputs.T @ inputs + penalty, inputs.T @ classes)
    predicted = (held_out_inputs @ weights).argmax(1)
    is_right = predicted == held_out_labels
    return 100 * float(is_right.double().mean())


def _with_one(rows: Tensor) -> Tensor:
    """Rows ``[N, d]`` with a one behind each, ``[N, d + 1]``."""
    return torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)


def scrambled(pixels: Tensor, seed: int = 0) -> Tensor:
    """Digits ``[N, 64]`` in which each pixel's grey levels are exchanged by a permutation of its own.

    The map is one to one, so it changes no mutual information.
    """
    draws = torch.Generator().manual_seed(seed)
    levels, places = pixels.unique(return_inverse=True)
    permutations = [torch.randperm(len(levels), generator=draws) for _ in range(pixels.shape[1])]
    new_places = torch.stack(permutations, 1).gather(0, places)
    return levels[new_places]
