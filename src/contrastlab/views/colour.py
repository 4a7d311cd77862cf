"""Colour spaces whose channels are split into views of an image (CMC, sections 4.1 and 4.4)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from contrastlab.support import errors

Row = tuple[float, float, float]
Matrix = tuple[Row, Row, Row]

# sRGB to CIE XYZ (IEC 61966-2-1), each row already divided by the D65 white point (2 degree observer)
_XYZ: Matrix = (
    (0.412453 / 0.95047, 0.357580 / 0.95047, 0.180423 / 0.95047),
    (0.212671, 0.715160, 0.072169),
    (0.019334 / 1.08883, 0.119193 / 1.08883, 0.950227 / 1.08883),
)
_WHITE = (0.95047, 1.0, 1.08883)
# luminance and colour differences of SECAM; of digital video (BT.601); luma, in-phase and quadrature signals of NTSC
_YDBDR: Matrix = ((0.299, 0.587, 0.114), (-0.45, -0.883, 1.333), (-1.333, 1.116, 0.217))
_YCBCR: Matrix = ((65.481, 128.553, 24.966), (-37.797, -74.203, 112.0), (112.0, -93.786, -18.214))
_YIQ: Matrix = (
    (0.299, 0.587, 0.114),
    (0.59590059, -0.27455667, -0.32134392),
    (0.21153661, -0.52273617, 0.31119955),
)
# the inverse of the stains' optical densities (Ruifrok and Johnston 2001), a row a stain
_HED: Matrix = (
    (1.87798274, -0.06590806, -0.60190736),
    (-1.00767869, 1.13473037, -0.48041419),
    (-0.55611582, -0.1355218, 1.57358807),
)
_DARKEST = 1e-6  # intensity whose optical density is 1


def _mix(images: Tensor, matrix: Matrix) -> Tensor:
    """A 3x3 colour matrix, as sums rather than a matmul: exact float32 under autocast and TF32."""
    red, green, blue = images.unbind(1)
    channels = []
    for of_red, of_green, of_blue in matrix:
        channel = red.mul(of_red).add_(green, alpha=of_green).add_(blue, alpha=of_blue)
        channels.append(channel)
    return torch.stack(channels, dim=1)


def _linear(images: Tensor) -> Tensor:
    """Intensities of sRGB values."""
    return torch.where(images > 0.04045, ((images + 0.055) / 1.055).pow(2.4), images / 12.92)


def _lab(images: Tensor) -> Tensor:
    """L in [0, 100], a in [-86.2, 98.3] and b in [-107.9, 94.5]."""
    ratio = _mix(_linear(images), _XYZ)
    root = torch.where(ratio > 0.008856, ratio.clamp(min=1e-6).pow(1 / 3), 7.787 * ratio + 16 / 116)
    x, y, z = root.unbind(1)
    return torch.stack((116 * y - 16, 500 * (x - y), 200 * (y - z)), dim=1)


def _xyz(images: Tensor) -> Tensor:
    ratio = _mix(_linear(images), _XYZ)
    x, y, z = ratio.unbind(1)
    white_x, white_y, white_z = _WHITE
    return torch.stack((x * white_x, y * white_y, z * white_z), dim=1)


def _ycbcr(images: Tensor) -> Tensor:
    """Y in [16, 235], Cb and Cr in [16, 240]."""
    y, cb, cr = _mix(images, _YCBCR).unbind(1)
    return torch.stack((y + 16, cb + 128, cr + 128), dim=1)


def _hsv(images: Tensor) -> Tensor:
    """Hue is periodic: 0 and 1 are red; grey has hue and saturation 0."""
    red, green, blue = images.unbind(1)
    value = images.amax(1)
    chroma = value - images.amin(1)
    grey = chroma == 0
    step = torch.where(grey, 1.0, chroma)
    hue = torch.where(value == green, 2 + (blue - red) / step, (green - blue) / step)
    hue = torch.where(value == blue, 4 + (red - green) / step, hue)
    hue = torch.where(grey, 0.0, (hue / 6) % 1)
    return torch.stack((hue, chroma / torch.where(grey, 1.0, value), value), dim=1)


def _hed(images: Tensor) -> Tensor:
    """Amounts of haematoxylin, eosin and DAB, at least 0; white has none.

    Optical densities -log(intensity), in units of that of one millionth, are unmixed into three stains.
    """
    density = images.clamp(min=_DARKEST).log() / math.log(_DARKEST)
    return _mix(density, _HED).clamp_(min=0)


@dataclass(frozen=True)
class Space:
    """A colour space, and its split into the first channel and the two others."""

    from_rgb: Callable[[Tensor], Tensor]  # RGB [B, 3, H, W] in [0, 1] to the space
    streams: tuple[str, str]  # names of the first channel, and of the second and third together
    middle: Row  # mid-range of each channel over all colours
    half: Row  # half-range of each channel: (value - middle) / half fills [-1, 1]
    released: tuple[Row, Row] | None = None  # mean and half-range in the authors' later code, where they differ
    latex: tuple[str, str] | None = None  # both names as formulas, where they are others

    def convert(self, images: Tensor) -> Tensor:
        """Floating RGB ``[B, 3, H, W]`` in [0, 1] to the values that scikit-image gives."""
        check_images(images, floating=True)
        if images.shape[1] != 3:
            raise errors.reject("images.shape", tuple(images.shape), "[B, 3, H, W]: RGB")
        return self.from_rgb(images)


_UNIT = (0.5, 0.5, 0.5)

SPACES: Mapping[str, Space] = MappingProxyType(
    {
        # the half-ranges of Lab are those of CMC's code
        "lab": Space(_lab, ("L", "ab"), (50.0, 6.025, -6.6895), (50.0, 92.208, 101.1675)),
        "ydbdr": Space(
            lambda images: _mix(images, _YDBDR),
            ("Y", "DbDr"),
            (0.5, 0.0, 0.0),
            (0.5, 1.333, 1.333),
            ((0.457, -0.082, -0.052), (0.5, 1.331, 1.333)),
            ("Y", "D_bD_r"),
        ),
        "ycbcr": Space(
            _ycbcr,
            ("Y", "CbCr"),
            (125.5, 128.0, 128.0),
            (109.5, 112.0, 112.0),
            ((116.151, 121.080, 132.342), (109.500, 111.855, 111.964)),
            ("Y", "C_bC_r"),
        ),
        "yiq": Space(lambda images: _mix(images, _YIQ), ("Y", "IQ"), (0.5, 0.0, 0.0), (0.5, 0.5959006, 0.5227362)),
        "rgb": Space(lambda images: images, ("R", "GB"), _UNIT, _UNIT),
        "hsv": Space(_hsv, ("H", "SV"), _UNIT, _UNIT),
        "hed": Space(_hed, ("H", "ED"), (0.9389914, 0.5673652, 0.786794), (0.9389914, 0.5673652, 0.786794)),
        "xyz": Space(_xyz, ("X", "YZ"), (0.475228, 0.5, 0.544377), (0.475228, 0.5, 0.544377)),
    }
)
"""Name to colour space; the names are scikit-image's."""


def standardise(images: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """``(images - mean) / std`` with one statistic per channel, or one for all."""
    # built on the host and copied without waiting: one small transfer instead of a synchronisation
    statistics = torch.tensor((mean, std), dtype=images.dtype).to(images.device, non_blocking=True)[:, :, None, None]
    return images.sub(statistics[0]).div_(statistics[1])


LEVELS: Mapping[torch.dtype, int] = MappingProxyType({torch.uint8: 255, torch.uint16: 65_535})
"""Types of stored pictures, each with its highest level."""


def check_images(images: Tensor, *, floating: bool) -> None:
    """Refuse anything but images ``[B, C, H, W]``, floating or else of 8 or 16 bits; name what is wrong."""
    if images.dim() != 4 or min(images.shape[1:]) < 1:
        raise errors.reject("images.shape", tuple(images.shape), "[B, C, H, W] with C, H, W >= 1")
    if floating and not images.is_floating_point():
        raise errors.reject("images.dtype", images.dtype, "a floating dtype with values in [0, 1]")
    if not floating and images.dtype not in LEVELS:
        raise errors.reject("images.dtype", images.dtype, "torch.uint8 or torch.uint16")
