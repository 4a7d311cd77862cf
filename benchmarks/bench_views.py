"""Two augmented and normalised views of a batch: crop, flip, colour jitter with hue, grayscale, blur (MoCo v2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from harness import Way, peer
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2

from contrastlab.pictures.augmentations import Augmentation, augmentation
from contrastlab.views import Augmented

pytestmark = pytest.mark.benchmark(group="views")
Contest = Callable[..., None]


def torchvision_transform(a: Augmentation) -> Callable[[Tensor], Tensor]:
    """The same recipe as torchvision transforms of one uint8 image."""
    steps: list[Any] = [v2.RandomResizedCrop(a.size, a.scale, a.ratio, antialias=True)]
    if any(a.jitter):
        steps.append(v2.RandomApply([v2.ColorJitter(*a.jitter)], a.jitter_p))
    if a.grayscale:
        steps.append(v2.RandomGrayscale(a.grayscale))
    if a.blur:
        steps.append(v2.RandomApply([v2.GaussianBlur(a.kernel, a.blur_sigma)], a.blur))
    steps += [v2.RandomHorizontalFlip(a.flip), v2.ToDtype(torch.float32, scale=True), v2.Normalize(a.mean, a.std)]
    transform: Callable[[Tensor], Tensor] = v2.Compose(steps)
    return transform


def pictures(count: int) -> Tensor:
    """uint8 ``[count, 3, 32, 32]``: smooth, as photographs are."""
    coarse = torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    return torch.nn.functional.interpolate(coarse, size=32, mode="bicubic").mul(255).clamp(0, 255).to(torch.uint8)


@pytest.mark.parametrize("size", [32, 224])
def test_views(contest: Contest, size: int) -> None:
    count = 256 if size == 32 else 32
    images, a, part = pictures(count), augmentation("mocov2", size), Augmented(2)
    generator = torch.Generator().manual_seed(0)
    # without chance, every way must give the whole picture; to a grey level, since two of them round to 8 bits
    still = replace(a, scale=(1.0, 1.0), ratio=(1.0, 1.0), flip=0.0, jitter=(0.0,) * 4, grayscale=0.0, blur=0.0)
    std = torch.tensor(a.std)[:, None, None]

    def agree(name: str, made: Callable[[], Tensor], plain: Callable[[], Tensor]) -> None:
        off = float(((plain() - truth) * std).abs().max())
        assert off <= 1.01 / 255 * (1 if size == 32 else 1.5), f"{name}: {off * 255:.2f} grey levels off"
        torch.manual_seed(0)
        views = made()
        statistics = torch.stack([views.mean((0, 2, 3)), views.std((0, 2, 3))])
        moments.setdefault("first", statistics)
        assert float((statistics - moments["first"]).abs().max()) < 0.1, f"{name}: {statistics} beside {moments}"

    moments: dict[str, Tensor] = {}
    whole = images.double() / 255
    if size != 32:
        whole = torch.nn.functional.interpolate(whole, size=size, mode="bilinear", antialias=True)
    truth = (whole - torch.tensor(a.mean)[:, None, None]) / std

    transforms = {"loop": torchvision_transform(a), "still": torchvision_transform(still)}

    def ours() -> list[Tensor]:
        return list(part.make(images, a, generator))

    def loop(name: str = "loop") -> list[Tensor]:
        return [torch.stack([transforms[name](image) for image in images]) for _ in range(2)]

    agree("ours", lambda: torch.cat(ours()), lambda: Augmented(1).make(images, still, generator)[0])
    agree("torchvision", lambda: torch.cat(loop()), lambda: loop("still")[0])

    def lightly() -> Way:
        from lightly.transforms import MoCoV2Transform

        opened = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in images]
        transform = MoCoV2Transform(input_size=size)
        plain = MoCoV2Transform(
            input_size=size, min_scale=1.0, cj_prob=0.0, random_gray_scale=0.0, gaussian_blur=0.0, hf_prob=0.0
        )

        def made(transform: Callable[[Any], list[Tensor]] = transform) -> list[Tensor]:
            return [torch.stack(views) for views in zip(*[transform(image) for image in opened], strict=True)]

        agree("lightly", lambda: torch.cat(made()), lambda: made(plain)[0])
        return Way("lightly, image by image", made, peer=True)

    contest(
        f"Two views of {count} images, 32 → {size} px",
        Way("ours", ours, lambda: [torch.zeros(())]),
        peer("lightly, image by image", lightly),
        Way("torchvision, image by image", loop),
        truth=lambda: [torch.zeros(())],
    )
