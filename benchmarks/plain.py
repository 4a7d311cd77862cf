"""Does a run of contrastlab reach what a plain script reaches? SimCLR both ways: same encoder, data and settings.

    PYTHONPATH=src python benchmarks/plain.py --out benchmarks/results/plain.json

The plain script shares the network and nothing else: torchvision's transforms picture by picture, cross-entropy on the
matrix of cosines, torch's optimiser and schedule. Seeds mean different draws in the two, so only the spread over seeds
says whether they agree. ``--batch-norm`` gives the plain script a head with batch-norm, as lightly's has.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.transforms import v2

from contrastlab import data, methods, tasks
from contrastlab.pictures.augmentations import augmentation
from contrastlab.pictures.encoder import build_for
from contrastlab.pictures.loading import subset_order
from contrastlab.settings import Settings
from contrastlab.support.provenance import provenance
from contrastlab.train import pretrain

RECIPE = methods.get("fmicl/simclr")
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def shared_settings(images: int, epochs: int) -> Settings:
    """SimCLR's views, a head of two layers and the rate of lightly's benchmark, 0.06 for each 128 pictures."""
    return Settings(
        train_images=images,
        image_size=32,
        arch="tiny",
        stem="cifar",
        head="mlp",
        dim=128,
        augmentation="simclr",
        epochs=epochs,
        batch_size=256,
        lr=0.12,
        weight_decay=5e-4,
        schedule="cosine",
        milestones=(),
        knn_every=0,
    )


def train_plain(settings: Settings, pictures: Tensor, seed: int, batch_norm: bool) -> tuple[nn.ModuleList, float]:
    """Encoders and the mean loss of the last epoch (nats); pictures are uint8 ``[N, 3, 32, 32]``."""
    torch.manual_seed(seed)
    encoders = build_for(RECIPE.views, 3, arch=settings.arch, stem="cifar", head=settings.head, dim=settings.dim)
    network: Any = encoders[0]
    width, dim, batch = network.feature_dim, settings.dim, settings.batch_size
    if batch_norm:
        network.head = nn.Sequential(
            nn.Linear(width, width, bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Linear(width, dim, bias=False),
            nn.BatchNorm1d(dim),
        )
    view = v2.Compose(
        [
            v2.RandomResizedCrop(32, scale=(0.08, 1.0), antialias=True),
            v2.RandomHorizontalFlip(),
            v2.RandomApply([v2.ColorJitter(0.4, 0.4, 0.4, 0.1)], 0.8),
            v2.RandomGrayscale(0.2),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(IMAGENET_MEAN, IMAGENET_STD),
        ]
    )
    optimiser = torch.optim.SGD(
        network.parameters(), lr=settings.lr, momentum=settings.momentum, weight_decay=settings.weight_decay
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, settings.epochs)
    partner = torch.arange(2 * batch).roll(batch)
    network.train()
    losses: list[float] = []
    for _ in range(settings.epochs):
        losses.clear()
        for rows in torch.randperm(len(pictures)).split(batch):
            if len(rows) < batch:
                continue
            views = torch.stack([view(picture) for picture in pictures[rows].repeat(2, 1, 1, 1)])
            embeddings = F.normalize(network(views), dim=1)
            logits = (embeddings @ embeddings.T / RECIPE.temperature).fill_diagonal_(-torch.inf)
            loss = F.cross_entropy(logits, partner)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        schedule.step()
    return encoders.eval(), sum(losses) / len(losses)


def neighbours(encoders: nn.ModuleList, settings: Settings, splits: data.Splits) -> float:
    """200-NN accuracy (percent of test images) of the pooled features."""
    view = augmentation(settings.augmentation, settings.image_size)
    (rows, labels), (queries, truth) = (
        tasks.encode(encoders, RECIPE.views, view, part, kind="pooled", device="cpu")
        for part in (splits.train, splits.test)
    )
    right = tasks.knn(F.normalize(rows, dim=1), labels, F.normalize(queries, dim=1), truth)
    return tasks.Measured.share(right).value


def main(arguments: list[str] | None = None) -> int:
    """Train both with each seed and write what they reach."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3, help="how many, from 0")
    parser.add_argument("--batch-norm", action="store_true", help="in the head of the plain script")
    asked = parser.parse_args(arguments)
    splits = data.load(asked.dataset, download=False)
    settings = shared_settings(asked.images, asked.epochs)
    chosen = subset_order(splits.pretrain.labels, asked.images, seed=0)
    pictures = splits.pretrain.images[chosen]
    runs: list[dict[str, Any]] = []
    for seed in range(asked.seeds):
        started = time.perf_counter()
        ours = pretrain(RECIPE, settings, splits.pretrain, seed=seed, log=lambda line: None)
        between = time.perf_counter()
        plain, loss = train_plain(settings, pictures, seed, asked.batch_norm)
        ended = time.perf_counter()
        for who, encoders, nats, seconds in (
            ("contrastlab", ours.encoders, ours.history[-1]["loss"], between - started),
            ("plain", plain, loss, ended - between),
        ):
            accuracy = neighbours(encoders, settings, splits)
            runs.append({"who": who, "seed": seed, "knn200": accuracy, "loss": nats, "seconds": seconds})
            print(f"{who:12} seed {seed}: 200-NN {accuracy:.2f} %, loss {nats:.4f} nats, {seconds:.0f} s", flush=True)
        record = {
            "dataset": asked.dataset,
            "data": splits.note,
            "batch_norm": asked.batch_norm,
            "settings": settings.model_dump(mode="json", exclude_defaults=True),
            "runs": runs,
            "machine": provenance("cpu"),
        }
        asked.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
