"""RandAugment as the authors of CMC use it in their later code: a few operations, drawn for each image.

Each of ``n`` operations is drawn with replacement and applied with probability 1/2, at a level from a normal
distribution around 10 with deviation 0.5, cut off at 10: at most the full strength. Views of a colour split are changed
in their geometry only, since an operation on colours would change what one view says of the other.

Sources: Cubuk et al. 2019; names and ranges as in the code of CMC's authors, which has them from timm. The operations
are torchvision's, image by image.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal

import torch
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as v2

Space = Literal["geometry", "all"]

_FILL = [124 / 255, 116 / 255, 104 / 255]  # the mean colour of ImageNet in 8 bits
_TOP = 10.0
_MEAN, _SPREAD, _APPLIED = 10.0, 0.5, 0.5

Operation = Callable[[Tensor, float, float], Tensor]
"""Image ``[C, H, W]`` in [0, 1], level from 0 to 1 and sign -1 or 1 to an image."""


def _moved(
    x: Tensor, *, degrees: float = 0.0, shift: tuple[float, float] = (0.0, 0.0),
    slope: tuple[float, float] = (0.0, 0.0),
) -> Tensor:  # fmt: skip
    """Rotated about the centre, shifted by fractions of its sides, or sheared with the first corner fixed."""
    moved: Tensor = v2.affine(
        x, angle=degrees, translate=[shift[0] * x.shape[2], shift[1] * x.shape[1]], scale=1.0,
        shear=[math.degrees(math.atan(s)) for s in slope], interpolation=InterpolationMode.BILINEAR,
        fill=_FILL[: x.shape[0]], center=[0.0, 0.0] if any(slope) else None,
    )  # fmt: skip
    return moved


def _factor(level: float) -> float:
    return 0.1 + 1.8 * level


def _solarize_add(x: Tensor, level: float) -> Tensor:
    return torch.where(x < 128 / 255, (x + 110 * level / 255).clamp(max=1), x)


def _bits(x: Tensor, kept: int) -> Tensor:
    if not kept:
        return torch.zeros_like(x)
    left: Tensor = v2.posterize((x * 255).round().to(torch.uint8), kept)
    return left.to(x.dtype) / 255


def _equalized(x: Tensor) -> Tensor:
    level: Tensor = v2.equalize((x * 255).round().to(torch.uint8))
    return level.to(x.dtype) / 255


GEOMETRY: Mapping[str, Operation] = MappingProxyType(
    {
        "AutoContrast": lambda x, level, sign: v2.autocontrast(x),
        "Identity": lambda x, level, sign: x,
        "Rotate": lambda x, level, sign: _moved(x, degrees=30 * level * sign),
        "Sharpness": lambda x, level, sign: v2.adjust_sharpness(x, _factor(level)),
        "ShearX": lambda x, level, sign: _moved(x, slope=(0.3 * level * sign, 0.0)),
        "ShearY": lambda x, level, sign: _moved(x, slope=(0.0, 0.3 * level * sign)),
        "TranslateX": lambda x, level, sign: _moved(x, shift=(0.45 * level * sign, 0.0)),
        "TranslateY": lambda x, level, sign: _moved(x, shift=(0.0, 0.45 * level * sign)),
    }
)
"""Operations for views of a colour split."""

_COLOURS: Mapping[str, Operation] = MappingProxyType(
    {
        "Equalize": lambda x, level, sign: _equalized(x),
        "Invert": lambda x, level, sign: v2.invert(x),
        "Posterize": lambda x, level, sign: _bits(x, int(4 * level)),
        "Solarize": lambda x, level, sign: v2.solarize(x, int(256 * level) / 255) if level < 1 else x,
        "SolarizeAdd": lambda x, level, sign: _solarize_add(x, level),
        "Color": lambda x, level, sign: v2.adjust_saturation(x, _factor(level)),
        "Contrast": lambda x, level, sign: v2.adjust_contrast(x, _factor(level)),
        "Brightness": lambda x, level, sign: v2.adjust_brightness(x, _factor(level)),
    }
)

OPERATIONS: Mapping[str, tuple[Operation, ...]] = MappingProxyType(
    {
        "geometry": tuple(GEOMETRY.values()),
        "all": tuple(operation for name, operation in {**GEOMETRY, **_COLOURS}.items() if name != "Identity"),
    }
)
"""Space to its operations."""


def sample_operations(
    count: int, number: int, space: Space, *, generator: torch.Generator | None, device: torch.device | str
) -> Tensor:
    """``[B, n, 3]`` of (operation, level from 0 to 1, sign): what is done to each image, one after the other.

    An operation of -1 does nothing.

    Args:
        count: number of images B.
        number: of operations n.
        space: which operations.
        generator: source of the draws.
        device: where to draw.
    """
    unit = torch.rand(3, count, number, generator=generator, device=device)
    level = torch.randn(count, number, generator=generator, device=device) * _SPREAD + _MEAN
    which = (unit[0] * len(OPERATIONS[space])).floor().clamp(max=len(OPERATIONS[space]) - 1)
    which = which.where(unit[1] < _APPLIED, -1.0)
    return torch.stack([which, level.clamp(0, _TOP) / _TOP, (unit[2] < 0.5).float() * 2 - 1], -1)


def randaugment(images: Tensor, operations: Tensor, space: Space) -> Tensor:
    """``[B, C, H, W]`` images in [0, 1] after the ``[B, n, 3]`` operations of :func:`sample_operations`."""
    out = []
    for image, steps in zip(images, operations.tolist(), strict=True):
        for which, level, sign in steps:
            if which >= 0:
                image = OPERATIONS[space][int(which)](image, level, sign)
        out.append(image)
    return torch.stack(out) if out else images
