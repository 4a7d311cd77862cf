"""Pictures that do not fit: what a core decodes, crops and hands over, in images per second.

    pytest benchmarks/bench_streaming.py

The files are JPEG of 500 by 375 pixels, about the mean of ImageNet's. A core is a second of processor time, of workers
and the process that reads from them together: on a shared machine it is steadier than the clock.
"""

from __future__ import annotations

import itertools
import resource
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from contrastlab.data import StreamedImages
from contrastlab.pictures.augmentations import augmentation
from contrastlab.pictures.loading import Crops, batches
from contrastlab.pictures.sets import decode

pytestmark = pytest.mark.benchmark(group="streaming")
COUNT, SIDE, BATCH, ROUNDS = 64, 224, 32, 5
Rate = Callable[..., None]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> StreamedImages:
    folder = tmp_path_factory.mktemp("jpeg")
    generator = torch.Generator().manual_seed(0)
    paths = tuple(f"{k}.jpg" for k in range(COUNT))
    for path in paths:
        # shapes, and a texture that gives files of about a hundred kilobytes, as photographs have
        smooth, fine = (torch.rand(1, 3, *size, generator=generator) for size in ((12, 16), (375, 500)))
        picture = F.interpolate(smooth, size=(375, 500), mode="bicubic") + 0.12 * (fine - 0.5)
        pixels = picture[0].mul(255).clamp(0, 255).to(torch.uint8).permute(1, 2, 0)
        Image.fromarray(pixels.numpy()).save(folder / path, quality=90)
    size = sum((folder / path).stat().st_size for path in paths) / COUNT
    assert 60e3 < size < 160e3, f"files of {size / 1e3:.0f} kB"
    return StreamedImages("jpeg", folder, paths, torch.arange(COUNT), tuple(map(str, range(COUNT))))


def spent() -> tuple[float, float]:
    """Seconds on the clock, and of processor time of this process and of those that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return time.perf_counter(), sum(u.ru_utime + u.ru_stime for u in used)


@pytest.fixture
def rate(benchmark: Any, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> Rate:
    """``rate(work, images)``: images per second and per core-second, median of the rounds."""

    def measure(work: Callable[[], object], images: int) -> None:
        torch.set_num_threads(1)
        times: list[tuple[float, float]] = []

        def timed() -> None:
            before = spent()
            work()
            times.append(tuple(b - a for a, b in zip(before, spent(), strict=True)))  # type: ignore[arg-type]

        benchmark.pedantic(timed, rounds=ROUNDS, warmup_rounds=1)
        clock, core = (images / sorted(column)[len(column) // 2] for column in zip(*times[1:], strict=True))
        benchmark.extra_info.update(images_per_second=clock, images_per_core_second=core)
        with capsys.disabled():
            print(f"\n{request.node.name}: {clock:.0f} images/s, {core:.0f} images/s and core", end="")

    return measure


def crops(count: int) -> Crops:
    return Crops(augmentation("mocov2", SIDE), count, int)


def test_decode(rate: Rate, files: StreamedImages) -> None:
    def work() -> None:
        for path in files.paths:
            decode(Path(files.folder, path)).load()

    rate(work, COUNT)


def test_middle_square(rate: Rate, files: StreamedImages) -> None:
    rate(lambda: [files[k] for k in range(COUNT)], COUNT)


@pytest.mark.parametrize("views", [1, 2])
def test_decode_and_crop(rate: Rate, files: StreamedImages, views: int) -> None:
    boxes = crops(views).boxes
    rate(lambda: [files.crops(k, partial(boxes, k), SIDE) for k in range(COUNT)], COUNT)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_batches(rate: Rate, files: StreamedImages, workers: int) -> None:
    order, epochs = torch.arange(COUNT), 4

    def work() -> None:
        stream = batches(
            files, itertools.repeat(order, epochs), BATCH, "cpu", drop_last=True, workers=workers, crop=crops(2)
        )
        sizes: list[Tensor] = [images for _, images in stream]
        assert [tuple(s.shape) for s in sizes] == [(BATCH, 2, 3, SIDE, SIDE)] * (epochs * COUNT // BATCH)

    rate(work, epochs * COUNT)
