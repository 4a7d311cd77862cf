"""Views per second: batched augmentation against a torchvision loop over images.

Run with ``pytest benchmarks/bench_views.py`` (needs pytest-benchmark). One thread, so that figures are
per core; the clock is the processor time of this process, so that neighbours on a shared machine count
less. ``views_per_second`` is in each benchmark's extra info.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torchvision.transforms import v2

from contrastlab.views import Augmentation, Augmented, augment, augmentation

pytestmark = pytest.mark.benchmark(timer=time.process_time)

CASES = [("mocov2", 32, 32, 512), ("instdisc", 32, 32, 512), ("cmc", 32, 32, 512), ("mocov2", 32, 224, 32)]


def torchvision_transform(a: Augmentation) -> Callable[[Tensor], Tensor]:
    """The same recipe as torchvision transforms of one uint8 image."""
    steps: list[Any] = [v2.RandomResizedCrop(a.size, a.scale, a.ratio, antialias=True)]
    if any(a.jitter):
        steps.append(v2.RandomApply([v2.ColorJitter(*a.jitter)], a.jitter_p))
    if a.grayscale:
        steps.append(v2.RandomGrayscale(a.grayscale))
    if a.blur:
        steps.append(v2.RandomApply([v2.GaussianBlur(a.kernel, a.blur_sigma)], a.blur))
    steps += [v2.RandomHorizontalFlip(a.flip), v2.ToDtype(torch.float32, scale=True)]
    transform: Callable[[Tensor], Tensor] = v2.Compose(steps)
    return transform


def measure(benchmark: Any, views: int, make: Callable[[], object]) -> None:
    torch.set_num_threads(1)
    benchmark.pedantic(make, rounds=7, warmup_rounds=2)
    benchmark.extra_info["views_per_second"] = round(views / benchmark.stats.stats.median)


def batch(count: int, size: int) -> Tensor:
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("name", "source", "size", "count"), CASES)
def test_batched(benchmark: Any, name: str, source: int, size: int, count: int) -> None:
    images, a, generator = batch(count, source), augmentation(name, size), torch.Generator().manual_seed(0)
    measure(benchmark, count, lambda: augment(images, a, generator))


@pytest.mark.parametrize(("name", "source", "size", "count"), CASES)
def test_torchvision_loop(benchmark: Any, name: str, source: int, size: int, count: int) -> None:
    images, transform = batch(count, source), torchvision_transform(augmentation(name, size))
    measure(benchmark, count, lambda: torch.stack([transform(image) for image in images]))


def test_two_normalised_views(benchmark: Any) -> None:
    images, a, generator = batch(512, 32), augmentation("mocov2", 32), torch.Generator().manual_seed(0)
    part = Augmented(2)
    measure(benchmark, 1024, lambda: part.make(images, a, generator))
