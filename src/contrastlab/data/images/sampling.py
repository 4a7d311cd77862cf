"""Boxes and colour factors at random, apart from the operations that use them.

Everything is drawn on the device of the generator, one row per image, with the distributions of
torchvision's ``get_params``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from contrastlab import errors

_ATTEMPTS = 10  # crops tried before the central one is taken, as in torchvision


@dataclass(frozen=True)
class ViewDraws:
    """The parameters of one view of each of ``B`` images.

    Attributes:
        boxes: ``[B, 4]`` of (top, left, height, width) in pixels.
        flip: ``[B]`` boolean.
        factors: ``[B, 4]`` of (brightness, contrast, saturation, hue); (1, 1, 1, 0) changes nothing.
        order: ``[B, 4]``, ``order[b, k]`` is the operation applied ``k``-th.
        grayscale: ``[B]`` boolean.
        sigma: ``[B]`` standard deviation of the blur, 0 for none.
        operations: ``[B, n, 3]`` of RandAugment, see :func:`contrastlab.data.images.randaugment.sample_operations`.
    """

    boxes: Tensor
    flip: Tensor
    factors: Tensor
    order: Tensor
    grayscale: Tensor
    sigma: Tensor
    operations: Tensor

    def __getitem__(self, part: slice | Tensor) -> ViewDraws:
        return ViewDraws(*(getattr(self, field)[part] for field in self.__dataclass_fields__))


def draw_device(generator: torch.Generator | None, device: torch.device | str | None) -> torch.device:
    """Where numbers are drawn: ``device``, or else the generator's.

    Raises:
        ArgumentError: for a generator of another device.
    """
    wanted = torch.device(device) if device is not None else (generator.device if generator else torch.device("cpu"))
    if generator is not None and generator.device.type != wanted.type:
        raise errors.reject("generator.device", str(generator.device), f"the device of the images, {wanted}")
    return wanted


def uniform(low: float, high: float, unit: Tensor) -> Tensor:
    """Numbers of [0, 1) moved to [low, high), any shape."""
    return unit * (high - low) + low


def sample_boxes(
    count: int,
    height: int,
    width: int,
    *,
    scale: tuple[float, float] = (0.2, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    generator: torch.Generator | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Boxes of a random resized crop.

    Area uniform in ``scale`` times the image's, aspect ratio log-uniform in ``ratio``, position
    uniform; the first of ten attempts that fits is taken, else the largest central box whose aspect
    ratio is allowed. All attempts are drawn at once, so the number of draws does not depend on luck.

    Args:
        count: number of boxes B.
        height: height of the images in pixels.
        width: width of the images in pixels.
        scale: range of the area, as a fraction.
        ratio: range of width / height.
        generator: source of the draws; None is the device's default.
        device: where to draw; None is the generator's.

    Returns:
        int64 ``[B, 4]`` of (top, left, height, width).

    Raises:
        ArgumentError: for an image without pixels, or a generator of another device.
    """
    for name, value in (("height", height), ("width", width)):
        if value < 1:
            raise errors.reject(name, value, "an integer >= 1")
    unit = torch.rand(count, 2 * _ATTEMPTS + 2, generator=generator, device=draw_device(generator, device))
    area = uniform(scale[0], scale[1], unit[:, :_ATTEMPTS]) * (height * width)
    aspect = uniform(math.log(ratio[0]), math.log(ratio[1]), unit[:, _ATTEMPTS : 2 * _ATTEMPTS]).exp_()
    heights, widths = (area / aspect).sqrt_().round_(), (area * aspect).sqrt_().round_()
    fits = (heights > 0) & (heights <= height) & (widths > 0) & (widths <= width)

    if width / height < min(ratio):
        central = (round(width / min(ratio)), width)
    elif width / height > max(ratio):
        central = (height, round(height * max(ratio)))
    else:
        central = (height, width)
    first = fits.to(torch.uint8).argmax(1, keepdim=True)
    any_fits = fits.any(1)
    box_height = heights.gather(1, first)[:, 0].where(any_fits, float(central[0]))
    box_width = widths.gather(1, first)[:, 0].where(any_fits, float(central[1]))

    def start(unit: Tensor, room: Tensor) -> Tensor:
        anywhere = torch.minimum((unit * (room + 1)).floor_(), room)
        return anywhere.where(any_fits, (room / 2).floor_())

    top, left = start(unit[:, -2], height - box_height), start(unit[:, -1], width - box_width)
    return torch.stack((top, left, box_height, box_width), dim=1).long()


def sample_jitter(
    count: int,
    strengths: tuple[float, float, float, float],
    *,
    p: float = 1.0,
    generator: torch.Generator | None = None,
    device: torch.device | str | None = None,
) -> tuple[Tensor, Tensor]:
    """Factors and order of a colour jitter.

    Args:
        count: number of images B.
        strengths: of brightness, contrast, saturation and hue, as an ``Augmentation`` has them.
        p: probability that an image is jittered; the others get the factors (1, 1, 1, 0).
        generator: source of the draws; None is the device's default.
        device: where to draw; None is the generator's.

    Returns:
        ``factors``, float32 ``[B, 4]``, and ``order``, int64 ``[B, 4]``, a uniform permutation per row.

    Raises:
        ArgumentError: for a generator of another device.
    """
    unit = torch.rand(count, 9, generator=generator, device=draw_device(generator, device))
    idle, factors = (1.0, 1.0, 1.0, 0.0), []
    for k, strength in enumerate(strengths):
        low = max(0.0, 1.0 - strength) if k < 3 else -strength
        factors.append(uniform(low, idle[k] + strength, unit[:, k]).where(unit[:, 8] < p, idle[k]))
    return torch.stack(factors, dim=1), unit[:, 4:8].argsort(1)
