"""Colour spaces that split an image into luminance and chrominance (CMC, section 4.1)."""

from __future__ import annotations

import torch
from torch import Tensor

from contrastlab import errors

# sRGB to CIE XYZ (IEC 61966-2-1), each row already divided by the D65 white point (2 degree observer)
_XYZ = (
    (0.412453 / 0.95047, 0.357580 / 0.95047, 0.180423 / 0.95047),
    (0.212671, 0.715160, 0.072169),
    (0.019334 / 1.08883, 0.119193 / 1.08883, 0.950227 / 1.08883),
)
_YDBDR = ((0.299, 0.587, 0.114), (-0.45, -0.883, 1.333), (-1.333, 1.116, 0.217))

# (mid-range, half-range) per channel, so that every channel fills about [-1, 1]
LAB_STATISTICS = ((50.0, 6.025, -6.6895), (50.0, 92.208, 101.1675))
YDBDR_STATISTICS = ((0.5, 0.0, 0.0), (0.5, 1.333, 1.333))


def _mix(images: Tensor, matrix: tuple[tuple[float, float, float], ...]) -> Tensor:
    """A 3x3 colour matrix, as sums rather than a matmul: exact float32 under autocast and TF32."""
    red, green, blue = images.unbind(1)
    return torch.stack([red.mul(a).add_(green, alpha=b).add_(blue, alpha=c) for a, b, c in matrix], dim=1)


def _check_rgb(images: Tensor) -> None:
    check_images(images, floating=True)
    if images.shape[1] != 3:
        raise errors.reject("images.shape", tuple(images.shape), "[B, 3, H, W]: RGB")


def rgb_to_lab(images: Tensor) -> Tensor:
    """SRGB to CIE L*a*b* (D65 white, 2 degree observer), the values of scikit-image's ``rgb2lab``.

    Args:
        images: ``[B, 3, H, W]`` in [0, 1].

    Returns:
        ``[B, 3, H, W]`` with L in [0, 100], a in [-86.2, 98.3] and b in [-107.9, 94.5].

    Raises:
        ArgumentError: for another shape or an integer dtype.
    """
    _check_rgb(images)
    linear = torch.where(images > 0.04045, ((images + 0.055) / 1.055).pow(2.4), images / 12.92)
    ratio = _mix(linear, _XYZ)
    root = torch.where(ratio > 0.008856, ratio.clamp(min=1e-6).pow(1 / 3), 7.787 * ratio + 16 / 116)
    x, y, z = root.unbind(1)
    return torch.stack((116 * y - 16, 500 * (x - y), 200 * (y - z)), dim=1)


def rgb_to_ydbdr(images: Tensor) -> Tensor:
    """RGB to the luminance and colour differences of SECAM, the values of scikit-image's ``rgb2ydbdr``.

    Args:
        images: ``[B, 3, H, W]`` in [0, 1].

    Returns:
        ``[B, 3, H, W]`` with Y in [0, 1], Db and Dr in [-1.333, 1.333].

    Raises:
        ArgumentError: for another shape or an integer dtype.
    """
    _check_rgb(images)
    return _mix(images, _YDBDR)


def standardise(images: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """``(images - mean) / std`` with one statistic per channel, or one for all."""
    # built on the host and copied without waiting: one small transfer instead of a synchronisation
    statistics = torch.tensor((mean, std), dtype=images.dtype).to(images.device, non_blocking=True)[:, :, None, None]
    return images.sub(statistics[0]).div_(statistics[1])


def check_images(images: Tensor, *, floating: bool) -> None:
    """Refuse anything but a batch of grey or RGB images of the stated kind.

    Args:
        images: should be ``[B, C, H, W]`` with ``C`` 1 or 3.
        floating: whether floating point is expected, else ``uint8``.

    Raises:
        ArgumentError: naming the attribute of ``images`` that is wrong.
    """
    if images.dim() != 4 or images.shape[1] not in (1, 3) or min(images.shape[2:]) < 1:
        raise errors.reject("images.shape", tuple(images.shape), "[B, C, H, W] with C in {1, 3} and H, W >= 1")
    if floating and not images.is_floating_point():
        raise errors.reject("images.dtype", images.dtype, "a floating dtype with values in [0, 1]")
    if not floating and images.dtype != torch.uint8:
        raise errors.reject("images.dtype", images.dtype, "torch.uint8 with values in 0..255")
