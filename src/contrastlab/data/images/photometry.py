"""Colour operations and Gaussian blur on a batch, one parameter per image.

All equal torchvision's functional operations on float images in [0, 1], including where they clamp. Grey images (one
channel) have no saturation and no hue.
"""

from __future__ import annotations

import torch
from torch import Tensor

from contrastlab import errors
from contrastlab.colour import check_images

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)


def _check(images: Tensor, name: str, value: Tensor) -> None:
    check_images(images, floating=True)
    if value.shape != images.shape[:1]:
        raise errors.reject(f"{name}.shape", tuple(value.shape), f"({images.shape[0]},): one value per image")


def _column(value: Tensor) -> Tensor:
    return value[:, None, None, None]


def _luma(images: Tensor) -> Tensor:
    """Grey value ``[B, 1, H, W]`` with the weights of ITU-R 601 as torchvision rounds them."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images[:, :1], images[:, 1:2], images[:, 2:]
    return red.mul(0.2989).add_(green, alpha=0.587).add_(blue, alpha=0.114)


def _blend(images: Tensor, keep: Tensor, grey: Tensor, mean: Tensor) -> Tensor:
    """In place: ``clamp(keep * x + grey * luma(x) + mean * mean(luma(x)))``, coefficients ``[B]``.

    Brightness, contrast, saturation and "make grey" are all this one pass, with different coefficients.
    """
    base = _luma(images)
    average = base.mean((2, 3), keepdim=True).mul_(_column(mean))
    base = torch.addcmul(average, base, _column(grey))
    return images.mul_(_column(keep)).add_(base).clamp_(0, 1)


def _rotate_hue(images: Tensor, shift: Tensor) -> Tensor:
    """In place: turn the hue of RGB images by ``shift[b]`` of a full circle."""
    red, green, blue = images[:, :1], images[:, 1:2], images[:, 2:]
    high = torch.maximum(torch.maximum(red, green), blue)
    low = torch.minimum(torch.minimum(red, green), blue)
    chroma = high - low
    scale = chroma.clamp(min=1e-12).reciprocal_()
    # hue in sixths of the circle, with the same precedence as HSV's usual definition when channels tie
    hue = (red - green).mul_(scale).add_(4)
    hue = torch.where(high == green, (blue - red).mul_(scale).add_(2), hue)
    hue = torch.where(high == red, (green - blue).mul_(scale), hue)
    hue.add_(_column(6 * shift))
    hue.sub_((hue / 6).floor_().mul_(6))
    # each channel is a trapezoid of the hue between ``low`` and ``low + chroma``: no case distinction
    torch.addcmul(low, chroma, (hue - 3).abs_().sub_(1).clamp_(0, 1), out=red)
    torch.addcmul(low, chroma, (hue - 2).abs_().neg_().add_(2).clamp_(0, 1), out=green)
    torch.addcmul(low, chroma, hue.sub_(4).abs_().neg_().add_(2).clamp_(0, 1), out=blue)
    return images


def grayscale(images: Tensor, chosen: Tensor) -> Tensor:
    """Replace the chosen RGB images by their grey value in all three channels.

    Args:
        images: ``[B, C, H, W]`` in [0, 1], ``C`` 1 or 3.
        chosen: ``[B]`` boolean.

    Returns:
        Images of the same shape in [0, 1].

    Raises:
        ArgumentError: for other shapes or an integer dtype.
    """
    _check(images, "chosen", chosen)
    return torch.where(_column(chosen), _luma(images), images)


def jitter_(images: Tensor, factors: Tensor, order: Tensor, *, hue: bool = True) -> Tensor:
    """Brightness, contrast, saturation and hue, in an order of its own for each image; in place, without checks.

    Exact for every order, without grouping images or asking the GPU how many there are: brightness,
    contrast and saturation are one kind of pass with different coefficients, so three such passes, one
    hue rotation and three more such passes contain every order; the passes an image does not need
    get the coefficients that change nothing.

    Args:
        images: ``[B, C, H, W]`` in [0, 1], ``C`` 1 or 3.
        factors: ``[B, 4]`` of (brightness, contrast, saturation, hue).
        order: ``[B, 4]``, a permutation of 0..3 per row: ``order[b, k]`` is applied ``k``-th.
        hue: False skips the hue rotation (all ``factors[:, 3]`` must be 0).

    Returns:
        ``images``, in [0, 1].
    """
    colour = images.shape[1] == 3
    keep = factors.gather(1, order)
    rest = 1 - keep
    idle = torch.zeros_like(rest)
    grey = torch.where(order == SATURATION, rest, idle)
    mean = torch.where(order == CONTRAST, rest, idle)
    unused = order == HUE
    if not colour:
        unused = unused | (order == SATURATION)
        grey = idle
    keep = keep.masked_fill(unused, 1.0)

    if not (hue and colour):
        # three operations at most, in the same relative order: move the unused positions to the end
        used = torch.argsort(unused.to(torch.uint8), dim=1, stable=True)[:, : 3 if colour else 2]
        keep, grey, mean = keep.gather(1, used), grey.gather(1, used), mean.gather(1, used)
        for k in range(used.shape[1]):
            _blend(images, keep[:, k], grey[:, k], mean[:, k])
        return images

    position = torch.arange(4, device=order.device)
    slot = torch.where(unused, position, 0).sum(1, keepdim=True)  # where the hue rotation stands
    on_device = images.device.type != "cpu"  # only a CPU can look whether a pass is needed without waiting

    def passes(active: Tensor, positions: range) -> None:
        factor, to_grey, to_mean = keep.where(active, 1.0), grey.where(active, 0.0), mean.where(active, 0.0)
        for k in positions:
            if on_device or bool(active[:, k].any()):
                _blend(images, factor[:, k], to_grey[:, k], to_mean[:, k])

    passes(position < slot, range(3))
    _rotate_hue(images, factors[:, HUE])
    passes(position > slot, range(1, 4))
    return images


def gaussian_blur(images: Tensor, sigma: Tensor, kernel: int) -> Tensor:
    """Separable Gaussian blur with reflected borders, one standard deviation per image.

    Both directions are products with a banded matrix that has the reflection folded in, so the cost
    does not depend on the kernel and a batch needs no loop.

    Args:
        images: ``[B, C, H, W]``, ``C`` 1 or 3.
        sigma: ``[B]`` in pixels; 0 leaves the image as it is.
        kernel: odd number of taps, ``kernel // 2 < min(H, W)``.

    Returns:
        Images of the same shape.

    Raises:
        ArgumentError: for other shapes or such a kernel.
    """
    _check(images, "sigma", sigma)
    if kernel < 1 or kernel % 2 == 0 or kernel // 2 >= min(images.shape[2:]):
        raise errors.reject("kernel", kernel, f"an odd number with kernel // 2 < {min(images.shape[2:])}")
    count, channels, height, width = images.shape
    taps = torch.arange(kernel // 2 + 1, device=images.device, dtype=torch.float32)
    weights = torch.exp(-0.5 * (taps / sigma.to(torch.float32).clamp(min=1e-3)[:, None]) ** 2)
    weights = weights / (2 * weights.sum(1, keepdim=True) - weights[:, :1])
    with torch.autocast(images.device.type, enabled=False):
        columns = (weights @ _bands(width, kernel // 2, images.device)).view(count, width, width)
        rows = columns
        if height != width:
            rows = (weights @ _bands(height, kernel // 2, images.device)).view(count, height, height)
        half = torch.bmm(images.reshape(count, channels * height, width), columns.transpose(1, 2)).view_as(images)
        return torch.stack([torch.bmm(rows, half[:, channel]) for channel in range(channels)], dim=1)


def _bands(size: int, radius: int, device: torch.device) -> Tensor:
    """``[radius + 1, size * size]``: how often input ``i`` is met at distance ``d`` from output ``o``."""
    index = torch.arange(size, device=device)
    output, source = index[:, None], index[None, :]
    distance = torch.arange(radius + 1, device=device)[:, None, None]
    direct = (output - source).abs() == distance
    # pixel i > 0 is seen again at -i, and pixel i < size - 1 again at 2 (size - 1) - i
    left = (output + source == distance) & (source > 0)
    right = (2 * (size - 1) - source - output == distance) & (source < size - 1)
    return (direct.float() + left + right).view(radius + 1, size * size)
